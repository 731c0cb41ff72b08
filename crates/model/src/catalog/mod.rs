//! The catalog: which tables there are, what is derived from them, and where archives lie.
//!
//! Pure values. `config` reads it from TOML and checks it as a whole; `patterns` derives items by it;
//! `reconcile` keeps them.

mod archive;
mod clause;
mod declaration;
mod definition;
mod figure;
mod filing;
mod follow;
mod form;
mod generation;
mod kinds;
mod known;
mod place;
mod retention;
mod rule;
mod sealed;
mod view;

pub use archive::{Archive, ArchiveTarget, BlobTarget, FileTarget, LogTarget};
pub use clause::{Clause, Fact, Party, Read, RowPart, Rows, Tables, Term};
pub use definition::{Definition, KeyChange, RecordedSource};
pub use figure::{Figure, FigureError, contributed, properties as figure_properties};
pub use filing::{FILING_PREFIX, Filing, Shelf};
pub use follow::Followers;
pub use form::{Documents, Form, Members, RowForm};
pub use generation::{Generations, ViewStatus};
pub use kinds::*;
pub use known::DatedRefs;
pub use place::{AccountSet, DatedRef, Place, Source, SourcePlace, TableRef, TargetRef};
pub use retention::{FOOTPRINTS, Retention, TableArchive};
pub use rule::Rule;
pub use view::{OnConflict, View};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::condition::{Condition, TimedCondition};
use crate::document::{self, DocumentError};
use crate::job::{JobSubject, Operation as _};
use crate::template::Template;
use crate::{Entity, EntityKey, Site, TableName, ViewName, settled};

/// Everything that the configuration declares about data.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Every table that is a source, a target or declared and lies in one account, by name: where it lies, spelled as declared.
    pub tables: BTreeMap<TableName, TableRef>,
    /// The tables that lie in several accounts, by name. Views write them, and nobody else.
    pub spread: BTreeMap<TableName, TargetRef>,
    /// The tables that have a section of their own (`[tables.X]`): applications may keep entities there.
    pub declared: BTreeSet<TableRef>,
    /// The tables whose entities may lie over several rows (`wide = true`).
    pub wide: BTreeSet<TableRef>,
    /// The encrypted properties of tables (`encrypt`).
    pub encrypted: BTreeMap<TableRef, BTreeSet<String>>,
    /// The conditions under which they are sealed (`when`), of tables that have one.
    pub encrypted_when: BTreeMap<TableRef, Condition>,
    /// The keyed hashes of encrypted properties (`hash`), by the properties that hold them; each template has one property.
    pub hashed: BTreeMap<TableRef, BTreeMap<String, Template>>,
    /// The views of one table each, by name.
    pub views: BTreeMap<ViewName, Arc<View>>,
    /// The views of tables by date, by name; no name is among the others.
    pub dated_views: BTreeMap<ViewName, Arc<View<DatedRef>>>,
    /// The archives, by name.
    pub archives: BTreeMap<ViewName, Arc<Archive>>,
    /// Those of documents whose entities have large values, by the tables that these are primaries of.
    pub filings: BTreeMap<TableName, Filing>,
    /// The retentions, by name.
    pub retentions: BTreeMap<ViewName, Arc<Retention>>,
    /// The rules, by name.
    pub rules: BTreeMap<ViewName, Arc<Rule>>,
    /// The retentions' tables, as far as they were named.
    pub dated: DatedRefs,
    /// Which generation of each view this catalog is.
    pub generations: Generations,
}

/// A job that would write entities of a table that only views write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "table {0} holds only rows of views. Change their primaries, or declare [tables.{0}] if applications keep entities there."
)]
pub struct ViewTableError(TableName);

impl Catalog {
    /// A known table, in whatever case it is spelled: one that is declared, or that retired views were derived from.
    pub fn table(&self, name: &TableName) -> Option<&TableRef> {
        let declared = self
            .tables
            .get(name)
            .or_else(|| self.dated_table(name))
            .or_else(|| self.following_table(name));
        declared.or_else(|| self.generations.retired_table(name))
    }

    /// A known table that may be read, in whatever case it is spelled: also one that lies in several accounts.
    pub fn target(&self, name: &TableName) -> Option<TargetRef> {
        self.spread
            .get(name)
            .cloned()
            .or_else(|| self.table(name).cloned().map(TargetRef::from))
    }

    /// Every table that is named one by one, in the order of names: those of one account, then those of several.
    pub fn targets(&self) -> impl Iterator<Item = TargetRef> {
        self.tables
            .values()
            .cloned()
            .map(TargetRef::from)
            .chain(self.spread.values().cloned())
    }

    /// A table of a retention, spelled as its pattern does.
    pub fn dated_table(&self, name: &TableName) -> Option<&TableRef> {
        self.dated.source(name, || {
            self.retentions
                .values()
                .find_map(|retention| retention.table(name))
        })
    }

    /// A table that views fill from one of a retention, spelled as its pattern does.
    fn following_table(&self, name: &TableName) -> Option<&TableRef> {
        self.dated.follower(name, || {
            self.dated_views
                .values()
                .find_map(|view| view.rows()?.target.table(name))
        })
    }

    /// A table that comes and goes with a date, spelled as its pattern does.
    pub fn table_by_date(&self, name: &TableName) -> Option<&TableRef> {
        self.dated_table(name)
            .or_else(|| self.following_table(name))
    }

    /// The retention whose pattern has this table.
    pub fn retention_of(&self, name: &TableName) -> Option<&Retention> {
        self.retentions
            .values()
            .map(AsRef::as_ref)
            .find(|retention| retention.table(name).is_some())
    }

    /// The views whose source is this table, in order of their names.
    pub fn views_of(&self, source: &TableRef) -> impl Iterator<Item = &Arc<View>> {
        let of = source.clone();
        self.views
            .values()
            .filter(move |view| view.source == of)
            .chain(self.dated_views_of(source))
    }

    /// The views of a table by date.
    fn dated_views_of(&self, source: &TableRef) -> &[Arc<View>] {
        let of = |view: &View<DatedRef>| {
            view.source.account == source.account
                && view.source.tables.period(&source.table).is_some()
        };
        if !self.dated_views.values().any(|view| of(view)) {
            return &[];
        }
        self.dated.views(source, || {
            let at = |view: &View<DatedRef>| {
                view.source
                    .tables
                    .period(&source.table)
                    .map(|(begins, _)| view.at(begins))
            };
            self.dated_views
                .values()
                .filter(|view| of(view))
                .filter_map(|view| at(view))
                .map(Arc::new)
                .collect()
        })
    }

    /// Refuses jobs that write a table with rows that views make, and nothing else: it is no source, no archive, none of a retention, no
    /// view keeps properties on its entities, and it has no section of its own.
    pub fn refuse_view_table(&self, table: &TableRef) -> Result<(), ViewTableError> {
        let makes = |view: &Arc<View>| {
            view.sets().is_none() && view.rows().is_some_and(|rows| rows.target.has(table))
        };
        let follows = || {
            self.following_table(&table.table)
                .is_some_and(|following| following == table)
        };
        let made = self.views.values().any(makes) || follows();
        let sets = |view: &Arc<View>| view.sets().is_some_and(|(target, _)| target.has(table));
        let archives = |archive: &Arc<Archive>| {
            archive.source == *table || archive.target.table() == Some(table)
        };
        let is_refused = made
            && !self.declared.contains(table)
            && self.views_of(table).next().is_none()
            && self.dated_table(&table.table).is_none()
            && !self.views.values().any(sets)
            && !self.archives.values().any(archives);
        if is_refused {
            Err(ViewTableError(table.table.clone()))
        } else {
            Ok(())
        }
    }

    /// The tables that a job is about; none where it names an archive or a view that is not known.
    pub fn tables_of<'c>(&'c self, subject: JobSubject<'c>) -> Vec<&'c TableName> {
        let archive = |name| self.archives.get(name).map(|archive| &archive.source.table);
        let view = |name| self.views.get(name).map(|view| &view.source.table);
        match subject {
            JobSubject::Archived(name, _)
            | JobSubject::Restored(name, _)
            | JobSubject::Source(name) => archive(name).into_iter().collect(),
            JobSubject::View(name) => view(name).into_iter().collect(),
            JobSubject::Range(carry) => view(&carry.view)
                .into_iter()
                .chain(subject.tables())
                .collect(),
            named => named.tables(),
        }
    }

    /// The recorded names beside views: archives, tables, tables by date.
    pub fn names(&self) -> BTreeSet<String> {
        let archives = self.archives.keys().map(|name| format!("archive:{name}"));
        let tables = self.tables.keys().map(|name| format!("table:{name}"));
        let dated = self
            .retentions
            .values()
            .map(|retention| format!("table:{}", retention.tables));
        let filed = self.filings.keys().map(|name| format!("table:{name}"));
        archives.chain(tables).chain(dated).chain(filed).collect()
    }

    /// Whether a job is about an archive or a table of another recorded catalog alone, now or before, by what is recorded.
    pub fn lacks(&self, subject: JobSubject<'_>, recorded: &Generations) -> bool {
        match subject {
            JobSubject::Archived(name, _)
            | JobSubject::Restored(name, _)
            | JobSubject::Source(name) => {
                !self.archives.contains_key(name)
                    && recorded.names.contains(&format!("archive:{name}"))
            }
            // A view that is gone is cleared from a table that this catalog need not know.
            JobSubject::Range(_) => false,
            named => named.tables().into_iter().any(|name| {
                let knows = self.table(name).is_some() || self.filings.contains_key(name);
                !knows && recorded.names_table(name)
            }),
        }
    }

    /// Whether a recorded catalog has named a table, this one or another.
    pub fn has_named(&self, table: &TableName) -> bool {
        self.generations.names_table(table)
    }

    /// Whether there is a view of this name.
    pub fn declares(&self, view: &ViewName) -> bool {
        self.views.contains_key(view) || self.dated_views.contains_key(view)
    }

    /// The names of all views, in order, each with its kind and its source as the configuration spells them.
    pub fn declared(&self) -> BTreeMap<&ViewName, (&'static str, Source)> {
        let one = self.views.values().map(|view| {
            (
                &view.name,
                (view.kind_name(), Source::Table(view.source.clone())),
            )
        });
        let dated = self.dated_views.values().map(|view| {
            (
                &view.name,
                (view.kind_name(), Source::Dated(view.source.clone())),
            )
        });
        one.chain(dated).collect()
    }

    /// A view, as it is of the table that its rows lie in where that is one of many by date.
    pub fn view_in(&self, name: &ViewName, target: &TableName) -> Option<&Arc<View>> {
        self.views.get(name).or_else(|| {
            let view = self.dated_views.get(name)?;
            let (begins, _) = view.rows()?.target.tables.period(target)?;
            self.dated_views_of(&view.source.at(begins))
                .iter()
                .find(|view| view.name == *name)
        })
    }

    /// A view, as it is of the site that its lists lie at.
    pub fn view_at(&self, name: &ViewName, site: &Site) -> Option<&Arc<View>> {
        site.row().map_or_else(
            || self.views.get(name),
            |(table, _)| self.view_in(name, table),
        )
    }

    /// The table that keeps the footprints of a table's primaries, where it is one of its own.
    pub fn footprints_of(&self, source: &TableRef) -> Option<TableRef> {
        let retention = self.retention_of(&source.table)?;
        let (begins, _) = retention.tables.period(&source.table)?;
        Some(retention.footprints()?.at(begins))
    }

    /// The table that keeps the footprints of a source's primaries.
    pub fn footprint_table(&self, source: &TableRef) -> TableName {
        self.footprints_of(source)
            .map_or_else(settled::footprints, |footprints| footprints.table)
    }

    /// Finds out which archives of documents have entities with large values.
    #[must_use]
    pub fn filed(self) -> Self {
        Self {
            filings: Filing::all(self.archives.values(), &self.views),
            ..self
        }
    }

    /// Whether the encrypted properties of an entity of this table are sealed: its condition holds, or it has none.
    pub fn seals(&self, table: &TableRef, entity: &Entity) -> bool {
        self.encrypted_when
            .get(table)
            .is_none_or(|when| when.holds(entity))
    }

    /// Reads the document of the entity with this key in an archive. That of another declared archive is refused.
    pub fn archived(
        &self,
        archive: &Archive,
        content: &[u8],
        key: &EntityKey,
    ) -> Result<Entity, DocumentError> {
        let entity = document::decode(content, key)?;
        let others = self
            .archives
            .values()
            .filter(|other| other.name != archive.name);
        let others = others
            .filter(|other| other.target.may_meet(&archive.target, &entity.key))
            .map(|other| &other.source.table);
        document::refuse_anothers(&entity, &archive.source.table, others)?;
        Ok(entity)
    }

    /// The filing whose entities are primaries of this table.
    pub fn filing(&self, table: &TableRef) -> Option<&Filing> {
        self.filings.get(&table.table)
    }

    /// The filing of an archive: nothing where its entities have no large values beside a document.
    pub fn filing_of(&self, archive: &ViewName) -> Option<&Filing> {
        self.filings
            .values()
            .find(|filing| filing.archive == *archive)
    }

    /// The view that keeps large values of this table's primaries in blobs.
    pub fn large_values_of(&self, source: &TableRef) -> Option<(&ViewName, &LargeEntity)> {
        let mut views = self.views.values().filter(|view| view.source == *source);
        views.find_map(|view| Some((&view.name, view.large()?)))
    }

    /// Where large values of this table's primaries lie, or of an archive's documents, and the view that they are items of.
    pub fn shelf_of(&self, source: &TableRef) -> Option<(&ViewName, Shelf)> {
        if let Some(filing) = self.filing(source) {
            return Some((&filing.view, filing.shelf.clone()));
        }
        let (view, large) = self.large_values_of(source)?;
        Some((
            view,
            Shelf::Blobs {
                account: large.account.clone(),
                container: large.container.clone(),
            },
        ))
    }

    /// The properties of this table's entities that rules compare, or that metadata of archived documents are made of: their values stay in
    /// the rows, as do those that views compute from.
    pub fn computed_beside_views(&self, table: &TableRef) -> BTreeSet<String> {
        let archives = self
            .archives
            .values()
            .filter(|archive| archive.source == *table);
        let archived = archives
            .flat_map(|archive| archive.target.reads())
            .map(|read| read.property.to_owned());
        archived
            .chain(
                self.conditions_over(table)
                    .flat_map(TimedCondition::compared),
            )
            .collect()
    }

    /// The conditions of the rules about this table.
    fn conditions_over<'a>(
        &'a self,
        table: &'a TableRef,
    ) -> impl Iterator<Item = &'a TimedCondition> {
        let sweeps = self.rules.values().map(|rule| &rule.sweep);
        sweeps
            .filter(move |sweep| self.tables_of(sweep.subject()).contains(&&table.table))
            .filter_map(|sweep| sweep.when.as_ref())
    }

    /// Whether a primary of this table has footprints: a view has it as its source, or once had.
    pub fn has_views(&self, source: &TableRef) -> bool {
        self.views_of(source).next().is_some()
            || self.generations.retired_source(source)
            || self.filing(source).is_some()
    }

    /// The views that keep properties on ranges of this table's entities, in order of their names.
    pub fn ranges_over(&self, target: &TableRef) -> impl Iterator<Item = &Arc<View>> {
        let target = target.clone();
        self.views
            .values()
            .filter(move |view| view.range().is_some_and(|range| range.target.has(&target)))
    }

    /// Whether anything is derived from this table, or once was: a view has it as its source, or keeps properties on a range of it.
    pub fn derives_from(&self, source: &TableRef) -> bool {
        self.has_views(source) || self.ranges_over(source).next().is_some()
    }

    /// What a footprint's "settled" is tied to: changes whenever a view of this table does.
    pub fn fingerprint(&self, source: &TableRef) -> String {
        digest(
            self.views_of(source)
                .map(|view| format!("{} {}", view.name, view.definition())),
        )
    }

    /// The fingerprint of an audit of this table: changes whenever a view of it does, or one that keeps properties on a range of it, and with
    /// each new generation of one.
    pub fn audit_fingerprint(&self, source: &TableRef) -> String {
        let views = self.views_of(source).chain(self.ranges_over(source));
        digest(views.map(|view| {
            format!(
                "{} {} {}",
                self.generations.of(&view.name),
                view.name,
                view.definition()
            )
        }))
    }
}

/// A short hash of definitions.
fn digest(definitions: impl Iterator<Item = String>) -> String {
    let mut hash = Sha256::new();
    for definition in definitions {
        hash.update(definition);
        hash.update([0]);
    }
    hex::encode(&hash.finalize()[..8])
}
