//! Cursors: the progress of a job over many primaries, stored in its message.
//!
//! Each cursor has a version. A message whose cursor has another version is refused, because an older worker would drop the fields that it
//! does not know. The message can be requeued once the workers are updated.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use serde_json::{Map, Value};

use super::stored::{self, FormatError};

/// Progress of a job, with the signature of the worker that wrote it.
pub trait JobCursor: Send {
    /// Removes and returns the signature.
    fn take_signature(&mut self) -> Option<String>;
    /// Whether the job has made any progress.
    fn has_begun(&self) -> bool;
    /// Resets the progress of the job.
    fn restart(&mut self);
    /// The cursor in the form that a message stores.
    fn to_json(&self) -> Value;
}

/// Format version of all cursors.
pub(super) const VERSION: u32 = 1;

pub(super) fn read<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    let object = Map::deserialize(deserializer)?;
    stored::read_object(object, VERSION, || "the cursor".to_owned()).map_err(|error| match error {
        FormatError::Version { .. } => D::Error::custom(error),
        FormatError::Malformed { problem, .. } => D::Error::custom(problem),
    })
}

/// Declares a cursor: its own fields, a position in the walk over a table, and a signature.
macro_rules! cursor {
    ($(#[$doc:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            /// Format version: 1.
            #[schemars(with = "u32")]
            pub v: $crate::stored::FormatVersion<{ $crate::cursor::VERSION }>,
            $($fields)*
            /// Partition key of the continuation token for the next page.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub next_pk: Option<String>,
            /// Row key of the continuation token for the next page. The service may leave it out.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub next_rk: Option<String>,
            /// The worker's signature over the cursor and its message. A cursor without a valid signature is ignored.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub signature: Option<String>,
        }

        impl $crate::cursor::JobCursor for $name {
            fn take_signature(&mut self) -> Option<String> {
                self.signature.take()
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
