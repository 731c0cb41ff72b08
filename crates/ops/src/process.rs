//! Resource usage of the process, under the standard names of Prometheus client libraries.

use std::sync::LazyLock;

use metrics_process::Collector;

static COLLECTOR: LazyLock<Collector> = LazyLock::new(|| {
    let collector = Collector::default();
    collector.describe();
    collector
});

/// Updates the `process_*` metrics. This reads files of `/proc`, so it is done only once per scrape.
pub(super) fn measure() {
    COLLECTOR.collect();
}
