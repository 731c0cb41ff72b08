//! The rows of the table EvenkeelMigrations.
//!
//! | PartitionKey | RowKey | holds |
//! | --- | --- | --- |
//! | `migration` | `0001` | a numbered migration that was applied: Name, Checksum, AppliedAt |
//! | `catalog` | `generation` | the number of the whole catalog: Version, Generation, First, RecordedAt (account `main`) |
//! | `catalog` | `view~NAME` | a view: Version, Generation, Definition0, Definition1 …, SourceAccount, SourceTable, Retired, Owner, RecordedAt |
//! | `catalog` | `met~NAME` | the latest generation of a view's items, if it is later than the recorded one |
//! | `catalog` | `name~KIND:NAME` | an archive or a table that jobs may name (dated tables with `~` for `%`): RecordedAt |
//! | `catalog` | `declared~OWNER` | an owner's archives, retentions and rules: Version, Declared0, Declared1 …, RecordedAt |
//! | `rule` | `OWNER~NAME` of a rule | the last time its job was sent: SentAt, Job, Count; ClaimedAt while it is being sent ([`evenkeel_engine::retention`]) |
//! | `drop` | `OWNER~NAME` of a dated table | the same properties for its `drop_table` job; the row is deleted once the table is gone, but stays if the retention was removed before |
//! | `worker` | a worker's name | its version; the Timestamp is the time of its last sign of life |
//! | `time` | `now` | nothing; the Timestamp is the service's time |
//!
//! For a view of dated tables, SourceTable is the pattern of these tables. Followers is a JSON
//! array; its objects have the account and the pattern of dated tables that hold items of the
//! view, or once held them. Accounts is a JSON array of the accounts over which the items of a view
//! are spread. Definition0, Definition1 … are the keys of a view's section as a JSON object. If an
//! earlier object was longer, its end may follow. Declared0, Declared1 … are a JSON object, split
//! over these properties. It has the hash of the definition for each kind and name; the hash is
//! empty if the definition was removed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::planned::{ViewAction, ViewChange};
use super::{AppliedMigration, Declarations, Migration, MigrationError, RecordedView};
use evenkeel_model::catalog::{DatedRef, Definition, Source, TableRef, View};
use evenkeel_model::dated::DatedTables;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::stored::{self, FormatError, VERSION_PROPERTY};
use evenkeel_model::{
    AccountName, CatalogOwner, EdmValue, Entity, EntityKey, Key, Row, TableName, ViewName, limits,
};

/// Version of the rows of the catalog's record. Rows that only record a name have no version.
const VERSION: u32 = 1;
/// Partition of the applied migrations.
pub(super) const MIGRATION: &str = "migration";
/// Partition of the catalog's record. All its rows are in one partition, so that the record can
/// change in one transaction.
pub(super) const CATALOG: &str = "catalog";
const GENERATION: &str = "generation";
const VIEW: &str = "view~";
const LATER: &str = "met~";
const NAME: &str = "name~";
const DECLARED: &str = "declared~";

pub(super) fn table() -> Result<TableName, MigrationError> {
    TableName::new(MIGRATIONS).map_err(|error| bug(&error))
}

fn bug(error: &dyn std::error::Error) -> MigrationError {
    MigrationError::File {
        file: MIGRATIONS.to_owned(),
        problem: error.to_string(),
    }
}

fn key(pk: &str, rk: impl Into<String>) -> Result<EntityKey, MigrationError> {
    EntityKey::new(pk, rk).map_err(|error| bug(&error))
}

pub(super) fn catalog_partition() -> Result<Key, MigrationError> {
    Key::new(CATALOG).map_err(|error| bug(&error))
}

pub(super) fn generation_key() -> Result<EntityKey, MigrationError> {
    key(CATALOG, GENERATION)
}

fn number(value: u32) -> EdmValue {
    EdmValue::Int64(i64::from(value))
}

pub(super) fn applied(migration: &Migration, now: Timestamp) -> Result<Entity, MigrationError> {
    Ok(Entity::new(key(MIGRATION, migration.number.clone())?)
        .with("Name", migration.name.clone())
        .with("Checksum", migration.checksum.clone())
        .with("AppliedAt", EdmValue::moment(now))
        .with("Evenkeel", env!("CARGO_PKG_VERSION")))
}

pub(super) fn generation(
    value: u32,
    first: bool,
    now: Timestamp,
) -> Result<Entity, MigrationError> {
    Ok(Entity::new(generation_key()?)
        .with(VERSION_PROPERTY, VERSION.cast_signed())
        .with("Generation", number(value))
        .with("First", first)
        .with("RecordedAt", EdmValue::moment(now))
        .with("Evenkeel", env!("CARGO_PKG_VERSION")))
}

pub(super) fn time_mark(now: Timestamp) -> Result<Entity, MigrationError> {
    Ok(Entity::new(key("time", "now")?).with("AskedAt", EdmValue::moment(now)))
}

pub(super) fn later_generation(
    view: &ViewName,
    generation: u32,
    now: Timestamp,
) -> Result<Entity, MigrationError> {
    let entity = Entity::new(key(CATALOG, format!("{LATER}{view}"))?);
    Ok(entity
        .with("Generation", number(generation))
        .with("RecordedAt", EdmValue::moment(now)))
}

/// The row that records a name that jobs may use. Some clients misread a `%` in a key, so it is
/// replaced by `~`.
pub(super) fn name(name: &str, now: Timestamp) -> Result<Entity, MigrationError> {
    let key = key(CATALOG, format!("{NAME}{}", name.replace('%', "~")))?;
    Ok(Entity::new(key).with("RecordedAt", EdmValue::moment(now)))
}

pub(super) fn declarations(
    owner: &CatalogOwner,
    declared: &Declarations,
    now: Timestamp,
) -> Result<Entity, MigrationError> {
    let mut entity = Entity::new(key(CATALOG, format!("{DECLARED}{owner}"))?)
        .with(VERSION_PROPERTY, VERSION.cast_signed())
        .with("RecordedAt", EdmValue::moment(now));
    entity = in_parts(entity, "Declared", &serde_json::json!(declared).to_string());
    Ok(entity)
}

fn in_parts(entity: Entity, name: &str, text: &str) -> Entity {
    let text: Vec<char> = text.chars().collect();
    // A part has at most a quarter as many characters as a string may have UTF-16 units. A character
    // has one or two units, so each part fits.
    let parts = text.chunks(limits::STRING_UTF16_UNITS / 4).enumerate();
    parts.fold(entity, |entity, (part, text)| {
        entity.with(format!("{name}{part}"), text.iter().collect::<String>())
    })
}

fn parts<'e>(entity: &'e Entity, name: &'static str) -> impl Iterator<Item = &'e str> {
    (0..).map_while(move |part| entity.text(&format!("{name}{part}")))
}

/// The keys of a view's section; `None` if they are not a valid definition.
fn definition(entity: &Entity, name: &ViewName, source: &Source) -> Option<Definition> {
    let text: String = parts(entity, "Definition").collect();
    // If a previous definition was longer, its end follows the current one and is ignored.
    let definition = serde_json::Deserializer::from_str(&text)
        .into_iter::<Definition>()
        .next()?
        .ok()?;
    let is_read = match source {
        Source::Table(table) => View::recorded(name, table, &definition).is_some(),
        Source::Dated(dated) => View::recorded(name, dated, &definition).is_some(),
    };
    is_read.then_some(definition)
}

pub(super) fn view(change: &ViewChange, now: Timestamp) -> Result<Entity, MigrationError> {
    let mut entity = Entity::new(key(CATALOG, format!("{VIEW}{}", change.view))?)
        .with(VERSION_PROPERTY, VERSION.cast_signed())
        .with("Generation", number(change.generation))
        .with("SourceAccount", change.source.account().as_str())
        .with("SourceTable", change.source.declared_name())
        .with("Retired", change.action == ViewAction::Retired)
        .with("Owner", change.owner.as_str())
        .with("RecordedAt", EdmValue::moment(now));
    if !change.followers.is_empty() {
        let followers: Vec<WireFollower> = change.followers.iter().map(WireFollower::of).collect();
        entity = entity.with("Followers", serde_json::json!(followers).to_string());
    }
    if !change.accounts.is_empty() || !change.left.is_empty() {
        entity = entity.with("Accounts", serde_json::json!(change.accounts).to_string());
    }
    if let Some(definition) = &change.definition {
        entity = in_parts(entity, "Definition", &definition.to_string());
    }
    Ok(entity)
}

pub(super) enum RecordRow {
    Applied(AppliedMigration),
    Generation(u32, bool),
    View(ViewName, RecordedView),
    LaterGeneration(ViewName, u32),
    Name(String),
    Declarations(CatalogOwner, Declarations),
    Other,
}

fn source(account: &str, tables: &str) -> Result<Source, String> {
    if tables.contains('%') {
        return dated(account, tables).map(Source::Dated);
    }
    let account = AccountName::new(account).map_err(|error| error.to_string())?;
    let table = TableName::new(tables).map_err(|error| error.to_string())?;
    Ok(Source::Table(TableRef { account, table }))
}

fn dated(account: &str, tables: &str) -> Result<DatedRef, String> {
    let account = AccountName::new(account).map_err(|error| error.to_string())?;
    Ok(DatedRef {
        account,
        tables: DatedTables::parse(tables).map_err(|error| error.to_string())?,
    })
}

/// Dated tables that hold items of a view.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFollower {
    account: AccountName,
    tables: String,
}

impl WireFollower {
    fn of(DatedRef { account, tables }: &DatedRef) -> Self {
        Self {
            account: account.clone(),
            tables: tables.to_string(),
        }
    }
}

fn followers(text: &str) -> Result<BTreeSet<DatedRef>, String> {
    let followers: Vec<WireFollower> =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    followers
        .into_iter()
        .map(|WireFollower { account, tables }| {
            let tables = DatedTables::parse(&tables).map_err(|error| error.to_string())?;
            Ok(DatedRef { account, tables })
        })
        .collect()
}

pub(super) fn read(account: &AccountName, row: &Row) -> Result<RecordRow, MigrationError> {
    let entity = &row.entity;
    let wrong = |problem: String| MigrationError::Record {
        account: account.to_string(),
        row: entity.key.to_string(),
        problem,
    };
    let text = |name: &str| {
        entity
            .text(name)
            .map(str::to_owned)
            .ok_or_else(|| wrong(format!("{name} is missing")))
    };
    let known = || {
        let thing = || {
            format!(
                "the row {} of {MIGRATIONS} in account {account}",
                entity.key
            )
        };
        stored::check(entity, VERSION, thing).map_err(|error| match error {
            FormatError::Version { .. } => MigrationError::Version(error),
            FormatError::Malformed { problem, .. } => wrong(problem),
        })
    };
    let count = || match entity.get("Generation") {
        Some(EdmValue::Int64(value)) => {
            u32::try_from(*value).map_err(|error| wrong(format!("Generation is {value}: {error}")))
        }
        _ => Err(wrong("Generation is missing".to_owned())),
    };
    match (entity.key.pk.as_str(), entity.key.rk.as_str()) {
        (MIGRATION, number) => Ok(RecordRow::Applied(AppliedMigration {
            account: account.clone(),
            number: number.to_owned(),
            name: text("Name")?,
            checksum: text("Checksum")?,
            applied_at: match entity.get("AppliedAt") {
                Some(EdmValue::DateTime(moment)) => Some(moment.to_string()),
                _ => None,
            },
        })),
        (CATALOG, GENERATION) => {
            let first = matches!(entity.get("First"), Some(EdmValue::Bool(true)));
            known()?;
            Ok(RecordRow::Generation(count()?, first))
        }
        (CATALOG, rk) => {
            let named = |name: &str| ViewName::new(name).map_err(|error| wrong(error.to_string()));
            if let Some(name) = rk.strip_prefix(LATER) {
                return Ok(RecordRow::LaterGeneration(named(name)?, count()?));
            }
            if let Some(name) = rk.strip_prefix(NAME) {
                return Ok(RecordRow::Name(name.replace('~', "%")));
            }
            if let Some(owner) = rk.strip_prefix(DECLARED) {
                let owner = CatalogOwner::new(owner).map_err(|error| wrong(error.to_string()))?;
                let text: String = parts(entity, "Declared").collect();
                // An empty text shows that the row was edited by hand. Such a row is treated as
                // missing.
                if text.is_empty() {
                    return Ok(RecordRow::Other);
                }
                known()?;
                let declared = serde_json::from_str(&text)
                    .map_err(|error| wrong(format!("Declared0: {error}")))?;
                return Ok(RecordRow::Declarations(owner, declared));
            }
            let Some(name) = rk.strip_prefix(VIEW) else {
                return Ok(RecordRow::Other);
            };
            let name = named(name)?;
            known()?;
            let owner =
                CatalogOwner::new(text("Owner")?).map_err(|error| wrong(error.to_string()))?;
            let source = source(&text("SourceAccount")?, &text("SourceTable")?).map_err(wrong)?;
            let followers = match entity.text("Followers") {
                None => BTreeSet::new(),
                Some(text) => {
                    followers(text).map_err(|problem| wrong(format!("Followers: {problem}")))?
                }
            };
            let accounts: BTreeSet<AccountName> = match entity.text("Accounts") {
                None => BTreeSet::new(),
                Some(text) => serde_json::from_str(text)
                    .map_err(|error| wrong(format!("Accounts: {error}")))?,
            };
            let retired = matches!(entity.get("Retired"), Some(EdmValue::Bool(true)));
            let generation = count()?;
            let definition = definition(entity, &name, &source)
                .ok_or_else(|| wrong("Definition0 is no definition of a view".to_owned()))?;
            let view = RecordedView {
                generation,
                definition,
                source,
                followers,
                accounts,
                retired,
                owner,
            };
            Ok(RecordRow::View(name, view))
        }
        _ => Ok(RecordRow::Other),
    }
}
