//! Items that are parts of an entity shared by many primaries: list members, and properties set on another entity.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::execute::{Action, Failure};
use crate::failure::{permanent, storage};
use crate::items::ItemFailure;
use crate::items::ItemOperation;
use crate::items::ItemStore;
use crate::items::LookContext;
use crate::items::LookResults;
use crate::items::WriteContext;
use crate::items::shared::{ChangeResult, SharedEntity};
use crate::protocol::observed_item;
use crate::protocol::scope::Scope;
use crate::protocol::steps::Write;
use evenkeel_model::patterns::Content;
use evenkeel_model::shared::{self, PartChange, PropertyChange, SiteContent};
use evenkeel_model::{AccountName, ETag, ItemAddress, Part, Site};

pub(super) struct PartStore<'a> {
    pub(super) account: &'a AccountName,
    pub(super) site: &'a Site,
}

pub(crate) fn document<'e>(
    scope: &Scope<'e>,
    account: &AccountName,
    site: &Site,
) -> Result<SharedEntity<'e>, Failure> {
    let (target, env) = (scope.target(account)?, scope.env);
    let (account, site, catalog, memory) =
        (account.clone(), site.clone(), &env.catalog, &env.memory);
    Ok(SharedEntity {
        account,
        site,
        target,
        catalog,
        memory,
    })
}

pub(crate) fn change(scope: &Scope<'_>, operation: ItemOperation<'_>) -> PartChange {
    let write = match operation {
        ItemOperation::Write(write) => shared::Edit::Put {
            over: write.over.clone(),
            token: write.content.token(scope.env.rng.next_u64()),
        },
        ItemOperation::Drop(_, token) => shared::Edit::Drop(token.clone()),
    };
    let property_change = |evicts, values| PropertyChange {
        primary: scope.primary.clone(),
        evicts,
        values,
    };
    let properties = match operation {
        ItemOperation::Write(Write {
            content: Content::Properties(values),
            evicts,
            ..
        }) => Some(property_change(evicts.clone(), values.clone())),
        ItemOperation::Drop(
            ItemAddress {
                part: Some(Part::Properties),
                ..
            },
            _,
        ) => Some(property_change(None, BTreeMap::new())),
        ItemOperation::Write(_) | ItemOperation::Drop(..) => None,
    };
    PartChange {
        address: operation.address().clone(),
        write,
        properties,
    }
}

#[async_trait]
impl ItemStore for PartStore<'_> {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<LookResults, Failure> {
        let sight = document(from.scope, self.account, self.site)?
            .look(addresses)
            .await?;
        let mut looked = LookResults::default();
        let list = sight.list_view();
        for address in addresses.iter().copied() {
            let unreadable = |error| permanent(format!("reading {}", self.site), error);
            let found = sight.find(address).map_err(unreadable)?;
            if sight.behind && matches!(found, SiteContent::Part(_)) {
                looked.behind.push(address.clone());
            }
            looked.property_values.extend(
                sight
                    .property_values(address)
                    .map_err(unreadable)?
                    .map(|values| (address.clone(), values)),
            );
            let owner = sight.owner.as_ref();
            let look =
                observed_item::of_part(address, &from.scope.primary, found, owner, list.as_ref());
            looked.observed.push((address.clone(), look));
        }
        Ok(looked)
    }

    async fn apply(
        &self,
        by: &WriteContext<'_, '_>,
        operations: &[ItemOperation<'_>],
    ) -> Vec<Result<Option<ETag>, ItemFailure>> {
        let document = match document(by.scope, self.account, self.site) {
            Ok(document) => document,
            Err(failure) => return vec![Err(ItemFailure::Failed(failure))],
        };
        let changes: Vec<PartChange> = operations
            .iter()
            .map(|operation| change(by.scope, *operation))
            .collect();
        let tokens: Vec<Option<ETag>> = changes
            .iter()
            .map(|change| change.write.token().cloned())
            .collect();
        let answers = by.scope.env.turns.change(&document, changes).await;
        let ended =
            operations
                .iter()
                .zip(tokens)
                .zip(answers)
                .map(|((operation, token), answer)| match answer {
                    ChangeResult::Done => Ok(token),
                    ChangeResult::Lost => Err(ItemFailure::Lost {
                        may_still_create: false,
                    }),
                    ChangeResult::Unanswered => {
                        let creates = matches!(operation.action(), Action::Create);
                        Err(ItemFailure::Lost {
                            may_still_create: creates,
                        })
                    }
                    ChangeResult::Failed(failure) => Err(ItemFailure::Failed(
                        failure.of_views([operation.address().view.clone()]),
                    )),
                });
        ended.collect()
    }

    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        _: Option<&ETag>,
    ) -> Result<bool, Failure> {
        // A list member has no content that could differ.
        let (Content::Properties(desired), Some((table, key))) = (&write.content, self.site.row())
        else {
            return Ok(false);
        };
        let row = scope
            .target(self.account)?
            .tables
            .get(table, key, None)
            .await;
        let row = row.map_err(|error| storage(format!("reading {}", write.address), error))?;
        let Some(found) = row.map(|row| row.entity.properties) else {
            return Ok(true);
        };
        Ok(desired
            .iter()
            .any(|(name, value)| found.get(name) != Some(value)))
    }
}
