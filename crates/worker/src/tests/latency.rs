//! Measures throughput with a store that answers as fast as Azure: the median is 6 ms, and one
//! request in a hundred takes 30 ms. The time is virtual, so the machine does not matter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::layers::{Daemon, until_idle};
use evenkeel_account::company::{self, Shape};
use evenkeel_account::{FaultDecision, OperationInfo};
use evenkeel_model::settings::Concurrency;
use evenkeel_model::{Entity, EntityKey};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{Resource, Rng as _, TableOperation, Ttl};

const PARTITIONS: usize = 8;

/// Employees in several departments, each with a job.
async fn company(jobs: usize) -> Daemon {
    let daemon = Daemon::with_jobs(0).await;
    for number in 0..jobs {
        let (pk, rk) = (format!("p{}", number % PARTITIONS), number.to_string());
        let entity = Entity::new(EntityKey::new(&pk, &rk).unwrap())
            .with("LastName", format!("Name{number}"))
            .with("FirstName", "Ann")
            .with("Email", format!("{number}@contoso.com"))
            .with("IsManager", false);
        daemon
            .bare
            .tables
            .apply(
                &company::table("Employees"),
                &TableOperation::Insert(entity),
            )
            .await
            .unwrap();
        let job = format!(r#"{{"op":"sync","table":"Employees","pk":"{pk}","rk":"{rk}"}}"#);
        daemon
            .bare
            .queues
            .put(&company::queue("jobs"), &job, Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
    }
    daemon
}

/// Additional latency of a request, beyond the 5 ms that every operation takes here.
fn late(rng: &SeededRng) -> Duration {
    let rank = rng.unit();
    let milliseconds = if rank < 0.5 {
        1.0
    } else {
        25_f64.powf((rank - 0.5) / 0.49).min(60.0)
    };
    Duration::from_secs_f64(milliseconds / 1_000.0)
}

/// The jobs per second of a worker, and its requests per job.
async fn measured(jobs: u32, concurrency: Concurrency) -> f64 {
    let daemon = company(jobs as usize).await;
    let (rng, requests) = (SeededRng::new(11), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&requests);
    let worker = daemon.worker_of(
        company::catalog(Shape::default()),
        concurrency,
        move |_, _: &OperationInfo| {
            counted.fetch_add(1, Ordering::Relaxed);
            FaultDecision::AnswerLate {
                answers: late(&rng),
                timeout: Duration::from_mins(1),
            }
        },
    );
    let report = until_idle(&worker).await;
    assert_eq!(
        (report.done, report.released, report.poisoned),
        (u64::from(jobs), 0, 0)
    );
    let rate = f64::from(jobs) / report.working.as_secs_f64();
    let each = f64::from(requests.load(Ordering::Relaxed)) / f64::from(jobs);
    eprintln!("concurrency {concurrency}: {rate:.0} jobs/s, {each:.2} requests for each");
    rate
}

#[tokio::test(start_paused = true)]
async fn as_many_jobs_are_in_flight_as_bring_more_jobs_a_second() {
    let fixed = measured(500, Concurrency::Fixed(64)).await;
    let adapted = measured(3_000, Concurrency::Auto).await;
    assert!(
        adapted > 1.6 * fixed,
        "{adapted:.0} jobs/s with auto, {fixed:.0} with 64"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lone_job_takes_no_longer_than_its_requests_do() {
    let daemon = company(1).await;
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    let request = Duration::from_millis(10);
    let worker = daemon.worker_of(
        company::catalog(Shape::default()),
        Concurrency::Auto,
        move |_, operation: &OperationInfo| {
            let table = matches!(
                operation.what,
                Resource::Table(_) | Resource::Partition(..) | Resource::Entity(..)
            );
            counted.fetch_add(u64::from(table), Ordering::Relaxed);
            FaultDecision::AnswerLate {
                answers: request.saturating_sub(Duration::from_millis(5)),
                timeout: Duration::from_mins(1),
            }
        },
    );
    let report = until_idle(&worker).await;
    // The requests are those to tables, plus the Get and the Delete of the message. A timer may be
    // one or two milliseconds late.
    let requests = u32::try_from(requests.load(Ordering::Relaxed)).unwrap() + 2;
    assert!(
        report.working <= (request + Duration::from_millis(2)) * requests,
        "{:?} for {requests} requests",
        report.working
    );
}
