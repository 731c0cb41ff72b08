use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::exit::client_error;
use super::{Context, Exit, Format, Output, args, help};
use evenkeel_client::InStep;
use evenkeel_model::units::parse_duration;
use evenkeel_model::{ETag, EntityKey, Key, TableName};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel wait Employees Sales 000223", "until every copy and list has the current version, or no trace of the entity if it is deleted"),
    (r#"evenkeel wait Employees Sales 000223 --etag "W/\"datetime'...'\"" --timeout 2s"#, "until they have this version, or a later one"),
    ("evenkeel wait Employees Sales 000223 --timeout 0s", "checks once"),
]))]
pub struct WaitArgs {
    /// The table of the primary, from the catalog (case-insensitive)
    #[arg(value_name = "TABLE")]
    pub table: TableName,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// ETag of the version; default the current one
    #[arg(long, value_name = "ETAG", value_parser = ETag::copied)]
    pub etag: Option<ETag>,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    pub timeout: Duration,
}

/// The answer, for `--json`.
#[derive(Serialize)]
struct WaitAnswer<'a> {
    table: &'a TableName,
    pk: &'a str,
    rk: &'a str,
    #[serde(flatten)]
    waited: InStep,
}

/// Waits until the items of an entity are in step. The exit code is 1 if that takes longer than
/// `--timeout`.
pub async fn wait(args: &WaitArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let key = EntityKey {
        pk: args.pk.clone(),
        rk: args.rk.clone(),
    };
    let waited = context
        .client()
        .wait_for(&args.table, &key, args.etag.as_ref(), args.timeout)
        .await
        .map_err(client_error)?;
    let table = &args.table;
    match out.format() {
        Format::Json => out.value(&WaitAnswer {
            table,
            pk: key.pk.as_str(),
            rk: key.rk.as_str(),
            waited,
        })?,
        Format::Text if waited.in_step => out.line(format_args!(
            "everything derived from {table}{key} is in step"
        ))?,
        Format::Text if waited.missing => out.line(format_args!(
            "{table}{key} does not exist, and nothing is derived from it"
        ))?,
        Format::Text => {
            let why = if waited.propagating {
                ": its values are still being written to the entities of a range"
            } else {
                ""
            };
            out.line(format_args!(
                "{table}{key}: not in step within {} s{why}",
                args.timeout.as_secs_f64()
            ))?;
        }
    }
    Ok(if waited.in_step {
        Exit::Done
    } else {
        Exit::Failed
    })
}
