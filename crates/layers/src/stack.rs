//! The decorator stack of an account: retries, combined table requests, pacing, circuit breakers and metrics.
//!
//! ```text
//! caller ─▶ retry ─▶ entrance ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//! ```
//!
//! The entrance exists if the account is paced. It is the part of `pace` that needs to know the job of each request.
//!
//! Observation is innermost and counts the requests that are sent. Pace and circuit also lie below `group`: for them, a combined
//! request is one request about many entities of one partition. Retry is outermost for two reasons. The operation of each caller
//! decides whether it may be repeated. And repeated operations are combined anew (`docs/internals/notes/grouping-and-pacing.md`). A
//! request that pace or circuit withholds fails at once, and retry treats that like an answer of the service: it waits for a short
//! hold, and a long hold ends the request and returns the job to its queue.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::counter;

use super::circuit::Circuit;
use super::gather::CombiningSink;
use super::group::GroupedTables;
use super::layer::{Layer, Layered};
use super::observe::{Observe, RequestCounts};
use super::pace::{Pace, PaceEntrance};
use super::retry::{Retry, RetryCallback};
use evenkeel_model::AccountName;
use evenkeel_model::settings::{PaceCeilings, RetryPolicy};
use evenkeel_storage::{Account, BlobStore, Clock, QueueStore, Rng, Sink, TableStore};
use evenkeel_telemetry::names;

#[derive(Clone)]
pub struct DecoratedAccount {
    pub account: Account,
    /// The account with counting only: each request is sent once and alone, for measurements.
    pub observed: Account,
    /// The circuits of the account, for [`Circuits`](super::circuit::Circuits).
    pub circuit: Arc<Circuit>,
    pub counts: Arc<RequestCounts>,
    pub pace: Arc<Pace>,
    /// The retry policy. It may be changed at runtime.
    pub retry: Arc<ArcSwap<RetryPolicy>>,
}

const COUNTED: RetryCallback = |op, class| {
    counter!(names::RETRIES_TOTAL, names::OP => op.label(), names::CLASS => class.name())
        .increment(1);
};

/// Whether requests to one partition are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// Combined, because each request costs a round trip to the service.
    Together,
    /// Sent alone, because the store is in this process and combines its own disk writes.
    Apart,
}

/// Decorates an account without ceilings. Install the metrics recorder first, because gauges are set to zero here.
pub fn decorate(
    name: &AccountName,
    bare: &Account,
    grouping: Grouping,
    retry: RetryPolicy,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> DecoratedAccount {
    decorate_within(name, bare, grouping, None, retry, clock, rng)
}

pub fn decorate_within(
    name: &AccountName,
    bare: &Account,
    grouping: Grouping,
    ceilings: Option<PaceCeilings>,
    retry: RetryPolicy,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> DecoratedAccount {
    let retry = Arc::new(ArcSwap::from_pointee(retry));
    let counts = Arc::new(RequestCounts::new());
    let observed = layered(
        bare,
        &Arc::new(Observe::new(name, clock.clone(), counts.clone())),
    );
    let circuit = Arc::new(Circuit::new(name, observed.clone(), clock.clone()));
    let guarded = layered(&observed, &circuit);
    let pace = Arc::new(Pace::new(name, ceilings, clock.clone(), rng.clone()));
    let paced = layered(&guarded, &pace);
    let tables: Arc<dyn TableStore> = match grouping {
        Grouping::Together => Arc::new(GroupedTables::new(name, paced.tables, clock.clone())),
        Grouping::Apart => paced.tables,
    };
    let tables: Arc<dyn TableStore> = match ceilings {
        Some(_) => Arc::new(Layered::<dyn TableStore, _>::new(
            tables,
            Arc::new(PaceEntrance::new(Arc::clone(&pace))),
        )),
        None => tables,
    };
    let retries = Retry::new(Arc::clone(&retry), rng.clone()).counting(COUNTED);
    let account = layered(&Account { tables, ..paced }, &Arc::new(retries));
    DecoratedAccount {
        account,
        observed,
        circuit,
        counts,
        pace,
        retry,
    }
}

#[derive(Clone)]
pub struct DecoratedSink {
    pub sink: Arc<dyn Sink>,
    /// The worker does not watch this circuit: other jobs do not need the sink, and jobs that need it are delivered again. The
    /// circuit is not probed, so call `lapse` regularly.
    pub circuit: Arc<Circuit>,
    pub counts: Arc<RequestCounts>,
    pub pace: Arc<Pace>,
    /// The retry policy. It may be changed at runtime.
    pub retry: Arc<ArcSwap<RetryPolicy>>,
}

/// Decorates a sink and combines its writes. Install the metrics recorder first, because gauges are set to zero here.
pub fn decorate_sink(
    name: &AccountName,
    bare: Arc<dyn Sink>,
    retry: RetryPolicy,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> DecoratedSink {
    let retry = Arc::new(ArcSwap::from_pointee(retry));
    let counts = Arc::new(RequestCounts::new());
    let observe = Arc::new(Observe::new(name, clock.clone(), counts.clone()));
    let observed: Arc<dyn Sink> = Arc::new(Layered::<dyn Sink, _>::new(bare, observe));
    let circuit = Arc::new(Circuit::of_sink(name, clock.clone()));
    let guarded: Arc<dyn Sink> = Arc::new(Layered::<dyn Sink, _>::new(observed, circuit.clone()));
    let pace = Arc::new(Pace::new(name, None, clock.clone(), rng.clone()));
    let paced: Arc<dyn Sink> = Arc::new(Layered::<dyn Sink, _>::new(guarded, pace.clone()));
    let gathered: Arc<dyn Sink> = Arc::new(CombiningSink::new(name, paced, clock.clone()));
    let retries = Retry::new(Arc::clone(&retry), rng.clone()).counting(COUNTED);
    let sink = Arc::new(Layered::<dyn Sink, _>::new(gathered, Arc::new(retries)));
    DecoratedSink {
        sink,
        circuit,
        counts,
        pace,
        retry,
    }
}

pub fn layered<L: Layer>(account: &Account, layer: &Arc<L>) -> Account {
    Account {
        tables: Arc::new(Layered::<dyn TableStore, L>::new(
            account.tables.clone(),
            layer.clone(),
        )),
        queues: Arc::new(Layered::<dyn QueueStore, L>::new(
            account.queues.clone(),
            layer.clone(),
        )),
        blobs: Arc::new(Layered::<dyn BlobStore, L>::new(
            account.blobs.clone(),
            layer.clone(),
        )),
        clocks: account.clocks.clone(),
    }
}

#[cfg(test)]
mod tests;
