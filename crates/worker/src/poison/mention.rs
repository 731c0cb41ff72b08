//! Finds keys in a text in any encoding: JSON escapes, Base64, gzip, UTF-16. Pure.
//!
//! This search is for texts that cannot be decoded as jobs. A key must occur as a whole word: `7`
//! matches `"RowKey":"7"` but not `17`. A key without a letter or digit is never found, because
//! most texts contain it. If PartitionKey and RowKey are equal, the word must occur twice.

use std::io::Read as _;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use evenkeel_model::{EntityKey, limits};

/// Maximum depth of nested encodings. Base64 of gzip of JSON inside a JSON string has a depth of
/// four.
const MAX_DEPTH: u8 = 4;
/// Maximum total length of all decoded texts, in bytes.
const MAX_BYTES: usize = 8 * limits::EXPANDED_BODY_BYTES;
/// Shortest run of letters and digits that is decoded as Base64.
const MIN_RUN: usize = 8;
/// Decoded parts that are shorter than this and not text are ignored, because a plain word may look
/// like Base64.
const MIN_OPAQUE_BYTES: usize = 16;
const GZIP: [u8; 2] = [0x1f, 0x8b];

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

#[derive(Debug, Default)]
pub(super) struct Spellings {
    texts: Vec<String>,
    bytes: usize,
    /// Whether a part could not be searched because it is not text or is too large.
    pub(super) opaque: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mention {
    Both,
    /// The RowKey was found. The PartitionKey was not found, or cannot be distinguished from other
    /// words.
    RowKey,
    Neither,
}

impl Spellings {
    /// `text` is the message as it was on its queue.
    pub(super) fn of(text: &str) -> Self {
        let mut all = Self::default();
        all.add(text.to_owned(), MAX_DEPTH, true);
        all
    }

    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    pub(super) fn mention(&self, key: &EntityKey) -> Mention {
        let (pk, rk) = (key.pk.as_str(), key.rk.as_str());
        let tells = |word: &str| word.contains(char::is_alphanumeric);
        let stands = |word: &str, times: usize| {
            self.texts
                .iter()
                .any(|text| words(text, word).nth(times - 1).is_some())
        };
        if !stands(rk, 1) {
            return Mention::Neither;
        }
        let both = tells(pk) && tells(rk) && stands(pk, if pk == rk { 2 } else { 1 });
        if both { Mention::Both } else { Mention::RowKey }
    }

    /// Adds a text and every text encoded in it. `whole` is true if `text` is the whole message.
    fn add(&mut self, text: String, deep: u8, whole: bool) {
        self.bytes += text.len();
        if self.bytes > MAX_BYTES {
            self.opaque = true;
            return;
        }
        if deep > 0 {
            let compact: String = text.chars().filter(|char| !char.is_whitespace()).collect();
            match decoded(&compact) {
                Some(bytes) if !compact.is_empty() => self.add_bytes(&bytes, deep - 1, whole),
                _ => {
                    for bytes in runs(&text).filter_map(decoded) {
                        self.add_bytes(&bytes, deep - 1, false);
                    }
                    if let Some(unescaped) = unescaped(&text) {
                        self.add(unescaped, deep - 1, whole);
                    }
                }
            }
        }
        self.texts.push(text);
    }

    fn add_bytes(&mut self, bytes: &[u8], deep: u8, whole: bool) {
        if bytes.starts_with(&GZIP) {
            let mut expanded = Vec::new();
            let read = flate2::read::GzDecoder::new(bytes)
                .take(limits::EXPANDED_BODY_BYTES as u64 + 1)
                .read_to_end(&mut expanded);
            // If the stream is damaged, the bytes before the damage are still searched.
            self.opaque |= whole && (read.is_err() || expanded.len() > limits::EXPANDED_BODY_BYTES);
            if !expanded.is_empty() && !expanded.starts_with(&GZIP) {
                self.add_bytes(&expanded, deep, whole);
            }
            return;
        }
        let text = std::str::from_utf8(bytes)
            .map(str::to_owned)
            .ok()
            .filter(|text| !text.contains('\0'))
            .or_else(|| utf16(bytes));
        if let Some(text) = text {
            self.add(text, deep, whole);
        } else if whole {
            self.opaque |= bytes.len() >= MIN_OPAQUE_BYTES;
            self.add(String::from_utf8_lossy(bytes).into_owned(), 0, false);
        }
    }
}

/// The positions at which `word` occurs as a whole word.
fn words<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let goes_on = |char: Option<char>| char.is_some_and(char::is_alphanumeric);
    let (first, last) = (
        goes_on(word.chars().next()),
        goes_on(word.chars().next_back()),
    );
    let is_one = move |(at, found): &(usize, &str)| {
        let before = first && goes_on(text[..*at].chars().next_back());
        let after = last && goes_on(text[*at + found.len()..].chars().next());
        !before && !after
    };
    text.match_indices(word).filter(is_one).map(|(at, _)| at)
}

fn runs(text: &str) -> impl Iterator<Item = &str> {
    let is_base64 =
        |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '/' | '-' | '_' | '=');
    text.split(move |char| !is_base64(char))
        .filter(|run| run.len() >= MIN_RUN)
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .into_iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, LENIENT).decode(text).ok())
}

/// Decodes UTF-16. It is recognised by its byte order mark, or because every second byte is zero,
/// as in Latin text.
fn utf16(bytes: &[u8]) -> Option<String> {
    let zeros = |odd: usize| {
        bytes
            .iter()
            .skip(odd)
            .step_by(2)
            .filter(|byte| **byte == 0)
            .count()
    };
    let big = match bytes {
        [0xff, 0xfe, ..] => false,
        [0xfe, 0xff, ..] => true,
        _ if zeros(1) * 4 > bytes.len() => false,
        _ if zeros(0) * 4 > bytes.len() => true,
        _ => return None,
    };
    let unit = |pair: &[u8; 2]| {
        if big {
            u16::from_be_bytes(*pair)
        } else {
            u16::from_le_bytes(*pair)
        }
    };
    let units: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(unit).collect();
    String::from_utf16(&units).ok()
}

/// Replaces each JSON escape by its character. Returns `None` if the text has no escape.
fn unescaped(text: &str) -> Option<String> {
    text.contains('\\').then(|| {
        let (mut plain, mut rest) = (Vec::with_capacity(text.len() / 2), text);
        while let Some((before, escape)) = rest.split_once('\\') {
            plain.extend(before.encode_utf16());
            let mut chars = escape.chars();
            rest = match chars.next() {
                Some('u') => match escape
                    .get(1..5)
                    .and_then(|hex| u16::from_str_radix(hex, 16).ok())
                {
                    Some(unit) => {
                        plain.push(unit);
                        &escape[5..]
                    }
                    None => escape,
                },
                Some(char @ ('n' | 'r' | 't' | 'b' | 'f')) => {
                    plain.push(u16::from(b' '));
                    &escape[char.len_utf8()..]
                }
                Some(char) => {
                    plain.extend(char.encode_utf16(&mut [0; 2]).iter());
                    &escape[char.len_utf8()..]
                }
                None => "",
            };
        }
        plain.extend(rest.encode_utf16());
        String::from_utf16_lossy(&plain)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn mention(text: &str, pk: &str, rk: &str) -> Mention {
        Spellings::of(text).mention(&EntityKey::new(pk, rk).unwrap())
    }

    #[test]
    fn keys_are_found_in_every_spelling() {
        let json = r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"한 \"7\""#;
        let utf16: Vec<u8> = json.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let escaped: String = json
            .chars()
            .map(|char| {
                if char == '"' {
                    char.to_string()
                } else {
                    format!("\\u{:04x}", u32::from(char))
                }
            })
            .collect();
        for text in [
            json.to_owned(),
            format!("{{\"data\":{}", serde_json::to_string(json).unwrap()),
            serde_json::to_string(&serde_json::to_string(json).unwrap()).unwrap(),
            escaped,
            STANDARD.encode(json),
            STANDARD.encode(format!("\u{feff}{json}")),
            STANDARD.encode(STANDARD.encode(json)),
            STANDARD.encode(gzip(json)),
            STANDARD.encode(&gzip(json)[..gzip(json).len() - 4]),
            STANDARD.encode(utf16),
            format!(
                r#"{{"specversion":"1.0","data_base64":"{}"}}"#,
                URL_SAFE_NO_PAD.encode(json)
            ),
            STANDARD
                .encode(json)
                .as_bytes()
                .chunks(20)
                .map(|line| std::str::from_utf8(line).unwrap())
                .collect::<Vec<_>>()
                .join("\r\n"),
        ] {
            assert_eq!(mention(&text, "Sales", "한 \"7\""), Mention::Both, "{text}");
            assert_eq!(
                mention(&text, "Marketing", "한 \"7\""),
                Mention::RowKey,
                "{text}"
            );
            assert_eq!(mention(&text, "Sales", "8"), Mention::Neither, "{text}");
        }
    }

    #[test]
    fn a_key_is_a_word_of_its_own() {
        let text = r#"{"PartitionKey":"Sales","RowKey":"17","Of":"Salesforce","B-7x":1}"#;
        assert_eq!(mention(text, "Sales", "7"), Mention::Neither);
        assert_eq!(mention(text, "force", "17"), Mention::RowKey);
        assert_eq!(mention("the row (a, -1)", "a", "-1"), Mention::Both);
        assert_eq!(
            mention("anything", "", "anything"),
            Mention::RowKey,
            "an empty key matches every text, so it identifies nothing"
        );
        assert_eq!(
            (mention("a 7", "7", "7"), mention("7: 7", "7", "7")),
            (Mention::RowKey, Mention::Both)
        );
    }

    #[test]
    fn a_body_that_is_not_text_is_opaque() {
        assert!(!Spellings::of("hello").opaque);
        assert!(Spellings::of(&STANDARD.encode([0xff, 0xd8, 0xff, 0xe0].repeat(5))).opaque);
        let picture = format!(r#"{{"Photo":"{}"}}"#, STANDARD.encode([0xff; 100]));
        assert!(
            !Spellings::of(&picture).opaque,
            "a message that is text is not opaque, even if a value in it is binary"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_searched(text in proptest::prelude::any::<String>(), key in "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f]{0,8}") {
            let named = mention(&format!("{text} {key} . {key} "), &key, &key);
            proptest::prop_assert_eq!(named, if key.contains(char::is_alphanumeric) { Mention::Both } else { Mention::RowKey });
            let _ = mention(&text, &key, &key);
        }
    }
}
