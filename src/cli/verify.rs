//! Verifies derived data without relying on footprints: reads every primary, derives its items
//! again, and compares them with the rows that exist.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use evenkeel_client::lists;
use evenkeel_model::catalog::{Catalog, Form, TableRef, View};
use evenkeel_model::item::{Owner, is_derived_within};
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::{self, Content, Item};
use evenkeel_model::range_overlay;
use evenkeel_model::shared::{self, OwnedProperties};
use evenkeel_model::{AccountName, ContainerName, Entity, ItemAddress, Part, Row, Site, ViewName};
use evenkeel_storage::wide;
use evenkeel_storage::{Query, Stores, all_blobs, all_rows, all_tables};

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) primaries: usize,
    /// Number of correct items.
    pub(super) right: usize,
    /// Items that should exist but do not.
    pub(super) missing: Vec<ItemAddress>,
    /// Items whose content is not the expected one.
    pub(super) different: Vec<ItemAddress>,
    /// Derived rows whose primary does not exist or does not derive them.
    pub(super) stale: Vec<(AccountName, Site)>,
    /// Items that are missing because another primary has their key.
    pub(super) taken: Vec<(Primary, ItemAddress)>,
}

impl Findings {
    /// Whether all items are correct, if items with taken keys are ignored.
    pub(super) const fn consistent(&self) -> bool {
        self.missing.is_empty() && self.different.is_empty() && self.stale.is_empty()
    }
}

pub(super) async fn verify(stores: &Stores, catalog: &Catalog) -> anyhow::Result<Findings> {
    let by_date = by_date(stores, catalog).await?;
    let of_one = catalog.views.values().map(|view| &view.source);
    let sources: BTreeSet<&TableRef> = of_one
        .chain(by_date.iter().filter(|table| catalog.has_views(table)))
        .collect();
    let mut tables = BTreeMap::new();
    let ranges = catalog.views.values().filter_map(|view| view.range());
    let overlays: BTreeSet<TableRef> = ranges
        .flat_map(|range| range.target.accounts.iter())
        .map(|account| TableRef {
            account: account.clone(),
            table: range_overlay::table(),
        })
        .collect();
    let named: Vec<TableRef> = catalog
        .targets()
        .flat_map(|target| target.tables().collect::<Vec<_>>())
        .collect();
    for table in named.iter().chain(&overlays).chain(&by_date) {
        let mut rows = scan(stores, table).await?;
        if catalog.wide.contains(table) {
            rows = wide::whole(rows);
        }
        let entities: Vec<Entity> = rows.into_iter().map(|row| row.entity).collect();
        tables.insert(table.clone(), entities);
    }
    let mut expected = Vec::new();
    let mut primaries = 0;
    for source in sources {
        for entity in tables
            .get(source)
            .into_iter()
            .flatten()
            .filter(|entity| !is_derived_within(&source.table, entity))
        {
            primaries += 1;
            let primary = Primary {
                table: source.table.clone(),
                key: entity.key.clone(),
            };
            expected.extend(
                patterns::derive(catalog, source, Some(entity))?
                    .items
                    .into_iter()
                    .map(|(address, item)| (primary.clone(), address, item)),
            );
        }
    }
    let mut found = DerivedItems::new();
    for (table, entities) in tables {
        for entity in entities {
            found.extend(derived(catalog, &table, entity)?);
        }
    }
    for view in catalog.views.values() {
        found.extend(in_blobs(stores, view).await?);
    }
    Ok(Findings {
        primaries,
        ..compare(expected, found)
    })
}

/// The existing dated tables: sources of views, and the tables to which their views write.
async fn by_date(stores: &Stores, catalog: &Catalog) -> anyhow::Result<BTreeSet<TableRef>> {
    let accounts: BTreeSet<&AccountName> = catalog
        .dated_views
        .values()
        .flat_map(|view| [Some(&view.source), view.rows().map(|rows| rows.target)])
        .flatten()
        .map(|tables| &tables.account)
        .collect();
    let mut found = BTreeSet::new();
    for account in accounts {
        let there = all_tables(stores.account(account)?.tables.as_ref()).await?;
        found.extend(
            there
                .iter()
                .filter_map(|table| catalog.table_by_date(table))
                .filter(|table| table.account == *account)
                .cloned(),
        );
    }
    Ok(found)
}

/// The location of an item: its row or blob, and the part of it that is the item. For a set of
/// properties, the location includes the name of the view, because several views may set properties
/// on one entity.
type ItemPlace = (AccountName, Site, Option<Part>, Option<ViewName>);
/// Derived items. Whole rows and sets of properties have their owner and content. Members of lists
/// and large values have neither: a member contains the keys of its primary, and the name of a
/// large value identifies it.
type DerivedItems = BTreeMap<ItemPlace, Option<(Owner, Entity)>>;

/// The derived items in a row.
fn derived(catalog: &Catalog, table: &TableRef, entity: Entity) -> anyhow::Result<DerivedItems> {
    let site = Site::Row {
        table: table.table.clone(),
        key: entity.key.clone(),
    };
    let mut found = DerivedItems::new();
    for view in catalog.views.values().filter(
        |view| matches!(view.form(), Form::Properties { rows, .. } if rows.target.has(table)),
    ) {
        let Some(owned) = OwnedProperties::read(&site, &entity, &view.name)? else {
            continue;
        };
        let values = owned
            .names
            .iter()
            .filter_map(|name| Some((name.clone(), entity.get(name)?.clone())))
            .collect();
        let owner = Owner {
            primary: owned.primary,
            view: view.name.clone(),
        };
        let place = (
            table.account.clone(),
            site.clone(),
            Some(Part::Properties),
            Some(view.name.clone()),
        );
        found.insert(
            place,
            Some((
                owner,
                Entity {
                    key: entity.key.clone(),
                    properties: values,
                },
            )),
        );
    }
    if !found.is_empty() {
        return Ok(found);
    }
    if let Some(owner) = Owner::of(&entity) {
        return Ok(DerivedItems::from([(
            (table.account.clone(), site, None, None),
            Some((owner, entity)),
        )]));
    }
    if !catalog
        .declared()
        .into_keys()
        .any(|view| shared::is_list_of(view, &entity))
    {
        return Ok(DerivedItems::new());
    }
    let list = lists::of_row(&site, &entity)?;
    let place = |member| {
        (
            table.account.clone(),
            site.clone(),
            Some(Part::Member(member)),
            None,
        )
    };
    Ok(list
        .members
        .into_keys()
        .map(|member| (place(member), None))
        .collect())
}

/// The derived items in the blobs of a view.
async fn in_blobs(stores: &Stores, view: &View) -> anyhow::Result<DerivedItems> {
    let mut found = DerivedItems::new();
    let (accounts, container) = match view.form() {
        Form::BlobLists(lists) => (lists.accounts.clone(), &lists.container),
        Form::Values(large) => (large.account.clone().into(), &large.container),
        Form::Copies { .. }
        | Form::Lists { .. }
        | Form::Properties { .. }
        | Form::RangeOverlays(_)
        | Form::Documents(_) => return Ok(found),
    };
    for account in accounts.iter() {
        found.extend(in_container(stores, view, account, container).await?);
    }
    Ok(found)
}

/// The derived items in the blobs of a view in one account.
async fn in_container(
    stores: &Stores,
    view: &View,
    account: &AccountName,
    container: &ContainerName,
) -> anyhow::Result<DerivedItems> {
    let mut found = DerivedItems::new();
    let stores = stores.account(account)?;
    for blob in all_blobs(stores.blobs.as_ref(), container, "").await? {
        let site = Site::Blob {
            container: container.clone(),
            name: blob.name.clone(),
        };
        if view.large().is_some() {
            found.insert((account.clone(), site, None, None), None);
            continue;
        }
        let Some(list) = lists::in_blob(stores, container, &blob.name).await? else {
            continue;
        };
        if *list.view() == view.name {
            let place = |member| {
                (
                    account.clone(),
                    site.clone(),
                    Some(Part::Member(member)),
                    None,
                )
            };
            found.extend(
                list.to_list()
                    .members
                    .into_keys()
                    .map(|member| (place(member), None)),
            );
        }
    }
    Ok(found)
}

fn compare(expected: Vec<(Primary, ItemAddress, Item)>, mut found: DerivedItems) -> Findings {
    let mut findings = Findings::default();
    let mut wanted = BTreeSet::new();
    for (primary, address, item) in expected {
        let set_by = (address.part == Some(Part::Properties)).then(|| address.view.clone());
        let place = (
            address.account.clone(),
            address.site.clone(),
            address.part.clone(),
            set_by,
        );
        match (found.get(&place), &item.content) {
            (None, _) => findings.missing.push(address),
            (Some(Some((owner, _))), _) if owner.primary != primary => {
                findings.taken.push((primary, address));
            }
            (Some(Some((_, entity))), Content::Row(wanted))
                if entity.properties != wanted.properties =>
            {
                findings.different.push(address);
            }
            (Some(Some((_, entity))), Content::Properties(wanted))
                if entity.properties != *wanted =>
            {
                findings.different.push(address);
            }
            (Some(_), _) => findings.right += 1,
        }
        wanted.insert(place);
    }
    found.retain(|place, _| !wanted.contains(place));
    findings.stale = found
        .into_keys()
        .map(|(account, site, ..)| (account, site))
        .collect();
    findings
}

pub(super) async fn scan(stores: &Stores, table: &TableRef) -> anyhow::Result<Vec<Row>> {
    let tables = &stores.account(&table.account)?.tables;
    all_rows(tables.as_ref(), &table.table, Query::default())
        .await
        .with_context(|| format!("could not read the table {table}"))
}
