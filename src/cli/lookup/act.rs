//! Carrying it out.

use anyhow::Context as _;
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde::Serialize;

use super::args::LookupArgs;
use super::cursor::{Reading, page_rows};
use super::token::{Position, Token};
use super::{members, merge, print};
use crate::catalog::{View, ViewKind};
use crate::cli::row::RowJson;
use crate::cli::{Context, Exit, Format, Output, UsageError};
use crate::model::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY};
use crate::model::{EntityKey, Row, Site};
use crate::patterns::lookup::{self, LookupPlan, QueryClass, Term};
use crate::shared::Owned;
use crate::wide;

/// Primaries read at once.
const PARALLEL: usize = 16;

/// Finds copies, or their primaries, by the values that their keys are made of.
pub async fn lookup(args: &LookupArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let view = context.known_view(&args.view)?;
    let plan = plan(args, view)?;
    let from = match &args.token {
        Some(text) => Token::decode(text, &args.view, &args.terms, plan.ranges.len())?.ranges,
        None => vec![Position::default(); plan.ranges.len()],
    };
    let reading = Reading {
        view,
        table: &plan.table,
        tables: context.stores.account(&plan.table.account)?.tables.as_ref(),
        select: copy_select(args, view),
        page: page_rows(args.top),
    };
    let found = merge::read(&reading, &plan.ranges, from, args.top).await.with_context(|| format!("reading {}", plan.table))?;
    let mut summary = Summary {
        query_class: plan.class,
        requests: found.requests,
        rows: 0,
        continuation: found.positions.map(|positions| Token::new(&args.view, &args.terms, positions).encode()),
    };
    let (rows, keys): (Vec<Row>, Vec<EntityKey>) = match &view.kind {
        ViewKind::SecondaryIndex(_) => {
            let keys = found.rows.iter().filter_map(|copy| Owner::of(&copy.entity)).map(|owner| owner.primary.key).collect();
            (found.rows, keys)
        }
        ViewKind::Denormalize(_) | ViewKind::DenormalizeRange(_) => {
            let site = |key: &EntityKey| Site::Row { table: plan.table.table.clone(), key: key.clone() };
            let owned = found.rows.iter().map(|row| Owned::read(&site(&row.entity.key), &row.entity, &view.name));
            let owned: Vec<Option<Owned>> = owned.collect::<Result<_, _>>()?;
            (found.rows, owned.into_iter().flatten().map(|owned| owned.primary.key).collect())
        }
        ViewKind::Aggregate(_) => {
            let keys = members::keys(&found.rows, &plan.table.table)?;
            (found.rows, keys)
        }
        // It has no rows, and no plan.
        ViewKind::BlobLists(_) => (Vec::new(), Vec::new()),
        ViewKind::IndexEntity(index) => {
            let rows = members::rows(found.rows, &plan.table.table, index)?;
            let keys = rows.iter().map(|row| row.entity.key.clone()).collect();
            (rows, keys)
        }
    };
    let rows = if args.entities {
        summary.requests += keys.len() as u64;
        primaries(&keys, args, view, context).await?
    } else {
        rows
    };
    summary.rows = rows.len();
    summary.print(&without_own(rows, args), out)?;
    Ok(Exit::Done)
}

fn plan(args: &LookupArgs, view: &View) -> Result<LookupPlan, UsageError> {
    let terms: Result<Vec<Term>, _> = args.terms.iter().map(|term| term.parse()).collect();
    let terms = terms.map_err(|error: lookup::TermError| UsageError::new(error.to_string()))?;
    lookup::plan(view, &terms).map_err(|error| UsageError::new(error.to_string()))
}

/// What is read of copies: what was asked for, and what says whose they are.
fn copy_select(args: &LookupArgs, view: &View) -> Option<Vec<String>> {
    if !matches!(view.kind, ViewKind::SecondaryIndex(_)) {
        return None;
    }
    let own = [SOURCE_PROPERTY, VIEW_PROPERTY].map(str::to_owned);
    if args.entities {
        return Some(own.to_vec());
    }
    (!args.select.is_empty()).then(|| args.select.iter().cloned().chain(own).collect())
}

/// The primaries of copies or members, in their order. One that is gone meanwhile is left out.
async fn primaries(keys: &[EntityKey], args: &LookupArgs, view: &View, context: &Context) -> anyhow::Result<Vec<Row>> {
    let tables = &context.stores.account(&view.source.account)?.tables;
    let select = (!args.select.is_empty()).then_some(args.select.as_slice());
    let wide = context.catalog.wide.contains(&view.source);
    let read: Vec<Option<Row>> = iter(keys)
        .map(|key| async move {
            let reading = || format!("reading {}{key}", view.source);
            if wide {
                return Ok(wide::read(tables.as_ref(), &view.source.table, key, false).await.with_context(reading)?.joined());
            }
            tables.get(&view.source.table, key, select).await.with_context(reading)
        })
        .buffered(PARALLEL)
        .try_collect()
        .await?;
    Ok(read.into_iter().flatten().collect())
}

/// Without evenkeel's own properties, where certain ones were asked for.
fn without_own(mut rows: Vec<Row>, args: &LookupArgs) -> Vec<Row> {
    if !args.select.is_empty() {
        for row in &mut rows {
            row.entity.properties.retain(|name, _| args.select.contains(name));
        }
    }
    rows
}

/// What a lookup says beside its rows.
#[derive(Debug, Serialize)]
struct Summary {
    query_class: QueryClass,
    requests: u64,
    rows: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation: Option<String>,
}

impl Summary {
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
