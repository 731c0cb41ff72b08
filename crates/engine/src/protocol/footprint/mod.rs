//! Footprints: the record of the items that a primary owns.
//!
//! There is one entity per primary, in the table `EvenkeelFootprints` of the source's account. Its `PartitionKey` is
//! `<table>~<pk>`, so that one entity group transaction can write the footprints of many primaries of a partition. Each
//! write has the ETag of the footprint as its condition, which orders concurrent passes. The footprints of a dated
//! table are in a separate table, which is dropped together with the dated table.
//!
//! The key of a whole row or blob does not show to which primary the item belongs. With a forged entry in a footprint,
//! a pass could take another primary's row for its own. A list with whole rows or blobs is therefore signed with the
//! workers' secret. If the signature is missing or wrong, a pass trusts an entry only after it has looked at the item.
//! A worker that cannot read the secret writes no signatures.

mod contenders;
pub(crate) mod propagations;
pub(crate) mod record;
pub(crate) mod store;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use subtle::ConstantTimeEq as _;

use crate::env::secret::Secret;
use crate::protocol::footprint::contenders::Contenders;
use crate::protocol::footprint::propagations::Propagations;
use evenkeel_model::catalog;
use evenkeel_model::job::Primary;
pub use evenkeel_model::settled::{Settled, footprint_key as key, footprints as table};
use evenkeel_model::stored::{self, FormatError, VERSION_PROPERTY};
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, ETag, EdmDateTime, EdmValue,
    Entity, EntityKey, ItemAddress, Key, Part, Site, TableName, ViewName, limits,
};

/// The table of footprints in each account that has sources of views. The footprints of dated tables are in tables
/// whose names begin with this name.
pub const FOOTPRINTS: &str = catalog::FOOTPRINTS;
const VERSION: u32 = 1;
const DOCUMENT_VERSION: &str = "DocumentVersion";
/// Number of milliseconds by which a version may be ahead of the clock: a day.
const VERSIONS_AHEAD_MS: i64 = 86_400_000;
/// Property that has the primary's partition key. A footprint needs it if its `PartitionKey` has a hash in place of
/// that key, or if that key itself looks like a hash.
pub(crate) const OWNER: &str = "Owner";
pub(crate) const PROPAGATIONS: &str = "Propagations";
const CONTENDERS: &str = "Contenders";
/// Property that has the signature, an HMAC-SHA-256 of the primary's key and the item list. A footprint has a signature
/// only if whole rows or blobs are among its items.
const SIGNATURE: &str = "Signature";
/// UTF-16 units of one piece of the item list. A string property has at most 32,768.
const PIECE_UNITS: usize = 32_000;
/// Upper limit on the bytes of everything but the item list: keys of 1 KiB each (one of them twice), the primary's
/// ETag, names, the overhead of each property, and the marked ranges. In JSON, the ranges take up to three bytes for
/// each UTF-16 unit.
const MAX_OVERHEAD_BYTES: usize = 8_192 + 3 * propagations::MAX_UNITS;
/// Number of items that always fit into one entity, because each item takes less than 16 KiB. The longest items are a
/// list member with the name of its blob (2,048 and 1,024 UTF-16 units) and a contribution to a group (4,096).
const ALWAYS_FITTING_ITEMS: usize = 60;
/// Upper limit on the UTF-16 units that the ETag of an item adds to the list later, including quotes and escapes.
const ETAG_UNITS: usize = 96;
const TOKEN_UNITS: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Footprint {
    pub settled: Settled,
    pub items: BTreeMap<ItemAddress, Entry>,
    /// Time until which an old write may still arrive, for example an unanswered insert.
    pub tainted_until: Option<Timestamp>,
    /// Primaries that want the key of an item in this footprint, and the former holders of keys that this primary is
    /// taking over.
    pub contenders: Contenders,
    pub propagations: Propagations,
    /// The version of the last announced writes of documents (see `next_version`); 0 if there were none.
    pub version: i64,
    /// The footprint was read without a valid signature, and lists rows or blobs that no pass has read since then.
    /// Such a footprint is written without a signature.
    pub unproven: bool,
}

/// The version of the next writes of documents. It is the clock's time in milliseconds, so that versions keep rising
/// even if a footprint is lost. It is at least the last version plus one, because the clock may be behind the clock
/// that produced the last version. A last version more than a day ahead of the clock is ignored, because no clock has
/// produced it.
pub(crate) fn next_version(last: i64, now: Timestamp) -> i64 {
    let now = now.as_millisecond();
    if last > now.saturating_add(VERSIONS_AHEAD_MS) {
        now
    } else {
        now.max(last.saturating_add(1))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub generation: u32,
    /// The item's ETag at the last closed pass. For a part, this is its token; for a document of a sink, the hash of
    /// its content. `None` if the item is only announced.
    pub etag: Option<ETag>,
    /// A pass has announced a write (see `Write::is_announced`) or a drop of the item, and has not recorded the
    /// outcome.
    pub changing: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FootprintError {
    #[error(transparent)]
    Version(FormatError),
    /// The footprint was edited by hand, or evenkeel did not write it.
    #[error(
        "the footprint of {primary} in table {FOOTPRINTS} cannot be read: {problem}. If it was edited by hand, delete it and sync the primary"
    )]
    Format { primary: Primary, problem: String },
    #[error(
        "the footprint of {primary} is too large: {count} items in {bytes} bytes, at most 1,000 items (2,000 while old items are replaced) and 1 MiB"
    )]
    TooLarge {
        primary: Primary,
        count: usize,
        bytes: usize,
    },
}

/// The part of a footprint that does not fit into one entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The list of items is too long, until some items are dropped.
    Items,
    /// The list of ranges with an unfinished `propagate` job is too long, until some of these jobs are done.
    Ranges,
}

/// An item as it is stored in the list: a JSON array of these fields in this order. Field names would take a fifth of
/// the entity.
#[derive(Deserialize)]
#[serde(from = "WirePositions")]
struct WireItem {
    view: ViewName,
    generation: u32,
    /// The account that has the item. For a document, the name of its sink.
    account: AccountName,
    /// `["row", table, pk, rk]`, `["blob", container, name]`, `["file", folder, name]` or `["document", collection,
    /// key]`.
    site: Vec<String>,
    part: Option<Part>,
    etag: Option<ETag>,
    /// 1 if a change of the item is announced, else 0.
    changing: u8,
}

type WirePositions = (
    ViewName,
    u32,
    AccountName,
    Vec<String>,
    Option<Part>,
    Option<ETag>,
    u8,
);

impl From<WirePositions> for WireItem {
    fn from((view, generation, account, site, part, etag, changing): WirePositions) -> Self {
        Self {
            view,
            generation,
            account,
            site,
            part,
            etag,
            changing,
        }
    }
}

impl Serialize for WireItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            view,
            generation,
            account,
            site,
            part,
            etag,
            changing,
        } = self;
        (view, generation, account, site, part, etag, changing).serialize(serializer)
    }
}

/// Reduces a footprint's entity to the property that lists its contenders. `None` if the entity has no such property,
/// because there are no contenders, or because the entity would be too large with them.
pub(crate) fn contenders_alone(mut entity: Entity) -> Option<Entity> {
    entity.properties.retain(|name, _| name == CONTENDERS);
    (!entity.properties.is_empty()).then_some(entity)
}

/// The key of the primary that owns this footprint. `None` if the primary is in another table. If the footprint's
/// `PartitionKey` may have a hash, the result is also `None` unless the footprint names the right owner.
pub fn owner(table: &TableName, footprint: &Entity) -> Option<EntityKey> {
    let (shown, may_be_hash) = shown_partition_key(table, &footprint.key)?;
    let pk = Key::new(if may_be_hash {
        footprint.text(OWNER)?
    } else {
        shown
    })
    .ok()?;
    let named = Primary {
        table: table.clone(),
        key: EntityKey {
            pk,
            rk: footprint.key.rk.clone(),
        },
    };
    (key(&named) == footprint.key).then_some(named.key)
}

/// The text after the table's name in the footprint's `PartitionKey`, and whether this text may be a hash of the
/// primary's partition key. A partition key that is not hashed may look like a hash, too.
fn shown_partition_key<'k>(table: &TableName, footprint: &'k EntityKey) -> Option<(&'k str, bool)> {
    let pk = footprint
        .pk
        .as_str()
        .strip_prefix(table.as_str())?
        .strip_prefix('~')?;
    Some((
        pk,
        pk.len() == 64
            && pk
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
    ))
}

fn hides_owner(primary: &Primary, footprint: &EntityKey) -> bool {
    shown_partition_key(&primary.table, footprint).is_some_and(|(_, may_be_hash)| may_be_hash)
}

impl Footprint {
    /// Whether a pass announced changes whose outcome is not recorded.
    pub fn is_changing(&self) -> bool {
        self.items.values().any(|entry| entry.changing)
    }

    pub fn is_tainted(&self, now: Timestamp) -> bool {
        self.tainted_until.is_some_and(|until| until > now)
    }

    /// Fails if one entity cannot hold the footprint once each of its items has an ETag.
    pub(crate) fn fits(&self) -> Result<(), NoRoom> {
        if !self.propagations.fit() {
            return Err(NoRoom::Ranges);
        }
        if self.items_fit() {
            return Ok(());
        }
        Err(NoRoom::Items)
    }

    fn items_fit(&self) -> bool {
        if self.items.len() <= ALWAYS_FITTING_ITEMS {
            return true;
        }
        let list = self.list();
        let bare = self.items.iter().filter(|(_, entry)| entry.etag.is_none());
        let to_come: usize = bare
            .map(|(address, _)| {
                if address.part.is_some() {
                    TOKEN_UNITS
                } else {
                    ETAG_UNITS
                }
            })
            .sum();
        let units = list.chars().map(char::len_utf16).sum::<usize>();
        // The stored entity takes two bytes for each UTF-16 unit. The JSON of the request takes up to three bytes for
        // each unit, but two bytes for a quote or backslash. The larger of these two sizes counts.
        let escaped = list
            .bytes()
            .filter(|byte| matches!(byte, b'"' | b'\\'))
            .count();
        let bytes = (2 * units).max(list.len() + escaped) + 2 * to_come;
        self.items.len() <= limits::ITEMS_ANNOUNCED
            && bytes + MAX_OVERHEAD_BYTES <= limits::ENTITY_BYTES
    }

    pub(crate) fn too_large(&self, primary: &Primary) -> FootprintError {
        FootprintError::TooLarge {
            primary: primary.clone(),
            count: self.items.len(),
            bytes: self.list().len(),
        }
    }

    /// Items that the footprint does not list, although their takeover may still arrive, each with the former holder of
    /// its key.
    pub(crate) fn pending_takeovers(&self) -> impl Iterator<Item = (&ItemAddress, &Primary)> {
        self.contenders
            .iter()
            .filter(|(item, _)| !self.items.contains_key(*item))
    }

    /// Rows and blobs that belong to one primary alone. Their addresses do not name that primary, so a footprint that
    /// lists any of them needs a signature.
    pub(crate) fn signed_items(&self) -> impl Iterator<Item = (&ItemAddress, &Entry)> {
        self.items.iter().filter(|(address, _)| {
            address.part.is_none() && matches!(address.site, Site::Row { .. } | Site::Blob { .. })
        })
    }

    pub fn encode(
        &self,
        primary: &Primary,
        secret: Option<&Secret>,
    ) -> Result<Entity, FootprintError> {
        let list = self.list();
        let mut entity = self.settled.write(
            Entity::new(key(primary)).with(VERSION_PROPERTY, VERSION.cast_signed()),
            !self.propagations.is_empty(),
        );
        if !self.propagations.is_empty() {
            entity = entity.with(PROPAGATIONS, self.propagations.text());
        }
        if hides_owner(primary, &entity.key) {
            entity = entity.with(OWNER, primary.key.pk.as_str());
        }
        if let Some(until) = self.tainted_until
            && let Ok(until) = EdmDateTime::from_timestamp(until)
        {
            entity = entity.with("TaintedUntil", until);
        }
        if self.version > 0 {
            entity = entity.with(DOCUMENT_VERSION, self.version);
        }
        if let Some(secret) =
            secret.filter(|_| !self.unproven && self.signed_items().next().is_some())
        {
            entity.properties.insert(
                SIGNATURE.to_owned(),
                EdmValue::Binary(signature(secret, primary, &list).to_vec()),
            );
        }
        if self.items.len() > limits::ITEMS_ANNOUNCED {
            return Err(self.too_large(primary));
        }
        for (index, piece) in pieces(&list).enumerate() {
            let name = if index == 0 {
                "Items".to_owned()
            } else {
                format!("Items_{index}")
            };
            entity
                .properties
                .insert(name, EdmValue::String(piece.to_owned()));
        }
        entity.check().map_err(|_| self.too_large(primary))?;
        if self.contenders.is_empty() {
            return Ok(entity);
        }
        // Contenders that do not fit are left out, because they must not make a footprint too large.
        let contended = entity.clone().with(CONTENDERS, self.contenders.text());
        Ok(if contended.check().is_ok() {
            contended
        } else {
            entity
        })
    }

    fn list(&self) -> String {
        let items: Vec<WireItem> = self
            .items
            .iter()
            .map(|(address, entry)| wire_item(address, entry))
            .collect();
        // Serialising fails only for maps whose keys are not strings.
        serde_json::to_string(&items).unwrap_or_default()
    }

    /// Reads the entity that records a footprint. Without a secret, no signature is valid.
    pub fn decode(
        primary: &Primary,
        entity: &Entity,
        secret: Option<&Secret>,
    ) -> Result<Self, FootprintError> {
        let malformed = |problem: String| FootprintError::Format {
            primary: primary.clone(),
            problem,
        };
        stored::check(entity, VERSION, || format!("the footprint of {primary}")).map_err(
            |error| match error {
                FormatError::Version { .. } => FootprintError::Version(error),
                FormatError::Malformed { problem, .. } => malformed(problem),
            },
        )?;
        let (settled, _) = Settled::read(entity)
            .map_err(|text| malformed(format!("Settled has the unknown value {text:?}")))?;
        let tainted_until = match entity.get("TaintedUntil") {
            None => None,
            Some(EdmValue::DateTime(until)) => Some(until.timestamp()),
            Some(other) => {
                return Err(malformed(format!(
                    "TaintedUntil: expected Edm.DateTime, found {}",
                    other.type_name()
                )));
            }
        };
        let version = match entity.get(DOCUMENT_VERSION) {
            None => 0,
            Some(EdmValue::Int64(version)) => *version,
            Some(other) => {
                return Err(malformed(format!(
                    "{DOCUMENT_VERSION}: expected Edm.Int64, found {}",
                    other.type_name()
                )));
            }
        };
        let mut list = entity
            .text("Items")
            .ok_or_else(|| malformed("Items is missing".to_owned()))?
            .to_owned();
        for index in 1.. {
            match entity.text(&format!("Items_{index}")) {
                Some(piece) => list.push_str(piece),
                None => break,
            }
        }
        let wire: Vec<WireItem> =
            serde_json::from_str(&list).map_err(|error| malformed(format!("Items: {error}")))?;
        let items = wire
            .into_iter()
            .map(parse_item)
            .collect::<Result<_, _>>()
            .map_err(|problem| malformed(format!("Items: {problem}")))?;
        let contenders = entity
            .text(CONTENDERS)
            .map(Contenders::read)
            .unwrap_or_default();
        let propagations = entity
            .text(PROPAGATIONS)
            .map(Propagations::read)
            .transpose()
            .map_err(|problem| malformed(format!("{PROPAGATIONS}: {problem}")))?;
        let propagations = propagations.unwrap_or_default();
        let mut read = Self {
            settled,
            items,
            tainted_until,
            contenders,
            propagations,
            version,
            unproven: false,
        };
        let is_signature_valid = || match (secret, entity.get(SIGNATURE)) {
            (Some(secret), Some(EdmValue::Binary(stored))) => {
                stored.ct_eq(&signature(secret, primary, &list)).into()
            }
            _ => false,
        };
        read.unproven = read.signed_items().next().is_some() && !is_signature_valid();
        Ok(read)
    }
}

/// The signature of a list. It never equals the signature of a cursor: the signed text of a list begins with
/// `footprint`, and the signed text of a cursor begins with a bracket.
fn signature(secret: &Secret, primary: &Primary, list: &str) -> [u8; 32] {
    let of =
        serde_json::json!([primary.table, primary.key.pk, primary.key.rk, VERSION]).to_string();
    secret.mac(&["footprint", &of, list])
}

fn wire_item(address: &ItemAddress, entry: &Entry) -> WireItem {
    let site = match &address.site {
        Site::Row { table, key } => vec![
            "row".to_owned(),
            table.to_string(),
            key.pk.to_string(),
            key.rk.to_string(),
        ],
        Site::Blob { container, name } => {
            vec!["blob".to_owned(), container.to_string(), name.to_string()]
        }
        Site::File { dir, name } => vec!["file".to_owned(), dir.clone(), name.to_string()],
        Site::Document { collection, key } => vec![
            "document".to_owned(),
            collection.to_string(),
            key.to_string(),
        ],
    };
    WireItem {
        view: address.view.clone(),
        generation: entry.generation,
        account: address.account.clone(),
        site,
        part: address.part.clone(),
        etag: entry.etag.clone(),
        changing: u8::from(entry.changing),
    }
}

fn parse_item(item: WireItem) -> Result<(ItemAddress, Entry), String> {
    fn text(error: impl std::fmt::Display) -> String {
        error.to_string()
    }
    let WireItem {
        view,
        generation,
        account,
        site,
        part,
        etag,
        changing,
    } = item;
    let site = match site
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["row", table, pk, rk] => Site::Row {
            table: TableName::new(*table).map_err(text)?,
            key: EntityKey::new(*pk, *rk).map_err(text)?,
        },
        ["blob", container, name] => Site::Blob {
            container: ContainerName::new(*container).map_err(text)?,
            name: BlobName::new(*name).map_err(text)?,
        },
        ["file", dir, name] => Site::File {
            dir: (*dir).to_owned(),
            name: BlobName::new(*name).map_err(text)?,
        },
        ["document", collection, key] => Site::Document {
            collection: CollectionName::new(*collection).map_err(text)?,
            key: DocumentKey::new(*key).map_err(text)?,
        },
        other => {
            return Err(format!(
                "expected the address of a row, blob, file or document, found {other:?}"
            ));
        }
    };
    Ok((
        ItemAddress {
            view,
            account,
            site,
            part,
        },
        Entry {
            generation,
            etag,
            changing: changing != 0,
        },
    ))
}

/// Cuts a text into pieces of `PIECE_UNITS`, never inside a character.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut units = 0;
        let end = rest.char_indices().find(|(_, c)| {
            units += c.len_utf16();
            units > PIECE_UNITS
        });
        let (piece, tail) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::footprint::propagations::OverlayRange;
    use evenkeel_model::Member;
    use evenkeel_model::range_overlay::TargetRange;
    use proptest::prelude::*;

    const SECRET: Option<&Secret> = Some(&Secret::ZEROS);

    fn primary(pk: &str) -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new(pk, "7").unwrap(),
        }
    }

    fn address(rk: &str) -> ItemAddress {
        let (view, table) = (
            ViewName::new("by_email").unwrap(),
            TableName::new("ByEmail").unwrap(),
        );
        ItemAddress::row(
            view,
            AccountName::main(),
            table,
            EntityKey::new("p", rk).unwrap(),
        )
    }

    fn member(rk: &str) -> ItemAddress {
        ItemAddress {
            part: Some(Part::Member(Member(vec![
                "Sales".to_owned(),
                rk.to_owned(),
            ]))),
            ..address("list")
        }
    }

    fn blob(name: &str) -> ItemAddress {
        let site = Site::Blob {
            container: ContainerName::new("lists").unwrap(),
            name: BlobName::new(name).unwrap(),
        };
        ItemAddress {
            site,
            ..address("")
        }
    }

    fn document(key: &str) -> ItemAddress {
        let site = Site::Document {
            collection: CollectionName::new("people").unwrap(),
            key: DocumentKey::new(key).unwrap(),
        };
        ItemAddress {
            site,
            account: AccountName::new("catalog").unwrap(),
            ..address("")
        }
    }

    #[test]
    fn a_site_of_every_kind_is_read_as_it_was_written() {
        for site in evenkeel_account::company::sites() {
            let address = ItemAddress {
                site: site.clone(),
                ..address("")
            };
            let entry = Entry {
                generation: 1,
                etag: None,
                changing: false,
            };
            let written = wire_item(&address, &entry);
            assert_eq!(written.site[0], site.kind());
            assert_eq!(parse_item(written), Ok((address, entry)), "{site}");
        }
    }

    #[test]
    fn the_owner_of_a_footprint_is_found_for_every_partition_key() {
        let of = |pk: &str| Footprint::default().encode(&primary(pk), SECRET).unwrap();
        let of_table =
            |table: &str, footprint: &Entity| owner(&TableName::new(table).unwrap(), footprint);
        let sha256 = hex::encode([0x5a; 32]);
        for pk in ["Sales", "a~b", "", &sha256, &"x".repeat(512)] {
            assert_eq!(
                of_table("Employees", &of(pk)),
                Some(primary(pk).key),
                "{pk}"
            );
            assert_eq!(of_table("Other", &of(pk)), None, "{pk}");
            assert_eq!(
                Footprint::decode(&primary(pk), &of(pk), SECRET),
                Ok(Footprint::default()),
                "{pk}"
            );
        }
        assert_eq!(of("Sales").get(OWNER), None);
        // Evenkeel writes no such footprints: one names no owner, the other a wrong owner.
        assert_eq!(
            of_table("Employees", &Entity::new(key(&primary(&sha256)))),
            None
        );
        assert_eq!(
            of_table("Employees", &of(&sha256).with(OWNER, "Sales")),
            None
        );
    }

    #[test]
    fn a_long_partition_key_is_hashed() {
        assert_eq!(key(&primary("Sales")).pk.as_str(), "Employees~Sales");
        let long = key(&primary(&"x".repeat(512)));
        assert_eq!(long.pk.as_str().len(), "Employees~".len() + 64);
        assert_eq!(table().as_str(), FOOTPRINTS);
    }

    #[test]
    fn the_items_of_two_states_fit_and_one_more_is_refused() {
        let mut footprint = Footprint::default();
        for i in 0..2_000 {
            let etag = Some(
                ETag::new(format!("W/\"datetime'2026-11-20T15%3A00%3A00.{i:07}Z'\"")).unwrap(),
            );
            footprint.items.insert(
                address(&format!("{i:0>100}")),
                Entry {
                    generation: 1,
                    etag,
                    changing: i % 2 == 0,
                },
            );
        }
        assert_eq!(footprint.fits(), Ok(()));
        let entity = footprint.encode(&primary("Sales"), SECRET).unwrap();
        assert!(entity.properties.contains_key("Items_1"));
        assert_eq!(
            Footprint::decode(&primary("Sales"), &entity, SECRET),
            Ok(footprint.clone())
        );
        footprint.items.insert(
            address("one more"),
            Entry {
                generation: 1,
                etag: None,
                changing: true,
            },
        );
        assert_eq!(footprint.fits(), Err(NoRoom::Items));
        assert!(matches!(
            footprint.encode(&primary("Sales"), SECRET),
            Err(FootprintError::TooLarge { count: 2_001, .. })
        ));
    }

    #[test]
    fn a_footprint_that_fits_can_be_written_whatever_its_keys_and_whatever_etags_it_gets() {
        let primary = Primary {
            table: TableName::new("T".repeat(63)).unwrap(),
            key: EntityKey::new("x".repeat(512), "x".repeat(512)).unwrap(),
        };
        let etag = |i: usize| {
            ETag::new(format!("W/\"datetime'2026-11-20T15%3A00%3A00.{i:07}Z'\"")).unwrap()
        };
        let mut footprint = Footprint {
            settled: Settled::At {
                etag: etag(0),
                fingerprint: "0".repeat(64),
            },
            ..Footprint::default()
        };
        for i in 0.. {
            let entry = Entry {
                generation: u32::MAX,
                etag: None,
                changing: true,
            };
            footprint
                .items
                .insert(address(&format!("{i:0>500}")), entry);
            if footprint.fits().is_err() {
                footprint.items.pop_last();
                break;
            }
        }
        assert!(
            footprint.items.len() < limits::ITEMS_PER_PRIMARY,
            "the bytes are the limit here"
        );
        footprint
            .items
            .values_mut()
            .enumerate()
            .for_each(|(i, entry)| entry.etag = Some(etag(i)));
        footprint.encode(&primary, SECRET).unwrap();
    }

    #[test]
    fn a_footprint_of_another_version_or_format_is_refused() {
        let entity = Footprint::default()
            .encode(&primary("Sales"), SECRET)
            .unwrap();
        let other = Footprint::decode(
            &primary("Sales"),
            &entity.clone().with("Version", 2),
            SECRET,
        )
        .unwrap_err();
        assert_eq!(
            other.to_string(),
            "the footprint of Employees(\"Sales\", \"7\") has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
        let named = r#"[{"view":"by_email","generation":1,"account":"main","site":["row","ByEmail","p","r"],"part":null,"etag":null,"changing":1}]"#;
        for broken in [
            Entity::new(entity.key.clone()).with("Items", "[]"),
            entity.clone().with("Items", "[1]"),
            entity.clone().with("Items", named),
            entity.clone().with(PROPAGATIONS, "[1]"),
            entity.with("Settled", "maybe"),
        ] {
            assert!(matches!(
                Footprint::decode(&primary("Sales"), &broken, SECRET),
                Err(FootprintError::Format { .. })
            ));
        }
    }

    #[test]
    fn an_item_is_listed_as_an_array() {
        let mut footprint = Footprint::default();
        footprint.items.insert(
            address("r"),
            Entry {
                generation: 1,
                etag: None,
                changing: true,
            },
        );
        let entity = footprint.encode(&primary("Sales"), SECRET).unwrap();
        assert_eq!(entity.get("Version"), Some(&1.into()));
        assert_eq!(
            entity.text("Items"),
            Some(r#"[["by_email",1,"main",["row","ByEmail","p","r"],null,null,1]]"#)
        );
    }

    #[test]
    fn a_signature_is_valid_only_for_its_primary_list_and_secret() {
        let entry = |etag: &str| Entry {
            generation: 1,
            etag: Some(ETag::new(etag).unwrap()),
            changing: false,
        };
        let footprint = Footprint {
            items: [(address("r"), entry("1"))].into(),
            ..Footprint::default()
        };
        let signed = footprint.encode(&primary("Sales"), SECRET).unwrap();
        let unproven = |pk: &str, entity: &Entity, secret| {
            Footprint::decode(&primary(pk), entity, secret)
                .unwrap()
                .unproven
        };
        assert!(!unproven("Sales", &signed, SECRET));
        assert!(
            !unproven(
                "Sales",
                &signed
                    .clone()
                    .with("Settled", "absent")
                    .with(CONTENDERS, "[]"),
                SECRET
            ),
            "the signature covers neither `Settled` nor the contenders, which cannot cause a drop"
        );
        let other = signed.text("Items").unwrap().replace("\"1\"", "\"2\"");
        assert!(unproven(
            "Sales",
            &signed.clone().with("Items", other),
            SECRET
        ));
        assert!(unproven("Other", &signed, SECRET) && unproven("Sales", &signed, None));
        let EdmValue::Binary(signature) = signed.get(SIGNATURE).unwrap() else {
            panic!("a signature of bytes")
        };
        for wrong in [
            EdmValue::Binary(signature[..31].to_vec()),
            EdmValue::Binary(Vec::new()),
            hex::encode(signature).into(),
        ] {
            let mut entity = signed.clone();
            entity.properties.insert(SIGNATURE.to_owned(), wrong);
            assert!(unproven("Sales", &entity, SECRET));
        }
        let unsigned = Footprint {
            unproven: true,
            ..footprint
        }
        .encode(&primary("Sales"), SECRET)
        .unwrap();
        assert!(unsigned.get(SIGNATURE).is_none() && unproven("Sales", &unsigned, SECRET));
    }

    #[test]
    fn a_list_of_parts_and_documents_needs_no_signature() {
        let entry = || Entry {
            generation: 1,
            etag: None,
            changing: false,
        };
        let mut footprint = Footprint {
            items: [(member("7"), entry()), (document("d"), entry())].into(),
            ..Footprint::default()
        };
        let entity = footprint.encode(&primary("Sales"), SECRET).unwrap();
        assert!(
            entity.get(SIGNATURE).is_none()
                && !Footprint::decode(&primary("Sales"), &entity, None)
                    .unwrap()
                    .unproven
        );
        footprint.items.insert(blob("b"), entry());
        assert!(
            footprint
                .encode(&primary("Sales"), SECRET)
                .unwrap()
                .get(SIGNATURE)
                .is_some()
        );
    }

    #[test]
    fn versions_rise_whatever_the_clocks_say() {
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        assert_eq!(next_version(0, at(1_000)), 1_000);
        assert_eq!(
            next_version(1_000, at(1_000)),
            1_001,
            "twice in a millisecond"
        );
        assert_eq!(
            next_version(5_000, at(1_000)),
            5_001,
            "a clock that is behind"
        );
        assert_eq!(next_version(i64::MAX, at(1_000)), 1_000, "written by hand");
    }

    proptest! {
        #[test]
        fn any_footprint_survives(
            keys in proptest::collection::btree_set("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,12}", 0..6),
            // No string of an entity has characters that XML cannot represent.
            members in proptest::collection::btree_set("[^\\x00\n\u{fffe}\u{ffff}]{0,12}", 0..6),
            blobs in proptest::collection::btree_set("[a-z%]{1,12}/[a-z]", 0..3),
            documents in proptest::collection::btree_set("[a-zA-Z0-9=-]{1,12}", 0..3),
            settled in 0..4_u8, propagated in proptest::option::of("[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,12}"), version in 0..i64::MAX, tainted in proptest::option::of(0..4_000_000_000_i64),
        ) {
            let settled = match settled {
                0 => Settled::Never,
                1 => Settled::Absent,
                2 => Settled::Waiting { etag: ETag::new("W/\"x\"").unwrap(), fingerprint: "abc".to_owned() },
                _ => Settled::At { etag: ETag::new("W/\"x\"").unwrap(), fingerprint: "abc".to_owned() },
            };
            let rows = keys.iter().map(|rk| (address(rk), Entry { generation: 3, etag: None, changing: true }));
            let members = members.iter().map(|rk| (member(rk), Entry { generation: 1, etag: Some(ETag::token(7)), changing: false }));
            let blobs = blobs.iter().map(|name| (blob(name), Entry { generation: 2, etag: None, changing: false }));
            let documents = documents.iter().map(|key| (document(key), Entry { generation: 2, etag: Some(ETag::token(9)), changing: true }));
            let items = rows.chain(members).chain(blobs).chain(documents).collect();
            let mut propagations = Propagations::default();
            if let Some(pk) = propagated {
                let key = |text: &str| evenkeel_model::Key::new(text).unwrap();
                let (account, table) = (AccountName::main(), TableName::new("Employees").unwrap());
                let range = TargetRange { account, table, pk: key(&pk), from: key(""), before: Some(key("b")) };
                propagations.mark(OverlayRange { view: ViewName::new("names").unwrap(), range }, "5a".to_owned());
            }
            let footprint = Footprint {
                settled,
                items,
                tainted_until: tainted.map(|s| Timestamp::from_second(s).unwrap()),
                contenders: Contenders::default(),
                propagations,
                version,
                unproven: false,
            };
            let entity = footprint.encode(&primary("Sales"), SECRET).unwrap();
            prop_assert_eq!(Footprint::decode(&primary("Sales"), &entity, SECRET), Ok(footprint));
        }
    }
}
