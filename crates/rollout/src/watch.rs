//! The watch on the recorded catalog: renews the lease of the catalog in force, takes over a record that it fits, and says when it
//! fits none.

use std::sync::Arc;
use std::time::Duration;

use super::current::{Current, InForce};
use crate::migrations::{CatalogRecord, MigrationError, Migrator};
use evenkeel_engine::Engine;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::cause;
use evenkeel_model::settings::Settings;
use evenkeel_storage::{Chance, Clock, Stores};

/// How often the record is read: often enough for a lease to outlive two reads that fail.
pub(super) const EVERY: Duration = Duration::from_secs(4);
/// Delay before the next look where one is asked for and the store fails.
const AGAIN: Duration = Duration::from_secs(1);

type Callback<'a, A, R = ()> = Box<dyn Fn(A) -> R + Send + Sync + 'a>;

/// The means to put a catalog into force.
pub struct Means<'a> {
    /// Every account.
    pub stores: &'a Stores,
    /// The settings.
    pub settings: &'a Settings,
    /// The clock.
    pub clock: &'a Arc<dyn Clock>,
    /// Random numbers, which spread the looks of several workers.
    pub chance: &'a dyn Chance,
    /// Makes the engine of a catalog.
    pub engine: Callback<'a, Arc<Catalog>, Arc<Engine>>,
    /// Is told of each engine that is put into force later than the first.
    pub told: Callback<'a, Arc<Engine>>,
}

/// The context of the watch.
pub struct Watch<'a> {
    /// The means to put a catalog into force.
    pub means: Means<'a>,
    /// Reads and writes the record.
    pub migrator: &'a Migrator,
    /// The engine in force.
    pub current: &'a Current,
    /// Held during every change of the catalog in force, so that its migration is not taken for another worker's.
    pub changing: tokio::sync::Mutex<()>,
}

impl Watch<'_> {
    /// Looks periodically, and on request; never returns.
    pub async fn keep(&self) -> std::convert::Infallible {
        let lease = self.current.lease();
        let mut pause = EVERY;
        loop {
            let wait = tokio::time::sleep(self.means.chance.jittered(pause));
            tokio::select! {
                biased;
                () = wait => {}
                () = lease.asked(), if pause == EVERY => {}
            }
            pause = match self.look().await {
                Ok(()) => EVERY,
                Err(error) => {
                    tracing::warn!(error = %cause::chain(&error), "recorded catalog: cannot be read; jobs are not acknowledged until it is");
                    AGAIN
                }
            };
        }
    }

    /// Looks at the record once.
    pub async fn look(&self) -> Result<(), MigrationError> {
        let _alone = self.changing.lock().await;
        let sent = self.means.clock.monotonic();
        let InForce {
            generation: own,
            engine,
            version,
        } = self.current.in_force();
        self.tell_met().await?;
        let recorded = self.migrator.recorded_version().await?;
        // A record that is gone says nothing against the catalog in force; a new record is noticed, under the same number too.
        if recorded == version || recorded.is_none() {
            self.current.lease().confirm(own, sent);
            return Ok(());
        }
        let record = self.migrator.catalog_record().await?;
        // One that cannot be compared (a source that is spelled otherwise) does not fit either.
        if !record
            .fits(engine.catalog(), &self.means.settings.migrate.owner)
            .unwrap_or(false)
        {
            if self.current.lease().newer().is_none() {
                tracing::error!(
                    own,
                    recorded = record.generation,
                    "catalog: another one is recorded than this worker's; it receives nothing more until the record fits, and exits otherwise"
                );
            }
            self.current.lease().revoke(record.generation);
            return Ok(());
        }
        self.adopt(Catalog::clone(engine.catalog()), &record, sent);
        tracing::info!(
            own,
            recorded = record.generation,
            "catalog: the recorded generation is another one and fits; it is taken over"
        );
        Ok(())
    }

    /// Puts a catalog into force that a record fits, read since `sent`.
    pub fn adopt(&self, mut catalog: Catalog, record: &CatalogRecord, sent: Duration) {
        let recorded = record.generations(&catalog);
        let before = std::mem::replace(&mut catalog.generations, recorded);
        // A record that was restored from a copy has lost count: this worker's own generations are not another's.
        for (view, generation) in before.current {
            if let Some(now) = catalog.generations.current.get_mut(&view) {
                *now = generation.max(*now);
            }
        }
        let engine = (self.means.engine)(Arc::new(catalog));
        let next = InForce {
            engine: Arc::clone(&engine),
            generation: record.generation,
            version: record.etag.clone(),
        };
        self.current.exchange(next, sent);
        (self.means.told)(engine);
    }

    /// Tells the record which later generations were met.
    async fn tell_met(&self) -> Result<(), MigrationError> {
        for (view, generation) in self.current.take_met() {
            if self.migrator.met(&view, generation).await? {
                tracing::error!(
                    %view, generation,
                    "catalog: items of a later generation than the recorded one exist; their jobs are put off until `evenkeel migrate up` has \
                     numbered the view anew"
                );
            }
        }
        Ok(())
    }
}
