//! Message bodies. A body that is read may be plain text, Base64, or gzip in Base64. A body that is written is Base64, or gzip in Base64
//! if only that fits.
//!
//! Plain text is not written, for two reasons. The queue client trims plain text. And one plain message with markup or a control character
//! makes all messages of the same batch unreadable.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD as BASE64};

use super::limits;

/// Variants of Base64 that other programs write: with `-` and `_`, or without padding.
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD);
const UNPADDED: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, NO_PAD);

/// The first bytes of a gzip stream.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reasons why the text of a message cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The message is neither JSON nor Base64.
    #[error("the message ({0} bytes) is neither a JSON object nor Base64 of one")]
    NotBase64(usize),
    /// The message is Base64 of something that is not UTF-8.
    #[error(
        "the message is not a JSON object, and its Base64 ({bytes} bytes) is not UTF-8 text: invalid byte at {at}"
    )]
    NotUtf8 {
        /// Number of decoded bytes.
        bytes: usize,
        /// Index of the first invalid byte.
        at: usize,
    },
    /// The message has an unsupported encoding, or is encoded twice.
    #[error("the message is {0}")]
    Encoded(&'static str),
    /// The gzip stream is broken.
    #[error("the message is gzip in Base64, but cannot be expanded: {0}")]
    Gzip(String),
    /// The gzip stream expands beyond 1 MiB.
    #[error("the message is gzip in Base64 and expands to more than 1 MiB")]
    ExpandsTooFar,
}

/// The decoded text of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The text inside, not yet parsed.
    pub text: String,
    /// Length in bytes before decompression. The 48 KiB limit applies to this length.
    pub raw_bytes: usize,
}

/// The body of a message before decompression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawBody<'m> {
    /// Plain text.
    Text(&'m str),
    /// Decoded Base64: text, or gzip of text.
    Bytes(Vec<u8>),
}

impl<'m> RawBody<'m> {
    /// Decodes a message that is Base64, or keeps a message that is plain text.
    pub fn of(message: &'m str) -> Result<Self, BodyError> {
        let trimmed = trimmed(message);
        if trimmed.starts_with('{') {
            return Ok(Self::Text(trimmed));
        }
        // White space is removed only if the first attempt fails. Few senders break lines, so most messages are not copied.
        let compact = || {
            trimmed
                .bytes()
                .filter(|byte| !byte.is_ascii_whitespace())
                .collect::<Vec<u8>>()
        };
        let bytes = BASE64
            .decode(trimmed)
            .or_else(|_| BASE64.decode(compact()))
            .ok()
            .filter(|_| !trimmed.is_empty());
        bytes.map(Self::Bytes).ok_or_else(|| {
            recognised(trimmed).map_or(BodyError::NotBase64(trimmed.len()), BodyError::Encoded)
        })
    }

    /// Returns the text, decompressed.
    pub fn expanded(self) -> Result<Body, BodyError> {
        let bytes = match self {
            Self::Text(text) => {
                return Ok(Body {
                    text: text.to_owned(),
                    raw_bytes: text.len(),
                });
            }
            Self::Bytes(bytes) => bytes,
        };
        let raw_bytes = bytes.len();
        let bytes = if bytes.starts_with(&GZIP) {
            expand(&bytes)?
        } else {
            bytes
        };
        if UTF_16.iter().any(|start| bytes.starts_with(start)) {
            return Err(BodyError::Encoded(
                "UTF-16 in Base64; expected UTF-8 in Base64",
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| BodyError::NotUtf8 {
            bytes: error.as_bytes().len(),
            at: error.utf8_error().valid_up_to(),
        })?;
        Ok(Body {
            text: text.trim_start_matches('\u{feff}').to_owned(),
            raw_bytes,
        })
    }

    /// Measures the content without keeping it. Compressed content is expanded up to the size limit of a body, and no further.
    pub fn extent(&self) -> Extent {
        let mut extent = Extent::default();
        match self {
            Self::Text(text) => extent.add(text.as_bytes()),
            Self::Bytes(bytes) if bytes.starts_with(&GZIP) => {
                let mut expanded = flate2::read::GzDecoder::new(bytes.as_slice())
                    .take(limits::EXPANDED_BODY_BYTES as u64 + 1);
                let mut piece = [0; 8_192];
                while let Ok(read @ 1..) = expanded.read(&mut piece) {
                    extent.add(&piece[..read]);
                }
            }
            Self::Bytes(bytes) => extent.add(bytes),
        }
        extent
    }

    /// Returns at most the first `most` bytes, or `None` if these bytes are not text. Compressed content is decompressed no further.
    fn beginning(&self, most: usize) -> Option<Excerpt> {
        let bytes = match self {
            Self::Text(text) => return Some(beginning(text, most)),
            Self::Bytes(bytes) => bytes,
        };
        if !bytes.starts_with(&GZIP) {
            return Some(beginning(
                std::str::from_utf8(bytes)
                    .ok()?
                    .trim_start_matches('\u{feff}'),
                most,
            ));
        }
        let mut expanded = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice())
            .take(most as u64 + 1)
            .read_to_end(&mut expanded)
            .ok()?;
        let cut = expanded.len() > most;
        expanded.truncate(most);
        let text = match std::str::from_utf8(&expanded) {
            Ok(text) => text,
            // The cut may have split a character.
            Err(error) if cut && error.error_len().is_none() => {
                std::str::from_utf8(&expanded[..error.valid_up_to()]).ok()?
            }
            Err(_) => return None,
        };
        Some(Excerpt {
            text: text.trim_start_matches('\u{feff}').to_owned(),
            cut,
        })
    }
}

/// First bytes of JSON in UTF-16: a byte order mark, or the beginning of an object.
const UTF_16: [&[u8]; 4] = [b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{"];

/// Names the format of a text that is not a JSON object, if the format can be recognised. The text is a message, or the decoded Base64 of a
/// message.
fn recognised(text: &str) -> Option<&'static str> {
    let is_json = |bytes: Vec<u8>| bytes.first() == Some(&b'{') || bytes.starts_with(&GZIP);
    if text.starts_with('[')
        && ["\"specversion\"", "\"eventType\""]
            .iter()
            .any(|field| text.contains(field))
    {
        Some("an array of events; send one message per event")
    } else if text.starts_with('[') {
        Some("a JSON array, not an object; send one message per event or job")
    } else if text.starts_with('"') {
        Some("a JSON string, not an object; was it encoded as JSON twice?")
    } else if [URL_SAFE, UNPADDED]
        .iter()
        .any(|form| form.decode(text.trim_end_matches('=')).is_ok_and(is_json))
    {
        Some(
            "in URL-safe Base64 (- and _) or without padding; expected standard Base64 (+ and /) with padding (=)",
        )
    } else {
        None
    }
}

/// Names the format of a text that was decoded from a message and is not a JSON object. Returns `None` if the format is not recognised.
pub(super) fn inside(text: &str) -> Option<BodyError> {
    match RawBody::of(text) {
        Ok(RawBody::Bytes(bytes)) if bytes.first() == Some(&b'{') || bytes.starts_with(&GZIP) => {
            Some(BodyError::Encoded(
                "encoded in Base64 twice. Some queue libraries encode by themselves; encode it only once",
            ))
        }
        Err(error @ BodyError::Encoded(_)) => Some(error),
        Ok(_) | Err(_) => None,
    }
}

/// Decodes the text of a message.
pub fn decode(message: &str) -> Result<Body, BodyError> {
    RawBody::of(message)?.expanded()
}

fn trimmed(message: &str) -> &str {
    message.trim_start_matches('\u{feff}').trim()
}

/// Size of a message's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the text after decompression.
    pub bytes: u64,
    /// Upper bound of the number of JSON values.
    pub values: u64,
    /// Upper bound of the number of JSON objects.
    pub objects: u64,
    /// Upper bound of the number of property names.
    pub names: u64,
}

/// Memory of a JSON value in a list whose capacity has just doubled.
const VALUE_BYTES: u64 = 64;
/// Memory of an object: its map allocates room for eleven properties at once.
const OBJECT_BYTES: u64 = 640;
/// Memory of a property without its value: its name, and its share of the object's map. Up to half of a map is empty.
const NAME_BYTES: u64 = 128;

impl Extent {
    /// The extent of a text.
    pub fn of(text: &[u8]) -> Self {
        let mut extent = Self::default();
        extent.add(text);
        extent
    }

    /// Upper bound of the memory for the parsed values, without their texts.
    pub const fn parsed(self) -> u64 {
        VALUE_BYTES * self.values + OBJECT_BYTES * self.objects + NAME_BYTES * self.names
    }

    fn add(&mut self, text: &[u8]) {
        self.bytes += text.len() as u64;
        for byte in text {
            self.values += u64::from(matches!(byte, b',' | b'[' | b'{'));
            self.objects += u64::from(*byte == b'{');
            self.names += u64::from(*byte == b':');
        }
    }
}

/// The beginning of a message's text, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The decoded text, or the message as it is if it cannot be decoded.
    pub text: String,
    /// Whether the text was cut.
    pub cut: bool,
}

/// Returns at most the first `most` bytes of a message's decoded text. Compressed content is decompressed no further.
pub fn excerpt(message: &str, most: usize) -> Excerpt {
    let inside = RawBody::of(message)
        .ok()
        .and_then(|raw| raw.beginning(most));
    inside.unwrap_or_else(|| beginning(trimmed(message), most))
}

fn beginning(text: &str, most: usize) -> Excerpt {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(0);
    Excerpt {
        text: text[..end].to_owned(),
        cut: end < text.len(),
    }
}

/// Encodes JSON as the text of a message.
pub fn encode(json: &str) -> String {
    BASE64.encode(json)
}

/// Encodes JSON as the text of a message: as Base64, or as gzip in Base64 if only that fits. Returns `None` if neither fits.
pub fn pack(json: &str) -> Option<String> {
    if json.len() <= limits::QUEUE_BODY_BYTES {
        return Some(encode(json));
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(json.as_bytes()).ok()?;
    let bytes = gzip.finish().ok()?;
    (bytes.len() <= limits::QUEUE_BODY_BYTES && json.len() <= limits::EXPANDED_BODY_BYTES)
        .then(|| BASE64.encode(bytes))
}

fn expand(bytes: &[u8]) -> Result<Vec<u8>, BodyError> {
    let mut expanded = Vec::new();
    let limit = limits::EXPANDED_BODY_BYTES as u64 + 1;
    flate2::read::GzDecoder::new(bytes)
        .take(limit)
        .read_to_end(&mut expanded)
        .map_err(|error| BodyError::Gzip(error.to_string()))?;
    if expanded.len() > limits::EXPANDED_BODY_BYTES {
        Err(BodyError::ExpandsTooFar)
    } else {
        Ok(expanded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"op":"sync","table":"Employees","pk":"한","rk":"😀"}"#;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_form_a_sender_may_use_is_read() {
        let mime = BASE64
            .encode(JSON)
            .as_bytes()
            .chunks(20)
            .map(|c| std::str::from_utf8(c).unwrap())
            .collect::<Vec<_>>()
            .join("\r\n");
        for message in [
            JSON.to_owned(),
            format!("  {JSON}\n"),
            format!("\u{feff}{JSON}"),
            encode(JSON),
            mime,
            BASE64.encode(gzip(JSON.as_bytes())),
        ] {
            assert_eq!(decode(&message).unwrap().text, JSON, "{message}");
        }
    }

    #[test]
    fn what_is_long_is_compressed_where_that_helps() {
        let long = format!("{{\"note\":\"{}\"}}", "x".repeat(60_000));
        let packed = pack(&long).unwrap();
        assert!(packed.len() < 1_000);
        assert_eq!(decode(&packed).unwrap().text, long);
        assert_eq!(pack(JSON).unwrap(), encode(JSON));
        assert_eq!(
            pack(&" ".repeat(limits::EXPANDED_BODY_BYTES + 1)),
            None,
            "no worker would expand it"
        );
        let noise = hex::encode(
            (0..30_000_u64)
                .flat_map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
                .collect::<Vec<u8>>(),
        );
        assert_eq!(pack(&noise), None);
    }

    fn extent(message: &str) -> Extent {
        RawBody::of(message).unwrap().extent()
    }

    #[test]
    fn how_much_a_message_holds_is_known_without_holding_it() {
        let zeros = format!("{{\"op\":[{}]}}", vec!["0"; 300_000].join(","));
        let packed = pack(&zeros).unwrap();
        assert!(packed.len() < 2_000);
        let whole = Extent {
            bytes: zeros.len() as u64,
            values: 300_001,
            objects: 1,
            names: 1,
        };
        for message in [zeros.clone(), BASE64.encode(&zeros), packed] {
            assert_eq!(extent(&message), whole);
        }
        let bomb = BASE64.encode(gzip(&vec![b','; 40_000_000]));
        assert_eq!(
            extent(&bomb).values,
            limits::EXPANDED_BODY_BYTES as u64 + 1,
            "it is not expanded to its end"
        );
        assert!(RawBody::of("hello there").is_err());
        assert!(extent(&BASE64.encode([0x1f, 0x8b, 8, 0])).bytes == 0);
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        assert!(matches!(
            decode("hello there"),
            Err(BodyError::NotBase64(_))
        ));
        assert!(matches!(decode(""), Err(BodyError::NotBase64(_))));
        assert!(matches!(decode("<job/>"), Err(BodyError::NotBase64(_))));
        assert!(matches!(
            decode(&BASE64.encode([0xff, 0xff])),
            Err(BodyError::NotUtf8 { at: 0, .. })
        ));
        assert!(matches!(
            decode(&BASE64.encode([0x1f, 0x8b, 8, 0])),
            Err(BodyError::Gzip(_))
        ));
        assert_eq!(
            decode(&BASE64.encode(gzip(&vec![b' '; 2_000_000]))),
            Err(BodyError::ExpandsTooFar)
        );
    }
}
