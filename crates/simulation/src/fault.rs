//! The kinds of faults, and how often each was injected.

use std::fmt;

use super::world::World;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// A request is refused before it is executed.
    ErrorBefore,
    /// A request is lost on its way: not executed, not answered.
    RequestLost,
    /// A request is executed, and its answer is lost.
    AnswerLost,
    /// A request arrives long after its sender gave it up, up to 15 minutes later.
    LateArrival,
    /// A request takes longer than a lease may last.
    SlowRequest,
    /// An answer does.
    SlowAnswer,
    /// A partition or queue throttles for a while.
    Throttling,
    /// So it does, and asks for a wait.
    RetryAfter,
    /// A service refuses everything for a while.
    Outage,
    /// A message becomes visible again while somebody works on it.
    ShownEarly,
    /// A worker stops before an operation.
    CrashBefore,
    /// A worker stops after an operation was executed.
    CrashAfter,
    /// A worker stops while its request is on its way, which arrives later.
    CrashInFlight,
    /// A worker is told to shut down.
    Sigterm,
    /// A worker's wall clock is wrong.
    ClockSkew,
    /// A worker's wall clock jumps.
    ClockJump,
    /// A run panics.
    Panic,
    /// For minutes no answer of Get Messages arrives, or too late for its sender, while the service hides and counts what it has given out.
    Unheard,
    /// For a while requests are executed, and no answer arrives.
    DeafOutage,
    /// A gateway forwards a request and answers 503 by itself.
    Gateway,
    /// A request, mostly a repeated one, is refused with 401 or 403.
    Forbidden,
    /// A request, mostly a repeated one, is refused with 409 `TableBeingDeleted` or the like.
    BeingDeleted,
    /// A request, mostly a repeated one, is refused with 400.
    BadRequest,
    /// A write, mostly a repeated one, is refused with 413.
    TooLarge,
    /// A client creates an entity anew whose deletion by a worker went unanswered, before the worker tries again.
    Recreated,
    /// A page of a query is short or empty and names a continuation.
    ShortPage,
    /// The clocks of the services differ from each other.
    ServiceSkew,
    /// A client's own retry puts a message a second time, with or without an id of its own.
    Doubled,
    /// A message expires before it is done.
    Expiry,
    /// Every run of one message panics, until a person sends it again.
    Pill,
    /// For a while every write of one row is refused for good, alone and in a transaction with others.
    RefusedRow,
    /// A client removes the entity that views keep properties on.
    TargetGone,
    /// No worker runs for hours, longer than a job that fails is kept trying.
    Backlog,
    /// The clock of the queues is ahead of that of the tables.
    QueuesAhead,
    /// One of several accounts refuses everything for long.
    Away,
    /// A client changes an entity between a worker's lost request to delete it and the next attempt.
    Changed,
    /// Somebody saves derived rows again, as they are.
    RowSaved,
    /// Somebody adds another primary's row to a footprint.
    Forged,
    /// One host alone does not reach a partition.
    HostCut,
    /// The storage of one host alone is slow.
    HostSlow,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 40] = [
        Self::ErrorBefore,
        Self::RequestLost,
        Self::AnswerLost,
        Self::LateArrival,
        Self::SlowRequest,
        Self::SlowAnswer,
        Self::Throttling,
        Self::RetryAfter,
        Self::Outage,
        Self::ShownEarly,
        Self::CrashBefore,
        Self::CrashAfter,
        Self::CrashInFlight,
        Self::Sigterm,
        Self::ClockSkew,
        Self::ClockJump,
        Self::Panic,
        Self::Unheard,
        Self::DeafOutage,
        Self::Gateway,
        Self::Forbidden,
        Self::BeingDeleted,
        Self::BadRequest,
        Self::TooLarge,
        Self::Recreated,
        Self::ShortPage,
        Self::ServiceSkew,
        Self::Doubled,
        Self::Expiry,
        Self::Pill,
        Self::RefusedRow,
        Self::TargetGone,
        Self::Backlog,
        Self::QueuesAhead,
        Self::Away,
        Self::Changed,
        Self::RowSaved,
        Self::Forged,
        Self::HostCut,
        Self::HostSlow,
    ];

    /// Whether it can strike in a world.
    pub const fn strikes_in(self, world: World) -> bool {
        match self {
            // Rows and targets that only the company has.
            Self::RefusedRow | Self::Changed | Self::RowSaved | Self::Forged => {
                matches!(world, World::Company)
            }
            Self::TargetGone => matches!(world, World::Company | World::Releases),
            // Where there are several accounts, or where hosts differ.
            Self::Away | Self::HostCut => matches!(world, World::Releases),
            Self::HostSlow => matches!(world, World::Patterns | World::Releases),
            // It is employees that are created anew.
            Self::Recreated => !matches!(world, World::Archives),
            _ => true,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorBefore => "error before the operation",
            Self::RequestLost => "request lost",
            Self::AnswerLost => "answer lost after the operation",
            Self::LateArrival => "late arrival",
            Self::SlowRequest => "slow request",
            Self::SlowAnswer => "slow answer",
            Self::Throttling => "throttled partition",
            Self::RetryAfter => "throttled with Retry-After",
            Self::Outage => "service refuses everything",
            Self::ShownEarly => "duplicate delivery",
            Self::CrashBefore => "crash before an operation",
            Self::CrashAfter => "crash after an operation",
            Self::CrashInFlight => "crash, its request arrives later",
            Self::Sigterm => "SIGTERM",
            Self::ClockSkew => "clock skew",
            Self::ClockJump => "clock jump",
            Self::Panic => "panic of a run",
            Self::Unheard => "answers of Get Messages lost",
            Self::DeafOutage => "outage whose requests are executed",
            Self::Gateway => "503 after the operation",
            Self::Forbidden => "credentials refused",
            Self::BeingDeleted => "name still being deleted",
            Self::BadRequest => "bad request",
            Self::TooLarge => "request too large",
            Self::Recreated => "entity recreated between two attempts",
            Self::ShortPage => "short or empty page",
            Self::ServiceSkew => "clocks of the services differ",
            Self::Doubled => "message put twice",
            Self::Expiry => "message expired",
            Self::Pill => "job that always panics",
            Self::RefusedRow => "row that is always refused",
            Self::TargetGone => "target removed",
            Self::Backlog => "backlog of hours",
            Self::QueuesAhead => "clock of the queues ahead",
            Self::Away => "account away for long",
            Self::Changed => "entity changed between two attempts",
            Self::RowSaved => "derived row saved again",
            Self::Forged => "forged footprint",
            Self::HostCut => "partition that one host does not reach",
            Self::HostSlow => "slow storage of one host",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each kind was injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self([0; FaultKind::ALL.len()])
    }
}

impl FaultCounts {
    /// Counts one.
    pub const fn add(&mut self, fault: FaultKind) {
        self.0[fault as usize] += 1;
    }

    /// How often this kind was injected.
    pub const fn of(&self, fault: FaultKind) -> u64 {
        self.0[fault as usize]
    }

    /// All kinds together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds another's counts.
    pub fn absorb(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}
