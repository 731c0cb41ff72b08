//! Estimates the cost of the requests. Pure.
//!
//! The estimate serves to compare catalogs. It is not a bill, because it contains only requests at list prices, without
//! storage and traffic. For the embedded store, it is the cost that the same requests would have on Azure.

use std::collections::VecDeque;

use schemars::JsonSchema;
use serde::Serialize;

use super::{SLOT, SLOTS};
use evenkeel_model::prices::{BLOB_READS, BLOB_WRITES, QUEUE, TABLE};
use evenkeel_telemetry::job_trace::Billed;

/// Minimum number of jobs for an estimate per million.
const JOBS: u64 = 100;

/// Estimated cost of the requests.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "costs")]
pub struct Costs {
    /// US dollars per day at the rate of the last hour, all services together; null before the first ten seconds are
    /// measured.
    pub per_day: Option<f64>,
    /// US dollars per million jobs like those finished since the program started, without polling; null before a
    /// hundred jobs.
    pub per_million_jobs: Option<f64>,
    /// Average number of requests per job.
    pub requests_per_job: Option<f64>,
    /// Cost by service.
    pub services: Vec<ServiceCost>,
}

impl Costs {
    pub fn requests(&self) -> u64 {
        self.services.iter().map(|service| service.requests).sum()
    }
}

/// Estimated cost of the requests to one service.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "service_cost")]
pub struct ServiceCost {
    /// `table`, `queue`, `blob writes` or `blob reads`.
    pub service: &'static str,
    /// Requests since the program started.
    pub requests: u64,
    /// US dollars per 10,000 requests.
    pub price_per_10000: f64,
    /// US dollars per day at the rate of the last hour.
    pub per_day: Option<f64>,
    /// US dollars per million jobs.
    pub per_million_jobs: Option<f64>,
}

/// The number of billed requests at the end of each slot, and the billed requests of finished jobs.
#[derive(Debug, Default)]
pub(super) struct CostSeries {
    samples: VecDeque<(u64, Billed)>,
    jobs: u64,
    billed: Billed,
}

impl CostSeries {
    /// Records a finished delivery. The delivery of a batch has several jobs.
    pub(super) const fn finished(&mut self, jobs: usize, billed: Billed) {
        self.jobs += jobs as u64;
        self.billed = self.billed.plus(billed);
    }

    /// Records the number of requests from the start of the program to the end of a slot.
    pub(super) fn sampled(&mut self, ended: u64, billed: Billed) {
        self.samples.push_back((ended, billed));
        while self.samples.len() > SLOTS + 1 {
            self.samples.pop_front();
        }
    }

    pub(super) fn now(&self) -> Costs {
        let (first, last) = (self.samples.front(), self.samples.back());
        // In the first hour, requests are counted from the start of the program, when it had sent none.
        let since = first
            .filter(|(slot, _)| *slot > 0 || self.samples.len() > SLOTS)
            .map_or_else(
                || (None, Billed::default()),
                |(slot, billed)| (Some(*slot), *billed),
            );
        #[expect(clippy::cast_precision_loss, reason = "the requests of an hour")]
        let per_day = |of: fn(Billed) -> u64, price: f64| {
            let (slot, billed) = last?;
            let seconds =
                SLOT.as_secs_f64() * since.0.map_or(slot + 1, |first| slot - first) as f64;
            (seconds > 0.0)
                .then(|| of(billed.since(since.1)) as f64 / seconds * 86_400.0 * price / 10_000.0)
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "requests of jobs stay below 2^52"
        )]
        let per_job =
            |requests: u64| (self.jobs >= JOBS).then(|| requests as f64 / self.jobs as f64);
        let service = |service, of: fn(Billed) -> u64, price| ServiceCost {
            service,
            requests: last.map_or(0, |(_, billed)| of(*billed)),
            price_per_10000: price,
            per_day: per_day(of, price),
            per_million_jobs: per_job(of(self.billed))
                .map(|requests| requests * 1_000_000.0 * price / 10_000.0),
        };
        let services = vec![
            service("table", |billed| billed.table, TABLE),
            service("queue", |billed| billed.queue, QUEUE),
            service("blob writes", |billed| billed.blob_writes, BLOB_WRITES),
            service("blob reads", |billed| billed.blob_reads, BLOB_READS),
        ];
        let Billed {
            table,
            queue,
            blob_writes,
            blob_reads,
        } = self.billed;
        Costs {
            per_day: services.iter().map(|service| service.per_day).sum(),
            per_million_jobs: services
                .iter()
                .map(|service| service.per_million_jobs)
                .sum(),
            requests_per_job: per_job(table + queue + blob_writes + blob_reads),
            services,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_per_day_uses_the_last_hour_and_per_job_the_finished_jobs() {
        let mut series = CostSeries::default();
        assert_eq!(
            (series.now().per_day, series.now().per_million_jobs),
            (None, None)
        );
        let billed = |table, queue| Billed {
            table,
            queue,
            ..Billed::default()
        };
        // Each second has 100 table requests and 10 queue requests.
        for slot in 0..1_000 {
            series.sampled(slot, billed(1_000 * (slot + 1), 100 * (slot + 1)));
        }
        let day = 86_400.0 * (100.0 * TABLE + 10.0 * QUEUE) / 10_000.0;
        assert!((series.now().per_day.unwrap() - day).abs() < 1e-9);
        for _ in 0..JOBS / 2 {
            series.finished(1, billed(5, 1));
        }
        series.finished(50, billed(250, 50));
        let costs = series.now();
        assert!((costs.per_million_jobs.unwrap() - (5.0 * TABLE + QUEUE) * 100.0).abs() < 1e-9);
        assert!((costs.requests_per_job.unwrap() - 6.0).abs() < 1e-9);
        assert_eq!(costs.services[0].requests, 1_000_000);
    }

    #[test]
    fn a_young_program_is_measured_since_its_start() {
        let mut series = CostSeries::default();
        series.sampled(
            0,
            Billed {
                queue: 10,
                ..Billed::default()
            },
        );
        assert!((series.now().per_day.unwrap() - 86_400.0 * QUEUE / 10_000.0).abs() < 1e-9);
    }
}
