//! Long JSON arrays, stored as several properties. Each property is a complete array.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::EdmValue;

/// Maximum UTF-16 units of one piece. A string property may have 32,768.
const PIECE_UNITS: usize = 32_000;

/// Returns the name of the property with a piece: `Employees`, `Employees_1`, …
fn name(property: &str, index: usize) -> String {
    if index == 0 {
        property.to_owned()
    } else {
        format!("{property}_{index}")
    }
}

/// Writes a list as `property`, `property_1` and so on, as many as needed, and at least one.
pub(super) fn write<T: Serialize>(
    properties: &mut BTreeMap<String, EdmValue>,
    property: &str,
    values: impl IntoIterator<Item = T>,
) {
    let mut index = 0;
    let (mut piece, mut units) = (String::from("["), 1);
    for value in values {
        // Serialising texts cannot fail.
        let text = serde_json::to_string(&value).unwrap_or_default();
        let more = text.encode_utf16().count() + 1;
        if units + more > PIECE_UNITS && piece.len() > 1 {
            piece.push(']');
            properties.insert(
                name(property, index),
                EdmValue::String(std::mem::replace(&mut piece, String::from("["))),
            );
            index += 1;
            units = 1;
        }
        if piece.len() > 1 {
            piece.push(',');
        }
        piece.push_str(&text);
        units += more;
    }
    piece.push(']');
    properties.insert(name(property, index), EdmValue::String(piece));
}

/// Reads a list that `write` has written. The error describes the problem.
pub(super) fn read<T: DeserializeOwned>(
    properties: &BTreeMap<String, EdmValue>,
    property: &str,
) -> Result<Vec<T>, String> {
    let mut values: Vec<T> = Vec::new();
    for index in 0.. {
        let name = name(property, index);
        let piece = match properties.get(&name) {
            None if index > 0 => break,
            None => return Err(format!("{name} is missing")),
            Some(EdmValue::String(piece)) => piece,
            Some(other) => return Err(format!("{name} is an {}", other.type_name())),
        };
        let piece: Vec<T> = serde_json::from_str(piece)
            .map_err(|error| format!("{name} is not a valid JSON array: {error}"))?;
        values.extend(piece);
    }
    Ok(values)
}

/// Removes the pieces of a list.
pub(super) fn remove(properties: &mut BTreeMap<String, EdmValue>, property: &str) {
    for index in 0.. {
        if properties.remove(&name(property, index)).is_none() {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_survives_in_any_number_of_pieces(texts in proptest::collection::vec("\\PC{0,9000}", 0..12)) {
            let mut properties = BTreeMap::new();
            write(&mut properties, "List", &texts);
            for piece in properties.values() {
                prop_assert!(piece.as_str().unwrap().encode_utf16().count() <= 32_768);
            }
            prop_assert_eq!(read::<String>(&properties, "List"), Ok(texts));
            remove(&mut properties, "List");
            prop_assert!(properties.is_empty());
        }
    }
}
