//! Encrypted properties, from a submitted job to everything derived from it, and how other programs read them.

use evenkeel_model::{ContainerName, EdmValue, QueueName, Row, body};
use evenkeel_storage::{MessageText, Query, all_blobs, all_tables};
use serde_json::{Value, json};

use crate::end_to_end::sdk::{node, python};
use crate::end_to_end::site::{CommandResult, QUEUE, Site};

/// Occurs in every plain value, and in nothing else.
const CANARY: &str = "canary";
const FIRST: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const SECOND: &str = "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";

pub(crate) const CATALOG: &str = r#"
[encryption]
current = "CURRENT"

[encryption.keys.first]
key_file = "first.key"

[encryption.keys.second]
key_file = "second.key"

[tables.Employees]
encrypt = ["Ssn", "Salary"]
hash = { SsnHash = "{Ssn|trim|lower}" }

[views.by_ssn]
kind = "secondary_index"
source = "Employees"
table = "EmployeesBySsn"
partition_key = "ssn_{SsnHash|hash:2}"
row_key = "{SsnHash}"
select = ["Email"]
on_conflict = "reject"

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
on_conflict = "reject"

[views.beside]
kind = "secondary_index"
source = "Employees"
table = "Employees"
partition_key = "{PartitionKey}"
row_key = "email_{Email|lower}"
on_conflict = "reject"

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }

[archives.documents]
source = "Employees"
to = { kind = "blob", container = "documents" }

[archives.log]
source = "Employees"
to = { kind = "append_blob", container = "lines" }
"#;

const FORMER_COPIES: &str = r#"
[views.former_by_email]
kind = "secondary_index"
source = "FormerEmployees"
table = "FormerByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
on_conflict = "reject"
"#;

pub(crate) fn declare(site: &Site, current: &str) {
    declare_text(site, &CATALOG.replace("CURRENT", current));
}

pub(crate) fn declare_text(site: &Site, catalog: &str) {
    for (name, key) in [("first.key", FIRST), ("second.key", SECOND)] {
        std::fs::write(site.file(name), key).unwrap();
    }
    site.declare(catalog);
}

pub(crate) fn put(rk: &str) -> Value {
    let entity = json!({"PartitionKey": "Sales", "RowKey": rk, "Email": format!("{rk}@contoso.com"), "Ssn": format!("{CANARY} {rk}"), "Salary": 75_000});
    json!({"op": "put", "table": "Employees", "entity": entity})
}

pub(crate) fn stored(site: &Site) -> String {
    site.with(async |account| {
        let mut all = String::new();
        for table in all_tables(account.tables.as_ref()).await.unwrap() {
            all.extend([format!(
                "{:?}\n",
                account
                    .tables
                    .query(&table, &Query::default())
                    .await
                    .unwrap()
                    .rows
            )]);
        }
        for container in [
            "documents",
            "former-documents",
            "lines",
            "evenkeel-staging",
            "evenkeel-poison",
        ] {
            let container = ContainerName::new(container).unwrap();
            let Ok(blobs) = all_blobs(account.blobs.as_ref(), &container, "").await else {
                continue;
            };
            for blob in blobs {
                let content = account
                    .blobs
                    .get(&container, &blob.name, None)
                    .await
                    .unwrap()
                    .unwrap()
                    .content;
                all.extend([format!(
                    "{} {}\n",
                    blob.name,
                    String::from_utf8_lossy(&content)
                )]);
            }
        }
        for queue in [
            QUEUE.to_owned(),
            format!("{QUEUE}-poison"),
            format!("{QUEUE}-recheck"),
        ] {
            for message in account
                .queues
                .peek(&QueueName::new(queue).unwrap(), 32)
                .await
                .unwrap_or_default()
            {
                let (MessageText::Readable(text) | MessageText::Unreadable { raw: text, .. }) =
                    message.text;
                all += &body::decode(&text).map_or(text, |body| body.text);
            }
        }
        all
    })
}

fn succeeded(ended: &CommandResult) -> Value {
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
}

fn decrypted(site: &Site, arguments: &[&str]) -> Value {
    let ended = site.command(&[&["--json"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(ended.out.lines().next().unwrap()).unwrap()
}

fn is_encrypted(row: &Row) -> bool {
    ["Ssn", "Salary"].iter().all(|name| {
        row.entity
            .text(name)
            .is_some_and(|text| text.starts_with("ek1."))
    })
}

fn values_are_encrypted_wherever_they_go_and_open_where_the_keys_are(site: &Site) {
    declare(site, "first");
    site.migrate();
    site.submit(&[put("1"), put("2"), put("3"), put("4")]);
    assert!(
        !stored(site).contains(CANARY),
        "the client must encrypt what it sends"
    );
    // An application without the keys sends plain values, which the worker encrypts.
    site.put_texts([put("5").to_string().as_str()]);
    let raise = json!({"op": "put", "table": "Employees", "mode": "merge", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Salary": 80_000}});
    assert_eq!(site.run_until_idle(&[]).done, 5);
    site.submit(&[raise]);
    site.submit(&[
        json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "2"}),
        json!({"op": "archive", "archive": "documents", "pk": "Sales", "rk": "3"}),
        json!({"op": "archive", "archive": "log", "pk": "Sales", "rk": "4"}),
        json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "5", "to_pk": "Ops", "to_rk": "5"}),
    ]);
    assert_eq!(site.run_until_idle(&[]).done, 5);
    site.assert_all_done();
    let all = stored(site);
    assert!(!all.contains(CANARY), "{all}");
    assert!(all.contains("ek1."), "the scan must find stored values");
    for (table, pk, rk) in [
        ("Employees", "Sales", "1"),
        ("Employees", "Sales", "email_1@contoso.com"),
        ("EmployeesByEmail", "email_Ops", "5@contoso.com"),
    ] {
        assert!(
            is_encrypted(&site.row(table, pk, rk).unwrap()),
            "{table} {pk} {rk}"
        );
    }

    let own = decrypted(site, &["get", "Employees", "Sales", "1", "--resolve"]);
    assert_eq!(
        (own["Ssn"].as_str(), own["Salary"].as_i64()),
        (Some("canary 1"), Some(80_000))
    );
    let beside = decrypted(
        site,
        &[
            "get",
            "Employees",
            "Sales",
            "email_1@contoso.com",
            "--resolve",
        ],
    );
    assert_eq!(
        beside["Salary"], 80_000,
        "a copy in the same table must be decrypted for its primary"
    );
    let moved = decrypted(
        site,
        &[
            "lookup",
            "by_email",
            "PartitionKey=Ops",
            "Email=5@contoso.com",
            "--select",
            "Ssn",
            "--decrypt",
        ],
    );
    assert_eq!(moved["Ssn"], "canary 5");
    for (archive, rk) in [("former", "2"), ("documents", "3")] {
        let found =
            succeeded(&site.command(&["--json", "find", archive, "Sales", rk, "--decrypt"]));
        assert_eq!(found["entity"]["Ssn"], format!("canary {rk}"), "{archive}");
    }
    assert!(
        site.command(&["get", "Employees", "Sales", "1"])
            .out
            .contains("ek1."),
        "values must be shown as stored by default"
    );
    let value = site.command(&[
        "get",
        "Employees",
        "Sales",
        "1",
        "--property",
        "Ssn",
        "--out",
        "-",
    ]);
    assert_eq!(value.out, "canary 1");
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{} {}", audit.out, audit.err);
    // These properties cannot be used in a condition or a join, wherever they are stored: in the table itself, in
    // copies, in an archive, or in copies of archived entities.
    let text = format!("{}{FORMER_COPIES}", CATALOG.replace("CURRENT", "first"));
    site.declare(&text);
    for place in [
        &["--table", "Employees", "PartitionKey=Sales"][..],
        &["--table", "EmployeesByEmail", "PartitionKey=email_Sales"],
        &["by_email", "PartitionKey=Sales"],
        &["--table", "FormerEmployees", "PartitionKey=Sales"],
        &["former", "PartitionKey=Sales"],
        &["former_by_email", "PartitionKey=Sales"],
    ] {
        let refused = site.command(&[&["lookup"], place, &["--where", "Salary > 3"]].concat());
        assert!(
            refused.code == 2 && refused.err.contains("cannot be used in a condition"),
            "{place:?}: {}",
            refused.err
        );
        let refused = site.command(
            &[
                &["lookup"],
                place,
                &["--with", "Employees={PartitionKey}/{Ssn}"],
            ]
            .concat(),
        );
        assert!(
            refused.code == 2 && refused.err.contains("cannot be used in the keys of a join"),
            "{place:?}: {}",
            refused.err
        );
    }
}

fn an_encrypted_property_is_looked_up_by_its_keyed_hash(site: &Site) {
    declare(site, "first");
    site.migrate();
    site.submit(&[put("1"), put("2")]);
    // The value is normalized before it is hashed, both by a client and by the worker.
    let mut spelled = put("3");
    spelled["entity"]["Ssn"] = json!(" CANARY 3 ");
    site.put_texts([spelled.to_string().as_str()]);
    assert_eq!(site.run_until_idle(&[]).done, 3);
    let found = |ssn: &str| {
        let ended = site.command(&["--json", "lookup", "by_ssn", &format!("Ssn={ssn}")]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let lines: Vec<Value> = ended
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        lines[..lines.len() - 1]
            .iter()
            .map(|row| row["Email"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("canary 1"), ["1@contoso.com"]);
    assert_eq!(found("Canary 3"), ["3@contoso.com"]);
    assert_eq!(found("nobody"), Vec::<String>::new());
    let change = json!({"op": "put", "table": "Employees", "mode": "merge", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Ssn": "canary new"}});
    let away = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "2", "to_pk": "Ops", "to_rk": "2"});
    let mut nothing = put("3");
    nothing["entity"]["Ssn"] = json!("");
    site.submit(&[change, away, nothing]);
    assert_eq!(site.run_until_idle(&[]).done, 3);
    assert_eq!(
        (found("canary 1"), found("canary new")),
        (Vec::new(), vec!["1@contoso.com".to_owned()])
    );
    assert_eq!(
        (found("canary 2"), found("canary 3")),
        (vec!["2@contoso.com".to_owned()], Vec::new())
    );
    assert!(!stored(site).to_lowercase().contains(CANARY));
    for term in ["Ssn^=canary", "Ssn>=canary", "Salary=75000"] {
        let refused = site.command(&["lookup", "by_ssn", term]);
        assert!(
            refused.code == 2 && refused.err.contains("Look it up by its whole value"),
            "{term}: {}",
            refused.err
        );
    }
    // An application may read a complete entity and put it again. A put of a hash without its value is refused.
    let mut read = decrypted(site, &["get", "Employees", "Sales", "1"]);
    read.as_object_mut().unwrap().retain(|name, _| {
        !name.starts_with("ek_") && !name.starts_with("odata") && name != "Timestamp"
    });
    let forged = json!({"op": "put", "table": "Employees", "mode": "merge", "entity": {"PartitionKey": "Sales", "RowKey": "3", "SsnHash": read["SsnHash"]}});
    site.submit(&[
        json!({"op": "put", "table": "Employees", "entity": read}),
        forged,
    ]);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (1, 1));
    assert_eq!(found("canary new"), ["1@contoso.com"]);
    // Lookups find a value of any type, in any notation.
    let mut number = put("4");
    number["entity"]["Ssn"] = json!(7);
    site.submit(&[number]);
    assert_eq!(
        (site.run_until_idle(&[]).done, found("7"), found("007")),
        (
            1,
            vec!["4@contoso.com".to_owned()],
            vec!["4@contoso.com".to_owned()]
        )
    );
    assert_eq!(site.command(&["audit"]).code, 0);
}

#[test]
fn an_encrypted_property_is_looked_up_by_its_keyed_hash_embedded() {
    an_encrypted_property_is_looked_up_by_its_keyed_hash(&Site::embedded(""));
}

#[test]
fn an_encrypted_property_is_looked_up_by_its_keyed_hash_azurite() {
    an_encrypted_property_is_looked_up_by_its_keyed_hash(&Site::azurite(""));
}

/// Checks that no stored data contains a value of an entity that satisfies the condition. Checks that all entities can
/// be found.
fn values_are_encrypted_under_the_condition_of_their_table(site: &Site) {
    const PROTECTED: &str = "canary-eu";
    let of = |rk: &str, region: &str, ssn: &str| {
        let mut job = put(rk);
        job["entity"]["Region"] = json!(region);
        job["entity"]["Ssn"] = json!(ssn);
        job
    };
    let merge = |rk: &str, more: Value| {
        let mut entity = json!({"PartitionKey": "Sales", "RowKey": rk});
        entity
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"op": "put", "table": "Employees", "mode": "merge", "entity": entity})
    };
    declare(site, "first");
    let text = CATALOG
        .replace("CURRENT", "first")
        .replace("hash = {", "when = 'not (Region == \"US\")'\nhash = {");
    site.declare(&text);
    site.migrate();
    site.submit(&[of("1", "EU", "canary-eu 1"), of("2", "US", "canary-us 2")]);
    assert!(
        !stored(site).contains(PROTECTED) && stored(site).contains("canary-us 2"),
        "the client must check the condition, too"
    );
    let sent =
        [of("3", "EU", "canary-eu 3"), of("4", "US", "canary-us 4")].map(|job| job.to_string());
    site.put_texts(sent.iter().map(String::as_str));
    assert_eq!(site.run_until_idle(&[]).done, 4);
    let encrypted = |rk: &str| {
        let row = site.row("Employees", "Sales", rk).unwrap();
        ["Ssn", "Salary"].map(|name| {
            row.entity
                .get(name)
                .is_some_and(evenkeel_storage::encryption::is_encrypted)
        })
    };
    let copied = site
        .row("EmployeesByEmail", "email_Sales", "3@contoso.com")
        .unwrap();
    assert!(
        is_encrypted(&copied) && encrypted("1") == [true; 2] && encrypted("3") == [true; 2],
        "{copied:?}"
    );
    assert_eq!((encrypted("2"), encrypted("4")), ([false; 2], [false; 2]));
    assert!(!stored(site).contains(PROTECTED));
    let found = |ssn: &str| {
        let ended = site.command(&["--json", "lookup", "by_ssn", &format!("Ssn={ssn}")]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let lines: Vec<Value> = ended
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        lines[..lines.len() - 1]
            .iter()
            .map(|row| row["Email"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    for (ssn, rk) in [
        ("canary-eu 1", "1"),
        ("canary-us 2", "2"),
        ("canary-eu 3", "3"),
        ("Canary-US 4", "4"),
    ] {
        assert_eq!(found(ssn), [format!("{rk}@contoso.com")], "{ssn}");
    }

    // Two merges change whether the condition holds: one entity has plain values, and the other has encrypted values.
    // The third merge does not contain the property of the condition, so the client encrypts the salary in that merge.
    site.submit(&[
        merge("2", json!({"Region": "EU"})),
        merge("1", json!({"Region": "US"})),
        merge("4", json!({"Salary": 80_000})),
    ]);
    assert_eq!(site.run_until_idle(&[]).done, 3);
    assert_eq!(
        (encrypted("2"), encrypted("1"), encrypted("4")),
        ([true; 2], [true; 2], [false, true])
    );
    assert!(!stored(site).contains("canary-us 2"), "copies must follow");
    site.submit(&[merge("1", json!({"Region": "US", "Ssn": "canary-us 1"}))]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(encrypted("1"), [false, true]);
    for (rk, ssn, salary) in [
        ("1", "canary-us 1", 75_000),
        ("2", "canary-us 2", 75_000),
        ("4", "canary-us 4", 80_000),
    ] {
        let own = decrypted(site, &["get", "Employees", "Sales", rk, "--resolve"]);
        assert_eq!(
            (own["Ssn"].as_str(), own["Salary"].as_i64()),
            (Some(ssn), Some(salary))
        );
        assert_eq!(found(ssn), [format!("{rk}@contoso.com")], "{ssn}");
    }

    // The poison message of a failed job contains encrypted values if the condition holds.
    let broken = [of("5", "EU", "canary-eu 5"), of("6", "US", "canary-us 6")].map(|mut job| {
        job["mode"] = json!("replace");
        job["newer_by"] = json!("Salary");
        job.to_string()
    });
    site.put_texts(broken.iter().map(String::as_str));
    assert_eq!(site.run_until_idle(&[]).poisoned, 2);
    assert!(!stored(site).contains(PROTECTED) && stored(site).contains("canary-us 6"));

    // The condition holds only under the new configuration. A backfill encrypts nothing, but the next put does.
    site.declare(&CATALOG.replace("CURRENT", "first"));
    site.migrate();
    assert_eq!(site.command(&["backfill", "--table", "Employees"]).code, 0);
    assert_eq!(encrypted("1"), [false, true]);
    site.submit(&[merge("1", json!({"Ssn": "canary-eu 1"}))]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(encrypted("1"), [true; 2]);
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{} {}", audit.out, audit.err);
}

#[test]
fn values_are_encrypted_under_the_condition_of_their_table_embedded() {
    values_are_encrypted_under_the_condition_of_their_table(&Site::embedded(""));
}

#[test]
fn values_are_encrypted_under_the_condition_of_their_table_azurite() {
    values_are_encrypted_under_the_condition_of_their_table(&Site::azurite(""));
}

fn a_message_that_fails_for_good_is_kept_encrypted(site: &Site) {
    declare(site, "first");
    site.migrate();
    let mut unknown = put("1");
    unknown["mode"] = json!("destroy");
    let large = json!({"op": "put", "table": "Employees", "entities": [put("2")["entity"], {"PartitionKey": "Sales", "RowKey": 7, "Ssn": CANARY}]});
    let mut staged = put("3");
    staged["blobs"] = json!({"Salary": {"blob": "evenkeel-staging/none"}});
    staged["entity"].as_object_mut().unwrap().remove("Salary");
    let mut mistyped = put("4");
    mistyped["entity"]["Ssn@odata.type"] = json!("Edm.Int64");
    site.put_texts(
        [unknown, staged, mistyped]
            .map(|job| job.to_string())
            .iter()
            .map(String::as_str),
    );
    let ended = site.command(&["--json", "-vv", "run", "--until-idle=1", "--no-http"]);
    assert!(
        ended.out.contains("\"poisoned\":3"),
        "{} {}",
        ended.out,
        ended.err
    );
    assert!(!ended.err.contains(CANARY), "{}", ended.err);
    let all = stored(site);
    assert!(!all.contains(CANARY) && all.contains("ek1."), "{all}");
    let poison = site.poison();
    assert!(
        poison.len() == 3
            && poison.iter().any(|one| one["error"]
                .to_string()
                .contains("found a string of 8 characters")),
        "{poison:#?}"
    );
    // Poison messages omit values that cannot be encrypted for an entity: the value is too large, the table is
    // misspelled, or the text is not a job.
    let mut misspelt = put("5");
    misspelt["table"] = json!("Employes");
    let cut = put("6").to_string().trim_end_matches('}').to_owned();
    site.put_texts(
        [large.to_string(), misspelt.to_string(), cut]
            .iter()
            .map(String::as_str),
    );
    let ended = site.command(&["--json", "-vv", "run", "--until-idle=1", "--no-http"]);
    assert!(
        ended.out.contains("\"poisoned\":3") && !ended.err.contains(CANARY),
        "{} {}",
        ended.out,
        ended.err
    );
    let all = stored(site);
    assert!(
        !all.contains(CANARY)
            && all.contains("a value of an encrypted property")
            && all.contains("bytes that are not a job"),
        "{all}"
    );
}

fn a_key_is_exchanged_without_a_write_to_any_entity_and_erased_for_good(site: &Site) {
    /// Number of entities, each with a data key. The table has one more data key, for hashes.
    const ENTITIES: usize = 1_050;
    declare(site, "first");
    site.migrate();
    let rks: Vec<Value> = (0..ENTITIES)
        .map(|number| put(&format!("{number:04}")))
        .collect();
    site.submit(&rks);
    assert_eq!(site.run_until_idle(&[]).done, ENTITIES as u64);
    let before = site.rows("Employees");
    declare(site, "second");
    let counted = |site: &Site| -> Vec<(String, u64)> {
        let ended = site.command(&["--json", "keys", "list"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let lines = ended
            .out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|line| {
                (
                    line["key"].as_str().unwrap().to_owned(),
                    line["data_keys"].as_u64().unwrap(),
                )
            })
            .collect()
    };
    assert_eq!(counted(site), [("first".to_owned(), ENTITIES as u64 + 1)]);
    site.submit(&[put("new")]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(
        counted(site),
        [
            ("first".to_owned(), ENTITIES as u64 + 1),
            ("second".to_owned(), 1)
        ]
    );
    let done = succeeded(&site.command(&["--json", "keys", "rewrap"]));
    assert_eq!(
        (
            done["data_keys"].as_u64(),
            done["rewrapped"].as_u64(),
            done["failed"].as_u64()
        ),
        (Some(1_052), Some(1_051), Some(0))
    );
    assert_eq!(
        succeeded(&site.command(&["--json", "keys", "rewrap"]))["rewrapped"],
        0,
        "a second run must have nothing to do"
    );
    assert_eq!(counted(site), [("second".to_owned(), 1_052)]);
    std::fs::remove_file(site.file("first.key")).unwrap();
    site.declare(
        &CATALOG
            .replace("CURRENT", "second")
            .replace("[encryption.keys.first]\nkey_file = \"first.key\"\n", ""),
    );
    let mut after = site.rows("Employees");
    after.retain(|key, _| before.contains_key(key));
    assert_eq!(after, before, "an entity was written");
    assert_eq!(
        decrypted(site, &["get", "Employees", "Sales", "0007", "--resolve"])["Ssn"],
        "canary 0007"
    );

    let asked = site.command(&["keys", "erase", "Employees", "Sales", "0007"]);
    assert!(
        asked.code == 2 && asked.err.contains("--yes"),
        "{}",
        asked.err
    );
    assert_eq!(
        site.command(&["keys", "erase", "employees", "Sales", "0007", "--yes"])
            .code,
        0
    );
    let gone = site.command(&["get", "Employees", "Sales", "0007", "--resolve"]);
    assert!(
        gone.code == 1 && gone.err.contains("the key was erased"),
        "{}",
        gone.err
    );
    assert!(is_encrypted(
        &site.row("Employees", "Sales", "0007").unwrap()
    ));
    site.submit(&[put("0007")]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(
        decrypted(site, &["get", "Employees", "Sales", "0007", "--resolve"])["Ssn"],
        "canary 0007",
        "the entity must have another key"
    );
}

fn without_the_current_key_nothing_starts_and_values_stay_encrypted(site: &Site) {
    declare(site, "first");
    site.migrate();
    site.submit(&[put("1")]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    site.declare(
        &CATALOG
            .replace("CURRENT", "first")
            .replace("key_file = \"first.key\"", "key_env = \"NOWHERE\""),
    );
    let refused = site.command(&["run", "--until-idle=1", "--no-http"]);
    assert!(
        refused.code == 2
            && refused
                .err
                .contains("the current key [encryption.keys.first] is not set"),
        "{}",
        refused.err
    );
    let encrypted = site.command(&["get", "Employees", "Sales", "1", "--resolve"]);
    assert!(
        encrypted.code == 0
            && encrypted.out.contains("ek1.")
            && encrypted.err.contains("not decrypted: Salary, Ssn"),
        "{}",
        encrypted.err
    );
    for file in ["ssn.txt", "-"] {
        let value = site.command(&[
            "get",
            "Employees",
            "Sales",
            "1",
            "--property",
            "Ssn",
            "--out",
            file,
        ]);
        assert!(
            value.code == 1 && value.out.is_empty() && value.err.contains("could not decrypt Ssn"),
            "{file}: {} {}",
            value.out,
            value.err
        );
    }
    assert!(!site.file("ssn.txt").exists() && !site.file("ssn.txt.partial").exists());
}

#[test]
fn values_are_encrypted_wherever_they_go_and_open_where_the_keys_are_embedded() {
    values_are_encrypted_wherever_they_go_and_open_where_the_keys_are(&Site::embedded(""));
}

#[test]
fn values_are_encrypted_wherever_they_go_and_open_where_the_keys_are_azurite() {
    values_are_encrypted_wherever_they_go_and_open_where_the_keys_are(&Site::azurite(""));
}

#[test]
fn a_message_that_fails_for_good_is_kept_encrypted_embedded() {
    a_message_that_fails_for_good_is_kept_encrypted(&Site::embedded(""));
}

#[test]
fn a_message_that_fails_for_good_is_kept_encrypted_azurite() {
    a_message_that_fails_for_good_is_kept_encrypted(&Site::azurite(""));
}

#[test]
fn a_key_is_exchanged_without_a_write_to_any_entity_and_erased_for_good_embedded() {
    a_key_is_exchanged_without_a_write_to_any_entity_and_erased_for_good(&Site::embedded(""));
}

#[test]
fn a_key_is_exchanged_without_a_write_to_any_entity_and_erased_for_good_azurite() {
    a_key_is_exchanged_without_a_write_to_any_entity_and_erased_for_good(&Site::azurite(""));
}

#[test]
fn without_the_current_key_nothing_starts_and_values_stay_encrypted_embedded() {
    without_the_current_key_nothing_starts_and_values_stay_encrypted(&Site::embedded(""));
}

#[test]
fn python_and_node_read_encrypted_values_with_the_official_sdks() {
    let site = Site::azurite("");
    declare(&site, "first");
    site.migrate();
    let mut staff = put("000223");
    staff["entity"]["Ssn"] = json!("비밀 😀");
    site.submit(&[staff]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    let key = format!("first={FIRST}");
    let arguments = [
        "--table",
        "Employees",
        "--pk",
        "Sales",
        "--rk",
        "000223",
        "--key",
        &key,
        "Ssn",
        "Salary",
    ];
    let expected = json!({"Ssn": {"v": "비밀 😀"}, "Salary": {"v": 75_000}});
    for (sdk, printed) in [
        (
            "Python",
            python(site.ports(), "read_encrypted.py", &arguments),
        ),
        (
            "Node.js",
            node(site.ports(), "read_encrypted.mjs", &arguments),
        ),
    ] {
        assert_eq!(
            serde_json::from_str::<Value>(&printed).unwrap(),
            expected,
            "{sdk}"
        );
    }
    let row = site.row("Employees", "Sales", "000223").unwrap();
    assert!(matches!(
        row.entity.get("Salary"),
        Some(EdmValue::String(_))
    ));
}
