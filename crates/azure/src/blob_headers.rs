//! Headers of a blob: conditions, metadata and ranges.

use std::collections::BTreeMap;

use azure_core::prelude::{IfMatchCondition, Metadata};

use super::amend::Amendment;
use super::transport::HttpAnswer;
use evenkeel_storage::{BlobCondition, BlobUpload};

/// Parses `bytes 0-9/100` into the start of the range and the total length.
pub(super) fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, length) = text.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (start, _) = range.split_once('-')?;
    Some((start.trim().parse().ok()?, length.trim().parse().ok()?))
}

pub(super) fn metadata_of(answer: &HttpAnswer) -> BTreeMap<String, String> {
    let pairs = answer.headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-ms-meta-")?;
        Some((
            name.to_owned(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        ))
    });
    pairs.collect()
}

pub(super) fn condition(condition: &BlobCondition) -> Option<IfMatchCondition> {
    match condition {
        BlobCondition::None => None,
        BlobCondition::Absent => Some(IfMatchCondition::NotMatch("*".to_owned())),
        BlobCondition::Matches(etag) => Some(IfMatchCondition::Match(etag.as_str().to_owned())),
    }
}

pub(super) fn headers_of(metadata: &BTreeMap<String, String>) -> Metadata {
    let mut headers = Metadata::new();
    for (name, value) in metadata {
        headers.insert(name.to_ascii_lowercase(), value.clone());
    }
    headers
}

/// Headers that the library could set only by a second request.
pub(super) fn context_of(upload: &BlobUpload) -> azure_core::Context {
    let amendment = Amendment::default();
    match &upload.cache_control {
        Some(cache_control) => amendment.header("x-ms-blob-cache-control", cache_control.clone()),
        None => amendment,
    }
    .context()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read() {
        assert_eq!(content_range("bytes 0-9/100"), Some((0, 100)));
        assert_eq!(
            content_range("bytes 8388608-8388609/8388610"),
            Some((8_388_608, 8_388_610))
        );
        for bad in ["", "bytes */0", "bytes 0-9/*", "items 0-9/10"] {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }
}
