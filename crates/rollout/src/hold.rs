//! Lets a command's engine check that the command's catalog is still the recorded one. A command
//! has no watch, so it reads the record itself unless the last read is recent enough.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::watch::READ_INTERVAL;
use crate::migrations::{CatalogRecord, MigrationError, Migrator};
use evenkeel_engine::{CatalogHold, Unread};
use evenkeel_model::ETag;
use evenkeel_model::catalog::Catalog;
use evenkeel_storage::Clock;

pub struct RecordHold {
    migrator: Migrator,
    /// The catalog with the generations of the record at the start of the command.
    catalog: Arc<Catalog>,
    clock: Arc<dyn Clock>,
    last: Mutex<LastCheck>,
}

/// The last read that found the catalog to be the recorded one.
struct LastCheck {
    version: Option<ETag>,
    /// Monotonic time of the start of the read; `None` before the first read.
    begun: Option<Duration>,
}

impl RecordHold {
    pub fn new(
        migrator: Migrator,
        catalog: Arc<Catalog>,
        version: Option<ETag>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            migrator,
            catalog,
            clock,
            last: Mutex::new(LastCheck {
                version,
                begun: None,
            }),
        }
    }

    async fn check(&self) -> Result<bool, MigrationError> {
        let mut last = self.last.lock().await;
        let now = self.clock.monotonic();
        if last
            .begun
            .is_some_and(|begun| now.saturating_sub(begun) < READ_INTERVAL)
        {
            return Ok(true);
        }
        let version = self.migrator.recorded_version().await?;
        // If the record is missing, no other catalog is recorded.
        if version.is_some() && version != last.version {
            let record = self.migrator.catalog_record().await?;
            if !self.is_of(&record) {
                return Ok(false);
            }
            last.version = record.etag;
        }
        last.begun = Some(now);
        Ok(true)
    }

    /// Whether a later record has the same catalog with the same generations.
    fn is_of(&self, record: &CatalogRecord) -> bool {
        let (recorded, own) = (record.generations(&self.catalog), &self.catalog.generations);
        self.migrator.is_recorded(record).unwrap_or(false)
            && recorded.current == own.current
            && recorded.retired == own.retired
    }
}

#[async_trait]
impl CatalogHold for RecordHold {
    async fn holds(&self) -> Result<bool, Unread> {
        Ok(self.check().await?)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::migrations::testing::{catalog, migrator, up, world};
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_storage::system::SystemClock;

    async fn begun(world: &SimWorld, views: &[(&str, &str)]) -> RecordHold {
        let declared = catalog(views);
        let migrator = migrator(world, &declared);
        let record = migrator.catalog_record().await.unwrap();
        let mut catalog = Catalog::clone(&declared);
        catalog.generations = record.generations(&catalog);
        RecordHold::new(
            migrator,
            Arc::new(catalog),
            record.etag,
            Arc::new(SystemClock::new()),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_read_is_repeated_and_a_record_at_the_same_generations_holds() {
        let world = world(Arc::new(NoFaults));
        let (name, both) = (
            [("name", "{Name}")],
            [("name", "{Name}"), ("mail", "{Mail}")],
        );
        up(&migrator(&world, &catalog(&both))).await;
        let (one, other) = (begun(&world, &both).await, begun(&world, &both).await);
        assert!(one.holds().await.unwrap());

        up(&migrator(&world, &catalog(&name))).await;
        assert_eq!(
            (one.holds().await.unwrap(), other.holds().await.unwrap()),
            (true, false),
            "`one` still relies on its recent read, but `other` has to read the record first"
        );
        advance(READ_INTERVAL).await;
        assert!(!one.holds().await.unwrap());

        up(&migrator(&world, &catalog(&both))).await;
        assert!(
            !one.holds().await.unwrap(),
            "the view is back at a later generation"
        );
        let third = begun(&world, &both).await;
        assert!(third.holds().await.unwrap());
        // The new catalog has the same views and one more table.
        let mut grown = Catalog::clone(&catalog(&both));
        let more = evenkeel_model::TableName::new("More").unwrap();
        let table = evenkeel_model::catalog::TableRef {
            account: evenkeel_model::AccountName::main(),
            table: more.clone(),
        };
        grown.tables.insert(more, table);
        assert!(!up(&migrator(&world, &Arc::new(grown))).await.is_empty());
        advance(READ_INTERVAL).await;
        assert!(third.holds().await.unwrap());
    }
}
