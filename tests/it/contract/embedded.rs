//! The contract of the storage ports on the embedded store.
#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be created fails the test"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_model::AccountName;
use evenkeel_sqlite::{EmbeddedStore, Options};
use evenkeel_storage::{Clock, Rng};
use jiff::Timestamp;

use evenkeel_conformance::World;

/// A clock that stands still unless the test moves it.
struct StillClock {
    micros: AtomicU64,
}

impl StillClock {
    fn elapsed(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Clock for StillClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + Duration::from_hours(56 * 365 * 24) + self.elapsed()
    }

    fn monotonic(&self) -> Duration {
        self.elapsed()
    }
}

struct CountingRng(AtomicU64);

impl Rng for CountingRng {
    fn next_u64(&self) -> u64 {
        let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

fn world(options: &Options) -> World {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(StillClock {
        micros: AtomicU64::new(0),
    });
    let account = EmbeddedStore::open_with(
        &folder.path().join("store.db"),
        AccountName::main(),
        clock.clone(),
        options,
    )
    .unwrap();
    let pass = move |duration: Duration| {
        clock.micros.fetch_add(
            u64::try_from(duration.as_micros()).unwrap(),
            Ordering::Relaxed,
        );
        Box::pin(std::future::ready(())) as futures::future::BoxFuture<'static, ()>
    };
    World::new(account, pass, folder)
}

fn short_options() -> Options {
    Options {
        short_pages: Some(Arc::new(CountingRng(AtomicU64::new(20_261_120)))),
    }
}

mod plain {
    evenkeel_conformance::contract_suite!(
        crate::contract::embedded::world(&crate::contract::embedded::Options::default()),
        crate::support::capabilities::OWN
    );
}

mod short_pages {
    evenkeel_conformance::contract_suite!(
        crate::contract::embedded::world(&crate::contract::embedded::short_options()),
        crate::support::capabilities::OWN
    );
}
