//! Items that are documents of a sink, such as a search index. A sink has no conditional writes: the write that arrives
//! last wins. The footprint is written with conditions, so announcements in the footprint take the place of conditional
//! writes:
//!
//! - Every write is announced, updates included. A pass with an older state of the primary than the last announcement
//!   fails to announce, so it writes nothing.
//! - If an old request may still change a document, the document is written or dropped once more when that request can
//!   no longer arrive (`docs/internals/notes/sinks.md`).
//! - Some sinks store the version of the announcement with the document. Such a sink refuses a write with an older
//!   version, and the run reads the document again.

use async_trait::async_trait;

use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::ItemOperation;
use crate::items::LookContext;
use crate::items::WholeItem;
use crate::items::WriteContext;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::scope::Scope;
use crate::protocol::steps::Write;
use evenkeel_model::patterns::Content;
use evenkeel_model::{AccountName, CollectionName, DocumentKey, ETag, ItemAddress, SinkDocument};
use evenkeel_storage::{DocumentWrite, Sink, StoreError};

pub(super) struct DocumentStore<'a> {
    pub(super) sink: &'a AccountName,
    pub(super) collection: &'a CollectionName,
    pub(super) key: &'a DocumentKey,
}

impl DocumentStore<'_> {
    fn sink<'e>(&self, scope: &Scope<'e>) -> Result<&'e dyn Sink, Failure> {
        let found = scope.env.stores.sink(self.sink);
        found.map_err(|error| {
            permanent(
                format!("finding the sink of documents of {}", scope.primary),
                error,
            )
        })
    }
}

#[async_trait]
impl WholeItem for DocumentStore<'_> {
    const CONDITIONAL: bool = false;

    /// If a write of the document is announced, the sink is not read, because that write may still arrive and change
    /// the content. A run without a delivery (an audit, a dry run) reads the sink nevertheless.
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<ObservedItem>, Failure> {
        let announced = |address: &ItemAddress| {
            from.footprint
                .items
                .get(address)
                .is_some_and(|entry| entry.changing)
        };
        let doubtful = addresses
            .iter()
            .any(|address| announced(address) || from.touched.contains(*address));
        if doubtful && from.scope.delivery.is_some() {
            return Ok(vec![ObservedItem::Indeterminate; addresses.len()]);
        }
        let Self {
            sink,
            collection,
            key,
        } = self;
        let step = || {
            format!(
                "reading document {key} in {collection} of the sink {sink}, derived from {}",
                from.scope.primary
            )
        };
        let found = self
            .sink(from.scope)?
            .get(collection, key)
            .await
            .map_err(|error| storage(step(), error))?;
        Ok(vec![
            found
                .map_or(ObservedItem::Absent, ObservedItem::Content);
            addresses.len()
        ])
    }

    /// Writes the wanted content of a document, or deletes the document. A write returns the hash of the content.
    async fn request(
        &self,
        by: &WriteContext<'_, '_>,
        operation: ItemOperation<'_>,
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let document = match operation {
            ItemOperation::Drop(..) => None,
            ItemOperation::Write(Write {
                content: Content::Document(document),
                ..
            }) => Some(document.clone()),
            ItemOperation::Write(write) => {
                return Err(permanent(
                    format!("writing {}", write.address),
                    "expected a document from its view",
                ));
            }
        };
        let token = document.as_ref().map(SinkDocument::token);
        let (version, deadline) = (
            by.unanswered.version(),
            by.unanswered.deadline(by.scope.env),
        );
        let write = DocumentWrite {
            key: self.key.clone(),
            document,
            version,
            deadline,
        };
        let written = self
            .sink(by.scope)?
            .write(self.collection, std::slice::from_ref(&write))
            .await;
        // The sink returns one result for each write, and one write was sent.
        Ok(written
            .and_then(|written| written.into_iter().next().unwrap_or(Ok(())))
            .map(|()| token))
    }

    /// Always `false`, because `look` has already read the content, and the caller compares it.
    async fn differs(&self, _: &Scope<'_>, _: &Write, _: Option<&ETag>) -> Result<bool, Failure> {
        Ok(false)
    }
}
