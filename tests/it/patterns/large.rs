//! Large entities: values in blobs, with pointers in their place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_client::{Client, ClientError};
use evenkeel_engine::Outcome;
use evenkeel_layers::layer::{Layer, Request};
use evenkeel_layers::stack::layered;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{
    AccountName, BlobName, ContainerName, EdmValue, Entity, EntityKey, TableName,
};
use evenkeel_storage::{Account, BlobUpload, Service, StoreError, Stores, TableOperation};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.photos]
kind = "large_entity"
source = "Staff§"
properties = ["Photo", "Resume"]
container = "large-§"
threshold = "1KiB"

[views.by_email]
kind = "secondary_index"
source = "Staff§"
table = "ByEmail§"
partition_key = "email"
row_key = "{Email|lower}"
on_conflict = "reject"

[views.by_tag]
kind = "secondary_index"
source = "Staff§"
table = "ByTag§"
partition_key = "{Tags|each:,|trim}"
row_key = "{PartitionKey}_{RowKey}"
select = []

[archives.former]
source = "Staff§"
to = { kind = "table", table = "Former§" }

[views.former_photos]
kind = "large_entity"
source = "Former§"
container = "former-§"

[archives.papers]
source = "Staff§"
to = { kind = "blob", container = "papers-§", path = "former/{PartitionKey}/{RowKey}.json" }

[archives.drawer]
source = "Staff§"
to = { kind = "file", dir = "$SHARE" }

[tables.Plain§]
"#;

fn put(properties: &Value) -> Value {
    put_at("Sales", "7", properties)
}

fn put_at(pk: &str, rk: &str, properties: &Value) -> Value {
    let mut entity = json!({"PartitionKey": pk, "RowKey": rk});
    entity
        .as_object_mut()
        .unwrap()
        .extend(properties.as_object().unwrap().clone());
    json!({"op": "put", "table": "Staff§", "entity": entity})
}

fn text(letter: char, length: usize) -> String {
    letter.to_string().repeat(length)
}

fn sha256(content: &[u8]) -> String {
    hex::encode(Sha256::digest(content))
}

async fn holds(site: &Site, table: &str, container: &str, values: &[(&str, &str, &str, &[u8])]) {
    let mut names = BTreeMap::new();
    for (pk, rk, property, content) in values {
        let name = format!(
            "{}/{pk}/{rk}/{property}-{}",
            site.name(table).to_lowercase(),
            sha256(content)
        );
        let row = site.row(table, pk, rk).await.expect("the entity");
        let pointer = format!(
            r#"{{"v":1,"$blob":"{}/{name}","bytes":{},"sha256":"{}"}}"#,
            site.name(container),
            content.len(),
            sha256(content)
        );
        assert_eq!(row.entity.text(property), Some(pointer.as_str()));
        names.insert(name, content);
    }
    assert_eq!(
        site.blobs(container).await,
        names.keys().cloned().collect::<Vec<_>>()
    );
    for (name, content) in names {
        let blob = site.blob(container, &name).await.expect("the blob");
        assert!(blob.content == **content);
        assert_eq!(
            blob.properties.cache_control.as_deref(),
            Some("max-age=31536000, immutable")
        );
    }
    site.in_step(table).await;
}

pub(crate) async fn large_values_follow_their_entity_through_its_life(site: &Site) {
    let (first, second) = (text('a', 2_000), text('b', 3_000));
    site.work(put(
        &json!({"Email": "Ada@contoso.com", "Photo": first, "Resume": "short"}),
    ))
    .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", first.as_bytes())],
    )
    .await;
    let row = site.row("Staff§", "Sales", "7").await.unwrap();
    assert_eq!(row.entity.text("Resume"), Some("short"));
    // A copy under another key contains a pointer to the same blob.
    let copy = site
        .row("ByEmail§", "email", "ada@contoso.com")
        .await
        .unwrap();
    assert_eq!(copy.entity.text("Photo"), row.entity.text("Photo"));

    // The photo changes, and a resume is added. The blob of the first photo is deleted.
    site.work(put(
        &json!({"Email": "countess@contoso.com", "Photo": second, "Resume": first}),
    ))
    .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[
            ("Sales", "7", "Photo", second.as_bytes()),
            ("Sales", "7", "Resume", first.as_bytes()),
        ],
    )
    .await;
    let mut merge = put(&json!({"Resume": "short again"}));
    merge["mode"] = "merge".into();
    site.work(merge).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", second.as_bytes())],
    )
    .await;
    let photo = site
        .row("Staff§", "Sales", "7")
        .await
        .unwrap()
        .entity
        .text("Photo")
        .unwrap()
        .to_owned();
    site.work(put(&json!({"Photo": photo, "Name": "Ada"})))
        .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", second.as_bytes())],
    )
    .await;
    site.work(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "7", "thorough": true}))
        .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", second.as_bytes())],
    )
    .await;

    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "7"}))
        .await;
    holds(site, "Staff§", "large-§", &[]).await;
    site.work(put(&json!({"Photo": first}))).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", first.as_bytes())],
    )
    .await;
    let row = Entity::new(EntityKey::new("Sales", "7").unwrap()).with("Photo", "none");
    site.write("Staff§", row).await;
    site.work(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "7"}))
        .await;
    holds(site, "Staff§", "large-§", &[]).await;
}

pub(crate) async fn what_breaks_a_limit_goes_into_a_blob_whether_declared_or_not(site: &Site) {
    // The message carries this value compressed.
    let notes = text('n', 40_000);
    site.work(put(&json!({"Notes": notes, "Photo": "small"})))
        .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Notes", notes.as_bytes())],
    )
    .await;
    let parts: Vec<String> = (0..20).map(|n| text('p', 30_000 + n)).collect();
    let properties = parts
        .iter()
        .enumerate()
        .map(|(n, part)| (format!("P{n:02}"), json!(part)))
        .collect();
    let mut whole = Entity::new(EntityKey::new("Sales", "7").unwrap());
    whole.properties = (0..20)
        .map(|n| (format!("P{n:02}"), EdmValue::from(parts[n].as_str())))
        .collect();
    let entity_ref = site
        .stage(
            "whole",
            put(&Value::Object(properties))["entity"].to_string(),
            "application/json",
        )
        .await;
    site.work(
        json!({"op": "put", "table": "Staff§", "pk": "Sales", "rk": "7", "entity_ref": entity_ref}),
    )
    .await;
    let row = site.row("Staff§", "Sales", "7").await.unwrap();
    let out: Vec<_> = whole
        .properties
        .keys()
        .filter(|name| row.entity.text(name).unwrap().contains("$blob"))
        .collect();
    assert_eq!(out, ["P17", "P18", "P19"]);
    assert_eq!(site.blobs("large-§").await.len(), 3);
    site.in_step("Staff§").await;
}

pub(crate) async fn nothing_is_computed_from_a_pointer(site: &Site) {
    let tags = async || {
        site.keys("ByTag§", "ek_view")
            .await
            .into_iter()
            .map(|(tag, _, _)| tag)
            .collect::<Vec<_>>()
    };
    site.work(put(
        &json!({"Tags": "red, green", "Photo": text('p', 2_000)}),
    ))
    .await;
    assert_eq!(tags().await, ["green", "red"]);
    let many = (0..9)
        .map(|n| text(char::from(b'a' + n), 4_000))
        .collect::<Vec<_>>()
        .join(",");
    let refused = "property \"Tags\" is too large for a row";
    assert!(
        site.refused(put(&json!({"Tags": many})))
            .await
            .contains(refused)
    );
    let mut staged = put(&json!({"Name": "Ada"}));
    staged["blobs"] = json!({"Tags": site.stage("tags", "red", "text/plain").await});
    assert!(site.refused(staged).await.contains(refused));
    assert_eq!(tags().await, ["green", "red"]);
    // An application may write anything into its own entity, and existing content stays as it is.
    let row = site.row("Staff§", "Sales", "7").await.unwrap();
    let pointer = row.entity.text("Photo").unwrap().to_owned();
    site.write("Staff§", row.entity.with("Tags", pointer)).await;
    let error = site
        .refused(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "7"}))
        .await;
    assert!(
        error.contains("\"Tags\"") && error.contains("is in a blob"),
        "{error}"
    );
    assert_eq!(tags().await, ["green", "red"]);
    site.work(put(&json!({"Tags": "blue"}))).await;
    assert_eq!(tags().await, ["blue"]);
    holds(site, "Staff§", "large-§", &[]).await;
}

pub(crate) async fn a_large_value_comes_from_a_staged_blob(site: &Site) {
    // The photo is larger than a block, so the service copies it in several blocks.
    let photo: Vec<u8> = (0..9_500_000_u32)
        .map(|n| u8::try_from((n ^ (n >> 8) ^ (n >> 16)) & 0xff).unwrap())
        .collect();
    let mut staged = site.stage("photo.png", photo.clone(), "image/png").await;
    staged["sha256"] = sha256(&photo).into();
    let mut job = put(&json!({"Name": "Ada"}));
    job["blobs"] = json!({"Photo": staged, "Resume": site.stage("cv", "tiny", "text/plain").await});
    site.work(job).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[
            ("Sales", "7", "Photo", &photo),
            ("Sales", "7", "Resume", b"tiny"),
        ],
    )
    .await;
    let name = site.blobs("large-§").await.remove(0);
    assert_eq!(
        site.blob("large-§", &name)
            .await
            .unwrap()
            .properties
            .content_type,
        "image/png"
    );
    assert_eq!(site.staged().await, Vec::<String>::new());
    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "7"}))
        .await;
    holds(site, "Staff§", "large-§", &[]).await;
}

pub(crate) async fn a_whole_entity_comes_from_a_staged_blob(site: &Site) {
    let resume = text('r', 100_000);
    let entity = put(&json!({"Email": "ada@contoso.com", "Resume": resume}))["entity"].clone();
    let job = json!({"op": "put", "table": "Staff§", "pk": "Sales", "rk": "7",
                     "entity_ref": site.stage("whole", entity.to_string(), "application/json").await,
                     "blobs": {"Photo": site.stage("photo", "x", "image/png").await}});
    site.work(job).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[
            ("Sales", "7", "Photo", b"x"),
            ("Sales", "7", "Resume", resume.as_bytes()),
        ],
    )
    .await;
    assert_eq!(site.staged().await, Vec::<String>::new());
    assert!(
        site.row("ByEmail§", "email", "ada@contoso.com")
            .await
            .is_some()
    );
    let entity = json!({"PartitionKey": "p", "RowKey": "r", "A": 1}).to_string();
    let plain = json!({"op": "put", "table": "Plain§", "pk": "p", "rk": "r", "entity_ref": site.stage("e", entity, "text/plain").await});
    site.work(plain).await;
    assert_eq!(
        site.row("Plain§", "p", "r").await.unwrap().entity.get("A"),
        Some(&1.into())
    );
    assert_eq!(site.staged().await, Vec::<String>::new());
}

pub(crate) async fn what_was_staged_wrongly_is_told_and_kept(site: &Site) {
    let with = |staged: &Value| {
        let mut job = put(&json!({}));
        job["blobs"] = json!({"Photo": staged});
        job
    };
    let error = site
        .refused(with(&json!({"blob": "evenkeel-staging/none-of-§"})))
        .await;
    assert!(
        error.contains("does not exist. Stage it under a unique name"),
        "{error}"
    );
    let mut staged = site.stage("photo", "x", "image/png").await;
    staged["sha256"] = sha256(b"y").into();
    let error = site.refused(with(&staged)).await;
    assert!(
        error.contains("but the job expects") && error.contains(&sha256(b"x")),
        "{error}"
    );
    let whole = |entity_ref: &Value| json!({"op": "put", "table": "Staff§", "pk": "Sales", "rk": "7", "entity_ref": entity_ref});
    for (content, expected) in [
        ("{", "is not JSON"),
        (
            r#"{"PartitionKey":"Sales","RowKey":"8"}"#,
            "has another key than",
        ),
    ] {
        let error = site
            .refused(whole(&site.stage("whole", content, "text/plain").await))
            .await;
        assert!(error.contains(expected), "{error}");
    }
    let mut plain = with(&staged);
    plain["table"] = "Plain§".into();
    plain["blobs"]["Photo"] = site.stage("photo", "x", "image/png").await;
    let error = site.refused(plain).await;
    assert!(
        error.contains("no large_entity view has the table as its source"),
        "{error}"
    );
    // A refused job keeps its staged blob, so that a requeue of the poison message can use it.
    assert_eq!(site.staged().await.len(), 2);
    assert!(site.row("Staff§", "Sales", "7").await.is_none());
    holds(site, "Staff§", "large-§", &[]).await;
}

pub(crate) async fn a_staged_job_that_comes_again_is_done_already(site: &Site) {
    let mut staged = put(&json!({"Name": "Ada"}));
    staged["blobs"] = json!({"Photo": site.stage("photo", "first", "image/png").await});
    let (job, mut delivery) = site.message(&staged);
    assert!(matches!(
        site.deliver(&job, &delivery).await,
        Ok(Outcome::Done(_))
    ));
    delivery.dequeue_count = 2;
    assert!(matches!(
        site.deliver(&job, &delivery).await,
        Ok(Outcome::Done(_))
    ));
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", b"first")],
    )
    .await;
    // The message is delivered a third time after another job has written the entity. The staged blob is gone, so the job is skipped.
    site.work(put(&json!({"Name": "Countess"}))).await;
    delivery.dequeue_count = 3;
    let Ok(Outcome::Skipped { reason, .. }) = site.deliver(&job, &delivery).await else {
        panic!("the job was not skipped")
    };
    assert!(
        reason.contains("a later job has written the entity since"),
        "{reason}"
    );
    holds(site, "Staff§", "large-§", &[]).await;
}

/// An account in which another job changes the entity once, after the row is read and before the row's blob is read.
struct RacingAccount {
    account: Account,
    table: TableName,
    newer: Entity,
    container: ContainerName,
    older: BlobName,
    is_done: AtomicBool,
}

impl Layer for RacingAccount {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        if request.op.service() == Service::Blob && !self.is_done.swap(true, Ordering::SeqCst) {
            self.account
                .tables
                .apply(
                    &self.table,
                    &TableOperation::InsertOrReplace(self.newer.clone()),
                )
                .await?;
            assert!(
                self.account
                    .blobs
                    .delete(&self.container, &self.older, None)
                    .await?
            );
        }
        send().await
    }
}

pub(crate) async fn a_value_that_changes_while_it_is_read_is_read_anew(site: &Site) {
    let (older, newer) = (text('a', 2_000), text('b', 3_000));
    site.work(put(&json!({"Photo": older}))).await;
    let before = site.row("Staff§", "Sales", "7").await.unwrap().entity;
    let name = BlobName::new(site.blobs("large-§").await.remove(0)).unwrap();
    site.work(put(&json!({"Photo": newer}))).await;
    let after = site.row("Staff§", "Sales", "7").await.unwrap().entity;
    let (table, container) = (
        site.table("Staff§"),
        ContainerName::new(site.name("large-§")).unwrap(),
    );
    // Restores the state in which the second job has already written its blob, but not yet the row.
    let reader = async || {
        let upload = BlobUpload {
            content_type: Some("text/plain; charset=utf-8".to_owned()),
            ..BlobUpload::default()
        };
        site.account
            .blobs
            .put(&container, &name, older.clone().into(), &upload)
            .await
            .unwrap();
        site.write("Staff§", before.clone()).await;
        let overtaken = Arc::new(RacingAccount {
            account: site.account.clone(),
            table: table.clone(),
            newer: after.clone(),
            container: container.clone(),
            older: name.clone(),
            is_done: AtomicBool::new(false),
        });
        let stores =
            Stores::new([(AccountName::main(), layered(&site.account, &overtaken))].into());
        Client::new(
            stores,
            Arc::new(site.client.catalog().clone()),
            Vec::<QueueSettings>::new(),
        )
    };
    let key = EntityKey::new("Sales", "7").unwrap();
    let read = reader().await.get(&table, &key).await.unwrap().unwrap();
    assert_eq!(read.entity.text("Photo"), Some(newer.as_str()));
    let (client, place) = (
        reader().await,
        TableRef {
            account: AccountName::main(),
            table: table.clone(),
        },
    );
    let mut value = Vec::new();
    let take = |part: &[u8]| {
        value.extend_from_slice(part);
        Ok(())
    };
    assert_eq!(
        client
            .read_value(&place, &key, "Photo", take)
            .await
            .unwrap(),
        Some(3_000)
    );
    assert!(value == newer.as_bytes());
    // The entity is unchanged, but its blob is missing.
    site.delete_blob("large-§", &site.blobs("large-§").await.remove(0))
        .await;
    let broken = site.client.get(&table, &key).await.unwrap_err();
    assert!(
        matches!(&broken, ClientError::Broken(text) if text.contains("which does not exist")),
        "{broken}"
    );
}

/// Anyone who can write a row can put any pointer into the row. A reader must follow a pointer only to a value of the row's own primary.
pub(crate) async fn readers_follow_no_forged_pointer(site: &Site) {
    let (own, others) = (text('a', 2_000), text('b', 3_000));
    site.work(put(&json!({"Email": "ada@contoso.com", "Photo": own})))
        .await;
    site.work(put_at(
        "Sales",
        "8",
        &json!({"Email": "bob@contoso.com", "Photo": others}),
    ))
    .await;
    let pointer = async |rk: &str| {
        site.row("Staff§", "Sales", rk)
            .await
            .unwrap()
            .entity
            .text("Photo")
            .unwrap()
            .to_owned()
    };
    let (ours, theirs) = (pointer("7").await, pointer("8").await);
    // The names of these blobs match this entity. The first blob is in a container that has no large values. The contents of the other blobs do not
    // match the hash in their names.
    let [photos, backups] =
        ["large-§", "backups-§"].map(|name| ContainerName::new(site.name(name)).unwrap());
    site.account.blobs.create_container(&backups).await.unwrap();
    let name = |content: &str| {
        format!(
            "{}/Sales/7/Photo-{}",
            site.name("Staff§").to_lowercase(),
            sha256(content.as_bytes())
        )
    };
    let pointing = |container: &ContainerName, name: &str, bytes: usize, content: &str| {
        json!({"v": 1, "$blob": format!("{container}/{name}"), "bytes": bytes, "sha256": sha256(content.as_bytes())}).to_string()
    };
    let put_blob = async |container: &ContainerName, name: &str, content: String| {
        let upload = BlobUpload {
            content_type: Some("text/plain".to_owned()),
            ..BlobUpload::default()
        };
        site.account
            .blobs
            .put(
                container,
                &BlobName::new(name).unwrap(),
                content.into(),
                &upload,
            )
            .await
            .unwrap();
    };
    put_blob(&backups, &name("secret"), "secret".to_owned()).await;
    put_blob(&photos, &name("small"), text('c', 9_000_000)).await;
    put_blob(&photos, &name("other"), text('d', 5_000_000)).await;
    let not_ours = "which is not a blob of this entity";
    let forged = [
        (theirs.clone(), not_ours),
        (pointing(&backups, &name("secret"), 6, "secret"), not_ours),
        (pointing(&backups, "nightly.bak", 1, "secret"), not_ours),
        (
            pointing(&photos, &name("small"), 1, "small"),
            "which has 9000000 bytes, expected 1",
        ),
        (
            pointing(&photos, &name("other"), 5_000_000, "other"),
            "whose content does not match its SHA-256",
        ),
    ];
    let place = |name: &str| TableRef {
        account: AccountName::main(),
        table: site.table(name),
    };
    let fails = async |table: &str, (pk, rk): (&str, &str), expected: &str| {
        let (place, key) = (place(table), EntityKey::new(pk, rk).unwrap());
        let whole = site
            .client
            .get_in(&place, &key)
            .await
            .unwrap_err()
            .to_string();
        let mut taken = 0;
        let part = |part: &[u8]| {
            taken += part.len();
            Ok(())
        };
        let value = site
            .client
            .read_value(&place, &key, "Photo", part)
            .await
            .unwrap_err()
            .to_string();
        assert!(
            whole.contains(expected) && value.contains(expected) && taken == 0,
            "{whole}; {value}; {taken} bytes were passed on"
        );
    };
    for (pointer, expected) in &forged {
        let row = site.row("Staff§", "Sales", "7").await.unwrap().entity;
        site.write("Staff§", row.with("Photo", pointer.clone()))
            .await;
        fails("Staff§", ("Sales", "7"), expected).await;
    }
    // A pointer is also refused in a table without large values, and in a row whose marks falsely call it a copy of a primary.
    site.write(
        "Plain§",
        Entity::new(EntityKey::new("p", "r").unwrap()).with("Photo", theirs.clone()),
    )
    .await;
    fails("Plain§", ("p", "r"), not_ours).await;
    let copy = site
        .row("ByEmail§", "email", "bob@contoso.com")
        .await
        .unwrap()
        .entity;
    let posing = Entity {
        key: EntityKey::new("email", "mallory@contoso.com").unwrap(),
        ..copy
    };
    site.write("ByEmail§", posing).await;
    fails("ByEmail§", ("email", "mallory@contoso.com"), not_ours).await;
    // A valid pointer is followed, both in the primary and in a copy.
    let row = site.row("Staff§", "Sales", "7").await.unwrap().entity;
    site.write("Staff§", row.with("Photo", ours)).await;
    for (table, pk, rk) in [
        ("Staff§", "Sales", "7"),
        ("ByEmail§", "email", "ada@contoso.com"),
    ] {
        let read = site
            .client
            .get_in(&place(table), &EntityKey::new(pk, rk).unwrap())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(read.entity.text("Photo"), Some(own.as_str()), "{table}");
    }
}

pub(crate) async fn pointers_that_lead_nowhere_are_refused(site: &Site) {
    site.work(put(&json!({"Photo": text('a', 2_000)}))).await;
    let photo = site
        .row("Staff§", "Sales", "7")
        .await
        .unwrap()
        .entity
        .text("Photo")
        .unwrap()
        .to_owned();
    let error = site
        .refused(put_at("Sales", "8", &json!({"Photo": photo})))
        .await;
    assert!(
        error.contains("\"Photo\" points to") && error.contains("not a blob of this entity"),
        "{error}"
    );
    let content = text('b', 2_000);
    site.work(put(&json!({"Photo": content}))).await;
    let error = site.refused(put(&json!({"Photo": photo}))).await;
    assert!(error.contains("which does not exist"), "{error}");
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", content.as_bytes())],
    )
    .await;
    // Somebody deletes a blob by hand. A full sync reports the missing blob, and a job that contains the value restores it.
    let name = site.blobs("large-§").await.remove(0);
    site.delete_blob("large-§", &name).await;
    site.work(json!({"op": "sync", "table": "Staff§", "pk": "Sales", "rk": "7", "thorough": true}))
        .await;
    let plan = site.plan("Staff§", "Sales", "7").await;
    assert!(
        plan.to_string().contains("the blob does not exist"),
        "{plan}"
    );
    let mut merge = put(&json!({"Name": "Ada"}));
    merge["mode"] = "merge".into();
    site.work(merge).await;
    site.work(put(&json!({"Photo": content}))).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", content.as_bytes())],
    )
    .await;
}

pub(crate) async fn a_large_value_moves_with_its_entity(site: &Site) {
    let content = text('a', 2_000);
    site.work(put(&json!({"Photo": content, "Email": "ada@contoso.com"})))
        .await;
    site.work(json!({"op": "move", "table": "Staff§", "pk": "Sales", "rk": "7", "to_pk": "Ops", "to_rk": "8"})).await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Ops", "8", "Photo", content.as_bytes())],
    )
    .await;
    let to_plain = json!({"op": "move", "table": "Staff§", "pk": "Ops", "rk": "8", "to_table": "Plain§", "to_pk": "Ops", "to_rk": "8"});
    assert!(
        site.refused(to_plain)
            .await
            .contains("no large_entity view has the table as its source")
    );
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Ops", "8", "Photo", content.as_bytes())],
    )
    .await;
    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Ops", "rk": "8"}))
        .await;
    holds(site, "Staff§", "large-§", &[]).await;
}

pub(crate) async fn a_large_value_goes_into_the_archive_and_comes_back(site: &Site) {
    let content = text('a', 2_000);
    for _ in 0..2 {
        site.work(put(&json!({"Photo": content, "Email": "ada@contoso.com"})))
            .await;
        site.work(json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "7"}))
            .await;
        holds(site, "Staff§", "large-§", &[]).await;
        holds(
            site,
            "Former§",
            "former-§",
            &[("Sales", "7", "Photo", content.as_bytes())],
        )
        .await;
    }
    site.work(json!({"op": "restore", "archive": "former", "pk": "Sales", "rk": "7"}))
        .await;
    holds(
        site,
        "Staff§",
        "large-§",
        &[("Sales", "7", "Photo", content.as_bytes())],
    )
    .await;
    holds(site, "Former§", "former-§", &[]).await;
}

/// Checks that the archive's container has the document of one entity, and exactly these values next to the document.
async fn filed(site: &Site, values: &[(&str, &[u8])]) {
    const DOCUMENT: &str = "former/Sales/%ED%95%9C 7.json";
    let document = site.blob("papers-§", DOCUMENT).await.expect("the document");
    assert_eq!(document.properties.content_type, "application/json");
    let document: Value = serde_json::from_slice(&document.content).unwrap();
    let mut names = vec![DOCUMENT.to_owned()];
    for (property, content) in values {
        let name = format!("{DOCUMENT}%values/{property}-{}", sha256(content));
        let blob = site.name(&format!("papers-§/{name}"));
        let pointer = format!(
            r#"{{"v":1,"$blob":"{blob}","bytes":{},"sha256":"{}"}}"#,
            content.len(),
            sha256(content)
        );
        assert_eq!(document[property], pointer);
        assert!(
            site.blob("papers-§", &name)
                .await
                .expect("the value")
                .content
                == **content
        );
        names.push(name);
    }
    names.sort();
    assert_eq!(site.blobs("papers-§").await, names);
}

pub(crate) async fn large_values_lie_beside_the_document_of_their_entity_and_come_back(
    site: &Site,
) {
    let (photo, resume) = (text('a', 2_000), text('b', 3_000));
    let on = |op: &str| json!({"op": op, "archive": "papers", "pk": "Sales", "rk": "한 7"});
    let hire = |properties: Value| put_at("Sales", "한 7", &properties);
    site.work(hire(json!({"Photo": photo, "Email": "ada@contoso.com"})))
        .await;
    site.work(on("archive")).await;
    holds(site, "Staff§", "large-§", &[]).await;
    filed(site, &[("Photo", photo.as_bytes())]).await;

    // The employee is hired again and archived again, with another photo and an additional value. The blob of the first photo is deleted.
    site.work(hire(
        json!({"Photo": resume, "Resume": resume, "Email": "again@contoso.com"}),
    ))
    .await;
    site.work(on("archive")).await;
    filed(
        site,
        &[("Photo", resume.as_bytes()), ("Resume", resume.as_bytes())],
    )
    .await;
    site.work(hire(json!({"Photo": "small", "Resume": resume})))
        .await;
    site.work(on("archive")).await;
    filed(site, &[("Resume", resume.as_bytes())]).await;

    site.work(on("restore")).await;
    assert_eq!(site.blobs("papers-§").await, [] as [&str; 0]);
    let key = "%ED%95%9C 7";
    let name = format!(
        "{}/Sales/{key}/Resume-{}",
        site.name("Staff§").to_lowercase(),
        sha256(resume.as_bytes())
    );
    assert_eq!(site.blobs("large-§").await, [name]);
    let row = site.row("Staff§", "Sales", "한 7").await.expect("back");
    assert_eq!(row.entity.text("Photo"), Some("small"));
    site.in_step("Staff§").await;
    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "한 7"}))
        .await;
    assert_eq!(site.blobs("large-§").await, [] as [&str; 0]);
}

fn shared(site: &Site) -> Vec<String> {
    let share = site.folder.path().join("share");
    let (mut folders, mut files) = (vec![share.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            match entry.strip_prefix(&share).unwrap().to_str().unwrap() {
                ".evenkeel" => {}
                _ if entry.is_dir() => folders.push(entry),
                path => files.push(path.to_owned()),
            }
        }
    }
    files.sort();
    files
}

pub(crate) async fn large_values_lie_beside_the_file_of_their_entity_and_come_back(site: &Site) {
    const DOCUMENT: &str = "Sales/%ED%95%9C 7.json";
    let resume = text('b', 3_000);
    // The photo is larger than a block, so it is copied in several blocks.
    let photo: Vec<u8> = (0..9_500_000_u32)
        .map(|n| u8::try_from((n ^ (n >> 8) ^ (n >> 16)) & 0xff).unwrap())
        .collect();
    let on = |op: &str| json!({"op": op, "archive": "drawer", "pk": "Sales", "rk": "한 7"});
    let hire = |properties: Value| put_at("Sales", "한 7", &properties);
    let mut job = hire(json!({"Resume": resume}));
    job["blobs"] = json!({"Photo": site.stage("photo.png", photo.clone(), "image/png").await});
    site.work(job).await;
    site.work(on("archive")).await;
    holds(site, "Staff§", "large-§", &[]).await;
    let names = [
        ("Photo", sha256(&photo)),
        ("Resume", sha256(resume.as_bytes())),
    ]
    .map(|(name, hash)| format!("{DOCUMENT}%values/{name}-{hash}"));
    assert_eq!(shared(site), [&[DOCUMENT.to_owned()][..], &names].concat());
    let read = |name: &str| std::fs::read(site.folder.path().join("share").join(name)).unwrap();
    assert!(read(&names[0]) == photo && read(&names[1]) == resume.as_bytes());
    let document: Value = serde_json::from_slice(&read(DOCUMENT)).unwrap();
    let expected = json!({"v": 1, "$file": names[0], "bytes": photo.len(), "sha256": sha256(&photo), "type": "image/png"});
    assert_eq!(
        serde_json::from_str::<Value>(document["Photo"].as_str().unwrap()).unwrap(),
        expected
    );

    site.work(hire(json!({"Resume": resume}))).await;
    site.work(on("archive")).await;
    assert_eq!(shared(site), [DOCUMENT.to_owned(), names[1].clone()]);
    site.work(on("restore")).await;
    assert_eq!(shared(site), [] as [&str; 0]);
    let name = site.blobs("large-§").await.remove(0);
    assert_eq!(
        site.blob("large-§", &name)
            .await
            .unwrap()
            .properties
            .content_type,
        "text/plain; charset=utf-8"
    );

    let mut job = hire(json!({"Resume": "short"}));
    job["blobs"] = json!({"Photo": site.stage("photo.png", photo.clone(), "image/png").await});
    site.work(job).await;
    for op in ["archive", "restore"] {
        site.work(on(op)).await;
    }
    assert_eq!(shared(site), [] as [&str; 0]);
    let [name] = <[String; 1]>::try_from(site.blobs("large-§").await).unwrap();
    let blob = site.blob("large-§", &name).await.unwrap();
    assert!(blob.content == photo && blob.properties.content_type == "image/png");
    site.in_step("Staff§").await;
}

pub(crate) async fn what_a_document_left_behind_goes_when_its_archive_is_brought_in_step(
    site: &Site,
) {
    let photo = text('a', 2_000);
    let on = |op: &str| json!({"op": op, "archive": "papers", "pk": "Sales", "rk": "한 7"});
    site.work(put_at("Sales", "한 7", &json!({"Photo": photo})))
        .await;
    site.work(on("archive")).await;
    // The document disappears, as if a lifecycle rule of the account had deleted it.
    site.delete_blob("papers-§", "former/Sales/%ED%95%9C 7.json")
        .await;
    let archive = evenkeel_model::ViewName::new("papers").unwrap();
    let table = site
        .engine
        .catalog()
        .archived_values_of(&archive)
        .unwrap()
        .table
        .table
        .clone();
    let sync = json!({"op": "sync", "table": table, "pk": "Sales", "rk": "한 7"});
    site.work(sync.clone()).await;
    assert_eq!(site.blobs("papers-§").await, [] as [&str; 0]);
    // A value of the document is deleted. The restore fails, because it would lose that value.
    site.work(put_at("Sales", "한 7", &json!({"Photo": photo})))
        .await;
    site.work(on("archive")).await;
    site.delete_blob(
        "papers-§",
        &format!(
            "former/Sales/%ED%95%9C 7.json%values/Photo-{}",
            sha256(photo.as_bytes())
        ),
    )
    .await;
    let failed = site
        .attempt(&on("restore"))
        .await
        .expect_err("it has lost its photo");
    assert!(failed.chain().contains("Photo-"), "{}", failed.chain());
    assert!(
        site.row("Staff§", "Sales", "한 7").await.is_none()
            && site.blobs("papers-§").await.len() == 1
    );
    // A job cannot write to the table of the archive directly.
    let mut put = put_at("Sales", "한 7", &json!({"Photo": "x"}));
    put["table"] = json!(table);
    assert!(site.refused(put).await.contains("the catalog has no table"));
}

pub(crate) async fn large_values_take_as_many_requests_as_the_documentation_says(site: &Site) {
    let with = |letter| put(&json!({"Photo": text(letter, 2_000)}));
    // The requests read the footprint and the primary. Then they write the footprint, the blob, the primary, and the footprint again.
    assert_eq!(site.requests_of(with('a')).await, 6);
    // One more request deletes the old blob.
    assert_eq!(site.requests_of(with('b')).await, 7);
    assert_eq!(site.requests_of(with('b')).await, 4);
    let mut staged = put(&json!({}));
    staged["blobs"] = json!({"Photo": site.stage("photo", text('c', 2_000), "image/png").await});
    // The staged blob takes four more requests: for its properties, its hash, its content, and its deletion.
    assert_eq!(site.requests_of(staged).await, 11);
    assert_eq!(
        site.requests_of(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "7"}))
            .await,
        7
    );
    // The archive job reads both footprints and both entities, announces the copy, copies the value, writes the document, and closes the copy's
    // footprint. Then it announces the deletion of the source, deletes the source, queues a recheck, deletes the value, and closes the source's
    // footprint.
    site.work(with('d')).await;
    let on = |op: &str| json!({"op": op, "archive": "papers", "pk": "Sales", "rk": "7"});
    assert_eq!(site.requests_of(on("archive")).await, 13);
    assert_eq!(site.requests_of(on("restore")).await, 13);
}
