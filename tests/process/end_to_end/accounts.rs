//! Four accounts. The source is in the first; its index, its lists and its large values are in the second; its archives
//! are in the third, and the queues in the fourth. Three of the accounts have a container of the same name.
//!
//! An application and jobs write entities, which are archived, restored and deleted. At the end the accounts contain
//! what this file computes, and an audit finds nothing. If one account is unreachable, work that does not need it
//! continues.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{ContainerName, Entity, EntityKey, QueueName, TableName};
use evenkeel_storage::{Account, Query, all_blobs, all_rows};
use serde_json::{Value, json};

use crate::end_to_end::site::{Place, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Azurite;

const CATALOG: &str = r#"
[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
account = "derived"
partition_key = "email"
row_key = "{Email|lower}"
select = ["Email", "Resume"]
on_conflict = "reject"

[views.by_name]
kind = "index_entity"
source = "Employees"
store = "table"
table = "EmployeesNamed"
account = "derived"
partition_key = "name"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Employees"

[views.list]
kind = "index_entity"
source = "Employees"
store = "blob"
account = "derived"
container = "lists"
name = "by_name/{LastName}.jsonl"
member = ["{PartitionKey}", "{RowKey}"]

# The first large values in the order of names: of another table, in the main account.
[views.drawings]
kind = "large_entity"
source = "Devices"
properties = ["Drawing"]
container = "files"
threshold = "64B"

[views.resumes]
kind = "large_entity"
source = "Employees"
properties = ["Resume"]
container = "files"
account = "derived"
threshold = "64B"

[views.resumes_of_former]
kind = "large_entity"
source = "FormerEmployees"
properties = ["Resume"]
container = "files"
account = "cold"
threshold = "64B"

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees", account = "cold" }

[archives.documents]
source = "Employees"
to = { kind = "blob", container = "documents", account = "cold" }

[[queues]]
name = "evenkeel-jobs"
account = "messages"
"#;
const FURTHER: [&str; 3] = ["derived", "cold", "messages"];

const STAFF: usize = 24;
const NAMES: [&str; 3] = ["Kwok", "Cao", "Hall"];

struct Accounts {
    site: Site,
    cold: Option<Azurite>,
}

fn resume(number: usize, version: usize) -> String {
    format!("Resume {version} of employee {number}. ").repeat(8)
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
    format!("employee{number}.v{version}@contoso.com")
}

fn put(number: usize, version: usize) -> Value {
    let (pk, rk) = key(number);
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": pk, "RowKey": rk, "LastName": NAMES[(number + version) % 3],
        "Email": email(number, version), "Resume": resume(number, version)}})
}

fn on(op: &str, archive: Option<&str>, number: usize) -> Value {
    let (pk, rk) = key(number);
    match archive {
        Some(archive) => json!({"op": op, "archive": archive, "pk": pk, "rk": rk}),
        None => json!({"op": op, "table": "Employees", "pk": pk, "rk": rk}),
    }
}

impl Accounts {
    fn spread(place: Place) -> Self {
        let site = Site::new(place, "");
        site.declare(&format!("{}{CATALOG}", site.settings_of(&FURTHER)));
        Self { site, cold: None }
    }

    fn embedded() -> Self {
        Self::spread(Place::Embedded)
    }

    fn azurite() -> Self {
        Self::spread(Place::Azurite(Azurite::with_accounts(&FURTHER)))
    }

    fn apart(data: &std::path::Path) -> Self {
        let cold = Azurite::persistent(data);
        let site = Site::new(
            Place::Azurite(Azurite::with_accounts(&["derived", "messages"])),
            "",
        );
        let text = cold.ports.connection_string();
        let archives = site.azure_account("cold", &text);
        site.declare(&format!(
            "{}{archives}{CATALOG}",
            site.settings_of(&["derived", "messages"])
        ));
        Self {
            site,
            cold: Some(cold),
        }
    }

    fn with<T>(&self, name: &str, action: impl AsyncFnOnce(Account) -> T) -> T {
        match &self.cold {
            Some(cold) if name == "cold" => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                runtime.block_on(async { action(cold.ports.connect()).await })
            }
            _ => self.site.with_account(name, action),
        }
    }

    fn keys(&self, account: &str, table: &str) -> BTreeSet<(String, String)> {
        let table = TableName::new(table).unwrap();
        let rows = self.with(account, async |account| {
            all_rows(account.tables.as_ref(), &table, Query::default())
                .await
                .unwrap()
        });
        rows.into_iter()
            .map(|row| (row.entity.key.pk.to_string(), row.entity.key.rk.to_string()))
            .collect()
    }

    fn blobs(&self, account: &str, container: &str) -> usize {
        let container = ContainerName::new(container).unwrap();
        self.with(account, async |account| {
            all_blobs(account.blobs.as_ref(), &container, "")
                .await
                .unwrap()
                .len()
        })
    }

    fn waiting(&self) -> u64 {
        let queue = QueueName::new(QUEUE).unwrap();
        self.with("messages", async |account| {
            account.queues.approximate_count(&queue).await.unwrap()
        })
    }

    fn done(&self, jobs: &[Value]) {
        self.site.submit(jobs);
        self.site.run_until_idle(&[]);
        assert_eq!((self.site.poison(), self.waiting()), (Vec::new(), 0));
    }

    fn resolved(&self, table: &str, pk: &str, rk: &str) -> Value {
        let ended = self
            .site
            .command(&["--json", "get", table, pk, rk, "--resolve"]);
        assert_eq!(ended.code, 0, "{table} {pk} {rk}: {}", ended.err);
        serde_json::from_str(&ended.out).unwrap()
    }

    /// Checks that the index and the lists in the second account contain exactly the present employees, with their
    /// versions.
    fn assert_derived(&self, present: &BTreeMap<usize, usize>) {
        let wanted: BTreeSet<_> = present
            .iter()
            .map(|(number, version)| ("email".to_owned(), email(*number, *version)))
            .collect();
        assert_eq!(self.keys("derived", "EmployeesByEmail"), wanted);
        let named: BTreeSet<_> = present
            .iter()
            .map(|(number, version)| ("name".to_owned(), NAMES[(number + version) % 3].to_owned()))
            .collect();
        assert_eq!(self.keys("derived", "EmployeesNamed"), named);
        assert_eq!(self.blobs("derived", "lists"), named.len());
        let members: usize = named.iter().map(|(pk, name)| self.members(pk, name)).sum();
        assert_eq!(members, present.len());
        assert_eq!(
            self.blobs("derived", "files"),
            present.len(),
            "each entity must have its value, and no blob may be left"
        );
        let rows = self.site.rows("Employees");
        assert_eq!(
            rows.keys().cloned().collect::<BTreeSet<_>>(),
            present.keys().map(|number| own(*number)).collect()
        );
    }

    fn members(&self, pk: &str, name: &str) -> usize {
        let found = self.resolved("EmployeesNamed", pk, name);
        serde_json::from_str::<Vec<Value>>(found["Employees"].as_str().unwrap())
            .unwrap()
            .len()
    }
}

fn own(number: usize) -> (String, String) {
    let (pk, rk) = key(number);
    (pk.to_owned(), rk)
}

fn what_is_spread_over_four_accounts_follows_its_source(accounts: &Accounts) {
    let site = &accounts.site;
    site.migrate();
    let mut present: BTreeMap<usize, usize> = (0..STAFF).map(|number| (number, 1)).collect();
    accounts.done(&(0..STAFF).map(|number| put(number, 1)).collect::<Vec<_>>());
    accounts.assert_derived(&present);

    // Jobs change a third of the employees. The application changes another third directly, and sends syncs.
    accounts.done(&(0..8).map(|number| put(number, 2)).collect::<Vec<_>>());
    let changed = (8..16).map(|number| {
        let (pk, rk) = key(number);
        let row = site.row("Employees", pk, &rk).unwrap();
        let mut entity = Entity::new(EntityKey::new(pk, rk).unwrap());
        entity.properties = row.entity.properties;
        entity
            .with("Email", email(number, 2))
            .with("LastName", NAMES[(number + 2) % 3])
    });
    site.write("Employees", &changed.collect::<Vec<_>>());
    accounts.done(
        &(8..16)
            .map(|number| on("sync", None, number))
            .collect::<Vec<_>>(),
    );
    present.extend((0..16).map(|number| (number, 2)));
    accounts.assert_derived(&present);

    let leave = |numbers: std::ops::Range<usize>, archive: Option<&'static str>| {
        let op = if archive.is_some() {
            "archive"
        } else {
            "delete"
        };
        numbers.map(move |number| on(op, archive, number))
    };
    accounts.done(
        &leave(0..4, Some("former"))
            .chain(leave(4..8, Some("documents")))
            .chain(leave(16..20, None))
            .collect::<Vec<_>>(),
    );
    present.retain(|number, _| !matches!(number, 0..8 | 16..20));
    accounts.assert_derived(&present);
    assert_eq!(
        accounts.keys("cold", "FormerEmployees"),
        (0..4).map(own).collect()
    );
    assert_eq!(accounts.blobs("cold", "files"), 4);
    assert_eq!(
        accounts.blobs("cold", "documents"),
        8,
        "each entity must have a document and a value"
    );
    let (pk, rk) = key(1);
    assert_eq!(
        accounts.resolved("FormerEmployees", pk, &rk)["Resume"],
        resume(1, 2)
    );
    for (number, archive) in [(0, "former"), (4, "documents")] {
        let (pk, rk) = key(number);
        let found = site.command(&["--json", "find", archive, pk, &rk]);
        assert_eq!(
            (found.code, found.out.contains("\"found\":\"archive\"")),
            (0, true),
            "{}",
            found.err
        );
    }

    let back = |numbers: std::ops::Range<usize>, archive| {
        numbers.map(move |number| on("restore", Some(archive), number))
    };
    accounts.done(
        &back(0..2, "former")
            .chain(back(4..6, "documents"))
            .collect::<Vec<_>>(),
    );
    present.extend([0, 1, 4, 5].map(|number| (number, 2)));
    accounts.assert_derived(&present);
    for (number, version) in &present {
        let (pk, rk) = key(*number);
        let wanted = resume(
            *number,
            if (8..16).contains(number) {
                1
            } else {
                *version
            },
        );
        assert_eq!(accounts.resolved("Employees", pk, &rk)["Resume"], wanted);
        assert_eq!(
            accounts.resolved("EmployeesByEmail", "email", &email(*number, *version))["Resume"],
            wanted,
            "the pointer in the copy must lead to the same value"
        );
    }

    let audited = site.command(&["audit"]);
    assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
}

#[test]
fn what_is_spread_over_four_accounts_follows_its_source_on_the_embedded_store() {
    what_is_spread_over_four_accounts_follows_its_source(&Accounts::embedded());
}

#[test]
fn what_is_spread_over_four_accounts_follows_its_source_on_azurite() {
    what_is_spread_over_four_accounts_follows_its_source(&Accounts::azurite());
}

#[test]
fn one_account_that_is_away_stops_no_work_that_does_not_need_it() {
    let data = tempfile::tempdir().unwrap();
    let mut accounts = Accounts::apart(data.path());
    accounts.site.migrate();
    let leave = || (0..4).map(|number| on("archive", Some("former"), number));
    accounts.done(&(0..4).map(|number| put(number, 1)).collect::<Vec<_>>());
    let mut worker = accounts.site.worker(&[]);
    // A worker needs every account when it starts. When this job is done, the worker has started.
    accounts.site.submit(&[put(4, 1)]);
    wait_until("the worker works", || accounts.waiting() == 0);
    accounts.cold.as_mut().unwrap().stop();
    accounts.site.submit(&leave().collect::<Vec<_>>());
    for some in [5..15, 15..STAFF] {
        accounts
            .site
            .submit(&some.map(|number| put(number, 1)).collect::<Vec<_>>());
        wait_until("only jobs that need the unreachable account wait", || {
            accounts.waiting() == 4
        });
    }
    let present: BTreeMap<usize, usize> = (0..STAFF).map(|number| (number, 1)).collect();
    accounts.assert_derived(&present);
    assert!(worker.runs());
    accounts.cold.as_mut().unwrap().restart();
    wait_until("those are done as well", || accounts.waiting() == 0);
    worker.stop();
    assert_eq!(accounts.site.poison(), Vec::<Value>::new());
    accounts.assert_derived(
        &present
            .into_iter()
            .filter(|(number, _)| *number >= 4)
            .collect(),
    );
    assert_eq!(
        accounts.keys("cold", "FormerEmployees"),
        (0..4).map(own).collect()
    );
}
