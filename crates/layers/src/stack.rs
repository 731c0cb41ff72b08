//! The decorator stack of an account: observed, paced, guarded by circuit breakers, its table requests grouped, with
//! retries.
//!
//! ```text
//! caller ─▶ retry ─▶ entrance ─▶ group ─▶ pace ─▶ circuit ─▶ observe ─▶ adapter
//! ```
//!
//! The entrance is there where an account is paced: it is the part of pace that has to know the job of each request.
//!
//! Observation is innermost, so that it counts the requests really sent, and pace and circuit see it too: a group is one
//! request about many entities of one partition. Retry is outermost, so that each caller's own operation decides
//! whether it may be repeated, and repetitions are grouped anew (`docs/internals/notes/grouping-and-pacing.md`). A request that
//! pace or circuit withhold fails at once and passes through retry like an answer of the service: a short hold is
//! waited for, a long one ends the request, and the job goes back to its queue.

use std::sync::Arc;

use arc_swap::ArcSwap;
use metrics::counter;

use super::circuit::Circuit;
use super::gather::Gathered;
use super::group::Grouped;
use super::layer::{Layer, Layered};
use super::observe::{Observe, RequestCounts};
use super::pace::{Pace, PaceEntrance};
use super::retry::{Retried, Retry};
use evenkeel_model::AccountName;
use evenkeel_model::settings::{PaceCeilings, RetryPolicy};
use evenkeel_storage::{Account, BlobStore, Clock, QueueStore, Rng, Sink, TableStore};
use evenkeel_telemetry::names;

/// An account in its decorator stack, with handles on the layers.
#[derive(Clone)]
pub struct DecoratedAccount {
    /// The account, to be used in place of the bare one.
    pub account: Account,
    /// The account with its requests sent once each and alone, and counted: for measuring.
    pub observed: Account,
    /// Its circuits, for [`Circuits`](super::circuit::Circuits).
    pub circuit: Arc<Circuit>,
    /// Requests sent to it.
    pub counts: Arc<RequestCounts>,
    /// Scopes withheld for a while.
    pub pace: Arc<Pace>,
    /// How requests are tried again; may be changed.
    pub retry: Arc<ArcSwap<RetryPolicy>>,
}

const COUNTED: Retried = |op, class| {
    counter!(names::RETRIES_TOTAL, names::OP => op.label(), names::CLASS => class.name())
        .increment(1);
};

/// Whether requests to one partition are sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// They are: each costs its way to the service and back.
    Together,
    /// Each is sent on its own: the store is in this process, and groups its writes to the disk.
    Apart,
}

/// Decorates an account without ceilings. Install the metrics recorder first: gauges start at zero here.
pub fn decorate(
    name: &AccountName,
    bare: &Account,
    grouping: Grouping,
    retry: RetryPolicy,
    clock: &Arc<dyn Clock>,
    rng: &Arc<dyn Rng>,
) -> DecoratedAccount {
    decorate_within(name, bare, (grouping, None), retry, clock, rng)
}

/// As [`decorate`], paced within ceilings where it has any.
pub fn decorate_within(
    name: &AccountName,
    bare: &Account,
    (grouping, ceilings): (Grouping, Option<PaceCeilings>),
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
        Grouping::Together => Arc::new(Grouped::new(name, paced.tables, clock.clone())),
        Grouping::Apart => paced.tables,
    };
    let tables: Arc<dyn TableStore> = match ceilings {
        Some(_) => Arc::new(Layered::<dyn TableStore, _>::new(
            tables,
            Arc::new(PaceEntrance::new(Arc::clone(&pace))),
        )),
        None => tables,
    };
    let account = Account {
        tables: Arc::new(
            Retry::<dyn TableStore>::by(tables, Arc::clone(&retry), rng.clone()).counting(COUNTED),
        ),
        queues: Arc::new(
            Retry::<dyn QueueStore>::by(paced.queues, Arc::clone(&retry), rng.clone())
                .counting(COUNTED),
        ),
        blobs: Arc::new(
            Retry::<dyn BlobStore>::by(paced.blobs, Arc::clone(&retry), rng.clone())
                .counting(COUNTED),
        ),
        clocks: paced.clocks,
    };
    DecoratedAccount {
        account,
        observed,
        circuit,
        counts,
        pace,
        retry,
    }
}

/// A sink in its decorator stack, with handles on the layers.
#[derive(Clone)]
pub struct DecoratedSink {
    /// The sink, to be used in place of the bare one.
    pub sink: Arc<dyn Sink>,
    /// Its circuit breaker. It is not reported to the worker: work on other stores has no need of this one, and jobs
    /// that do come again. It is to lapse now and then.
    pub circuit: Arc<Circuit>,
    /// Requests sent to it.
    pub counts: Arc<RequestCounts>,
    /// Scopes withheld for a while.
    pub pace: Arc<Pace>,
    /// How requests are tried again; may be changed.
    pub retry: Arc<ArcSwap<RetryPolicy>>,
}

/// Decorates a sink as an account is, its writes gathered. Install the metrics recorder first: gauges start at zero here.
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
    let gathered: Arc<dyn Sink> = Arc::new(Gathered::new(name, paced, clock.clone()));
    let sink = Arc::new(
        Retry::<dyn Sink>::by(gathered, Arc::clone(&retry), rng.clone()).counting(COUNTED),
    );
    DecoratedSink {
        sink,
        circuit,
        counts,
        pace,
        retry,
    }
}

/// An account with one layer around its three services.
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
