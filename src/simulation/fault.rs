//! The kinds of faults, and how often each was injected.

use std::fmt;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
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
}

impl Fault {
    /// Every kind.
    pub const ALL: [Self; 17] = [
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
    ];

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
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How often each kind was injected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl FaultCounts {
    /// Counts one.
    pub const fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// How often this kind was injected.
    pub const fn of(&self, fault: Fault) -> u64 {
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
