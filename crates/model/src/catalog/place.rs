//! Where entities lie: in one table, or in tables by date, which come and go with their periods.

use std::fmt;

use jiff::Timestamp;

use crate::model::dated::DatedTables;
use crate::model::{AccountName, TableName};

/// A table and the account it lies in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableRef {
    /// The account.
    pub account: AccountName,
    /// The table, spelled as declared.
    pub table: TableName,
}

/// Tables by date and the account they lie in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatedRef {
    /// The account.
    pub account: AccountName,
    /// Which tables.
    pub tables: DatedTables,
}

impl DatedRef {
    /// The table of a moment.
    pub fn at(&self, moment: Timestamp) -> TableRef {
        TableRef { account: self.account.clone(), table: self.tables.name_at(moment) }
    }

    /// A table of these, spelled as their pattern does; nothing for another name.
    pub fn table(&self, name: &TableName) -> Option<TableRef> {
        self.tables.period(name).map(|(begins, _)| self.at(begins))
    }
}

/// Where entities lie, as far as views need to know.
pub trait Place {
    /// A text that is the same for the same place, however it is spelled.
    fn canonical(&self) -> String;
}

impl Place for TableRef {
    fn canonical(&self) -> String {
        format!("{}/{}", self.account, self.table.canonical())
    }
}

impl Place for DatedRef {
    fn canonical(&self) -> String {
        format!("{}/{}", self.account, self.tables.canonical())
    }
}

/// What a view's primaries lie in: one table, or tables by date.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One table.
    Table(TableRef),
    /// Tables by date.
    Dated(DatedRef),
}

impl Source {
    /// The account.
    pub const fn account(&self) -> &AccountName {
        match self {
            Self::Table(TableRef { account, .. }) | Self::Dated(DatedRef { account, .. }) => account,
        }
    }

    /// The tables, as the configuration spells them.
    pub fn spelled(&self) -> String {
        match self {
            Self::Table(table) => table.table.to_string(),
            Self::Dated(dated) => dated.tables.to_string(),
        }
    }

    /// Whether a table is the one, or one of them.
    pub fn has(&self, table: &TableRef) -> bool {
        match self {
            Self::Table(own) => own == table,
            Self::Dated(dated) => dated.account == table.account && dated.tables.period(&table.table).is_some(),
        }
    }

    /// As it is compared: without regard to case.
    pub fn canonical(&self) -> String {
        match self {
            Self::Table(table) => table.canonical(),
            Self::Dated(dated) => dated.canonical(),
        }
    }
}

fn written(f: &mut fmt::Formatter<'_>, account: &AccountName, what: impl fmt::Display) -> fmt::Result {
    if *account == AccountName::main() { write!(f, "{what}") } else { write!(f, "{account}:{what}") }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, &self.account, &self.table)
    }
}

impl fmt::Display for DatedRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, &self.account, &self.tables)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Dated(dated) => dated.fmt(f),
        }
    }
}
