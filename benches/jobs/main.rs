//! Jobs per second and storage requests per job, side by side in one run.
//!
//! ```text
//! cargo bench --bench jobs -- [--jobs 3000] [--concurrency 64] [--rounds 3] [--store azurite|embedded|all]
//! ```
//!
//! Each round lets every contender do the same jobs in turn, on the same store: the `evenkeel` program; a bare loop
//! on the same adapter with the same requests and nothing else; and, on Azurite, a worker written by hand on the
//! official SDK for JavaScript. Figures of one round are compared with each other only: the printed ratio is the
//! median over the rounds. Needs what `scripts/test` installs (Azurite, the SDK for JavaScript).
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
mod memory;

use contest::{Contest, StoreKind, Work};

fn main() {
    let options = Options::parse();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Some(messages) = options.backlog {
        return runtime.block_on(memory::measure(messages));
    }
    for store in options.stores {
        for work in [Work::Archive, Work::Sync] {
            let contest = Contest { store, work, jobs: options.jobs, concurrency: options.concurrency };
            runtime.block_on(contest.hold(options.rounds));
        }
    }
}

struct Options {
    jobs: usize,
    concurrency: usize,
    rounds: usize,
    stores: Vec<StoreKind>,
    backlog: Option<usize>,
}

impl Options {
    fn parse() -> Self {
        let mut options =
            Self { jobs: 3_000, concurrency: 64, rounds: 3, stores: vec![StoreKind::Embedded, StoreKind::Azurite], backlog: None };
        let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
            let number = || value.parse().unwrap_or_else(|_| panic!("{name} needs a number, not {value:?}"));
            match name.as_str() {
                "--jobs" => options.jobs = number(),
                "--concurrency" => options.concurrency = number(),
                "--rounds" => options.rounds = number(),
                "--backlog" => options.backlog = Some(number()),
                "--store" => {
                    options.stores = match value.as_str() {
                        "azurite" => vec![StoreKind::Azurite],
                        "embedded" => vec![StoreKind::Embedded],
                        _ => vec![StoreKind::Embedded, StoreKind::Azurite],
                    };
                }
                _ => panic!("{name} is none of --jobs, --concurrency, --rounds, --store, --backlog"),
            }
        }
        options
    }
}
