//! Parses a page of a container's blobs.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::xml;
use evenkeel_model::{BlobName, ETag};
use evenkeel_storage::{BlobItem, BlobPage};

/// Parses a page. Returns `None` if it is truncated or invalid. Names that this program would not write are left out.
pub(super) fn read(body: &[u8]) -> Option<BlobPage> {
    let text = std::str::from_utf8(body).ok()?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut page = BlobPage {
        blobs: Vec::new(),
        marker: None,
    };
    let mut path: Vec<String> = Vec::new();
    let mut blob = ListingEntry::default();
    let mut seen_root = false;
    loop {
        match reader.read_event().ok()? {
            Event::Start(tag) => {
                let name = tag.local_name().as_ref().to_owned();
                seen_root |= path.is_empty() && name == "EnumerationResults";
                match name.as_str() {
                    "Blob" => blob = ListingEntry::default(),
                    "Name" => blob.encoded = is_encoded(&tag),
                    _ => {}
                }
                path.push(name);
            }
            Event::Text(text) => take(&text, &path, &mut blob, &mut page),
            Event::GeneralRef(reference) => {
                take(&xml::referred(&reference)?, &path, &mut blob, &mut page);
            }
            Event::End(_) => {
                if path.pop().as_deref() == Some("Blob") {
                    page.blobs.extend(std::mem::take(&mut blob).item());
                }
                if path.is_empty() {
                    return seen_root.then_some(page);
                }
            }
            // The document ends too early, for instance because an end tag is missing.
            Event::Eof => return None,
            _ => {}
        }
    }
}

/// Adds a piece of text to the field that `path` denotes.
fn take(text: &str, path: &[String], blob: &mut ListingEntry, page: &mut BlobPage) {
    match path
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [_, "Blobs", "Blob", "Name"] => blob.name.push_str(text),
        [_, "Blobs", "Blob", "Properties", "Etag"] => blob.etag.push_str(text),
        [_, "Blobs", "Blob", "Properties", "Content-Length"] => {
            blob.length = text.trim().parse().ok();
        }
        [_, "NextMarker"] => page.marker.get_or_insert_default().push_str(text),
        _ => {}
    }
}

fn is_encoded(tag: &BytesStart<'_>) -> bool {
    tag.try_get_attribute("Encoded")
        .is_ok_and(|value| value.is_some_and(|value| value.value.eq_ignore_ascii_case("true")))
}

#[derive(Default)]
struct ListingEntry {
    name: String,
    encoded: bool,
    etag: String,
    length: Option<u64>,
}

impl ListingEntry {
    fn item(self) -> Option<BlobItem> {
        // Only names with characters that XML cannot contain are percent-encoded. Ours have none.
        if self.encoded {
            return None;
        }
        // ETags in listings lack the quotes that they have elsewhere.
        let etag = self.etag.trim();
        let etag = if etag.starts_with('"') {
            etag.to_owned()
        } else {
            format!("\"{etag}\"")
        };
        Some(BlobItem {
            name: BlobName::new(self.name).ok()?,
            etag: ETag::new(etag).ok()?,
            length: self.length?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults ServiceEndpoint=\"https://h/\" ContainerName=\"c\"><Prefix>a</Prefix>\
        <Blobs><Blob><Name>a/1&amp;2</Name><Properties><Etag>0x8D1</Etag><Content-Length>12</Content-Length><Content-MD5 /></Properties></Blob>\
        <Blob><Name Encoded=\"true\">a%EF%BF%BE</Name><Properties><Etag>0x8D2</Etag><Content-Length>1</Content-Length></Properties></Blob>\
        <Blob><Name>한글</Name><Properties><Etag>0x8D2</Etag><Content-Length>1</Content-Length></Properties></Blob>\
        <Blob><Name>a/3</Name><Properties><Etag>\"0x8D3\"</Etag><Content-Length>0</Content-Length></Properties></Blob></Blobs><NextMarker>2!x</NextMarker></EnumerationResults>";

    #[test]
    fn a_page_is_read() {
        let page = read(PAGE.as_bytes()).unwrap();
        let found: Vec<_> = page
            .blobs
            .iter()
            .map(|blob| (blob.name.as_str(), blob.etag.as_str(), blob.length))
            .collect();
        assert_eq!(found, [("a/1&2", "\"0x8D1\"", 12), ("a/3", "\"0x8D3\"", 0)]);
        assert_eq!(page.marker.as_deref(), Some("2!x"));
    }

    #[test]
    fn the_last_page_has_no_marker() {
        for last in [
            "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>",
            "<EnumerationResults><Blobs></Blobs><NextMarker></NextMarker></EnumerationResults>",
        ] {
            assert_eq!(
                read(last.as_bytes()),
                Some(BlobPage {
                    blobs: Vec::new(),
                    marker: None
                }),
                "{last}"
            );
        }
    }

    #[test]
    fn a_cut_off_page_is_none() {
        for end in [0, 50, 300, PAGE.len() - 25] {
            let end = (0..=end).rev().find(|i| PAGE.is_char_boundary(*i)).unwrap();
            assert_eq!(read(&PAGE.as_bytes()[..end]), None, "{end}");
        }
        assert_eq!(read(b"<html></html>"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(body in "(<EnumerationResults>|<Blobs>|<Blob>|</Blob>|<Name>|</Name>|<Name Encoded=\"true\">|&|<|>|\\PC){0,40}") {
            let _ = read(body.as_bytes());
        }
    }
}
