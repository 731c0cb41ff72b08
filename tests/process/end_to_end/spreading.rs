//! Items spread over several accounts by a hash of their partition: copies, lists in rows and in blobs, and groups.
//!
//! An account is added while jobs run, and another account is removed. Afterwards every item is exactly once in the
//! account that this file computes, and an audit finds nothing. If one account is unreachable, work that does not need
//! it continues.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_azure::AzureAccount;
use evenkeel_model::{AccountName, ContainerName, TableName};
use evenkeel_sqlite::EmbeddedStore;
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Account, Query, all_blobs, all_rows};
use secrecy::SecretString;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::end_to_end::site::{Place, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Azurite;

const NAMES: [&str; 5] = ["Kwok", "Cao", "Hall", "Jones", "Kim"];
const FURTHER: [&str; 3] = ["east", "north", "south"];
const APART: &str = "south";
const STAFF: usize = 60;

fn catalog(accounts: &[&str]) -> String {
    let accounts = json!(accounts);
    format!(
        r#"
[tables.ByEmail]
accounts = {accounts}

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
partition_key = "{{Email|lower}}"
row_key = "{{PartitionKey}}_{{RowKey}}"

[views.by_name]
kind = "index_entity"
source = "Employees"
store = "table"
table = "Named"
accounts = {accounts}
partition_key = "name_{{LastName}}"
row_key = "list"
member = ["{{PartitionKey}}", "{{RowKey}}"]
property = "Employees"

[views.lists]
kind = "index_entity"
source = "Employees"
store = "blob"
container = "lists"
accounts = {accounts}
name = "by_name/{{LastName}}.jsonl"
member = ["{{PartitionKey}}", "{{RowKey}}"]

[views.figures]
kind = "aggregate"
source = "Employees"
group_table = "Figures"
accounts = {accounts}
partition_key = "name_{{LastName}}"
row_key = "figures"
set = {{ Headcount = "count()" }}
"#
    )
}

/// The account of a key, by the hash that the documentation describes.
fn holder<'a>(accounts: &[&'a str], key: &str) -> &'a str {
    let weight = |account: &str| {
        let hash = Sha256::digest([account.as_bytes(), b"\0", key.as_bytes()].concat());
        u64::from_be_bytes(hash[..8].try_into().unwrap())
    };
    accounts
        .iter()
        .copied()
        .max_by_key(|account| weight(account))
        .unwrap()
}

fn key(number: usize) -> (&'static str, String) {
    (
        if number.is_multiple_of(2) {
            "Sales"
        } else {
            "Research"
        },
        format!("{number:05}"),
    )
}

fn email(number: usize, version: usize) -> String {
    format!("employee{number:03}.v{version}@contoso.com")
}

fn put(number: usize, version: usize) -> Value {
    let (pk, rk) = key(number);
    json!({"op": "put", "table": "Employees", "entity":
        {"PartitionKey": pk, "RowKey": rk, "LastName": NAMES[(number + version) % NAMES.len()], "Email": email(number, version)}})
}

fn delete(number: usize) -> Value {
    let (pk, rk) = key(number);
    json!({"op": "delete", "table": "Employees", "pk": pk, "rk": rk})
}

type Item = (String, &'static str, String);

struct Spread {
    site: Site,
    apart: Option<Azurite>,
}

impl Spread {
    fn embedded() -> Self {
        Self {
            site: Site::embedded(""),
            apart: None,
        }
    }

    fn azurite() -> Self {
        Self {
            site: Site::new(Place::Azurite(Azurite::with_accounts(&FURTHER)), ""),
            apart: None,
        }
    }

    fn apart(data: &std::path::Path) -> Self {
        let apart = Some(Azurite::persistent(data));
        Self {
            site: Site::new(Place::Azurite(Azurite::with_accounts(&FURTHER[..2])), ""),
            apart,
        }
    }

    /// Declares a catalog that spreads the items over these accounts. All accounts are configured.
    fn declare(&self, names: &[&str]) {
        self.declare_with(names, &FURTHER);
    }

    fn declare_with(&self, names: &[&str], configured: &[&str]) {
        let settings = |name: &str| match (&self.site.place, &self.apart) {
            (Place::Embedded, _) => {
                format!("\n[accounts.{name}]\nkind = \"embedded\"\npath = \"{name}.db\"\n")
            }
            (Place::Azurite(_), Some(apart)) if name == APART => self
                .site
                .azure_account(name, &apart.ports.connection_string()),
            (Place::Azurite(azurite), _) => self
                .site
                .azure_account(name, &azurite.ports.connection_string_of(name)),
        };
        let further: String = configured.iter().copied().map(settings).collect();
        self.site.declare(&format!("{further}{}", catalog(names)));
    }

    fn with<T>(&self, name: &str, action: impl AsyncFnOnce(Account) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let called = AccountName::new(name).unwrap();
            let account = match (&self.site.place, &self.apart) {
                (Place::Embedded, _) => EmbeddedStore::open(
                    &self.site.file(&format!("{name}.db")),
                    called,
                    Arc::new(SystemClock::new()),
                )
                .unwrap(),
                (Place::Azurite(_), Some(apart)) if name == APART => apart.ports.connect(),
                (Place::Azurite(azurite), _) => {
                    let text = SecretString::from(azurite.ports.connection_string_of(name));
                    evenkeel_azure::connect(
                        &AzureAccount::from_connection_string(called, &text).unwrap(),
                    )
                    .unwrap()
                }
            };
            action(account).await
        })
    }

    /// Every derived row and blob with its account, so that a duplicate in a second account is visible.
    fn stored(&self, names: &[&str]) -> Vec<Item> {
        let mut stored = Vec::new();
        for name in names {
            stored.extend(self.with(name, async |account| {
                let mut items = Vec::new();
                let there = evenkeel_storage::all_tables(account.tables.as_ref())
                    .await
                    .unwrap();
                for table in ["ByEmail", "Named", "Figures"] {
                    let declared = TableName::new(table).unwrap();
                    if !there.contains(&declared) {
                        continue;
                    }
                    let rows = all_rows(account.tables.as_ref(), &declared, Query::default())
                        .await
                        .unwrap();
                    items.extend(
                        rows.into_iter()
                            .map(|row| ((*name).to_owned(), table, row.entity.key.pk.to_string())),
                    );
                }
                let container = ContainerName::new("lists").unwrap();
                let blobs = all_blobs(account.blobs.as_ref(), &container, "")
                    .await
                    .unwrap_or_default();
                items.extend(
                    blobs
                        .into_iter()
                        .map(|blob| ((*name).to_owned(), "lists", blob.name.to_string())),
                );
                items
            }));
        }
        stored.sort();
        stored
    }

    /// Checks that the items of the present employees are in the account that the hash determines, and that no account
    /// contains any other item.
    fn assert_spread(&self, accounts: &[&str], present: &BTreeMap<usize, usize>) {
        let mut wanted: BTreeSet<Item> = BTreeSet::new();
        for (number, version) in present {
            let (name, email) = (
                NAMES[(number + version) % NAMES.len()],
                email(*number, *version),
            );
            let (group, list) = (format!("name_{name}"), format!("by_name/{name}.jsonl"));
            for (place, key) in [
                ("ByEmail", &email),
                ("Named", &group),
                ("Figures", &group),
                ("lists", &list),
            ] {
                wanted.insert((holder(accounts, key).to_owned(), place, key.clone()));
            }
        }
        assert_eq!(
            self.stored(&FURTHER),
            wanted.into_iter().collect::<Vec<_>>()
        );
    }

    fn waiting(&self) -> u64 {
        self.site.count(QUEUE)
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let ended = self.site.command(&[&["--json"], arguments].concat());
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.err);
        ended
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Checks that readers find everything: one partition, all partitions page by page and in order, lists, groups, and
    /// entities by the keys of a copy.
    fn assert_readable(&self, present: &BTreeMap<usize, usize>) {
        let emails: BTreeMap<String, usize> = present
            .iter()
            .map(|(number, version)| (email(*number, *version), *number))
            .collect();
        let (mut found, mut token): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let mut arguments = vec!["lookup", "by_email", "Email^=employee", "--top", "7"];
            arguments.extend(
                token
                    .iter()
                    .flat_map(|token| ["--continue", token.as_str()]),
            );
            let mut lines = self.json(&arguments);
            let summary = lines.pop().unwrap();
            found.extend(
                lines
                    .iter()
                    .map(|row| row["PartitionKey"].as_str().unwrap().to_owned()),
            );
            token = summary["continuation"].as_str().map(str::to_owned);
            if token.is_none() {
                break;
            }
        }
        assert_eq!(found, emails.keys().cloned().collect::<Vec<_>>());
        let (mail, number) = emails.first_key_value().unwrap();
        let (pk, rk) = key(*number);
        let rows = self.json(&["lookup", "by_email", &format!("Email={mail}"), "--entities"]);
        assert_eq!(
            (rows.len(), &rows[0]["RowKey"], &rows[1]["requests"]),
            (2, &json!(rk), &json!(2)),
            "a partition, then the entity"
        );
        let copy = self.json(&["get", "ByEmail", mail, &format!("{pk}_{rk}")]);
        assert_eq!(copy[0]["Email"], json!(mail));
        let own = self.json(&[
            "lookup",
            "--table",
            "ByEmail",
            &format!("PartitionKey={mail}"),
        ]);
        assert_eq!(own.len(), 2);
        let staff = |name: &str| {
            present
                .iter()
                .filter(|(number, version)| NAMES[(*number + *version) % NAMES.len()] == name)
                .count()
        };
        for view in ["by_name", "lists"] {
            assert_eq!(
                self.json(&["lookup", view, "LastName=Kim"]).len() - 1,
                staff("Kim"),
                "{view}"
            );
        }
        assert_eq!(
            self.json(&["get", "Figures", "name_Kim", "figures"])[0]["Headcount"]
                .to_string()
                .replace('"', ""),
            staff("Kim").to_string()
        );
    }

    fn assert_audited(&self) {
        let audited = self.site.command(&["audit"]);
        assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
    }
}

fn an_account_is_added_while_jobs_run_and_another_removed(spread: &Spread) {
    let site = &spread.site;
    let two = &FURTHER[..2];
    spread.declare(two);
    site.migrate();
    let mut present: BTreeMap<usize, usize> = (0..STAFF).map(|number| (number, 1)).collect();
    site.submit(&(0..STAFF).map(|number| put(number, 1)).collect::<Vec<_>>());
    site.run_until_idle(&[]);
    spread.assert_spread(two, &present);
    spread.assert_readable(&present);
    let before = spread.stored(&FURTHER);

    // A third account is added. Meanwhile a worker with the older catalog has jobs, and a worker with the newer catalog
    // has other jobs and the backfill.
    let older = site.worker(&[]);
    site.submit(&(0..10).map(|number| put(number, 2)).collect::<Vec<_>>());
    spread.declare(&FURTHER);
    let status = site.command(&["migrate", "status"]);
    assert!(!status.out.contains("keep [accounts"), "{}", status.out);
    site.migrate();
    let newer = site.worker(&[]);
    for view in ["by_email", "by_name"] {
        assert_eq!(
            site.command(&["backfill", "--submit", "--view", view]).code,
            0
        );
    }
    site.submit(
        &(10..20)
            .map(|number| put(number, 2))
            .chain((20..25).map(delete))
            .collect::<Vec<_>>(),
    );
    site.submit(
        &(STAFF..STAFF + 10)
            .map(|number| put(number, 1))
            .collect::<Vec<_>>(),
    );
    wait_until("all jobs are done", || spread.waiting() == 0);
    newer.stop();
    drop(older);
    // The worker runs rechecks, and work that the worker with the older catalog had begun.
    site.run_until_idle(&[]);
    assert_eq!(site.poison(), Vec::<Value>::new());
    present.extend((0..20).map(|number| (number, 2)));
    present.extend((STAFF..STAFF + 10).map(|number| (number, 1)));
    present.retain(|number, _| !(20..25).contains(number));
    spread.assert_spread(&FURTHER, &present);
    spread.assert_readable(&present);
    spread.assert_audited();
    let after: BTreeSet<Item> = spread.stored(&FURTHER).into_iter().collect();
    let stayed = before.iter().filter(|item| after.contains(*item)).count();
    assert!(before.iter().all(|(account, place, key)| {
        FURTHER[..2].iter().all(|other| {
            other == account || !after.contains(&((*other).to_owned(), place, key.clone()))
        })
    }));
    assert!(
        stayed > 0 && after.iter().any(|(account, ..)| account == FURTHER[2]),
        "some items must stay, and some must move"
    );

    // One account is removed from the view. Its items can be reached while the account is configured, and the plan
    // reports this.
    let last = &FURTHER[1..];
    spread.declare(last);
    let status = site.command(&["migrate", "status"]);
    assert!(
        status.out.contains("its items move out of [accounts.east]: keep [accounts.east] until `evenkeel backfill --view by_email` has finished"),
        "{}",
        status.out
    );
    site.migrate();
    let filled = site.command(&["backfill"]);
    assert_eq!(filled.code, 0, "{}", filled.err);
    spread.assert_spread(last, &present);
    spread.assert_readable(&present);
    spread.assert_audited();
}

#[test]
fn an_account_is_added_while_jobs_run_and_another_removed_on_the_embedded_store() {
    an_account_is_added_while_jobs_run_and_another_removed(&Spread::embedded());
}

#[test]
fn an_account_is_added_while_jobs_run_and_another_removed_on_azurite() {
    an_account_is_added_while_jobs_run_and_another_removed(&Spread::azurite());
}

#[test]
fn an_account_that_still_has_items_is_missed_before_anything_is_recorded() {
    let spread = Spread::embedded();
    let (site, all, rest) = (&spread.site, &FURTHER, &FURTHER[1..]);
    spread.declare(all);
    site.migrate();
    site.submit(&(0..12).map(|number| put(number, 1)).collect::<Vec<_>>());
    site.run_until_idle(&[]);
    spread.declare_with(rest, rest);
    let before = site.command(&["migrate", "status"]).out;
    let refused = site.command(&["migrate", "up", "--retire"]);
    assert_ne!(refused.code, 0, "{}", refused.out);
    for line in [
        "record view by_email",
        "keep [accounts.east] until `evenkeel backfill --view by_email` has finished",
        "configure an empty one",
    ] {
        assert!(refused.err.contains(line), "{line}: {}", refused.err);
    }
    let run = site.command(&["run", "--until-idle=1", "--no-http"]);
    assert!(
        run.code != 0 && run.err.contains("keep [accounts.east]"),
        "{}",
        run.err
    );
    assert_eq!(
        site.command(&["migrate", "status"]).out,
        before,
        "nothing was recorded"
    );

    spread.declare(rest);
    site.migrate();
    assert_eq!(site.command(&["backfill"]).code, 0);
    spread.declare_with(rest, rest);
    site.submit(&(0..12).map(|number| put(number, 2)).collect::<Vec<_>>());
    site.run_until_idle(&[]);
    let present: BTreeMap<usize, usize> = (0..12).map(|number| (number, 2)).collect();
    spread.assert_spread(rest, &present);
    spread.assert_audited();
}

#[test]
fn a_row_in_an_account_that_the_hash_does_not_say_is_found_by_an_audit_and_by_no_reader() {
    let spread = Spread::embedded();
    spread.declare(&FURTHER);
    spread.site.migrate();
    spread
        .site
        .submit(&(0..6).map(|number| put(number, 1)).collect::<Vec<_>>());
    spread.site.run_until_idle(&[]);
    let present: BTreeMap<usize, usize> = (0..6).map(|number| (number, 1)).collect();
    let table = TableName::new("ByEmail").unwrap();
    let mail = email(0, 1);
    let rows = spread.with(holder(&FURTHER, &mail), async |account| {
        all_rows(account.tables.as_ref(), &table, Query::default())
            .await
            .unwrap()
    });
    let copy = rows
        .into_iter()
        .find(|row| row.entity.key.pk.as_str() == mail)
        .unwrap()
        .entity;
    let wrong = FURTHER
        .into_iter()
        .find(|name| *name != holder(&FURTHER, &mail))
        .unwrap();
    let insert = evenkeel_storage::TableOperation::Insert(copy);
    spread.with(wrong, async |account| {
        account.tables.apply(&table, &insert).await.unwrap()
    });
    spread.assert_readable(&present);
    let audited = spread.site.command(&["--json", "audit"]);
    assert_eq!(
        (audited.code, audited.out.matches("unwanted").count()),
        (3, 1),
        "{}{}",
        audited.out,
        audited.err
    );
    assert!(audited.out.contains(wrong), "{}", audited.out);
    assert_eq!(spread.site.command(&["audit", "--repair"]).code, 0);
    spread.assert_spread(&FURTHER, &present);
    spread.assert_audited();
}

#[test]
fn one_account_that_is_away_stops_no_work_whose_items_lie_elsewhere() {
    let data = tempfile::tempdir().unwrap();
    let mut spread = Spread::apart(data.path());
    spread.declare(&FURTHER);
    spread.site.migrate();
    let away = |number: &usize| {
        let name = NAMES[(number + 1) % NAMES.len()];
        let keys = [
            email(*number, 1),
            format!("name_{name}"),
            format!("by_name/{name}.jsonl"),
        ];
        keys.iter().any(|key| holder(&FURTHER, key) == APART)
    };
    let (need, others): (Vec<usize>, Vec<usize>) = (1..200).partition(away);
    let (need, others) = (&need[..4], &others[..4]);
    let mut worker = spread.site.worker(&[]);
    // A worker needs every account when it starts. When this job is done, the worker has started.
    spread.site.submit(&[put(0, 1)]);
    wait_until("the worker works", || spread.waiting() == 0);
    spread.apart.as_mut().unwrap().stop();
    spread.site.submit(
        &need
            .iter()
            .map(|number| put(*number, 1))
            .collect::<Vec<_>>(),
    );
    spread.site.submit(
        &others
            .iter()
            .map(|number| put(*number, 1))
            .collect::<Vec<_>>(),
    );
    wait_until("only jobs that need the unreachable account wait", || {
        spread.waiting() == 4
    });
    assert!(worker.runs());
    spread.apart.as_mut().unwrap().restart();
    wait_until("those are done as well", || spread.waiting() == 0);
    worker.stop();
    spread.site.run_until_idle(&[]);
    assert_eq!(spread.site.poison(), Vec::<Value>::new());
    spread.assert_spread(
        &FURTHER,
        &need
            .iter()
            .chain(others)
            .chain(&[0])
            .map(|number| (*number, 1))
            .collect(),
    );
    spread.assert_audited();
}
