//! The limits of Azure Storage that evenkeel enforces before a request is sent.
//!
//! Where Azure and Azurite disagree the stricter one counts, so that a request that passes here passes on both.

use std::time::Duration;

/// How long a request may be on its way: the service refuses it 15 minutes after it was signed. Items that a late
/// request may still write, drop or recreate wait for that long, and the configuration allows no less.
pub const LATE_REQUEST: Duration = Duration::from_mins(15);
/// Longest partition or row key, in UTF-16 code units (Azurite refuses more; Azure documents 1 KiB).
pub const KEY_UTF16_UNITS: usize = 512;
/// Longest partition or row key, in UTF-8 bytes (Azure: "understanding the table service data model", 1 KiB).
pub const KEY_UTF8_BYTES: usize = 1_024;
/// Most properties of one entity beside PartitionKey, RowKey and Timestamp (Azure data model: 252).
pub const PROPERTIES: usize = 252;
/// Longest property name, in characters (Azure data model: 255).
pub const PROPERTY_NAME_CHARS: usize = 255;
/// Longest string value, in UTF-16 code units (64 KiB of UTF-16).
pub const STRING_UTF16_UNITS: usize = 32_768;
/// Longest binary value, in bytes (64 KiB).
pub const BINARY_BYTES: usize = 65_536;
/// Largest entity, in bytes: as Azure counts (1 MiB; two bytes for each UTF-16 unit of a text), and of its JSON form (as Azurite does).
pub const ENTITY_BYTES: usize = 1_048_576;
/// Most operations in one entity group transaction (Azure: 100).
pub const TRANSACTION_OPERATIONS: usize = 100;
/// Largest entity group transaction, in bytes of its request body (Azure: 4 MiB).
pub const TRANSACTION_BYTES: usize = 4_194_304;
/// Bytes of an entity group transaction that one operation takes beside its entity, at most: part headers, URL and ETag.
pub const OPERATION_OVERHEAD_BYTES: usize = 4_096;
/// Most rows on one page of a query (Azure: 1,000).
pub const PAGE_ROWS: u32 = 1_000;
/// Longest queue message, in bytes of its text (Azure: 64 KiB).
pub const QUEUE_TEXT_BYTES: usize = 65_536;
/// Longest message body that evenkeel sends, in bytes before Base64 (48 KiB is 64 KiB in Base64).
pub const QUEUE_BODY_BYTES: usize = 49_152;
/// Most messages that one Get returns (Azure: 32).
pub const QUEUE_BATCH: u32 = 32;
/// Longest visibility timeout, in seconds (Azure: 7 days).
pub const QUEUE_VISIBILITY_SECONDS: u64 = 604_800;
/// Largest body a compressed message may expand to, in bytes.
pub const EXPANDED_BODY_BYTES: usize = 1_048_576;
/// Most memory of the JSON values of one message, in bytes, by the count of [`Extent`](super::body::Extent) before decoding: a
/// thousand entities of eighty properties have 16 MB. An expanded body could hold eight times as much.
pub const PARSED_BODY_BYTES: u64 = 33_554_432;
/// Longest blob name, in characters (Azure: 1,024).
pub const BLOB_NAME_CHARS: usize = 1_024;
/// Most path segments of a blob name (Azure: 254).
pub const BLOB_NAME_SEGMENTS: usize = 254;
/// Most bytes of blob metadata, names and values together (Azure: 8 KiB).
pub const METADATA_BYTES: usize = 8_192;
/// Most bytes of one append to an append blob (Azure, "Append Block": 4 MiB before version 2022-11-02, which some services are).
pub const APPEND_BYTES: usize = 4_194_304;
/// Most bytes of one block of a block blob (Azure, "Put Block": 100 MiB before version 2019-12-12; more is of no use here).
pub const BLOCK_BYTES: usize = 104_857_600;
/// Most blocks of one block blob (Azure, "Put Block List": 50,000).
pub const BLOCKS: usize = 50_000;
/// Longest list in a blob, in bytes (8 MiB): each change reads and writes all of it, and holds both in memory. It has some 200,000 members.
pub const LIST_BLOB_BYTES: u64 = 8_388_608;
/// Largest entity that a `put` takes from a staged blob, in bytes of its JSON: it is held in memory.
pub const STAGED_ENTITY_BYTES: u64 = 16_777_216;
/// Most keys of a staged entity's JSON, annotations included: ten times the properties of a wide entity, and still no more memory than its
/// text.
pub const STAGED_KEYS: usize = 262_144;
/// Longest document of an archived entity that is read: [`STAGED_ENTITY_BYTES`] of text, four characters of JSON for each, since a control
/// character of two bytes takes six.
pub const ARCHIVED_BYTES: u64 = 67_108_864;
/// Most items one primary may own (its footprint is one entity).
pub const ITEMS_PER_PRIMARY: usize = 1_000;
/// Most values of a property of which a view has an item each. All of one primary's views together have [`ITEMS_PER_PRIMARY`].
pub const LISTED_VALUES: usize = 100;
/// Most items that a footprint lists while they change: those of one state and those of the next.
pub const ITEMS_ANNOUNCED: usize = 2 * ITEMS_PER_PRIMARY;
/// Longest member of a list, in UTF-16 units of its JSON text: a sixteenth of a property, so that lists fill theirs.
pub const MEMBER_UTF16_UNITS: usize = 2_048;
/// Longest contribution to a group, in UTF-16 units of its JSON text, its primary's keys included: an eighth of a property. It lies in the
/// group and in the footprint of its primary.
pub const CONTRIBUTION_UTF16_UNITS: usize = 4_096;
/// Longest claim of a range view, in UTF-16 units of its JSON text: its properties and its range. It travels in a message when it is
/// withdrawn.
pub const CLAIM_UTF16_UNITS: usize = 8_192;
/// Longest key of a document in another store, in characters (Azure AI Search, naming rules: 1,024).
pub const DOCUMENT_KEY_CHARS: usize = 1_024;
/// Longest name of a document's field, in characters (Azure AI Search, naming rules: 128).
pub const FIELD_NAME_CHARS: usize = 128;
/// Most documents that are written in one request (Azure AI Search, "Documents - Index": 1,000).
pub const BATCH_DOCUMENTS: usize = 1_000;
/// Largest request that writes documents, in bytes (Azure AI Search: about 16 MB).
pub const BATCH_BYTES: usize = 16_000_000;
