//! Lists that outgrew their row: they lie in a blob, and the row says in which.
//!
//! The row keeps `ek_count`, `ek_view`, `ek_source`, `ek_list`, the figures of a group, and `ek_blob` (`container/name`) in place
//! of members and tokens. It is the fence: every move of a list out, back, or to another blob replaces the row at the ETag
//! that it was read at, and a list is where its row says.
//!
//! A blob's name is made for one move: `<view>/<hash of the row's key>/<mark of the row's ETag>-<random>`, behind
//! `~<table>/` for a table by date, with which it is dropped. A row goes back to no ETag, so
//! that a blob under its hash is in use (the row names it), may still be named (its mark is that of the row's present ETag), or
//! will never be named again: the name of a leftover blob tells which. A row with a new ETag can name none of those that were made before.

use sha2::{Digest as _, Sha256};

use super::blocks::BlockedList;
use super::list::{self, Description, List};
use super::{Nonsense, find};
use crate::catalog::{Catalog, ListSizes};
use crate::model::large::OWN_CONTAINERS;
use crate::model::{BlobName, ContainerName, ETag, Entity, ItemAddress, Member, Part, Site, TableName, ViewName, limits};

pub use super::list::COUNT;

/// The container of lists that outgrew their row, in the account of the row.
pub const CONTAINER: &str = OWN_CONTAINERS[2];
/// The property that says where the list lies.
const BLOB: &str = "ek_blob";

/// Where the list of a row lies, when it is not in the row itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// The view of the list.
    pub view: ViewName,
    /// The blob's container.
    pub container: ContainerName,
    /// The blob.
    pub name: BlobName,
}

impl Elsewhere {
    /// The location that a row names; `None` where it holds its list itself, or none.
    pub fn of(site: &Site, entity: &Entity) -> Result<Option<Self>, Nonsense> {
        let Some(blob) = entity.get(BLOB) else { return Ok(None) };
        let Some(view) = list::list_view(entity) else { return Ok(None) };
        let place = blob.as_str().and_then(|text| text.split_once('/'));
        let place = place.and_then(|(container, name)| Some((ContainerName::new(container).ok()?, BlobName::new(name).ok()?)));
        match place {
            Some((container, name)) => Ok(Some(Self { view, container, name })),
            None => Err(Nonsense { site: site.clone(), problem: format!("{BLOB} names no blob") }),
        }
    }
}

/// The row that points to its list in a blob. `all` are the members of a group, which its figures are made of.
pub fn pointing(
    catalog: &Catalog,
    site: &Site,
    entity: Entity,
    list: &BlockedList,
    (container, name): (&ContainerName, &BlobName),
) -> Result<Entity, Nonsense> {
    let description = Description::for_list(catalog, site, list.view(), Some(&entity))?;
    let entity = list::cleared(entity);
    let entity = list::described(entity, list.view(), &description, list.count(), &list.members().map(|(member, _)| member));
    Ok(entity.with(BLOB, format!("{container}/{name}")))
}

/// The row that holds its list itself again; `None` where there is no member left.
pub fn returned(catalog: &Catalog, site: &Site, entity: Entity, list: &BlockedList) -> Result<Option<Entity>, Nonsense> {
    if list.count() == 0 {
        return Ok(None);
    }
    let description = Description::for_list(catalog, site, list.view(), Some(&entity))?;
    let mut entity = list.to_list().write(entity, list.view(), &description);
    entity.properties.remove(BLOB);
    Ok(Some(entity))
}

/// The list that a row holds, as one that can lie in a blob; `None` where it holds none.
pub fn moved_out(catalog: &Catalog, site: &Site, entity: &Entity) -> Result<Option<BlockedList>, Nonsense> {
    let (Some(view), Some(description)) = (list::list_view(entity), Description::read(entity)) else { return Ok(None) };
    Ok(Some(BlockedList::of(view, description.source, List::read(site, entity)?).in_blocks_of(catalog.list_sizes.block_bytes)))
}

/// Whether all members have to be read when one changes: figures are made of all of them.
pub fn needs_all(catalog: &Catalog, site: &Site, entity: &Entity, view: &ViewName) -> Result<bool, Nonsense> {
    Ok(!Description::for_list(catalog, site, view, Some(entity))?.figures.is_empty())
}

/// Whether an entity can be stored: by the limits that both services have, in JSON and as Azure counts.
pub fn fits(entity: &Entity, sizes: ListSizes) -> bool {
    entity.check().is_ok() && entity.stored_bytes() <= sizes.row_bytes
}

/// Whether a list may return into its row: half of the row's capacity stays free, so that it does not leave again at once.
pub fn has_room(entity: &Entity, sizes: ListSizes) -> bool {
    let half = sizes.row_bytes / 2;
    entity.check().is_ok_and(|size| size <= half) && entity.stored_bytes() <= half && entity.properties.len() <= limits::PROPERTIES / 2
}

/// Prefix of the names of all blobs that hold lists of a table by date.
pub fn of_table(table: &TableName) -> String {
    format!("~{table}/")
}

/// Prefix of the names of the blobs that hold a row's list of this view.
pub fn prefix(catalog: &Catalog, view: &ViewName, site: &Site) -> String {
    let of_table = site.row().and_then(|(table, _)| catalog.table_by_date(table)).map(|table| of_table(&table.table));
    of_table.unwrap_or_default() + &of_row(view, site)
}

fn of_row(view: &ViewName, site: &Site) -> String {
    let mut hash = Sha256::new();
    if let Some((table, key)) = site.row() {
        for text in [&table.canonical(), key.pk.as_str(), key.rk.as_str()] {
            hash.update(text);
            hash.update([0]);
        }
    }
    format!("{view}/{}/", hex::encode(hash.finalize()))
}

/// Whether a blob was named for a row's list of this view: under this catalog, or another one, by which the row's table came and went
/// with a date, or did not.
pub fn is_of(name: &BlobName, view: &ViewName, site: &Site) -> bool {
    let by_date = name.as_str().strip_prefix('~').and_then(|name| name.split_once('/'));
    let undated = match (by_date, site.row()) {
        (Some((of, name)), Some((table, _))) if TableName::new(of).is_ok_and(|of| of == *table) => name,
        _ => name.as_str(),
    };
    undated.starts_with(&of_row(view, site))
}

/// A name for the list of a row that is at this ETag.
pub fn fresh_name(catalog: &Catalog, view: &ViewName, site: &Site, etag: &ETag, random: u64) -> Option<BlobName> {
    BlobName::new(format!("{}{}-{random:016x}", prefix(catalog, view, site), mark(etag))).ok()
}

/// Whether nothing will ever name a blob again: neither does its row, at this ETag, nor was the blob made for that
/// ETag. The blob was listed before the row was read.
pub fn is_left_over(name: &BlobName, named: Option<&BlobName>, etag: Option<&ETag>) -> bool {
    let made_for = mark_of(name);
    named != Some(name) && made_for.is_some() && made_for != etag.map(mark).as_deref()
}

/// Whether a row at this ETag may still come to name a blob: it was made for a move of the row as it is.
pub fn may_be_named(name: &BlobName, etag: &ETag) -> bool {
    mark_of(name) == Some(mark(etag).as_str())
}

/// The mark of the ETag that a blob was made for.
fn mark_of(name: &BlobName) -> Option<&str> {
    name.as_str().rsplit('/').next().and_then(|last| last.split_once('-')).map(|(mark, _)| mark)
}

fn mark(etag: &ETag) -> String {
    hex::encode(&Sha256::digest(etag.as_str())[..8])
}

/// The members that these addresses name, of a view.
pub fn members_of<'a>(addresses: impl IntoIterator<Item = &'a ItemAddress>, view: &ViewName) -> Vec<&'a Member> {
    let member = |address: &'a ItemAddress| match &address.part {
        Some(Part::Member(member)) if address.view == *view => Some(member),
        _ => None,
    };
    addresses.into_iter().filter_map(member).collect()
}

/// The content at a part's site, when the row's list is in a blob.
pub fn find_in(address: &ItemAddress, entity: Option<&Entity>, list: &BlockedList) -> Result<super::AtSite, Nonsense> {
    match &address.part {
        Some(Part::Member(member)) if address.view == *list.view() => {
            let token = list.token(member).map_err(|problem| Nonsense { site: address.site.clone(), problem })?;
            Ok(token.cloned().map_or(super::AtSite::Absent, super::AtSite::Part))
        }
        Some(Part::Member(_)) => Ok(super::AtSite::Foreign),
        Some(Part::Properties) | None => find(address, entity),
    }
}
