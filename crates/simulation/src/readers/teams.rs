//! Readers that ask whether a team is settled. If it is, every employee in the team's range must have the team's name,
//! and no employee may have a former name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{MOST, PART, request_failed};
use crate::fault_plan::Draw;
use crate::history::{SOURCE, is_primary};
use crate::patterns::{PatternsShape, TEAM};
use crate::shared_state::SharedState;
use crate::sim_accounts::SimulatedAccounts;
use evenkeel_account::company::table;
use evenkeel_client::Client;
use evenkeel_model::{EntityKey, Row};

pub(in super::super) struct TeamReaders {
    pub(super) storm: Duration,
    pub(super) shared_state: Arc<SharedState>,
    pub(super) accounts: SimulatedAccounts,
    pub(super) client: Client,
    pub(super) shape: PatternsShape,
}

impl TeamReaders {
    pub(super) async fn ask(&self, over: &CancellationToken) {
        if !self.shape.has_ranges() {
            return;
        }
        let rng = self.shared_state.rng(PART + 5);
        let draw = Draw(&rng);
        let pace = self.storm * 2 / MOST;
        // Deleted teams stay in this set. A deleted team is settled when no employee has its name.
        let mut known = BTreeSet::new();
        for _ in 0..MOST {
            if over
                .run_until_cancelled(sleep(draw.moment(pace)))
                .await
                .is_none()
            {
                return;
            }
            known.extend(self.teams().map(|row| row.entity.key));
            let teams: Vec<&EntityKey> = known.iter().collect();
            if teams.is_empty() {
                continue;
            }
            if let Err(wrong) = self.settled(draw.of::<&EntityKey>(&teams)).await {
                self.shared_state.violated(wrong);
                return;
            }
        }
    }

    fn teams(&self) -> impl Iterator<Item = Row> {
        self.accounts
            .rows(self.shape.teams())
            .into_iter()
            .filter(|row| row.entity.key.rk.as_str() == TEAM)
    }

    async fn settled(&self, key: &EntityKey) -> Result<(), String> {
        let team = || self.teams().find(|row| row.entity.key == *key);
        let before = team();
        let told = self
            .client
            .settled(&table(self.shape.teams()), key, None)
            .await
            .map_err(|error| request_failed(&error))?;
        let now = team();
        if !told.in_step || before.map(|row| row.etag) != now.as_ref().map(|row| row.etag.clone()) {
            return Ok(());
        }
        let employees = self.accounts.rows(SOURCE).into_iter();
        let others = employees.filter(|row| {
            row.entity.key.pk == key.pk && row.entity.key != *key && is_primary(&row.entity.key)
        });
        for row in others.filter(|row| row.entity.text("ek_view").is_none()) {
            let name = now
                .as_ref()
                .filter(|team| self.shape.means(&team.entity, &row.entity.key));
            let name = name.and_then(|team| team.entity.text("Name"));
            // An employee whom a client or a job has just written has no team name until the employee's own job sets
            // it.
            let is_told = row.entity.text("ek_owner_team_name").is_some();
            if is_told && row.entity.text("Team") != name && self.is_settled(&row).await? {
                return Err(format!(
                    "a reader was told that team {key} is settled ({now:?}), then found an employee with another team name: {row:?}"
                ));
            }
        }
        Ok(())
    }

    /// Whether an employee is settled and unchanged. An employee that has just returned from an archive or from another
    /// key has the old team name until its own job has run.
    async fn is_settled(&self, row: &Row) -> Result<bool, String> {
        let told = self
            .client
            .settled(&table(SOURCE), &row.entity.key, None)
            .await
            .map_err(|error| request_failed(&error))?;
        let is_same = |now: &Row| now.entity.key == row.entity.key && now.etag == row.etag;
        Ok(told.in_step && self.accounts.rows(SOURCE).iter().any(is_same))
    }
}
