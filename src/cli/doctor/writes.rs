//! Checks that writes are allowed, in a temporary table, queue and container.

use std::time::Duration;

use bytes::Bytes;
use uuid::Uuid;

use super::super::DirectAccess;
use super::diagnosis::{self, Diagnosis};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, Entity, EntityKey, QueueName, TableName,
};
use evenkeel_storage::{
    Account, BlobUpload, ErrorClass, IfMatch, MessageText, StoreError, TableOperation, Ttl,
};

pub(super) async fn account(
    name: &AccountName,
    direct: &DirectAccess,
) -> anyhow::Result<Vec<Diagnosis>> {
    let account = direct.stores.account(name)?;
    let scratch = Uuid::new_v4().simple().to_string();
    let table = TableName::new(format!("EvenkeelScratch{scratch}"))?;
    let (queue, container) = (
        QueueName::new(format!("evenkeel-scratch-{scratch}"))?,
        ContainerName::new(format!("evenkeel-scratch-{scratch}"))?,
    );
    let (key, blob) = (EntityKey::new("p", "r")?, BlobName::new("b")?);
    let tried = [
        (
            "tables",
            tables(account, &table, key).await,
            account.tables.delete_table(&table).await,
        ),
        (
            "queues",
            queues(account, &queue).await,
            account.queues.delete_queue(&queue).await,
        ),
        (
            "blobs",
            blobs(account, &container, &blob).await,
            account.blobs.delete_container(&container).await,
        ),
    ];
    let mut findings = Vec::new();
    for (service, written, deleted) in tried {
        match written.and(deleted) {
            Ok(_) => findings.push(Diagnosis::ok(
                "writes",
                name,
                format!("{service}: create, write, read and delete are allowed"),
            )),
            Err(error) => findings.push(Diagnosis {
                check: "writes",
                ..diagnosis::failed(&error)
            }),
        }
    }
    Ok(findings)
}

async fn tables(account: &Account, table: &TableName, key: EntityKey) -> Result<(), StoreError> {
    account.tables.create_table(table).await?;
    account
        .tables
        .apply(table, &TableOperation::Insert(Entity::new(key.clone())))
        .await?;
    account.tables.get(table, &key, None).await?;
    account
        .tables
        .apply(
            table,
            &TableOperation::Merge(Entity::new(key.clone()), IfMatch::Any),
        )
        .await?;
    account
        .tables
        .apply(table, &TableOperation::Delete(key, IfMatch::Any))
        .await
        .map(drop)
}

async fn queues(account: &Account, queue: &QueueName) -> Result<(), StoreError> {
    account.queues.create_queue(queue).await?;
    account
        .queues
        .put(
            queue,
            "evenkeel",
            Duration::ZERO,
            Ttl::After(Duration::from_mins(10)),
        )
        .await?;
    for message in account
        .queues
        .get(queue, 1, Duration::from_secs(30))
        .await?
    {
        let MessageText::Readable(text) = &message.text else {
            continue;
        };
        let updated = account
            .queues
            .update(
                queue,
                &message.id,
                &message.pop_receipt,
                text,
                Duration::ZERO,
            )
            .await?;
        match account
            .queues
            .delete(queue, &message.id, &updated.pop_receipt)
            .await
        {
            // The update makes the message visible. If another receiver gets it before this
            // deletion, the lease is lost, which is no error.
            Err(error) if error.class != ErrorClass::LeaseLost => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

async fn blobs(
    account: &Account,
    container: &ContainerName,
    blob: &BlobName,
) -> Result<(), StoreError> {
    account.blobs.create_container(container).await?;
    account
        .blobs
        .put(
            container,
            blob,
            Bytes::from_static(b"evenkeel"),
            &BlobUpload::default(),
        )
        .await?;
    account.blobs.get(container, blob, None).await?;
    account.blobs.delete(container, blob, None).await.map(drop)
}
