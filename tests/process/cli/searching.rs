//! A search index, whose documents the program derives.

use serde_json::json;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};
use crate::support::search::{KEY, SearchStub};

#[test]
fn a_search_index_is_missed_filled_looked_up_and_dropped() {
    let (place, stub) = (Place::new(), SearchStub::start());
    place.run(&["migrate", "up"]).success();
    let view = "[views.found]\nkind = \"search_index\"\nsource = \"Employees\"\nsink = \"catalog\"\nindex = \"people\"\nselect = [\"Email\"]\n\
                fields = { name = \"{LastName}\" }\n";
    let sink = format!(
        "[sinks.catalog]\nkind = \"search\"\nendpoint = \"{}\"\nkey_env = \"TEST_SEARCH\"\n",
        stub.endpoint()
    );
    place.add(&sink);
    let ended = place.run(&["config", "check"]).code(2);
    says(
        &stdout(&ended),
        &["sinks.catalog.key_env", "TEST_SEARCH, which is not set"],
    );
    std::fs::write(place.folder().join("key"), KEY).unwrap();
    let config = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    let without = config.replace("key_env = \"TEST_SEARCH\"", "key_file = \"key\"");
    place.configure(&format!("{without}\n{view}"));
    place.run(&["config", "check"]).success();
    assert!(!stdout(&place.run(&["config", "show"]).success()).contains(KEY));

    let missed = stdout(&place.run(&["migrate", "status"]).success());
    says(
        &missed,
        &[
            "index people of sink catalog, which does not exist",
            "view found",
        ],
    );
    stub.create("people", &[("Email", "Edm.String")]);
    let indexes = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0]["indexes"];
    assert_eq!(
        *indexes,
        json!([{"view": "found", "sink": "catalog", "index": "people", "problem": "fields", "fields": ["name"]}])
    );
    stub.create("people", &[("Email", "Edm.String"), ("name", "Edm.String")]);
    assert!(
        json_lines(&place.run(&["--json", "migrate", "status"]).success())[0]
            .get("indexes")
            .is_none()
    );

    let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "Email": "ada@contoso.com", "LastName": "King"});
    place.run(&["migrate", "up"]).success();
    std::fs::write(place.folder().join("key"), "revoked").unwrap();
    let unknown = stderr(&place.run(&["migrate", "up"]).success());
    says(
        &unknown,
        &[
            "could not check people of sink catalog for view found: ",
            "Nothing else to do",
        ],
    );
    std::fs::write(place.folder().join("key"), KEY).unwrap();
    place
        .run(&[
            "submit",
            &json!({"op": "put", "table": "Employees", "entity": entity}).to_string(),
        ])
        .success();
    place.work();
    assert_eq!(stub.documents("people").len(), 1);
    let found = &json_lines(
        &place
            .run(&[
                "--json",
                "lookup",
                "found",
                "PartitionKey=Sales",
                "RowKey=1",
            ])
            .success(),
    )[0];
    assert_eq!(found["name"], json!("King"));
    place.run(&["audit", "--table", "Employees"]).success();
    stub.create("people", &[("Email", "Edm.String"), ("name", "Edm.String")]);
    place.run(&["audit", "--table", "Employees"]).code(3);
    place.run(&["backfill", "--table", "Employees"]).success();
    assert_eq!(stub.documents("people").len(), 1);

    // The view is removed from the catalog, and then a backfill removes the view's documents from the index.
    place.configure(&without);
    place.run(&["migrate", "up", "--retire"]).success();
    place.run(&["backfill", "--table", "Employees"]).success();
    assert_eq!(stub.documents("people").len(), 0);
}
