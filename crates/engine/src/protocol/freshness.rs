//! How long it takes after a write until everything derived from it is in step.

use std::time::Duration;

use crate::protocol::observe::Observation;
use crate::protocol::scope::Scope;

/// Time from the observed version of the primary until now, by the clock of its table service. `None` if that version
/// was in step before, or if its time is unknown.
pub(crate) fn found_after(scope: &Scope<'_>, seen: &Observation) -> Option<Duration> {
    let row = seen
        .row()
        .filter(|row| seen.footprint.settled.version() != Some(&row.etag))?;
    let clocks = &scope.env.stores.account(&scope.source.account).ok()?.clocks;
    let now = clocks.tables_now().unwrap_or_else(|| scope.env.clock.now());
    Some(Duration::try_from(now.duration_since(row.timestamp?.timestamp())).unwrap_or_default())
}
