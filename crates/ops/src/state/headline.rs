//! Describes the state of the program in a few words. Pure.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::acknowledged::{Acknowledgements, News};
use crate::NotReady;

/// The state of the program in a few words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "headline")]
pub struct Headline {
    /// Kind of state.
    pub state: HealthState,
    /// The text, such as "Catching up: 12,400 jobs, about 3 minutes".
    pub text: String,
    /// Value for `POST /api/v1/acknowledge`, which removes this from the headline; null if it cannot be acknowledged.
    pub acknowledge: Option<String>,
    /// Further news, the worst first.
    pub notes: Vec<Note>,
}

/// A piece of news below the headline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "note")]
pub struct Note {
    /// Kind of state.
    pub state: HealthState,
    /// The text.
    pub text: String,
    /// Value for `POST /api/v1/acknowledge`, which removes this news; null if it cannot be acknowledged.
    pub acknowledge: Option<String>,
}

/// Kind of state, in ascending severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "health_state")]
pub enum HealthState {
    /// No job is waiting, no message is poisoned, and the last audits left nothing wrong.
    Consistent,
    /// All poisoned messages and drift have been acknowledged.
    Acknowledged,
    /// Jobs are waiting or running.
    CatchingUp,
    /// Someone should look, although everything works: poisoned messages, drift, or a worker that was lost and
    /// replaced.
    Attention,
    /// Nothing has been measured yet.
    Starting,
    /// Something does not work until someone acts: a newer catalog, pending migrations, a missing table, or a hanging
    /// worker.
    Stuck,
    /// A store does not answer.
    Unreachable,
}

/// Another worker of the same store that has not reported for a while. It hangs or no longer exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentWorker {
    pub name: String,
    /// The time of its last report.
    pub since: Timestamp,
    /// The worker that presumably replaces this one, because it started after `since`.
    pub successor: Option<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct HeadlineInputs {
    pub(super) now: Timestamp,
    pub(super) reasons: Vec<NotReady>,
    /// Number of waiting and running jobs; `None` before the first measurement.
    pub(super) jobs: Option<u64>,
    pub(super) pace: Rate,
    /// Number of poisoned messages that have not been acknowledged, then the number of those that have.
    pub(super) poisoned: (u64, u64),
    pub(super) drift: Vec<DriftedView>,
    pub(super) silent: Vec<SilentWorker>,
    pub(super) acknowledged: Acknowledgements,
}

/// A view whose last audit found wrong items and left them wrong.
#[derive(Debug, Clone)]
pub(super) struct DriftedView {
    pub(super) view: String,
    pub(super) items: u64,
    pub(super) audited: Timestamp,
}

/// The rate at which waiting jobs are finished, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Rate {
    /// No job is waiting. The duration of running jobs is unknown: a sync takes milliseconds, a backfill takes hours.
    #[default]
    Running,
    /// Too few jobs have been finished for an estimate.
    Unknown,
    PerSecond(f64),
}

/// How long the headline mentions a worker that was replaced.
const REPLACED_IS_NEWS: Duration = Duration::from_mins(10);
/// Maximum number of silent workers that the headline names.
const NAMED: usize = 5;

pub(super) fn headline(inputs: &HeadlineInputs) -> Headline {
    let note = |state, text: String| Note {
        state,
        text,
        acknowledge: None,
    };
    let mut news: Vec<Note> = Vec::new();
    news.extend(
        inputs
            .reasons
            .iter()
            .map(|reason| note(state(reason), words(reason, inputs.now))),
    );
    news.extend(silent(inputs));
    let (new, acknowledged) = inputs.poisoned;
    news.extend(poisoned(new, acknowledged));
    news.extend(drifted(inputs));
    news.extend(
        inputs
            .jobs
            .filter(|jobs| *jobs > 0)
            .map(|jobs| note(HealthState::CatchingUp, catching_up(jobs, inputs.pace))),
    );
    // The worst news comes first. The sort is stable, so news of the same state keeps its order.
    news.sort_by_key(|note| std::cmp::Reverse(note.state));
    let is_headline = news
        .first()
        .is_some_and(|first| first.state != HealthState::Acknowledged);
    let first = match (is_headline, news.is_empty(), inputs.jobs) {
        (true, ..) => news.remove(0),
        (false, false, Some(_)) => note(HealthState::Acknowledged, "Nothing new".to_owned()),
        (false, true, Some(_)) => note(HealthState::Consistent, "Consistent".to_owned()),
        (false, _, None) => note(
            HealthState::Starting,
            "Starting: the queues are being measured".to_owned(),
        ),
    };
    Headline {
        state: first.state,
        text: first.text,
        acknowledge: first.acknowledge,
        notes: news,
    }
}

fn poisoned(new: u64, acknowledged: u64) -> Option<Note> {
    let messages = |count: u64, which: &str| {
        format!(
            "{} {which}poisoned message{}",
            grouped(count),
            if count == 1 { "" } else { "s" }
        )
    };
    let text = match (new, acknowledged) {
        (0, 0) => return None,
        (0, acknowledged) => {
            let text = format!("{}, acknowledged", messages(acknowledged, ""));
            return Some(Note {
                state: HealthState::Acknowledged,
                text,
                acknowledge: None,
            });
        }
        (new, 0) => messages(new, ""),
        (new, acknowledged) => format!(
            "{}, {} in all",
            messages(new, "new "),
            grouped(new + acknowledged)
        ),
    };
    Some(Note {
        state: HealthState::Attention,
        text,
        acknowledge: Some(News::Poison(new).to_string()),
    })
}

/// Returns the drift that the last audits found and that no backfill has repaired since.
fn drifted(inputs: &HeadlineInputs) -> Vec<Note> {
    let acknowledged = |view: &&DriftedView| {
        inputs
            .acknowledged
            .drift
            .is_some_and(|until| view.audited <= until)
    };
    let (old, new): (Vec<_>, Vec<_>) = inputs.drift.iter().partition(acknowledged);
    let text = |views: &[&DriftedView]| {
        let items: u64 = views.iter().map(|view| view.items).sum();
        let noun = if items == 1 { "item" } else { "items" };
        Some(match views {
            [] => return None,
            [DriftedView { view, .. }] => format!(
                "Drifted: the last audit of {view} did not repair {} wrong {noun}",
                grouped(items)
            ),
            views => format!(
                "Drifted: the last audits of {} views did not repair {} wrong {noun}",
                grouped(views.len() as u64),
                grouped(items)
            ),
        })
    };
    let subject = new
        .iter()
        .map(|view| view.audited)
        .max()
        .map(|audited| News::Drift(audited).to_string());
    let new = text(&new).map(|text| Note {
        state: HealthState::Attention,
        text,
        acknowledge: subject,
    });
    let old = text(&old).map(|text| Note {
        state: HealthState::Acknowledged,
        text: format!("{text}, acknowledged"),
        acknowledge: None,
    });
    new.into_iter().chain(old).collect()
}

/// Returns news about silent workers and recently replaced ones.
fn silent(inputs: &HeadlineInputs) -> Vec<Note> {
    let lasted = |worker: &SilentWorker| {
        Duration::try_from(inputs.now.duration_since(worker.since)).unwrap_or_default()
    };
    let new = |until: Option<Timestamp>| {
        move |worker: &&&SilentWorker| until.is_none_or(|until| worker.since > until)
    };
    let (replaced, hanging): (Vec<_>, Vec<_>) = inputs
        .silent
        .iter()
        .partition(|worker| worker.successor.is_some());
    let hanging: Vec<_> = hanging
        .iter()
        .filter(new(inputs.acknowledged.silent))
        .collect();
    let replaced = replaced
        .iter()
        .filter(new(inputs.acknowledged.replaced))
        .filter(|worker| lasted(worker) < REPLACED_IS_NEWS);
    let replaced: Vec<_> = replaced.collect();
    let newest = |workers: &[&&SilentWorker]| workers.iter().map(|worker| worker.since).max();
    let silent =
        |worker: &SilentWorker| format!("{}, silent for {}", worker.name, lasting(lasted(worker)));
    let hang = newest(&hanging).map(|since| Note {
        state: HealthState::Stuck,
        text: match hanging[..] {
            [one] => format!("Another worker hangs or is gone: {}", silent(one)),
            _ => format!(
                "{} other workers hang or are gone: {}",
                hanging.len(),
                named(&hanging, silent)
            ),
        },
        acknowledge: Some(News::Silent(since).to_string()),
    });
    let succeeded = |worker: &SilentWorker| {
        let successor = worker.successor.as_deref().unwrap_or_default();
        format!(
            "{} was lost {} ago and replaced by {successor}",
            worker.name,
            lasting(lasted(worker))
        )
    };
    let replaced = newest(&replaced).map(|since| Note {
        state: HealthState::Attention,
        text: format!("A worker was replaced: {}", named(&replaced, succeeded)),
        acknowledge: Some(News::Replaced(since).to_string()),
    });
    hang.into_iter().chain(replaced).collect()
}

/// Describes the first `NAMED` workers and counts the others.
fn named(workers: &[&&SilentWorker], words: impl Fn(&SilentWorker) -> String) -> String {
    let more = workers
        .len()
        .checked_sub(NAMED)
        .filter(|more| *more > 0)
        .map(|more| format!("and {more} more"));
    workers
        .iter()
        .take(NAMED)
        .map(|worker| words(worker))
        .chain(more)
        .collect::<Vec<_>>()
        .join("; ")
}

fn state(reason: &NotReady) -> HealthState {
    match reason {
        NotReady::Starting | NotReady::Draining | NotReady::NoSuccessfulPoll { last: None, .. } => {
            HealthState::Starting
        }
        NotReady::WaitingForStore { .. }
        | NotReady::CircuitOpen { .. }
        | NotReady::NoSuccessfulPoll { last: Some(_), .. } => HealthState::Unreachable,
        NotReady::MigrationsPending { .. }
        | NotReady::OutdatedCatalog { .. }
        | NotReady::MissingTable { .. } => HealthState::Stuck,
    }
}

fn words(reason: &NotReady, now: Timestamp) -> String {
    match reason {
        NotReady::CircuitOpen {
            account,
            service,
            since,
        } => {
            let time = Duration::try_from(now.duration_since(*since)).unwrap_or_default();
            format!(
                "Store unreachable for {}: the {service} service of the account {account}",
                lasting(time)
            )
        }
        NotReady::Starting => "Starting".to_owned(),
        NotReady::Draining => "Stopping: no more messages are received".to_owned(),
        NotReady::MigrationsPending { .. }
        | NotReady::OutdatedCatalog { .. }
        | NotReady::MissingTable { .. } => format!("Stuck: {reason}"),
        reason => {
            let text = reason.to_string();
            let mut letters = text.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_uppercase().chain(letters).collect()
            })
        }
    }
}

fn catching_up(jobs: u64, pace: Rate) -> String {
    let noun = if jobs == 1 { "job" } else { "jobs" };
    let per_second = match pace {
        Rate::Running => return format!("Catching up: {} {noun}", grouped(jobs)),
        Rate::PerSecond(per_second) if per_second > 0.0 => per_second,
        Rate::Unknown | Rate::PerSecond(_) => {
            return format!(
                "Catching up: {} {noun}, remaining time not known yet",
                grouped(jobs)
            );
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let left = Duration::try_from_secs_f64(jobs as f64 / per_second).unwrap_or(Duration::MAX);
    format!(
        "Catching up: {} {noun}, about {}",
        grouped(jobs),
        roughly(left)
    )
}

/// Formats a duration in a single unit, for estimates.
fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..=1 => (1, "second"),
        2..=59 => (seconds, "second"),
        60..=5_399 => ((seconds + 30) / 60, "minute"),
        5_400..=129_599 => ((seconds + 1_800) / 3_600, "hour"),
        _ => ((seconds + 43_200) / 86_400, "day"),
    };
    format!(
        "{} {unit}{}",
        grouped(count),
        if count == 1 { "" } else { "s" }
    )
}

/// Formats a duration in a single unit: "40 s", "12 min", "3 h".
pub fn lasting(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// Formats a number with commas between its thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::AccountName;
    use jiff::Timestamp;

    fn calm() -> HeadlineInputs {
        HeadlineInputs {
            jobs: Some(0),
            ..HeadlineInputs::default()
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn texts(notes: &[Note]) -> Vec<&str> {
        notes.iter().map(|note| note.text.as_str()).collect()
    }

    #[test]
    fn the_headline_describes_each_state() {
        let text = |inputs: HeadlineInputs| headline(&inputs).text;
        assert_eq!(text(calm()), "Consistent");
        assert_eq!(
            text(HeadlineInputs {
                jobs: Some(12_400),
                pace: Rate::PerSecond(68.0),
                ..calm()
            }),
            "Catching up: 12,400 jobs, about 3 minutes"
        );
        assert_eq!(
            text(HeadlineInputs {
                jobs: Some(1),
                ..calm()
            }),
            "Catching up: 1 job"
        );
        assert_eq!(
            text(HeadlineInputs {
                jobs: Some(63),
                pace: Rate::Unknown,
                ..calm()
            }),
            "Catching up: 63 jobs, remaining time not known yet"
        );
        let open = |service, since| NotReady::CircuitOpen {
            account: AccountName::main(),
            service,
            since: at(since),
        };
        let away = headline(&HeadlineInputs {
            now: at(60),
            reasons: vec![open("table", 20), open("queue", 55)],
            ..calm()
        });
        assert_eq!(
            [away.text.as_str(), away.notes[0].text.as_str()],
            [
                "Store unreachable for 40 s: the table service of the account main",
                "Store unreachable for 5 s: the queue service of the account main"
            ]
        );
        assert_eq!(
            headline(&HeadlineInputs::default()).state,
            HealthState::Starting
        );
    }

    #[test]
    fn acknowledged_poison_is_a_note_and_not_the_headline() {
        let with_poison = |new, acknowledged| {
            headline(&HeadlineInputs {
                poisoned: (new, acknowledged),
                ..calm()
            })
        };
        let new = with_poison(3, 0);
        assert_eq!(
            (new.state, new.text.as_str(), new.acknowledge.as_deref()),
            (
                HealthState::Attention,
                "3 poisoned messages",
                Some("poison:3")
            )
        );
        assert_eq!(with_poison(1, 0).text, "1 poisoned message");
        let known = with_poison(0, 3);
        assert_eq!(
            (known.state, known.text.as_str(), known.acknowledge),
            (HealthState::Acknowledged, "Nothing new", None)
        );
        assert_eq!(texts(&known.notes), ["3 poisoned messages, acknowledged"]);
        assert_eq!(with_poison(1, 3).text, "1 new poisoned message, 4 in all");
        let busy = headline(&HeadlineInputs {
            jobs: Some(2),
            poisoned: (0, 3),
            ..calm()
        });
        assert_eq!(
            (busy.state, texts(&busy.notes)),
            (
                HealthState::CatchingUp,
                vec!["3 poisoned messages, acknowledged"]
            )
        );
    }

    #[test]
    fn the_worst_news_is_the_headline_and_the_rest_are_notes() {
        let open = NotReady::CircuitOpen {
            account: AccountName::main(),
            service: "queue",
            since: at(0),
        };
        let all = headline(&HeadlineInputs {
            now: at(180),
            reasons: vec![open],
            jobs: Some(2),
            pace: Rate::Running,
            poisoned: (1, 0),
            drift: vec![DriftedView {
                view: "by_email".to_owned(),
                items: 1,
                audited: at(0),
            }],
            ..HeadlineInputs::default()
        });
        assert_eq!(all.state, HealthState::Unreachable);
        assert!(
            all.text.starts_with("Store unreachable for 3 min"),
            "{}",
            all.text
        );
        let expected = [
            "1 poisoned message",
            "Drifted: the last audit of by_email did not repair 1 wrong item",
            "Catching up: 2 jobs",
        ];
        assert_eq!(texts(&all.notes), expected);
    }

    #[test]
    fn drift_is_news_until_acknowledged_and_again_after_a_later_audit() {
        let drift = |views: &[(&str, u64, i64)], until: Option<i64>| {
            let of = |(view, items, audited): &(&str, u64, i64)| DriftedView {
                view: (*view).to_owned(),
                items: *items,
                audited: at(*audited),
            };
            let acknowledged = Acknowledgements {
                drift: until.map(at),
                ..Acknowledgements::default()
            };
            headline(&HeadlineInputs {
                drift: views.iter().map(of).collect(),
                acknowledged,
                ..calm()
            })
        };
        assert_eq!(drift(&[], None).text, "Consistent");
        let one = drift(&[("by_email", 1, 0)], None);
        assert_eq!(
            (one.state, one.text.as_str()),
            (
                HealthState::Attention,
                "Drifted: the last audit of by_email did not repair 1 wrong item"
            )
        );
        assert_eq!(
            drift(&[("a", 1_000, 0), ("b", 2, 1)], None).text,
            "Drifted: the last audits of 2 views did not repair 1,002 wrong items"
        );
        let known = drift(&[("a", 1_000, 0), ("b", 2, 1)], Some(1));
        assert_eq!((known.text.as_str(), known.notes.len()), ("Nothing new", 1));
        let later = drift(&[("a", 1_000, 0), ("b", 2, 2)], Some(1));
        assert_eq!(
            later.text,
            "Drifted: the last audit of b did not repair 2 wrong items"
        );
    }

    /// Returns the headline at `now` about silent workers. Each worker has a name, the time of its last report, and a
    /// successor.
    fn missing(
        now: i64,
        silent: &[(&str, i64, Option<&str>)],
        acknowledged: Acknowledgements,
    ) -> Headline {
        let of = |(name, since, successor): &(&str, i64, Option<&str>)| SilentWorker {
            name: (*name).to_owned(),
            since: at(*since),
            successor: successor.map(str::to_owned),
        };
        headline(&HeadlineInputs {
            now: at(now),
            silent: silent.iter().map(of).collect(),
            acknowledged,
            ..calm()
        })
    }

    #[test]
    fn hanging_workers_are_named() {
        let one = missing(200, &[("host-12", 0, None)], Acknowledgements::default());
        assert_eq!(
            (one.state, one.text.as_str()),
            (
                HealthState::Stuck,
                "Another worker hangs or is gone: host-12, silent for 3 min"
            )
        );
        let two = missing(
            300,
            &[("a", 100, None), ("b", 0, None)],
            Acknowledgements::default(),
        );
        assert_eq!(
            two.text,
            "2 other workers hang or are gone: a, silent for 3 min; b, silent for 5 min"
        );
        let known = Acknowledgements {
            silent: Some(at(100)),
            ..Acknowledgements::default()
        };
        assert_eq!(
            missing(300, &[("a", 100, None), ("b", 0, None)], known).text,
            "Consistent"
        );
        assert_eq!(
            missing(900, &[("a", 700, None)], known).state,
            HealthState::Stuck,
            "the worker has reported again since, and is silent again"
        );
    }

    #[test]
    fn a_replaced_worker_is_news_for_ten_minutes() {
        let gone = [("a", 0, Some("c"))];
        let shown = missing(200, &gone, Acknowledgements::default());
        assert_eq!(
            (shown.state, shown.text.as_str()),
            (
                HealthState::Attention,
                "A worker was replaced: a was lost 3 min ago and replaced by c"
            )
        );
        assert_eq!(
            missing(601, &gone, Acknowledgements::default()).text,
            "Consistent"
        );
        let known = Acknowledgements {
            replaced: Some(at(0)),
            ..Acknowledgements::default()
        };
        assert_eq!(missing(200, &gone, known).text, "Consistent");
        let both = missing(200, &[("a", 0, Some("c")), ("b", 20, None)], known);
        assert_eq!(
            both.text,
            "Another worker hangs or is gone: b, silent for 3 min"
        );
    }

    #[test]
    fn a_missing_table_needs_action() {
        let gone = NotReady::MissingTable {
            account: AccountName::main(),
            table: "ByEmail".parse().unwrap(),
        };
        let shown = headline(&HeadlineInputs {
            reasons: vec![gone],
            ..calm()
        });
        assert_eq!(shown.state, HealthState::Stuck);
        assert!(
            shown
                .text
                .starts_with("Stuck: the table ByEmail of the account main does not exist"),
            "{}",
            shown.text
        );
    }

    #[test]
    fn numbers_and_durations_are_readable() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        let secs = Duration::from_secs;
        assert_eq!(
            [0, 45, 60, 5_000, 7_200, 200_000].map(|s| roughly(secs(s))),
            [
                "1 second",
                "45 seconds",
                "1 minute",
                "83 minutes",
                "2 hours",
                "2 days"
            ]
        );
    }
}
