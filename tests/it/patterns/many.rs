//! Long lists in blobs, on the embedded store: a list of maximum length, and a list that a backfill builds.

use evenkeel_engine::Outcome;
use evenkeel_model::shared::{BlobList, Edit, PartChange};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, Entity, EntityKey, ItemAddress, Key, Member, Part,
    Site, TableName, ViewName, item, limits,
};
use evenkeel_storage::{BlobUpload, TableOperation};
use serde_json::{Value, json};

use crate::patterns::lists::CATALOG;
use crate::patterns::site;

const NAME: &str = "by_name/king.jsonl";

/// A list of members with keys of 500 characters that has room for two more, but not for three.
fn nearly_full(container: &ContainerName, name: &BlobName, source: &TableName) -> BlobList {
    let place = Site::Blob {
        container: container.clone(),
        name: name.clone(),
    };
    let address = ItemAddress {
        view: ViewName::new("by_name").unwrap(),
        account: AccountName::main(),
        site: place,
        part: None,
    };
    let empty = BlobList::new(address.view.clone(), source.clone());
    let put = |number: u64| {
        let part = Some(Part::Member(Member(vec![
            "Sales".to_owned(),
            format!("{number:0>500}"),
        ])));
        let write = Edit::Put {
            over: None,
            token: ETag::token(number),
        };
        PartChange {
            address: ItemAddress {
                part,
                ..address.clone()
            },
            write,
            properties: None,
        }
    };
    let bytes = |members: u64| {
        empty
            .changed(&(0..members).map(put).collect::<Vec<_>>())
            .0
            .unwrap()
            .render()
            .len() as u64
    };
    let (some, line) = (10_000, bytes(2) - bytes(1));
    let members = some + (limits::LIST_BLOB_BYTES - bytes(some)) / line - 2;
    empty
        .changed(&(0..members).map(put).collect::<Vec<_>>())
        .0
        .unwrap()
}

#[tokio::test]
async fn a_list_in_a_blob_takes_8_mib_and_members_leave_it_for_others() {
    let site = site::Site::embedded(CATALOG).await;
    let (container, name) = (
        ContainerName::new(site.name("lists-§")).unwrap(),
        BlobName::new(NAME).unwrap(),
    );
    let list = nearly_full(
        &container,
        &name,
        &TableName::new(site.name("Staff§")).unwrap(),
    );
    let metadata = item::metadata(&item::shared_source_text(list.source()), list.view());
    let upload = BlobUpload {
        metadata,
        ..BlobUpload::default()
    };
    site.account
        .blobs
        .put(&container, &name, list.render().into(), &upload)
        .await
        .unwrap();

    let rk = |number: u32| format!("x{number:0>499}");
    let put = |number: u32| json!({"op": "put", "table": "Staff§", "entity": {"PartitionKey": "Sales", "RowKey": rk(number), "LastName": "King"}});
    let delete =
        |number: u32| json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": rk(number)});
    let count = async || {
        let content = site.blob("lists-§", NAME).await.unwrap().content;
        let head: Value =
            serde_json::from_slice(content.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        (
            head["ek_count"].as_u64().unwrap() - list.count(),
            content.len() as u64 <= limits::LIST_BLOB_BYTES,
        )
    };
    site.work(put(1)).await;
    site.work(put(2)).await;
    assert_eq!(count().await, (2, true));
    let error = site.refused(put(3)).await;
    assert!(
        error.contains("the list is full")
            && error.contains("at most 8388608")
            && error.contains("|bucket:N"),
        "{error}"
    );
    assert_eq!(count().await, (2, true));
    site.work(delete(1)).await;
    site.work(put(3)).await;
    assert_eq!(count().await, (2, true));
}

#[tokio::test]
async fn a_backfill_builds_a_list_that_is_longer_than_its_first_reading() {
    const PEOPLE: usize = 300;
    let site = site::Site::embedded(CATALOG).await;
    let mut keys: Vec<String> = (0..PEOPLE)
        .map(|number| format!("{:07}-{}", number * 7_919 % 1_000_000, "x".repeat(300)))
        .collect();
    let insert = |rk: &String| {
        let key = EntityKey::new("Sales", rk.as_str()).unwrap();
        TableOperation::Insert(Entity::new(key).with("LastName", "King"))
    };
    for some in keys.chunks(100) {
        let operations: Vec<_> = some.iter().map(insert).collect();
        site.account
            .tables
            .transact(
                &site.table("Staff§"),
                &Key::new("Sales").unwrap(),
                &operations,
            )
            .await
            .unwrap();
    }
    let mut job = json!({"op": "backfill", "view": "by_name"});
    loop {
        match site.attempt(&job).await.unwrap() {
            Outcome::Done(_) => break,
            Outcome::Advanced { fields, .. } => job.as_object_mut().unwrap().extend(fields),
            Outcome::Skipped { reason, .. } => panic!("{reason}"),
        }
    }
    let list = site.blob("lists-§", NAME).await.unwrap().content;
    assert!(list.len() > 64 << 10);
    let lines = std::str::from_utf8(&list).unwrap().lines().skip(1);
    let members: Vec<Vec<String>> = lines
        .map(|line| {
            serde_json::from_str::<(Vec<String>, String)>(line)
                .unwrap()
                .0
        })
        .collect();
    keys.sort();
    assert_eq!(
        members,
        keys.iter()
            .map(|rk| vec!["Sales".to_owned(), rk.clone()])
            .collect::<Vec<_>>()
    );
    site.in_step("Staff§").await;
}
