//! Decides which partitions are read by ranges, from the results of earlier ranges. Memory is bounded.

use std::collections::BTreeMap;

use super::batching::Partition;

/// Number of single point reads after a sparse range, initially and at most; it doubles with each further sparse range.
const SINGLE_READS: (u32, u32) = (64, 65_536);
/// Maximum number of partitions remembered. Each takes up to about 2 KiB.
const CAPACITY: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Density {
    sparse: BTreeMap<Partition, Sparse>,
}

#[derive(Debug)]
struct Sparse {
    /// Point reads left before another range is tried.
    left: u32,
    /// The value of `left` after the next sparse range.
    next: u32,
}

impl Density {
    /// Whether a read of this partition may be combined with others.
    pub(super) fn is_dense(&mut self, partition: &Partition) -> bool {
        if self.sparse.is_empty() {
            return true;
        }
        match self.sparse.get_mut(partition) {
            Some(sparse) if sparse.left > 0 => {
                sparse.left -= 1;
                false
            }
            Some(_) | None => true,
        }
    }

    /// Records how many of the requested keys a range query answered.
    pub(super) fn record_range(
        &mut self,
        partition: &Partition,
        requested: usize,
        answered: usize,
    ) {
        if answered * 2 > requested {
            self.sparse.remove(partition);
            return;
        }
        if let Some(sparse) = self.sparse.get_mut(partition) {
            sparse.left = sparse.next;
            sparse.next = (sparse.next * 2).min(SINGLE_READS.1);
            return;
        }
        if self.sparse.len() >= CAPACITY {
            // Forgetting costs each partition one useless range.
            self.sparse.clear();
        }
        self.sparse.insert(
            partition.clone(),
            Sparse {
                left: SINGLE_READS.0,
                next: SINGLE_READS.0 * 2,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{Key, TableName};

    fn partition(pk: &str) -> Partition {
        (TableName::new("Employees").unwrap(), Key::new(pk).unwrap())
    }

    fn alone(density: &mut Density, partition: &Partition) -> u32 {
        let mut reads = 0;
        while !density.is_dense(partition) {
            reads += 1;
        }
        reads
    }

    #[test]
    fn sparse_ranges_are_tried_more_rarely_until_one_answers() {
        let mut density = Density::default();
        let (far, near) = (partition("far"), partition("near"));
        let mut reads = Vec::new();
        for _ in 0..12 {
            density.record_range(&far, 32, 16);
            reads.push(alone(&mut density, &far));
        }
        assert_eq!(
            reads,
            [
                64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 65_536
            ]
        );
        assert!(density.is_dense(&near));
        density.record_range(&far, 32, 17);
        density.record_range(&far, 32, 0);
        assert_eq!(alone(&mut density, &far), 64);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut density = Density::default();
        for n in 0..=CAPACITY {
            density.record_range(&partition(&n.to_string()), 2, 0);
        }
        assert!(density.sparse.len() <= CAPACITY);
    }
}
