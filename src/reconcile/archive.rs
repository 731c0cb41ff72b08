//! `archive`: relocates a primary to its archive, under the same key: a table, a container or a shared folder.

use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::kept::Kept;
use super::relocation::Relocation;
use crate::catalog::Archive;
use crate::model::job::Primary;
use crate::model::{ETag, EntityKey};

pub(super) async fn run(
    engine: &Engine,
    archive: &Archive,
    key: &EntityKey,
    if_match: Option<&ETag>,
    delivery: &Delivery,
) -> Result<Outcome, Failure> {
    let source = engine.pass(&Primary { table: archive.source.table.clone(), key: key.clone() }, delivery)?;
    let kept = Kept::in_archive(engine, archive, key, delivery)?;
    Relocation::new(engine, delivery, source, kept, key.clone()).run(if_match).await
}
