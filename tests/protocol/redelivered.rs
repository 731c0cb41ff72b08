//! Jobs that are delivered again: after a delivery that ended half-way, or beside one that is held up.

use evenkeel::reconcile::{Outcome, footprint};
use evenkeel_simulation::company::Shape;
use serde_json::json;

use crate::oracle;
use crate::world::{Disturbance, Lab, SMALL, employee, job, sync};

/// A client's change of an employee, with its sync, after which the employee satisfies no condition any more.
#[derive(Debug, Clone, Copy)]
enum Since {
    Renamed,
    Deleted,
}

async fn happens(lab: &Lab, since: Since) {
    match since {
        Since::Renamed => lab.write(employee("1", "ada@contoso.com", "Lovelace")).await,
        Since::Deleted => lab.remove("Sales", "1").await,
    }
    lab.work(&sync("Sales", "1")).await.unwrap();
}

/// An archive with views, and two employees to be archived.
async fn two() -> Lab {
    let lab = Lab::of(Shape { former_index: true, ..SMALL });
    for rk in ["1", "2"] {
        lab.write(employee(rk, &format!("{rk}@contoso.com"), "King")).await;
        lab.work(&sync("Sales", rk)).await.unwrap();
    }
    lab
}

#[tokio::test]
async fn an_archiving_by_condition_goes_back_to_what_its_earlier_delivery_left_half_way() {
    let archive = job(&json!({"op": "archive_where", "archive": "former", "when": "LastName == \"King\""}));
    let operations = two().await.operations_of(&archive).await;
    let mut along = 0;
    for at in 1..=operations {
        for disturbance in [Disturbance::Crash, Disturbance::Throttle, Disturbance::LoseAnswer] {
            for since in [Since::Renamed, Since::Deleted] {
                let story = format!("{disturbance:?} at operation {at}, then {since:?}");
                let lab = two().await;
                lab.faults.arm(at, disturbance);
                lab.deliver(&archive, 1).await;
                lab.faults.calm();
                happens(&lab, since).await;
                let ended = lab.deliver(&archive, 2).await;
                assert!(matches!(ended, Some(Ok(Outcome::Done(_)))), "{story}: {ended:?}");
                lab.finish().await;
                oracle::check(&lab, &story).await;
                for footprint in lab.rows(footprint::FOOTPRINTS).await {
                    assert!(footprint.entity.text("Settled").is_some(), "{story}: {footprint:?}");
                }
                let gone = lab.read("Employees", "Sales", "1").await.is_none();
                along += u32::from(gone && matches!(since, Since::Renamed));
                assert!(lab.read("FormerEmployees", "Sales", "2").await.is_some(), "{story}");
            }
        }
    }
    assert!(along > 0, "no copied employee went along with its change");
}
