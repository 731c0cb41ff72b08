//! Simulated documents of a sink. They have no versions, so the last write to arrive wins.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use super::witness::ObservedChange;
use super::world::{AccountState, SimWorld};
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{
    DocumentWrite, ErrorClass, Fields, Missing, Resource, Sink, SinkBatching, StoreError,
    WriteResults,
};

#[derive(Default)]
pub(super) struct Collections(BTreeMap<CollectionName, Collection>);

#[derive(Default)]
struct Collection {
    fields: BTreeSet<String>,
    documents: BTreeMap<DocumentKey, SinkDocument>,
}

const WRITE: &str = "Index Documents";
const GET: &str = "Lookup Document";
const DESCRIBE: &str = "Get Index";
const DEFINE: &str = "Define Collection";
/// The key field.
const KEY: &str = "id";
const ABSENT: &str = "the index does not exist";

impl SimWorld {
    /// Creates a collection with these fields.
    pub fn create_collection(&self, collection: &CollectionName, fields: &[&str]) {
        let fields = fields
            .iter()
            .copied()
            .chain([KEY])
            .map(str::to_owned)
            .collect();
        self.inner.lock().collections.0.insert(
            collection.clone(),
            Collection {
                fields,
                documents: BTreeMap::new(),
            },
        );
    }

    /// All documents of a collection, for assertions. It is not an operation of the store.
    #[must_use]
    pub fn documents(&self, collection: &CollectionName) -> BTreeMap<DocumentKey, SinkDocument> {
        self.inner
            .lock()
            .collections
            .0
            .get(collection)
            .map(|collection| collection.documents.clone())
            .unwrap_or_default()
    }
}

impl Collection {
    fn write(&mut self, write: &DocumentWrite) -> Result<(), &'static str> {
        match &write.document {
            None => drop(self.documents.remove(&write.key)),
            Some(document) if document.0.keys().all(|field| self.fields.contains(field)) => {
                self.documents.insert(write.key.clone(), document.clone());
            }
            Some(_) => return Err("the index has no such field"),
        }
        Ok(())
    }
}

fn found<'s>(
    state: &'s mut AccountState,
    collection: &CollectionName,
) -> Option<&'s mut Collection> {
    state.collections.0.get_mut(collection)
}

#[async_trait]
impl Sink for SimWorld {
    fn is_readable(&self) -> bool {
        true
    }

    fn batching(&self) -> SinkBatching {
        SinkBatching::Together
    }

    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        let (name, writes) = (collection.clone(), writes.to_vec());
        let written = self.send(
            WRITE,
            Resource::Collection(collection.clone()),
            true,
            move |state, inner| {
                let Some(collection) = found(state, &name) else {
                    return Err(inner.error(
                        ErrorClass::NotFound(Missing::Container),
                        WRITE,
                        Resource::Collection(name.clone()),
                        ABSENT,
                    ));
                };
                let one = |write: &DocumentWrite| {
                    let what = || Resource::Document(name.clone(), write.key.clone());
                    collection.write(write).map_err(|message| {
                        inner.error(ErrorClass::Permanent, WRITE, what(), message)
                    })
                };
                let written: WriteResults = writes.iter().map(one).collect();
                for (DocumentWrite { key, document, .. }, _) in writes
                    .into_iter()
                    .zip(&written)
                    .filter(|(_, written)| written.is_ok())
                {
                    state.record_change(|| ObservedChange::Document {
                        collection: name.clone(),
                        key,
                        document,
                    });
                }
                Ok(written)
            },
        );
        written.await
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        let (name, key) = (collection.clone(), key.clone());
        let read = self.send(
            GET,
            Resource::Document(name.clone(), key.clone()),
            false,
            move |state, inner| match found(state, &name) {
                Some(collection) => Ok(collection.documents.get(&key).cloned()),
                None => Err(inner.error(
                    ErrorClass::NotFound(Missing::Container),
                    GET,
                    Resource::Document(name.clone(), key.clone()),
                    ABSENT,
                )),
            },
        );
        read.await
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        let name = collection.clone();
        let described = self.send(
            DESCRIBE,
            Resource::Collection(name.clone()),
            false,
            move |state, _| {
                Ok(found(state, &name).map(|collection| {
                    collection
                        .fields
                        .iter()
                        .map(|name| (name.clone(), String::new()))
                        .collect()
                }))
            },
        );
        described.await
    }

    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let (name, fields) = (
            collection.clone(),
            fields
                .keys()
                .cloned()
                .chain([KEY.to_owned()])
                .collect::<BTreeSet<_>>(),
        );
        let defined = self.send(
            DEFINE,
            Resource::Collection(name.clone()),
            true,
            move |state, _| {
                state
                    .collections
                    .0
                    .entry(name.clone())
                    .or_default()
                    .fields
                    .extend(fields.clone());
                Ok(())
            },
        );
        defined.await
    }
}
