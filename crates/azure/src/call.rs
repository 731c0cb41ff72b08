//! Runs one call of a port and converts every failure to a [`StoreError`].

use std::sync::Arc;

use super::classify::{self, CallKind};
use super::refusal::Refusal;
use super::scrub::Scrubber;
use super::settings::{AzureAccount, Credential};
use super::transport::{self, HttpAnswer, HttpFault};
use crate::identity::roles;
use evenkeel_model::{AccountName, ETag};
use evenkeel_storage::check::Objection;
use evenkeel_storage::{ErrorClass, Resource, StoreError, Subject};

/// State for the calls of every port of one account.
#[derive(Clone)]
pub(super) struct Caller {
    account: AccountName,
    scrubber: Arc<Scrubber>,
    /// Name of the storage account, if an identity signs in to it.
    signed_in_to: Option<Arc<str>>,
}

/// Details of a refusal or fault that the error's `Display` omits; attached as its cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Detail(String);

impl Caller {
    pub(super) fn new(account: &AzureAccount) -> Self {
        let signed_in_to = matches!(account.credential, Credential::Entra(_))
            .then(|| account.name.as_str().into());
        Self {
            account: account.account.clone(),
            scrubber: Arc::new(Scrubber::new(account)),
            signed_in_to,
        }
    }

    /// Runs a call of the client library. Returns an answer of the service with status 2xx.
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

    /// Like [`run`](Self::run), for callers that inspect the refusal.
    pub(super) async fn try_run<T>(
        &self,
        call: impl Future<Output = azure_core::Result<T>> + Send,
    ) -> Result<HttpAnswer, CallFailure> {
        let answer = transport::take(call).await.map_err(CallFailure::Fault)?;
        match (answer.is_success(), answer.is_of_storage()) {
            (true, true) => Ok(answer),
            (true, false) => Err(CallFailure::Foreign(answer.status)),
            (false, _) => Err(CallFailure::Refusal(Refusal::of(&answer))),
        }
    }

    pub(super) fn failed(
        &self,
        operation: CallKind,
        what: Resource,
        failure: CallFailure,
    ) -> StoreError {
        match failure {
            CallFailure::Refusal(refusal) => self.refused(operation, what, refusal),
            CallFailure::Foreign(status) => self
                .error(operation.unknown(), operation, what, FOREIGN)
                .with_status(status, None),
            CallFailure::Fault(fault) => self.error(
                classify::faulted(operation, &fault),
                operation,
                what,
                self.scrubber.clean(fault.text()),
            ),
        }
    }

    pub(super) fn refused(
        &self,
        operation: CallKind,
        what: Resource,
        refusal: Refusal,
    ) -> StoreError {
        let class = classify::refused(operation, &refusal);
        // The service's message about wrong credentials may quote the signature and the signed text, so it is not shown. A 409
        // of this class is about a disabled resource, and its message is shown.
        let credentials = class == ErrorClass::Unauthorised && refusal.status != 409;
        let service_message = refusal
            .message
            .as_deref()
            .filter(|_| !credentials)
            .map(|text| self.scrubber.clean(text));
        let unheard = !refusal.is_of_the_service()
            && matches!(class, ErrorClass::Transient { .. } | ErrorClass::Ambiguous);
        let message = match service_message {
            service_message if unheard => {
                of_a_gateway(class, refusal.status, service_message.as_deref())
            }
            Some(service_message) => service_message,
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
            Some(id) => error.with_cause(Detail(format!("the service rejected the request {id}"))),
            None => error,
        }
    }

    /// The error of a 2xx answer that cannot be used.
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

    /// Converts the objection of a check to an error. The request is not sent, because the service would reject it.
    pub(super) fn checked<T>(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        checked: Result<T, Objection>,
    ) -> Result<T, StoreError> {
        checked.map_err(|objection| {
            self.error(objection.class, operation, what(), objection.message)
                .with_index(objection.index)
        })
    }

    pub(super) fn etag(
        &self,
        operation: CallKind,
        what: impl FnOnce() -> Resource,
        answer: &HttpAnswer,
    ) -> Result<ETag, StoreError> {
        let etag = answer.header("etag").and_then(|text| ETag::new(text).ok());
        etag.ok_or_else(|| self.unusable(operation, what(), answer, "the answer has no ETag"))
    }
}

#[derive(Debug)]
pub(super) enum CallFailure {
    /// The service or something in between rejected the request.
    Refusal(Refusal),
    /// A proxy, gateway or portal answered with this 2xx status. The state of the service is unknown.
    Foreign(u16),
    Fault(HttpFault),
}

/// The message for a 2xx answer that does not come from the service.
const FOREIGN: &str = "a proxy or gateway answered with success instead of the service. Check the endpoint and the network path";

/// The message for a refusal by a gateway. Its code and text may resemble those of the service.
fn of_a_gateway(class: ErrorClass, status: u16, service_message: Option<&str>) -> String {
    let effect = if class == ErrorClass::Ambiguous {
        "; the request may or may not have been executed"
    } else {
        ""
    };
    let words = service_message
        .map(|words| format!(" ({words})"))
        .unwrap_or_default();
    format!(
        "a proxy or gateway answered {status} instead of the service{words}{effect}. Check the endpoint and the network path"
    )
}

/// The message of an error if the service sent none, or one that must not be shown.
pub const fn default_message(class: ErrorClass, status: u16) -> &'static str {
    match class {
        ErrorClass::NotFound(_) => "it does not exist",
        ErrorClass::Conflict => "it already exists",
        ErrorClass::Precondition => "its ETag is not the expected one",
        ErrorClass::LeaseLost => "the pop receipt is no longer valid",
        ErrorClass::Throttled { .. } => "the service is busy",
        ErrorClass::Refused => "no connection",
        ErrorClass::Transient { .. } | ErrorClass::Ambiguous if matches!(status, 404 | 410) => {
            "a proxy or gateway, not the service, answered that it does not exist. Check the endpoint and the network path"
        }
        ErrorClass::Transient { .. } => "the service is temporarily unavailable",
        ErrorClass::Ambiguous => {
            "the service failed; the request may or may not have been executed"
        }
        ErrorClass::Permanent if matches!(status, 300..=399) => {
            "the endpoint answered with a redirect, which the service never does. Check the endpoint"
        }
        ErrorClass::Permanent => "the service rejected the request",
        ErrorClass::Unauthorised if status == 409 => {
            "it is disabled. An administrator must enable it"
        }
        ErrorClass::Unauthorised => {
            "the service rejected the credentials. Check the account name, key or SAS (services, permissions, expiry), firewall, and this machine's clock (15 minutes)"
        }
        ErrorClass::TooLarge => "it exceeds a size limit of the service",
    }
}
