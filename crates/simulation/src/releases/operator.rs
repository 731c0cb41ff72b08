//! The operator migrates to one release after the other, despite faults, and backfills whole tables.

use std::sync::Arc;

use serde_json::json;
use tokio::time::sleep;

use super::SOURCES;
use crate::fault_plan::{Draw, seconds};
use crate::fleet::WorkerFleet;
use crate::injector::{FaultInjector, FaultlessDelays};
use crate::ledger::Expectation;
use crate::rare_event::RareEvent;
use crate::run::SimulationRun;
use crate::shared_state::OPERATOR;
use crate::sim_accounts::FaultPolicies;
use evenkeel_account::FaultPolicy;
use evenkeel_model::catalog::Catalog;
use evenkeel_rollout::migrations::{AcceptedLosses, Consent, MigrationError, Migrator};
use evenkeel_storage::Stores;

/// Maximum number of attempts with faults. They are followed by one attempt without faults.
const TRIES: u64 = 40;

impl SimulationRun {
    pub(crate) async fn releases(&self) {
        let Some(releases) = &self.fleet.releases else {
            return;
        };
        let rng = self.shared_state.rng(52);
        let draw = Draw(&rng);
        for (to, at) in (1..).zip(&releases.migrates) {
            sleep(at.saturating_sub(self.shared_state.elapsed())).await;
            if to == 1 && !releases.founded {
                // A worker may record any view that was never recorded. If the operator recorded only the second
                // catalog, a worker with the first catalog could later record a view that the second catalog no longer
                // has. So the operator records the first catalog before the second.
                self.fleet.migrate(0).await;
            }
            self.fleet.migrate(to).await;
            sleep(seconds(draw.magnitude(0.01, 10.0))).await;
            let known = |table: &&str| {
                releases.catalogs[to]
                    .tables
                    .keys()
                    .any(|known| known.as_str() == *table)
            };
            for table in SOURCES.into_iter().filter(known) {
                let json = json!({"op": "backfill", "table": table});
                if let Err(error) = self
                    .client
                    .put(&json.to_string(), Expectation::Whole("backfill"))
                    .await
                {
                    self.shared_state.violated(format!(
                        "a client request failed although no fault is active: {error}"
                    ));
                }
            }
        }
    }
}

impl WorkerFleet {
    /// Records the first catalog before the run, if the seed requires this.
    pub(crate) async fn found(&self, policies: &FaultPolicies) {
        if self
            .releases
            .as_ref()
            .is_some_and(|releases| releases.founded)
            && let Err(error) = self.up(0, Consent::Additions, policies).await
        {
            self.shared_state.violated(format!(
                "cannot record the first catalog although no fault is active: {error}"
            ));
        }
    }

    /// Returns the last catalog with the generations that are recorded at the end of the run. Fails if the recorded
    /// catalog is not the last release.
    pub(crate) async fn recorded(&self, stores: &Stores) -> Result<Arc<Catalog>, String> {
        let Some(releases) = &self.releases else {
            return Ok(Arc::clone(&self.catalog));
        };
        let found = async {
            let migrator = self.migrator(stores, releases.last())?;
            let record = migrator.catalog_record().await?;
            Ok::<_, MigrationError>((migrator.is_recorded(&record)?, record))
        };
        let (fits, record) = found.await.map_err(|error| error.to_string())?;
        if !fits {
            return Err(format!(
                "the recorded catalog is not the last release: {record:?}"
            ));
        }
        let mut catalog = Catalog::clone(&self.catalog);
        catalog.generations = record.generations(&catalog);
        Ok(Arc::new(catalog))
    }

    /// Migrates to a release. A migration that fails or is interrupted is started again.
    async fn migrate(&self, to: usize) {
        let Some(releases) = &self.releases else {
            return;
        };
        let mut part = 70_000 + 1_000 * u64::try_from(to).unwrap_or(0);
        for tries in 0..=TRIES {
            part += 2;
            let injector = Arc::new(FaultInjector::new(
                Arc::clone(&self.shared_state),
                Arc::clone(&self.fault_plan),
                OPERATOR,
                self.shared_state.rng(part),
            ));
            let beside = Arc::new(
                injector.beside(Arc::clone(&self.abroad), self.shared_state.rng(part + 1)),
            );
            let breeze: Arc<dyn FaultPolicy> =
                Arc::new(FaultlessDelays(self.shared_state.rng(part)));
            let policies = if tries == TRIES {
                FaultPolicies::same(breeze)
            } else {
                FaultPolicies {
                    main: Arc::clone(&injector) as _,
                    abroad: beside,
                }
            };
            let done = tokio::select! {
                biased;
                () = injector.crashed() => {
                    self.shared_state.tell(|| "operator is interrupted".to_owned());
                    false
                }
                done = self.up(to, Consent::Replacement, &policies) => match done {
                    Ok(()) => true,
                    Err(error) => {
                        self.shared_state.tell(|| format!("operator cannot migrate: {}", evenkeel_model::cause::chain(&error)));
                        false
                    }
                },
            };
            if done {
                releases.has_migrated(to);
                self.shared_state.see(RareEvent::Migrated);
                self.shared_state
                    .tell(|| format!("operator has migrated to release {to}"));
                return;
            }
            sleep(seconds(3.0)).await;
        }
        self.shared_state.violated(format!(
            "cannot migrate to release {to} although no fault is active"
        ));
    }

    pub(crate) async fn up(
        &self,
        to: usize,
        consent: Consent,
        policies: &FaultPolicies,
    ) -> Result<(), MigrationError> {
        let Some(setup) = self.setup(OPERATOR, None, 0, policies) else {
            return Ok(());
        };
        Box::pin(self.migrator(&setup.stores, to)?.up(consent, |change| {
            self.shared_state.tell(|| format!("operator: {change}"));
        }))
        .await
    }

    pub(super) fn migrator(&self, stores: &Stores, to: usize) -> Result<Migrator, MigrationError> {
        let catalog = self
            .releases
            .as_ref()
            .map_or(&self.catalog, |releases| &releases.catalogs[to]);
        // Releases retire and redefine views at random, so the operator accepts that items are lost.
        let migrator = Migrator::new(
            stores.clone(),
            &self.settings(),
            Arc::clone(catalog),
            self.clock(),
        )?;
        Ok(migrator.accepting(AcceptedLosses::Any))
    }
}
