//! The reason why a lookup cannot be planned.

/// The reason why a lookup cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The view's items are not rows.
    #[error("{what} cannot be looked up: it produces no table rows")]
    NoRows {
        /// The view, archive or table, as text for the message.
        what: String,
    },
    /// The lookup has no term for the partition key.
    #[error(
        "reading {what} without a PartitionKey is a table scan. Give PartitionKey=…, or allow the scan with --scan"
    )]
    Whole {
        /// The archive or table, in words.
        what: String,
    },
    /// A property of the blob's name has no value.
    #[error("{what} also needs {}: its name is {template:?}", missing.join(" and "))]
    MissingInName {
        /// The view, archive or table, as text for the message.
        what: String,
        /// The properties without a value.
        missing: Vec<String>,
        /// The template of the name.
        template: String,
    },
    /// A property of the partition key has no value.
    #[error("{what} also needs {}: its partition_key is {template:?}", missing.join(" and "))]
    Missing {
        /// The view, archive or table, as text for the message.
        what: String,
        /// The properties without a value.
        missing: Vec<String>,
        /// The template of the partition key.
        template: String,
    },
    /// A term cannot be used with the keys.
    #[error("{what} cannot use {term}: {problem}")]
    Unusable {
        /// The view, archive or table, as text for the message.
        what: String,
        /// The term.
        term: String,
        /// The problem.
        problem: String,
    },
    /// Two terms contradict each other.
    #[error("{first} and {second} contradict each other")]
    Contradiction {
        /// The first term.
        first: String,
        /// The second term.
        second: String,
    },
    /// A value is not valid in a key.
    #[error("{what}: {problem}")]
    Value {
        /// The view, archive or table, as text for the message.
        what: String,
        /// The problem.
        problem: String,
    },
    /// The lookup needs too many requests.
    #[error(
        "{what}: the lookup needs {count} requests, at most {max}. Give the value of a bucketed property with ="
    )]
    TooMany {
        /// The view, archive or table, as text for the message.
        what: String,
        /// The number of requests.
        count: usize,
        /// The maximum number of requests.
        max: usize,
    },
}
