//! Large values that remain after their primary was deleted, until a recheck deletes them.

use jiff::{SignedDuration, Timestamp};

use crate::execute::Failure;
use crate::failure::storage;
use crate::protocol::queueing;
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::ValueLocation;
use evenkeel_storage::{ErrorClass, Missing, all_blobs};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValuesLeft {
    /// Time by which a recheck deletes the values, if a worker is running.
    pub until: Timestamp,
    /// Number of values; `None` if it is unknown.
    pub values: Option<u64>,
}

pub(crate) async fn values_left(scope: &Scope<'_>) -> Result<Option<ValuesLeft>, Failure> {
    let Some((_, location)) = scope.env.catalog.value_location_of(scope.source) else {
        return Ok(None);
    };
    let later = |from: Timestamp, by| {
        from.saturating_add(SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX))
            .unwrap_or(from)
    };
    let now = scope.env.clock.now();
    let read = scope.read_footprint().await?;
    let tainted = read
        .and_then(|(footprint, _)| footprint.tainted_until)
        .filter(|until| *until > now);
    let values = match (&location, tainted) {
        (ValueLocation::Blobs { account, container }, _) => {
            let blobs = all_blobs(
                scope.target(account)?.blobs.as_ref(),
                container,
                scope.folder.prefix(),
            )
            .await;
            let step = || format!("listing large values of {} in {container}", scope.primary);
            match blobs {
                Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Some(0),
                blobs => {
                    let blobs = blobs.map_err(|error| storage(step(), error))?;
                    Some(
                        blobs
                            .iter()
                            .filter(|blob| scope.folder.has(&blob.name))
                            .count() as u64,
                    )
                }
            }
        }
        (ValueLocation::Files { .. }, Some(_)) => None,
        (ValueLocation::Files { .. }, None) => Some(0),
    };
    // If no taint is recorded, the longest one is assumed, because the footprint that recorded the taint may have been
    // deleted before the values.
    let until = tainted.unwrap_or_else(|| now.saturating_add(scope.env.taint_for()).unwrap_or(now));
    let due = later(now, queueing::second_look_after(scope.env.recheck_after))
        .max(later(until, 2 * queueing::SERVED_MARGIN));
    Ok((values != Some(0)).then_some(ValuesLeft { until: due, values }))
}
