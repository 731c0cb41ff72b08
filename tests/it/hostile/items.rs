//! Rows, blobs, members of lists and properties: a forged message or a forged footprint may name an item of another
//! primary.

use serde_json::{Value, json};

use crate::hostile::stage::{Stage, staff};

/// Items that belong to Bob or to no primary, in the format of a recheck message.
fn theirs() -> Vec<Value> {
    let row = |view: &str, table: &str, pk: &str, rk: &str| json!({"view": view, "account": "main", "table": table, "pk": pk, "rk": rk});
    let member = |mut item: Value, texts: &[&str]| {
        item["part"] = json!({"member": texts});
        item
    };
    let mut properties = row("manager", "Departments", "Sales", "department");
    properties["part"] = json!("properties");
    let book = json!({"view": "phone_book", "account": "main", "container": "phone-book", "blob": "King.json"});
    vec![
        row("by_email", "ByEmail", "email_Sales", "bob@contoso.com"),
        row("near", "Staff", "Sales", "near_bob@contoso.com"),
        row("near", "Staff", "Sales", "8"),
        row("by_email", "Ledger", "2026", "11"),
        row("by_email", "Payroll", "Sales", "8"),
        row("by_last_name", "Lists", "last", "King"),
        member(
            row("by_last_name", "Lists", "last", "King"),
            &["Sales", "8", "Bob"],
        ),
        member(
            row("headcount", "Groups", "groups", "Sales"),
            &["Sales", "8"],
        ),
        member(book.clone(), &["Sales", "8"]),
        book,
        properties,
        json!({"view": "photos", "account": "main", "container": "payroll", "blob": "2026/salaries.csv"}),
    ]
}

#[tokio::test]
async fn a_recheck_of_one_primary_drops_nothing_of_another() {
    let stage = Stage::new().await;
    let (before, groups) = (
        stage.picture(),
        stage
            .read("Groups", "groups", "Sales")
            .await
            .unwrap()
            .entity,
    );
    // `crossed` is a primary with Bob's keys in the wrong order, and `foreign` is in a table that is no source of a view.
    let others = [staff("7"), staff("no-such"), crossed(), foreign()];
    for item in theirs() {
        for primary in &others {
            stage.recheck_of(primary, std::slice::from_ref(&item)).await;
            assert_eq!(stage.picture(), before, "{item} of {primary}");
            stage.bob_is_listed().await;
            assert_eq!(
                stage
                    .read("Groups", "groups", "Sales")
                    .await
                    .unwrap()
                    .entity
                    .get("Headcount"),
                groups.get("Headcount"),
                "{item}"
            );
            let department = stage
                .read("Departments", "Sales", "department")
                .await
                .unwrap()
                .entity;
            assert_eq!(department.text("ManagerName"), Some("Bob"), "{item}");
        }
    }
}

fn crossed() -> evenkeel_model::job::Primary {
    evenkeel_model::job::Primary {
        table: crate::hostile::stage::table("Staff"),
        key: crate::hostile::stage::key("8", "Bob"),
    }
}

fn foreign() -> evenkeel_model::job::Primary {
    evenkeel_model::job::Primary {
        table: crate::hostile::stage::table("Managers"),
        key: crate::hostile::stage::key("Sales", "8"),
    }
}

#[tokio::test]
async fn a_forged_footprint_with_true_versions_drops_no_member_and_no_property_of_another() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let list = stage.read("Lists", "last", "King").await.unwrap().entity;
    let tokens: Vec<String> = serde_json::from_str(list.text("ek_tokens").unwrap()).unwrap();
    let department = stage
        .read("Departments", "Sales", "department")
        .await
        .unwrap()
        .entity;
    let owner: Value = serde_json::from_str(department.text("ek_owner_manager").unwrap()).unwrap();
    let owned = owner["token"].as_str().unwrap();
    for (part, site, view, token) in [
        (
            json!({"member": ["Sales", "8", "Bob"]}),
            json!(["row", "Lists", "last", "King"]),
            "by_last_name",
            tokens[1].as_str(),
        ),
        (
            json!("properties"),
            json!(["row", "Departments", "Sales", "department"]),
            "manager",
            owned,
        ),
    ] {
        let items = json!([[view, 1, "main", site, part, token, 0]]);
        drop(stage.forge_footprint(&staff("7"), &items).await);
        assert_eq!(stage.picture(), before, "{items}");
        stage.bob_is_listed().await;
        let department = stage
            .read("Departments", "Sales", "department")
            .await
            .unwrap()
            .entity;
        assert_eq!(department.text("ManagerName"), Some("Bob"), "{items}");
    }
}

#[tokio::test]
async fn a_forged_footprint_with_a_true_version_writes_over_no_property_of_another() {
    let stage = Stage::new().await;
    // The view sets a manager's name on the department. Ann becomes a manager, but the department already has Bob's
    // name.
    let ann = json!({"PartitionKey": "Sales", "RowKey": "7", "FirstName": "Ann", "LastName": "King", "Email": "Ann@contoso.com", "IsManager": true});
    let refused = stage
        .refused(&json!({"op": "put", "table": "Staff", "entity": ann}))
        .await;
    assert!(refused.contains("is taken by"), "{refused}");
    let before = stage
        .read("Departments", "Sales", "department")
        .await
        .unwrap()
        .entity;
    let owner: Value = serde_json::from_str(before.text("ek_owner_manager").unwrap()).unwrap();
    let items = json!([[
        "manager",
        1,
        "main",
        ["row", "Departments", "Sales", "department"],
        "properties",
        owner["token"],
        0
    ]]);
    assert!(
        stage.forge_footprint(&staff("7"), &items).await.is_err(),
        "the key must still be taken"
    );
    let after = stage
        .read("Departments", "Sales", "department")
        .await
        .unwrap()
        .entity;
    assert_eq!(after.text("ManagerName"), Some("Bob"));
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_propagation_is_bound_to_the_tables_that_its_view_writes() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let propagation = |view: &str, table: &str| json!({"op": "propagate", "view": view, "owner": {"pk": "Sales", "rk": "department"}, "table": table, "pk": "Sales"});
    for (view, table) in [
        ("floor", "Ledger"),
        ("floor", "Payroll"),
        ("by_email", "Payroll"),
        ("nobodys", "Rooms"),
        ("floor", "Staff"),
    ] {
        stage.refused(&propagation(view, table)).await;
        assert_eq!(stage.picture(), before, "{view} over {table}");
    }
    stage.done(&propagation("floor", "Rooms")).await;
    assert_eq!(stage.picture(), before);
}
