//! Joins: `evenkeel lookup --with` adds an entity of another table to each row.

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::{CommandResult, Site};

const CATALOG: &str = r#"
[encryption]
current = "only"

[encryption.keys.only]
key_file = "only.key"

[tables.Departments]
encrypt = ["Budget"]

[tables.Offices]

[tables.Employees]
encrypt = ["Badge"]

[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByName"
partition_key = "{LastName|lower}"
row_key = "{PartitionKey}_{RowKey}"
select = ["LastName"]
"#;
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const DEPARTMENT: &str = "Departments=department/{Department|lower}";
const OFFICE: &str = "Offices={City}/{Office|pad:3}";

fn put(table: &str, entity: &Value) -> Value {
    json!({"op": "put", "table": table, "entity": entity})
}

fn found(site: &Site, arguments: &[&str]) -> (Vec<Value>, Value) {
    let CommandResult { code, out, err } =
        site.command(&[&["--json", "lookup"], arguments].concat());
    assert_eq!(code, 0, "{err}");
    let mut lines: Vec<Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let summary = lines.pop().unwrap();
    (lines, summary)
}

fn joined(place: fn(&str) -> Site) {
    let site = place(CATALOG);
    std::fs::write(site.file("only.key"), KEY).unwrap();
    site.migrate();
    let employee = |rk: &str, department: &str| {
        let entity = json!({"PartitionKey": "Contoso", "RowKey": rk, "LastName": "Jones", "Department": department, "City": "Oslo", "Office": 7,
            "Badge": "marketing"});
        put("Employees", &entity)
    };
    site.submit(&[
        put("Departments", &json!({"PartitionKey": "department", "RowKey": "marketing", "Name": "Marketing", "Budget": 75_000})),
        employee("1", "Marketing"),
        employee("2", "MARKETING"),
        employee("3", "Sales"),
        put("Employees", &json!({"PartitionKey": "Contoso", "RowKey": "4", "LastName": "Jones"})),
    ]);
    assert_eq!(site.run_until_idle(&[]).done, 5);
    site.write(
        "Offices",
        &[Entity::new(EntityKey::new("Oslo", "007").unwrap()).with("Floor", 3_i32)],
    );

    let lookup = [
        "by_name",
        "LastName=Jones",
        "--entities",
        "--with",
        DEPARTMENT,
        "--with",
        OFFICE,
    ];
    let (rows, summary) = found(&site, &lookup);
    assert_eq!(
        (rows.len(), &summary["requests"]),
        (4, &json!(1 + 4 + 2 + 1))
    );
    let names: Vec<&Value> = rows
        .iter()
        .map(|row| &row["@with"]["Departments"]["Name"])
        .collect();
    assert_eq!(
        names,
        [
            &json!("Marketing"),
            &json!("Marketing"),
            &Value::Null,
            &Value::Null
        ]
    );
    assert!(
        rows[0]["@with"]["Departments"]["Budget"]
            .as_str()
            .unwrap()
            .starts_with("ek1."),
        "{}",
        rows[0]
    );
    assert_eq!(
        (
            &rows[2]["@with"]["Departments"],
            &rows[2]["@with"]["Offices"]["Floor"]
        ),
        (&Value::Null, &json!(3)),
        "no such department"
    );
    assert_eq!(
        rows[3]["@with"],
        json!({"Departments": null, "Offices": null}),
        "no values"
    );

    let some = [
        &lookup[..],
        &["--select", "LastName", "--decrypt", "--top", "1"],
    ]
    .concat();
    let (rows, summary) = found(&site, &some);
    assert_eq!(
        (
            rows[0].get("Department"),
            &rows[0]["@with"]["Departments"]["Budget"]
        ),
        (None, &json!(75_000))
    );
    let (rest, _) = found(
        &site,
        &[
            &some[..5],
            &[
                "--with",
                OFFICE,
                "--continue",
                summary["continuation"].as_str().unwrap(),
            ],
        ]
        .concat()[..],
    );
    assert_eq!(
        (rest.len(), &rest[0]["@with"]["Departments"]["Name"]),
        (3, &json!("Marketing"))
    );

    let table = site.command(&[&["lookup"], &lookup[..]].concat());
    assert_eq!(table.code, 0, "{}", table.err);
    assert!(
        table.out.contains("Departments.Name")
            && table.out.contains("Offices.Floor")
            && table.out.contains("Marketing"),
        "{}",
        table.out
    );
    assert!(
        table.err.contains("4 rows: ") && table.err.contains("8 requests"),
        "{}",
        table.err
    );

    // An encrypted value cannot be used as a key until it is decrypted.
    let encrypted = [
        "--table",
        "Employees",
        "PartitionKey=Contoso",
        "RowKey=1",
        "--with",
        "Departments=department/{Badge}",
    ];
    let refused = site.command(&[&["lookup"], &encrypted[..]].concat());
    assert!(
        refused.code == 2 && refused.err.contains("--decrypt"),
        "{}",
        refused.err
    );
    let (rows, _) = found(&site, &[&encrypted[..], &["--decrypt"]].concat());
    assert_eq!(rows[0]["@with"]["Departments"]["Name"], "Marketing");
}

#[test]
fn rows_come_beside_the_entities_that_they_name_on_the_embedded_store() {
    joined(Site::embedded);
}

#[test]
fn rows_come_beside_the_entities_that_they_name_on_azurite() {
    joined(Site::azurite);
}
