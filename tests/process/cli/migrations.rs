//! `migrate`, and what `run` does before and after a migration.

use evenkeel_model::{Entity, EntityKey, TableName};
use evenkeel_storage::TableOperation;
use serde_json::json;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

#[test]
fn pending_migrations_are_reported_and_done_once() {
    let place = Place::new();
    place.by_hand(async |_| ());
    let before = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(
        (
            &before["generation"],
            before["applied"].as_array().unwrap().len()
        ),
        (&json!(0), 0)
    );
    let done = json_lines(&place.run(&["--json", "migrate", "up"]).success());
    assert_eq!(before["pending"].as_array().unwrap(), &done);
    let after = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(
        (
            &after["generation"],
            &after["pending"],
            &after["views"]["by_email"]["generation"]
        ),
        (&json!(1), &json!([]), &json!(1))
    );
    says(
        &stdout(&place.run(&["migrate", "status"]).success()),
        &["0001", "control_tables", "by_email", "up to date"],
    );
    assert_eq!(
        json_lines(&place.run(&["--json", "migrate", "up"]).success()),
        Vec::<serde_json::Value>::new()
    );
}

#[test]
fn a_run_that_may_not_migrate_refuses_and_names_what_is_pending() {
    let place = Place::new();
    place.add("[migrate]\nauto = false");
    let ended = place.run(&["run", "--until-idle=0.1", "--no-http"]).code(1);
    says(
        &stderr(&ended),
        &[
            "pending",
            "create queue jobs",
            "record view by_email",
            "evenkeel migrate up",
        ],
    );
    place.run(&["migrate", "up"]).success();
    place.work();
}

#[test]
fn a_view_that_changed_or_went_away_is_recorded_as_such() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.add("[views.by_name]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"EmployeesByName\"\npartition_key = \"name\"\nrow_key = \"{LastName}_{PartitionKey}_{RowKey}\"");
    // Replacing a view needs confirmation.
    let done = stdout(
        &place
            .run(&[
                "--set",
                "views.by_email.partition_key=e_mail",
                "migrate",
                "up",
                "--retire",
            ])
            .success(),
    );
    says(
        &done,
        &[
            "create table EmployeesByName",
            "record view by_email of Employees as changed, generation 2",
            "record view by_name of Employees, generation 1",
        ],
    );
    let status = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(status["generation"], json!(2));
}

#[test]
fn several_processes_may_migrate_at_once() {
    let place = Place::new();
    let children: Vec<_> = (0..4)
        .map(|_| place.command(&["migrate", "up", "-q"]).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let status = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(
        (&status["generation"], &status["pending"]),
        (&json!(1), &json!([]))
    );
}

fn filled(employees: usize) -> Place {
    let place = Place::new();
    place.add(
        "[views.at_desk]\nkind = \"denormalize\"\nsource = \"Employees\"\ntable = \"Desks\"\npartition_key = \"desk\"\nrow_key = \"{RowKey}\"\nset = { Name = \"{LastName}\" }",
    );
    place.run(&["migrate", "up"]).success();
    place.by_hand(async |store| {
        let key = |pk: &str, n: usize| EntityKey::new(pk, format!("{n:04}")).unwrap();
        for n in 0..employees {
            let employee = Entity::new(key("Sales", n))
                .with("Email", format!("{n}@contoso.com"))
                .with("LastName", format!("N{n}"));
            for (table, entity) in [
                ("Employees", employee),
                ("Desks", Entity::new(key("desk", n))),
            ] {
                store
                    .tables
                    .apply(
                        &TableName::new(table).unwrap(),
                        &TableOperation::Insert(entity),
                    )
                    .await
                    .unwrap();
            }
        }
    });
    place
}

#[test]
fn a_change_that_empties_a_view_is_recorded_only_where_the_loss_is_accepted() {
    let place = filled(40);
    place.run(&["backfill"]).success();
    let good = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    let change = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        place.configure(&good.replacen(from, to, 1));
    };
    let (key, emial) = (
        "row_key = \"{Email|lower}\"",
        "none of the 40 Employees has `Emial`; did you mean `Email`?",
    );
    let select = "select = [\"Email\", \"LastName\"]";
    let wrong = [
        (select, "select = [\"Emial\"]", emial, "by_email"),
        (
            select,
            "when = \"exists(LastNme)\"",
            "none of the 40 Employees has `LastNme`; did you mean `LastName`?",
            "by_email",
        ),
        (
            select,
            "when = 'Email < \"2\"'",
            "the 40 Employees get 12 items instead of 40",
            "by_email",
        ),
        (
            "Name = \"{LastName}\"",
            "Name = \"{LastNme}\"",
            "none of the 40 Employees has `LastNme`",
            "at_desk",
        ),
        (
            key,
            "row_key = \"{Emial|lower}\"",
            &format!("{emial} (the 40 Employees get 0 items instead of 40)"),
            "by_email",
        ),
    ];
    for (from, to, said, view) in wrong {
        change(from, to);
        let accept = format!("--accept-loss {view}");
        let said = [said, "Nothing was recorded", accept.as_str()];
        says(
            &stderr(&place.run(&["migrate", "up", "--retire"]).code(5)),
            &said,
        );
    }
    // A worker does not record this catalog, and reports the same error.
    let run = place.run(&["run", "--until-idle=0.1", "--no-http"]).code(5);
    says(
        &stderr(&run),
        &["`Emial`", "migrate up --retire --accept-loss by_email"],
    );
    let status = stdout(&place.run(&["migrate", "status"]).success());
    says(
        &status,
        &[
            "row_key: \"{Email|lower}\" -> \"{Emial|lower}\"",
            "the 40 Employees get 0 items instead of 40",
            "did you mean `Email`?",
        ],
    );
    let json = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(
        (
            &json["surveys"][0]["items_before"],
            &json["surveys"][0]["items"],
            &json["surveys"][0]["loss"]
        ),
        (&json!(40), &json!(0), &json!(true))
    );
    assert_eq!(
        json["pending"][0]["keys"],
        json!([{"key": "row_key", "from": "{Email|lower}", "to": "{Emial|lower}"}])
    );
    says(
        &stderr(
            &place
                .run(&["migrate", "up", "--accept-loss", "by_emial"])
                .code(2),
        ),
        &["did you mean by_email?"],
    );
    place
        .run(&["migrate", "up", "--retire", "--accept-loss", "by_email"])
        .success();
    place.configure(&good);
    let back = place.run(&["migrate", "up", "--retire"]).success();
    says(
        &stdout(&back),
        &["record view by_email of Employees as changed, generation 3"],
    );
}

#[test]
fn what_a_new_view_names_and_nobody_has_is_a_warning() {
    let place = filled(12);
    place.add("[views.by_name]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"EmployeesByName\"\npartition_key = \"{LastNme}\"\nrow_key = \"{PartitionKey}_{RowKey}\"");
    let said = ["view by_name: none of the 12 Employees has `LastNme`; did you mean `LastName`?"];
    says(&stdout(&place.run(&["migrate", "status"]).success()), &said);
    says(&stderr(&place.run(&["migrate", "up"]).success()), &said);
    says(
        &stderr(&place.run(&["backfill", "--submit"]).success()),
        &said,
    );
    says(
        &stdout(&place.run(&["plan", "Employees", "Sales", "0003"]).success()),
        &said,
    );
    says(
        &stdout(&place.run(&["doctor"])),
        &["warning  views of by_name", said[0]],
    );
    let retired = place
        .run(&[
            "--set",
            "views.by_name.partition_key={LastName}",
            "migrate",
            "status",
        ])
        .success();
    says(
        &stdout(&retired),
        &["the 12 Employees get 12 items instead of 0"],
    );
}
