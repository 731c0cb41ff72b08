//! The sweep disturbs every operation of a job in every way, and delays every write of the job to every possible moment.
//!
//! ```text
//!   crash, refusal, throttling, lost answer      at each operation, and after the last
//!   a write that arrives late                    before each operation that the job still sends, then after its end,
//!                                                then after everything else and before the final rechecks
//!   a late write, and the worker stops at once   before each operation of the next deliveries, then likewise
//! ```
//!
//! The number of operations that follow a late write is not known in advance, because the write may cause another round of its job. So the
//! sweep delays the write by one operation more each time, until a run ends before the write arrives.
//!
//! An optimised build tries every moment of arrival. A debug build takes ten times as long, so it tries only every eleventh, and starts at
//! another one for each operation.

use crate::protocol::world::{Arrival, Disturbance, FaultInjector, Lab};

const ONCE: [Disturbance; 4] = [
    Disturbance::Crash,
    Disturbance::Refuse,
    Disturbance::Throttle,
    Disturbance::LoseAnswer,
];

/// More operations than any story has. A request that is delayed by this number arrives after everything else.
const LAST_OF_ALL: u64 = 1_000_000;

/// Distance between two moments of arrival.
const STRIDE: u64 = if cfg!(debug_assertions) { 11 } else { 1 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    at: u64,
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Once(usize),
    Late(u64),
    /// The request arrives late, and the worker stops right after sending it.
    LateAndStopped(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    AtOnce,
    Arrivals,
}

/// The cases of a job, one after the other. The next case is known only after the previous one was run and
/// [`seen`](Self::seen).
#[derive(Debug)]
pub(crate) struct Sweep {
    operations: u64,
    next: Option<Case>,
    part: Part,
    /// Whether the late request of the last case arrived before the end of its job.
    last: Option<Arrival>,
    runs: u32,
    arrivals: u32,
}

impl Sweep {
    pub(crate) const fn over(operations: u64) -> Self {
        Self::of(Part::Whole, operations)
    }

    /// Only the cases in which the disturbance takes effect at once.
    pub(crate) const fn at_once(operations: u64) -> Self {
        Self::of(Part::AtOnce, operations)
    }

    /// Only the cases in which a write arrives late.
    pub(crate) const fn of_arrivals(operations: u64) -> Self {
        Self::of(Part::Arrivals, operations)
    }

    const fn of(part: Part, operations: u64) -> Self {
        let mut sweep = Self {
            operations,
            next: None,
            part,
            last: None,
            runs: 0,
            arrivals: 0,
        };
        sweep.next = Some(sweep.first(1));
        sweep
    }

    const fn first(&self, at: u64) -> Case {
        let way = match self.part {
            Part::Whole | Part::AtOnce => Way::Once(0),
            Part::Arrivals => Way::Late(earliest(at)),
        };
        Case { at, way }
    }

    pub(crate) fn next(&mut self) -> Option<Case> {
        let case = match (self.next?, self.last.take()) {
            (case, None) => case,
            (Case { at, way }, Some(arrival)) => self.after(at, way, arrival)?,
        };
        self.next = Some(case);
        Some(case)
    }

    pub(crate) fn seen(&mut self, lab: &Lab) {
        let arrival = lab.faults.arrival();
        self.runs += 1;
        self.arrivals += u32::from(arrival == Arrival::During);
        self.last = Some(arrival);
    }

    /// Number of runs so far, and how many of them had a late request that arrived before the end of the job.
    pub(crate) const fn runs(&self) -> (u32, u32) {
        (self.runs, self.arrivals)
    }

    fn after(&self, at: u64, way: Way, arrival: Arrival) -> Option<Case> {
        let way = match (way, arrival) {
            (Way::Once(n), _) if n + 1 < ONCE.len() => Way::Once(n + 1),
            // If `at` is beyond the last operation, the worker stops after the job and before its message is deleted.
            (Way::Once(_), _) if at <= self.operations && self.part == Part::Whole => {
                Way::Late(earliest(at))
            }
            (Way::Late(later), Arrival::During) => Way::Late(later + STRIDE),
            (Way::Late(later), Arrival::After) if later < LAST_OF_ALL => Way::Late(LAST_OF_ALL),
            (Way::Late(_), Arrival::After) => Way::LateAndStopped(earliest(at)),
            (Way::LateAndStopped(later), Arrival::During) => Way::LateAndStopped(later + STRIDE),
            (Way::LateAndStopped(later), Arrival::After) if later < LAST_OF_ALL => {
                Way::LateAndStopped(LAST_OF_ALL)
            }
            // A late read has no effect.
            (Way::Once(_) | Way::LateAndStopped(_), _) | (Way::Late(_), Arrival::Never) => {
                let last = if self.part == Part::Arrivals {
                    self.operations
                } else {
                    self.operations + 1
                };
                return (at < last).then(|| self.first(at + 1));
            }
        };
        Some(Case { at, way })
    }
}

/// The first delay that is tried for operation `at`: the number of operations after which its request arrives.
const fn earliest(at: u64) -> u64 {
    1 + at % STRIDE
}

impl Case {
    /// Whether a request arrives late, but not after everything else.
    pub(crate) const fn is_between(self) -> bool {
        matches!(self.way, Way::Late(later) | Way::LateAndStopped(later) if later < LAST_OF_ALL)
    }

    pub(crate) fn arm(self, faults: &FaultInjector) {
        match self.way {
            Way::Once(n) => faults.arm(self.at, ONCE[n]),
            Way::Late(later) => faults.arm(self.at, Disturbance::ArriveLater(later)),
            Way::LateAndStopped(later) => {
                faults.arm(self.at, Disturbance::ArriveLater(later));
                faults.arm(self.at + 1, Disturbance::Crash);
            }
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.way {
            Way::Once(n) => write!(f, "{:?} at operation {}", ONCE[n], self.at),
            Way::Late(later) => write!(f, "operation {} arrives {later} later", self.at),
            Way::LateAndStopped(later) => write!(
                f,
                "operation {} arrives {later} later and its worker stops",
                self.at
            ),
        }
    }
}
