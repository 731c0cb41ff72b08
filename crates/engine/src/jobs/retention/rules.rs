//! Rules: jobs with a condition that are queued at intervals, each [by one of the
//! workers](crate::jobs::retention::turns). A job that is queued twice only costs another scan.

use crate::jobs::retention::keeper::{Keeper, KeeperError};
use crate::jobs::retention::turns::{QueuedTurn, TimedJob, TurnTime};
use evenkeel_model::catalog::Rule;
use evenkeel_model::job::Operation as _;
use evenkeel_model::settings::WaitPolicy;

/// Partition of the rows that record when each rule was sent.
const RULES: &str = "rule";

impl Keeper<'_> {
    /// Queues the job of every rule that is due. If one rule fails, the others are still handled, and the first failure
    /// is returned.
    pub async fn send_due_rules(&self) -> Result<(), KeeperError> {
        let mut first = Ok(());
        for rule in self.catalog.rules.values() {
            let ended = self.send_rule(rule, TurnTime::Due).await.map(drop);
            first = first.and(ended);
        }
        first
    }

    /// Queues the job of a rule, if the rule is due and no other worker was faster.
    pub async fn send_rule(
        &self,
        rule: &Rule,
        time: TurnTime,
    ) -> Result<Option<QueuedTurn>, KeeperError> {
        let (job, op) = (timed(rule), rule.sweep.action.op());
        let found = self.timetable.row(&job).await?;
        let Some(due) = self.timetable.due(&job, found, time) else {
            return Ok(None);
        };
        let tables = self.catalog.tables_of(rule.sweep.subject());
        let (account, queue) = self
            .timetable
            .carrier(op, &tables)
            .ok_or_else(|| KeeperError::NoCarrier(rule.name.clone(), op))?;
        let sent = self.timetable.send(&job, due, account, queue).await?;
        if let Some(QueuedTurn { queue, .. }) = &sent {
            tracing::info!(rule = %rule.name, %queue, op, "queued the {op} job of rule {}", rule.name);
        }
        Ok(sent)
    }
}

fn timed(rule: &Rule) -> TimedJob<'_> {
    TimedJob {
        kind: RULES,
        name: rule.name.as_str(),
        subject: format!("[rules.{}]", rule.name),
        message: rule.sweep.message(),
        waits: WaitPolicy {
            initial: rule.every,
            factor: 1,
            max: rule.every,
            jitter: 0.0,
        },
    }
}
