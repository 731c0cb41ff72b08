//! Archives, retentions and rules as texts. The texts are recorded and compared, to find out
//! whether an erasure or a retention still runs under the same declarations.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Archive, ArchiveTarget, Catalog, Retention, Rule, TableArchive};
use crate::Key;

impl Catalog {
    /// All archives, retentions and rules, by kind and name. The path of a shared folder is left
    /// out because each host may mount the folder at another path.
    pub fn declarations(&self) -> BTreeMap<String, String> {
        let archives = self
            .archives
            .values()
            .map(|one| (format!("archive {}", one.name), archive(one)));
        let retentions = self
            .retentions
            .values()
            .map(|one| (format!("retention {}", one.name), retention(one)));
        let rules = self
            .rules
            .values()
            .map(|one| (format!("rule {}", one.name), rule(one)));
        archives
            .chain(retentions)
            .chain(rules)
            .map(|(name, text)| (name, text.to_string()))
            .collect()
    }
}

fn archive(Archive { source, target, .. }: &Archive) -> Value {
    let target = match target {
        ArchiveTarget::Table(table) => json!(["table", table.to_string().to_ascii_lowercase()]),
        ArchiveTarget::Blob(blob) => {
            json!(["blob", blob.account, blob.container, blob.path.as_str()])
        }
        ArchiveTarget::File(file) => json!(["file", file.path.as_str()]),
        ArchiveTarget::Log(log) => json!(["log", log.account, log.container, log.path.as_str()]),
    };
    json!([source.to_string().to_ascii_lowercase(), target])
}

fn retention(retention: &Retention) -> Value {
    let to = retention.archive_to.as_ref().map(|to| match to {
        TableArchive::Blob { account, container } => json!(["blob", account, container]),
        TableArchive::File { .. } => json!(["file"]),
    });
    json!([
        retention.source().to_string().to_ascii_lowercase(),
        retention.keep.as_secs(),
        retention.ahead,
        to
    ])
}

fn rule(Rule { sweep, every, .. }: &Rule) -> Value {
    let [pk, from, before] = [&sweep.range.pk, &sweep.range.from, &sweep.range.before]
        .map(|key| key.as_ref().map(Key::as_str));
    let when = sweep.when.as_ref().map(ToString::to_string);
    json!([
        sweep.action.op(),
        sweep.action.to_string(),
        pk,
        from,
        before,
        when,
        sweep.per_second,
        every.as_secs()
    ])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::catalog::{FileTarget, TableRef};
    use crate::condition::TimedCondition;
    use crate::dated::DatedTables;
    use crate::document::DocumentPath;
    use crate::sweep::{Sweep, SweepAction};
    use crate::{AccountName, TableName, ViewName};

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    #[test]
    fn declarations_contain_targets_and_times_but_no_folder_of_a_host() {
        let name = |name: &str| ViewName::new(name).unwrap();
        let of = |dir: &str, keep: u64, when: &str| {
            let path = DocumentPath::parse("{PartitionKey}/{RowKey}.json").unwrap();
            let target = ArchiveTarget::File(FileTarget {
                dir: dir.to_owned(),
                path,
            });
            let archive = Archive {
                name: name("former"),
                source: table("Employees"),
                target,
            };
            let retention = Retention {
                name: name("logins"),
                account: AccountName::main(),
                tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
                keep: Duration::from_hours(keep),
                ahead: 1,
                archive_to: Some(TableArchive::File {
                    dir: dir.to_owned(),
                }),
            };
            let action = SweepAction::Delete(TableName::new("Sessions").unwrap());
            let sweep = Sweep::new(
                action,
                None,
                Some(TimedCondition::parse(when).unwrap()),
                false,
                500,
            )
            .unwrap();
            let rule = Rule {
                name: name("old"),
                sweep,
                every: Duration::from_hours(24),
            };
            let mut catalog = Catalog::default();
            catalog
                .archives
                .insert(archive.name.clone(), Arc::new(archive));
            catalog
                .retentions
                .insert(retention.name.clone(), Arc::new(retention));
            catalog.rules.insert(rule.name.clone(), Arc::new(rule));
            catalog.declarations()
        };
        let declared = of("/mnt/one", 24, "Ended < now - 90d");
        let texts: Vec<(&str, &str)> = declared
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()))
            .collect();
        assert_eq!(
            texts,
            [
                (
                    "archive former",
                    r#"["employees",["file","{PartitionKey}/{RowKey}.json"]]"#
                ),
                ("retention logins", r#"["logins%y%m%d",86400,1,["file"]]"#),
                (
                    "rule old",
                    r#"["delete_where","the table Sessions",null,null,null,"Ended < now - 90d",500,86400]"#
                ),
            ]
        );
        assert_eq!(of("/mnt/other", 24, "Ended < now - 90d"), declared);
        let other = of("/mnt/one", 48, "Ended < now - 30d");
        let same: Vec<&String> = declared
            .keys()
            .filter(|name| other[*name] == declared[*name])
            .collect();
        assert_eq!(same, ["archive former"]);
    }
}
