//! Locations of entities: one table, or dated tables. The target of a view may also be a table that
//! exists under one name in several accounts.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use super::clause::Tables;
use crate::dated::DatedTables;
use crate::{AccountName, Key, TableName, rendezvous};

/// A table in an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableRef {
    /// The account.
    pub account: AccountName,
    /// The table, spelled as declared.
    pub table: TableName,
}

/// One account, or several accounts over which items are spread by a hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountSet {
    /// The account whose name sorts first.
    first: AccountName,
    /// The other accounts, sorted by name and without duplicates.
    others: Vec<AccountName>,
}

impl AccountSet {
    /// Makes a set of these accounts, which may be in any order; `None` if there are none.
    pub fn of(names: impl IntoIterator<Item = AccountName>) -> Option<Self> {
        let mut names = names.into_iter().collect::<BTreeSet<_>>().into_iter();
        Some(Self {
            first: names.next()?,
            others: names.collect(),
        })
    }

    /// The account that holds the items with this key: the partition key of a row, or the name of a
    /// blob.
    pub fn holder(&self, key: &str) -> &AccountName {
        rendezvous(&self.first, &self.others, key)
    }

    /// All accounts, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &AccountName> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Whether the set has several accounts.
    pub const fn is_spread(&self) -> bool {
        !self.others.is_empty()
    }

    /// Whether the set contains an account.
    pub fn has(&self, account: &AccountName) -> bool {
        self.iter().any(|own| own == account)
    }
}

impl From<AccountName> for AccountSet {
    fn from(account: AccountName) -> Self {
        Self {
            first: account,
            others: Vec::new(),
        }
    }
}

/// Joins the account names with `+`, which no account name contains.
impl fmt::Display for AccountSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.others
            .iter()
            .try_for_each(|account| write!(f, "+{account}"))
    }
}

/// A table that views write to. It exists under one name in one or several accounts, and each
/// partition is in one of these accounts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetRef {
    /// The accounts.
    pub accounts: AccountSet,
    /// The table, spelled as declared.
    pub table: TableName,
}

impl TargetRef {
    /// The table that holds a partition.
    pub fn at(&self, pk: &Key) -> TableRef {
        self.within(self.accounts.holder(pk.as_str()))
    }

    /// The table in each account.
    pub fn tables(&self) -> impl Iterator<Item = TableRef> {
        self.accounts.iter().map(|account| self.within(account))
    }

    /// The table in the first account, for callers that need only the name of the table.
    pub fn first(&self) -> TableRef {
        self.within(&self.accounts.first)
    }

    /// Whether the target includes a table.
    pub fn has(&self, table: &TableRef) -> bool {
        self.table == table.table && self.accounts.has(&table.account)
    }

    fn within(&self, account: &AccountName) -> TableRef {
        TableRef {
            account: account.clone(),
            table: self.table.clone(),
        }
    }
}

impl From<TableRef> for TargetRef {
    fn from(TableRef { account, table }: TableRef) -> Self {
        Self {
            accounts: account.into(),
            table,
        }
    }
}

/// Dated tables in an account.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatedRef {
    /// The account.
    pub account: AccountName,
    /// The pattern of the table names.
    pub tables: DatedTables,
}

impl DatedRef {
    /// The table for a moment.
    pub fn at(&self, moment: Timestamp) -> TableRef {
        TableRef {
            account: self.account.clone(),
            table: self.tables.name_at(moment),
        }
    }

    /// The table with this name, spelled like the pattern; `None` if the name does not match the
    /// pattern.
    pub fn table(&self, name: &TableName) -> Option<TableRef> {
        self.tables.period(name).map(|(begins, _)| self.at(begins))
    }
}

/// A location of entities that a view reads or writes.
pub trait Place {
    /// The table, or the dated tables.
    fn tables(&self) -> Tables;
    /// An identifier of the location. All spellings of one location have the same identifier.
    fn canonical(&self) -> String;
}

/// A location of the primaries of views.
pub trait SourcePlace: Place {
    /// The location of a view's items, if the items are rows.
    type Target: Place + Clone + fmt::Debug;
}

impl SourcePlace for TableRef {
    type Target = TargetRef;
}

impl SourcePlace for DatedRef {
    type Target = Self;
}

impl Place for TargetRef {
    fn tables(&self) -> Tables {
        Tables::from(&self.table)
    }

    fn canonical(&self) -> String {
        format!("{}/{}", self.accounts, self.table.canonical())
    }
}

impl Place for TableRef {
    fn tables(&self) -> Tables {
        Tables::from(&self.table)
    }

    fn canonical(&self) -> String {
        format!("{}/{}", self.account, self.table.canonical())
    }
}

impl Place for DatedRef {
    fn tables(&self) -> Tables {
        Tables::Dated(self.tables.clone())
    }

    fn canonical(&self) -> String {
        format!("{}/{}", self.account, self.tables.canonical())
    }
}

/// The source of a view: one table, or dated tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One table.
    Table(TableRef),
    /// Dated tables.
    Dated(DatedRef),
}

impl Source {
    /// The account.
    pub const fn account(&self) -> &AccountName {
        match self {
            Self::Table(TableRef { account, .. }) | Self::Dated(DatedRef { account, .. }) => {
                account
            }
        }
    }

    /// The table name or pattern, as the configuration spells it.
    pub fn declared_name(&self) -> String {
        match self {
            Self::Table(table) => table.table.to_string(),
            Self::Dated(dated) => dated.tables.to_string(),
        }
    }

    /// Whether the source is this table, or includes it.
    pub fn has(&self, table: &TableRef) -> bool {
        match self {
            Self::Table(own) => own == table,
            Self::Dated(dated) => {
                dated.account == table.account && dated.tables.period(&table.table).is_some()
            }
        }
    }

    /// An identifier of the source. All spellings of one source have the same identifier.
    pub fn canonical(&self) -> String {
        match self {
            Self::Table(table) => table.canonical(),
            Self::Dated(dated) => dated.canonical(),
        }
    }
}

fn written(
    f: &mut fmt::Formatter<'_>,
    account: &impl fmt::Display,
    what: impl fmt::Display,
) -> fmt::Result {
    let account = account.to_string();
    if account == AccountName::main().as_str() {
        write!(f, "{what}")
    } else {
        write!(f, "{account}:{what}")
    }
}

impl fmt::Display for TableRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, &self.account, &self.table)
    }
}

impl fmt::Display for TargetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, &self.accounts, &self.table)
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
