//! Range overlays: a department sets properties on all of its people. A propagation is the queued job that writes these properties on every entity of
//! the range.

use std::collections::BTreeMap;

use evenkeel_model::{EdmValue, Entity, EntityKey, Job, TableName};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.department]
kind = "denormalize"
targets = "range"
source = "Departments§"
when = 'RowKey == "department"'
table = "Staff§"
partition_key = "{PartitionKey}"
set = { DepartmentName = "{Name}", Floor = "{Floor}", Sign = "{Name}, floor {Floor}" }

[views.team]
kind = "denormalize"
targets = "range"
source = "Teams§"
table = "Staff§"
partition_key = "{PartitionKey}"
row_key_prefix = "{Prefix}"
set = { Team = "{RowKey}" }

[views.shift]
kind = "denormalize"
targets = "range"
source = "Shifts§"
table = "Plain§"
partition_key = "{PartitionKey}"
row_key_from = "{First}"
row_key_before = "{End}"
set = { Shift = "{RowKey}" }

[views.by_sign]
kind = "secondary_index"
source = "Staff§"
table = "BySign§"
partition_key = "{DepartmentName|slug}"
row_key = "{PartitionKey}_{RowKey}"
select = ["DepartmentName", "Sign", "Name"]
on_conflict = "reject"
"#;

type Departments = BTreeMap<&'static str, (&'static str, Option<i32>)>;
type Staff = BTreeMap<(&'static str, String), String>;

fn department(pk: &str, (name, floor): (&str, Option<i32>)) -> Value {
    let mut entity = json!({"PartitionKey": pk, "RowKey": "department", "Name": name});
    if let Some(floor) = floor {
        entity["Floor"] = floor.into();
    }
    json!({"op": "put", "table": "Departments§", "entity": entity})
}

fn person(pk: &str, rk: &str, name: &str) -> Entity {
    Entity::new(EntityKey::new(pk, rk).unwrap()).with("Name", name)
}

fn sync(table: &str, pk: &str, rk: &str) -> Value {
    json!({"op": "sync", "table": table, "pk": pk, "rk": rk})
}

async fn agrees(site: &Site, departments: &Departments, staff: &Staff) {
    let mut copies = Vec::new();
    for ((pk, rk), name) in staff {
        let row = site
            .row("Staff§", pk, rk)
            .await
            .unwrap_or_else(|| panic!("{pk}/{rk} does not exist"))
            .entity;
        let department = departments.get(pk).copied();
        assert_eq!(
            row.text("DepartmentName"),
            department.map(|(name, _)| name),
            "{pk}/{rk}"
        );
        assert_eq!(
            row.get("Floor"),
            department
                .and_then(|(_, floor)| floor)
                .map(EdmValue::Int32)
                .as_ref(),
            "{pk}/{rk}"
        );
        let sign = department.and_then(|(name, floor)| Some(format!("{name}, floor {}", floor?)));
        assert_eq!(row.text("Sign"), sign.as_deref(), "{pk}/{rk}");
        assert_eq!(
            row.get("ek_owner_department").is_some(),
            department.is_some(),
            "{pk}/{rk}"
        );
        assert_eq!(
            row.text("Name"),
            Some(name.as_str()),
            "properties of others must remain"
        );
        if let Some((department, _)) = department {
            copies.push((
                department.to_lowercase(),
                format!("{pk}_{rk}"),
                sign.unwrap_or_default(),
            ));
        }
    }
    copies.sort();
    assert_eq!(site.keys("BySign§", "Sign").await, copies);
    site.in_step("Departments§").await;
    site.in_step("Staff§").await;
}

pub(crate) async fn what_a_department_says_is_on_all_of_its_people_through_their_lives(
    site: &Site,
) {
    let (mut departments, mut staff) = (Departments::new(), Staff::new());
    // The people are written before the departments. A propagation over the people of `Sales` has more than two pages.
    // The people of `Law` never get properties from a department.
    for n in 0..230 {
        staff.insert(("Sales", format!("{n:03}")), format!("n{n}"));
    }
    for (pk, rk) in [("Ops", "a,\"b 한"), ("Ops", ""), ("Law", "1")] {
        staff.insert((pk, rk.to_owned()), "x".to_owned());
    }
    for ((pk, rk), name) in &staff {
        site.write("Staff§", person(pk, rk, name)).await;
    }
    for (pk, said) in [("Sales", ("Sales", Some(3))), ("Ops", ("Operations", None))] {
        site.work(department(pk, said)).await;
        departments.insert(pk, said);
    }
    // This department does not satisfy the condition of the view.
    site.work(json!({"op": "put", "table": "Departments§", "entity": {"PartitionKey": "Law", "RowKey": "cellar", "Name": "Cellar"}})).await;
    assert_eq!(site.do_queued().await, [""; 0]);
    site.work(json!({"op": "backfill", "table": "Staff§"}))
        .await;
    agrees(site, &departments, &staff).await;

    // A new employee gets the properties from the employee's own job: from a put, and from a sync after a client's write.
    site.work(json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": "Sales", "RowKey": "new", "Name": "put"}})).await;
    site.write("Staff§", person("Ops", "new", "sync")).await;
    site.work(sync("Staff§", "Ops", "new")).await;
    staff.insert(("Sales", "new".to_owned()), "put".to_owned());
    staff.insert(("Ops", "new".to_owned()), "sync".to_owned());
    agrees(site, &departments, &staff).await;

    for (pk, said) in [
        ("Sales", ("Trade", None)),
        ("Ops", ("Operations", Some(-1))),
    ] {
        site.work(department(pk, said)).await;
        departments.insert(pk, said);
    }
    assert_eq!(site.do_queued().await, [""; 0]);
    agrees(site, &departments, &staff).await;

    // A change of other properties of the department queues no propagation.
    let before = site.row("Staff§", "Sales", "000").await.unwrap().etag;
    site.work(json!({"op": "put", "table": "Departments§", "mode": "merge", "entity": {"PartitionKey": "Sales", "RowKey": "department", "Budget": 5}})).await;
    site.work(sync("Departments§", "Sales", "department")).await;
    assert_eq!(site.do_queued().await, [""; 0]);
    assert_eq!(
        site.row("Staff§", "Sales", "000").await.unwrap().etag,
        before
    );

    site.write("Staff§", person("Sales", "silent", "nobody has said so"))
        .await;
    staff.insert(
        ("Sales", "silent".to_owned()),
        "nobody has said so".to_owned(),
    );
    site.work(json!({"op": "delete", "table": "Departments§", "pk": "Sales", "rk": "department"}))
        .await;
    departments.remove("Sales");
    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "007"}))
        .await;
    staff.remove(&("Sales", "007".to_owned()));
    assert_eq!(site.do_queued().await, [""; 0]);
    agrees(site, &departments, &staff).await;
    site.work(department("Sales", ("Sales", Some(1)))).await;
    departments.insert("Sales", ("Sales", Some(1)));
    site.work(json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": "Sales", "RowKey": "007", "Name": "back"}})).await;
    staff.insert(("Sales", "007".to_owned()), "back".to_owned());
    assert_eq!(site.do_queued().await, [""; 0]);
    agrees(site, &departments, &staff).await;
}

pub(crate) async fn a_range_within_a_partition_ends_where_it_says(site: &Site) {
    for rk in ["a", "b", "b1", "b_", "c", "b한", "ba"] {
        site.write("Plain§", person("p", rk, "x")).await;
        site.write("Staff§", person("p", rk, "x")).await;
    }
    let shift = |first: &str, end: &str| json!({"op": "put", "table": "Shifts§", "entity": {"PartitionKey": "p", "RowKey": "early", "First": first, "End": end}});
    let team = |prefix: &str| json!({"op": "put", "table": "Teams§", "entity": {"PartitionKey": "p", "RowKey": "red", "Prefix": prefix}});
    for (first, end, prefix) in [
        ("b", "ba", "b"),
        ("b1", "c", "b한"),
        ("a", "b", "c"),
        ("b", "b", ""),
    ] {
        site.work(shift(first, end)).await;
        site.work(team(prefix)).await;
        assert_eq!(site.do_queued().await, [""; 0]);
        for (_, rk, found) in site.keys("Plain§", "Shift").await {
            assert_eq!(
                found == "early",
                (first..end).contains(&rk.as_str()),
                "{rk} from {first} before {end}"
            );
        }
        for (_, rk, found) in site.keys("Staff§", "Team").await {
            assert_eq!(
                found == "red",
                !prefix.is_empty() && rk.starts_with(prefix),
                "{rk} begins with {prefix}"
            );
        }
        site.in_step("Shifts§").await;
        site.in_step("Plain§").await;
    }
}

pub(crate) async fn an_entity_that_cannot_be_written_holds_up_no_other(site: &Site) {
    for rk in ["1", "2", "4"] {
        site.write("Plain§", person("p", rk, "x")).await;
    }
    let mut full = person("p", "3", "x");
    for n in 0..251 {
        full = full.with(format!("P{n}"), n);
    }
    site.write("Plain§", full).await;
    site.work(json!({"op": "put", "table": "Shifts§", "entity": {"PartitionKey": "p", "RowKey": "late", "First": "0", "End": "9"}})).await;
    let failed = site.do_queued().await;
    assert!(
        failed.len() == 1 && failed[0].contains("\"3\"") && failed[0].contains("252"),
        "{failed:?}"
    );
    let shifts: Vec<String> = site
        .keys("Plain§", "Shift")
        .await
        .into_iter()
        .map(|(_, _, shift)| shift)
        .collect();
    assert_eq!(shifts, ["late", "late", "", "late"]);
}

pub(crate) async fn a_put_with_a_view_that_fails_says_what_its_department_says_by_then(
    site: &Site,
) {
    // The row key of this person's copy would exceed 512 characters.
    let long = "x".repeat(510);
    let put = || json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": "Sales", "RowKey": long, "Name": "Ada"}});
    for name in ["Sales", "Trade"] {
        site.work(department("Sales", (name, None))).await;
        let error = site.refused(put()).await;
        assert!(error.contains("by_sign"), "{error}");
        assert_eq!(
            site.row("Staff§", "Sales", &long)
                .await
                .unwrap()
                .entity
                .text("DepartmentName"),
            Some(name)
        );
    }
}

pub(crate) async fn of_two_whose_ranges_overlap_the_second_is_told_and_follows_when_the_first_goes(
    site: &Site,
) {
    for rk in ["1", "2", "3"] {
        site.write("Plain§", person("p", rk, "x")).await;
    }
    let shift = |name: &str, first: &str, end: &str| json!({"op": "put", "table": "Shifts§", "entity": {"PartitionKey": "p", "RowKey": name, "First": first, "End": end}});
    site.work(shift("late", "2", "9")).await;
    assert_eq!(site.do_queued().await, [""; 0]);
    site.work(shift("early", "1", "3")).await;
    let failed = site.do_queued().await;
    assert!(
        failed.len() == 1
            && failed[0].contains("1 entities")
            && failed[0].contains("(\"p\", \"late\")"),
        "{failed:?}"
    );
    let shifts = async || {
        site.keys("Plain§", "Shift")
            .await
            .into_iter()
            .map(|(_, _, shift)| shift)
            .collect::<Vec<_>>()
    };
    assert_eq!(shifts().await, ["early", "late", "late"]);
    site.work(json!({"op": "delete", "table": "Shifts§", "pk": "p", "rk": "late"}))
        .await;
    assert_eq!(site.do_queued().await, [""; 0]);
    assert_eq!(shifts().await, ["early", "early", ""]);
}

pub(crate) async fn what_others_overwrote_is_put_back_and_what_moves_is_claimed_anew(site: &Site) {
    site.work(department("Sales", ("Sales", Some(3)))).await;
    let (mut departments, mut staff) = (
        Departments::from([("Sales", ("Sales", Some(3)))]),
        Staff::new(),
    );
    for rk in ["1", "2", "3"] {
        site.work(json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": "Sales", "RowKey": rk, "Name": rk}})).await;
        staff.insert(("Sales", rk.to_owned()), rk.to_owned());
    }
    assert_eq!(site.do_queued().await, [""; 0]);
    // A client replaces one entity and sends a sync, and replaces another entity without a sync. A full sync of the department repairs the second
    // entity.
    for rk in ["1", "2"] {
        site.write("Staff§", person("Sales", rk, rk)).await;
    }
    site.work(sync("Staff§", "Sales", "1")).await;
    assert!(!site.plan("Staff§", "Sales", "2").await.in_step);
    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    let (job, delivery) = site.message(&json!({"op": "audit", "table": "Staff§"}));
    let Job::Audit(audit) = job else {
        panic!("no audit")
    };
    let found = site
        .engine
        .audit(&audit, &delivery)
        .await
        .unwrap()
        .unwrap()
        .findings;
    assert_eq!(
        found
            .iter()
            .map(|finding| finding.item.to_string())
            .collect::<Vec<_>>(),
        [site.name("properties in Staff§(\"Sales\", \"2\") of view department")]
    );
    site.work(json!({"op": "sync", "table": "Departments§", "pk": "Sales", "rk": "department", "thorough": true})).await;
    assert_eq!(site.do_queued().await, [""; 0]);
    agrees(site, &departments, &staff).await;

    let moving = |pk: &str, to: &str| json!({"op": "move", "table": "Staff§", "pk": pk, "rk": "3", "to_pk": to, "to_rk": "3"});
    site.work(moving("Sales", "Nowhere")).await;
    staff.remove(&("Sales", "3".to_owned()));
    staff.insert(("Nowhere", "3".to_owned()), "3".to_owned());
    agrees(site, &departments, &staff).await;
    site.work(department("Ops", ("Operations", None))).await;
    departments.insert("Ops", ("Operations", None));
    assert_eq!(site.do_queued().await, [""; 0]);
    site.work(moving("Nowhere", "Ops")).await;
    staff.remove(&("Nowhere", "3".to_owned()));
    staff.insert(("Ops", "3".to_owned()), "3".to_owned());
    agrees(site, &departments, &staff).await;
}

pub(crate) async fn what_propagation_costs(site: &Site) {
    for n in 0..200 {
        site.write("Plain§", person("p", &format!("{n:03}"), "x"))
            .await;
    }
    let shift = |name: &str| json!({"op": "put", "table": "Shifts§", "entity": {"PartitionKey": "p", "RowKey": "s", "First": name, "End": "9"}});
    let put = site.requests_of(shift("0")).await;
    let before = site.requests();
    assert_eq!(site.do_queued().await, [""; 0]);
    let propagation = site.requests() - before;
    let same = site.requests_of(sync("Shifts§", "p", "s")).await;
    let member = site.requests_of(sync("Plain§", "p", "007")).await;
    let new = site.requests_of(json!({"op": "put", "table": "Plain§", "entity": {"PartitionKey": "p", "RowKey": "500"}})).await;
    assert_eq!(
        [put, propagation, same, member, new],
        COSTS,
        "docs/patterns/denormalization.md has these numbers"
    );
}

/// Number of requests of a put that creates a range overlay, of the propagation to 200 entities, of a sync of the department without a change, of a
/// sync of a person without a change, and of a put of a new person.
const COSTS: [u64; 5] = [8, 10, 2, 2, 6];
