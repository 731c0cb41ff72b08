//! The circuit: while an account refuses as a whole, nothing is received from queues in it, and it is asked now and then. Jobs from other
//! queues go on: those that need the account are put off.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::decide::Health;
use super::shown::Shown;
use evenkeel_model::AccountName;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{OpenCircuit, Rng, StoreHealth};

/// Interval between checks of the stores' health while all is well. A check sends no request.
const LOOK: Duration = Duration::from_secs(1);
/// The waits before probes.
const PROBES: WaitPolicy = WaitPolicy::doubling(Duration::from_secs(1), Duration::from_secs(30));

/// This worker's view of open circuit breakers.
pub(crate) struct OpenCircuits {
    health: Arc<dyn StoreHealth>,
    open: Shown<Vec<OpenCircuit>>,
}

impl OpenCircuits {
    pub(crate) fn new(health: Arc<dyn StoreHealth>) -> Self {
        Self {
            health,
            open: Shown::new(Vec::new()),
        }
    }

    /// Checks the health, and wakes waiting tasks.
    pub(crate) fn look(&self) -> Health {
        let now = self.health.open_circuits();
        let stores = if now.is_empty() {
            Health::Answer
        } else {
            Health::Refuse
        };
        self.open.change(|open| {
            let changed = *open != now;
            *open = now;
            changed
        });
        stores
    }

    /// Whether a circuit of this account is open: queues in it are left alone.
    pub(crate) fn is_open(&self, account: &AccountName) -> bool {
        self.look() == Health::Refuse && !self.open.look(is_closed(account))
    }

    /// Waits until no circuit of this account is open.
    pub(crate) async fn closed(&self, account: &AccountName) {
        self.open.until(is_closed(account)).await;
    }

    /// Waits until an open circuit breaker closes; never returns where none is open.
    pub(crate) async fn closes(&self) {
        if self.open.look(Vec::is_empty) {
            pending::<()>().await;
        }
        self.open.until(Vec::is_empty).await;
    }

    /// Watches the circuit breakers; never returns.
    pub(crate) async fn watch(&self, rng: &dyn Rng) {
        loop {
            tokio::select! {
                biased;
                () = self.open.until(|open| !open.is_empty()) => {}
                () = sleep(LOOK) => {}
            }
            if self.look() == Health::Answer {
                continue;
            }
            let accounts = self.open.look(|open| {
                open.iter()
                    .map(|circuit| circuit.account.to_string())
                    .collect::<BTreeSet<_>>()
            });
            tracing::info!(
                ?accounts,
                "a store refuses as a whole: nothing is received from queues in its account until it answers"
            );
            let mut waits = PROBES.waits(|| rng.unit());
            while self.look() == Health::Refuse {
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
