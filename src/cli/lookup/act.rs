//! Carrying it out.

use serde::Serialize;

use super::args::LookupArgs;
use super::print;
use crate::cli::exit::misused;
use crate::cli::row::RowJson;
use crate::cli::{Context, Exit, Format, Output, UsageError};
use crate::client::{ClientError, LookupResult};
use crate::model::Row;
use crate::patterns::lookup::QueryClass;

/// Finds copies, or their primaries, by the values that their keys are made of.
pub async fn lookup(args: &LookupArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let client = context.client();
    let mut lookup = client.lookup(&args.view, &args.terms).map_err(failed)?.top(args.top).select(&args.select);
    if let Some(token) = &args.token {
        lookup = lookup.after(token);
    }
    if let Some(table) = &args.table {
        lookup = lookup.table(table.clone());
    }
    if args.entities {
        lookup = lookup.entities();
    }
    let LookupResult { rows, class, requests, continuation } = lookup.run().await.map_err(failed)?;
    LookupSummary { query_class: class, requests, rows: rows.len(), continuation }.print(&rows, out)?;
    Ok(Exit::Done)
}

fn failed(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Continuation(problem) => UsageError::new(format!("--continue {problem}")).into(),
        error => misused(error),
    }
}

/// The facts of a lookup beside its rows.
#[derive(Debug, Serialize)]
struct LookupSummary {
    query_class: QueryClass,
    requests: u64,
    rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation: Option<String>,
}

impl LookupSummary {
    fn print(&self, rows: &[Row], out: &mut Output) -> anyhow::Result<()> {
        if out.format() == Format::Json {
            rows.iter().try_for_each(|row| out.value(&RowJson::of(row)))?;
            out.value(self)?;
            return Ok(());
        }
        let (heading, cells) = print::table(rows);
        out.table(&heading, &cells)?;
        let plural = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        out.say(format_args!("{}: {}, {}", plural(self.rows as u64, "row"), self.query_class, plural(self.requests, "request")))?;
        if let Some(token) = &self.continuation {
            out.say(format_args!("There is more: --continue {token}"))?;
        }
        Ok(())
    }
}
