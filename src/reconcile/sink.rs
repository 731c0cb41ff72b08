//! Items that are documents of a sink: written, dropped and looked at without versions.
//!
//! A sink keeps the write that arrives last, so the guarantees of conditions elsewhere come from the footprint: every
//! write is announced in it, an update too, and a document that an old request may still change is written or dropped
//! once more when it no longer can (`docs/decisions/0022-sinks.md`). A writer here holds no older state of the primary
//! than the footprint's last announcement: another pass that holds one fails to announce.

use std::time::Duration;

use super::execute::Failure;
use super::failure::{permanent, storage};
use super::footprint::Footprint;
use super::items::Deed;
use super::look::Look;
use super::pass::Pass;
use crate::model::{AccountName, CollectionName, DocumentKey, ETag, ItemAddress};
use crate::patterns::Content;
use crate::ports::{DocumentWrite, Sink, StoreError};

impl<'e> Pass<'e> {
    fn sink(&self, name: &AccountName) -> Result<&'e dyn Sink, Failure> {
        let found = self.engine.stores.sink(name);
        found.map_err(|error| permanent(format!("finding the sink of documents of {}", self.primary), error))
    }

    /// Writes a document with its expected content, or deletes it. A write returns the hash of its content.
    pub(super) async fn request_document(
        &self,
        deed: Deed<'_>,
        (collection, key): (&CollectionName, &DocumentKey),
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let document = match deed {
            Deed::Drop(..) => None,
            Deed::Write(write) => match &write.content {
                Content::Document(document) => Some(document.clone()),
                _ => return Err(permanent(format!("writing {}", write.address), "what its view derives is no document")),
            },
        };
        let token = document.as_ref().map(crate::model::SinkDocument::token);
        let write = DocumentWrite { key: key.clone(), document };
        let written = self.sink(&deed.address().account)?.write(collection, std::slice::from_ref(&write)).await;
        // A sink answers for each write.
        Ok(written.and_then(|written| written.into_iter().next().unwrap_or(Ok(()))).map(|()| token))
    }

    /// Whether a write of this pass to a sink now has arrived, or is lost, before the recheck of its announcement. A
    /// worker that was suspended for long announces again.
    pub(super) fn is_in_time(&self) -> bool {
        let Some((wall, steady)) = self.announced_at else { return false };
        let clock = &self.engine.clock;
        let by_wall = Duration::try_from(clock.now().duration_since(wall)).unwrap_or_default();
        by_wall.max(clock.monotonic().saturating_sub(steady)) < self.engine.may_write_for()
    }

    /// Looks at a document. Under an announced write the content read would prove nothing: it is not asked. (A
    /// comparison asks nevertheless.)
    pub(super) async fn look_at_document(
        &self,
        footprint: &Footprint,
        account: &AccountName,
        (collection, key): (&CollectionName, &DocumentKey),
        addresses: Vec<&ItemAddress>,
    ) -> Result<Vec<(ItemAddress, Look)>, Failure> {
        let announced = |address: &ItemAddress| footprint.items.get(address).is_some_and(|entry| entry.changing);
        let doubtful = addresses.iter().any(|address| announced(address) || self.touched.contains(*address));
        let look = if doubtful && self.delivery.is_some() {
            Look::Unsure
        } else {
            let step = || format!("looking at document {key} in index {collection} of the sink {account}, derived from {}", self.primary);
            let found = self.sink(account)?.get(collection, key).await.map_err(|error| storage(step(), error))?;
            found.map_or(Look::Absent, Look::Says)
        };
        Ok(addresses.into_iter().map(|address| (address.clone(), look.clone())).collect())
    }
}
