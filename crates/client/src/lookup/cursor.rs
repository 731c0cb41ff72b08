//! Reads one range page by page. It begins at the start of the range, or at the position that an earlier lookup
//! reached.

use std::collections::VecDeque;

use super::token::Position;
use evenkeel_model::catalog::{Form, TargetRef, View};
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{Owner, is_derived_within};
use evenkeel_model::patterns::lookup::KeyRange;
use evenkeel_model::shared;
use evenkeel_model::{EntityKey, Filter, Row, TableName, limits};
use evenkeel_storage::wide;
use evenkeel_storage::{Account, Continuation, Query, StoreError};

/// Maximum number of consecutive pages of a range that contain no wanted row.
pub(super) const PAGES: u64 = 1_000;

/// Settings that all ranges of a lookup share.
pub(super) struct ReadContext<'a> {
    pub(super) target: LookupTarget<'a>,
    pub(super) table: &'a TargetRef,
    /// Names of the properties to read, including evenkeel's own properties; `None` for all properties.
    pub(super) select: Option<Vec<String>>,
    /// Maximum number of rows per page.
    pub(super) page: u32,
    /// Maximum number of consecutive pages without a wanted row. If it is reached, the lookup ends with a continuation.
    pub(super) pages: u64,
    pub(super) condition: Option<&'a Condition>,
}

impl ReadContext<'_> {
    /// Whether a row is part of the result. In a table that is spread over several accounts, the hash of the
    /// PartitionKey selects the account of a row. If the row is in another account, it is skipped, because it still has
    /// to be moved or deleted.
    fn wants(&self, row: &Row, range: &KeyRange) -> bool {
        let at_home = *self.table.accounts.holder(row.entity.key.pk.as_str()) == range.account;
        at_home
            && self.target.has(row)
            && self
                .condition
                .is_none_or(|condition| condition.holds(&row.entity))
    }

    fn filter(&self, range: &KeyRange) -> Option<Filter> {
        [
            range.filter(),
            self.condition.and_then(Condition::prefilter),
        ]
        .into_iter()
        .flatten()
        .reduce(Filter::and)
    }
}

#[derive(Clone, Copy)]
pub(super) enum LookupTarget<'a> {
    View(&'a View),
    /// The entities of a table, without the rows of views in it.
    Own(&'a TableName),
}

#[derive(Clone, Copy)]
pub(super) struct AccountRange<'a> {
    pub(super) range: &'a KeyRange,
    pub(super) account: &'a Account,
}

/// One range and the position up to which it has been read.
pub(super) struct Cursor<'a> {
    pub(super) range: &'a KeyRange,
    account: &'a Account,
    /// Rows that were read but not returned yet.
    rows: VecDeque<Row>,
    /// Where a later lookup continues. `page` is the continuation with which the page of `rows` was read. `after` is
    /// the key of the last row of this page that a lookup has returned.
    position: Position,
    /// The last row that an earlier lookup returned. All rows up to it are dropped again. It is kept until a page
    /// reaches beyond it, because the page that contained it may be shorter when it is read again.
    taken: Option<EntityKey>,
    /// The page to read next; `None` at the end of the range.
    next: Option<NextPage>,
    /// Requests sent.
    pub(super) requests: u64,
}

enum NextPage {
    First,
    At(Continuation),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(
        AccountRange { range, account }: AccountRange<'a>,
        position: Position,
    ) -> Self {
        let next = match (position.ended, position.page.clone()) {
            (true, _) => None,
            (false, None) => Some(NextPage::First),
            (false, Some(page)) => Some(NextPage::At(page)),
        };
        Self {
            range,
            account,
            rows: VecDeque::new(),
            taken: position.after.clone(),
            position,
            next,
            requests: 0,
        }
    }

    /// Reads pages until there is a row, the range ends, or the maximum number of pages without a wanted row is
    /// reached.
    pub(super) async fn fill(&mut self, reading: &ReadContext<'_>) -> Result<(), StoreError> {
        let most = self.requests + reading.pages;
        while self.rows.is_empty() && self.requests < most {
            let Some(next) = self.next.take() else {
                return Ok(());
            };
            self.requests += 1;
            if let Some(key) = self.range.point() {
                let row = self
                    .account
                    .tables
                    .get(&reading.table.table, &key, reading.select.as_deref())
                    .await?;
                self.rows
                    .extend(row.filter(|row| reading.wants(row, self.range)));
                continue;
            }
            let page = match next {
                NextPage::First => None,
                NextPage::At(page) => Some(page),
            };
            let filter = reading.filter(self.range);
            let query = Query {
                filter,
                select: reading.select.clone(),
                top: Some(reading.page),
                continuation: page.clone(),
            };
            let read = self
                .account
                .tables
                .query(&reading.table.table, &query)
                .await?;
            let after = self.taken.clone();
            let rows = self.not_taken(read.rows);
            self.rows.extend(rows.into_iter().filter(|row| {
                self.range.accepts(&row.entity.key) && reading.wants(row, self.range)
            }));
            self.position = Position {
                ended: false,
                page,
                after,
            };
            self.next = read.continuation.map(NextPage::At);
        }
        Ok(())
    }

    /// Drops the rows up to `taken` from a page, because an earlier lookup has returned them. If the row `taken` has
    /// been deleted since, the order of the keys decides which rows are dropped.
    fn not_taken(&mut self, mut rows: Vec<Row>) -> Vec<Row> {
        let Some(taken) = &self.taken else {
            return rows;
        };
        let before = match rows.iter().position(|row| row.entity.key == *taken) {
            Some(last) => last + 1,
            // Stores order some rare characters differently. A row is dropped only if it sorts before `taken` in every
            // such order, or comes before such a row on this page. So no row is missed, but a row may be returned
            // twice.
            None => rows
                .iter()
                .rposition(|row| row.entity.key.sorts_before_everywhere(taken))
                .map_or(0, |last| last + 1),
        };
        let past = before < rows.len() || rows.last().is_some_and(|row| row.entity.key == *taken);
        rows.drain(..before);
        if past {
            self.taken = None;
        }
        rows
    }

    /// Whether the maximum number of pages was reached before a wanted row was found.
    pub(super) fn is_starved(&self) -> bool {
        self.rows.is_empty() && self.next.is_some()
    }

    pub(super) fn merge_key(&self) -> Option<(&str, &str)> {
        self.rows
            .front()
            .map(|row| self.range.merge_key(&row.entity.key))
    }

    pub(super) fn take(&mut self) -> Option<Row> {
        let row = self.rows.pop_front()?;
        self.position.after = Some(row.entity.key.clone());
        Some(row)
    }

    pub(super) fn position(&self) -> Position {
        match (&self.next, self.rows.is_empty()) {
            (None, true) => Position {
                ended: true,
                ..Position::default()
            },
            (Some(NextPage::At(page)), true) => Position {
                ended: false,
                page: Some(page.clone()),
                after: self.taken.clone(),
            },
            (_, _) => self.position.clone(),
        }
    }
}

impl LookupTarget<'_> {
    /// Whether a row belongs to the target of the lookup. A table may contain primaries and the rows of several views.
    fn has(self, row: &Row) -> bool {
        let view = match self {
            Self::View(view) => view,
            // The first row of a wide entity is read here. The further rows are read separately.
            Self::Own(table) => {
                return !is_derived_within(table, &row.entity)
                    && !wide::is_continuation_of_any(row);
            }
        };
        match view.form() {
            Form::Copies { .. } => {
                Owner::of(&row.entity).is_some_and(|owner| owner.view == view.name)
            }
            Form::Lists { .. } => shared::is_list_of(&view.name, &row.entity),
            Form::BlobLists(_) | Form::Values(_) | Form::Documents(_) => false,
            // A row whose owner property is invalid is kept here. The error is reported when the owner is decoded.
            Form::Properties { .. } | Form::RangeOverlays(_) => row
                .entity
                .get(&shared::owner_property(&view.name))
                .is_some(),
        }
    }
}

pub(super) fn page_rows(top: u32) -> u32 {
    top.min(limits::PAGE_ROWS)
}
