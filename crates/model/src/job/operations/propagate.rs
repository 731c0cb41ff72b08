//! `propagate`: applies the range overlays of a view to a range of entities. Workers queue it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, JobFields, JobSubject, Operation, key, table, view};
use crate::cursor::JobCursor;
use crate::job::JobError;
use crate::propagation::{Propagation, PropagationCursor, PropagationMark};
use crate::range_overlay::TargetRange;
use crate::{AccountName, EntityKey, Key};

/// Fields of a `propagate` job. Workers queue it when the range overlay of an entity has changed.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "propagate")]
pub(super) struct PropagateFields {
    view: String,
    /// The entity whose range overlay has changed, in the table of the view's source.
    owner: EntityKey,
    /// The account of the range's table; default `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    /// The range's table.
    table: String,
    /// The range's PartitionKey.
    pk: String,
    /// The first RowKey of the range; empty for the start of the partition.
    #[serde(default)]
    from: String,
    /// The end of the range, exclusive; absent for the end of the partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    /// The mark that the job removes from the footprint of `owner` when the job is done, and the table of `owner`; absent if no footprint
    /// waits for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<PropagationMark>,
    /// Progress, written by workers.
    #[serde(default, deserialize_with = "crate::cursor::read")]
    cursor: PropagationCursor,
}

impl JobFields for PropagateFields {
    const OP: &'static str = "propagate";
    const EFFECT: Effect = Effect::Derives;
    type Job = Propagation;

    fn job(self) -> Result<Self::Job, JobError> {
        let wrong = |problem: String| JobError::field(Self::OP, problem);
        let row_key = |text: String| Key::new(text).map_err(|error| wrong(error.to_string()));
        let first = key(Self::OP, self.pk, self.from)?;
        let before = self.before.map(row_key).transpose()?;
        let account = self
            .account
            .map_or_else(|| Ok(AccountName::main()), AccountName::new);
        let account = account.map_err(|error| wrong(error.to_string()))?;
        let range = TargetRange {
            account,
            table: table(Self::OP, self.table)?,
            pk: first.pk,
            from: first.rk,
            before,
        };
        Ok(Propagation {
            view: view(Self::OP, self.view)?,
            owner: self.owner,
            range,
            mark: self.mark,
            cursor: self.cursor,
        })
    }
}

impl Operation for Propagation {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Range(self)
    }

    fn cursor_mut(&mut self) -> Option<&mut dyn JobCursor> {
        Some(&mut self.cursor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, decode};
    use crate::{TableName, ViewName};

    #[test]
    fn a_propagate_job_is_decoded_as_it_was_queued() {
        let range = TargetRange {
            account: AccountName::main(),
            table: TableName::new("Employees").unwrap(),
            pk: Key::new("Sales").unwrap(),
            from: Key::new("a").unwrap(),
            before: Some(Key::new("b").unwrap()),
        };
        let (view, owner) = (
            ViewName::new("names").unwrap(),
            EntityKey::new("Sales", "department").unwrap(),
        );
        for mark in [
            None,
            Some(PropagationMark {
                table: TableName::new("Departments").unwrap(),
                mark: "5a".to_owned(),
            }),
        ] {
            let message = Propagation::message(&view, &owner, &range, mark.as_ref()).to_string();
            let Job::Propagate(propagation) = decode(&message).unwrap().job else {
                panic!("no propagate job")
            };
            let (view, owner, range) = (view.clone(), owner.clone(), range.clone());
            assert_eq!(
                *propagation,
                Propagation {
                    view,
                    owner,
                    range,
                    mark,
                    cursor: PropagationCursor::default()
                }
            );
        }
    }
}
