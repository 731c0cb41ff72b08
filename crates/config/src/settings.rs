//! `[worker]`, `[migrate]`, `[log]`, `[traces]` and `[pace]`

use std::time::Duration;

use super::address;
use super::secret::SecretKeys;
use super::section::Section;
use crate::levels::levels;
use evenkeel_model::CatalogOwner;
use evenkeel_model::limits::LATE_REQUEST;
use evenkeel_model::settings::{
    Backoff, LogSettings, MAX_LISTED_WAITS, MigrateSettings, PaceCeilings, PaceSettings,
    PacedAccounts, PollInterval, RetryPolicy, TraceSettings, WorkerSettings,
};
use evenkeel_model::units::duration_text;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);
/// Maximum visibility timeout of a message (Azure: 7 days).
const WEEK: Duration = Duration::from_hours(7 * 24);

/// Minimum of `worker.memory`. A staged entity of 16 MiB is in memory three times, and the three copies must fit into
/// the part of `worker.memory` that is reserved for staged entities.
const MIN_MEMORY: u64 = 64 << 20;
const MAX_MEMORY: u64 = 1 << 40;

const HEADERS: SecretKeys = SecretKeys {
    env: "headers_env",
    file: "headers_file",
};

const STORAGE_RETRY: &str = "storage_retry";
/// Maximum of `worker.recheck_after`. A queue hides a message for at most seven days. The message of a recheck is
/// hidden for `recheck_after` and a margin for the end of the pass. One hour is left for this margin.
const MAX_RECHECK_AFTER: Duration = Duration::from_hours(7 * 24 - 1);
const MAX_RETRY_WAIT: Duration = Duration::from_mins(5);

pub(super) fn worker(root: &Section<'_>) -> Option<WorkerSettings> {
    let section = root.section("worker")?;
    let lease = section.duration("lease", 10 * SECOND..=WEEK);
    let max_dequeue_count = section.integer("max_dequeue_count", 1..=1_000);
    // A wait is a visibility timeout in whole seconds, so a wait below one second would be zero.
    let retry_delay = backoff(&section, "retry_delay", SECOND, WEEK, &[]);
    let job_timeout = section.duration("job_timeout", SECOND..=DAY);
    let recheck_after = section.duration("recheck_after", LATE_REQUEST..=MAX_RECHECK_AFTER);
    let give_up_after = section.duration("give_up_after", SECOND..=30 * DAY);
    let drain = section.duration("drain", Duration::ZERO..=Duration::from_hours(1));
    let poll = poll(&section);
    let storage_retry = storage_retry(&section);
    if let (Some(retry), Some(timeout)) = (storage_retry, job_timeout)
        && retry.longest_sum() >= timeout
    {
        let (sum, timeout) = (
            duration_text(whole_millis(retry.longest_sum())),
            duration_text(timeout),
        );
        let reason = format!(
            "its waits may add up to {sum}, but job_timeout ends a job after {timeout}; expected shorter or fewer waits"
        );
        section.warning(STORAGE_RETRY, reason);
    }
    let memory = section.size("memory", MIN_MEMORY..=MAX_MEMORY);
    section.finish();
    let (job_timeout, recheck_after) = (job_timeout?, recheck_after?);
    if recheck_after < job_timeout + LATE_REQUEST {
        let least = duration_text(job_timeout + LATE_REQUEST);
        section.error(
            "recheck_after",
            format!(
                "expected at least {least} (job_timeout {} + 15m, in which a delayed request may still arrive), found {}",
                duration_text(job_timeout),
                duration_text(recheck_after)
            ),
        );
        return None;
    }
    Some(WorkerSettings {
        lease: lease?,
        max_dequeue_count: max_dequeue_count?,
        retry_delay: retry_delay?,
        job_timeout,
        recheck_after,
        give_up_after: give_up_after?,
        drain: drain?,
        poll: poll?,
        storage_retry: storage_retry?,
        memory: memory?,
    })
}

fn storage_retry(parent: &Section<'_>) -> Option<RetryPolicy> {
    if parent.is_list(STORAGE_RETRY) {
        let waits = parent.durations(STORAGE_RETRY, MS..=MAX_RETRY_WAIT)?;
        return match RetryPolicy::listed(&waits).filter(|_| !waits.is_empty()) {
            None => {
                let expected = format!(
                    "expected 1 to {MAX_LISTED_WAITS} waits, found {}. To disable retries, set {{ attempts = 1 }}",
                    waits.len()
                );
                parent.error(STORAGE_RETRY, expected);
                None
            }
            policy => policy,
        };
    }
    if parent.peek_text(STORAGE_RETRY).is_some() {
        parent.error(STORAGE_RETRY, "expected { min, base, max, attempts } or a list such as [\"2s\", \"4s\"], found a string. To disable retries, set { attempts = 1 }");
        return None;
    }
    let backoff = backoff(parent, STORAGE_RETRY, MS, MAX_RETRY_WAIT, &["attempts"]);
    let attempts = parent
        .section(STORAGE_RETRY)
        .and_then(|section| section.integer("attempts", 1..=20));
    Some(RetryPolicy::growing(backoff?, attempts?))
}

fn backoff(
    parent: &Section<'_>,
    key: &'static str,
    least: Duration,
    most: Duration,
    other_keys: &[&'static str],
) -> Option<Backoff> {
    let Some(section) = parent.section(key) else {
        if !parent.has(key) {
            parent.error(key, "missing; expected { min, base, max }");
        }
        return None;
    };
    let (min, base, max) = (
        section.duration("min", Duration::ZERO..=most),
        section.duration("base", least..=most),
        section.duration("max", least..=most),
    );
    section.mark_known(other_keys);
    section.finish();
    let backoff = Backoff {
        min: min?,
        base: base?,
        max: max?,
    };
    if backoff.min > backoff.max {
        section.error(
            "max",
            format!(
                "expected at least min ({}), found {}",
                duration_text(backoff.min),
                duration_text(backoff.max)
            ),
        );
        return None;
    }
    Some(backoff)
}

fn poll(parent: &Section<'_>) -> Option<PollInterval> {
    let section = parent.section("poll")?;
    let (min, max) = (
        section.duration("min", 10 * MS..=DAY),
        section.duration("max", 10 * MS..=DAY),
    );
    section.finish();
    let poll = PollInterval {
        min: min?,
        max: max?,
    };
    if poll.min > poll.max {
        section.error(
            "max",
            format!(
                "expected at least min ({}), found {}",
                duration_text(poll.min),
                duration_text(poll.max)
            ),
        );
        return None;
    }
    Some(poll)
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

pub(super) fn migrate(root: &Section<'_>) -> Option<MigrateSettings> {
    let section = root.section("migrate")?;
    let auto = section.boolean("auto");
    let owner = section.required("owner", "a name such as \"bookings\"", |text| {
        CatalogOwner::new(text).map_err(|error| error.to_string())
    });
    let outdated_exit_after = section.duration("outdated_exit_after", Duration::ZERO..=DAY);
    section.finish();
    Some(MigrateSettings {
        auto: auto?,
        owner: owner?,
        outdated_exit_after: outdated_exit_after?,
    })
}

pub(super) fn log(root: &Section<'_>) -> Option<LogSettings> {
    const EXPECTED: &str = "a level (error, warn, info, debug, trace, off) or levels by module, such as \"info,evenkeel_worker=debug\"";
    let section = root.section("log")?;
    let level = section.required("level", EXPECTED, |text| {
        levels(text).map(|_| text.to_owned())
    });
    section.finish();
    Some(LogSettings { level: level? })
}

pub(super) fn traces(root: &Section<'_>) -> Option<TraceSettings> {
    let section = root.section("traces")?;
    let endpoint = section.parsed("endpoint", |text| {
        let mut url = address::parse(
            text,
            "the address of an OTLP receiver over HTTP, such as \"http://127.0.0.1:4318\"",
        )?;
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        Ok::<String, String>(url.to_string())
    });
    let headers = HEADERS.read(&section);
    let sample_percent = section.integer("sample_percent", 0..=100);
    let is_invalid = section.has("endpoint") && endpoint.is_none();
    section.finish();
    if is_invalid {
        None
    } else {
        Some(TraceSettings {
            endpoint,
            headers,
            sample_percent: sample_percent?,
        })
    }
}

pub(super) fn pace(root: &Section<'_>) -> Option<PaceSettings> {
    let section = root.section("pace")?;
    let words = [
        ("azure", PacedAccounts::Azure),
        ("all", PacedAccounts::All),
        ("none", PacedAccounts::None),
    ];
    let accounts = section.one_of("accounts", &words);
    let account = section.integer("account", 1..=1_000_000).map(f64::from);
    section.finish();
    let ceilings = PaceCeilings {
        account: account?,
        ..PaceCeilings::AZURE
    };
    Some(PaceSettings {
        accounts: accounts?,
        ceilings,
    })
}
