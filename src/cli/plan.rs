//! `evenkeel plan`

use anyhow::Context as _;
use clap::Args;

use super::{Context, Exit, Format, Output, args, help};
use crate::model::job::Primary;
use crate::model::{EntityKey, Key};
use crate::reconcile::Engine;

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel plan Employees Sales 000223", "which rows a sync of this entity would write or drop now"),
    ("evenkeel plan Employees Sales 000223 --json", "the same for machines"),
]))]
pub struct PlanArgs {
    /// The table of the primary, in any case
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// Its PartitionKey
    #[arg(value_name = "PK", value_parser = args::key)]
    pub pk: Key,
    /// Its RowKey
    #[arg(value_name = "RK", value_parser = args::key)]
    pub rk: Key,
}

/// Shows the plan of reconciling a primary now, without executing it.
pub async fn plan(args: &PlanArgs, context: &Context, engine: &Engine, out: &mut Output) -> anyhow::Result<Exit> {
    let table = context.known_table(&args.table)?;
    let primary = Primary { table: table.table, key: EntityKey { pk: args.pk.clone(), rk: args.rk.clone() } };
    let report = engine.plan(&primary).await.with_context(|| format!("planning {primary}"))?;
    match out.format() {
        Format::Json => out.value(&report)?,
        Format::Text => out.line(report.to_string().trim_end())?,
    }
    Ok(Exit::Done)
}
