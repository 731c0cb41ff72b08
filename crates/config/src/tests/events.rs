//! `[events.*]`

use super::*;

const TABLE: &str = "[tables.Portraits]\n";
const MAPPING: &str = r#"
[events.portraits]
when = 'type == "Microsoft.Storage.BlobCreated"'
job = { op = "put", table = "Portraits", entity = { PartitionKey = "{subject|after:/blobs/|before:/}", RowKey = "{id}", "Created@odata.type" = "Edm.DateTime", Created = "{time}" } }
"#;

#[test]
fn a_mapping_is_read_and_shown() {
    let loaded = load_text(&format!("{TABLE}{MAPPING}")).unwrap();
    assert_eq!(loaded.settings.events.0.len(), 1);
    assert_eq!(
        (
            loaded.settings.events.0[0].name.as_str(),
            loaded.settings.events.0[0].op()
        ),
        ("portraits", "put")
    );
    assert!(
        show_text(&loaded).contains("{subject|after:/blobs/|before:/}"),
        "{}",
        show_text(&loaded)
    );
}

#[test]
fn mistakes_in_mappings_are_reported_at_their_keys() {
    for (text, expected) in [
        (MAPPING.to_owned(), "events.portraits.job.table: the catalog has no table \"Portraits\""),
        (format!("{TABLE}{}", MAPPING.replace("{id}", "{ident|uper}")), "events.portraits.job.entity.RowKey: unknown filter \"uper\""),
        (format!("{TABLE}{}", MAPPING.replace("type ==", "eventType ==")), "events.portraits.when: use \"type\""),
        (format!("{TABLE}{}", MAPPING.replace("\"put\"", "\"backfill\"")), "events.portraits.job"),
        (format!("{TABLE}{}", MAPPING.replace("job =", "jobs =")), "events.portraits.job: missing"),
        ("[events.leavers]\njob = { op = \"archive\", archive = \"former\", pk = \"p\", rk = \"{id}\" }\n".to_owned(), "[archives.former]"),
    ] {
        let found = mistakes(&text);
        assert!(found.iter().any(|found| found.contains(expected)), "{expected}: {found:#?}");
    }
}

#[test]
fn an_encrypted_property_is_not_taken_from_an_event() {
    let keys = "[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nkey = \"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\"\n";
    let found = mistakes(&format!("{keys}{TABLE}encrypt = [\"Created\"]\n{MAPPING}"));
    assert!(
        found
            .iter()
            .any(|found| found.contains("\"Created\" is encrypted in Portraits")),
        "{found:#?}"
    );
}

#[test]
fn a_mapping_whose_jobs_no_queue_carries_is_warned_about() {
    let loaded = load_text(&format!(
        "[[queues]]\nname = \"jobs\"\nallow = [\"sync\"]\n{TABLE}{MAPPING}"
    ))
    .unwrap();
    assert!(
        loaded.warnings.iter().any(|warning| warning
            .to_string()
            .contains("no declared queue allows put jobs")),
        "{:?}",
        loaded.warnings
    );
}

#[test]
fn a_mapping_that_gives_different_events_one_key_is_a_warning() {
    let warned = |when: &str, pk: &str, rk: &str| {
        let entity = format!("{{ PartitionKey = \"{pk}\", RowKey = \"{rk}\" }}");
        let put = format!(
            "{TABLE}[events.m]\nwhen = '{when}'\njob = {{ op = \"put\", table = \"Portraits\", entity = {entity} }}\n"
        );
        let sync = format!(
            "{TABLE}[events.m]\nwhen = '{when}'\njob = {{ op = \"sync\", table = \"Portraits\", pk = \"{pk}\", rk = \"{rk}\" }}\n"
        );
        let [put, sync] = [put, sync].map(|text| {
            warnings(&text)
                .into_iter()
                .filter(|one| one.contains("two different events can get the same key"))
                .collect::<Vec<_>>()
        });
        assert_eq!(put.len(), sync.len(), "{put:?} {sync:?}");
        put.into_iter().chain(sync).next()
    };
    let created = r#"type == "Microsoft.Storage.BlobCreated""#;
    let in_container = format!(
        r#"{created} and startsWith(subject, "/blobServices/default/containers/portraits/blobs/")"#
    );
    for (when, pk, rk, place) in [
        (
            in_container.as_str(),
            "{subject|after:/blobs/|before:/}",
            "{subject|after:/blobs/|after:/|before:.}",
            Some("m.job.entity.RowKey: "),
        ),
        (
            created,
            "{subject|after:/blobs/|before:/}",
            "{subject|after:/blobs/|after:/}",
            Some("m.job.entity.RowKey: "),
        ),
        (
            created,
            "{subject|slug}",
            "",
            Some("m.job.entity.PartitionKey: "),
        ),
        (
            created,
            "p",
            "{data.name}_{data.id}",
            Some("m.job.entity.RowKey: "),
        ),
        (
            in_container.as_str(),
            "{subject|after:/blobs/|before:/}",
            "{subject|after:/blobs/|after:/}",
            None,
        ),
        (created, "{time|date:%Y%m}", "{id}", None),
        (created, "{subject|before:/}", "{subject|after:/}", None),
        (created, "{data.department}", "{data.number|pad:8}", None),
        (created, "p", "{data.mail|trim|lower|nfc}", None),
        (created, "p", "latest", None),
    ] {
        let warning = warned(when, pk, rk);
        assert_eq!(
            warning.is_some(),
            place.is_some(),
            "{when} {pk} {rk}: {warning:?}"
        );
        assert!(
            warning
                .iter()
                .zip(place)
                .all(|(warning, place)| warning.contains(place)),
            "{warning:?}"
        );
    }
}
