//! Rechecks: second looks at items that were dropped while an old request might still arrive.
//!
//! A recheck travels as a message on `<queue>-recheck`, visible after `recheck_after`: by then no pass
//! that ran when it was queued is left, and the service no longer accepts a request signed then.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::model::job::{self, Primary};
use crate::model::{EntityKey, ItemAddress, Key, TableName, body};

/// A second look at a primary and some items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recheck {
    /// The primary.
    pub primary: Primary,
    /// The items to look at, beside those marked in its footprint.
    pub items: Vec<ItemAddress>,
}

/// A message on a recheck queue that is not a recheck.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message is not a recheck: {0}")]
pub struct RecheckError(String);

#[derive(Serialize, Deserialize)]
struct Wire {
    v: u32,
    op: String,
    table: TableName,
    pk: Key,
    rk: Key,
    items: Vec<ItemAddress>,
}

impl Recheck {
    /// The text of the message that asks for this recheck.
    pub fn encode(&self) -> String {
        let wire = Wire {
            v: 1,
            op: "recheck".to_owned(),
            table: self.primary.table.clone(),
            pk: self.primary.key.pk.clone(),
            rk: self.primary.key.rk.clone(),
            items: self.items.clone(),
        };
        // Serialising strings cannot fail; were it to, the empty recheck would still look at the footprint.
        body::encode(&serde_json::to_string(&wire).unwrap_or_default())
    }

    /// Reads the text of a message on a recheck queue.
    pub fn decode(message: &str) -> Result<Self, RecheckError> {
        let object = job::decode_object(message).map_err(|error| RecheckError(error.to_string()))?;
        Self::of_object(object)
    }

    /// Reads the JSON object inside a message on a recheck queue.
    pub fn of_object(object: Map<String, Value>) -> Result<Self, RecheckError> {
        let wire: Wire = serde_json::from_value(Value::Object(object)).map_err(|error| RecheckError(error.to_string()))?;
        if wire.op != "recheck" || wire.v != 1 {
            return Err(RecheckError(format!("op {:?}, v {}", wire.op, wire.v)));
        }
        Ok(Self { primary: Primary { table: wire.table, key: EntityKey { pk: wire.pk, rk: wire.rk } }, items: wire.items })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AccountName, ViewName};

    #[test]
    fn a_recheck_survives_its_message() {
        let recheck = Recheck {
            primary: Primary { table: TableName::new("Employees").unwrap(), key: EntityKey::new("Sales", "7").unwrap() },
            items: vec![ItemAddress::row(
                ViewName::new("by_email").unwrap(),
                AccountName::main(),
                TableName::new("ByEmail").unwrap(),
                EntityKey::new("email_Sales", "한😀'%").unwrap(),
            )],
        };
        assert_eq!(Recheck::decode(&recheck.encode()), Ok(recheck));
        assert!(Recheck::decode("{\"op\":\"sync\"}").is_err());
    }
}
