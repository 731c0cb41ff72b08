//! What one seed has of the third world.

use std::time::Duration;

use crate::fault_plan::{Draw, rng, seconds};

/// Which of the views there are, and how the archives are.
#[derive(Debug, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each view is there or not, whatever the others are"
)]
pub(crate) struct ArchivesShape {
    /// Events have a copy in their own partition.
    pub(super) kinds: bool,
    /// Papers have a copy in another table.
    pub(super) titles: bool,
    /// Papers and records are found by a search service.
    pub(super) found: bool,
    /// Papers and records have large values.
    pub(super) large: bool,
    /// How many blobs of an hour are appended to.
    pub(super) spread: u32,
    /// How large a log's blob may become.
    pub(super) roll_at: u64,
    /// Events say themselves when they happened.
    pub(super) timed: bool,
    /// Attempts are listed by their users.
    pub(super) by_user: bool,
    /// Where the rows of a table go before it is dropped.
    pub(super) kept_in: KeptIn,
    /// How long a table is kept after its hour.
    pub(super) keep: Duration,
}

/// Where the rows of a table go before it is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptIn {
    Nowhere,
    Container,
    Folder,
}

/// From the end of the last hour to the beginning of a run.
const SINCE_THE_HOUR: Duration = Duration::from_secs(400);

impl ArchivesShape {
    /// What a seed stands for.
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
            // The table of the last hour is over in the midst of the storm.
            keep: SINCE_THE_HOUR + seconds(draw.magnitude(2.0, storm.as_secs_f64())),
        }
    }
}
