//! `evenkeel demo`: a company's people on a store of its own, told step by step and checked as it goes.
//!
//! Nothing here is a shortcut: jobs go through the queue, the worker of `evenkeel run` executes them, and each
//! chapter looks at the contents of the tables afterwards. At the end all derived data is computed anew from the
//! primaries and compared. `app` sets the stage: a folder with a configuration and a store, and a worker.
//!
//! With `--guide` it runs a worked example of the table design guide instead: [`run_example`].

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
pub use story::tell;

/// The configuration of the demonstration, the account apart.
pub const CONFIGURATION: &str = include_str!("contoso.toml");
