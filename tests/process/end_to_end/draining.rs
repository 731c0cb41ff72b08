//! What a worker does after SIGTERM.

use serde_json::json;

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site, attempts};
use crate::end_to_end::worker::wait_until;

const JOBS: u64 = 400;

fn put(number: u64) -> serde_json::Value {
    let email = format!("{number}@contoso.com");
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": format!("P{}", number % 7), "RowKey": number.to_string(), "Email": email}})
}

/// Stops a worker in the middle of its work. The worker must exit with 0, and its unfinished messages must wait without
/// a counted attempt.
fn stop_in_the_middle(site: &Site, arguments: &[&str]) {
    site.migrate();
    site.submit(&(0..JOBS).map(put).collect::<Vec<_>>());
    let worker = site.worker(arguments);
    wait_until("some jobs are done", || site.count(QUEUE) < JOBS - 50);
    worker.stop();

    let done = site.rows("Employees").len() as u64;
    let left = site.count(QUEUE);
    assert!(
        left > 0 && done >= 50,
        "the worker must be stopped in the middle: {done} done, {left} left"
    );
    let waiting = site.take(QUEUE);
    assert_eq!(
        waiting.len() as u64,
        left,
        "all remaining messages must be visible at once"
    );
    assert!(
        done + left >= JOBS,
        "{done} done, {left} left: some jobs are lost"
    );
    assert!(
        waiting.iter().all(|message| attempts(message) == 0),
        "an attempt was counted"
    );

    site.put_texts(waiting.iter().map(|message| match &message.text {
        evenkeel_storage::MessageText::Readable(text) => text.as_str(),
        evenkeel_storage::MessageText::Unreadable { raw, .. } => raw,
    }));
    site.run_until_idle(&[]);
    site.assert_all_done();
    assert_eq!(site.rows("Employees").len() as u64, JOBS);
    assert_index_complete(site);
}

#[test]
fn a_worker_told_to_stop_finishes_what_is_in_work_and_burns_no_attempt() {
    stop_in_the_middle(&Site::azurite(EMPLOYEES), &[]);
}

#[test]
fn a_worker_without_time_to_drain_releases_what_is_in_work_and_burns_no_attempt() {
    // The worker has three seconds to release its messages.
    stop_in_the_middle(
        &Site::azurite(EMPLOYEES),
        &[
            "--set",
            "worker.drain=0s",
            "--set",
            "queues.0.concurrency=8",
        ],
    );
}

#[test]
fn an_idle_worker_told_to_stop_ends_at_once_also_on_the_embedded_store() {
    let site = Site::embedded(EMPLOYEES);
    let worker = site.worker(&[]);
    site.migrate();
    site.submit(&[put(1)]);
    wait_until("the job is done", || site.count(QUEUE) == 0);
    worker.stop();
    assert_index_complete(&site);
}
