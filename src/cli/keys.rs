use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use serde::Serialize;
use serde_json::{Value, json};

use super::progress::Progress;
use super::{Context, Exit, Format, Output, UsageError, args, help};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::item::VIEW_PROPERTY;
use evenkeel_model::job::Primary;
use evenkeel_model::large::Pointer;
use evenkeel_model::names::KEYS;
use evenkeel_model::settings::{VaultKey, WrappedText};
use evenkeel_model::{AccountName, EdmValue, EntityKey, Key, Row, cause, odata};
use evenkeel_ops::logging::AUDIT;
use evenkeel_storage::encryption::{self, DataKeyError, DataKeys};
use evenkeel_storage::{Account, ErrorClass, Missing, Query};

const PARALLEL: usize = 16;
const PAGE: u32 = 1_000;

#[derive(Debug, Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    pub action: KeysAction,
}

#[derive(Debug, Subcommand)]
pub enum KeysAction {
    /// Count the data keys by the key-encryption key that wraps them
    #[command(after_help = help::after(&[
        ("evenkeel keys list", "how many data keys each key-encryption key wraps, by account"),
        ("evenkeel keys list --json", "for scripts"),
    ]))]
    List,
    /// Create a key-encryption key, wrapped by a key of Azure Key Vault
    ///
    /// [encryption.keys.NAME] names the vault's key (`vault_key`) and the identity that may use it. The output is not secret: only the
    /// vault can unwrap it, and does so once for each process.
    #[command(after_help = help::after(&[
        ("evenkeel keys new k2027", "prints the line for [encryption.keys.k2027]"),
        ("evenkeel keys new k2027 --json", "for scripts"),
    ]))]
    New(NewArgs),
    /// Wrap every data key by the current key-encryption key
    ///
    /// No entity is written. The command can run while workers run, and can be interrupted and repeated. A key-encryption key that
    /// wraps no data key may be removed from the configuration.
    #[command(after_help = help::after(&[
        ("evenkeel keys rewrap", "after another key became current in [encryption] and every worker runs with it"),
    ]))]
    Rewrap,
    /// Encrypt the plain values of a table that is encrypted now
    ///
    /// Reads every entity of the table and sends a job for each that has a plain value of an encrypted property. Copies follow. If an
    /// entity changes before its job runs, it is left to the next run. Repeat the command until it finds nothing; until then readers
    /// need --allow-plain. Run it soon: it cannot tell old plain values from those that somebody writes into the table in the meantime,
    /// and encrypts both.
    #[command(after_help = help::after(&[
        ("evenkeel keys encrypt Employees", "after the table was set to `encrypt`; repeat until it finds nothing"),
    ]))]
    Encrypt(EncryptArgs),
    /// Delete the data key of one entity, so that its encrypted values can never be decrypted
    ///
    /// This includes copies, archives, logs, blobs and backups. The rows stay; delete them by a job. An entity that is written again
    /// under the same key gets another data key.
    #[command(after_help = help::after(&[
        ("evenkeel keys erase Employees Sales 000223 --yes", "makes the Ssn and Salary of an employee who left unreadable, wherever they are stored"),
    ]))]
    Erase(EraseArgs),
}

#[derive(Debug, Args)]
pub struct NewArgs {
    /// The key, as [encryption.keys.NAME] declares it
    #[arg(value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct EncryptArgs {
    /// The table, which must have `encrypt`
    #[arg(value_name = "TABLE")]
    pub table: String,
}

#[derive(Debug, Args)]
pub struct EraseArgs {
    /// The table, which must have `encrypt`
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Confirm that this cannot be undone
    #[arg(long)]
    pub yes: bool,
}

/// Data keys of one account under one key-encryption key, for `--json`.
#[derive(Serialize)]
struct KeyCount<'a> {
    account: &'a AccountName,
    key: &'a str,
    /// Whether this key-encryption key wraps new data keys.
    current: bool,
    data_keys: u64,
}

/// A new key-encryption key, for `--json`.
#[derive(Serialize)]
struct NewKey<'a> {
    key: &'a str,
    wrapped_key: &'a str,
}

/// Counts of a rewrap, for `--json`.
#[derive(Debug, Default, Serialize)]
struct RewrapTally {
    data_keys: u64,
    rewrapped: u64,
    failed: u64,
}

/// Counts of entities with plain values, for `--json`.
#[derive(Debug, Default, Serialize)]
struct EncryptTally {
    entities: u64,
    /// Number of entities for which a job was sent.
    plain: u64,
    /// Number of entities with a value in a blob. Blobs are not read, so the value may be plain.
    in_blobs: u64,
}

/// Runs a subcommand of `keys`. `draw` creates a new key-encryption key that is wrapped by a key of
/// Azure Key Vault.
pub async fn keys(
    args: &KeysArgs,
    context: &Context,
    draw: impl AsyncFnOnce(&str, &VaultKey) -> anyhow::Result<WrappedText>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    match &args.action {
        KeysAction::List => list(context, out).await,
        KeysAction::New(args) => new(args, context, draw, out).await,
        KeysAction::Rewrap => rewrap(context, out).await,
        KeysAction::Encrypt(args) => encrypt(args, context, out).await,
        KeysAction::Erase(args) => erase(args, context, out).await,
    }
}

async fn list(context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let current = context.settings.encryption.current.as_deref();
    let mut lines = Vec::new();
    for (name, account) in context.stores.iter() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        each_page(name, account, async |rows| {
            for row in rows {
                *counts
                    .entry(encryption::key_id(&row).unwrap_or("(none)").to_owned())
                    .or_default() += 1;
            }
            Ok(())
        })
        .await?;
        lines.extend(counts.into_iter().map(|(key, count)| (name, key, count)));
    }
    let counted = lines.iter().map(|(account, key, data_keys)| KeyCount {
        account,
        key,
        current: current == Some(key),
        data_keys: *data_keys,
    });
    if out.format() == Format::Json {
        counted
            .into_iter()
            .try_for_each(|count| out.value(&count))?;
        return Ok(Exit::Done);
    }
    let mark = |count: &KeyCount<'_>| {
        if count.current {
            format!("{} (current)", count.key)
        } else {
            count.key.to_owned()
        }
    };
    let cells = counted.map(|count| {
        vec![
            count.account.to_string(),
            mark(&count),
            count.data_keys.to_string(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    if cells.is_empty() {
        out.write_note("There are no data keys.")?;
    } else {
        out.table(
            &["Account", "Key-encryption key", "Data keys"].map(str::to_owned),
            &cells,
        )?;
    }
    Ok(Exit::Done)
}

async fn new(
    args: &NewArgs,
    context: &Context,
    draw: impl AsyncFnOnce(&str, &VaultKey) -> anyhow::Result<WrappedText>,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let NewArgs { name } = args;
    let encryption = &context.settings.encryption;
    let Some(by) = encryption.unused.get(name) else {
        let problem = if encryption.keys.contains_key(name) {
            format!(
                "[encryption.keys.{name}] already has a key. Declare another name to rotate, then run `evenkeel keys rewrap`"
            )
        } else {
            format!("[encryption.keys.{name}] is not declared with a vault_key")
        };
        return Err(UsageError::new(problem).into());
    };
    let wrapped = draw(name, by).await?.to_string();
    match out.format() {
        Format::Json => out.value(&NewKey {
            key: name,
            wrapped_key: &wrapped,
        })?,
        Format::Text => out.line(format_args!("wrapped_key = \"{wrapped}\""))?,
    }
    Ok(Exit::Done)
}

async fn rewrap(context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let vault = context.stores.vault()?;
    if let Some(current) = context.settings.encryption.missing() {
        return Err(UsageError::new(format!(
            "the secret of the current key [encryption.keys.{current}] is not set"
        ))
        .into());
    }
    let mut progress = Progress::begin("rewrap", "data keys", None, out, &context.clock);
    let mut done = RewrapTally::default();
    let mut problems: BTreeMap<String, u64> = BTreeMap::new();
    for (name, account) in context.stores.iter() {
        let keys = DataKeys {
            tables: account.tables.as_ref(),
            vault,
        };
        each_page(name, account, async |rows| {
            let wrapped: Vec<Result<bool, DataKeyError>> = iter(&rows).map(|row| keys.rewrap(row)).buffered(PARALLEL).collect().await;
            for (result, row) in wrapped.into_iter().zip(&rows) {
                done.data_keys += 1;
                match result {
                    Ok(is_new) => done.rewrapped += u64::from(is_new),
                    Err(DataKeyError::Store(error)) => return Err(error.into()),
                    // If one data key cannot be rewrapped, the command still rewraps the remaining data keys.
                    Err(error) => {
                        done.failed += 1;
                        let key = encryption::key_id(row).unwrap_or("none").to_owned();
                        tracing::debug!(error = %cause::chain(&error), "could not rewrap a data key under {key}");
                        *problems.entry(key).or_default() += 1;
                    }
                }
            }
            progress.set(done.data_keys, out)?;
            Ok(())
        })
        .await?;
    }
    progress.end();
    for (key, count) in problems {
        out.write_error(format_args!(
            "not rewrapped: {count} under the key-encryption key {key}, which is not configured here or has another value"
        ))?;
    }
    if out.format() == Format::Json {
        out.value(&done)?;
    } else {
        let RewrapTally {
            data_keys,
            rewrapped,
            ..
        } = done;
        out.line(format_args!(
            "{rewrapped} of {data_keys} data keys were rewrapped with {}",
            vault.current()
        ))?;
    }
    Ok(if done.failed > 0 {
        Exit::Failed
    } else {
        Exit::Done
    })
}

async fn encrypt(args: &EncryptArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let table: TableRef = context.table(&args.table)?;
    let encrypted = encrypted(&table, context)?;
    // The jobs carry encrypted values. If the vault is not available, the command fails here, before it sends a job.
    context.stores.vault()?;
    let client = context.client();
    let mut progress = Progress::begin("encrypt", "entities", None, out, &context.clock);
    let mut done = EncryptTally::default();
    let mut lookup = client
        .lookup_table(&table.table, &[] as &[&str])?
        .scan()
        .top(PAGE);
    loop {
        let found = lookup.clone().run().await?;
        let entities = found
            .rows
            .iter()
            .filter(|row| row.entity.get(VIEW_PROPERTY).is_none());
        let entities: Vec<&Row> = entities
            .filter(|row| context.catalog.encrypts(&table, &row.entity))
            .collect();
        done.in_blobs += entities
            .iter()
            .filter(|row| encrypted.iter().any(|name| lies_in_blob(row, name)))
            .count() as u64;
        let jobs = entities
            .iter()
            .filter_map(|row| encrypting_job(&table, encrypted, row));
        let sent: Vec<_> = iter(jobs)
            .map(async |job| client.submit(&job.to_string()).await)
            .buffered(PARALLEL)
            .try_collect()
            .await?;
        done.entities += found.rows.len() as u64;
        done.plain += sent.len() as u64;
        progress.set(done.entities, out)?;
        let Some(continuation) = found.continuation else {
            break;
        };
        lookup = lookup.after(continuation);
    }
    progress.end();
    if done.in_blobs > 0 {
        let EncryptTally { in_blobs, .. } = done;
        out.write_error(format_args!("not checked: values in blobs of {in_blobs} entities. Put a value again if it was written before the table had `encrypt`"))?;
    }
    if out.format() == Format::Json {
        out.value(&done)?;
    } else {
        let EncryptTally {
            entities, plain, ..
        } = done;
        out.line(format_args!(
            "{plain} of {entities} entities of {} have plain values; a job was sent for each",
            table.table
        ))?;
    }
    Ok(Exit::Done)
}

fn lies_in_blob(row: &Row, property: &str) -> bool {
    row.entity.get(property).and_then(Pointer::of).is_some()
}

/// The job that encrypts the plain values of an entity; `None` if it has no plain values.
fn encrypting_job(table: &TableRef, encrypted: &BTreeSet<String>, row: &Row) -> Option<Value> {
    let plain = encrypted.iter().filter(|name| !lies_in_blob(row, name));
    let plain = plain
        .filter_map(|name| row.entity.properties.get_key_value(name))
        .filter(|(_, value)| !encryption::is_encrypted(value));
    let plain: BTreeMap<String, EdmValue> = plain
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    if plain.is_empty() {
        return None;
    }
    let mut entity = odata::encode_properties(&plain);
    let EntityKey { pk, rk } = &row.entity.key;
    entity.extend(
        [("PartitionKey", pk), ("RowKey", rk)]
            .map(|(name, key)| (name.to_owned(), Value::from(key.as_str()))),
    );
    Some(
        json!({"op": "put", "table": table.table, "mode": "merge", "if_match": row.etag, "entity": entity}),
    )
}

fn encrypted<'c>(
    table: &TableRef,
    context: &'c Context,
) -> Result<&'c BTreeSet<String>, UsageError> {
    let encrypted = context.catalog.encrypted.get(table);
    encrypted.ok_or_else(|| {
        UsageError::new(format!(
            "[tables.{}] has no `encrypt`, so its entities have no data keys",
            table.table
        ))
    })
}

async fn erase(args: &EraseArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let table: TableRef = context.table(&args.table)?;
    let home = Primary {
        table: table.table.clone(),
        key: EntityKey {
            pk: args.pk.clone(),
            rk: args.rk.clone(),
        },
    };
    encrypted(&table, context)?;
    if !args.yes {
        return Err(UsageError::new(format!(
            "the encrypted values of {home} could never be decrypted again. Add --yes to confirm"
        ))
        .into());
    }
    let keys = DataKeys {
        tables: context.stores.account(&table.account)?.tables.as_ref(),
        vault: context.stores.vault()?,
    };
    let Some(version) = keys.version(&home).await? else {
        return Err(anyhow!("{home} has no data key"));
    };
    keys.erase(&home, version).await?;
    tracing::warn!(target: AUDIT, entity = %home, "audit: data key erased");
    out.write_note(format_args!("The data key of {home} was erased."))?;
    Ok(Exit::Done)
}

/// Reads the rows with the data keys of an account, page by page.
async fn each_page(
    name: &AccountName,
    account: &Account,
    mut take: impl AsyncFnMut(Vec<Row>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut query = Query::default();
    loop {
        let page = match account.tables.query(&encryption::table(), &query).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => return Ok(()),
            page => page.with_context(|| format!("could not read {KEYS} of account {name}"))?,
        };
        take(page.rows).await?;
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            return Ok(());
        }
    }
}
