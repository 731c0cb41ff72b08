use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::ViewName;
use crate::condition::Condition;
use crate::job;

/// An event as a subscription of a storage account puts it on a queue.
fn blob_created() -> Value {
    json!({
        "topic": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/contoso",
        "subject": "/blobServices/default/containers/portraits/blobs/Sales/000223.png",
        "eventType": "Microsoft.Storage.BlobCreated",
        "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "data": {
            "api": "PutBlob", "contentType": "image/png", "contentLength": 524_288, "blobType": "BlockBlob",
            "url": "https://contoso.blob.core.windows.net/portraits/Sales/000223.png", "sequencer": "0000000000000010",
            "storageDiagnostics": {"batchId": "b68529f3"}
        },
        "dataVersion": "", "metadataVersion": "1", "eventTime": "2026-11-20T15:00:00.5Z"
    })
}

/// The same event in the schema of CloudEvents.
fn cloud_event() -> Value {
    let grid = blob_created();
    json!({
        "specversion": "1.0", "source": grid["topic"], "subject": grid["subject"], "type": grid["eventType"], "id": grid["id"],
        "data": grid["data"], "time": grid["eventTime"], "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    })
}

fn mapping(name: &str, when: &str, job: Value) -> Result<EventMapping, MappingError> {
    let Value::Object(job) = job else {
        panic!("no job")
    };
    EventMapping::new(
        ViewName::new(name).unwrap(),
        Some(Condition::parse_of_event(when).unwrap()),
        job,
    )
}

fn portraits() -> EventMapping {
    let job = json!({
        "op": "put", "table": "Portraits", "mode": "merge", "newer_by": "Sequencer",
        "entity": {
            "PartitionKey": "{subject|after:/blobs/|before:/}", "RowKey": "{subject|after:/blobs/|after:/|before:.}",
            "Url": "{data.url}", "Bytes": "{data.contentLength}", "Kind": "image, {data.contentType|after:/}", "Created": "{time}",
            "Sequencer": "{data.sequencer}", "Gone": "{data.deletedTime}", "Batch": "{data.storageDiagnostics.batchId}",
            "Small": "{data.contentLength}", "Small@odata.type": "Edm.Int32", "Checked": false
        }
    });
    mapping(
        "portraits",
        r#"type == "Microsoft.Storage.BlobCreated" and startsWith(subject, "/blobServices/default/containers/portraits/")"#,
        job,
    )
    .unwrap()
}

fn object(event: &Value) -> Map<String, Value> {
    event.as_object().unwrap().clone()
}

fn mapped(mappings: Vec<EventMapping>, event: &Value) -> Result<Value, String> {
    let object = object(event);
    let event = ForeignEvent::of(&object)
        .expect("an event")
        .map_err(|error| error.to_string())?;
    EventMappings(mappings)
        .map(&event)
        .map(|taken| Value::Object(taken.job))
        .map_err(|error| error.to_string())
}

#[test]
fn a_created_blob_becomes_the_job_of_its_mapping_in_either_schema() {
    let mut expected = json!({
        "op": "put", "table": "Portraits", "mode": "merge", "newer_by": "Sequencer", "id": "831e1650-001e-001b-66ab-eeb76e069631",
        "entity": {
            "PartitionKey": "Sales", "RowKey": "000223", "Url": "https://contoso.blob.core.windows.net/portraits/Sales/000223.png",
            "Bytes": "524288", "Bytes@odata.type": "Edm.Int64", "Kind": "image, png", "Created": "2026-11-20T15:00:00.5Z",
            "Created@odata.type": "Edm.DateTime", "Sequencer": "0000000000000010", "Batch": "b68529f3", "Small": 524_288,
            "Small@odata.type": "Edm.Int32", "Checked": false
        }
    });
    assert_eq!(
        mapped(vec![portraits()], &blob_created()).unwrap(),
        expected
    );
    expected["traceparent"] = cloud_event()["traceparent"].clone();
    let of_cloud_event = mapped(vec![portraits()], &cloud_event()).unwrap();
    assert_eq!(of_cloud_event, expected);
    let envelope = job::decode_job(object(&of_cloud_event)).unwrap();
    assert_eq!(
        (envelope.unknown_fields.len(), envelope.id.as_deref()),
        (0, Some("831e1650-001e-001b-66ab-eeb76e069631"))
    );
}

#[test]
fn an_event_that_comes_twice_is_one_job_and_another_event_is_another() {
    let digest = |event: &Value| {
        job::decode_job(object(&mapped(vec![portraits()], event).unwrap()))
            .unwrap()
            .digest
            .unwrap()
    };
    let mut later = blob_created();
    later["id"] = "another".into();
    assert_eq!(digest(&blob_created()), digest(&blob_created()));
    // The trace is not part of the job.
    assert_eq!(digest(&blob_created()), digest(&cloud_event()));
    assert_ne!(digest(&blob_created()), digest(&later));
}

#[test]
fn keys_come_from_the_event_and_are_escaped_only_if_forbidden() {
    let sync = || {
        mapping(
            "m",
            "exists(subject)",
            json!({"op": "sync", "table": "Tags", "pk": "{subject}", "rk": ""}),
        )
        .unwrap()
    };
    let mut event = cloud_event();
    event["subject"] = "a/b#c".into();
    assert_eq!(mapped(vec![sync()], &event).unwrap()["pk"], "a%2Fb%23c");
    // A key that another program has escaped stays unchanged.
    for (subject, pk) in [
        ("R%2FD", "R%2FD"),
        ("100%", "100%"),
        ("50% R/D", "50%25 R%2FD"),
    ] {
        event["subject"] = subject.into();
        assert_eq!(mapped(vec![sync()], &event).unwrap()["pk"], pk);
    }
    let put = json!({"op": "put", "table": "Tags", "entity": {"PartitionKey": "t", "RowKey": "{subject}", "Name": "{subject}"}});
    let put = mapping("m", "exists(subject)", put).unwrap();
    event["subject"] = "R%2FD".into();
    assert_eq!(
        mapped(vec![put], &event).unwrap()["entity"]["RowKey"],
        "R%2FD"
    );
    event["subject"] = "x".repeat(600).into();
    assert!(mapped(vec![sync()], &event).unwrap_err().contains("600"));
    event["subject"] = 7.into();
    assert_eq!(mapped(vec![sync()], &event).unwrap()["pk"], "7");
    event["subject"] = "".into();
    assert!(
        mapped(vec![sync()], &event)
            .unwrap_err()
            .contains("\"pk\": {subject} has no value")
    );
}

#[test]
fn an_event_that_no_mapping_or_several_match_is_refused_with_the_list_of_mappings() {
    let error = mapped(Vec::new(), &blob_created()).unwrap_err();
    assert!(
        error.contains("Event Grid") && error.contains("no [events.NAME] is configured"),
        "{error}"
    );
    let mut other = cloud_event();
    other["type"] = "Contoso.Hired".into();
    let error = mapped(vec![portraits()], &other).unwrap_err();
    assert!(
        error.contains("Contoso.Hired")
            && error.contains("configured are: portraits (when type == "),
        "{error}"
    );
    other["type"] = "Microsoft.EventGrid.SubscriptionValidationEvent".into();
    assert!(
        mapped(vec![portraits()], &other)
            .unwrap_err()
            .contains("handshake")
    );
    let all = mapping(
        "all",
        "exists(type)",
        json!({"op": "sync", "table": "Tags", "pk": "p", "rk": "r"}),
    )
    .unwrap();
    assert!(
        mapped(vec![all, portraits()], &blob_created())
            .unwrap_err()
            .contains("all, portraits")
    );
}

#[test]
fn an_envelope_is_checked() {
    let without = |event: &Value, name: &str| {
        let mut object = object(event);
        object.remove(name);
        ForeignEvent::of(&object).map(|event| event.map(|_| ()).map_err(|error| error.to_string()))
    };
    for (event, name) in [
        (cloud_event(), "id"),
        (cloud_event(), "source"),
        (cloud_event(), "type"),
        (blob_created(), "subject"),
    ] {
        assert!(
            without(&event, name)
                .unwrap()
                .unwrap_err()
                .contains(&format!("{name:?}")),
            "{name}"
        );
    }
    assert!(without(&cloud_event(), "subject").unwrap().is_ok());
    assert_eq!(
        without(&blob_created(), "eventType"),
        None,
        "without eventType, the message is not an event"
    );
    let mut old = cloud_event();
    old["specversion"] = "0.3".into();
    assert!(
        mapped(vec![portraits()], &old)
            .unwrap_err()
            .contains("is \"0.3\", expected 1.0")
    );
    let first = json!({"cloudEventsVersion": "0.1", "eventType": "Contoso.Hired", "eventID": "1", "source": "s"});
    assert!(
        mapped(vec![portraits()], &first)
            .unwrap_err()
            .contains("\"cloudEventsVersion\" is \"0.1\", expected 1.0")
    );
    let mut job = cloud_event();
    job["op"] = "sync".into();
    assert!(
        ForeignEvent::of(&object(&job)).is_none(),
        "a job is a job, whatever else it has"
    );
}

#[test]
fn errors_of_a_mapping_are_found_before_an_event_arrives() {
    let entity = json!({"PartitionKey": "{id}", "RowKey": ""});
    for (job, field, word) in [
        (
            json!({"op": "sync", "table": "Tags", "pk": "{subject}"}),
            "",
            "rk",
        ),
        (json!({"op": "explode"}), "", "explode"),
        (
            json!({"op": "backfill", "table": "Tags"}),
            "",
            "exactly one entity",
        ),
        (
            json!({"op": "sync", "table": "{data.table}", "pk": "p", "rk": "r"}),
            "",
            "data.table",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "{subjct|lowr}", "rk": "r"}),
            "pk",
            "lower",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "{eventType}", "rk": "r"}),
            "pk",
            "\"type\"",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "{Subject}", "rk": "r"}),
            "pk",
            "not a field of an event",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "{data}", "rk": "r"}),
            "pk",
            "data.url",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "p", "rk": "r", "color": "red"}),
            "color",
            "not a field of op",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "p", "rks": ["r"]}),
            "",
            "rk",
        ),
        (
            json!({"op": "sync", "table": "Tags", "pk": "p", "rk": "r", "id": "x"}),
            "id",
            "event's",
        ),
        (
            json!({"op": "put", "table": "Tags", "entity": {"PartitionKey": "p"}}),
            "",
            "entity",
        ),
        (
            json!({"op": "put", "table": "Tags", "mode": "mix", "entity": entity}),
            "",
            "`merge`",
        ),
        (
            json!({"op": "put", "table": "Tags", "newer_by": "Version", "entity": entity}),
            "",
            "Version",
        ),
        (
            json!({"op": "put", "table": "Tags", "entity": {"PartitionKey": "p", "RowKey": "r", "ek_x": "{id}"}}),
            "",
            "ek_x",
        ),
        (
            json!({"op": "put", "table": "Tags", "entity": {"PartitionKey": "p", "RowKey": "r", "N": "{id}", "N@odata.type": "Edm.Int46"}}),
            "entity.N@odata.type",
            "Edm.Int64",
        ),
    ] {
        let error = mapping("m", "exists(id)", job.clone()).unwrap_err();
        assert!(
            error.field == field && error.problem.contains(word),
            "{job}: {error:?} does not name {word}"
        );
    }
    assert!(
        Condition::parse_of_event(r#"eventType == "x""#)
            .unwrap_err()
            .to_string()
            .contains("\"type\"")
    );
    assert!(
        Condition::parse_of_event("data.contentLength > 10 and data.api in [\"PutBlob\"]").is_ok()
    );
    assert!(
        Condition::parse("data.url == \"x\"").is_err(),
        "an entity has no paths"
    );
}

#[test]
fn a_condition_compares_by_the_types_of_json_and_of_time() {
    let object = object(&cloud_event());
    let event = ForeignEvent::of(&object).unwrap().unwrap();
    for (when, holds) in [
        ("data.contentLength >= 524288", Some(true)),
        ("data.contentLength > 524288", Some(false)),
        ("time > datetime'2026-11-20T00:00:00Z'", Some(true)),
        (
            "data.storageDiagnostics.batchId == \"b68529f3\"",
            Some(true),
        ),
        ("exists(data.storageDiagnostics)", Some(true)),
        ("data.storageDiagnostics == 1", Some(false)),
        ("exists(data.api.deeper)", None),
        ("exists(data.other.deeper)", Some(false)),
        ("not exists(dataschema)", Some(true)),
    ] {
        assert_eq!(
            Condition::parse_of_event(when)
                .unwrap()
                .decided_with(&|path| event.value(path).found()),
            holds,
            "{when}"
        );
    }
}

/// A replacement of an entity with the subject as its key and the data as its properties.
fn person(mode: &str) -> EventMapping {
    let entity = json!({"PartitionKey": "p", "RowKey": "{subject}", "Name": "{data.name}", "Nick": "{data.nick}", "Seen": "{time}"});
    mapping(
        "person",
        "exists(id)",
        json!({"op": "put", "table": "People", "mode": mode, "entity": entity}),
    )
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "called with literals")]
fn changed(fields: Value) -> Value {
    let mut event = json!({"specversion": "1.0", "id": "1", "source": "s", "type": "Contoso.Changed", "subject": "k"});
    event.as_object_mut().unwrap().extend(object(&fields));
    event
}

#[test]
fn data_is_read_in_every_form_that_has_members() {
    let body = json!({"name": "Kim Lee"}).to_string();
    let base64 =
        |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    for fields in [
        json!({"data": {"name": "Kim Lee"}}),
        json!({"data": body}),
        json!({"data": body, "datacontenttype": "application/json"}),
        json!({"data": body, "datacontenttype": "application/vnd.contoso+JSON; charset=utf-8"}),
        json!({"data_base64": base64(&body)}),
        json!({"data": null, "data_base64": base64(&format!("\u{feff}{body}")), "datacontenttype": "text/json"}),
    ] {
        let job = mapped(vec![person("replace")], &changed(fields.clone()))
            .unwrap_or_else(|error| panic!("{fields}: {error}"));
        assert_eq!(
            job["entity"],
            json!({"PartitionKey": "p", "RowKey": "k", "Name": "Kim Lee"}),
            "{fields}"
        );
    }
    let mut grid = blob_created();
    grid["data"] = grid["data"].to_string().into();
    assert_eq!(
        mapped(vec![portraits()], &grid),
        mapped(vec![portraits()], &blob_created())
    );
}

/// A replacement removes every property that it does not contain, so unreadable data must not count as absent.
#[test]
fn unreadable_data_makes_no_job_and_the_error_names_mapping_and_field() {
    for (fields, words) in [
        (json!({"data": "Kim Lee"}), "data is text that is not JSON"),
        (
            json!({"data": "[1]"}),
            "data is text that is not a JSON object",
        ),
        (
            json!({"data": r#"{"name":"Kim","name":"Lee"}"#}),
            "duplicate key \"name\"",
        ),
        (
            json!({"data": r#"{"name":99999999999999999999}"#}),
            "an integer of 20 characters, which does not fit into 64 bits",
        ),
        (
            json!({"data": "<name/>", "datacontenttype": "text/xml"}),
            "data is text of \"text/xml\", not JSON",
        ),
        (json!({"data_base64": "?"}), "data_base64 is not Base64"),
        (
            json!({"data_base64": "/w=="}),
            "data_base64 is not UTF-8 text",
        ),
        (json!({"data_base64": 7}), "data_base64 is a number"),
        (
            json!({"data": {}, "data_base64": "e30="}),
            "both data and data_base64",
        ),
        (
            json!({"data": [{"name": "Kim"}]}),
            "data is an array, not an object",
        ),
        (json!({"data": true}), "data is a truth value"),
    ] {
        for mode in ["replace", "merge"] {
            let error = mapped(vec![person(mode)], &changed(fields.clone())).unwrap_err();
            for word in ["[events.person]", "data.name cannot be read: ", words] {
                assert!(error.contains(word), "{fields}: {error}");
            }
        }
    }
    for (fields, words) in [
        (
            json!({"data": {"name": 18_446_744_073_709_551_615_u64}}),
            "data.name is an integer of 20 characters, which exceeds Edm.Int64",
        ),
        (
            json!({"data": {"name": ["Kim"]}}),
            "data.name is an array, which no key or property can hold",
        ),
        (
            json!({"data": {"name": "Kim"}, "time": "yesterday"}),
            "time cannot be read",
        ),
        (
            json!({"data": {"name": "Kim"}, "subject": {"a": 1}}),
            "\"RowKey\": subject is an object",
        ),
    ] {
        let error = mapped(vec![person("merge")], &changed(fields.clone())).unwrap_err();
        assert!(
            error.contains("[events.person]") && error.contains(words),
            "{fields}: {error}"
        );
    }
    // A mapping that uses no data is not affected.
    let sync = mapping(
        "m",
        "exists(id)",
        json!({"op": "sync", "table": "People", "pk": "p", "rk": "{subject}"}),
    )
    .unwrap();
    assert!(mapped(vec![sync], &changed(json!({"data": [1]}))).is_ok());
}

#[test]
fn a_condition_on_unreadable_data_is_undecided() {
    let delete = json!({"op": "delete", "table": "People", "pk": "p", "rk": "{subject}"});
    let gone = || {
        mapping(
            "gone",
            "type == \"Contoso.Changed\" and not (data.live == true)",
            delete.clone(),
        )
        .unwrap()
    };
    assert!(mapped(vec![gone()], &changed(json!({"data": {"live": false}}))).is_ok());
    let error = mapped(vec![gone()], &changed(json!({"data": "live"}))).unwrap_err();
    assert!(
        error.contains(
            "[events.gone]: cannot evaluate \"when\": data.live cannot be read: data is text"
        ),
        "{error}"
    );
    let mut other = changed(json!({"data": "live"}));
    other["type"] = "Contoso.Hired".into();
    assert!(
        mapped(vec![gone()], &other)
            .unwrap_err()
            .contains("no mapping matches this event"),
        "the type decides"
    );
}

#[test]
fn a_replacement_needs_data_and_leaves_out_missing_properties() {
    let without = |data: Value| changed(json!({"data": data, "time": "2026-11-20T15:00:00Z"}));
    let error = mapped(vec![person("replace")], &without(Value::Null)).unwrap_err();
    assert!(
        error.contains("[events.person]")
            && error.contains("{data.name} has no value because the event has no data"),
        "{error}"
    );
    for (mode, data) in [("replace", json!({"nick": null})), ("merge", Value::Null)] {
        let job = mapped(vec![person(mode)], &without(data)).unwrap();
        let seen = json!({"PartitionKey": "p", "RowKey": "k", "Seen": "2026-11-20T15:00:00Z", "Seen@odata.type": "Edm.DateTime"});
        assert_eq!(job["entity"], seen, "{mode}");
    }
    // The event of the example in docs/events.md.
    let mut grid = blob_created();
    for data in [Value::Null, json!({"url": "https://contoso"})] {
        grid["data"] = data;
        let error = mapped(vec![portraits()], &grid).unwrap_err();
        assert!(
            error.contains("[events.portraits]")
                && error.contains("{data.sequencer} has no value in this event"),
            "{error}"
        );
    }
}

#[test]
fn a_text_is_not_a_null_of_another_type() {
    let entity = json!({"PartitionKey": "p", "RowKey": "k", "B": "{data.b}", "B@odata.type": "Edm.Boolean", "N": "{data.n}", "N@odata.type": "Edm.Int32"});
    let typed = || {
        mapping(
            "m",
            "exists(id)",
            json!({"op": "put", "table": "People", "entity": entity.clone()}),
        )
        .unwrap()
    };
    let job = |b: Value, n: Value| {
        job::decode_job(object(
            &mapped(vec![typed()], &changed(json!({"data": {"b": b, "n": n}}))).unwrap(),
        ))
    };
    assert!(job(json!("true"), json!("-7")).is_ok() && job(json!(false), json!(7)).is_ok());
    for (b, n) in [
        (json!("null"), json!(7)),
        (json!(true), json!("null")),
        (json!(true), json!(3_000_000_000_u64)),
    ] {
        assert!(job(b.clone(), n.clone()).is_err(), "{b} {n}");
    }
}

#[test]
fn a_delete_job_has_the_event_value_to_compare() {
    let gone = json!({"op": "delete", "table": "Portraits", "pk": "p", "rk": "{subject}", "newer_by": {"Sequencer": "{data.sequencer}"}});
    let gone = || mapping("gone", "exists(id)", gone.clone()).unwrap();
    let job = mapped(
        vec![gone()],
        &changed(json!({"data": {"sequencer": "0002"}})),
    )
    .unwrap();
    assert_eq!(job["newer_by"], json!({"Sequencer": "0002"}));
    assert!(
        job::decode_job(object(&job))
            .unwrap()
            .unknown_fields
            .is_empty()
    );
    let error = mapped(vec![gone()], &changed(json!({"data": {}}))).unwrap_err();
    assert!(
        error.contains(
            "{data.sequencer} has no value in this event, but \"newer_by\" compares Sequencer"
        ),
        "{error}"
    );
    assert_eq!(gone().properties().collect::<Vec<_>>(), ["Sequencer"]);
    for (newer_by, field, word) in [
        (json!("Sequencer"), "", "newer_by"),
        (json!({}), "", "one property"),
        (json!({"A": "{id}", "B": "{id}"}), "", "one property"),
        (json!({"A": "{id|lowr}"}), "newer_by.A", "lower"),
        (
            json!({"A": "{id}", "A@odata.type": "Edm.Int46"}),
            "newer_by.A@odata.type",
            "Edm.Int64",
        ),
    ] {
        let job = json!({"op": "delete", "table": "Portraits", "pk": "p", "rk": "r", "newer_by": newer_by});
        let error = mapping("m", "exists(id)", job.clone()).unwrap_err();
        assert!(
            error.field == field && error.problem.contains(word),
            "{job}: {error:?} does not name {word}"
        );
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[ -~/é]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-zA-Z]{1,8}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    /// Whatever an event contains, its job has the operation and the table of the mapping and a valid key, or there is no job. (The name of
    /// the extension attribute is arbitrary, but not `op`, because a message with `op` is a job.)
    #[test]
    fn an_event_chooses_only_values(
        subject in json_value(), data in json_value(), id in "[ -~]{1,20}", extension in "x[a-z]{0,5}", value in json_value(),
    ) {
        let mut event = cloud_event();
        event["id"] = id.into();
        event[extension.as_str()] = value;
        event["subject"] = subject;
        event["data"] = data;
        let sync = json!({"op": "sync", "table": "Tags", "pk": "{subject|lower}", "rk": "{data.url}"});
        let put = json!({"op": "put", "table": "Tags", "entity": {"PartitionKey": "{subject}", "RowKey": "{id}", "N": "{data.n}", "N@odata.type": "Edm.Double"}});
        for job in [sync, put] {
            let mapping = mapping("m", "exists(id)", job.clone()).unwrap();
            if let Ok(mapped) = mapped(vec![mapping], &event) {
                prop_assert_eq!((&mapped["op"], &mapped["table"], &mapped["id"]), (&job["op"], &job["table"], &event["id"]));
                prop_assert_eq!(mapped.as_object().unwrap().keys().filter(|key| !["id", "traceparent"].contains(&key.as_str()) && !job.as_object().unwrap().contains_key(*key)).count(), 0);
                // The result is a job, or an error with a reason.
                let _ = job::decode_job(object(&mapped)).map_err(|error| error.to_string());
            }
        }
    }
}
