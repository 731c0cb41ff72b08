//! Wide entities: an entity with hundreds of properties and more than 1 MiB is stored in several rows.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{EdmValue, Entity, EntityKey, Job, TableName};
use evenkeel_storage::{IfMatch, TableOperation};
use serde_json::{Map, Value, json};

use crate::patterns::site::{Site, key};

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Surveys§]
wide = true

[tables.Surveys2§]
wide = true

[tables.Former§]
wide = true

[tables.Plain§]

[views.by_mail]
kind = "secondary_index"
source = "Surveys§"
table = "ByMail§"
partition_key = "mail"
row_key = "{Mail|lower}"
select = ["Mail", "Q0299"]
on_conflict = "reject"

[views.near]
kind = "secondary_index"
source = "Surveys§"
table = "Surveys§"
partition_key = "{PartitionKey}"
row_key = "mail_{Mail|lower}_{RowKey}"
select = []

[views.answered]
kind = "aggregate"
source = "Surveys§"
group_table = "Answered§"
partition_key = "answered"
row_key = "{PartitionKey}"
set = { Surveys = "count()", Total = "sum(Q0299)" }

[archives.former]
source = "Surveys§"
to = { kind = "table", table = "Former§" }

[archives.documents]
source = "Surveys§"
to = { kind = "blob", container = "former-§" }
"#;

type Answers = BTreeMap<String, EdmValue>;

fn answers(questions: std::ops::Range<i32>, mail: &str) -> Answers {
    let mut answers: Answers = questions
        .map(|n| (format!("Q{n:04}"), EdmValue::from(n)))
        .collect();
    answers.insert("Mail".to_owned(), mail.into());
    answers
}

fn put(rk: &str, mode: &str, answers: &Answers) -> Value {
    let entity = Entity {
        key: EntityKey::new("2026", rk).unwrap(),
        properties: answers.clone(),
    };
    json!({"op": "put", "table": "Surveys§", "mode": mode, "entity": evenkeel_model::odata::encode(&entity)})
}

fn on(op: &str, rk: &str) -> Value {
    match op {
        "archive" | "restore" => json!({"op": op, "archive": "former", "pk": "2026", "rk": rk}),
        _ => json!({"op": op, "table": "Surveys§", "pk": "2026", "rk": rk}),
    }
}

fn moving(rk: &str, to: &str) -> Value {
    json!({"op": "move", "table": "Surveys§", "pk": "2026", "rk": rk, "to_pk": "2027", "to_rk": to})
}

async fn rows(site: &Site, table: &str) -> Vec<String> {
    site.keys(table, "ek_view")
        .await
        .into_iter()
        .filter(|(.., view)| view.is_empty())
        .map(|(_, rk, _)| rk)
        .collect()
}

async fn said(site: &Site, table: &str, pk: &str, rk: &str) -> Answers {
    let mut said = Answers::new();
    for (at_pk, at_rk, _) in site.keys(table, "ek_view").await {
        if at_pk == pk
            && (at_rk == rk
                || at_rk
                    .strip_prefix(rk)
                    .is_some_and(|rest| rest.starts_with('~')))
        {
            let row = site.row(table, &at_pk, &at_rk).await.unwrap();
            assert!(row.entity.properties.len() <= 252);
            for (name, value) in row
                .entity
                .properties
                .into_iter()
                .filter(|(name, _)| !name.starts_with("ek_"))
            {
                assert!(
                    said.insert(name.clone(), value).is_none(),
                    "{name} is in two rows"
                );
            }
        }
    }
    said
}

async fn in_step(site: &Site, entities: &[(&str, &str, &Answers)]) {
    let (mut mails, mut near, mut totals) =
        (Vec::new(), Vec::new(), BTreeMap::<&str, (i64, i64)>::new());
    for (pk, rk, answers) in entities {
        assert_eq!(said(site, "Surveys§", pk, rk).await, **answers, "{pk} {rk}");
        let mail = answers["Mail"].as_str().unwrap().to_lowercase();
        near.push(key(pk, &format!("mail_{mail}_{rk}"), "near"));
        mails.push(key("mail", &mail, answers["Mail"].as_str().unwrap()));
        let total = totals.entry(pk).or_default();
        total.0 += 1;
        if let Some(EdmValue::Int32(answer)) = answers.get("Q0299") {
            total.1 += i64::from(*answer);
        }
        let plan = site.plan("Surveys§", pk, rk).await;
        assert!(plan.in_step && plan.present, "{plan}");
    }
    mails.sort();
    near.sort();
    assert_eq!(site.keys("ByMail§", "Mail").await, mails);
    let found: Vec<_> = site
        .keys("Surveys§", "ek_view")
        .await
        .into_iter()
        .filter(|(.., view)| !view.is_empty())
        .collect();
    assert_eq!(found, near);
    for (pk, total) in totals {
        let group = site
            .row("Answered§", "answered", pk)
            .await
            .expect("a group")
            .entity;
        assert_eq!(
            (group.get("Surveys"), group.get("Total")),
            (Some(&total.0.into()), Some(&total.1.into()))
        );
    }
}

pub(crate) async fn a_survey_of_300_answers_is_one_entity(site: &Site) {
    let mut survey = answers(0..300, "Ada@contoso.com");
    site.work(put("7", "replace", &survey)).await;
    assert_eq!(rows(site, "Surveys§").await, ["7", "7~1"]);
    in_step(site, &[("2026", "7", &survey)]).await;

    // A changed answer changes the row that contains it, and the first row, whose ETag is the version of the entity.
    let before = (
        site.row("Surveys§", "2026", "7").await.unwrap(),
        site.row("Surveys§", "2026", "7~1").await.unwrap(),
    );
    survey.insert("Q0010".to_owned(), EdmValue::from(-1));
    let one = Answers::from([("Q0010".to_owned(), EdmValue::from(-1))]);
    site.work(put("7", "merge", &one)).await;
    let after = (
        site.row("Surveys§", "2026", "7").await.unwrap(),
        site.row("Surveys§", "2026", "7~1").await.unwrap(),
    );
    assert_ne!(before.0.etag, after.0.etag);
    assert_eq!(
        before.1.etag, after.1.etag,
        "the other row must be unchanged"
    );
    survey.insert("Q0299".to_owned(), EdmValue::from(5));
    site.work(put(
        "7",
        "merge",
        &Answers::from([("Q0299".to_owned(), EdmValue::from(5))]),
    ))
    .await;
    assert_ne!(
        site.row("Surveys§", "2026", "7").await.unwrap().etag,
        after.0.etag
    );
    in_step(site, &[("2026", "7", &survey)]).await;

    // A new e-mail address moves the copies of an entity, but not those of an entity with a similar key. An entity with fewer answers needs
    // fewer rows.
    survey.insert("Mail".to_owned(), "Countess@contoso.com".into());
    site.work(put("7", "replace", &survey)).await;
    let other = answers(0..700, "byron@contoso.com");
    site.work(put("70", "replace", &other)).await;
    in_step(site, &[("2026", "7", &survey), ("2026", "70", &other)]).await;
    let few = answers(100..200, "Ada@contoso.com");
    site.work(put("7", "replace", &few)).await;
    assert_eq!(rows(site, "Surveys§").await, ["7", "70", "70~1", "70~2"]);
    in_step(site, &[("2026", "7", &few), ("2026", "70", &other)]).await;

    site.work(on("delete", "70")).await;
    in_step(site, &[("2026", "7", &few)]).await;
    site.work(on("delete", "7")).await;
    assert_eq!(site.keys("Surveys§", "ek_view").await, []);
    site.work(put("7", "replace", &survey)).await;
    in_step(site, &[("2026", "7", &survey)]).await;
}

pub(crate) async fn a_thousand_properties_are_archived_restored_and_moved_as_one(site: &Site) {
    let survey = answers(0..1_000, "ada@contoso.com");
    site.work(put("7", "replace", &survey)).await;
    assert_eq!(rows(site, "Surveys§").await, ["7", "7~1", "7~2", "7~3"]);
    site.work(on("archive", "7")).await;
    in_step(site, &[]).await;
    assert_eq!(said(site, "Former§", "2026", "7").await, survey);
    assert_eq!(rows(site, "Surveys§").await.len(), 0);
    site.work(on("restore", "7")).await;
    assert_eq!(rows(site, "Former§").await.len(), 0);
    in_step(site, &[("2026", "7", &survey)]).await;
    site.work(moving("7", "8")).await;
    in_step(site, &[("2027", "8", &survey)]).await;

    let mut document = on("archive", "8");
    (document["archive"], document["pk"]) = ("documents".into(), "2027".into());
    site.work(document.clone()).await;
    assert_eq!(site.blobs("former-§").await, ["2027/8.json"]);
    in_step(site, &[]).await;
    document["op"] = "restore".into();
    site.work(document).await;
    in_step(site, &[("2027", "8", &survey)]).await;
    let away = json!({"op": "move", "table": "Surveys§", "pk": "2027", "rk": "8", "to_pk": "x", "to_rk": "y", "to_table": "Surveys2§"});
    site.work(away).await;
    in_step(site, &[]).await;
    assert_eq!(said(site, "Surveys2§", "x", "y").await, survey);
}

pub(crate) async fn two_and_a_half_mebibytes_are_one_entity(site: &Site) {
    let mut survey = answers(0..5, "ada@contoso.com");
    site.work(put("7", "replace", &survey)).await;
    // A message can carry at most 1 MiB, so several merges build the entity.
    for part in 0..8 {
        let some: Answers = (0..10)
            .map(|n| (format!("Text{part}{n}"), EdmValue::from("x".repeat(32_768))))
            .collect();
        site.work(put("7", "merge", &some)).await;
        survey.extend(some);
    }
    let bytes: usize = survey
        .values()
        .filter_map(EdmValue::as_str)
        .map(str::len)
        .sum();
    assert!(bytes >= 5 << 19, "{bytes} bytes");
    in_step(site, &[("2026", "7", &survey)]).await;
    // By Azure's count each property has 64 KiB, so a row has room for fifteen.
    assert_eq!(rows(site, "Surveys§").await.len(), 6);

    survey.insert("Mail".to_owned(), "countess@contoso.com".into());
    site.work(put(
        "7",
        "merge",
        &Answers::from([("Mail".to_owned(), "countess@contoso.com".into())]),
    ))
    .await;
    in_step(site, &[("2026", "7", &survey)]).await;
    site.work(on("archive", "7")).await;
    assert_eq!(said(site, "Former§", "2026", "7").await, survey);
    site.work(on("restore", "7")).await;
    in_step(site, &[("2026", "7", &survey)]).await;

    // A transaction can write at most 4 MiB.
    for part in 0..8 {
        let some: Answers = (0..10)
            .map(|n| (format!("More{part}{n}"), EdmValue::from("x".repeat(32_768))))
            .collect();
        if let Err(failure) = site.attempt(&put("7", "merge", &some)).await {
            assert!(
                failure.chain().contains("4,194,304 bytes (4 MiB)"),
                "{}",
                failure.chain()
            );
            assert!(part > 2, "part {part} should fit");
            in_step(site, &[("2026", "7", &survey)]).await;
            return;
        }
        survey.extend(some);
    }
    panic!("a job must be refused");
}

pub(crate) async fn what_does_not_fit_says_what_to_do(site: &Site) {
    let survey = answers(0..300, "ada@contoso.com");
    let mut plain = put("7", "replace", &survey);
    plain["table"] = "Plain§".into();
    let error = site.refused(plain).await;
    assert!(
        error.contains("wide = true") && error.contains("302 properties"),
        "{error}"
    );

    for job in [
        put("7~1", "replace", &survey),
        on("sync", "7~12"),
        on("delete", "7~1"),
        on("archive", "~3"),
        moving("7", "8~1"),
    ] {
        let error = site.refused(job).await;
        assert!(
            error.contains("ends with ~ and digits") && error.contains("wide = true"),
            "{error}"
        );
    }
    site.work(put("7~a", "replace", &survey)).await;
    in_step(site, &[("2026", "7~a", &survey)]).await;
    let mut away = moving("7~a", "8");
    (away["to_table"], away["pk"]) = ("Plain§".into(), "2026".into());
    let error = site.refused(away).await;
    assert!(error.contains("wide = true"), "{error}");
    in_step(site, &[("2026", "7~a", &survey)]).await;
}

pub(crate) async fn a_client_may_write_the_rows_itself(site: &Site) {
    let mut survey = answers(0..300, "ada@contoso.com");
    site.work(put("7", "replace", &survey)).await;
    // The documentation requires clients to write the first row in the same transaction as any other row.
    let table = TableName::new(site.name("Surveys§")).unwrap();
    let at = |rk: &str| Entity::new(EntityKey::new("2026", rk).unwrap());
    let first = site.row("Surveys§", "2026", "7").await.unwrap();
    let operations = [
        TableOperation::Merge(at("7"), IfMatch::Matches(first.etag)),
        TableOperation::Merge(at("7~1").with("Q0299", 1).with("Mail2", "x"), IfMatch::Any),
    ];
    site.account
        .tables
        .transact(&table, &first.entity.key.pk, &operations)
        .await
        .unwrap();
    survey.insert("Q0299".to_owned(), EdmValue::from(1));
    survey.insert("Mail2".to_owned(), "x".into());
    site.work(on("sync", "7")).await;
    in_step(site, &[("2026", "7", &survey)]).await;

    // A client that replaces a row removes the property that links it to the entity. The next write restores that property.
    let row = site.row("Surveys§", "2026", "7~1").await.unwrap();
    let mut anew = row.entity.clone();
    anew.properties.remove("ek_row");
    let first = site.row("Surveys§", "2026", "7").await.unwrap();
    let operations = [
        TableOperation::Merge(at("7"), IfMatch::Matches(first.etag)),
        TableOperation::Replace(anew.with("Q0299", 2), IfMatch::Matches(row.etag)),
    ];
    site.account
        .tables
        .transact(&table, &first.entity.key.pk, &operations)
        .await
        .unwrap();
    survey.insert("Q0299".to_owned(), EdmValue::from(2));
    site.work(on("sync", "7")).await;
    in_step(site, &[("2026", "7", &survey)]).await;
    survey.insert("Q0001".to_owned(), EdmValue::from(9));
    site.work(put(
        "7",
        "merge",
        &Answers::from([("Q0001".to_owned(), EdmValue::from(9))]),
    ))
    .await;
    assert!(
        site.row("Surveys§", "2026", "7~1")
            .await
            .unwrap()
            .entity
            .get("ek_row")
            .is_some()
    );
    in_step(site, &[("2026", "7", &survey)]).await;

    // A client deletes only the first row. The other rows then belong to no entity, and the next write removes them.
    site.account
        .tables
        .apply(
            &table,
            &TableOperation::Delete(first.entity.key, IfMatch::Any),
        )
        .await
        .unwrap();
    site.work(on("sync", "7")).await;
    in_step(site, &[]).await;
    site.work(put("7", "replace", &answers(0..500, "ada@contoso.com")))
        .await;
    in_step(site, &[("2026", "7", &answers(0..500, "ada@contoso.com"))]).await;
}

pub(crate) async fn a_backfill_sees_one_entity(site: &Site) {
    let table = TableName::new(site.name("Surveys§")).unwrap();
    let surveys: Vec<Answers> = (0..3)
        .map(|n| answers(0..300 + n, &format!("{n}@contoso.com")))
        .collect();
    for (n, survey) in surveys.iter().enumerate() {
        site.work(put(&n.to_string(), "replace", survey)).await;
    }
    for mail in ["0@contoso.com", "2@contoso.com"] {
        let key = EntityKey::new("mail", mail).unwrap();
        let operation = TableOperation::Delete(key, IfMatch::Any);
        site.account
            .tables
            .apply(&TableName::new(site.name("ByMail§")).unwrap(), &operation)
            .await
            .unwrap();
    }
    let narrow = answers(0..3, "narrow@contoso.com");
    let entity = Entity {
        key: EntityKey::new("2026", "n").unwrap(),
        properties: narrow.clone(),
    };
    site.account
        .tables
        .apply(&table, &TableOperation::Insert(entity))
        .await
        .unwrap();
    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    let found = async || {
        let (Job::Audit(audit), delivery) =
            site.message(&json!({"op": "audit", "table": "Surveys§"}))
        else {
            panic!("no audit")
        };
        let pass = site.engine.audit(&audit, &delivery).await.unwrap().unwrap();
        assert!(pass.ended);
        let found: BTreeSet<String> = pass
            .findings
            .into_iter()
            .map(|finding| finding.of)
            .collect();
        found
            .into_iter()
            .map(|of| of.split_once('(').unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found().await,
        ["\"2026\", \"0\")", "\"2026\", \"2\")", "\"2026\", \"n\")"]
    );
    site.work(json!({"op": "backfill", "table": "Surveys§"}))
        .await;
    assert_eq!(found().await, [""; 0]);
    let all = [
        ("2026", "0", &surveys[0]),
        ("2026", "1", &surveys[1]),
        ("2026", "2", &surveys[2]),
        ("2026", "n", &narrow),
    ];
    in_step(site, &all).await;
}

pub(crate) async fn a_wide_entity_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    let entity = |table: &str, answers: &Answers| {
        let mut job = put("7", "replace", answers);
        job["table"] = table.into();
        job
    };
    // The table has no views, so a put takes one read and one transaction. If the entity is wide, the read takes two
    // requests.
    assert_eq!(
        site.requests_of(entity("Surveys2§", &answers(0..3, "a")))
            .await,
        2
    );
    assert_eq!(
        site.requests_of(entity("Surveys2§", &answers(0..300, "a")))
            .await,
        2
    );
    assert_eq!(
        site.requests_of(entity("Surveys2§", &answers(0..301, "a")))
            .await,
        3
    );
    let mut one = entity(
        "Surveys2§",
        &Answers::from([("Q0299".to_owned(), EdmValue::from(5))]),
    );
    one["mode"] = "merge".into();
    assert_eq!(site.requests_of(one).await, 3);
    let delete = Value::Object(Map::from_iter([
        ("op".to_owned(), json!("delete")),
        ("table".to_owned(), json!("Surveys2§")),
        ("pk".to_owned(), json!("2026")),
        ("rk".to_owned(), json!("7")),
    ]));
    assert_eq!(site.requests_of(delete).await, 3);
}
