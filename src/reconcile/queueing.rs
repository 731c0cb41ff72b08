//! Jobs that jobs queue: where the delivery that they are part of came from.

use std::time::Duration;

use serde_json::json;

use super::engine::Engine;
use super::execute::{Delivery, Failure};
use super::failure::{permanent, storage};
use crate::model::QueueName;
use crate::model::body;
use crate::model::job::Primary;
use crate::ports::Ttl;

impl Engine {
    /// Queues a job, JSON; `what` names its purpose in the failure if it cannot be queued.
    pub(super) async fn queue(&self, job: &str, delivery: &Delivery, what: impl Fn() -> String + Send) -> Result<(), Failure> {
        self.queue_on(&delivery.queue, job, delivery, what).await
    }

    async fn queue_on(&self, queue: &QueueName, job: &str, delivery: &Delivery, what: impl Fn() -> String + Send) -> Result<(), Failure> {
        let account = self.stores.account(&delivery.account);
        let queues = &account.map_err(|error| permanent("finding the account of the queue", error))?.queues;
        let put = queues.put(queue, &body::encode(job), Duration::ZERO, Ttl::Never).await;
        put.map(|_| ()).map_err(|error| storage(what(), error))
    }

    /// Queues a sync of a primary that cannot be brought in step for a reason of its own: it ends in the poison queue and
    /// says why, and holds up no other.
    pub(super) async fn queue_sync(&self, primary: &Primary, delivery: &Delivery) -> Result<(), Failure> {
        let job = json!({"op": "sync", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk, "thorough": true});
        self.queue_on(&delivery.sync_queue, &job.to_string(), delivery, || format!("queueing a sync of {primary}")).await
    }
}
