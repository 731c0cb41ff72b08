//! Catalogs that differ: a stale worker, a catalog that is replaced while a worker runs, and two applications in one
//! account.

use serde_json::{Value, json};

use evenkeel_model::{Entity, EntityKey, QueueName, Row, TableName};
use evenkeel_storage::{Query, TableOperation, all_rows};

use crate::cli::api::ask_at;
use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const BY_NAME: &str = r#"
[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByName"
partition_key = "name"
row_key = "{LastName|lower}_{RowKey}"
"#;

/// A place where a catalog with one more view is recorded. The profile `new` declares that view, so without the profile
/// the program runs with a stale catalog.
fn deployed() -> Place {
    let place = Place::new();
    std::fs::write(place.folder().join("new.toml"), BY_NAME).unwrap();
    place.run(&["--profile=new", "migrate", "up"]).success();
    place
}

fn put(number: u32) -> String {
    json!({"op": "put", "table": "Employees", "entity":
        {"PartitionKey": "Sales", "RowKey": number.to_string(), "Email": format!("{number}@b.c"), "LastName": "Cao"}})
    .to_string()
}

fn status(place: &Place, args: &[&str]) -> Value {
    json_lines(
        &place
            .run(&[args, &["--json", "migrate", "status"]].concat())
            .success(),
    )
    .remove(0)
}

#[test]
fn a_stale_worker_neither_retires_a_view_nor_brings_one_back_and_ends_with_a_code_of_its_own() {
    let place = deployed();
    let run = ["run", "--until-idle=0.1", "--no-http"];
    let refused = stderr(&place.run(&run).code(5));
    says(
        &refused,
        &[
            "retire view by_name of Employees",
            "evenkeel migrate up --retire",
        ],
    );
    says(
        &stderr(&place.run(&["migrate", "up"]).code(5)),
        &["retire view by_name of Employees"],
    );
    let untouched = status(&place, &["--profile=new"]);
    assert_eq!(
        (&untouched["generation"], &untouched["pending"]),
        (&json!(1), &json!([]))
    );

    let retired = place.run(&["migrate", "up", "--retire"]).success();
    says(
        &stdout(&retired),
        &["retire view by_name of Employees, last generation 1"],
    );
    says(&stderr(&retired), &["evenkeel backfill --view by_name"]);
    place.work();
    says(
        &stderr(&place.run(&[&["--profile=new"], &run[..]].concat()).code(5)),
        &["record view by_name of Employees as restored, generation 2"],
    );
    place
        .run(&["--profile=new", "migrate", "up", "--retire"])
        .success();
    place
        .run(&[&["--profile=new"], &run[..]].concat())
        .success();
}

fn rows(place: &Place, tables: &[&str]) -> Vec<Row> {
    place.by_hand(async |store| {
        let mut rows = Vec::new();
        for table in tables {
            rows.extend(
                all_rows(
                    store.tables.as_ref(),
                    &TableName::new(*table).unwrap(),
                    Query::default(),
                )
                .await
                .unwrap(),
            );
        }
        rows
    })
}

/// The old folder defines a view differently, and a change of an entity is not settled yet. In a further case, a view
/// is declared only in the old folder.
#[test]
fn a_host_with_an_old_folder_repairs_nothing_and_keeps_no_findings() {
    const TABLES: [&str; 4] = [
        "Employees",
        "EmployeesByEmail",
        "EvenkeelFootprints",
        "EvenkeelAudits",
    ];
    for (old, new) in [
        ("{Email|lower}", "{Email|upper}"),
        (r#"["Email", "LastName"]"#, r#"["Email"]"#),
    ] {
        let place = Place::new();
        place.run(&["migrate", "up"]).success();
        place.run(&["submit", &put(1)]).success();
        place.work();
        let folder = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
        place.configure(&folder.replace(old, new));
        place.run(&["migrate", "up", "--retire"]).success();
        place
            .run(&["submit", &put(1).replace("Cao", "Kim")])
            .success();
        place.by_hand(async |store| {
            let key = EntityKey::new("Sales", "1").unwrap();
            let row = Entity::new(key)
                .with("Email", "1@b.c")
                .with("LastName", "Kim");
            store
                .tables
                .apply(
                    &TableName::new("Employees").unwrap(),
                    &TableOperation::InsertOrReplace(row),
                )
                .await
                .unwrap();
        });
        place.configure(&folder);
        let before = rows(&place, &TABLES);
        for command in [&["audit", "--repair"][..], &["audit"], &["backfill"]] {
            says(
                &stderr(&place.run(command).code(5)),
                &[
                    "view by_email of Employees as changed",
                    "If the configuration is outdated",
                ],
            );
        }
        assert_eq!(
            rows(&place, &TABLES),
            before,
            "{old} was recorded as {new} meanwhile"
        );
    }

    let place = deployed();
    place.run(&["submit", &put(1)]).success();
    place.run(&["migrate", "up", "--retire"]).success();
    place.work();
    says(
        &stderr(&place.run(&["--profile=new", "audit", "--repair"]).code(5)),
        &["view by_name of Employees as restored"],
    );
    assert_eq!(rows(&place, &["EmployeesByName"]), []);
    place.add(
        &BY_NAME
            .replace("[views.by_name]", "[views.by_last_name]")
            .replace("EmployeesByName", "EmployeesByLastName"),
    );
    says(
        &stderr(&place.run(&["audit", "--repair"]).code(5)),
        &["Run `evenkeel migrate up` first"],
    );
}

/// One view is declared only in the newer folder, and one rule only in the old folder.
#[test]
fn a_host_with_an_old_folder_erases_nothing_and_applies_no_rule() {
    const TABLES: [&str; 3] = ["Employees", "EmployeesByName", "EvenkeelFootprints"];
    const ERASE: [&str; 5] = ["erase", "Employees", "Sales", "1", "--yes"];
    let place = deployed();
    std::fs::write(
        place.folder().join("old.toml"),
        "[rules.gone]\ndelete = \"Employees\"\nwhen = \"exists(Email)\"\n",
    )
    .unwrap();
    place.run(&["submit", &put(1)]).success();
    place
        .run(&["--profile=new", "run", "--until-idle=0.1", "--no-http"])
        .success();
    let before = rows(&place, &TABLES);
    for command in [&ERASE[..], &["retention"]] {
        let refused = place.run(&[&["--profile=old"], command].concat()).code(5);
        says(
            &stderr(&refused),
            &[
                "retire view by_name of Employees",
                "If the configuration is outdated",
            ],
        );
    }
    place
        .run(&["--profile=old", "retention", "--dry-run"])
        .success();
    assert_eq!(rows(&place, &TABLES), before);
    let sent = place.by_hand(async |store| {
        store
            .queues
            .approximate_count(&QueueName::new("jobs").unwrap())
            .await
            .unwrap()
    });
    assert_eq!(sent, 0, "the rule's job");
    place
        .run(&[&["--profile=new"], &ERASE[..]].concat())
        .success();
    assert_eq!(rows(&place, &TABLES[..2]), []);
}

/// Both folders declare the same views. The old folder lacks an archive, and has a rule that was removed from the
/// other.
#[test]
fn a_host_with_an_old_folder_of_the_recorded_views_erases_nothing_and_applies_no_rule() {
    const TABLES: [&str; 2] = ["Employees", "GoneEmployees"];
    const ERASE: [&str; 5] = ["erase", "Employees", "Sales", "1", "--yes"];
    let place = Place::new();
    let folder = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    let old = format!("{folder}\n[rules.gone]\ndelete = \"Employees\"\nwhen = \"exists(Email)\"\n");
    let new = format!(
        "{folder}\n[archives.gone]\nsource = \"Employees\"\nto = {{ kind = \"table\", table = \"GoneEmployees\" }}\n"
    );
    place.configure(&old);
    place.run(&["migrate", "up"]).success();
    place.configure(&new);
    says(
        &stdout(&place.run(&["migrate", "up"]).success()),
        &[
            "create table GoneEmployees",
            "archive gone",
            "rule gone as removed",
        ],
    );
    place.run(&["submit", &put(1)]).success();
    place.work();
    place
        .run(&[
            "submit",
            r#"{"op":"archive","archive":"gone","pk":"Sales","rk":"1"}"#,
        ])
        .success();
    place.work();
    let before = rows(&place, &TABLES);
    assert_eq!(before.len(), 1);

    place.configure(&old);
    for command in [&ERASE[..], &["retention"]] {
        let refused = stderr(&place.run(command).code(5));
        says(
            &refused,
            &[
                "archive gone is recorded, but not configured",
                "rule gone is configured, but recorded as removed",
                "`evenkeel migrate up`",
            ],
        );
    }
    assert_eq!(rows(&place, &TABLES), before);
    let sent = place.by_hand(async |store| {
        store
            .queues
            .approximate_count(&QueueName::new("jobs").unwrap())
            .await
            .unwrap()
    });
    assert_eq!(sent, 0, "the rule's job");
    place.configure(&new);
    place.run(&["retention"]).success();
    place.run(&ERASE).success();
    assert_eq!(rows(&place, &TABLES), []);
}

#[test]
fn a_worker_whose_catalog_is_replaced_drains_says_so_and_takes_up_work_again_once_the_record_fits()
{
    let place = deployed();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "--profile=new", "run"]);
    let address = daemon.address();
    let get = |path: &str| ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);

    place.run(&["migrate", "up", "--retire"]).success();
    daemon.await_line("another catalog was recorded");
    daemon.await_line("the configured catalog is not the recorded one");
    until("unready", || get("/readyz").status == 503);
    says(
        &get("/readyz").body,
        &["outdated_catalog", "\"generation\":2"],
    );
    assert_eq!(get("/healthz").status, 200);

    place
        .run(&["--profile=new", "migrate", "up", "--retire"])
        .success();
    daemon.await_line("receiving jobs again");
    until("ready again", || get("/readyz").status == 200);
    place.run(&["submit", &put(1)]).success();
    until("the job is done", || {
        place
            .run(&["get", "EmployeesByName", "name", "cao_1"])
            .get_output()
            .status
            .success()
    });
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn a_worker_that_no_record_fits_any_more_exits_with_a_code_of_its_own() {
    let place = deployed();
    let mut daemon = Daemon::start(
        &place,
        &[
            "--set=migrate.outdated_exit_after=0s",
            FREE_PORT,
            "--profile=new",
            "run",
        ],
    );
    let address = daemon.address();
    until("ready", || {
        ask_at("1.1", &address, "GET", "/readyz", "", "").status == 200
    });
    place.run(&["migrate", "up", "--retire"]).success();
    assert_eq!(daemon.code(), Some(5));
}

#[test]
fn applications_with_an_owner_each_share_an_account_without_retiring_each_others_views() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let ours = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    let theirs = format!(
        "{}{BY_NAME}\n[migrate]\nowner = \"payroll\"\n",
        ours.split("[views.by_email]").next().unwrap()
    );
    place.configure(&theirs);
    says(
        &stdout(&place.run(&["migrate", "up"]).success()),
        &["record view by_name of Employees, generation 1"],
    );
    place
        .run(&["run", "--until-idle=0.1", "--no-http"])
        .success();
    assert_eq!(status(&place, &[])["pending"], json!([]));
    place.configure(&ours);
    assert_eq!(status(&place, &[])["pending"], json!([]));
    place.work();
    let taken = place
        .run(&["--set=migrate.owner=payroll", "migrate", "up"])
        .code(5);
    says(
        &stderr(&taken),
        &[
            "record view by_email of Employees with the new owner payroll",
            "retire view by_name",
        ],
    );
}

#[test]
fn the_rows_of_a_tables_last_view_go_with_the_next_backfill_and_nothing_to_do_is_said() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", &put(1)]).success();
    place.work();
    let before = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    let without = before.split("[views.by_email]").next().unwrap().to_owned();
    place.configure(&without);
    place.run(&["migrate", "up", "--retire"]).success();
    let audit = place.run(&["audit"]).code(3);
    says(
        &stdout(&audit),
        &["EmployeesByEmail", "Employees: 1 primary"],
    );
    says(
        &stdout(&place.run(&["backfill"]).success()),
        &["Employees: 1 primary in step, 0 items created, 0 updated, 1 deleted"],
    );
    assert!(
        !place
            .run(&["get", "EmployeesByEmail", "email", "1@b.c"])
            .get_output()
            .status
            .success(),
        "its row is gone"
    );
    place.run(&["audit"]).success();

    let bare = Place::new();
    bare.configure(&before.split("[views.by_email]").next().unwrap().replace(
        &*place.folder().to_string_lossy(),
        &bare.folder().to_string_lossy(),
    ));
    bare.run(&["migrate", "up"]).success();
    for command in ["audit", "backfill"] {
        says(&stderr(&bare.run(&[command]).success()), &["Nothing to do"]);
    }
}
