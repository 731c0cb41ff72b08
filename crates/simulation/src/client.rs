//! The client: writes, removes and recreates entities, and sends every kind of message.
//!
//! Its script comes from the seed and is fixed beforehand, so that a shorter one can be tried where a run fails.
//! It keeps the client's part of the contract: a message follows every change of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::batches::BatchMessage;
use super::content::Brings;
use super::fault::FaultKind;
use super::fault_plan::{Draw, JOBS, seconds};
use super::history::VERSION;
use super::ledger::{EntityJob, Expectation, JobCondition};
use super::notes::NOTE;
use super::sim_accounts::SimulatedAccounts;
use super::stage::Stage;
use evenkeel_account::SimWorld;
use evenkeel_account::company::account_of;
use evenkeel_account::company::{ARCHIVE, container, queue, table};
use evenkeel_model::large::{self, STAGING};
use evenkeel_model::{AccountName, BlobName, Entity, EntityKey, body};
use evenkeel_storage::{Account, BlobUpload, IfMatch, StoreError, TableOperation, TableStore, Ttl};

/// The table of the employees, in every world.
pub(super) const EMPLOYEES: &str = "Employees";
/// The table of the entities that views of the company keep properties on.
pub(super) const DEPARTMENTS: &str = "Departments";

/// The versions of what the client creates anew come after this, and after every one of a script.
const RECREATED: i64 = 1_000_000;

/// One thing that the client does, and when.
#[derive(Debug, Clone)]
pub(super) struct ClientStep {
    pub(super) at: Duration,
    /// What belongs together: the client's own change and the messages that follow it.
    pub(super) step_group: usize,
    pub(super) action: ClientAction,
    /// How its message is sent, where it is one.
    pub(super) posting: Posting,
}

/// How a message is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Posting {
    /// The id that the job carries.
    id: Option<String>,
    /// After how long the client's own retry puts it again.
    again: Option<Duration>,
    /// How long it lives.
    ttl: Option<Duration>,
    /// How long it is hidden at first, where it lives for ever.
    hidden: Duration,
}

impl Posting {
    /// How each message of a script is sent.
    pub(super) fn vary(
        steps: &mut [ClientStep],
        draw: &Draw<'_>,
        rates: &[f64; FaultKind::ALL.len()],
    ) {
        let (doubled, expiry) = (
            rates[FaultKind::Doubled as usize],
            rates[FaultKind::Expiry as usize],
        );
        let ids = draw.happens(0.5);
        for (number, step) in steps.iter_mut().enumerate() {
            if let ClientAction::Send(
                ClientMessage::Job { .. }
                | ClientMessage::Thorough(..)
                | ClientMessage::Put(_)
                | ClientMessage::Batch(_)
                | ClientMessage::Spelled { .. },
            ) = &step.action
            {
                step.posting = Self {
                    id: (doubled > 0.0 && ids).then(|| format!("message-{number}")),
                    again: draw.happens(doubled).then(|| {
                        *draw.of(&[
                            Duration::ZERO,
                            Duration::from_millis(300),
                            Duration::from_secs(5),
                        ])
                    }),
                    ttl: draw
                        .happens(expiry)
                        .then(|| seconds(draw.magnitude(2.0, 600.0))),
                    hidden: step.posting.hidden,
                };
            }
        }
    }
}

impl ClientStep {
    pub(super) fn new(at: Duration, step_group: usize, action: ClientAction) -> Self {
        Self {
            at,
            step_group,
            action,
            posting: Posting::default(),
        }
    }

    /// Its message is hidden for so long at first.
    pub(super) const fn hidden_for(mut self, hidden: Duration) -> Self {
        self.posting.hidden = hidden;
        self
    }
}

/// One thing that the client does.
#[derive(Debug, Clone)]
pub(super) enum ClientAction {
    /// Writes an entity directly.
    Write(&'static str, Entity),
    /// Writes properties of an entity directly, and leaves the others as they are.
    Merge(&'static str, Entity),
    /// Merges a note into an entity directly, where there is one.
    Note(&'static str, EntityKey),
    /// Deletes an entity directly.
    Remove(&'static str, EntityKey),
    /// Sends a message.
    Send(ClientMessage),
    /// Saves an employee's rows in its own partition again, as they are: no application's deed.
    SaveRows(EntityKey),
    /// Adds another employee to an employee's footprint: no application's deed.
    Forge {
        /// The owner of the footprint.
        list: EntityKey,
        /// The added employee.
        row: EntityKey,
    },
}

/// A message.
#[derive(Debug, Clone)]
pub(super) enum ClientMessage {
    /// A job about one entity.
    Job {
        /// Its operation.
        op: &'static str,
        /// The table of the primary.
        table: &'static str,
        /// The primary's key.
        key: EntityKey,
        /// Where it goes, where it moves.
        to: Option<EntityKey>,
        /// Under which condition.
        condition: Option<If>,
    },
    /// A sync that takes nothing for granted.
    Thorough(&'static str, EntityKey),
    /// A put.
    Put(Box<EmployeePut>),
    /// A job for each of many primaries.
    Batch(Box<BatchMessage>),
    /// A job about one entity, in full.
    Spelled {
        /// What is sent.
        json: Value,
        /// What it means.
        asked: Box<EntityJob>,
        /// Whether it is under the condition of the ETag that the client reads just before.
        at_its_etag: bool,
    },
    /// A job about a whole table: its operation, and what it says.
    Whole(&'static str, Value),
    /// Something that is no job, poisoned for this reason.
    Broken(String, &'static str),
}

/// A put of an employee.
#[derive(Debug, Clone)]
pub(super) struct EmployeePut {
    /// The employee's key.
    pub(super) key: EntityKey,
    /// Its version.
    pub(super) version: i64,
    /// What is sent.
    pub(super) entity: Value,
    /// `replace` or `merge`.
    pub(super) mode: &'static str,
    /// Under which condition.
    pub(super) condition: Option<If>,
    /// What is staged beforehand, by property; under no property, the entity itself.
    pub(super) staged: Vec<(Option<&'static str>, BlobName, String)>,
}

/// The condition of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum If {
    /// The ETag that the client reads just before.
    Match,
    /// The employee is absent.
    Absent,
    /// Its version is newer.
    Newer,
}

/// What belongs together in a script: actions at their times, and the messages that follow them.
pub(super) fn script(
    storm: Duration,
    draw: &Draw<'_>,
    mut action: impl FnMut(i64) -> ClientAction,
) -> Vec<ClientStep> {
    let mut steps = Vec::new();
    let (mut version, mut step_group) = (0, 0);
    let bursts = 3 + draw.below(8);
    for _ in 0..bursts {
        let start = draw.moment(storm);
        let within = seconds(*draw.of(&[0.02, 0.5, 5.0, 60.0]));
        for _ in 0..2 + draw.below(6) {
            let at = start + draw.moment(within);
            version += 1;
            step_group += 1;
            let action = action(version);
            // A message follows the client's own change, sooner or later, and sometimes twice.
            if let ClientAction::Write(table, Entity { key, .. })
            | ClientAction::Remove(table, key) = &action
            {
                let syncs = if draw.happens(0.15) { 2 } else { 1 };
                for _ in 0..syncs {
                    let after = at + seconds(draw.magnitude(0.02, 20.0));
                    let sync = ClientMessage::Job {
                        op: "sync",
                        table,
                        key: key.clone(),
                        to: None,
                        condition: None,
                    };
                    steps.push(ClientStep::new(after, step_group, ClientAction::Send(sync)));
                }
            }
            steps.push(ClientStep::new(at, step_group, action));
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

/// Something that is no job.
pub(super) fn broken(draw: &Draw<'_>) -> ClientAction {
    let (text, reason) = *draw.of(&[
        ("no job at all", "undecodable"),
        ("{\"op\":", "undecodable"),
        ("W10=", "undecodable"),
        (r#"{"op":"explode"}"#, "permanent"),
        (
            r#"{"op":"sync","table":"Employees","pk":"Sales"}"#,
            "permanent",
        ),
        (
            r#"{"op":"sync","table":"Nowhere","pk":"Sales","rk":"1"}"#,
            "permanent",
        ),
        (
            r#"{"op":"archive","archive":"nowhere","pk":"Sales","rk":"1"}"#,
            "permanent",
        ),
        (
            r#"{"v":2,"op":"sync","table":"Employees","pk":"Sales","rk":"1"}"#,
            "permanent",
        ),
    ]);
    ClientAction::Send(ClientMessage::Broken(text.to_owned(), reason))
}

/// Which of several things happens, each by its weight.
pub(super) fn chosen(draw: &Draw<'_>, weights: &[f64]) -> Option<usize> {
    let total: f64 = weights.iter().sum();
    let mut at = draw.0.unit() * total;
    weights.iter().position(|weight| {
        at -= weight;
        at < 0.0
    })
}

/// The client at work.
pub(super) struct SimulatedClient {
    pub(super) stage: Arc<Stage>,
    pub(super) account: Account,
    /// The other account, where there is one.
    abroad: Option<Account>,
    /// One message at a time: what the next one is has been said by then.
    sending: Mutex<()>,
}

impl SimulatedClient {
    pub(super) fn new(stage: Arc<Stage>, seen: &SimulatedAccounts) -> Self {
        let abroad = seen.abroad.as_ref().map(SimWorld::account);
        Self {
            stage,
            account: seen.main.account(),
            abroad,
            sending: Mutex::default(),
        }
    }

    /// The tables of the account that a table lies in.
    pub(super) fn tables(&self, name: &str) -> &dyn TableStore {
        let home = self
            .abroad
            .as_ref()
            .filter(|_| account_of(name) != AccountName::main());
        home.unwrap_or(&self.account).tables.as_ref()
    }

    /// Takes every step at its time.
    pub(super) async fn play(&self, steps: &[ClientStep]) {
        for step in steps {
            sleep(step.at.saturating_sub(self.stage.elapsed())).await;
            if let Err(error) = self.take(&step.action, &step.posting).await {
                self.stage
                    .violated(format!("the client met an error in fair weather: {error}"));
            }
        }
    }

    /// Recreates entities deleted by unanswered requests, and changes those with a lost request to delete, until the storm is over.
    pub(super) async fn recreates(&self, over: &CancellationToken) {
        let mut version = RECREATED;
        while let Some((fault, key)) = over.run_until_cancelled(self.stage.to_recreate()).await {
            if !self.stage.strike(fault) {
                continue;
            }
            version += 1;
            self.stage
                .tell(|| format!("FAULT {fault} : {EMPLOYEES}{key} at version {version}"));
            let entity = Entity::new(key.clone())
                .with(VERSION, version)
                .with("FirstName", "Again")
                .with("LastName", "Byron");
            let sync = ClientMessage::Job {
                op: "sync",
                table: EMPLOYEES,
                key,
                to: None,
                condition: None,
            };
            for action in [
                ClientAction::Write(EMPLOYEES, entity),
                ClientAction::Send(sync),
            ] {
                if let Err(error) = self.take(&action, &Posting::default()).await {
                    self.stage
                        .violated(format!("the client met an error in fair weather: {error}"));
                }
            }
        }
    }

    async fn take(&self, action: &ClientAction, posting: &Posting) -> Result<(), StoreError> {
        match action {
            ClientAction::Merge(name, entity) => {
                let operation = TableOperation::InsertOrMerge(entity.clone());
                self.tables(name)
                    .apply(&table(name), &operation)
                    .await
                    .map(drop)
            }
            ClientAction::Remove(DEPARTMENTS, _) if !self.stage.strike(FaultKind::TargetGone) => {
                Ok(())
            }
            ClientAction::Write(name, entity) => {
                let operation = TableOperation::InsertOrReplace(entity.clone());
                self.tables(name)
                    .apply(&table(name), &operation)
                    .await
                    .map(drop)
            }
            ClientAction::Note(name, key) => {
                let note = Entity::new(key.clone())
                    .with(NOTE, i64::try_from(self.stage.tick()).unwrap_or(i64::MAX));
                self.where_it_is(name, &TableOperation::Merge(note, IfMatch::Any))
                    .await
            }
            ClientAction::Remove(name, key) => {
                self.where_it_is(name, &TableOperation::Delete(key.clone(), IfMatch::Any))
                    .await
            }
            ClientAction::Send(message) => self.send(message, posting).await,
            ClientAction::SaveRows(key) => self.saves_rows(key).await,
            ClientAction::Forge { list, row } => self.forges(list, row).await,
        }
    }

    /// Writes or deletes an entity, where there is one.
    async fn where_it_is(&self, name: &str, operation: &TableOperation) -> Result<(), StoreError> {
        match self.tables(name).apply(&table(name), operation).await {
            Err(error) if error.is_missing_item() => Ok(()),
            done => done.map(drop),
        }
    }

    async fn send(&self, message: &ClientMessage, posting: &Posting) -> Result<(), StoreError> {
        let (mut json, expectation) = match message {
            ClientMessage::Broken(text, reason) => {
                return self.put(text, Expectation::Poison(reason)).await;
            }
            ClientMessage::Thorough(table, key) => {
                let json = json!({"op": "sync", "table": table, "pk": key.pk, "rk": key.rk, "thorough": true});
                (
                    json,
                    Expectation::Job(EntityJob::thorough_sync(table, key.clone())),
                )
            }
            ClientMessage::Whole(op, json) => (json.clone(), Expectation::Whole(op)),
            ClientMessage::Job {
                op,
                table,
                key,
                to,
                condition,
            } => {
                let mut json = json!({"op": op, "pk": key.pk, "rk": key.rk});
                let (field, name) = if matches!(*op, "archive" | "restore") {
                    ("archive", ARCHIVE)
                } else {
                    ("table", *table)
                };
                json[field] = name.into();
                if let Some(to) = to {
                    (json["to_pk"], json["to_rk"]) = (to.pk.as_str().into(), to.rk.as_str().into());
                }
                let mut guard = None;
                if condition.is_some() {
                    let etag = self.etag(EMPLOYEES, key).await?;
                    json["if_match"] = etag.as_str().into();
                    guard = Some(JobCondition::Match(etag));
                }
                (
                    json,
                    Expectation::Job(EntityJob {
                        to: to.clone(),
                        guard,
                        ..EntityJob::plain(op, table, key.clone())
                    }),
                )
            }
            ClientMessage::Put(put) => self.staged(put).await?,
            ClientMessage::Batch(batch) => (batch.json(), batch.expectation()),
            ClientMessage::Spelled {
                json,
                asked,
                at_its_etag,
            } => {
                let (mut json, mut asked) = (json.clone(), EntityJob::clone(asked));
                if *at_its_etag {
                    let etag = self.etag(asked.table, &asked.key).await?;
                    json["if_match"] = etag.as_str().into();
                    asked.guard = Some(JobCondition::Match(etag));
                }
                (json, Expectation::Job(asked))
            }
        };
        if let Some(id) = &posting.id {
            json["id"] = id.as_str().into();
        }
        let text = body::encode(&json.to_string());
        match posting
            .ttl
            .filter(|_| self.stage.is_allowed(FaultKind::Expiry))
        {
            Some(ttl) => {
                self.put_for(
                    (Ttl::After(ttl), Duration::ZERO),
                    &text,
                    expectation.clone(),
                )
                .await?;
            }
            None => {
                self.put_for((Ttl::Never, posting.hidden), &text, expectation.clone())
                    .await?;
            }
        }
        let Some(again) = posting.again else {
            return Ok(());
        };
        sleep(again).await;
        if self.stage.strike(FaultKind::Doubled) {
            self.put(&text, expectation).await
        } else {
            Ok(())
        }
    }

    /// Stages what a put does not carry itself, and says what it carries.
    async fn staged(&self, put: &EmployeePut) -> Result<(Value, Expectation), StoreError> {
        let EmployeePut {
            key,
            version,
            entity,
            mode,
            condition,
            staged,
        } = put;
        let mut json = json!({"op": "put", "table": EMPLOYEES, "mode": mode, "entity": entity});
        let guard = match condition {
            None => None,
            Some(If::Match) => {
                let etag = self.etag(EMPLOYEES, key).await?;
                json["if_match"] = etag.as_str().into();
                Some(JobCondition::Match(etag))
            }
            Some(If::Absent) => {
                json["if_absent"] = true.into();
                Some(JobCondition::Absent)
            }
            Some(If::Newer) => {
                json["newer_by"] = VERSION.into();
                Some(JobCondition::Newer(*version))
            }
        };
        for (property, name, content) in staged {
            let blob = json!({"blob": format!("{STAGING}/{name}"), "sha256": large::hash(content.as_bytes())});
            if let Some(property) = property {
                json["blobs"][property] = blob;
            } else {
                json["entity_ref"] = blob;
                (json["pk"], json["rk"]) = (key.pk.as_str().into(), key.rk.as_str().into());
                if let Some(fields) = json.as_object_mut() {
                    fields.remove("entity");
                }
            }
            self.account
                .blobs
                .put(
                    &container(STAGING),
                    name,
                    content.clone().into(),
                    &BlobUpload::default(),
                )
                .await?;
        }
        let values = staged
            .iter()
            .filter_map(|(property, _, value)| Some(((*property)?, value.as_str())));
        let brings = Some(Arc::new(Brings::of(mode, entity, values)));
        let staged = staged.iter().map(|(_, name, _)| name.to_string()).collect();
        Ok((
            json,
            Expectation::Job(EntityJob {
                guard,
                staged,
                brings,
                ..EntityJob::plain("put", EMPLOYEES, key.clone())
            }),
        ))
    }

    /// The ETag of an entity now, or one that none has.
    async fn etag(&self, of: &str, key: &EntityKey) -> Result<String, StoreError> {
        let row = self.tables(of).get(&table(of), key, None).await?;
        Ok(row.map_or_else(|| "W/\"none\"".to_owned(), |row| row.etag.to_string()))
    }

    /// Puts a message, and says beforehand what it is.
    pub(super) async fn put(&self, text: &str, expectation: Expectation) -> Result<(), StoreError> {
        self.put_for((Ttl::Never, Duration::ZERO), text, expectation)
            .await
    }

    /// Puts a message that lives so long, and is hidden so long at first.
    async fn put_for(
        &self,
        (ttl, hidden): (Ttl, Duration),
        text: &str,
        expectation: Expectation,
    ) -> Result<(), StoreError> {
        let _sending = self.sending.lock().await;
        self.stage.expect(expectation, ttl);
        self.account
            .queues
            .put(&queue(JOBS), text, hidden, ttl)
            .await
            .map(drop)
    }
}
