//! The stack of open passes: each test shows the effect of one of its rules (docs/internals/engine.md). `deputies` and
//! `chained` test the rules about rings, chains and siblings.

use evenkeel_engine::FailureClass;
use evenkeel_engine::footprint::{FOOTPRINTS, Footprint};
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job};
use evenkeel_storage::TableOperation;
use serde_json::json;

use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "ByEmail"
partition_key = "{Email}"
row_key = ""

[views.cards]
kind = "secondary_index"
source = "Employees"
table = "Cards"
partition_key = "cards"
row_key = "{RowKey}"

[views.cards_by_name]
kind = "secondary_index"
source = "Cards"
table = "CardsByName"
partition_key = "{LastName}"
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
row_key = ""
"#;

const EMPLOYEE: (&str, &str, &str) = ("Employees", "Sales", "1");
const CARD: (&str, &str, &str) = ("Cards", "cards", "1");

fn lab() -> Lab {
    Lab::with(SMALL, declared(CATALOG))
}

async fn comes(lab: &Lab, rk: &str, email: &str, name: &str) {
    lab.write(employee(rk, email, name)).await;
    lab.work(&sync("Sales", rk)).await.unwrap();
}

async fn write_card(lab: &Lab, rk: &str, name: &str) -> Job {
    let card = Entity::new(EntityKey::new("cards", rk).unwrap()).with("LastName", name);
    lab.account
        .tables
        .apply(&table("Cards"), &TableOperation::InsertOrReplace(card))
        .await
        .unwrap();
    job(&json!({"op": "sync", "table": "Cards", "pk": "cards", "rk": rk}))
}

async fn holder(lab: &Lab, index: &str, key: &str) -> Option<String> {
    let row = lab.read(index, key, "").await?;
    let [_, _, rk]: [String; 3] = serde_json::from_str(row.entity.text("ek_source")?).unwrap();
    Some(rk)
}

async fn is_open(lab: &Lab, (name, pk, rk): (&str, &str, &str)) -> bool {
    let primary = Primary {
        table: table(name),
        key: EntityKey::new(pk, rk).unwrap(),
    };
    let row = lab.read(FOOTPRINTS, &format!("{name}~{pk}"), rk).await;
    row.is_some_and(|row| {
        let footprint = Footprint::decode(&primary, &row.entity, None).unwrap();
        footprint.is_changing()
    })
}

async fn in_step(lab: &Lab, (name, pk, rk): (&str, &str, &str)) -> bool {
    let primary = Primary {
        table: table(name),
        key: EntityKey::new(pk, rk).unwrap(),
    };
    lab.engine.plan(&primary).await.unwrap().in_step
}

#[tokio::test]
async fn a_holder_is_brought_in_step_before_the_announcement_and_then_the_round_begins_anew() {
    let lab = lab();
    comes(&lab, "1", "info@contoso.com", "King").await;
    lab.write(employee("1", "ada@contoso.com", "King")).await;
    lab.write(employee("2", "info@contoso.com", "Byron")).await;
    lab.faults.take_requests();
    lab.work(&sync("Sales", "2")).await.unwrap();
    let requests = lab.faults.take_requests();
    let (own, holders) = (
        format!("{FOOTPRINTS} Employees~Sales 2"),
        format!("{FOOTPRINTS} Employees~Sales 1"),
    );
    let begins = requests
        .iter()
        .position(|request| request.ends_with(&holders));
    let closed = requests
        .iter()
        .rposition(|request| request.ends_with(&holders));
    let (begins, closed) = (begins.unwrap(), closed.unwrap());
    let looked = requests[..begins]
        .iter()
        .rposition(|request| request == "read ByEmail info@contoso.com ")
        .expect("no look at the taken key");
    let between = &requests[looked..begins];
    assert!(
        between.iter().all(|request| request.starts_with("read")),
        "the footprint stays announced during a pass that may take long or fail: {between:?}"
    );
    assert_eq!(requests[closed], format!("write {holders}"), "{requests:?}");
    assert_eq!(
        requests[closed + 1],
        format!("read {own}"),
        "the plan is out of date: {requests:?}"
    );
    let next_write = requests[closed + 1..]
        .iter()
        .find(|request| request.starts_with("write"));
    assert_eq!(next_write, Some(&format!("write {own}")), "{requests:?}");
}

/// Two primaries want keys that others have to give up first: employee 3 wants the e-mail address of
/// employee 1, and employee 1 wants the e-mail address of employee 2 and the name of a card that no longer exists.
#[tokio::test]
async fn neither_a_pass_over_a_holder_nor_one_above_it_frees_the_key_of_another() {
    let lab = lab();
    comes(&lab, "1", "a@contoso.com", "King").await;
    comes(&lab, "2", "b@contoso.com", "Lovelace").await;
    let job = write_card(&lab, "gone", "Byron").await;
    lab.work(&job).await.unwrap();
    lab.delete_row("Cards", "cards", "gone").await;
    lab.write(employee("2", "c@contoso.com", "Lovelace")).await;
    lab.write(employee("1", "b@contoso.com", "Byron")).await;
    lab.write(employee("3", "a@contoso.com", "Ryan")).await;
    let holders = async || {
        [
            holder(&lab, "ByEmail", "a@contoso.com").await,
            holder(&lab, "ByEmail", "b@contoso.com").await,
            holder(&lab, "CardsByName", "Byron").await,
        ]
    };
    let looked = || {
        [("Employees", "Sales", "2"), ("Cards", "cards", "gone")]
            .map(|(name, pk, rk)| lab.faults.reads_of(name, pk, rk))
    };
    let before = looked();
    lab.work(&sync("Sales", "3")).await.unwrap();
    let some = |rk: &str| Some(rk.to_owned());
    assert_eq!(holders().await, [some("3"), some("2"), some("gone")]);
    assert_eq!(looked(), before, "one holder leads to the next");

    // The first holder's own job takes the key that it waits for.
    lab.work(&sync("Sales", "2")).await.unwrap();
    lab.do_queued().await;
    assert_eq!(holders().await, [some("3"), some("1"), some("1")]);
}

#[tokio::test]
async fn a_follower_that_fails_for_the_moment_ends_the_run_with_every_announcement_open() {
    let lab_of_one = async || {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.faults.take_requests();
        lab
    };
    let lab = lab_of_one().await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    let requests = lab.faults.take_requests();
    let of_the_follower = requests
        .iter()
        .position(|request| request == "write CardsByName King ")
        .expect("no write of the follower");
    for disturbance in [Disturbance::Throttle, Disturbance::Refuse] {
        let lab = lab_of_one().await;
        lab.faults
            .arm(u64::try_from(of_the_follower).unwrap() + 1, disturbance);
        let failure = lab.deliver(&sync("Sales", "1"), 1).await.unwrap();
        let failure = failure.unwrap_err();
        assert!(
            failure.class != FailureClass::Permanent && failure.chain().contains("CardsByName"),
            "{}",
            failure.chain()
        );
        for primary in [EMPLOYEE, CARD] {
            assert!(is_open(&lab, primary).await, "{primary:?}, {disturbance:?}");
        }
        let desks = [
            lab.rows("Desks").await.len(),
            lab.rows("DesksByName").await.len(),
        ];
        assert_eq!(desks, [1, 0], "the pass must not continue");
        lab.faults.calm();
        lab.work(&sync("Sales", "1")).await.unwrap();
        for primary in [EMPLOYEE, CARD, ("Desks", "desks", "1")] {
            assert!(
                in_step(&lab, primary).await && !is_open(&lab, primary).await,
                "{primary:?}, {disturbance:?}"
            );
        }
    }
}

#[tokio::test]
async fn what_was_written_dropped_or_forgotten_is_followed() {
    let lab = lab();
    let named = async || lab.rows("CardsByName").await.len();
    comes(&lab, "1", "info@contoso.com", "King").await;
    assert_eq!(named().await, 1, "written");
    lab.remove("Sales", "1").await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    assert_eq!(named().await, 0, "dropped");

    comes(&lab, "1", "info@contoso.com", "King").await;
    lab.delete_row("Cards", "cards", "1").await;
    lab.remove("Sales", "1").await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    assert_eq!(
        named().await,
        0,
        "the absent item must be removed from the footprint"
    );
    lab.finish().await;
    assert!(lab.rows(FOOTPRINTS).await.is_empty());
}

/// Each nested pass has five rounds of its own, like the run itself.
#[tokio::test(start_paused = true)]
async fn a_pass_above_another_has_rounds_of_its_own() {
    let prepared = async |own: u64, follower: u64| {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.faults
            .lose_races(FOOTPRINTS, "Employees~Sales", "1", own);
        lab.faults
            .lose_races(FOOTPRINTS, "Cards~cards", "1", follower);
        lab
    };
    let lab = prepared(4, 4).await;
    lab.deliver(&sync("Sales", "1"), 1)
        .await
        .unwrap()
        .unwrap_or_else(|failure| panic!("each pass loses four races: {}", failure.chain()));
    assert!(in_step(&lab, EMPLOYEE).await && in_step(&lab, CARD).await);

    let lab = prepared(0, 5).await;
    let failure = lab.deliver(&sync("Sales", "1"), 1).await.unwrap();
    let failure = failure.unwrap_err();
    assert!(
        matches!(failure.class, FailureClass::Transient { .. })
            && failure.chain().contains("reconciling Cards"),
        "{}",
        failure.chain()
    );
    assert!(is_open(&lab, EMPLOYEE).await);
    lab.work(&sync("Sales", "1")).await.unwrap();
    assert!(in_step(&lab, EMPLOYEE).await && in_step(&lab, CARD).await);
}

/// A client has replaced the derived card with its own card, and has synced it.
#[tokio::test]
async fn a_follower_of_a_thorough_sync_looks_at_nothing_that_is_settled() {
    let lab = lab();
    comes(&lab, "1", "info@contoso.com", "King").await;
    let of_the_card = write_card(&lab, "1", "Byron").await;
    lab.work(&of_the_card).await.unwrap();
    lab.remove("Sales", "1").await;
    let thorough = job(
        &json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1", "thorough": true}),
    );
    lab.faults.take_requests();
    lab.work(&thorough).await.unwrap();
    let requests = lab.faults.take_requests();
    let follows = format!("read {FOOTPRINTS} Cards~cards 1");
    let begins = requests
        .iter()
        .position(|request| *request == follows)
        .expect("the card is not followed");
    let about_the_card: Vec<_> = requests[begins..]
        .iter()
        .filter(|request| request.contains(" Cards"))
        .collect();
    assert_eq!(
        about_the_card,
        [&follows, "read Cards cards 1"],
        "{requests:?}"
    );
    assert_eq!(
        holder(&lab, "CardsByName", "Byron").await.as_deref(),
        Some("1")
    );
}
