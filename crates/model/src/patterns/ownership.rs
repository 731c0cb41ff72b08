//! Ownership: decides by the address of an item whether a primary can have the item.
//!
//! Footprints, rechecks and rows name items, and each of these may be forged. Some items name their
//! owner (`ek_source`, `ek_view`), but a file, a document of a sink and a member of a list do not.
//! Therefore the address is checked first (table, container, folder or index, and name or key): the
//! view must be able to derive an item with this address from the primary, in its present or an
//! earlier definition.

use crate::catalog::{
    ArchivedValues, BlobLists, Catalog, DenormalizeRange, Documents, Form, Members, TableRef,
    TargetRef, ValueLocation, View,
};
use crate::job::Primary;
use crate::large::ValueFolder;
use crate::range_overlay::{self, RangeOverlay};
use crate::template::{Template, escape};
use crate::{ItemAddress, Member, Part, Site, sink};

/// The relation between the address of an item and a primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// The current definition of the view may derive an item with this address from the primary.
    Present,
    /// An earlier definition of the view may have derived the item. The owner mark at the site
    /// decides.
    Former,
    /// No definition of the view can have derived an item with this address from the primary.
    Foreign,
}

/// Decides whether items can belong to one primary.
#[derive(Debug, Clone, Copy)]
pub struct OwnershipCheck<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// The table of the primary.
    pub source: &'a TableRef,
    /// The primary.
    pub primary: &'a Primary,
    /// The folder of the primary's large values.
    pub folder: &'a ValueFolder,
}

impl OwnershipCheck<'_> {
    /// Decides whether the item at an address can belong to the primary.
    pub fn judge(&self, address: &ItemAddress) -> Ownership {
        if let Some(archived) = self.catalog.archived_values_in(self.source) {
            return self.judge_archived(archived, address);
        }
        let generations = &self.catalog.generations;
        let declared = self
            .catalog
            .views_of(self.source)
            .find(|view| view.name == address.view);
        if declared.is_some_and(|view| self.is_made_by(view, address)) {
            return Ownership::Present;
        }
        let changed = self.catalog.declares(&address.view) && generations.of(&address.view) > 1;
        let retired = generations
            .retired
            .get(&address.view)
            .is_some_and(|(_, source)| source.has(self.source));
        // If the view is neither declared nor retired, this catalog may be outdated, so the item
        // must not count as foreign only because the view is unknown.
        let unknown = !self.catalog.declares(&address.view)
            && !generations.retired.contains_key(&address.view);
        if (changed || retired || unknown) && self.may_be_former(address) {
            Ownership::Former
        } else {
            Ownership::Foreign
        }
    }

    /// Decides whether a large value of an archived document can belong to the primary.
    fn judge_archived(&self, archived: &ArchivedValues, address: &ItemAddress) -> Ownership {
        match (&address.site, &archived.location) {
            (Site::File { dir, name }, ValueLocation::Files { account, dir: own }) => {
                let own = address.view == archived.view
                    && address.account == *account
                    && dir == own
                    && self.folder.has(name);
                if own && address.part.is_none() {
                    Ownership::Present
                } else {
                    Ownership::Foreign
                }
            }
            (Site::Blob { name, .. }, _) if address.part.is_none() => {
                if address.view == archived.view && self.folder.has(name) {
                    Ownership::Present
                } else {
                    Ownership::Former
                }
            }
            _ => Ownership::Foreign,
        }
    }

    /// Whether the current definition of a view may derive an item with this address from the
    /// primary.
    fn is_made_by(&self, view: &View, address: &ItemAddress) -> bool {
        // Any account of the target is accepted, and so is any key of a row, because the owner mark
        // at the site decides.
        let lies_in = |target: &TargetRef| {
            let table = address.site.row().map(|(table, _)| table);
            target.accounts.has(&address.account) && table == Some(&target.table)
        };
        let whole = address.part.is_none();
        let member = match &address.part {
            Some(Part::Member(member)) => Some(member),
            Some(Part::Properties) | None => None,
        };
        match view.form() {
            Form::Copies { rows, .. } => whole && lies_in(rows.target),
            Form::Properties { rows, .. } => {
                address.part == Some(Part::Properties) && lies_in(rows.target)
            }
            Form::Lists { rows, members } => member.is_some_and(|member| {
                lies_in(rows.target)
                    && match members {
                        Members::Rendered { templates, .. } => {
                            self.is_named_by(member, templates, &address.site)
                        }
                        Members::Contributions(_) => self.begins_with_keys(member),
                    }
            }),
            Form::BlobLists(lists) => {
                member.is_some_and(|member| self.is_in_list(lists, address, member))
            }
            Form::RangeOverlays(range) => {
                member.is_some_and(|member| self.is_range_overlay(view, range, address, member))
            }
            Form::Values(_) => {
                whole
                    && address
                        .site
                        .blob()
                        .is_some_and(|(_, name)| self.folder.has(name))
            }
            Form::Documents(documents) => whole && self.is_document(documents, address),
        }
    }

    fn is_in_list(&self, lists: &BlobLists, address: &ItemAddress, member: &Member) -> bool {
        let here = address
            .site
            .blob()
            .is_some_and(|(container, _)| *container == lists.container);
        here && lists.accounts.has(&address.account)
            && self.is_named_by(member, &lists.member, &address.site)
    }

    fn is_range_overlay(
        &self,
        view: &View,
        range: &DenormalizeRange,
        address: &ItemAddress,
        member: &Member,
    ) -> bool {
        let (Some((table, key)), Ok(overlay)) =
            (address.site.row(), RangeOverlay::from_member(member))
        else {
            return false;
        };
        let placed = *table == range_overlay::table()
            && *key
                == range_overlay::entity_key(&view.name, &overlay.range.table, &overlay.range.pk);
        let TableRef { account, table } = range.target.at(&overlay.range.pk);
        let in_target = overlay.range.table == table
            && overlay.range.account == account
            && address.account == account;
        placed && in_target && overlay.owner == self.primary.key
    }

    fn is_document(&self, documents: &Documents, address: &ItemAddress) -> bool {
        let own = Site::Document {
            collection: documents.collection.clone(),
            key: sink::key(self.primary),
        };
        address.account == documents.sink && address.site == own
    }

    fn is_named_by(&self, member: &Member, templates: &[Template], site: &Site) -> bool {
        let key = &self.primary.key;
        let at = |name: &str| {
            templates
                .iter()
                .position(|template| template.bare_property() == Some(name))
        };
        let names = |at: usize, key: &str| member.0.get(at).is_some_and(|text| text == key);
        let row = at("RowKey").is_some_and(|at| names(at, key.rk.as_str()));
        // A list in the primary's own partition may omit the partition key.
        let partition = match at("PartitionKey") {
            Some(at) => names(at, key.pk.as_str()),
            None => self.is_in_own_partition(site),
        };
        row && partition && member.0.len() == templates.len()
    }

    /// Whether a site is a row whose partition key is the escaped partition key of the primary.
    fn is_in_own_partition(&self, site: &Site) -> bool {
        let own = escape(self.primary.key.pk.as_str());
        site.row().is_some_and(|(_, list)| list.pk.as_str() == own)
    }

    fn begins_with_keys(&self, member: &Member) -> bool {
        let key = &self.primary.key;
        matches!(member.0.as_slice(), [pk, rk, ..] if pk == key.pk.as_str() && rk == key.rk.as_str())
    }

    /// Whether, judging by the address alone, an earlier definition of the view may have derived
    /// this item from the primary.
    fn may_be_former(&self, address: &ItemAddress) -> bool {
        let key = &self.primary.key;
        match (&address.site, &address.part) {
            (Site::File { .. }, _) => false,
            (Site::Document { key: document, .. }, _) => *document == sink::key(self.primary),
            (Site::Row { table, .. }, Some(Part::Member(member)))
                if *table == range_overlay::table() =>
            {
                RangeOverlay::from_member(member).is_ok_and(|overlay| overlay.owner == *key)
            }
            (site, Some(Part::Member(member))) => {
                let names = |key: &str| member.0.iter().any(|text| text == key);
                names(key.rk.as_str()) && (names(key.pk.as_str()) || self.is_in_own_partition(site))
            }
            (Site::Row { .. } | Site::Blob { .. }, None | Some(Part::Properties)) => true,
        }
    }
}
