//! Reading one's own writes: whether everything derived from a primary is in step with a version of it.
//!
//! The footprint of a primary names the version at which its items were last all in step. So the answer is one point read where that is the
//! version that was asked for; where another one is named, the primary tells whether that is the present one.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{Client, ClientError};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::settings::WaitPolicy;
use evenkeel_model::settled::{FINGERPRINT, SETTLED, Settled, footprint_key};
use evenkeel_model::{ETag, EntityKey, TableName};

/// The waits between two looks.
const LOOKS: WaitPolicy = WaitPolicy::doubling(Duration::from_millis(50), Duration::from_secs(1));

/// Whether what is derived from a primary is in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InStep {
    /// Every item is as the version that was asked for says, or a later one.
    pub in_step: bool,
    /// Neither the primary nor a footprint of it exists: it never was there, or its tombstone is gone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// What the primary says is still on its way to the entities of a range.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub carrying: bool,
    /// Storage requests that it took to know.
    pub requests: u64,
}

impl InStep {
    const fn yes(requests: u64) -> Self {
        Self {
            in_step: true,
            missing: false,
            carrying: false,
            requests,
        }
    }
}

impl Client {
    /// Whether every copy, list and value that the catalog derives from a primary is in step with its version at this ETag, or with a later
    /// one; of the present version where no ETag is given. A primary that is gone is in step when everything derived from it is gone. What it
    /// says to a range of entities is derived from it too, with the items of these: in step when the last of them has it.
    ///
    /// One request where the version at this ETag is the one that was last brought in step, else two. Entities that are derived from
    /// derived ones have footprints of their own.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] for a table that the catalog does not know; [`ClientError::Store`] where a store does not answer.
    pub async fn settled(
        &self,
        table: &TableName,
        key: &EntityKey,
        etag: Option<&ETag>,
    ) -> Result<InStep, ClientError> {
        let source = self.table(table)?;
        if !self.catalog.has_views(source) {
            return Ok(InStep::yes(0));
        }
        let views = self.catalog.fingerprint(source);
        let found = self.last_settled(source, key).await?;
        let (has_footprint, (found, carrying)) = (found.is_some(), found.unwrap_or_default());
        if carrying && !planted(Bug::WaitTrustsAnOldFootprint) {
            return Ok(InStep {
                in_step: false,
                carrying,
                ..InStep::yes(1)
            });
        }
        if etag.is_some_and(|etag| found.is_at(etag, &views))
            || (planted(Bug::WaitTrustsAnOldFootprint) && found.version().is_some())
        {
            return Ok(InStep::yes(1));
        }
        // The primary after its footprint: a version that was in step before it was found to be the present one.
        let tables = &self.account(&source.account)?.tables;
        let only_keys = ["PartitionKey".to_owned()];
        let present = tables.get(&source.table, key, Some(&only_keys)).await;
        let present = present.map_err(ClientError::store(format!("reading {source}{key}")))?;
        let (in_step, missing) = match present {
            Some(row) => (found.is_at(&row.etag, &views), false),
            None => (found == Settled::Absent, !has_footprint),
        };
        Ok(InStep {
            in_step,
            missing,
            ..InStep::yes(2)
        })
    }

    /// Waits until [`settled`](Self::settled) says yes, and looks again after 50 ms, then twice as long each time, up to a second. Whether it
    /// did within this time.
    pub async fn wait_for(
        &self,
        table: &TableName,
        key: &EntityKey,
        etag: Option<&ETag>,
        within: Duration,
    ) -> Result<InStep, ClientError> {
        // No deadline where the clock does not reach so far.
        let until = Instant::now().checked_add(within);
        let mut waits = LOOKS.waits(|| 0.5);
        let mut requests = 0;
        loop {
            let now = self.settled(table, key, etag).await?;
            requests += now.requests;
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if now.in_step || left.is_zero() {
                return Ok(InStep { requests, ..now });
            }
            sleep(waits.next_wait().min(left)).await;
        }
    }

    /// The footprint's state, and whether a range is still to be told; nothing where there is no footprint.
    async fn last_settled(
        &self,
        source: &TableRef,
        key: &EntityKey,
    ) -> Result<Option<(Settled, bool)>, ClientError> {
        let primary = Primary {
            table: source.table.clone(),
            key: key.clone(),
        };
        let (table, at) = (
            self.catalog.footprint_table(source),
            footprint_key(&primary),
        );
        let tables = &self.account(&source.account)?.tables;
        let footprint = tables
            .get(
                &table,
                &at,
                Some(&[SETTLED.to_owned(), FINGERPRINT.to_owned()]),
            )
            .await;
        let footprint = footprint.map_err(ClientError::store(format!(
            "reading the footprint of {source}{key}"
        )))?;
        let settled = footprint.map(|row| Settled::read(&row.entity)).transpose();
        settled.map_err(|text| {
            ClientError::Broken(format!(
                "the footprint of {source}{key} is not as evenkeel writes it: Settled is {text:?}"
            ))
        })
    }
}
