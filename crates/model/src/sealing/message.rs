//! Messages with encrypted properties in them: which entities have plain values, and sealing these.

use serde_json::{Map, Value};

use super::format::{DataKey, PREFIX, SealedPlace};
use crate::catalog::{Catalog, TableRef};
use crate::model::job::Primary;
use crate::model::{EdmValue, EntityKey, TableName, odata};

/// An entity of a message, with plain values of encrypted properties.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainEntity {
    /// Its table.
    pub table: TableRef,
    /// The entity.
    pub home: Primary,
    properties: Vec<String>,
    /// Its place among the "entities" of a batch; nothing where it is the "entity" of a single job.
    at: Option<usize>,
}

/// The entities of a message with plain values of encrypted properties.
pub fn plain_entities(message: &Map<String, Value>, catalog: &Catalog) -> Vec<PlainEntity> {
    if catalog.encrypted.is_empty() {
        return Vec::new();
    }
    let name = message.get("table").and_then(Value::as_str).and_then(|name| TableName::new(name).ok());
    let Some(table) = name.and_then(|name| catalog.table(&name)) else { return Vec::new() };
    let Some(encrypted) = catalog.encrypted.get(table) else { return Vec::new() };
    let single = message.get("entity").map(|entity| (None, entity));
    let several = message.get("entities").and_then(Value::as_array).into_iter().flatten().enumerate();
    let entities = single.into_iter().chain(several.map(|(at, entity)| (Some(at), entity)));
    let plain = entities.filter_map(|(at, entity)| {
        let entity = entity.as_object()?;
        let is_plain = |name: &&String| entity.get(*name).is_some_and(|value| !value.is_null() && !is_sealed(value));
        let properties: Vec<String> = encrypted.iter().filter(is_plain).cloned().collect();
        let key = |name: &str| entity.get(name).and_then(Value::as_str);
        let key = EntityKey::new(key("PartitionKey")?, key("RowKey")?).ok()?;
        let home = Primary { table: table.table.clone(), key };
        (!properties.is_empty()).then(|| PlainEntity { table: table.clone(), home, properties, at })
    });
    plain.collect()
}

impl PlainEntity {
    /// Seals its values in the message that it was found in.
    pub fn seal(&self, key: &DataKey, message: &mut Map<String, Value>) {
        let entity = match self.at {
            None => message.get_mut("entity"),
            Some(at) => message.get_mut("entities").and_then(|entities| entities.get_mut(at)),
        };
        let Some(Value::Object(entity)) = entity else { return };
        for property in &self.properties {
            let annotation = format!("{property}@odata.type");
            let fields = [property, &annotation].into_iter().filter_map(|name| Some((name.clone(), entity.remove(name)?)));
            let fields: Map<String, Value> = fields.collect();
            let value = odata::decode_properties(fields.clone()).ok().and_then(|mut values| values.remove(property));
            // What is no value of a table is for people alone, as the text that it came as.
            let value = value.unwrap_or_else(|| EdmValue::String(Value::Object(fields).to_string()));
            entity.insert(property.clone(), key.seal(SealedPlace { home: &self.home, property }, &value).into());
        }
    }
}

fn is_sealed(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KeyBytes;
    use serde_json::json;

    #[test]
    fn plain_values_of_every_entity_are_sealed_in_their_places() {
        let table = TableRef { account: crate::model::AccountName::main(), table: TableName::new("Employees").unwrap() };
        let catalog = Catalog {
            tables: [(table.table.clone(), table.clone())].into(),
            encrypted: [(table, ["Salary".to_owned(), "Ssn".to_owned()].into())].into(),
            ..Catalog::default()
        };
        let mut message = json!({"op": "put", "table": "employees", "entities": [
            {"PartitionKey": "Sales", "RowKey": "1", "Salary": "75000", "Salary@odata.type": "Edm.Int64", "Name": "Kim"},
            {"PartitionKey": "Sales", "RowKey": "2", "Ssn": "ek1.abc", "Salary": null},
            {"PartitionKey": "Sales", "RowKey": "3", "Ssn": ["no", "value"]},
            "no entity"
        ]});
        let message = message.as_object_mut().unwrap();
        let found = plain_entities(message, &catalog);
        assert_eq!(found.iter().map(|entity| entity.home.key.rk.as_str()).collect::<Vec<_>>(), ["1", "3"]);
        let key = DataKey::new(KeyBytes([7; 32]));
        for entity in &found {
            entity.seal(&key, message);
        }
        assert!(plain_entities(message, &catalog).is_empty());
        let opened = |at: usize, property: &str| {
            let place = SealedPlace { home: &found[at / 2].home, property };
            key.open(place, message["entities"][at][property].as_str().unwrap()).unwrap()
        };
        assert_eq!(opened(0, "Salary"), EdmValue::from(75_000_i64));
        assert_eq!(opened(2, "Ssn"), EdmValue::from(r#"{"Ssn":["no","value"]}"#));
        assert_eq!(message["entities"][0]["Name"], "Kim");
        assert!(message["entities"][0].get("Salary@odata.type").is_none());
    }
}
