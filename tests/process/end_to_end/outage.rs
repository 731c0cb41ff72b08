//! The store is down for a while.

use serde_json::json;

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, Place, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Azurite;

const JOBS: u64 = 300;

#[test]
fn a_worker_outlives_an_outage_of_its_store_poisons_nothing_and_catches_up() {
    let data = tempfile::tempdir().unwrap();
    let mut site = Site::new(Place::Azurite(Azurite::persistent(data.path())), EMPLOYEES);
    site.migrate();
    let put = |number: u64| {
        let email = format!("{number}@contoso.com");
        json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": format!("P{}", number % 5), "RowKey": number.to_string(), "Email": email}})
    };
    site.submit(&(0..JOBS).map(put).collect::<Vec<_>>());
    // The outage may cut off the answer to a Get. The service has then counted a delivery, although no worker has
    // received the messages. The program cannot avoid this. The limit of 2 allows one such delivery per message. After
    // a second one, the message would be poisoned.
    let mut worker = site.worker(&["--set", "worker.max_dequeue_count=2"]);
    wait_until("some jobs are done", || site.count(QUEUE) < JOBS - 40);
    let Place::Azurite(azurite) = &mut site.place else {
        unreachable!()
    };
    azurite.stop();
    // The outage is longer than a lease (10 s), and longer than all retries of a request.
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert!(worker.runs(), "the worker must not give up");
    azurite.restart();
    wait_until("the worker has caught up", || site.count(QUEUE) == 0);
    assert!(worker.runs());
    worker.stop();

    site.assert_all_done();
    assert_eq!(site.rows("Employees").len() as u64, JOBS);
    assert_index_complete(&site);
}

#[test]
fn a_worker_started_before_its_store_waits_for_it() {
    let data = tempfile::tempdir().unwrap();
    let mut site = Site::new(Place::Azurite(Azurite::persistent(data.path())), EMPLOYEES);
    let Place::Azurite(azurite) = &mut site.place else {
        unreachable!()
    };
    azurite.stop();
    let refused = site.command(&["poison", "list"]);
    assert_eq!(refused.code, 4, "store unreachable: {}", refused.err);
    assert!(refused.err.lines().count() <= 5, "{}", refused.err);
    let mut worker = site.worker(&[]);
    assert!(worker.runs());
    let Place::Azurite(azurite) = &mut site.place else {
        unreachable!()
    };
    azurite.restart();
    site.migrate();
    site.submit(&[json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "P", "RowKey": "1", "Email": "a@b.c"}})]);
    wait_until("the job is done", || site.count(QUEUE) == 0);
    worker.stop();
    assert_index_complete(&site);
}
