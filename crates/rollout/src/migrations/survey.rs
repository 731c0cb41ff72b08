//! Examines a sample of the data before views are recorded or retired. The result shows which items the
//! recorded and the new definition derive, and foreign rows in the tables of the views.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;

use super::planned::{PlannedChange, ViewAction, ViewChange};
use super::sample::{self, Sample};
use super::{MigrationError, Migrator};
use evenkeel_model::catalog::{Definition, Form, Source, TableRef, View};
use evenkeel_model::item::{SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::patterns;
use evenkeel_model::patterns::sample::{SampledTable, ViewSample, single_view_catalog};
use evenkeel_model::{Entity, ItemAddress, Site, TableName, ViewName};
use evenkeel_storage::{ErrorClass, Missing, Query, TableStore};

/// Maximum number of items whose keys are checked for foreign rows.
const KEYS: usize = 20;
/// Maximum number of rows of a table that are checked.
const ROWS: u32 = 100;
/// Number of point reads in flight.
const AT_ONCE: usize = 8;
/// Number of tables that are read at the same time.
const TABLES_AT_ONCE: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewSurvey {
    #[serde(flatten)]
    pub sample: ViewSample,
    /// Rows in the view's table that evenkeel did not write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub foreign: Option<ForeignRows>,
}

/// Rows in a view's table that evenkeel did not write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForeignRows {
    pub table: TableName,
    /// Number of keys of items that were checked.
    pub checked: u64,
    /// Number of these keys with a row that evenkeel did not write. Items with these keys cannot be
    /// written.
    pub taken: u64,
    pub example: String,
}

impl fmt::Display for ForeignRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            table,
            checked,
            taken,
            example,
        } = self;
        write!(
            f,
            "the table {table} holds rows that evenkeel did not write, such as {example}"
        )?;
        if *taken == 0 {
            return f.write_str(", under other keys than the view's items");
        }
        write!(f, ": {taken} of {checked} sampled keys are taken")
    }
}

impl ViewSurvey {
    pub fn warnings(&self) -> Vec<String> {
        let sample = self.sample.is_suspect().then(|| self.sample.to_string());
        let remedy = |foreign: &ForeignRows| match foreign.taken {
            0 => "",
            _ => {
                ". Items with these keys are not written: give the view its own table, or delete these rows"
            }
        };
        let foreign = self
            .foreign
            .as_ref()
            .map(|foreign| format!("view {}: {foreign}{}", self.sample.view, remedy(foreign)));
        sample.into_iter().chain(foreign).collect()
    }
}

struct SurveyedView {
    view: ViewName,
    source: Source,
    /// The recorded definition; `None` if the change cannot delete items.
    former: Option<Definition>,
}

impl Migrator {
    /// Surveys the views that these changes record or retire. Sends only reads.
    pub async fn survey(
        &self,
        pending: &[PlannedChange],
    ) -> Result<Vec<ViewSurvey>, MigrationError> {
        let subjects = pending.iter().filter_map(|change| match change {
            PlannedChange::RecordView(change) => Some(subject(change)),
            _ => None,
        });
        self.survey_all(subjects.collect()).await
    }

    /// Returns a sample for each changed view that would lose existing items.
    pub(super) async fn losses(
        &self,
        pending: &[PlannedChange],
    ) -> Result<Vec<ViewSample>, MigrationError> {
        let subjects = pending.iter().filter_map(|change| match change {
            PlannedChange::RecordView(change) if change.action != ViewAction::Retired => {
                Some(subject(change))
            }
            _ => None,
        });
        let subjects: Vec<SurveyedView> = subjects
            .filter(|subject| subject.former.is_some())
            .collect();
        let samples = self.samples(&subjects).await?;
        let compared = subjects
            .iter()
            .filter_map(|subject| Some(self.compare(subject, samples.get(&subject.source)?)));
        Ok(compared.filter(|sample| sample.loss).collect())
    }

    /// Surveys the catalog's views that have these sources. Sends only reads.
    pub async fn survey_views(
        &self,
        of: impl Fn(&Source) -> bool,
    ) -> Result<Vec<ViewSurvey>, MigrationError> {
        self.survey_with(&[], of).await
    }

    /// Like [`survey_views`](Self::survey_views), but a view that one of these changes affects is
    /// compared with its recorded definition.
    pub async fn survey_with(
        &self,
        pending: &[PlannedChange],
        of: impl Fn(&Source) -> bool,
    ) -> Result<Vec<ViewSurvey>, MigrationError> {
        let change = |view: &ViewName| {
            pending.iter().find_map(|change| match change {
                PlannedChange::RecordView(change) if change.view == *view => Some(subject(change)),
                _ => None,
            })
        };
        let declared = self
            .catalog
            .declared()
            .into_iter()
            .filter(|(_, (_, source))| of(source));
        let as_is = |view: &ViewName, source| SurveyedView {
            view: view.clone(),
            source,
            former: None,
        };
        let subjects =
            declared.map(|(view, (_, source))| change(view).unwrap_or_else(|| as_is(view, source)));
        self.survey_all(subjects.collect()).await
    }

    async fn survey_all(
        &self,
        subjects: Vec<SurveyedView>,
    ) -> Result<Vec<ViewSurvey>, MigrationError> {
        let (samples, mut surveys) = (self.samples(&subjects).await?, Vec::new());
        for subject in &subjects {
            let Some(sample) = samples.get(&subject.source) else {
                continue;
            };
            let foreign = self.foreign(subject, sample).await?;
            surveys.push(ViewSurvey {
                sample: self.compare(subject, sample),
                foreign,
            });
        }
        Ok(surveys)
    }

    async fn samples(
        &self,
        subjects: &[SurveyedView],
    ) -> Result<BTreeMap<Source, Sample>, MigrationError> {
        let sources: BTreeSet<&Source> = subjects.iter().map(|subject| &subject.source).collect();
        let read = |source: &Source| {
            let source = source.clone();
            async move {
                sample::read(&self.stores, &self.catalog, &source)
                    .await
                    .map(|sample| (source, sample))
            }
        };
        let reads: Vec<_> = sources.into_iter().map(read).collect();
        stream::iter(reads)
            .buffer_unordered(TABLES_AT_ONCE)
            .try_collect()
            .await
    }

    fn compare(&self, subject: &SurveyedView, sample: &Sample) -> ViewSample {
        let tables: Vec<_> = sample
            .tables
            .iter()
            .map(|(table, primaries)| {
                let former = subject
                    .former
                    .as_ref()
                    .and_then(|definition| former(subject, definition, table));
                (former, self.view_of(&subject.view, table), primaries)
            })
            .collect();
        let sampled: Vec<SampledTable<'_>> = tables
            .iter()
            .map(|(former, view, primaries)| SampledTable {
                former: former.as_ref(),
                view: view.as_deref(),
                primaries,
            })
            .collect();
        ViewSample::of(
            &subject.view,
            subject.source.declared_name(),
            sample.whole,
            &sampled,
        )
    }

    /// A view of the catalog, for one table of its source.
    fn view_of(&self, name: &ViewName, table: &TableRef) -> Option<std::sync::Arc<View>> {
        self.catalog
            .views_of(table)
            .find(|view| view.name == *name)
            .cloned()
    }

    async fn foreign(
        &self,
        subject: &SurveyedView,
        sample: &Sample,
    ) -> Result<Option<ForeignRows>, MigrationError> {
        let mut keys = Vec::new();
        let mut targets = Vec::new();
        for (table, primaries) in &sample.tables {
            let Some(view) = self.view_of(&subject.view, table) else {
                continue;
            };
            let rows = match view.form() {
                Form::Copies { rows, .. } | Form::Lists { rows, .. } => rows,
                // Properties and range overlays are written to rows of other owners, and the
                // remaining forms have no rows. So no row counts as foreign.
                Form::Properties { .. }
                | Form::RangeOverlays(_)
                | Form::BlobLists(_)
                | Form::Values(_)
                | Form::Documents(_) => return Ok(None),
            };
            targets.extend(rows.target.tables());
            keys.extend(items(&view, primaries));
        }
        let checks: Vec<_> = spread(&keys)
            .into_iter()
            .map(|item| self.is_foreign(item))
            .collect();
        let checked = checks.len() as u64;
        let checks: Vec<Result<Option<(TableName, String)>, MigrationError>> =
            stream::iter(checks).buffered(AT_ONCE).collect().await;
        let taken: Vec<_> = checks
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        if let Some((table, example)) = taken.first().cloned() {
            return Ok(Some(ForeignRows {
                table,
                checked,
                taken: taken.len() as u64,
                example,
            }));
        }
        for target in targets
            .iter()
            .filter(|target| self.catalog.refuse_view_table(target).is_err())
        {
            if let Some(example) = self.foreign_among_first(target).await? {
                return Ok(Some(ForeignRows {
                    table: target.table.clone(),
                    checked,
                    taken: 0,
                    example,
                }));
            }
        }
        Ok(None)
    }

    /// Reads the row at the key of an item. Returns the row's table and key if evenkeel did not
    /// write the row.
    async fn is_foreign(
        &self,
        item: &ItemAddress,
    ) -> Result<Option<(TableName, String)>, MigrationError> {
        let Some((table, key)) = item.site.row() else {
            return Ok(None);
        };
        let (tables, select) = (
            &self.stores.account(&item.account)?.tables,
            [VIEW_PROPERTY.to_owned()],
        );
        let row = match tables.get(table, key, Some(&select)).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => None,
            read => read.map_err(MigrationError::store(format!(
                "look for foreign rows in {table}"
            )))?,
        };
        Ok(row
            .filter(|row| row.entity.get(VIEW_PROPERTY).is_none())
            .map(|_| (table.clone(), key.to_string())))
    }

    /// Returns the key of a foreign row among the first rows of a table to which only views may
    /// write.
    async fn foreign_among_first(
        &self,
        target: &TableRef,
    ) -> Result<Option<String>, MigrationError> {
        let tables: &dyn TableStore = self.stores.account(&target.account)?.tables.as_ref();
        let select = Some(vec![VIEW_PROPERTY.to_owned(), SOURCE_PROPERTY.to_owned()]);
        let page = match tables
            .query(
                &target.table,
                &Query {
                    select,
                    top: Some(ROWS),
                    ..Query::default()
                },
            )
            .await
        {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                return Ok(None);
            }
            read => read.map_err(MigrationError::store(format!(
                "look for foreign rows in {target}"
            )))?,
        };
        let strange = page
            .rows
            .into_iter()
            .find(|row| row.entity.get(VIEW_PROPERTY).is_none());
        Ok(strange.map(|row| row.entity.key.to_string()))
    }
}

fn subject(change: &ViewChange) -> SurveyedView {
    // Only these changes can delete items.
    let former = match (change.action, &change.former) {
        (ViewAction::Changed | ViewAction::Claimed | ViewAction::Retired, Some(former)) => {
            Some(former.clone())
        }
        _ => None,
    };
    SurveyedView {
        view: change.view.clone(),
        source: change.source.clone(),
        former,
    }
}

/// The recorded view, for one table of its source.
fn former(subject: &SurveyedView, definition: &Definition, table: &TableRef) -> Option<View> {
    match &subject.source {
        Source::Table(source) => View::recorded(&subject.view, source, definition),
        Source::Dated(dated) => {
            let (begins, _) = dated.tables.period(&table.table)?;
            Some(View::recorded(&subject.view, dated, definition)?.at(begins))
        }
    }
}

/// Addresses of the rows that a view derives from some of these primaries.
fn items(view: &View, primaries: &[Entity]) -> Vec<ItemAddress> {
    let alone = single_view_catalog(view);
    let derived = spread(primaries)
        .into_iter()
        .filter_map(|primary| patterns::derive(&alone, &view.source, Some(primary)).ok());
    derived
        .flat_map(|derived| derived.items.into_keys())
        .filter(|item| matches!(item.site, Site::Row { .. }))
        .collect()
}

/// Evenly spaced elements of a list, at most [`KEYS`].
fn spread<T>(all: &[T]) -> Vec<&T> {
    let step = all.len().div_ceil(KEYS).max(1);
    all.iter().step_by(step).collect()
}
