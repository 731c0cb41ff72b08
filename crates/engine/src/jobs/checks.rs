//! Checks of a stored row that several jobs share.

use crate::execute::Failure;
use crate::failure::permanent;
use crate::protocol::observe::Observation;
use evenkeel_model::Row;
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::job::Primary;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the row was derived by view {view} from {source_of}. Change that primary instead")]
struct DerivedRow {
    view: String,
    source_of: String,
}

/// Rejects a row that a view derived. No job writes or deletes such a row, in any table.
pub(crate) fn refuse_derived(seen: &Observation, primary: &Primary) -> Result<(), Failure> {
    let Some(Row { entity, .. }) = seen.primary.derived() else {
        return Ok(());
    };
    let text = |name: &str| entity.text(name).unwrap_or_default().to_owned();
    let source_of =
        Owner::of(entity).map_or_else(|| text(SOURCE_PROPERTY), |owner| owner.primary.to_string());
    Err(permanent(
        format!("writing {primary}"),
        DerivedRow {
            view: text(VIEW_PROPERTY),
            source_of,
        },
    ))
}

/// Returns the reason to skip a job if the entity does not satisfy its condition (`when`).
pub(crate) fn unsatisfied(row: &Row, when: Option<&Condition>) -> Option<String> {
    when.filter(|when| !when.holds_of(row))
        .map(|when| format!("when: the entity does not satisfy {when}"))
}
