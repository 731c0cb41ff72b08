//! Some seeds have a story: client steps, settings and faults that provoke one problem together, and rarely coincide by
//! chance. The rest of the seed is unchanged.

use std::time::Duration;

use super::client::{ClientAction, ClientMessage, ClientStep, DEPARTMENTS, EMPLOYEES, EmployeePut};
use super::company_script::Properties;
use super::fault::FaultKind;
use super::fault_plan::{Burst, Draw, FaultPlan, FaultScope, JOBS, rng, seconds, tried};
use evenkeel_model::{Entity, EntityKey};

/// Numbers of three random sequences. 60 is for the choice of the story, 61 is for the script of the story, and 63 is
/// for the decision whether the story comes from `LATER`. `PARTS[1] + 1` is for the times in the script.
const PARTS: [u64; 3] = [60, 61, 63];
const SHARE: f64 = 0.25;
/// Share of the stories that are chosen from `LATER`.
const LATER_SHARE: f64 = 0.2;
/// A story writes entities with versions above this number, and below the versions of recreated entities.
const VERSIONS: i64 = 500_000;
/// Maximum polling interval in stories in which several workers should have jobs at the same time.
const LOOKS_AGAIN: Duration = Duration::from_secs(1);
/// Maximum error of a host's clock, in seconds. The actual error is at least half of the maximum.
const SKEW: f64 = 15.0 * 60.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// A copy tool writes derived rows again, unchanged, so that they get new ETags.
    RowsRewritten,
    /// A foreign writer adds rows of other primaries to footprints.
    FootprintsForged,
    /// An employee changes and changes back within seconds, while requests are delayed.
    BackAndForth,
    /// In one worker, jobs of the same employee wait for each other. Meanwhile their messages become visible to other
    /// workers.
    Crowded,
    /// Several workers archive, restore and recreate one employee at the same time.
    InAndOut,
    /// Writes arrive as late as possible, and the clocks of the hosts differ as much as possible.
    AsLateAsMayBe,
    /// Requests to delete an employee are lost, and the employee is changed before the requests are sent again.
    ChangedMeanwhile,
    /// Messages expire between two attempts, and the operator discards jobs that were given up.
    Discarded,
    /// A queue is busy for a moment, again and again. Get Messages requests hang, and runs are so long that leases must
    /// be renewed.
    ProbesHang,
}

impl Scenario {
    const ALL: [Self; 7] = [
        Self::RowsRewritten,
        Self::FootprintsForged,
        Self::BackAndForth,
        Self::Crowded,
        Self::InAndOut,
        Self::AsLateAsMayBe,
        Self::ChangedMeanwhile,
    ];
    /// Stories that are chosen with separate random numbers. So most seeds have the same story as they would have
    /// without this list. The story with the rarest failures is in `ALL`, too.
    const LATER: [Self; 3] = [Self::Discarded, Self::ProbesHang, Self::AsLateAsMayBe];

    /// Whether clients may merge notes in this story. In the other stories they may not, because a sync follows each
    /// note and would repair the damage of the faults.
    pub(super) const fn has_notes(self) -> bool {
        matches!(
            self,
            Self::Crowded | Self::InAndOut | Self::ChangedMeanwhile
        )
    }

    pub(super) fn draw(seed: u64, fault_plan: &mut FaultPlan) {
        let rng = rng(seed, PARTS[0]);
        let draw = Draw(&rng);
        // Seeds with a refused row have no story.
        if !draw.happens(SHARE) || fault_plan.hazards.refused_row.is_some() {
            return;
        }
        let apart = self::rng(seed, PARTS[2]);
        let apart = Draw(&apart);
        let scenario = if apart.happens(LATER_SHARE) {
            *apart.of(&Self::LATER)
        } else {
            *draw.of(&Self::ALL)
        };
        fault_plan.scenario = Some(scenario);
        if matches!(
            scenario,
            Self::BackAndForth | Self::Crowded | Self::InAndOut | Self::ProbesHang
        ) && draw.happens(0.75)
        {
            // Removes the other faults, because they would keep workers from having jobs at the same time.
            fault_plan.rates = [0.0; FaultKind::ALL.len()];
            (fault_plan.bursts, fault_plan.outages, fault_plan.terms) =
                <(Vec<_>, Vec<_>, Vec<_>)>::default();
            (fault_plan.hazards.lost_polls, fault_plan.hazards.gateways) =
                <(Vec<_>, Vec<_>)>::default();
            fault_plan.hazards.backlog = Duration::ZERO;
        }
        let mut rate = |fault: FaultKind, low, high| {
            let rate = &mut fault_plan.rates[fault as usize];
            *rate = rate.max(draw.magnitude(low, high));
        };
        match scenario {
            Self::RowsRewritten => fault_plan.shape.twins = !fault_plan.shape.apart,
            Self::FootprintsForged => fault_plan.shape.apart = false,
            Self::BackAndForth => {
                rate(FaultKind::ErrorBefore, 0.02, 0.08);
                fault_plan.slow = Some((DEPARTMENTS, draw.0.between(0.2, 0.5)));
                fault_plan.shape.sets = true;
                fault_plan.workers = 3;
                fault_plan.settings.poll.max = LOOKS_AGAIN;
                fault_plan.settings.storage_retry = tried(1);
                fault_plan.storm = fault_plan.storm.max(Duration::from_mins(8));
            }
            Self::Crowded => {
                fault_plan.latency = 0.1..0.5;
                fault_plan.workers = fault_plan.workers.max(2);
                fault_plan.concurrency = fault_plan.concurrency.max(8);
                fault_plan.settings.lease = Duration::from_mins(1);
                fault_plan.settings.poll.max = LOOKS_AGAIN;
                fault_plan.storm = fault_plan.storm.max(Duration::from_mins(8));
                for nth in 0..EPISODES {
                    let at = crowd_start(fault_plan.storm, nth);
                    fault_plan
                        .shows
                        .extend((0..6).map(|_| at + seconds(draw.magnitude(0.5, 8.0))));
                }
            }
            Self::InAndOut => {
                rate(FaultKind::SlowRequest, 0.05, 0.25);
                fault_plan.latency = 0.005..0.1;
                fault_plan.workers = 3;
                fault_plan.concurrency = *draw.of(&[1, 2, 4]);
                fault_plan.settings.poll.max = LOOKS_AGAIN;
                fault_plan.storm = fault_plan.storm.max(Duration::from_mins(8));
            }
            Self::ChangedMeanwhile => {
                rate(FaultKind::Changed, 0.3, 1.0);
                (fault_plan.shape.apart, fault_plan.shape.near) = (true, false);
                fault_plan.settings.storage_retry = tried(6);
            }
            Self::Discarded => {
                rate(FaultKind::ErrorBefore, 0.05, 0.3);
                rate(FaultKind::Expiry, 0.5, 0.95);
                // A permanently refused job is poisoned without a recheck, so such refusals are not injected.
                for refusal in [FaultKind::BadRequest, FaultKind::TooLarge] {
                    fault_plan.rates[refusal as usize] = 0.0;
                }
            }
            Self::ProbesHang => {
                fault_plan.slow_gets = draw.0.between(0.3, 0.8);
                fault_plan.latency = 0.05..0.5;
                fault_plan.concurrency = fault_plan.concurrency.max(8);
                fault_plan.settings.lease = seconds(draw.0.between(10.0, 16.0).round());
                fault_plan.settings.job_timeout = Duration::from_mins(1);
                fault_plan.settings.poll.max = LOOKS_AGAIN;
                fault_plan.slow = Some((EMPLOYEES, draw.0.between(0.2, 0.6)));
                fault_plan.storm = fault_plan.storm.max(Duration::from_mins(8));
                let busy = seconds(draw.magnitude(0.1, 0.5));
                let starts = (0..BUSY_SECONDS).map(|nth| busy_again(fault_plan.storm, nth));
                fault_plan.bursts = starts
                    .map(|at| Burst {
                        during: at..at + busy,
                        scope: FaultScope::Queue(JOBS),
                        retry_after: None,
                    })
                    .collect();
            }
            Self::AsLateAsMayBe => {
                rate(FaultKind::LateArrival, 0.05, 0.3);
                let wait = Duration::from_secs(30);
                let recheck_after = fault_plan
                    .settings
                    .recheck_after
                    .saturating_sub(fault_plan.settings.job_timeout);
                (
                    fault_plan.settings.job_timeout,
                    fault_plan.settings.recheck_after,
                ) = (wait, wait + recheck_after);
                fault_plan.workers = fault_plan.workers.max(2);
                fault_plan.storm = Duration::from_mins(15);
                fault_plan.latest = true;
                let off = |host| {
                    #[expect(
                        clippy::cast_possible_truncation,
                        reason = "at most 15 minutes, in seconds"
                    )]
                    let off = draw.0.between(0.5 * SKEW, SKEW) as i64;
                    if host % 2 == 0 { -off } else { off }
                };
                fault_plan.clocks = (0..fault_plan.workers)
                    .map(|host| (Duration::ZERO, host, off(host)))
                    .collect();
            }
        }
    }

    pub(super) fn steps(
        self,
        seed: u64,
        fault_plan: &FaultPlan,
        keys: &[EntityKey],
        step_groups: usize,
    ) -> Vec<ClientStep> {
        let rng = rng(seed, PARTS[1]);
        let draw = Draw(&rng);
        let encrypted = fault_plan.shape.encrypted;
        let mut script = ScenarioScript {
            draw: &draw,
            steps: Vec::new(),
            group: step_groups,
            version: VERSIONS,
            encrypted,
        };
        let Some(key) = keys.first() else {
            return Vec::new();
        };
        let starts = bursts(seed, fault_plan.storm);
        match self {
            Self::RowsRewritten => {
                for start in starts {
                    let key = draw.of(keys);
                    script.writes(start, key, FACES[draw.below(2)]);
                    let at = start + seconds(draw.magnitude(0.5, 30.0));
                    script.does(at, ClientAction::SaveRows(key.clone()));
                    script.puts(
                        at + seconds(draw.magnitude(0.02, 10.0)),
                        key,
                        FACES[draw.below(2)],
                    );
                }
                // These are the last changes, so no later job repairs the damage.
                let last = fault_plan.storm + seconds(draw.0.between(30.0, 120.0));
                script.writes(last, key, FACES[0]);
                script.does(
                    last + Duration::from_mins(1),
                    ClientAction::SaveRows(key.clone()),
                );
                script.puts(last + Duration::from_secs(61), key, FACES[draw.below(2)]);
            }
            Self::FootprintsForged => {
                for start in starts {
                    let others: Vec<&EntityKey> = keys
                        .iter()
                        .filter(|other| *other != key && other.pk == key.pk)
                        .collect();
                    let victim = if others.is_empty() {
                        return Vec::new();
                    } else {
                        *draw.of(&others)
                    };
                    script.writes(start, victim, FACES[1]);
                    let at = start + seconds(draw.magnitude(0.5, 30.0));
                    script.does(
                        at,
                        ClientAction::Forge {
                            list: key.clone(),
                            row: victim.clone(),
                        },
                    );
                    script.writes(
                        at + seconds(draw.magnitude(0.02, 5.0)),
                        key,
                        FACES[draw.below(2)],
                    );
                }
            }
            Self::BackAndForth => {
                for nth in 0..EPISODES {
                    let Some([key, department]) = newcomer(nth) else {
                        continue;
                    };
                    let start = fault_plan.storm / EPISODES * nth;
                    script.does(
                        start,
                        ClientAction::Merge(
                            DEPARTMENTS,
                            Entity::new(department).with("Name", "Laboratory"),
                        ),
                    );
                    script.writes(start, &key, FACES[0]);
                    let there = start + seconds(draw.0.between(20.0, 40.0));
                    script.writes(there, &key, ("restless@contoso.com", "Byron", true));
                    script.writes(there + seconds(draw.magnitude(1.0, 10.0)), &key, FACES[0]);
                }
            }
            Self::Crowded => {
                for nth in 0..EPISODES {
                    let Some([key, _]) = newcomer(nth) else {
                        continue;
                    };
                    let start = crowd_start(fault_plan.storm, nth);
                    script.writes(
                        start.saturating_sub(Duration::from_secs(20)),
                        &key,
                        FACES[0],
                    );
                    for _ in 0..2 + draw.below(3) {
                        script.puts(start, &key, FACES[draw.below(2)]);
                    }
                    script.sends(
                        start + Duration::from_millis(20),
                        "delete",
                        &key,
                        Duration::ZERO,
                    );
                    script.writes(
                        start + seconds(draw.magnitude(4.0, 20.0)),
                        &key,
                        FACES[draw.below(2)],
                    );
                }
            }
            Self::InAndOut => {
                for nth in 0..EPISODES {
                    let Some([key, _]) = newcomer(nth) else {
                        continue;
                    };
                    let start = fault_plan.storm / EPISODES * nth;
                    script.writes(start, &key, FACES[0]);
                    script.sends(
                        start + Duration::from_secs(2),
                        "archive",
                        &key,
                        Duration::ZERO,
                    );
                    let again = start + seconds(draw.0.between(20.0, 35.0));
                    let hidden = seconds(draw.magnitude(1.5, 8.0));
                    script.sends(again, "archive", &key, hidden);
                    script.sends(
                        again + Duration::from_millis(50),
                        "restore",
                        &key,
                        Duration::ZERO,
                    );
                    script.writes(
                        again + hidden.mul_f64(draw.0.between(0.3, 1.0)),
                        &key,
                        FACES[1],
                    );
                }
            }
            Self::Discarded => {
                for nth in 0..3 * EPISODES {
                    let Some([key, _]) = newcomer(nth) else {
                        continue;
                    };
                    let start = fault_plan.storm / (3 * EPISODES) * nth;
                    script.writes(start, &key, FACES[0]);
                    script.writes(start + seconds(draw.magnitude(1.0, 60.0)), &key, FACES[1]);
                }
            }
            Self::ProbesHang => {
                for nth in 0..BUSY_SECONDS {
                    for other in 0..=draw.below(3) {
                        let Some([key, _]) =
                            newcomer(nth % EPISODES + u32::from(other > 0) * EPISODES)
                        else {
                            continue;
                        };
                        let at = busy_again(fault_plan.storm, nth)
                            .saturating_sub(seconds(draw.magnitude(0.3, 3.0)));
                        script.writes(at, &key, FACES[draw.below(2)]);
                    }
                }
            }
            Self::AsLateAsMayBe => {
                script.flips(key, fault_plan.storm, 40, (0.5, 60.0));
                for nth in 0..2 * EPISODES {
                    let Some([key, _]) = newcomer(nth) else {
                        continue;
                    };
                    let at = draw.moment(fault_plan.storm);
                    script.writes(at, &key, FACES[0]);
                    script.writes(at + seconds(draw.magnitude(1.0, 60.0)), &key, FACES[1]);
                }
            }
            Self::ChangedMeanwhile => {
                for start in starts {
                    let key = draw.of(keys);
                    script.writes(start, key, FACES[draw.below(2)]);
                    let after = start + seconds(draw.magnitude(0.5, 20.0));
                    script.sends(
                        after,
                        draw.of::<&str>(&["delete", "archive"]),
                        key,
                        Duration::ZERO,
                    );
                }
            }
        }
        script.steps
    }
}

fn bursts(seed: u64, storm: Duration) -> Vec<Duration> {
    let rng = rng(seed, PARTS[1] + 1);
    let draw = Draw(&rng);
    (0..6 + draw.below(7)).map(|_| draw.moment(storm)).collect()
}

/// Number of episodes of a seed; some scenarios have two or three times as many. Each episode has its own employee.
/// Otherwise a later episode would repair the damage of an earlier one.
const EPISODES: u32 = 8;

/// The keys of an employee and of its department. The department has no other employee, and no job outside the story
/// changes this employee.
fn newcomer(nth: u32) -> Option<[EntityKey; 2]> {
    let pk = format!("Laboratory {nth}");
    EntityKey::new(pk.as_str(), "1")
        .ok()
        .zip(EntityKey::new(pk.as_str(), "department").ok())
        .map(<[EntityKey; 2]>::from)
}

fn crowd_start(storm: Duration, nth: u32) -> Duration {
    Duration::from_secs(20) + storm / EPISODES * nth
}

const BUSY_SECONDS: u32 = 40;

fn busy_again(storm: Duration, nth: u32) -> Duration {
    Duration::from_secs(5) + storm / BUSY_SECONDS * nth
}

/// The state of an employee: e-mail address, last name, and whether the employee is a manager.
type EmployeeState = (&'static str, &'static str, bool);

const FACES: [EmployeeState; 2] = [
    ("restless@contoso.com", "King", true),
    ("restful@contoso.com", "Byron", true),
];

struct ScenarioScript<'a> {
    draw: &'a Draw<'a>,
    steps: Vec<ClientStep>,
    group: usize,
    version: i64,
    encrypted: bool,
}

impl ScenarioScript<'_> {
    fn does(&mut self, at: Duration, action: ClientAction) {
        self.group += 1;
        self.steps.push(ClientStep::new(at, self.group, action));
    }

    fn face(&mut self, (email, last_name, manager): EmployeeState) -> Properties {
        self.version += 1;
        Properties {
            version: self.version,
            email,
            last_name,
            manager,
            encrypted: self.encrypted,
        }
    }

    fn writes(&mut self, at: Duration, key: &EntityKey, face: EmployeeState) {
        let entity = self.face(face).entity(key);
        self.does(at, ClientAction::Write(EMPLOYEES, entity));
        self.follows(at, key);
    }

    fn follows(&mut self, at: Duration, key: &EntityKey) {
        let sync = ClientMessage::Job {
            op: "sync",
            table: EMPLOYEES,
            key: key.clone(),
            to: None,
            condition: None,
        };
        let after = at + seconds(self.draw.magnitude(0.02, 1.0));
        self.steps
            .push(ClientStep::new(after, self.group, ClientAction::Send(sync)));
    }

    fn puts(&mut self, at: Duration, key: &EntityKey, face: EmployeeState) {
        let properties = self.face(face);
        let (version, entity) = (properties.version, properties.json(key));
        let put = EmployeePut {
            key: key.clone(),
            version,
            entity,
            mode: "merge",
            condition: None,
            staged: Vec::new(),
        };
        self.does(at, ClientAction::Send(ClientMessage::Put(Box::new(put))));
    }

    /// Alternates an employee between two states, at most `most` times. The pauses are between `low` and `high`
    /// seconds.
    fn flips(&mut self, key: &EntityKey, storm: Duration, most: usize, (low, high): (f64, f64)) {
        let mut at = self.draw.moment(storm / 4);
        for turn in 0..most {
            if at >= storm {
                return;
            }
            self.writes(at, key, FACES[turn % 2]);
            at += seconds(self.draw.magnitude(low, high));
        }
    }

    fn sends(&mut self, at: Duration, op: &'static str, key: &EntityKey, hidden: Duration) {
        let job = ClientMessage::Job {
            op,
            table: EMPLOYEES,
            key: key.clone(),
            to: None,
            condition: None,
        };
        self.group += 1;
        self.steps
            .push(ClientStep::new(at, self.group, ClientAction::Send(job)).hidden_for(hidden));
    }
}
