//! Tests of the whole worker on a paused clock.

mod batches;
mod draining;
mod faults;
mod latency;
mod layers;
mod leases;
mod observing;
mod outages;
mod poisoning;
mod progress;
mod receiving;
mod scheduling;
