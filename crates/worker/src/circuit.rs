//! The circuit: while an account refuses as a whole, nothing is received from queues in it, and it is asked now and then. Jobs from other
//! queues go on: those that need the account are put off.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::decide::Health;
use super::ordered_watch::OrderedWatch;
use evenkeel_model::AccountName;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{Chance, OpenCircuit, StoreHealth};

/// Interval between checks of the stores' health while all is well. A check sends no request.
const LOOK: Duration = Duration::from_secs(1);
/// The waits before probes.
const PROBES: WaitPolicy = WaitPolicy::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// This worker's view of open circuit breakers.
pub(crate) struct OpenCircuits {
    health: Arc<dyn StoreHealth>,
    open: OrderedWatch<Vec<OpenCircuit>>,
}

impl OpenCircuits {
    pub(crate) fn new(health: Arc<dyn StoreHealth>) -> Self {
        Self {
            health,
            open: OrderedWatch::new(Vec::new()),
        }
    }

    /// Checks the health, and wakes waiting tasks.
    pub(crate) fn refresh(&self) -> Health {
        let now = self.health.open_circuits();
        let stores = if now.is_empty() {
            Health::Available
        } else {
            Health::Refusing
        };
        self.open.update(|open| {
            let changed = *open != now;
            *open = now;
            changed
        });
        stores
    }

    /// Whether a circuit of this account is open: queues in it are left alone.
    pub(crate) fn is_open(&self, account: &AccountName) -> bool {
        self.refresh() == Health::Refusing && !self.open.read(is_closed(account))
    }

    /// Waits until no circuit of this account is open.
    pub(crate) async fn wait_closed(&self, account: &AccountName) {
        self.open.wait_until(is_closed(account)).await;
    }

    /// Waits until an open circuit breaker closes; never returns where none is open.
    pub(crate) async fn wait_all_closed(&self) {
        if self.open.read(Vec::is_empty) {
            pending::<()>().await;
        }
        self.open.wait_until(Vec::is_empty).await;
    }

    /// Watches the circuit breakers; never returns.
    pub(crate) async fn watch(&self, chance: &dyn Chance) {
        loop {
            tokio::select! {
                biased;
                () = self.open.wait_until(|open| !open.is_empty()) => {}
                () = sleep(LOOK) => {}
            }
            if self.refresh() == Health::Available {
                continue;
            }
            let accounts = self.open.read(|open| {
                open.iter()
                    .map(|circuit| circuit.account.to_string())
                    .collect::<BTreeSet<_>>()
            });
            tracing::info!(
                ?accounts,
                "a store refuses as a whole: nothing is received from queues in its account until it answers"
            );
            let mut waits = PROBES.waits(|| chance.unit());
            while self.refresh() == Health::Refusing {
                sleep(waits.next_wait()).await;
                self.health.probe().await;
            }
            tracing::info!("the stores answer again: receiving goes on");
        }
    }
}

fn is_closed(account: &AccountName) -> impl Fn(&Vec<OpenCircuit>) -> bool {
    move |open| open.iter().all(|circuit| circuit.account != *account)
}
