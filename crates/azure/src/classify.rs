//! Maps a status and an error code to an error class. Retry decisions depend on this table.
//!
//! Sources: "Table Storage error codes", "Queue Storage error codes", "Blob Storage error codes" and
//! "Common REST API error codes" of the Azure Storage REST reference.

use std::time::Duration;

use super::refusal::Refusal;
use super::transport::HttpFault;
use evenkeel_storage::{ErrorClass, Missing};

/// The properties of an operation that matter for its failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKind {
    /// The service's name of the operation.
    pub name: &'static str,
    effect: CallEffect,
    absent: Absent,
}

/// Whether repeating the operation blindly could do harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEffect {
    /// Changes nothing, so an unknown outcome does not matter.
    Read,
    /// Changes something. Get Messages is a write: it hides messages and counts deliveries.
    Write,
}

/// What a 404 of the service without a specific code means for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Container,
    Item,
    /// The message is missing, or another receiver has it.
    Lease,
}

impl CallKind {
    pub(super) const fn read(name: &'static str, absent: Absent) -> Self {
        Self {
            name,
            effect: CallEffect::Read,
            absent,
        }
    }

    pub(super) const fn write(name: &'static str, absent: Absent) -> Self {
        Self {
            name,
            effect: CallEffect::Write,
            absent,
        }
    }

    /// Makes this operation a step of `whole`. Failures are classified as those of this operation, and reported under the name
    /// of `whole`.
    pub(super) const fn within(self, whole: Self) -> Self {
        Self {
            name: whole.name,
            ..self
        }
    }

    pub(super) const fn unknown(self) -> ErrorClass {
        match self.effect {
            CallEffect::Read => ErrorClass::Transient { retry_after: None },
            CallEffect::Write => ErrorClass::Ambiguous,
        }
    }

    const fn not_found(self) -> ErrorClass {
        match self.absent {
            Absent::Container => ErrorClass::NotFound(Missing::Container),
            Absent::Item => ErrorClass::NotFound(Missing::Item),
            Absent::Lease => ErrorClass::LeaseLost,
        }
    }
}

/// Default wait: the service needs at least 40 s after the deletion of a table, and 30 s for queues and containers
/// ("Delete Table", "Delete Queue", "Delete Container").
pub(super) const BEING_DELETED_WAIT: Duration = Duration::from_secs(40);

pub(super) fn refused(operation: CallKind, refusal: &Refusal) -> ErrorClass {
    refusal
        .service_code()
        .and_then(|code| by_code(operation, refusal, code))
        .unwrap_or_else(|| by_status(operation, refusal))
}

/// Classifies error codes that are more specific than their status, or that the service sends with several statuses.
fn by_code(operation: CallKind, refusal: &Refusal, code: &str) -> Option<ErrorClass> {
    Some(match code {
        "ServerBusy" => ErrorClass::Throttled {
            retry_after: refusal.retry_after,
        },
        "OperationTimedOut" => operation.unknown(),

        "TableNotFound" | "QueueNotFound" | "ContainerNotFound" => {
            ErrorClass::NotFound(Missing::Container)
        }
        "BlobNotFound" | "EntityNotFound" => ErrorClass::NotFound(Missing::Item),
        "ResourceNotFound" => operation.not_found(),
        // The list of error codes documents 400 for PopReceiptMismatch, Update Message documents 404.
        "MessageNotFound" | "PopReceiptMismatch" => ErrorClass::LeaseLost,

        "TableBeingDeleted" | "QueueBeingDeleted" | "ContainerBeingDeleted" => {
            ErrorClass::Transient {
                retry_after: Some(
                    refusal
                        .retry_after
                        .map_or(BEING_DELETED_WAIT, |wait| wait.max(BEING_DELETED_WAIT)),
                ),
            }
        }
        // A pending copy, an account in creation, a leased blob, or a corrupted or truncated upload: the request was not
        // executed, and the condition is temporary.
        "PendingCopyOperation"
        | "AccountBeingCreated"
        | "LeaseIdMissing"
        | "LeaseIdMismatchWithBlobOperation"
        | "LeaseIdMismatchWithContainerOperation"
        | "Md5Mismatch"
        | "Crc64Mismatch"
        | "IncompleteBody" => ErrorClass::Transient {
            retry_after: refusal.retry_after,
        },

        // The last two are 409s: an administrator disabled the resource and may enable it again, as with a suspended account (403).
        "InvalidAuthenticationInfo"
        | "NoAuthenticationInformation"
        | "MissingAuthenticationHeader"
        | "QueueDisabled"
        | "ContainerDisabled" => ErrorClass::Unauthorised,

        "EntityTooLarge"
        | "PropertyValueTooLarge"
        | "KeyValueTooLarge"
        | "RequestBodyTooLarge"
        | "MessageTooLarge"
        | "MetadataTooLarge"
        | "ContentLengthLargerThanLimit"
        | "BlockCountExceedsLimit" => ErrorClass::TooLarge,

        // These 409s are no evidence about concurrent writers.
        "SnapshotsPresent"
        | "InvalidBlobType"
        | "ResourceTypeMismatch"
        | "BlobImmutableDueToPolicy"
        | "BlobImmutableDueToLegalHold"
        | "BlobArchived"
        | "BlobBeingRehydrated"
        | "FeatureVersionMismatch"
        | "InvalidOperation"
        | "LeaseAlreadyPresent" => ErrorClass::Permanent,

        "EntityAlreadyExists"
        | "TableAlreadyExists"
        | "QueueAlreadyExists"
        | "ContainerAlreadyExists"
        | "BlobAlreadyExists" => ErrorClass::Conflict,
        // InvalidBlockList shows that another writer has changed the blob: its commit discarded our uncommitted blocks.
        "UpdateConditionNotSatisfied"
        | "ConditionNotMet"
        | "TargetConditionNotMet"
        | "InvalidBlockList" => ErrorClass::Precondition,
        _ => return None,
    })
}

/// Classifies by status. Gateways may answer in place of the service: Envoy sends 503 if the connection is lost *after* it
/// forwarded the request. Other gateways send 408 if the answer takes too long. An ingress sends 404 while a route is
/// missing. So only an answer of the service itself proves that a request was not executed, or that something is absent,
/// exists or has another ETag.
fn by_status(operation: CallKind, refusal: &Refusal) -> ErrorClass {
    let retry_after = refusal.retry_after;
    let busy = ErrorClass::Throttled { retry_after };
    match refusal.status {
        401 | 403 | 407 => ErrorClass::Unauthorised,
        404 | 410 if refusal.is_of_the_service() => operation.not_found(),
        409 if refusal.is_of_the_service() => ErrorClass::Conflict,
        304 | 412 if refusal.is_of_the_service() => ErrorClass::Precondition,
        // These statuses ask the client to repeat the request.
        425 | 449 => ErrorClass::Transient { retry_after },
        304 | 404 | 408 | 409 | 410 | 412 => match operation.effect {
            CallEffect::Read => ErrorClass::Transient { retry_after },
            CallEffect::Write => ErrorClass::Ambiguous,
        },
        413 => ErrorClass::TooLarge,
        429 => busy,
        503 => match operation.effect {
            CallEffect::Write if !refusal.is_of_the_service() => ErrorClass::Ambiguous,
            CallEffect::Read | CallEffect::Write => busy,
        },
        501 | 505 => ErrorClass::Permanent,
        500..=599 => operation.unknown(),
        // 400, the other 4xx, redirects, and unknown statuses.
        _ => ErrorClass::Permanent,
    }
}

pub(super) const fn faulted(operation: CallKind, fault: &HttpFault) -> ErrorClass {
    match fault {
        HttpFault::TooLong => match operation.effect {
            CallEffect::Read => ErrorClass::Permanent,
            CallEffect::Write => ErrorClass::Ambiguous,
        },
        other => other.class(operation.unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: CallKind = CallKind::read("Get Entity", Absent::Item);
    const WRITE: CallKind = CallKind::write("Insert Entity", Absent::Container);
    const LEASE: CallKind = CallKind::write("Update Message", Absent::Lease);

    fn class(operation: CallKind, status: u16, code: &str) -> ErrorClass {
        let code = (!code.is_empty()).then(|| code.to_owned());
        refused(
            operation,
            &Refusal {
                status,
                code,
                request_id: Some("7d6eb5c1".to_owned()),
                ..Refusal::default()
            },
        )
    }

    #[test]
    fn an_unknown_outcome_matters_to_writes_alone() {
        for (status, code) in [
            (500, "InternalError"),
            (500, "OperationTimedOut"),
            (502, ""),
            (504, ""),
            (599, ""),
        ] {
            assert_eq!(
                class(WRITE, status, code),
                ErrorClass::Ambiguous,
                "{status} {code}"
            );
            assert_eq!(
                class(READ, status, code),
                ErrorClass::Transient { retry_after: None },
                "{status} {code}"
            );
        }
        assert_eq!(
            faulted(WRITE, &HttpFault::Lost(String::new())),
            ErrorClass::Ambiguous
        );
        assert_eq!(
            faulted(READ, &HttpFault::Lost(String::new())),
            ErrorClass::Transient { retry_after: None }
        );
        assert_eq!(
            faulted(WRITE, &HttpFault::Refused(String::new())),
            ErrorClass::Refused
        );
    }

    #[test]
    fn missing_containers_items_and_leases_are_distinguished() {
        assert_eq!(
            class(READ, 404, "TableNotFound"),
            ErrorClass::NotFound(Missing::Container)
        );
        assert_eq!(
            class(READ, 404, "ResourceNotFound"),
            ErrorClass::NotFound(Missing::Item)
        );
        assert_eq!(
            class(WRITE, 404, "ResourceNotFound"),
            ErrorClass::NotFound(Missing::Container)
        );
        assert_eq!(class(LEASE, 404, "MessageNotFound"), ErrorClass::LeaseLost);
        assert_eq!(
            class(LEASE, 400, "PopReceiptMismatch"),
            ErrorClass::LeaseLost
        );
        assert_eq!(
            class(LEASE, 404, "QueueNotFound"),
            ErrorClass::NotFound(Missing::Container)
        );
        let named = Refusal {
            status: 404,
            request_id: Some("7d6eb5c1".to_owned()),
            ..Refusal::default()
        };
        assert_eq!(refused(READ, &named), ErrorClass::NotFound(Missing::Item));
        assert_eq!(refused(LEASE, &named), ErrorClass::LeaseLost);
    }

    #[test]
    fn an_answer_of_a_gateway_makes_a_write_ambiguous() {
        let wait = Some(Duration::from_secs(7));
        let gateway = |status| Refusal {
            status,
            retry_after: wait,
            ..Refusal::default()
        };
        for status in [304, 404, 408, 409, 410, 412, 500, 502, 503, 504] {
            assert_eq!(
                refused(WRITE, &gateway(status)),
                ErrorClass::Ambiguous,
                "{status}"
            );
            assert_eq!(
                refused(LEASE, &gateway(status)),
                ErrorClass::Ambiguous,
                "{status}"
            );
            assert!(
                matches!(
                    refused(READ, &gateway(status)),
                    ErrorClass::Throttled { .. } | ErrorClass::Transient { .. }
                ),
                "{status}"
            );
        }
        // A code from a gateway is no evidence about the service, even if the service uses the same code.
        for (status, code) in [
            (404, "route_not_found"),
            (404, "ResourceNotFound"),
            (404, "TableNotFound"),
            (404, "BlobNotFound"),
            (404, "MessageNotFound"),
            (409, "EntityAlreadyExists"),
            (409, "TableBeingDeleted"),
            (412, "ConditionNotMet"),
            (503, "upstream_unavailable"),
            (503, "ServerBusy"),
        ] {
            let coded = Refusal {
                code: Some(code.to_owned()),
                ..gateway(status)
            };
            assert_eq!(
                refused(WRITE, &coded),
                ErrorClass::Ambiguous,
                "{status} {code}"
            );
            assert_eq!(
                refused(LEASE, &coded),
                ErrorClass::Ambiguous,
                "{status} {code}"
            );
            assert!(
                matches!(
                    refused(READ, &coded),
                    ErrorClass::Throttled { .. } | ErrorClass::Transient { .. }
                ),
                "{status} {code}"
            );
        }
        assert_eq!(
            refused(READ, &gateway(503)),
            ErrorClass::Throttled { retry_after: wait }
        );
        for status in [304, 404, 408, 409, 410, 412] {
            assert_eq!(
                refused(READ, &gateway(status)),
                ErrorClass::Transient { retry_after: wait },
                "{status}"
            );
        }
        let busy = ErrorClass::Throttled { retry_after: wait };
        assert_eq!(
            refused(
                WRITE,
                &Refusal {
                    request_id: Some("7d6eb5c1".to_owned()),
                    ..gateway(503)
                }
            ),
            busy
        );
        assert_eq!(
            refused(WRITE, &gateway(429)),
            busy,
            "a gateway applies its limits before it forwards a request"
        );
    }

    #[test]
    fn the_rest_of_the_table() {
        let expected = [
            (
                503,
                "ServerBusy",
                ErrorClass::Throttled { retry_after: None },
            ),
            (429, "", ErrorClass::Throttled { retry_after: None }),
            (
                409,
                "TableBeingDeleted",
                ErrorClass::Transient {
                    retry_after: Some(BEING_DELETED_WAIT),
                },
            ),
            (
                409,
                "QueueBeingDeleted",
                ErrorClass::Transient {
                    retry_after: Some(BEING_DELETED_WAIT),
                },
            ),
            (
                409,
                "ContainerBeingDeleted",
                ErrorClass::Transient {
                    retry_after: Some(BEING_DELETED_WAIT),
                },
            ),
            (409, "EntityAlreadyExists", ErrorClass::Conflict),
            (409, "", ErrorClass::Conflict),
            (409, "SnapshotsPresent", ErrorClass::Permanent),
            (412, "UpdateConditionNotSatisfied", ErrorClass::Precondition),
            (412, "", ErrorClass::Precondition),
            (413, "RequestBodyTooLarge", ErrorClass::TooLarge),
            (413, "", ErrorClass::TooLarge),
            (400, "EntityTooLarge", ErrorClass::TooLarge),
            (400, "PropertyValueTooLarge", ErrorClass::TooLarge),
            (400, "InvalidInput", ErrorClass::Permanent),
            (400, "", ErrorClass::Permanent),
            (401, "", ErrorClass::Unauthorised),
            (403, "AuthenticationFailed", ErrorClass::Unauthorised),
            (
                403,
                "AuthorizationPermissionMismatch",
                ErrorClass::Unauthorised,
            ),
            (403, "AccountIsDisabled", ErrorClass::Unauthorised),
            (409, "QueueDisabled", ErrorClass::Unauthorised),
            (409, "ContainerDisabled", ErrorClass::Unauthorised),
            (405, "", ErrorClass::Permanent),
            (416, "InvalidRange", ErrorClass::Permanent),
            (419, "", ErrorClass::Permanent),
            (449, "", ErrorClass::Transient { retry_after: None }),
            (501, "NotImplemented", ErrorClass::Permanent),
            (505, "", ErrorClass::Permanent),
            (302, "", ErrorClass::Permanent),
            (777, "NeverHeardOf", ErrorClass::Permanent),
        ];
        for (status, code, expected) in expected {
            assert_eq!(class(WRITE, status, code), expected, "{status} {code}");
        }
    }
}
