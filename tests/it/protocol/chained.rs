//! Views of views: a pass over a primary brings in step those that it has derived, each for itself.

use evenkeel_engine::FailureClass;
use evenkeel_model::job::Primary;
use evenkeel_model::{EntityKey, Job};
use serde_json::json;

use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.cards]
kind = "secondary_index"
source = "Employees"
table = "Cards"
partition_key = "cards"
row_key = "{RowKey}"

[views.cards_by_email]
kind = "secondary_index"
source = "Cards"
table = "CardsByEmail"
partition_key = "{Email}"
row_key = ""

[views.desks]
kind = "secondary_index"
source = "Employees"
table = "Desks"
partition_key = "desks"
row_key = "{RowKey}"

[views.desks_by_name]
kind = "secondary_index"
source = "Desks"
table = "DesksByName"
partition_key = "{LastName}"
row_key = "{RowKey}"
"#;

fn lab() -> Lab {
    Lab::with(SMALL, declared(CATALOG))
}

fn delete(rk: &str) -> Job {
    job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": rk}))
}

/// The last name at the desk of an employee, by the view of that view.
async fn desk(lab: &Lab, rk: &str) -> Option<String> {
    let rows = lab.rows("DesksByName").await;
    rows.into_iter()
        .find(|row| row.entity.key.rk.as_str() == rk)
        .map(|row| row.entity.key.pk.to_string())
}

/// Who has an address, by the view of a view.
async fn holder(lab: &Lab, email: &str) -> Option<String> {
    let [_, _, rk]: [String; 3] = serde_json::from_str(
        lab.read("CardsByEmail", email, "")
            .await?
            .entity
            .text("ek_source")?,
    )
    .unwrap();
    Some(rk)
}

async fn in_step(lab: &Lab, name: &str, pk: &str, rk: &str) -> bool {
    let primary = Primary {
        table: table(name),
        key: EntityKey::new(pk, rk).unwrap(),
    };
    lab.engine.plan(&primary).await.unwrap().in_step
}

/// A job that fails for good, since a key is taken.
async fn refused(lab: &Lab, job: &Job) {
    let failure = lab.work(job).await.unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent && failure.chain().contains("CardsByEmail"),
        "{}",
        failure.chain()
    );
}

#[tokio::test]
async fn a_derived_primary_that_cannot_be_brought_in_step_stops_no_other() {
    let lab = lab();
    lab.write(employee("1", "info@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.write(employee("2", "info@contoso.com", "Byron")).await;
    for _ in 0..2 {
        refused(&lab, &sync("Sales", "2")).await;
        assert_eq!(desk(&lab, "2").await.as_deref(), Some("Byron"));
        assert!(
            in_step(&lab, "Desks", "desks", "2").await
                && !in_step(&lab, "Employees", "Sales", "2").await
        );
    }
    lab.write(employee("2", "info@contoso.com", "Gordon")).await;
    refused(&lab, &sync("Sales", "2")).await;
    assert_eq!(desk(&lab, "2").await.as_deref(), Some("Gordon"));

    // A holder that gives the key up tells those that wait for it.
    lab.write(employee("1", "ada@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.do_queued().await;
    assert_eq!(
        (
            holder(&lab, "info@contoso.com").await.as_deref(),
            holder(&lab, "ada@contoso.com").await.as_deref()
        ),
        (Some("2"), Some("1"))
    );
    assert!(!in_step(&lab, "Employees", "Sales", "2").await);
    lab.work(&job(
        &json!({"op": "audit", "table": "Employees", "repair": true}),
    ))
    .await
    .unwrap();
    assert!(
        in_step(&lab, "Employees", "Sales", "2").await
            && in_step(&lab, "Cards", "cards", "2").await
    );
    for rk in ["1", "2"] {
        lab.work(&delete(rk)).await.unwrap();
    }
    lab.finish().await;
    for name in [
        "Cards",
        "CardsByEmail",
        "Desks",
        "DesksByName",
        "EvenkeelFootprints",
    ] {
        assert!(lab.rows(name).await.is_empty(), "{name} has something left");
    }
}

/// Whoever wants the key does not wait for the job of a holder whose derived row has been given another one.
#[tokio::test]
async fn a_key_that_a_derived_primary_has_given_up_is_taken_by_another() {
    let prepared = async || {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.write(employee("1", "ada@contoso.com", "King")).await;
        lab.write(employee("2", "info@contoso.com", "Byron")).await;
        lab
    };
    let mut taken = 0;
    for at in 1..=prepared().await.operations_of(&sync("Sales", "1")).await {
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::Crash);
        assert!(lab.deliver(&sync("Sales", "1"), 1).await.is_none());
        lab.faults.calm();
        let card = lab.read("Cards", "cards", "1").await.unwrap();
        if card.entity.text("Email") == Some("ada@contoso.com") {
            taken += 1;
            lab.work(&sync("Sales", "2"))
                .await
                .unwrap_or_else(|failure| panic!("stopped at operation {at}: {}", failure.chain()));
            assert_eq!(holder(&lab, "info@contoso.com").await.as_deref(), Some("2"));
        }
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.do_queued().await;
        lab.finish().await;
        assert!(
            in_step(&lab, "Cards", "cards", "1").await
                && in_step(&lab, "Cards", "cards", "2").await,
            "stopped at operation {at}"
        );
    }
    assert!(taken > 2, "the card was never ahead of its index");
}
