//! While an account refuses all requests, nothing is received from its queues, and the account is
//! probed from time to time. Jobs from the queues of other accounts continue. If such a job needs
//! the refusing account, it is retried later.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::decide::Health;
use super::ordered_watch::OrderedWatch;
use evenkeel_model::AccountName;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{OpenCircuit, Rng, StoreHealth};

/// Interval between two checks of the stores' health while all of them answer. A check sends no
/// request.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
const PROBES: WaitPolicy = WaitPolicy::doubling(Duration::from_secs(1), Duration::from_secs(30));

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

    /// Reads the health of the stores and wakes waiting tasks if it has changed.
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

    pub(crate) fn is_open(&self, account: &AccountName) -> bool {
        self.refresh() == Health::Refusing && !self.open.read(is_closed(account))
    }

    pub(crate) async fn wait_closed(&self, account: &AccountName) {
        self.open.wait_until(is_closed(account)).await;
    }

    /// Waits until all circuit breakers are closed, so that a retry can be sent early. Never
    /// returns if no circuit breaker is open at the beginning. The caller's pause then has its full
    /// length.
    pub(crate) async fn wait_all_closed(&self) {
        if self.open.read(Vec::is_empty) {
            pending::<()>().await;
        }
        self.open.wait_until(Vec::is_empty).await;
    }

    /// Probes open circuit breakers; never returns.
    pub(crate) async fn watch(&self, rng: &dyn Rng) {
        loop {
            tokio::select! {
                biased;
                () = self.open.wait_until(|open| !open.is_empty()) => {}
                () = sleep(CHECK_INTERVAL) => {}
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
                "stopped receiving from the queues of account {}: a circuit breaker is open; probing until its service answers",
                accounts
                    .iter()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            let mut waits = PROBES.waits(|| rng.unit());
            while self.refresh() == Health::Refusing {
                sleep(waits.next_wait()).await;
                self.health.probe().await;
            }
            tracing::info!("resumed receiving: all services answer again");
        }
    }
}

fn is_closed(account: &AccountName) -> impl Fn(&Vec<OpenCircuit>) -> bool {
    move |open| open.iter().all(|circuit| circuit.account != *account)
}
