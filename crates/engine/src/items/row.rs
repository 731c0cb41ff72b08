use async_trait::async_trait;

use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::ItemOperation;
use crate::items::LookContext;
use crate::items::WholeItem;
use crate::items::WriteContext;
use crate::protocol::observed_item::{self, ObservedItem};
use crate::protocol::scope::Scope;
use crate::protocol::steps::Write;
use evenkeel_model::patterns::Content;
use evenkeel_model::{AccountName, ETag, EntityKey, ItemAddress, TableName, item};
use evenkeel_storage::{IfMatch, StoreError, TableOperation};

pub(super) struct RowStore<'a> {
    pub(super) account: &'a AccountName,
    pub(super) table: &'a TableName,
    pub(super) key: &'a EntityKey,
}

pub(super) fn operation(operation: ItemOperation<'_>) -> Option<TableOperation> {
    match operation {
        ItemOperation::Write(write) => {
            let Content::Row(entity) = &write.content else {
                return None;
            };
            Some(match &write.over {
                Some(etag) => {
                    TableOperation::Replace(entity.clone(), IfMatch::Matches(etag.clone()))
                }
                None => TableOperation::Insert(entity.clone()),
            })
        }
        ItemOperation::Drop(address, etag) if address.part.is_none() => {
            let (_, key) = address.site.row()?;
            Some(TableOperation::Delete(
                key.clone(),
                IfMatch::Matches(etag.clone()),
            ))
        }
        ItemOperation::Drop(..) => None,
    }
}

#[async_trait]
impl WholeItem for RowStore<'_> {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<ObservedItem>, Failure> {
        // Two properties are enough: they name the owner of the row. The item is the whole row, so no other content is
        // needed.
        let own = [
            item::SOURCE_PROPERTY.to_owned(),
            item::VIEW_PROPERTY.to_owned(),
        ];
        let row = from
            .scope
            .target(self.account)?
            .tables
            .get(self.table, self.key, Some(&own))
            .await;
        let row =
            row.map_err(|error| storage(format!("reading {}{}", self.table, self.key), error))?;
        Ok(addresses
            .iter()
            .map(|address| observed_item::of_row(address, &from.scope.primary, row.clone()))
            .collect())
    }

    async fn request(
        &self,
        by: &WriteContext<'_, '_>,
        item: ItemOperation<'_>,
    ) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let Some(operation) = operation(item) else {
            return Err(permanent(
                format!("writing {}", item.address()),
                "expected a row from its view",
            ));
        };
        Ok(by
            .scope
            .target(self.account)?
            .tables
            .apply(self.table, &operation)
            .await)
    }

    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        _: Option<&ETag>,
    ) -> Result<bool, Failure> {
        let Content::Row(desired) = &write.content else {
            return Ok(false);
        };
        let row = scope
            .target(self.account)?
            .tables
            .get(self.table, self.key, None)
            .await;
        let row = row.map_err(|error| storage(format!("reading {}", write.address), error))?;
        Ok(row.is_none_or(|row| row.entity.properties != desired.properties))
    }
}
