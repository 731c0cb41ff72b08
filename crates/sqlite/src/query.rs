//! Queries: one page of rows in the order of their keys.

use std::ops::Bound;

use rusqlite::{Connection, ToSql};

use evenkeel_model::{EntityKey, Filter, Row, limits};
use evenkeel_storage::range::{self, KeyBounds, ScanRange};
use evenkeel_storage::{Continuation, Page, Query, check};

use super::entities;
use super::fault::Fault;

/// Maximum number of rows that one page reads. A page of the service ends after 5 s of work; this
/// limit has the same effect.
const SCANNED_ROWS: usize = 20_000;
/// Maximum bytes of properties on one page (an answer of the service has at most 4 MiB).
const PAGE_BYTES: usize = 4_194_304;

/// Returns how many rows the page may have.
pub(super) fn check(query: &Query) -> Result<usize, Fault> {
    check::query(query)?;
    let top = query.top.unwrap_or(limits::PAGE_ROWS);
    usize::try_from(top).map_err(|_| Fault::permanent("page does not fit in memory"))
}

pub(super) fn page(
    connection: &Connection,
    table: i64,
    query: &Query,
    limit: usize,
) -> Result<Page, Fault> {
    let (range, left) = range::plan(query.filter.as_ref());
    let Some(range) = resume(range, query.continuation.as_ref()) else {
        return Ok(Page {
            rows: Vec::new(),
            continuation: None,
        });
    };
    let scan = Scan::of(table, &range);
    let mut statement = connection.prepare_cached(&scan.sql)?;
    let parameters = scan
        .parameters
        .iter()
        .map(AsRef::as_ref)
        .collect::<Vec<&dyn ToSql>>();
    let mut found = statement.query(parameters.as_slice())?;
    let mut page = Page {
        rows: Vec::new(),
        continuation: None,
    };
    let (mut scanned, mut bytes) = (0, 0);
    while let Some(row) = found.next()? {
        let (pk, rk) = (row.get_ref(0)?, row.get_ref(1)?);
        let text = |value: rusqlite::types::ValueRef<'_>| {
            value
                .as_str()
                .map(str::to_owned)
                .map_err(|_| Fault::corrupt("a key that is not text"))
        };
        if page.rows.len() >= limit || scanned >= SCANNED_ROWS || bytes >= PAGE_BYTES {
            page.continuation = Some(Continuation {
                next_partition_key: text(pk)?,
                next_row_key: Some(text(rk)?),
            });
            break;
        }
        scanned += 1;
        let key =
            EntityKey::new(text(pk)?, text(rk)?).map_err(|_| Fault::corrupt("an invalid key"))?;
        let properties = row
            .get_ref(3)?
            .as_blob()
            .map_err(|_| Fault::corrupt("an entity without its properties"))?;
        if let Some(row) = admit(
            key,
            row.get(2)?,
            properties,
            left.as_ref(),
            query.select.as_deref(),
        )? {
            bytes += properties.len();
            page.rows.push(row);
        }
    }
    Ok(page)
}

/// Applies the filter, which sees all properties, then the projection.
fn admit(
    key: EntityKey,
    stamp: i64,
    properties: &[u8],
    filter: Option<&Filter>,
    select: Option<&[String]>,
) -> Result<Option<Row>, Fault> {
    let Some(filter) = filter else {
        return entities::decode(key, stamp, properties, select).map(Some);
    };
    let mut row = entities::decode(key, stamp, properties, None)?;
    if !filter.matches(&row) {
        return Ok(None);
    }
    if let Some(select) = select {
        row.entity
            .properties
            .retain(|name, _| select.contains(name));
    }
    Ok(Some(row))
}

struct ResumedRange {
    range: ScanRange,
    /// The first row, if a continuation names one inside the range.
    row: Option<(String, String)>,
}

/// Cuts off what earlier pages have read. `None` if nothing is left.
fn resume(range: ScanRange, continuation: Option<&Continuation>) -> Option<ResumedRange> {
    let at = continuation.map(|at| {
        (
            at.next_partition_key.clone(),
            at.next_row_key.clone().unwrap_or_default(),
        )
    });
    match (range, at) {
        (ScanRange::Nothing, _) => None,
        (range, None) => Some(ResumedRange { range, row: None }),
        (ScanRange::Partition(pk, mut rows), Some((next_pk, next_rk))) => {
            if next_pk > pk {
                return None;
            }
            if next_pk == pk {
                rows.raise(Bound::Included(next_rk));
            }
            Some(ResumedRange {
                range: ScanRange::Partition(pk, rows),
                row: None,
            })
        }
        (ScanRange::Partitions(partitions), Some(next)) => {
            let inside = match &partitions.lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => next.0 >= *lower,
                Bound::Excluded(lower) => next.0 > *lower,
            };
            Some(ResumedRange {
                range: ScanRange::Partitions(partitions),
                row: inside.then_some(next),
            })
        }
    }
}

struct Scan {
    sql: String,
    parameters: Vec<Box<dyn ToSql>>,
}

impl Scan {
    fn of(table: i64, from: &ResumedRange) -> Self {
        let mut scan = Self {
            sql: format!(
                "SELECT e.pk, e.rk, e.stamp, {} FROM entities AS e WHERE e.table_id = ?",
                entities::PROPERTIES
            ),
            parameters: vec![Box::new(table)],
        };
        match &from.range {
            // `resume` has excluded this case. A statement without rows gives the same result.
            ScanRange::Nothing => scan.and("FALSE", &[]),
            ScanRange::Partition(pk, rows) => {
                scan.and("e.pk = ?", &[pk]);
                scan.between("e.rk", rows);
            }
            ScanRange::Partitions(partitions) => match &from.row {
                Some((pk, rk)) => {
                    scan.and("(e.pk, e.rk) >= (?, ?)", &[pk, rk]);
                    scan.between(
                        "e.pk",
                        &KeyBounds {
                            lower: Bound::Unbounded,
                            upper: partitions.upper.clone(),
                        },
                    );
                }
                None => scan.between("e.pk", partitions),
            },
        }
        scan.sql.push_str(" ORDER BY e.pk, e.rk");
        scan
    }

    fn and(&mut self, condition: &str, values: &[&String]) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.parameters.extend(
            values
                .iter()
                .map(|value| Box::new((*value).clone()) as Box<dyn ToSql>),
        );
    }

    fn between(&mut self, column: &str, bounds: &KeyBounds) {
        match &bounds.lower {
            Bound::Unbounded => {}
            Bound::Included(value) => self.and(&format!("{column} >= ?"), &[value]),
            Bound::Excluded(value) => self.and(&format!("{column} > ?"), &[value]),
        }
        match &bounds.upper {
            Bound::Unbounded => {}
            Bound::Included(value) => self.and(&format!("{column} <= ?"), &[value]),
            Bound::Excluded(value) => self.and(&format!("{column} < ?"), &[value]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;
    use evenkeel_model::{Comparison, Filter};

    /// SQLite's plan for a filter.
    fn plan_of(filter: &Filter, continuation: Option<&Continuation>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&folder.path().join("plan.db")).unwrap();
        let (range, _) = range::plan(Some(filter));
        let scan = Scan::of(1, &resume(range, continuation).unwrap());
        let mut statement = connection
            .prepare(&format!("EXPLAIN QUERY PLAN {}", scan.sql))
            .unwrap();
        let parameters = scan
            .parameters
            .iter()
            .map(AsRef::as_ref)
            .collect::<Vec<&dyn ToSql>>();
        let rows = statement
            .query_map(parameters.as_slice(), |row| row.get::<_, String>(3))
            .unwrap();
        rows.map(Result::unwrap).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn every_shape_of_scan_is_a_search_by_key_without_sorting() {
        let pk = |op, text: &str| Filter::compare("PartitionKey", op, text);
        let rk = |op, text: &str| Filter::compare("RowKey", op, text);
        let next = Continuation {
            next_partition_key: "p".to_owned(),
            next_row_key: Some("r".to_owned()),
        };
        for (filter, continuation, key) in [
            (pk(Comparison::Equal, "p"), None, "table_id=? AND pk=?)"),
            (
                pk(Comparison::Equal, "p"),
                Some(&next),
                "table_id=? AND pk=? AND rk>?)",
            ),
            (
                pk(Comparison::Equal, "p")
                    .and(rk(Comparison::Greater, "a"))
                    .and(rk(Comparison::Less, "b")),
                None,
                "pk=? AND rk>? AND rk<?)",
            ),
            (
                pk(Comparison::Greater, "a").and(pk(Comparison::Less, "q")),
                None,
                "table_id=? AND pk>? AND pk<?)",
            ),
            (
                pk(Comparison::Greater, "a"),
                Some(&next),
                "table_id=? AND (pk,rk)>(?,?))",
            ),
            (rk(Comparison::Equal, "r"), None, "table_id=?)"),
        ] {
            let plan = plan_of(&filter, continuation);
            assert!(
                plan.starts_with("SEARCH e USING PRIMARY KEY"),
                "{filter}: {plan}"
            );
            assert!(plan.contains(key), "{filter}: {plan}");
            assert!(!plan.contains("TEMP B-TREE"), "{filter}: {plan}");
        }
    }
}
