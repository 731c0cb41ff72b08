//! The third world: entities that leave their tables for good, or for a while, and tables that go whole.
//!
//! | source | archive | views |
//! |---|---|---|
//! | `Events` | `event_log`: lines in append blobs, by hour | a copy in the primaries' own partition |
//! | `Papers` | `paper_documents`: a document in a container for each | a copy in `Titles`, documents of a search index, large values |
//! | `Records` | `record_files`: a document in a shared folder for each | documents of a search index, large values |
//! | `Attempts%Y%m%d%H` | the rows of each table, in a container or a folder, before it is dropped | a copy in `ByUser%Y%m%d%H` |
//!
//! Entities are archived, restored, and moved from one key or table to another. Two tables by date are over during the run. Each view, and
//! where a dropped table's rows go, is there in some seeds only.
//!
//! [`ArchiveHistory`] judges every change when it happens; [`judge`] what there is in the end.

mod catalog;
mod content;
mod dated;
mod history;
mod oracle;
mod script;
mod shape;

use super::fault_plan::{FaultScope, JOBS};
use evenkeel_model::EntityKey;
use evenkeel_model::settled::FOOTPRINTS;

pub(super) use catalog::catalog;
pub(super) use dated::period_of;
pub(super) use history::{ArchiveHistory, Later};
pub(super) use oracle::judge;
pub(super) use script::{founded, said, steps};
pub(super) use shape::ArchivesShape;

const EVENTS: &str = "Events";
const PAPERS: &str = "Papers";
const RECORDS: &str = "Records";
/// The tables whose entities are archived.
pub(super) const SOURCES: [&str; 3] = [EVENTS, PAPERS, RECORDS];
/// The table of the copies of papers.
const TITLES: &str = "Titles";
/// Every table that has no date, footprints included.
pub(super) const TABLES: [&str; 5] = [EVENTS, PAPERS, RECORDS, TITLES, FOOTPRINTS];
/// The tables by date: two that are over during the run, and the one of the hour in which it begins. (`Stage` begins at 11:06:40.)
const OVER: [&str; 2] = ["Attempts2026111809", "Attempts2026111810"];
pub(super) const PRESENT: &str = "Attempts2026111811";
/// Every table by date that there is in the beginning.
pub(super) const ATTEMPTS: [&str; 3] = [OVER[0], OVER[1], PRESENT];

/// The container of the logs.
const LOGS: &str = "logs";
/// The container of the papers' documents, and of the values beside them.
const DOCUMENTS: &str = "papers";
/// The folder of the records' documents, and of the values beside them.
pub(super) const FOLDER: &str = "/mnt/records";
/// The container of the large values of papers and records.
const LARGE: &str = "large";
/// Where the rows of tables go before these are dropped: a container or a folder.
const OLD_ATTEMPTS: &str = "old-attempts";
const OLD_ATTEMPTS_FOLDER: &str = "/mnt/attempts";
/// Every container.
pub(super) const CONTAINERS: [&str; 4] = [LOGS, DOCUMENTS, LARGE, OLD_ATTEMPTS];
/// The search service, and its index.
pub(super) const SINK: &str = "catalog";
pub(super) const INDEX: &str = "findings";
/// The fields of the index, beside its key.
pub(super) const FIELDS: [&str; 2] = ["title", "version"];
/// The property whose value lies elsewhere where it is long.
const LARGE_PROPERTY: &str = "Scan";

/// What is throttled by itself.
pub(super) const LANES: [FaultScope; 8] = [
    FaultScope::Partition(EVENTS, "Sales"),
    FaultScope::Partition(PAPERS, "Sales"),
    FaultScope::Partition(FOOTPRINTS, "~log~event_log~00"),
    FaultScope::Partition(FOOTPRINTS, "Papers~Sales"),
    FaultScope::Partition(TITLES, "title_Index"),
    FaultScope::Partition(RECORDS, "Sales"),
    FaultScope::Queue(JOBS),
    FaultScope::Queue("jobs-recheck"),
];

/// The archive of a source.
const fn archive_of(table: &str) -> &'static str {
    match table.as_bytes() {
        b"Events" => "event_log",
        b"Papers" => "paper_documents",
        _ => "record_files",
    }
}

/// The source that an entity belongs to: row keys say it, so that no two sources have a key in common.
fn source_of(key: &EntityKey) -> &'static str {
    match key.rk.as_str().as_bytes() {
        [b'e', ..] => EVENTS,
        [b'p', ..] => PAPERS,
        _ => RECORDS,
    }
}
