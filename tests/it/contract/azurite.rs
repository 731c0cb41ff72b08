//! The contract of the storage ports on Azurite, through the Azure adapter.

use crate::support::azurite;
use evenkeel_conformance::World;

/// A separate connection to the shared emulator. Its clock is this machine's, so that time passes by waiting.
fn world() -> World {
    World::new(
        azurite::shared().connect(),
        |time| Box::pin(tokio::time::sleep(time)),
        (),
    )
}

evenkeel_conformance::contract_suite!(crate::contract::azurite::world());
