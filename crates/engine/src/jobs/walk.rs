//! Walks over the primaries of a table, page by page: first those that exist, then deleted ones that still have a
//! footprint.
//!
//! ```text
//!   the keys of a page ──▶ the footprints in their range ──▶ the rows ──▶ a pass over each primary
//! ```
//!
//! A pass must read the footprint before the primary. A walk keeps this order for a whole page: it requests the rows
//! after it has received the footprints. So a pass may begin with the footprint and the row from the page
//! ([`ReadAhead`]). If the footprint or the row is written meanwhile, the pass loses a race, and then reads both by
//! itself.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt as _};

use crate::execute::{Delivery, Failure};
use crate::failure::storage;
use crate::jobs::context::JobContext;
use crate::protocol::footprint::{self, Footprint, Settled};
use crate::protocol::observe::{ReadAhead, ReadTime};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::item::{SOURCE_PROPERTY, VIEW_PROPERTY, is_derived_within};
use evenkeel_model::job::Primary;
use evenkeel_model::{Comparison, EntityKey, Filter, Key, Row, TableName};
use evenkeel_storage::wide::{ROWS_PROPERTY, is_continuation};
use evenkeel_storage::{Continuation, Page, Query};

const PAGE: u32 = 100;
/// Maximum number of rows that a page reads ahead if their size is unknown. Even four rows of 1 MiB, the maximum size,
/// fit into the memory for a page (`PAGE_BYTES`).
const UNKNOWN: u32 = 4;
pub(crate) const AT_ONCE: usize = 16;

pub(crate) struct Walk<'e> {
    pub(crate) cx: &'e JobContext,
    pub(crate) source: &'e TableRef,
    pub(crate) delivery: &'e Delivery,
}

/// The start of a page as stored in the cursors of messages: the two parts of a continuation token.
pub(crate) type PagePosition = (Option<String>, Option<String>);

pub(crate) struct PrimaryPage {
    pub(crate) keys: Vec<EntityKey>,
    pub(crate) ahead: BTreeMap<EntityKey, ReadAhead>,
    pub(crate) next: PagePosition,
}

impl Walk<'_> {
    /// Returns a page of primaries that exist. It excludes rows that views derive into the same table, and continuation
    /// rows of wide entities.
    pub(crate) async fn existing(&self, from: &PagePosition) -> Result<PrimaryPage, Failure> {
        let select = vec![SOURCE_PROPERTY.to_owned(), VIEW_PROPERTY.to_owned()];
        let page = self
            .page(self.source, &self.source.table, None, Some(select), from)
            .await?;
        let rows = page
            .rows
            .into_iter()
            .filter(|row| !is_derived_within(&self.source.table, &row.entity));
        let wide = self.cx.env.catalog.wide.contains(self.source);
        let keys: Vec<EntityKey> = rows
            .map(|row| row.entity.key)
            .filter(|key| !(wide && is_continuation(&key.rk)))
            .collect();
        let most = match self.cx.env.row_sizes.are_small(self.source) {
            Some(true) => PAGE,
            None => UNKNOWN,
            Some(false) => 0,
        };
        let ahead = if most > 0 && !wide && self.cx.env.catalog.has_views(self.source) {
            self.read_ahead(&keys, most, from).await?
        } else {
            BTreeMap::new()
        };
        Ok(PrimaryPage {
            keys,
            ahead,
            next: place(page.continuation),
        })
    }

    async fn read_ahead(
        &self,
        keys: &[EntityKey],
        most: u32,
        from: &PagePosition,
    ) -> Result<BTreeMap<EntityKey, ReadAhead>, Failure> {
        let env = &self.cx.env;
        let footprint_of = |key: &EntityKey| footprint::key(&self.primary(key.clone()));
        let keys: Vec<&EntityKey> = keys.iter().take(most as usize).collect();
        let Some((first, last)) = keys.first().zip(keys.last()) else {
            return Ok(BTreeMap::new());
        };
        let (first, last) = (footprint_of(first), footprint_of(last));
        let at = ReadTime::now(env);
        let between = |name: &str, first: &Key, last: &Key| {
            let from = Filter::compare(name, Comparison::GreaterOrEqual, first.as_str());
            from.and(Filter::compare(
                name,
                Comparison::LessOrEqual,
                last.as_str(),
            ))
        };
        let mut range = between("PartitionKey", &first.pk, &last.pk);
        if first.pk == last.pk {
            range = range.and(between("RowKey", &first.rk, &last.rk));
        }
        let query = Query {
            filter: Some(range),
            // Twice as many, because the range may also contain footprints of deleted primaries.
            top: Some(2 * most),
            ..Query::default()
        };
        let footprints = env.catalog.footprint_table(self.source);
        let page = self.query(self.source, &footprints, query).await?;
        let is_whole = page.continuation.is_none();
        let mut footprints: BTreeMap<EntityKey, Row> = page
            .rows
            .into_iter()
            .map(|row| (row.entity.key.clone(), row))
            .collect();
        let keys: BTreeSet<&EntityKey> = keys.into_iter().collect();
        let query = Query {
            top: Some(most),
            continuation: Continuation::of_parts(from.0.as_ref(), from.1.as_ref()),
            ..Query::default()
        };
        let page = self.query(self.source, &self.source.table, query).await?;
        let mut ahead = BTreeMap::new();
        for row in page.rows {
            env.row_sizes.learn(self.source, row.entity.stored_bytes());
            let key = row.entity.key.clone();
            let place = footprint_of(&key);
            // The key of a footprint has a hash in place of a long key, so the footprint may be outside the range that
            // was read. In this case, a footprint may exist although none was found.
            let is_in_range = (&first.pk..=&last.pk).contains(&&place.pk);
            let footprint = footprints.remove(&place);
            let is_wide = row.entity.get(ROWS_PROPERTY).is_some();
            if keys.contains(&key) && !is_wide && (footprint.is_some() || is_whole && is_in_range) {
                ahead.insert(key, ReadAhead { footprint, row, at });
            }
        }
        Ok(ahead)
    }

    /// Returns the deleted primaries of a page of footprints.
    pub(crate) async fn gone(&self, from: &PagePosition) -> Result<PrimaryPage, Failure> {
        let page = self
            .footprints(
                Some(vec!["Settled".to_owned(), footprint::OWNER.to_owned()]),
                from,
            )
            .await?;
        Ok(PrimaryPage {
            keys: self.without_primary(page.rows).await?,
            ahead: BTreeMap::new(),
            next: place(page.continuation),
        })
    }

    /// Returns the primaries of a page of footprints that may need a sync. Their footprints are not settled, or list
    /// changes whose outcome is unknown.
    pub(crate) async fn unsettled(&self, from: &PagePosition) -> Result<PrimaryPage, Failure> {
        let page = self.footprints(None, from).await?;
        let open = page.rows.into_iter().filter_map(|row| {
            let primary = self.primary(footprint::owner(&self.source.table, &row.entity)?);
            // A footprint that cannot be decoded is included, because the pass over its primary reports the reason.
            let settled = Footprint::decode(&primary, &row.entity, None)
                .is_ok_and(|read| !read.is_changing() && read.settled != Settled::Never);
            (!settled).then_some(primary.key)
        });
        Ok(PrimaryPage {
            keys: open.collect(),
            ahead: BTreeMap::new(),
            next: place(page.continuation),
        })
    }

    async fn footprints(
        &self,
        select: Option<Vec<String>>,
        from: &PagePosition,
    ) -> Result<Page, Failure> {
        // The partition key of a footprint begins with the table name and `~`. No table name contains `~`, so the range
        // has only the footprints of this table.
        let at = |op, end: &str| {
            Filter::compare("PartitionKey", op, format!("{}{end}", self.source.table))
        };
        let range = at(Comparison::GreaterOrEqual, "~").and(at(Comparison::Less, "\u{a0}"));
        let footprints = self.cx.env.catalog.footprint_table(self.source);
        self.page(self.source, &footprints, Some(range), select, from)
            .await
    }

    pub(crate) async fn page(
        &self,
        account: &TableRef,
        table: &TableName,
        filter: Option<Filter>,
        select: Option<Vec<String>>,
        from: &PagePosition,
    ) -> Result<Page, Failure> {
        let continuation = Continuation::of_parts(from.0.as_ref(), from.1.as_ref());
        let query = Query {
            filter,
            select,
            top: Some(PAGE),
            continuation,
        };
        self.query(account, table, query).await
    }

    async fn query(
        &self,
        account: &TableRef,
        table: &TableName,
        query: Query,
    ) -> Result<Page, Failure> {
        let page = self
            .cx
            .env
            .account(account)?
            .tables
            .query(table, &query)
            .await;
        page.map_err(|error| storage(format!("reading a page of {table}"), error))
    }

    async fn without_primary(&self, rows: Vec<Row>) -> Result<Vec<EntityKey>, Failure> {
        let tables = &self.cx.env.account(self.source)?.tables;
        let keys: Vec<EntityKey> = rows
            .iter()
            .filter_map(|row| footprint::owner(&self.source.table, &row.entity))
            .collect();
        let select = [SOURCE_PROPERTY.to_owned(), VIEW_PROPERTY.to_owned()];
        let reads: Vec<_> = keys
            .iter()
            .map(|key| tables.get(&self.source.table, key, Some(&select)))
            .collect();
        let rows: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        let mut gone = Vec::new();
        for (key, row) in keys.into_iter().zip(rows) {
            let row =
                row.map_err(|error| storage(format!("reading {}{key}", self.source), error))?;
            // Another primary may have derived a row with this key into the table meanwhile.
            if row.is_none_or(|row| is_derived_within(&self.source.table, &row.entity)) {
                gone.push(key);
            }
        }
        Ok(gone)
    }

    pub(crate) fn primary(&self, key: EntityKey) -> Primary {
        Primary {
            table: self.source.table.clone(),
            key,
        }
    }
}

pub(crate) fn place(next: Option<Continuation>) -> PagePosition {
    next.map(Continuation::into_parts).unwrap_or_default()
}
