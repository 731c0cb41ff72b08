//! The head of a list in a blob: its view and source, and the first member of each block.

use serde::{Deserialize, Serialize};

use crate::model::body::Extent;
use crate::model::{Member, TableName, ViewName, limits};

/// The version of the format.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) view: ViewName,
    pub(super) source: TableName,
    pub(super) blocks: Vec<BlockEntry>,
}

/// The head's entry for a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockEntry {
    /// Its id; `None` where the list was written in one request.
    pub(super) id: Option<u128>,
    pub(super) bytes: u64,
    pub(super) members: u64,
    /// Every member of it is this one or comes after; those of the block before come before. The first one's is empty, which
    /// comes before every member.
    pub(super) from: Member,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    #[serde(rename = "ek_list")]
    version: u32,
    #[serde(rename = "ek_view")]
    view: ViewName,
    #[serde(rename = "ek_source")]
    source: [TableName; 1],
    #[serde(rename = "ek_count")]
    count: u64,
    #[serde(rename = "ek_blocks")]
    blocks: Vec<(String, u64, u64, Member)>,
}

/// Most JSON values of a head: those of as many blocks as a blob has, with members of a dozen texts.
const HEAD_VALUES: u64 = 16 * limits::BLOCKS as u64;

impl Head {
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let values = Extent::of(line).values;
        if values > HEAD_VALUES {
            return Err(format!("its head has {values} values, more than {HEAD_VALUES}"));
        }
        let wire: Wire = serde_json::from_slice(line).map_err(|error| format!("its first line is no head: {error}"))?;
        if wire.version != VERSION {
            return Err(format!("its head has the version {}, and this version of evenkeel reads {VERSION}", wire.version));
        }
        let [source] = wire.source;
        let mut blocks: Vec<BlockEntry> = Vec::with_capacity(wire.blocks.len());
        for (id, bytes, members, from) in wire.blocks {
            let id = if id.is_empty() {
                None
            } else {
                Some(u128::from_str_radix(&id, 16).map_err(|_| format!("its head names the block {id:?}"))?)
            };
            let in_order = blocks.last().map_or(from.0.is_empty(), |before| before.from < from);
            if !in_order {
                return Err(format!("the blocks in its head are not in order: {from} is out of place"));
            }
            blocks.push(BlockEntry { id, bytes, members, from });
        }
        if blocks.is_empty() || (blocks.len() > 1 && blocks.iter().any(|block| block.id.is_none())) {
            return Err("its head does not name its blocks".to_owned());
        }
        let members = blocks.iter().try_fold(0_u64, |members, block| members.checked_add(block.members));
        if members != Some(wire.count) {
            let members = members.map_or_else(|| "too many".to_owned(), |members| members.to_string());
            return Err(format!("its blocks have {members} members, and ek_count says {}", wire.count));
        }
        Ok(Self { view: wire.view, source, blocks })
    }

    /// The line, with its line break.
    pub(super) fn render(self) -> Vec<u8> {
        let block =
            |block: BlockEntry| (block.id.map(|id| format!("{id:032x}")).unwrap_or_default(), block.bytes, block.members, block.from);
        let wire = Wire {
            version: VERSION,
            view: self.view,
            source: [self.source],
            count: self.blocks.iter().map(|block| block.members).sum(),
            blocks: self.blocks.into_iter().map(block).collect(),
        };
        // Texts and numbers always serialise.
        let mut line = serde_json::to_vec(&wire).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// A member, as short as may be, that comes after one and not after the next.
pub(super) fn separator(before: &Member, first: &Member) -> Member {
    let same = before.0.iter().zip(&first.0).take_while(|(one, other)| one == other).count();
    let mut texts: Vec<String> = first.0.iter().take(same).cloned().collect();
    if let Some(text) = first.0.get(same) {
        let other = before.0.get(same).map_or("", String::as_str);
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let end = ends.into_iter().find(|end| &text[..*end] > other).unwrap_or(text.len());
        texts.push(text[..end].to_owned());
    }
    Member(texts)
}
