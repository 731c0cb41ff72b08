//! The catalog: what the configuration declares about tables, derived data and archives. A
//! *primary* is an entity of a table that views derive from. An *item* is what a view derives from
//! one primary: a row, a blob, a member of a list, properties of another entity, or a document of a
//! sink.
//!
//! The catalog consists of plain values. `config` reads the catalog from TOML and checks all of it,
//! `patterns` derives items according to its views, and `reconcile` writes and deletes items
//! accordingly.

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
    /// Every source, target and declared table that is in one account, by name. The names are
    /// spelled as declared.
    pub tables: BTreeMap<TableName, TableRef>,
    /// The tables that are spread over several accounts, by name. Only views write to these tables.
    pub spread: BTreeMap<TableName, TargetRef>,
    /// The tables that have a section `[tables.X]`. Applications may keep entities in these tables.
    pub declared: BTreeSet<TableRef>,
    /// The tables whose entities may span several rows (`wide = true`).
    pub wide: BTreeSet<TableRef>,
    /// The encrypted properties of tables (`encrypt`).
    pub encrypted: BTreeMap<TableRef, BTreeSet<String>>,
    /// The conditions under which properties are encrypted (`when`), for the tables that declare a
    /// condition.
    pub encrypted_when: BTreeMap<TableRef, Condition>,
    /// The keyed hashes of encrypted properties (`hash`), by the property that holds the hash. Each
    /// template names one property.
    pub hashed: BTreeMap<TableRef, BTreeMap<String, Template>>,
    /// The views of single tables, by name.
    pub views: BTreeMap<ViewName, Arc<View>>,
    /// The views of dated tables, by name. `dated_views` and `views` have no name in common.
    pub dated_views: BTreeMap<ViewName, Arc<View<DatedRef>>>,
    /// The archives, by name.
    pub archives: BTreeMap<ViewName, Arc<Archive>>,
    /// The large values of archives that store documents, by the virtual table of each archive.
    pub archived_values: BTreeMap<TableName, ArchivedValues>,
    /// The retentions, by name.
    pub retentions: BTreeMap<ViewName, Arc<Retention>>,
    /// The rules, by name.
    pub rules: BTreeMap<ViewName, Arc<Rule>>,
    /// A cache of the dated tables that were looked up.
    pub dated: DatedTableCache,
    /// The recorded generations of the views.
    pub generations: Generations,
}

/// A job would write entities to a table that only views write to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "table {0} holds only rows of views. Change their primaries, or declare [tables.{0}] if applications keep entities there"
)]
pub struct ViewTableError(TableName);

impl Catalog {
    /// Finds a table by name, ignoring case: a table of this catalog, or the source of a retired
    /// view.
    pub fn table(&self, name: &TableName) -> Option<&TableRef> {
        let declared = self
            .tables
            .get(name)
            .or_else(|| self.dated_table(name))
            .or_else(|| self.following_table(name));
        declared.or_else(|| self.generations.retired_table(name))
    }

    /// Like [`table`](Self::table), but also finds a table that is spread over several accounts.
    pub fn target(&self, name: &TableName) -> Option<TargetRef> {
        self.spread
            .get(name)
            .cloned()
            .or_else(|| self.table(name).cloned().map(TargetRef::from))
    }

    /// Every table that the catalog names individually: first the tables in one account, then the
    /// tables in several accounts, each group sorted by name.
    pub fn targets(&self) -> impl Iterator<Item = TargetRef> {
        self.tables
            .values()
            .cloned()
            .map(TargetRef::from)
            .chain(self.spread.values().cloned())
    }

    /// Finds a table of a retention by name. The result is spelled like the pattern of the
    /// retention.
    pub fn dated_table(&self, name: &TableName) -> Option<&TableRef> {
        self.dated.source(name, || {
            self.retentions
                .values()
                .find_map(|retention| retention.table(name))
        })
    }

    /// Finds a target table of a view whose source is dated. The result is spelled like the pattern
    /// of the target.
    fn following_table(&self, name: &TableName) -> Option<&TableRef> {
        self.dated.follower(name, || {
            self.dated_views
                .values()
                .find_map(|view| view.rows()?.target.table(name))
        })
    }

    /// Finds a table of a retention, or a target table of its views, by name. The result is spelled
    /// like the pattern.
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

    /// Refuses a job that would write to a table that holds only rows of views. A view writes rows
    /// to such a table, and the table is not a source, an archive or a table of a retention. It
    /// also has no section `[tables.X]`, and no view sets properties on its entities.
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

    /// The tables that a job refers to; none if the job names an unknown archive or view.
    pub fn tables_of<'c>(&'c self, subject: JobSubject<'c>) -> Vec<&'c TableName> {
        let archive = |name| self.archives.get(name).map(|archive| &archive.source.table);
        let view = |name| self.views.get(name).map(|view| &view.source.table);
        match subject {
            JobSubject::Archived(name, _)
            | JobSubject::Restored(name, _)
            | JobSubject::Source(name) => archive(name).into_iter().collect(),
            JobSubject::View(name) => view(name).into_iter().collect(),
            JobSubject::Range(propagation) => view(&propagation.view)
                .into_iter()
                .chain(subject.tables())
                .collect(),
            named => named.tables(),
        }
    }

    /// The names that migrations record besides the names of views: archives, tables and patterns
    /// of dated tables.
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

    /// Whether a job refers to an archive or table that this catalog lacks, but that a recorded
    /// catalog has or had.
    pub fn is_of_other_catalog(&self, subject: JobSubject<'_>, recorded: &Generations) -> bool {
        match subject {
            JobSubject::Archived(name, _)
            | JobSubject::Restored(name, _)
            | JobSubject::Source(name) => {
                !self.archives.contains_key(name)
                    && recorded.names.contains(&format!("archive:{name}"))
            }
            // This catalog may lack the table, because the job of a range also deletes what a
            // retired view has set there.
            JobSubject::Range(_) => false,
            named => named.tables().into_iter().any(|name| {
                let knows = self.table(name).is_some() || self.archived_values.contains_key(name);
                !knows && recorded.names_table(name)
            }),
        }
    }

    /// Whether any recorded catalog names this table.
    pub fn has_recorded_table(&self, table: &TableName) -> bool {
        self.generations.names_table(table)
    }

    /// Whether there is a view of this name.
    pub fn declares(&self, view: &ViewName) -> bool {
        self.views.contains_key(view) || self.dated_views.contains_key(view)
    }

    /// All views by name, each with its kind and its source. The source is spelled as in the
    /// configuration.
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

    /// Finds a view by name. A view of dated tables is returned for the date of the table `target`.
    pub fn view_in(&self, name: &ViewName, target: &TableName) -> Option<&Arc<View>> {
        self.views.get(name).or_else(|| {
            let view = self.dated_views.get(name)?;
            let (begins, _) = view.rows()?.target.tables.period(target)?;
            self.dated_views_of(&view.source.at(begins))
                .iter()
                .find(|view| view.name == *name)
        })
    }

    /// Finds a view by name. A view of dated tables is returned for the date of the table at this
    /// site.
    pub fn view_at(&self, name: &ViewName, site: &Site) -> Option<&Arc<View>> {
        site.row().map_or_else(
            || self.views.get(name),
            |(table, _)| self.view_in(name, table),
        )
    }

    /// The dated table with the footprints of the primaries of `source`. `None` if these footprints
    /// are in the common table, for example because `source` is not dated.
    pub fn footprints_of(&self, source: &TableRef) -> Option<TableRef> {
        let retention = self.retention_of(&source.table)?;
        let (begins, _) = retention.tables.period(&source.table)?;
        Some(retention.footprints()?.at(begins))
    }

    /// The table with the footprints of the primaries of `source`.
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

    /// Whether the properties that the table declares as encrypted are encrypted in this entity:
    /// the table has no condition (`when`), or the entity satisfies the condition.
    pub fn encrypts(&self, table: &TableRef, entity: &Entity) -> bool {
        self.encrypted_when
            .get(table)
            .is_none_or(|when| when.holds(entity))
    }

    /// Reads the document of the entity with this key from an archive. Refuses a document that
    /// another declared archive wrote to the same location.
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

    /// The large values of the archive whose virtual table is `table`.
    pub fn archived_values_in(&self, table: &TableRef) -> Option<&ArchivedValues> {
        self.archived_values.get(&table.table)
    }

    /// The large values of an archive; `None` if the archive stores all values of an entity in its
    /// document.
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

    /// The view that declares the large values of this table or virtual table, and the location of
    /// the values.
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

    /// The properties of this table's entities that rules compare, or from which archives compute.
    /// The values of these properties are not moved to blobs, because nothing can be computed from
    /// a pointer.
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

    /// Whether primaries of this table have footprints: the table is or was the source of a view,
    /// or it is the virtual table of an archive.
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

    /// Whether a view derives items from this table, derived items from it in the past, or sets
    /// properties on a range of its entities.
    pub fn derives_from(&self, source: &TableRef) -> bool {
        self.has_views(source) || self.ranges_over(source).next().is_some()
    }

    /// A hash of the views of this table. The "settled" mark of a footprint is valid only while the
    /// hash stays the same.
    pub fn fingerprint(&self, source: &TableRef) -> String {
        digest(
            self.views_of(source)
                .map(|view| format!("{} {}", view.name, view.definition())),
        )
    }

    /// A hash of the views of this table and of the views that set properties on a range of its
    /// entities, with their generations. The result of an audit is valid only while the hash stays
    /// the same.
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
