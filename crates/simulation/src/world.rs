//! Which world is simulated. What differs from one to the other is data: the catalog, what the client does, what is throttled, and
//! who judges in the end; everybody else is the same.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};

use super::archives::ArchiveHistory;
use super::client::{ClientStep, Posting};
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

/// Which world is simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum World {
    /// Rows: copies, lists in rows, groups, properties on others, views of views, an archive.
    #[default]
    Company,
    /// What lies elsewhere: lists in blobs, large values, wide entities, ranges; and moves, audits, backfills.
    Patterns,
    /// What leaves: logs, documents and files of archived entities, tables by date; and documents of a search index.
    Archives,
    /// What an operator does to a running fleet: catalogs that follow each other, and two accounts.
    Releases,
}

/// A world that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no world {0:?}: company, patterns, archives or releases")]
pub struct NoWorld(String);

impl World {
    /// Every world.
    pub const ALL: [Self; 4] = [
        Self::Company,
        Self::Patterns,
        Self::Archives,
        Self::Releases,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Company => "company",
            Self::Patterns => "patterns",
            Self::Archives => "archives",
            Self::Releases => "releases",
        }
    }

    /// The employees of a seed, where they are the same whatever its shape is.
    pub(super) fn employees(self, seed: u64) -> Vec<EntityKey> {
        match self {
            Self::Company => company_script::employees(seed),
            Self::Patterns | Self::Archives | Self::Releases => Vec::new(),
        }
    }

    /// What is throttled by itself.
    pub(super) const fn lanes(self) -> &'static [FaultScope] {
        match self {
            Self::Company => &fault_plan::LANES,
            Self::Patterns => &patterns::LANES,
            Self::Archives => &archives::LANES,
            Self::Releases => &releases::LANES,
        }
    }

    /// The services that refuse for a while, all of them where there is none.
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
    type Err = NoWorld;

    fn from_str(name: &str) -> Result<Self, NoWorld> {
        Self::ALL
            .into_iter()
            .find(|world| world.name() == name)
            .ok_or_else(|| NoWorld(name.to_owned()))
    }
}

/// A world as one seed has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Setting {
    /// The company.
    Company(company::Shape),
    /// The patterns.
    Patterns(patterns::PatternsShape),
    /// The archives.
    Archives(archives::ArchivesShape),
    /// The releases.
    Releases(ReleasesShape),
}

/// What lies in the account in the end.
pub(super) struct FinalState {
    /// Rows, by table.
    pub(super) tables: Tables,
    /// Blobs, by container and name.
    pub(super) blobs: Blobs,
    /// Where files lie.
    pub(super) files: Vec<FilePlace>,
    /// The documents of the search index.
    pub(super) documents: BTreeMap<DocumentKey, SinkDocument>,
}

impl FinalState {
    /// What lies in the accounts now.
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

/// Blobs, by container and name.
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

    /// Every table that has no date, footprints included.
    pub(super) fn tables(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &company::TABLES,
            Self::Patterns(_) => &patterns::TABLES,
            Self::Archives(_) => &archives::TABLES,
            Self::Releases(shape) => shape.last().tables(),
        }
    }

    /// Every table by date that there is in the beginning.
    pub(super) const fn dated_tables(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => &[],
            Self::Archives(_) => &archives::ATTEMPTS,
        }
    }

    /// Whether clients write employees themselves, and not by jobs alone.
    pub(super) fn has_clients_that_write(&self) -> bool {
        match self {
            Self::Company(_) => true,
            Self::Patterns(shape) => shape.has_clients_that_write(),
            // They do, but none of these is an employee.
            Self::Archives(_) => false,
            Self::Releases(shape) => shape.last().has_clients_that_write(),
        }
    }

    /// Whether the last of two who want one key has it.
    pub(super) fn has_last_writer(&self) -> bool {
        match self {
            Self::Company(shape) => shape.last_writer,
            Self::Patterns(_) | Self::Archives(_) => false,
            Self::Releases(shape) => shape.last().has_last_writer(),
        }
    }

    /// Every container.
    pub(super) fn containers(&self) -> &'static [&'static str] {
        match self {
            Self::Company(_) => &[],
            Self::Patterns(_) => &patterns::CONTAINERS,
            Self::Archives(_) => &archives::CONTAINERS,
            Self::Releases(shape) => shape.last().containers(),
        }
    }

    /// The search index, and its fields.
    #[expect(clippy::expect_used, reason = "a constant, which every run uses")]
    pub(super) fn index(&self) -> Option<(CollectionName, &'static [&'static str])> {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => None,
            Self::Archives(_) => Some((
                CollectionName::new(archives::INDEX).expect("a name"),
                &archives::FIELDS,
            )),
        }
    }

    /// What is there before anything happens.
    pub(super) fn founded(&self) -> Vec<(&'static str, Entity)> {
        match self {
            Self::Company(_) => vec![("Departments", company::department())],
            Self::Patterns(_) => Vec::new(),
            Self::Archives(_) => archives::founded(),
            Self::Releases(shape) => shape.last().founded(),
        }
    }

    /// The releases, where there are any.
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

    /// The last catalog.
    pub(super) fn catalog(&self) -> Catalog {
        match self {
            Self::Company(shape) => company::catalog(*shape),
            Self::Patterns(shape) => patterns::catalog(*shape),
            Self::Archives(shape) => archives::catalog(*shape),
            Self::Releases(shape) => shape.last_catalog(),
        }
    }

    /// Whether teams of the patterns change all the time.
    pub(super) const fn has_restless_teams(&self) -> bool {
        matches!(self, Self::Patterns(shape) if shape.is_restless())
    }

    /// In which share of the seeds one host is slow, where it is not the releases that say so.
    pub(super) const fn slow_hosts(&self) -> f64 {
        match self {
            Self::Patterns(shape) if shape.is_restless() => 0.7,
            Self::Patterns(_) => 0.1,
            Self::Company(_) | Self::Archives(_) | Self::Releases(_) => 0.0,
        }
    }

    /// Whether a release falls into the busiest hour.
    pub(super) const fn rushes(&self) -> bool {
        matches!(self, Self::Releases(shape) if shape.rushes())
    }

    /// What the client does, in order of time, and how it sends each message.
    pub(super) fn steps(&self, seed: u64, fault_plan: &FaultPlan) -> Vec<ClientStep> {
        let mut steps = self.script(seed, fault_plan);
        Posting::vary(&mut steps, &Draw(&rng(seed, 9)), &fault_plan.rates);
        if matches!(self, Self::Company(_)) {
            let notes = notes::steps(seed, fault_plan, &steps);
            steps.extend(notes);
            steps.sort_by_key(|step| step.at);
        }
        steps
    }

    /// What the client does, in order of time.
    pub(super) fn script(&self, seed: u64, fault_plan: &FaultPlan) -> Vec<ClientStep> {
        match self {
            Self::Company(shape) => company_script::steps(seed, fault_plan, shape.crowd),
            Self::Patterns(shape) => patterns::steps(seed, fault_plan, *shape),
            Self::Archives(shape) => archives::steps(seed, fault_plan, *shape),
            Self::Releases(shape) => shape.lived_in().script(seed, fault_plan),
        }
    }

    /// What judges each change of an entity, where the company's history does not. `queues_off`: how far the clock of the queues is off.
    pub(super) fn history(
        &self,
        steps: &[ClientStep],
        queues_off: SignedDuration,
    ) -> Option<Box<ArchiveHistory>> {
        match self {
            Self::Company(_) | Self::Patterns(_) | Self::Releases(_) => None,
            Self::Archives(shape) => Some(Box::new(ArchiveHistory::new(
                archives::said(steps),
                *shape,
                queues_off,
            ))),
        }
    }

    /// Judges what lies there in the end, at this time.
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
                None => Err("nobody has judged what became of the entities".to_owned()),
            },
            Self::Releases(shape) => shape.last().judge(seen, excused, history, now),
        }
    }
}
