//! Changes that a migration makes, with the consent that each needs, and in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::DeclarationChange;
use evenkeel_model::catalog::{DatedRef, Definition, KeyChange, Source};
use evenkeel_model::{
    AccountName, CatalogOwner, CollectionName, ContainerName, QueueName, TableName, ViewName,
};

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Planned {
    /// Create EvenkeelMigrations, in which the others are recorded.
    CreateRecord {
        /// The account.
        account: AccountName,
    },
    /// Apply a numbered migration.
    Apply {
        /// The account.
        account: AccountName,
        /// Its number.
        number: String,
        /// Its name.
        name: String,
        /// Its purpose.
        description: String,
    },
    /// Create a declared table.
    CreateTable {
        /// The account.
        account: AccountName,
        /// The table.
        table: TableName,
    },
    /// Create a declared queue, its poison queue or its recheck queue.
    CreateQueue {
        /// The account.
        account: AccountName,
        /// The queue.
        queue: QueueName,
    },
    /// Create a declared container.
    CreateContainer {
        /// The account.
        account: AccountName,
        /// The container.
        container: ContainerName,
    },
    /// Create a table in a database, or add columns to it.
    DefineTable {
        /// The sink.
        sink: AccountName,
        /// The table.
        table: CollectionName,
        /// Whether the table is there.
        exists: bool,
        /// The columns that it lacks, each with its type.
        columns: BTreeMap<String, String>,
    },
    /// Record a view.
    RecordView(ViewChange),
    /// Record names that jobs may have from now on: workers with a catalog that lacks them leave such jobs to others.
    RecordNames {
        /// The archives and tables.
        names: BTreeSet<String>,
    },
    /// Record archives, retentions and rules as they are configured: commands that remove by them work by the recorded ones alone.
    RecordDeclarations {
        /// What is new, or changed since it was recorded.
        changes: Vec<DeclarationChange>,
    },
}

/// A change of the catalog's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewChange {
    /// The view.
    pub view: ViewName,
    /// Its generation from now on, or its last one.
    pub generation: u32,
    /// Kind of change to it.
    pub action: ViewAction,
    /// Its source.
    #[serde(serialize_with = "source")]
    pub source: Source,
    /// Tables by date that follow those of its source, or once did.
    #[serde(skip)]
    pub followers: BTreeSet<DatedRef>,
    /// The accounts among which its items are spread from now on; none where they lie in one.
    #[serde(skip)]
    pub accounts: BTreeSet<AccountName>,
    /// The accounts that had items of it and have none from now on: its items leave them as their primaries are reconciled.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left: BTreeSet<AccountName>,
    /// The keys of its section with other values than the recorded ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
    /// Its recorded definition; nothing where it is new.
    #[serde(skip)]
    pub former: Option<Definition>,
    /// Its definition from now on; nothing for a view that is gone.
    #[serde(skip)]
    pub definition: Option<Definition>,
    /// Its owner from now on.
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
    /// It is new.
    New,
    /// Its definition changed.
    Changed,
    /// It was retired and is declared again.
    Restored,
    /// It is no longer declared: its items are dropped as their primaries are reconciled.
    Retired,
    /// Another owner's until now.
    Claimed,
    /// Items of a later generation than the recorded one exist: the record was lost, or restored from a copy.
    Overtaken,
}

/// Changes that a migration may make without asking; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consent {
    /// Create missing things, and record views that are new: workers do so by themselves.
    Additions,
    /// Also number views anew where their items are of a later generation than the record says, and record archives, retentions and rules:
    /// `migrate up`.
    Recovery,
    /// Also retire views, replace their definitions, and take them from another owner: `migrate up --retire`.
    Replacement,
}

impl ViewAction {
    /// The consent that it needs.
    pub const fn needs(self) -> Consent {
        match self {
            Self::New => Consent::Additions,
            Self::Overtaken => Consent::Recovery,
            // A view that comes back was retired deliberately: a stale worker must not undo that.
            Self::Changed | Self::Restored | Self::Retired | Self::Claimed => Consent::Replacement,
        }
    }
}

impl Planned {
    /// The consent that it needs.
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

impl fmt::Display for Planned {
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
                write!(f, "record that jobs may name {}", names.join(", "))
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
                "record view {view} of {source} as back, generation {generation}"
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
                let met = generation.saturating_sub(1);
                write!(
                    f,
                    "record view {view} of {source} anew, generation {generation}: items of generation {met} exist"
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
                "; its items leave {0}: keep {0} until `evenkeel backfill --view {view}` has ended",
                sections.join(", ")
            )
        }
    }
}
