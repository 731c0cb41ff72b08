//! The capabilities in which backends may differ.

use std::time::Duration;

use evenkeel_model::limits;

/// The capabilities of a backend, which its author declares. Rules use these values, never the name of a backend.
///
/// A limit is the maximum that the backend accepts: the rules reach it, and expect one more to be refused. Evenkeel does not use more than
/// its own limits ([`limits`]), and cannot work on a backend with lower ones.
///
/// ```
/// # use evenkeel_conformance::Capabilities;
/// # use std::time::Duration;
/// const DATABASE: Capabilities = Capabilities { sign_of_zero: true, date_comparison: Duration::from_nanos(100), ..Capabilities::azure() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Maximum number of properties of an entity, without its keys and its timestamp.
    pub properties: usize,
    /// Maximum length of a property name in characters.
    pub property_name_chars: usize,
    /// Maximum length of a string in UTF-16 code units.
    pub string_utf16_units: usize,
    /// Maximum length of a binary value in bytes.
    pub binary_bytes: usize,
    /// Maximum size of an entity in bytes. It applies to its size as JSON and to its size with two bytes for each UTF-16 unit
    /// of a string.
    pub entity_bytes: usize,
    /// Whether a negative zero keeps its sign. If not, no rule tests the sign.
    pub sign_of_zero: bool,
    /// Time after which two writes have different timestamps.
    pub timestamp_step: Duration,
    /// Maximum number of operations in a transaction.
    pub transaction_operations: usize,
    /// Maximum size of a transaction in bytes.
    pub transaction_bytes: usize,
    /// Whether the rows that one transaction writes have different ETags. The successive ETags of one row always differ.
    pub transaction_etags_differ: bool,
    /// Maximum number of rows in a page.
    pub page_rows: u32,
    /// Maximum number of comparisons in a filter.
    pub comparisons: usize,
    /// Precision with which filters compare dates, a multiple of 100 nanoseconds.
    pub date_comparison: Duration,
    /// Maximum length of a message text in bytes.
    pub message_bytes: usize,
    /// Maximum number of messages in one get or peek.
    pub messages: u32,
    /// Maximum visibility timeout of a message.
    pub visibility: Duration,
    /// Visibility timeouts are rounded up to a multiple of this step.
    pub visibility_step: Duration,
    /// Whether the messages of one get have different receipts. The successive receipts of one message always differ.
    pub receipts_differ: bool,
    /// Upper bound of the time for a few requests, even under load.
    pub response_time: Duration,
    /// Maximum size of metadata in bytes, names and values together.
    pub metadata_bytes: usize,
    /// Maximum size of one append in bytes.
    pub append_bytes: usize,
    /// Maximum number of blocks in a blob.
    pub blocks: usize,
}

impl Capabilities {
    /// Azure Storage as documented. If the documentation does not define a capability, that of the emulator is used: Azurite
    /// loses the sign of zero, compares dates to milliseconds, and gives the messages of one get equal receipts.
    pub const fn azure() -> Self {
        Self {
            properties: limits::PROPERTIES,
            property_name_chars: limits::PROPERTY_NAME_CHARS,
            string_utf16_units: limits::STRING_UTF16_UNITS,
            binary_bytes: limits::BINARY_BYTES,
            entity_bytes: limits::ENTITY_BYTES,
            sign_of_zero: false,
            timestamp_step: Duration::from_millis(1),
            transaction_operations: limits::TRANSACTION_OPERATIONS,
            transaction_bytes: limits::TRANSACTION_BYTES,
            transaction_etags_differ: false,
            page_rows: limits::PAGE_ROWS,
            comparisons: 15, // "Querying tables and entities": 15 discrete comparisons
            date_comparison: Duration::from_millis(1),
            message_bytes: limits::QUEUE_TEXT_BYTES,
            messages: limits::QUEUE_BATCH,
            visibility: Duration::from_secs(limits::QUEUE_VISIBILITY_SECONDS),
            visibility_step: Duration::from_secs(1),
            receipts_differ: false,
            response_time: Duration::from_secs(5),
            metadata_bytes: limits::METADATA_BYTES,
            append_bytes: limits::APPEND_BYTES,
            blocks: limits::BLOCKS,
        }
    }

    /// Panics if a limit is lower than evenkeel needs.
    pub(crate) fn check(&self) {
        let azure = Self::azure();
        let needed = [
            ("properties", self.properties, azure.properties),
            (
                "property_name_chars",
                self.property_name_chars,
                azure.property_name_chars,
            ),
            (
                "string_utf16_units",
                self.string_utf16_units,
                azure.string_utf16_units,
            ),
            ("binary_bytes", self.binary_bytes, azure.binary_bytes),
            ("entity_bytes", self.entity_bytes, azure.entity_bytes),
            (
                "transaction_operations",
                self.transaction_operations,
                azure.transaction_operations,
            ),
            (
                "transaction_bytes",
                self.transaction_bytes,
                azure.transaction_bytes,
            ),
            (
                "page_rows",
                self.page_rows as usize,
                azure.page_rows as usize,
            ),
            ("comparisons", self.comparisons, azure.comparisons),
            ("message_bytes", self.message_bytes, azure.message_bytes),
            ("messages", self.messages as usize, azure.messages as usize),
            ("metadata_bytes", self.metadata_bytes, azure.metadata_bytes),
            ("append_bytes", self.append_bytes, azure.append_bytes),
            ("blocks", self.blocks, azure.blocks),
        ];
        for (name, found, least) in needed {
            assert!(
                found >= least,
                "{name}: expected at least {least}, found {found}"
            );
        }
        assert!(
            self.visibility >= azure.visibility,
            "visibility: expected at least {:?}, found {:?}",
            azure.visibility,
            self.visibility
        );
    }
}
