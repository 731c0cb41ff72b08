//! The program as its users meet it: the real binary, on the embedded store.

mod daemon;
mod demonstration;
mod endings;
mod generated;
mod jobs;
mod lookup;
mod migrations;
mod place;
mod poison;
