//! Runs without faults. Derived data must be correct as soon as the jobs are done.

use std::collections::BTreeSet;

use super::shared_state::RunRecords;
use super::world::FinalState;
use evenkeel_engine::Recheck;
use evenkeel_model::{ItemAddress, Site};

pub(super) fn ran(records: &RunRecords) -> bool {
    records.faults.total() == 0 && records.ledger.redelivered == 0
}

/// Removes large values without a pointer from the final state if a recheck names them. Another pass may have been
/// about to write a pointer to such a value, so the value is deliberately left to the recheck.
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
