use std::fmt;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::output::counted;
use super::whole_tables::{WalkStart, WholeTables};
use super::{Context, Exit, Format, Output, Tone, help, whole_tables};
use evenkeel_engine::{AuditFailure, Engine};
use evenkeel_model::audit::{Audit, AuditCursor};
use evenkeel_model::{QueueName, TableName, ViewName};

#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel audit", "compares every item of every table with views"),
    ("evenkeel audit --table Employees --repair", "the items of one table, and repairs mismatches"),
    ("evenkeel audit --view employees_by_email --json", "a line of JSON for each wrong item of one view, and one for the table"),
    ("evenkeel audit --submit", "as jobs for the workers; the dashboard shows what they found"),
]))]
pub struct AuditArgs {
    /// The table of the primaries (case-insensitive)
    #[arg(long, value_name = "TABLE", conflicts_with = "view")]
    pub table: Option<String>,
    /// Report and record only this view; other views of its source are compared, but not reported
    #[arg(long, value_name = "VIEW")]
    pub view: Option<ViewName>,
    /// Repair the mismatches
    #[arg(long)]
    pub repair: bool,
    /// Put jobs on a queue for the workers
    #[arg(long)]
    pub submit: bool,
    /// Queue for the jobs, and for the sync jobs of primaries that fail; default the first that allows them
    #[arg(long, value_name = "NAME")]
    pub queue: Option<QueueName>,
}

/// Compares the items of the tables' primaries with their expected state, either in this process or
/// by jobs. `ready` must first confirm that the catalog is the recorded one. With another catalog,
/// items would be repaired wrongly, and the wrong findings would be recorded for everybody.
pub async fn audit(
    args: &AuditArgs,
    context: &Context,
    engine: &Engine,
    ready: impl AsyncFnOnce(&mut Output) -> anyhow::Result<()>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let whole = WholeTables {
        table: args.table.as_ref(),
        view: args.view.as_ref(),
        submit: args.submit,
        queue: args.queue.as_ref(),
    };
    let (tables, mut exit) =
        match whole_tables::begin(&whole, |table| job(table, args.repair), context, ready, out)
            .await?
        {
            WalkStart::Here(tables, exit) => (tables, exit),
            WalkStart::Ended(exit) => return Ok(exit),
        };
    for (at, table) in tables.iter().enumerate() {
        let (cursor, interrupted) = audit_table(table, args, context, engine, out).await?;
        let drift = match &args.view {
            Some(view) => cursor.drift.get(view.as_str()).copied().unwrap_or(0),
            None => cursor.drifted(),
        };
        if drift > 0 {
            exit = Exit::Drift;
        } else if cursor.failed > 0 && exit == Exit::Done {
            exit = Exit::Failed;
        }
        report(table, &cursor, drift, args.repair, interrupted, out)?;
        if interrupted {
            whole_tables::report_remaining("audit", table, &tables[at + 1..], out)?;
            return Ok(Exit::Interrupted);
        }
    }
    Ok(exit)
}

fn job(table: &TableName, repair: bool) -> Value {
    if repair {
        json!({"op": "audit", "table": table, "repair": true})
    } else {
        json!({"op": "audit", "table": table})
    }
}

/// Compares one table until it ends or is interrupted. Returns the cursor and whether it was
/// interrupted.
async fn audit_table(
    table: &TableName,
    args: &AuditArgs,
    context: &Context,
    engine: &Engine,
    out: &mut Output,
) -> anyhow::Result<(AuditCursor, bool)> {
    let delivery = whole_tables::delivery(&job(table, args.repair), args.queue.as_ref(), context)?;
    let mut progress = whole_tables::progress(table, context, out).await;
    let (mut cursor, mut interrupted) = (AuditCursor::default(), false);
    loop {
        if context.stop.is_cancelled() {
            interrupted = true;
            break;
        }
        let done = cursor.primaries;
        let audit = Audit {
            table: table.clone(),
            repair: args.repair,
            cursor: cursor.clone(),
        };
        let part = match engine
            .refuse_replaced(|| format!("continuing with {table}"))
            .await
        {
            Ok(()) => engine.audit_of(&audit, args.view.as_ref(), &delivery).await,
            Err(replaced) => Err(replaced),
        };
        let part = part.with_context(|| {
            format!(
                "the audit of {table} stopped after {}. Start it again",
                counted(done, "primary")
            )
        })?;
        let Some(part) = part else { break };
        cursor = part.cursor;
        progress.set(cursor.primaries, out)?;
        for finding in part.findings.iter().filter(|finding| {
            args.view
                .as_ref()
                .is_none_or(|view| *view == finding.item.view)
        }) {
            progress.suspend(|| print(finding, finding.repaired, out))?;
        }
        let is_about = |failure: &AuditFailure| {
            args.view
                .as_ref()
                .is_none_or(|view| failure.views.is_empty() || failure.views.contains(view))
        };
        for failure in part.failures.iter().filter(|failure| is_about(failure)) {
            progress.suspend(|| print(failure, false, out))?;
        }
        if part.ended {
            break;
        }
    }
    progress.end();
    Ok((cursor, interrupted))
}

fn print(
    finding: &(impl Serialize + fmt::Display),
    repaired: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    match out.format() {
        Format::Json => Ok(out.value(finding)?),
        Format::Text => {
            let tone = if repaired { Tone::Warning } else { Tone::Bad };
            let text = out.tone(tone, finding);
            Ok(out.line(text)?)
        }
    }
}

fn report(
    table: &TableName,
    cursor: &AuditCursor,
    drift: u64,
    repair: bool,
    interrupted: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let AuditCursor {
        primaries,
        rows,
        repaired,
        failed,
        ..
    } = cursor;
    if out.format() == Format::Json {
        let mut value = json!({"table": table, "primaries": primaries, "rows": rows, "drift": drift, "repaired": repaired, "failed": failed});
        if interrupted {
            value["interrupted"] = true.into();
        }
        return Ok(out.value(&value)?);
    }
    let wrong = format!(
        "{} {} wrong",
        counted(drift, "item"),
        if drift == 1 { "is" } else { "are" }
    );
    let copies = if *rows > 0 {
        format!(", {} checked for an owner", counted(*rows, "copy"))
    } else {
        String::new()
    };
    let compared = format!(
        "{table}: {} compared item by item{copies}",
        counted(*primaries, "primary")
    );
    let mended = if *repaired > 0 {
        format!(", {} repaired", counted(*repaired, "item"))
    } else {
        String::new()
    };
    let verdict = match drift {
        0 if interrupted => out.tone(Tone::Warning, "nothing was wrong before the interruption"),
        _ if interrupted => out.tone(Tone::Bad, format_args!("{wrong} before the interruption")),
        0 => out.tone(Tone::Good, "nothing is wrong"),
        _ => out.tone(Tone::Bad, wrong),
    };
    out.line(format_args!("{compared}{mended}: {verdict}"))?;
    if *failed > 0 {
        let text = out.tone(
            Tone::Bad,
            format_args!(
                "{table}: {} could not be compared",
                counted(*failed, "primary")
            ),
        );
        out.line(text)?;
    }
    if drift > 0 && !repair {
        out.write_note(
            "An item whose job is still queued counts as wrong. If no job is queued, run `evenkeel audit --repair`. An item whose key belongs to another primary is not repaired; `evenkeel plan` shows which one.",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::tests::TextBuffer;

    #[test]
    fn a_summary_counts_primaries_and_copies_if_there_are_any() {
        let summary = |primaries, rows| {
            let buffer = TextBuffer::default();
            let mut out = Output::to(
                Box::new(buffer.clone()),
                Box::new(std::io::sink()),
                Format::Text,
            );
            let cursor = AuditCursor {
                primaries,
                rows,
                ..AuditCursor::default()
            };
            report(
                &TableName::new("Staff").unwrap(),
                &cursor,
                0,
                false,
                false,
                &mut out,
            )
            .unwrap();
            buffer.text()
        };
        assert_eq!(
            summary(1, 0),
            "Staff: 1 primary compared item by item: nothing is wrong\n"
        );
        assert_eq!(
            summary(2, 3),
            "Staff: 2 primaries compared item by item, 3 copies checked for an owner: nothing is wrong\n"
        );
    }
}
