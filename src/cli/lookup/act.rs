use serde::Serialize;

use super::args::LookupArgs;
use super::print;
use crate::cli::exit::client_error;
use crate::cli::output::counted;
use crate::cli::row::report_encrypted;
use crate::cli::{Context, Exit, Format, Output, UsageError};
use evenkeel_client::{Client, ClientError, Lookup, LookupResult};
use evenkeel_model::ViewName;
use evenkeel_model::patterns::lookup::QueryClass;

/// Finds copies, or the primaries of copies, by the values in the copies' keys.
pub async fn lookup(
    args: &LookupArgs,
    context: &Context,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let client = context.reading(args.allow_plain);
    let mut lookup = start(args, &client)?.top(args.top).select(&args.select);
    if let Some(token) = &args.token {
        lookup = lookup.after(token);
    }
    if let Some(condition) = &args.condition {
        lookup = lookup.filtered(condition.clone());
    }
    if args.scan {
        lookup = lookup.scan();
    }
    if args.entities {
        lookup = lookup.entities();
    }
    if args.decrypt {
        lookup = lookup.decrypted();
    }
    lookup = args.joins.iter().cloned().fold(lookup, Lookup::with);
    let found = lookup.run().await.map_err(failed)?;
    LookupSummary::of(&found).print(&found, out)?;
    if args.decrypt {
        let joined = found.joined.values().flatten().flatten().map(AsRef::as_ref);
        report_encrypted(found.rows.iter().chain(joined), out)?;
    }
    Ok(Exit::Done)
}

/// Starts a lookup. The first word is the name of a view unless it is a term.
fn start<'c>(args: &LookupArgs, client: &'c Client) -> anyhow::Result<Lookup<'c>> {
    let is_term = |word: &str| word.contains(['=', '<', '>']);
    match (
        args.words
            .split_first()
            .filter(|(first, _)| !is_term(first)),
        &args.table,
    ) {
        (Some((view, [])), _) if !args.scan => Err(UsageError::new(format!(
            "give a TERM for a property in the keys of {view} (--scan reads a whole archive)"
        ))
        .into()),
        (Some((view, terms)), table) => {
            let view = ViewName::new(view.as_str()).map_err(UsageError::of)?;
            let lookup = client.lookup(&view, terms).map_err(failed)?;
            Ok(table
                .iter()
                .fold(lookup, |lookup, table| lookup.table(table.clone())))
        }
        (None, Some(table)) => client.lookup_table(table, &args.words).map_err(failed),
        (None, None) => Err(UsageError::new(
            "name the view or archive to look in, or a table with --table",
        )
        .into()),
    }
}

fn failed(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Continuation(problem) => {
            UsageError::new(format!("--continue: {problem}")).into()
        }
        error => client_error(error),
    }
}

/// Facts about a lookup in addition to its rows.
#[derive(Debug, Serialize)]
struct LookupSummary {
    query_class: QueryClass,
    requests: u64,
    rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation: Option<String>,
}

impl LookupSummary {
    fn of(found: &LookupResult) -> Self {
        let (rows, requests, continuation) =
            (found.rows.len(), found.requests, found.continuation.clone());
        Self {
            query_class: found.class,
            requests,
            rows,
            continuation,
        }
    }

    fn print(&self, found: &LookupResult, out: &mut Output) -> anyhow::Result<()> {
        if out.format() == Format::Json {
            print::rows_json(found).try_for_each(|row| out.value(&row))?;
            out.value(self)?;
            return Ok(());
        }
        let (heading, cells) = print::table(found);
        out.table(&heading, &cells)?;
        out.write_note(format_args!(
            "{}: {}, {}",
            counted(self.rows as u64, "row"),
            self.query_class,
            counted(self.requests, "request")
        ))?;
        if let Some(token) = &self.continuation {
            out.write_note(format_args!("There are more rows: --continue {token}"))?;
        }
        Ok(())
    }
}
