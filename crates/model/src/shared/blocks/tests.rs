use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::model::{AccountName, BlobName, ContainerName, ETag, ItemAddress, Member, Part, Site, TableName, ViewName};
use crate::shared::{ChangeEnd, Edit, PartChange};

fn view() -> ViewName {
    ViewName::new("by_name").unwrap()
}

fn empty() -> BlockedList {
    BlockedList::new(view(), TableName::new("Employees").unwrap())
}

fn member(rk: &str) -> Member {
    Member(vec!["Sales".to_owned(), rk.to_owned()])
}

fn change(rk: &str, write: Edit) -> PartChange {
    let site = Site::Blob { container: ContainerName::new("lists").unwrap(), name: BlobName::new("a").unwrap() };
    PartChange {
        address: ItemAddress { view: view(), account: AccountName::main(), site, part: Some(Part::Member(member(rk))) },
        write,
        says: None,
    }
}

fn put(rk: &str, over: Option<u64>, token: u64) -> PartChange {
    change(rk, Edit::Put { over: over.map(ETag::token), token: ETag::token(token) })
}

fn taken(rk: &str, at: u64) -> PartChange {
    change(rk, Edit::Drop(ETag::token(at)))
}

/// A blob, and the writes to it.
#[derive(Default)]
struct Blob {
    blocks: BTreeMap<u128, Vec<u8>>,
    content: Vec<u8>,
    ids: u128,
    uploaded: usize,
    written_whole: bool,
}

impl Blob {
    fn open(&self, first: usize) -> BlockedList {
        let mut read = first;
        loop {
            match BlockedList::open(&self.content[..read.min(self.content.len())], self.content.len() as u64).unwrap() {
                OpenedList::More(more) => read = usize::try_from(more).unwrap(),
                OpenedList::List(list) => return list,
            }
        }
    }

    fn fill(&self, list: &mut BlockedList, slots: impl IntoIterator<Item = usize>) {
        for slot in slots {
            let range = list.range(slot);
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            list.fill(slot, &self.content[range]).unwrap();
        }
    }

    fn change(&mut self, changes: &[PartChange]) -> Vec<ChangeEnd> {
        let mut list = if self.content.is_empty() { empty() } else { self.open(1_000) };
        let members = crate::shared::spilled::members_of(changes.iter().map(|change| &change.address), &view());
        let unread = list.unread_of(members);
        self.fill(&mut list, unread);
        let ended = changes.iter().map(|change| list.apply(change).unwrap()).collect();
        loop {
            let unread = list.reshape();
            if unread.is_empty() {
                break;
            }
            self.fill(&mut list, unread);
        }
        if list.is_changed() {
            self.write(&mut list);
        }
        ended
    }

    fn write(&mut self, list: &mut BlockedList) {
        let mut ids = self.ids;
        let written = list.write(|| {
            ids += 1;
            ids
        });
        self.ids = ids;
        self.written_whole = list.is_whole();
        match written {
            ListWrite::Whole(content) => {
                self.uploaded += content.len();
                self.blocks.clear();
                self.content = content;
            }
            ListWrite::Blocks { new, all } => {
                self.uploaded += new.iter().map(|(_, content)| content.len()).sum::<usize>();
                self.blocks.extend(new);
                self.blocks.retain(|id, _| all.contains(id));
                self.content = all.iter().flat_map(|id| self.blocks[id].clone()).collect();
            }
        }
    }

    fn members(&self) -> BTreeMap<Member, ETag> {
        let mut list = self.open(100);
        let unread = list.unread();
        self.fill(&mut list, unread);
        list.to_list().members
    }
}

#[test]
fn a_small_list_is_a_head_and_lines() {
    let mut blob = Blob::default();
    assert_eq!(blob.change(&[put("한", None, 1), put("a,b\"c\\", None, 2), put("10", None, 3)]), [ChangeEnd::Done; 3]);
    let text = String::from_utf8(blob.content.clone()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with(r#"{"ek_list":1,"ek_view":"by_name","ek_source":["Employees"],"ek_count":3,"#), "{text}");
    assert_eq!(lines[1], format!(r#"[["Sales","10"],"{}"]"#, ETag::token(3)));
    assert_eq!(lines[2], format!(r#"[["Sales","a,b\"c\\"],"{}"]"#, ETag::token(2)));
    assert_eq!(lines[3], format!(r#"[["Sales","한"],"{}"]"#, ETag::token(1)));
    assert!(blob.written_whole);
    assert_eq!(
        blob.change(&[put("10", None, 9), taken("10", 9), put("7", Some(1), 9), taken("7", 1)]),
        [ChangeEnd::Lost, ChangeEnd::Lost, ChangeEnd::Lost, ChangeEnd::Done]
    );
}

#[test]
fn a_list_that_grows_is_split_and_one_change_writes_one_block_and_the_head() {
    let mut blob = Blob::default();
    let all: Vec<PartChange> = (0..40_000).map(|n| put(&format!("{n:08}"), None, n)).collect();
    blob.change(&all);
    assert!(!blob.written_whole && blob.blocks.len() > 5);
    assert!(blob.blocks.values().all(|block| block.len() as u64 <= BLOCK_BYTES));
    for n in [0, 17, 20_000, 39_999] {
        let before = blob.uploaded;
        blob.change(&[put(&format!("{n:08}x"), None, 1), taken(&format!("{n:08}"), n)]);
        assert!(blob.uploaded - before < 264_000, "{}", blob.uploaded - before);
    }
    assert_eq!(blob.members().len(), 40_000);
}

#[test]
fn a_list_that_shrinks_is_joined_and_becomes_one_piece_again() {
    let mut blob = Blob::default();
    let all: Vec<PartChange> = (0..20_000).map(|n| put(&format!("{n:08}"), None, n)).collect();
    blob.change(&all);
    let blocks = blob.blocks.len();
    for from in (0..20_000).step_by(500) {
        let some: Vec<PartChange> = (from..from + 490).map(|n| taken(&format!("{n:08}"), n)).collect();
        blob.change(&some);
        if from == 10_000 {
            assert!(blob.blocks.len() < blocks);
        }
    }
    assert!(blob.written_whole);
    assert_eq!(blob.members().len(), 400);
}

#[test]
fn a_block_that_is_left_alone_is_read_before_it_is_written_with_the_head() {
    // Each line is longer than a block, so that two blocks are not joined because both would fit into one.
    let mut list = empty().in_blocks_of(20);
    for (rk, token) in [("1", 1), ("2", 2)] {
        list.apply(&put(rk, None, token)).unwrap();
    }
    let mut blob = Blob::default();
    assert!(list.reshape().is_empty());
    blob.write(&mut list);
    assert_eq!(blob.blocks.len(), 3, "the head and two blocks");

    let head = blob.content.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut list = blob.open(head).in_blocks_of(20);
    assert_eq!(list.unread_of([&member("1")]), BTreeSet::from([0]));
    blob.fill(&mut list, [0]);
    list.apply(&taken("1", 1)).unwrap();
    assert_eq!(list.reshape(), BTreeSet::from([0]), "the one that is left");
    blob.fill(&mut list, [0]);
    assert!(list.reshape().is_empty());
    blob.write(&mut list);
    assert!(blob.written_whole);
    assert_eq!(blob.members(), BTreeMap::from([(member("2"), ETag::token(2))]));
}

#[test]
fn a_list_that_goes_to_another_blob_is_uploaded_whole() {
    let mut first = Blob::default();
    let all: Vec<PartChange> = (0..20_000).map(|n| put(&format!("{n:08}"), None, n)).collect();
    first.change(&all);
    let mut list = first.open(1_000);
    let unread = list.unread();
    first.fill(&mut list, unread);
    list.apply(&taken("00000007", 7)).unwrap();
    let (mut second, mut list) = (Blob::default(), list.for_another_blob());
    assert!(list.reshape().is_empty());
    second.write(&mut list);
    assert!(!second.written_whole && second.blocks.len() > 2);
    assert_eq!(second.members().len(), 19_999);
}

#[test]
fn what_is_no_list_is_refused() {
    let mut blob = Blob::default();
    let all: Vec<PartChange> = (0..20_000).map(|n| put(&format!("{n:08}"), None, n)).collect();
    blob.change(&all);
    let length = blob.content.len() as u64;
    let text = String::from_utf8(blob.content.clone()).unwrap();
    let open = |text: &str| BlockedList::open(text.as_bytes(), text.len() as u64);
    for (broken, expected) in [
        ("hello".to_owned(), "it has no head"),
        ("hello\n".to_owned(), "its first line is no head"),
        (text.replace("\"ek_list\":1", "\"ek_list\":2"), "its head has the version 2"),
        (text.replace("\"ek_count\":20000", "\"ek_count\":7"), "ek_count says 7"),
        (format!("{text}x"), "its head speaks of"),
    ] {
        let error = open(&broken).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let mut list = blob.open(100_000);
    let range = list.range(1);
    let lines = &text[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
    for (broken, expected) in [
        (lines.replacen("Sales", "Zales", 1), "not sorted and unique"),
        (lines.replacen('[', "{", 1), "is no member and its token"),
        (lines[..lines.len() - 1].to_owned(), "is cut off"),
        (lines.lines().skip(1).fold(String::new(), |all, line| all + line + "\n"), "is not what the head says of it"),
        (lines.replacen("Sales", "Aales", 1), "is not what the head says of it"),
    ] {
        let error = list.fill(1, broken.as_bytes()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    assert!(BlockedList::open(&blob.content[..10], length).is_ok_and(|opened| matches!(opened, OpenedList::More(160))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    /// Long members, so that few of them fill blocks.
    #[test]
    fn any_sequence_of_changes_leaves_what_a_map_would(
        steps in proptest::collection::vec(proptest::collection::vec((0..600_u32, 0..3_u8), 1..120), 1..14),
    ) {
        let (mut blob, mut map): (Blob, BTreeMap<u32, u64>) = (Blob::default(), BTreeMap::new());
        let mut token = 0;
        for step in steps {
            let mut changes = Vec::new();
            for (number, kind) in step {
                token += 1;
                let rk = format!("{:03}{}", number, "한".repeat(1_900));
                match (kind, map.get(&number).copied()) {
                    (0 | 1, there) => { changes.push(put(&rk, there, token)); map.insert(number, token); }
                    (_, Some(there)) => { changes.push(taken(&rk, there)); map.remove(&number); }
                    (_, None) => changes.push(taken(&rk, token)),
                }
            }
            let ended = blob.change(&changes);
            prop_assert!(ended.iter().all(|ended| *ended == ChangeEnd::Done));
            prop_assert!(blob.blocks.values().all(|block| block.len() as u64 <= BLOCK_BYTES));
            if !blob.content.is_empty() {
                let found: Vec<(String, ETag)> = blob.members().into_iter().map(|(member, token)| (member.0[1][..3].to_owned(), token)).collect();
                let wanted: Vec<(String, ETag)> = map.iter().map(|(number, token)| (format!("{number:03}"), ETag::token(*token))).collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
