//! All patterns at once: two workers, and a client that changes entities for a while. Afterwards derived data must be
//! exactly what this file computes from the primaries.
//!
//! The test runs in one account, spread over four accounts, and with an identity of Entra ID in an account that refuses
//! shared keys. `EVENKEEL_EVERYTHING` sets the duration of each run in seconds (30 by default).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_model::{ContainerName, EdmValue, Entity, EntityKey, QueueName, Row, TableName, body};
use evenkeel_storage::{Account, ErrorClass, TableOperation, Ttl, all_blobs};
use serde_json::{Value, json};

use crate::end_to_end::authority::Authority;
use crate::end_to_end::elsewhere::{ENOUGH_READINGS, Elsewhere, article, reading};
use crate::end_to_end::site::{Further, Place, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Azurite;

const CATALOG: &str = r#"
[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
partition_key = "email"
row_key = "{Email|lower}"
select = ["Email", "LastName"]

[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "Employees"
partition_key = "{PartitionKey}"
row_key = "name_{LastName}_{RowKey}"

[views.emails_seen]
kind = "secondary_index"
source = "ByEmail"
table = "EmailsSeen"
partition_key = "seen"
row_key = "{RowKey}"
select = ["LastName"]

[views.list]
kind = "index_entity"
source = "Employees"
store = "table"
table = "Lists"
partition_key = "last_name"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Employees"

[views.list_near]
kind = "index_entity"
source = "Employees"
store = "partition"
row_key = "list_{LastName}"
member = ["{RowKey}"]
property = "Employees"

[views.list_blob]
kind = "index_entity"
source = "Employees"
store = "blob"
container = "employee-lists"
name = "by_name/{LastName}.jsonl"
member = ["{PartitionKey}", "{RowKey}"]

[views.bodies]
kind = "large_entity"
source = "Papers"
properties = ["Body"]
container = "bodies"
threshold = "1KiB"

[views.manager]
kind = "denormalize"
source = "Employees"
when = "IsManager == true"
table = "Departments"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }

[views.headcount]
kind = "aggregate"
source = "Employees"
group_table = "Groups"
partition_key = "department"
row_key = "{PartitionKey}"
set = { Headcount = "count()", Payroll = "sum(Salary)", Highest = "max(Salary)" }

[views.former_by_email]
kind = "secondary_index"
source = "FormerEmployees"
table = "FormerByEmail"
partition_key = "{Email|lower}"
row_key = "{PartitionKey}_{RowKey}"
select = ["Email"]

[views.by_city]
kind = "secondary_index"
source = "Movers"
table = "ByCity"
partition_key = "{City}"
row_key = "{PartitionKey}_{RowKey}"
select = ["City"]

[views.region_name]
kind = "denormalize"
targets = "range"
source = "Regions"
table = "Movers"
partition_key = "{PartitionKey}"
set = { RegionName = "{Name}" }

[views.wide_by_city]
kind = "secondary_index"
source = "Wide"
table = "WideByCity"
partition_key = "{City}"
row_key = "{PartitionKey}_{RowKey}"
select = ["City"]

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }

[archives.documents]
source = "Employees"
to = { kind = "blob", container = "former-employees" }

[archives.log]
source = "Events"
to = { kind = "append_blob", container = "events", path = "logs/%Y/%m/%d/%H00" }

[tables.Departments]
[tables.Wide]
wide = true

[retention.logins]
tables = "Logins%Y%m%d"
keep = "60d"
"#;
const FURTHER: Further = &[
    (
        "derived",
        &[
            "ByEmail",
            "EmailsSeen",
            "Lists",
            "Departments",
            "Groups",
            "FormerEmployees",
            "FormerByEmail",
            "ByCity",
            "WideByCity",
            "LoginsByUser",
        ],
    ),
    (
        "files",
        &["employee-lists", "bodies", "former-employees", "events"],
    ),
    ("messages", &[QUEUE, "evenkeel-jobs-recheck"]),
];
const DEPARTMENTS: [&str; 3] = ["Sales", "Ops", "Research"];
const NAMES: [&str; 4] = ["King", "Byron", "O'Neil, \"Ann\"", "한"];
const CITIES: [&str; 3] = ["Oslo", "Lima", "Pune"];

struct FixedRng(u64);

impl FixedRng {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }

    fn of<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }
}

#[derive(Default)]
struct ClientStep {
    own: Vec<(&'static str, TableOperation)>,
    jobs: Vec<Value>,
}

fn client_step(dice: &mut FixedRng, number: usize, elsewhere: &Elsewhere) -> ClientStep {
    let (pk, n) = (dice.of(&DEPARTMENTS), dice.below(8));
    let rk = n.to_string();
    let employee = json!({"PartitionKey": pk, "RowKey": rk, "Email": format!("{pk}{n}.{}@Contoso.com", dice.below(3)),
        "LastName": dice.of(&NAMES), "Salary": number, "IsManager": n == 0 && dice.below(2) == 0});
    let key = EntityKey::new(pk, rk.as_str()).unwrap();
    let on = |op: &str| json!({"op": op, "table": "Employees", "pk": pk, "rk": rk});
    let archive =
        |op: &str, archive: &str| json!({"op": op, "archive": archive, "pk": pk, "rk": rk});
    let jobs = |jobs: Vec<Value>| ClientStep {
        jobs,
        ..ClientStep::default()
    };
    match dice.below(20) {
        0..=3 => jobs(vec![
            json!({"op": "put", "table": "Employees", "entity": employee}),
        ]),
        4 => jobs(vec![
            json!({"op": "put", "table": "Employees", "mode": "merge", "entity":
            {"PartitionKey": pk, "RowKey": rk, format!("Hour{:02}", number % 24): number}}),
        ]),
        5 | 6 => ClientStep {
            own: vec![(
                "Employees",
                TableOperation::InsertOrReplace(entity(&employee)),
            )],
            jobs: vec![on("sync")],
        },
        7 => ClientStep {
            own: vec![(
                "Employees",
                TableOperation::Delete(key, evenkeel_storage::IfMatch::Any),
            )],
            jobs: vec![on("sync")],
        },
        8 => jobs(vec![on("delete")]),
        9 => jobs(vec![archive("archive", "former")]),
        10 => jobs(vec![archive("restore", "former")]),
        11 => jobs(vec![archive("archive", "documents")]),
        12 => {
            let rk = number.to_string();
            let city = dice.of(&CITIES);
            jobs(vec![
                json!({"op": "put", "table": "Movers", "entity": {"PartitionKey": "from", "RowKey": rk, "City": city}}),
                json!({"op": "move", "table": "Movers", "pk": "from", "rk": rk, "to_pk": "to", "to_rk": format!("{rk}-moved")}),
                json!({"op": "put", "table": "Events", "entity": {"PartitionKey": "e", "RowKey": rk, "City": city}}),
                json!({"op": "archive", "archive": "log", "pk": "e", "rk": rk}),
            ])
        }
        13 => jobs(vec![json!({"op": "put", "table": "Papers", "entity":
            {"PartitionKey": "p", "RowKey": rk, "Body": format!("{} ", dice.below(4)).repeat(800)}})]),
        14 => jobs(vec![
            json!({"op": "delete", "table": "Papers", "pk": "p", "rk": rk}),
        ]),
        15 => {
            let region = json!({"PartitionKey": dice.of(&["from", "to"]), "RowKey": "region", "Name": format!("Region {number}")});
            jobs(vec![
                json!({"op": "put", "table": "Regions", "entity": region}),
            ])
        }
        16 => jobs(vec![elsewhere.login(&rk, dice.of(&CITIES))]),
        17 => jobs(vec![reading(number)]),
        18 => jobs(vec![article(&rk, number)]),
        _ => {
            let mut wide = json!({"PartitionKey": "w", "RowKey": rk, "City": dice.of(&CITIES)});
            for nth in 0..if n % 2 == 0 { 400 } else { 3 + dice.below(400) } {
                wide[format!("P{nth}")] = number.into();
            }
            jobs(vec![json!({"op": "put", "table": "Wide", "entity": wide})])
        }
    }
}

fn entity(json: &Value) -> Entity {
    evenkeel_model::odata::decode(json).unwrap()
}

fn goes_on() -> Duration {
    Duration::from_secs(std::env::var("EVENKEEL_EVERYTHING").map_or(30, |seconds| {
        seconds.parse().expect("EVENKEEL_EVERYTHING is a number")
    }))
}

async fn does(account: &Account, queues: &Account, client_step: ClientStep) {
    for (table, operation) in client_step.own {
        // The entity that the client deletes may already be missing. Either way, the sync that follows finds no entity.
        let done = account
            .tables
            .apply(&TableName::new(table).unwrap(), &operation)
            .await;
        assert!(
            done.as_ref()
                .err()
                .is_none_or(evenkeel_storage::StoreError::is_missing_item),
            "{done:?}"
        );
    }
    let queue = QueueName::new(QUEUE).unwrap();
    for job in client_step.jobs {
        queues
            .queues
            .put(
                &queue,
                &body::encode(&job.to_string()),
                Duration::ZERO,
                Ttl::Never,
            )
            .await
            .unwrap();
    }
}

type Rows = BTreeMap<(String, String), BTreeMap<String, EdmValue>>;

fn only(rows: &BTreeMap<(String, String), Row>, names: &[&str]) -> Rows {
    let of = |row: &Row| {
        names
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), row.entity.get(name)?.clone())))
            .collect()
    };
    rows.iter()
        .map(|(key, row)| (key.clone(), of(row)))
        .filter(|(_, found): &(_, BTreeMap<_, _>)| !found.is_empty())
        .collect()
}

fn properties<const N: usize>(values: [(&str, Option<EdmValue>); N]) -> BTreeMap<String, EdmValue> {
    values
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

fn source(table: &str, (pk, rk): &(String, String)) -> (&'static str, Option<EdmValue>) {
    ("ek_source", Some(json!([table, pk, rk]).to_string().into()))
}

fn assert_same<V: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &BTreeMap<(String, String), V>,
    wanted: &BTreeMap<(String, String), V>,
) {
    let keys: BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let differ = keys
        .into_iter()
        .filter(|key| found.get(*key) != wanted.get(*key));
    let differ: Vec<String> = differ
        .map(|key| {
            format!(
                "{key:?}: found {:?}, expected {:?}",
                found.get(key),
                wanted.get(key)
            )
        })
        .collect();
    assert!(differ.is_empty(), "{what}:\n{}", differ.join("\n"));
}

fn assert_derived(site: &Site, elsewhere: &Elsewhere, readings: usize) {
    let all = site.rows("Employees");
    let derived = |row: &Row| row.entity.get("ek_view").is_some();
    let employees: BTreeMap<_, _> = all.iter().filter(|(_, row)| !derived(row)).collect();
    assert!(!employees.is_empty(), "no employee is left");
    elsewhere.assert_derived(site, readings);

    let (mut by_email, mut near, mut seen) = (Rows::new(), Rows::new(), Rows::new());
    let (mut lists, mut near_lists) = (
        BTreeMap::<String, BTreeSet<[String; 2]>>::new(),
        BTreeMap::<(String, String), BTreeSet<[String; 1]>>::new(),
    );
    let mut groups: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    let mut managers: BTreeMap<String, String> = BTreeMap::new();
    for (key, row) in &employees {
        let text = |name: &str| row.entity.text(name).filter(|text| !text.is_empty());
        let (pk, rk) = (*key).clone();
        if let Some(email) = text("Email") {
            let lower = email.to_lowercase();
            let copy = [
                ("Email", Some(email.into())),
                ("LastName", row.entity.get("LastName").cloned()),
            ];
            by_email.insert(
                ("email".to_owned(), lower.clone()),
                properties([copy[0].clone(), copy[1].clone(), source("Employees", key)]),
            );
            let owner = ("email".to_owned(), lower.clone());
            seen.insert(
                ("seen".to_owned(), lower),
                properties([copy[1].clone(), source("ByEmail", &owner)]),
            );
        }
        if let Some(name) = text("LastName") {
            near.insert(
                (pk.clone(), format!("name_{name}_{rk}")),
                properties([
                    ("Email", row.entity.get("Email").cloned()),
                    source("Employees", key),
                ]),
            );
            lists
                .entry(name.to_owned())
                .or_default()
                .insert([pk.clone(), rk.clone()]);
            near_lists
                .entry((pk.clone(), format!("list_{name}")))
                .or_default()
                .insert([rk.clone()]);
            if row.entity.get("IsManager") == Some(&EdmValue::Bool(true)) {
                managers.insert(pk.clone(), name.to_owned());
            }
        }
        let salary = match row.entity.get("Salary") {
            Some(EdmValue::Int32(salary)) => Some(i64::from(*salary)),
            Some(other) => panic!("{other:?}"),
            None => None,
        };
        groups.entry(pk).or_default().extend(salary);
    }
    assert_same(
        "ByEmail",
        &only(&site.rows("ByEmail"), &["Email", "LastName", "ek_source"]),
        &by_email,
    );
    assert_same(
        "EmailsSeen",
        &only(&site.rows("EmailsSeen"), &["LastName", "ek_source"]),
        &seen,
    );
    let beside: BTreeMap<_, _> = all
        .iter()
        .filter(|(_, row)| derived(row))
        .map(|(key, row)| (key.clone(), row.clone()))
        .collect();
    let (copies, documents): (BTreeMap<_, _>, BTreeMap<_, _>) = beside
        .into_iter()
        .partition(|((_, rk), _)| rk.starts_with("name_"));
    assert_same("by_name", &only(&copies, &["Email", "ek_source"]), &near);
    let list = |row: &Row| row.entity.text("Employees").unwrap_or_default().to_owned();
    let near_lists: BTreeMap<_, _> = near_lists
        .into_iter()
        .map(|(key, members)| (key, json!(members).to_string()))
        .collect();
    assert_same(
        "list_near",
        &documents
            .iter()
            .map(|(key, row)| (key.clone(), list(row)))
            .collect(),
        &near_lists,
    );
    let lists: BTreeMap<_, _> = lists
        .into_iter()
        .map(|(name, members)| (("last_name".to_owned(), name), json!(members).to_string()))
        .collect();
    assert_same(
        "Lists",
        &site
            .rows("Lists")
            .iter()
            .map(|(key, row)| (key.clone(), list(row)))
            .collect(),
        &lists,
    );

    for ((_, name), members) in &lists {
        let found = site.command(&["--json", "lookup", "list_blob", &format!("LastName={name}")]);
        assert_eq!(found.code, 0, "{}", found.err);
        let found: Vec<Value> = found
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let (summary, found) = found.split_last().unwrap();
        assert_eq!(summary["rows"], found.len(), "{summary}");
        assert_eq!(
            json!(
                found
                    .iter()
                    .map(|row| [&row["PartitionKey"], &row["RowKey"]])
                    .collect::<Vec<_>>()
            )
            .to_string(),
            *members,
            "the blob of {name}"
        );
    }
    assert_eq!(
        blobs(site, "employee-lists").len(),
        lists.len(),
        "an empty list must be deleted"
    );

    let pointed: BTreeSet<String> = site
        .rows("Papers")
        .values()
        .map(|row| {
            serde_json::from_str::<Value>(row.entity.text("Body").unwrap()).unwrap()["$blob"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    // If two workers raced for a paper, one leaves a blob to a recheck, because the other may have been about to write
    // a pointer to it.
    let footprints = site.rows("EvenkeelFootprints");
    let met = |name: &str| {
        let rk = name
            .strip_prefix("papers/p/")
            .and_then(|rest| rest.split('/').next())
            .unwrap()
            .to_owned();
        footprints[&("Papers~p".to_owned(), rk)]
            .entity
            .get("TaintedUntil")
            .is_some()
    };
    let there: BTreeSet<String> = blobs(site, "bodies")
        .into_iter()
        .map(|name| format!("bodies/{name}"))
        .collect();
    let dangling: Vec<_> = pointed.difference(&there).collect();
    let orphaned: Vec<_> = there
        .difference(&pointed)
        .filter(|name| !met(&name["bodies/".len()..]))
        .collect();
    assert!(
        dangling.is_empty() && orphaned.is_empty(),
        "pointers without a blob: {dangling:?}; blobs without a pointer: {orphaned:?}"
    );

    let number = |number: i64| Some(EdmValue::Int64(number));
    let groups = groups.into_iter().map(|(group, salaries)| {
        let people = employees.keys().filter(|(pk, _)| *pk == group).count();
        let figures = [
            ("Headcount", number(i64::try_from(people).unwrap())),
            ("Payroll", number(salaries.iter().sum())),
            ("Highest", salaries.iter().max().copied().and_then(number)),
        ];
        (("department".to_owned(), group), properties(figures))
    });
    assert_same(
        "Groups",
        &only(&site.rows("Groups"), &["Headcount", "Payroll", "Highest"]),
        &groups.collect(),
    );
    let managers = managers.into_iter().map(|(pk, name)| {
        (
            (pk, "department".to_owned()),
            properties([("ManagerName", Some(name.into()))]),
        )
    });
    assert_same(
        "Departments",
        &only(&site.rows("Departments"), &["ManagerName"]),
        &managers.collect(),
    );
    assert_eq!(
        site.rows("Departments").len(),
        DEPARTMENTS.len(),
        "none is made"
    );

    let (movers, regions) = (site.rows("Movers"), site.rows("Regions"));
    for ((pk, rk), row) in &movers {
        let region = regions
            .get(&(pk.clone(), "region".to_owned()))
            .and_then(|region| region.entity.text("Name"));
        assert_eq!(row.entity.text("RegionName"), region, "Movers({pk}, {rk})");
    }
    assert!(
        movers.keys().any(|(pk, _)| pk == "to") && regions.len() == 2,
        "an entity must have moved to a region"
    );

    for (from, to, value, key) in [
        ("FormerEmployees", "FormerByEmail", "Email", true),
        ("Movers", "ByCity", "City", false),
        ("Wide", "WideByCity", "City", false),
    ] {
        let wanted = site.rows(from).into_iter().filter_map(|((pk, rk), row)| {
            let text = row.entity.text(value)?.to_owned();
            let first = if key {
                text.to_lowercase()
            } else {
                text.clone()
            };
            let says = properties([
                (value, Some(text.into())),
                source(from, &(pk.clone(), rk.clone())),
            ]);
            Some(((first, format!("{pk}_{rk}")), says))
        });
        assert_same(
            to,
            &only(&site.rows(to), &[value, "ek_source"]),
            &wanted.collect(),
        );
    }
}

fn blobs(site: &Site, container: &str) -> Vec<String> {
    let (account, container) = (
        site.account_of(container),
        ContainerName::new(container).unwrap(),
    );
    site.with_account(account, async |account| {
        let blobs = all_blobs(account.blobs.as_ref(), &container, "")
            .await
            .unwrap();
        blobs
            .into_iter()
            .map(|blob| blob.name.to_string())
            .collect()
    })
}

fn lives(site: &Site, elsewhere: &Elsewhere) {
    site.migrate();
    let departments: Vec<Entity> = DEPARTMENTS
        .iter()
        .map(|name| Entity::new(EntityKey::new(*name, "department").unwrap()).with("Budget", 1))
        .collect();
    site.write("Departments", &departments);
    let workers = [
        site.worker(&["--set", "queues.0.concurrency=16"]),
        site.worker(&["--set", "queues.0.concurrency=16"]),
    ];
    let mut dice = FixedRng(20_261_120);
    let (steps, readings) = site.with(async |account| {
        let (mut steps, mut readings) = (0, 0);
        let (queues, goes_on) = (site.account(site.account_of(QUEUE)), goes_on());
        let began = tokio::time::Instant::now();
        // The time limit is checked only between steps, because a write whose message is not sent would not be derived.
        // On a slow machine the loop runs beyond the limit, until enough readings were sent.
        while began.elapsed() < goes_on || readings < ENOUGH_READINGS {
            steps += 1;
            let next = client_step(&mut dice, steps, elsewhere);
            readings += next
                .jobs
                .iter()
                .filter(|job| job["table"] == "Series")
                .count();
            does(&account, &queues, next).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        (steps, readings)
    });
    wait_until("everything is done", || site.count(QUEUE) == 0);
    for worker in workers {
        worker.stop();
    }
    // An employee can be both present and archived. Then the restore is refused.
    for poison in site.poison() {
        let error = poison["error"].as_str().unwrap_or_default();
        assert!(error.contains("was not restored by this job"), "{poison}");
    }
    assert!(steps > 100, "{steps} steps");
    assert_derived(site, elsewhere, readings);
    let audited = site.command(&["--json", "audit"]);
    assert_eq!(audited.code, 0, "{}{}", audited.out, audited.err);
}

/// A line of a catalog. If it declares a table or container, the account is added.
fn spread(site: &Site, line: &str) -> String {
    let named = ["table = \"", "container = \"", "[tables."]
        .iter()
        .find_map(|key| line.split_once(key))
        .map(|(_, rest)| rest);
    let account = named.map_or("main", |name| {
        site.account_of(name.split(['"', ']', '%']).next().unwrap())
    });
    match line.strip_suffix(" }") {
        _ if account == "main" => line.to_owned(),
        Some(inline) => format!("{inline}, account = \"{account}\" }}"),
        None => format!("{line}\naccount = \"{account}\""),
    }
}

/// A site whose views, archives and queue are not in the account of the primaries.
fn in_four_accounts(place: Place, elsewhere: &Elsewhere) -> Site {
    let mut site = Site::new(place, "");
    site.look_in(FURTHER);
    let accounts: Vec<&str> = FURTHER.iter().map(|(account, _)| *account).collect();
    let queue = format!(
        "[[queues]]\nname = \"{QUEUE}\"\naccount = \"{}\"\n",
        site.account_of(QUEUE)
    );
    let catalog = format!(
        "{}{queue}{CATALOG}{}",
        site.settings_of(&accounts),
        elsewhere.catalog()
    );
    let spread = catalog
        .lines()
        .map(|line| spread(&site, line))
        .collect::<Vec<_>>()
        .join("\n");
    site.declare(&spread);
    site
}

#[test]
fn every_pattern_at_once_leaves_nothing_stale_and_nothing_orphaned_on_the_embedded_store() {
    let elsewhere = Elsewhere::new();
    lives(
        &Site::embedded(&format!("{CATALOG}{}", elsewhere.catalog())),
        &elsewhere,
    );
}

#[test]
fn every_pattern_at_once_leaves_nothing_stale_and_nothing_orphaned_on_azurite() {
    let elsewhere = Elsewhere::new();
    lives(
        &Site::azurite(&format!("{CATALOG}{}", elsewhere.catalog())),
        &elsewhere,
    );
}

#[test]
fn every_pattern_at_once_is_spread_over_four_accounts_on_the_embedded_store() {
    let elsewhere = Elsewhere::new();
    lives(&in_four_accounts(Place::Embedded, &elsewhere), &elsewhere);
}

#[test]
fn every_pattern_at_once_is_spread_over_four_accounts_on_azurite() {
    let elsewhere = Elsewhere::new();
    let accounts: Vec<&str> = FURTHER.iter().map(|(account, _)| *account).collect();
    lives(
        &in_four_accounts(
            Place::Azurite(Azurite::with_accounts(&accounts)),
            &elsewhere,
        ),
        &elsewhere,
    );
}

#[test]
fn every_pattern_at_once_works_by_identity_where_shared_keys_are_refused() {
    let (elsewhere, authority) = (Elsewhere::new(), Authority::start());
    let mut site = Site::azurite("");
    let gateway = authority.gateway(site.ports());
    let refused = site.with(async |_| {
        gateway
            .ports
            .connect()
            .tables
            .list_tables(None)
            .await
            .unwrap_err()
    });
    assert_eq!(refused.class, ErrorClass::Unauthorised, "{refused}");
    site.declare_account(
        &gateway.account("devstoreaccount1"),
        &format!("{CATALOG}{}", elsewhere.catalog()),
    );
    site.set_environment(
        authority
            .workload()
            .into_iter()
            .chain([authority.trust()])
            .collect(),
    );
    for claims in [json!({"aud": "https://vault.azure.net"}), json!({"exp": 1})] {
        authority.federate(&claims);
        assert_eq!(site.command(&["migrate", "up"]).code, 4, "{claims}");
    }
    authority.federate(&json!({}));
    lives(&site, &elsewhere);
}
