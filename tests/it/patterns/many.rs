//! Lists of many members, on the embedded store: one of a million, and one that a backfill builds.

use std::collections::BTreeSet;

use evenkeel::model::{
    AccountName, BlobName, ContainerName, ETag, Entity, EntityKey, ItemAddress, Key, Member, Part, Site, TableName, ViewName, item,
};
use evenkeel::ports::{BlobUpload, Block, BlockId, TableOperation};
use evenkeel::reconcile::Outcome;
use evenkeel::shared::blocks::{BLOCK_BYTES, BlockedList, ListWrite};
use evenkeel::shared::{Edit, PartChange};
use serde_json::json;

use crate::patterns::lists::CATALOG;
use crate::patterns::site;

const MEMBERS: u64 = 1_000_000;
/// Changes made one by one. Each reads and writes one block of some hundred, wherever it is.
const CHANGES: u64 = 1_000;
/// Most bytes that a change may write.
const MOST: u64 = 1 << 20;
const NAME: &str = "by_name/king.jsonl";

fn rk(number: u64) -> String {
    // Spread over all of the list.
    format!("{:07}", number * 7_919 % MEMBERS)
}

fn put(address: &ItemAddress, number: u64) -> PartChange {
    let member = Member(vec!["Sales".to_owned(), format!("{number:07}")]);
    let write = Edit::Put { over: None, token: ETag::token(number) };
    PartChange { address: ItemAddress { part: Some(Part::Member(member)), ..address.clone() }, write, says: None }
}

async fn blocks(site: &site::Site, container: &ContainerName, name: &BlobName) -> Vec<Block> {
    site.account.blobs.block_list(container, name).await.unwrap().unwrap().blocks
}

#[tokio::test]
async fn a_million_members_are_one_list_of_which_a_change_writes_one_block_and_the_head() {
    let site = site::Site::embedded(CATALOG).await;
    let (container, name) = (ContainerName::new(site.name("lists-§")).unwrap(), BlobName::new(NAME).unwrap());
    let (view, source) = (ViewName::new("by_name").unwrap(), TableName::new(site.name("Staff§")).unwrap());

    // All at once, as a turn gathers them.
    let place = Site::Blob { container: container.clone(), name: name.clone() };
    let address = ItemAddress { view: view.clone(), account: AccountName::main(), site: place, part: None };
    let mut list = BlockedList::new(view.clone(), source.clone());
    for number in 0..MEMBERS {
        list.apply(&put(&address, number)).unwrap();
    }
    assert!(list.reshape().is_empty());
    let mut ids = 0;
    let written = list.write(|| {
        ids += 1;
        ids
    });
    let ListWrite::Blocks { new, all } = written else { panic!("not written as blocks") };
    let bytes: u64 = new.iter().map(|(_, content)| content.len() as u64).sum();
    let id = |id: u128| BlockId(id.to_be_bytes());
    for (block, content) in new {
        assert!(content.len() as u64 <= BLOCK_BYTES);
        site.account.blobs.put_block(&container, &name, id(block), content.into()).await.unwrap();
    }
    let metadata = item::metadata(&item::shared_source_text(&source), &view);
    let upload = BlobUpload { metadata, ..BlobUpload::default() };
    site.account.blobs.put_block_list(&container, &name, &all.into_iter().map(id).collect::<Vec<_>>(), &upload).await.unwrap();

    let mut before = blocks(&site, &container, &name).await;
    let count = before.len();
    for number in 0..CHANGES {
        // Behind a member that is there.
        let entity = json!({"PartitionKey": "Sales", "RowKey": format!("{}x", rk(number)), "LastName": "King"});
        site.work(json!({"op": "put", "table": "Staff§", "entity": entity})).await;
        let after = blocks(&site, &container, &name).await;
        let known: BTreeSet<BlockId> = before.iter().map(|block| block.id).collect();
        let uploaded: u64 = after.iter().filter(|block| !known.contains(&block.id)).map(|block| block.length).sum();
        assert!(uploaded < MOST.min(BLOCK_BYTES + 64 * 1024), "{uploaded} bytes for one member of {bytes}");
        before = after;
    }
    assert_eq!(before.len(), count, "no block was split for it");
    let head = site.account.blobs.get(&container, &name, Some(0..120)).await.unwrap().unwrap();
    assert!(String::from_utf8(head.content.to_vec()).unwrap().contains(&format!("\"ek_count\":{}", MEMBERS + CHANGES)));
    assert_eq!(head.properties.metadata["ek_count"], (MEMBERS + CHANGES).to_string());
}

#[tokio::test]
async fn a_backfill_builds_a_list_of_several_blocks() {
    const PEOPLE: usize = 1_200;
    let site = site::Site::embedded(CATALOG).await;
    // Long keys, so that few of them fill a block.
    let mut keys: Vec<String> = (0..PEOPLE).map(|number| format!("{:07}-{}", number * 7_919 % 1_000_000, "x".repeat(300))).collect();
    let insert = |rk: &String| {
        let key = EntityKey::new("Sales", rk.as_str()).unwrap();
        TableOperation::Insert(Entity::new(key).with("LastName", "King"))
    };
    for some in keys.chunks(100) {
        let operations: Vec<_> = some.iter().map(insert).collect();
        site.account.tables.transact(&site.table("Staff§"), &Key::new("Sales").unwrap(), &operations).await.unwrap();
    }
    let mut job = json!({"op": "backfill", "view": "by_name"});
    loop {
        match site.attempt(&job).await.unwrap() {
            Outcome::Done(_) => break,
            Outcome::Advanced { fields, .. } => job.as_object_mut().unwrap().extend(fields),
            Outcome::Skipped { reason, .. } => panic!("{reason}"),
        }
    }
    let (container, name) = (ContainerName::new(site.name("lists-§")).unwrap(), BlobName::new(NAME).unwrap());
    assert!(blocks(&site, &container, &name).await.len() > 2);
    let list = site.account.blobs.get(&container, &name, None).await.unwrap().unwrap().content;
    let lines = std::str::from_utf8(&list).unwrap().lines().skip(1);
    let members: Vec<Vec<String>> = lines.map(|line| serde_json::from_str::<(Vec<String>, String)>(line).unwrap().0).collect();
    keys.sort();
    assert_eq!(members, keys.iter().map(|rk| vec!["Sales".to_owned(), rk.clone()]).collect::<Vec<_>>());
    site.in_step("Staff§").await;
}
