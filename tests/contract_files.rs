//! The contract of shared files, on a file system and in the simulated world.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a rule that meets an unexpected error has failed")]

use std::fmt::Debug;
use std::sync::Arc;

use evenkeel::adapters::files::SharedFiles;
use evenkeel::adapters::sim::{Fair, SimWorld};
use evenkeel::adapters::system::SystemClock;
use evenkeel::model::AccountName;
use evenkeel::ports::{ErrorClass, StoreError};

#[path = "conformance/files.rs"]
mod files;

use files::Shared;

/// The class of an expected failure.
#[track_caller]
fn class<T: Debug>(result: Result<T, StoreError>) -> ErrorClass {
    result.expect_err("the operation fails").class
}

fn on_a_disk() -> Shared {
    let folder = tempfile::tempdir().unwrap();
    Shared { files: Arc::new(SharedFiles), dir: folder.path().to_str().unwrap().to_owned(), _keep: Box::new(folder) }
}

fn simulated() -> Shared {
    let world = SimWorld::new(AccountName::main(), Arc::new(SystemClock::new()), Arc::new(Fair));
    Shared { files: world.files(), dir: "/mnt/share".to_owned(), _keep: Box::new(()) }
}

macro_rules! suite {
    ($($rule:ident)+) => {
        mod disk {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                crate::files::$rule(&crate::on_a_disk()).await;
            })+
        }
        mod sim {
            $(#[tokio::test]
            async fn $rule() {
                crate::files::$rule(&crate::simulated()).await;
            })+
        }
    };
}

suite! {
    a_file_is_read_as_it_was_written
    a_file_is_written_under_its_condition
    a_file_is_deleted_at_its_version_only
    of_concurrent_writes_under_one_condition_one_wins
    readers_see_whole_files
    a_file_is_written_in_pieces_and_read_in_ranges
    a_file_with_a_new_mark_is_safe_from_who_holds_the_old_one
    pieces_that_end_in_an_error_leave_no_file
    of_concurrent_writers_of_pieces_one_wins
}
