//! Range overlays under disturbance: a propagation sets a department's properties on its people, while people and departments
//! are created, deleted and changed.
//!
//! Each story runs undisturbed, and then disturbed at each operation of its job: by faults, and by another worker that
//! does whole jobs in between. At the end each person has the properties of the department, as this file computes them,
//! and no plan finds anything to do.

use std::time::Duration;

use evenkeel_engine::{FailureClass, Outcome, footprint};
use evenkeel_model::catalog::{
    Catalog, Denormalize, DenormalizeRange, OnConflict, RangeRows, SecondaryIndex, Source,
    TableRef, View, ViewKind,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::job::Primary;
use evenkeel_model::settled::Settled;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, Entity, EntityKey, Job, ViewName};
use evenkeel_storage::{ErrorClass, IfMatch, TableOperation};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, job, table};

fn table_ref(name: &str) -> TableRef {
    TableRef {
        account: AccountName::main(),
        table: table(name),
    }
}

/// Where the departments are, and which further views exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Departments have their own table.
    Apart,
    /// Departments have their own table, and a view lists people by the name of their department.
    Followed,
    /// Departments are in the partition of their people, so that a department is within its own range. Another view
    /// sets the manager's address on the department.
    Together,
}

impl Layout {
    const ALL: [Self; 3] = [Self::Apart, Self::Followed, Self::Together];

    fn of(lab: &Lab) -> Self {
        match lab.engine.catalog().views.len() {
            1 => Self::Apart,
            2 => Self::Followed,
            _ => Self::Together,
        }
    }

    fn department(self) -> (&'static str, &'static str) {
        if self == Self::Together {
            ("Employees", "e0")
        } else {
            ("Departments", "department")
        }
    }

    fn sync(self) -> Job {
        let (table, rk) = self.department();
        sync(table, rk)
    }

    fn propagation(self) -> Job {
        let owner = json!({"pk": "Sales", "rk": self.department().1});
        job(
            &json!({"op": "propagate", "view": "says", "owner": owner, "table": "Employees", "pk": "Sales", "from": "e", "before": "f"}),
        )
    }
}

const MANAGER: &str = "e2";

/// A department sets its name on each person in its partition whose row key begins with the department's prefix. A view
/// has copies of the people by that name.
fn catalog(layout: Layout) -> Catalog {
    let view = |name: &str, source: &str, kind| {
        let name = ViewName::new(name).unwrap();
        (
            name.clone(),
            View {
                name,
                source: table_ref(source),
                when: None,
                kind,
                on_conflict: OnConflict::Reject,
            },
        )
    };
    let manager = (layout == Layout::Together).then(|| {
        let kind = ViewKind::Denormalize(Denormalize {
            target: table_ref("Employees").into(),
            partition_key: Template::parse("{PartitionKey}").unwrap(),
            row_key: Template::parse(layout.department().1).unwrap(),
            set: [(
                "Manager".to_owned(),
                Template::parse_text("{Email}").unwrap(),
            )]
            .into(),
        });
        let (name, view) = view("manager", "Employees", kind);
        (
            name,
            View {
                when: Some(Condition::parse(&format!("RowKey == \"{MANAGER}\"")).unwrap()),
                ..view
            },
        )
    });
    let range = DenormalizeRange {
        target: table_ref("Employees").into(),
        partition_key: Template::parse("{PartitionKey}").unwrap(),
        rows: RangeRows::Prefix(Template::parse("{Prefix}").unwrap()),
        set: [(
            "Department".to_owned(),
            Template::parse_text("{Name}").unwrap(),
        )]
        .into(),
    };
    let index = SecondaryIndex {
        target: table_ref("ByEmail").into(),
        partition_key: Template::parse("{Department}").unwrap(),
        row_key: Template::parse("{PartitionKey}_{RowKey}").unwrap(),
        select: None,
    };
    let by_department = (layout != Layout::Apart).then(|| {
        view(
            "by_department",
            "Employees",
            ViewKind::SecondaryIndex(index),
        )
    });
    Catalog {
        tables: ["Employees", "Departments", "ByEmail"]
            .map(|name| (table(name), table_ref(name)))
            .into(),
        views: [view(
            "says",
            layout.department().0,
            ViewKind::DenormalizeRange(range),
        )]
        .into_iter()
        .chain(by_department)
        .chain(manager)
        .map(|(name, view)| (name, view.into()))
        .collect(),
        ..Catalog::default()
    }
}

async fn write(lab: &Lab, name: &str, entity: Entity) {
    lab.account
        .tables
        .apply(&table(name), &TableOperation::InsertOrReplace(entity))
        .await
        .unwrap();
}

async fn person(lab: &Lab, rk: &str) {
    write(
        lab,
        "Employees",
        Entity::new(EntityKey::new("Sales", rk).unwrap()).with("Email", rk),
    )
    .await;
}

async fn department(lab: &Lab, name: &str, prefix: &str) {
    let (home, rk) = Layout::of(lab).department();
    let entity = Entity::new(EntityKey::new("Sales", rk).unwrap())
        .with("Name", name)
        .with("Prefix", prefix);
    lab.account
        .tables
        .apply(&table(home), &TableOperation::InsertOrMerge(entity))
        .await
        .unwrap();
}

async fn no_department(lab: &Lab) {
    let (home, rk) = Layout::of(lab).department();
    forget(lab, home, rk).await;
}

async fn forget(lab: &Lab, name: &str, rk: &str) {
    let operation = TableOperation::Delete(EntityKey::new("Sales", rk).unwrap(), IfMatch::Any);
    drop(lab.account.tables.apply(&table(name), &operation).await);
}

fn sync(table: &str, rk: &str) -> Job {
    job(&json!({"op": "sync", "table": table, "pk": "Sales", "rk": rk}))
}

type Step = fn(Lab) -> BoxFuture<'static, ()>;

fn settled(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        department(&lab, "Sales", "e").await;
        lab.work(&Layout::of(&lab).sync()).await.unwrap();
        for rk in ["e1", "e2", "e3", "x"] {
            person(&lab, rk).await;
            lab.work(&sync("Employees", rk)).await.unwrap();
        }
        lab.do_queued().await;
    })
}

fn stories(layout: Layout) -> [(&'static str, Step, Job); 9] {
    let (home, rk) = layout.department();
    [
        (
            "a department is renamed",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    department(&lab, "Trade", "e").await;
                })
            },
            layout.sync(),
        ),
        (
            "a department means others",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    department(&lab, "Sales", "x").await;
                })
            },
            layout.sync(),
        ),
        (
            "a department goes",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    no_department(&lab).await;
                })
            },
            layout.sync(),
        ),
        (
            "a department is put",
            |lab| {
                Box::pin(async move {
                    for rk in ["e1", "e2", "x"] {
                        person(&lab, rk).await;
                        lab.work(&sync("Employees", rk)).await.unwrap();
                    }
                })
            },
            job(
                &json!({"op": "put", "table": home, "entity": {"PartitionKey": "Sales", "RowKey": rk, "Name": "New", "Prefix": "e"}}),
            ),
        ),
        (
            "a name is propagated",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    department(&lab, "Trade", "e").await;
                    lab.work(&Layout::of(&lab).sync()).await.unwrap();
                })
            },
            layout.propagation(),
        ),
        (
            "a silence is propagated",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    no_department(&lab).await;
                    lab.work(&Layout::of(&lab).sync()).await.unwrap();
                })
            },
            layout.propagation(),
        ),
        (
            "somebody new asks",
            |lab| {
                Box::pin(async move {
                    settled(lab.clone()).await;
                    person(&lab, "e9").await;
                })
            },
            sync("Employees", "e9"),
        ),
        (
            "the manager is put again, whose address a view may set",
            settled,
            job(
                &json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": MANAGER, "Email": MANAGER}}),
            ),
        ),
        (
            "somebody new is put",
            settled,
            job(
                &json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "e9", "Email": "e9"}}),
            ),
        ),
    ]
}

fn meddlers() -> [(&'static str, Step); 6] {
    [
        ("somebody new", |lab| {
            Box::pin(async move {
                person(&lab, "e5").await;
                lab.work(&sync("Employees", "e5")).await.unwrap();
            })
        }),
        ("one deleted and created anew", |lab| {
            Box::pin(async move {
                forget(&lab, "Employees", "e2").await;
                person(&lab, "e2").await;
                lab.work(&sync("Employees", "e2")).await.unwrap();
            })
        }),
        ("a rename that is not propagated yet", |lab| {
            Box::pin(async move {
                department(&lab, "Meddled", "e").await;
                lab.work(&Layout::of(&lab).sync()).await.unwrap();
            })
        }),
        ("a rename that is propagated", |lab| {
            Box::pin(async move {
                department(&lab, "Meddled", "e").await;
                lab.work(&Layout::of(&lab).sync()).await.unwrap();
                lab.do_queued().await;
            })
        }),
        ("another range", |lab| {
            Box::pin(async move {
                department(&lab, "Sales", "x").await;
                lab.work(&Layout::of(&lab).sync()).await.unwrap();
                lab.do_queued().await;
            })
        }),
        ("no department", |lab| {
            Box::pin(async move {
                no_department(&lab).await;
                lab.work(&Layout::of(&lab).sync()).await.unwrap();
                lab.do_queued().await;
            })
        }),
    ]
}

/// Runs everything that is left, and checks that each person has the name of the department.
async fn agrees(lab: &Lab, story: &str) {
    lab.faults.calm();
    lab.sim.settle();
    for _ in 0..3 {
        lab.do_queued().await;
        lab.finish().await;
    }
    let layout = Layout::of(lab);
    let (home, one) = layout.department();
    let department = lab.read(home, "Sales", one).await.map(|row| row.entity);
    let mut filed = Vec::new();
    for row in lab.rows("Employees").await {
        let rk = row.entity.key.rk.as_str();
        if (home, one) == ("Employees", rk) {
            assert_eq!(
                row.entity.text("Department"),
                None,
                "{story}: a department must not set its name on itself"
            );
            let manager = lab
                .read("Employees", "Sales", MANAGER)
                .await
                .map(|row| row.entity.key.rk.to_string());
            assert_eq!(row.entity.text("Manager"), manager.as_deref(), "{story}");
            continue;
        }
        let said = department.as_ref().filter(|department| {
            department
                .text("Prefix")
                .is_some_and(|prefix| rk.starts_with(prefix))
        });
        let said = said.and_then(|department| department.text("Name"));
        assert_eq!(row.entity.text("Department"), said, "{story}: {rk}");
        assert_eq!(
            row.entity.text("Email"),
            Some(rk),
            "{story}: properties of others must remain"
        );
        filed.extend(said.map(|said| (said.to_owned(), format!("Sales_{rk}"))));
    }
    if layout != Layout::Apart {
        let found: Vec<_> = lab
            .rows("ByEmail")
            .await
            .iter()
            .map(|row| (row.entity.key.pk.to_string(), row.entity.key.rk.to_string()))
            .collect();
        assert_eq!(found, filed, "{story}");
    }
    let recorded = lab
        .read(footprint::FOOTPRINTS, &format!("{home}~Sales"), one)
        .await;
    let settled = recorded.map(|row| Settled::read(&row.entity).unwrap());
    let version = department.as_ref().map(|_| {
        lab.sim
            .rows(&table(home))
            .into_iter()
            .find(|row| row.entity.key.rk.as_str() == one)
            .unwrap()
            .etag
    });
    assert!(
        settled.as_ref().is_none_or(
            |(settled, propagating)| !propagating && settled.version() == version.as_ref()
        ),
        "{story}: {settled:?}, and the department is at {version:?}"
    );
    let departments = lab
        .rows("Departments")
        .await
        .into_iter()
        .map(|row| ("Departments", row));
    for (name, row) in departments.chain(
        lab.rows("Employees")
            .await
            .into_iter()
            .map(|row| ("Employees", row)),
    ) {
        let plan = lab
            .engine
            .plan(&Primary {
                table: table(name),
                key: row.entity.key,
            })
            .await
            .unwrap();
        assert!(plan.in_step, "{story}: {plan}");
    }
}

async fn undisturbed(prepare: Step, job: &Job, layout: Layout, story: &str) -> u64 {
    let lab = Lab::with(SMALL, catalog(layout));
    prepare(lab.clone()).await;
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    lab.deliver(job, 1)
        .await
        .expect("not disturbed")
        .unwrap_or_else(|failure| panic!("{story}: {}", failure.chain()));
    let operations = lab.faults.counted();
    agrees(&lab, story).await;
    operations
}

#[tokio::test]
async fn what_takes_longer_to_propagate_goes_on_where_it_stopped() {
    let propagation = |cursor: &Value| {
        job(
            &json!({"op": "propagate", "view": "says", "owner": {"pk": "Sales", "rk": "department"}, "table": "Employees", "pk": "Sales", "from": "e", "cursor": cursor}),
        )
    };
    let mut parts = 0;
    for at in 1..12 {
        let lab = Lab::with(SMALL, catalog(Layout::Apart));
        department(&lab, "Sales", "e").await;
        lab.work(&Layout::of(&lab).sync()).await.unwrap();
        for n in 0..250 {
            person(&lab, &format!("e{n:03}")).await;
        }
        lab.faults.arm(at, Disturbance::Meddle);
        let clock = lab.clone();
        lab.faults
            .meddle(Box::pin(async move { clock.wait(Duration::from_secs(11)) }));
        let mut cursor = json!({});
        while let Some(Outcome::Advanced { fields, .. }) =
            lab.deliver_until_done(&propagation(&cursor)).await
        {
            cursor = fields["cursor"].clone();
            assert!(
                cursor["done"]
                    .as_u64()
                    .is_some_and(|done| done % 100 == 0 && done > 0),
                "{cursor}"
            );
            parts += 1;
        }
        let silent = lab
            .rows("Employees")
            .await
            .into_iter()
            .filter(|row| row.entity.text("Department") != Some("Sales"))
            .count();
        assert_eq!(silent, 0, "long at operation {at}");
        agrees(&lab, &format!("long at operation {at}")).await;
    }
    assert!(parts > 3, "only {parts} were interrupted");
}

#[tokio::test]
async fn what_an_earlier_delivery_writes_after_a_later_one_has_ended_is_followed() {
    for layout in [Layout::Followed, Layout::Together] {
        let lab = Lab::with(SMALL, catalog(layout));
        settled(lab.clone()).await;
        lab.deliver(&layout.propagation(), 2)
            .await
            .unwrap()
            .unwrap();
        // This write stands for a late write of the first delivery. The second delivery has already deleted the
        // message. The content stays the same, and the row gets a new ETag.
        let again = TableOperation::Merge(
            Entity::new(EntityKey::new("Sales", "e1").unwrap()),
            IfMatch::Any,
        );
        lab.account
            .tables
            .apply(&table("Employees"), &again)
            .await
            .unwrap();
        agrees(&lab, &format!("{layout:?}")).await;
    }
}

#[tokio::test]
async fn a_late_write_of_a_retired_views_last_range_overlays_finds_another_version() {
    let lab = Lab::with(SMALL, catalog(Layout::Apart));
    department(&lab, "Sales", "e").await;
    person(&lab, "e1").await;
    let before = lab.read("Employees", "Sales", "e1").await.unwrap();
    let mut next = catalog(Layout::Apart);
    let says = next.views.remove(&ViewName::new("says").unwrap()).unwrap();
    next.generations
        .retired
        .insert(says.name.clone(), (1, Source::Table(says.source.clone())));
    let lab = lab.under(next);
    lab.deliver(&Layout::Apart.propagation(), 1)
        .await
        .unwrap()
        .unwrap();
    // A late request of a pass under the old catalog. It expects the version that the pass has read.
    let late = TableOperation::Merge(
        before.entity.clone().with("Department", "Sales"),
        IfMatch::Matches(before.etag),
    );
    assert!(
        lab.account
            .tables
            .apply(&table("Employees"), &late)
            .await
            .unwrap_err()
            .class
            == ErrorClass::Precondition
    );
}

/// In an older catalog, the view is retired. The first delivery of the propagation goes to a worker with the older
/// catalog. This worker clears the properties that the view has set, even on the row of the department, and closes the
/// footprint of the department. The first delivery is not acknowledged, so a second delivery follows. It goes to a
/// worker with the newer catalog. The second worker finds in the footprint that the older catalog has closed it.
#[tokio::test]
async fn what_an_older_catalog_closes_in_a_range_is_in_step_after_the_next_delivery() {
    let layout = Layout::Together;
    let says = ViewName::new("says").unwrap();
    let mut back = catalog(layout);
    back.generations.current.insert(says.clone(), 2);
    let lab = Lab::with(SMALL, back);
    settled(lab.clone()).await;
    let mut older = catalog(layout);
    let view = older.views.remove(&says).unwrap();
    older
        .generations
        .retired
        .insert(says, (1, Source::Table(view.source.clone())));
    lab.under(older)
        .deliver(&layout.propagation(), 1)
        .await
        .unwrap()
        .unwrap();
    lab.deliver(&layout.propagation(), 2)
        .await
        .unwrap()
        .unwrap();
    agrees(&lab, "under the newer catalog").await;
}

#[tokio::test]
async fn a_range_overlay_for_which_there_is_no_room_is_refused() {
    let lab = Lab::with(SMALL, catalog(Layout::Followed));
    let say = async |rk: &str| {
        write(
            &lab,
            "Departments",
            Entity::new(EntityKey::new("Sales", rk).unwrap())
                .with("Name", rk)
                .with("Prefix", rk),
        )
        .await;
        person(&lab, &format!("{rk}1")).await;
        lab.work(&sync("Departments", rk)).await
    };
    say("a").await.unwrap();
    let (name, pk) = ("EvenkeelRangeOverlays", "says~Employees~Sales");
    let mut row = lab.read(name, pk, "overlays").await.unwrap().entity;
    for size in [32_000, 4_000, 500, 60, 5] {
        for n in 0.. {
            let larger = row
                .clone()
                .with(format!("Padding{size}_{n}"), "x".repeat(size));
            if larger.check().is_err() {
                break;
            }
            row = larger;
        }
    }
    lab.account
        .tables
        .apply(&table(name), &TableOperation::Replace(row, IfMatch::Any))
        .await
        .unwrap();
    let failure = say("b").await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Permanent);
    assert!(
        failure
            .chain()
            .contains("Set properties on fewer ranges of this partition"),
        "{}",
        failure.chain()
    );
    forget(&lab, "Departments", "a").await;
    lab.work(&sync("Departments", "a")).await.unwrap();
    lab.work(&sync("Departments", "b")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_propagated_arrives_whatever_fails_at_every_operation() {
    let mut runs = 0_u32;
    for layout in Layout::ALL {
        for (story, prepare, job) in stories(layout) {
            let operations = undisturbed(prepare, &job, layout, story).await;
            let mut sweep = Sweep::over(operations);
            while let Some(case) = sweep.next() {
                let lab = Lab::with(SMALL, catalog(layout));
                prepare(lab.clone()).await;
                case.arm(&lab.faults);
                lab.deliver_until_done(&job).await;
                sweep.seen(&lab);
                agrees(&lab, &format!("{story}, {case}, {layout:?}")).await;
            }
            runs += sweep.runs().0;
        }
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all stories"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_propagated_arrives_whoever_does_what_in_between_at_every_operation() {
    let mut runs = 0_u32;
    for layout in Layout::ALL {
        for (story, prepare, job) in stories(layout) {
            let operations = undisturbed(prepare, &job, layout, story).await;
            for (name, meddle) in meddlers() {
                for at in 1..=operations {
                    for late in [None, Some(at + 1), Some(at + 2)] {
                        let lab = Lab::with(SMALL, catalog(layout));
                        prepare(lab.clone()).await;
                        lab.faults.arm(at, Disturbance::Meddle);
                        // In some runs, the sender of one of the next two requests gives up, and the request arrives
                        // much later.
                        if let Some(late) = late {
                            lab.faults.arm(late, Disturbance::ArriveLater(6));
                        }
                        lab.faults.meddle(meddle(lab.of_another_worker()));
                        lab.deliver_until_done(&job).await;
                        agrees(
                            &lab,
                            &format!(
                                "{story}, {name} before operation {at}, late {late:?}, {layout:?}"
                            ),
                        )
                        .await;
                        runs += 1;
                    }
                }
            }
        }
    }
    assert!(
        runs > 1_000,
        "only {runs} runs: the sweep must run all stories"
    );
}
