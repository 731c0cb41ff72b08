//! Access to the store for the story: the requests that an application and an operator would send.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use serde_json::{Value, json};

use evenkeel_engine::Engine;
use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, Entity, EntityKey, QueueName, Row, TableName, body, large,
};
use evenkeel_storage::wide;
use evenkeel_storage::{
    Account, BlobUpload, Clock, Stores, TableOperation, Ttl, all_blobs, all_tables,
};

/// Interval between checks of the queue.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum wait for the worker. The slowest step takes less than a tenth of this.
const PATIENCE: Duration = Duration::from_secs(30);

/// The demo's store and catalog. A worker runs at the same time.
pub struct DemoStage {
    pub stores: Stores,
    pub catalog: Arc<Catalog>,
    /// Plans reconciles without executing them.
    pub engine: Arc<Engine>,
    pub clock: Arc<dyn Clock>,
    pub queue: QueueName,
}

impl DemoStage {
    pub(super) fn account(&self) -> anyhow::Result<&Account> {
        Ok(self.stores.account(&AccountName::main())?)
    }

    pub(super) async fn send(&self, job: &Value) -> anyhow::Result<()> {
        self.send_text(&body::encode(&job.to_string())).await
    }

    pub(super) async fn send_text(&self, text: &str) -> anyhow::Result<()> {
        self.account()?
            .queues
            .put(&self.queue, text, Duration::ZERO, Ttl::Never)
            .await
            .context("could not put a job on the queue")?;
        Ok(())
    }

    pub(super) async fn sync(&self, key: &EntityKey) -> anyhow::Result<()> {
        self.send(&json!({"op": "sync", "table": "Employees", "pk": key.pk, "rk": key.rk}))
            .await
    }

    pub(super) async fn change(&self, changes: Entity) -> anyhow::Result<()> {
        self.account()?
            .tables
            .apply(&employees()?.table, &TableOperation::InsertOrMerge(changes))
            .await
            .context("could not change an employee")?;
        Ok(())
    }

    /// Waits until the queue is empty, including messages in progress.
    pub(super) async fn settled(&self) -> anyhow::Result<()> {
        let deadline = self.clock.monotonic() + PATIENCE;
        while self
            .account()?
            .queues
            .approximate_count(&self.queue)
            .await?
            > 0
        {
            if self.clock.monotonic() > deadline {
                bail!(
                    "the worker did not empty the queue {} within {} s",
                    self.queue,
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    pub(super) async fn find(
        &self,
        table: &str,
        key: &EntityKey,
    ) -> anyhow::Result<Option<Entity>> {
        let row = self
            .account()?
            .tables
            .get(&TableName::new(table)?, key, None)
            .await?;
        Ok(row.map(|row| row.entity))
    }

    pub(super) async fn whole(
        &self,
        table: &str,
        key: &EntityKey,
    ) -> anyhow::Result<Option<Entity>> {
        let rows = wide::read(
            self.account()?.tables.as_ref(),
            &TableName::new(table)?,
            key,
            false,
        )
        .await?;
        Ok(rows.joined().map(|row| row.entity))
    }

    pub(super) async fn rows(&self, table: &str) -> anyhow::Result<Vec<Row>> {
        let table = TableRef {
            account: AccountName::main(),
            table: TableName::new(table)?,
        };
        crate::cli::verify::scan(&self.stores, &table).await
    }

    pub(super) async fn blobs(&self, container: &str) -> anyhow::Result<Vec<String>> {
        let blobs = all_blobs(
            self.account()?.blobs.as_ref(),
            &ContainerName::new(container)?,
            "",
        )
        .await?;
        Ok(blobs
            .into_iter()
            .map(|blob| blob.name.as_str().to_owned())
            .collect())
    }

    /// Uploads a large value to the staging container, as an application does before it sends the job.
    pub(super) async fn stage(&self, name: &str, content: Vec<u8>) -> anyhow::Result<()> {
        let (container, name) = (ContainerName::new(large::STAGING)?, BlobName::new(name)?);
        let upload = BlobUpload {
            content_type: Some("image/png".to_owned()),
            ..BlobUpload::default()
        };
        self.account()?
            .blobs
            .put(&container, &name, content.into(), &upload)
            .await
            .context("could not upload a blob")?;
        Ok(())
    }

    pub(super) async fn tables(&self) -> anyhow::Result<BTreeSet<TableName>> {
        Ok(all_tables(self.account()?.tables.as_ref()).await?)
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

pub(super) fn employees() -> anyhow::Result<TableRef> {
    Ok(TableRef {
        account: AccountName::main(),
        table: TableName::new("Employees")?,
    })
}
