//! The circuits of all accounts, as one source of store health.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;

use super::Circuit;
use evenkeel_storage::{OpenCircuit, StoreHealth};

#[derive(Clone, Default)]
pub struct Circuits(Vec<Arc<Circuit>>);

impl Circuits {
    pub const fn new(circuits: Vec<Arc<Circuit>>) -> Self {
        Self(circuits)
    }
}

#[async_trait]
impl StoreHealth for Circuits {
    fn open_circuits(&self) -> Vec<OpenCircuit> {
        self.0
            .iter()
            .flat_map(|circuit| circuit.open_circuits())
            .collect()
    }

    async fn probe(&self) {
        join_all(self.0.iter().map(|circuit| circuit.probe())).await;
    }
}
