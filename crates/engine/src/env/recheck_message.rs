//! Messages for rechecks. After a pass has dropped an item, an old request might still create the item again. A recheck
//! reads such items once more.
//!
//! A recheck is a message on `<queue>-recheck` that becomes visible after `recheck_after` and a margin, or later if it
//! follows another recheck. By then, every pass that was running when the recheck was queued has ended, and the service
//! rejects every request that was signed before.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use evenkeel_model::job::{self, Batch, Primary, RECHECK};
use evenkeel_model::quoted::Quoted;
use evenkeel_model::stored::{self, FormatVersion};
use evenkeel_model::{EntityKey, ItemAddress, Key, TableName, body, cause};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recheck {
    pub primary: Primary,
    /// Items to read, besides those that the footprint marks as changing.
    pub items: Vec<ItemAddress>,
    /// Number of consecutive rechecks that led to this one.
    pub chained: u32,
    /// If the job that queued this recheck fails because of taken keys: their digest. A recheck that finds the same
    /// taken keys does not fail, because the poison message of the job already reports them.
    pub taken_keys: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the message is not a recheck: {0}")]
pub struct RecheckError(String);

const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct WireRecheck {
    v: FormatVersion<VERSION>,
    op: String,
    table: TableName,
    pk: Key,
    rk: Key,
    items: Vec<ItemAddress>,
    #[serde(default, skip_serializing_if = "job::is_zero")]
    chained: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    told: Option<String>,
}

#[derive(Serialize)]
struct WireRechecks<'r> {
    v: FormatVersion<VERSION>,
    op: &'static str,
    table: &'r TableName,
    rechecks: Vec<ListedRecheck<'r>>,
}

#[derive(Serialize)]
struct ListedRecheck<'r> {
    pk: &'r Key,
    rk: &'r Key,
    items: &'r [ItemAddress],
    #[serde(skip_serializing_if = "job::is_zero")]
    chained: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    told: Option<&'r str>,
}

impl<'r> ListedRecheck<'r> {
    fn of(recheck: &'r Recheck) -> Self {
        let EntityKey { pk, rk } = &recheck.primary.key;
        Self {
            pk,
            rk,
            items: &recheck.items,
            chained: recheck.chained,
            told: recheck.taken_keys.as_deref(),
        }
    }
}

impl Recheck {
    pub fn encode_all(rechecks: &[&Self]) -> String {
        let [first, _, ..] = rechecks else {
            return rechecks.first().map(|one| one.encode()).unwrap_or_default();
        };
        let wire = WireRechecks {
            v: FormatVersion,
            op: RECHECK,
            table: &first.primary.table,
            rechecks: rechecks.iter().map(|one| ListedRecheck::of(one)).collect(),
        };
        // The struct consists of strings, numbers, lists and structs, so serializing it cannot fail.
        body::encode(&serde_json::to_string(&wire).unwrap_or_default())
    }

    pub fn decode_all(message: &str) -> Result<Vec<Self>, RecheckError> {
        let wrong = |error: job::JobError| RecheckError(cause::chain(&error));
        let mut object = job::decode_object(message).map_err(wrong)?;
        match Batch::of_rechecks(&mut object).map_err(wrong)? {
            Some(batch) => (0..batch.len())
                .map(|at| Self::of_object(batch.single(at)))
                .collect(),
            None => Ok(vec![Self::of_object(object)?]),
        }
    }

    pub(crate) fn listed_len(&self) -> usize {
        serde_json::to_vec(&ListedRecheck::of(self)).map_or(0, |json| json.len() + 1)
    }

    pub fn encode(&self) -> String {
        let wire = WireRecheck {
            v: FormatVersion,
            op: RECHECK.to_owned(),
            table: self.primary.table.clone(),
            pk: self.primary.key.pk.clone(),
            rk: self.primary.key.rk.clone(),
            items: self.items.clone(),
            chained: self.chained,
            told: self.taken_keys.clone(),
        };
        // The struct consists of strings, numbers, lists and structs, so serializing it cannot fail.
        body::encode(&serde_json::to_string(&wire).unwrap_or_default())
    }

    pub fn decode(message: &str) -> Result<Self, RecheckError> {
        let object =
            job::decode_object(message).map_err(|error| RecheckError(error.to_string()))?;
        Self::of_object(object)
    }

    pub fn of_object(object: Map<String, Value>) -> Result<Self, RecheckError> {
        let wire: WireRecheck = stored::read_object(object, VERSION, || "the recheck".to_owned())
            .map_err(|error| RecheckError(cause::chain(&error)))?;
        if wire.op != RECHECK {
            return Err(RecheckError(format!(
                "expected op {RECHECK:?}, found {}",
                Quoted(&wire.op)
            )));
        }
        let primary = Primary {
            table: wire.table,
            key: EntityKey {
                pk: wire.pk,
                rk: wire.rk,
            },
        };
        Ok(Self {
            primary,
            items: wire.items,
            chained: wire.chained,
            taken_keys: wire.told,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{AccountName, ViewName};

    #[test]
    fn a_recheck_survives_its_message() {
        let recheck = Recheck {
            primary: Primary {
                table: TableName::new("Employees").unwrap(),
                key: EntityKey::new("Sales", "7").unwrap(),
            },
            items: vec![ItemAddress::row(
                ViewName::new("by_email").unwrap(),
                AccountName::main(),
                TableName::new("ByEmail").unwrap(),
                EntityKey::new("email_Sales", "한😀'%").unwrap(),
            )],
            chained: 0,
            taken_keys: None,
        };
        let chained = Recheck {
            chained: 3,
            taken_keys: Some("0f".repeat(8)),
            ..recheck.clone()
        };
        assert_eq!(
            (
                Recheck::decode(&chained.encode()),
                recheck.encode().len() < chained.encode().len()
            ),
            (Ok(chained.clone()), true)
        );
        assert_eq!(Recheck::decode(&recheck.encode()), Ok(recheck.clone()));
        assert!(Recheck::decode("{\"op\":\"sync\"}").is_err());
        let written = r#"{"v":1,"op":"recheck","table":"Employees","pk":"Sales","rk":"7","items":[{"view":"by_email","account":"main","table":"ByEmail","pk":"email_Sales","rk":"한😀'%"}]}"#;
        assert_eq!(recheck.encode(), body::encode(written));
        assert_eq!(
            Recheck::decode(&written.replacen(":1", ":2", 1))
                .unwrap_err()
                .to_string(),
            "the message is not a recheck: the recheck has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
        let other = Recheck {
            items: Vec::new(),
            ..chained
        };
        let other = Recheck {
            primary: Primary {
                key: EntityKey::new("Sales", "8").unwrap(),
                ..other.primary
            },
            ..other
        };
        let several = r#"{"v":1,"op":"recheck","table":"Employees","rechecks":[{"pk":"Sales","rk":"7","items":[]},{"pk":"Sales","rk":"8","items":[],"chained":3,"told":"0f0f0f0f0f0f0f0f"}]}"#;
        let bare = Recheck {
            items: Vec::new(),
            ..recheck.clone()
        };
        assert_eq!(Recheck::encode_all(&[&bare, &other]), body::encode(several));
        assert!(
            Recheck::decode_all(&several.replacen(":1", ":2", 1))
                .unwrap_err()
                .to_string()
                .contains("version 1")
        );
        for all in [vec![&recheck], vec![&recheck, &other]] {
            let read = Recheck::decode_all(&Recheck::encode_all(&all)).unwrap();
            assert_eq!(read.iter().collect::<Vec<_>>(), all);
        }
        assert!(Recheck::decode_all(r#"{"v":1,"op":"sync","table":"Employees","rechecks":[{"pk":"a","rk":"b","items":[]}]}"#).is_err());
    }
}
