//! Runs without faults: derived data must be right as soon as the jobs are done.

use std::collections::BTreeSet;

use super::shared_state::RunRecords;
use super::world::FinalState;
use evenkeel_engine::Recheck;
use evenkeel_model::{ItemAddress, Site};

pub(super) fn ran(records: &RunRecords) -> bool {
    records.faults.total() == 0 && records.ledger.redelivered == 0
}

/// Removes values without a pointer that a recheck names. Another pass may have been about to point to them, so that
/// they are deliberately left to the recheck.
pub(super) fn forget_spared<'a>(seen: &mut FinalState, rechecks: impl Iterator<Item = &'a str>) {
    let items = rechecks
        .filter_map(|text| Recheck::decode_all(text).ok())
        .flatten()
        .flat_map(|recheck| recheck.items);
    let names = items
        .filter(ItemAddress::is_value)
        .filter_map(|item| match item.site {
            Site::Blob { name, .. } => Some(name.to_string()),
            _ => None,
        });
    let (spared, rows): (BTreeSet<String>, String) =
        (names.collect(), format!("{:?}", seen.tables));
    seen.blobs.retain(|(container, name), _| {
        !spared.contains(name) || rows.contains(&format!("{container}/{name}"))
    });
}
