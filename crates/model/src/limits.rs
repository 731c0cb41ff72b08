//! Limits of Azure Storage that evenkeel enforces before it sends a request, and its own limits.
//!
//! If Azure and Azurite disagree, the stricter limit counts, so that a request that passes here passes on both.

use std::time::Duration;

/// Longest time after which a request may still be executed. The service refuses a request 15 minutes after the request was signed. Items
/// that a late request may change are kept at least that long.
pub const LATE_REQUEST: Duration = Duration::from_mins(15);
/// Maximum UTF-16 units of a partition or row key (Azurite; Azure documents 1 KiB).
pub const KEY_UTF16_UNITS: usize = 512;
/// Maximum UTF-8 bytes of a partition or row key (Azure, "Understanding the table service data model": 1 KiB).
pub const KEY_UTF8_BYTES: usize = 1_024;
/// Maximum properties of an entity, without PartitionKey, RowKey and Timestamp (Azure data model).
pub const PROPERTIES: usize = 252;
/// Maximum characters of a property name (Azure data model).
pub const PROPERTY_NAME_CHARS: usize = 255;
/// Maximum UTF-16 units of a string value (Azure: 64 KiB).
pub const STRING_UTF16_UNITS: usize = 32_768;
/// Maximum bytes of a binary value (Azure: 64 KiB).
pub const BINARY_BYTES: usize = 65_536;
/// Maximum bytes of an entity, as Azure counts (1 MiB, with two bytes for each UTF-16 unit of a text) and as JSON (as Azurite counts).
pub const ENTITY_BYTES: usize = 1_048_576;
/// Maximum operations of an entity group transaction (Azure).
pub const TRANSACTION_OPERATIONS: usize = 100;
/// Maximum bytes of the request body of an entity group transaction (Azure: 4 MiB).
pub const TRANSACTION_BYTES: usize = 4_194_304;
/// Upper bound of the bytes that an operation adds to its entity in a transaction: part headers, URL and ETag.
pub const OPERATION_OVERHEAD_BYTES: usize = 4_096;
/// Maximum rows on one page of a query (Azure).
pub const PAGE_ROWS: u32 = 1_000;
/// Maximum bytes of the text of a queue message (Azure: 64 KiB).
pub const QUEUE_TEXT_BYTES: usize = 65_536;
/// Maximum bytes of a message body before Base64. 48 KiB are 64 KiB in Base64.
pub const QUEUE_BODY_BYTES: usize = 49_152;
/// Maximum messages that one Get returns (Azure).
pub const QUEUE_BATCH: u32 = 32;
/// Maximum visibility timeout in seconds (Azure: 7 days).
pub const QUEUE_VISIBILITY_SECONDS: u64 = 604_800;
/// Maximum bytes of a decompressed message body.
pub const EXPANDED_BODY_BYTES: usize = 1_048_576;
/// Maximum bytes of memory for the JSON values of a message, estimated by [`Extent`](super::body::Extent) before decoding. A message of a
/// thousand entities with eighty properties takes 16 MB. Without this limit, an expanded body could take 256 MiB.
pub const PARSED_BODY_BYTES: u64 = 33_554_432;
/// Maximum characters of a blob name (Azure).
pub const BLOB_NAME_CHARS: usize = 1_024;
/// Maximum path segments of a blob name (Azure).
pub const BLOB_NAME_SEGMENTS: usize = 254;
/// Maximum bytes of blob metadata, names and values together (Azure: 8 KiB).
pub const METADATA_BYTES: usize = 8_192;
/// Maximum bytes of one append (Azure, "Append Block": 4 MiB before version 2022-11-02, which some services still have).
pub const APPEND_BYTES: usize = 4_194_304;
/// Maximum bytes of one block of a block blob (Azure, "Put Block": 100 MiB before version 2019-12-12; larger blocks are not needed).
pub const BLOCK_BYTES: usize = 104_857_600;
/// Maximum blocks of one block blob (Azure, "Put Block List").
pub const BLOCKS: usize = 50_000;
/// Maximum bytes of a list in a blob, some 200,000 members. Each change reads and writes the whole list, and holds both versions in memory.
pub const LIST_BLOB_BYTES: u64 = 8_388_608;
/// Maximum bytes of JSON of a `put`'s staged entity, which is held in memory.
pub const STAGED_ENTITY_BYTES: u64 = 16_777_216;
/// Maximum keys of a staged entity's JSON, annotations included. A wide entity has only a tenth as many properties. With this number of
/// keys, the keys take no more memory than the text.
pub const STAGED_KEYS: usize = 262_144;
/// Maximum bytes of a document of an archived entity: four times [`STAGED_ENTITY_BYTES`], because a control character of two bytes takes
/// six in JSON.
pub const ARCHIVED_BYTES: u64 = 67_108_864;
/// Maximum items of one primary, whose footprint is one entity.
pub const ITEMS_PER_PRIMARY: usize = 1_000;
/// Maximum values of a property if a view has an item for each value. All views of a primary together are limited by [`ITEMS_PER_PRIMARY`].
pub const LISTED_VALUES: usize = 100;
/// Maximum items in a footprint during a change. The footprint then lists the items of the old and of the new state.
pub const ITEMS_ANNOUNCED: usize = 2 * ITEMS_PER_PRIMARY;
/// Maximum UTF-16 units of a list member as JSON: a sixteenth of a property, so that lists fill their properties well.
pub const MEMBER_UTF16_UNITS: usize = 2_048;
/// Maximum UTF-16 units of a contribution to a group as JSON, an eighth of a property. The keys of the primary are included. A contribution
/// is stored in the group and in the footprint of the primary.
pub const CONTRIBUTION_UTF16_UNITS: usize = 4_096;
/// Maximum UTF-16 units of a range overlay as JSON. When a range overlay is removed, the message for its recheck contains this JSON.
pub const RANGE_OVERLAY_UTF16_UNITS: usize = 8_192;
/// Maximum characters of a document key in another store (Azure AI Search, naming rules).
pub const DOCUMENT_KEY_CHARS: usize = 1_024;
/// Maximum characters of the name of a document's field (Azure AI Search, naming rules).
pub const FIELD_NAME_CHARS: usize = 128;
/// Maximum documents written in one request (Azure AI Search, "Documents - Index").
pub const BATCH_DOCUMENTS: usize = 1_000;
/// Maximum bytes of a request that writes documents (Azure AI Search: about 16 MB).
pub const BATCH_BYTES: usize = 16_000_000;
