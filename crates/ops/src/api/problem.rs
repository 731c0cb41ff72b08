use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use evenkeel_client::ClientError;
use evenkeel_engine::{Failure, FailureClass};
use evenkeel_model::cause;
use evenkeel_storage::{ErrorClass, StoreError};

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    error: String,
}

/// An error.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "problem", rename = "Body")]
pub(super) struct ErrorBody<'a> {
    /// The error message.
    error: &'a str,
}

impl Problem {
    /// The request is invalid (400).
    pub(crate) fn unusable(error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            error: error.into(),
        }
    }

    /// The body of the request is invalid (422).
    pub(super) fn unreadable(error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            error: error.into(),
        }
    }

    /// Something named in the request does not exist (404).
    pub(crate) fn unknown(error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            error: error.into(),
        }
    }

    /// The sender lacks the right (403).
    pub(super) fn withheld(error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            error: error.into(),
        }
    }

    /// The program cannot process the request now (503).
    pub(super) fn not_yet(error: impl Into<String>) -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            error: error.into(),
        }
    }

    /// A store failed.
    pub(super) fn store(doing: &str, error: &StoreError) -> Self {
        let status = match error.class {
            ErrorClass::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            class if class.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self {
            status,
            error: format!("{doing}: {}", cause::chain(error)),
        }
    }

    /// Prefixes the error with the part of the request to which it applies.
    pub(super) fn before(self, part: &str) -> Self {
        Self {
            error: format!("{part}: {}", self.error),
            ..self
        }
    }

    pub(crate) fn words(&self) -> &str {
        &self.error
    }

    pub(crate) const fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Store { doing, source } => Self::store(doing, source),
            ClientError::Read { .. } => Self::not_yet(cause::chain(&error)),
            ClientError::Broken(_) | ClientError::Output(_) | ClientError::Encryption { .. } => {
                Self {
                    status: StatusCode::BAD_GATEWAY,
                    error: error.to_string(),
                }
            }
            ClientError::Join { .. } => Self::unusable(cause::chain(&error)),
            ClientError::Unknown(_) => Self::unknown(error.to_string()),
            ClientError::Job(_)
            | ClientError::Term(_)
            | ClientError::Lookup(_)
            | ClientError::Continuation(_) => Self::unusable(error.to_string()),
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = match failure.class {
            FailureClass::Permanent => StatusCode::CONFLICT,
            FailureClass::Transient { .. }
            | FailureClass::Withheld { .. }
            | FailureClass::OutdatedCatalog => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            status,
            error: failure.chain(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: &self.error })).into_response()
    }
}

pub(super) async fn not_found() -> Problem {
    Problem::unknown("not found; see /api/v1/openapi.json")
}
