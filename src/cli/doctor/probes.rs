//! Sends the reads from which the findings are made. Each read is sent once, without retries.

use std::time::Duration;

use jiff::SignedDuration;

use super::super::{Context, DirectAccess};
use super::diagnosis::{self, Diagnosis};
use evenkeel_model::limits::QUEUE_BATCH;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, BlobName, EntityKey, QueueName, TableName, cause};
use evenkeel_rollout::migrations::{Migrator, Needs};
use evenkeel_storage::{Account, ErrorClass, StoreError, all_tables};
use evenkeel_telemetry::latency::LatencyCounts;

/// Minimum number of reads from which a latency is computed.
const READS: u64 = 20;

/// Whether the service has answered. An error such as 403 or 404 is an answer too.
fn answers(error: &StoreError) -> bool {
    !matches!(
        error.class,
        ErrorClass::Refused | ErrorClass::Ambiguous | ErrorClass::Transient { .. }
    )
}

/// Checks the tables, blobs and clock of an account. Also returns whether its table service
/// answers.
pub(super) async fn account(
    name: &AccountName,
    needs: &Needs,
    context: &Context,
    direct: &DirectAccess,
) -> anyhow::Result<(Vec<Diagnosis>, bool)> {
    let account = direct.stores.account(name)?;
    let (tables, blobs) = futures::join!(
        tables(name, account, needs, context),
        blobs(name, account, needs)
    );
    let (mut findings, answers) = tables?;
    findings.extend(blobs?);
    if let Some(now) = account.clocks.tables_now() {
        let ahead: SignedDuration = now.duration_since(context.clock.now());
        findings.push(diagnosis::clock(name, ahead));
    }
    Ok((findings, answers))
}

async fn tables(
    name: &AccountName,
    account: &Account,
    needs: &Needs,
    context: &Context,
) -> anyhow::Result<(Vec<Diagnosis>, bool)> {
    let (mut findings, latencies, nothing) = (
        Vec::new(),
        LatencyCounts::default(),
        EntityKey::new("evenkeel-doctor", "nothing")?,
    );
    let (mut reads, mut readable): (u64, Vec<&TableName>) = (0, Vec::new());
    let existing = match all_tables(account.tables.as_ref()).await {
        Ok(existing) => existing,
        Err(error) if answers(&error) => {
            findings.push(diagnosis::failed(&error));
            needs.tables.get(name).cloned().unwrap_or_default()
        }
        Err(error) => return Ok((vec![diagnosis::failed(&error)], false)),
    };
    findings.extend(diagnosis::scratch(name, existing.iter()));
    let mut read = async |table| -> Result<(), StoreError> {
        let sent = context.clock.monotonic();
        account.tables.get(table, &nothing, None).await?;
        latencies.add(context.clock.monotonic().saturating_sub(sent));
        reads += 1;
        Ok(())
    };
    for table in needs.tables.get(name).into_iter().flatten() {
        match read(table).await {
            Ok(()) => readable.push(table),
            // A missing table is reported by the check of the catalog.
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
            Err(error) => {
                findings.push(diagnosis::failed(&error));
                if !answers(&error) {
                    return Ok((findings, false));
                }
            }
        }
    }
    if let Some(table) = readable.first() {
        for _ in u64::try_from(readable.len())?..READS {
            if read(table).await.is_err() {
                break;
            }
        }
    }
    findings.push(Diagnosis::ok(
        "tables",
        name,
        format!(
            "{} tables exist; {} tables of the catalog are readable",
            existing.len(),
            readable.len()
        ),
    ));
    findings.extend(diagnosis::latency(name, &latencies.snapshot(), reads));
    Ok((findings, true))
}

async fn blobs(
    name: &AccountName,
    account: &Account,
    needs: &Needs,
) -> anyhow::Result<Vec<Diagnosis>> {
    let (mut findings, any, mut readable) = (Vec::new(), BlobName::new("evenkeel-doctor")?, 0);
    for container in needs.containers.get(name).into_iter().flatten() {
        match account.blobs.get(container, &any, Some(0..1)).await {
            Ok(_) => readable += 1,
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
            Err(error) => {
                findings.push(diagnosis::failed(&error));
                if !answers(&error) {
                    return Ok(findings);
                }
            }
        }
    }
    if readable > 0 {
        findings.push(Diagnosis::ok(
            "blobs",
            name,
            format!("{readable} containers of the catalog are readable"),
        ));
    }
    Ok(findings)
}

/// Checks the shards and the poison queue of a queue. Also returns whether the queue service
/// answers. `workers` is the number of running workers.
pub(super) async fn queue(
    queue: &QueueSettings,
    workers: Option<usize>,
    context: &Context,
    direct: &DirectAccess,
) -> anyhow::Result<(Vec<Diagnosis>, bool)> {
    let account = direct.stores.account(&queue.account)?;
    let mut findings = Vec::new();
    for shard in queue.shard_names() {
        match waiting(account, &shard, context).await {
            Ok((messages, age)) => {
                findings.push(diagnosis::backlog(&shard, messages, age, workers));
            }
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
            Err(error) => {
                findings.push(diagnosis::failed(&error));
                if !answers(&error) {
                    return Ok((findings, false));
                }
            }
        }
    }
    match account
        .queues
        .approximate_count(&queue.name.with_suffix("-poison")?)
        .await
    {
        Ok(poisoned) => findings.push(diagnosis::poison(queue, poisoned)),
        Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
        Err(error) => findings.push(diagnosis::failed(&error)),
    }
    Ok((findings, true))
}

/// Number of messages of a queue, and the age of the oldest one among the first visible messages.
async fn waiting(
    account: &Account,
    queue: &QueueName,
    context: &Context,
) -> Result<(u64, Duration), StoreError> {
    let messages = account.queues.approximate_count(queue).await?;
    let visible = account.queues.peek(queue, QUEUE_BATCH).await?;
    let oldest = visible.iter().map(|message| message.inserted).min();
    let age = oldest
        .and_then(|inserted| Duration::try_from(context.clock.now().duration_since(inserted)).ok());
    Ok((messages, age.unwrap_or_default()))
}

pub(super) async fn catalog(migrator: &Migrator, context: &Context) -> Vec<Diagnosis> {
    match migrator.status().await {
        Ok(mut status) => {
            status.indexes = migrator.indexes().await;
            let mut findings = diagnosis::catalog(&status, &context.settings.migrate);
            match migrator.survey_with(&status.pending, |_| true).await {
                Ok(surveys) => findings.extend(diagnosis::views(&surveys)),
                Err(error) => {
                    let finding = format!(
                        "could not sample the data of the views: {}",
                        cause::chain(&error)
                    );
                    findings.push(Diagnosis::warning(
                        "views",
                        &AccountName::main(),
                        finding,
                        "check that this account may read the tables of primaries",
                    ));
                }
            }
            findings
        }
        Err(error) => {
            let words = cause::chain(&error);
            vec![Diagnosis::error(
                "catalog",
                &AccountName::main(),
                words,
                "`evenkeel migrate status` checks it again",
            )]
        }
    }
}
