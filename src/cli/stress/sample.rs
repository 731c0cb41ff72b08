//! Reads or generates the entities of which a load consists.

use std::path::Path;

use anyhow::Context as _;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::super::{Context, UsageError};
use super::StressArgs;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::{EdmValue, Entity, EntityKey, odata};
use evenkeel_storage::{Page, Query};

/// Maximum size of a sample in bytes.
const BYTES: usize = 64 << 20;
/// Maximum number of entities in a sample. A page of a table has at most this many rows.
pub(super) const ENTITIES: usize = 1_000;
/// Number of entities that are generated if there is no sample. One partition accepts so many at
/// once without throttling.
const GENERATED: usize = 400;
/// Maximum number of pages that are read for a sample. A page may have fewer rows than the sample
/// needs.
pub(super) const PAGES: usize = 11;

pub(super) async fn sample(
    args: &StressArgs,
    table: Option<&TableRef>,
    context: &Context,
) -> anyhow::Result<Vec<Entity>> {
    let entities = match (table, &args.sample) {
        (Some(table), _) => from_table(table, context).await?,
        (None, Some(file)) => from_file(file).await?,
        (None, None) => generated(args)?,
    };
    if entities.is_empty() {
        return Err(UsageError::new("the sample has no entities").into());
    }
    Ok(entities)
}

async fn from_table(table: &TableRef, context: &Context) -> anyhow::Result<Vec<Entity>> {
    let tables = &context.stores.account(&table.account)?.tables;
    let (mut entities, mut bytes, mut query) = (Vec::new(), 0, Query::default());
    for _ in 0..PAGES {
        query.top = u32::try_from(ENTITIES - entities.len()).ok();
        let Page { rows, continuation } = tables
            .query(&table.table, &query)
            .await
            .with_context(|| format!("could not read {table}"))?;
        for row in rows {
            bytes += row.entity.size();
            if bytes > BYTES {
                return Ok(entities);
            }
            entities.push(row.entity);
        }
        query.continuation = continuation;
        if query.continuation.is_none() || entities.len() >= ENTITIES {
            break;
        }
    }
    Ok(entities)
}

async fn from_file(file: &Path) -> anyhow::Result<Vec<Entity>> {
    let name = file.display();
    let mut lines = BufReader::new(
        File::open(file)
            .await
            .with_context(|| format!("could not open {name}"))?,
    )
    .lines();
    let (mut entities, mut bytes) = (Vec::new(), 0);
    while let Some(line) = lines
        .next_line()
        .await
        .with_context(|| format!("could not read {name}"))?
    {
        bytes += line.len();
        if entities.len() == ENTITIES || bytes > BYTES {
            break;
        }
        let read = serde_json::from_str(&line).map_err(|error| error.to_string());
        let entity =
            read.and_then(|json| odata::decode_owned(json).map_err(|error| error.to_string()));
        let entity = entity.map_err(|error| {
            UsageError::new(format!("{name}, line {}: {error}", entities.len() + 1))
        })?;
        entity.check().map_err(|error| {
            UsageError::new(format!("{name}, line {}: {error}", entities.len() + 1))
        })?;
        entities.push(entity);
    }
    Ok(entities)
}

fn generated(args: &StressArgs) -> anyhow::Result<Vec<Entity>> {
    let content = vec![0x65; usize::try_from(args.size)?];
    let entity = |at: usize| -> anyhow::Result<Entity> {
        Ok(Entity::new(EntityKey::new("p", format!("{at:06}"))?)
            .with("Content", EdmValue::Binary(content.clone())))
    };
    (0..GENERATED).map(entity).collect()
}
