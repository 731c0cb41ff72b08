//! Sinks with retries.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::Retry;
use super::rules::Unanswered;
use crate::adapters::layer::Op;
use crate::model::{CollectionName, DocumentKey, SinkDocument};
use crate::ports::{DocumentWrite, Sink, StoreError, Written};

#[async_trait]
impl Sink for Retry<dyn Sink> {
    async fn write(&self, collection: &CollectionName, writes: &[DocumentWrite]) -> Result<Written, StoreError> {
        let rule = Unanswered::of(Op::WriteDocuments);
        self.attempts(Op::WriteDocuments, rule, || self.inner.write(collection, writes)).await.result
    }

    async fn get(&self, collection: &CollectionName, key: &DocumentKey) -> Result<Option<SinkDocument>, StoreError> {
        let rule = Unanswered::of(Op::GetDocument);
        self.attempts(Op::GetDocument, rule, || self.inner.get(collection, key)).await.result
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<BTreeSet<String>>, StoreError> {
        let rule = Unanswered::of(Op::GetFields);
        self.attempts(Op::GetFields, rule, || self.inner.fields(collection)).await.result
    }
}
