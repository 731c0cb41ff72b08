//! Checks of several jobs on the row that they found.

use crate::execute::Failure;
use crate::failure::permanent;
use crate::protocol::observe::Observation;
use evenkeel_model::Row;
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::job::Primary;

/// A job is about a row that a view has made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the row is an item of view {view}, derived from {source_of}: it follows its primary, so change that one"
)]
struct DerivedRow {
    view: String,
    source_of: String,
}

/// Refuses a row derived by a view, in any table: no job writes or deletes one.
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

/// Why an entity is left alone that does not satisfy the condition of its job, in words.
pub(crate) fn unsatisfied(row: &Row, when: Option<&Condition>) -> Option<String> {
    when.filter(|when| !when.holds_of(row))
        .map(|when| format!("when: the entity does not satisfy {when}"))
}
