//! Decides which tables to create and to drop. This module is pure: it makes no requests and reads no clock.
//!
//! The followers of a dated table are its footprint table, and the target tables of its views. These targets have the
//! same date.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use evenkeel_model::catalog::{Followers, Retention, TableRef};
use evenkeel_model::{AccountName, TableName};

/// If a dated table does not exist, its followers are kept for at least this time after the end of their period, even
/// if the retention is shorter. A worker with a slow clock may be about to create the table.
const SURELY_OVER: SignedDuration = SignedDuration::from_hours(1);

pub type ExistingTables = BTreeMap<AccountName, BTreeSet<TableName>>;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetentionPlan {
    /// Tables to create. Each entry lists what is missing for one table: its followers first, then the table itself.
    pub create: Vec<Vec<TableRef>>,
    /// Tables to drop, together with their followers. A table that does not exist is included if it still has
    /// followers.
    pub drop: BTreeSet<TableName>,
}

pub(super) fn plan(
    retention: &Retention,
    followers: &Followers,
    existing: &ExistingTables,
    now: Timestamp,
) -> RetentionPlan {
    let exists = |table: &TableRef| {
        existing
            .get(&table.account)
            .is_some_and(|existing| existing.contains(&table.table))
    };
    let source = retention.source();
    let own: BTreeSet<TableRef> = tables(existing, &retention.account)
        .filter_map(|name| source.table(name))
        .collect();
    let (over, kept): (Vec<_>, Vec<_>) = own
        .into_iter()
        .partition(|table| retention.is_expired(&table.table, now));
    let mut plan = RetentionPlan {
        create: Vec::new(),
        drop: over.into_iter().map(|table| table.table).collect(),
    };
    let desired = retention
        .required(now)
        .into_iter()
        .filter_map(|name| source.table(&name));
    for table in desired.chain(kept).collect::<BTreeSet<_>>() {
        let Some((begins, _)) = source.tables.period(&table.table) else {
            continue;
        };
        let all = followers
            .required()
            .map(|follower| follower.at(begins))
            .chain([table]);
        let missing: Vec<TableRef> = all.filter(|table| !exists(table)).collect();
        plan.create.extend((!missing.is_empty()).then_some(missing));
    }
    for follower in followers.all() {
        for (begins, ends) in
            tables(existing, &follower.account).filter_map(|name| follower.tables.period(name))
        {
            let followed = source.at(begins);
            let is_expired = retention.is_expired(&followed.table, now)
                && ends
                    .saturating_add(SURELY_OVER)
                    .is_ok_and(|over| over <= now);
            if is_expired && !exists(&followed) {
                plan.drop.insert(followed.table);
            }
        }
    }
    plan
}

fn tables<'t>(
    existing: &'t ExistingTables,
    account: &AccountName,
) -> impl Iterator<Item = &'t TableName> {
    existing.get(account).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::ViewName;
    use evenkeel_model::catalog::DatedRef;
    use evenkeel_model::dated::DatedTables;
    use std::time::Duration;

    fn dated(pattern: &str) -> DatedRef {
        DatedRef {
            account: AccountName::main(),
            tables: DatedTables::parse(pattern).unwrap(),
        }
    }

    fn retention() -> Retention {
        Retention {
            name: ViewName::new("logins").unwrap(),
            account: AccountName::main(),
            tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
            keep: Duration::from_hours(24),
            ahead: 2,
            archive_to: None,
        }
    }

    fn planned(followers: &Followers, existing: &[&str]) -> (Vec<String>, Vec<String>) {
        let existing = existing
            .iter()
            .map(|name| TableName::new(*name).unwrap())
            .collect();
        let now = "2026-11-20T06:00:00Z".parse().unwrap();
        let plan = plan(
            &retention(),
            followers,
            &[(AccountName::main(), existing)].into(),
            now,
        );
        (
            plan.create
                .iter()
                .flatten()
                .map(ToString::to_string)
                .collect(),
            plan.drop.iter().map(ToString::to_string).collect(),
        )
    }

    #[test]
    fn missing_tables_are_created_and_only_expired_tables_of_the_pattern_are_dropped() {
        let existing = [
            "Employees",
            "Logins",
            "Logins20261117",
            "logins20261118",
            "Logins20261119",
            "Logins20261120",
            "LoginsOld20200101",
        ];
        let (create, drop) = planned(&Followers::default(), &existing);
        assert_eq!(create, ["Logins20261121", "Logins20261122"]);
        assert_eq!(drop, ["Logins20261117", "Logins20261118"]);
    }

    #[test]
    fn followers_are_created_before_each_kept_table() {
        let followers = Followers {
            targets: [dated("ByUser%Y%m%d")].into(),
            former: [dated("Old%Y%m%d")].into(),
            footprints: Some(dated("Prints%Y%m%d")),
        };
        let existing = [
            "Logins20261117",
            "Logins20261119",
            "Prints20261119",
            "Logins20261120",
            "ByUser20261120",
            "Prints20261120",
            "ByUser20261122",
        ];
        let (create, drop) = planned(&followers, &existing);
        let expected = [
            "ByUser20261119",
            "ByUser20261121",
            "Prints20261121",
            "Logins20261121",
            "Prints20261122",
            "Logins20261122",
        ];
        assert_eq!(
            create, expected,
            "no table of an expired date, and no table of a former view"
        );
        assert_eq!(drop, ["Logins20261117"]);
    }

    #[test]
    fn followers_of_a_missing_table_are_dropped_an_hour_after_they_expire() {
        let followers = Followers {
            targets: [dated("ByUser%Y%m%d")].into(),
            former: [dated("Old%Y%m%d")].into(),
            footprints: None,
        };
        let existing = [
            "ByUser20261110",
            "Old20261111",
            "ByUser20261120",
            "Logins20261120",
            "ByUser20261125",
            "Logins20261121",
            "Logins20261122",
        ];
        let (create, drop) = planned(&followers, &existing);
        assert_eq!(create, ["ByUser20261121", "ByUser20261122"]);
        assert_eq!(drop, ["Logins20261110", "Logins20261111"]);
    }

    #[test]
    fn followers_of_a_table_dropped_by_hand_stay_until_it_expires() {
        let followers = Followers {
            targets: [dated("ByUser%Y%m%d")].into(),
            former: BTreeSet::new(),
            footprints: None,
        };
        assert!(!retention().is_expired(
            &TableName::new("Logins20261119").unwrap(),
            "2026-11-20T06:00:00Z".parse().unwrap()
        ));
        let (_, drop) = planned(&followers, &["ByUser20261118", "ByUser20261119"]);
        assert_eq!(drop, ["Logins20261118"]);
    }
}
