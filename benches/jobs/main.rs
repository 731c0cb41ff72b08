//! Jobs per second and storage requests per job, side by side in one run.
//!
//! ```text
//! cargo bench --bench jobs -- [--jobs 2000] [--concurrency 64] [--rounds 5] [--store azurite|embedded|distant|all]
//!                             [--services apart|together]
//! ```
//!
//! Each round lets every contender do the same jobs in turn, each on a fresh store: the `evenkeel` program; a bare loop
//! on the same adapter that sends one request after the other for each job, and nothing else; and, on Azurite, a
//! worker written by hand on the official SDK for JavaScript. All are measured from asking for the first message to
//! deleting the last. Figures of one round are compared with each other only: the printed ratio is the median over the
//! rounds. Azurite's queues and tables run in a process each (`--services together`: in one). Needs what `scripts/test` installs (Azurite, the SDK for JavaScript).
//!
//! `--store distant` (no part of `all`) puts everything at Azure's distance: an account in memory whose answers take 6 ms in the median and
//! 30 ms once in a hundred, behind HTTP, with Azure's published limits for a queue and a table partition. The jobs are about eight
//! partitions; `evenkeel` runs with its default settings, and the worker written by hand at 64, 128 and 256 in flight.
//!
//! `--watchers N` instead compares the program with N open dashboards with itself without any, on the embedded store.
//!
//! `--backlog N` instead measures the program's resident memory while it works off a backlog on the embedded store.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark says what it measured, and stops at what it does not expect"
)]

#[path = "../../tests/support/mod.rs"]
mod support;

mod bare;
mod contest;
mod distant;
mod emulator;
mod memory;
mod watched;

use contest::{Contest, Services, StoreKind, Work};

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(messages) = options.backlog {
        return runtime.block_on(memory::measure(messages));
    }
    if let Some(watchers) = options.watchers {
        return runtime.block_on(watched::measure(watchers, options.jobs, options.rounds));
    }
    for store in options.stores {
        for work in [Work::Archive, Work::Sync] {
            let contest = Contest {
                store,
                services: options.services,
                work,
                jobs: options.jobs,
                concurrency: options.concurrency,
            };
            runtime.block_on(contest.hold(options.rounds));
        }
    }
}

struct Options {
    jobs: usize,
    concurrency: usize,
    rounds: usize,
    stores: Vec<StoreKind>,
    services: Services,
    backlog: Option<usize>,
    watchers: Option<usize>,
}

impl Options {
    fn parse() -> Self {
        let mut options = Self {
            jobs: 2_000,
            concurrency: 64,
            rounds: 5,
            stores: vec![StoreKind::Embedded, StoreKind::Azurite],
            services: Services::Apart,
            backlog: None,
            watchers: None,
        };
        let mut arguments = std::env::args()
            .skip(1)
            .filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            let value = arguments
                .next()
                .unwrap_or_else(|| panic!("{name} needs a value"));
            let number = || {
                value
                    .parse()
                    .unwrap_or_else(|_| panic!("{name} needs a number, not {value:?}"))
            };
            match name.as_str() {
                "--jobs" => options.jobs = number(),
                "--concurrency" => options.concurrency = number(),
                "--rounds" => options.rounds = number(),
                "--backlog" => options.backlog = Some(number()),
                "--watchers" => options.watchers = Some(number()),
                "--store" => {
                    options.stores = match value.as_str() {
                        "azurite" => vec![StoreKind::Azurite],
                        "embedded" => vec![StoreKind::Embedded],
                        "distant" => vec![StoreKind::Distant],
                        _ => vec![StoreKind::Embedded, StoreKind::Azurite],
                    };
                }
                "--services" => {
                    options.services = match value.as_str() {
                        "together" => Services::Together,
                        _ => Services::Apart,
                    };
                }
                _ => panic!(
                    "{name} is none of --jobs, --concurrency, --rounds, --store, --services, --watchers, --backlog"
                ),
            }
        }
        options
    }
}
