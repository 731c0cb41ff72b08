//! Random sequences of steps, shrunk to the shortest that fails.

use std::fmt::Debug;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRunner};

/// Most attempts at making a failing sequence shorter.
const SHRINKS: u32 = 400;

/// Runs `cases` random sequences. A sequence that fails is made as short as it gets and reported.
///
/// The runner of proptest is not used for this, since it cannot await.
pub(crate) async fn check<T: Debug>(cases: u32, sequences: impl Strategy<Value = T>, run: impl AsyncFn(&T) -> Result<(), String>) {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    for _ in 0..cases {
        let mut tree = sequences.new_tree(&mut runner).unwrap();
        let Err(mut failure) = run(&tree.current()).await else { continue };
        let mut shortest = tree.current();
        let mut shrinks = 0;
        while shrinks < SHRINKS && tree.simplify() {
            shrinks += 1;
            // After a candidate that passes, the tree goes back to the last one that fails and tries another.
            while let Ok(()) = run(&tree.current()).await {
                shrinks += 1;
                if shrinks >= SHRINKS || !tree.complicate() {
                    break;
                }
            }
            if let Err(smaller) = run(&tree.current()).await {
                (failure, shortest) = (smaller, tree.current());
            }
        }
        panic!("{failure}\nafter {shortest:#?}");
    }
}
