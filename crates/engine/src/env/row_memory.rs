//! Memory for the primary of a job. A run reserves memory before it reads the primary, based on the sizes of earlier
//! rows of the table, and corrects the reservation once it knows the row's size.
//!
//! A row's size is known only once the row is in memory, which is too late if hundreds of rows are read at once. So
//! each table has an expected size. The expected size rises quickly and falls slowly, so that the large rows of a mixed
//! table count for more than its small rows. If a row is larger than expected, its run waits again, and holds only the
//! row while it waits. Small rows reserve nothing, because a few kilobytes for each job in flight do not matter.
//!
//! Only the first read of a run waits, because later reads may follow an announcement, after which no run may wait. A
//! run that already has memory of another share, for example for the page of a walk, does not wait either.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::env::memory::{MemoryBudget, MemoryGrant, MemoryShare};
use crate::env::waiting::is_first_read;
use evenkeel_model::catalog::TableRef;

/// Copies of a row in memory while its job runs: the response, the properties, and the body of a write. For rows of 600
/// KB, 3.1 copies were measured.
const COPIES: u64 = 3;
/// Rows with fewer bytes reserve nothing.
const SMALL_BYTES: u64 = 8 << 10;
/// Number of jobs of a table that may run at once while the sizes of its rows are unknown. More than the 100 writes
/// that fit into one transaction, so that transactions can be full.
const CONCURRENT_UNKNOWN: u64 = 128;
/// Maximum number of tables whose sizes are kept. There must be a limit, because new dated tables are created for
/// ever. At the limit, all sizes are forgotten and learned anew.
const CAPACITY: usize = 1_024;
/// If a row is larger than expected, the expected size rises by this part of the difference.
const RISES_BY: f64 = 0.5;
/// If a row is smaller than expected, the expected size falls by this part of the difference.
const FALLS_BY: f64 = 1.0 / 64.0;

#[derive(Debug, Default)]
pub(crate) struct RowSizes(Mutex<HashMap<TableRef, f64>>);

impl RowSizes {
    pub(crate) fn learn(&self, table: &TableRef, bytes: usize) {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a row has at most 1 MiB, and a wide entity at most 16 MiB"
        )]
        let bytes = bytes as f64;
        let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(expected) = sizes.get_mut(table) {
            *expected += (bytes - *expected)
                * if bytes > *expected {
                    RISES_BY
                } else {
                    FALLS_BY
                };
            return;
        }
        if sizes.len() >= CAPACITY {
            sizes.clear();
        }
        sizes.insert(table.clone(), bytes);
    }

    /// Whether the rows of a table are small; `None` if no row of the table was read yet.
    pub(crate) fn are_small(&self, table: &TableRef) -> Option<bool> {
        self.learned(table).map(|bytes| needed(bytes).is_none())
    }

    /// Bytes to reserve before a row is read, if `share` is the size of the share; `None` if the rows of the table are
    /// small.
    fn expected(&self, table: &TableRef, share: u64) -> Option<u64> {
        self.learned(table)
            .map_or(Some(share / CONCURRENT_UNKNOWN), needed)
    }

    /// The expected size of a row; `None` if no row of the table was read yet.
    fn learned(&self, table: &TableRef) -> Option<u64> {
        let bytes = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(table)
            .copied();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "sizes are positive, and no machine has 2^53 bytes"
        )]
        bytes.map(|bytes| bytes as u64)
    }
}

/// Bytes to reserve for a row of this size; `None` if the row is small.
const fn needed(bytes: u64) -> Option<u64> {
    if bytes < SMALL_BYTES {
        None
    } else {
        Some(bytes * COPIES)
    }
}

#[derive(Debug, Default)]
pub(crate) struct RowMemory(OnceLock<MemoryGrant>);

impl RowMemory {
    /// Reads a row by awaiting `read`, and reserves memory for it. `bytes` returns the row's size.
    pub(crate) async fn reading<T, E>(
        &self,
        sizes: &RowSizes,
        budget: &MemoryBudget,
        table: &TableRef,
        read: impl Future<Output = Result<T, E>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T, E> {
        if !is_first_read() {
            let stored = read.await?;
            sizes.learn(table, bytes(&stored));
            return Ok(stored);
        }
        let take = |bytes: Option<u64>| async move {
            match bytes {
                Some(bytes) => Some(budget.take_untimed(MemoryShare::Rows, bytes).await),
                None => None,
            }
        };
        let mut grant = take(sizes.expected(table, budget.used(MemoryShare::Rows).bytes)).await;
        let stored = read.await?;
        let bytes = bytes(&stored);
        sizes.learn(table, bytes);
        match (needed(bytes as u64), &mut grant) {
            (Some(needed), Some(taken)) if taken.bytes() >= needed => taken.shrink(needed),
            (needed, _) => {
                // The grant is returned before a larger one is requested, because two runs that each kept a grant could
                // wait for each other.
                drop(grant.take());
                grant = take(needed).await;
            }
        }
        if let Some(grant) = grant {
            let _ = self.0.set(grant);
        }
        Ok(stored)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::env::memory::MemoryUse;
    use crate::env::waiting::Waits;
    use evenkeel_model::{AccountName, TableName};
    use evenkeel_storage::system::SystemClock;

    const SHARE: u64 = 16 << 20;

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    #[test]
    fn jobs_of_a_table_of_unknown_row_size_take_a_part_of_the_share() {
        let sizes = RowSizes::default();
        assert_eq!(sizes.expected(&table("Staff"), SHARE), Some(SHARE / 128));
        sizes.learn(&table("Staff"), 900);
        assert_eq!(
            sizes.expected(&table("Staff"), SHARE),
            None,
            "small rows reserve nothing"
        );
        assert_eq!(sizes.are_small(&table("Staff")), Some(true));
        assert_eq!(sizes.are_small(&table("Cases")), None);
        assert_eq!(
            sizes.expected(&table("Offices"), SHARE),
            Some(SHARE / 128),
            "the row size of another table is still unknown"
        );
    }

    #[test]
    fn large_rows_take_three_copies_and_are_not_forgotten_soon() {
        let sizes = RowSizes::default();
        sizes.learn(&table("Staff"), 900);
        (0..10).for_each(|_| sizes.learn(&table("Staff"), 600 << 10));
        let large = sizes.expected(&table("Staff"), SHARE).unwrap();
        assert!((1_790_000..1_844_000).contains(&large), "{large}");
        (0..100).for_each(|_| sizes.learn(&table("Staff"), 900));
        assert!(
            sizes
                .expected(&table("Staff"), SHARE)
                .is_some_and(|bytes| bytes > 300_000),
            "a hundred small rows lower the expected size slowly"
        );
        (0..1_000).for_each(|_| sizes.learn(&table("Staff"), 0));
        assert_eq!(sizes.expected(&table("Staff"), SHARE), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_first_read_of_a_run_takes_memory() {
        let (sizes, budget) = (RowSizes::default(), MemoryBudget::default());
        let row = |memory: Arc<RowMemory>, bytes: usize| {
            let (sizes, budget) = (&sizes, &budget);
            async move {
                memory
                    .reading(
                        sizes,
                        budget,
                        &table("Staff"),
                        async { Ok::<_, ()>(bytes) },
                        |bytes| *bytes,
                    )
                    .await
                    .unwrap()
            }
        };
        let held = || budget.used(MemoryShare::Rows).held;
        let run = || Waits::new(Arc::new(SystemClock::new()));
        let memory = Arc::new(RowMemory::default());
        run().of(row(Arc::clone(&memory), 600 << 10)).await;
        assert_eq!(
            held(),
            1_800 << 10,
            "the first row of the table reserves three times its size"
        );
        drop(memory);
        let (first, second) = (
            Arc::new(RowMemory::default()),
            Arc::new(RowMemory::default()),
        );
        let both = async {
            row(Arc::clone(&first), 300 << 10).await;
            assert_eq!(
                held(),
                900 << 10,
                "a row that is smaller than expected returns the surplus"
            );
            row(Arc::clone(&second), 600 << 10).await;
            assert_eq!(
                held(),
                900 << 10,
                "the second read of a run reserves nothing"
            );
        };
        run().of(both).await;
        drop((first, second));
        row(Arc::default(), 600 << 10).await;
        assert_eq!(held(), 0, "a read outside a run reserves nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_large_rows_are_worked_on_a_few_at_a_time() {
        let (sizes, budget) = (RowSizes::default(), MemoryBudget::default());
        let (working, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let runs = (0..100).map(|_| {
            let (sizes, budget, working, most) = (&sizes, &budget, &working, &most);
            let waits = Waits::new(Arc::new(SystemClock::new()));
            async move {
                let job = async {
                    let memory = RowMemory::default();
                    memory
                        .reading(
                            sizes,
                            budget,
                            &table("Staff"),
                            async { Ok::<_, ()>(1 << 20) },
                            |bytes| *bytes,
                        )
                        .await
                        .unwrap();
                    most.fetch_max(working.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    sleep(Duration::from_millis(50)).await;
                    working.fetch_sub(1, Ordering::SeqCst);
                };
                waits.of(job).await;
            }
        });
        futures::future::join_all(runs).await;
        assert_eq!(
            most.load(Ordering::SeqCst),
            5,
            "the share of 16 MiB has room for five rows of 3 MiB"
        );
        assert_eq!(
            budget.used(MemoryShare::Rows),
            MemoryUse {
                bytes: SHARE,
                held: 0,
                waiting: 0
            }
        );
    }

    #[test]
    fn tables_by_date_do_not_fill_it() {
        let sizes = RowSizes::default();
        (0..3 * CAPACITY).for_each(|day| sizes.learn(&table(&format!("Day{day}")), 1));
        assert!(sizes.0.lock().unwrap().len() <= CAPACITY);
    }
}
