//! Several patterns on one table. Departments and employees are in one partition, with index rows, lists, totals and set properties. Copies, large
//! values and an archive are in other places.

use std::collections::BTreeMap;

use evenkeel_model::{EdmValue, Row};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_email]
kind = "secondary_index"
source = "Company§"
when = 'startsWith(RowKey, "empid_")'
table = "Company§"
partition_key = "{PartitionKey}"
row_key = "email_{Email|lower}"
select = ["LastName"]
on_conflict = "reject"

[views.named_near]
kind = "index_entity"
source = "Company§"
store = "partition"
row_key = "last_name_{LastName}"
member = ["{RowKey}"]
property = "EmployeeIDs"

[views.manager]
kind = "denormalize"
source = "Company§"
when = "IsManager == true"
table = "Company§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }
on_conflict = "reject"

[views.employee_count]
kind = "aggregate"
source = "Company§"
when = 'startsWith(RowKey, "empid_")'
group_table = "Company§"
partition_key = "{PartitionKey}"
row_key = "employee_count"
set = { EmployeeCount = "count()" }

[views.by_city]
kind = "secondary_index"
source = "Company§"
table = "ByCity§"
partition_key = "{City}"
row_key = "{PartitionKey}_{RowKey}"
select = ["LastName", "Resume"]

[views.resumes]
kind = "large_entity"
source = "Company§"
properties = ["Resume"]
container = "resumes-§"
threshold = "64B"

[views.former_resumes]
kind = "large_entity"
source = "Former§"
properties = ["Resume"]
container = "former-§"
threshold = "64B"

[views.near]
kind = "denormalize"
source = "Near§"
when = "IsManager == true"
table = "Near§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }
on_conflict = "reject"

[views.near_count]
kind = "aggregate"
source = "Near§"
when = 'RowKey != "department"'
group_table = "Near§"
partition_key = "{PartitionKey}"
row_key = "employee_count"
set = { EmployeeCount = "count()" }

[views.far]
kind = "denormalize"
source = "Far§"
when = "IsManager == true"
table = "FarDepartments§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }
on_conflict = "reject"

[views.far_count]
kind = "aggregate"
source = "Far§"
group_table = "FarDepartments§"
partition_key = "{PartitionKey}"
row_key = "employee_count"
set = { EmployeeCount = "count()" }

[archives.former]
source = "Company§"
to = { kind = "table", table = "Former§" }

[tables.FarDepartments§]
"#;

#[derive(Clone)]
struct Employee {
    name: &'static str,
    email: String,
    city: &'static str,
    manager: bool,
    resume: Option<u32>,
}

type Staff = BTreeMap<&'static str, Employee>;

fn resume(rk: &str, version: u32) -> String {
    format!("Resume {version} of {rk}. ").repeat(10)
}

fn put(rk: &str, employee: &Employee) -> Value {
    let Employee {
        name,
        email,
        city,
        manager,
        resume: version,
    } = employee;
    let mut entity = json!({"PartitionKey": "Sales", "RowKey": rk, "LastName": name, "Email": email, "City": city, "IsManager": manager});
    if let Some(version) = version {
        entity["Resume"] = resume(rk, *version).into();
    }
    json!({"op": "put", "table": "Company§", "entity": entity})
}

fn on(op: &str, rk: &str) -> Value {
    let mut job = json!({"op": op, "pk": "Sales", "rk": rk});
    let (field, value) = if op == "archive" || op == "restore" {
        ("archive", "former")
    } else {
        ("table", "Company§")
    };
    job[field] = value.into();
    job
}

async fn assert_whole(site: &Site, staff: &Staff) {
    let mut wanted: Vec<String> = vec!["department".to_owned()];
    let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (rk, employee) in staff {
        wanted.extend([
            (*rk).to_owned(),
            format!("email_{}", employee.email.to_lowercase()),
        ]);
        lists.entry(employee.name).or_default().push(rk);
    }
    wanted.extend(lists.keys().map(|name| format!("last_name_{name}")));
    wanted.extend((!staff.is_empty()).then(|| "employee_count".to_owned()));
    wanted.sort();
    let found: Vec<String> = site
        .keys("Company§", "LastName")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk)
        .collect();
    assert_eq!(found, wanted);

    let says = |row: &Row, name: &str| row.entity.get(name).cloned();
    let department = site.row("Company§", "Sales", "department").await.unwrap();
    let manager = staff
        .values()
        .find(|employee| employee.manager)
        .map(|employee| EdmValue::from(employee.name));
    assert_eq!(says(&department, "ManagerName"), manager);
    if !staff.is_empty() {
        let count = site
            .row("Company§", "Sales", "employee_count")
            .await
            .unwrap();
        assert_eq!(
            says(&count, "EmployeeCount"),
            Some(EdmValue::Int64(i64::try_from(staff.len()).unwrap()))
        );
    }
    for (name, members) in lists {
        let list = site
            .row("Company§", "Sales", &format!("last_name_{name}"))
            .await
            .unwrap();
        let members: Vec<[&str; 1]> = members.into_iter().map(|rk| [rk]).collect();
        assert_eq!(
            says(&list, "EmployeeIDs"),
            Some(EdmValue::from(serde_json::to_string(&members).unwrap()))
        );
    }
    let cities: Vec<_> = site.keys("ByCity§", "LastName").await;
    let mut wanted: Vec<_> = staff
        .iter()
        .map(|(rk, employee)| {
            (
                employee.city.to_owned(),
                format!("Sales_{rk}"),
                employee.name.to_owned(),
            )
        })
        .collect();
    wanted.sort();
    assert_eq!(cities, wanted);
    let values = staff
        .values()
        .filter(|employee| employee.resume.is_some())
        .count();
    assert_eq!(site.blobs("resumes-§").await.len(), values);
    site.in_step("Company§").await;
}

pub(crate) async fn many_patterns_on_one_table_follow_its_entities_through_their_lives(
    site: &Site,
) {
    site.work(json!({"op": "put", "table": "Company§", "entity": {"PartitionKey": "Sales", "RowKey": "department", "Name": "Sales"}}))
        .await;
    let employee = |name, email: &str, city, manager, resume| Employee {
        name,
        email: email.to_owned(),
        city,
        manager,
        resume,
    };
    let mut staff = Staff::from([
        (
            "empid_01",
            employee("Kwok", "Ken@contoso.com", "Oslo", true, Some(1)),
        ),
        (
            "empid_02",
            employee("Cao", "jun@contoso.com", "Lima", false, None),
        ),
        (
            "empid_03",
            employee("Kwok", "kim@contoso.com", "Oslo", false, Some(1)),
        ),
    ]);
    for (rk, one) in &staff {
        site.work(put(rk, one)).await;
    }
    assert_whole(site, &staff).await;

    // One job changes all properties that views use, and then the same job is delivered again.
    staff.insert(
        "empid_01",
        employee("Hall", "hall@contoso.com", "Lima", true, Some(2)),
    );
    for _ in 0..2 {
        site.work(put("empid_01", &staff["empid_01"])).await;
    }
    assert_whole(site, &staff).await;

    // The manager is archived, and another employee becomes manager. The archived manager cannot be restored until the other employee stops being
    // manager.
    site.work(on("archive", "empid_01")).await;
    let gone = staff.remove("empid_01").unwrap();
    assert_whole(site, &staff).await;
    for manager in [true, false] {
        staff.insert(
            "empid_02",
            employee("Cao", "jun@contoso.com", "Lima", manager, Some(1)),
        );
        site.work(put("empid_02", &staff["empid_02"])).await;
        assert_whole(site, &staff).await;
        assert_eq!(
            (
                site.blobs("former-§").await.len(),
                site.keys("Former§", "LastName").await.len()
            ),
            (1, 1)
        );
        if manager {
            let conflict = site.refused(on("restore", "empid_01")).await;
            assert!(conflict.contains("empid_02"), "two managers: {conflict}");
            assert_whole(site, &staff).await;
        }
    }
    site.work(on("restore", "empid_01")).await;
    staff.insert("empid_01", gone);
    assert_whole(site, &staff).await;
    assert_eq!(
        (
            site.blobs("former-§").await.len(),
            site.keys("Former§", "LastName").await.len()
        ),
        (0, 0)
    );

    for rk in ["empid_01", "empid_02", "empid_03"] {
        site.work(on("delete", rk)).await;
        staff.remove(rk);
        assert_whole(site, &staff).await;
    }
}

/// Items in the primary's partition are written with the primary in one transaction. Items in another partition follow in a second transaction. All
/// other writes announce or close footprints. The department is a primary itself, so its own footprint is closed, too.
pub(crate) async fn a_department_and_its_employees_commit_together(site: &Site) {
    let department = |table: &str| json!({"op": "put", "table": table, "entity": {"PartitionKey": "Sales", "RowKey": "department"}});
    let employee = |table: &str, rk: &str, name: &str, manager: bool| {
        let entity =
            json!({"PartitionKey": "Sales", "RowKey": rk, "LastName": name, "IsManager": manager});
        json!({"op": "put", "table": table, "entity": entity})
    };
    site.work(department("Near§")).await;
    site.work(department("FarDepartments§")).await;
    for table in ["Near§", "Far§"] {
        site.work(employee(table, "00001", "Kwok", false)).await;
    }
    let near = site
        .writes_of(employee("Near§", "00002", "Cao", true))
        .await;
    assert_eq!(
        near,
        [("insert_entity", 1), ("transact", 1), ("update_entity", 2)].into()
    );
    let far = site.writes_of(employee("Far§", "00002", "Cao", true)).await;
    assert_eq!(
        far,
        [("insert_entity", 2), ("transact", 1), ("update_entity", 1)].into()
    );
    for table in ["Near§", "FarDepartments§"] {
        let row = site.row(table, "Sales", "department").await.unwrap();
        assert_eq!(row.entity.text("ManagerName"), Some("Cao"));
        let row = site.row(table, "Sales", "employee_count").await.unwrap();
        assert_eq!(row.entity.get("EmployeeCount"), Some(&EdmValue::Int64(2)));
    }
}
