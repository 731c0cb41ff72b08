//! Checks that each poison message has a valid reason.

use base64::Engine as _;
use serde_json::Value;

use super::{EntityJob, Expectation, Ledger};
use crate::history::History;
use crate::oracle::escaped;
use evenkeel_account::{REFUSED, ROW_REFUSED};
use evenkeel_engine::Recheck;

/// Parts of error texts about key conflicts that cannot occur in these worlds.
const NEVER_MET: [&str; 2] = ["a row that evenkeel did not write", "list of view"];

pub(crate) struct PoisonReport {
    pub(crate) reason: String,
    pub(crate) error: String,
    pub(crate) message_id: String,
    pub(crate) queue: String,
    pub(crate) body: String,
}

pub(crate) fn poison(text: &str) -> Result<PoisonReport, String> {
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    let field = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
    let needed =
        |name: &str| field(name).ok_or_else(|| format!("poison message without {name}: {json}"));
    Ok(PoisonReport {
        reason: needed("reason")?,
        error: needed("error")?,
        message_id: needed("message_id")?,
        queue: needed("queue")?,
        body: field("body").unwrap_or_default(),
    })
}

impl Ledger {
    /// Records a poison message. An error describes a violation.
    pub(super) fn poisoned(
        &mut self,
        text: &str,
        late: bool,
        history: &History,
    ) -> Result<(), String> {
        let poison = poison(text)?;
        for entry in self.lists.poisoned(&poison.message_id, &poison.body) {
            let id = (poison.queue.clone(), entry);
            let Some(entry) = self.messages.get_mut(&id) else {
                return Err(format!(
                    "an unknown message was poisoned: {}",
                    poison.message_id
                ));
            };
            self.poisoned += u64::from(!entry.poisoned);
            entry.poisoned = true;
            self.is_deserved(&id, &poison, late, history)?;
        }
        Ok(())
    }

    fn is_deserved(
        &self,
        id: &(String, String),
        poison: &PoisonReport,
        late: bool,
        history: &History,
    ) -> Result<(), String> {
        let max = usize::try_from(self.max_dequeue_count).unwrap_or(usize::MAX);
        let Some(entry) = self.messages.get(id) else {
            return Ok(());
        };
        let first = entry.deliveries.first().map_or(0, |delivery| delivery.tick);
        let deserved = match (poison.reason.as_str(), &entry.expectation) {
            ("exhausted", expectation) => {
                *expectation != Expectation::Poison("undecodable") && entry.is_exhausted(max, late)
            }
            ("expired", _) => entry.can_expire(),
            (reason, Expectation::Poison(expected)) => reason == *expected,
            // A store has permanently refused a request of the job.
            ("permanent", _) if poison.error.contains(REFUSED) => true,
            ("permanent", expectation) if poison.error.contains(ROW_REFUSED) => {
                self.is_refused(expectation, &poison.body, history)
            }
            // An earlier delivery has deleted a staged blob. It deleted the blob after it had written the content, or
            // because the condition of the put did not hold.
            (
                "permanent",
                Expectation::Job(EntityJob {
                    op: "put",
                    staged,
                    guard,
                    ..
                }),
            ) if poison.error.contains("Stage it under a unique name") => {
                self.took_what_was_staged(staged, history)
                    || (guard.is_some() && self.deleted_what_was_staged(staged, history))
            }
            (
                "permanent",
                Expectation::Job(EntityJob {
                    op: "move",
                    to: Some(to),
                    ..
                }),
            ) if poison.error.contains("was not moved there by this job") => {
                history.source_present_since(to, first)
            }
            // The entity has large values, and the destination table does not support them.
            ("permanent", Expectation::Job(EntityJob { op: "move", .. }))
                if poison.error.contains("no large_entity view has the table") =>
            {
                leaves_its_table(&poison.body)
            }
            (
                "permanent",
                Expectation::Job(EntityJob {
                    op: "restore", key, ..
                }),
            ) if poison.error.contains("was not restored by this job") => {
                history.source_present_since(key, first)
            }
            ("permanent", Expectation::Job(EntityJob { key, .. })) => {
                poison.error.contains("is taken by ") && history.contested(key)
            }
            ("permanent", Expectation::Recheck) => poison.error.contains("is taken by "),
            _ => false,
        };
        if deserved && !NEVER_MET.iter().any(|holder| poison.error.contains(holder)) {
            return Ok(());
        }
        let deliveries = &entry.deliveries;
        Err(format!(
            "message {} was poisoned as {} without a valid reason: {}; deliveries {deliveries:?}",
            poison.message_id, poison.reason, poison.error
        ))
    }

    /// Whether the refused row belongs to the primary of the message, or to another primary that wanted the same key.
    fn is_refused(&self, expectation: &Expectation, body: &str, history: &History) -> bool {
        let primary = match expectation {
            Expectation::Job(asked) => Some(asked.key.clone()),
            Expectation::Recheck => Recheck::decode(body)
                .ok()
                .map(|recheck| recheck.primary.key),
            Expectation::Batch(_) | Expectation::Whole(_) | Expectation::Poison(_) => None,
        };
        let (Some(key), Some(refused)) = (primary, &self.refused) else {
            return false;
        };
        let copy = escaped(&format!("{}_{}", refused.pk, refused.rk));
        // A job may record its employee as a contender for a key before the history shows that the employee wants the
        // key.
        let rival =
            matches!(expectation, Expectation::Job(asked) if history.writes_rival(asked, refused));
        key == *refused || key.rk.as_str() == copy || history.contested(&key) || rival
    }
}

fn leaves_its_table(body: &str) -> bool {
    let job: Value = serde_json::from_str(body).unwrap_or_default();
    job.get("to_table")
        .is_some_and(|to| Some(to) != job.get("table"))
}
