//! Items inside shared rows: lists, properties on other entities, and totals of groups.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{EdmValue, Entity, EntityKey};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_name]
kind = "index_entity"
source = "Staff§"
store = "table"
table = "Lists§"
partition_key = "name"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Staff"

[views.by_name_near]
kind = "index_entity"
source = "Staff§"
store = "partition"
row_key = "name_{LastName}"
member = ["{RowKey}"]
property = "Staff"

[views.manager]
kind = "denormalize"
source = "Staff§"
when = "IsManager == true"
table = "Departments§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{FirstName} {LastName}", ManagerSince = "{Since}" }
on_conflict = "reject"

[views.headcount]
kind = "aggregate"
source = "Staff§"
group_table = "Groups§"
partition_key = "department"
row_key = "{PartitionKey}"
set = { Headcount = "count()", Payroll = "sum(Salary)", Highest = "max(Salary)" }

[tables.Departments§]
"#;

#[derive(Clone)]
struct Person {
    name: &'static str,
    salary: Option<i32>,
    manager: bool,
}

type PersonState = (&'static str, Option<i32>, bool);

type Staff = BTreeMap<(&'static str, &'static str), Person>;

fn put(key: (&str, &str), person: &Person) -> Value {
    let mut entity = json!({"PartitionKey": key.0, "RowKey": key.1, "FirstName": "Ada", "LastName": person.name, "IsManager": person.manager,
        "Since": "2026-11-20T15:00:00Z", "Since@odata.type": "Edm.DateTime"});
    if let Some(salary) = person.salary {
        entity["Salary"] = salary.into();
    }
    json!({"op": "put", "table": "Staff§", "entity": entity})
}

async fn agrees(site: &Site, staff: &Staff) {
    let mut names: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let mut groups: BTreeMap<&str, Vec<Option<i64>>> = BTreeMap::new();
    for (key, person) in staff {
        if !person.name.is_empty() {
            names.entry(person.name).or_default().insert(*key);
        }
        groups
            .entry(key.0)
            .or_default()
            .push(person.salary.map(i64::from));
    }
    let lists: Vec<_> = site
        .keys("Lists§", "Staff")
        .await
        .into_iter()
        .map(|(_, rk, list)| (rk, list))
        .collect();
    let wanted: Vec<_> = names
        .iter()
        .map(|(name, members)| ((*name).to_owned(), json!(members).to_string()))
        .collect();
    assert_eq!(lists, wanted);

    let mut near: BTreeMap<(String, String), BTreeSet<[&str; 1]>> = BTreeMap::new();
    for (key, person) in staff.iter().filter(|(_, person)| !person.name.is_empty()) {
        near.entry((key.0.to_owned(), format!("name_{}", person.name)))
            .or_default()
            .insert([key.1]);
    }
    let lists = site
        .keys("Staff§", "Staff")
        .await
        .into_iter()
        .filter(|(_, rk, _)| rk.starts_with("name_"));
    let wanted = near
        .into_iter()
        .map(|((pk, rk), members)| (pk, rk, json!(members).to_string()));
    assert_eq!(lists.collect::<Vec<_>>(), wanted.collect::<Vec<_>>());

    let found: Vec<String> = site
        .keys("Groups§", "")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk)
        .collect();
    assert_eq!(found, groups.keys().copied().collect::<Vec<_>>());
    for (group, salaries) in groups {
        let row = site
            .row("Groups§", "department", group)
            .await
            .unwrap()
            .entity;
        let figures = ["Headcount", "Payroll", "Highest"].map(|name| row.get(name).cloned());
        let known: Vec<i64> = salaries.iter().flatten().copied().collect();
        let wanted = [
            Some(i64::try_from(salaries.len()).unwrap()),
            Some(known.iter().sum()),
            known.iter().max().copied(),
        ];
        assert_eq!(
            figures,
            wanted.map(|figure| figure.map(EdmValue::Int64)),
            "{group}"
        );
    }

    for department in ["Sales", "Ops"] {
        let row = site
            .row("Departments§", department, "department")
            .await
            .unwrap()
            .entity;
        let manager = staff
            .iter()
            .find(|(key, person)| key.0 == department && person.manager);
        let name = manager.map(|(_, person)| format!("Ada {}", person.name));
        assert_eq!(row.text("ManagerName"), name.as_deref(), "{department}");
        assert_eq!(
            matches!(row.get("ManagerSince"), Some(EdmValue::DateTime(_))),
            manager.is_some(),
            "a bare property keeps its type"
        );
        assert_eq!(
            row.text("Budget"),
            Some("plenty"),
            "properties of others must remain"
        );
        assert_eq!(row.get("ek_owner_manager").is_some(), manager.is_some());
    }
    for (pk, rk) in staff.keys() {
        let plan = site.plan("Staff§", pk, rk).await;
        assert!(plan.in_step, "{plan}");
    }
}

async fn departments(site: &Site) {
    for department in ["Sales", "Ops"] {
        let key = EntityKey::new(department, "department").unwrap();
        site.write("Departments§", Entity::new(key).with("Budget", "plenty"))
            .await;
    }
}

pub(crate) async fn what_is_shared_follows_its_primaries_through_their_lives(site: &Site) {
    departments(site).await;
    let mut staff = Staff::new();
    let odd = "a,b\"c 한";
    let lives: [(&str, &str, Option<PersonState>); 12] = [
        ("Sales", "1", Some(("King", Some(100), true))),
        ("Sales", odd, Some(("King", Some(50), false))),
        ("Ops", "1", Some(("King", None, false))),
        ("Ops", "2", Some(("Lovelace", Some(-7), true))),
        ("Sales", "1", Some(("Byron", Some(120), true))),
        ("Sales", odd, Some(("", Some(51), false))),
        ("Ops", "2", Some(("Lovelace", Some(8), false))),
        ("Ops", "1", Some(("King", Some(1), true))),
        ("Sales", "1", None),
        ("Ops", "2", None),
        ("Sales", "1", Some(("King", Some(3), true))),
        ("Ops", "1", None),
    ];
    for (pk, rk, person) in lives {
        if let Some((name, salary, manager)) = person {
            let person = Person {
                name,
                salary,
                manager,
            };
            site.work(put((pk, rk), &person)).await;
            staff.insert((pk, rk), person);
        } else {
            site.work(json!({"op": "delete", "table": "Staff§", "pk": pk, "rk": rk}))
                .await;
            staff.remove(&(pk, rk));
        }
        agrees(site, &staff).await;
    }
}

pub(crate) async fn the_same_job_again_changes_no_figure(site: &Site) {
    departments(site).await;
    let person = Person {
        name: "King",
        salary: Some(100),
        manager: false,
    };
    let (job, delivery) = site.message(&put(("Sales", "1"), &person));
    for _ in 0..3 {
        site.deliver(&job, &delivery).await.unwrap();
    }
    agrees(site, &Staff::from([(("Sales", "1"), person)])).await;
}

pub(crate) async fn two_who_claim_one_entity_are_a_conflict_that_names_the_other(site: &Site) {
    departments(site).await;
    let manager = Person {
        name: "King",
        salary: None,
        manager: true,
    };
    site.work(put(("Sales", "1"), &manager)).await;
    let error = site
        .attempt(&put(
            ("Sales", "2"),
            &Person {
                name: "Byron",
                ..manager.clone()
            },
        ))
        .await
        .unwrap_err()
        .chain();
    assert!(
        error.contains("is taken by") && error.contains("(\"Sales\", \"1\")"),
        "{error}"
    );
    let row = site
        .row("Departments§", "Sales", "department")
        .await
        .unwrap()
        .entity;
    assert_eq!(row.text("ManagerName"), Some("Ada King"));
}

pub(crate) async fn an_entity_that_is_missing_is_not_made_and_gets_its_properties_once_it_is_there(
    site: &Site,
) {
    let manager = Person {
        name: "King",
        salary: None,
        manager: true,
    };
    site.work(put(("Sales", "1"), &manager)).await;
    assert!(
        site.row("Departments§", "Sales", "department")
            .await
            .is_none()
    );
    assert!(site.plan("Staff§", "Sales", "1").await.in_step);
    // The sync reads the footprint, the primary and the target row, and writes no item of another view.
    let sync = json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "1"});
    assert_eq!(site.requests_of(sync).await, 3);
    departments(site).await;
    site.work(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "1"}))
        .await;
    agrees(site, &Staff::from([(("Sales", "1"), manager)])).await;
}

pub(crate) async fn a_put_that_replaces_the_entity_keeps_what_a_view_has_set_on_it(site: &Site) {
    departments(site).await;
    let manager = Person {
        name: "King",
        salary: None,
        manager: true,
    };
    site.work(put(("Sales", "1"), &manager)).await;
    site.work(
        json!({"op": "put", "table": "Departments§", "entity": {"PartitionKey": "Sales", "RowKey": "department", "Budget": "plenty"}}),
    )
    .await;
    agrees(site, &Staff::from([(("Sales", "1"), manager)])).await;
}

pub(crate) async fn what_a_job_costs(site: &Site) {
    departments(site).await;
    let person = Person {
        name: "King",
        salary: Some(100),
        manager: true,
    };
    let requests = [
        site.requests_of(put(("Sales", "1"), &person)).await,
        site.requests_of(put(
            ("Sales", "1"),
            &Person {
                name: "Byron",
                ..person.clone()
            },
        ))
        .await,
        site.requests_of(put(
            ("Sales", "1"),
            &Person {
                name: "Byron",
                salary: Some(101),
                manager: true,
            },
        ))
        .await,
        site.requests_of(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "1"}))
            .await,
        site.requests_of(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "1"}))
            .await,
    ];
    assert_eq!(requests, COSTS, "docs/performance.md has these numbers");
}

/// Number of requests of a put that creates a person, a put that changes the name, a put that changes a salary, a sync without a change, and a
/// delete. The views are a list in another table, a list in the partition of the person, a property set and a group.
const COSTS: [u64; 5] = [12, 13, 8, 2, 13];
