//! Turns measurements into findings with a severity and a remedy. Pure.

use std::time::Duration;

use jiff::SignedDuration;
use serde::Serialize;

use evenkeel_model::settings::{MigrateSettings, QueueSettings};
use evenkeel_model::{AccountName, QueueName, TableName};
use evenkeel_ops::numbers::{Counted as _, Measure as _};
use evenkeel_ops::state::{SilentWorker, lasting};
use evenkeel_rollout::migrations::{Consent, MigrationStatus, ProblemKind, ViewSurvey};
use evenkeel_storage::{AccountFacts, ErrorClass, Missing, Service, StoreError};
use evenkeel_telemetry::latency::Latencies;

/// A clock difference of at least this is an error. The service refuses requests that are signed with a clock more than 15 minutes off.
/// Half of that is left for further drift.
const CLOCK_ERROR: SignedDuration = SignedDuration::from_secs(450);
/// A clock difference of at least this is a warning. The age limits of messages and taints allow for clocks that differ by seconds.
const CLOCK_WARNING: SignedDuration = SignedDuration::from_secs(30);
/// If the median latency of point reads is longer than this, it is a warning. Within a region, a point read takes some milliseconds.
const FAR: Duration = Duration::from_millis(30);
/// If the oldest message is at least this old, the backlog is a warning.
const OLD: Duration = Duration::from_mins(5);
/// Target of messages per second for one queue, and for all queues of an account (Azure: Queue
/// storage targets).
const QUEUE_TARGET: u32 = 2_000;
const QUEUES_TARGET: u32 = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Severity {
    /// There is no problem.
    Ok,
    /// The checked part works, but not well or not for long.
    Warning,
    /// The checked part does not work, or waits for an operator.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    pub(super) severity: Severity,
    /// The check: `tables`, `queues`, `blobs`, `search`, `account`, `clock`, `latency`, `throttling`, `limits`, `backlog`, `poison`, `catalog`,
    /// `views`, `workers`, `scratch` or `writes`.
    pub(super) check: &'static str,
    pub(super) subject: String,
    pub(super) finding: String,
    /// What to do; `None` if there is no problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Diagnosis {
    pub(super) fn ok(
        check: &'static str,
        subject: &impl ToString,
        finding: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Ok,
            check,
            subject: subject.to_string(),
            finding: finding.into(),
            remedy: None,
        }
    }

    pub(super) fn warning(
        check: &'static str,
        subject: &impl ToString,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(check, subject, finding)
        }
    }

    pub(super) fn error(
        check: &'static str,
        subject: &impl ToString,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            ..Self::warning(check, subject, finding, remedy)
        }
    }
}

pub(super) const fn check_of(service: Service) -> &'static str {
    match service {
        Service::Table => "tables",
        Service::Queue => "queues",
        Service::Blob => "blobs",
        Service::Search => "search",
    }
}

pub(super) fn failed(error: &StoreError) -> Diagnosis {
    let (service, account) = (error.subject.resource.service(), &error.subject.account);
    let check = check_of(service);
    let role = match service {
        Service::Table => "Storage Table Data Contributor",
        Service::Queue => "Storage Queue Data Contributor",
        Service::Blob => "Storage Blob Data Contributor",
        Service::Search => "Search Index Data Contributor",
    };
    let words = error.to_string();
    match error.class {
        ErrorClass::Unauthorised => Diagnosis::error(
            check,
            account,
            words,
            format!(
                "a worker needs the role {role}, or a shared access signature that covers this (docs/security.md). Check the credentials of [accounts.{account}] and this machine's clock"
            ),
        ),
        ErrorClass::Refused => Diagnosis::error(
            check,
            account,
            words,
            format!(
                "nothing listens at the endpoint, or its name cannot be resolved: check [accounts.{account}] and the network"
            ),
        ),
        ErrorClass::NotFound(Missing::Container) => Diagnosis::error(
            check,
            account,
            words,
            "`evenkeel migrate up` creates what the catalog declares",
        ),
        ErrorClass::Throttled { .. } => Diagnosis::warning(
            check,
            account,
            words,
            "the service is busy: look for hot partitions on the dashboard's page Storage",
        ),
        ErrorClass::Transient { .. } | ErrorClass::Ambiguous => Diagnosis::error(
            check,
            account,
            words,
            "the service failed or did not answer: run doctor again, and check the status of the Azure region",
        ),
        ErrorClass::NotFound(Missing::Item)
        | ErrorClass::Conflict
        | ErrorClass::Precondition
        | ErrorClass::LeaseLost
        | ErrorClass::Permanent
        | ErrorClass::TooLarge => Diagnosis::error(
            check,
            account,
            words,
            format!("check [accounts.{account}]: this is not an answer of Azure Storage"),
        ),
    }
}

/// Checks the kind of the account. Premium accounts and accounts for only blobs or files have no
/// tables and queues.
pub(super) fn kind(account: &AccountName, AccountFacts { kind, sku }: &AccountFacts) -> Diagnosis {
    if sku.starts_with("Standard_") && matches!(kind.as_str(), "StorageV2" | "Storage") {
        return Diagnosis::ok("account", account, format!("{kind}, {sku}"));
    }
    let finding = format!("{kind}, {sku}: an account of this kind has no tables and queues");
    Diagnosis::error(
        "account",
        account,
        finding,
        "use a general-purpose account: kind StorageV2, performance Standard",
    )
}

/// `ahead` is the difference between the table service's clock and this machine's.
pub(super) fn clock(account: &AccountName, ahead: SignedDuration) -> Diagnosis {
    let direction = if ahead.is_negative() {
        "behind"
    } else {
        "ahead of"
    };
    let finding = format!(
        "the table service's clock is {:.1} s {direction} this machine's",
        ahead.abs().as_secs_f64()
    );
    let remedy = "synchronize this machine's clock (NTP): the service refuses requests that are signed with a clock 15 minutes off";
    match ahead.abs() {
        apart if apart >= CLOCK_ERROR => Diagnosis::error("clock", account, finding, remedy),
        apart if apart >= CLOCK_WARNING => Diagnosis::warning("clock", account, finding, remedy),
        _ => Diagnosis::ok("clock", account, finding),
    }
}

/// Judges the latency of point reads. Returns `None` if there was no read.
pub(super) fn latency(
    account: &AccountName,
    latencies: &Latencies,
    reads: u64,
) -> Option<Diagnosis> {
    let [p50, p99] = [0.5, 0.99].map(|share| latencies.quantile(share));
    let shown = |took: Option<Duration>| took.map(|took| took.as_secs_f64()).seconds();
    let finding = format!(
        "a point read takes {} (p50), {} (p99), in {reads} reads",
        shown(p50),
        shown(p99)
    );
    Some(if p50? > FAR {
        Diagnosis::warning(
            "latency",
            account,
            finding,
            "run workers in the account's region: a job is a chain of three to ten requests (docs/performance.md)",
        )
    } else {
        Diagnosis::ok("latency", account, finding)
    })
}

/// `age` is the age of the oldest message that was peeked. `workers` is the number of running
/// workers.
pub(super) fn backlog(
    queue: &QueueName,
    messages: u64,
    age: Duration,
    workers: Option<usize>,
) -> Diagnosis {
    if messages == 0 {
        return Diagnosis::ok("backlog", queue, "empty");
    }
    let finding = format!(
        "{}, the oldest {} old",
        messages.of("message"),
        lasting(age)
    );
    match workers {
        Some(0) => Diagnosis::error(
            "backlog",
            queue,
            format!("{finding}, and no worker runs"),
            "start one: `evenkeel run`",
        ),
        _ if age >= OLD => Diagnosis::warning(
            "backlog",
            queue,
            finding,
            "raise `concurrency` or start more workers; `/readyz` and the dashboard show what a worker waits for",
        ),
        _ => Diagnosis::ok("backlog", queue, finding),
    }
}

pub(super) fn poison(queue: &QueueSettings, poisoned: u64) -> Diagnosis {
    if poisoned == 0 {
        return Diagnosis::ok("poison", &queue.name, "none");
    }
    let name = &queue.name;
    Diagnosis::error(
        "poison",
        name,
        format!(
            "{}: their jobs were not done",
            poisoned.of("poisoned message")
        ),
        format!("`evenkeel poison list --queue {name}` shows the reasons; requeue or discard them"),
    )
}

/// Compares the queues of an account with the account's target.
pub(super) fn limits(account: &AccountName, queues: &[&QueueSettings]) -> Option<Diagnosis> {
    let shards: u32 = queues.iter().map(|queue| queue.shards.max(1)).sum();
    let most = QUEUES_TARGET / QUEUE_TARGET;
    let finding = format!(
        "{}, with a target of 2,000 messages/s each; the target of the account is 20,000/s",
        shards.of("job queue")
    );
    match shards {
        0 => None,
        _ if shards > most => Some(Diagnosis::warning(
            "limits",
            account,
            finding,
            format!(
                "more than {most} queues in one account add no throughput: put the others in another account (docs/performance.md)"
            ),
        )),
        _ => Some(Diagnosis::ok("limits", account, finding)),
    }
}

pub(super) fn throttling(account: &AccountName, throttled: u64, requests: u64) -> Diagnosis {
    if throttled == 0 {
        return Diagnosis::ok(
            "throttling",
            account,
            format!("none of {requests} requests was throttled"),
        );
    }
    let remedy = "this command sends too few requests to cause this: the account or a partition is at its limit, see docs/keys.md#hot-partitions";
    Diagnosis::warning(
        "throttling",
        account,
        format!("{throttled} of {requests} requests were refused with 503 or 429"),
        remedy,
    )
}

pub(super) fn catalog(status: &MigrationStatus, settings: &MigrateSettings) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for change in &status.pending {
        let waits = settings.auto && change.needs() != Consent::Replacement;
        let itself = settings.auto && change.needs() == Consent::Additions;
        let flag = if change.needs() == Consent::Replacement {
            " --retire"
        } else {
            ""
        };
        let remedy = format!(
            "`evenkeel migrate up{flag}` does this{}",
            if itself {
                "; a starting worker does so too"
            } else {
                ""
            }
        );
        let make = if waits {
            Diagnosis::warning
        } else {
            Diagnosis::error
        };
        findings.push(make(
            "catalog",
            &AccountName::main(),
            format!("pending: {change}"),
            remedy,
        ));
    }
    if findings.is_empty() {
        let views = status.views.values().filter(|view| !view.retired).count();
        findings.push(Diagnosis::ok(
            "catalog",
            &AccountName::main(),
            format!(
                "generation {} is recorded, with {}",
                status.generation,
                (views as u64).of("view")
            ),
        ));
    }
    findings.extend(status.indexes.iter().map(|index| {
        let remedy = match index.problem {
            ProblemKind::Index | ProblemKind::Fields { .. } => {
                "add what is missing to the index: evenkeel does not change indexes"
            }
            ProblemKind::Types { .. } | ProblemKind::Unknown { .. } => {
                "`evenkeel migrate status` checks it again"
            }
        };
        Diagnosis::error("search", &index.sink, index.to_string(), remedy)
    }));
    findings
}

pub(super) fn views(surveys: &[ViewSurvey]) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for ViewSurvey { sample, foreign } in surveys {
        if sample.loss {
            let remedy = format!(
                "correct the view, or record it with `evenkeel migrate up --retire --accept-loss {}`",
                sample.view
            );
            findings.push(Diagnosis::error(
                "views",
                &sample.view,
                sample.to_string(),
                remedy,
            ));
        } else if sample.is_suspect() {
            let remedy = "correct the name if it is misspelt; ignore this if few entities have the property, or none was written yet";
            findings.push(Diagnosis::warning(
                "views",
                &sample.view,
                sample.to_string(),
                remedy,
            ));
        }
        if let Some(foreign) = foreign {
            let remedy = "evenkeel does not overwrite such rows: give the view its own table, or delete the rows";
            findings.push(Diagnosis::warning(
                "views",
                &sample.view,
                foreign.to_string(),
                remedy,
            ));
        }
    }
    if findings.is_empty() && !surveys.is_empty() {
        let primaries = surveys
            .iter()
            .map(|survey| survey.sample.primaries)
            .max()
            .unwrap_or_default();
        let finding = format!(
            "{} checked with at most {primaries} primaries each: the properties that they name exist",
            (surveys.len() as u64).of("view")
        );
        findings.push(Diagnosis::ok("views", &AccountName::main(), finding));
    }
    findings
}

pub(super) fn workers(running: usize, silent: &[SilentWorker]) -> Vec<Diagnosis> {
    let main = AccountName::main();
    let mut findings: Vec<Diagnosis> = silent
        .iter()
        .map(|worker| {
            let finding = format!("the worker {} was last heard of at {}", worker.name, worker.since);
            if let Some(successor) = &worker.successor {
                return Diagnosis::ok("workers", &main, format!("{finding}, and {successor} has started in its place"));
            }
            Diagnosis::warning(
                "workers",
                &main,
                finding,
                "it hangs or was killed: check its log and restart it. Its row is deleted after an hour",
            )
        })
        .collect();
    findings.push(match running {
        0 => Diagnosis::warning(
            "workers",
            &main,
            "no worker runs on this store",
            "start one: `evenkeel run`",
        ),
        _ => Diagnosis::ok("workers", &main, format!("{running} running")),
    });
    findings
}

/// Reports tables that a test run left behind.
pub(super) fn scratch<'a>(
    account: &AccountName,
    tables: impl Iterator<Item = &'a TableName>,
) -> Option<Diagnosis> {
    let left: Vec<&str> = tables
        .map(TableName::as_str)
        .filter(|name| name.starts_with("EvenkeelScratch"))
        .collect();
    (!left.is_empty()).then(|| {
        let finding = format!(
            "scratch tables of a command that is running or was killed: {}",
            left.join(", ")
        );
        Diagnosis::warning(
            "scratch",
            account,
            finding,
            "delete them if no `stress`, `certify` or `doctor --write` is running",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_storage::{Resource, Subject};
    use evenkeel_telemetry::latency::LatencyCounts;

    fn severities(findings: &[Diagnosis]) -> Vec<Severity> {
        findings.iter().map(|finding| finding.severity).collect()
    }

    #[test]
    fn a_clock_is_judged_by_what_the_service_still_accepts() {
        for (seconds, severity) in [
            (0, Severity::Ok),
            (-29, Severity::Ok),
            (30, Severity::Warning),
            (-449, Severity::Warning),
            (450, Severity::Error),
        ] {
            let finding = clock(&AccountName::main(), SignedDuration::from_secs(seconds));
            assert_eq!(finding.severity, severity, "{seconds}: {finding:?}");
        }
        assert!(
            clock(&AccountName::main(), SignedDuration::from_millis(-1_500))
                .finding
                .contains("1.5 s behind")
        );
    }

    #[test]
    fn an_account_without_tables_is_an_error() {
        for (name, sku, severity) in [
            ("StorageV2", "Standard_LRS", Severity::Ok),
            ("StorageV2", "Standard_RAGZRS", Severity::Ok),
            ("Storage", "Standard_GRS", Severity::Ok),
            // This kind of account has only page blobs.
            ("StorageV2", "Premium_LRS", Severity::Error),
            ("BlobStorage", "Standard_LRS", Severity::Error),
            ("BlockBlobStorage", "Premium_ZRS", Severity::Error),
            ("FileStorage", "Premium_LRS", Severity::Error),
        ] {
            let found = kind(
                &AccountName::main(),
                &AccountFacts {
                    kind: name.to_owned(),
                    sku: sku.to_owned(),
                },
            );
            assert_eq!(
                (found.severity, found.remedy.is_some()),
                (severity, severity == Severity::Error),
                "{found:?}"
            );
            assert!(
                found.finding.starts_with(&format!("{name}, {sku}")),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_distant_account_is_a_warning_and_one_without_reads_is_not_judged() {
        let judged = |millis: u64| {
            let counts = LatencyCounts::default();
            counts.add(Duration::from_millis(millis));
            latency(&AccountName::main(), &counts.snapshot(), 1)
                .unwrap()
                .severity
        };
        assert_eq!((judged(4), judged(120)), (Severity::Ok, Severity::Warning));
        assert_eq!(
            latency(&AccountName::main(), &Latencies::default(), 0),
            None
        );
    }

    #[test]
    fn an_old_backlog_is_a_warning_and_one_without_workers_an_error() {
        let queue = QueueName::new("jobs").unwrap();
        let of = |messages, minutes, workers| {
            backlog(&queue, messages, Duration::from_mins(minutes), workers).severity
        };
        assert_eq!(
            [of(0, 0, Some(0)), of(9, 1, Some(2)), of(9, 1, None)],
            [Severity::Ok; 3]
        );
        assert_eq!([of(9, 6, Some(2)), of(9, 6, None)], [Severity::Warning; 2]);
        assert_eq!(of(1, 0, Some(0)), Severity::Error);
    }

    #[test]
    fn a_problem_for_an_operator_is_an_error_with_a_remedy() {
        let queue = QueueSettings::plain(QueueName::new("jobs").unwrap());
        assert_eq!(poison(&queue, 0).severity, Severity::Ok);
        assert!(
            poison(&queue, 3)
                .remedy
                .unwrap()
                .contains("evenkeel poison list --queue jobs")
        );
        let error = |class| {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Service(Service::Queue),
            };
            failed(&StoreError::new(class, "Get Messages", subject, "no"))
        };
        let refused = error(ErrorClass::Unauthorised);
        assert!(
            refused.severity == Severity::Error
                && refused
                    .remedy
                    .unwrap()
                    .contains("Storage Queue Data Contributor")
        );
        assert_eq!(
            error(ErrorClass::Throttled { retry_after: None }).severity,
            Severity::Warning
        );
        let since = jiff::Timestamp::UNIX_EPOCH;
        assert_eq!(
            severities(&workers(
                1,
                &[SilentWorker {
                    name: "a".to_owned(),
                    since,
                    successor: None
                }]
            )),
            [Severity::Warning, Severity::Ok]
        );
        assert_eq!(severities(&workers(0, &[])), [Severity::Warning]);
    }

    #[test]
    fn more_queues_than_an_account_serves_are_a_warning() {
        let queue = |shards| QueueSettings {
            shards,
            ..QueueSettings::plain(QueueName::new("jobs").unwrap())
        };
        let of = |queues: &[QueueSettings]| {
            limits(&AccountName::main(), &queues.iter().collect::<Vec<_>>())
                .map(|finding| finding.severity)
        };
        assert_eq!(
            [
                of(&[]),
                of(&[queue(1), queue(9)]),
                of(&[queue(1), queue(10)])
            ],
            [None, Some(Severity::Ok), Some(Severity::Warning)]
        );
    }
}
