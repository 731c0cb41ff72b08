//! Both directions at once: a department sets its name on its people, and the manager sets the manager's properties on
//! the department. Departments and people are in one partition, as in Azure's guide, or in two tables.

use std::collections::BTreeMap;

use evenkeel_engine::Mismatch;
use evenkeel_model::{EdmValue, EntityKey, Job, TableName};
use evenkeel_storage::{IfMatch, TableOperation};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.department]
kind = "denormalize"
targets = "range"
source = "Company§"
when = 'RowKey == "department"'
table = "Company§"
partition_key = "{PartitionKey}"
set = { DepartmentName = "{Name}", Floor = "{Storey}" }

[views.manager]
kind = "denormalize"
source = "Company§"
when = "IsManager == true"
table = "Company§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}", ManagerEmail = "{Email}" }
on_conflict = "reject"

[views.employee_count]
kind = "aggregate"
source = "Company§"
when = 'RowKey != "department"'
group_table = "Company§"
partition_key = "{PartitionKey}"
row_key = "employee_count"
set = { EmployeeCount = "count()" }

[views.by_department]
kind = "secondary_index"
source = "Company§"
table = "ByDepartment§"
partition_key = "{DepartmentName|slug}"
row_key = "{PartitionKey}_{RowKey}"
select = ["LastName", "Floor"]
on_conflict = "reject"

[views.department_apart]
kind = "denormalize"
targets = "range"
source = "Departments§"
table = "Staff§"
partition_key = "{PartitionKey}"
set = { DepartmentName = "{Name}", Floor = "{Storey}" }

[views.manager_apart]
kind = "denormalize"
source = "Staff§"
when = "IsManager == true"
table = "Departments§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}", ManagerEmail = "{Email}" }
on_conflict = "reject"

[views.twin]
kind = "denormalize"
targets = "range"
source = "Twins§"
when = 'startsWith(RowKey, "twin")'
table = "Twins§"
partition_key = "{PartitionKey}"
set = { Twin = "{Name}" }

[views.by_sign]
kind = "secondary_index"
source = "Twins§"
table = "BySign§"
partition_key = "sign"
row_key = "{Sign}"
select = []
on_conflict = "reject"

[views.by_place]
kind = "secondary_index"
source = "Shelves§"
table = "Shelves§"
partition_key = "{PartitionKey}"
row_key = "at_{Place}"
select = []
on_conflict = "reject"

[views.by_tag]
kind = "secondary_index"
source = "Shelves§"
table = "ByTag§"
partition_key = "tag"
row_key = "{Tag}"
select = []
on_conflict = "reject"
"#;

/// The tables of departments and of people. `together` means that both are in one table, in which people are also counted and indexed.
struct Tables {
    departments: &'static str,
    people: &'static str,
    together: bool,
}

const TOGETHER: Tables = Tables {
    departments: "Company§",
    people: "Company§",
    together: true,
};
const APART: Tables = Tables {
    departments: "Departments§",
    people: "Staff§",
    together: false,
};

#[derive(Default)]
struct Company {
    departments: BTreeMap<&'static str, (&'static str, Option<i32>)>,
    people: BTreeMap<(&'static str, &'static str), (&'static str, &'static str, bool)>,
}

impl Tables {
    fn department(&self, pk: &str, (name, storey): (&str, Option<i32>)) -> Value {
        let mut entity = json!({"PartitionKey": pk, "RowKey": "department", "Name": name});
        if let Some(storey) = storey {
            entity["Storey"] = storey.into();
        }
        json!({"op": "put", "table": self.departments, "entity": entity})
    }

    fn person(&self, (pk, rk): (&str, &str), (name, email, manager): (&str, &str, bool)) -> Value {
        let entity = json!({"PartitionKey": pk, "RowKey": rk, "LastName": name, "Email": email, "IsManager": manager});
        json!({"op": "put", "table": self.people, "entity": entity})
    }
}

/// Runs the queued jobs, which must succeed. Checks that departments and people have each other's properties, and that
/// no entity sets properties on itself.
async fn agrees(site: &Site, tables: &Tables, company: &Company) {
    assert_eq!(site.do_queued().await, [""; 0]);
    let manager = |pk: &str| {
        company
            .people
            .iter()
            .find(|((of, _), (.., manages))| *of == pk && *manages)
            .map(|(_, one)| *one)
    };
    for (pk, (name, _)) in &company.departments {
        let row = site
            .row(tables.departments, pk, "department")
            .await
            .unwrap_or_else(|| panic!("{pk} does not exist"))
            .entity;
        assert_eq!(row.text("Name"), Some(*name), "{pk}");
        assert_eq!(
            row.text("ManagerName"),
            manager(pk).map(|(name, ..)| name),
            "{pk}"
        );
        assert_eq!(
            row.text("ManagerEmail"),
            manager(pk).map(|(_, email, _)| email),
            "{pk}"
        );
        assert!(
            row.get("DepartmentName").is_none() && row.get("ek_owner_department").is_none(),
            "{pk} must not set properties on itself: {row:?}"
        );
    }
    let mut filed = Vec::new();
    for ((pk, rk), (name, email, _)) in &company.people {
        let row = site
            .row(tables.people, pk, rk)
            .await
            .unwrap_or_else(|| panic!("{pk}/{rk} does not exist"))
            .entity;
        let department = company.departments.get(pk).copied();
        assert_eq!(
            row.text("DepartmentName"),
            department.map(|(name, _)| name),
            "{pk}/{rk}"
        );
        assert_eq!(
            row.get("Floor"),
            department
                .and_then(|(_, storey)| storey)
                .map(EdmValue::Int32)
                .as_ref(),
            "{pk}/{rk}"
        );
        assert_eq!(
            (row.text("LastName"), row.text("Email")),
            (Some(*name), Some(*email)),
            "properties of others must remain"
        );
        filed.extend(department.map(|(department, _)| {
            (
                department.to_lowercase(),
                format!("{pk}_{rk}"),
                (*name).to_owned(),
            )
        }));
    }
    if tables.together {
        filed.sort();
        assert_eq!(site.keys("ByDepartment§", "LastName").await, filed);
        let counts: BTreeMap<&str, i64> =
            company
                .people
                .keys()
                .fold(BTreeMap::new(), |mut counts, (pk, _)| {
                    *counts.entry(*pk).or_default() += 1;
                    counts
                });
        for (pk, count) in counts {
            let row = site
                .row("Company§", pk, "employee_count")
                .await
                .unwrap()
                .entity;
            assert_eq!(
                row.get("EmployeeCount"),
                Some(&EdmValue::Int64(count)),
                "{pk}"
            );
            assert!(
                row.get("DepartmentName").is_none(),
                "a derived row must not count as a person: {row:?}"
            );
        }
    }
    site.in_step(tables.departments).await;
    site.in_step(tables.people).await;
}

async fn lives(site: &Site, tables: &Tables) {
    let mut company = Company::default();
    for (pk, said) in [("Sales", ("Sales", Some(3))), ("Ops", ("Operations", None))] {
        site.work(tables.department(pk, said)).await;
        company.departments.insert(pk, said);
    }
    for (key, one) in [
        (("Sales", "1"), ("Kwok", "ken@contoso.com", true)),
        (("Sales", "2"), ("Cao", "jun@contoso.com", false)),
        (("Ops", "1"), ("Hall", "don@contoso.com", true)),
        (("Law", "1"), ("Price", "kim@contoso.com", true)),
    ] {
        site.work(tables.person(key, one)).await;
        company.people.insert(key, one);
    }
    agrees(site, tables, &company).await;

    site.work(tables.department("Sales", ("Trade", Some(5))))
        .await;
    company.departments.insert("Sales", ("Trade", Some(5)));
    agrees(site, tables, &company).await;

    // The manager gets another address. The job sets the address on the department, and queues no propagation.
    let one = ("Kwok", "kwok@contoso.com", true);
    site.work(tables.person(("Sales", "1"), one)).await;
    company.people.insert(("Sales", "1"), one);
    assert_eq!(
        site.queued().await,
        0,
        "the department's properties for its people are unchanged"
    );
    agrees(site, tables, &company).await;

    let to = |rk: &str, from: &str, to: &str| json!({"op": "move", "table": tables.people, "pk": from, "rk": rk, "to_pk": to, "to_rk": format!("{rk}0")});
    let one = ("Hall", "don@contoso.com", false);
    site.work(tables.person(("Ops", "1"), one)).await;
    company.people.insert(("Ops", "1"), one);
    agrees(site, tables, &company).await;
    site.work(to("1", "Sales", "Ops")).await;
    let one = company.people.remove(&("Sales", "1")).unwrap();
    company.people.insert(("Ops", "10"), one);
    agrees(site, tables, &company).await;
    site.work(to("2", "Sales", "Law")).await;
    let one = company.people.remove(&("Sales", "2")).unwrap();
    company.people.insert(("Law", "20"), one);
    agrees(site, tables, &company).await;

    site.work(tables.department("Law", ("Law", Some(1)))).await;
    company.departments.insert("Law", ("Law", Some(1)));
    agrees(site, tables, &company).await;
    site.work(
        json!({"op": "delete", "table": tables.departments, "pk": "Ops", "rk": "department"}),
    )
    .await;
    company.departments.remove("Ops");
    agrees(site, tables, &company).await;
    site.work(tables.department("Ops", ("Ops", None))).await;
    company.departments.insert("Ops", ("Ops", None));
    agrees(site, tables, &company).await;

    // The job of a second manager reports the conflict with the first manager. Everything else in that job succeeds, and so does a rename of the
    // department.
    let second = site
        .refused(tables.person(("Ops", "1"), ("Hall", "don@contoso.com", true)))
        .await;
    assert!(
        second.contains("\"10\"") && second.contains("manager"),
        "{second}"
    );
    site.work(tables.person(("Ops", "1"), ("Hall", "don@contoso.com", false)))
        .await;
    agrees(site, tables, &company).await;
    site.work(json!({"op": "delete", "table": tables.people, "pk": "Ops", "rk": "10"}))
        .await;
    company.people.remove(&("Ops", "10"));
    agrees(site, tables, &company).await;

    // A backfill, an audit and a full sync find nothing to do, and none of these jobs triggers the others forever.
    for table in [tables.people, tables.departments] {
        site.work(json!({"op": "backfill", "table": table})).await;
        agrees(site, tables, &company).await;
        site.account
            .tables
            .create_table(&TableName::new("EvenkeelAudits").unwrap())
            .await
            .unwrap();
        let (job, delivery) = site.message(&json!({"op": "audit", "table": table, "repair": true}));
        let Job::Audit(audit) = job else {
            panic!("no audit")
        };
        assert_eq!(
            site.engine
                .audit(&audit, &delivery)
                .await
                .unwrap()
                .unwrap()
                .findings,
            []
        );
        agrees(site, tables, &company).await;
    }
    for pk in ["Law", "Ops", "Sales"] {
        site.work(json!({"op": "sync", "table": tables.departments, "pk": pk, "rk": "department", "thorough": true})).await;
    }
    agrees(site, tables, &company).await;
}

pub(crate) async fn a_department_among_its_people_and_they_say_what_the_other_is_through_their_lives(
    site: &Site,
) {
    lives(site, &TOGETHER).await;
}

pub(crate) async fn a_department_and_its_people_in_two_tables_say_what_the_other_is(site: &Site) {
    lives(site, &APART).await;
}

/// Each of the twins is in the range of the other, and neither can be settled. A propagation still sets the properties of both, and their failures do
/// not queue jobs forever.
pub(crate) async fn two_failing_primaries_in_each_others_ranges_come_to_rest(site: &Site) {
    let put = |rk: &str, sign: &str| {
        let entity = json!({"PartitionKey": "p", "RowKey": rk, "Name": rk, "Sign": sign});
        json!({"op": "put", "table": "Twins§", "entity": entity})
    };
    site.work(put("first", "taken")).await;
    for rk in ["twin1", "twin2"] {
        let error = site.refused(put(rk, "taken")).await;
        assert!(error.contains("\"first\""), "{error}");
    }
    let failed = site.do_queued().await;
    let told = |words: &str| failed.iter().filter(|error| error.contains(words)).count();
    assert_eq!(
        (told("reconciling"), told("applying")),
        (2, 1),
        "the sync of each twin and one propagation must fail: {failed:?}"
    );
    let twins: Vec<_> = site
        .keys("Twins§", "Twin")
        .await
        .into_iter()
        .map(|(_, rk, twin)| (rk, twin))
        .collect();
    let wanted = [("first", "twin1"), ("twin1", "twin2"), ("twin2", "twin1")];
    assert_eq!(
        twins,
        wanted.map(|(rk, twin)| (rk.to_owned(), twin.to_owned()))
    );
}

/// A deleted primary is found and its items are deleted, even if a derived row of another primary now has the key of the deleted one.
pub(crate) async fn a_row_of_a_view_hides_no_primary_that_had_its_key(site: &Site) {
    let tags = async || {
        site.keys("ByTag§", "ek_view")
            .await
            .into_iter()
            .map(|(_, tag, _)| tag)
            .collect::<Vec<_>>()
    };
    let put = |entity: Value| json!({"op": "put", "table": "Shelves§", "entity": entity});
    site.work(put(
        json!({"PartitionKey": "p", "RowKey": "at_door", "Tag": "old"}),
    ))
    .await;
    let gone = TableOperation::Delete(EntityKey::new("p", "at_door").unwrap(), IfMatch::Any);
    site.account
        .tables
        .apply(&site.table("Shelves§"), &gone)
        .await
        .unwrap();
    site.work(put(
        json!({"PartitionKey": "p", "RowKey": "1", "Tag": "new", "Place": "door"}),
    ))
    .await;
    let row = site.row("Shelves§", "p", "at_door").await.unwrap().entity;
    assert_eq!(
        (row.text("ek_view"), tags().await),
        (Some("by_place"), vec!["new".to_owned(), "old".to_owned()])
    );

    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    let (Job::Audit(audit), delivery) = site.message(&json!({"op": "audit", "table": "Shelves§"}))
    else {
        panic!("no audit")
    };
    let found = site
        .engine
        .audit(&audit, &delivery)
        .await
        .unwrap()
        .unwrap()
        .findings;
    assert!(
        matches!(&*found, [one] if one.problem == Mismatch::Unwanted && one.of.contains("at_door")),
        "{found:?}"
    );
    site.work(json!({"op": "backfill", "table": "Shelves§"}))
        .await;
    assert_eq!(tags().await, ["new"]);
    assert_eq!(
        site.row("Shelves§", "p", "at_door").await.unwrap().entity,
        row,
        "the row belongs to another primary"
    );
    assert_eq!(
        site.engine
            .audit(&audit, &delivery)
            .await
            .unwrap()
            .unwrap()
            .findings,
        []
    );
}

/// The manager and the department are in the same partition, so one transaction writes both. Another transaction carries the department's properties
/// to a page of people, without the department's own row.
pub(crate) async fn what_it_costs_to_tell_each_other(site: &Site) {
    site.work(TOGETHER.department("Sales", ("Sales", None)))
        .await;
    for n in 0..60 {
        let rk = format!("{n:03}");
        site.work(TOGETHER.person(("Sales", &rk), ("Cao", "jun@contoso.com", n == 7)))
            .await;
    }
    assert_eq!(site.do_queued().await, [""; 0]);
    let manager = TOGETHER.person(("Sales", "007"), ("Cao", "cao@contoso.com", true));
    let told = site.writes_of(manager).await;
    assert_eq!(
        told,
        [("transact", 1), ("update_entity", 4)].into(),
        "the manager with the department; footprints of both, the manager's announced"
    );
    let row = site.row("Company§", "Sales", "department").await.unwrap();
    assert_eq!(row.entity.text("ManagerEmail"), Some("cao@contoso.com"));
    assert_eq!(site.queued().await, 0);

    site.work(TOGETHER.department("Sales", ("Trade", None)))
        .await;
    let before = site.row("Company§", "Sales", "department").await.unwrap();
    assert_eq!(site.queued().await, 1, "one propagation");
    let requests = site.requests();
    assert_eq!(site.do_queued().await, [""; 0]);
    let propagated = site.requests() - requests;
    assert!(
        propagated < 4 * 60,
        "{propagated} requests to propagate it to 60, whose copies follow"
    );
    let after = site.row("Company§", "Sales", "department").await.unwrap();
    assert_eq!(
        after.entity.text("ManagerEmail"),
        before.entity.text("ManagerEmail")
    );
}
