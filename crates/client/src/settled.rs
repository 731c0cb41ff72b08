//! Determines whether everything derived from a primary is in step with a version of it, so that applications can read
//! what they wrote.
//!
//! The footprint of a primary contains the version at which all its items were last in step. If this is the requested
//! version, one point read is sufficient. Otherwise the primary is read as well, to find out whether the version in the
//! footprint is the present version.

use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::{Client, ClientError};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_model::settled::{FINGERPRINT, SETTLED, Settled, footprint_key};
use evenkeel_model::{ETag, EntityKey, TableName};

/// Delays between two reads of the footprint.
const POLL_DELAYS: WaitPolicy =
    WaitPolicy::doubling(Duration::from_millis(50), Duration::from_secs(1));

/// Whether everything derived from a primary is in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InStep {
    /// Every derived item has the requested version, or a later one.
    pub in_step: bool,
    /// Neither the primary nor its footprint exists. Either the primary never existed, or its tombstone has been
    /// removed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// A range overlay of the primary has not been applied to all entities of its range yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub propagating: bool,
    /// Storage requests sent.
    pub requests: u64,
}

impl InStep {
    const fn yes(requests: u64) -> Self {
        Self {
            in_step: true,
            missing: false,
            propagating: false,
            requests,
        }
    }
}

impl Client {
    /// Returns whether everything that the catalog derives from a primary is in step with the version at this ETag, or with a later
    /// version. If there is no ETag, the present version is checked. A deleted primary is in step when everything derived from it is
    /// deleted. If the primary sets properties on the entities of a range, these entities and their own items count as derived from it.
    ///
    /// An item may be an entity from which other items are derived. These other items are not checked, because that entity has a
    /// footprint of its own.
    ///
    /// This takes at most two requests. One request is enough if the primary was last in step at exactly this ETag.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] for a table that is not in the catalog; [`ClientError::Store`] if a store does not answer.
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
        let (has_footprint, (found, propagating)) = (found.is_some(), found.unwrap_or_default());
        if propagating {
            return Ok(InStep {
                in_step: false,
                propagating,
                ..InStep::yes(1)
            });
        }
        if etag.is_some_and(|etag| found.is_at(etag, &views)) {
            return Ok(InStep::yes(1));
        }
        // The primary must be read after its footprint: otherwise a write between the two reads could make an older
        // version look current.
        let tables = &self.account(&source.account)?.tables;
        let only_keys = ["PartitionKey".to_owned()];
        let present = tables.get(&source.table, key, Some(&only_keys)).await;
        let present =
            present.map_err(ClientError::store(format!("could not read {source}{key}")))?;
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

    /// Calls [`settled`](Self::settled) at once, and then again and again until everything is in step or the time is
    /// over. The first pause is 50 ms. Each further pause is twice as long, but at most one second.
    pub async fn wait_for(
        &self,
        table: &TableName,
        key: &EntityKey,
        etag: Option<&ETag>,
        within: Duration,
    ) -> Result<InStep, ClientError> {
        // If the duration exceeds the range of the clock, there is no deadline.
        let until = Instant::now().checked_add(within);
        let mut waits = POLL_DELAYS.waits(|| 0.5);
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

    /// Returns the version in the footprint, and whether a range overlay still has to be applied; `None` if there is no
    /// footprint.
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
            "could not read the footprint of {source}{key}"
        )))?;
        let settled = footprint.map(|row| Settled::read(&row.entity)).transpose();
        settled.map_err(|text| {
            ClientError::Broken(format!(
                "invalid footprint of {source}{key}: Settled is {text:?}"
            ))
        })
    }
}
