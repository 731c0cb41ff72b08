//! `evenkeel get`

use anyhow::{Context as _, anyhow, bail};
use clap::Args;

use super::exit::misused;
use super::row::RowJson;
use super::{Context, Exit, Output, args, help};
use crate::catalog::TableRef;
use crate::model::{EntityKey, Key};

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel get Employees Sales 000223", "the entity, with its ETag and the EDM types that JSON lacks"),
    ("evenkeel get archive:FormerEmployees Sales 000223", "from a table of another account"),
    ("evenkeel get Employees Sales 000223 --resolve", "with the content of properties that lie in blobs"),
    ("evenkeel get EmployeeIndex last_name Kim --resolve", "a list in one piece, however long it is"),
]))]
pub struct GetArgs {
    /// The table, in any case; ACCOUNT:TABLE for another account than the catalog's or main
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Replace properties that point to a blob by the blob's content, and join the pieces of lists and the rows of wide entities
    #[arg(long)]
    pub resolve: bool,
}

/// Prints one entity.
pub async fn get(args: &GetArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let table = context.table(&args.table)?;
    let key = EntityKey { pk: args.pk.clone(), rk: args.rk.clone() };
    let row = if args.resolve {
        context.client().get_in(&table, &key).await.map_err(misused)?
    } else {
        let account = context.stores.account(&table.account)?;
        account.tables.get(&table.table, &key, None).await.with_context(|| format!("reading {table}{key}"))?
    };
    let Some(row) = row else { bail!(absent(&table, &key)) };
    out.value(&RowJson::of(&row))?;
    Ok(Exit::Done)
}

fn absent(table: &TableRef, key: &EntityKey) -> anyhow::Error {
    anyhow!("there is no entity {table}{key}")
}
