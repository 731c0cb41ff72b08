//! Checks of runs without faults: derived data must be correct as soon as the jobs are done, before any recheck.

use std::collections::BTreeSet;

use super::shared_state::RunRecords;
use super::world::FinalState;
use evenkeel_engine::Recheck;
use evenkeel_model::{ItemAddress, Site};

pub(super) fn ran(records: &RunRecords) -> bool {
    records.faults.total() == 0 && records.ledger.redelivered == 0
}

/// Removes a large value from the final state if no row points to it and a recheck names it. A worker does not delete
/// such a value itself, because another pass may be about to write a pointer to it.
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
