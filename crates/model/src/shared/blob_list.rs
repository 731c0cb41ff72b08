//! Lists in blobs: a head, then one line per member, sorted.
//!
//! ```text
//!   {"ek_list":1,"ek_view":"by_name","ek_source":["Employees"],"ek_count":2}     the head: one line
//!   [["Sales","000223"],"9sHl0mq2kPo"]                                           a member and its token
//!   [["Sales","000412"],"EVT7Qj0xN1U"]
//! ```
//!
//! A list is read and written as a whole. The lines of a list stay in their text form, because parsed members take several times the
//! memory.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::change::apply;
use super::list::List;
use super::{ChangeOutcome, PartChange};
use crate::{ETag, Member, TableName, ViewName, limits};

/// Format version of the list.
const VERSION: u32 = 1;

/// Maximum bytes of a line: its member, with three bytes of UTF-8 per UTF-16 unit, and its token.
const LINE_BYTES: usize = 3 * limits::MEMBER_UTF16_UNITS + 1_024;

/// A list in a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobList {
    view: ViewName,
    source: TableName,
    count: u64,
    /// Everything after the head.
    lines: Bytes,
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(rename = "ek_list")]
    version: u32,
    #[serde(rename = "ek_view")]
    view: ViewName,
    #[serde(rename = "ek_source")]
    source: [TableName; 1],
    #[serde(rename = "ek_count")]
    count: u64,
}

impl BlobList {
    /// Creates a list without members.
    pub const fn new(view: ViewName, source: TableName) -> Self {
        Self {
            view,
            source,
            count: 0,
            lines: Bytes::new(),
        }
    }

    /// Parses the content of a blob. The error describes the problem.
    pub fn parse(content: &Bytes) -> Result<Self, String> {
        let end = content
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or("the head is missing")?;
        let head: Head = serde_json::from_slice(&content[..end])
            .map_err(|error| format!("the head is invalid: {error}"))?;
        if head.version != VERSION {
            return Err(format!(
                "the head has version {}, expected {VERSION}",
                head.version
            ));
        }
        let [source] = head.source;
        let list = Self {
            view: head.view,
            source,
            count: head.count,
            lines: content.slice(end + 1..),
        };
        let (mut count, mut before) = (0, None);
        for line in list.lines.split_inclusive(|byte| *byte == b'\n') {
            let (member, _) = read(line)?;
            if let Some(before) = before.filter(|before| *before >= member) {
                return Err(format!(
                    "the members are not sorted and unique: {before} precedes {member}"
                ));
            }
            before = Some(member);
            count += 1;
        }
        if count != list.count {
            return Err(format!(
                "ek_count is {}, but the list has {count} members",
                list.count
            ));
        }
        Ok(list)
    }

    /// Returns the content of the blob.
    pub fn render(&self) -> Vec<u8> {
        let head = Head {
            version: VERSION,
            view: self.view.clone(),
            source: [self.source.clone()],
            count: self.count,
        };
        // Serialising texts and numbers cannot fail.
        let mut content = serde_json::to_vec(&head).unwrap_or_default();
        content.push(b'\n');
        content.extend_from_slice(&self.lines);
        content
    }

    /// The view of the list.
    pub const fn view(&self) -> &ViewName {
        &self.view
    }

    /// The table of its primaries.
    pub const fn source(&self) -> &TableName {
        &self.source
    }

    /// The number of members.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns all members with their tokens.
    pub fn to_list(&self) -> List {
        List {
            members: self.members().collect(),
        }
    }

    /// Returns those of the given members that are in the list, with their tokens.
    pub fn only(&self, members: &BTreeSet<&Member>) -> List {
        List {
            members: self
                .members()
                .filter(|(member, _)| members.contains(member))
                .collect(),
        }
    }

    fn members(&self) -> impl Iterator<Item = (Member, ETag)> {
        // This skips no line, because `parse` has checked all lines.
        self.lines
            .split_inclusive(|byte| *byte == b'\n')
            .filter_map(|line| read(line).ok())
    }

    /// Applies changes one after the other. Returns the changed list, or `None` if nothing changes, and the outcome of each change.
    pub fn changed(&self, changes: &[PartChange]) -> (Option<Self>, Vec<ChangeOutcome>) {
        let own = |change: &&PartChange| change.address.view == self.view;
        let concerned: BTreeSet<&Member> = changes
            .iter()
            .filter(own)
            .filter_map(|change| change.address.member())
            .collect();
        let before = self.only(&concerned);
        let mut after = before.clone();
        let end = |change: &PartChange| {
            if change.address.view == self.view {
                apply(&mut after, change)
            } else if change.write.token().is_none() {
                // The list belongs to another view, so members to drop are absent, and members to put cannot be written.
                ChangeOutcome::Done
            } else {
                ChangeOutcome::Lost
            }
        };
        let ended = changes.iter().map(end).collect();
        let changed = (after != before).then(|| self.with(&concerned, &after));
        (changed, ended)
    }

    /// Returns the list in which the members of `replaced` take the place of the members of `concerned`.
    fn with(&self, concerned: &BTreeSet<&Member>, replaced: &List) -> Self {
        let mut lines = Vec::with_capacity(self.lines.len() + LINE_BYTES);
        let (mut count, mut new) = (0, replaced.members.iter().peekable());
        for line in self.lines.split_inclusive(|byte| *byte == b'\n') {
            let Ok((member, _)) = read(line) else {
                continue;
            };
            while let Some(before) = new.next_if(|(before, _)| **before < member) {
                write(&mut lines, before);
                count += 1;
            }
            if !concerned.contains(&member) {
                lines.extend_from_slice(line);
                count += 1;
            }
        }
        for left in new {
            write(&mut lines, left);
            count += 1;
        }
        Self {
            view: self.view.clone(),
            source: self.source.clone(),
            count,
            lines: lines.into(),
        }
    }
}

fn read(line: &[u8]) -> Result<(Member, ETag), String> {
    let text = || String::from_utf8_lossy(&line[..line.len().min(200)]).into_owned();
    if line.len() > LINE_BYTES || line.last() != Some(&b'\n') {
        return Err(format!(
            "line {:?} is truncated or longer than {LINE_BYTES} bytes",
            text()
        ));
    }
    serde_json::from_slice(line)
        .map_err(|error| format!("line {:?} is not a member with its token: {error}", text()))
}

fn write(lines: &mut Vec<u8>, line: (&Member, &ETag)) {
    // Serialising texts cannot fail.
    lines.extend(serde_json::to_vec(&line).unwrap_or_default());
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::shared::Edit;
    use crate::{AccountName, BlobName, ContainerName, ItemAddress, Part, Site};

    fn view(name: &str) -> ViewName {
        ViewName::new(name).unwrap()
    }

    fn empty() -> BlobList {
        BlobList::new(view("by_name"), TableName::new("Employees").unwrap())
    }

    fn change(rk: &str, write: Edit) -> PartChange {
        let site = Site::Blob {
            container: ContainerName::new("lists").unwrap(),
            name: BlobName::new("king.jsonl").unwrap(),
        };
        let part = Some(Part::Member(Member(vec![
            "Sales".to_owned(),
            rk.to_owned(),
        ])));
        PartChange {
            address: ItemAddress {
                view: view("by_name"),
                account: AccountName::main(),
                site,
                part,
            },
            write,
            properties: None,
        }
    }

    fn put(rk: &str, over: Option<u64>, token: u64) -> PartChange {
        change(
            rk,
            Edit::Put {
                over: over.map(ETag::token),
                token: ETag::token(token),
            },
        )
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let changes = [
            put("한,\"\n", None, 1),
            put("9", None, 2),
            put("10", None, 3),
        ];
        let (list, ended) = empty().changed(&changes);
        let list = list.unwrap();
        assert_eq!(ended, [ChangeOutcome::Done; 3]);
        let content = String::from_utf8(list.render()).unwrap();
        let lines: Vec<&str> = content.lines().collect();
        assert_eq!(
            lines[0],
            r#"{"ek_list":1,"ek_view":"by_name","ek_source":["Employees"],"ek_count":3}"#
        );
        assert!(lines[1].starts_with(r#"[["Sales","10"],"#), "{content}");
        assert_eq!(BlobList::parse(&Bytes::from(content)), Ok(list));
    }

    #[test]
    fn a_list_that_was_edited_by_hand_is_refused() {
        let content = String::from_utf8(
            empty()
                .changed(&[put("7", None, 1), put("8", None, 2)])
                .0
                .unwrap()
                .render(),
        )
        .unwrap();
        let [head, one, two]: [&str; 3] = content.lines().collect::<Vec<_>>().try_into().unwrap();
        let long = format!(
            "[[\"Sales\",\"{}\"],\"9sHl0mq2kPo\"]",
            "x".repeat(LINE_BYTES)
        );
        for broken in [
            String::new(),
            head.to_owned(),
            format!("{one}\n{two}\n"),
            format!(
                "{}\n{one}\n{two}\n",
                head.replace("\"ek_list\":1", "\"ek_list\":2")
            ),
            format!("{head}\n{one}\n"),
            format!("{head}\n{two}\n{one}\n"),
            format!("{head}\n{one}\n{one}\n"),
            format!("{head}\n{one}\n{two}"),
            format!("{head}\n{one}\nSales;8\n"),
            format!("{head}\n{one}\n{long}\n"),
        ] {
            assert!(
                BlobList::parse(&Bytes::from(broken.clone())).is_err(),
                "{broken}"
            );
        }
    }

    proptest! {
        #[test]
        fn rounds_of_changes_have_the_same_result_as_on_a_map(
            rounds in proptest::collection::vec(proptest::collection::vec((0..8_u8, 0..3_u8, any::<bool>()), 1..6), 0..20)
        ) {
            let (mut list, mut map, mut token) = (empty(), BTreeMap::<String, u64>::new(), 0);
            for round in rounds {
                let (mut changes, mut expected) = (Vec::new(), Vec::new());
                for (member, kind, right) in round {
                    token += 1;
                    let rk = format!("{member}\"한");
                    let there = map.get(&rk).copied();
                    let guess = if right { there } else { Some(1_000_000) };
                    let one = match kind {
                        0 => put(&rk, None, token),
                        1 => put(&rk, guess, token),
                        _ => change(&rk, Edit::Drop(ETag::token(guess.unwrap_or(1_000_000)))),
                    };
                    expected.push(match &one.write {
                        Edit::Put { over, .. } if *over == there.map(ETag::token) => { map.insert(rk, token); ChangeOutcome::Done }
                        Edit::Drop(at) if Some(at.clone()) == there.map(ETag::token) => { map.remove(&rk); ChangeOutcome::Done }
                        Edit::Drop(_) if there.is_none() => ChangeOutcome::Done,
                        _ => ChangeOutcome::Lost,
                    });
                    changes.push(one);
                }
                let (changed, ended) = list.changed(&changes);
                prop_assert_eq!(ended, expected);
                list = changed.unwrap_or(list);
                list = BlobList::parse(&Bytes::from(list.render())).unwrap();
                let found: BTreeMap<String, ETag> = list.to_list().members.into_iter().map(|(member, token)| (member.0[1].clone(), token)).collect();
                prop_assert_eq!(found, map.iter().map(|(rk, token)| (rk.clone(), ETag::token(*token))).collect::<BTreeMap<_, _>>());
            }
        }
    }
}
