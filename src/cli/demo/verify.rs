//! Whether derived data is what it should be, found out from scratch: every primary is read, its items are
//! derived anew, and compared with every derived row that exists.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;

use crate::catalog::{Catalog, TableRef};
use crate::model::item::{Owner, is_derived_within};
use crate::model::job::Primary;
use crate::model::{Entity, EntityKey, ItemAddress, Row};
use crate::patterns::{self, Item};
use crate::ports::{Query, Stores};

/// What a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// How many primaries there are.
    pub(super) primaries: usize,
    /// How many items are as they should be.
    pub(super) right: usize,
    /// Items that should exist and do not.
    pub(super) missing: Vec<ItemAddress>,
    /// Items whose content is not what it should be.
    pub(super) different: Vec<ItemAddress>,
    /// Derived rows that nothing derives.
    pub(super) stale: Vec<(TableRef, EntityKey)>,
    /// Items that another primary has taken the key of.
    pub(super) taken: Vec<(Primary, ItemAddress)>,
}

impl Findings {
    /// Whether everything is as it should be, taken keys apart.
    pub(super) const fn consistent(&self) -> bool {
        self.missing.is_empty() && self.different.is_empty() && self.stale.is_empty()
    }
}

/// Compares all derived data with what it should be.
pub(super) async fn verify(stores: &Stores, catalog: &Catalog) -> anyhow::Result<Findings> {
    let sources: BTreeSet<&TableRef> = catalog.views.values().map(|view| &view.source).collect();
    let mut tables = BTreeMap::new();
    for table in catalog.tables.values() {
        let entities: Vec<Entity> = scan(stores, table).await?.into_iter().map(|row| row.entity).collect();
        tables.insert(table.clone(), entities);
    }
    let mut expected = Vec::new();
    let mut primaries = 0;
    for source in sources {
        for entity in tables.get(source).into_iter().flatten().filter(|entity| !is_derived_within(&source.table, entity)) {
            primaries += 1;
            let primary = Primary { table: source.table.clone(), key: entity.key.clone() };
            expected.extend(
                patterns::derive(catalog, source, Some(entity))?.into_iter().map(|(address, item)| (primary.clone(), address, item)),
            );
        }
    }
    let mut found = BTreeMap::new();
    for (table, entities) in tables {
        for entity in entities {
            if let Some(owner) = Owner::of(&entity) {
                found.insert((table.clone(), entity.key.clone()), (owner, entity));
            }
        }
    }
    Ok(Findings { primaries, ..compare(expected, found) })
}

fn compare(expected: Vec<(Primary, ItemAddress, Item)>, mut found: BTreeMap<(TableRef, EntityKey), (Owner, Entity)>) -> Findings {
    let mut findings = Findings::default();
    let mut wanted = BTreeSet::new();
    for (primary, address, item) in expected {
        let place = (TableRef { account: address.account.clone(), table: address.table.clone() }, address.key.clone());
        match found.get(&place) {
            None => findings.missing.push(address),
            Some((owner, _)) if owner.primary != primary => findings.taken.push((primary, address)),
            Some((_, entity)) if entity.properties != item.entity.properties => findings.different.push(address),
            Some(_) => findings.right += 1,
        }
        wanted.insert(place);
    }
    found.retain(|place, _| !wanted.contains(place));
    findings.stale = found.into_keys().collect();
    findings
}

/// Every row of a table.
pub(super) async fn scan(stores: &Stores, table: &TableRef) -> anyhow::Result<Vec<Row>> {
    let tables = &stores.account(&table.account)?.tables;
    let mut rows = Vec::new();
    let mut query = Query::default();
    loop {
        let page = tables.query(&table.table, &query).await.with_context(|| format!("reading the table {table}"))?;
        rows.extend(page.rows);
        match page.continuation {
            Some(next) => query.continuation = Some(next),
            None => return Ok(rows),
        }
    }
}
