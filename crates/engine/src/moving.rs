//! `move`: relocates a primary to another key, partition or table, every view following.
//!
//! The target's row is written alone and its items follow when the source has let go of its own: a unique key (an e-mail
//! address) passes from the one to the other, and is never wanted by both.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use super::relocation::Relocation;
use super::target;
use evenkeel_model::job::MoveJob;

impl RunJob for MoveJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        engine.refuse_view_tables(&self.primary.table)?;
        engine.refuse_view_tables(&self.to.table)?;
        let source = engine.pass(&self.primary, delivery)?;
        let target = target::moved(engine, &self.to, delivery)?;
        Relocation::new(engine, delivery, source, target, self.to.key.clone())
            .run(None)
            .await
    }
}
