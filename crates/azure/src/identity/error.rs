//! Why no token could be obtained.

use std::error::Error;
use std::time::Duration;

use serde_json::Value;

use crate::http::{HttpAnswer, HttpFault};
use evenkeel_storage::ErrorClass;

const MESSAGE_CHARS: usize = 300;

/// Why no token could be obtained. The text contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TokenError {
    text: String,
    class: ErrorClass,
    /// Whether the endpoint exists and is only temporarily unavailable.
    is_temporary: bool,
}

impl TokenError {
    /// The endpoint rejected the request or could not serve it.
    pub(super) fn answered(host: &str, answer: &HttpAnswer) -> Self {
        let retry_after = answer.retry_after();
        let class = match answer.status {
            // IMDS answers 404 and 410 while it is updated ("How to use managed identities to acquire an access token", errors).
            404 | 408 | 410 | 429 | 500..=599 => ErrorClass::Transient { retry_after },
            _ => ErrorClass::Unauthorised,
        };
        let detail = error_message(&answer.body)
            .map(|text| format!(": {text}"))
            .unwrap_or_default();
        // IMDS also answers 404 if the machine has no identity.
        let is_temporary = class.is_transient() && answer.status != 404;
        Self {
            text: format!("{host} answered {}{detail}", answer.status),
            class,
            is_temporary,
        }
    }

    pub(super) fn unreachable(host: &str, fault: &HttpFault) -> Self {
        Self {
            text: format!("{host}: {}", fault.text()),
            class: ErrorClass::Transient { retry_after: None },
            is_temporary: false,
        }
    }

    pub(super) fn silent(limit: Duration) -> Self {
        let text = format!("no answer within {} s", limit.as_secs());
        Self {
            text,
            class: ErrorClass::Transient { retry_after: None },
            is_temporary: false,
        }
    }

    pub(super) fn unusable() -> Self {
        Self {
            text: "the token contains characters that a header cannot contain".to_owned(),
            class: ErrorClass::Unauthorised,
            is_temporary: false,
        }
    }

    /// A credential cannot be used: its file, its tool or its settings are wrong.
    pub(super) fn credential(text: &str) -> Self {
        Self {
            text: short(text),
            class: ErrorClass::Unauthorised,
            is_temporary: false,
        }
    }

    /// Converts an error of the identity library: returns the error that our transport put into it, or takes its text.
    pub(super) fn of(error: &azure_core_v1::Error) -> Self {
        let own = std::iter::successors(Some(error as &dyn Error), |&error| error.source())
            .find_map(|cause| cause.downcast_ref::<Self>());
        own.cloned()
            .unwrap_or_else(|| Self::credential(&error.to_string()))
    }

    pub(super) fn of_all(failures: &[(String, Self)]) -> Self {
        let texts: Vec<String> = failures
            .iter()
            .map(|(name, error)| format!("{name}: {}", error.text))
            .collect();
        // If the error of any credential is transient, this credential may succeed later. So the combined error is
        // transient.
        let class = failures
            .iter()
            .map(|(_, error)| error.class)
            .find(|class| class.is_transient());
        Self {
            text: format!("no token from {}", texts.join("; ")),
            class: class.unwrap_or(ErrorClass::Unauthorised),
            is_temporary: false,
        }
    }

    /// Whether the endpoint exists and is only temporarily unavailable.
    pub(super) const fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// Class of a request that cannot be sent without a token.
    pub const fn class(&self) -> ErrorClass {
        self.class
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The message of the endpoint: `error_description` of Entra ID ("AADSTS700016: …") and IMDS, `message` of App Service.
fn error_message(body: &[u8]) -> Option<String> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let text = ["error_description", "message", "error"]
        .iter()
        .find_map(|key| json.get(key)?.as_str())?;
    Some(short(text))
}

/// Shortens a message to one line, without the ids that Entra ID appends and the library's link.
fn short(text: &str) -> String {
    let text = text
        .split(" Trace ID:")
        .next()
        .unwrap_or_default()
        .split("\nTo troubleshoot")
        .next()
        .unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .take(MESSAGE_CHARS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &'static str) -> HttpAnswer {
        HttpAnswer {
            status,
            headers: reqwest::header::HeaderMap::new(),
            body: body.into(),
        }
    }

    #[test]
    fn a_refusal_names_the_endpoint_and_its_code() {
        let body = r#"{"error":"invalid_client","error_description":"AADSTS7000215: Invalid client secret provided. Trace ID: 1 Correlation ID: 2","error_codes":[7000215]}"#;
        let error = TokenError::answered("login.microsoftonline.com", &answer(401, body));
        assert_eq!(
            error.to_string(),
            "login.microsoftonline.com answered 401: AADSTS7000215: Invalid client secret provided."
        );
        assert_eq!(error.class(), ErrorClass::Unauthorised);
        let imds = TokenError::answered(
            "169.254.169.254",
            &answer(
                400,
                r#"{"error":"invalid_request","error_description":"Identity not found"}"#,
            ),
        );
        assert_eq!(
            imds.text(),
            "169.254.169.254 answered 400: Identity not found"
        );
        assert_eq!(
            TokenError::answered("h", &answer(502, "<html>")).text(),
            "h answered 502"
        );
    }

    #[test]
    fn an_endpoint_that_is_away_or_busy_may_answer_later() {
        for status in [404, 408, 410, 429, 500, 503] {
            assert!(
                TokenError::answered("h", &answer(status, ""))
                    .class()
                    .is_transient(),
                "{status}"
            );
        }
        assert!(
            TokenError::unreachable("h", &HttpFault::Refused("no connection".to_owned()))
                .class()
                .is_transient()
        );
        assert_eq!(
            TokenError::answered("h", &answer(400, "")).class(),
            ErrorClass::Unauthorised
        );
    }

    #[test]
    fn the_error_lists_the_reason_of_each_credential() {
        let failures = [
            (
                "managed identity".to_owned(),
                TokenError::unreachable(
                    "169.254.169.254",
                    &HttpFault::Refused("no connection".to_owned()),
                ),
            ),
            (
                "Azure CLI".to_owned(),
                TokenError::credential("az not found on PATH\nTo troubleshoot, visit https://x"),
            ),
        ];
        let error = TokenError::of_all(&failures);
        assert_eq!(
            error.text(),
            "no token from managed identity: 169.254.169.254: no connection; Azure CLI: az not found on PATH"
        );
        assert!(error.class().is_transient());
    }
}
