//! The watch on the recorded catalog: a worker whose catalog is older than the record receives nothing more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::migrations::Migrator;
use crate::ports::Chance;

/// How often the record is read. Until then, an older worker releases what it cannot judge: items of a later
/// generation of a view fail its jobs in order, and it never drops what it does not know.
const EVERY: Duration = Duration::from_secs(30);

/// Waits until a catalog above generation `own` is recorded, and returns its generation.
pub(super) async fn newer_than(own: &AtomicU32, migrator: &Migrator, chance: &dyn Chance) -> u32 {
    loop {
        tokio::time::sleep(EVERY.mul_f64(chance.between(0.8, 1.2))).await;
        match migrator.recorded_generation().await {
            Ok(recorded) if recorded > own.load(Ordering::SeqCst) => return recorded,
            Ok(_) => {}
            Err(error) => tracing::debug!(error = %format!("{:#}", anyhow::Error::new(error)), "the recorded catalog cannot be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::adapters::sim::Fair;
    use crate::adapters::system::SeededChance;
    use crate::migrations::tests::{catalog, migrator, up, world};

    #[tokio::test(start_paused = true)]
    async fn a_catalog_that_others_record_is_noticed_within_a_minute_and_ones_own_never_is() {
        let world = world(Arc::new(Fair));
        let (own, newer) = (catalog(&[("name", "{Name}")]), catalog(&[("name", "{Name|lower}")]));
        let watched = migrator(&world, &own);
        up(&watched).await;
        let chance = SeededChance::new(1);
        let hour = Duration::from_hours(1);
        assert!(timeout(hour, newer_than(&AtomicU32::new(1), &watched, &chance)).await.is_err());

        up(&migrator(&world, &newer)).await;
        let since = Instant::now();
        assert_eq!(newer_than(&AtomicU32::new(1), &watched, &chance).await, 2);
        assert!(since.elapsed() < Duration::from_mins(1));
    }
}
