//! The contract of the storage ports on Azurite, through the Azure adapter.

use crate::support::azurite;
use evenkeel_conformance::World;

/// A separate connection to the shared emulator. The emulator uses the clock of this machine, so the tests wait in real time.
fn world() -> World {
    World::new(
        azurite::shared().connect(),
        |time| Box::pin(tokio::time::sleep(time)),
        (),
    )
}

evenkeel_conformance::contract_suite!(crate::contract::azurite::world());
