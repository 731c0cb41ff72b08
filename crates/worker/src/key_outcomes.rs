//! The keys of a batch with the outcome of each job, stored compactly for observers.

use std::cmp::Reverse;

use super::batch::{JobOutcome, PoisonedJob};
use super::decide::describe;
use super::observer::DeliveryStatus;
use super::settle::SettleOutcome;
use evenkeel_engine::Outcome;
use evenkeel_model::TableName;
use evenkeel_model::cause;
use evenkeel_model::job::Batch;

/// Maximum number of bytes for the keys of one delivery. A dashboard keeps a thousand deliveries,
/// so their keys take at most 16 MiB. A hundred short keys take 2 KiB.
const BYTES: usize = 16 * 1024;
const ERROR_BYTES: usize = 256;
/// Maximum number of bytes of one key, enough for 512 characters. A job with a longer key is an
/// error, so its key may be shortened here.
const KEY_BYTES: usize = 1_540;

/// The keys of one delivery, as many as fit. Keys whose jobs did not succeed come first.
#[derive(Debug, Clone, Default)]
pub struct KeyOutcomes {
    pub table: Option<TableName>,
    /// The number of keys, including those that are not kept.
    pub all: usize,
    keys: Texts,
    errors: Texts,
    ended: Vec<StoredOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOutcome<'a> {
    pub pk: &'a str,
    pub rk: &'a str,
    /// The outcome of the job; `Retried` if the next delivery runs it.
    pub ending: DeliveryStatus,
    pub error: Option<&'a str>,
}

#[derive(Debug, Clone, Copy)]
struct StoredOutcome {
    pk: TextSpan,
    rk: TextSpan,
    ending: DeliveryStatus,
    error: Option<TextSpan>,
}

/// Texts, each followed by a line break.
#[derive(Debug, Clone, Default)]
struct Texts(String);

#[derive(Debug, Clone, Copy)]
struct TextSpan {
    at: u16,
    bytes: u16,
}

impl Texts {
    /// Adds a text, shortened to at most `most` bytes, or reuses `before` if the text is the same.
    /// Returns `None` if the text does not fit into [`BYTES`].
    fn add(&mut self, text: &str, most: usize, before: Option<TextSpan>) -> Option<TextSpan> {
        let short = (text.len() > most).then(|| cause::shortened(text, most));
        let text = short.as_deref().unwrap_or(text);
        if let Some(before) = before.filter(|before| self.at(*before) == text) {
            return Some(before);
        }
        let span = TextSpan {
            at: u16::try_from(self.0.len()).ok()?,
            bytes: u16::try_from(text.len()).ok()?,
        };
        self.0 += text;
        self.0.push('\n');
        Some(span)
    }

    fn at(&self, TextSpan { at, bytes }: TextSpan) -> &str {
        self.0
            .get(usize::from(at)..usize::from(at) + usize::from(bytes))
            .unwrap_or_default()
    }
}

impl KeyOutcomes {
    /// `settled` is the settlement of the message. It decides the outcome of every job that is
    /// neither done, nor skipped, nor poisoned.
    pub(super) fn of(
        batch: &Batch,
        table: Option<TableName>,
        ends: &[JobOutcome],
        poisoned: &[PoisonedJob],
        settled: SettleOutcome,
    ) -> Self {
        let unended = DeliveryStatus::of(settled, false);
        let not_started = || {
            (unended == DeliveryStatus::Retried && !ends.is_empty())
                .then(|| "not started in this delivery".to_owned())
        };
        let mut jobs: Vec<Option<(DeliveryStatus, Option<String>)>> = vec![None; batch.len()];
        let ended = ends
            .iter()
            .map(|JobOutcome { at, end }| match end.outcome() {
                Some(Outcome::Done(_)) => (*at, DeliveryStatus::Done, None),
                Some(Outcome::Skipped { reason, .. }) => {
                    (*at, DeliveryStatus::Skipped, Some(reason.clone()))
                }
                Some(Outcome::Advanced { .. }) => (*at, unended, None),
                None => (*at, unended, Some(describe(end).1)),
            });
        let poisoned = poisoned.iter().map(|job| {
            (
                job.at,
                DeliveryStatus::Poisoned,
                Some(job.verdict.error.clone()),
            )
        });
        for (at, ending, error) in ended.chain(poisoned) {
            if let Some(job) = jobs.get_mut(at) {
                *job = Some((ending, error));
            }
        }
        let jobs = jobs
            .into_iter()
            .map(|job| job.unwrap_or_else(|| (unended, not_started())))
            .enumerate();
        let mut jobs: Vec<_> = jobs.collect();
        jobs.sort_by_key(|(_, (ending, _))| Reverse(*ending));
        let mut keys = Self {
            table,
            all: batch.len(),
            ..Self::default()
        };
        for (at, (ending, error)) in &jobs {
            let Some([pk, rk]) = batch.key(*at) else {
                continue;
            };
            if keys
                .add(KeyOutcome {
                    pk,
                    rk,
                    ending: *ending,
                    error: error.as_deref(),
                })
                .is_none()
            {
                break;
            }
        }
        keys.keys.0.shrink_to_fit();
        keys.errors.0.shrink_to_fit();
        keys.ended.shrink_to_fit();
        keys
    }

    /// Adds a key with its outcome. Returns `None` if the key does not fit.
    pub fn add(
        &mut self,
        KeyOutcome {
            pk,
            rk,
            ending,
            error,
        }: KeyOutcome<'_>,
    ) -> Option<()> {
        let text = pk.len().min(KEY_BYTES)
            + rk.len().min(KEY_BYTES)
            + error.map_or(0, |error| error.len().min(ERROR_BYTES));
        if self.bytes() + text + 3 + size_of::<StoredOutcome>() > BYTES {
            return None;
        }
        let before = self.ended.last().copied();
        let pk = self
            .keys
            .add(pk, KEY_BYTES, before.map(|before| before.pk))?;
        let rk = self.keys.add(rk, KEY_BYTES, None)?;
        let error = error.and_then(|error| {
            self.errors
                .add(error, ERROR_BYTES, before.and_then(|before| before.error))
        });
        self.ended.push(StoredOutcome {
            pk,
            rk,
            ending,
            error,
        });
        Some(())
    }

    fn bytes(&self) -> usize {
        self.keys.0.len() + self.errors.0.len() + self.ended.len() * size_of::<StoredOutcome>()
    }

    pub fn iter(&self) -> impl Iterator<Item = KeyOutcome<'_>> {
        self.ended.iter().map(
            |StoredOutcome {
                 pk,
                 rk,
                 ending,
                 error,
             }| KeyOutcome {
                pk: self.keys.at(*pk),
                rk: self.keys.at(*rk),
                ending: *ending,
                error: error.map(|error| self.errors.at(error)),
            },
        )
    }

    /// Whether a key or the table contains `text`, which must be in lower case.
    pub fn mention(&self, text: &str) -> bool {
        let contains = |part: &str| part.to_lowercase().contains(text);
        self.table
            .as_ref()
            .is_some_and(|table| contains(table.as_str()))
            || contains(&self.keys.0)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;
    use crate::decide::{Attempt, Interruption, PoisonVerdict, RunOutcome, RunResult};
    use crate::poison::Reason;
    use evenkeel_engine::Summary;

    fn batch(rks: &[String]) -> Batch {
        let mut message = json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": rks});
        Batch::of(message.as_object_mut().unwrap())
            .unwrap()
            .unwrap()
    }

    fn ran(outcome: Outcome) -> RunOutcome {
        RunOutcome::Returned(std::sync::Arc::new(RunResult::Finished(outcome)))
    }

    fn done() -> RunOutcome {
        ran(Outcome::Done(Summary::default()))
    }

    fn reported(keys: &KeyOutcomes) -> Vec<(&str, &str, &str)> {
        keys.iter()
            .map(|key| (key.rk, key.ending.name(), key.error.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn each_key_has_its_own_outcome_and_failed_keys_come_first() {
        let rks = ["0", "1", "2", "3", "4"].map(str::to_owned);
        let skipped = ran(Outcome::Skipped {
            reason: "overtaken".to_owned(),
            summary: Summary::default(),
        });
        let ends = [
            done(),
            skipped,
            RunOutcome::Interrupted(Interruption::QueueFull),
            RunOutcome::Panicked("oh".to_owned()),
        ];
        let ends: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(at, end)| JobOutcome { at, end })
            .rev()
            .collect();
        let verdict = PoisonVerdict {
            reason: Reason::Exhausted,
            step: "running".to_owned(),
            error: "given up".to_owned(),
            attempt: Attempt::Counts,
        };
        let keys = KeyOutcomes::of(
            &batch(&rks),
            None,
            &ends,
            &[PoisonedJob { at: 3, verdict }],
            SettleOutcome::Released,
        );
        assert_eq!(
            reported(&keys),
            [
                ("3", "poisoned", "given up"),
                (
                    "2",
                    "retried",
                    "too many jobs already wait for the same key"
                ),
                ("4", "retried", "not started in this delivery"),
                ("1", "skipped", "overtaken"),
                ("0", "done", ""),
            ]
        );
        assert!(keys.iter().all(|key| key.pk == "Sales"));
        assert_eq!(
            keys.keys.0, "Sales\n3\n2\n4\n1\n0\n",
            "a PartitionKey that all keys share must be stored once"
        );
    }

    #[test]
    fn jobs_of_an_unsettled_message_are_lost_unless_they_are_done() {
        let ends = [
            JobOutcome { at: 0, end: done() },
            JobOutcome {
                at: 1,
                end: RunOutcome::LeaseLost,
            },
        ];
        let keys = KeyOutcomes::of(
            &batch(&["0", "1"].map(str::to_owned)),
            None,
            &ends,
            &[],
            SettleOutcome::Lost,
        );
        assert_eq!(reported(&keys)[0].0, "1");
        assert_eq!(
            keys.iter().map(|key| key.ending).collect::<Vec<_>>(),
            [DeliveryStatus::Lost, DeliveryStatus::Done]
        );
        let keys = KeyOutcomes::of(
            &batch(&["0".to_owned()]),
            None,
            &[],
            &[],
            SettleOutcome::Released,
        );
        assert_eq!(
            reported(&keys),
            [("0", "retried", "")],
            "the error of the delivery is not repeated for each key"
        );
    }

    #[test]
    fn keys_that_do_not_fit_are_left_out_and_text_is_found_in_the_others() {
        let all: Vec<String> = (0..1_000).map(|rk| format!("Key{rk:06}")).collect();
        let ends: Vec<_> = (0..1_000)
            .map(|at| JobOutcome { at, end: done() })
            .collect();
        let keys = KeyOutcomes::of(
            &batch(&all),
            Some(TableName::new("Staff").unwrap()),
            &ends,
            &[],
            SettleOutcome::Deleted,
        );
        assert!(
            (600..1_000).contains(&keys.iter().count()),
            "{}",
            keys.iter().count()
        );
        assert!(
            keys.keys.0.capacity()
                + keys.errors.0.capacity()
                + keys.ended.capacity() * size_of::<StoredOutcome>()
                <= BYTES
        );
        assert_eq!(
            [
                keys.mention("key000099"),
                keys.mention("staff"),
                keys.mention("key000999")
            ],
            [true, true, false]
        );
        let long: Vec<String> = ["x", "y"].map(|rk| rk.repeat(20_000)).to_vec();
        let failed: Vec<_> = (0..2)
            .map(|at| JobOutcome {
                at,
                end: RunOutcome::Panicked("é".repeat(2_000)),
            })
            .collect();
        let keys = KeyOutcomes::of(&batch(&long), None, &failed, &[], SettleOutcome::Released);
        assert_eq!(
            keys.iter().count(),
            2,
            "a key that is too long for any entity must not displace other keys"
        );
        assert!(
            keys.iter()
                .all(|key| key.rk.len() <= KEY_BYTES && key.error.unwrap().len() <= ERROR_BYTES)
        );
        assert_eq!(
            keys.errors.0.matches('\n').count(),
            1,
            "equal errors must be stored once"
        );
    }
}
