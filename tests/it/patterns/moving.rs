//! `move`: another key or another table, with all views following.

use evenkeel_engine::Outcome;
use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::patterns::site::{Site, key};

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_email]
kind = "secondary_index"
source = "Staff§"
table = "ByEmail§"
partition_key = "email"
row_key = "{Email|lower}"
select = ["LastName"]
on_conflict = "reject"

[views.by_name]
kind = "secondary_index"
source = "Staff§"
table = "Staff§"
partition_key = "{PartitionKey}"
row_key = "name_{LastName}_{RowKey}"
select = []
on_conflict = "reject"

[views.contractors_by_email]
kind = "secondary_index"
source = "Contractors§"
table = "ContractorsByEmail§"
partition_key = "email"
row_key = "{Email|lower}"
select = ["LastName"]
on_conflict = "reject"

[tables.Plain§]
"#;

fn hire(pk: &str, rk: &str, name: &str, email: &str) -> Value {
    json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": pk, "RowKey": rk, "LastName": name, "Email": email}})
}

fn moving(from: (&str, &str), to: (&str, &str)) -> Value {
    json!({"op": "move", "table": "Staff§", "pk": from.0, "rk": from.1, "to_pk": to.0, "to_rk": to.1})
}

async fn staff(site: &Site, expected: &[(&str, &str, &str, &str)]) {
    let mut rows: Vec<_> = expected
        .iter()
        .flat_map(|(pk, rk, name, _)| {
            [key(pk, rk, name), key(pk, &format!("name_{name}_{rk}"), "")]
        })
        .collect();
    rows.sort();
    assert_eq!(site.keys("Staff§", "LastName").await, rows);
    let mut emails: Vec<_> = expected
        .iter()
        .map(|(pk, rk, _, email)| {
            key(
                "email",
                &email.to_lowercase(),
                &site.name(&format!("[\"Staff§\",\"{pk}\",\"{rk}\"]")),
            )
        })
        .collect();
    emails.sort();
    assert_eq!(site.keys("ByEmail§", "ek_source").await, emails);
    site.in_step("Staff§").await;
}

pub(crate) async fn an_employee_moves_to_another_department_and_another_table(site: &Site) {
    site.work(hire("Sales", "1", "King", "ada@contoso.com"))
        .await;
    site.work(hire("Sales", "1", "Lovelace", "Countess@contoso.com"))
        .await;
    // The address is unique in the whole company. It passes from one key to the other.
    site.work(moving(("Sales", "1"), ("Ops", "한 9"))).await;
    staff(site, &[("Ops", "한 9", "Lovelace", "countess@contoso.com")]).await;

    let mut to_contractors = moving(("Ops", "한 9"), ("Ops", "9"));
    to_contractors["to_table"] = "Contractors§".into();
    site.work(to_contractors).await;
    staff(site, &[]).await;
    assert_eq!(
        site.keys("ContractorsByEmail§", "LastName").await,
        [key("email", "countess@contoso.com", "Lovelace")]
    );
    let row = site.row("Contractors§", "Ops", "9").await.expect("moved");
    assert_eq!(
        row.entity.text("ek_source"),
        Some(site.name("[\"Staff§\",\"Ops\",\"한 9\"]").as_str())
    );

    site.work(hire("Sales", "1", "King", "ada@contoso.com"))
        .await;
    site.work(json!({"op": "delete", "table": "Contractors§", "pk": "Ops", "rk": "9"}))
        .await;
    staff(site, &[("Sales", "1", "King", "ada@contoso.com")]).await;
    assert_eq!(site.keys("ContractorsByEmail§", "LastName").await, []);
    let Outcome::Skipped { reason, .. } = site
        .attempt(&moving(("Ops", "한 9"), ("Ops", "2")))
        .await
        .unwrap()
    else {
        panic!("the job was not skipped")
    };
    assert!(reason.contains("does not exist"), "{reason}");
}

pub(crate) async fn what_lies_where_an_entity_is_to_go_is_left_alone(site: &Site) {
    site.work(hire("Sales", "1", "King", "ada@contoso.com"))
        .await;
    site.work(hire("Sales", "2", "Byron", "byron@contoso.com"))
        .await;
    let error = site.refused(moving(("Sales", "1"), ("Sales", "2"))).await;
    assert!(
        error.contains("exists and was not moved there by this job"),
        "{error}"
    );
    let error = site
        .refused(moving(("Sales", "1"), ("Sales", "name_Byron_2")))
        .await;
    assert!(error.contains("was derived by view by_name"), "{error}");
    let error = site
        .refused(moving(("Sales", "name_Byron_2"), ("Sales", "3")))
        .await;
    assert!(error.contains("was derived by view by_name"), "{error}");
    let mut nowhere = moving(("Sales", "1"), ("Sales", "3"));
    nowhere["to_table"] = "Nowhere".into();
    assert!(
        site.refused(nowhere)
            .await
            .contains("the catalog has no table Nowhere")
    );
    staff(
        site,
        &[
            ("Sales", "1", "King", "ada@contoso.com"),
            ("Sales", "2", "Byron", "byron@contoso.com"),
        ],
    )
    .await;
}

pub(crate) async fn a_redelivered_move_leaves_an_entity_that_was_moved_back(site: &Site) {
    site.work(hire("Sales", "1", "King", "ada@contoso.com"))
        .await;
    let (job, mut delivery) = site.message(&moving(("Sales", "1"), ("Ops", "1")));
    assert!(matches!(
        site.deliver(&job, &delivery).await,
        Ok(Outcome::Done(_))
    ));
    delivery.dequeue_count = 2;
    assert!(
        matches!(site.deliver(&job, &delivery).await, Ok(Outcome::Done(_))),
        "its own success"
    );
    site.work(moving(("Ops", "1"), ("Sales", "1"))).await;
    assert!(matches!(
        site.deliver(&job, &delivery).await,
        Ok(Outcome::Skipped { .. })
    ));
    staff(site, &[("Sales", "1", "King", "ada@contoso.com")]).await;
    // Moved once more, and recreated by an application under the old key: this is another entity.
    site.work(moving(("Sales", "1"), ("Ops", "1"))).await;
    let anew = Entity::new(EntityKey::new("Sales", "1").unwrap())
        .with("LastName", "New")
        .with("Email", "new@contoso.com");
    site.write("Staff§", anew).await;
    site.work(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "1"}))
        .await;
    assert!(matches!(
        site.deliver(&job, &delivery).await,
        Ok(Outcome::Skipped { .. })
    ));
    // A job that is delivered for the first time gets the error.
    delivery.dequeue_count = 1;
    let ended = site.deliver(&job, &delivery).await;
    assert!(ended.is_err_and(|failure| {
        failure
            .chain()
            .contains("exists and was not moved there by this job")
    }));
    staff(
        site,
        &[
            ("Ops", "1", "King", "ada@contoso.com"),
            ("Sales", "1", "New", "new@contoso.com"),
        ],
    )
    .await;
}

pub(crate) async fn moving_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    site.work(json!({"op": "put", "table": "Plain§", "entity": {"PartitionKey": "p", "RowKey": "r", "Name": "x"}})).await;
    // Read both, insert, delete.
    let job =
        json!({"op": "move", "table": "Plain§", "pk": "p", "rk": "r", "to_pk": "q", "to_rk": "r"});
    assert_eq!(site.requests_of(job).await, 4);
    // 4 as before, 4 for the source and 1 for its address there, 5 for the destination and 2 for the items there.
    site.work(hire("Sales", "1", "King", "ada@contoso.com"))
        .await;
    assert_eq!(
        site.requests_of(moving(("Sales", "1"), ("Ops", "1"))).await,
        16
    );
}
