//! Shared access signatures for applications: what the official SDK can do with them, and what it cannot.

use bytes::Bytes;
use evenkeel_model::{BlobName, ContainerName, Entity, EntityKey};
use evenkeel_storage::BlobUpload;
use serde_json::{Value, json};

use crate::end_to_end::sdk::python_with;
use crate::end_to_end::site::{EMPLOYEES, Site};

const GRANTS: &str = r#"
[sas.staff]
table = "Employees"
valid = "30m"

[sas.sales]
table = "Employees"
pk = "Sales"
rk_from = "1"
rk_to = "5"

[sas.hiring]
table = "Employees"
permissions = "ua"

[sas.photos]
container = "photos"

[sas.album]
container = "photos"
permissions = "lr"

[sas.upload]
container = "photos"
permissions = "c"

[sas.sender]
queue = "evenkeel-jobs"
"#;

fn site() -> Site {
    let site = Site::azurite(&format!("{EMPLOYEES}{GRANTS}"));
    site.migrate();
    let entity = |pk: &str, rk: &str| {
        Entity::new(EntityKey::new(pk, rk).unwrap())
            .with("Email", format!("{pk}{rk}@contoso.com").as_str())
    };
    site.write(
        "Employees",
        &[entity("Sales", "1"), entity("Marketing", "1")],
    );
    site.with(async |account| {
        let container = ContainerName::new("photos").unwrap();
        account.blobs.create_container(&container).await.unwrap();
        for name in ["a.png", "b.png"] {
            account
                .blobs
                .put(
                    &container,
                    &BlobName::new(name).unwrap(),
                    Bytes::from("photo"),
                    &BlobUpload::default(),
                )
                .await
                .unwrap();
        }
    });
    site
}

fn sign(site: &Site, arguments: &[&str]) -> (String, String) {
    let ended = site.command(&[&["--json", "sas"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    let said: Value = serde_json::from_str(&ended.out).unwrap();
    let part = |name: &str| said[name].as_str().unwrap().to_owned();
    assert!(
        ended.err.contains("audit: shared access signature issued") && !ended.err.contains("sig="),
        "{}",
        ended.err
    );
    (part("url"), part("token"))
}

fn allowed<'a>(site: &Site, address: &(String, String), tries: &[&'a str]) -> Vec<&'a str> {
    let (url, token) = address;
    let attempts: Vec<Value> = tries
        .iter()
        .map(|one| json!({"at": format!("{url}?{token}"), "try": one, "pk": "Sales", "rk": if *one == "insert" { "9" } else { "1" }}))
        .collect();
    let outcomes = python_with(
        site.ports(),
        "use_sas.py",
        &[],
        &Value::from(attempts).to_string(),
    );
    let outcomes: Vec<&str> = outcomes.lines().collect();
    assert_eq!(outcomes.len(), tries.len(), "{outcomes:?}");
    assert!(
        outcomes
            .iter()
            .all(|outcome| *outcome == "ok" || outcome.starts_with("403 ")),
        "{tries:?}: {outcomes:?}"
    );
    tries
        .iter()
        .zip(outcomes)
        .filter(|(_, outcome)| *outcome == "ok")
        .map(|(one, _)| *one)
        .collect()
}

const ROWS: [&str; 6] = ["get", "query", "insert", "update", "remove", "drop"];
const BLOB: [&str; 4] = ["read", "upload", "overwrite", "delete"];
const QUEUE: [&str; 4] = ["send", "receive", "peek", "clear"];

#[test]
fn a_signature_opens_the_declared_rows_with_the_declared_rights_and_nothing_else() {
    let site = site();
    let staff = sign(&site, &["staff"]);
    assert_eq!(allowed(&site, &staff, &ROWS), ["get", "query"]);
    let elsewhere = (
        staff.0.replace("Employees", "EmployeesByEmail"),
        staff.1.clone(),
    );
    assert_eq!(allowed(&site, &elsewhere, &ROWS), [""; 0]);
    for (part, forged) in [("sp=r", "sp=raud"), ("se=20", "se=21"), ("sig=", "sig=A")] {
        let forged = (staff.0.clone(), staff.1.replacen(part, forged, 1));
        assert_ne!(forged.1, staff.1);
        assert_eq!(allowed(&site, &forged, &ROWS), [""; 0], "{part}");
    }
    assert_eq!(
        allowed(&site, &sign(&site, &["hiring"]), &ROWS),
        ["insert", "update"]
    );
    // Azurite checks that a key range is signed, but does not check that a row is within the range.
    for arguments in [
        &["sales"][..],
        &["sales", "--rk-from", "2", "--rk-to", "3"],
        &["staff", "--pk", "Sales"],
    ] {
        let range = sign(&site, arguments);
        assert_eq!(
            allowed(&site, &range, &ROWS),
            ["get", "query"],
            "{arguments:?}"
        );
        let wider = (range.0.clone(), range.1.replace("epk=Sales", "epk=Tales"));
        assert_ne!(wider.1, range.1);
        assert_eq!(allowed(&site, &wider, &ROWS), [""; 0], "{arguments:?}");
    }
}

#[test]
fn a_signature_opens_the_declared_blobs_and_a_create_only_one_is_good_for_one_upload() {
    let site = site();
    let one = sign(&site, &["photos", "--blob", "a.png"]);
    assert_eq!(allowed(&site, &one, &BLOB), ["read"]);
    let other = (one.0.replace("a.png", "b.png"), one.1.clone());
    assert_eq!(allowed(&site, &other, &BLOB), [""; 0]);
    let container = (one.0.replace("/a.png", ""), one.1.clone());
    assert_eq!(allowed(&site, &container, &["list"]), [""; 0]);
    assert_eq!(
        allowed(&site, &sign(&site, &["album"]), &["list"]),
        ["list"]
    );
    assert_eq!(
        allowed(&site, &sign(&site, &["photos"]), &["list"]),
        [""; 0]
    );
    let upload = sign(&site, &["upload", "--blob", "new/photo.png"]);
    assert_eq!(allowed(&site, &upload, &BLOB), ["upload"]);
    let beside = (upload.0.replace("new/photo.png", "c.png"), upload.1.clone());
    assert_eq!(allowed(&site, &beside, &BLOB), [""; 0]);
}

#[test]
fn a_sender_may_send_and_nothing_else() {
    let site = site();
    let sender = sign(&site, &["sender"]);
    assert_eq!(allowed(&site, &sender, &QUEUE), ["send"]);
    let poison = (format!("{}-poison", sender.0), sender.1.clone());
    assert_eq!(allowed(&site, &poison, &QUEUE), [""; 0]);
}

#[test]
fn more_than_is_declared_is_refused_and_so_is_an_account_without_a_key() {
    let site = site();
    for (arguments, said) in [
        (&["staf"][..], "did you mean staff?"),
        (
            &["staff", "--valid", "31m"],
            "--valid exceeds what [sas.staff] allows",
        ),
        (
            &["sales", "--pk", "Marketing"],
            "--pk exceeds what [sas.sales] allows",
        ),
        (&["sales", "--rk-to", "6"], "--rk-to exceeds"),
        (&["staff", "--rk-to", "6"], "Give it with --pk"),
        (
            &["sender", "--blob", "x"],
            "--blob does not apply to the target of [sas.sender]",
        ),
    ] {
        let ended = site.command(&[&["sas"], arguments].concat());
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (2, ""),
            "{arguments:?}: {}",
            ended.err
        );
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    let text = site.command(&["sas", "staff"]);
    assert!(
        text.out.starts_with("http://127.0.0.1:")
            && text.out.contains("/Employees?sv=")
            && text.out.lines().count() == 1,
        "{}",
        text.out
    );
    let ports = site.ports();
    let endpoints = format!(
        "endpoints.table = \"http://127.0.0.1:{}/c\"\nendpoints.queue = \"http://127.0.0.1:{}/c\"\nendpoints.blob = \"http://127.0.0.1:{}/c\"\n",
        ports.table, ports.queue, ports.blob
    );
    site.declare_account(
        &format!("auth = \"entra\"\nname = \"contoso\"\n{endpoints}"),
        GRANTS,
    );
    let ended = site.command(&["sas", "staff"]);
    assert_eq!(ended.code, 2, "{}", ended.err);
    assert!(ended.err.contains("signs for blobs only"), "{}", ended.err);
}
