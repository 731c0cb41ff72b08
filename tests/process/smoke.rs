//! Each pattern once on Azurite, as an application uses it. The official SDK for Node.js writes entities and sends
//! jobs, a worker runs the jobs, and the SDK reads the derived data.

#![expect(
    clippy::expect_used,
    reason = "unexpected output of the script fails the test"
)]

use serde_json::{Value, json};

use crate::end_to_end::sdk;
use crate::end_to_end::site::Site;

const CATALOG: &str = r#"
[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
partition_key = "email"
row_key = "{Email|lower}"
select = ["LastName"]

[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "Employees"
partition_key = "{PartitionKey}"
row_key = "name_{LastName}_{RowKey}"

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

[views.manager]
kind = "denormalize"
source = "Employees"
when = "IsManager == true"
table = "Departments"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }

[views.department_name]
kind = "denormalize"
targets = "range"
source = "Departments"
table = "Desks"
partition_key = "{PartitionKey}"
set = { DepartmentName = "{Name}" }

[views.headcount]
kind = "aggregate"
source = "Employees"
group_table = "Groups"
partition_key = "department"
row_key = "{PartitionKey}"
set = { Headcount = "count()", Payroll = "sum(Salary)" }

[views.bodies]
kind = "large_entity"
source = "Papers"
properties = ["Body"]
container = "bodies"
threshold = "1KiB"

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }

[archives.documents]
source = "Employees"
to = { kind = "blob", container = "former-employees" }

[archives.log]
source = "Events"
to = { kind = "append_blob", container = "events", path = "logs/%Y/%m/%d/%H00" }

[tables.Wide]
wide = true

[retention.logins]
tables = "Logins%Y%m%d"
keep = "60d"
"#;

fn read(site: &Site) -> Value {
    sdk::node(site.ports(), "smoke.mjs", &["read"])
        .parse()
        .expect("what smoke.mjs prints is JSON")
}

#[test]
fn each_pattern_follows_what_the_sdk_for_node_writes_and_sends() {
    let site = Site::azurite(CATALOG);
    site.migrate();
    sdk::node(site.ports(), "smoke.mjs", &["write"]);
    let done = site.run_until_idle(&[]);
    assert_eq!(
        (done.skipped, done.poisoned, done.lost),
        (0, 0, 0),
        "{:?}",
        site.poison()
    );
    assert_eq!(
        read(&site),
        json!({
            // Copies in another partition, and in the partition of their primary.
            "by_email": {"ada@contoso.com": "King", "bob@contoso.com": "King"},
            "by_name": ["name_King_1", "name_King_2"],
            // Lists in a row, in a row of the primaries' partition, and in a blob.
            "list": [["Sales", "1"], ["Sales", "2"]],
            "list_near": [["1"], ["2"]],
            "list_blob": [["Sales", "1"], ["Sales", "2"]],
            // Properties that a manager sets on one entity, and properties that a department sets on a whole partition.
            "manager": "King",
            "department_names": {"1": "Sales of Contoso", "2": "Sales of Contoso"},
            "headcount": {"Headcount": 2, "Payroll": "300"},
            // A large value in a blob, and an entity with several rows.
            "body": 4000,
            "wide": 400,
            // Archives in a table, in documents, and in a log.
            "former": {"Email": "eve@contoso.com", "LastName": "Byron", "Salary": 10},
            "document": "Lee",
            "log": ["e1", "e2"],
        })
    );

    // One employee changes the address, and one is deleted. The derived items must follow.
    sdk::node(site.ports(), "smoke.mjs", &["change"]);
    let done = site.run_until_idle(&[]);
    assert_eq!((done.poisoned, done.lost), (0, 0), "{:?}", site.poison());
    let after = read(&site);
    let expected = [
        ("by_email", json!({"lovelace@contoso.com": "King"})),
        ("by_name", json!(["name_King_1"])),
        ("list", json!([["Sales", "1"]])),
        ("list_near", json!([["1"]])),
        ("list_blob", json!([["Sales", "1"]])),
        ("department_names", json!({"1": "Sales", "2": "Sales"})),
        ("headcount", json!({"Headcount": 1, "Payroll": "100"})),
        ("body", json!(0)),
    ];
    for (what, value) in expected {
        assert_eq!(after[what], value, "{what}");
    }
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{}{}", audit.out, audit.err);
}
