//! Jobs can neither write nor delete derived rows, whichever table contains them.

use serde_json::{Value, json};

use crate::hostile::stage::Stage;

fn put(table: &str, pk: &str, rk: &str) -> Value {
    json!({"op": "put", "table": table, "entity": {"PartitionKey": pk, "RowKey": rk, "FirstName": "HACK"}})
}

fn delete(table: &str, pk: &str, rk: &str) -> Value {
    json!({"op": "delete", "table": table, "pk": pk, "rk": rk})
}

#[tokio::test]
async fn a_table_that_only_views_write_takes_no_jobs_that_write() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let to = json!({"op": "move", "table": "Payroll", "pk": "Sales", "rk": "8", "to_table": "ByEmail", "to_pk": "email_Sales", "to_rk": "new@contoso.com"});
    let from = json!({"op": "move", "table": "ByEmail", "pk": "email_Sales", "rk": "bob@contoso.com", "to_pk": "a", "to_rk": "b"});
    for job in [
        put("ByEmail", "email_Sales", "bob@contoso.com"),
        put("ByEmail", "email_Sales", "squatted@contoso.com"),
        put("Lists", "last", "Nobody"),
        put("Groups", "groups", "Nobody"),
        delete("ByEmail", "email_Sales", "bob@contoso.com"),
        to,
        from,
    ] {
        let said = stage.refused(&job).await;
        assert!(
            said.contains("holds only rows of views") && said.contains("declare [tables."),
            "{job}: {said}"
        );
        assert_eq!(stage.picture(), before, "{job}");
    }
}

#[tokio::test]
async fn a_row_that_a_view_made_is_neither_written_nor_deleted_nor_moved_in_a_table_that_has_entities_too()
 {
    let stage = Stage::new().await;
    let before = stage.picture();
    let moved = |table: &str, pk: &str, rk: &str| json!({"op": "move", "table": table, "pk": pk, "rk": rk, "to_pk": "x", "to_rk": "y"});
    let onto = json!({"op": "move", "table": "Payroll", "pk": "Sales", "rk": "8", "to_table": "Managers", "to_pk": "m_Sales", "to_rk": "8"});
    for (table, pk, rk) in [
        ("Managers", "m_Sales", "8"),
        ("Staff", "Sales", "near_bob@contoso.com"),
    ] {
        for job in [
            put(table, pk, rk),
            delete(table, pk, rk),
            moved(table, pk, rk),
        ] {
            let said = stage.refused(&job).await;
            assert!(
                said.contains("was derived by view") && said.contains(r#"("Sales", "8")"#),
                "{job}: {said}"
            );
            assert_eq!(stage.picture(), before, "{job}");
        }
    }
    stage.refused(&onto).await;
    stage.refused(&json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "near_bob@contoso.com"})).await;
    assert_eq!(stage.picture(), before);
}

#[tokio::test]
async fn a_chain_takes_entities_of_its_own_and_its_derived_rows_are_synced_as_ever() {
    let stage = Stage::new().await;
    stage.done(&put("Managers", "m_Sales", "own")).await;
    assert!(
        stage.read("ManagersByName", "HACK", "own").await.is_some(),
        "an entity of the middle table must be a primary"
    );
    stage
        .done(&json!({"op": "sync", "table": "Managers", "pk": "m_Sales", "rk": "8"}))
        .await;
    assert!(stage.read("ManagersByName", "Bob", "8").await.is_some());
    stage.done(&delete("Managers", "m_Sales", "own")).await;
    assert!(stage.read("ManagersByName", "HACK", "own").await.is_none());
    stage.done(&put("Departments", "Sales", "other")).await;
}
