//! The plan of a seed: the number of workers, their settings, and their faults. This module does no I/O.
//!
//! The plans follow swarm testing: in many seeds a kind of fault does not occur, and in others it is rare or frequent.
//! So faults that would hide each other also occur alone.

use std::ops::Range;
use std::time::Duration;

use super::fault::FaultKind;
use super::hazards::Hazards;
use super::hosts::HostSpell;
use super::scenario::Scenario;
use super::world::World;
use evenkeel_account::company::Shape;
use evenkeel_model::settings::{Backoff, PollInterval, RetryPolicy, WorkerSettings};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{Rng, Service};

const SKEW_SECONDS: f64 = 15.0 * 60.0;
const BURST_SECONDS: f64 = 10.0 * 60.0;

/// Duration of the outage of an account, in seconds.
const AWAY: Range<f64> = 900.0..3.0 * 3_600.0;
const AWAY_SHARE: f64 = 0.25;

/// The seed is combined with this number for the faults of the second account, so that the two accounts have different
/// faults.
const ABROAD: u64 = 0x00ab_20ad << 32;

#[derive(Debug, Clone)]
pub(super) struct FaultPlan {
    pub(super) workers: usize,
    pub(super) settings: WorkerSettings,
    pub(super) concurrency: usize,
    pub(super) shape: Shape,
    /// How long faults are injected and clients are active.
    pub(super) storm: Duration,
    /// Latency of a request, in seconds.
    pub(super) latency: Range<f64>,
    /// Rate of each kind of fault, per operation.
    pub(super) rates: [f64; FaultKind::ALL.len()],
    pub(super) later: Vec<(Duration, [f64; FaultKind::ALL.len()])>,
    pub(super) bursts: Vec<Burst>,
    pub(super) outages: Vec<Outage>,
    pub(super) terms: Vec<(Duration, usize)>,
    pub(super) away: Option<Outage>,
    pub(super) hosts: Vec<HostSpell>,
    pub(super) shows: Vec<Duration>,
    pub(super) clocks: Vec<(Duration, usize, i64)>,
    pub(super) hazards: Hazards,
    pub(super) scenario: Option<Scenario>,
    /// Whether half of the late requests arrive close to the latest possible time.
    pub(super) latest: bool,
    pub(super) slow: Option<(&'static str, f64)>,
    pub(super) slow_answers: Option<(&'static str, f64)>,
    pub(super) slow_gets: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) during: Range<Duration>,
    pub(super) scope: FaultScope,
    pub(super) retry_after: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultScope {
    Partition(&'static str, &'static str),
    Queue(&'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outage {
    pub(super) during: Range<Duration>,
    pub(super) service: Option<Service>,
    pub(super) refusal: OutageKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutageKind {
    Refused,
    Failing,
    Busy,
    Silent,
    /// The service executes every request, and resets the connection before it answers.
    Reset,
    /// The service executes every request, and answers when the sender has stopped waiting.
    Deaf,
}

pub(super) const JOBS: &str = "jobs";

pub(super) const SCOPES: [FaultScope; 7] = [
    FaultScope::Partition("Employees", "Sales"),
    FaultScope::Partition("EvenkeelFootprints", "Employees~Sales"),
    FaultScope::Partition("ByEmail", "email_Sales"),
    FaultScope::Partition("FormerEmployees", "Sales"),
    FaultScope::Partition("Managers", "managers"),
    FaultScope::Queue(JOBS),
    FaultScope::Queue("jobs-recheck"),
];

/// The random numbers of one part of a run. They are independent of all other parts.
pub(super) fn rng(seed: u64, part: u64) -> SeededRng {
    let mixed = SeededRng::new(seed ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93)).next_u64();
    SeededRng::new(mixed)
}

pub(super) fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

pub(super) struct Draw<'a>(pub(super) &'a dyn Rng);

impl Draw<'_> {
    pub(super) fn below(&self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.0.next_u64() % n).unwrap_or(0)
    }

    pub(super) fn of<'t, T>(&self, values: &'t [T]) -> &'t T {
        &values[self.below(values.len())]
    }

    pub(super) fn happens(&self, probability: f64) -> bool {
        self.0.unit() < probability
    }

    /// A random number between two bounds. Each order of magnitude is equally likely.
    pub(super) fn magnitude(&self, low: f64, high: f64) -> f64 {
        self.0.between(low.ln(), high.ln()).exp()
    }

    pub(super) fn moment(&self, within: Duration) -> Duration {
        within.mul_f64(self.0.unit())
    }
}

impl FaultPlan {
    pub(super) fn of(seed: u64, world: World) -> Self {
        let rng = rng(seed, 1);
        let draw = Draw(&rng);
        let workers = 1 + draw.below(3);
        let storm = Duration::from_secs(*draw.of(&[60, 120, 240, 480, 900]));
        let latency = *draw.of(&[(0.001, 0.005), (0.001, 0.05), (0.005, 0.2), (0.01, 1.0)]);
        let during = |longest: f64| {
            let start = draw.moment(storm);
            start..start + seconds(draw.magnitude(2.0, longest))
        };
        let some = |odds: f64, most: usize| {
            if draw.happens(odds) {
                1 + draw.below(most)
            } else {
                0
            }
        };
        let bursts = (0..some(0.4, 3)).map(|_| Burst {
            during: during(BURST_SECONDS),
            scope: *draw.of(world.scopes()),
            retry_after: draw
                .happens(0.5)
                .then(|| seconds(draw.magnitude(1.0, 120.0).round())),
        });
        let bursts: Vec<Burst> = bursts.collect();
        let outages = (0..some(0.3, 2)).map(|_| Outage {
            during: during(BURST_SECONDS),
            service: *draw.of(world.services()),
            refusal: *draw.of(&[
                OutageKind::Refused,
                OutageKind::Failing,
                OutageKind::Busy,
                OutageKind::Silent,
            ]),
        });
        let mut outages: Vec<Outage> = outages.collect();
        let terms = (0..some(0.4, 4))
            .map(|_| (draw.moment(storm), draw.below(workers)))
            .collect();
        let shows = (0..some(0.4, 12)).map(|_| draw.moment(storm)).collect();
        let settings = settings(&draw);
        let concurrency = *draw.of(&[1, 2, 4, 8, 16]);
        let mut shape = Shape {
            former_index: draw.happens(0.4),
            chain: draw.happens(0.3),
            lists: draw.happens(0.4),
            near: draw.happens(0.4),
            sets: draw.happens(0.4),
            groups: draw.happens(0.4),
            ..Shape::default()
        };
        vary(&mut shape, &Draw(&self::rng(seed, 8)));
        let mut rates = rates(&draw);
        delay(&mut rates, &Draw(&self::rng(seed, 10)));
        let clocks = clocks(&draw, workers, storm);
        let hazards = Hazards::of(
            seed,
            (world, &world.employees(seed)),
            storm,
            &mut rates,
            &mut outages,
        );
        let mut fault_plan = Self {
            workers,
            settings,
            concurrency,
            shape,
            storm,
            latency: latency.0..latency.1,
            rates,
            later: Vec::new(),
            bursts,
            outages,
            away: None,
            hosts: Vec::new(),
            terms,
            shows,
            clocks,
            hazards,
            scenario: None,
            latest: false,
            slow: None,
            slow_answers: None,
            slow_gets: 0.0,
        };
        if world == World::Company {
            Scenario::draw(seed, &mut fault_plan);
        }
        fault_plan
    }
}

impl FaultPlan {
    pub(super) fn abroad(seed: u64, world: World) -> Self {
        let mut abroad = Self::of(seed ^ ABROAD, world);
        abroad.rates[FaultKind::Recreated as usize] = 0.0;
        abroad.hazards.refused_row = None;
        abroad
    }

    /// In some seeds, or if `always`, one of two accounts refuses everything for a long time. The storm lasts at least
    /// until the end of this outage.
    pub(super) fn draw_away(&mut self, abroad: &mut Self, seed: u64, always: bool) {
        let rng = rng(seed, 18);
        let draw = Draw(&rng);
        if !draw.happens(AWAY_SHARE) && !always {
            return;
        }
        let start = draw.moment(self.storm);
        let during = start..start + seconds(draw.magnitude(AWAY.start, AWAY.end));
        let refusal = *draw.of(&[
            OutageKind::Refused,
            OutageKind::Failing,
            OutageKind::Busy,
            OutageKind::Silent,
        ]);
        self.storm = self.storm.max(during.end);
        let which = if draw.happens(0.75) { abroad } else { self };
        which.away = Some(Outage {
            during,
            service: None,
            refusal,
        });
    }

    pub(super) fn clear_faults(&mut self) {
        self.rates = [0.0; FaultKind::ALL.len()];
        let Hazards {
            lost_polls,
            gateways,
            ..
        } = &mut self.hazards;
        lost_polls.clear();
        gateways.clear();
        self.bursts.clear();
        self.outages.clear();
        self.terms.clear();
        self.shows.clear();
    }

    pub(super) fn rate(&self, fault: FaultKind, now: Duration) -> f64 {
        self.later
            .iter()
            .rfind(|(from, _)| *from <= now)
            .map_or(&self.rates, |(_, rates)| rates)[fault as usize]
    }

    pub(super) fn ever_has(&self, fault: FaultKind) -> bool {
        self.later
            .iter()
            .map(|(_, rates)| rates)
            .chain([&self.rates])
            .any(|rates| rates[fault as usize] > 0.0)
    }

    /// Moves the faults to a later time, because no worker runs during `wait`. Clock offsets that exist from the start
    /// are not moved.
    pub(super) fn begin_after(&mut self, wait: Duration) {
        self.storm += wait;
        let spells = self.bursts.iter_mut().map(|burst| &mut burst.during);
        let spells = spells.chain(
            self.outages
                .iter_mut()
                .chain(&mut self.away)
                .map(|outage| &mut outage.during),
        );
        let spells = spells.chain(
            self.hazards
                .lost_polls
                .iter_mut()
                .map(|lost_polls| &mut lost_polls.during),
        );
        let spells = spells.chain(&mut self.hazards.gateways);
        let spells = spells.chain(self.hosts.iter_mut().map(|spell| &mut spell.during));
        for during in spells.chain(
            self.hazards
                .refused_row
                .iter_mut()
                .map(|row| &mut row.during),
        ) {
            *during = during.start + wait..during.end + wait;
        }
        let moments = self
            .terms
            .iter_mut()
            .map(|(at, _)| at)
            .chain(&mut self.shows);
        for at in moments.chain(
            self.clocks
                .iter_mut()
                .map(|(at, ..)| at)
                .filter(|at| !at.is_zero()),
        ) {
            *at += wait;
        }
    }
}

fn settings(draw: &Draw<'_>) -> WorkerSettings {
    let lease = Duration::from_secs(*draw.of(&[10, 15, 30, 60]));
    let job_timeout = Duration::from_secs(*draw.of(&[30, 120, 600]));
    let second = Duration::from_secs(1);
    let retry_max = Duration::from_secs(*draw.of(&[20, 120, 600]));
    WorkerSettings {
        lease,
        max_dequeue_count: *draw.of(&[2, 3, 5, 5]),
        retry_delay: Backoff {
            min: second,
            base: second,
            max: retry_max,
        },
        job_timeout,
        recheck_after: job_timeout + Duration::from_mins(16),
        drain: Duration::from_secs(*draw.of(&[1, 5, 25])),
        poll: PollInterval {
            min: Duration::from_millis(100),
            max: Duration::from_secs(*draw.of(&[1, 5, 20])),
        },
        storage_retry: tried(*draw.of(&[1, 2, 6])),
        ..WorkerSettings::default()
    }
}

pub(super) fn tried(attempts: u32) -> RetryPolicy {
    let storage = Backoff {
        min: Duration::from_millis(50),
        base: Duration::from_millis(100),
        max: Duration::from_secs(5),
    };
    RetryPolicy::growing(storage, attempts)
}

fn rates(draw: &Draw<'_>) -> [f64; FaultKind::ALL.len()] {
    let mut rates = [0.0; FaultKind::ALL.len()];
    for (fault, odds, low, high) in [
        (FaultKind::ErrorBefore, 0.5, 0.002, 0.2),
        (FaultKind::RequestLost, 0.4, 0.002, 0.1),
        (FaultKind::AnswerLost, 0.5, 0.002, 0.1),
        (FaultKind::LateArrival, 0.5, 0.002, 0.1),
        (FaultKind::SlowRequest, 0.4, 0.001, 0.05),
        (FaultKind::SlowAnswer, 0.3, 0.001, 0.05),
        (FaultKind::CrashBefore, 0.3, 0.000_5, 0.01),
        (FaultKind::CrashAfter, 0.4, 0.000_5, 0.01),
        (FaultKind::CrashInFlight, 0.4, 0.000_5, 0.01),
        (FaultKind::Panic, 0.2, 0.005, 0.1),
    ] {
        if draw.happens(odds) {
            rates[fault as usize] = draw.magnitude(low, high);
        }
    }
    rates
}

/// In one of six seeds, 3 to 30 % of all writes arrive late. The rate is so high because most late writes do no harm. A
/// late write does harm only if little else is written between its sending and its arrival.
fn delay(rates: &mut [f64; FaultKind::ALL.len()], draw: &Draw<'_>) {
    if draw.below(6) == 0 {
        rates[FaultKind::LateArrival as usize] = draw.magnitude(0.03, 0.3);
    }
}

fn clocks(draw: &Draw<'_>, workers: usize, storm: Duration) -> Vec<(Duration, usize, i64)> {
    if draw.happens(0.5) {
        return Vec::new();
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 15 minutes, in seconds"
    )]
    let off = || draw.0.between(-SKEW_SECONDS, SKEW_SECONDS) as i64;
    let mut clocks: Vec<_> = (0..workers)
        .map(|worker| (Duration::ZERO, worker, off()))
        .collect();
    for _ in 0..draw.below(4) {
        clocks.push((draw.moment(storm), draw.below(workers), off()));
    }
    clocks
}

/// Draws the settings of the company that were added later. They have their own random numbers, so that the other draws
/// of a seed are unchanged.
fn vary(shape: &mut Shape, draw: &Draw<'_>) {
    let [apart, last_writer, targets, encrypted] =
        [0.25, 0.15, 0.5, 0.25].map(|odds| draw.happens(odds));
    *shape = Shape {
        apart,
        near: shape.near && !apart,
        last_writer,
        targets: targets && shape.sets,
        encrypted,
        ..*shape
    };
}
