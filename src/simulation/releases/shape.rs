//! Which catalogs follow each other in a seed.

use std::sync::Arc;

use crate::catalog::{ArchiveTarget, Catalog, TableRef, View, ViewKind};
use crate::model::AccountName;
use crate::simulation::climate::{Draw, chance};
use crate::simulation::company::{self, Shape};
use crate::simulation::realm;
use crate::simulation::world::Setting;

/// The most catalogs of a seed.
const MOST: usize = 4;

/// The catalogs of a seed, in their order.
#[derive(Debug, Clone, Copy)]
pub(in crate::simulation) struct ReleasesShape {
    shapes: [Shape; MOST],
    count: usize,
}

/// Views that come and go.
type Part = fn(&mut Shape) -> &mut bool;
const PARTS: [Part; 6] = [
    |shape| &mut shape.former_index,
    |shape| &mut shape.chain,
    |shape| &mut shape.lists,
    |shape| &mut shape.near,
    |shape| &mut shape.sets,
    |shape| &mut shape.groups,
];

impl ReleasesShape {
    /// What a seed stands for.
    pub(in crate::simulation) fn of(seed: u64, first: Shape) -> Self {
        let chance = chance(seed, 50);
        let draw = Draw(&chance);
        let count = 2 + draw.below(MOST - 1);
        let mut shapes = [first; MOST];
        for n in 1..MOST {
            shapes[n] = changed(shapes[n - 1], &draw);
        }
        Self { shapes, count }
    }

    /// How many catalogs there are.
    pub(in crate::simulation) const fn count(&self) -> usize {
        self.count
    }

    /// The world as it is under the first catalog.
    pub(in crate::simulation) const fn first(&self) -> Setting {
        Setting::Company(self.shapes[0])
    }

    /// The world as it is under the last one.
    pub(in crate::simulation) const fn last(&self) -> Setting {
        Setting::Company(self.shapes[self.count - 1])
    }

    /// The last catalog.
    pub(in crate::simulation) fn last_catalog(&self) -> Catalog {
        spread(self.last().catalog())
    }

    /// Each of the catalogs.
    pub(in crate::simulation) fn catalogs(&self) -> Vec<Arc<Catalog>> {
        self.shapes.iter().take(self.count).map(|shape| Arc::new(spread(company::catalog(*shape)))).collect()
    }
}

/// The next release: half of them only add.
fn changed(mut shape: Shape, draw: &Draw<'_>) -> Shape {
    let allowed = |part: Part, shape: &mut Shape| !(shape.apart && part(&mut Shape { near: false, ..*shape }) != part(shape));
    let adds = draw.happens(0.5);
    let candidates: Vec<Part> = PARTS.into_iter().filter(|part| allowed(*part, &mut shape) && *part(&mut shape) != adds).collect();
    for _ in 0..1 + draw.below(2) {
        match candidates.is_empty() {
            false if adds || draw.happens(0.7) => *draw.of(&candidates)(&mut shape) = adds,
            _ => shape.anew = !shape.anew,
        }
    }
    shape
}

/// The catalog, over two accounts.
fn spread(mut catalog: Catalog) -> Catalog {
    let home = |table: &mut TableRef| table.account = realm::account_of(table.table.as_str());
    catalog.tables.values_mut().for_each(home);
    for view in catalog.views.values_mut() {
        let mut moved = View::clone(view);
        home(&mut moved.source);
        match &mut moved.kind {
            ViewKind::SecondaryIndex(kind) => home(&mut kind.target),
            ViewKind::IndexEntity(kind) => home(&mut kind.target),
            ViewKind::Denormalize(kind) => home(&mut kind.target),
            ViewKind::DenormalizeRange(kind) => home(&mut kind.target),
            ViewKind::Aggregate(kind) => home(&mut kind.target),
            ViewKind::BlobLists(kind) => kind.account = abroad(),
            ViewKind::LargeEntity(kind) => kind.account = abroad(),
            ViewKind::SearchIndex(_) => {}
        }
        *view = Arc::new(moved);
    }
    for archive in catalog.archives.values_mut() {
        let mut moved = crate::catalog::Archive::clone(archive);
        home(&mut moved.source);
        match &mut moved.target {
            ArchiveTarget::Table(table) => home(table),
            ArchiveTarget::Blob(target) => target.account = abroad(),
            ArchiveTarget::Log(target) => target.account = abroad(),
            ArchiveTarget::File(_) => {}
        }
        *archive = Arc::new(moved);
    }
    catalog
}

fn abroad() -> AccountName {
    realm::abroad()
}
