use serde_json::{Value, json};

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

fn place() -> Place {
    let place = Place::new();
    place.add("[views.by_name]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"EmployeesByName\"\npartition_key = \"name_{LastName|bucket:16}\"\nrow_key = \"{LastName}_{PartitionKey}_{RowKey}\"");
    place.run(&["migrate", "up"]).success();
    let job = |n: u32| {
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{n}\",\"LastName\":\"K{n:02}\",\"Email\":\"{n}@contoso.com\",\"Age\":{n}}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], (0..30).map(job).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(30));
    place
}

#[test]
fn values_find_copies_and_copies_find_their_entities() {
    let place = place();
    let found = json_lines(
        &place
            .run(&["--json", "lookup", "by_email", "Email=7@Contoso.com"])
            .success(),
    );
    assert_eq!(
        (
            &found[0]["LastName"],
            &found[1]["query_class"],
            &found[1]["requests"]
        ),
        (&json!("K07"), &json!("point"), &json!(1))
    );
    let found = json_lines(
        &place
            .run(&[
                "--json",
                "lookup",
                "by_email",
                "Email=7@contoso.com",
                "--entities",
                "--select",
                "Age",
            ])
            .success(),
    );
    assert_eq!(
        (
            &found[0]["RowKey"],
            &found[0]["Age"],
            found[0].get("LastName")
        ),
        (&json!("7"), &json!(7), None)
    );
    assert_eq!(
        (&found[1]["rows"], &found[1]["requests"]),
        (&json!(1), &json!(2))
    );
    let ended = place
        .run(&["lookup", "by_email", "Email=7@contoso.com"])
        .success();
    says(&stdout(&ended), &["PartitionKey", "7@contoso.com", "K07"]);
    says(&stderr(&ended), &["1 row: point query, 1 request"]);
}

#[test]
fn a_range_is_merged_over_its_buckets_and_goes_on_where_it_ended() {
    let place = place();
    let names = |found: &[serde_json::Value]| {
        found
            .iter()
            .filter_map(|row| row["LastName"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    let first = json_lines(
        &place
            .run(&["--json", "lookup", "by_name", "LastName^=K", "--top", "10"])
            .success(),
    );
    assert_eq!(
        names(&first),
        (0..10).map(|n| format!("K{n:02}")).collect::<Vec<_>>()
    );
    let token = first[10]["continuation"].as_str().unwrap().to_owned();
    let rest = json_lines(
        &place
            .run(&[
                "--json",
                "lookup",
                "by_name",
                "LastName^=K",
                "--continue",
                &token,
            ])
            .success(),
    );
    assert_eq!(
        names(&rest),
        (10..30).map(|n| format!("K{n:02}")).collect::<Vec<_>>()
    );
    assert!(rest.last().unwrap().get("continuation").is_none());
    let some = json_lines(
        &place
            .run(&[
                "--json",
                "lookup",
                "by_name",
                "LastName>=K05",
                "LastName<K08",
            ])
            .success(),
    );
    assert_eq!(names(&some), ["K05", "K06", "K07"]);
}

#[test]
fn lookups_that_the_keys_cannot_answer_are_refused_with_a_reason() {
    let place = place();
    for (args, word) in [
        (
            &["lookup", "nowhere", "Email=a"][..],
            "known are by_email, by_name",
        ),
        (&["lookup", "by_email", "LastName=K"], "by_email"),
        (&["lookup", "by_email", "Email"], "is not a term"),
        (
            &["lookup", "by_email", "Email=a", "--continue", "nonsense"],
            "--continue",
        ),
        (&["lookup", "by_email", "Email=a", "--top", "0"], "--top"),
        (&["lookup", "by_email"], "TERM"),
        (&["lookup", "Email=a"], "--table"),
        (&["lookup", "by-email.", "Email=a"], "view"),
        (&["lookup", "--table", "Employees"], "--scan"),
        (
            &["lookup", "--table", "Employees", "RowKey=7"],
            "PartitionKey",
        ),
        (
            &[
                "lookup",
                "--table",
                "Employees",
                "PartitionKey=Sales",
                "Age=7",
            ],
            "table Employees cannot use Age=7",
        ),
        (
            &["lookup", "--table", "Nowhere", "PartitionKey=Sales"],
            "known are Employees",
        ),
        (
            &[
                "lookup",
                "--table",
                "Employees",
                "PartitionKey=Sales",
                "--where",
                "Age >",
            ],
            "expected",
        ),
        (
            &[
                "lookup",
                "by_email",
                "Email=a",
                "--entities",
                "--where",
                "Age > 1",
            ],
            "cannot filter",
        ),
        (
            &[
                "lookup",
                "by_email",
                "Email=a",
                "--with",
                "Nowhere={PartitionKey}/a",
            ],
            "has no table Nowhere; known are Employees",
        ),
        (
            &[
                "lookup",
                "by_email",
                "Email=a",
                "--with",
                "Employees=a/b",
                "--with",
                "employees=c/d",
            ],
            "is joined twice",
        ),
        (
            &["lookup", "by_email", "Email=a", "--with", "Employees={Age}"],
            "there is no / between its keys",
        ),
        (
            &[
                "lookup",
                "by_email",
                "Email=a",
                "--with",
                "Employees={Age|pat:3}/a",
            ],
            "did you mean \"pad\"?",
        ),
    ] {
        says(&stderr(&place.run(args).code(2)), &[word]);
    }
    let none = json_lines(
        &place
            .run(&["--json", "lookup", "by_email", "Email=nobody@contoso.com"])
            .success(),
    );
    assert_eq!((none.len(), &none[0]["rows"]), (1, &json!(0)));
}

#[test]
fn a_table_is_looked_up_by_its_own_keys_and_filtered() {
    let place = place();
    let found = |args: &[&str]| {
        let mut lines = json_lines(&place.run(&[&["--json", "lookup"], args].concat()).success());
        let told = lines.pop().unwrap();
        let ages: Vec<i64> = lines
            .iter()
            .map(|row| row["Age"].as_i64().unwrap())
            .collect();
        (ages, told["query_class"].as_str().unwrap().to_owned(), told)
    };
    let employees = ["--table", "employees", "PartitionKey=Sales"];
    let (ages, class, told) = found(&[&employees[..], &["RowKey=7"]].concat());
    assert_eq!(
        (ages, class.as_str(), &told["requests"]),
        (vec![7], "point", &json!(1))
    );
    let (ages, class, _) = found(&[&employees[..], &["RowKey=7", "--where", "Age > 7"]].concat());
    assert_eq!((ages, class.as_str()), (vec![], "point"));
    let range = [
        &employees[..],
        &[
            "RowKey>=1",
            "RowKey<2",
            "--where",
            "Age > 12 and not (Age == 15)",
        ],
    ]
    .concat();
    let (ages, class, _) = found(&range);
    assert_eq!(
        (ages, class.as_str()),
        (vec![13, 14, 16, 17, 18, 19], "range")
    );
    let (first, _, told) = found(&[&range[..], &["--top", "2", "--select", "Age"]].concat());
    let token = told["continuation"].as_str().unwrap();
    let (rest, ..) = found(&[&range[..], &["--continue", token]].concat());
    assert_eq!([first, rest].concat(), [13, 14, 16, 17, 18, 19]);
    let other = [
        &employees[..],
        &[
            "RowKey>=1",
            "RowKey<2",
            "--where",
            "Age > 11",
            "--continue",
            token,
        ],
    ]
    .concat();
    says(
        &stderr(&place.run(&[&["lookup"], &other[..]].concat()).code(2)),
        &["--continue"],
    );
    let (ages, class, _) = found(&[
        "--table",
        "Employees",
        "--scan",
        "--where",
        "LastName in [\"K03\", \"K04\"]",
    ]);
    assert_eq!((ages, class.as_str()), (vec![3, 4], "table_scan"));
    let (ages, ..) = found(&["by_name", "LastName^=K", "--where", "Age >= 28"]);
    assert_eq!(ages, [28, 29]);
    let (few, ..) = found(&[
        "by_name",
        "LastName^=K",
        "--where",
        "startsWith(LastName, \"K1\")",
        "--select",
        "Age",
    ]);
    assert_eq!(few.len(), 10);
}

#[test]
fn wide_entities_are_filtered_before_they_are_counted() {
    let place = Place::new();
    place.add("[tables.Machines]\nwide = true");
    place.run(&["migrate", "up"]).success();
    let machine = |rk: usize| {
        let mut entity = json!({"PartitionKey": "Hall", "RowKey": format!("{rk:02}"), "Age": rk});
        for nth in 0..if rk.is_multiple_of(3) { 300 } else { 0 } {
            entity[format!("P{nth}")] = nth.into();
        }
        format!(
            "{}\n",
            json!({"op": "put", "table": "Machines", "entity": entity})
        )
    };
    place
        .run_with(&["submit", "-"], (0..20).map(machine).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(20));
    let found = |args: &[&str]| {
        let lookup = [
            "--json",
            "lookup",
            "--table",
            "Machines",
            "PartitionKey=Hall",
            "--where",
            "Age >= 15 and not (Age == 16)",
            "--top",
            "3",
        ];
        let mut lines = json_lines(&place.run(&[&lookup, args].concat()).success());
        let told = lines.pop().unwrap();
        (
            lines
                .iter()
                .map(|row| row["Age"].as_i64().unwrap())
                .collect::<Vec<_>>(),
            told["continuation"].as_str().map(str::to_owned),
        )
    };
    let (ages, more) = found(&[]);
    assert_eq!(ages, [15, 17, 18]);
    let (ages, more) = found(&["--continue", &more.unwrap()]);
    assert_eq!((ages, more), (vec![19], None));
}

#[test]
fn a_list_gives_its_members_and_they_give_their_entities() {
    let place = Place::new();
    place.add(
        "[views.by_team]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"table\"\ntable = \"Teams\"\npartition_key = \"team\"\nrow_key = \"{Team}\"\n\
         member = [\"{Team}\", \"{PartitionKey}\", \"{RowKey}\"]\nproperty = \"Members\"",
    );
    place.run(&["migrate", "up"]).success();
    let people = ["a,b", "한글", "1", "c'd"];
    let job = |rk: &&str| {
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{rk}\",\"Team\":\"Reds\"}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], people.iter().map(job).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(4));

    let found = json_lines(
        &place
            .run(&["--json", "lookup", "by_team", "Team=Reds"])
            .success(),
    );
    let keys: Vec<&str> = found
        .iter()
        .filter_map(|row| row["RowKey"].as_str())
        .collect();
    assert_eq!(keys, ["1", "a,b", "c'd", "한글"]);
    assert_eq!(
        (
            &found[0]["Team"],
            &found[4]["query_class"],
            &found[4]["requests"]
        ),
        (&json!("Reds"), &json!("point"), &json!(1))
    );
    let found = json_lines(
        &place
            .run(&["--json", "lookup", "by_team", "Team=Reds", "--entities"])
            .success(),
    );
    assert_eq!(
        (found.len(), &found[3]["RowKey"], &found[4]["requests"]),
        (5, &json!("한글"), &json!(5))
    );
    let list = json_lines(
        &place
            .run(&["--json", "get", "Teams", "team", "Reds", "--resolve"])
            .success(),
    );
    let members: Vec<[String; 3]> =
        serde_json::from_str(list[0]["Members"].as_str().unwrap()).unwrap();
    assert_eq!(
        (
            members.len(),
            members[1][2].as_str(),
            list[0].get("ek_tokens")
        ),
        (4, "a,b", None)
    );
    let plan = json_lines(
        &place
            .run(&["--json", "plan", "Employees", "Sales", "1"])
            .success(),
    );
    assert_eq!(plan[0]["in_step"], json!(true));
}

#[test]
fn a_list_in_a_blob_gives_its_members() {
    const PEOPLE: usize = 100;
    let place = Place::new();
    place.add("[views.by_town]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"blob\"\ncontainer = \"towns\"\nname = \"{Town|lower}.jsonl\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]");
    place.run(&["migrate", "up"]).success();
    let job = |n: usize| {
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{n:03}\",\"Town\":\"Oslo\"}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], (0..PEOPLE).map(job).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(PEOPLE));
    let found = json_lines(
        &place
            .run(&["--json", "lookup", "by_town", "Town=Oslo"])
            .success(),
    );
    let keys: Vec<String> = found
        .iter()
        .filter_map(|row| row["RowKey"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(
        keys,
        (0..PEOPLE).map(|n| format!("{n:03}")).collect::<Vec<_>>()
    );
}

#[test]
fn a_value_is_found_however_it_is_written() {
    let place = Place::new();
    let list = "kind = \"index_entity\"\nsource = \"Orders\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\n";
    place.add(&format!(
        "[views.by_time]\nkind = \"secondary_index\"\nsource = \"Orders\"\ntable = \"OrdersByTime\"\n\
         partition_key = \"{{PartitionKey}}\"\nrow_key = \"{{Placed}}_{{RowKey}}\"\non_conflict = \"reject\"\nselect = []\n\
         [views.by_no]\n{list}store = \"table\"\ntable = \"OrdersByNo\"\npartition_key = \"all\"\nrow_key = \"{{No}}\"\nproperty = \"Members\"\n\
         [views.in_blobs]\n{list}store = \"blob\"\ncontainer = \"orders\"\nname = \"no_{{No}}\"\n"
    ));
    place.run(&["migrate", "up"]).success();
    // The last two orders have texts in the properties in which the others have a time and a number.
    let jobs = [
        ("1", json!("2026-11-20T14:59:59Z"), "Edm.DateTime", json!(7)),
        (
            "2",
            json!("2026-11-20T15:00:00Z"),
            "Edm.DateTime",
            json!(12),
        ),
        (
            "3",
            json!("2026-11-20T15:00:00.5Z"),
            "Edm.DateTime",
            json!(9),
        ),
        ("4", json!("2026-11-20T15:00:00Z"), "Edm.String", json!("7")),
        (
            "5",
            json!("2026-11-20T15:00:00.0000000Z"),
            "Edm.String",
            json!("007"),
        ),
    ];
    let job = |(rk, placed, kind, no): &(&str, Value, &str, Value)| {
        let entity = json!({"PartitionKey": "c", "RowKey": rk, "Placed": placed, "Placed@odata.type": kind, "No": no});
        format!(
            "{}\n",
            json!({"op": "put", "table": "Orders", "entity": entity})
        )
    };
    place
        .run_with(&["submit", "-"], jobs.iter().map(job).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(5));

    let found = |args: &[&str]| {
        let mut found = json_lines(&place.run(&[&["--json", "lookup"], args].concat()).success());
        let requests = found.pop().unwrap()["requests"].as_u64().unwrap();
        let id = |row: &Value| {
            row["RowKey"]
                .as_str()
                .unwrap()
                .rsplit('_')
                .next()
                .unwrap()
                .to_owned()
        };
        let mut ids: Vec<String> = found.iter().map(id).collect();
        ids.sort_unstable();
        (ids.join(" "), requests)
    };
    for (term, rows) in [
        ("Placed=2026-11-20T15:00:00.000Z", "2 5"),
        ("Placed=2026-11-20T16:00:00+01:00", "2 5"),
        ("Placed=2026-11-20T15:00:00Z", "2 4 5"),
        ("Placed=\"2026-11-20T15:00:00Z\"", "4"),
        ("Placed>=2026-11-20T15:00:00Z", "2 3 4 5"),
        ("Placed<2026-11-20T15:00:00.2Z", "1 2 5"),
    ] {
        assert_eq!(
            found(&["by_time", "PartitionKey=c", term]).0,
            rows,
            "{term}"
        );
    }
    for view in ["by_no", "in_blobs"] {
        for (term, rows, requests) in [
            ("No=7", "1 4", 1),
            ("No=007", "1 4 5", 2),
            ("No=\"007\"", "5", 1),
            ("No=12.0", "2", 2),
        ] {
            assert_eq!(
                found(&[view, term]),
                (rows.to_owned(), requests),
                "{view} {term}"
            );
        }
    }
    let paged = json_lines(
        &place
            .run(&["--json", "lookup", "in_blobs", "No=007", "--top", "2"])
            .success(),
    );
    let token = paged.last().unwrap()["continuation"].as_str().unwrap();
    assert_eq!(
        (
            paged.len(),
            found(&["in_blobs", "No=007", "--continue", token])
                .0
                .as_str()
        ),
        (3, "5")
    );
    let refused = place.run(&["lookup", "by_no", "No>=9"]).code(2);
    says(
        &stderr(&refused),
        &["cannot use No>=9", "{No|sortable}", "No>=\"9\""],
    );
}

#[test]
fn a_list_a_group_and_a_blob_of_many_give_no_more_than_was_asked_for_and_go_on_from_there() {
    let place = Place::new();
    place.add(
        "[views.by_team]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"table\"\ntable = \"Teams\"\npartition_key = \"team\"\nrow_key = \"{Team}\"\n\
         member = [\"{PartitionKey}\", \"{RowKey}\"]\nproperty = \"Members\"\n\
         [views.in_blobs]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"blob\"\ncontainer = \"teams\"\nname = \"team_{Team}\"\n\
         member = [\"{PartitionKey}\", \"{RowKey}\"]\n\
         [views.headcount]\nkind = \"aggregate\"\nsource = \"Employees\"\ngroup_table = \"Headcounts\"\npartition_key = \"team\"\nrow_key = \"{Team}\"\nset = { Headcount = \"count()\" }",
    );
    place.run(&["migrate", "up"]).success();
    let job = |n: u32| {
        let team = ["Blues", "Greens", "Reds"][n as usize % 3];
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{n:02}\",\"Team\":\"{team}\"}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], (0..36).map(job).collect::<String>())
        .success();
    assert_eq!(place.work()["done"], json!(36));

    let look = |args: &[&str]| {
        let mut found = json_lines(&place.run(&[&["--json", "lookup"], args].concat()).success());
        let summary = found.pop().unwrap();
        (
            found
                .iter()
                .map(|row| row["RowKey"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
            summary,
        )
    };
    let of = |first: u32| {
        (first..36)
            .step_by(3)
            .map(|n| format!("{n:02}"))
            .collect::<Vec<_>>()
    };
    for view in ["by_team", "in_blobs", "headcount"] {
        // Each entity costs one request in addition to the request for the list.
        let (found, summary) = look(&[view, "Team=Blues", "--top", "2", "--entities"]);
        assert_eq!(
            (found.as_slice(), &summary["requests"]),
            (&of(0)[..2], &json!(3)),
            "{view}: {summary}"
        );
        let token = summary["continuation"].as_str().unwrap();
        let (rest, summary) = look(&[view, "Team=Blues", "--entities", "--continue", token]);
        assert_eq!(rest, of(0)[2..], "{view}");
        assert!(summary.get("continuation").is_none(), "{view}: {summary}");
    }
    let (found, summary) = look(&["by_team", "Team=Blues", "--top", "2"]);
    assert_eq!((found.len(), &summary["requests"]), (2, &json!(1)));
    let (found, summary) = look(&["headcount", "Team>=A", "--top", "2"]);
    assert_eq!(
        (found.as_slice(), &summary["requests"]),
        (&["Blues".to_owned(), "Greens".to_owned()][..], &json!(1))
    );

    // The lookup covers several lists. The result must not depend on the page size.
    let all: Vec<String> = (0..3).flat_map(of).collect();
    for top in ["1", "5", "12", "13", "35", "36", "37"] {
        let (mut found, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut args = vec!["by_team", "Team>=A", "--top", top];
            args.extend(
                token
                    .iter()
                    .flat_map(|token| ["--continue", token.as_str()]),
            );
            let (part, summary) = look(&args);
            assert!(part.len() <= top.parse::<usize>().unwrap());
            found.extend(part);
            token = summary["continuation"].as_str().map(str::to_owned);
            if token.is_none() {
                break;
            }
        }
        assert_eq!(found, all, "{top} at a time");
    }
}

/// Entities with empty keys, and properties whose names are in any script, are derived from, listed, looked up and
/// audited like all others.
#[test]
fn empty_keys_and_names_in_any_script_are_found() {
    let place = Place::new();
    place.add(
        r#"
[views.by_city]
kind = "secondary_index"
source = "Customers"
table = "CustomersByCity"
partition_key = "{Città|lower}"
row_key = "{PartitionKey}_{RowKey}"
when = 'Größe == "XL"'
on_conflict = "reject"
[views.cities]
kind = "index_entity"
source = "Customers"
store = "table"
table = "Cities"
partition_key = "c"
row_key = "{Città}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Customers""#,
    );
    place.run(&["migrate", "up"]).success();
    let put = |pk: &str, rk: &str| json!({"op": "put", "table": "Customers", "entity": {"PartitionKey": pk, "RowKey": rk, "Città": "Oslo", "Größe": "XL", "이름": "김"}});
    let jobs = [
        put("alice", ""),
        put("bob", ""),
        put("", "carl"),
        put("", ""),
    ]
    .map(|job| format!("{job}\n"))
    .concat();
    place.run_with(&["submit", "-"], jobs).success();
    assert_eq!(place.work()["done"], json!(4));
    let rows = |args: &[&str]| {
        let found = json_lines(&place.run(args).success());
        found
            .iter()
            .filter(|row| row.get("RowKey").is_some())
            .cloned()
            .collect::<Vec<_>>()
    };
    let copies = rows(&[
        "--json",
        "lookup",
        "by_city",
        "Città=OSLO",
        "--where",
        "이름 == \"김\"",
    ]);
    assert_eq!(copies.len(), 4, "{copies:?}");
    assert_eq!(
        rows(&["--json", "lookup", "cities", "Città=Oslo", "--entities"]).len(),
        4
    );
    assert_eq!(
        rows(&[
            "--json",
            "lookup",
            "by_city",
            "Città=oslo",
            "PartitionKey=alice",
            "RowKey="
        ])
        .len(),
        1
    );
    let nameless = rows(&[
        "--json",
        "lookup",
        "--table",
        "Customers",
        "PartitionKey=",
        "RowKey=",
        "--select",
        "Größe",
    ]);
    assert_eq!((nameless.len(), &nameless[0]["Größe"]), (1, &json!("XL")));
    place.run(&["audit", "--table", "Customers"]).success();
}
