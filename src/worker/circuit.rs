//! The circuit: while a store as a whole refuses, nothing is received, and it is asked now and then.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::decide::Stores;
use super::poll::jitter;
use crate::ports::{Chance, OpenCircuit, StoreHealth};

/// How often the stores' health is looked at while all is well. The look asks nobody.
const LOOK: Duration = Duration::from_secs(1);
/// First wait before a probe.
const PROBE_MIN: Duration = Duration::from_secs(1);
/// Longest wait between probes.
const PROBE_MAX: Duration = Duration::from_secs(30);

/// What this worker knows of open circuits.
pub(crate) struct Circuit {
    health: Arc<dyn StoreHealth>,
    open: watch::Sender<Vec<OpenCircuit>>,
}

impl Circuit {
    pub(crate) fn new(health: Arc<dyn StoreHealth>) -> Self {
        Self { health, open: watch::Sender::new(Vec::new()) }
    }

    /// Looks, and tells those who wait.
    pub(crate) fn look(&self) -> Stores {
        let now = self.health.open_circuits();
        let stores = if now.is_empty() { Stores::Answer } else { Stores::Refuse };
        self.open.send_if_modified(|open| {
            let changed = *open != now;
            *open = now;
            changed
        });
        stores
    }

    /// Waits until no circuit is open.
    pub(crate) async fn closed(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        drop(self.open.subscribe().wait_for(Vec::is_empty).await);
    }

    /// Waits until an open circuit closes; for ever where none is open.
    pub(crate) async fn closes(&self) {
        let mut open = self.open.subscribe();
        if open.borrow_and_update().is_empty() {
            pending::<()>().await;
        }
        drop(open.wait_for(Vec::is_empty).await);
    }

    /// Watches over the circuits, for ever.
    pub(crate) async fn watch(&self, chance: &dyn Chance) {
        let mut opened = self.open.subscribe();
        loop {
            tokio::select! {
                biased;
                open = opened.wait_for(|open| !open.is_empty()) => drop(open),
                () = sleep(LOOK) => {}
            }
            if self.look() == Stores::Answer {
                continue;
            }
            tracing::info!(circuits = self.open.borrow().len(), "a store refuses as a whole: nothing is received until it answers");
            let mut wait = PROBE_MIN;
            while self.look() == Stores::Refuse {
                sleep(jitter(wait, chance.unit())).await;
                self.health.probe().await;
                wait = (wait * 2).min(PROBE_MAX);
            }
            tracing::info!("the stores answer again: receiving goes on");
        }
    }
}
