//! Errors of the library for applications.

use std::fmt::Display;

use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::patterns::lookup::{LookupError, TermError};
use evenkeel_model::template::RenderError;
use evenkeel_storage::StoreError;
use evenkeel_storage::wide::ReadError;

use crate::encryption::EncryptionError;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// A job that the worker would poison, or that no queue carries: why.
    #[error("{0}")]
    Job(String),
    /// A name that the configuration does not know.
    #[error("{0}")]
    Unknown(String),
    /// A text that is no term of a lookup.
    #[error(transparent)]
    Term(#[from] TermError),
    /// The keys of a view cannot answer the lookup.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A continuation that is not of this lookup: the reason.
    #[error("the continuation {0}")]
    Continuation(&'static str),
    /// A value of a row, of which the template of a join makes no key.
    #[error("{doing}")]
    Join {
        /// The table and the row.
        doing: String,
        /// Why it makes none.
        #[source]
        source: RenderError,
    },
    /// A store did not answer, or refused.
    #[error("{doing}")]
    Store {
        /// The step that failed.
        doing: String,
        /// Why it was not.
        #[source]
        source: Box<StoreError>,
    },
    /// A wide entity could not be read.
    #[error("{doing}")]
    Read {
        /// The step that failed.
        doing: String,
        /// Why it was not.
        #[source]
        source: Box<ReadError>,
    },
    /// Encrypted properties could not be sealed or opened.
    #[error("{doing}")]
    Encryption {
        /// The entity.
        doing: String,
        /// Why.
        #[source]
        source: Box<EncryptionError>,
    },
    /// The value read could not be written on.
    #[error("writing what was read")]
    Output(#[source] std::io::Error),
    /// Stored data in a form that evenkeel does not write: the place and the problem.
    #[error("{0}")]
    Broken(String),
}

impl ClientError {
    /// Whether the call cannot mean anything with this configuration: it fails again however often it is made.
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
            "the catalog does not know the {what} {name}; {}",
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
