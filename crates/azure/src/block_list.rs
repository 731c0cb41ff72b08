//! Reads the blocks of a blob.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::xml;
use evenkeel_model::ports::{Block, BlockId};

/// Where the name of a block stands.
const NAME: [&str; 4] = ["BlockList", "CommittedBlocks", "Block", "Name"];

/// Why there is no list of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockListError {
    /// The answer is cut off or is no list.
    Damaged,
    /// A block with a name that this program would not give.
    Foreign,
}

/// Reads the committed blocks, in their order.
pub(super) fn read(body: &[u8]) -> Result<Vec<Block>, BlockListError> {
    let text = std::str::from_utf8(body).map_err(|_| BlockListError::Damaged)?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let (mut path, mut blocks) = (Vec::<String>::new(), Vec::new());
    let (mut name, mut length) = (String::new(), None);
    loop {
        match reader.read_event().map_err(|_| BlockListError::Damaged)? {
            Event::Start(tag) => path.push(tag.local_name().as_ref().to_owned()),
            Event::Empty(tag) if path.is_empty() && tag.local_name().as_ref() == "BlockList" => return Ok(blocks),
            Event::GeneralRef(reference) => {
                let text = xml::referred(&reference).ok_or(BlockListError::Damaged)?;
                if path == NAME {
                    name.push_str(&text);
                }
            }
            Event::Text(value) => match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                place if place == NAME => name.push_str(value.trim()),
                ["BlockList", "CommittedBlocks", "Block", "Size"] => length = value.trim().parse().ok(),
                _ => {}
            },
            Event::End(_) => {
                let ended = path.pop();
                if ended.as_deref() == Some("Block") && path.last().is_some_and(|list| list == "CommittedBlocks") {
                    let id = BASE64.decode(std::mem::take(&mut name)).ok().and_then(|id| id.try_into().ok());
                    let id = BlockId(id.ok_or(BlockListError::Foreign)?);
                    blocks.push(Block { id, length: length.take().ok_or(BlockListError::Damaged)? });
                }
                if path.is_empty() {
                    return if ended.as_deref() == Some("BlockList") { Ok(blocks) } else { Err(BlockListError::Damaged) };
                }
            }
            // An end tag that is missing shows here.
            Event::Eof => return Err(BlockListError::Damaged),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(name: &str) -> String {
        format!(
            "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<BlockList>\n<CommittedBlocks>\n<Block><Name>{name}</Name><Size>12</Size></Block>\
             </CommittedBlocks><UncommittedBlocks><Block><Name>YQ==</Name><Size>1</Size></Block></UncommittedBlocks></BlockList>"
        )
    }

    #[test]
    fn committed_blocks_are_read() {
        let id = BlockId::numbered(7);
        assert_eq!(read(xml(&BASE64.encode(id.0)).as_bytes()), Ok(vec![Block { id, length: 12 }]));
        assert_eq!(read(xml(&BASE64.encode(id.0).replace('=', "&#x3d;")).as_bytes()), Ok(vec![Block { id, length: 12 }]));
        for none in ["<BlockList/>", "<BlockList></BlockList>", "<BlockList><CommittedBlocks/></BlockList>"] {
            assert_eq!(read(none.as_bytes()), Ok(Vec::new()), "{none}");
        }
    }

    #[test]
    fn what_is_cut_off_or_of_others_is_told_apart() {
        assert_eq!(read(xml("YQ==").as_bytes()), Err(BlockListError::Foreign));
        let whole = xml(&BASE64.encode([0; 16]));
        for end in [3, 60, 150, whole.len() - 5] {
            assert_eq!(read(&whole.as_bytes()[..end]), Err(BlockListError::Damaged), "{end}");
        }
        assert_eq!(read(b"<html></html>"), Err(BlockListError::Damaged));
    }
}
