//! How backends may differ, and what each says of itself.

use std::time::Duration;

use evenkeel_model::limits;

/// What the author of a backend says of it, where backends may differ. Rules ask for these values and for no backend's name.
///
/// A limit is the most that the backend takes: the rules use it up, and expect a refusal of one more. A limit above evenkeel's own
/// ([`limits`]) tells nothing that evenkeel makes use of; one below it is a backend that evenkeel cannot work on: no world
/// is made of it.
///
/// ```
/// # use evenkeel_conformance::Capabilities;
/// # use std::time::Duration;
/// const OF_A_DATABASE: Capabilities = Capabilities { sign_of_zero: true, date_comparison: Duration::from_nanos(100), ..Capabilities::azure() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Most properties of an entity beside its keys and its timestamp.
    pub properties: usize,
    /// Longest name of a property, in characters.
    pub property_name_chars: usize,
    /// Longest string, in UTF-16 code units.
    pub string_utf16_units: usize,
    /// Longest binary value, in bytes.
    pub binary_bytes: usize,
    /// Largest entity, in bytes: two for each UTF-16 unit of a string, and as JSON.
    pub entity_bytes: usize,
    /// A negative zero keeps its sign. Where it does not, nothing is asked about the sign.
    pub sign_of_zero: bool,
    /// Timestamps of two writes differ when so much time has passed between them.
    pub timestamp_step: Duration,
    /// Most operations of a transaction.
    pub transaction_operations: usize,
    /// Largest transaction, in bytes.
    pub transaction_bytes: usize,
    /// The rows that one transaction writes have ETags that differ. Where they need not, a row's ETags still do.
    pub transaction_etags_differ: bool,
    /// Most rows of a page.
    pub page_rows: u32,
    /// Most comparisons of a filter.
    pub comparisons: usize,
    /// Filters compare dates to so much, in whole steps of 100 nanoseconds.
    pub date_comparison: Duration,
    /// Longest text of a message, in bytes.
    pub message_bytes: usize,
    /// Most messages of one get or peek.
    pub messages: u32,
    /// Longest time that a message is hidden for.
    pub visibility: Duration,
    /// Times that messages are hidden for are rounded up to whole steps of so much.
    pub visibility_step: Duration,
    /// Messages of one get have receipts that differ. Where they need not, a message's receipts still do.
    pub receipts_differ: bool,
    /// Longer than the backend takes for a few requests, however busy.
    pub response_time: Duration,
    /// Most bytes of metadata, names and values together.
    pub metadata_bytes: usize,
    /// Most bytes of one append.
    pub append_bytes: usize,
    /// Most blocks of a blob.
    pub blocks: usize,
}

impl Capabilities {
    /// Azure Storage, as its documentation has it. Where that promises nothing, what its emulator keeps: Azurite loses the sign of zero,
    /// compares dates to milliseconds, and gives equal receipts to the messages of one get.
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

    /// Refuses a backend that takes less than evenkeel sends.
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
                "{name}: evenkeel needs {least}, the backend takes {found}"
            );
        }
        assert!(
            self.visibility >= azure.visibility,
            "visibility: evenkeel needs {:?}",
            azure.visibility
        );
    }
}
