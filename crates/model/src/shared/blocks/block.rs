//! One block: the lines of some members.

use std::collections::BTreeMap;

use crate::model::{ETag, Member};

/// A member's line, rendered once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemberLine {
    token: ETag,
    /// With its line break.
    text: String,
}

/// Members in their order, each with its line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MemberBlock {
    lines: BTreeMap<Member, MemberLine>,
    bytes: u64,
}

impl MemberBlock {
    /// Reads the lines of a block; the problem, in words, where they are none.
    pub(super) fn parse(content: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(content).map_err(|error| format!("it is no UTF-8: {error}"))?;
        let mut lines: Vec<(Member, MemberLine)> = Vec::new();
        for line in text.split_inclusive('\n') {
            let (member, token): (Member, ETag) = serde_json::from_str(line).map_err(|error| {
                format!("the line {:?} is no member and its token: {error}", line.chars().take(200).collect::<String>())
            })?;
            if !line.ends_with('\n') {
                return Err(format!("the line of {member} is cut off"));
            }
            if let Some((before, _)) = lines.last().filter(|(before, _)| *before >= member) {
                return Err(format!("the members are not sorted and unique: {before} comes before {member}"));
            }
            lines.push((member, MemberLine { token, text: line.to_owned() }));
        }
        Ok(Self { lines: lines.into_iter().collect(), bytes: content.len() as u64 })
    }

    /// The bytes of its lines.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many members.
    pub(super) fn len(&self) -> u64 {
        self.lines.len() as u64
    }

    pub(super) fn token(&self, member: &Member) -> Option<&ETag> {
        self.lines.get(member).map(|line| &line.token)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&Member, &ETag)> + Clone {
        self.lines.iter().map(|(member, line)| (member, &line.token))
    }

    pub(super) fn first(&self) -> Option<&Member> {
        self.lines.keys().next()
    }

    pub(super) fn last(&self) -> Option<&Member> {
        self.lines.keys().next_back()
    }

    pub(super) fn insert(&mut self, member: Member, token: ETag) {
        // Texts always serialise.
        let mut text = serde_json::to_string(&(&member, &token)).unwrap_or_default();
        text.push('\n');
        self.bytes += text.len() as u64;
        if let Some(before) = self.lines.insert(member, MemberLine { token, text }) {
            self.bytes -= before.text.len() as u64;
        }
    }

    pub(super) fn remove(&mut self, member: &Member) {
        if let Some(before) = self.lines.remove(member) {
            self.bytes -= before.text.len() as u64;
        }
    }

    /// Takes in the members of a block that comes after this one.
    pub(super) fn append(&mut self, mut behind: Self) {
        self.lines.append(&mut behind.lines);
        self.bytes += behind.bytes;
    }

    /// The block in several, of about as many bytes each and at most about `most`.
    pub(super) fn split(self, most: u64) -> Vec<Self> {
        let each = self.bytes / self.bytes.div_ceil(most).max(1);
        let mut blocks = Vec::new();
        let (mut lines, mut bytes) = (Vec::new(), 0);
        for (member, line) in self.lines {
            bytes += line.text.len() as u64;
            lines.push((member, line));
            if bytes >= each {
                blocks.push(Self { lines: std::mem::take(&mut lines).into_iter().collect(), bytes: std::mem::take(&mut bytes) });
            }
        }
        if !lines.is_empty() {
            blocks.push(Self { lines: lines.into_iter().collect(), bytes });
        }
        blocks
    }

    /// Writes its lines.
    pub(super) fn render(&self, into: &mut Vec<u8>) {
        self.lines.values().for_each(|line| into.extend_from_slice(line.text.as_bytes()));
    }
}
