//! The changes of a migration, the consent that each change needs, and their texts.

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
    /// Create the table EvenkeelMigrations, in which the other changes are recorded.
    CreateRecord {
        account: AccountName,
    },
    Apply {
        account: AccountName,
        number: String,
        name: String,
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
    /// Record the names that jobs may use. A worker whose catalog lacks a name leaves the jobs with
    /// that name to other workers.
    RecordNames {
        names: BTreeSet<String>,
    },
    /// Record the configured archives, retentions and rules. Commands that remove entities because
    /// of them use only the recorded ones.
    RecordDeclarations {
        /// Declarations that are new or differ from the record.
        changes: Vec<DeclarationChange>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewChange {
    pub view: ViewName,
    /// The view's new generation. For a retired view, the last generation.
    pub generation: u32,
    pub action: ViewAction,
    #[serde(serialize_with = "source")]
    pub source: Source,
    /// Dated tables whose items belong to this view, now or under an earlier definition.
    #[serde(skip)]
    pub followers: BTreeSet<DatedRef>,
    /// Accounts over which the view's items are spread from now on; empty if they are in one
    /// account.
    #[serde(skip)]
    pub accounts: BTreeSet<AccountName>,
    /// Accounts that the view no longer uses. Reconciles of the primaries delete its items there.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left: BTreeSet<AccountName>,
    /// Keys of the view's section whose values differ from the record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyChange>,
    /// The view's recorded definition; `None` if the view is new.
    #[serde(skip)]
    pub former: Option<Definition>,
    /// The view's new definition; `None` if the view is retired.
    #[serde(skip)]
    pub definition: Option<Definition>,
    #[serde(skip)]
    pub owner: CatalogOwner,
}

fn source<S: serde::Serializer>(source: &Source, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(source)
}

/// What happened to a view since the last migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ViewAction {
    New,
    Changed,
    /// The view was retired and is declared again.
    Restored,
    /// The view is no longer declared. Reconciles of its primaries delete its items.
    Retired,
    Claimed,
    /// Items of a later generation than the recorded one exist, because the record was lost or was
    /// restored from a backup.
    Overtaken,
}

/// Which changes a migration may make. Each level includes the changes of the levels before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consent {
    /// Missing resources are created and new views are recorded. Workers do this without an
    /// operator.
    Additions,
    /// In addition, generations are raised if items of a later generation exist, and archives,
    /// retentions and rules are recorded. This is `migrate up`.
    Recovery,
    /// In addition, views are retired, replaced, or taken over from another owner. This is `migrate
    /// up --retire`.
    Replacement,
}

impl ViewAction {
    pub const fn needs(self) -> Consent {
        match self {
            Self::New => Consent::Additions,
            Self::Overtaken => Consent::Recovery,
            // `Restored` needs this consent, too: the view was retired on purpose, and an outdated
            // worker must not restore it.
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
                "record view {view} of {source} with the new owner {owner}, generation {generation}"
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
