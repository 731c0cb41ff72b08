//! The operations that a message can ask for: for each the fields that the message carries, and the job that they make.
//! One file per operation, and one line in the list of `operations!`.

mod archive;
mod audit;
mod backfill;
mod carry;
mod delete;
mod drop_table;
mod moving;
mod put;
mod restore;
mod sync;

pub use put::put_entity;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::known::fields_of;
use super::{Job, JobError, Primary, schema};
use crate::model::{ETag, EntityKey, TableName, ViewName};

/// The fields of an operation.
pub(super) trait JobFields: DeserializeOwned + JsonSchema {
    /// The operation, as `op` spells it.
    const OP: &'static str;

    /// The job.
    fn job(self) -> Result<Job, JobError>;

    /// How many of its fields say nothing beside the others.
    fn unread(_: &Map<String, Value>) -> usize {
        0
    }
}

/// Reads the fields of an operation: the job, and how many fields were not read.
pub(super) type ReadJob = fn(Map<String, Value>) -> Result<(Job, usize), JobError>;

/// Names, decoding and schemas, from one list.
macro_rules! operations {
    ($($module:ident::$fields:ident,)*) => {
        /// Every operation, as `op` spells it.
        pub const OPS: &[&str] = &[$($module::$fields::OP),*];

        /// An operation: its name, and how it is read.
        pub(super) fn operation(op: &str) -> Option<(&'static str, ReadJob)> {
            match op {
                $($module::$fields::OP => Some(($module::$fields::OP, job::<$module::$fields>)),)*
                _ => None,
            }
        }

        /// The schema of each operation.
        pub(super) fn schemas() -> Vec<Value> {
            vec![$(schema::of::<$module::$fields>($module::$fields::OP)),*]
        }
    };
}

operations! {
    sync::SyncFields,
    put::PutFields,
    delete::DeleteFields,
    archive::ArchiveFields,
    restore::RestoreFields,
    moving::MoveFields,
    backfill::BackfillFields,
    audit::AuditFields,
    carry::CarryFields,
    drop_table::DropTableFields,
}

/// Reads the fields of an operation; counts those that it does not have.
fn job<F: JobFields>(object: Map<String, Value>) -> Result<(Job, usize), JobError> {
    let known = fields_of::<F>();
    let unread = F::unread(&object) + object.keys().filter(|name| !known.contains(&name.as_str())).count();
    let fields: F =
        serde_json::from_value(Value::Object(object)).map_err(|error| JobError::Field { op: F::OP, problem: error.to_string() })?;
    Ok((fields.job()?, unread))
}

fn table(op: &'static str, name: String) -> Result<TableName, JobError> {
    TableName::new(name).map_err(|error| JobError::Field { op, problem: error.to_string() })
}

/// The name of a view or an archive.
fn view(op: &'static str, name: String) -> Result<ViewName, JobError> {
    ViewName::new(name).map_err(|error| JobError::Field { op, problem: error.to_string() })
}

fn key(op: &'static str, pk: String, rk: String) -> Result<EntityKey, JobError> {
    EntityKey::new(pk, rk).map_err(|error| JobError::Field { op, problem: error.to_string() })
}

fn primary(op: &'static str, table_name: String, pk: String, rk: String) -> Result<Primary, JobError> {
    Ok(Primary { table: table(op, table_name)?, key: key(op, pk, rk)? })
}

fn etag(op: &'static str, text: Option<String>) -> Result<Option<ETag>, JobError> {
    text.map(ETag::new).transpose().map_err(|error| JobError::Field { op, problem: format!("\"if_match\": {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoding goes by `OPS`, everything after it by [`Job::op`].
    #[test]
    fn an_operation_makes_a_job_of_its_own_name() {
        let fields = serde_json::json!({
            "table": "Logins20260101", "pk": "p", "rk": "r", "to_pk": "p", "to_rk": "s", "archive": "former", "view": "names", "one": ["p", "r"],
            "entity": {"PartitionKey": "p", "RowKey": "r"},
        });
        for op in OPS {
            let mut object = fields.as_object().unwrap().clone();
            if *op == "backfill" {
                object.remove("view");
            }
            let (name, read) = operation(op).unwrap();
            assert_eq!((name, read(object).unwrap().0.op()), (*op, *op));
        }
        assert_eq!(schemas().len(), OPS.len());
    }
}
