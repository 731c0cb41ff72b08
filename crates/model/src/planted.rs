//! Bugs that tests plant, to see that the simulation catches them: a check that cannot fail is worth nothing.
//!
//! Each stands in the program as `planted(Bug::…)`. Only a build with the feature `planted` can plant one, which the simulation turns
//! on: in every other build [`planted`] is a constant `false`, and the code behind it is not compiled in.

/// Every bug, with its words for the table.
macro_rules! bugs {
    ($(#[doc = $words:literal] $bug:ident,)*) => {
        /// A bug that a test can plant.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $words] $bug,)*
        }

        impl Bug {
            /// Every bug, and what it does wrong.
            pub const ALL: &[(Self, &str)] = &[$((Self::$bug, $words),)*];
        }
    };
}

bugs! {
    /// The primary is read before the footprint.
    PrimaryReadFirst,
    /// Items are written whatever is there.
    UnconditionalWrite,
    /// Footprints are written whatever they have become.
    UnconditionalFootprint,
    /// Items are created before the footprint announces them.
    UnannouncedCreate,
    /// What lost a race is not looked at again.
    NoLookAfterLostRace,
    /// A lost race counts as a closed pass.
    LostRaceIsDone,
    /// An old write that may still arrive does not taint the footprint.
    NoTaint,
    /// The taint is forgotten with the pass that met its reason.
    TaintEndsWithItsPass,
    /// An insert without an answer is forgotten.
    UnansweredInsertForgotten,
    /// What was dropped while tainted is never looked at again.
    NoRecheck,
    /// It is looked at again at once.
    RecheckAtOnce,
    /// A primary that is absent and has no items leaves no tombstone.
    NoTombstone,
    /// An item of another primary counts as one's own.
    TakesForeignItems,
    /// Views of a view are not synced on.
    NoSyncOn,
    /// An archive job deletes its source before it has copied it.
    DeletedBeforeCopied,
    /// A primary is deleted whatever it has become.
    DeletedAtAnyVersion,
    /// A restore overwrites what was created anew.
    RestoreOverwrites,
    /// A put ignores its condition.
    PutIgnoresCondition,
    /// A delete that is delivered again deletes what was created since.
    DeleteIgnoresRedelivery,
    /// A message is deleted before its job has run.
    DeletedBeforeRun,
    /// Syncs share the run of whatever job comes first.
    FoldedIntoAnything,
    /// Two jobs of one primary run at once.
    TwoRunsOfOneKey,
    /// What the store could not do for the moment is poisoned.
    TransientIsPoison,
    /// Transient failures are given up by their count.
    GivenUpByCount,
    /// Deliveries are not written off.
    NothingWrittenOff,
    /// A message is found to be exhausted after another run.
    PoisonedAfterRunning,
    /// A message that is given up is deleted and not put to the poison queue.
    PoisonLost,
    /// Leases are not renewed.
    LeaseNotRenewed,
    /// A partition that asks for a wait gets none.
    RetryAfterIgnored,
    /// A list in a blob is written whatever it has become.
    UnconditionalList,
    /// What was staged is deleted before its put has written anything.
    StagedDeletedFirst,
    /// The rows of a wide entity are written one after the other.
    RowsWrittenApart,
    /// What an entity says to others is not carried to them.
    NothingCarried,
    /// An entity counts as in step once what it says to others is queued to be carried.
    CarryQueuedIsSettled,
    /// A key that was found gone is not looked at again while the footprint is tainted.
    GoneNotRechecked,
    /// A drop that meets another version counts as done.
    LostDropIsDone,
    /// A refused row of the primary's own transaction is taken for its neighbour.
    NextRowIsBlamed,
    /// The refusal of one of several writes that travel together is told to its neighbour.
    NeighbourIsRefused,
    /// A delete whose first attempt went unanswered counts as done where the entity has changed.
    ChangedCountsAsDeleted,
    /// A message is deleted before its poison message is put.
    DeletedBeforePoisoned,
    /// A sync that arrived during a run shares it.
    FoldedIntoARunUnderWay,
    /// Tombstones are removed 27 minutes too early.
    TombstoneServesShort,
    /// A taint does not last longer for clocks that differ.
    TaintForgetsClocks,
    /// A key that another primary has stays in the loser's footprint.
    TakenKeyStaysListed,
    /// A job that relocates takes an unanswered delete for one that was not executed.
    UnansweredDeleteNotExecuted,
    /// A restore keeps the earlier version that it had brought back.
    RestoreKeepsTheEarlier,
    /// A put that merges takes away every property that it does not name.
    MergeReplaces,
    /// A job that relocates loses one property.
    ArchiveDropsProperty,
    /// A job that carries reads the claims before the page.
    ClaimsReadFirst,
    /// Panics are written off.
    PanicsWrittenOff,
    /// A footprint that waits for a target counts as settled.
    WaitingCountsAsSettled,
    /// An unanswered write of a part of a document is forgotten.
    UnansweredPartForgotten,
    /// Properties are set on entities of others without an announcement.
    PropertiesUnannounced,
    /// Properties that are written again with the same values keep their token.
    PropertyTokensRepeat,
    /// A run is acknowledged under any recorded catalog.
    RecordNotCompared,
    /// Whole tables are gone through by any worker, of an older catalog too.
    WalkByAnyCatalog,
    /// Whole tables are gone through while older catalogs may still acknowledge.
    WalkAtOnce,
    /// A job that an older catalog does not know is poisoned while its lease lasts.
    PoisonedByAnOldCatalog,
    /// A walk over a table begins again where one of many that want one key never came first.
    LostRaceEndsTheWalk,
    /// A job that acts once begins after a wait without a look whether its message is still its own.
    BegunUnconfirmed,
    /// Items of retired views stay.
    RetiredItemsStay,
    /// Items stay in an account after their hash says another one.
    LeftInOtherAccounts,
    /// A batch is deleted while one of its jobs is to come again.
    BatchDeletedWithAFailedJob,
    /// One job is missing in the rest of a batch.
    JobDroppedFromTheRest,
    /// A job of a batch that comes to nothing leaves no poison message.
    FailedJobOfABatchNotPoisoned,
    /// A worker records its catalog even where that retires or replaces views.
    WorkersRetire,
    /// An entity under way is looked for once in either place.
    FindLooksOnce,
    /// A lookup of entities answers with their copies.
    EntitiesFromCopies,
    /// A pass drops a large value that another run may be about to point to.
    ValueNotSpared,
    /// A reader who waits takes any settled footprint for an answer.
    WaitTrustsAnOldFootprint,
    /// A footprint is believed without its seal.
    SealNotChecked,
    /// A job that is given up is not looked at again.
    GivenUpUnchecked,
    /// A probe of a throttled scope that hangs keeps its place until it is given up.
    ProbeKeepsItsPlace,
    /// A pass takes rows of views that it does not know for written.
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

    /// Whether this bug is planted on this thread, on which a whole simulation runs.
    pub fn planted(bug: Bug) -> bool {
        CONSULTED.set(CONSULTED.get() | bit(bug));
        PLANTED.get() == Some(bug)
    }

    const fn bit(bug: Bug) -> u128 {
        1 << bug as u32
    }

    /// Some bugs.
    #[derive(Debug, Clone, Copy)]
    pub struct BugSet(u128);

    impl BugSet {
        /// Whether a bug is among them.
        #[must_use]
        pub const fn contains(self, bug: Bug) -> bool {
            self.0 & bit(bug) != 0
        }
    }

    /// The bugs that [`planted`] was asked for on this thread since the last call. A run that asked for none of its own accord is the same
    /// with any other planted.
    pub fn take_consulted() -> BugSet {
        BugSet(CONSULTED.take())
    }

    /// A bug in the ground, until this is dropped.
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
