//! Properties that other primaries set on an entity while it is archived. A restored or moved entity has the present
//! values of these properties, and keeps its own properties.
//!
//! An employee has a department, which sets properties on a range, and a mentor, who sets properties on only this
//! employee. The department and the mentor change while the employee is archived. Then the restore runs undisturbed,
//! and disturbed at each of its operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_engine::Outcome;
use evenkeel_model::catalog::{Archive, Catalog};
use evenkeel_model::job::Primary;
use evenkeel_model::{BlobName, ContainerName, EdmValue, Entity, EntityKey, Job, ViewName};
use evenkeel_storage::{FilePlace, TableOperation};
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[archives.former]
source = "Employees"
to = { kind = "table", table = "Former" }

[archives.papers]
source = "Employees"
to = { kind = "blob", container = "papers" }

[views.department]
kind = "denormalize"
targets = "range"
source = "Departments"
table = "Employees"
partition_key = "{PartitionKey}"
set = { Department = "{Name}", Floor = "{Floor}" }

[views.mentor]
kind = "denormalize"
source = "Mentors"
table = "Employees"
partition_key = "{PartitionKey}"
row_key = "{Pupil}"
set = { Mentor = "{Name}" }
on_conflict = "reject"
"#;

const ARCHIVES: [&str; 2] = ["former", "papers"];

async fn lab() -> Lab {
    let lab = Lab::with(SMALL, declared(CATALOG));
    lab.account
        .blobs
        .create_container(&ContainerName::new("papers").unwrap())
        .await
        .unwrap();
    lab
}

fn entity(rk: &str) -> Entity {
    Entity::new(EntityKey::new("Sales", rk).unwrap())
}

fn department(name: &str) -> Entity {
    entity("department").with("Name", name)
}

fn mentor(name: &str, pupil: &str) -> Entity {
    entity("m1").with("Name", name).with("Pupil", pupil)
}

async fn written(lab: &Lab, name: &str, entity: Entity) {
    let key = entity.key.clone();
    lab.account
        .tables
        .apply(&table(name), &TableOperation::InsertOrReplace(entity))
        .await
        .unwrap();
    told(lab, name, &key).await;
}

async fn deleted(lab: &Lab, name: &str, rk: &str) {
    lab.delete_row(name, "Sales", rk).await;
    told(lab, name, &EntityKey::new("Sales", rk).unwrap()).await;
}

async fn told(lab: &Lab, name: &str, key: &EntityKey) {
    lab.work(&job(
        &json!({"op": "sync", "table": name, "pk": key.pk, "rk": key.rk}),
    ))
    .await
    .unwrap();
    lab.do_queued().await;
}

fn on(archive: &str, op: &str, pk: &str) -> Job {
    job(&json!({"op": op, "archive": archive, "pk": pk, "rk": "1"}))
}

async fn settled() -> Lab {
    let lab = lab().await;
    written(&lab, "Employees", entity("1").with("Email", "ada")).await;
    written(&lab, "Departments", department("Sales").with("Floor", 2)).await;
    written(&lab, "Mentors", mentor("Grace", "1")).await;
    let employee = lab.read("Employees", "Sales", "1").await.unwrap().entity;
    assert_eq!(
        (employee.text("Department"), employee.text("Mentor")),
        (Some("Sales"), Some("Grace"))
    );
    lab
}

async fn away(archive: &str, change: Change) -> Lab {
    let lab = settled().await;
    lab.work(&on(archive, "archive", "Sales")).await.unwrap();
    assert!(lab.read("Employees", "Sales", "1").await.is_none());
    change(lab.clone()).await;
    lab
}

type Change = fn(Lab) -> BoxFuture<'static, ()>;

fn changes() -> [(&'static str, Change); 7] {
    [
        ("nothing", |_| Box::pin(async {})),
        ("the department goes", |lab| {
            Box::pin(async move { deleted(&lab, "Departments", "department").await })
        }),
        ("the department is renamed", |lab| {
            Box::pin(async move {
                written(&lab, "Departments", department("Trade").with("Floor", 2)).await;
            })
        }),
        ("the department says less", |lab| {
            Box::pin(async move { written(&lab, "Departments", department("Sales")).await })
        }),
        ("the mentor goes", |lab| {
            Box::pin(async move { deleted(&lab, "Mentors", "m1").await })
        }),
        ("the mentor is renamed", |lab| {
            Box::pin(async move { written(&lab, "Mentors", mentor("Hedy", "1")).await })
        }),
        ("the mentor has another pupil", |lab| {
            Box::pin(async move { written(&lab, "Mentors", mentor("Grace", "2")).await })
        }),
    ]
}

/// Runs everything that is left. Checks that every employee has the properties of the department and the mentor, and
/// the employee's own.
async fn agrees(lab: &Lab, story: &str) {
    lab.faults.calm();
    lab.sim.settle();
    for _ in 0..2 {
        lab.do_queued().await;
        lab.finish().await;
    }
    let department = lab
        .read("Departments", "Sales", "department")
        .await
        .map(|row| row.entity);
    let said = |name: &str| {
        department
            .as_ref()
            .and_then(|department| department.get(name).cloned())
    };
    let mentors = lab.rows("Mentors").await;
    let employees = lab.rows("Employees").await;
    assert_eq!(employees.len(), 1, "{story}");
    for row in &employees {
        let rk = row.entity.key.rk.as_str();
        let mentor = mentors
            .iter()
            .find(|mentor| mentor.entity.text("Pupil") == Some(rk));
        let wanted = [
            ("Department", said("Name")),
            ("Floor", said("Floor")),
            (
                "Mentor",
                mentor.and_then(|mentor| mentor.entity.get("Name").cloned()),
            ),
            ("Email", Some(EdmValue::from("ada"))),
        ];
        for (name, value) in wanted {
            assert_eq!(
                row.entity.get(name),
                value.as_ref(),
                "{story}: {name} of {:?}",
                row.entity
            );
        }
    }
    for (name, rows) in [
        ("Employees", employees),
        ("Departments", lab.rows("Departments").await),
        ("Mentors", mentors),
    ] {
        for row in rows {
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
}

#[tokio::test]
async fn a_restored_entity_says_what_others_say_by_then() {
    for archive in ARCHIVES {
        for (name, change) in changes() {
            let (lab, story) = (away(archive, change).await, format!("{name}, {archive}"));
            lab.work(&on(archive, "restore", "Sales")).await.unwrap();
            agrees(&lab, &story).await;
            // The restored properties belong to their owners again: deleting the owners removes these properties.
            deleted(&lab, "Departments", "department").await;
            deleted(&lab, "Mentors", "m1").await;
            agrees(&lab, &format!("{story}, then both go")).await;
        }
    }
}

#[tokio::test]
async fn a_restored_entity_says_what_others_say_by_then_whatever_fails_at_every_operation() {
    let mut runs = 0_u32;
    for (name, change) in changes() {
        let restore = on("former", "restore", "Sales");
        let mut sweep = Sweep::over(away("former", change).await.operations_of(&restore).await);
        while let Some(case) = sweep.next() {
            let lab = away("former", change).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&restore).await;
            sweep.seen(&lab);
            agrees(&lab, &format!("{name}, {case}")).await;
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 100,
        "only {runs} runs: the sweep must run all stories"
    );
}

#[tokio::test]
async fn a_restored_entity_keeps_what_nobody_else_has_set() {
    for archive in ARCHIVES {
        let lab = lab().await;
        let own = [("Department", "Own"), ("Floor", "9"), ("Mentor", "Own")];
        let entity = Entity::new(EntityKey::new("Ops", "1").unwrap());
        lab.write(
            own.iter()
                .fold(entity, |entity, (name, value)| entity.with(*name, *value)),
        )
        .await;
        lab.work(&sync("Ops", "1")).await.unwrap();
        for op in ["archive", "restore"] {
            lab.work(&on(archive, op, "Ops")).await.unwrap();
        }
        let restored = lab.read("Employees", "Ops", "1").await.unwrap().entity;
        for (name, value) in own {
            assert_eq!(restored.text(name), Some(value), "{archive}: {name}");
        }
    }
}

#[tokio::test]
async fn a_moved_entity_leaves_behind_what_others_say_to_its_former_key() {
    let lab = settled().await;
    lab.work(&job(&json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Sales", "to_rk": "2"}))).await.unwrap();
    agrees(&lab, "it has moved").await;
}

#[tokio::test]
async fn an_archive_keeps_what_others_have_set_and_whose_it_is() {
    let lab = away("former", |_| Box::pin(async {})).await;
    let archived = lab.read("Former", "Sales", "1").await.unwrap().entity;
    assert_eq!(
        (archived.text("Department"), archived.text("Mentor")),
        (Some("Sales"), Some("Grace"))
    );
    assert!(
        archived.text("ek_owner_department").is_some()
            && archived.text("ek_owner_mentor").is_some(),
        "{archived:?}"
    );
    lab.work(&on("former", "restore", "Sales")).await.unwrap();
    let restored = lab.read("Employees", "Sales", "1").await.unwrap().entity;
    assert_eq!(
        restored.get("ek_owner_mentor"),
        None,
        "the mentor's mark must be absent until the mentor sets its property again: {restored:?}"
    );
}

/// Between any two requests of the restore, a view or a client writes to the archived row, and a client writes to the
/// restored entity.
#[tokio::test]
async fn a_restored_entity_keeps_what_was_written_on_it_and_on_its_archived_row_meanwhile() {
    const OWNER: &str = r#"{"v":1,"source":{"table":"Departments","pk":"Sales","rk":"other"},"token":"t","set":["Note"]}"#;
    let restore = on("former", "restore", "Sales");
    let nothing: Change = |_| Box::pin(async {});
    let note = || entity("1").with("Note", "Addie");
    let cases = [
        (
            "a view and a client",
            Some(note().with("ek_owner_other", OWNER)),
            true,
        ),
        ("a client on the archived row", Some(note()), false),
        ("a client on each", Some(note()), true),
        ("a client on the entity", None, true),
    ];
    for (who, on_archived, on_restored) in cases {
        let mut met = 0;
        for at in 1..=away("former", nothing).await.operations_of(&restore).await {
            let lab = away("former", nothing).await;
            let (other, written) = (lab.of_another_worker(), Arc::new(AtomicBool::new(false)));
            let (told, on_archived) = (Arc::clone(&written), on_archived.clone());
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults.meddle(Box::pin(async move {
                let (back, archived) = (
                    other.read("Employees", "Sales", "1").await,
                    other.read("Former", "Sales", "1").await,
                );
                if back.is_some() && archived.is_some() {
                    let nick = on_restored.then(|| entity("1").with("Nick", "Addie"));
                    for (name, entity) in [("Former", on_archived), ("Employees", nick)] {
                        if let Some(entity) = entity {
                            other
                                .account
                                .tables
                                .apply(&table(name), &TableOperation::InsertOrMerge(entity))
                                .await
                                .unwrap();
                        }
                    }
                    told.store(true, Ordering::SeqCst);
                }
            }));
            let ended = lab.deliver_until_done(&restore).await;
            if !written.load(Ordering::SeqCst) {
                continue;
            }
            met += 1;
            let story = format!("{who}, before operation {at}: {ended:?}");
            let restored = lab.read("Employees", "Sales", "1").await.unwrap().entity;
            let archived = lab.read("Former", "Sales", "1").await.map(|row| row.entity);
            assert_eq!(restored.get("Nick").is_some(), on_restored, "{story}");
            match (who, archived) {
                ("a client on the archived row", None) => {
                    assert_eq!(restored.text("Note"), Some("Addie"), "{story}");
                }
                ("a client on each", Some(archived)) => assert_eq!(
                    (archived.text("Note"), ended),
                    (Some("Addie"), None),
                    "{story}"
                ),
                (_, archived) => {
                    assert!(archived.is_none() && who != "a client on each", "{story}");
                }
            }
        }
        assert!(met > 0, "{who}: some write must arrive in time");
    }
}

const DOCUMENTS: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Employees]

[tables.Staff]

[archives.papers]
source = "Staff"
to = { kind = "blob", container = "papers" }

[archives.drawer]
source = "Staff"
to = { kind = "file", dir = "/mnt/drawer" }
"#;

async fn of_staff(catalog: Catalog, archive: &str) -> Lab {
    let lab = Lab::with(SMALL, catalog);
    lab.account
        .blobs
        .create_container(&ContainerName::new("papers").unwrap())
        .await
        .unwrap();
    stored(&lab, "Staff", "ada").await;
    lab.work(&on(archive, "archive", "Sales")).await.unwrap();
    assert!(
        document(&lab, archive)
            .await
            .is_some_and(|text| text.contains("ada")),
        "{archive}"
    );
    lab.wait(Duration::from_mins(1));
    lab
}

async fn stored(lab: &Lab, name: &str, email: &str) {
    lab.account
        .tables
        .apply(
            &table(name),
            &TableOperation::InsertOrReplace(entity("1").with("Email", email)),
        )
        .await
        .unwrap();
    lab.wait(Duration::from_mins(1));
}

async fn document(lab: &Lab, archive: &str) -> Option<String> {
    let name = BlobName::new("Sales/1.json").unwrap();
    let content = if archive == "papers" {
        let found = lab
            .account
            .blobs
            .get(&ContainerName::new("papers").unwrap(), &name, None)
            .await
            .unwrap();
        found.map(|blob| blob.content)
    } else {
        lab.sim
            .files()
            .read(&FilePlace {
                dir: "/mnt/drawer".to_owned(),
                name,
            })
            .await
            .unwrap()
            .map(|file| file.content)
    };
    content.map(|content| String::from_utf8(content.to_vec()).unwrap())
}

fn erasure() -> Job {
    job(&json!({"op": "erase", "table": "Employees", "pk": "Sales", "rk": "1"}))
}

/// The source table of the archive has been renamed.
#[tokio::test]
async fn what_was_archived_under_the_former_name_of_its_source_is_restored_replaced_and_erased() {
    for archive in ["papers", "drawer"] {
        let renamed =
            || declared(&DOCUMENTS.replace("source = \"Staff\"", "source = \"Employees\""));
        let lab = of_staff(declared(DOCUMENTS), archive)
            .await
            .under(renamed());
        lab.work(&on(archive, "restore", "Sales")).await.unwrap();
        let back = lab
            .read("Employees", "Sales", "1")
            .await
            .map(|row| row.entity);
        assert_eq!(
            back.as_ref().and_then(|back| back.text("Email")),
            Some("ada"),
            "{archive}"
        );
        assert_eq!(document(&lab, archive).await, None, "{archive}");

        let lab = of_staff(declared(DOCUMENTS), archive)
            .await
            .under(renamed());
        stored(&lab, "Employees", "grace").await;
        lab.work(&on(archive, "archive", "Sales")).await.unwrap();
        assert!(
            document(&lab, archive)
                .await
                .is_some_and(|text| text.contains("grace")),
            "{archive}"
        );

        let lab = of_staff(declared(DOCUMENTS), archive)
            .await
            .under(renamed());
        assert!(
            matches!(lab.work(&erasure()).await, Ok(Outcome::Done(_))),
            "{archive}"
        );
        assert_eq!(document(&lab, archive).await, None, "{archive}");
    }
}

/// The document belongs to another archive, which happens if one folder or account is configured under two names.
#[tokio::test]
async fn a_document_of_another_archive_in_the_same_place_is_left_alone() {
    for archive in ["papers", "drawer"] {
        let mut catalog = declared(DOCUMENTS);
        let mut twin = Archive::clone(&catalog.archives[&ViewName::new(archive).unwrap()]);
        twin.name = ViewName::new("twin").unwrap();
        twin.source.table = table("Employees");
        catalog.archives.insert(twin.name.clone(), Arc::new(twin));
        let lab = of_staff(catalog, archive).await;
        let theirs = document(&lab, archive).await;
        stored(&lab, "Employees", "grace").await;
        for op in ["archive", "restore"] {
            let error = lab
                .work(&on("twin", op, "Sales"))
                .await
                .unwrap_err()
                .chain();
            assert!(
                error.contains("belongs to Staff(\"Sales\", \"1\")")
                    && error.contains("the source of this archive is Employees"),
                "{archive} {op}: {error}"
            );
        }
        assert!(
            lab.read("Employees", "Sales", "1").await.is_some(),
            "{archive}: the document must stay in place"
        );
        assert!(
            matches!(lab.work(&erasure()).await, Ok(Outcome::Done(_))),
            "{archive}"
        );
        assert!(
            lab.read("Employees", "Sales", "1").await.is_none(),
            "{archive}"
        );
        assert_eq!(
            document(&lab, archive).await,
            theirs,
            "{archive}: the document does not belong to the erased entity"
        );
    }
}
