//! Items spread over two accounts, while the list of accounts in the catalog changes during jobs. Every job under the
//! new and the old catalog is disturbed at each of its operations. Each item must be only in the account that this file
//! computes.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::{ContainerName, EdmValue, EntityKey, Job};
use evenkeel_storage::Account;
use futures::FutureExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, declared, job, other, table};

type Accounts = &'static [&'static str];

const BOTH: Accounts = &["main", "other"];
const CHANGES: [(Accounts, Accounts); 3] =
    [(&["main"], BOTH), (BOTH, &["main"]), (BOTH, &["other"])];

/// The names of two people, who share a list. When the accounts change, some items stay in place, and others move.
const NAMES: [&str; 2] = ["Kwok", "Hall"];

fn catalog(accounts: Accounts, generation: u32) -> Catalog {
    let accounts = json!(accounts);
    let text = format!(
        r#"
[accounts.main]
kind = "embedded"
path = "main.db"

[accounts.other]
kind = "embedded"
path = "other.db"

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
accounts = {accounts}
partition_key = "{{Email}}"
row_key = "{{PartitionKey}}_{{RowKey}}"
select = []

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
name = "{{LastName}}.jsonl"
member = ["{{PartitionKey}}", "{{RowKey}}"]

[views.figures]
kind = "aggregate"
source = "Employees"
group_table = "Figures"
accounts = {accounts}
partition_key = "group_{{LastName}}"
row_key = "figures"
set = {{ Headcount = "count()" }}
"#
    );
    let mut catalog = declared(&text);
    catalog.generations.current = catalog
        .views
        .keys()
        .map(|view| (view.clone(), generation))
        .collect();
    catalog
}

/// The account of a key, by the hash that the documentation describes.
fn holder(accounts: Accounts, key: &str) -> &'static str {
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

#[derive(Debug, Clone, Copy)]
struct Person {
    rk: &'static str,
    name: &'static str,
    email: &'static str,
    by: Accounts,
}

type Item = (String, String, String);

fn expected(people: &[Person]) -> BTreeSet<Item> {
    let (mut items, mut counts) = (BTreeSet::new(), BTreeMap::<(&str, &str), usize>::new());
    for Person {
        rk,
        name,
        email,
        by,
    } in people
    {
        let member = json!(["Sales", rk]).to_string();
        let mut item = |key: String, place: String, what: &str| {
            items.insert((holder(by, &key).to_owned(), place, what.to_owned()))
        };
        item(
            (*email).to_owned(),
            format!("ByEmail {email}"),
            &format!("Sales_{rk}"),
        );
        item(
            format!("name_{name}"),
            format!("Named name_{name}"),
            &member,
        );
        item(
            format!("{name}.jsonl"),
            format!("lists {name}.jsonl"),
            &member,
        );
        *counts
            .entry((holder(by, &format!("group_{name}")), name))
            .or_default() += 1;
    }
    items.extend(counts.into_iter().map(|((account, name), count)| {
        (
            account.to_owned(),
            format!("Figures group_{name}"),
            count.to_string(),
        )
    }));
    items
}

fn accounts(lab: &Lab) -> [(&'static str, Account); 2] {
    [
        ("main", lab.account.clone()),
        ("other", lab.beside.as_ref().unwrap().account()),
    ]
}

async fn stored(lab: &Lab) -> BTreeSet<Item> {
    let mut items = BTreeSet::new();
    for (account, Account { tables, blobs, .. }) in accounts(lab) {
        let mut item = |place: String, what: String| {
            assert!(
                items.insert((account.to_owned(), place, what)),
                "duplicate item"
            );
        };
        for name in ["ByEmail", "Named", "Figures"] {
            for row in evenkeel_storage::all_rows(
                tables.as_ref(),
                &table(name),
                evenkeel_storage::Query::default(),
            )
            .await
            .unwrap()
            {
                let place = format!("{name} {}", row.entity.key.pk);
                match name {
                    "ByEmail" => item(place, row.entity.key.rk.to_string()),
                    "Named" => {
                        let members: Vec<Value> =
                            serde_json::from_str(row.entity.text("Employees").unwrap()).unwrap();
                        for member in members {
                            item(place.clone(), member.to_string());
                        }
                    }
                    _ => {
                        let Some(EdmValue::Int64(count)) = row.entity.get("Headcount") else {
                            panic!("no count: {row:?}")
                        };
                        item(place, count.to_string());
                    }
                }
            }
        }
        let container = ContainerName::new("lists").unwrap();
        for blob in evenkeel_storage::all_blobs(blobs.as_ref(), &container, "")
            .await
            .unwrap()
        {
            let content = blobs
                .get(&container, &blob.name, None)
                .await
                .unwrap()
                .unwrap()
                .content;
            for line in std::str::from_utf8(&content).unwrap().lines().skip(1) {
                let (member, _): (Value, String) = serde_json::from_str(line).unwrap();
                item(format!("lists {}", blob.name), member.to_string());
            }
        }
    }
    items
}

const ADA: Person = Person {
    rk: "1",
    name: NAMES[0],
    email: "ada@contoso.com",
    by: &[],
};
const BEA: Person = Person {
    rk: "2",
    name: NAMES[0],
    email: "bea@contoso.com",
    by: &[],
};

fn put(person: Person) -> Job {
    let Person {
        rk, name, email, ..
    } = person;
    let entity = json!({"PartitionKey": "Sales", "RowKey": rk, "LastName": name, "Email": email});
    job(&json!({"op": "put", "table": "Employees", "entity": entity}))
}

fn on_ada(op: &str) -> Job {
    job(&json!({"op": op, "table": "Employees", "pk": "Sales", "rk": ADA.rk}))
}

fn on_all(op: &str) -> Job {
    let mut json = json!({"op": op, "table": "Employees"});
    if op == "audit" {
        json["repair"] = true.into();
    }
    job(&json)
}

/// Returns two people, who were settled under a catalog with the accounts `before`, and a lab with the next catalog.
async fn prepared((before, after): (Accounts, Accounts)) -> (Lab, Lab) {
    let old = Lab::over_two(catalog(before, 1));
    for (_, Account { tables, blobs, .. }) in accounts(&old) {
        for name in ["ByEmail", "Named", "Figures"] {
            drop(tables.create_table(&table(name)).await);
        }
        blobs
            .create_container(&ContainerName::new("lists").unwrap())
            .await
            .unwrap();
    }
    for person in [ADA, BEA] {
        old.work(&put(person)).await.unwrap();
    }
    let new = old.under(catalog(after, 2));
    (old, new)
}

/// Each person was last settled under one of the catalogs. Checks that the person's items are where that catalog
/// requires. For people who were settled under the last catalog, a plan must find nothing to do.
async fn check(lab: &Lab, people: &[Person], last: Accounts, story: &str) {
    let (stored, expected) = (stored(lab).await, expected(people));
    let (missing, stale) = (expected.difference(&stored), stored.difference(&expected));
    assert!(
        stored == expected,
        "{story}: missing {:?}, stale {:?}",
        missing.collect::<Vec<_>>(),
        stale.collect::<Vec<_>>()
    );
    for person in people.iter().filter(|person| person.by == last) {
        let primary = Primary {
            table: table("Employees"),
            key: EntityKey::new("Sales", person.rk).unwrap(),
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(
            plan.in_step,
            "{story}: a second pass would still change something: {plan}"
        );
    }
}

/// Runs a backfill with the last catalog, as an operator does, and checks everything.
async fn backfilled(lab: &Lab, people: &[Person], last: Accounts, story: &str) {
    lab.work(&on_all("backfill")).await.unwrap();
    lab.do_queued().await;
    lab.finish().await;
    let people: Vec<Person> = people
        .iter()
        .map(|person| Person {
            by: last,
            ..*person
        })
        .collect();
    check(lab, &people, last, &format!("{story}, and a backfill")).await;
}

type Story = (
    &'static str,
    fn() -> Job,
    fn(Accounts, Accounts) -> Vec<Person>,
);

type Meddler = (&'static str, fn() -> Job);

/// The people after Ada has changed under the new catalog. Bea is unchanged.
fn ada(person: Person, (before, after): (Accounts, Accounts)) -> Vec<Person> {
    vec![
        Person {
            by: after,
            ..person
        },
        Person { by: before, ..BEA },
    ]
}

const RENAMED: Person = Person {
    name: NAMES[1],
    email: "ada@fabrikam.com",
    ..ADA
};

const STORIES: [Story; 7] = [
    (
        "sync",
        || on_ada("sync"),
        |before, after| ada(ADA, (before, after)),
    ),
    (
        "put of the same",
        || put(ADA),
        |before, after| ada(ADA, (before, after)),
    ),
    (
        "put of other keys",
        || put(RENAMED),
        |before, after| ada(RENAMED, (before, after)),
    ),
    (
        "delete",
        || on_ada("delete"),
        |before, _| vec![Person { by: before, ..BEA }],
    ),
    (
        "move",
        || {
            job(
                &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Sales", "to_rk": "9"}),
            )
        },
        |before, after| ada(Person { rk: "9", ..ADA }, (before, after)),
    ),
    (
        "backfill",
        || on_all("backfill"),
        |_, after| vec![Person { by: after, ..ADA }, Person { by: after, ..BEA }],
    ),
    (
        "audit",
        || on_all("audit"),
        |_, after| vec![Person { by: after, ..ADA }, Person { by: after, ..BEA }],
    ),
];

/// Every change of the accounts with every story. A debug build tries each story with only one change.
fn cases() -> impl Iterator<Item = ((Accounts, Accounts), Story)> {
    let every = if cfg!(debug_assertions) {
        CHANGES.len()
    } else {
        1
    };
    let all = CHANGES.into_iter().enumerate().flat_map(|(n, change)| {
        STORIES
            .into_iter()
            .zip(n..)
            .map(move |(story, n)| (n, change, story))
    });
    all.filter(move |(n, ..)| n % every == 0)
        .map(|(_, change, story)| (change, story))
}

#[test]
fn some_items_move_and_others_stay() {
    for (before, after) in CHANGES {
        let people = |by: Accounts| [ADA, BEA, RENAMED].map(|person| Person { by, ..person });
        let (before, after) = (expected(&people(before)), expected(&people(after)));
        let moved = before.difference(&after).count();
        assert!(
            moved > 1 && moved < before.len(),
            "only {moved} of {} items move; choose other names",
            before.len()
        );
    }
}

#[tokio::test]
async fn an_account_is_added_or_taken_away_and_every_job_disturbed_at_every_operation_moves_its_items()
 {
    let (mut runs, mut arrivals) = (0, 0);
    for (change, (name, job, people)) in cases() {
        let people = people(change.0, change.1);
        let (_, lab) = prepared(change).await;
        let mut sweep = Sweep::over(lab.operations_of(&job()).await);
        lab.do_queued().await;
        lab.finish().await;
        check(&lab, &people, change.1, name).await;
        while let Some(case) = sweep.next() {
            let story = format!("from {:?} to {:?}: {name}, {case}", change.0, change.1);
            let (_, lab) = prepared(change).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&job()).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.do_queued().await;
            lab.finish().await;
            check(&lab, &people, change.1, &story).await;
            backfilled(&lab, &people, change.1, &story).await;
        }
        runs += sweep.runs().0;
        arrivals += sweep.runs().1;
    }
    assert!(
        runs > 1_500 && arrivals > 300,
        "only {runs} runs, {arrivals} with an arrival: the sweep must run all stories"
    );
}

/// A worker with one catalog runs a job before each operation of a worker with the other catalog.
#[tokio::test]
async fn workers_by_the_old_and_the_new_accounts_in_turn_at_every_operation_leave_nothing_behind() {
    let mut runs = 0_u32;
    let meddlers: [Meddler; 3] = [
        ("a sync", || on_ada("sync")),
        ("a put", || put(RENAMED)),
        ("a delete", || on_ada("delete")),
    ];
    for (change, (name, job, people)) in cases().filter(|(_, (name, ..))| *name != "move") {
        let people = people(change.0, change.1);
        for (old_first, (meddler, meddling)) in [true, false]
            .into_iter()
            .flat_map(|first| meddlers.map(|meddler| (first, meddler)))
        {
            let subject = |(old, new): &(Lab, Lab)| {
                if old_first {
                    (old.clone(), new.clone())
                } else {
                    (new.clone(), old.clone())
                }
            };
            let operations = subject(&prepared(change).await)
                .0
                .operations_of(&job())
                .await;
            for at in 1..=operations {
                let labs = prepared(change).await;
                let (lab, other) = subject(&labs);
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults
                    .meddle(async move { drop(other.work(&meddling()).await) }.boxed());
                let ended = lab.deliver(&job(), 1).await.expect("no crash").is_ok();
                lab.faults.calm();
                // Work that the worker with the old catalog leaves behind is delivered to a worker with the new
                // catalog.
                if !ended {
                    labs.1.deliver_until_done(&job()).await;
                }
                labs.1.do_queued().await;
                labs.1.finish().await;
                let worker = if old_first { "old" } else { "new" };
                let story = format!(
                    "from {:?} to {:?}: {name} by the {worker} catalog, {meddler} by the other before operation {at}",
                    change.0, change.1
                );
                let left = present(&labs.1, &people).await;
                backfilled(&labs.1, &left, change.1, &story).await;
                runs += 1;
            }
        }
    }
    assert!(
        runs > 600,
        "only {runs} runs: the sweep must run all stories"
    );
}

/// The people as the rows show them, because either of two concurrent jobs may have been the last.
async fn present(lab: &Lab, people: &[Person]) -> Vec<Person> {
    let (rows, by) = (lab.rows("Employees").await, people[0].by);
    let known = [ADA, BEA, RENAMED];
    let is = |row: &evenkeel_model::Row, person: &Person| {
        row.entity.key.rk.as_str() == person.rk
            && row.entity.text("LastName") == Some(person.name)
            && row.entity.text("Email") == Some(person.email)
    };
    let found = rows.iter().map(|row| {
        known
            .into_iter()
            .find(|person| is(row, person))
            .unwrap_or_else(|| panic!("unexpected person {row:?}"))
    });
    found.map(|person| Person { by, ..person }).collect()
}

#[test]
fn the_two_accounts_have_these_names() {
    assert_eq!(BOTH, ["main", other().as_str()]);
}
