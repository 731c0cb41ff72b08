//! Encodes properties compactly, and keeps each value exactly, bit for bit.
//!
//! ```text
//! 1 (version) · count · (name length · name · tag · value)…      sorted by name
//! ```
//! Counts and lengths are LEB128; numbers are little-endian.

use std::collections::BTreeMap;

use uuid::Uuid;

use evenkeel_model::{EdmDateTime, EdmValue};

const VERSION: u8 = 1;

const STRING: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT32: u8 = 3;
const INT64: u8 = 4;
const DOUBLE: u8 = 5;
const DATE_TIME: u8 = 6;
const GUID: u8 = 7;
const BINARY: u8 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an entity with an invalid encoding at byte {at}")]
pub(super) struct CodecError {
    at: usize,
}

pub(super) fn encode(properties: &BTreeMap<String, EdmValue>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 + properties.len() * 24);
    bytes.push(VERSION);
    put_length(&mut bytes, properties.len());
    for (name, value) in properties {
        put_bytes(&mut bytes, name.as_bytes());
        match value {
            EdmValue::String(text) => {
                bytes.push(STRING);
                put_bytes(&mut bytes, text.as_bytes());
            }
            EdmValue::Bool(truth) => bytes.push(if *truth { TRUE } else { FALSE }),
            EdmValue::Int32(number) => put_number(&mut bytes, INT32, &number.to_le_bytes()),
            EdmValue::Int64(number) => put_number(&mut bytes, INT64, &number.to_le_bytes()),
            EdmValue::Double(number) => {
                put_number(&mut bytes, DOUBLE, &number.to_bits().to_le_bytes());
            }
            EdmValue::DateTime(moment) => {
                put_number(&mut bytes, DATE_TIME, &moment.ticks().to_le_bytes());
            }
            EdmValue::Guid(guid) => put_number(&mut bytes, GUID, guid.as_bytes()),
            EdmValue::Binary(content) => {
                bytes.push(BINARY);
                put_bytes(&mut bytes, content);
            }
        }
    }
    bytes
}

fn put_number(bytes: &mut Vec<u8>, tag: u8, number: &[u8]) {
    bytes.push(tag);
    bytes.extend_from_slice(number);
}

fn put_bytes(bytes: &mut Vec<u8>, content: &[u8]) {
    put_length(bytes, content.len());
    bytes.extend_from_slice(content);
}

fn put_length(bytes: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        bytes.push(low_bits(length) | 0x80);
        length >>= 7;
    }
    bytes.push(low_bits(length));
}

#[expect(clippy::cast_possible_truncation, reason = "seven bits fit a byte")]
const fn low_bits(length: usize) -> u8 {
    (length & 0x7f) as u8
}

/// Decodes the properties whose name is wanted.
pub(super) fn decode(
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, EdmValue>, CodecError> {
    let mut reader = ByteReader { bytes, at: 0 };
    if reader.byte()? != VERSION {
        return Err(CodecError { at: 0 });
    }
    let count = reader.length()?;
    // The properties are stored sorted by name, and a map is built fastest from a sorted list.
    // `count` may be wrong, so it does not decide the allocation.
    let mut properties = Vec::with_capacity(count.min(256));
    for _ in 0..count {
        let name = reader.text()?;
        let value = reader.value(wanted(name))?;
        if let Some(value) = value {
            properties.push((name.to_owned(), value));
        }
    }
    if reader.at == bytes.len() {
        Ok(properties.into_iter().collect())
    } else {
        Err(CodecError { at: reader.at })
    }
}

struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    const fn broken(&self) -> CodecError {
        CodecError { at: self.at }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], CodecError> {
        let end = self.at.checked_add(length).ok_or_else(|| self.broken())?;
        let taken = self.bytes.get(self.at..end).ok_or_else(|| self.broken())?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let at = self.at;
        self.take(N)?.try_into().map_err(|_| CodecError { at })
    }

    fn byte(&mut self) -> Result<u8, CodecError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn length(&mut self) -> Result<usize, CodecError> {
        let mut length = 0_usize;
        // Four groups of seven bits hold any length that the limits of the service allow.
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(self.broken())
    }

    fn text(&mut self) -> Result<&'a str, CodecError> {
        let length = self.length()?;
        let at = self.at;
        std::str::from_utf8(self.take(length)?).map_err(|_| CodecError { at })
    }

    /// Skips the value and returns `None` if it is not wanted.
    fn value(&mut self, wanted: bool) -> Result<Option<EdmValue>, CodecError> {
        let tag = self.byte()?;
        if !wanted {
            let length = match tag {
                FALSE | TRUE => 0,
                INT32 => 4,
                INT64 | DOUBLE | DATE_TIME => 8,
                GUID => 16,
                STRING | BINARY => self.length()?,
                _ => return Err(self.broken()),
            };
            self.take(length)?;
            return Ok(None);
        }
        Ok(Some(match tag {
            STRING => EdmValue::String(self.text()?.to_owned()),
            FALSE => EdmValue::Bool(false),
            TRUE => EdmValue::Bool(true),
            INT32 => EdmValue::Int32(i32::from_le_bytes(self.array()?)),
            INT64 => EdmValue::Int64(i64::from_le_bytes(self.array()?)),
            DOUBLE => EdmValue::Double(f64::from_bits(u64::from_le_bytes(self.array()?))),
            DATE_TIME => {
                let at = self.at;
                EdmValue::DateTime(
                    EdmDateTime::from_ticks(i64::from_le_bytes(self.array()?))
                        .map_err(|_| CodecError { at })?,
                )
            }
            GUID => EdmValue::Guid(Uuid::from_bytes(self.array()?)),
            BINARY => {
                let length = self.length()?;
                EdmValue::Binary(self.take(length)?.to_vec())
            }
            _ => return Err(self.broken()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            any::<String>().prop_map(EdmValue::String),
            any::<bool>().prop_map(EdmValue::Bool),
            any::<i32>().prop_map(EdmValue::Int32),
            any::<i64>().prop_map(EdmValue::Int64),
            any::<u64>().prop_map(|bits| EdmValue::Double(f64::from_bits(bits))),
            (504_911_232_000_000_000_i64..=3_155_378_975_999_999_999)
                .prop_map(|t| EdmValue::DateTime(EdmDateTime::from_ticks(t).unwrap())),
            any::<u128>().prop_map(|g| EdmValue::Guid(Uuid::from_u128(g))),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(EdmValue::Binary),
        ]
    }

    fn bits(value: &EdmValue) -> Option<u64> {
        if let EdmValue::Double(number) = value {
            Some(number.to_bits())
        } else {
            None
        }
    }

    proptest! {
        #[test]
        fn any_properties_round_trip_bit_by_bit(properties in prop::collection::btree_map("[A-Za-z_ß한名][A-Za-z0-9_ß한名]{0,200}", value(), 0..12)) {
            let decoded = decode(&encode(&properties), |_| true).unwrap();
            prop_assert_eq!(&decoded, &properties);
            prop_assert!(decoded.values().map(bits).eq(properties.values().map(bits)));
            let some = decode(&encode(&properties), |name| name.len() % 2 == 0).unwrap();
            prop_assert!(some.iter().eq(properties.iter().filter(|(name, _)| name.len() % 2 == 0)));
        }

        #[test]
        fn any_bytes_decode_or_fail_in_order(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, |_| true);
            let _ = decode(&[[VERSION].as_slice(), &bytes].concat(), |_| true);
        }

        #[test]
        fn cut_or_extended_bytes_are_refused(properties in prop::collection::btree_map("[a-z]{1,5}", value(), 1..4), cut in any::<prop::sample::Index>()) {
            let mut bytes = encode(&properties);
            prop_assert!(decode(&bytes[..cut.index(bytes.len())], |_| true).is_err());
            bytes.push(0);
            prop_assert!(decode(&bytes, |_| true).is_err());
        }
    }
}
