//! The client: writes, removes and recreates employees, and sends every kind of message.
//!
//! Its script comes from the seed and is fixed beforehand, so that a shorter one can be tried where a run fails.
//! It keeps the client's part of the contract: a message follows every change of its own.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::climate::{Climate, Draw, JOBS, chance, seconds};
use super::company::{ARCHIVE, queue, table};
use super::history::VERSION;
use super::ledger::{Expectation, Guard};
use super::stage::Stage;
use crate::model::{Entity, EntityKey, body};
use crate::ports::{Account, Condition, StoreError, TableOperation, Ttl};

const EMAILS: [&str; 4] = ["ada@contoso.com", "Ada@Contoso.com", "eve@contoso.com", ""];
const NAMES: [&str; 3] = ["King", "Byron", ""];

/// One thing that the client does, and when.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) at: Duration,
    /// What belongs together: the client's own change and the messages that follow it.
    pub(super) deed: usize,
    pub(super) action: Action,
}

/// One thing that the client does.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Writes an employee directly.
    Write(EntityKey, Properties),
    /// Deletes an employee directly.
    Remove(EntityKey),
    /// Sends a message.
    Send(Message),
}

/// An employee's properties.
#[derive(Debug, Clone)]
pub(super) struct Properties {
    version: i64,
    email: &'static str,
    last_name: &'static str,
    manager: bool,
}

/// A message.
#[derive(Debug, Clone)]
pub(super) enum Message {
    /// A job of this kind.
    Job(&'static str, EntityKey, Option<If>),
    /// A put.
    Put(EntityKey, Properties, &'static str, Option<If>),
    /// Something that is no job, poisoned for this reason.
    Broken(String, &'static str),
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

/// The script of a seed, in order of time.
pub(super) fn script(seed: u64, climate: &Climate) -> Vec<Step> {
    let chance = chance(seed, 2);
    let draw = Draw(&chance);
    let employees = 1 + draw.below(4);
    let keys: Vec<EntityKey> =
        (0..employees).filter_map(|n| EntityKey::new(if n < 3 { "Sales" } else { "Ops" }, n.to_string()).ok()).collect();
    // Each kind of action is frequent in some seeds and absent in others.
    let weights: Vec<f64> = (0..8).map(|_| if draw.happens(0.25) { 0.0 } else { draw.magnitude(0.1, 1.0) }).collect();
    let mut steps = Vec::new();
    let (mut version, mut deed) = (0, 0);
    let bursts = 3 + draw.below(8);
    for _ in 0..bursts {
        let start = draw.moment(climate.storm);
        let within = seconds(*draw.of(&[0.02, 0.5, 5.0, 60.0]));
        for _ in 0..2 + draw.below(6) {
            let at = start + draw.moment(within);
            version += 1;
            deed += 1;
            let action = action(&draw, draw.of(&keys).clone(), version, &weights);
            // A message follows the client's own change, sooner or later, and sometimes twice.
            if let Action::Write(key, _) | Action::Remove(key) = &action {
                let syncs = if draw.happens(0.15) { 2 } else { 1 };
                for _ in 0..syncs {
                    let after = at + seconds(draw.magnitude(0.02, 20.0));
                    steps.push(Step { at: after, deed, action: Action::Send(Message::Job("sync", key.clone(), None)) });
                }
            }
            steps.push(Step { at, deed, action });
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

fn action(draw: &Draw<'_>, key: EntityKey, version: i64, weights: &[f64]) -> Action {
    let properties =
        Properties { version, email: draw.of::<&str>(&EMAILS), last_name: draw.of::<&str>(&NAMES), manager: draw.happens(0.4) };
    let some_if = |kinds: &[If]| draw.happens(0.25).then(|| *draw.of(kinds));
    let total: f64 = weights.iter().sum();
    let mut at = draw.0.unit() * total;
    let chosen = weights.iter().position(|weight| {
        at -= weight;
        at < 0.0
    });
    let job = |op, condition| Action::Send(Message::Job(op, key.clone(), condition));
    match chosen {
        Some(1) => Action::Remove(key),
        Some(2) => {
            let mode = if draw.happens(0.5) { "replace" } else { "merge" };
            let condition = some_if(&[If::Match, If::Absent, If::Newer]);
            Action::Send(Message::Put(key, properties, mode, condition))
        }
        Some(3) => job("delete", some_if(&[If::Match])),
        Some(4) => job("archive", some_if(&[If::Match])),
        Some(5) => job("restore", None),
        Some(6) => job("sync", None),
        Some(7) if draw.happens(0.4) => broken(draw),
        _ => Action::Write(key, properties),
    }
}

fn broken(draw: &Draw<'_>) -> Action {
    let (text, reason) = *draw.of(&[
        ("no job at all", "undecodable"),
        ("{\"op\":", "undecodable"),
        ("W10=", "undecodable"),
        (r#"{"op":"explode"}"#, "permanent"),
        (r#"{"op":"sync","table":"Employees","pk":"Sales"}"#, "permanent"),
        (r#"{"op":"sync","table":"Nowhere","pk":"Sales","rk":"1"}"#, "permanent"),
        (r#"{"op":"archive","archive":"nowhere","pk":"Sales","rk":"1"}"#, "permanent"),
        (r#"{"v":2,"op":"sync","table":"Employees","pk":"Sales","rk":"1"}"#, "permanent"),
    ]);
    Action::Send(Message::Broken(text.to_owned(), reason))
}

impl Properties {
    fn entity(&self, key: &EntityKey) -> Entity {
        let mut entity = Entity::new(key.clone()).with(VERSION, self.version).with("FirstName", "Ada");
        if !self.email.is_empty() {
            entity = entity.with("Email", self.email);
        }
        if !self.last_name.is_empty() {
            entity = entity.with("LastName", self.last_name);
        }
        if self.manager { entity.with("IsManager", true) } else { entity }
    }

    fn json(&self, key: &EntityKey) -> Value {
        let mut entity = json!({
            "PartitionKey": key.pk, "RowKey": key.rk, VERSION: self.version.to_string(), "Version@odata.type": "Edm.Int64",
            "FirstName": "Put", "LastName": self.last_name, "IsManager": self.manager,
        });
        if !self.email.is_empty() {
            entity["Email"] = self.email.into();
        }
        entity
    }
}

/// The client at work.
pub(super) struct Client {
    pub(super) stage: Arc<Stage>,
    pub(super) account: Account,
}

impl Client {
    /// Takes every step at its time.
    pub(super) async fn play(&self, steps: &[Step]) {
        for step in steps {
            sleep(step.at.saturating_sub(self.stage.elapsed())).await;
            if let Err(error) = self.take(&step.action).await {
                self.stage.violated(format!("the client met an error in fair weather: {error}"));
            }
        }
    }

    async fn take(&self, action: &Action) -> Result<(), StoreError> {
        match action {
            Action::Write(key, properties) => {
                let operation = TableOperation::InsertOrReplace(properties.entity(key));
                self.account.tables.apply(&table("Employees"), &operation).await.map(drop)
            }
            Action::Remove(key) => {
                let operation = TableOperation::Delete(key.clone(), Condition::Any);
                match self.account.tables.apply(&table("Employees"), &operation).await {
                    Err(error) if error.is_missing_item() => Ok(()),
                    done => done.map(drop),
                }
            }
            Action::Send(message) => self.send(message).await,
        }
    }

    async fn send(&self, message: &Message) -> Result<(), StoreError> {
        let (json, expectation) = match message {
            Message::Broken(text, reason) => return self.put(text, Expectation::Poison(reason)).await,
            Message::Job(op, key, condition) => {
                let mut json = json!({"op": op, "pk": key.pk, "rk": key.rk});
                let (field, name) = if matches!(*op, "archive" | "restore") { ("archive", ARCHIVE) } else { ("table", "Employees") };
                json[field] = name.into();
                let mut guard = None;
                if condition.is_some() {
                    let etag = self.etag(key).await?;
                    json["if_match"] = etag.as_str().into();
                    guard = Some(Guard::Match(etag));
                }
                (json, Expectation::Job { op, table: "Employees", key: key.clone(), guard })
            }
            Message::Put(key, properties, mode, condition) => {
                let mut json = json!({"op": "put", "table": "Employees", "mode": mode, "entity": properties.json(key)});
                let guard = match condition {
                    None => None,
                    Some(If::Match) => {
                        let etag = self.etag(key).await?;
                        json["if_match"] = etag.as_str().into();
                        Some(Guard::Match(etag))
                    }
                    Some(If::Absent) => {
                        json["if_absent"] = true.into();
                        Some(Guard::Absent)
                    }
                    Some(If::Newer) => {
                        json["newer_by"] = VERSION.into();
                        Some(Guard::Newer(properties.version))
                    }
                };
                (json, Expectation::Job { op: "put", table: "Employees", key: key.clone(), guard })
            }
        };
        self.put(&body::encode(&json.to_string()), expectation).await
    }

    /// The ETag of an employee now, or one that none has.
    async fn etag(&self, key: &EntityKey) -> Result<String, StoreError> {
        let row = self.account.tables.get(&table("Employees"), key, None).await?;
        Ok(row.map_or_else(|| "W/\"none\"".to_owned(), |row| row.etag.to_string()))
    }

    /// Puts a message, and says beforehand what it is.
    pub(super) async fn put(&self, text: &str, expectation: Expectation) -> Result<(), StoreError> {
        self.stage.expect(expectation);
        self.account.queues.put(&queue(JOBS), text, Duration::ZERO, Ttl::Never).await.map(drop)
    }
}
