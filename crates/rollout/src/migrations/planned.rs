//! The changes of a migration, the consent that each needs, and their texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::DeclarationChange;
use evenkeel_model::catalog::{DatedRef, Definition, KeyChange, Source};
use evenkeel_model::{
    AccountName, CatalogOwner, CollectionName, ContainerName, QueueName, TableName, ViewName,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum PlannedChange {
    /// Create EvenkeelMigrations, which records the other changes.
    CreateRecord {
        account: AccountName,
    },
    Apply {
        account: AccountName,
        number: String,
        name: String,
        /// Purpose of the migration.
        description: String,
    },
    CreateTable {
        account: AccountName,
        table: TableName,
    },
    /// Create a declared queue, its poison queue or its recheck queue.
    CreateQueue {
        account: AccountName,
        queue: QueueName,
    },
    CreateContainer {
        account: AccountName,
        container: ContainerName,
    },
    /// Create a table in a database, or add columns to it.
    DefineTable {
        sink: AccountName,
        table: CollectionName,
        exists: bool,
        /// Missing columns with their types.
        columns: BTreeMap<String, String>,
    },
    RecordView(ViewChange),
    /// Record names that jobs may have. Workers whose catalog lacks a name leave its jobs to others.
    RecordNames {
        names: BTreeSet<String>,
    },
    /// Record the configured archives, retentions and rules. Commands that remove entities because of them use the
    /// recorded ones only.
    RecordDeclarations {
        /// Declarations that are new or differ from the record.
        changes: Vec<DeclarationChange>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewChange {
    pub view: ViewName,
    /// Its new generation; the last one if it is retired.
    pub generation: u32,
    pub action: ViewAction,
    #[serde(serialize_with = "source")]
    pub source: Source,
    /// Tables by date that follow those of its source now, or did before.
    #[serde(skip)]
    pub followers: BTreeSet<DatedRef>,
    /// Accounts over which its items are spread from now on; empty for one account.
    #[serde(skip)]
    pub accounts: BTreeSet<AccountName>,
    /// Accounts that lose their items of it: reconciles of the primaries delete them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left: BTreeSet<AccountName>,
    /// Keys of its section whose values differ from the record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
    /// Its recorded definition; `None` if it is new.
    #[serde(skip)]
    pub former: Option<Definition>,
    /// Its new definition; `None` if it is retired.
    #[serde(skip)]
    pub definition: Option<Definition>,
    #[serde(skip)]
    pub owner: CatalogOwner,
}

fn source<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

/// Kind of change to a view since the last migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewAction {
    New,
    Changed,
    /// It was retired, and is declared again.
    Restored,
    /// It is no longer declared. Reconciles of its primaries delete its items.
    Retired,
    Claimed,
    /// Items of a later generation than the recorded one exist, because the record was lost or restored from a backup.
    Overtaken,
}

/// Which changes a migration may make; each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consent {
    /// Create missing things and record new views. Workers do this themselves.
    Additions,
    /// Also raise the generations of views that have items of a later generation, and record archives, retentions and
    /// rules: `migrate up`.
    Recovery,
    /// Also retire views, replace their definitions, and take them from another owner: `migrate up --retire`.
    Replacement,
}

impl ViewAction {
    pub const fn needs(self) -> Consent {
        match self {
            Self::New => Consent::Additions,
            Self::Overtaken => Consent::Recovery,
            // A retired view was retired on purpose: an outdated worker must not undo that.
            Self::Changed | Self::Restored | Self::Retired | Self::Claimed => Consent::Replacement,
        }
    }
}

impl PlannedChange {
    pub const fn needs(&self) -> Consent {
        match self {
            Self::CreateRecord { .. }
            | Self::Apply { .. }
            | Self::CreateTable { .. }
            | Self::CreateQueue { .. }
            | Self::CreateContainer { .. }
            | Self::DefineTable { .. }
            | Self::RecordNames { .. } => Consent::Additions,
            Self::RecordView(change) => change.action.needs(),
            Self::RecordDeclarations { .. } => Consent::Recovery,
        }
    }
}

impl fmt::Display for PlannedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateRecord { account } => {
                write!(f, "create table EvenkeelMigrations (account {account})")
            }
            Self::Apply {
                account,
                number,
                name,
                description,
            } => {
                write!(
                    f,
                    "apply {number} {name}: {description} (account {account})"
                )
            }
            Self::CreateTable { account, table } => {
                write!(f, "create table {table} (account {account})")
            }
            Self::CreateQueue { account, queue } => {
                write!(f, "create queue {queue} (account {account})")
            }
            Self::CreateContainer { account, container } => {
                write!(f, "create container {container} (account {account})")
            }
            Self::DefineTable {
                sink,
                table,
                exists,
                columns,
            } => {
                let columns: Vec<String> = columns
                    .iter()
                    .map(|(name, column)| format!("{name} {column}"))
                    .collect();
                let doing = if *exists {
                    "add to table"
                } else {
                    "create table"
                };
                write!(f, "{doing} {table} (sink {sink}): {}", columns.join(", "))
            }
            Self::RecordView(change) => fmt::Display::fmt(change, f),
            Self::RecordNames { names } => {
                let names: Vec<String> = names.iter().map(|name| name.replace(':', " ")).collect();
                write!(f, "record names: {}", names.join(", "))
            }
            Self::RecordDeclarations { changes } => {
                let changes: Vec<String> = changes
                    .iter()
                    .map(|change| format!("{}{}", change.declaration, change.action.recorded()))
                    .collect();
                write!(f, "record {}", changes.join(", "))
            }
        }
    }
}

impl fmt::Display for ViewChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            view,
            generation,
            source,
            owner,
            left,
            ..
        } = self;
        match self.action {
            ViewAction::New => write!(f, "record view {view} of {source}, generation {generation}"),
            ViewAction::Changed => write!(
                f,
                "record view {view} of {source} as changed, generation {generation}"
            ),
            ViewAction::Restored => write!(
                f,
                "record view {view} of {source} as restored, generation {generation}"
            ),
            ViewAction::Retired => write!(
                f,
                "retire view {view} of {source}, last generation {generation}"
            ),
            ViewAction::Claimed => write!(
                f,
                "record view {view} of {source} as owned by {owner}, generation {generation}"
            ),
            ViewAction::Overtaken => {
                let latest = generation.saturating_sub(1);
                write!(
                    f,
                    "record view {view} of {source} again, generation {generation}: items of generation {latest} exist"
                )
            }
        }?;
        let sections: Vec<String> = left
            .iter()
            .map(|account| format!("[accounts.{account}]"))
            .collect();
        if sections.is_empty() {
            Ok(())
        } else {
            write!(
                f,
                "; its items move out of {0}: keep {0} until `evenkeel backfill --view {view}` has finished",
                sections.join(", ")
            )
        }
    }
}
