//! The contract of the storage ports on Azurite, through the Azure adapter.

#[macro_use]
mod conformance;
mod support;

use conformance::World;
use support::azurite;

/// A connection of its own to the shared emulator, whose clock is this machine's: its time passes by waiting.
fn world() -> World {
    World::new(azurite::shared().connect(), |time| Box::pin(tokio::time::sleep(time)), ())
}

contract_suite!(crate::world());
