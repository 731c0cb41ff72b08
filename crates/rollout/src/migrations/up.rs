//! Makes the pending changes of a migration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::plan;
use super::planned::{Consent, PlannedChange, ViewChange};
use super::{
    AppliedMigration, CatalogRecord, CollectionProblem, DeclarationAction, Declarations, Migration,
    MigrationError, Needs, RecordedView, StoreState, ViewSurvey, declarations, rows, state,
};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::Settings;
use evenkeel_model::{AccountName, CatalogOwner, ETag, TableName, ViewName, cause, limits};
use evenkeel_storage::{Account, Clock, IfMatch, Stores, TableOperation};

/// Maximum number of attempts if other migrations change the record first.
const ROUNDS: u32 = 10;
/// Maximum number of attempts while the service deletes an earlier resource of the same name. At 40
/// s each, they take ten minutes.
const WAITS: u32 = 15;

/// Compares the stores with the settings and the catalog, and makes the pending changes.
pub struct Migrator {
    pub(super) stores: Stores,
    clock: Arc<dyn Clock>,
    migrations: Vec<Migration>,
    needs: Needs,
    pub(super) catalog: Arc<Catalog>,
    owner: CatalogOwner,
    accepted: AcceptedLosses,
}

/// Views that may lose items when their definition changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptedLosses {
    Of(BTreeSet<ViewName>),
    /// Any view may lose items, so no sample is read.
    Any,
}

#[derive(Debug, Clone, Serialize)]
pub struct MigrationStatus {
    pub applied: Vec<AppliedMigration>,
    /// The number of the recorded catalog; 0 if none is recorded.
    pub generation: u32,
    pub views: BTreeMap<ViewName, RecordedView>,
    pub pending: Vec<PlannedChange>,
    /// Problems of collections that no migration repairs. Empty if they were not checked
    /// ([`indexes`](Migrator::indexes)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<CollectionProblem>,
    /// Findings in the data of the pending views. Empty if the data was not read
    /// ([`survey`](Migrator::survey)).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surveys: Vec<ViewSurvey>,
}

impl Migrator {
    pub fn new(
        stores: Stores,
        settings: &Settings,
        catalog: Arc<Catalog>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, MigrationError> {
        let migrations = Migration::all()?;
        let needs = Needs::of(settings, &catalog, &migrations);
        let (owner, accepted) = (
            settings.migrate.owner.clone(),
            AcceptedLosses::Of(BTreeSet::new()),
        );
        Ok(Self {
            stores,
            clock,
            migrations,
            needs,
            catalog,
            owner,
            accepted,
        })
    }

    #[must_use]
    pub fn accepting(self, accepted: AcceptedLosses) -> Self {
        Self { accepted, ..self }
    }

    pub const fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Returns the applied migrations and the pending changes. Sends only reads.
    pub async fn status(&self) -> Result<MigrationStatus, MigrationError> {
        let state = state::read_state(&self.stores, &self.needs).await?;
        let pending = plan::plan(
            &self.migrations,
            &self.needs,
            &state,
            &self.catalog,
            &self.owner,
        )?;
        Ok(MigrationStatus {
            applied: state.applied,
            generation: state.record.generation,
            views: state.record.views,
            pending,
            indexes: Vec::new(),
            surveys: Vec::new(),
        })
    }

    /// Declared tables that do not exist. Sends only requests that list the tables of each account.
    pub async fn missing_tables(
        &self,
    ) -> Result<BTreeSet<(AccountName, TableName)>, MigrationError> {
        let mut missing = BTreeSet::new();
        for (name, declared) in &self.needs.tables {
            let existing = state::tables(name, self.account(name)?).await?;
            missing.extend(
                declared
                    .difference(&existing)
                    .map(|table| (name.clone(), table.clone())),
            );
        }
        Ok(missing)
    }

    /// The pending changes that this consent allows. Returns an error if views would be retired or
    /// replaced without consent, or if existing items would be lost. Sends only reads.
    pub async fn pending(&self, consent: Consent) -> Result<Vec<PlannedChange>, MigrationError> {
        let pending = self.status().await?.pending;
        self.refuse_losses(&pending, &mut None).await?;
        self.refuse_unreachable(allowed(pending, consent)?)
    }

    /// Returns an error if the configured catalog is not the recorded one.
    pub async fn refuse_unrecorded(&self) -> Result<(), MigrationError> {
        self.own_record().await.map(drop)
    }

    /// The record, or an error if the configured catalog is not the recorded one.
    async fn own_record(&self) -> Result<CatalogRecord, MigrationError> {
        let record = self.catalog_record().await?;
        if self.is_recorded(&record)? {
            return Ok(record);
        }
        // If views would be retired or replaced, `pending` fails with an error that names them.
        self.pending(Consent::Additions).await?;
        Err(MigrationError::Unrecorded)
    }

    /// Like [`refuse_unrecorded`](Self::refuse_unrecorded), but also returns an error if recorded
    /// archives, retentions or rules differ from the catalog. New ones are allowed.
    pub async fn refuse_other_declarations(&self) -> Result<(), MigrationError> {
        let record = self.own_record().await?;
        let Some(recorded) = record.declarations.get(&self.owner) else {
            return Ok(());
        };
        let mut changes = declarations::changes(Some(recorded), &declarations::of(&self.catalog));
        changes.retain(|change| change.action != DeclarationAction::New);
        if changes.is_empty() {
            Ok(())
        } else {
            Err(MigrationError::OtherDeclarations(changes))
        }
    }

    pub fn is_recorded(&self, record: &CatalogRecord) -> Result<bool, MigrationError> {
        record.fits(&self.catalog, &self.owner)
    }

    /// Time until no worker can acknowledge jobs with an older catalog than the recorded one.
    pub async fn time_until_older_workers_end(&self) -> Result<Duration, MigrationError> {
        let number =
            state::recorded_number(self.account(&AccountName::main())?.tables.as_ref()).await?;
        if number.is_none_or(|number| number.first) {
            return Ok(Duration::ZERO);
        }
        Ok(super::LEASE_DURATION
            .saturating_sub(self.time_since_recorded().await?.unwrap_or_default()))
    }

    /// Makes the pending changes that the consent allows, and reports each when it is made. If a
    /// view would be retired or replaced without consent, or a changed view would lose existing
    /// items, no change is made. A migration can be repeated, and several processes may migrate at
    /// the same time.
    pub async fn up(
        &self,
        consent: Consent,
        mut done: impl FnMut(&PlannedChange),
    ) -> Result<(), MigrationError> {
        let mut unconfirmed: Vec<ViewChange> = Vec::new();
        let mut sampled = None;
        for _ in 0..ROUNDS {
            let state = state::read_state(&self.stores, &self.needs).await?;
            // These views were recorded after all: the answer was lost, or another process recorded
            // them.
            let recorded = unconfirmed
                .drain(..)
                .filter(|change| state.record.has_change(change));
            recorded
                .map(PlannedChange::RecordView)
                .for_each(|change| done(&change));
            let pending = plan::plan(
                &self.migrations,
                &self.needs,
                &state,
                &self.catalog,
                &self.owner,
            )?;
            self.refuse_losses(&pending, &mut sampled).await?;
            let pending = self.refuse_unreachable(allowed(pending, consent)?)?;
            if pending.is_empty() {
                return Ok(());
            }
            let (mut views, mut names, mut declared) = (Vec::new(), None, None);
            for change in pending {
                match change {
                    PlannedChange::RecordView(view) => views.push(view),
                    PlannedChange::RecordNames { .. } => names = Some(change),
                    PlannedChange::RecordDeclarations { .. } => declared = Some(change),
                    change => {
                        self.carry_out(&change).await?;
                        done(&change);
                    }
                }
            }
            if self.record(&state, &views, consent).await? {
                let views = views.into_iter().map(PlannedChange::RecordView);
                names
                    .into_iter()
                    .chain(views)
                    .chain(declared)
                    .for_each(|change| done(&change));
                return Ok(());
            }
            unconfirmed = views;
        }
        Err(MigrationError::Contended(ROUNDS))
    }

    /// Returns an error if changed views would lose existing items and the loss was not accepted.
    /// `sampled` holds the changes that the last check has sampled. If the changes are still the
    /// same, they are not sampled again.
    async fn refuse_losses(
        &self,
        pending: &[PlannedChange],
        sampled: &mut Option<Vec<PlannedChange>>,
    ) -> Result<(), MigrationError> {
        let AcceptedLosses::Of(accepted) = &self.accepted else {
            return Ok(());
        };
        if sampled.as_deref() == Some(pending) {
            return Ok(());
        }
        let mut losses = self.losses(pending).await?;
        losses.retain(|sample| !accepted.contains(&sample.view));
        *sampled = Some(pending.to_vec());
        if losses.is_empty() {
            Ok(())
        } else {
            Err(MigrationError::Losses(losses))
        }
    }

    /// Returns an error if a view has items in an account that is no longer configured.
    fn refuse_unreachable(
        &self,
        pending: Vec<PlannedChange>,
    ) -> Result<Vec<PlannedChange>, MigrationError> {
        let is_away = |account: &AccountName| self.stores.account(account).is_err();
        let left_behind = pending.iter().filter_map(|change| match change {
            PlannedChange::RecordView(view) if view.left.iter().any(is_away) => Some(view.clone()),
            _ => None,
        });
        let left_behind: Vec<ViewChange> = left_behind.collect();
        if left_behind.is_empty() {
            Ok(pending)
        } else {
            Err(MigrationError::LeftBehind(left_behind))
        }
    }

    pub async fn catalog_record(&self) -> Result<CatalogRecord, MigrationError> {
        state::catalog_record(self.stores.account(&AccountName::main())?.tables.as_ref()).await
    }

    /// ETag of the number of the recorded catalog; `None` if no catalog is recorded. Sends one
    /// request.
    pub async fn recorded_version(&self) -> Result<Option<ETag>, MigrationError> {
        let main = &self.account(&AccountName::main())?.tables;
        Ok(state::recorded_number(main.as_ref())
            .await?
            .map(|number| number.etag))
    }

    /// Time since the catalog was recorded, measured only by the table service's clock; `None` if
    /// no catalog is recorded. Sends three requests.
    pub async fn time_since_recorded(&self) -> Result<Option<Duration>, MigrationError> {
        let main = self.account(&AccountName::main())?.tables.as_ref();
        let action = || MigrationError::store("ask the table service for the time");
        let (table, mark) = (rows::table()?, rows::time_mark(self.clock.now())?);
        let key = mark.key.clone();
        main.apply(&table, &TableOperation::InsertOrReplace(mark))
            .await
            .map_err(action())?;
        let now = main
            .get(&table, &key, None)
            .await
            .map_err(action())?
            .and_then(|row| row.timestamp);
        let recorded = main
            .get(&table, &rows::generation_key()?, None)
            .await
            .map_err(action())?
            .and_then(|row| row.timestamp);
        let age = recorded
            .zip(now)
            .map(|(recorded, now)| now.timestamp().duration_since(recorded.timestamp()));
        Ok(age.map(|age| Duration::try_from(age).unwrap_or_default()))
    }

    /// Records that a view has items of a later generation, so that `migrate up` gives the view an
    /// even later one. Returns `false` if this generation, or a later one, was recorded before.
    pub async fn record_later_generation(
        &self,
        view: &ViewName,
        generation: u32,
    ) -> Result<bool, MigrationError> {
        let record = self.catalog_record().await?;
        let known = record
            .views
            .get(view)
            .map(|recorded| recorded.generation)
            .max(record.later_generations.get(view).copied());
        if known.is_some_and(|known| known >= generation) {
            return Ok(false);
        }
        let row = TableOperation::InsertOrMerge(rows::later_generation(
            view,
            generation,
            self.clock.now(),
        )?);
        let noted = self
            .account(&AccountName::main())?
            .tables
            .apply(&rows::table()?, &row)
            .await;
        noted.map_err(MigrationError::store(format!(
            "record generation {generation} of view {view}"
        )))?;
        Ok(true)
    }

    /// Makes a change, and waits while the service is still deleting an earlier resource of the same name.
    async fn carry_out(&self, change: &PlannedChange) -> Result<(), MigrationError> {
        for _ in 0..WAITS {
            let Err(error) = self.try_to_carry_out(change).await else {
                return Ok(());
            };
            let Some(wait) = error.retry_after() else {
                return Err(error);
            };
            tracing::warn!(
                %change, wait_seconds = wait.as_secs(), error = %cause::chain(&error),
                "{change}: the store asks to wait, probably because it is still deleting something of this name; retrying in {} s", wait.as_secs()
            );
            tokio::time::sleep(wait).await;
        }
        self.try_to_carry_out(change).await
    }

    async fn try_to_carry_out(&self, change: &PlannedChange) -> Result<(), MigrationError> {
        let action = MigrationError::store(change.to_string());
        match change {
            PlannedChange::CreateRecord { account } => {
                self.account(account)?
                    .tables
                    .create_table(&rows::table()?)
                    .await
                    .map_err(action)?;
            }
            PlannedChange::CreateTable { account, table } => {
                self.account(account)?
                    .tables
                    .create_table(table)
                    .await
                    .map_err(action)?;
            }
            PlannedChange::CreateQueue { account, queue } => {
                self.account(account)?
                    .queues
                    .create_queue(queue)
                    .await
                    .map_err(action)?;
            }
            PlannedChange::CreateContainer { account, container } => {
                self.account(account)?
                    .blobs
                    .create_container(container)
                    .await
                    .map_err(action)?;
            }
            PlannedChange::Apply {
                account, number, ..
            } => {
                let tables = &self.account(account)?.tables;
                let Some(migration) = self
                    .migrations
                    .iter()
                    .find(|migration| migration.number == *number)
                else {
                    return Ok(());
                };
                for table in &migration.tables {
                    tables
                        .create_table(&table.name)
                        .await
                        .map_err(MigrationError::store(change.to_string()))?;
                }
                let insert = TableOperation::Insert(rows::applied(migration, self.clock.now())?);
                match tables.apply(&rows::table()?, &insert).await {
                    Ok(_) => {}
                    // Another process applied this migration, or this process did and the answer
                    // was lost.
                    Err(error) if error.is_lost_race() => {}
                    Err(error) => return Err(action(error)),
                }
            }
            PlannedChange::DefineTable { sink, table, .. } => {
                let need = self.needs.collections.get(&(sink.clone(), table.clone()));
                let Some(need) = need else { return Ok(()) };
                self.stores
                    .sink(sink)?
                    .define(table, &need.fields)
                    .await
                    .map_err(action)?;
            }
            PlannedChange::RecordView(_)
            | PlannedChange::RecordNames { .. }
            | PlannedChange::RecordDeclarations { .. } => {}
        }
        Ok(())
    }

    /// Records views, names and declarations. Each transaction also raises the catalog's number, on
    /// condition that its ETag has not changed since it was read. If there is no number yet, the
    /// transaction inserts it. Returns `false` if another process was faster or the answer was
    /// lost. The next read of the record shows which of the two happened.
    async fn record(
        &self,
        state: &StoreState,
        views: &[ViewChange],
        consent: Consent,
    ) -> Result<bool, MigrationError> {
        let tables = &self.account(&AccountName::main())?.tables;
        let (mut generation, mut etag) = (state.record.generation, state.record.etag.clone());
        let first = state.is_fresh() && generation == 0;
        let (names, now) = (
            &self.catalog.names() - &state.record.names,
            self.clock.now(),
        );
        let names = names.iter().map(|name| rows::name(name, now));
        let rows = views
            .iter()
            .map(|change| rows::view(change, now))
            .chain(names);
        let mut rows: Vec<TableOperation> = rows
            .map(|row| row.map(TableOperation::InsertOrMerge))
            .collect::<Result<_, _>>()?;
        let recorded = state.record.declarations.get(&self.owner);
        let by_operator = consent >= Consent::Recovery || etag.is_none();
        let declared = declarations::next(recorded, declarations::of(&self.catalog), by_operator);
        // If the owner has no recorded declarations, an empty list is recorded only together with
        // views or names.
        let is_due = |declared: &Declarations| {
            recorded.map_or(!rows.is_empty() || !declared.is_empty(), |recorded| {
                recorded != declared
            })
        };
        if let Some(declared) = declared.filter(is_due) {
            rows.push(TableOperation::InsertOrReplace(rows::declarations(
                &self.owner,
                &declared,
                now,
            )?));
        }
        for chunk in rows.chunks(limits::TRANSACTION_OPERATIONS - 1) {
            generation += 1;
            let row = rows::generation(generation, first, now)?;
            let number = match etag {
                Some(etag) => TableOperation::Replace(row, IfMatch::Matches(etag)),
                None => TableOperation::Insert(row),
            };
            let mut operations = vec![number];
            operations.extend(chunk.iter().cloned());
            match tables
                .transact(&rows::table()?, &rows::catalog_partition()?, &operations)
                .await
            {
                Ok(etags) => etag = etags.into_iter().next().flatten(),
                Err(error) if error.may_have_lost() => return Ok(false),
                Err(error) => {
                    return Err(MigrationError::store(format!(
                        "record generation {generation} of the catalog"
                    ))(error));
                }
            }
        }
        Ok(true)
    }

    fn account(&self, name: &AccountName) -> Result<&Account, MigrationError> {
        Ok(self.stores.account(name)?)
    }
}

/// The pending changes that the consent allows. Returns an error if views would be retired or
/// replaced without consent. Pure.
fn allowed(
    mut pending: Vec<PlannedChange>,
    consent: Consent,
) -> Result<Vec<PlannedChange>, MigrationError> {
    let replaces = |change: &PlannedChange| match change {
        PlannedChange::RecordView(view) if change.needs() == Consent::Replacement => {
            Some(view.clone())
        }
        _ => None,
    };
    let replaced: Vec<ViewChange> = pending.iter().filter_map(replaces).collect();
    if consent < Consent::Replacement && !replaced.is_empty() {
        return Err(MigrationError::NeedsConsent(replaced));
    }
    pending.retain(|change| change.needs() <= consent);
    Ok(pending)
}
