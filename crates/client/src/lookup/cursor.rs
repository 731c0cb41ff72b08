//! Reading one range, page by page, from wherever an earlier lookup left it.

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

/// Most pages of a range without a wanted row.
pub(super) const PAGES: u64 = 1_000;

/// Context shared by all ranges of a lookup.
pub(super) struct Reading<'a> {
    /// Kind of rows wanted: other rows are left out.
    pub(super) what: LookupTarget<'a>,
    /// Where the copies lie.
    pub(super) table: &'a TargetRef,
    /// Properties to read, evenkeel's own among them; all where absent.
    pub(super) select: Option<Vec<String>>,
    /// Most rows of a page.
    pub(super) page: u32,
    /// Most pages of a range without a wanted row, after which the lookup ends with a continuation.
    pub(super) pages: u64,
    /// What a row has to satisfy beside.
    pub(super) condition: Option<&'a Condition>,
}

impl Reading<'_> {
    /// Whether a row is wanted. One that lies elsewhere than the hash of its partition says is not moved yet,
    /// or not deleted yet.
    fn wants(&self, row: &Row, range: &KeyRange) -> bool {
        let at_home = *self.table.accounts.holder(row.entity.key.pk.as_str()) == range.account;
        at_home
            && self.what.has(row)
            && self
                .condition
                .is_none_or(|condition| condition.holds(&row.entity))
    }

    /// The filter of a query of a range.
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

/// Which rows of a table are looked for.
#[derive(Clone, Copy)]
pub(super) enum LookupTarget<'a> {
    /// Those of a view.
    View(&'a View),
    /// The entities that are a table's own.
    Own(&'a TableName),
}

/// A range, and the account that is asked for it.
#[derive(Clone, Copy)]
pub(super) struct AskedRange<'a> {
    pub(super) range: &'a KeyRange,
    pub(super) account: &'a Account,
}

/// One range, and how far it has been read.
pub(super) struct Cursor<'a> {
    /// The range.
    pub(super) range: &'a KeyRange,
    /// Its account.
    account: &'a Account,
    /// Rows that were read and not taken yet.
    rows: VecDeque<Row>,
    /// The page that they came from, and the last row taken.
    position: Position,
    /// The last row that an earlier lookup took, until the pages have come past it. A page that is read again may
    /// be shorter than it was.
    taken: Option<EntityKey>,
    /// The page to read next; nothing at the end.
    next: Option<NextPage>,
    /// Requests sent.
    pub(super) requests: u64,
}

/// The page to read next.
enum NextPage {
    First,
    At(Continuation),
}

impl<'a> Cursor<'a> {
    /// At the start of a range, or where an earlier lookup left it.
    pub(super) fn new(AskedRange { range, account }: AskedRange<'a>, position: Position) -> Self {
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

    /// Reads pages until there is a row, or the end, or many without any.
    pub(super) async fn fill(&mut self, reading: &Reading<'_>) -> Result<(), StoreError> {
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

    /// The rows of a page that no earlier lookup took. Told by the last one that was, and where that one is gone
    /// since, by the order of keys.
    fn not_taken(&mut self, mut rows: Vec<Row>) -> Vec<Row> {
        let Some(taken) = &self.taken else {
            return rows;
        };
        let before = match rows.iter().position(|row| row.entity.key == *taken) {
            Some(last) => last + 1,
            // Stores differ in the order of rare characters. What is behind it in one of them comes again.
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

    /// Whether many pages had no row that was wanted, and there are more.
    pub(super) fn is_starved(&self) -> bool {
        self.rows.is_empty() && self.next.is_some()
    }

    /// The key by which the next row is merged with those of other ranges.
    pub(super) fn merge_key(&self) -> Option<(&str, &str)> {
        self.rows
            .front()
            .map(|row| self.range.merge_key(&row.entity.key))
    }

    /// The next row.
    pub(super) fn take(&mut self) -> Option<Row> {
        let row = self.rows.pop_front()?;
        self.position.after = Some(row.entity.key.clone());
        Some(row)
    }

    /// Where to go on from.
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
    /// Whether a row is meant: its table may hold primaries and several views' rows.
    fn has(self, row: &Row) -> bool {
        let view = match self {
            Self::View(view) => view,
            // Further rows of wide entities are read with their first.
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
            // One that says nonsense is shown where its owner is asked for.
            Form::Properties { .. } | Form::Claims(_) => row
                .entity
                .get(&shared::owner_property(&view.name))
                .is_some(),
        }
    }
}

/// The most rows of a page for this many rows in all.
pub(super) fn page_rows(top: u32) -> u32 {
    top.min(limits::PAGE_ROWS)
}
