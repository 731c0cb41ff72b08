//! Readers are applications that find entities, look them up, and wait until their writes are settled, while faults occur.
//!
//! Readers use the client for applications, and do not write. Each answer is compared with the state that is known at that moment:
//!
//! | world | question | answer | wrong if |
//! |---|---|---|---|
//! | company | `find` | an entity | neither the table nor the archive has had this content since the question |
//! | | | none | whenever the three reads (table, archive, table) took place, one of them had to find the entity |
//! | | `settled` | yes | one of the primary's rows is missing or differs, although the primary was not written since the question |
//! | | `lookup` of copies | copies | there is more than one copy |
//! | | | a copy | its primary never had this content, or this copy had a newer content when it was read before |
//! | | | none | `settled` answered yes just before, and the primary was not written since the question |
//! | | `lookup` of entities | an entity | the entity has not had this content since the question |
//! | patterns | three reads of the keys of a `move` | an entity | the entity has not had this content under either key since the question |
//! | | | none | whenever the three reads (old key, new key, old key) took place, one of them had to find the entity |
//! | | `settled` of a team | yes | an employee has another team name, although the team was not written since the question |
//!
//! A copy that was deleted and recreated may have older content than before, because an old insert may arrive late. This is not an error,
//! because a recheck repairs the copy.

mod copies;
mod lookups;
mod moves;
mod teams;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::content;
use super::cuts::CutChance;
use super::fault_plan::{Draw, rng, seconds};
use super::fleet::stores;
use super::history::{SOURCE, TARGET};
use super::items::{ItemPlace, Properties};
use super::oracle::expected;
use super::shared_state::SharedState;
use super::sim_accounts::SimulatedAccounts;
use super::world::Setting;
use evenkeel_account::company::{ARCHIVE, Shape, table, view_name};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo};
use evenkeel_client::{Client, FoundEntity};
use evenkeel_model::{ETag, EntityKey};
use evenkeel_storage::Rng as _;

const PART: u64 = 70;
/// Maximum number of questions per run. It is high enough to meet an entity that is being moved, and low enough not to
/// slow the run down.
const MOST: u32 = 80;
const AT_ONCE: Duration = Duration::from_millis(500);

pub(super) enum SimulatedReaders {
    Company(CompanyReaders),
    Patterns(moves::MoveReaders, Box<teams::TeamReaders>),
}

impl SimulatedReaders {
    /// Creates readers of these employees, or returns `None` if the world has no readers. The readers use the accounts
    /// `seen`, which delay the answers.
    pub(super) fn of(
        setting: &Setting,
        storm: Duration,
        shared_state: Arc<SharedState>,
        seen: SimulatedAccounts,
        employees: Vec<EntityKey>,
    ) -> Option<Self> {
        let stores = stores(&seen, seen.accounts(), seen.main.sink());
        let client = Client::new(stores, Arc::new(setting.catalog()), Vec::new());
        match setting {
            Setting::Company(shape) => Some(Self::Company(CompanyReaders {
                storm,
                shared_state,
                accounts: seen,
                client,
                employees,
                shape: *shape,
            })),
            Setting::Patterns(shape) => {
                let teams = teams::TeamReaders {
                    storm,
                    shared_state: Arc::clone(&shared_state),
                    accounts: seen,
                    client: client.clone(),
                    shape: *shape,
                };
                Some(Self::Patterns(
                    moves::MoveReaders {
                        storm,
                        shared_state,
                        client,
                    },
                    Box::new(teams),
                ))
            }
            Setting::Archives(_) | Setting::Releases(_) => None,
        }
    }

    pub(super) async fn read(&self, over: &CancellationToken) {
        match self {
            Self::Company(readers) => {
                let _ = tokio::join!(readers.read(over), readers.look_up(over));
            }
            Self::Patterns(readers, teams) => {
                let _ = tokio::join!(readers.read(over), teams.ask(over));
            }
        }
    }
}

pub(super) struct CompanyReaders {
    storm: Duration,
    shared_state: Arc<SharedState>,
    accounts: SimulatedAccounts,
    client: Client,
    employees: Vec<EntityKey>,
    shape: Shape,
}

impl CompanyReaders {
    async fn read(&self, over: &CancellationToken) {
        let rng = self.shared_state.rng(PART);
        let draw = Draw(&rng);
        let pace = self.storm * 2 / MOST;
        for _ in 0..MOST {
            // If an entity is in the archive, the reader usually asks for it, and soon. So some questions are asked
            // while the entity is being restored.
            let archived = self
                .shared_state
                .records()
                .history
                .archived()
                .filter(|_| draw.happens(0.8));
            let pause = draw.moment(if archived.is_some() {
                pace.min(AT_ONCE)
            } else {
                pace
            });
            if over.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            let key = archived
                .as_ref()
                .unwrap_or_else(|| draw.of(&self.employees));
            let finds = archived.is_some() || draw.happens(0.5);
            let asked = if finds {
                self.find(key).await
            } else {
                self.settled(key, draw.happens(0.5)).await
            };
            if let Err(wrong) = asked {
                self.shared_state.violated(wrong);
                return;
            }
        }
    }

    async fn find(&self, key: &EntityKey) -> Result<(), String> {
        let asked = self.shared_state.tick();
        let found = self
            .client
            .find(&view_name(ARCHIVE), key)
            .await
            .map_err(|error| request_failed(&error))?;
        let records = self.shared_state.records();
        match found {
            Some(FoundEntity { row, .. }) => {
                let content = content::own(&row.entity.properties).collect::<Properties>();
                let content = Arc::new(content);
                let had_content = [SOURCE, TARGET].iter().any(|table| {
                    records
                        .history
                        .had_content_since(table, key, &content, asked)
                });
                if had_content {
                    Ok(())
                } else {
                    Err(format!(
                        "a reader found {key} with content that it has not had since the question: {content:?}"
                    ))
                }
            }
            None if records.history.may_be_missed(key, asked, records.tick()) => Ok(()),
            None => Err(format!(
                "a reader did not find {key}, although it was in its table or archive all the time"
            )),
        }
    }

    async fn settled(&self, key: &EntityKey, at_its_etag: bool) -> Result<(), String> {
        let asked = self.shared_state.tick();
        let etag = self
            .shared_state
            .records()
            .history
            .known(SOURCE, key)
            .and_then(|known| known.etag.clone())
            .filter(|_| at_its_etag);
        let etag = etag.and_then(|etag| ETag::new(etag).ok());
        let told = self
            .client
            .settled(&table(SOURCE), key, etag.as_ref())
            .await
            .map_err(|error| request_failed(&error))?;
        let unchanged = self
            .shared_state
            .records()
            .history
            .known(SOURCE, key)
            .is_some_and(|known| known.present && known.written.0 <= asked);
        let Some(row) = self
            .accounts
            .rows(SOURCE)
            .into_iter()
            .find(|row| row.entity.key == *key)
        else {
            return Ok(());
        };
        if !told.in_step || !unchanged {
            return Ok(());
        }
        for ((place, part), says) in expected(SOURCE, &row, self.shape, &BTreeSet::new()) {
            let ItemPlace::Row(name, address) = &place else {
                continue;
            };
            // Two kinds of rows are checked only at the end: rows with parts of several primaries, and the row of an
            // e-mail address, which may belong to a later writer.
            if !part.is_empty() || (self.shape.last_writer && name == "ByEmail") {
                continue;
            }
            let found = self
                .accounts
                .rows(name)
                .into_iter()
                .find(|row| row.entity.key == *address);
            let found: Option<Properties> =
                found.map(|row| content::own(&row.entity.properties).collect());
            let says: Properties = content::own(&says).collect();
            if found.as_ref() != Some(&says) {
                return Err(format!(
                    "a reader was told that {key} is settled, but {place} is {found:?}, expected {says:?}"
                ));
            }
        }
        Ok(())
    }
}

/// No faults are injected on the requests of readers, so they must not fail.
fn request_failed(error: &dyn std::error::Error) -> String {
    format!("a reader's request failed although no fault is active: {error}")
}

/// Whether this seed has readers. Half of the seeds have readers.
pub(super) fn has_readers(seed: u64) -> bool {
    Draw(&rng(seed, PART + 1)).happens(0.5)
}

/// Injects no faults, but delays answers, so that an entity can move between two reads.
pub(super) struct SlowAnswers(CutChance);

impl SlowAnswers {
    pub(super) fn on(shared_state: &Arc<SharedState>) -> Self {
        Self(shared_state.rng(PART + 2))
    }
}

#[async_trait]
impl FaultPolicy for SlowAnswers {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        sleep(seconds(self.0.between(0.01, 1.5))).await;
        FaultDecision::Execute
    }
}
