//! The time from a write of a primary until its items are in step.

use std::time::Duration;

use crate::protocol::observe::Observation;
use crate::protocol::scope::Scope;

/// Time since the observed version of the primary was written, by the clock of its table service. `None` if the items
/// were already in step with that version, or if its time is unknown.
pub(crate) fn found_after(scope: &Scope<'_>, seen: &Observation) -> Option<Duration> {
    let row = seen
        .row()
        .filter(|row| seen.footprint.settled.version() != Some(&row.etag))?;
    let clocks = &scope.env.stores.account(&scope.source.account).ok()?.clocks;
    let now = clocks.tables_now().unwrap_or_else(|| scope.env.clock.now());
    Some(Duration::try_from(now.duration_since(row.timestamp?.timestamp())).unwrap_or_default())
}
