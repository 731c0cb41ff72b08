//! One call of a port: runs the request, and turns every failure into a [`StoreError`].

use std::sync::Arc;

use super::classify::{self, CallKind};
use super::refusal::Refusal;
use super::scrub::Scrubber;
use super::settings::{AzureAccount, Credential};
use super::transport::{self, HttpAnswer, HttpFault};
use crate::identity::roles;
use evenkeel_model::{AccountName, ETag};
use evenkeel_storage::error::Cause;
use evenkeel_storage::{ErrorClass, Resource, StoreError, Subject};

/// State that every port of one account needs to run calls.
#[derive(Clone)]
pub(super) struct Caller {
    account: AccountName,
    scrubber: Arc<Scrubber>,
    /// The storage account's own name, where an identity signs in to it.
    signed_in_to: Option<Arc<str>>,
}

/// A refusal or fault as an error's cause, kept for the details that `Display` of the error leaves out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Detail(String);

impl Caller {
    /// For calls to `account`.
    pub(super) fn new(account: &AzureAccount) -> Self {
        let signed_in_to = matches!(account.credential, Credential::Entra(_))
            .then(|| account.name.as_str().into());
        Self {
            account: account.account.clone(),
            scrubber: Arc::new(Scrubber::new(account)),
            signed_in_to,
        }
    }

    /// Runs a call of the client library. The answer is the service's, and a 2xx one.
    pub(super) async fn run<T>(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        call: impl Future<Output = azure_core::Result<T>> + Send,
    ) -> Result<HttpAnswer, StoreError> {
        match self.try_run(call).await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(self.failed(operation, what(), failure)),
        }
    }

    /// As [`run`](Self::run), for callers that read something out of a refusal themselves.
    pub(super) async fn try_run<T>(
        &self,
        call: impl Future<Output = azure_core::Result<T>> + Send,
    ) -> Result<HttpAnswer, NotOk> {
        let answer = transport::take(call).await.map_err(NotOk::Fault)?;
        match (answer.is_success(), answer.is_of_storage()) {
            (true, true) => Ok(answer),
            (true, false) => Err(NotOk::Foreign(answer.status)),
            (false, _) => Err(NotOk::Refusal(Refusal::of(&answer))),
        }
    }

    /// The error of a failed call.
    pub(super) fn failed(&self, operation: CallKind, what: Resource, failure: NotOk) -> StoreError {
        match failure {
            NotOk::Refusal(refusal) => self.refused(operation, what, refusal),
            NotOk::Foreign(status) => self
                .error(operation.unknown(), operation, what, FOREIGN)
                .with_status(status, None),
            NotOk::Fault(fault) => self.error(
                classify::faulted(operation, &fault),
                operation,
                what,
                self.scrubber.clean(fault.text()),
            ),
        }
    }

    /// The error of a refused request.
    pub(super) fn refused(
        &self,
        operation: CallKind,
        what: Resource,
        refusal: Refusal,
    ) -> StoreError {
        let class = classify::refused(operation, &refusal);
        // The service's message about a signature quotes it, and the text that was signed. A 409 is about what was disabled.
        let credentials = class == ErrorClass::Unauthorised && refusal.status != 409;
        let said = refusal
            .message
            .as_deref()
            .filter(|_| !credentials)
            .map(|text| self.scrubber.clean(text));
        let unheard = !refusal.is_of_the_service()
            && matches!(class, ErrorClass::Transient { .. } | ErrorClass::Ambiguous);
        let message = match said {
            said if unheard => of_a_gateway(class, refusal.status, said.as_deref()),
            Some(said) => said,
            None => match &self.signed_in_to {
                Some(name) if credentials => roles::refusal(
                    refusal.status,
                    roles::least(what.service()),
                    &format!("the storage account {name}"),
                ),
                _ => default_message(class, refusal.status).to_owned(),
            },
        };
        let code = refusal.code.filter(|_| !unheard);
        let error = self
            .error(class, operation, what, message)
            .with_status(refusal.status, code)
            .with_index(refusal.index);
        match refusal.request_id {
            Some(id) => error.with_cause(Detail(format!("the service refused the request {id}"))),
            None => error,
        }
    }

    /// An answer that says the request succeeded but cannot be used.
    pub(super) fn unusable(
        &self,
        operation: CallKind,
        what: Resource,
        answer: &HttpAnswer,
        message: impl Into<String>,
    ) -> StoreError {
        self.error(operation.unknown(), operation, what, message.into())
            .with_status(answer.status, None)
    }

    /// An error with a class of the caller's choosing.
    pub(super) fn error(
        &self,
        class: ErrorClass,
        operation: CallKind,
        what: Resource,
        message: impl Into<String>,
    ) -> StoreError {
        StoreError::new(
            class,
            operation.name,
            Subject {
                account: self.account.clone(),
                resource: what,
            },
            message,
        )
    }

    /// A request that is not sent since the service would refuse it.
    pub(super) fn invalid(
        &self,
        class: ErrorClass,
        operation: CallKind,
        what: Resource,
        why: impl Into<Cause>,
    ) -> StoreError {
        let why = why.into();
        self.error(class, operation, what, why.to_string())
            .with_cause(why)
    }

    /// The ETag that an answer names.
    pub(super) fn etag(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        answer: &HttpAnswer,
    ) -> Result<ETag, StoreError> {
        let etag = answer.header("etag").and_then(|text| ETag::new(text).ok());
        etag.ok_or_else(|| self.unusable(operation, what(), answer, "the answer names no ETag"))
    }
}

/// Why a call got no 2xx answer of the service.
#[derive(Debug)]
pub(super) enum NotOk {
    /// The service refused, or something in its place.
    Refusal(Refusal),
    /// A proxy, gateway or portal said yes, with this status: nothing is known of the service.
    Foreign(u16),
    /// There is no whole answer.
    Fault(HttpFault),
}

/// The message for a success that the service has not told.
const FOREIGN: &str = "a proxy or gateway, and not the service, says that it is done: check the endpoint and the way to it";

/// The message for a refusal that the service has not told: its code and words may be like the service's, and say nothing of it.
fn of_a_gateway(class: ErrorClass, status: u16, said: Option<&str>) -> String {
    let effect = if class == ErrorClass::Ambiguous {
        ", and the service may or may not have done it"
    } else {
        ""
    };
    let words = said
        .map(|words| format!(" (in its words: {words})"))
        .unwrap_or_default();
    format!(
        "a proxy or gateway, and not the service, answered {status}{words}{effect}: check the endpoint and the way to it"
    )
}

/// The message in place of a missing or unfit one from the service.
pub const fn default_message(class: ErrorClass, status: u16) -> &'static str {
    match class {
        ErrorClass::NotFound(_) => "it does not exist",
        ErrorClass::Conflict => "it exists already",
        ErrorClass::Precondition => "it is not at the ETag given",
        ErrorClass::LeaseLost => "the pop receipt is no longer valid",
        ErrorClass::Throttled { .. } => "the service is busy",
        ErrorClass::Refused => "no connection",
        ErrorClass::Transient { .. } | ErrorClass::Ambiguous if matches!(status, 404 | 410) => {
            "a proxy or gateway, and not the service, says that it does not exist: check the endpoint and the way to it"
        }
        ErrorClass::Transient { .. } => "the service could not answer",
        ErrorClass::Ambiguous => "the service failed, and may or may not have done it",
        ErrorClass::Permanent if matches!(status, 300..=399) => {
            "the endpoint answered with a redirection: it is not that of the service"
        }
        ErrorClass::Permanent => "the service refuses this request",
        ErrorClass::Unauthorised if status == 409 => "it was disabled, until it is enabled again",
        ErrorClass::Unauthorised => {
            "the service refused the credentials, or what they ask for: check the account's name, key or SAS (its services, permissions, expiry), the firewall, and that this machine's clock is right to 15 minutes"
        }
        ErrorClass::TooLarge => "it is over a size limit of the service",
    }
}
