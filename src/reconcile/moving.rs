//! `move`: relocates a primary to another key, partition or table, every view following.
//!
//! The target's row is written alone and its items follow when the source has let go of its own: a unique key (an e-mail
//! address) passes from the one to the other, and is never wanted by both.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::kept::Kept;
use super::relocation::Relocation;
use crate::model::job::Primary;

pub(super) async fn run(engine: &Engine, from: &Primary, to: &Primary, delivery: &Delivery) -> Result<Outcome, Failure> {
    engine.refuse_view_tables(&from.table)?;
    engine.refuse_view_tables(&to.table)?;
    let source = engine.pass(from, delivery)?;
    let target = engine.pass(to, delivery)?;
    Relocation::new(engine, delivery, source, Kept::Moved(target), to.key.clone()).run(None).await
}
