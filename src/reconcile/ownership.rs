//! Which items named by a footprint or a recheck can be this primary's (`patterns::Claimant` judges). Anything else is neither
//! looked at nor dropped: it was written by another program, or by an archive that is no longer declared.

use super::footprint::Footprint;
use super::pass::Pass;
use crate::catalog::ViewStatus;
use crate::model::ItemAddress;
use crate::patterns::{Claimant, Claimed};

impl Pass<'_> {
    /// Relation of an address to this primary.
    pub(super) fn claims(&self, address: &ItemAddress) -> Claimed {
        let catalog = &self.engine.catalog;
        Claimant { catalog, source: self.source, primary: &self.primary, folder: &self.folder }.judge(address)
    }

    /// A footprint without the items that cannot be this primary's.
    pub(super) fn disowned(&self, mut footprint: Footprint) -> Footprint {
        let catalog = &self.engine.catalog;
        let mut foreign = Vec::new();
        footprint.items.retain(|address, entry| {
            let status = catalog.generations.status(&address.view, entry.generation, catalog.declares(&address.view));
            // Items of a newer catalog are that catalog's to judge.
            let kept = status == ViewStatus::Newer || self.claims(address) != Claimed::Foreign;
            if !kept {
                foreign.push(address.clone());
            }
            kept
        });
        self.warn_of(&foreign, "footprint");
        footprint
    }

    /// Looks at nothing that cannot be this primary's.
    pub(super) fn disown_touched(&mut self) {
        let foreign: Vec<ItemAddress> = self.touched.iter().filter(|address| self.claims(address) == Claimed::Foreign).cloned().collect();
        self.touched.retain(|address| !foreign.contains(address));
        self.warn_of(&foreign, "recheck");
    }

    fn warn_of(&self, foreign: &[ItemAddress], record: &'static str) {
        let Some(first) = foreign.first() else { return };
        tracing::warn!(
            primary = %self.primary, record, count = foreign.len(), item = %first,
            "items ignored: they cannot be this primary's; nothing there is looked at or deleted"
        );
    }
}
