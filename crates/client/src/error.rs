//! Errors of the client library.

use std::fmt::Display;

use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::patterns::lookup::{LookupError, TermError};
use evenkeel_model::template::RenderError;
use evenkeel_storage::StoreError;
use evenkeel_storage::wide::ReadError;

use crate::encryption::EncryptionError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A worker would poison the job, or no configured queue accepts it.
    #[error("{0}")]
    Job(String),
    /// A name is unknown in the configuration.
    #[error("{0}")]
    Unknown(String),
    /// A text is not a valid term of a lookup.
    #[error(transparent)]
    Term(#[from] TermError),
    /// The lookup cannot be answered by the keys of the view.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The continuation is from another lookup.
    #[error("invalid continuation: {0}")]
    Continuation(&'static str),
    /// The key template of a join cannot be rendered with the values of a row.
    #[error("{doing}")]
    Join {
        /// The table and the row.
        doing: String,
        /// The cause.
        #[source]
        source: RenderError,
    },
    /// A store refused a request or did not answer.
    #[error("{doing}")]
    Store {
        /// What failed.
        doing: String,
        /// The cause.
        #[source]
        source: Box<StoreError>,
    },
    /// A wide entity could not be read.
    #[error("{doing}")]
    Read {
        /// What failed.
        doing: String,
        /// The cause.
        #[source]
        source: Box<ReadError>,
    },
    /// Properties could not be encrypted or decrypted.
    #[error("{doing}")]
    Encryption {
        /// The entity.
        doing: String,
        /// The cause.
        #[source]
        source: Box<EncryptionError>,
    },
    /// The value could not be written to the caller's output.
    #[error("could not write the output")]
    Output(#[source] std::io::Error),
    /// Stored data is malformed.
    #[error("{0}")]
    Broken(String),
}

impl ClientError {
    /// Whether the call will fail every time with this configuration, so that a retry is useless.
    pub const fn is_misuse(&self) -> bool {
        match self {
            Self::Job(_)
            | Self::Unknown(_)
            | Self::Term(_)
            | Self::Lookup(_)
            | Self::Continuation(_) => true,
            Self::Join { .. }
            | Self::Store { .. }
            | Self::Read { .. }
            | Self::Encryption { .. }
            | Self::Output(_)
            | Self::Broken(_) => false,
        }
    }

    pub(super) fn unknown(
        what: &str,
        name: impl Display,
        known: impl Iterator<Item = impl Display>,
    ) -> Self {
        let known: Vec<String> = known.map(|name| name.to_string()).collect();
        let name = name.to_string();
        Self::Unknown(format!(
            "the catalog has no {what} {name}; {}",
            meant_or_known(&name, &known)
        ))
    }

    pub(super) fn store(doing: impl Into<String>) -> impl FnOnce(StoreError) -> Self {
        let doing = doing.into();
        move |source| Self::Store {
            doing,
            source: Box::new(source),
        }
    }
}
