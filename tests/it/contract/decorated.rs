//! The contract of the storage ports on stores with the decorators of production. Observation, circuits, pacing,
//! grouping and retries must not change what a port promises.

#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be created fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_account::SimWorld;
use evenkeel_layers::stack::{Grouping, decorate};
use evenkeel_model::AccountName;
use evenkeel_model::settings::{Backoff, RetryPolicy};
use evenkeel_sqlite::{EmbeddedStore, Options};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{Account, Clock, Rng};
use futures::future::{BoxFuture, FutureExt};
use jiff::Timestamp;

use crate::support::azurite;
use crate::support::gusty::Gusty;
use evenkeel_conformance::World;

#[derive(Default)]
struct StillClock {
    micros: AtomicU64,
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_hours(56 * 365 * 24) + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

/// An account with the decorators of production. Retries do not wait, and there are enough of them for any order in which concurrent requests hit
/// faults.
fn decorated(bare: &Account, clock: Arc<StillClock>) -> Account {
    let at_once = Backoff {
        min: Duration::ZERO,
        base: Duration::ZERO,
        max: Duration::ZERO,
    };
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(20_261_120));
    let clock: Arc<dyn Clock> = clock;
    decorate(
        &AccountName::main(),
        bare,
        Grouping::Together,
        RetryPolicy::growing(at_once, 40),
        &clock,
        &rng,
    )
    .account
}

fn pass(clock: Arc<StillClock>) -> impl Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync {
    move |duration| {
        clock.micros.fetch_add(
            u64::try_from(duration.as_micros()).unwrap(),
            Ordering::Relaxed,
        );
        std::future::ready(()).boxed()
    }
}

fn embedded_world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(StillClock::default());
    let path = folder.path().join("store.db");
    let bare = EmbeddedStore::open_with(
        &path,
        AccountName::main(),
        clock.clone(),
        &Options::default(),
    )
    .unwrap();
    World::new(decorated(&bare, clock.clone()), pass(clock), folder)
}

fn gusty_world() -> World {
    let clock = Arc::new(StillClock::default());
    let bare = SimWorld::new(AccountName::main(), clock.clone(), Arc::new(Gusty)).account();
    World::new(decorated(&bare, clock.clone()), pass(clock), ())
}

/// In this world transactions and range queries are real requests, because the account is Azurite.
fn azurite_world() -> World {
    let bare = azurite::shared().connect();
    let account = decorated(&bare, Arc::new(StillClock::default()));
    World::new(account, |time| Box::pin(tokio::time::sleep(time)), ())
}

mod azurite_worn {
    evenkeel_conformance::contract_suite!(crate::contract::decorated::azurite_world());
}

mod embedded {
    evenkeel_conformance::contract_suite!(
        crate::contract::decorated::embedded_world(),
        crate::support::capabilities::OWN
    );
}

mod gusty {
    evenkeel_conformance::contract_suite!(
        crate::contract::decorated::gusty_world(),
        crate::support::capabilities::OWN
    );
}
