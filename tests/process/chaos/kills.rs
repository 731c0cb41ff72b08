//! Processes that are killed with SIGKILL, repeatedly and at any moment.
//!
//! Two hosts run a worker each and two run a submitter each. All four are killed and restarted at random moments, while
//! Azurite is paused and, half-way, restarted cleanly. Then jobs whose attempts were used up by crashes are
//! requeued, as an operator does, and no acknowledged job may be lost.
//!
//! `EVENKEEL_KILLS` sets the number of kills on each store (20 by default). The kills happen in storms of twenty,
//! because Azurite's requests take longer the more messages a queue has. After each storm, another storm of ten kills
//! sends batches.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use evenkeel_storage::Rng as _;
use evenkeel_storage::system::SeededRng;
use serde_json::Value;
use tempfile::tempdir;

use crate::chaos::accounts::{Accounts, employee, job};
use crate::end_to_end::site::{EMPLOYEES, Place, QUEUE, Site};
use crate::support::azurite::Azurite;

const HOSTS: usize = 2;
/// Number of jobs per kill: so many that every process is busy when it is killed.
const JOBS_PER_KILL: usize = 24;
/// Interval at which a submitter gets jobs, so that it is busy until it is killed.
const PACE: Duration = Duration::from_millis(10);

const KILLS: usize = 20;

#[derive(Clone, Copy)]
struct SendingOptions {
    kills: usize,
    jobs_per_kill: usize,
    pace: Duration,
    packed: u16,
}

const ALONE: SendingOptions = SendingOptions {
    kills: KILLS,
    jobs_per_kill: JOBS_PER_KILL,
    pace: PACE,
    packed: 1,
};
/// Settings for batches. A submitter sends a partly filled message after 20 ms without input, so the pace is faster.
const PACKED: SendingOptions = SendingOptions {
    kills: KILLS / 2,
    jobs_per_kill: 3 * JOBS_PER_KILL,
    pace: Duration::from_millis(3),
    packed: 16,
};

/// Number of storms for the requested number of kills on each store. `scripts/test --long` requests a hundred kills.
fn storms() -> u64 {
    let kills = std::env::var("EVENKEEL_KILLS").ok().map_or(KILLS, |kills| {
        kills.parse().expect("EVENKEEL_KILLS is a number")
    });
    u64::try_from(kills.div_ceil(KILLS)).unwrap()
}

struct Kills {
    done: AtomicUsize,
    wanted: usize,
    /// Whether a submitter has received an acknowledgement. Without any, the final checks could not fail.
    acknowledged: AtomicBool,
}

impl Kills {
    fn are_over(&self) -> bool {
        self.done.load(Ordering::SeqCst) >= self.wanted && self.acknowledged.load(Ordering::SeqCst)
    }

    fn one(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

fn moment(rng: &SeededRng, longest: u64) -> Duration {
    Duration::from_millis(rng.next_u64() % longest)
}

fn worker(site: &Site, kills: &Kills, seed: u64) {
    let rng = SeededRng::new(seed);
    while !kills.are_over() {
        let worker = site.worker(&[]);
        thread::sleep(moment(&rng, 1_500));
        worker.kill();
        kills.one();
    }
}

/// Kills and restarts a submitter. Each new one gets the jobs of its share that were not acknowledged.
fn submitter(
    site: &Site,
    kills: &Kills,
    (accounts, sending): (&Mutex<Accounts>, SendingOptions),
    numbers: &[usize],
    seed: u64,
) {
    let packed = sending.packed.to_string();
    let rng = SeededRng::new(seed);
    let mut from = 0;
    // On a busy machine a program may not even start within the usual lifetime. So a submitter that ends without an
    // acknowledgement doubles the lifetime of the next one.
    let mut longest = 1_500;
    while from < numbers.len() && !kills.are_over() {
        let share = &numbers[from..];
        let mut process = site
            .program(&["--json", "submit", "--pack", &packed, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut input, output) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in share {
                    accounts
                        .lock()
                        .unwrap()
                        .attempted
                        .entry(*number)
                        .and_modify(|times| *times += 1)
                        .or_insert(1);
                    if writeln!(input, "{}", job(*number, sending.packed.into())).is_err() {
                        return;
                    }
                    thread::sleep(sending.pace);
                }
            });
            let acknowledged = scope.spawn(move || {
                let mut last = 0;
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let Ok(answer) = serde_json::from_str::<Value>(&line) else {
                        break;
                    };
                    let Some(line) = answer["line"]
                        .as_u64()
                        .and_then(|line| usize::try_from(line).ok())
                    else {
                        break;
                    };
                    accounts
                        .lock()
                        .unwrap()
                        .acknowledged
                        .insert(share[line - 1]);
                    last = last.max(line);
                }
                last
            });
            thread::sleep(moment(&rng, longest));
            process.kill().unwrap();
            process.wait().unwrap();
            kills.one();
            let done = acknowledged.join().unwrap();
            if done == 0 {
                longest = (longest * 2).min(24_000);
            } else {
                longest = 1_500;
                kills.acknowledged.store(true, Ordering::SeqCst);
            }
            from += done;
        });
    }
}

fn pauses(site: &Site, kills: &Kills, seed: u64) {
    let Place::Azurite(azurite) = &site.place else {
        return;
    };
    let rng = SeededRng::new(seed);
    while !kills.are_over() {
        thread::sleep(moment(&rng, 8_000));
        azurite.pause();
        thread::sleep(moment(&rng, 1_500));
        azurite.resume();
    }
}

/// Runs everything that is left. Requeues jobs whose attempts were used up by crashes, until there are none.
fn calm(site: &Site) {
    for _ in 0..10 {
        site.run_until_idle(&[]);
        if site.poison().is_empty() {
            return;
        }
        for poison in site.poison() {
            assert_eq!(poison["reason"], "exhausted", "{poison}");
        }
        let ended = site.command(&["poison", "requeue", "--all", "--reason", "exhausted"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    panic!("some jobs are exhausted repeatedly: {:?}", site.poison());
}

fn storm(mut site: Site, sending: SendingOptions, seed: u64) {
    let neighbours = usize::from(sending.packed);
    let accounts = Mutex::new(Accounts::new(neighbours));
    let jobs = sending.kills * sending.jobs_per_kill;
    site.migrate();
    site.write("Employees", &(0..jobs).map(employee).collect::<Vec<_>>());
    // A redelivered job leaves alone an entity that may have been written after the job was sent. Queues report times
    // in whole seconds, so the test waits.
    thread::sleep(Duration::from_secs(3));
    let shares: Vec<Vec<usize>> = (0..HOSTS)
        .map(|host| (host..jobs).step_by(HOSTS).collect())
        .collect();
    // Half of the kills before Azurite is restarted cleanly, and half after it.
    for half in 1..=2 {
        let kills = Kills {
            done: AtomicUsize::new(0),
            wanted: sending.kills / 2,
            acknowledged: AtomicBool::new(half == 2),
        };
        let seed = seed + 100 * half;
        thread::scope(|scope| {
            let (site, kills, accounts) = (&site, &kills, &accounts);
            for (host, share) in (0_u64..).zip(&shares) {
                let fresh: Vec<usize> = share
                    .iter()
                    .copied()
                    .filter(|n| !accounts.lock().unwrap().acknowledged.contains(n))
                    .collect();
                scope.spawn(move || {
                    submitter(site, kills, (accounts, sending), &fresh, seed + host);
                });
                scope.spawn(move || worker(site, kills, seed + 10 + host));
            }
            scope.spawn(move || pauses(site, kills, seed + 20));
        });
        assert!(kills.are_over());
        if let Place::Azurite(azurite) = &mut site.place {
            // Azurite saves its data when it is stopped cleanly, and every five seconds. Once it seems to have lost
            // everything that it had acknowledged since its start, so the test waits for the regular save.
            thread::sleep(Duration::from_secs(7));
            azurite.stop();
            azurite.restart();
        }
    }
    // The last submitter sends the jobs that no submitter has sent. Acknowledged jobs are not sent again.
    let accounts = accounts.into_inner().unwrap();
    assert!(
        !accounts.acknowledged.is_empty(),
        "no submitter ran long enough for an acknowledgement"
    );
    let mut accounts = accounts;
    let rest: Vec<usize> = (0..jobs)
        .filter(|number| !accounts.acknowledged.contains(number))
        .collect();
    site.submit(
        &rest
            .iter()
            .map(|number| job(*number, neighbours))
            .collect::<Vec<_>>(),
    );
    for number in rest {
        *accounts.attempted.entry(number).or_default() += 1;
        accounts.acknowledged.insert(number);
    }
    calm(&site);
    assert_eq!(site.count(QUEUE), 0, "the queue is not empty");
    println!("{} kills: {}", sending.kills, accounts.balance(&site));
}

#[test]
fn workers_and_submitters_killed_at_any_moment_lose_nothing_on_the_embedded_store() {
    for round in 0..storms() {
        storm(Site::embedded(EMPLOYEES), ALONE, 1 + 1_000 * round);
        storm(Site::embedded(EMPLOYEES), PACKED, 3 + 1_000 * round);
    }
}

#[test]
fn workers_and_submitters_killed_at_any_moment_lose_nothing_on_azurite() {
    for round in 0..storms() {
        let folder = tempdir().unwrap();
        storm(
            Site::new(
                Place::Azurite(Azurite::persistent(folder.path())),
                EMPLOYEES,
            ),
            ALONE,
            2 + 1_000 * round,
        );
        let folder = tempdir().unwrap();
        storm(
            Site::new(
                Place::Azurite(Azurite::persistent(folder.path())),
                EMPLOYEES,
            ),
            PACKED,
            4 + 1_000 * round,
        );
    }
}
