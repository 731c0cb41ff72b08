//! Encrypted properties under every disturbance: a plain value is never written, and a value can be decrypted only for
//! the entity that it was encrypted for.

use std::collections::BTreeSet;

use evenkeel_account::company::{self, BLOB_ARCHIVE, CONTAINER, LOG_ARCHIVE};
use evenkeel_engine::{EncryptBodies as _, FailureClass, Outcome};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::condition::Condition;
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_model::template::Template;
use evenkeel_model::{ContainerName, EdmValue, Entity, EntityKey, Job, QueueName};
use evenkeel_storage::encryption::{
    DataKeys, PREFIX, PropertyAddress, is_encrypted, table as keys_table,
};
use evenkeel_storage::{MessageText, Query, TableOperation, all_blobs, all_tables};
use serde_json::{Value, json};

use crate::protocol::oracle;
use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Lab, SMALL, job, table, vault};

/// Occurs in every plain value, and in nothing else.
pub(crate) const CANARY: &str = "canary";

fn catalog() -> Catalog {
    let mut catalog = company::catalog(SMALL);
    let employees = catalog.tables[&table("Employees")].clone();
    let hash = Template::parse_text("{Ssn|lower}").unwrap();
    catalog
        .hashed
        .insert(employees.clone(), [("SsnHash".to_owned(), hash)].into());
    catalog.encrypted.insert(
        employees,
        BTreeSet::from(["Phone".to_owned(), "Salary".to_owned(), "Ssn".to_owned()]),
    );
    catalog
}

pub(crate) fn lab() -> Lab {
    Lab::with(SMALL, catalog())
}

pub(crate) fn put(rk: &str, ssn: &str, mode: &str) -> Value {
    let entity = json!({
        "PartitionKey": "Sales", "RowKey": rk, "FirstName": "Ada", "LastName": "King", "Email": format!("{rk}@contoso.com"),
        "Ssn": format!("{CANARY} {ssn}"), "Salary": 75_000
    });
    json!({"op": "put", "table": "Employees", "entity": entity, "mode": mode})
}

fn on(archive: &str, op: &str) -> Job {
    job(&json!({"op": op, "archive": archive, "pk": "Sales", "rk": "1"}))
}

pub(crate) fn primary(table_name: &str, pk: &str, rk: &str) -> Primary {
    Primary {
        table: table(table_name),
        key: EntityKey::new(pk, rk).unwrap(),
    }
}

pub(crate) async fn decrypted(
    lab: &Lab,
    stored: &Entity,
    home: &Primary,
    property: &str,
) -> EdmValue {
    let vault = vault();
    let keys = DataKeys {
        tables: lab.account.tables.as_ref(),
        vault: vault.as_ref(),
    };
    let key = keys.find(home).await.unwrap().expect("a data key");
    key.decrypt(
        PropertyAddress { home, property },
        stored.text(property).expect("an encrypted value"),
    )
    .unwrap()
}

async fn stored(lab: &Lab) -> String {
    let mut all = String::new();
    for table in all_tables(lab.account.tables.as_ref()).await.unwrap() {
        all.extend([format!(
            "{:?}",
            lab.account
                .tables
                .query(&table, &Query::default())
                .await
                .unwrap()
                .rows
        )]);
    }
    let container = ContainerName::new(CONTAINER).unwrap();
    for blob in all_blobs(lab.account.blobs.as_ref(), &container, "")
        .await
        .unwrap()
    {
        let content = lab
            .account
            .blobs
            .get(&container, &blob.name, None)
            .await
            .unwrap()
            .unwrap()
            .content;
        all.extend([format!(
            "{} {}",
            blob.name,
            String::from_utf8_lossy(&content)
        )]);
    }
    for queue in ["jobs", "jobs-recheck"] {
        let queue = QueueName::new(queue).unwrap();
        for message in lab.account.queues.peek(&queue, 32).await.unwrap() {
            let (MessageText::Readable(text) | MessageText::Unreadable { raw: text, .. }) =
                message.text;
            all += &text;
        }
    }
    all
}

type Story = (&'static str, fn() -> Vec<Job>);

const STORIES: [Story; 6] = [
    ("put", || vec![job(&put("1", "a", "replace"))]),
    ("put again", || {
        vec![
            job(&put("1", "a", "replace")),
            job(&put("1", "b", "replace")),
        ]
    }),
    ("merge", || {
        vec![job(&put("1", "a", "replace")), job(&put("1", "b", "merge"))]
    }),
    ("move", || {
        let away = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "7"});
        vec![job(&put("1", "a", "replace")), job(&away)]
    }),
    ("archive", || {
        vec![job(&put("1", "a", "replace")), on("former", "archive")]
    }),
    ("restore", || {
        vec![
            job(&put("1", "a", "replace")),
            on("former", "archive"),
            on("former", "restore"),
        ]
    }),
];

/// Disturbs the last of these jobs at every operation, and checks the result of each run. Returns the number of runs.
async fn swept(
    name: &str,
    new: impl Fn() -> Lab,
    jobs: &[Job],
    look: impl AsyncFn(&Lab, &str),
) -> u32 {
    let (last, before) = jobs.split_last().unwrap();
    let prepared = async || {
        let lab = new();
        for job in before {
            lab.work(job).await.unwrap();
        }
        lab
    };
    let mut sweep = Sweep::over(prepared().await.operations_of(last).await);
    while let Some(case) = sweep.next() {
        let what = format!("{name}, {case}");
        let lab = prepared().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(last).await;
        sweep.seen(&lab);
        lab.faults.calm();
        lab.finish().await;
        oracle::check(&lab, &what).await;
        look(&lab, &what).await;
    }
    sweep.runs().0
}

#[tokio::test]
async fn whatever_disturbs_a_job_its_values_are_encrypted_and_open_where_the_entity_is() {
    let mut runs = 0;
    for (name, jobs) in STORIES {
        let jobs = jobs();
        runs += swept(name, lab, &jobs, async |lab, what| {
            let (at, home) = match name {
                "move" => (
                    primary("Employees", "Ops", "7"),
                    primary("Employees", "Ops", "7"),
                ),
                "archive" => (
                    primary("FormerEmployees", "Sales", "1"),
                    primary("Employees", "Sales", "1"),
                ),
                _ => (
                    primary("Employees", "Sales", "1"),
                    primary("Employees", "Sales", "1"),
                ),
            };
            let row = lab
                .read(at.table.as_str(), at.key.pk.as_str(), at.key.rk.as_str())
                .await
                .expect(what);
            let ssn = if jobs.len() == 2 && ["put again", "merge"].contains(&name) {
                "b"
            } else {
                "a"
            };
            assert_eq!(
                decrypted(lab, &row.entity, &home, "Ssn").await,
                EdmValue::from(format!("{CANARY} {ssn}").as_str()),
                "{what}"
            );
            assert_eq!(
                decrypted(lab, &row.entity, &home, "Salary").await,
                EdmValue::from(75_000),
                "{what}"
            );
            let vault = vault();
            let keys = DataKeys {
                tables: lab.account.tables.as_ref(),
                vault: vault.as_ref(),
            };
            let hash = keys
                .of_hashes(&table("EMPLOYEES"))
                .await
                .unwrap()
                .hash("SsnHash", &format!("{CANARY} {ssn}"));
            assert_eq!(row.entity.text("SsnHash"), Some(hash.as_str()), "{what}");
            assert!(!stored(lab).await.contains(CANARY), "{what}");
        })
        .await;
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all stories"
    );
}

fn conditional() -> Lab {
    let mut catalog = catalog();
    let employees = catalog.tables[&table("Employees")].clone();
    catalog.encrypted_when.insert(
        employees,
        Condition::parse("Region == \"EU\" or PartitionKey == \"Secret\"").unwrap(),
    );
    Lab::with(SMALL, catalog)
}

fn of(region: Option<&str>, mode: &str, more: &Value) -> Job {
    let mut entity = json!({"PartitionKey": "Sales", "RowKey": "1"});
    entity
        .as_object_mut()
        .unwrap()
        .extend(region.map(|region| ("Region".to_owned(), json!(region))));
    entity
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    job(&json!({"op": "put", "table": "Employees", "entity": entity, "mode": mode}))
}

fn moved(pk: &str) -> Job {
    job(
        &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": pk, "to_rk": "1"}),
    )
}

/// A name, the jobs (only the last one is disturbed), the final partition, and whether `Ssn` and `Salary` are encrypted
/// at the end.
type Conditional = (&'static str, fn() -> Vec<Job>, &'static str, [bool; 2]);

const CONDITIONAL: [Conditional; 9] = [
    (
        "the condition holds",
        || vec![of(Some("EU"), "replace", &whole())],
        "Sales",
        [true, true],
    ),
    (
        "the condition does not hold",
        || vec![of(Some("US"), "replace", &whole())],
        "Sales",
        [false, false],
    ),
    (
        "the condition begins to hold",
        || {
            vec![
                of(Some("US"), "replace", &whole()),
                of(Some("EU"), "merge", &json!({})),
            ]
        },
        "Sales",
        [true, true],
    ),
    (
        "the condition begins to hold, with another value",
        || {
            vec![
                of(
                    Some("US"),
                    "replace",
                    &json!({"Ssn": "canary old", "Salary": 75_000}),
                ),
                of(Some("EU"), "merge", &json!({"Ssn": "canary a"})),
            ]
        },
        "Sales",
        [true, true],
    ),
    (
        "the condition holds for the stored entity",
        || {
            vec![
                of(Some("EU"), "replace", &whole()),
                of(None, "merge", &whole()),
            ]
        },
        "Sales",
        [true, true],
    ),
    (
        "the condition no longer holds",
        || {
            vec![
                of(Some("EU"), "replace", &whole()),
                of(Some("US"), "merge", &json!({})),
            ]
        },
        "Sales",
        [true, true],
    ),
    (
        "the condition no longer holds, with another value",
        || {
            vec![
                of(Some("EU"), "replace", &whole()),
                of(Some("US"), "merge", &json!({"Ssn": "canary a"})),
            ]
        },
        "Sales",
        [false, true],
    ),
    (
        "a move to a key where the condition holds",
        || vec![of(Some("US"), "replace", &whole()), moved("Secret")],
        "Secret",
        [true, true],
    ),
    (
        "a move to a key where the condition does not hold",
        || {
            vec![
                of(Some("EU"), "replace", &whole()),
                of(Some("US"), "merge", &json!({})),
                moved("Ops"),
            ]
        },
        "Ops",
        [true, true],
    ),
];

fn whole() -> Value {
    json!({"Email": "1@contoso.com", "Ssn": "canary a", "Salary": 75_000})
}

#[tokio::test]
async fn a_value_is_encrypted_when_its_entity_meets_the_condition_whatever_disturbs_the_job() {
    let mut runs = 0;
    for (name, jobs, pk, encrypted) in CONDITIONAL {
        runs += swept(name, conditional, &jobs(), async |lab, what| {
            let home = primary("Employees", pk, "1");
            let row = lab.read("Employees", pk, "1").await.expect(what);
            for (property, value, encrypted) in [
                ("Ssn", EdmValue::from("canary a"), encrypted[0]),
                ("Salary", EdmValue::from(75_000), encrypted[1]),
            ] {
                let found = row.entity.get(property).expect(what);
                assert_eq!(is_encrypted(found), encrypted, "{what}: {property}");
                let found = if encrypted {
                    decrypted(lab, &row.entity, &home, property).await
                } else {
                    found.clone()
                };
                assert_eq!(found, value, "{what}: {property}");
            }
            let vault = vault();
            let keys = DataKeys {
                tables: lab.account.tables.as_ref(),
                vault: vault.as_ref(),
            };
            let hash = keys
                .of_hashes(&table("Employees"))
                .await
                .unwrap()
                .hash("SsnHash", "canary a");
            assert_eq!(row.entity.text("SsnHash"), Some(hash.as_str()), "{what}");
            assert_eq!(stored(lab).await.contains(CANARY), !encrypted[0], "{what}");
        })
        .await;
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all stories"
    );
}

#[tokio::test]
async fn a_condition_costs_a_data_key_only_where_it_holds_and_is_judged_again_in_each_round() {
    let (lab, without) = (conditional(), Lab::with(SMALL, company::catalog(SMALL)));
    let no_hash = of(
        Some("US"),
        "replace",
        &json!({"Email": "1@contoso.com", "Salary": 75_000}),
    );
    lab.work(&of(Some("US"), "replace", &whole()))
        .await
        .unwrap();
    without
        .work(&of(Some("US"), "replace", &whole()))
        .await
        .unwrap();
    assert_eq!(
        lab.operations_of(&no_hash).await,
        without.operations_of(&no_hash).await,
        "no data key may be read"
    );

    // Two jobs run at the same time, in either order. One job writes the region. Whether the other job's values are
    // encrypted depends on the region.
    for region_first in [false, true] {
        let lab = conditional();
        lab.work(&of(Some("US"), "replace", &whole()))
            .await
            .unwrap();
        let mut jobs = [
            of(None, "merge", &json!({"Salary": 80_000})),
            of(Some("EU"), "merge", &json!({})),
        ];
        if region_first {
            jobs.reverse();
        }
        let (one, other) = tokio::join!(lab.work(&jobs[0]), lab.work(&jobs[1]));
        one.unwrap();
        other.unwrap();
        let row = lab.read("Employees", "Sales", "1").await.unwrap();
        assert_eq!(
            decrypted(
                &lab,
                &row.entity,
                &primary("Employees", "Sales", "1"),
                "Salary"
            )
            .await,
            EdmValue::from(80_000),
            "{region_first}"
        );
        assert!(is_encrypted(row.entity.get("Ssn").unwrap()));
    }
}

#[tokio::test]
async fn copies_documents_and_lines_have_the_encrypted_value_of_their_primary() {
    let lab = lab();
    lab.work(&job(&put("1", "a", "replace"))).await.unwrap();
    let ssn = lab
        .read("Employees", "Sales", "1")
        .await
        .unwrap()
        .entity
        .text("Ssn")
        .unwrap()
        .to_owned();
    assert!(ssn.starts_with(PREFIX));
    lab.work(&on(BLOB_ARCHIVE, "archive")).await.unwrap();
    lab.finish().await;
    assert_eq!(
        lab.document("1").await.unwrap().text("Ssn"),
        Some(ssn.as_str())
    );
    lab.work(&job(&put("1", "a", "replace"))).await.unwrap();
    let again = lab.read("Employees", "Sales", "1").await.unwrap();
    assert_eq!(
        again.entity.text("Ssn"),
        Some(ssn.as_str()),
        "the same value in the same place must have the same ciphertext"
    );
    lab.work(&on(LOG_ARCHIVE, "archive")).await.unwrap();
    lab.finish().await;
    assert_eq!(lab.lines().await[0]["Ssn"], ssn.as_str());
    assert!(!stored(&lab).await.contains(CANARY));
}

async fn refused(lab: &Lab, job: &Job) -> String {
    let before = stored(lab).await;
    let failure = lab.work(job).await.unwrap_err();
    assert_eq!(
        failure.class,
        FailureClass::Permanent,
        "{}",
        failure.chain()
    );
    assert_eq!(stored(lab).await, before, "something was written");
    failure.chain()
}

#[tokio::test]
async fn a_value_of_another_entity_or_one_that_was_cut_off_is_refused_and_nothing_is_overwritten() {
    let lab = lab();
    for rk in ["1", "2"] {
        lab.work(&job(&put(rk, rk, "replace"))).await.unwrap();
    }
    let own = lab
        .read("Employees", "Sales", "1")
        .await
        .unwrap()
        .entity
        .text("Ssn")
        .unwrap()
        .to_owned();
    let other = lab
        .read("Employees", "Sales", "2")
        .await
        .unwrap()
        .entity
        .text("Ssn")
        .unwrap()
        .to_owned();
    let cut = own[..own.len() - 3].to_owned();
    for (property, value) in [
        ("Ssn", other.as_str()),
        ("Phone", &own),
        ("Ssn", &cut),
        ("Ssn", "ek1."),
        ("Ssn", "ek1.§"),
    ] {
        let mut forged = put("1", "1", "merge");
        forged["entity"][property] = json!(value);
        let problem = refused(&lab, &job(&forged)).await;
        assert!(
            problem.contains(&format!("{property:?} of Employees(\"Sales\", \"1\")")),
            "{problem}"
        );
    }
    let mut same = put("1", "1", "merge");
    same["entity"]["Ssn"] = json!(own);
    lab.work(&job(&same)).await.unwrap();
    assert_eq!(
        lab.read("Employees", "Sales", "1")
            .await
            .unwrap()
            .entity
            .text("Ssn"),
        Some(own.as_str())
    );
}

#[tokio::test]
async fn what_cannot_be_kept_encrypted_is_refused_with_the_reason() {
    let lab = lab();
    lab.work(&job(&put("1", "a", "replace"))).await.unwrap();
    let mut staged = put("1", "a", "merge");
    staged["entity"].as_object_mut().unwrap().remove("Ssn");
    staged["blobs"] = json!({"Ssn": {"blob": "evenkeel-staging/a"}});
    assert!(
        refused(&lab, &job(&staged))
            .await
            .contains("is plain text in the staged blob")
    );
    let mut newer = put("1", "a", "merge");
    newer["newer_by"] = json!("Salary");
    assert!(
        refused(&lab, &job(&newer))
            .await
            .contains("Encrypted values have no order")
    );
    let mut long = put("1", "a", "merge");
    long["entity"]["Phone"] = json!("1".repeat(30_000));
    assert!(
        refused(&lab, &job(&long))
            .await
            .contains("characters when encrypted")
    );
    let away = json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_table": "FormerEmployees", "to_pk": "Sales", "to_rk": "1"});
    assert!(
        refused(&lab, &job(&away))
            .await
            .contains("expected encrypt")
    );
}

#[tokio::test]
async fn an_erased_or_damaged_data_key_is_an_error_with_its_entity_and_writes_nothing() {
    let lab = lab();
    let (home, away) = (
        primary("Employees", "Sales", "1"),
        json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_rk": "9", "to_pk": "Sales"}),
    );
    lab.work(&job(&put("1", "a", "replace"))).await.unwrap();
    let mut rows = lab
        .account
        .tables
        .query(&keys_table(), &Query::default())
        .await
        .unwrap()
        .rows
        .into_iter();
    let row = rows
        .find(|row| row.entity.key.pk.as_str().contains('~'))
        .unwrap()
        .entity;
    for (damaged, problem) in [
        (row.clone().with("WrappedKey", "AAAA"), "cannot unwrap"),
        (
            row.clone().with("WrappedKey", 7),
            "is not as evenkeel writes it",
        ),
    ] {
        lab.account
            .tables
            .apply(&keys_table(), &TableOperation::InsertOrReplace(damaged))
            .await
            .unwrap();
        assert!(
            refused(&lab, &job(&put("1", "b", "replace")))
                .await
                .contains(problem)
        );
        assert!(refused(&lab, &job(&away)).await.contains(problem));
    }
    // A missing key is a mistake of the configuration and not of the job, so the job's message waits.
    lab.account
        .tables
        .apply(
            &keys_table(),
            &TableOperation::InsertOrReplace(row.with("KeyId", "lost")),
        )
        .await
        .unwrap();
    let failure = lab.work(&job(&put("1", "b", "replace"))).await.unwrap_err();
    assert!(
        matches!(failure.class, FailureClass::Withheld { .. }),
        "{}",
        failure.chain()
    );
    assert!(
        failure.chain().contains("[encryption.keys.lost]"),
        "{}",
        failure.chain()
    );
    let vault = vault();
    let keys = DataKeys {
        tables: lab.account.tables.as_ref(),
        vault: vault.as_ref(),
    };
    let version = keys.version(&home).await.unwrap().unwrap();
    assert!(
        keys.erase(&home, version.clone()).await.unwrap()
            && !keys.erase(&home, version).await.unwrap()
    );
    assert!(
        refused(&lab, &job(&away))
            .await
            .contains("the key was erased")
    );
}

#[tokio::test]
async fn an_entity_that_says_nothing_of_encrypted_properties_costs_nothing_more() {
    let plain = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Email": "a@b"}});
    let (with, without) = (lab(), Lab::with(SMALL, company::catalog(SMALL)));
    let both = [
        with.operations_of(&job(&plain)).await,
        without.operations_of(&job(&plain)).await,
    ];
    assert_eq!(both[0], both[1]);
    let Ok(Outcome::Done(_)) = with.work(&job(&put("2", "a", "replace"))).await else {
        panic!("not done")
    };
    let mut again = put("2", "b", "replace");
    let (encrypted, plain) = (with.operations_of(&job(&again)).await, {
        again["entity"]["RowKey"] = json!("2");
        without.work(&job(&put("2", "a", "replace"))).await.unwrap();
        without.operations_of(&job(&again)).await
    });
    assert_eq!(encrypted, plain + 1, "the data key must be read once");
    let new = job(&put("3", "a", "replace"));
    let both = [
        with.operations_of(&new).await,
        without.operations_of(&new).await,
    ];
    assert_eq!(
        both[0],
        both[1] + 2,
        "the data key of an absent entity is generated without a read, and renewed when the entity exists"
    );
    let gone = job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "3"}));
    with.work(&gone).await.unwrap();
    without.work(&gone).await.unwrap();
    let both = [
        with.operations_of(&new).await,
        without.operations_of(&new).await,
    ];
    assert_eq!(
        both[0],
        both[1] + 4,
        "an entity that existed before has a data key: the generated one is discarded, and the key is renewed before and after the entity exists"
    );
}

#[tokio::test]
async fn the_digest_of_a_job_is_keyed_where_values_are_encrypted_and_the_same_for_every_worker() {
    let mut said = put("1", "a", "replace");
    said["id"] = json!("hired");
    let written = async |lab: &Lab| {
        Stamp::of(&lab.read("Employees", "Sales", "1").await.unwrap().entity).unwrap()
    };
    let (lab, plain) = (lab(), Lab::with(SMALL, company::catalog(SMALL)));
    let message = lab.message(&said);
    lab.run(&message).await.unwrap();
    let first = written(&lab).await;
    assert_eq!(first.message_id, message.1.stamp.message_id);
    assert!(
        first.job.is_some() && first.job != message.1.stamp.job,
        "a value must not be found by trying hashes: {first}"
    );
    let restarted = lab.of_a_restarted_worker();
    restarted.run(&restarted.message(&said)).await.unwrap();
    assert_eq!(
        written(&lab).await,
        first,
        "the key must be found, and written once"
    );
    let message = plain.message(&said);
    plain.run(&message).await.unwrap();
    assert_eq!(
        written(&plain).await.job,
        message.1.stamp.job,
        "without encrypted properties there is no key"
    );
}

#[tokio::test]
async fn bodies_for_people_are_encrypted_whatever_else_is_wrong_with_them() {
    let lab = lab();
    let mut body = put("1", "a", "no mode");
    body["entity"]["Phone"] = json!("ek1.forged");
    let encrypted = lab
        .engine
        .encrypt_body(&body.to_string())
        .await
        .unwrap()
        .expect("it has plain values");
    assert!(
        !encrypted.contains(CANARY)
            && !encrypted.contains("ek1.forged")
            && encrypted.contains(r#""RowKey":"1""#),
        "{encrypted}"
    );
    let batch = json!({"op": "put", "table": "EMPLOYEES", "entities": [body["entity"], {"PartitionKey": "Sales", "RowKey": "2", "Ssn": CANARY}]});
    assert!(
        !lab.engine
            .encrypt_body(&batch.to_string())
            .await
            .unwrap()
            .unwrap()
            .contains(CANARY)
    );
    let plain = json!({"op": "sync", "table": "Employees", "pk": "a", "rk": "b"}).to_string();
    assert_eq!(lab.engine.encrypt_body(&plain).await.unwrap(), None);
    let text = lab.engine.encrypt_body("no job").await.unwrap();
    assert_eq!(
        text.as_deref(),
        Some(r#"{"withheld":"6 bytes that are not a job"}"#)
    );
}
