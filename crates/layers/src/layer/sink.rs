//! Implements the sink port with a layer around it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use async_trait::async_trait;

use super::request::error_of;
use super::{Layer, Layered, Op, Request, Target};
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{DocumentWrite, Fields, Sink, SinkBatching, StoreError, WriteResults};

#[async_trait]
impl<L: Layer> Sink for Layered<dyn Sink, L> {
    fn is_readable(&self) -> bool {
        self.inner.is_readable()
    }

    fn batching(&self) -> SinkBatching {
        self.inner.batching()
    }

    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        let failed = OnceLock::new();
        let request = Request::of_entities(
            Op::WriteDocuments,
            Target::Collection(collection),
            writes.len(),
        )
        .failing(&failed);
        let written = || async {
            let written = self.inner.write(collection, writes).await;
            if let Some(error) = written.as_ref().ok().and_then(error_of) {
                failed.get_or_init(|| error.clone());
            }
            written
        };
        self.layer.call(request, written).await
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        if !self.inner.is_readable() {
            return self.inner.get(collection, key).await;
        }
        let request = Request::of_entities(Op::GetDocument, Target::Document(collection, key), 1);
        self.layer
            .call(request, || self.inner.get(collection, key))
            .await
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        if !self.inner.is_readable() {
            return self.inner.fields(collection).await;
        }
        self.layer
            .call(
                Request::new(Op::GetFields, Target::Collection(collection)),
                || self.inner.fields(collection),
            )
            .await
    }

    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let request = Request::new(Op::DefineCollection, Target::Collection(collection));
        self.layer
            .call(request, || self.inner.define(collection, fields))
            .await
    }
}
