//! Retention: dated tables that are created in advance, kept for a time, and then dropped as a
//! whole.

use std::time::Duration;

use jiff::Timestamp;

use super::clause::{Clause, Clauses, Declaration, Fact};
use super::place::Place as _;
use super::{DatedRef, Followers, TableRef};
use crate::dated::DatedTables;
use crate::{AccountName, ContainerName, TableName, ViewName};

pub use crate::settled::FOOTPRINTS;

/// `[retention.NAME]`: the dated tables of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// The name of the retention.
    pub name: ViewName,
    /// The account of the tables.
    pub account: AccountName,
    /// The pattern of the table names.
    pub tables: DatedTables,
    /// How long a table is kept after its period has ended.
    pub keep: Duration,
    /// How many tables after the current one are created in advance.
    pub ahead: u32,
    /// Where the rows of a table are archived before the table is dropped.
    pub archive_to: Option<TableArchive>,
}

/// Where the rows of a table are archived, as files of JSON lines, before the table is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableArchive {
    /// A container.
    Blob {
        /// The account.
        account: AccountName,
        /// The container.
        container: ContainerName,
    },
    /// A folder that every worker shares.
    File {
        /// The folder.
        dir: String,
    },
}

impl Retention {
    /// Default number of tables that are created in advance.
    pub const AHEAD: u32 = 2;

    /// The dated tables of the retention.
    pub fn source(&self) -> DatedRef {
        DatedRef {
            account: self.account.clone(),
            tables: self.tables.clone(),
        }
    }

    /// The tables with the footprints of the retention's primaries. Each table of the retention has
    /// its own table of footprints, so that both are dropped together. `None` if the names of the
    /// tables of footprints would be too long.
    pub fn footprints(&self) -> Option<DatedRef> {
        let tables = DatedTables::parse(&format!("{FOOTPRINTS}{}", self.tables)).ok()?;
        Some(DatedRef {
            account: self.account.clone(),
            tables,
        })
    }

    pub(super) fn clauses(&self, followers: &Followers) -> Vec<Clause<'_>> {
        let mut clauses = Clauses::of(Declaration::Retention(&self.name));
        let message = format!(
            "{} already has these tables; a table can belong to one retention only",
            clauses.by
        );
        let thing = format!("the tables {}", self.tables.canonical());
        clauses.owns("tables", thing, message);
        clauses.is(&self.source().tables(), Fact::Dropped);
        for target in &followers.targets {
            clauses.is(&target.tables(), Fact::Follows);
        }
        clauses.all
    }

    /// The table with this name, spelled like the pattern; `None` if the name does not match the
    /// pattern.
    pub fn table(&self, name: &TableName) -> Option<TableRef> {
        self.source().table(name)
    }

    /// The time until which a table is kept; `None` if the name does not match the pattern.
    pub fn kept_until(&self, name: &TableName) -> Option<Timestamp> {
        self.tables
            .period(name)
            .map(|(_, ends)| ends.saturating_add(self.keep).unwrap_or(Timestamp::MAX))
    }

    /// Whether this is a table of the retention that has been kept long enough.
    pub fn is_expired(&self, name: &TableName, now: Timestamp) -> bool {
        self.kept_until(name).is_some_and(|until| until <= now)
    }

    /// The tables that must exist at this time: the current one, and those that are created in
    /// advance.
    pub fn required(&self, now: Timestamp) -> Vec<TableName> {
        self.tables.from(now, self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_kept_for_its_time_after_its_period_ends() {
        let retention = Retention {
            name: ViewName::new("logins").unwrap(),
            account: AccountName::main(),
            tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
            keep: Duration::from_hours(48),
            ahead: 1,
            archive_to: None,
        };
        let name = TableName::new("logins20261120").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert!(!retention.is_expired(&name, at("2026-11-22T23:59:59Z")));
        assert!(retention.is_expired(&name, at("2026-11-23T00:00:00Z")));
        assert!(!retention.is_expired(&TableName::new("Employees").unwrap(), Timestamp::MAX));
        assert_eq!(
            retention
                .table(&name)
                .map(|table| table.to_string())
                .as_deref(),
            Some("Logins20261120")
        );
        let wanted: Vec<String> = retention
            .required(at("2026-11-20T12:00:00Z"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(wanted, ["Logins20261120", "Logins20261121"]);
    }
}
