//! Every change is sent as an event, and nothing else is.

use std::collections::BTreeMap;

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::Site;
use crate::support::stub::{Reply, Stub};

const STAFF: usize = 30;

fn catalog(port: u16, fields: &str) -> String {
    format!(
        r#"
[sinks.hooks]
kind = "webhook"
url = "http://127.0.0.1:{port}/staff"
secret_env = "WEBHOOK_SECRET"

[views.staff]
kind = "webhook"
source = "Employees"
when = "exists(Name)"
sink = "hooks"
topic = "staff"
select = ["Name"]
fields = {{ {fields} }}
"#
    )
}

fn employee(number: usize, name: Option<&str>, room: i32) -> Entity {
    let entity =
        Entity::new(EntityKey::new("Sales", format!("{number:02}")).unwrap()).with("Room", room);
    match name {
        Some(name) => entity.with("Name", name),
        None => entity,
    }
}

fn documents(stub: &Stub, beyond: usize) -> BTreeMap<String, Value> {
    let events = stub.requests()[beyond..]
        .iter()
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap())
        .collect::<Vec<_>>();
    let documents: BTreeMap<String, Value> = events
        .iter()
        .map(|event| {
            (
                event["data"]["row_key"].as_str().unwrap().to_owned(),
                event["data"]["document"].clone(),
            )
        })
        .collect();
    assert_eq!(documents.len(), events.len(), "one event per primary");
    documents
}

#[test]
fn a_backfill_sends_what_differs_from_what_was_sent_and_nothing_else() {
    let stub = Stub::start(|_| Reply::status(204).into());
    let mut site = Site::embedded("");
    site.set_environment(vec![(
        "WEBHOOK_SECRET".to_owned(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned(),
    )]);
    site.declare(&catalog(stub.port(), "number = \"{RowKey}\""));
    site.write(
        "Employees",
        &(0..STAFF)
            .map(|number| employee(number, Some("Ada"), 7))
            .collect::<Vec<_>>(),
    );
    site.migrate();
    let backfill = || {
        let before = stub.requests().len();
        site.submit(&[json!({"op": "backfill", "view": "staff"})]);
        assert_eq!(site.run_until_idle(&[]).poisoned, 0);
        documents(&stub, before)
    };
    let first = backfill();
    assert_eq!(first.len(), STAFF);
    assert_eq!(first["07"], json!({"Name": "Ada", "number": "07"}));
    assert_eq!(backfill(), BTreeMap::new(), "all events were sent");

    // The application changes three entities without sending jobs. It renames one, removes the name of another (so the
    // view has no document of it), and changes a property of the third that no event contains.
    site.write(
        "Employees",
        &[
            employee(3, Some("Grace"), 7),
            employee(4, None, 7),
            employee(5, Some("Ada"), 8),
        ],
    );
    let expected = [
        ("03".to_owned(), json!({"Name": "Grace", "number": "03"})),
        ("04".to_owned(), Value::Null),
    ];
    assert_eq!(backfill(), expected.into());

    // An additional field changes all events.
    site.declare(&catalog(
        stub.port(),
        "number = \"{RowKey}\", team = \"{PartitionKey}\"",
    ));
    site.migrate();
    let second = backfill();
    assert_eq!(second.len(), STAFF - 1, "one employee has no name");
    assert!(
        second.values().all(|document| document["team"] == "Sales"),
        "{second:?}"
    );
    assert_eq!(backfill(), BTreeMap::new());
}
