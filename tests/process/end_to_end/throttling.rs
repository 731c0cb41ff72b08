//! One partition answers 503 for a long time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Ports;
use crate::support::stub::{Reply, Request, Stub};

mod virtual_time;

const HOT: u64 = 200;
const OTHERS: u64 = 300;

fn put(pk: &str, number: u64) -> serde_json::Value {
    let entity = json!({"PartitionKey": pk, "RowKey": format!("{number:03}"), "Email": format!("{pk}.{number}@contoso.com")});
    json!({"op": "put", "table": "Employees", "entity": entity})
}

/// Whether a request is for the partition `Hot` of the employees: for one entity, for a range, or in a transaction.
fn is_hot(request: &Request) -> bool {
    if request.target.contains("/Employees()") {
        return request.target.contains("Hot");
    }
    let inserts = |text: &str| {
        text.contains("/Employees HTTP/1.1") && text.contains("\"PartitionKey\":\"Hot\"")
    };
    if request.target.ends_with("/$batch") && inserts(&request.text()) {
        return true;
    }
    let asks = |text: &str| {
        text.contains("/Employees(PartitionKey='Hot'")
            || text.contains("/Employees(PartitionKey=%27Hot%27")
    };
    asks(&request.target)
        || request.target.contains("/Employees") && request.text().contains("\"Hot\"")
        || asks(&request.text())
}

#[test]
fn a_partition_that_answers_503_poisons_nothing_and_the_other_partitions_finish_without_it() {
    let mut site = Site::azurite(EMPLOYEES);
    let busy = Arc::new(AtomicBool::new(true));
    let stub = Stub::start({
        let busy = busy.clone();
        move |request| {
            if busy.load(Ordering::SeqCst) && is_hot(request) {
                Reply::status(503).like_azure().into()
            } else {
                Reply::Forward
            }
        }
    })
    .forward_to(site.ports().table);
    site.migrate();
    site.send_program_by(Ports {
        table: stub.port(),
        ..site.ports()
    });
    // The jobs for the throttled partition come first. There are three times as many as the worker has slots.
    let jobs: Vec<_> = (0..HOT)
        .map(|n| put("Hot", n))
        .chain((0..OTHERS).map(|n| put(&format!("P{}", n % 9), n)))
        .collect();
    site.submit(&jobs);

    let worker = site.worker(&["--set", "worker.max_dequeue_count=1"]);
    wait_until("the other partitions are done", || site.count(QUEUE) <= HOT);
    let rows = site.rows("Employees");
    assert_eq!(
        rows.len() as u64,
        OTHERS,
        "all other jobs must be done, and none of the hot partition"
    );
    assert!(rows.keys().all(|(pk, _)| pk != "Hot"));
    assert_eq!(site.count(QUEUE), HOT);
    let refused = stub
        .requests()
        .iter()
        .filter(|request| is_hot(request))
        .count() as u64;
    assert!(
        refused < 3 * HOT,
        "the hot partition got {refused} requests"
    );

    busy.store(false, Ordering::SeqCst);
    wait_until("the hot partition is done as well", || {
        site.count(QUEUE) == 0
    });
    worker.stop();
    site.assert_all_done();
    assert_eq!(site.rows("Employees").len() as u64, OTHERS + HOT);
    assert_index_complete(&site);
}
