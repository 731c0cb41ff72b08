//! Which world is simulated. What differs from one to the other is data: the catalog, what the client does, what is throttled, and
//! who judges in the end; everybody else is the same.

use std::fmt;
use std::str::FromStr;

use super::client::Step;
use super::climate::{self, Climate, Lane};
use super::oracle::{self, Judgement, Tables};
use super::patterns;
use super::{company, company_script};
use crate::catalog::Catalog;
use crate::model::{Entity, EntityKey};
use crate::ports::{Blob, Service};

/// Which world is simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum World {
    /// Rows: copies, lists in rows, groups, properties on others, views of views, an archive.
    #[default]
    Company,
    /// What lies elsewhere: lists in blobs, large values, wide entities, ranges; and moves, audits, backfills.
    Patterns,
}

/// A world that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no world {0:?}: company or patterns")]
pub struct NoWorld(String);

impl World {
    /// Every world.
    pub const ALL: [Self; 2] = [Self::Company, Self::Patterns];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Company => "company",
            Self::Patterns => "patterns",
        }
    }

    /// The employees of a seed, where they are the same whatever its shape is.
    pub(super) fn employees(self, seed: u64) -> Vec<EntityKey> {
        match self {
            Self::Company => company_script::employees(seed),
            Self::Patterns => Vec::new(),
        }
    }

    /// What is throttled by itself.
    pub(super) const fn lanes(self) -> &'static [Lane] {
        match self {
            Self::Company => &climate::LANES,
            Self::Patterns => &patterns::LANES,
        }
    }

    /// The services that refuse for a while, all of them where there is none.
    pub(super) const fn services(self) -> &'static [Option<Service>] {
        match self {
            Self::Company => &[None, Some(Service::Table), Some(Service::Queue)],
            Self::Patterns => &[None, Some(Service::Table), Some(Service::Queue), Some(Service::Blob)],
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for World {
    type Err = NoWorld;

    fn from_str(name: &str) -> Result<Self, NoWorld> {
        Self::ALL.into_iter().find(|world| world.name() == name).ok_or_else(|| NoWorld(name.to_owned()))
    }
}

/// A world as one seed has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Setting {
    /// The company.
    Company(company::Shape),
    /// The patterns.
    Patterns(patterns::Shape),
}

/// What lies in the account in the end.
pub(super) struct Seen {
    /// Rows, by table.
    pub(super) tables: Tables,
    /// Blobs, by container and name.
    pub(super) blobs: Blobs,
}

/// Blobs, by container and name.
pub(super) type Blobs = std::collections::BTreeMap<(String, String), Blob>;

impl Setting {
    pub(super) fn of(world: World, seed: u64, climate: &Climate) -> Self {
        match world {
            World::Company => Self::Company(climate.shape),
            World::Patterns => Self::Patterns(patterns::Shape::of(seed)),
        }
    }

    /// Every table, footprints included.
    pub(super) const fn tables(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &company::TABLES,
            Self::Patterns(_) => &patterns::TABLES,
        }
    }

    /// Whether clients write entities themselves, and not by jobs alone.
    pub(super) const fn has_clients_that_write(&self) -> bool {
        match self {
            Self::Company(_) => true,
            Self::Patterns(shape) => shape.has_clients_that_write(),
        }
    }

    /// Whether the last of two who want one key has it.
    pub(super) const fn has_last_writer(&self) -> bool {
        match self {
            Self::Company(shape) => shape.last_writer,
            Self::Patterns(_) => false,
        }
    }

    /// Every container.
    pub(super) const fn containers(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &[],
            Self::Patterns(_) => &patterns::CONTAINERS,
        }
    }

    /// What is there before anything happens.
    pub(super) fn founded(&self) -> Vec<(&'static str, Entity)> {
        match self {
            Self::Company(_) => vec![("Departments", company::department())],
            Self::Patterns(_) => Vec::new(),
        }
    }

    pub(super) fn catalog(&self) -> Catalog {
        match self {
            Self::Company(shape) => company::catalog(*shape),
            Self::Patterns(shape) => patterns::catalog(*shape),
        }
    }

    /// What the client does, in order of time.
    pub(super) fn script(&self, seed: u64, climate: &Climate) -> Vec<Step> {
        match self {
            Self::Company(_) => company_script::steps(seed, climate),
            Self::Patterns(shape) => patterns::steps(seed, climate, *shape),
        }
    }

    /// Judges what lies there in the end.
    pub(super) fn judge(&self, seen: &Seen, excused: &patterns::Excused<'_>) -> Result<Judgement, String> {
        match self {
            Self::Company(shape) => oracle::judge(&seen.tables, *shape),
            Self::Patterns(shape) => patterns::judge(seen, *shape, excused),
        }
    }
}
