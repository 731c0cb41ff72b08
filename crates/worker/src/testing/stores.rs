//! Stores for tests: blobs in memory, tables that refuse access, and circuit breakers that a test
//! controls.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::time::at;
use evenkeel_model::{AccountName, BlobName, ContainerName, ETag, EntityKey, Key, TableName};
use evenkeel_storage::*;

#[derive(Default)]
pub(crate) struct FakeBlobs {
    blobs: Mutex<BTreeMap<String, BTreeMap<String, Bytes>>>,
}

impl FakeBlobs {
    pub(crate) fn names(&self) -> Vec<String> {
        let blobs = self.blobs.lock().unwrap();
        blobs
            .iter()
            .flat_map(|(container, blobs)| {
                blobs.keys().map(move |name| format!("{container}/{name}"))
            })
            .collect()
    }
}

fn etag() -> ETag {
    ETag::new("\"1\"").unwrap()
}

#[async_trait]
impl BlobStore for FakeBlobs {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        Ok(self
            .blobs
            .lock()
            .unwrap()
            .insert(container.to_string(), BTreeMap::new())
            .is_none())
    }
    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        Ok(self
            .blobs
            .lock()
            .unwrap()
            .remove(container.as_str())
            .is_some())
    }
    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        let mut blobs = self.blobs.lock().unwrap();
        let Some(blobs) = blobs.get_mut(container.as_str()) else {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Container(container.clone()),
            };
            return Err(StoreError::new(
                ErrorClass::NotFound(Missing::Container),
                "Put Blob",
                subject,
                "no such container",
            ));
        };
        blobs.insert(name.to_string(), content);
        Ok(etag())
    }
    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        _: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        let blobs = self.blobs.lock().unwrap();
        Ok(blobs
            .get(container.as_str())
            .and_then(|blobs| blobs.get(name.as_str()))
            .map(|content| Blob {
                content: content.clone(),
                properties: BlobProperties {
                    etag: etag(),
                    length: content.len() as u64,
                    content_type: "text/plain".to_owned(),
                    cache_control: None,
                    metadata: BTreeMap::new(),
                },
            }))
    }
    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        _: &ETag,
    ) -> Result<Bytes, StoreError> {
        let blob = self.get(container, name, None).await?.unwrap();
        Ok(blob
            .content
            .slice(usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()))
    }
    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        Ok(self
            .get(container, name, None)
            .await?
            .map(|blob| blob.properties))
    }
    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        _: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        let mut blobs = self.blobs.lock().unwrap();
        Ok(blobs
            .get_mut(container.as_str())
            .is_some_and(|blobs| blobs.remove(name.as_str()).is_some()))
    }
    async fn create_append(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        unreachable!("the worker keeps no logs")
    }
    async fn append(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: Bytes,
        _: u64,
    ) -> Result<ETag, StoreError> {
        unreachable!("the worker keeps no logs")
    }
    async fn put_block(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: BlockId,
        _: Bytes,
    ) -> Result<(), StoreError> {
        unreachable!("the worker writes no blocks")
    }
    async fn put_block_list(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &[BlockId],
        _: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        unreachable!("the worker writes no blocks")
    }
    async fn set_metadata(
        &self,
        _: &ContainerName,
        _: &BlobName,
        _: &BTreeMap<String, String>,
        _: &ETag,
    ) -> Result<ETag, StoreError> {
        unreachable!("the worker keeps no logs")
    }
    async fn copy(
        &self,
        _: (&ContainerName, &BlobName),
        _: (&ContainerName, &BlobName),
        _: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        unreachable!("the worker copies no blobs")
    }
    async fn list(
        &self,
        _: &ContainerName,
        _: &str,
        _: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        unreachable!("the worker lists no blobs")
    }
}

pub(super) struct NoTables;

#[async_trait]
impl TableStore for NoTables {
    async fn get(
        &self,
        _: &TableName,
        _: &EntityKey,
        _: Option<&[String]>,
    ) -> Result<Option<evenkeel_model::Row>, StoreError> {
        unreachable!()
    }
    async fn apply(&self, _: &TableName, _: &TableOperation) -> Result<Option<ETag>, StoreError> {
        unreachable!()
    }
    async fn transact(
        &self,
        _: &TableName,
        _: &Key,
        _: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        unreachable!()
    }
    async fn query(&self, _: &TableName, _: &Query) -> Result<Page, StoreError> {
        unreachable!()
    }
    async fn create_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unreachable!()
    }
    async fn delete_table(&self, _: &TableName) -> Result<bool, StoreError> {
        unreachable!()
    }
    async fn list_tables(&self, _: Option<&str>) -> Result<TablePage, StoreError> {
        unreachable!()
    }
}

/// Circuit breakers that a test opens. The first probe after the chosen time closes them.
#[derive(Default)]
pub(crate) struct FakeHealth {
    open_until: Mutex<Option<Instant>>,
    pub(crate) probes: AtomicU64,
}

impl FakeHealth {
    pub(crate) fn open_for(&self, duration: Duration) {
        *self.open_until.lock().unwrap() = Some(Instant::now() + duration);
    }
}

#[async_trait]
impl StoreHealth for FakeHealth {
    fn open_circuits(&self) -> Vec<OpenCircuit> {
        let open = self.open_until.lock().unwrap().is_some();
        open.then(|| OpenCircuit {
            account: AccountName::main(),
            service: Service::Queue,
            since: at(Duration::ZERO),
            reason: "503".to_owned(),
        })
        .into_iter()
        .collect()
    }
    async fn probe(&self) {
        self.probes.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open_until.lock().unwrap();
        if open.is_some_and(|until| Instant::now() >= until) {
            *open = None;
        }
    }
}
