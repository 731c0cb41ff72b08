//! The client writes, deletes and recreates entities, and sends every kind of message.
//!
//! Its script is derived from the seed in advance, so that a failing run can be repeated with a shorter script. The
//! client keeps its part of the contract: it sends a message after every change that it makes itself.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::batches::BatchMessage;
use super::content::PutContent;
use super::fault::FaultKind;
use super::fault_plan::{Draw, JOBS, seconds};
use super::history::VERSION;
use super::ledger::{EntityJob, Expectation, JobCondition};
use super::notes::NOTE;
use super::shared_state::SharedState;
use super::sim_accounts::SimulatedAccounts;
use evenkeel_account::SimWorld;
use evenkeel_account::company::account_of;
use evenkeel_account::company::{ARCHIVE, container, queue, table};
use evenkeel_model::large::{self, STAGING};
use evenkeel_model::{AccountName, BlobName, Entity, EntityKey, body};
use evenkeel_storage::{Account, BlobUpload, IfMatch, StoreError, TableOperation, TableStore, Ttl};

pub(super) const EMPLOYEES: &str = "Employees";
/// The table of the entities on which views of the company set properties.
pub(super) const DEPARTMENTS: &str = "Departments";

/// The versions of recreated entities begin after this number, which is above all versions of a script.
const RECREATED: i64 = 1_000_000;

#[derive(Debug, Clone)]
pub(super) struct ClientStep {
    pub(super) at: Duration,
    /// A change by the client and the messages that follow it have the same group.
    pub(super) step_group: usize,
    pub(super) action: ClientAction,
    pub(super) posting: MessageOptions,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MessageOptions {
    id: Option<String>,
    /// Delay after which the client puts the message a second time, as its own retry.
    again: Option<Duration>,
    ttl: Option<Duration>,
    /// Initial visibility delay. It only applies to messages that do not expire.
    hidden: Duration,
}

impl MessageOptions {
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
            posting: MessageOptions::default(),
        }
    }

    pub(super) const fn hidden_for(mut self, hidden: Duration) -> Self {
        self.posting.hidden = hidden;
        self
    }
}

#[derive(Debug, Clone)]
pub(super) enum ClientAction {
    Write(&'static str, Entity),
    Merge(&'static str, Entity),
    Note(&'static str, EntityKey),
    Remove(&'static str, EntityKey),
    Send(ClientMessage),
    /// Writes the derived rows in an employee's partition again, unchanged, as a copy tool would.
    SaveRows(EntityKey),
    /// Adds another employee's row to a footprint, as a forger would.
    Forge {
        list: EntityKey,
        row: EntityKey,
    },
}

#[derive(Debug, Clone)]
pub(super) enum ClientMessage {
    Job {
        op: &'static str,
        table: &'static str,
        key: EntityKey,
        to: Option<EntityKey>,
        condition: Option<ConditionKind>,
    },
    Thorough(&'static str, EntityKey),
    Put(Box<EmployeePut>),
    Batch(Box<BatchMessage>),
    Spelled {
        json: Value,
        asked: Box<EntityJob>,
        /// Whether the condition is the ETag that the client reads just before it sends the message.
        at_its_etag: bool,
    },
    Whole(&'static str, Value),
    /// An invalid message, and the reason with which it must be poisoned.
    Broken(String, &'static str),
}

#[derive(Debug, Clone)]
pub(super) struct EmployeePut {
    pub(super) key: EntityKey,
    pub(super) version: i64,
    pub(super) entity: Value,
    pub(super) mode: &'static str,
    pub(super) condition: Option<ConditionKind>,
    /// The blobs to stage: the property whose value the blob contains, the name of the blob, and its content. If the
    /// property is `None`, the blob contains the entity itself.
    pub(super) staged: Vec<(Option<&'static str>, BlobName, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConditionKind {
    Match,
    Absent,
    Newer,
}

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
            // A sync message follows each change that the client makes itself. Sometimes it is sent twice.
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

pub(super) fn chosen(draw: &Draw<'_>, weights: &[f64]) -> Option<usize> {
    let total: f64 = weights.iter().sum();
    let mut at = draw.0.unit() * total;
    weights.iter().position(|weight| {
        at -= weight;
        at < 0.0
    })
}

pub(super) struct SimulatedClient {
    pub(super) shared_state: Arc<SharedState>,
    pub(super) account: Account,
    abroad: Option<Account>,
    /// Messages are sent one at a time, because the client announces the expectation of each message just before it
    /// sends the message.
    sending: Mutex<()>,
}

impl SimulatedClient {
    pub(super) fn new(shared_state: Arc<SharedState>, seen: &SimulatedAccounts) -> Self {
        let abroad = seen.abroad.as_ref().map(SimWorld::account);
        Self {
            shared_state,
            account: seen.main.account(),
            abroad,
            sending: Mutex::default(),
        }
    }

    pub(super) fn tables(&self, name: &str) -> &dyn TableStore {
        let home = self
            .abroad
            .as_ref()
            .filter(|_| account_of(name) != AccountName::main());
        home.unwrap_or(&self.account).tables.as_ref()
    }

    pub(super) async fn play(&self, steps: &[ClientStep]) {
        for step in steps {
            sleep(step.at.saturating_sub(self.shared_state.elapsed())).await;
            if let Err(error) = self.take(&step.action, &step.posting).await {
                self.shared_state.violated(format!(
                    "a client request failed although no fault is active: {error}"
                ));
            }
        }
    }

    /// Runs until the storm is over. If a delete request got no answer but has deleted an entity, recreates this
    /// entity. If a delete request was lost, changes the entity that it should have deleted.
    pub(super) async fn run_queued_changes(&self, over: &CancellationToken) {
        let mut version = RECREATED;
        while let Some((fault, key)) = over
            .run_until_cancelled(self.shared_state.next_client_change())
            .await
        {
            if !self.shared_state.inject(fault) {
                continue;
            }
            version += 1;
            self.shared_state
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
                if let Err(error) = self.take(&action, &MessageOptions::default()).await {
                    self.shared_state.violated(format!(
                        "a client request failed although no fault is active: {error}"
                    ));
                }
            }
        }
    }

    async fn take(
        &self,
        action: &ClientAction,
        posting: &MessageOptions,
    ) -> Result<(), StoreError> {
        match action {
            ClientAction::Merge(name, entity) => {
                let operation = TableOperation::InsertOrMerge(entity.clone());
                self.tables(name)
                    .apply(&table(name), &operation)
                    .await
                    .map(drop)
            }
            ClientAction::Remove(DEPARTMENTS, _)
                if !self.shared_state.inject(FaultKind::TargetGone) =>
            {
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
                let note = Entity::new(key.clone()).with(
                    NOTE,
                    i64::try_from(self.shared_state.tick()).unwrap_or(i64::MAX),
                );
                self.apply_if_present(name, &TableOperation::Merge(note, IfMatch::Any))
                    .await
            }
            ClientAction::Remove(name, key) => {
                self.apply_if_present(name, &TableOperation::Delete(key.clone(), IfMatch::Any))
                    .await
            }
            ClientAction::Send(message) => self.send(message, posting).await,
            ClientAction::SaveRows(key) => self.save_rows(key).await,
            ClientAction::Forge { list, row } => self.forge_footprint(list, row).await,
        }
    }

    async fn apply_if_present(
        &self,
        name: &str,
        operation: &TableOperation,
    ) -> Result<(), StoreError> {
        match self.tables(name).apply(&table(name), operation).await {
            Err(error) if error.is_missing_item() => Ok(()),
            done => done.map(drop),
        }
    }

    async fn send(
        &self,
        message: &ClientMessage,
        posting: &MessageOptions,
    ) -> Result<(), StoreError> {
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
            .filter(|_| self.shared_state.is_allowed(FaultKind::Expiry))
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
        if self.shared_state.inject(FaultKind::Doubled) {
            self.put(&text, expectation).await
        } else {
            Ok(())
        }
    }

    /// Stages the values that the put does not contain. Returns the message and its expectation.
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
            Some(ConditionKind::Match) => {
                let etag = self.etag(EMPLOYEES, key).await?;
                json["if_match"] = etag.as_str().into();
                Some(JobCondition::Match(etag))
            }
            Some(ConditionKind::Absent) => {
                json["if_absent"] = true.into();
                Some(JobCondition::Absent)
            }
            Some(ConditionKind::Newer) => {
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
        let put_content = Some(Arc::new(PutContent::of(mode, entity, values)));
        let staged = staged.iter().map(|(_, name, _)| name.to_string()).collect();
        Ok((
            json,
            Expectation::Job(EntityJob {
                guard,
                staged,
                put_content,
                ..EntityJob::plain("put", EMPLOYEES, key.clone())
            }),
        ))
    }

    /// The present ETag of an entity, or an ETag that never matches if there is no entity.
    async fn etag(&self, of: &str, key: &EntityKey) -> Result<String, StoreError> {
        let row = self.tables(of).get(&table(of), key, None).await?;
        Ok(row.map_or_else(|| "W/\"none\"".to_owned(), |row| row.etag.to_string()))
    }

    /// Announces the expectation of a message, and puts the message.
    pub(super) async fn put(&self, text: &str, expectation: Expectation) -> Result<(), StoreError> {
        self.put_for((Ttl::Never, Duration::ZERO), text, expectation)
            .await
    }

    async fn put_for(
        &self,
        (ttl, hidden): (Ttl, Duration),
        text: &str,
        expectation: Expectation,
    ) -> Result<(), StoreError> {
        let _sending = self.sending.lock().await;
        self.shared_state.expect(expectation, ttl);
        self.account
            .queues
            .put(&queue(JOBS), text, hidden, ttl)
            .await
            .map(drop)
    }
}
