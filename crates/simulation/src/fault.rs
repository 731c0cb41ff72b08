use std::fmt;

use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    ErrorBefore,
    RequestLost,
    AnswerLost,
    /// A request arrives up to 15 minutes after its sender gave up.
    LateArrival,
    /// A request takes up to 90 seconds, which is longer than a lease.
    SlowRequest,
    /// An answer takes up to 90 seconds, which is longer than a lease.
    SlowAnswer,
    Throttling,
    RetryAfter,
    Outage,
    ShownEarly,
    CrashBefore,
    CrashAfter,
    CrashInFlight,
    Sigterm,
    ClockSkew,
    ClockJump,
    Panic,
    /// For some minutes, answers of Get Messages are lost or arrive too late. The service still hides the messages and
    /// counts the deliveries.
    PollAnswerLost,
    DeafOutage,
    Gateway,
    Forbidden,
    /// A request, usually a repeated one, is refused with 409 `TableBeingDeleted` or a similar code.
    BeingDeleted,
    BadRequest,
    TooLarge,
    Recreated,
    ShortPage,
    ServiceSkew,
    /// A client puts a message a second time, as its own retry, with or without a job id.
    Doubled,
    Expiry,
    /// Every run of one message panics, until an operator requeues the message.
    AlwaysPanics,
    /// For a while, the store permanently refuses every write of one row, alone or in a transaction with other rows.
    RefusedRow,
    TargetGone,
    /// No worker runs for several hours. A failing job is retried for a shorter time.
    Backlog,
    QueuesAhead,
    Away,
    Changed,
    RowSaved,
    Forged,
    HostCut,
    HostSlow,
}

impl FaultKind {
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
        Self::PollAnswerLost,
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
        Self::AlwaysPanics,
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

    pub const fn occurs_in(self, world: World) -> bool {
        match self {
            // Only `company` has the rows that these faults need.
            Self::RefusedRow | Self::Changed | Self::RowSaved | Self::Forged => {
                matches!(world, World::Company)
            }
            Self::TargetGone => matches!(world, World::Company | World::Releases),
            // These faults need several accounts.
            Self::Away | Self::HostCut => matches!(world, World::Releases),
            Self::HostSlow => matches!(world, World::Patterns | World::Releases),
            Self::Recreated => !matches!(world, World::Archives),
            _ => true,
        }
    }

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
            Self::CrashInFlight => "crash while a request is in flight",
            Self::Sigterm => "SIGTERM",
            Self::ClockSkew => "clock skew",
            Self::ClockJump => "clock jump",
            Self::Panic => "panic of a run",
            Self::PollAnswerLost => "answers of Get Messages lost",
            Self::DeafOutage => "outage that executes requests without answering",
            Self::Gateway => "503 after the operation",
            Self::Forbidden => "credentials refused",
            Self::BeingDeleted => "409 for a name that is being deleted",
            Self::BadRequest => "bad request",
            Self::TooLarge => "request too large",
            Self::Recreated => "entity recreated between two attempts",
            Self::ShortPage => "short or empty page",
            Self::ServiceSkew => "clocks of the services differ",
            Self::Doubled => "message put twice",
            Self::Expiry => "message expired",
            Self::AlwaysPanics => "job that always panics",
            Self::RefusedRow => "row refused for a while",
            Self::TargetGone => "target deleted",
            Self::Backlog => "no worker for hours",
            Self::QueuesAhead => "clock of the queues ahead",
            Self::Away => "long account outage",
            Self::Changed => "entity changed between two attempts",
            Self::RowSaved => "derived row saved again",
            Self::Forged => "forged footprint",
            Self::HostCut => "partition unreachable for one host",
            Self::HostSlow => "slow storage of one host",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCounts([u64; FaultKind::ALL.len()]);

impl Default for FaultCounts {
    fn default() -> Self {
        Self([0; FaultKind::ALL.len()])
    }
}

impl FaultCounts {
    pub const fn add(&mut self, fault: FaultKind) {
        self.0[fault as usize] += 1;
    }

    pub const fn of(&self, fault: FaultKind) -> u64 {
        self.0[fault as usize]
    }

    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn absorb(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}
