//! `[[queues]]`

use std::collections::{BTreeMap, BTreeSet};

use super::section::{AlreadyReported, Section};
use super::tree::{Node, Toml};
use evenkeel_model::allowed::{AllowedTable, AllowedTables, JobAllowance};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::nearest::{meant_or_known, nearest};
use evenkeel_model::settings::{Concurrency, QueueSettings};
use evenkeel_model::{AccountName, QueueName, TableName, job};

/// Maximum number of jobs in flight from one queue. Further jobs would only wait in memory, because the store limits
/// the request rate.
const MAX_CONCURRENCY: u32 = 10_000;
/// Shards are numbered with two digits.
const MAX_SHARDS: u32 = 100;

/// Reads every queue, and checks that no two queues share a name, including the names of shards and of the poison and recheck queues.
pub(super) fn read(root: &Section<'_>, accounts: &[AccountName]) -> Vec<QueueSettings> {
    let sections = root.table_list("queues");
    if matches!(root.node("queues"), Some(Node { kind: Toml::List(items), .. }) if items.is_empty())
    {
        root.error(
            "queues",
            "expected at least one queue, such as [[queues]] with name = \"evenkeel-jobs\"",
        );
    }
    let mut taken: BTreeMap<(AccountName, QueueName), String> = BTreeMap::new();
    let mut queues = Vec::new();
    for section in sections {
        let Some(queue) = queue(&section, accounts) else {
            continue;
        };
        let derived = |suffix: &str| queue.name.with_suffix(suffix).ok();
        let mut names = queue.shard_names();
        names.extend(
            [derived("-poison"), derived("-recheck")]
                .into_iter()
                .flatten(),
        );
        names.push(queue.name.clone());
        names.sort();
        names.dedup();
        for name in names {
            let owner = format!("queue {:?}", queue.name.as_str());
            if let Some(first) = taken.insert((queue.account.clone(), name.clone()), owner.clone())
            {
                let message = if first == owner {
                    format!("{owner} is declared twice")
                } else {
                    format!(
                        "{owner} would share the queue {:?} with {first}; expected another name",
                        name.as_str()
                    )
                };
                section.error("name", message);
                break;
            }
        }
        queues.push(queue);
    }
    queues
}

fn queue(section: &Section<'_>, accounts: &[AccountName]) -> Option<QueueSettings> {
    let name = section.required(
        "name",
        "a queue name, such as \"evenkeel-jobs\"",
        str::parse::<QueueName>,
    );
    let account = super::views::account(section, accounts, "account");
    let concurrency = match section.peek_text("concurrency") {
        Some("auto") => Some(Concurrency::Auto),
        None if !section.has("concurrency") => Some(Concurrency::Auto),
        Some(_) | None => section
            .integer("concurrency", 1..=MAX_CONCURRENCY)
            .map(|jobs| Concurrency::Fixed(jobs as usize)),
    };
    let shards = section.with_default("shards", 1, |key| section.integer(key, 1..=MAX_SHARDS));
    let (allow, tables) = (allow(section), tables(section));
    section.finish();
    let (name, shards) = (name?, shards?);
    // The longest derived name has a shard's number and the longest suffix.
    let longest = format!("{}-recheck", if shards > 1 { "-00" } else { "" });
    if name.with_suffix(&longest).is_err() {
        section.error(
            "name",
            format!(
                "expected at most {} characters, because \"{name}{longest}\" must be a queue name too; found {}",
                63 - longest.len(),
                name.as_str().len()
            ),
        );
        return None;
    }
    Some(QueueSettings {
        name,
        account: account.ok()?.unwrap_or_else(AccountName::main),
        concurrency: concurrency?,
        shards,
        allowed: JobAllowance {
            ops: allow.ok()?,
            tables: tables.ok()?,
        },
    })
}

fn tables(section: &Section<'_>) -> Result<Option<AllowedTables>, AlreadyReported> {
    section.optional("tables", |section| {
        let tables = section.list("tables", |text| AllowedTable::parse(&text))?;
        if tables.is_empty() {
            section.error(
                "tables",
                "expected at least one table. Remove the key to allow all tables",
            );
            return None;
        }
        Some(AllowedTables::new(tables))
    })
}

pub(super) fn check(root: &Section<'_>, catalog: &Catalog) {
    for section in root
        .table_list("queues")
        .iter()
        .filter(|section| section.has("tables"))
    {
        section.list("tables", |text| match AllowedTable::parse(&text) {
            Ok(AllowedTable::One(table))
                if catalog.table(&table).is_none()
                    && !catalog.archived_values.contains_key(&table) =>
            {
                let known: Vec<&str> = catalog.tables.keys().map(TableName::as_str).collect();
                Err(format!(
                    "the catalog has no table {text:?}; {}",
                    meant_or_known(&text, &known)
                ))
            }
            Ok(AllowedTable::Dated(dated))
                if !catalog
                    .retentions
                    .values()
                    .any(|retention| retention.tables == dated) =>
            {
                Err(format!("no [retention] has the tables {text:?}"))
            }
            // Parse errors are already reported.
            Ok(_) | Err(_) => Ok(()),
        });
    }
}

fn allow(section: &Section<'_>) -> Result<Option<BTreeSet<String>>, AlreadyReported> {
    let known = |op: String| {
        if job::OPS.contains(&op.as_str()) {
            return Ok(op);
        }
        let hint = nearest(&op, job::OPS.iter().copied())
            .map(|known| format!("; did you mean {known:?}?"))
            .unwrap_or_default();
        Err(format!(
            "unknown operation {op:?}; known are {}{hint}",
            job::OPS.join(", ")
        ))
    };
    section.optional("allow", |section| {
        let allowed = section.list("allow", known)?;
        if allowed.is_empty() {
            section.error(
                "allow",
                "expected at least one operation. Remove the key to allow all operations",
            );
            return None;
        }
        Some(allowed.into_iter().collect())
    })
}
