//! Decides which partitions are read by ranges, from the results of earlier ranges. Memory is bounded.

use std::collections::BTreeMap;

use super::batching::Place;

/// Number of single point reads after a sparse range, initially and at most; it doubles with each further sparse range.
const ALONE: (u32, u32) = (64, 65_536);
/// Maximum number of partitions remembered. Each takes up to about 2 KiB.
const CAPACITY: usize = 1_024;

/// Partitions whose rows are too far apart to be read by ranges.
#[derive(Debug, Default)]
pub(super) struct Density {
    sparse: BTreeMap<Place, Sparse>,
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
    pub(super) fn is_dense(&mut self, place: &Place) -> bool {
        if self.sparse.is_empty() {
            return true;
        }
        match self.sparse.get_mut(place) {
            Some(sparse) if sparse.left > 0 => {
                sparse.left -= 1;
                false
            }
            Some(_) | None => true,
        }
    }

    /// Records how many of the requested keys a range query answered.
    pub(super) fn learn(&mut self, place: &Place, asked: usize, answered: usize) {
        if answered * 2 > asked {
            self.sparse.remove(place);
            return;
        }
        if let Some(sparse) = self.sparse.get_mut(place) {
            sparse.left = sparse.next;
            sparse.next = (sparse.next * 2).min(ALONE.1);
            return;
        }
        if self.sparse.len() >= CAPACITY {
            // Forgetting costs each partition one useless range.
            self.sparse.clear();
        }
        self.sparse.insert(
            place.clone(),
            Sparse {
                left: ALONE.0,
                next: ALONE.0 * 2,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{Key, TableName};

    fn place(pk: &str) -> Place {
        (TableName::new("Employees").unwrap(), Key::new(pk).unwrap())
    }

    fn alone(density: &mut Density, place: &Place) -> u32 {
        let mut reads = 0;
        while !density.is_dense(place) {
            reads += 1;
        }
        reads
    }

    #[test]
    fn ranges_in_vain_are_tried_less_and_less_until_one_answers() {
        let mut density = Density::default();
        let (far, near) = (place("far"), place("near"));
        let mut reads = Vec::new();
        for _ in 0..12 {
            density.learn(&far, 32, 16);
            reads.push(alone(&mut density, &far));
        }
        assert_eq!(
            reads,
            [
                64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536, 65_536
            ]
        );
        assert!(density.is_dense(&near));
        density.learn(&far, 32, 17);
        density.learn(&far, 32, 0);
        assert_eq!(alone(&mut density, &far), 64);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut density = Density::default();
        for n in 0..=CAPACITY {
            density.learn(&place(&n.to_string()), 2, 0);
        }
        assert!(density.sparse.len() <= CAPACITY);
    }
}
