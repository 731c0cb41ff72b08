//! Runs random sequences of steps, and shrinks one that fails.

use std::fmt::Debug;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

/// Maximum number of attempts to shrink a failing sequence.
const ATTEMPTS: u32 = 400;

/// Runs `cases` random sequences, and panics with the shortest one that fails. The runner of proptest cannot await.
pub async fn check<T: Debug>(
    cases: u32,
    sequences: impl Strategy<Value = T>,
    run: impl AsyncFn(&T) -> Result<(), String>,
) {
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    for _ in 0..cases {
        let mut tree = sequences.new_tree(&mut runner).unwrap();
        let Err(mut failure) = run(&tree.current()).await else {
            continue;
        };
        let mut shortest = tree.current();
        // Simplify while candidates fail. After one that passes, go back towards the last one that failed.
        let (mut fails, mut attempts) = (true, 0);
        while attempts < ATTEMPTS
            && if fails {
                tree.simplify()
            } else {
                tree.complicate()
            }
        {
            attempts += 1;
            let outcome = run(&tree.current()).await;
            fails = outcome.is_err();
            if let Err(smaller) = outcome {
                (failure, shortest) = (smaller, tree.current());
            }
        }
        panic!("{failure}\nafter {shortest:#?}");
    }
}
