//! Cursors: how far a job about many has come, as its message carries it.
//!
//! Each says its version. A message with a cursor of another version is refused, and sent anew once the program reads it: an older program
//! would leave out what it does not know.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Value};

use super::stored::{self, FormatError};

/// How far a job has come, with the seal of the worker that wrote it.
pub trait JobCursor: Send {
    /// Takes the seal off.
    fn take_seal(&mut self) -> Option<String>;
    /// Whether anything is done yet.
    fn has_begun(&self) -> bool;
    /// Nothing is done.
    fn restart(&mut self);
    /// As a message carries it.
    fn to_json(&self) -> Value;
}

/// The version of all cursors.
pub(super) const VERSION: u32 = 1;

/// Reads the cursor of a message.
pub(super) fn read<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    let object = Map::deserialize(deserializer)?;
    stored::read_object(object, VERSION, || "the cursor".to_owned()).map_err(|error| match error {
        FormatError::Version { .. } => D::Error::custom(error),
        FormatError::Malformed { problem, .. } => D::Error::custom(problem),
    })
}

/// A cursor: beside its own fields it has a place in a walk over a table, and a seal.
macro_rules! cursor {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// The version of the format: 1.
            #[schemars(with = "u32")]
            pub v: $crate::stored::FormatVersion<{ $crate::cursor::VERSION }>,
            $($fields)*
            /// Where the next page begins: the service's continuation token, its partition key part.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub next_pk: Option<String>,
            /// The token's row key part, which the service may leave out.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub next_rk: Option<String>,
            /// The worker's seal on the cursor and on the message that carries it: a cursor from any other sender is not
            /// trusted.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub seal: Option<String>,
        }

        impl $crate::cursor::JobCursor for $name {
            fn take_seal(&mut self) -> Option<String> {
                self.seal.take()
            }
            fn has_begun(&self) -> bool {
                *self != Self::default()
            }
            fn restart(&mut self) {
                *self = Self::default();
            }
            fn to_json(&self) -> serde_json::Value {
                serde_json::json!(self)
            }
        }
    };
}
pub(super) use cursor;
