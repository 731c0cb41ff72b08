//! Bugs that tests plant to check that the simulation catches them.
//!
//! Each is in the program as `planted(Bug::…)`. Only a build with the feature `planted`, which the simulation turns on, can plant one. In
//! every other build [`planted`] is a constant `false`, and the code of the bugs is not compiled.

/// Declares the bugs, each with its description for tables.
macro_rules! bugs {
    ($(#[doc = $words:literal] $bug:ident,)*) => {
        /// A bug that a test can plant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $words] $bug,)*
        }

        impl Bug {
            /// Every bug with its description.
            pub const ALL: &[(Self, &str)] = &[$((Self::$bug, $words),)*];
        }
    };
}

bugs! {
    /// The primary is read before the footprint.
    PrimaryReadFirst,
    /// Items are written unconditionally.
    UnconditionalWrite,
    /// Footprints are written unconditionally.
    UnconditionalFootprint,
    /// Items are created before the footprint announces them.
    UnannouncedCreate,
    /// An item that lost a race is not read again.
    NoLookAfterLostRace,
    /// A lost race counts as a closed pass.
    LostRaceIsDone,
    /// An old write that may still arrive does not taint the footprint.
    NoTaint,
    /// The taint ends with the pass that found its reason.
    TaintEndsWithItsPass,
    /// An unanswered insert is forgotten.
    UnansweredInsertForgotten,
    /// Items that were dropped while tainted are not rechecked.
    NoRecheck,
    /// Items that were dropped while tainted are rechecked too early.
    RecheckAtOnce,
    /// An absent primary without items leaves no tombstone.
    NoTombstone,
    /// An item of another primary is treated as the primary's own.
    TakesForeignItems,
    /// The views of a view are not synced after it.
    NoSyncOn,
    /// An archive job deletes its source before copying it.
    DeletedBeforeCopied,
    /// A primary is deleted at any version.
    DeletedAtAnyVersion,
    /// A restore overwrites an entity that was created in the meantime.
    RestoreOverwrites,
    /// A put ignores its condition.
    PutIgnoresCondition,
    /// A redelivered delete job deletes an entity that was created in the meantime.
    DeleteIgnoresRedelivery,
    /// A message is deleted before its job runs.
    DeletedBeforeRun,
    /// Syncs share the run of any job.
    FoldedIntoAnything,
    /// Two jobs of one primary run at once.
    TwoRunsOfOneKey,
    /// A transient error is treated as permanent.
    TransientIsPoison,
    /// Jobs with transient failures are given up after a number of attempts.
    GivenUpByCount,
    /// Deliveries that are not the job's fault count as attempts.
    NothingWrittenOff,
    /// Exhausted messages are detected only after another run.
    PoisonedAfterRunning,
    /// A message that is given up is deleted without a poison message.
    PoisonLost,
    /// Leases are not renewed.
    LeaseNotRenewed,
    /// A partition's Retry-After is ignored.
    RetryAfterIgnored,
    /// A list in a blob is written unconditionally.
    UnconditionalList,
    /// Staged blobs are deleted before their put has written anything.
    StagedDeletedFirst,
    /// The rows of a wide entity are written one by one.
    RowsWrittenApart,
    /// Range overlays are not carried to the entities of their range.
    NothingCarried,
    /// An entity counts as in step once its carry job is queued.
    CarryQueuedIsSettled,
    /// A key that was found to be gone is not rechecked while the footprint is tainted.
    GoneNotRechecked,
    /// A drop that meets another version counts as done.
    LostDropIsDone,
    /// The error of a refused row in a transaction is attributed to its neighbour.
    NextRowIsBlamed,
    /// The refusal of one of several combined writes is reported to its neighbour.
    NeighbourIsRefused,
    /// A delete whose first attempt had no answer counts as done if the entity has changed.
    ChangedCountsAsDeleted,
    /// A message is deleted before its poison message is put.
    DeletedBeforePoisoned,
    /// A sync that arrived during a run shares it.
    FoldedIntoARunUnderWay,
    /// Tombstones are removed 27 minutes too early.
    TombstoneServesShort,
    /// The duration of a taint has no margin for differing clocks.
    TaintForgetsClocks,
    /// A key that another primary holds stays in the loser's footprint.
    TakenKeyStaysListed,
    /// A relocation takes an unanswered delete for one that was not executed.
    UnansweredDeleteNotExecuted,
    /// A restore keeps the earlier version that it brought back.
    RestoreKeepsTheEarlier,
    /// A merging put removes every property that it does not name.
    MergeReplaces,
    /// A relocation loses one property.
    ArchiveDropsProperty,
    /// A carry job reads the claims before the page.
    ClaimsReadFirst,
    /// Panics do not count as attempts.
    PanicsWrittenOff,
    /// A footprint that waits for a target counts as settled.
    WaitingCountsAsSettled,
    /// An unanswered write of a part is forgotten.
    UnansweredPartForgotten,
    /// Properties are set on another owner's entity without an announcement.
    PropertiesUnannounced,
    /// Properties that are rewritten with the same values keep their token.
    PropertyTokensRepeat,
    /// A run is acknowledged under any recorded catalog.
    RecordNotCompared,
    /// A worker with an older catalog may walk whole tables.
    WalkByAnyCatalog,
    /// Walks start while workers with an older catalog may still acknowledge jobs.
    WalkAtOnce,
    /// A worker whose catalog lease has not ended poisons a job that its old catalog does not know.
    PoisonedByAnOldCatalog,
    /// A walk starts again if one of several primaries that compete for a key keeps losing.
    LostRaceEndsTheWalk,
    /// A job that acts once starts after a wait without checking that it still holds its message.
    BegunUnconfirmed,
    /// Items of retired views stay.
    RetiredItemsStay,
    /// Items stay in an account to which their hash no longer assigns them.
    LeftInOtherAccounts,
    /// A batch is deleted although one of its jobs must be repeated.
    BatchDeletedWithAFailedJob,
    /// One job is missing from the rest of a batch.
    JobDroppedFromTheRest,
    /// A failed job of a batch leaves no poison message.
    FailedJobOfABatchNotPoisoned,
    /// A worker records its catalog even if that retires or replaces views.
    WorkersRetire,
    /// An entity that is being relocated is looked for only once in each place.
    FindLooksOnce,
    /// A lookup of entities returns their copies.
    EntitiesFromCopies,
    /// A pass drops a large value to which another run may be about to point.
    ValueNotSpared,
    /// A waiting reader accepts any settled footprint.
    WaitTrustsAnOldFootprint,
    /// A footprint is believed without its seal.
    SealNotChecked,
    /// A job that is given up is not rechecked.
    GivenUpUnchecked,
    /// A hanging probe of a throttled scope blocks further probes until it is given up.
    ProbeKeepsItsPlace,
    /// A pass treats rows of unknown views as written.
    UnknownViewTakenForWritten,
    /// The digest in a stamp is not compared with the content.
    DigestNotCompared,
}

/// Whether this bug is planted.
#[cfg(not(feature = "planted"))]
#[inline]
pub const fn planted(_: Bug) -> bool {
    false
}

#[cfg(feature = "planted")]
pub use ground::{BugSet, MutationGuard, planted, take_consulted};

#[cfg(feature = "planted")]
mod ground {
    use std::cell::Cell;

    use crate::planted::Bug;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
        static CONSULTED: Cell<u128> = const { Cell::new(0) };
    }

    const _: () = assert!(
        Bug::ALL.len() <= u128::BITS as usize,
        "a set of bugs has a bit for each"
    );

    /// Whether this bug is planted on this thread. A simulation runs on a single thread.
    pub fn planted(bug: Bug) -> bool {
        CONSULTED.set(CONSULTED.get() | bit(bug));
        PLANTED.get() == Some(bug)
    }

    const fn bit(bug: Bug) -> u128 {
        1 << bug as u32
    }

    /// A set of bugs.
    #[derive(Debug, Clone, Copy)]
    pub struct BugSet(u128);

    impl BugSet {
        /// Whether the set contains a bug.
        #[must_use]
        pub const fn contains(self, bug: Bug) -> bool {
            self.0 & bit(bug) != 0
        }
    }

    /// The bugs for which [`planted`] was called on this thread since the last call. A run that asked for none of them is not affected by
    /// planting any.
    pub fn take_consulted() -> BugSet {
        BugSet(CONSULTED.take())
    }

    /// Keeps a bug planted until it is dropped.
    #[derive(Debug)]
    pub struct MutationGuard(());

    impl MutationGuard {
        /// Plants a bug on this thread.
        #[must_use]
        pub fn of(bug: Bug) -> Self {
            PLANTED.set(Some(bug));
            Self(())
        }
    }

    impl Drop for MutationGuard {
        fn drop(&mut self) {
            PLANTED.set(None);
        }
    }
}
