use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;

use super::exit::{client_error, store_error};
use super::row::{RowJson, report_encrypted};
use super::{Context, Exit, Output, UsageError, args, help};
use evenkeel_client::Client;
use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::names::is_own_table;
use evenkeel_model::nearest::{listed, nearest};
use evenkeel_model::{EntityKey, Key};
use evenkeel_storage::{ErrorClass, Missing, Service, StoreError};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel get Employees Sales 000223", "the entity, with its ETag and the EDM types that JSON lacks"),
    ("evenkeel get archive:FormerEmployees Sales 000223", "from a table of another account"),
    ("evenkeel get Employees Sales 000223 --resolve", "with the values that are stored in blobs"),
    ("evenkeel get Employees Sales 000223 --property Photo --out photo.png", "one value, however large, as a file"),
    ("evenkeel get EmployeeIndex last_name Kim --resolve", "a list in one piece, however long it is"),
]))]
pub struct GetArgs {
    /// The table (case-insensitive); ACCOUNT:TABLE if it is neither in the catalog nor in the account main
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Load values from blobs, decrypt properties if the configuration has the keys, and join pieces of lists and rows of wide entities
    #[arg(long)]
    pub resolve: bool,
    /// Accept plain values of encrypted properties, written before the table was encrypted; without this option, reading one is an error
    #[arg(long)]
    pub allow_plain: bool,
    /// Write the value of this property to --out, whatever its size
    #[arg(
        long,
        value_name = "NAME",
        requires = "out",
        conflicts_with = "resolve"
    )]
    pub property: Option<String>,
    /// File for the property's value; - for standard output
    #[arg(long, value_name = "FILE", requires = "property")]
    pub out: Option<PathBuf>,
}

pub async fn get(args: &GetArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let table = context.target(&args.table)?.at(&args.pk);
    read(args, &table, context, out)
        .await
        .map_err(|error| explained(error, &table, &context.catalog))
}

async fn read(
    args: &GetArgs,
    table: &TableRef,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let key = EntityKey {
        pk: args.pk.clone(),
        rk: args.rk.clone(),
    };
    if let (Some(property), Some(file)) = (&args.property, &args.out) {
        return value(
            table,
            &key,
            property,
            file,
            &context.reading(args.allow_plain),
        )
        .await;
    }
    let row = if args.resolve {
        context
            .reading(args.allow_plain)
            .get_in(table, &key)
            .await
            .map_err(client_error)?
    } else {
        let account = context.stores.account(&table.account)?;
        account
            .tables
            .get(&table.table, &key, None)
            .await
            .with_context(|| format!("could not read {table}{key}"))?
    };
    let Some(row) = row else {
        bail!(absent(table, &key))
    };
    out.value(&RowJson::of(&row))?;
    if args.resolve {
        report_encrypted(std::slice::from_ref(&row), out)?;
    }
    Ok(Exit::Done)
}

/// Writes one value to a file. The file gets its final name only when it is complete and its hash
/// is correct.
async fn value(
    table: &TableRef,
    key: &EntityKey,
    property: &str,
    file: &Path,
    client: &Client,
) -> anyhow::Result<Exit> {
    let found = if file == Path::new("-") {
        let mut out = std::io::stdout();
        client
            .read_value(table, key, property, |part| out.write_all(part))
            .await
            .map_err(client_error)?
    } else {
        let mut partial = file.as_os_str().to_owned();
        partial.push(".partial");
        let mut out = File::create(&partial)
            .with_context(|| format!("could not create {}", partial.display()))?;
        let read = client
            .read_value(table, key, property, |part| out.write_all(part))
            .await
            .map_err(client_error);
        let whole = matches!(read, Ok(Some(_)));
        let kept = if whole {
            std::fs::rename(&partial, file)
        } else {
            std::fs::remove_file(&partial)
        };
        let found = read?;
        kept.with_context(|| format!("could not write {}", file.display()))?;
        found
    };
    match found {
        Some(_) => Ok(Exit::Done),
        None => {
            bail!("there is no entity {table}{key} with a string or binary property {property}")
        }
    }
}

/// Explains a failed read. If the table does not exist and is neither in the catalog nor evenkeel's
/// own, its name was probably misspelt.
fn explained(error: anyhow::Error, table: &TableRef, catalog: &Catalog) -> anyhow::Error {
    let gone = |error: &StoreError| {
        error.class == ErrorClass::NotFound(Missing::Container)
            && error.subject.resource.service() == Service::Table
    };
    let known = catalog.target(&table.table).is_some() || is_own_table(table.table.as_str());
    if known || !error.chain().filter_map(store_error).any(gone) {
        return error;
    }
    let known: Vec<String> = catalog
        .targets()
        .map(|target| target.table.to_string())
        .collect();
    let hint = match nearest(table.table.as_str(), known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("the catalog has {}", listed(&known)),
    };
    UsageError::new(format!("there is no table {table}; {hint}")).into()
}

fn absent(table: &TableRef, key: &EntityKey) -> anyhow::Error {
    anyhow!("there is no entity {table}{key}")
}
