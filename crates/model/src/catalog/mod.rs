//! The catalog: the tables, what is derived from them, and where they are archived.
//!
//! It consists of plain values. `config` reads it from TOML and checks it as a whole, `patterns`
//! derives items by it, and `reconcile` keeps the items in step.

mod aggregate_function;
mod archive;
mod archived_values;
mod clause;
mod dated_table_cache;
mod declaration;
mod definition;
mod encryption;
mod followers;
mod form;
mod generation;
mod kinds;
mod place;
mod retention;
mod rule;
mod view;

pub use aggregate_function::{
    AggregateFunction, AggregateFunctionError, encode_contribution,
    properties as aggregated_properties,
};
pub use archive::{Archive, ArchiveTarget, BlobTarget, FileTarget, LogTarget};
pub use archived_values::{ARCHIVE_TABLE_PREFIX, ArchivedValues, ValueLocation};
pub use clause::{
    Clause, Declaration, Fact, PropertyRead, Statement, Tables, WrittenPart, WrittenRows,
};
pub use dated_table_cache::DatedTableCache;
pub use definition::{Definition, KeyChange, RecordedSource};
pub use followers::Followers;
pub use form::{Documents, Form, Members, RowForm};
pub use generation::{Generations, ViewStatus};
pub use kinds::*;
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
    /// Every source, target and declared table that is in one account, by name and spelled as
    /// declared.
    pub tables: BTreeMap<TableName, TableRef>,
    /// The tables that are spread over several accounts, by name. Only views write to them.
    pub spread: BTreeMap<TableName, TargetRef>,
    /// The tables with a section of their own (`[tables.X]`). Applications may keep entities there.
    pub declared: BTreeSet<TableRef>,
    /// The tables whose entities may span several rows (`wide = true`).
    pub wide: BTreeSet<TableRef>,
    /// The encrypted properties of tables (`encrypt`).
    pub encrypted: BTreeMap<TableRef, BTreeSet<String>>,
    /// The conditions under which properties are encrypted (`when`), for tables that have one.
    pub encrypted_when: BTreeMap<TableRef, Condition>,
    /// The keyed hashes of encrypted properties (`hash`), by the properties that hold them; each template has one property.
    pub hashed: BTreeMap<TableRef, BTreeMap<String, Template>>,
    /// The views of single tables, by name.
    pub views: BTreeMap<ViewName, Arc<View>>,
    /// The views of dated tables, by name. No name is also in `views`.
    pub dated_views: BTreeMap<ViewName, Arc<View<DatedRef>>>,
    /// The archives, by name.
    pub archives: BTreeMap<ViewName, Arc<Archive>>,
    /// The archives that store documents with large values, by their virtual tables.
    pub archived_values: BTreeMap<TableName, ArchivedValues>,
    /// The retentions, by name.
    pub retentions: BTreeMap<ViewName, Arc<Retention>>,
    /// The rules, by name.
    pub rules: BTreeMap<ViewName, Arc<Rule>>,
    /// The dated tables that were named so far.
    pub dated: DatedTableCache,
    /// The recorded generations of the views.
    pub generations: Generations,
}

/// A job would write entities of a table that only views write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "table {0} holds only rows of views. Change their primaries, or declare [tables.{0}] if applications keep entities there"
)]
pub struct ViewTableError(TableName);

impl Catalog {
    /// A known table, in any case: a declared one, or the source of a retired view.
    pub fn table(&self, name: &TableName) -> Option<&TableRef> {
        let declared = self
            .tables
            .get(name)
            .or_else(|| self.dated_table(name))
            .or_else(|| self.following_table(name));
        declared.or_else(|| self.generations.retired_table(name))
    }

    /// A known table that can be read, in any case. It may be spread over several accounts.
    pub fn target(&self, name: &TableName) -> Option<TargetRef> {
        self.spread
            .get(name)
            .cloned()
            .or_else(|| self.table(name).cloned().map(TargetRef::from))
    }

    /// Every table that is named individually, sorted by name: first those in one account, then
    /// those in several.
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

    /// A table that views derive from one of a retention, spelled as its pattern does.
    fn following_table(&self, name: &TableName) -> Option<&TableRef> {
        self.dated.follower(name, || {
            self.dated_views
                .values()
                .find_map(|view| view.rows()?.target.table(name))
        })
    }

    /// A table of a retention or one that follows it, spelled as its pattern does.
    pub fn table_by_date(&self, name: &TableName) -> Option<&TableRef> {
        self.dated_table(name)
            .or_else(|| self.following_table(name))
    }

    /// The retention whose pattern matches this table.
    pub fn retention_of(&self, name: &TableName) -> Option<&Retention> {
        self.retentions
            .values()
            .map(AsRef::as_ref)
            .find(|retention| retention.table(name).is_some())
    }

    /// The views whose source is this table, sorted by name.
    pub fn views_of(&self, source: &TableRef) -> impl Iterator<Item = &Arc<View>> {
        let of = source.clone();
        self.views
            .values()
            .filter(move |view| view.source == of)
            .chain(self.dated_views_of(source))
    }

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

    /// Refuses a job that would write to a table of view rows. That is a table to which a view
    /// writes rows and which is not a source, an archive or a table of a retention, has no section
    /// of its own, and has no entities that a view sets properties on.
    pub fn refuse_view_table(&self, table: &TableRef) -> Result<(), ViewTableError> {
        let makes = |view: &Arc<View>| {
            view.set_properties().is_none()
                && view.rows().is_some_and(|rows| rows.target.has(table))
        };
        let follows = || {
            self.following_table(&table.table)
                .is_some_and(|following| following == table)
        };
        let made = self.views.values().any(makes) || follows();
        let sets = |view: &Arc<View>| {
            view.set_properties()
                .is_some_and(|(target, _)| target.has(table))
        };
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

    /// The tables that a job is about; none if it names an unknown archive or view.
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

    /// The names that migrations record besides views: archives, tables, patterns of dated tables.
    pub fn names(&self) -> BTreeSet<String> {
        let archives = self.archives.keys().map(|name| format!("archive:{name}"));
        let tables = self.tables.keys().map(|name| format!("table:{name}"));
        let dated = self
            .retentions
            .values()
            .map(|retention| format!("table:{}", retention.tables));
        let virtual_tables = self
            .archived_values
            .keys()
            .map(|name| format!("table:{name}"));
        archives
            .chain(tables)
            .chain(dated)
            .chain(virtual_tables)
            .collect()
    }

    /// Whether a job is only about an archive or a table of another recorded catalog, present or
    /// past.
    pub fn is_of_other_catalog(&self, subject: JobSubject<'_>, recorded: &Generations) -> bool {
        match subject {
            JobSubject::Archived(name, _)
            | JobSubject::Restored(name, _)
            | JobSubject::Source(name) => {
                !self.archives.contains_key(name)
                    && recorded.names.contains(&format!("archive:{name}"))
            }
            // A retired view is cleared from a table that this catalog may not know.
            JobSubject::Range(_) => false,
            named => named.tables().into_iter().any(|name| {
                let knows = self.table(name).is_some() || self.archived_values.contains_key(name);
                !knows && recorded.names_table(name)
            }),
        }
    }

    /// Whether any recorded catalog has named this table.
    pub fn has_recorded_table(&self, table: &TableName) -> bool {
        self.generations.names_table(table)
    }

    /// Whether there is a view of this name.
    pub fn declares(&self, view: &ViewName) -> bool {
        self.views.contains_key(view) || self.dated_views.contains_key(view)
    }

    /// All views by name, each with its kind and its source as the configuration spells them.
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

    /// A view by name. A view of dated tables is returned for the date of its target table
    /// `target`.
    pub fn view_in(&self, name: &ViewName, target: &TableName) -> Option<&Arc<View>> {
        self.views.get(name).or_else(|| {
            let view = self.dated_views.get(name)?;
            let (begins, _) = view.rows()?.target.tables.period(target)?;
            self.dated_views_of(&view.source.at(begins))
                .iter()
                .find(|view| view.name == *name)
        })
    }

    /// A view by name. A view of dated tables is returned for the date of the site.
    pub fn view_at(&self, name: &ViewName, site: &Site) -> Option<&Arc<View>> {
        site.row().map_or_else(
            || self.views.get(name),
            |(table, _)| self.view_in(name, table),
        )
    }

    /// The dated table with the footprints of a table's primaries, if these have one of their own.
    pub fn footprints_of(&self, source: &TableRef) -> Option<TableRef> {
        let retention = self.retention_of(&source.table)?;
        let (begins, _) = retention.tables.period(&source.table)?;
        Some(retention.footprints()?.at(begins))
    }

    /// The table with the footprints of a source's primaries.
    pub fn footprint_table(&self, source: &TableRef) -> TableName {
        self.footprints_of(source)
            .map_or_else(settled::footprints, |footprints| footprints.table)
    }

    /// Fills `archived_values` from the archives and views.
    #[must_use]
    pub fn with_archived_values(self) -> Self {
        Self {
            archived_values: ArchivedValues::all(self.archives.values(), &self.views),
            ..self
        }
    }

    /// Whether the encrypted properties of this entity are encrypted: its table has no condition,
    /// or it holds.
    pub fn encrypts(&self, table: &TableRef, entity: &Entity) -> bool {
        self.encrypted_when
            .get(table)
            .is_none_or(|when| when.holds(entity))
    }

    /// Reads the document of the entity with this key in an archive. Refuses a document that
    /// another declared archive has written to the same place.
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
            .filter(|other| other.target.may_share_place(&archive.target, &entity.key))
            .map(|other| &other.source.table);
        document::refuse_anothers(&entity, &archive.source.table, others)?;
        Ok(entity)
    }

    /// The archive of documents whose virtual table this is.
    pub fn archived_values_in(&self, table: &TableRef) -> Option<&ArchivedValues> {
        self.archived_values.get(&table.table)
    }

    /// The large values of an archive; `None` if its entities have none outside their documents.
    pub fn archived_values_of(&self, archive: &ViewName) -> Option<&ArchivedValues> {
        self.archived_values
            .values()
            .find(|archived| archived.archive == *archive)
    }

    /// The view that stores large values of this table's primaries in blobs.
    pub fn large_values_of(&self, source: &TableRef) -> Option<(&ViewName, &LargeEntity)> {
        let mut views = self.views.values().filter(|view| view.source == *source);
        views.find_map(|view| Some((&view.name, view.large()?)))
    }

    /// Where large values of this table or virtual table are stored, and the view whose items they
    /// are.
    pub fn value_location_of(&self, source: &TableRef) -> Option<(&ViewName, ValueLocation)> {
        if let Some(archived) = self.archived_values_in(source) {
            return Some((&archived.view, archived.location.clone()));
        }
        let (view, large) = self.large_values_of(source)?;
        Some((
            view,
            ValueLocation::Blobs {
                account: large.account.clone(),
                container: large.container.clone(),
            },
        ))
    }

    /// The properties of this table's entities that rules compare, or that archives compute from.
    /// Their values stay in the rows, like those that views compute from.
    pub fn computed_outside_views(&self, table: &TableRef) -> BTreeSet<String> {
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

    fn conditions_over<'a>(
        &'a self,
        table: &'a TableRef,
    ) -> impl Iterator<Item = &'a TimedCondition> {
        let sweeps = self.rules.values().map(|rule| &rule.sweep);
        sweeps
            .filter(move |sweep| self.tables_of(sweep.subject()).contains(&&table.table))
            .filter_map(|sweep| sweep.when.as_ref())
    }

    /// Whether primaries of this table have footprints: it is or was the source of a view.
    pub fn has_views(&self, source: &TableRef) -> bool {
        self.views_of(source).next().is_some()
            || self.generations.retired_source(source)
            || self.archived_values_in(source).is_some()
    }

    /// The views that set properties on ranges of this table's entities, sorted by name.
    pub fn ranges_over(&self, target: &TableRef) -> impl Iterator<Item = &Arc<View>> {
        let target = target.clone();
        self.views
            .values()
            .filter(move |view| view.range().is_some_and(|range| range.target.has(&target)))
    }

    /// Whether a view derives from this table, did so once, or sets properties on a range of it.
    pub fn derives_from(&self, source: &TableRef) -> bool {
        self.has_views(source) || self.ranges_over(source).next().is_some()
    }

    /// A hash of the views of this table. The "settled" mark of a footprint holds only for this
    /// hash.
    pub fn fingerprint(&self, source: &TableRef) -> String {
        digest(
            self.views_of(source)
                .map(|view| format!("{} {}", view.name, view.definition())),
        )
    }

    /// A hash of the views of this table and of those that set properties on a range of it, with
    /// their generations. An audit holds only for this hash.
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

fn digest(definitions: impl Iterator<Item = String>) -> String {
    let mut hash = Sha256::new();
    for definition in definitions {
        hash.update(definition);
        hash.update([0]);
    }
    hex::encode(&hash.finalize()[..8])
}
