//! The parts in which worlds differ: the catalog, the client's script, the parts that are throttled, and the final
//! checks.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use super::archives::ArchiveHistory;
use super::client::{ClientStep, MessageOptions};
use super::company_script;
use super::fault_plan::{self, Draw, FaultPlan, FaultScope, rng};
use super::history::History;
use super::oracle::{self, Judgement, Tables};
use super::releases::{self, Releases, ReleasesShape};
use super::sim_accounts::SimulatedAccounts;
use super::{archives, notes, patterns};
use evenkeel_account::SimWorld;
use evenkeel_account::company;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::{CollectionName, DocumentKey, Entity, EntityKey, SinkDocument};
use evenkeel_storage::{Blob, FilePlace, Service};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum World {
    /// Items in rows: copies, lists in rows, groups, properties on other entities, views of views, and an archive.
    #[default]
    Company,
    /// Items outside single rows: lists in blobs, large values, wide entities and ranges. Also moves, audits and
    /// backfills.
    Patterns,
    /// Archives: logs, documents and files of archived entities, and dated tables. Also documents of a search index.
    Archives,
    /// An operator who changes the catalog while workers run, and two accounts.
    Releases,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown world {0:?}: expected company, patterns, archives or releases")]
pub struct UnknownWorld(String);

impl World {
    pub const ALL: [Self; 4] = [
        Self::Company,
        Self::Patterns,
        Self::Archives,
        Self::Releases,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Company => "company",
            Self::Patterns => "patterns",
            Self::Archives => "archives",
            Self::Releases => "releases",
        }
    }

    pub(super) fn employees(self, seed: u64) -> Vec<EntityKey> {
        match self {
            Self::Company => company_script::employees(seed),
            Self::Patterns | Self::Archives | Self::Releases => Vec::new(),
        }
    }

    pub(super) const fn scopes(self) -> &'static [FaultScope] {
        match self {
            Self::Company => &fault_plan::SCOPES,
            Self::Patterns => &patterns::SCOPES,
            Self::Archives => &archives::SCOPES,
            Self::Releases => &releases::SCOPES,
        }
    }

    /// The services that may refuse everything for a while. `None` means all services at once.
    pub(super) const fn services(self) -> &'static [Option<Service>] {
        match self {
            Self::Company => &[None, Some(Service::Table), Some(Service::Queue)],
            Self::Patterns | Self::Releases => &[
                None,
                Some(Service::Table),
                Some(Service::Queue),
                Some(Service::Blob),
            ],
            Self::Archives => &[
                None,
                Some(Service::Table),
                Some(Service::Queue),
                Some(Service::Blob),
                Some(Service::Search),
            ],
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for World {
    type Err = UnknownWorld;

    fn from_str(name: &str) -> Result<Self, UnknownWorld> {
        Self::ALL
            .into_iter()
            .find(|world| world.name() == name)
            .ok_or_else(|| UnknownWorld(name.to_owned()))
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Setting {
    Company(company::Shape),
    Patterns(patterns::PatternsShape),
    Archives(archives::ArchivesShape),
    Releases(ReleasesShape),
}

pub(super) struct FinalState {
    pub(super) tables: Tables,
    pub(super) blobs: Blobs,
    pub(super) files: Vec<FilePlace>,
    pub(super) documents: BTreeMap<DocumentKey, SinkDocument>,
}

impl FinalState {
    pub(super) fn of(setting: &Setting, accounts: &SimulatedAccounts, world: &SimWorld) -> Self {
        let tables = accounts.tables(setting.tables());
        let blobs = setting
            .containers()
            .iter()
            .flat_map(|name| accounts.blobs(name));
        let documents = setting
            .index()
            .map(|(index, _)| world.documents(&index))
            .unwrap_or_default();
        Self {
            tables,
            blobs: blobs.collect(),
            files: world.places(),
            documents,
        }
    }
}

pub(super) type Blobs = BTreeMap<(String, String), Blob>;

impl Setting {
    pub(super) fn of(world: World, seed: u64, fault_plan: &FaultPlan) -> Self {
        match world {
            World::Company => Self::Company(fault_plan.shape),
            World::Patterns => Self::Patterns(patterns::PatternsShape::of(seed).with_bursts()),
            World::Archives => Self::Archives(archives::ArchivesShape::of(seed, fault_plan.storm)),
            World::Releases => Self::Releases(ReleasesShape::of(seed, fault_plan.shape)),
        }
    }

    /// All tables without a date in their name, including tables of footprints.
    pub(super) fn tables(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &company::TABLES,
            Self::Patterns(_) => &patterns::TABLES,
            Self::Archives(_) => &archives::TABLES,
            Self::Releases(shape) => shape.last().tables(),
        }
    }

    pub(super) const fn dated_tables(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => &[],
            Self::Archives(_) => &archives::ATTEMPTS,
        }
    }

    /// Whether clients write employees directly, and not only by jobs.
    pub(super) fn has_clients_that_write(&self) -> bool {
        match self {
            Self::Company(_) => true,
            Self::Patterns(shape) => shape.has_clients_that_write(),
            Self::Archives(_) => false,
            Self::Releases(shape) => shape.last().has_clients_that_write(),
        }
    }

    /// Whether a key that two primaries want belongs to the last writer.
    pub(super) fn has_last_writer(&self) -> bool {
        match self {
            Self::Company(shape) => shape.last_writer,
            Self::Patterns(_) | Self::Archives(_) => false,
            Self::Releases(shape) => shape.last().has_last_writer(),
        }
    }

    pub(super) fn containers(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &[],
            Self::Patterns(_) => &patterns::CONTAINERS,
            Self::Archives(_) => &archives::CONTAINERS,
            Self::Releases(shape) => shape.last().containers(),
        }
    }

    #[expect(clippy::expect_used, reason = "the constant is a valid name")]
    pub(super) fn index(&self) -> Option<(CollectionName, &'static [&'static str])> {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => None,
            Self::Archives(_) => Some((
                CollectionName::new(archives::INDEX).expect("a valid name"),
                &archives::FIELDS,
            )),
        }
    }

    pub(super) fn founded(&self) -> Vec<(&'static str, Entity)> {
        match self {
            Self::Company(_) => vec![("Departments", company::department())],
            Self::Patterns(_) => Vec::new(),
            Self::Archives(_) => archives::founded(),
            Self::Releases(shape) => shape.last().founded(),
        }
    }

    pub(super) fn releases(
        &self,
        seed: u64,
        fault_plan: &FaultPlan,
        steps: &[ClientStep],
    ) -> Option<Releases> {
        match self {
            Self::Releases(shape) => Some(Releases::of(seed, fault_plan, shape, steps)),
            Self::Company(_) | Self::Patterns(_) | Self::Archives(_) => None,
        }
    }

    pub(super) fn catalog(&self) -> Catalog {
        match self {
            Self::Company(shape) => company::catalog(*shape),
            Self::Patterns(shape) => patterns::catalog(*shape),
            Self::Archives(shape) => archives::catalog(*shape),
            Self::Releases(shape) => shape.last_catalog(),
        }
    }

    pub(super) const fn has_restless_teams(&self) -> bool {
        matches!(self, Self::Patterns(shape) if shape.is_restless())
    }

    /// The share of seeds in which one host is slow. The `releases` world makes hosts slow in its own way.
    pub(super) const fn slow_hosts(&self) -> f64 {
        match self {
            Self::Patterns(shape) if shape.is_restless() => 0.7,
            Self::Patterns(_) => 0.1,
            Self::Company(_) | Self::Archives(_) | Self::Releases(_) => 0.0,
        }
    }

    pub(super) const fn rushes(&self) -> bool {
        matches!(self, Self::Releases(shape) if shape.rushes())
    }

    pub(super) fn steps(&self, seed: u64, fault_plan: &FaultPlan) -> Vec<ClientStep> {
        let mut steps = self.script(seed, fault_plan);
        MessageOptions::vary(&mut steps, &Draw(&rng(seed, 9)), &fault_plan.rates);
        if matches!(self, Self::Company(_)) {
            let notes = notes::steps(seed, fault_plan, &steps);
            steps.extend(notes);
            steps.sort_by_key(|step| step.at);
        }
        steps
    }

    pub(super) fn script(&self, seed: u64, fault_plan: &FaultPlan) -> Vec<ClientStep> {
        match self {
            Self::Company(shape) => company_script::steps(seed, fault_plan, shape.crowd),
            Self::Patterns(shape) => patterns::steps(seed, fault_plan, *shape),
            Self::Archives(shape) => archives::steps(seed, fault_plan, *shape),
            Self::Releases(shape) => shape.script_setting().script(seed, fault_plan),
        }
    }

    /// Returns the history that judges each change of an entity in the `archives` world. Other worlds use [`History`]
    /// itself. `queues_off` is the offset of the queues' clock.
    pub(super) fn history(
        &self,
        steps: &[ClientStep],
        queues_off: SignedDuration,
    ) -> Option<Box<ArchiveHistory>> {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => None,
            Self::Archives(shape) => Some(Box::new(ArchiveHistory::new(
                archives::sent_contents(steps),
                *shape,
                queues_off,
            ))),
        }
    }

    pub(super) fn judge(
        &self,
        seen: &FinalState,
        excused: &patterns::Excused<'_>,
        history: &History,
        now: Timestamp,
    ) -> Result<Judgement, String> {
        match self {
            Self::Company(shape) => oracle::judge(&seen.tables, *shape),
            Self::Patterns(shape) => patterns::judge(seen, *shape, excused),
            Self::Archives(shape) => match &history.archives {
                Some(history) => archives::judge(seen, *shape, &excused.expired, history, now),
                None => Err("the history of the entities is missing".to_owned()),
            },
            Self::Releases(shape) => shape.last().judge(seen, excused, history, now),
        }
    }
}
