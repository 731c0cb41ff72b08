//! An account within an account: its tables, queues and containers have names with a prefix.
//!
//! A worker inside finds nobody's footprints, rechecks and migrations but its own, although their names are fixed.
//!
//! ```text
//!   worker: EvenkeelFootprints ─▶ namespace: EvenkeelScratch4f0aEvenkeelFootprints ─▶ the account
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use evenkeel_model::names::NameError;
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, EntityKey, Key, QueueName, Row, TableName,
};
use evenkeel_storage::{
    Account, Blob, BlobCopy, BlobPage, BlobProperties, BlobStore, BlobUpload, BlockId, ErrorClass,
    Message, Page, PeekedMessage, Query, QueueStore, Resource, SentMessage, Service, StoreError,
    Subject, TableOperation, TablePage, TableStore, Ttl, UpdatedMessage,
};

/// The beginnings of the names.
#[derive(Debug, Clone)]
pub struct Namespace {
    account: AccountName,
    tables: Arc<str>,
    others: Arc<str>,
}

impl Namespace {
    /// In this account: `tables` begins the names of tables, `others` those of queues and containers.
    pub fn new(account: AccountName, tables: &str, others: &str) -> Self {
        Self {
            account,
            tables: Arc::from(tables),
            others: Arc::from(others),
        }
    }

    /// The account, seen from inside.
    pub fn within(&self, account: &Account) -> Account {
        Account {
            tables: Arc::new(Namespaced {
                inner: account.tables.clone(),
                namespace: self.clone(),
            }),
            queues: Arc::new(Namespaced {
                inner: account.queues.clone(),
                namespace: self.clone(),
            }),
            blobs: Arc::new(Namespaced {
                inner: account.blobs.clone(),
                namespace: self.clone(),
            }),
            clocks: account.clocks.clone(),
        }
    }

    fn table(&self, table: &TableName) -> Result<TableName, StoreError> {
        self.name(
            (&self.tables, table.as_str()),
            Service::Table,
            TableName::new,
        )
    }

    fn queue(&self, queue: &QueueName) -> Result<QueueName, StoreError> {
        self.name(
            (&self.others, queue.as_str()),
            Service::Queue,
            QueueName::new,
        )
    }

    fn container(&self, container: &ContainerName) -> Result<ContainerName, StoreError> {
        self.name(
            (&self.others, container.as_str()),
            Service::Blob,
            ContainerName::new,
        )
    }

    /// The name outside. It may be too long.
    fn name<T>(
        &self,
        (prefix, name): (&str, &str),
        service: Service,
        parse: impl Fn(String) -> Result<T, NameError>,
    ) -> Result<T, StoreError> {
        parse(format!("{prefix}{name}")).map_err(|error| {
            let subject = Subject {
                account: self.account.clone(),
                resource: Resource::Service(service),
            };
            StoreError::new(ErrorClass::Permanent, "Name", subject, error.to_string())
        })
    }
}

/// A port within a namespace.
struct Namespaced<S: ?Sized> {
    inner: Arc<S>,
    namespace: Namespace,
}

#[async_trait]
impl TableStore for Namespaced<dyn TableStore> {
    async fn get(
        &self,
        table: &TableName,
        key: &EntityKey,
        select: Option<&[String]>,
    ) -> Result<Option<Row>, StoreError> {
        self.inner
            .get(&self.namespace.table(table)?, key, select)
            .await
    }

    async fn apply(
        &self,
        table: &TableName,
        operation: &TableOperation,
    ) -> Result<Option<ETag>, StoreError> {
        self.inner
            .apply(&self.namespace.table(table)?, operation)
            .await
    }

    async fn transact(
        &self,
        table: &TableName,
        pk: &Key,
        operations: &[TableOperation],
    ) -> Result<Vec<Option<ETag>>, StoreError> {
        self.inner
            .transact(&self.namespace.table(table)?, pk, operations)
            .await
    }

    async fn query(&self, table: &TableName, query: &Query) -> Result<Page, StoreError> {
        self.inner.query(&self.namespace.table(table)?, query).await
    }

    async fn create_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.inner.create_table(&self.namespace.table(table)?).await
    }

    async fn delete_table(&self, table: &TableName) -> Result<bool, StoreError> {
        self.inner.delete_table(&self.namespace.table(table)?).await
    }

    async fn list_tables(&self, continuation: Option<&str>) -> Result<TablePage, StoreError> {
        let TablePage {
            tables,
            continuation,
        } = self.inner.list_tables(continuation).await?;
        let inside = |table: &TableName| {
            TableName::new(table.as_str().strip_prefix(&*self.namespace.tables)?).ok()
        };
        Ok(TablePage {
            tables: tables.iter().filter_map(inside).collect(),
            continuation,
        })
    }
}

#[async_trait]
impl QueueStore for Namespaced<dyn QueueStore> {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.inner.create_queue(&self.namespace.queue(queue)?).await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.inner.delete_queue(&self.namespace.queue(queue)?).await
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        self.inner
            .put(&self.namespace.queue(queue)?, text, delay, ttl)
            .await
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        self.inner
            .get(&self.namespace.queue(queue)?, max, visibility)
            .await
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        self.inner
            .update(
                &self.namespace.queue(queue)?,
                id,
                pop_receipt,
                text,
                visibility,
            )
            .await
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        self.inner
            .delete(&self.namespace.queue(queue)?, id, pop_receipt)
            .await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        self.inner.peek(&self.namespace.queue(queue)?, max).await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        self.inner
            .approximate_count(&self.namespace.queue(queue)?)
            .await
    }
}

#[async_trait]
impl BlobStore for Namespaced<dyn BlobStore> {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        self.inner
            .create_container(&self.namespace.container(container)?)
            .await
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        self.inner
            .delete_container(&self.namespace.container(container)?)
            .await
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        self.inner
            .put(&self.namespace.container(container)?, name, content, upload)
            .await
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        self.inner
            .get(&self.namespace.container(container)?, name, range)
            .await
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        self.inner
            .get_at(&self.namespace.container(container)?, name, range, etag)
            .await
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        self.inner
            .properties(&self.namespace.container(container)?, name)
            .await
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        self.inner
            .delete(&self.namespace.container(container)?, name, if_match)
            .await
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        self.inner
            .create_append(&self.namespace.container(container)?, name, upload)
            .await
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        self.inner
            .append(
                &self.namespace.container(container)?,
                name,
                content,
                position,
            )
            .await
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        self.inner
            .put_block(&self.namespace.container(container)?, name, block, content)
            .await
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        self.inner
            .put_block_list(&self.namespace.container(container)?, name, blocks, upload)
            .await
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        self.inner
            .set_metadata(
                &self.namespace.container(container)?,
                name,
                metadata,
                if_match,
            )
            .await
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        let (source, target) = (
            self.namespace.container(from.0)?,
            self.namespace.container(to.0)?,
        );
        self.inner
            .copy((&source, from.1), (&target, to.1), copying)
            .await
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        self.inner
            .list(&self.namespace.container(container)?, prefix, marker)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_storage::all_tables;
    use evenkeel_storage::system::SystemClock;

    #[tokio::test]
    async fn what_is_created_inside_is_seen_outside_under_the_prefix_and_nothing_else_is_seen_inside()
     {
        let outside = SimWorld::new(
            AccountName::main(),
            Arc::new(SystemClock::new()),
            Arc::new(NoFaults),
        )
        .account();
        let inside = Namespace::new(AccountName::main(), "Scratch1", "scratch-1-").within(&outside);
        let [employees, footprints, own] = [
            "Employees",
            "EvenkeelFootprints",
            "Scratch1EvenkeelFootprints",
        ]
        .map(|name| TableName::new(name).unwrap());
        outside.tables.create_table(&employees).await.unwrap();
        inside.tables.create_table(&footprints).await.unwrap();
        assert_eq!(
            all_tables(inside.tables.as_ref()).await.unwrap(),
            [footprints].into()
        );
        assert_eq!(
            all_tables(outside.tables.as_ref()).await.unwrap(),
            [employees, own].into()
        );
        let queue = QueueName::new("a".repeat(60)).unwrap();
        let error = inside.queues.create_queue(&queue).await.unwrap_err();
        assert!(
            error.class == ErrorClass::Permanent && error.to_string().contains("queue"),
            "{error}"
        );
    }
}
