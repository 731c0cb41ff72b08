//! Sinks with retries.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::Retry;
use crate::layer::Op;
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{DocumentWrite, Fields, Sink, SinkBatching, StoreError, WriteResults};

#[async_trait]
impl Sink for Retry<dyn Sink> {
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
        self.request(Op::WriteDocuments, || self.inner.write(collection, writes))
            .await
            .result
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        self.request(Op::GetDocument, || self.inner.get(collection, key))
            .await
            .result
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        self.request(Op::GetFields, || self.inner.fields(collection))
            .await
            .result
    }

    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        self.request(Op::DefineCollection, || {
            self.inner.define(collection, fields)
        })
        .await
        .result
    }
}
