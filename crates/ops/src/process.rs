//! Resources of the process, under the names that every client library of Prometheus uses.

use std::sync::LazyLock;

use metrics_process::Collector;

static COLLECTOR: LazyLock<Collector> = LazyLock::new(|| {
    let collector = Collector::default();
    collector.describe();
    collector
});

/// Sets `process_*` anew. Reads some files of `/proc`: once for each scrape.
pub(super) fn measure() {
    COLLECTOR.collect();
}
