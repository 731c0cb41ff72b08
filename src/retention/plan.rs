//! What is to be created and dropped: pure.

use jiff::Timestamp;

use crate::catalog::Retention;
use crate::model::TableName;

/// What is to be done about the tables of a retention.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Plan {
    /// Tables to create.
    pub(super) create: Vec<TableName>,
    /// Tables to drop.
    pub(super) drop: Vec<TableName>,
}

/// Decides, from the tables that are there.
pub(super) fn plan(retention: &Retention, there: &[TableName], now: Timestamp) -> Plan {
    Plan {
        create: retention.wanted(now).into_iter().filter(|wanted| !there.contains(wanted)).collect(),
        drop: there.iter().filter(|table| retention.is_over(table, now)).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::dated::DatedTables;
    use crate::model::{AccountName, ViewName};
    use std::time::Duration;

    #[test]
    fn what_is_missing_is_created_and_only_what_the_pattern_has_and_is_over_is_dropped() {
        let retention = Retention {
            name: ViewName::new("logins").unwrap(),
            account: AccountName::main(),
            tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
            keep: Duration::from_hours(24),
            ahead: 2,
            archive_to: None,
        };
        let tables = |names: &[&str]| names.iter().map(|name| TableName::new(*name).unwrap()).collect::<Vec<_>>();
        let there =
            tables(&["Employees", "Logins", "Logins20261117", "logins20261118", "Logins20261119", "Logins20261120", "LoginsOld20200101"]);
        let plan = plan(&retention, &there, "2026-11-20T06:00:00Z".parse().unwrap());
        assert_eq!(
            plan,
            Plan { create: tables(&["Logins20261121", "Logins20261122"]), drop: tables(&["Logins20261117", "Logins20261118"]) }
        );
    }
}
