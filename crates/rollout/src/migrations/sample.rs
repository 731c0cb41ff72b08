//! Reads a sample of a table's primaries, with about fifty from each of twenty places. A small
//! table is read completely.
//!
//! ```text
//!   the first thousand rows ─▶ all of them? done
//!     └─▶ places between partitions ([`KeySampler`]) ─▶ too few? places within each large partition
//! ```
//!
//! At most [`REQUESTS`] requests are sent for a table, one after the other. All of them are reads.

use std::collections::BTreeMap;

use super::MigrationError;
use super::key_sampler::{KeyRange, KeySampler};
use evenkeel_model::catalog::{Catalog, DatedRef, Source, TableRef};
use evenkeel_model::item::is_derived_within;
use evenkeel_model::{Comparison, Entity, EntityKey, Filter, Row};
use evenkeel_storage::wide;
use evenkeel_storage::{ErrorClass, Missing, Query, Stores, TableStore, all_tables};

const PRIMARIES: usize = 1000;
/// Number of places in the table from which primaries are read.
const PLACES: usize = 20;
/// Maximum number of requests for one table.
const REQUESTS: usize = 60;
/// If a source consists of dated tables, at most this many of its tables are read.
const DATES: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Primaries by table. If the source is dated tables, there are several tables.
    pub(super) tables: Vec<(TableRef, Vec<Entity>)>,
    /// Whether the sample has all primaries of the source.
    pub(super) whole: bool,
}

pub(super) async fn read(
    stores: &Stores,
    catalog: &Catalog,
    source: &Source,
) -> Result<Sample, MigrationError> {
    let account = stores.account(source.account())?;
    let tables = account.tables.as_ref();
    let (places, named) = match source {
        Source::Table(table) => (PLACES, vec![table.clone()]),
        Source::Dated(dated) => {
            let existing = dates(tables, dated).await?;
            let some = spread_over(&existing, DATES);
            (PLACES / some.len().max(1), some)
        }
    };
    let mut sample = Sample {
        tables: Vec::new(),
        whole: true,
    };
    for table in named {
        let mut reading = TableReader {
            tables,
            table: &table,
            wide: catalog.wide.contains(&table),
            requests: 0,
            whole: false,
            rows: BTreeMap::new(),
        };
        reading
            .spread(places)
            .await
            .map_err(MigrationError::store(format!("read a sample of {table}")))?;
        sample.whole &= reading.whole;
        let primaries = reading.primaries();
        sample.tables.push((table, primaries));
    }
    // The source may have tables of other dates, which were not read.
    sample.whole &= !matches!(source, Source::Dated(_)) || sample.tables.len() < DATES;
    Ok(sample)
}

/// The existing dated tables, in order of their dates.
async fn dates(tables: &dyn TableStore, dated: &DatedRef) -> Result<Vec<TableRef>, MigrationError> {
    let all = all_tables(tables)
        .await
        .map_err(MigrationError::store(format!(
            "list the tables of account {}",
            dated.account
        )))?;
    Ok(all.iter().filter_map(|name| dated.table(name)).collect())
}

/// Evenly spaced elements of a list, including the last one.
fn spread_over<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    let some = all.len().min(most);
    (1..=some)
        .map(|nth| all[nth * all.len() / some - 1].clone())
        .collect()
}

struct TableReader<'s> {
    tables: &'s dyn TableStore,
    table: &'s TableRef,
    wide: bool,
    requests: usize,
    whole: bool,
    rows: BTreeMap<EntityKey, Row>,
}

struct PageBounds {
    first: EntityKey,
    last: EntityKey,
    /// Whether no rows follow the page.
    ended: bool,
}

impl TableReader<'_> {
    async fn spread(&mut self, places: usize) -> Result<(), evenkeel_storage::StoreError> {
        let most = u32::try_from(PRIMARIES).unwrap_or(u32::MAX);
        let Some(first) = self.page(None, most, PRIMARIES).await? else {
            self.whole = true;
            return Ok(());
        };
        if first.ended {
            self.whole = true;
            return Ok(());
        }
        let beginning = std::mem::take(&mut self.rows);
        let each = PRIMARIES / places.max(1);
        // A page has more rows than needed, because some may not be primaries.
        let page = u32::try_from(2 * each).unwrap_or(most);
        let mut found = vec![first];
        let mut sampler = KeySampler::after(found[0].first.pk.as_str(), found[0].last.pk.as_str());
        while found.len() < places && self.requests < 2 * REQUESTS / 3 {
            let Some((range_of_keys, pending)) = sampler.next_range() else {
                break;
            };
            let next = self
                .page(Some(range("PartitionKey", &range_of_keys)), page, each)
                .await?;
            sampler.record(
                pending,
                next.as_ref()
                    .map(|found| (found.first.pk.as_str(), found.last.pk.as_str())),
            );
            found.extend(next);
        }
        // If there are only a few large partitions, each of them is read at several places.
        let mut left = places.saturating_sub(found.len());
        let large: Vec<PageBounds> = found
            .into_iter()
            .filter(|found| !found.ended && found.first.pk == found.last.pk)
            .collect();
        let of = large.len().max(1);
        for PageBounds { first, last, .. } in large {
            let mut within = KeySampler::after(first.rk.as_str(), last.rk.as_str());
            let mut share = left.div_ceil(of);
            while share > 0 && left > 0 && self.requests < REQUESTS {
                let Some((range_of_keys, pending)) = within.next_range() else {
                    break;
                };
                let filter = Filter::partition(&first.pk).and(range("RowKey", &range_of_keys));
                let next = self.page(Some(filter), page, each).await?;
                within.record(
                    pending,
                    next.as_ref()
                        .map(|found| (found.first.rk.as_str(), found.last.rk.as_str())),
                );
                (share, left) = (
                    share - usize::from(next.is_some()),
                    left - usize::from(next.is_some()),
                );
            }
        }
        // The rest of the sample is taken from the first page: at least as many primaries as from
        // any other place. They are evenly spaced. But if entities are wide, the first rows are
        // taken, because the rows of a wide entity must stay together.
        let room = PRIMARIES.saturating_sub(self.rows.len()).max(each);
        let step = if self.wide {
            1
        } else {
            beginning.len().div_ceil(room).max(1)
        };
        self.rows
            .extend(beginning.into_iter().step_by(step).take(room));
        Ok(())
    }

    /// Reads one page and keeps its first primaries; `None` if there are no rows.
    async fn page(
        &mut self,
        filter: Option<Filter>,
        rows: u32,
        primaries: usize,
    ) -> Result<Option<PageBounds>, evenkeel_storage::StoreError> {
        let mut query = Query {
            filter,
            top: Some(rows),
            ..Query::default()
        };
        loop {
            self.requests += 1;
            let page = match self.tables.query(&self.table.table, &query).await {
                Ok(page) => page,
                Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            let ends = page.rows.first().zip(page.rows.last());
            let found = ends.map(|(first, last)| PageBounds {
                first: first.entity.key.clone(),
                last: last.entity.key.clone(),
                ended: page.continuation.is_none(),
            });
            // A page without rows may still have a continuation token.
            if found.is_some() || page.continuation.is_none() || self.requests >= REQUESTS {
                let own = page
                    .rows
                    .into_iter()
                    .filter(|row| !is_derived_within(&self.table.table, &row.entity));
                self.rows
                    .extend(own.take(primaries).map(|row| (row.entity.key.clone(), row)));
                return Ok(found);
            }
            query.continuation = page.continuation;
        }
    }

    fn primaries(self) -> Vec<Entity> {
        let rows = self.rows.into_values();
        if self.wide {
            wide::whole(rows)
                .into_iter()
                .map(|row| row.entity)
                .collect()
        } else {
            rows.map(|row| row.entity).collect()
        }
    }
}

fn range(property: &str, KeyRange { from, before }: &KeyRange) -> Filter {
    let from = Filter::compare(property, Comparison::GreaterOrEqual, from.as_str());
    match before {
        Some(before) => from.and(Filter::compare(property, Comparison::Less, before.as_str())),
        None => from,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::migrations::testing::{table, world};
    use evenkeel_account::NoFaults;
    use evenkeel_model::{AccountName, dated::DatedTables};
    use evenkeel_storage::TableOperation;

    /// Reads a sample of tables with these keys. Returns the sample and the number of requests.
    async fn sampled(
        rows: &[(&str, Vec<(String, String)>)],
        source: &Source,
        catalog: &Catalog,
    ) -> (Sample, u64) {
        let world = world(Arc::new(NoFaults));
        let account = world.account();
        for (name, keys) in rows {
            let name = table(name).table;
            account.tables.create_table(&name).await.unwrap();
            for (pk, rk) in keys {
                let row =
                    Entity::new(EntityKey::new(pk.as_str(), rk.as_str()).unwrap()).with("N", 1);
                account
                    .tables
                    .apply(&name, &TableOperation::Insert(row))
                    .await
                    .unwrap();
            }
        }
        let before = world.operations();
        let stores = Stores::new([(AccountName::main(), account)].into());
        let sample = read(&stores, catalog, source).await.unwrap();
        (sample, world.operations() - before)
    }

    fn orders() -> Source {
        Source::Table(table("Orders"))
    }

    #[tokio::test]
    async fn a_small_table_is_read_whole_in_one_request_and_one_that_is_missing_is_empty() {
        let keys = (0..999).map(|n| ("p".to_owned(), format!("{n}"))).collect();
        let (sample, requests) = sampled(&[("Orders", keys)], &orders(), &Catalog::default()).await;
        assert_eq!(
            (sample.tables[0].1.len(), sample.whole, requests),
            (999, true, 1)
        );
        let (sample, _) = sampled(&[], &orders(), &Catalog::default()).await;
        assert!(sample.whole && sample.tables[0].1.is_empty());
    }

    #[tokio::test]
    async fn a_large_table_is_read_at_twenty_places_between_or_within_partitions() {
        let layouts: [(&str, Vec<(String, String)>); 4] = [
            (
                "many partitions",
                (0..6000)
                    .map(|n| (format!("customer-{n:06}"), "order".to_owned()))
                    .collect(),
            ),
            (
                "one partition",
                (0..6000)
                    .map(|n| ("p".to_owned(), format!("{n:06}")))
                    .collect(),
            ),
            (
                "three",
                (0..6000)
                    .map(|n| (format!("p{}", n % 3), format!("{n:06}")))
                    .collect(),
            ),
            (
                "large and small ones",
                (0..6000)
                    .map(|n| {
                        (
                            if n % 2 == 0 {
                                "a".to_owned()
                            } else {
                                format!("c{n}")
                            },
                            format!("{n:06}"),
                        )
                    })
                    .collect(),
            ),
        ];
        for (what, keys) in layouts {
            let (sample, requests) =
                sampled(&[("Orders", keys)], &orders(), &Catalog::default()).await;
            let primaries = &sample.tables[0].1;
            assert!(
                !sample.whole && requests <= 60,
                "{what}: {requests} requests"
            );
            assert!(
                (700..=1050).contains(&primaries.len()),
                "{what}: {} primaries in {requests} requests",
                primaries.len()
            );
            let tens: std::collections::BTreeSet<u32> = primaries
                .iter()
                .map(|primary| {
                    let [pk, rk] = [&primary.key.pk, &primary.key.rk].map(|key| {
                        key.as_str()
                            .trim_start_matches(|c: char| !c.is_ascii_digit())
                    });
                    rk.parse::<u32>().or_else(|_| pk.parse()).unwrap() / 600
                })
                .collect();
            assert!(
                tens.len() >= 8,
                "{what}: {requests} requests reached only parts {tens:?} of ten"
            );
        }
    }

    #[tokio::test]
    async fn only_primaries_are_sampled_and_wide_ones_are_joined() {
        let wide = Catalog {
            wide: [table("Orders")].into(),
            ..Catalog::default()
        };
        let keys = ["1", "1~1", "2"]
            .map(|rk| ("p".to_owned(), rk.to_owned()))
            .to_vec();
        let (sample, _) = sampled(&[("Orders", keys)], &orders(), &wide).await;
        assert_eq!(sample.tables[0].1.len(), 2);
    }

    #[tokio::test]
    async fn some_tables_by_date_are_read_including_the_last() {
        let names: Vec<String> = (1..=9).map(|month| format!("Orders20260{month}")).collect();
        let rows: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), vec![("p".to_owned(), "1".to_owned())]))
            .collect();
        let dated = DatedRef {
            account: AccountName::main(),
            tables: DatedTables::parse("Orders%Y%m").unwrap(),
        };
        let (sample, _) = sampled(&rows, &Source::Dated(dated), &Catalog::default()).await;
        let read: Vec<String> = sample
            .tables
            .iter()
            .map(|(table, _)| table.table.to_string())
            .collect();
        assert_eq!(
            (read, sample.whole),
            (
                ["02", "04", "06", "09"]
                    .map(|month| format!("Orders2026{month}"))
                    .to_vec(),
                false
            )
        );
    }
}
