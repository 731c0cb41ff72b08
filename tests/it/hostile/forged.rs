//! Random forgeries: messages and rows of every kind that the program reads, in any order. The program must not delete
//! or overwrite anything that does not belong to the primary that the forgery names.

use std::time::Duration;

use evenkeel_model::job::Primary;
use evenkeel_model::range_overlay;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{Entity, QueueName, body};
use evenkeel_storage::{TableOperation, Ttl};
use evenkeel_worker::poison::{PoisonFilter, PoisonQueue};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::hostile::poison::message;
use crate::hostile::records::{gone, line, number};
use crate::hostile::stage::{ORDERS, OTHER_LOG, Stage, TRUE, key, staff, table};

#[derive(Debug, Clone)]
enum Forgery {
    Recheck {
        of: Primary,
        items: Vec<Value>,
    },
    Footprint {
        of: Primary,
        items: Value,
    },
    Poison {
        fields: Value,
        discard: bool,
    },
    /// A row of range overlays (which departments set properties on a range of people), and a job of a person in that
    /// range.
    RangeOverlays {
        members: Value,
    },
    /// The first row of a list, which names the rows that contain the list's members.
    Head {
        properties: Vec<(&'static str, Value)>,
    },
    /// An application has written the properties that mark a row as derived.
    Marks {
        view: String,
        source: Value,
    },
    /// A job with a cursor, or with the name of a staged blob.
    Job(Value),
    /// Rows of the recorded catalog, a migration that reads them, and later jobs.
    Record {
        rows: Vec<Entity>,
        then: Value,
    },
    Line(Entity),
    Rows {
        said: String,
    },
}

fn primaries() -> impl Strategy<Value = Primary> {
    let at = |name: &str, pk: &str, rk: &str| Primary {
        table: table(name),
        key: key(pk, rk),
    };
    select(vec![
        staff("7"),
        staff("no-such"),
        at("Staff", "8", "Bob"),
        at("Payroll", "Sales", "7"),
        at("Managers", "Sales", "7"),
    ])
}

fn views() -> impl Strategy<Value = &'static str> {
    select(vec![
        "by_email",
        "near",
        "by_last_name",
        "phone_book",
        "manager",
        "headcount",
        "floor",
        "photos",
        "found",
        "managers",
        "gone",
    ])
}

fn parts() -> impl Strategy<Value = Value> {
    let member = |texts: &[&str]| json!({"member": texts});
    select(vec![
        Value::Null,
        json!("properties"),
        member(&["Sales", "8", "Bob"]),
        member(&["Sales", "8"]),
        member(&["8", "Sales"]),
        member(&[
            "Sales",
            "department",
            "main",
            "Rooms",
            "Sales",
            "",
            "",
            "{\"Floor\":9}",
        ]),
    ])
}

/// A place of an item, both in the format of a recheck message and in the format of a footprint.
fn sites() -> impl Strategy<Value = (Value, Value)> {
    let row = |name: &str, pk: &str, rk: &str| {
        (
            json!({"table": name, "pk": pk, "rk": rk}),
            json!(["row", name, pk, rk]),
        )
    };
    let blob = |of: &str, name: &str| {
        (
            json!({"container": of, "blob": name}),
            json!(["blob", of, name]),
        )
    };
    let document = |index: &str, key: &str| {
        (
            json!({"index": index, "document": key}),
            json!(["document", index, key]),
        )
    };
    let bobs = evenkeel_model::sink::key(&staff("8"));
    let file = |dir: &str, name: &str| {
        (
            json!({"dir": dir, "file": name}),
            json!(["file", dir, name]),
        )
    };
    select(vec![
        row("ByEmail", "email_Sales", "bob@contoso.com"),
        row("Staff", "Sales", "near_bob@contoso.com"),
        row("Staff", "Sales", "8"),
        row("Lists", "last", "King"),
        row("Groups", "groups", "Sales"),
        row("Departments", "Sales", "department"),
        row("Rooms", "Sales", "101"),
        row("Ledger", "2026", "11"),
        row("Payroll", "Sales", "8"),
        row("EvenkeelFootprints", "Staff~Sales", "8"),
        row("EvenkeelRangeOverlays", "floor~Rooms~Sales", "overlays"),
        blob("payroll", "2026/salaries.csv"),
        blob("phone-book", "King.json"),
        blob("photos", "staff/Sales/8/Photo-0"),
        document("some-other-teams-index", "customer-42"),
        document("people", bobs.as_str()),
        file("$VICTIM", "canary.txt"),
        file("$SHARE", "Sales/9.json"),
        file("$SHARE", "../victim/canary.txt"),
    ])
}

fn forgeries() -> impl Strategy<Value = Forgery> {
    let accounts = || select(vec!["main", "catalog"]);
    let recheck_item =
        (views(), accounts(), sites(), parts()).prop_map(|(view, account, (mut site, _), part)| {
            site["view"] = json!(view);
            site["account"] = json!(account);
            if !part.is_null() {
                site["part"] = part;
            }
            site
        });
    let listed = (
        views(),
        accounts(),
        sites(),
        parts(),
        0..3_u32,
        select(vec![
            None,
            Some("e1"),
            Some("W/\"1\""),
            Some("1"),
            Some(TRUE),
            Some(TRUE),
        ]),
        0..2_u8,
    )
        .prop_map(
            |(view, account, (_, site), part, generation, etag, changing)| {
                json!([view, generation, account, site, part, etag, changing])
            },
        );
    // An item that fits its view by its table or by its name, with the item's true version.
    let at_home = select(vec![
        (
            "by_email",
            json!(["row", "ByEmail", "email_Sales", "bob@contoso.com"]),
        ),
        (
            "near",
            json!(["row", "Staff", "Sales", "near_bob@contoso.com"]),
        ),
        ("near", json!(["row", "Staff", "Sales", "8"])),
        ("managers", json!(["row", "Managers", "m_Sales", "8"])),
        (
            "photos",
            json!([
                "blob",
                "payroll",
                format!("staff/Sales/7/Photo-{}", "0".repeat(64))
            ]),
        ),
    ]);
    let at_home = (at_home, 0..3_u32, 0..2_u8);
    let at_home = at_home.prop_map(|((view, site), generation, changing)| {
        json!([view, generation, "main", site, null, TRUE, changing])
    });
    let listed = prop_oneof![2 => listed, 1 => at_home];
    let poison = select(vec![
        json!({"body_blob": {"container": "payroll", "name": "2026/salaries.csv"}}),
        json!({"body_blob": {"container": "photos", "name": "staff/Sales/8/Photo"}}),
        json!({"queue": "other", "body": "{}"}),
        json!({"queue": "jobs-recheck", "body": "{}"}),
        json!({"body": "{\"op\":\"nope\"}", "message_id": "x".repeat(5_000)}),
    ]);
    let overlays = select(vec![
        json!([[overlay("Rooms", &json!({"Floor": 9}))]]),
        json!([[overlay("Payroll", &json!({"Salary": 0}))]]),
        json!([["Sales", "x"]]),
        json!("no list"),
    ]);
    let heads = proptest::collection::vec(
        (
            select(vec!["ek_count", "ek_list", "ek_tokens", "ek_view", "Staff"]),
            select(vec![
                json!("payroll/2026/salaries.csv"),
                json!("phone-book/King.json"),
                json!("by_last_name"),
                json!(7),
                json!("[]"),
            ]),
        ),
        1..3,
    );
    let jobs = select(vec![
        json!({"op": "backfill", "view": "by_email", "cursor": {"next_pk": "zzz", "next_rk": "z", "done": 9}}),
        json!({"op": "audit", "table": "Staff", "repair": true, "cursor": {"next_pk": "zzz", "next_rk": "z", "rows": 99_999}}),
        json!({"op": "propagate", "view": "floor", "owner": {"pk": "Sales", "rk": "department"}, "table": "Payroll", "pk": "Sales"}),
        json!({"op": "propagate", "view": "floor", "owner": {"pk": "Sales", "rk": "7"}, "table": "Rooms", "pk": "Sales", "cursor": {"taken": 3, "taken_by": {"pk": "a", "rk": "b"}}}),
        json!({"op": "put", "table": "Staff", "pk": "Sales", "rk": "7", "entity_ref": {"blob": "payroll/2026/salaries.csv"}}),
        json!({"op": "put", "table": "Staff", "entity": {"PartitionKey": "Sales", "RowKey": "7"}, "blobs": {"Photo": {"blob": "payroll/2026/salaries.csv"}}}),
        json!({"op": "put", "table": "Staff", "entity": {"PartitionKey": "Sales", "RowKey": "7", "Photo": pointer("payroll", "2026/salaries.csv")}}),
        json!({"op": "put", "table": "Staff", "entity": {"PartitionKey": "Sales", "RowKey": "7", "Photo": pointer("photos", "staff/Sales/8/Photo")}}),
        json!({"op": "drop_table", "table": "Ledger"}),
        json!({"op": "delete", "table": "Managers", "pk": "m_Sales", "rk": "8"}),
        json!({"op": "archive", "archive": "drawer", "pk": "Sales", "rk": "7"}),
    ]);
    let then = select(vec![
        json!({"op": "drop_table", "table": "Visits20200101"}),
        json!({"op": "drop_table", "table": ORDERS}),
        json!({"op": "backfill", "view": "gone"}),
        json!({"op": "backfill", "table": "Payroll"}),
        json!({"op": "audit", "table": "Staff", "repair": true}),
        json!({"op": "propagate", "view": "gone", "owner": {"pk": "Sales", "rk": "department"}, "table": "Payroll", "pk": "Sales"}),
        json!({"op": "sync", "table": "Ledger", "pk": "2026", "rk": "11"}),
    ]);
    let marks = (
        views(),
        select(vec![
            json!(["Staff", "Sales", "7"]),
            json!(["Staff", "Sales", "8"]),
            json!(["Staff"]),
            json!(7),
        ]),
    );
    prop_oneof![
        4 => (primaries(), proptest::collection::vec(recheck_item, 1..4)).prop_map(|(of, items)| Forgery::Recheck { of, items }),
        4 => (primaries(), proptest::collection::vec(listed, 1..4)).prop_map(|(of, items)| Forgery::Footprint { of, items: items.into() }),
        1 => (poison, any::<bool>()).prop_map(|(fields, discard)| Forgery::Poison { fields, discard }),
        1 => overlays.prop_map(|members| Forgery::RangeOverlays { members }),
        1 => heads.prop_map(|properties| Forgery::Head { properties }),
        1 => marks.prop_map(|(view, source)| Forgery::Marks { view: view.to_owned(), source }),
        2 => jobs.prop_map(Forgery::Job),
        2 => (proptest::collection::vec(records(), 1..4), then).prop_map(|(rows, then)| Forgery::Record { rows, then }),
        2 => lines().prop_map(Forgery::Line),
        1 => select(vec!["[\"1\",\"2\"]".to_owned(), "[]".to_owned(), "7".to_owned()]).prop_map(|said| Forgery::Rows { said }),
    ]
}

fn records() -> impl Strategy<Value = Entity> {
    let sources = select(vec![
        "Staff",
        "Payroll",
        "Ledger",
        "Departments",
        "Visits%Y%m%d",
        "Orders%Y%m%d",
    ]);
    let follower = select(vec![
        "Orders%Y%m%d",
        "Visits%Y%m%d",
        "EvenkeelFootprints%Y%m%d",
        "Staff%Y",
    ])
    .prop_map(|name| json!({"account": "main", "tables": name}));
    let followers = proptest::collection::vec(follower, 0..3);
    let view = (views(), sources, any::<bool>(), 0..3_i64, followers).prop_map(
        |(name, source, retired, generation, followers)| {
            gone(name, source, &followers.into())
                .with("Retired", retired)
                .with("Generation", generation)
        },
    );
    let met = (views(), 0..9_i64).prop_map(|(name, met)| {
        Entity::new(key("catalog", &format!("met~{name}"))).with("Generation", met)
    });
    let applied = Entity::new(key("migration", "0001"))
        .with("Name", "control_tables")
        .with("Checksum", "0");
    prop_oneof![4 => view, 1 => met, 1 => (0..9_i64).prop_map(number), 1 => Just(applied)]
}

fn lines() -> impl Strategy<Value = Entity> {
    let blobs = select(vec![
        OTHER_LOG,
        "trail/2026/11/20/1500/000001.jsonl",
        "trail/../theirs",
        "theirs/000001.jsonl",
    ]);
    let number = || select(vec![0, 1, 3, 5, 4 << 20, 1 << 40, i64::MAX, i64::MIN, -1]);
    let former = select(vec![
        json!([]),
        json!("no list"),
        json!([{"position": 0, "length": 3, "sha256": "00", "version": "1"}]),
        json!([{"position": u64::MAX, "length": u64::MAX, "sha256": "00", "version": "1"}]),
    ]);
    (blobs, number(), number(), number(), former).prop_map(
        |(blob, start, position, length, former)| line(blob, start, position, length, &former),
    )
}

fn overlay(table: &str, set: &Value) -> String {
    let range = json!({"account": "main", "table": table, "pk": "Sales"});
    let owner = json!({"pk": "Sales", "rk": "department"});
    json!({"v": 1, "owner": owner, "range": range, "set": set}).to_string()
}

fn pointer(of: &str, name: &str) -> String {
    let sha = "0".repeat(64);
    json!({"v": 1, "$blob": format!("{of}/{name}-{sha}"), "bytes": 3, "sha256": sha}).to_string()
}

impl Stage {
    async fn overwrite(&self, name: &str, entity: Entity) {
        self.account
            .tables
            .apply(&table(name), &TableOperation::InsertOrReplace(entity))
            .await
            .unwrap();
    }

    fn placed(&self, value: &Value) -> Value {
        let text = value
            .to_string()
            .replace("$VICTIM", self.victim().to_str().unwrap())
            .replace("$SHARE", self.share().to_str().unwrap());
        serde_json::from_str(&text).unwrap()
    }

    async fn suffer(&mut self, forgery: &Forgery) {
        match forgery {
            Forgery::Record { rows, then } => {
                self.record(&[vec![number(1)], rows.clone()].concat()).await;
                self.attempt_raw(then).await;
                self.attempt_raw(&json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": "7", "thorough": true})).await;
            }
            Forgery::Line(row) => self.forge_line(row).await,
            Forgery::Recheck { of, items } => {
                let items: Vec<Value> = items.iter().map(|item| self.placed(item)).collect();
                self.recheck_of(of, &items).await;
            }
            Forgery::Footprint { of, items } => {
                drop(self.forge_footprint(of, &self.placed(items)).await);
            }
            Forgery::Poison { fields, discard } => self.operate(fields, *discard).await,
            Forgery::RangeOverlays { members } => {
                let at = range_overlay::entity_key(
                    &evenkeel_model::ViewName::new("floor").unwrap(),
                    &table("Rooms"),
                    &key("Sales", "x").pk,
                );
                let row = Entity::new(at)
                    .with("RangeOverlays", members.to_string())
                    .with("ek_list", "RangeOverlays")
                    .with("ek_count", 1_i64);
                let row = row
                    .with("ek_tokens", "[\"1\"]")
                    .with("ek_view", "floor")
                    .with("ek_source", "[\"Departments\"]");
                self.overwrite(range_overlay::RANGE_OVERLAYS, row).await;
                drop(
                    self.attempt(
                        &json!({"op": "sync", "table": "Rooms", "pk": "Sales", "rk": "101"}),
                    )
                    .await,
                );
            }
            Forgery::Head { properties } => {
                let mut head = self
                    .read("Lists", "last", "King")
                    .await
                    .map_or_else(|| Entity::new(key("last", "King")), |row| row.entity);
                for (name, value) in properties {
                    head = match value {
                        Value::String(text) => head.with(*name, text.as_str()),
                        other => head.with(*name, other.as_i64().unwrap_or_default()),
                    };
                }
                self.overwrite("Lists", head).await;
                drop(self.attempt(&json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": "7", "thorough": true})).await);
            }
            Forgery::Marks { view, source } => {
                // The row has the key of one of Ann's items, so that passes over Ann read the row.
                let row = Entity::new(key("email_Sales", "ann@contoso.com"))
                    .with("ek_view", view.as_str())
                    .with("ek_source", source.to_string());
                self.overwrite("ByEmail", row).await;
                drop(self.attempt(&json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": "7", "thorough": true})).await);
            }
            Forgery::Job(job) => self.attempt_raw(job).await,
            Forgery::Rows { said } => {
                self.overwrite(
                    "Staff",
                    Entity::new(key("Sales", "7"))
                        .with("Email", "ann@contoso.com")
                        .with("ek_rows", said.as_str()),
                )
                .await;
                drop(
                    self.attempt(
                        &json!({"op": "delete", "table": "Staff", "pk": "Sales", "rk": "7"}),
                    )
                    .await,
                );
            }
        }
        self.queued().await;
    }

    async fn operate(&self, fields: &Value, discard: bool) {
        let queue = QueueName::new("jobs").unwrap();
        let settings = QueueSettings::plain(queue);
        let poison = PoisonQueue::new(&self.account, &settings).unwrap();
        let text = body::encode(&message("forged", fields).to_string());
        let name = QueueName::new("jobs-poison").unwrap();
        self.account
            .queues
            .put(&name, &text, Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
        let all = PoisonFilter::default();
        drop(if discard {
            poison.discard(&all).await
        } else {
            poison.requeue(&all).await
        });
        assert!(
            self.sim
                .messages(&QueueName::new("other").unwrap())
                .is_empty(),
            "{fields}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_forged_nothing_of_anybody_else_is_deleted_or_overwritten(forgeries in proptest::collection::vec(forgeries(), 1..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut stage = Stage::new().await;
            let before = stage.picture();
            for forgery in &forgeries {
                stage.suffer(forgery).await;
                let after = stage.picture();
                for (name, was) in &before {
                    assert_eq!(after.get(name), Some(was), "{name} after {forgery:?}");
                }
            }
        });
    }
}
