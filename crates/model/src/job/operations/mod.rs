//! The operations of messages. Each operation has one file, with its fields and its job, and one line in the list of `operations!`.

mod staged;

pub use staged::StagedBlob;

use std::iter;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde_json::{Map, Value};

use super::known::fields_of;
use super::{JobError, Listing, Primary, WalkProgress, schema};
use crate::audit::Audit;
use crate::backfill::Backfill;
use crate::condition::TimedCondition;
use crate::cursor::JobCursor;
use crate::drop_table::DropTable;
use crate::nearest::nearest;
use crate::propagation::Propagation;
use crate::quoted::Quoted;
use crate::sweep::Sweep;
use crate::{ETag, EntityKey, TableName, ViewName, cause};

/// A job of any operation.
pub trait Operation {
    /// The subject of the job.
    fn subject(&self) -> JobSubject<'_>;

    /// The cursor of the job, if the job covers many entities.
    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        None
    }

    /// Reads the progress of a walk over a table from a cursor.
    fn walk_progress(&self, _: &Value) -> Option<WalkProgress> {
        None
    }

    /// The primary that the job also removes from poison queues.
    fn erases(&self) -> Option<&Primary> {
        None
    }

    /// Whether one run can serve several equal jobs.
    fn folds(&self) -> bool {
        false
    }

    /// Whether the job contains an entity. The entity is about as large as the message.
    fn holds_entity(&self) -> bool {
        false
    }
}

/// The subject of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSubject<'a> {
    /// A primary.
    Primary(&'a TableName, &'a EntityKey),
    /// A primary, and the address of this primary after the move.
    Moved(&'a Primary, &'a Primary),
    /// An archive, and the primary to archive.
    Archived(&'a ViewName, &'a EntityKey),
    /// An archive, and the archived primary.
    Restored(&'a ViewName, &'a EntityKey),
    /// Every primary of a table.
    Table(&'a TableName),
    /// Every primary of a view's source.
    View(&'a ViewName),
    /// Every primary of an archive's source.
    Source(&'a ViewName),
    /// A range of entities that a view writes to.
    Range(&'a Propagation),
    /// A dated table.
    DatedTable(&'a TableName),
}

impl<'a> JobSubject<'a> {
    /// The key of the primary; `None` if the subject is more than one primary.
    pub const fn key(self) -> Option<&'a EntityKey> {
        match self {
            Self::Primary(_, key) | Self::Archived(_, key) | Self::Restored(_, key) => Some(key),
            Self::Moved(from, _) => Some(&from.key),
            Self::Table(_)
            | Self::View(_)
            | Self::Source(_)
            | Self::Range(_)
            | Self::DatedTable(_) => None,
        }
    }

    /// The tables that the subject names; none if the subject names an archive or a view.
    pub fn tables(self) -> Vec<&'a TableName> {
        match self {
            Self::Primary(table, _) | Self::Table(table) | Self::DatedTable(table) => vec![table],
            Self::Moved(from, to) => vec![&from.table, &to.table],
            Self::Range(propagation) => std::iter::once(&propagation.range.table)
                .chain(propagation.mark.iter().map(|mark| &mark.table))
                .collect(),
            Self::Archived(..) | Self::Restored(..) | Self::View(_) | Self::Source(_) => Vec::new(),
        }
    }
}

/// Effect of a job on primaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The job writes only derived items.
    Derives,
    /// The job writes primaries, from content that would be lost with the job.
    Writes,
    /// The job deletes primaries.
    Deletes,
    /// The job drops a table with its primaries and all their derived items.
    Drops,
}

/// The fields of an operation.
pub(super) trait JobFields: DeserializeOwned + JsonSchema {
    const OP: &'static str;
    const EFFECT: Effect;
    /// How a message lists many primaries; `None` if each primary needs a message of its own.
    const LISTING: Option<Listing> = None;
    /// Whether the operation is a sample for tests. Schemas leave out samples.
    const IS_SAMPLE: bool = false;
    /// The type of the validated job.
    type Job;

    fn job(self) -> Result<Self::Job, JobError>;

    /// Whether a field has no effect because of the other fields of the message.
    fn is_ineffective(_: &str, _: &Map<String, Value>) -> bool {
        false
    }
}

/// Reads the fields of an operation. Returns the job, and the names of the fields that the operation does not use.
type ReadJob = fn(Map<String, Value>) -> Result<(Job, Vec<String>), JobError>;

pub(super) struct OperationSpec {
    pub(super) op: &'static str,
    pub(super) known: fn() -> &'static [&'static str],
    pub(super) effect: Effect,
    pub(super) listing: Option<Listing>,
    pub(super) read: ReadJob,
}

/// Declares the enum of jobs, its files, decoding and schemas from one list. (The `$` token is passed in, because this macro defines
/// another macro.)
macro_rules! operations {
    (($d:tt) $($(#[doc = $doc:literal])+ $(#[cfg($cfg:meta)])? $variant:ident($job:ty): $module:ident::$fields:ident,)*) => {
        $(
            $(#[cfg($cfg)])?
            mod $module;
            $(#[cfg($cfg)])?
            #[allow(unused_imports, unreachable_pub, reason = "the job types of some operations are in other files")]
            pub use $module::*;
        )*

        /// A job.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Job {
            $($(#[doc = $doc])+ $(#[cfg($cfg)])? $variant($job),)*
        }

        impl Job {
            /// The operation.
            pub const fn op(&self) -> &'static str {
                match self {
                    $($(#[cfg($cfg)])? Self::$variant(_) => $module::$fields::OP,)*
                }
            }

            /// The effect on primaries.
            pub const fn effect(&self) -> Effect {
                match self {
                    $($(#[cfg($cfg)])? Self::$variant(_) => $module::$fields::EFFECT,)*
                }
            }

            /// Access to the job as an operation.
            pub fn operation(&self) -> &dyn Operation {
                match self {
                    $($(#[cfg($cfg)])? Self::$variant(job) => {
                        let job: &<$module::$fields as JobFields>::Job = job;
                        job
                    })*
                }
            }

            /// Mutable access to the job as an operation.
            pub fn operation_mut(&mut self) -> &mut dyn Operation {
                match self {
                    $($(#[cfg($cfg)])? Self::$variant(job) => {
                        let job: &mut <$module::$fields as JobFields>::Job = job;
                        job
                    })*
                }
            }
        }

        /// Evaluates one expression for the job of any operation.
        #[macro_export]
        macro_rules! each_operation {
            ($d job:expr, $d it:ident => $d value:expr) => {
                match $d job {
                    $($(#[cfg($cfg)])? $crate::Job::$variant($d it) => $d value,)*
                }
            };
        }

        /// The names of all operations.
        pub const OPS: &[&str] = &[$($(#[cfg($cfg)])? $module::$fields::OP),*];

        pub(super) fn operation_spec(op: &str) -> Option<OperationSpec> {
            match op {
                $($(#[cfg($cfg)])? $module::$fields::OP => Some(OperationSpec {
                    op: $module::$fields::OP,
                    known: fields_of::<$module::$fields>,
                    effect: $module::$fields::EFFECT,
                    listing: $module::$fields::LISTING,
                    read: |object| read::<$module::$fields>(object).map(|(job, unread)| (Job::$variant(job.into()), unread)),
                }),)*
                _ => None,
            }
        }

        /// The schemas of all operations except samples.
        pub(super) fn schemas() -> Vec<Value> {
            let of_each = [$($(#[cfg($cfg)])? (!$module::$fields::IS_SAMPLE).then(|| schema::of::<$module::$fields>($module::$fields::OP, $module::$fields::LISTING))),*];
            of_each.into_iter().flatten().flatten().collect()
        }
    };
}

operations! {
    ($)
    /// Brings every item of a primary in step with its present state, present or absent.
    Sync(SyncJob): sync::SyncFields,
    /// Writes a primary, then syncs it.
    Put(Box<Put>): put::PutFields,
    /// Deletes a primary, then syncs it.
    Delete(DeleteJob): delete::DeleteFields,
    /// Removes a primary with everything that is stored about it.
    Erase(EraseJob): erase::EraseFields,
    /// Moves a primary into its archive.
    Archive(ArchiveJob): archive::ArchiveFields,
    /// Moves a primary back out of its archive.
    Restore(RestoreJob): restore::RestoreFields,
    /// Gives a primary another key, in its table or another one.
    Move(MoveJob): moving::MoveFields,
    /// Syncs every primary of a table.
    Backfill(Backfill): backfill::BackfillFields,
    /// Compares every item of every primary of a table with its expected state.
    Audit(Audit): audit::AuditFields,
    /// Applies the range overlays of a view to a range of entities.
    Propagate(Box<Propagation>): propagate::PropagateFields,
    /// Deletes the primaries of a table that satisfy a condition.
    DeleteWhere(Box<Sweep>): delete_where::DeleteWhereFields,
    /// Archives the primaries of an archive's source that satisfy a condition.
    ArchiveWhere(Box<Sweep>): archive_where::ArchiveWhereFields,
    /// Drops a dated table as a whole.
    DropTable(Box<DropTable>): drop_table::DropTableFields,
    /// A full `sync`, as a sample of an operation for tests.
    #[cfg(feature = "samples")]
    SampleTouch(TouchJob): sample_touch::TouchFields,
}

/// Reads the fields of an operation. Returns the job, and the names of the fields that are unknown or have no effect.
fn read<F: JobFields>(object: Map<String, Value>) -> Result<(F::Job, Vec<String>), JobError> {
    let known = fields_of::<F>();
    let unread: Vec<String> = object
        .keys()
        .filter(|name| !known.contains(&name.as_str()) || F::is_ineffective(name, &object))
        .cloned()
        .collect();
    let absent: Vec<&str> = known
        .iter()
        .copied()
        .filter(|field| !object.contains_key(*field))
        .collect();
    // `at` is the field that is being read. After the last field, `at` is `None`, and an error then means that a field is missing.
    let (mut entries, mut at) = (object.into_iter(), None);
    let entries = iter::from_fn(|| {
        let entry = entries.next();
        at = entry
            .as_ref()
            .and_then(|(name, _)| known.iter().find(|field| *field == name));
        entry
    });
    let fields: Result<F, serde_json::Error> = F::deserialize(MapDeserializer::new(entries));
    let fields = fields.map_err(
        |error| match (at, cause::without_value(&error.to_string())) {
            (Some(field), problem) => JobError::field(F::OP, format_args!("{field:?}: {problem}")),
            (None, problem) => match unread
                .iter()
                .find_map(|name| Some((name, nearest(name, absent.iter().copied())?)))
            {
                Some((name, meant)) => JobError::field(
                    F::OP,
                    format_args!(
                        "{problem}; unknown field {}; did you mean {meant:?}?",
                        Quoted(name)
                    ),
                ),
                None => match unread.first() {
                    Some(name) => JobError::field(
                        F::OP,
                        format_args!("{problem}; unknown field {}", Quoted(name)),
                    ),
                    None => JobError::field(F::OP, problem),
                },
            },
        },
    )?;
    Ok((fields.job()?, unread))
}

fn table(op: &'static str, name: String) -> Result<TableName, JobError> {
    TableName::new(name).map_err(|error| JobError::field(op, error))
}

fn view(op: &'static str, name: String) -> Result<ViewName, JobError> {
    ViewName::new(name).map_err(|error| JobError::field(op, error))
}

fn key(op: &'static str, pk: String, rk: String) -> Result<EntityKey, JobError> {
    EntityKey::new(pk, rk).map_err(|error| JobError::field(op, error))
}

fn primary(
    op: &'static str,
    table_name: String,
    pk: String,
    rk: String,
) -> Result<Primary, JobError> {
    Ok(Primary {
        table: table(op, table_name)?,
        key: key(op, pk, rk)?,
    })
}

fn etag(op: &'static str, text: Option<String>) -> Result<Option<ETag>, JobError> {
    text.map(ETag::new).transpose().map_err(|error| {
        JobError::field(
            op,
            format_args!("\"if_match\": {}", cause::without_value(&error.to_string())),
        )
    })
}

fn when(op: &'static str, text: Option<String>) -> Result<Option<TimedCondition>, JobError> {
    let parsed = text.map(|text| TimedCondition::parse(&text)).transpose();
    parsed
        .map_err(|error| JobError::field(op, format_args!("\"when\": {}", error.without_values())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decoding uses the names in `OPS`, and all code after decoding uses [`Job::op`].
    #[test]
    fn an_operation_makes_a_job_of_its_own_name() {
        let fields = serde_json::json!({
            "table": "Logins20260101", "pk": "p", "rk": "r", "to_pk": "p", "to_rk": "s", "archive": "former", "view": "names", "owner": {"pk": "p", "rk": "r"},
            "entity": {"PartitionKey": "p", "RowKey": "r"}, "all": true,
        });
        for op in OPS {
            let mut object = fields.as_object().unwrap().clone();
            if *op == "backfill" {
                object.remove("view");
            }
            let OperationSpec { op: name, read, .. } = operation_spec(op).unwrap();
            assert_eq!((name, read(object).unwrap().0.op()), (*op, *op));
        }
        assert!(
            schemas().len() > OPS.len(),
            "one schema for each operation, and one for each of its lists"
        );
    }
}
