//! Readers of entities that are being moved. They read the old key, then the new key, and then the old key again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{AT_ONCE, MOST, PART, request_failed};
use crate::content::{self, Content};
use crate::fault_plan::Draw;
use crate::history::SOURCE;
use crate::shared_state::SharedState;
use evenkeel_account::company::table_ref;
use evenkeel_client::Client;
use evenkeel_model::EntityKey;

pub(in super::super) struct MoveReaders {
    pub(super) storm: Duration,
    pub(super) shared_state: Arc<SharedState>,
    pub(super) client: Client,
}

impl MoveReaders {
    pub(super) async fn read(&self, over: &CancellationToken) {
        let rng = self.shared_state.rng(PART + 4);
        let draw = Draw(&rng);
        let pace = self.storm * 2 / MOST;
        for _ in 0..MOST {
            let moving = self.shared_state.records().ledger.moving();
            let pause = draw.moment(if moving.is_some() {
                pace.min(AT_ONCE)
            } else {
                pace
            });
            if over.run_until_cancelled(sleep(pause)).await.is_none() {
                return;
            }
            let Some((from, to)) = moving else { continue };
            if let Err(wrong) = self.find(&from, &to).await {
                self.shared_state.violated(wrong);
                return;
            }
        }
    }

    async fn find(&self, from: &EntityKey, to: &EntityKey) -> Result<(), String> {
        let asked = self.shared_state.tick();
        for key in [from, to, from] {
            let found = self
                .client
                .whole(&table_ref(SOURCE), key)
                .await
                .map_err(|error| request_failed(&error))?;
            let Some(found) = found else { continue };
            let says = Content::new(content::own(&found.row.entity.properties).collect());
            if self
                .shared_state
                .records()
                .history
                .had_content_since(SOURCE, key, &says, asked)
            {
                return Ok(());
            }
            return Err(format!(
                "a reader found {key} with content that the entity has not had since the read began: {says:?}"
            ));
        }
        let records = self.shared_state.records();
        if records
            .history
            .may_be_missed_between((from, to), asked, records.tick())
        {
            return Ok(());
        }
        Err(format!(
            "a reader found nothing under {from}, {to} and {from}, although the entity existed all the time"
        ))
    }
}
