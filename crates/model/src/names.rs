//! Names of accounts, tables, queues, containers, blobs and views.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::{Deserialize, Serialize};

use super::limits;
use super::quoted::{self, Quoted};

/// Whether a table name is reserved for evenkeel.
pub fn is_own_table(name: &str) -> bool {
    name.starts_with("Evenkeel")
}

/// Table with evenkeel's own records: applied migrations, the catalog, workers, and the secret for cursors.
pub const MIGRATIONS: &str = "EvenkeelMigrations";
/// Table of the data keys that encrypt properties.
pub const KEYS: &str = "EvenkeelKeys";

/// A text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not {} name; expected {rule}", Quoted(name), with_article(what))]
pub struct NameError {
    /// Kind of the named thing.
    pub what: &'static str,
    /// The text, shortened in the middle if it is long.
    pub name: String,
    /// The rule for names of this kind.
    pub rule: &'static str,
}

fn with_article(what: &str) -> String {
    let article = if what.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {what}")
}

/// Case-sensitive names.
mod exact {
    use super::{Hash, Hasher, Ordering};

    pub(super) fn compare(one: &str, other: &str) -> Ordering {
        one.cmp(other)
    }

    pub(super) fn hash(name: &str, state: &mut impl Hasher) {
        name.hash(state);
    }
}

/// Case-insensitive names.
mod caseless {
    use super::{Cow, Hash, Hasher, Ordering};

    pub(super) fn compare(one: &str, other: &str) -> Ordering {
        let lower = |byte: u8| byte.to_ascii_lowercase();
        one.bytes().map(lower).cmp(other.bytes().map(lower))
    }

    pub(super) fn hash(name: &str, state: &mut impl Hasher) {
        canonical(name).hash(state);
    }

    pub(super) fn canonical(name: &str) -> Cow<'_, str> {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            Cow::Owned(name.to_ascii_lowercase())
        } else {
            Cow::Borrowed(name)
        }
    }
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $same:ident, $what:literal, $rule:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// Checks a text against the rule for names of this kind.
            pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
                let name = name.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&name) { Ok(Self(name)) } else { Err(NameError { what: $what, name: quoted::shortened(name), rule: $rule }) }
            }

            /// The text of the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(name: String) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = NameError;
            fn try_from(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl std::str::FromStr for $type {
            type Err = NameError;
            fn from_str(name: &str) -> Result<Self, NameError> {
                Self::new(name)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other) == Ordering::Equal
            }
        }

        impl Eq for $type {}

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                $same::compare(&self.0, &other.0)
            }
        }

        impl Hash for $type {
            fn hash<H: Hasher>(&self, state: &mut H) {
                $same::hash(&self.0, state);
            }
        }
    };
}

name_type!(
    /// A table: `^[A-Za-z][A-Za-z0-9]{2,62}$`, but not "tables". It keeps its spelling and compares case-insensitively.
    TableName, caseless, "table", "3 to 63 letters and digits, starting with a letter, and not \"tables\"",
    |name| {
        (3..=63).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric())
            && name.as_bytes()[0].is_ascii_alphabetic()
            && !name.eq_ignore_ascii_case("tables")
    }
);

impl TableName {
    /// The text that all spellings of the name share.
    pub fn canonical(&self) -> Cow<'_, str> {
        caseless::canonical(&self.0)
    }
}

fn dashed(name: &str) -> bool {
    (3..=63).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

name_type!(
    /// A queue: 3 to 63 of `a-z0-9-`, without a dash at either end or two dashes in a row.
    QueueName, exact, "queue", "3 to 63 lower-case letters, digits and single dashes, with no dash at either end",
    dashed
);

impl QueueName {
    /// Appends a suffix (`-poison`, `-recheck`, a shard number).
    pub fn with_suffix(&self, suffix: &str) -> Result<Self, NameError> {
        Self::new(format!("{}{suffix}", self.0))
    }
}

name_type!(
    /// A blob container. The rule is that of queues.
    ContainerName, exact, "container", "3 to 63 lower-case letters, digits and single dashes, with no dash at either end",
    dashed
);

name_type!(
    /// A blob: 1 to 1,024 printable ASCII characters without `\`, in at most 254 segments, none of which is empty, `.` or `..`. This is
    /// stricter than Azure because the client library rewrites other names.
    BlobName, exact, "blob", "1 to 1,024 printable ASCII characters without \\, in at most 254 segments, none of them empty, . or ..",
    |name| {
        (1..=limits::BLOB_NAME_CHARS).contains(&name.len())
            && name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'\\')
            && !name.starts_with(' ')
            && !name.ends_with([' ', '.'])
            && name.split('/').count() <= limits::BLOB_NAME_SEGMENTS
            && name.split('/').all(|segment| !matches!(segment, "" | "." | ".."))
    }
);

name_type!(
    /// The name of a storage account in the configuration (`[accounts.main]`).
    AccountName, exact, "account", "1 to 63 letters, digits, dashes and underscores, starting with a letter",
    identifier
);

impl AccountName {
    /// The default account: `main`.
    pub fn main() -> Self {
        Self("main".to_owned())
    }
}

name_type!(
    /// The name of a view or an archive in the configuration (`[views.employees_by_email]`).
    ViewName, exact, "view", "1 to 63 letters, digits, dashes and underscores, starting with a letter",
    identifier
);

name_type!(
    /// The owner of the views of a recorded catalog: one application with all its workers (`[migrate] owner`).
    CatalogOwner, exact, "catalog owner", "1 to 63 letters, digits, dashes and underscores, starting with a letter",
    identifier
);

impl CatalogOwner {
    /// The owner if the configuration names none, and the owner of views that were recorded without one.
    pub const DEFAULT: &'static str = "default";
}

impl Default for CatalogOwner {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

name_type!(
    /// A collection of documents in another store, such as an index of a search service. The rule is that of Azure AI Search.
    CollectionName, exact, "collection", "2 to 128 lower-case letters, digits, and single dashes and underscores, starting with a letter or digit",
    |name| {
        (2..=128).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !name.starts_with(['-', '_'])
            && !["--", "__"].iter().any(|twice| name.contains(twice))
    }
);

name_type!(
    /// The key of a document in another store. The rule is that of Azure AI Search.
    DocumentKey, exact, "document", "1 to 1,024 letters, digits, dashes, underscores and equal signs, not starting with an underscore",
    |key| {
        (1..=limits::DOCUMENT_KEY_CHARS).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'='))
            && !key.starts_with('_')
    }
);

fn identifier(name: &str) -> bool {
    (1..=63).contains(&name.len())
        && name.as_bytes()[0].is_ascii_alphabetic()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_compare_without_regard_to_case_and_keep_their_spelling() {
        let declared = TableName::new("Employees").unwrap();
        assert_eq!(declared, TableName::new("employees").unwrap());
        assert_eq!(declared.to_string(), "Employees");
        let names = ["abC", "aBcd", "Abd", "B00"].map(|name| TableName::new(name).unwrap());
        assert!(names.is_sorted(), "names sort without regard to case");
        for bad in ["", "ab", "1abc", "a-b-c", "Tables", "a".repeat(64).as_str()] {
            assert!(TableName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn queues_follow_the_dash_rules() {
        assert!(QueueName::new("evenkeel-jobs").is_ok());
        for bad in ["ab", "-abc", "abc-", "a--b", "Abc", "a_b"] {
            assert!(QueueName::new(bad).is_err(), "{bad}");
        }
        assert!(
            QueueName::new("a".repeat(60))
                .unwrap()
                .with_suffix("-poison")
                .is_err()
        );
    }

    #[test]
    fn collections_and_document_keys_follow_the_rules_of_azure_ai_search() {
        assert!(CollectionName::new("idx-hotels_2024").is_ok());
        for bad in [
            "a",
            "-ab",
            "_ab",
            "a--b",
            "a__b",
            "Ab",
            "a b",
            &"a".repeat(129),
        ] {
            assert!(CollectionName::new(bad).is_err(), "{bad}");
        }
        assert!(DocumentKey::new("Wy-_=").is_ok());
        for bad in ["", "_a", "a+b", "a/b", "한", &"a".repeat(1_025)] {
            assert!(DocumentKey::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn blob_names_that_the_client_would_rewrite_are_refused() {
        assert!(BlobName::new("logs/2026/11/20/1500/000001.jsonl").is_ok());
        for bad in [
            "", "/a", "a/", "a//b", "a/../b", "a/./b", "a\\b", "a\tb", "한글", "a ", "a.",
        ] {
            assert!(BlobName::new(bad).is_err(), "{bad}");
        }
    }
}
