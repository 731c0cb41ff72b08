//! `evenkeel demo`: shows the daily changes in a company's data on a temporary store, and checks
//! each step.
//!
//! Nothing is simulated. Jobs go through the queue, the worker of `evenkeel run` executes them, and
//! each chapter reads the tables afterwards. At the end, all derived data is computed again from
//! the primaries and compared with the tables. `app` prepares the folder with the configuration,
//! the store and the worker.
//!
//! With `--guide`, the command runs a worked example of the table design guide instead
//! ([`run_example`]).

mod args;
mod guide;
mod people;
mod stage;
mod steps;
mod story;

pub use args::DemoArgs;
pub use guide::{GUIDE_EXAMPLES, GuideExample, list_examples, run_example};
pub use stage::DemoStage;
pub use steps::GuideStep;
pub use story::run_story;

/// Configuration of the demo, without the account.
pub const CONFIGURATION: &str = include_str!("contoso.toml");
