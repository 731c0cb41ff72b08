//! How long a write took until everything derived from it could be found.

use std::time::Duration;

use crate::protocol::observe::Observation;
use crate::protocol::scope::Scope;

/// Time from the last write of the primary that was seen until now, by the clock of its table service; `None` where that version had
/// been in step before, or its time is not known.
pub(crate) fn found_after(scope: &Scope<'_>, seen: &Observation) -> Option<Duration> {
    let row = seen
        .row()
        .filter(|row| seen.footprint.settled.version() != Some(&row.etag))?;
    let clocks = &scope.env.stores.account(&scope.source.account).ok()?.clocks;
    let now = clocks.tables_now().unwrap_or_else(|| scope.env.clock.now());
    Some(Duration::try_from(now.duration_since(row.timestamp?.timestamp())).unwrap_or_default())
}
