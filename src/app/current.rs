//! The engine in force: what the worker executes by. Exchanged when the catalog grows while the program runs.

use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;

use crate::model::Job;
use crate::model::job::Primary;
use crate::reconcile::{Delivery, Engine, Execute, Failure, FailureClass, Outcome, Work};

/// The engine in force.
pub(super) struct Current(RwLock<Arc<Engine>>);

impl Current {
    pub(super) const fn new(engine: Arc<Engine>) -> Self {
        Self(RwLock::new(engine))
    }

    /// The engine in force now.
    pub(super) fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another engine into force. What runs goes on with the one that it began with.
    pub(super) fn exchange(&self, engine: Arc<Engine>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = engine;
    }

    /// The primary that a job is about.
    pub(super) fn primary_of(&self, job: &Job) -> Option<Primary> {
        self.engine().primary_of(job)
    }
}

#[async_trait]
impl Execute for Current {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        loop {
            let engine = self.engine();
            let ended = engine.execute(work, delivery).await;
            // A run that began before the exchange may meet what was made after it: it is run again by what knows it.
            let outdated = ended.as_ref().is_err_and(|failure| failure.class == FailureClass::OutdatedCatalog);
            if !outdated || Arc::ptr_eq(&engine, &self.engine()) {
                return ended;
            }
        }
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.engine().give_up(work, delivery).await
    }
}
