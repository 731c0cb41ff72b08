use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::{Context, Exit, Format, Output, Tone, args, help};
use evenkeel_engine::{Engine, PlanReport};
use evenkeel_model::catalog::View;
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::sample::{SampledTable, ViewSample};
use evenkeel_model::{EntityKey, Key};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel plan Employees Sales 000223", "which rows a sync of this entity would write or delete now"),
    ("evenkeel plan Employees Sales 000223 --json", "the same as JSON"),
]))]
pub struct PlanArgs {
    /// The table of the primary (case-insensitive)
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// Its PartitionKey
    #[arg(value_name = "PK", value_parser = args::key)]
    pub pk: Key,
    /// Its RowKey
    #[arg(value_name = "RK", value_parser = args::key)]
    pub rk: Key,
}

/// Shows what a reconcile of a primary would do now.
pub async fn plan(
    args: &PlanArgs,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let table = context.known_table(&args.table)?;
    let primary = Primary {
        table: table.table,
        key: EntityKey {
            pk: args.pk.clone(),
            rk: args.rk.clone(),
        },
    };
    let report = engine
        .plan(&primary)
        .await
        .with_context(|| format!("could not plan {primary}"))?;
    let warnings = if report.present {
        warnings(&primary, context).await?
    } else {
        Vec::new()
    };
    match out.format() {
        Format::Json => out.value(&PlanWithWarnings { report, warnings })?,
        Format::Text => {
            out.line(report.to_string().trim_end())?;
            for warning in warnings {
                let text = out.tone(Tone::Warning, format_args!("warning: {warning}"));
                out.line(text)?;
            }
        }
    }
    Ok(Exit::Done)
}

/// A plan, with warnings from a sample of the table.
#[derive(Serialize)]
struct PlanWithWarnings {
    #[serde(flatten)]
    report: PlanReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// If the primary lacks properties that a view uses, reads a sample of the table, and returns
/// warnings about views whose properties are missing there too.
async fn warnings(primary: &Primary, context: &Context) -> anyhow::Result<Vec<String>> {
    let Some(source) = context.catalog.table(&primary.table) else {
        return Ok(Vec::new());
    };
    let views: Vec<_> = context.catalog.views_of(source).cloned().collect();
    let tables = &context.stores.account(&source.account)?.tables;
    let Some(row) = tables
        .get(&source.table, &primary.key, None)
        .await
        .with_context(|| format!("could not read {primary}"))?
    else {
        return Ok(Vec::new());
    };
    let row = [row.entity];
    let lacks = |view: &Arc<View>| {
        let alone = SampledTable {
            former: None,
            view: Some(view),
            primaries: &row,
        };
        ViewSample::of(&view.name, String::new(), false, &[alone]).is_suspect()
    };
    if !views.iter().any(lacks) {
        return Ok(Vec::new());
    }
    let migrator = context.migrator()?;
    let surveys = migrator.survey_views(|of| of.has(source)).await?;
    Ok(surveys
        .into_iter()
        .filter(|survey| survey.sample.is_suspect())
        .map(|survey| survey.sample.to_string())
        .collect())
}
