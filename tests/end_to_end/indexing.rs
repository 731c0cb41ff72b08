//! An index at a size at which chance has its say.

use crate::oracle::assert_index_complete;
use crate::sdk::{node, python};
use crate::site::{EMPLOYEES, QUEUE, Site};

#[test]
fn three_thousand_sync_jobs_of_the_node_sdk_make_an_index_complete_and_after_a_change_nothing_stale_is_left() {
    let site = Site::azurite(EMPLOYEES);
    let ports = site.ports();
    let seed = |domain: &str| python(ports, "seed_entities.py", &["--table", "Employees", "--count", "3000", "--email-domain", domain]);
    let sync = || {
        node(ports, "enqueue_sync.mjs", &["--queue", QUEUE, "--table", "Employees", "--count", "3000"]);
        let summary = site.run_until_idle(&[]);
        assert_eq!((summary.done, summary.skipped, summary.poisoned), (3_000, 0, 0));
        site.assert_all_done();
        assert_index_complete(&site);
        assert_eq!(site.rows("EmployeesByEmail").len(), 3_000);
    };
    seed("contoso.com");
    sync();
    seed("fabrikam.com");
    sync();
    let addresses = site.rows("EmployeesByEmail");
    assert!(addresses.keys().all(|(_, address)| address.ends_with("@fabrikam.com")));
}
