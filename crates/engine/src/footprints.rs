//! Footprints in their table: each write under its condition.

use super::doubt::Doubt;
use super::execute::{Failure, FailureClass};
use super::failure::{permanent, storage};
use super::footprint::Footprint;
use super::observation::Observation;
use super::scope::Scope;
use super::steps::{Plan, Write};
use evenkeel_model::ETag;
use evenkeel_model::planted::{Bug, planted};
use evenkeel_storage::{ErrorClass, IfMatch, TableOperation};

/// A footprint has no room for further ranges.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} ranges are still to be told, more than its footprint holds; their carry jobs wait in the queue, or in the poison queue"
)]
struct TooManyRanges(usize);

/// Refuses new items where the announced footprint does not fit once they have their ETags: it could be neither closed nor announced again.
/// More ranges than it holds are told when others are done.
pub(super) fn refuse_unclosable(
    scope: &Scope<'_>,
    seen: &Observation,
    plan: &Plan,
) -> Result<(), Failure> {
    let is_new = |write: &Write| !seen.footprint.items.contains_key(&write.address);
    match &plan.announce {
        Some(footprint) if !footprint.carries.fit() => Err(Failure::new(
            FailureClass::Transient { retry_after: None },
            format!("announcing what {} says to ranges", scope.primary),
            TooManyRanges(footprint.carries.len()),
        )),
        Some(footprint) if plan.writes.iter().any(is_new) && !footprint.fits() => Err(permanent(
            format!("announcing items of {}", scope.primary),
            footprint.too_large(&scope.primary),
        )),
        _ => Ok(()),
    }
}

/// Writes the footprint at its ETag, or inserts it. Nothing where the condition failed, or may have.
pub(super) async fn write(
    scope: &Scope<'_>,
    doubt: &mut Doubt,
    footprint: &Footprint,
    over: Option<&ETag>,
    doing: &str,
) -> Result<Option<ETag>, Failure> {
    let step = || format!("{doing} the footprint of {}", scope.primary);
    let entity = footprint
        .encode(&scope.primary, scope.env.secret.get())
        .map_err(|error| permanent(step(), error))?;
    let operation = match over {
        _ if planted(Bug::UnconditionalFootprint) => TableOperation::InsertOrReplace(entity),
        Some(etag) => TableOperation::Replace(entity, IfMatch::Matches(etag.clone())),
        None => TableOperation::Insert(entity),
    };
    match scope.tables()?.apply(&scope.footprints, &operation).await {
        Ok(etag) => {
            doubt.footprint_written();
            Ok(etag)
        }
        Err(error) if error.class == ErrorClass::Ambiguous => {
            doubt.footprint_unanswered();
            Ok(None)
        }
        Err(error) if error.may_have_lost() => {
            doubt.footprint_overtaken();
            Ok(None)
        }
        Err(error) => Err(storage(step(), error)),
    }
}
