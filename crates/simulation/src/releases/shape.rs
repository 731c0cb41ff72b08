//! The successive catalogs of a seed.

use std::sync::Arc;

use crate::fault_plan::{Draw, rng};
use crate::patterns;
use crate::world::Setting;
use evenkeel_account::company;
use evenkeel_account::company::Placement;
use evenkeel_account::company::abroad;
use evenkeel_model::catalog::{
    Archive, ArchiveTarget, BlobLists, Catalog, Form, LargeEntity, TableRef, TargetRef, View,
};

const MOST: usize = 4;

/// Fraction of the seeds in which many employees want the same key of a view, and the last writer gets the key.
const CROWDED: f64 = 0.06;

/// Fraction of the seeds with a rush: a release is made in the busiest hour.
const RUSHES: f64 = 0.5;
/// Fraction of the seeds with a rush in which the last release only adds a view.
const GROWS: f64 = 0.6;
/// Among the seeds with the entities of the `patterns` world, the fraction in which the last release only adds ranges.
const RANGED: f64 = 0.3;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReleasesShape {
    releases: [Release; MOST],
    count: usize,
    rushes: bool,
}

#[derive(Debug, Clone, Copy)]
enum Release {
    Company(company::Shape),
    Patterns(patterns::PatternsShape),
}

impl Release {
    /// The flags of the views that a release may have. The last flag is different: it gives some views their second
    /// definition.
    fn parts(&mut self) -> Vec<&mut bool> {
        match self {
            Self::Company(shape) => {
                let apart = shape.apart;
                let company::Shape {
                    former_index,
                    chain,
                    lists,
                    near,
                    sets,
                    groups,
                    anew,
                    ..
                } = shape;
                let near = Some(near).filter(|_| !apart);
                [
                    Some(former_index),
                    Some(chain),
                    Some(lists),
                    near,
                    Some(sets),
                    Some(groups),
                    Some(anew),
                ]
                .into_iter()
                .flatten()
                .collect()
            }
            Self::Patterns(shape) => {
                let wide = shape.is_wide();
                let [lists, near, groups, skilled, ranges, anew] = shape.parts();
                let ranges = Some(ranges).filter(|_| !wide);
                [
                    Some(lists),
                    Some(near),
                    Some(groups),
                    Some(skilled),
                    ranges,
                    Some(anew),
                ]
                .into_iter()
                .flatten()
                .collect()
            }
        }
    }

    const fn placement(&self) -> Placement {
        match self {
            Self::Company(shape) => shape.placement,
            Self::Patterns(shape) => shape.placement,
        }
    }

    const fn placed(&mut self) -> &mut Placement {
        match self {
            Self::Company(shape) => &mut shape.placement,
            Self::Patterns(shape) => &mut shape.placement,
        }
    }

    const fn setting(self) -> Setting {
        match self {
            Self::Company(shape) => Setting::Company(shape),
            Self::Patterns(shape) => Setting::Patterns(shape),
        }
    }

    fn grown(mut self, draw: &Draw<'_>) -> Self {
        let mut parts = self.parts();
        parts.pop();
        let absent: Vec<usize> = (0..parts.len()).filter(|part| !*parts[*part]).collect();
        if !absent.is_empty() {
            *parts[*draw.of(&absent)] = true;
        }
        self
    }

    /// Returns the next release. Half of the releases add views, and the others retire or redefine views.
    fn changed(mut self, draw: &Draw<'_>) -> Self {
        let adds = draw.happens(0.5);
        for _ in 0..=draw.below(2) {
            let mut parts = self.parts();
            let anew = parts.pop();
            let candidates: Vec<usize> = (0..parts.len())
                .filter(|part| *parts[*part] != adds)
                .collect();
            if !candidates.is_empty() && (adds || draw.happens(0.7)) {
                *parts[*draw.of(&candidates)] = adds;
            } else if let Some(anew) = anew {
                *anew = !*anew;
            }
        }
        self
    }
}

impl ReleasesShape {
    pub(crate) fn of(seed: u64, company: company::Shape) -> Self {
        let rng = rng(seed, 50);
        let draw = Draw(&rng);
        let count = 2 + draw.below(MOST - 1);
        let first = if draw.happens(0.5) {
            Release::Company(company)
        } else {
            Release::Patterns(patterns::PatternsShape::of(seed))
        };
        let first = if Draw(&self::rng(seed, 57)).happens(CROWDED) {
            Release::Company(company::Shape {
                crowd: true,
                last_writer: true,
                ..company
            })
        } else {
            first
        };
        let mut releases = [first; MOST];
        for n in 1..MOST {
            releases[n] = releases[n - 1].changed(&draw);
        }
        place(&mut releases, seed);
        let rng = self::rng(seed, 59);
        let draw = Draw(&rng);
        let rushes = draw.happens(RUSHES);
        if draw.happens(RANGED) {
            add_ranges(&mut releases, count);
        } else if rushes && draw.happens(GROWS) {
            releases[count - 1] = releases[count - 2].grown(&draw);
        }
        Self {
            releases,
            count,
            rushes,
        }
    }

    pub(crate) const fn rushes(&self) -> bool {
        self.rushes
            || matches!(self.releases[self.count - 1], Release::Patterns(shape) if shape.is_restless())
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    fn each(&self) -> impl Iterator<Item = &Release> {
        self.releases.iter().take(self.count)
    }

    pub(crate) fn script_setting(&self) -> Setting {
        match self.releases[0] {
            Release::Company(_) => self.releases[0].setting(),
            Release::Patterns(shape) => {
                let ranges = self.each().any(
                    |release| matches!(release, Release::Patterns(shape) if shape.has_ranges()),
                );
                Setting::Patterns(shape.with_ranges(ranges))
            }
        }
    }

    pub(crate) const fn last(&self) -> Setting {
        self.releases[self.count - 1].setting()
    }

    pub(crate) fn last_catalog(&self) -> Catalog {
        spread(
            self.last().catalog(),
            self.releases[self.count - 1].placement(),
        )
    }

    pub(crate) fn catalogs(&self) -> Vec<Arc<Catalog>> {
        self.each()
            .map(|release| Arc::new(spread(release.setting().catalog(), release.placement())))
            .collect()
    }
}

/// If the releases have the entities of the `patterns` world, adds ranges in the last release only, and lets teams
/// change often.
fn add_ranges(releases: &mut [Release; MOST], count: usize) {
    for nth in 0..count {
        if let Release::Patterns(shape) = releases[nth]
            && !shape.is_wide()
        {
            let last = nth + 1 == count;
            let before = if let Release::Patterns(before) = releases[nth.saturating_sub(1)] {
                before
            } else {
                shape
            };
            releases[nth] = Release::Patterns(
                if last { before } else { shape }
                    .with_ranges(last)
                    .with_restless_teams(),
            );
        }
    }
}

/// Sets the placement of each release. In half of the seeds, some releases spread items over both accounts, and
/// releases add and remove accounts.
fn place(releases: &mut [Release; MOST], seed: u64) {
    let rng = rng(seed, 55);
    let draw = Draw(&rng);
    let spreads = draw.happens(0.5);
    let mut placement = if spreads {
        *draw.of(&[Placement::Both, Placement::Fixed, Placement::Main])
    } else {
        Placement::Fixed
    };
    for release in releases {
        *release.placed() = placement;
        if spreads && draw.happens(0.7) {
            placement = *draw.of(&placement.others());
        }
    }
}

fn spread(mut catalog: Catalog, placement: Placement) -> Catalog {
    let home = |table: &mut TableRef| {
        table.account = evenkeel_account::company::account_of(table.table.as_str());
    };
    let target =
        |target: &mut TargetRef| target.accounts = placement.accounts(target.table.as_str());
    for (name, table) in std::mem::take(&mut catalog.tables) {
        let mut table = TargetRef::from(table);
        target(&mut table);
        if table.accounts.is_spread() {
            catalog.spread.insert(name, table);
        } else {
            catalog.tables.insert(name, table.first());
        }
    }
    catalog.wide = std::mem::take(&mut catalog.wide)
        .into_iter()
        .map(|mut table| (home(&mut table), table).1)
        .collect();
    for view in catalog.views.values_mut() {
        let mut moved = View::clone(view);
        home(&mut moved.source);
        moved.kind = moved.kind.map(&|table: &TargetRef| {
            let mut table = table.clone();
            target(&mut table);
            table
        });
        moved.kind = match moved.form() {
            Form::BlobLists(lists) => BlobLists {
                accounts: placement.accounts(lists.container.as_str()),
                ..lists.clone()
            }
            .into(),
            Form::Values(large) => LargeEntity {
                account: abroad(),
                ..large.clone()
            }
            .into(),
            Form::Copies { .. }
            | Form::Lists { .. }
            | Form::Properties { .. }
            | Form::RangeOverlays(_)
            | Form::Documents(_) => moved.kind,
        };
        *view = Arc::new(moved);
    }
    for archive in catalog.archives.values_mut() {
        let mut moved = Archive::clone(archive);
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
