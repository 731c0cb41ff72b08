//! The contract of the storage ports on the simulated account.

#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be created fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use evenkeel_account::{NoFaults, SimWorld};
use evenkeel_conformance::World;
use evenkeel_model::AccountName;
use evenkeel_storage::Clock;
use jiff::Timestamp;

#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

fn world() -> World {
    let clock = Arc::new(TestClock::default());
    let world = SimWorld::new(AccountName::main(), clock.clone(), Arc::new(NoFaults));
    let pass = move |duration: Duration| -> futures::future::BoxFuture<'static, ()> {
        clock.0.fetch_add(
            i64::try_from(duration.as_millis()).unwrap(),
            Ordering::SeqCst,
        );
        Box::pin(async {})
    };
    World::new(world.account(), pass, ())
}

evenkeel_conformance::contract_suite!(
    crate::contract::sim::world(),
    crate::support::capabilities::OWN
);
