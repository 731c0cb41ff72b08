//! Limits of blob storage.

use std::collections::BTreeMap;

use super::Objection;
use crate::{BlobUpload, BlockId};
use evenkeel_model::limits;

/// Maximum bytes of one write (Azure, "Put Blob": 5,000 MiB).
const PUT_BYTES: usize = 5_000 << 20;

/// Checks the content and the headers of a write.
pub fn upload(content: &[u8], upload: &BlobUpload) -> Result<(), Objection> {
    if content.len() > PUT_BYTES {
        return Err(Objection::too_large(format!(
            "the content has {} bytes; one write allows at most 5,000 MiB",
            content.len()
        )));
    }
    metadata(&upload.metadata)?;
    for (name, value) in [
        ("Content-Type", &upload.content_type),
        ("Cache-Control", &upload.cache_control),
    ] {
        if let Some(value) = value
            && (value.is_empty() || !is_header_text(value))
        {
            return Err(Objection::permanent(format!(
                "the {name} {value:?} must be printable ASCII without surrounding spaces, and not empty"
            )));
        }
    }
    Ok(())
}

/// Checks metadata. Its names are case-insensitive.
pub fn metadata(metadata: &BTreeMap<String, String>) -> Result<(), Objection> {
    let (mut size, mut names) = (0, BTreeMap::new());
    for (name, value) in metadata {
        size += name.len() + value.len();
        if !is_identifier(name) {
            return Err(Objection::permanent(format!(
                "the metadata name {name:?} must be letters, digits and underscores, and not start with a digit"
            )));
        }
        if let Some(other) = names.insert(name.to_ascii_lowercase(), name) {
            return Err(Objection::permanent(format!(
                "the metadata names {other:?} and {name:?} differ only in case"
            )));
        }
        if !is_header_text(value) {
            return Err(Objection::permanent(format!(
                "the metadata value {value:?} of {name:?} must be printable ASCII without surrounding spaces"
            )));
        }
    }
    if size > limits::METADATA_BYTES {
        return Err(Objection::too_large(format!(
            "the metadata has {size} bytes; at most 8,192 are allowed"
        )));
    }
    Ok(())
}

pub fn append(content: &[u8]) -> Result<(), Objection> {
    if content.is_empty() {
        return Err(Objection::permanent("cannot append zero bytes"));
    }
    if content.len() > limits::APPEND_BYTES {
        return Err(Objection::too_large(format!(
            "the content has {} bytes; an append allows at most 4,194,304 (4 MiB)",
            content.len()
        )));
    }
    Ok(())
}

pub fn block(content: &[u8]) -> Result<(), Objection> {
    if content.is_empty() {
        return Err(Objection::permanent("the block is empty"));
    }
    if content.len() > limits::BLOCK_BYTES {
        return Err(Objection::too_large(format!(
            "the block has {} bytes; at most 104,857,600 (100 MiB) are allowed",
            content.len()
        )));
    }
    Ok(())
}

pub fn block_list(blocks: &[BlockId], headers: &BlobUpload) -> Result<(), Objection> {
    if blocks.len() > limits::BLOCKS {
        return Err(Objection::too_large(format!(
            "{} blocks were given; a blob has at most 50,000",
            blocks.len()
        )));
    }
    upload(&[], headers)
}

/// Whether a metadata name is a C# identifier of ASCII letters, digits and underscores.
fn is_identifier(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a header can contain this text unchanged.
fn is_header_text(value: &str) -> bool {
    value.bytes().all(|b| (b' '..=b'~').contains(&b)) && value.trim().len() == value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_names_are_identifiers() {
        assert!(is_identifier("ek_source") && is_identifier("_a1"));
        assert!(
            !is_identifier("")
                && !is_identifier("1a")
                && !is_identifier("a-b")
                && !is_identifier("한")
        );
        assert!(is_header_text("") && is_header_text("a b"));
        assert!(!is_header_text(" a") && !is_header_text("a\n") && !is_header_text("é"));
    }
}
