//! JSON without duplicate keys. If a key had two values, this program would use the last one, and another program might use the first one.
//! A sender could thus circumvent a filter in front of the queue.

use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Number, Value};

use super::JobError;

/// Maximum length of a key in an error, in characters.
const KEY_CHARS: usize = 64;

/// A JSON value without duplicate keys.
pub(super) struct Unambiguous(pub(super) Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectReader).map(Self)
    }
}

struct ObjectReader;

impl<'de> Visitor<'de> for ObjectReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unambiguous(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(duplicate_key(&key));
            }
            let Unambiguous(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// A value of an object. A nested array or object is replaced by an empty one.
struct Plain(Value);

/// Reads a JSON object of plain values without duplicate keys. A nested array or object is read as an empty one. It takes no memory then,
/// and the entity is refused all the same.
pub(super) struct FlatReader {
    /// Maximum number of keys.
    pub(super) most: usize,
}

struct PlainReader;

impl<'de> DeserializeSeed<'de> for FlatReader {
    type Value = Map<String, Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainReader).map(Self)
    }
}

impl<'de> Visitor<'de> for FlatReader {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an entity as a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if object.len() >= self.most {
                return Err(A::Error::custom(format_args!(
                    "more than {} keys",
                    self.most
                )));
            }
            if object.contains_key(&key) {
                return Err(duplicate_key(&key));
            }
            let Plain(value) = map.next_value()?;
            object.insert(key, value);
        }
        Ok(object)
    }
}

impl<'de> Visitor<'de> for PlainReader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ObjectReader.expecting(f)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        ObjectReader.visit_unit()
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        ObjectReader.visit_bool(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        ObjectReader.visit_i64(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        ObjectReader.visit_u64(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        ObjectReader.visit_f64(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        ObjectReader.visit_str(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(Map::new()))
    }
}

/// Refuses integers beyond 64 bits in valid JSON. A JSON reader would read them as doubles and round them.
pub(super) fn unrounded(json: &str) -> Result<(), JobError> {
    let mut rest = json;
    // A byte of ASCII is never part of another UTF-8 character, so the text can be searched bytewise.
    while let Some(at) = rest
        .bytes()
        .position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'))
    {
        rest = &rest[at..];
        if let Some(text) = rest.strip_prefix('"') {
            let mut escaped = false;
            let end = text.bytes().position(|byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            });
            rest = end.map_or("", |end| &text[end + 1..]);
            continue;
        }
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || "+-.eE".contains(c));
        let number = &rest[..rest.len() - after.len()];
        if !number.contains(['.', 'e', 'E'])
            && number.parse::<i64>().is_err()
            && number.parse::<u64>().is_err()
        {
            return Err(JobError::IntegerTooLong(number.len()));
        }
        rest = after;
    }
    Ok(())
}

fn duplicate_key<E: Error>(key: &str) -> E {
    let key: String = key.chars().take(KEY_CHARS).collect();
    E::custom(format_args!("duplicate key {key:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        serde_json::from_str(text)
            .map(|Unambiguous(value)| value)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_duplicate_key_is_refused_and_named_at_every_depth() {
        for text in [
            r#"{"op":"sync","op":"delete"}"#,
            r#"{"entity":{"Color":"red","op":1,"op":1}}"#,
            r#"{"a":[{},{"op":null,"x":[],"\u006fp":null}]}"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(r#"duplicate key "op""#), "{error}");
        }
        let long = format!(r#"{{"{0}":1,"{0}":2}}"#, "k".repeat(10_000));
        assert!(read(&long).unwrap_err().len() < 200);
    }

    proptest::proptest! {
        #[test]
        fn other_json_is_read_as_serde_json_reads_it(text in r#"(\{|\}|\[|\]|,|:|"[a-c]{0,2}"|-?[0-9]{1,22}(\.[0-9]+)?(e[0-9]{1,3})?|true|null){0,12}"#) {
            if let Ok(value) = read(&text) {
                proptest::prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }

    #[test]
    fn an_integer_beyond_64_bits_is_found_and_nothing_else() {
        for (json, found) in [
            (r#"{"N": 999999999999999999999}"#, Some("21")),
            (r#"{"a":["\\",-9223372036854775809]}"#, Some("20")),
            ("18446744073709551616", Some("20")),
            (
                r#"{"a":18446744073709551615,"b":-9223372036854775808,"c":1e20,"d":99999999999999999999.0,"e":-0}"#,
                None,
            ),
            (
                r#"{"a":"99999999999999999999","b\"99999999999999999999":"\\\"99999999999999999999é"}"#,
                None,
            ),
        ] {
            serde_json::from_str::<Value>(json).unwrap();
            let long = unrounded(json).err().map(|error| error.to_string());
            assert_eq!(
                long.as_deref().and_then(|text| text.split(' ').nth(3)),
                found,
                "{json}"
            );
        }
    }

    #[test]
    fn nested_values_of_a_staged_entity_take_no_memory() {
        let read = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            FlatReader { most: 1_000 }
                .deserialize(&mut json)
                .map(Value::Object)
                .map_err(|error| error.to_string())
        };
        let plain = r#"{"a":1,"b":-2,"c":3.5,"d":"é","e":true,"f":null,"g":18446744073709551615}"#;
        assert_eq!(
            read(plain).unwrap(),
            serde_json::from_str::<Value>(plain).unwrap()
        );
        assert_eq!(
            read(r#"{"a":[0,[0],{"a":1}],"b":{"c":[1]}}"#).unwrap(),
            serde_json::json!({"a": [], "b": {}})
        );
        assert!(
            read(r#"{"a":1,"a":[]}"#)
                .unwrap_err()
                .contains(r#"duplicate key "a""#)
        );
        assert!(
            read("[{}]")
                .unwrap_err()
                .contains("expected an entity as a JSON object")
        );
        let many: Vec<String> = (0..=1_000)
            .map(|number| format!("\"p{number}\":0"))
            .collect();
        assert!(
            read(&format!("{{{}}}", many.join(",")))
                .unwrap_err()
                .contains("more than 1000 keys")
        );
    }

    #[test]
    fn plain_values_are_read_as_serde_json_reads_them() {
        for text in [
            r#"{"a":{"a":{"a":[1,-2,3.5,1e300,"é",true,null,{"a":1}]}},"b":{}}"#,
            "[]",
            "7",
            "null",
        ] {
            assert_eq!(
                read(text).unwrap(),
                serde_json::from_str::<Value>(text).unwrap()
            );
        }
        assert!(
            read(&"[".repeat(10_000)).is_err(),
            "depth is bounded as ever"
        );
    }
}
