//! One read-modify-write of a shared entity: a row, or a list in a blob.

use std::collections::{BTreeMap, BTreeSet};

use crate::env::memory::MemoryBudget;
use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::shared::blob::{BlobContent, ListBlob, StoredList, WriteResult};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::entity::EntityError;
use evenkeel_model::item::Owner;
use evenkeel_model::shared::{
    self, BlobList, ChangeOutcome, DocumentUpdate, List, ListFull, OwnedProperties, PartChange,
    SiteContent, UnreadableDocument,
};
use evenkeel_model::{
    AccountName, EdmValue, EntityKey, ItemAddress, Member, Part, Row, Site, TableName, ViewName,
    limits,
};
use evenkeel_storage::{Account, BlobCondition, ErrorClass, IfMatch, TableOperation};

pub(crate) struct SharedEntity<'e> {
    pub(crate) account: AccountName,
    pub(crate) site: Site,
    pub(crate) target: &'e Account,
    pub(crate) catalog: &'e Catalog,
    pub(crate) memory: &'e MemoryBudget,
}

#[derive(Debug, Clone)]
pub(crate) enum ChangeResult {
    Done,
    Lost,
    /// The outcome is unknown, and the write may still arrive. The caller must read the entity again.
    Unanswered,
    /// The change is impossible. If a write combines the changes of several passes, all of them get this failure.
    Failed(Failure),
}

/// The write that applies changes to a row, as part of a transaction.
pub(crate) struct PreparedWrite {
    pub(crate) operation: Option<TableOperation>,
    pub(crate) ended: Vec<ChangeOutcome>,
}

pub(super) enum RoundResult {
    Answered(Vec<ChangeResult>),
    Retry,
    Failed(Failure),
}

#[derive(Default)]
pub(crate) struct SharedContent {
    row: Option<Row>,
    /// The list in a blob, with the requested members only.
    list: Option<(ViewName, List)>,
    /// The blob exists, but is not a list of evenkeel.
    other: bool,
    pub(crate) owner: Option<Owner>,
    /// The count or an aggregate in the row does not match the list.
    pub(crate) behind: bool,
}

impl SharedContent {
    pub(crate) fn property_values(
        &self,
        address: &ItemAddress,
    ) -> Result<Option<BTreeMap<String, EdmValue>>, UnreadableDocument> {
        let (Some(row), Some(Part::Properties)) = (&self.row, &address.part) else {
            return Ok(None);
        };
        Ok(
            OwnedProperties::read(&address.site, &row.entity, &address.view)?
                .map(|owned| owned.values(&row.entity)),
        )
    }

    pub(crate) fn list_view(&self) -> Option<ViewName> {
        let in_row = || {
            self.row
                .as_ref()
                .and_then(|row| shared::list_view(&row.entity))
        };
        self.list
            .as_ref()
            .map(|(view, _)| view.clone())
            .or_else(in_row)
    }

    pub(crate) fn find(&self, address: &ItemAddress) -> Result<SiteContent, UnreadableDocument> {
        if address.site.row().is_some() {
            return shared::find(address, self.row.as_ref().map(|row| &row.entity));
        }
        Ok(match (&self.list, &address.part) {
            (Some((view, list)), Some(Part::Member(member))) if address.view == *view => list
                .members
                .get(member)
                .cloned()
                .map_or(SiteContent::Absent, SiteContent::Part),
            (None, _) if !self.other => SiteContent::Absent,
            _ => SiteContent::Foreign,
        })
    }
}

impl SharedEntity<'_> {
    pub(crate) fn turn(&self) -> (AccountName, Site) {
        (self.account.clone(), self.site.clone())
    }

    fn blob(&self) -> Option<ListBlob<'_>> {
        let (container, name) = self.site.blob()?;
        Some(ListBlob {
            blobs: self.target.blobs.as_ref(),
            container,
            name,
            memory: self.memory,
        })
    }

    fn unreadable(&self, error: UnreadableDocument) -> Failure {
        permanent(format!("reading {}", self.site), error)
    }

    pub(crate) async fn look(&self, addresses: &[&ItemAddress]) -> Result<SharedContent, Failure> {
        let Some(blob) = self.blob() else {
            let row = self.row().await?;
            let behind = row
                .as_ref()
                .map_or(Ok(false), |row| self.is_outdated_list(row, addresses))?;
            let owner = row.as_ref().and_then(|row| Owner::of(&row.entity));
            return Ok(SharedContent {
                row,
                owner,
                behind,
                ..SharedContent::default()
            });
        };
        Ok(match blob.read().await? {
            BlobContent::Absent => SharedContent::default(),
            BlobContent::Foreign(owner) => SharedContent {
                other: true,
                owner,
                ..SharedContent::default()
            },
            BlobContent::List(StoredList { list, .. }) => {
                let members = addresses
                    .iter()
                    .filter_map(|address| address.member())
                    .collect();
                SharedContent {
                    list: Some((list.view().clone(), list.only(&members))),
                    ..SharedContent::default()
                }
            }
        })
    }

    /// Whether another program has overwritten the count or an aggregate of the list that contains the given members.
    fn is_outdated_list(&self, row: &Row, addresses: &[&ItemAddress]) -> Result<bool, Failure> {
        let members = addresses
            .iter()
            .filter(|address| address.member().is_some());
        for view in members
            .map(|address| &address.view)
            .collect::<BTreeSet<_>>()
        {
            if shared::is_outdated_list(self.catalog, &self.site, view, &row.entity)
                .map_err(|error| self.unreadable(error))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) async fn members(&self, view: &ViewName) -> Result<Vec<Member>, Failure> {
        let Some(row) = self.row().await? else {
            return Ok(Vec::new());
        };
        shared::members(&self.site, view, &row.entity).map_err(|error| self.unreadable(error))
    }

    pub(crate) async fn prepare(&self, changes: &[PartChange]) -> Result<PreparedWrite, Failure> {
        let row = self.row().await?;
        let (becomes, ended) = self.changed(row.as_ref(), changes)?;
        Ok(PreparedWrite {
            operation: operation(becomes, row.as_ref(), self.table_and_key()?.1),
            ended,
        })
    }

    fn changed(
        &self,
        row: Option<&Row>,
        changes: &[PartChange],
    ) -> Result<(DocumentUpdate, Vec<ChangeOutcome>), Failure> {
        let step = || format!("changing {}", self.site);
        let changed = shared::change(
            self.catalog,
            &self.site,
            row.map(|row| &row.entity),
            changes,
        );
        let (becomes, ended) = changed.map_err(|error| permanent(step(), error))?;
        // Removals do not make the row larger, so they are allowed even if the row exceeds a limit.
        if let DocumentUpdate::Entity(entity) = &becomes
            && changes.iter().any(writes)
            && let Err(error) = entity.check()
        {
            let is_full = matches!(
                error,
                EntityError::TooManyProperties { .. } | EntityError::TooLarge { .. }
            );
            return Err(match shared::list_view(entity).filter(|_| is_full) {
                Some(view) => {
                    permanent(step(), ListFull::of(self.catalog, &view, error.to_string()))
                }
                None => permanent(step(), error),
            });
        }
        Ok((becomes, ended))
    }

    pub(super) async fn round(&self, changes: &[PartChange]) -> RoundResult {
        match self.attempt(changes).await {
            Ok(round) => round,
            Err(failure) => RoundResult::Failed(failure),
        }
    }

    async fn attempt(&self, changes: &[PartChange]) -> Result<RoundResult, Failure> {
        if let Some(blob) = self.blob() {
            return self.change_blob(&blob, changes).await;
        }
        let row = self.row().await?;
        let (becomes, ended) = self.changed(row.as_ref(), changes)?;
        let (table, key) = self.table_and_key()?;
        let Some(operation) = operation(becomes, row.as_ref(), key) else {
            return Ok(round(&WriteResult::Done, &ended));
        };
        let wrote = match self.target.tables.apply(table, &operation).await {
            Ok(_) => WriteResult::Done,
            Err(error) if error.is_lost_race() => WriteResult::Lost,
            Err(error) if error.class == ErrorClass::Ambiguous => WriteResult::Unanswered,
            Err(error) => return Err(storage(format!("writing {}", self.site), error)),
        };
        Ok(round(&wrote, &ended))
    }

    async fn change_blob(
        &self,
        blob: &ListBlob<'_>,
        changes: &[PartChange],
    ) -> Result<RoundResult, Failure> {
        // `_grant` is held until the list is written.
        let (before, condition, _grant) = match blob.read().await? {
            // The blob is not a list. Each write of a part gets the result `Lost`. Removals are done, because there is
            // nothing to remove.
            BlobContent::Foreign(_) => (None, BlobCondition::Absent, None),
            BlobContent::List(StoredList { list, etag, grant }) => {
                (Some(list), BlobCondition::Matches(etag), grant)
            }
            BlobContent::Absent => (self.new_list(changes), BlobCondition::Absent, None),
        };
        let Some(before) = before else {
            let end = |change: &PartChange| {
                if writes(change) {
                    ChangeResult::Lost
                } else {
                    ChangeResult::Done
                }
            };
            return Ok(RoundResult::Answered(changes.iter().map(end).collect()));
        };
        let (after, ended) = before.changed(changes);
        let Some(after) = after else {
            return Ok(round(&WriteResult::Done, &ended));
        };
        let wrote = match condition {
            BlobCondition::Matches(etag) if after.count() == 0 => blob.delete(&etag).await?,
            condition => {
                drop(before);
                let content = after.render();
                if content.len() as u64 > limits::LIST_BLOB_BYTES && changes.iter().any(writes) {
                    let problem = format!(
                        "it would have {} bytes, at most {} are allowed",
                        content.len(),
                        limits::LIST_BLOB_BYTES
                    );
                    return Err(permanent(
                        format!("changing {}", self.site),
                        ListFull::of(self.catalog, after.view(), problem),
                    ));
                }
                blob.write(&after, content, condition).await?
            }
        };
        Ok(round(&wrote, &ended))
    }

    fn new_list(&self, changes: &[PartChange]) -> Option<BlobList> {
        let view = &changes.iter().find(|change| writes(change))?.address.view;
        let source = self.catalog.views.get(view)?.source.table.clone();
        Some(BlobList::new(view.clone(), source))
    }

    async fn row(&self) -> Result<Option<Row>, Failure> {
        let (table, key) = self.table_and_key()?;
        let row = self.target.tables.get(table, key, None).await;
        row.map_err(|error| storage(format!("reading {}", self.site), error))
    }

    fn table_and_key(&self) -> Result<(&TableName, &EntityKey), Failure> {
        self.site
            .row()
            .ok_or_else(|| permanent(format!("reading {}", self.site), "expected a row"))
    }
}

const fn writes(change: &PartChange) -> bool {
    change.write.token().is_some()
}

fn round(wrote: &WriteResult, ended: &[ChangeOutcome]) -> RoundResult {
    let answer = |ended: &ChangeOutcome| match (ended, wrote) {
        (ChangeOutcome::Lost, _) => ChangeResult::Lost,
        (ChangeOutcome::Done, WriteResult::Unanswered) => ChangeResult::Unanswered,
        (ChangeOutcome::Done, WriteResult::Done | WriteResult::Lost) => ChangeResult::Done,
    };
    match wrote {
        WriteResult::Lost => RoundResult::Retry,
        WriteResult::Done | WriteResult::Unanswered => {
            RoundResult::Answered(ended.iter().map(answer).collect())
        }
    }
}

/// The table operation for an update; `None` if nothing changes. If no property is removed, a merge of the changed
/// properties is enough.
pub(crate) fn operation(
    becomes: DocumentUpdate,
    row: Option<&Row>,
    key: &EntityKey,
) -> Option<TableOperation> {
    let at = |row: &Row| IfMatch::Matches(row.etag.clone());
    match (becomes, row) {
        (DocumentUpdate::Unchanged, _) | (DocumentUpdate::Deleted, None) => None,
        (DocumentUpdate::Entity(entity), None) => Some(TableOperation::Insert(entity)),
        (DocumentUpdate::Entity(mut entity), Some(row)) => {
            let before = &row.entity.properties;
            if before
                .keys()
                .any(|name| !entity.properties.contains_key(name))
            {
                return Some(TableOperation::Replace(entity, at(row)));
            }
            entity
                .properties
                .retain(|name, value| before.get(name) != Some(value));
            Some(TableOperation::Merge(entity, at(row)))
        }
        (DocumentUpdate::Deleted, Some(row)) => Some(TableOperation::Delete(key.clone(), at(row))),
    }
}
