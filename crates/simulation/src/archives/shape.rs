//! The configuration of the `archives` world in one seed.

use std::time::Duration;

use crate::fault_plan::{Draw, rng, seconds};

#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each view exists or not, independently of the others"
)]
pub(crate) struct ArchivesShape {
    /// Whether each event in `Events` has a copy in the same partition.
    pub(super) kinds: bool,
    /// Whether `Papers` has a copy in another table.
    pub(super) titles: bool,
    pub(super) found: bool,
    pub(super) large: bool,
    /// Number of blobs per hour over which log lines are spread.
    pub(super) spread: u32,
    /// Size of a blob after which a log continues in a new blob.
    pub(super) roll_at: u64,
    /// Whether the time of an event is its property `At`.
    pub(super) timed: bool,
    /// Whether `Attempts%Y%m%d%H` has a copy in `ByUser%Y%m%d%H`.
    pub(super) by_user: bool,
    pub(super) kept_in: KeptIn,
    pub(super) keep: Duration,
}

/// Where the rows of a dated table are archived before the table is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptIn {
    Nowhere,
    Container,
    Folder,
}

/// Time between the end of the previous hour and the start of the run.
const SINCE_THE_HOUR: Duration = Duration::from_secs(400);

impl ArchivesShape {
    pub(crate) fn of(seed: u64, storm: Duration) -> Self {
        let rng = rng(seed, 30);
        let draw = Draw(&rng);
        let [kinds, titles, found, large, timed, by_user] =
            [0.4, 0.4, 0.5, 0.4, 0.3, 0.5].map(|odds| draw.happens(odds));
        Self {
            kinds,
            titles,
            found,
            large,
            spread: *draw.of(&[1, 1, 2, 3]),
            roll_at: *draw.of(&[400, 1_500, 64 << 20, 64 << 20]),
            timed,
            by_user,
            kept_in: *draw.of(&[KeptIn::Nowhere, KeptIn::Container, KeptIn::Folder]),
            // The retention time of the previous hour's table passes during the storm.
            keep: SINCE_THE_HOUR + seconds(draw.magnitude(2.0, storm.as_secs_f64())),
        }
    }
}
