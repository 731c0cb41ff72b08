//! How things stand, in words. Pure.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::ops::NotReady;

/// How things stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "headline")]
pub struct Headline {
    /// The kind of news.
    pub mood: Mood,
    /// In a few words: "Catching up: 12,400 jobs, about 3 minutes".
    pub text: String,
    /// Further sentences.
    pub notes: Vec<String>,
}

/// Kind of a headline's news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(title = "mood")]
pub enum Mood {
    /// Nothing waits, nothing is poisoned, and the last audits left nothing wrong.
    Consistent,
    /// Jobs wait or run.
    CatchingUp,
    /// Nothing is known yet.
    Starting,
    /// An operator has to act: poison, drift, a newer catalog, migrations, a table that is gone.
    Stuck,
    /// A store does not answer.
    Unreachable,
}

/// Another worker of the same store that has not been heard of for a while: it hangs, or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilentWorker {
    /// Its name.
    pub name: String,
    /// When it was last heard of.
    pub since: jiff::Timestamp,
}

/// Inputs of the headline.
#[derive(Debug, Clone, Default)]
pub(super) struct HeadlineInputs {
    /// Why the program does not do its work.
    pub(super) reasons: Vec<NotReady>,
    /// For how long the first store of the reasons has not answered.
    pub(super) unreachable_for: Option<Duration>,
    /// Jobs that wait or run; `None` until measured.
    pub(super) jobs: Option<u64>,
    /// How long they may take.
    pub(super) pace: Rate,
    /// Poisoned messages; `None` until measured.
    pub(super) poisoned: Option<u64>,
    /// Views with items left wrong by their last audit, and how many.
    pub(super) drift: Vec<(String, u64)>,
    /// Other workers that are silent, and for how long.
    pub(super) silent: Vec<(String, Duration)>,
}

/// Estimate of how long the waiting jobs may take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum Rate {
    /// Every job is being run: they end when they end, which may be soon or, of a backfill, late.
    #[default]
    Running,
    /// Too little was done since they came.
    Unknown,
    /// So many are finished per second.
    PerSecond(f64),
}

pub(super) fn headline(situation: &HeadlineInputs) -> Headline {
    let catching_up = situation.jobs.filter(|jobs| *jobs > 0).map(|jobs| catching_up(jobs, situation.pace));
    let stuck = situation.poisoned.filter(|poisoned| *poisoned > 0).map(|poisoned| format!("Stuck: {} poisoned", grouped(poisoned)));
    let mut news: Vec<(Mood, String)> = Vec::new();
    for reason in &situation.reasons {
        news.push((mood(reason), words(reason, situation.unreachable_for)));
    }
    news.extend(stuck.map(|text| (Mood::Stuck, text)));
    news.extend(missed(&situation.silent).map(|text| (Mood::Stuck, text)));
    news.extend(drifted(&situation.drift).map(|text| (Mood::Stuck, text)));
    news.extend(catching_up.map(|text| (Mood::CatchingUp, text)));
    // The worst first; among equals in the order found.
    news.sort_by_key(|(mood, _)| std::cmp::Reverse(*mood));
    let mut news = news.into_iter();
    let (mood, text) = news.next().unwrap_or_else(|| match situation.jobs {
        Some(_) => (Mood::Consistent, "Consistent".to_owned()),
        None => (Mood::Starting, "Starting: the queues are being measured".to_owned()),
    });
    Headline { mood, text, notes: news.map(|(_, text)| text).collect() }
}

/// The items left wrong by the last audits. Repaired or not since: the next audit says.
fn drifted(views: &[(String, u64)]) -> Option<String> {
    let items: u64 = views.iter().map(|(_, items)| items).sum();
    let noun = if items == 1 { "item" } else { "items" };
    match views {
        [] => None,
        [(view, _)] => Some(format!("Drifted: the last audit of {view} left {} {noun} wrong", grouped(items))),
        views => Some(format!("Drifted: the last audits of {} views left {} {noun} wrong", grouped(views.len() as u64), grouped(items))),
    }
}

/// Other workers that hang or are gone.
fn missed(workers: &[(String, Duration)]) -> Option<String> {
    match workers {
        [] => None,
        [(name, time)] => Some(format!("Another worker hangs or is gone: {name}, silent for {}", lasting(*time))),
        [(name, time), rest @ ..] => Some(format!(
            "{} other workers hang or are gone: {name}, silent for {}, and {} more",
            grouped(workers.len() as u64),
            lasting(*time),
            grouped(rest.len() as u64)
        )),
    }
}

fn mood(reason: &NotReady) -> Mood {
    match reason {
        NotReady::Starting | NotReady::Draining | NotReady::NoSuccessfulPoll { last: None, .. } => Mood::Starting,
        NotReady::WaitingForStore { .. } | NotReady::CircuitOpen { .. } | NotReady::NoSuccessfulPoll { last: Some(_), .. } => {
            Mood::Unreachable
        }
        NotReady::MigrationsPending { .. } | NotReady::OutdatedCatalog { .. } | NotReady::MissingTable { .. } => Mood::Stuck,
    }
}

fn words(reason: &NotReady, unreachable_for: Option<Duration>) -> String {
    match (reason, unreachable_for) {
        (NotReady::CircuitOpen { account, service, .. }, Some(time)) => {
            format!("Store unreachable for {}: the {service} service of the account {account}", lasting(time))
        }
        (NotReady::Starting, _) => "Starting".to_owned(),
        (NotReady::Draining, _) => "Stopping: nothing more is received".to_owned(),
        (NotReady::MigrationsPending { .. } | NotReady::OutdatedCatalog { .. } | NotReady::MissingTable { .. }, _) => {
            format!("Stuck: {reason}")
        }
        (reason, _) => {
            let text = reason.to_string();
            let mut letters = text.chars();
            letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        }
    }
}

fn catching_up(jobs: u64, pace: Rate) -> String {
    let noun = if jobs == 1 { "job" } else { "jobs" };
    let per_second = match pace {
        Rate::Running => return format!("Catching up: {} {noun}", grouped(jobs)),
        Rate::PerSecond(per_second) if per_second > 0.0 => per_second,
        Rate::Unknown | Rate::PerSecond(_) => {
            return format!("Catching up: {} {noun}, time left unknown yet", grouped(jobs));
        }
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let left = Duration::try_from_secs_f64(jobs as f64 / per_second).unwrap_or(Duration::MAX);
    format!("Catching up: {} {noun}, about {}", grouped(jobs), roughly(left))
}

/// A duration as people estimate: one unit.
fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0..=1 => (1, "second"),
        2..=59 => (seconds, "second"),
        60..=5_399 => ((seconds + 30) / 60, "minute"),
        5_400..=129_599 => ((seconds + 1_800) / 3_600, "hour"),
        _ => ((seconds + 43_200) / 86_400, "day"),
    };
    format!("{} {unit}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A duration as it passes: "40 s", "12 min", "3 h".
pub(crate) fn lasting(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// A number with commas between its thousands.
pub(crate) fn grouped(number: u64) -> String {
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
    use crate::model::AccountName;
    use jiff::Timestamp;

    fn calm() -> HeadlineInputs {
        HeadlineInputs { jobs: Some(0), poisoned: Some(0), ..HeadlineInputs::default() }
    }

    #[test]
    fn it_says_in_words_how_things_stand() {
        let text = |situation: HeadlineInputs| headline(&situation).text;
        assert_eq!(text(calm()), "Consistent");
        assert_eq!(
            text(HeadlineInputs { jobs: Some(12_400), pace: Rate::PerSecond(68.0), ..calm() }),
            "Catching up: 12,400 jobs, about 3 minutes"
        );
        assert_eq!(text(HeadlineInputs { jobs: Some(1), ..calm() }), "Catching up: 1 job");
        assert_eq!(text(HeadlineInputs { jobs: Some(63), pace: Rate::Unknown, ..calm() }), "Catching up: 63 jobs, time left unknown yet");
        assert_eq!(text(HeadlineInputs { poisoned: Some(3), ..calm() }), "Stuck: 3 poisoned");
        let open = NotReady::CircuitOpen { account: AccountName::main(), service: "table", since: Timestamp::UNIX_EPOCH };
        let away = HeadlineInputs { reasons: vec![open], unreachable_for: Some(Duration::from_secs(40)), ..calm() };
        assert_eq!(text(away), "Store unreachable for 40 s: the table service of the account main");
        assert_eq!(headline(&HeadlineInputs::default()).mood, Mood::Starting);
    }

    #[test]
    fn the_worst_comes_first_and_the_rest_is_said_below() {
        let open = NotReady::CircuitOpen { account: AccountName::main(), service: "queue", since: Timestamp::UNIX_EPOCH };
        let all = headline(&HeadlineInputs {
            reasons: vec![open],
            unreachable_for: Some(Duration::from_mins(3)),
            jobs: Some(2),
            pace: Rate::Running,
            poisoned: Some(1),
            drift: vec![("by_email".to_owned(), 1)],
            silent: Vec::new(),
        });
        assert_eq!(all.mood, Mood::Unreachable);
        assert!(all.text.starts_with("Store unreachable for 3 min"), "{}", all.text);
        assert_eq!(all.notes, ["Stuck: 1 poisoned", "Drifted: the last audit of by_email left 1 item wrong", "Catching up: 2 jobs"]);
    }

    #[test]
    fn what_the_last_audit_left_wrong_is_not_consistent() {
        let drift = |views: &[(&str, u64)]| {
            let drift = views.iter().map(|(view, items)| ((*view).to_owned(), *items)).collect();
            headline(&HeadlineInputs { drift, ..calm() })
        };
        assert_eq!(drift(&[]).text, "Consistent");
        let one = drift(&[("by_email", 1)]);
        assert_eq!((one.mood, one.text.as_str()), (Mood::Stuck, "Drifted: the last audit of by_email left 1 item wrong"));
        assert_eq!(drift(&[("a", 1_000), ("b", 2)]).text, "Drifted: the last audits of 2 views left 1,002 items wrong");
    }

    #[test]
    fn a_worker_that_hangs_is_not_consistent() {
        let told = |silent: &[(&str, u64)]| {
            let silent = silent.iter().map(|(name, seconds)| ((*name).to_owned(), Duration::from_secs(*seconds))).collect();
            headline(&HeadlineInputs { silent, ..calm() })
        };
        let one = told(&[("host-12", 200)]);
        assert_eq!((one.mood, one.text.as_str()), (Mood::Stuck, "Another worker hangs or is gone: host-12, silent for 3 min"));
        assert!(told(&[("a", 200), ("b", 300)]).text.starts_with("2 other workers hang or are gone: a, silent for 3 min, and 1 more"));
    }

    #[test]
    fn a_table_that_is_gone_is_somebody_s_to_mend() {
        let gone = NotReady::MissingTable { account: AccountName::main(), table: "ByEmail".parse().unwrap() };
        let told = headline(&HeadlineInputs { reasons: vec![gone], ..calm() });
        assert_eq!(told.mood, Mood::Stuck);
        assert!(told.text.starts_with("Stuck: the table ByEmail of the account main does not exist"), "{}", told.text);
    }

    #[test]
    fn numbers_and_durations_are_readable() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let secs = Duration::from_secs;
        assert_eq!(
            [0, 45, 60, 5_000, 7_200, 200_000].map(|s| roughly(secs(s))),
            ["1 second", "45 seconds", "1 minute", "83 minutes", "2 hours", "2 days"]
        );
    }
}
