//! The `archives` world: entities are archived, restored and moved, and dated tables are dropped.
//!
//! | source | archive | views |
//! |---|---|---|
//! | `Events` | `event_log`: lines in append blobs, by hour | a copy in the primaries' own partition |
//! | `Papers` | `paper_documents`: one document per paper in a container | a copy in `Titles`, documents of a search index, large values |
//! | `Records` | `record_files`: one document per record in a shared folder | documents of a search index, large values |
//! | `Attempts%Y%m%d%H` | the rows of each table, in a container or a folder, before it is dropped | a copy in `ByUser%Y%m%d%H` |
//!
//! An entity moves to another key or to another table. The retention time of two dated tables passes during the run. Each view, and the
//! archive of dropped tables, exists in some seeds only.
//!
//! [`ArchiveHistory`] judges every change when it happens, and [`judge`] judges the end state.

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
pub(super) use history::{ArchiveHistory, LaterEvents};
pub(super) use oracle::judge;
pub(super) use script::{founded, sent_contents, steps};
pub(super) use shape::ArchivesShape;

const EVENTS: &str = "Events";
const PAPERS: &str = "Papers";
const RECORDS: &str = "Records";
pub(super) const SOURCES: [&str; 3] = [EVENTS, PAPERS, RECORDS];
const TITLES: &str = "Titles";
pub(super) const TABLES: [&str; 5] = [EVENTS, PAPERS, RECORDS, TITLES, FOOTPRINTS];
/// Two dated tables whose retention time passes during the run.
const OVER: [&str; 2] = ["Attempts2026111809", "Attempts2026111810"];
/// The table of the hour in which the run begins: `SharedState` begins at 11:06:40.
pub(super) const PRESENT: &str = "Attempts2026111811";
pub(super) const ATTEMPTS: [&str; 3] = [OVER[0], OVER[1], PRESENT];

const LOGS: &str = "logs";
const DOCUMENTS: &str = "papers";
pub(super) const FOLDER: &str = "/mnt/records";
const LARGE: &str = "large";
/// The container into which the rows of a table are written before the table is dropped. Some seeds use
/// `OLD_ATTEMPTS_FOLDER` instead.
const OLD_ATTEMPTS: &str = "old-attempts";
const OLD_ATTEMPTS_FOLDER: &str = "/mnt/attempts";
pub(super) const CONTAINERS: [&str; 4] = [LOGS, DOCUMENTS, LARGE, OLD_ATTEMPTS];
pub(super) const SINK: &str = "catalog";
pub(super) const INDEX: &str = "findings";
pub(super) const FIELDS: [&str; 2] = ["title", "version"];
const LARGE_PROPERTY: &str = "Scan";

pub(super) const SCOPES: [FaultScope; 8] = [
    FaultScope::Partition(EVENTS, "Sales"),
    FaultScope::Partition(PAPERS, "Sales"),
    FaultScope::Partition(FOOTPRINTS, "~log~event_log~00"),
    FaultScope::Partition(FOOTPRINTS, "Papers~Sales"),
    FaultScope::Partition(TITLES, "title_Index"),
    FaultScope::Partition(RECORDS, "Sales"),
    FaultScope::Queue(JOBS),
    FaultScope::Queue("jobs-recheck"),
];

const fn archive_of(table: &str) -> &'static str {
    match table.as_bytes() {
        b"Events" => "event_log",
        b"Papers" => "paper_documents",
        _ => "record_files",
    }
}

/// The source table of an entity. The row keys of each source begin with a different letter.
fn source_of(key: &EntityKey) -> &'static str {
    match key.rk.as_str().as_bytes() {
        [b'e', ..] => EVENTS,
        [b'p', ..] => PAPERS,
        _ => RECORDS,
    }
}
