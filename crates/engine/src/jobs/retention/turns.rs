//! Turns: the times at which a scheduled job is sent. In each turn, only one of the workers sends the job.
//!
//! ```text
//!   due by its row in EvenkeelMigrations? ──▶ claim: write the row at its ETag ──▶ queue the job ──▶ sent: write the row again
//! ```
//!
//! Every worker checks whether a job is due, and one of them wins the write of the row. If that worker stops before it
//! has recorded that the job is queued, the job is sent again with the same id, and the duplicate is recognized by this
//! id. Each application has its own rows (`[migrate] owner`), because another application may use the same name for a
//! different job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::jobs::retention::keeper::KeeperError;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::settings::{QueueSettings, WaitPolicy};
use evenkeel_model::{
    AccountName, CatalogOwner, ETag, EdmValue, Entity, EntityKey, Filter, Key, QueueName, Row,
    TableName, body, cause,
};
use evenkeel_storage::stores::UnknownAccount;
use evenkeel_storage::{
    Clock, ErrorClass, IfMatch, Missing, Query, StoreError, Stores, TableOperation, TableStore,
    Ttl, all_rows,
};

const SENT: &str = "SentAt";
const JOB: &str = "Job";
const COUNT: &str = "Count";
/// Property with the time at which a worker claimed the job in order to send it. It is removed once the job is known to
/// be queued.
const CLAIMED: &str = "ClaimedAt";
/// Separator of owner and name in a row key. Neither the owner nor the name contains it.
const OWNED: char = '~';
/// Maximum length of an id that is sent again, in characters. Real ids are far shorter.
const ID_CHARS: usize = 256;
/// Age at which a claim expires. Sending cannot take longer, because a request is refused 15 minutes after it was
/// signed.
pub(super) const CLAIM: SignedDuration = SignedDuration::from_mins(15);
/// Maximum difference between the clocks of two workers. If they differ by more, the worker with the slower clock
/// repeats the jobs of the other.
const CLOCKS_APART: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnTime {
    Due,
    /// The job is sent regardless of its schedule.
    Now,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedTurn {
    pub queue: QueueName,
    pub message_id: String,
}

pub(super) struct TimedJob<'j> {
    pub(super) kind: &'static str,
    /// Name, unique within its kind.
    pub(super) name: &'j str,
    pub(super) subject: String,
    pub(super) message: Value,
    /// Waits between two jobs. They may grow with the number of jobs sent.
    pub(super) waits: WaitPolicy,
}

impl TimedJob<'_> {
    fn id_prefix(&self) -> String {
        format!("{} {} ", self.kind, self.name)
    }

    /// Returns `true` if the id belongs to a turn of this job. A forged row may contain the id of another job. A
    /// message with that id would be taken for a duplicate of the other job.
    fn has_id(&self, id: &str) -> bool {
        id.starts_with(&self.id_prefix()) && id.chars().count() <= ID_CHARS
    }
}

pub(super) struct DueTurn {
    turn: JobTurn,
    /// Time at which this worker claims the turn.
    now: Timestamp,
    over: Option<ETag>,
}
pub(super) struct Timetable<'c> {
    stores: Stores,
    clock: Arc<dyn Clock>,
    queues: &'c [QueueSettings],
    owner: CatalogOwner,
}

impl<'c> Timetable<'c> {
    pub(super) fn new(
        stores: Stores,
        clock: Arc<dyn Clock>,
        queues: &'c [QueueSettings],
        owner: CatalogOwner,
    ) -> Self {
        Self {
            stores,
            clock,
            queues,
            owner,
        }
    }

    pub(super) fn stores(&self) -> &Stores {
        &self.stores
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
    pub(super) fn carrier(
        &self,
        op: &str,
        tables: &[&TableName],
    ) -> Option<(&'c AccountName, QueueName)> {
        let queue = self
            .queues
            .iter()
            .find(|queue| queue.allows_op(op) && queue.allows_tables(tables.iter().copied()))?;
        Some((&queue.account, queue.shard_names().into_iter().next()?))
    }

    /// Reads the row of a job. If no migration has created the table yet, the table is created.
    pub(super) async fn row(&self, job: &TimedJob<'_>) -> Result<Option<Row>, KeeperError> {
        let found = read(self.main()?, &table(), &self.key(job)).await;
        found.map_err(|source| failed("reading the schedule of", job, source))
    }
    pub(super) async fn rows(
        &self,
        kind: &'static str,
    ) -> Result<BTreeMap<String, Row>, KeeperError> {
        let (main, table) = (self.main()?, table());
        let query = Query {
            filter: Some(Filter::partition(&partition(kind))),
            ..Query::default()
        };
        let found = match all_rows(main, &table, query).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                main.create_table(&table).await.map(|_| Vec::new())
            }
            found => found,
        };
        let found = found.map_err(|source| KeeperError::Store {
            doing: format!("reading the schedules of kind {kind}"),
            source,
        })?;
        Ok(found
            .into_iter()
            .filter_map(|row| Some((self.name_in(row.entity.key.rk.as_str())?.to_owned(), row)))
            .collect())
    }

    pub(super) fn due(
        &self,
        job: &TimedJob<'_>,
        found: Option<Row>,
        time: TurnTime,
    ) -> Option<DueTurn> {
        let now = self.now();
        let turn = match time {
            TurnTime::Due => due(job, found.as_ref(), now)?,
            TurnTime::Now => JobTurn::next(job, found.as_ref(), now),
        };
        Some(DueTurn {
            turn,
            now,
            over: found.map(|row| row.etag),
        })
    }

    /// Sends a job, unless another worker was faster.
    pub(super) async fn send(
        &self,
        job: &TimedJob<'_>,
        due: DueTurn,
        account: &AccountName,
        queue: QueueName,
    ) -> Result<Option<QueuedTurn>, KeeperError> {
        let (main, table, key) = (self.main()?, table(), self.key(job));
        let DueTurn { turn, now, over } = due;
        // The row is written first, so that only one of several workers sends the job.
        let claim = write(main, &table, over, &turn.row(&key, Some(now))).await;
        let Some(claim) =
            claim.map_err(|source| failed("updating the schedule of", job, source))?
        else {
            return Ok(None);
        };
        let mut message = job.message.clone();
        message["id"] = turn.job.as_str().into();
        let put = self
            .stores
            .account(account)?
            .queues
            .put(
                &queue,
                &body::encode(&message.to_string()),
                Duration::ZERO,
                Ttl::Never,
            )
            .await;
        match put {
            Ok(message) => {
                if let Err(error) = write(main, &table, Some(claim), &turn.row(&key, None)).await {
                    let error = cause::chain(&error);
                    tracing::warn!(
                        job = turn.job, %error,
                        "could not record that job {} is queued; it may be queued again with the same id",
                        turn.job
                    );
                }
                Ok(Some(QueuedTurn {
                    queue,
                    message_id: message.id,
                }))
            }
            Err(source) => {
                // Makes the claim expire, so that the next check sends the job again. If this write fails, the claim
                // expires later by itself.
                let old = now.saturating_sub(CLAIM).unwrap_or(Timestamp::MIN);
                drop(write(main, &table, Some(claim), &turn.row(&key, Some(old))).await);
                Err(failed("queueing the job of", job, source))
            }
        }
    }

    /// Deletes the row of a job that is no longer needed, if the row is unchanged. If the deletion fails, a later check
    /// deletes the row.
    pub(super) async fn forget(&self, row: Row) -> Result<(), UnknownAccount> {
        let delete = TableOperation::Delete(row.entity.key, IfMatch::Matches(row.etag));
        drop(self.main()?.apply(&table(), &delete).await);
        Ok(())
    }

    fn main(&self) -> Result<&dyn TableStore, UnknownAccount> {
        Ok(self.stores.account(&AccountName::main())?.tables.as_ref())
    }

    #[expect(clippy::expect_used, reason = "names are keys")]
    fn key(&self, job: &TimedJob<'_>) -> EntityKey {
        EntityKey::new(job.kind, format!("{}{OWNED}{}", self.owner, job.name)).expect("a key")
    }
    fn name_in<'k>(&self, rk: &'k str) -> Option<&'k str> {
        rk.strip_prefix(self.owner.as_str())?.strip_prefix(OWNED)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct JobTurn {
    /// Time of the first attempt to send the job.
    sent: Timestamp,
    /// Id of the job, the same for every attempt to send it. Each turn has a new id, because two jobs with the same id
    /// and content count as one.
    job: String,
    count: u32,
}

impl JobTurn {
    fn next(job: &TimedJob<'_>, found: Option<&Row>, now: Timestamp) -> Self {
        Self {
            sent: now,
            job: format!("{}{now}", job.id_prefix()),
            count: count(found).saturating_add(1),
        }
    }

    /// The row of this turn. `claimed` is the time of the claim, or `None` once the job is known to be queued.
    fn row(&self, key: &EntityKey, claimed: Option<Timestamp>) -> Entity {
        let row = Entity::new(key.clone())
            .with(SENT, EdmValue::moment(self.sent))
            .with(JOB, self.job.as_str())
            .with(COUNT, EdmValue::Int64(i64::from(self.count)));
        match claimed {
            Some(claimed) => row.with(CLAIMED, EdmValue::moment(claimed)),
            None => row,
        }
    }
}

/// Number of jobs sent so far, as recorded in the row; 0 if the row was edited by hand.
fn count(found: Option<&Row>) -> u32 {
    match found.and_then(|row| row.entity.get(COUNT)) {
        Some(EdmValue::Int64(count)) => u32::try_from(*count).unwrap_or_default(),
        _ => 0,
    }
}

/// Returns the turn that is due, if any. `found` has the previous turn. A new turn is due after the wait. Until then,
/// the previous turn is due again if its claim has expired, because its worker may have stopped. If the id in the row
/// does not belong to the job, a new turn takes the place of the previous one.
fn due(job: &TimedJob<'_>, found: Option<&Row>, now: Timestamp) -> Option<JobTurn> {
    let time = |name| match found.and_then(|row| row.entity.get(name)) {
        Some(EdmValue::DateTime(time)) => Some(time.timestamp()),
        _ => None,
    };
    let wait =
        SignedDuration::try_from(job.waits.unjittered(count(found))).unwrap_or(SignedDuration::MAX);
    let next = JobTurn::next(job, found, now);
    let Some(sent) = time(SENT).filter(|sent| !has_passed(*sent, wait, now)) else {
        return Some(next);
    };
    if !has_passed(time(CLAIMED)?, CLAIM, now) {
        return None;
    }
    let own = found
        .and_then(|row| row.entity.text(JOB))
        .filter(|id| job.has_id(id));
    Some(own.map_or(next, |id| JobTurn {
        sent,
        job: id.to_owned(),
        count: count(found),
    }))
}

/// Whether at least `long` has passed since `since`. A time far in the future was written by a wrong clock, and counts
/// as passed.
fn has_passed(since: Timestamp, long: SignedDuration, now: Timestamp) -> bool {
    let passed = now.duration_since(since);
    passed <= -CLOCKS_APART || passed >= long
}

#[expect(clippy::expect_used, reason = "a constant")]
fn table() -> TableName {
    TableName::new(MIGRATIONS).expect("a table name")
}

#[expect(clippy::expect_used, reason = "constants")]
fn partition(kind: &'static str) -> Key {
    Key::new(kind).expect("a key")
}

fn failed(doing: &str, job: &TimedJob<'_>, source: StoreError) -> KeeperError {
    KeeperError::Store {
        doing: format!("{doing} {}", job.subject),
        source,
    }
}

/// Writes the row of a job at the version read, and returns the new version. `None` if another worker was faster.
async fn write(
    tables: &dyn TableStore,
    table: &TableName,
    over: Option<ETag>,
    row: &Entity,
) -> Result<Option<ETag>, StoreError> {
    let operation = match over {
        None => TableOperation::Insert(row.clone()),
        Some(etag) => TableOperation::Replace(row.clone(), IfMatch::Matches(etag)),
    };
    match tables.apply(table, &operation).await {
        Err(error) if error.is_lost_race() => Ok(None),
        Err(unheard) if unheard.class == ErrorClass::Ambiguous => {
            let is_it = |found: &Row| {
                [SENT, JOB, CLAIMED]
                    .iter()
                    .all(|name| found.entity.get(name) == row.get(name))
            };
            match read(tables, table, &row.key).await?.filter(is_it) {
                Some(found) => Ok(Some(found.etag)),
                // The write may still arrive, so its outcome stays unknown.
                None => Err(unheard),
            }
        }
        written => written,
    }
}

async fn read(
    tables: &dyn TableStore,
    table: &TableName,
    key: &EntityKey,
) -> Result<Option<Row>, StoreError> {
    match tables.get(table, key, None).await {
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
            tables.create_table(table).await.map(|_| None)
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_storage::system::SystemClock;

    const HOUR: Duration = Duration::from_hours(1);

    fn job(waits: WaitPolicy) -> TimedJob<'static> {
        TimedJob {
            kind: "rule",
            name: "old",
            subject: "[rules.old]".to_owned(),
            message: Value::Null,
            waits,
        }
    }

    fn row(sent: &str, claimed: Option<&str>, count: u32) -> Row {
        let turn = JobTurn {
            sent: sent.parse().unwrap(),
            job: "rule old a".to_owned(),
            count,
        };
        let entity = turn.row(
            &EntityKey::new("rule", "old").unwrap(),
            claimed.map(|claimed| claimed.parse().unwrap()),
        );
        Row {
            entity,
            etag: ETag::new("1").unwrap(),
            timestamp: None,
        }
    }

    #[test]
    fn a_job_is_due_after_its_wait_and_after_a_wrong_clock() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let daily = job(WaitPolicy {
            initial: 24 * HOUR,
            factor: 1,
            max: 24 * HOUR,
            jitter: 0.0,
        });
        let turn = |sent: &str, claimed: Option<&str>| {
            due(&daily, Some(&row(sent, claimed, 7)), now).map(|turn| turn.job)
        };
        let next = Some(format!("rule old {now}"));
        assert_eq!(due(&daily, None, now).map(|turn| turn.job), next);
        for sent in [
            "2026-11-19T12:00:00Z",
            "2020-01-01T00:00:00Z",
            "2026-11-20T14:00:00Z",
        ] {
            assert_eq!(
                (turn(sent, None), turn(sent, Some(sent))),
                (next.clone(), next.clone()),
                "{sent}"
            );
        }
        for sent in ["2026-11-19T12:00:01Z", "2026-11-20T12:30:00Z"] {
            assert_eq!(turn(sent, None), None, "{sent}");
        }
        let again = Some("rule old a".to_owned());
        let claims = [
            ("11:45:00Z", &again),
            ("11:45:01Z", &None),
            ("12:30:00Z", &None),
            ("14:00:00Z", &again),
        ];
        for (claimed, expected) in claims {
            assert_eq!(
                turn(
                    "2026-11-20T11:00:00Z",
                    Some(&format!("2026-11-20T{claimed}"))
                ),
                *expected,
                "claimed at {claimed}"
            );
        }
    }

    #[test]
    fn growing_waits_follow_the_count_of_sent_jobs_and_survive_invalid_counts() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let growing = job(WaitPolicy::doubling(HOUR, 24 * HOUR));
        for (sent, count, is_due) in [
            ("2026-11-20T11:00:00Z", 1, true),
            ("2026-11-20T11:00:00Z", 2, false),
            ("2026-11-20T10:00:00Z", 2, true),
            ("2026-11-20T10:00:00Z", 3, false),
            ("2026-11-19T12:00:00Z", u32::MAX, true),
            ("2026-11-19T12:00:01Z", u32::MAX, false),
        ] {
            let turn = due(&growing, Some(&row(sent, None, count)), now);
            assert_eq!(
                turn.map(|turn| turn.count),
                is_due.then_some(count.saturating_add(1)),
                "{count} at {sent}"
            );
        }
        let strange = |value: EdmValue| {
            let mut strange = row("2026-11-20T11:00:00Z", None, 1);
            strange.entity = strange.entity.with(COUNT, value);
            due(&growing, Some(&strange), now).map(|turn| turn.count)
        };
        assert_eq!(
            [
                strange(EdmValue::Int64(-5)),
                strange("many".into()),
                strange(EdmValue::Int64(i64::MAX))
            ],
            [Some(1); 3]
        );
    }

    #[test]
    fn a_foreign_id_of_a_claim_is_not_sent() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let growing = job(WaitPolicy::doubling(24 * HOUR, 24 * HOUR));
        let sent = |id: EdmValue| {
            let mut claimed = row("2026-11-20T11:00:00Z", Some("2026-11-20T11:00:00Z"), 7);
            claimed.entity = claimed.entity.with(JOB, id);
            due(&growing, Some(&claimed), now).map(|turn| (turn.job, turn.count))
        };
        for id in [
            JobTurn::next(&growing, None, now).job,
            format!("rule old {}", "한".repeat(ID_CHARS - 9)),
        ] {
            assert_eq!(sent(id.as_str().into()), Some((id, 7)));
        }
        let long = format!("rule old {}", "a".repeat(ID_CHARS - 8));
        let texts = [
            "",
            "a job",
            "old",
            "rule old",
            "rule older a",
            "drop old a",
            " rule old a",
            long.as_str(),
        ];
        for id in texts
            .into_iter()
            .map(EdmValue::from)
            .chain([EdmValue::Int64(7)])
        {
            assert_eq!(
                sent(id.clone()),
                Some((format!("rule old {now}"), 8)),
                "{id:?}"
            );
        }
    }

    #[test]
    fn an_owner_has_rows_of_its_own() {
        let timetable =
            |owner| Timetable::new(Stores::default(), Arc::new(SystemClock::new()), &[], owner);
        let (default, payroll) = (
            timetable(CatalogOwner::default()),
            timetable(CatalogOwner::new("payroll").unwrap()),
        );
        let job = job(WaitPolicy::doubling(HOUR, HOUR));
        assert_eq!(
            [default.key(&job).rk.as_str(), payroll.key(&job).rk.as_str()],
            ["default~old", "payroll~old"]
        );
        assert_eq!(
            (
                default.name_in("default~old"),
                default.name_in("payroll~old")
            ),
            (Some("old"), None)
        );
        assert_eq!(
            (
                payroll.name_in("old"),
                payroll.name_in("payroll~old"),
                payroll.name_in("payrolls~old")
            ),
            (None, Some("old"), None)
        );
    }
}
