//! The contract of shared files, on a file system and in the simulation.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the rule")]

use std::sync::Arc;

use evenkeel_account::{NoFaults, SimWorld};
use evenkeel_azure::files::SharedFiles;
use evenkeel_conformance::files::FilesFixture;
use evenkeel_model::AccountName;
use evenkeel_storage::system::SystemClock;

fn on_a_disk() -> FilesFixture {
    let folder = tempfile::tempdir().unwrap();
    FilesFixture {
        files: Arc::new(SharedFiles),
        dir: folder.path().to_str().unwrap().to_owned(),
        keep: Box::new(folder),
    }
}

fn simulated() -> FilesFixture {
    let world = SimWorld::new(
        AccountName::main(),
        Arc::new(SystemClock::new()),
        Arc::new(NoFaults),
    );
    FilesFixture {
        files: world.files(),
        dir: "/mnt/share".to_owned(),
        keep: Box::new(()),
    }
}

mod disk {
    evenkeel_conformance::files_suite!(
        (flavor = "multi_thread", worker_threads = 2),
        crate::contract::files::on_a_disk()
    );
}

mod sim {
    evenkeel_conformance::files_suite!(crate::contract::files::simulated());
}
