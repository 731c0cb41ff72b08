//! From a status and a code to an error class. Pure; the table the retry decisions rest on.
//!
//! Sources: "Table Storage error codes", "Queue Storage error codes", "Blob Storage error codes" and
//! "Common REST API error codes" of the Azure Storage REST reference.

use std::time::Duration;

use super::refusal::Refusal;
use super::transport::HttpFault;
use evenkeel_storage::{ErrorClass, Missing};

/// An operation of the service, as far as its failures go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKind {
    /// The operation in the service's words.
    pub name: &'static str,
    effect: CallEffect,
    absent: Absent,
}

/// Whether repeating it blindly could do harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallEffect {
    /// Reads only: an unknown outcome does not matter.
    Read,
    /// Changes something. Get Messages too: it hides and counts.
    Write,
}

/// Meaning of the service's 404 without a telling code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    /// The table, queue or container.
    Container,
    /// The entity or blob.
    Item,
    /// The message, or another receiver has it by now.
    Lease,
}

impl CallKind {
    /// An operation that only reads.
    pub(super) const fn read(name: &'static str, absent: Absent) -> Self {
        Self {
            name,
            effect: CallEffect::Read,
            absent,
        }
    }

    /// An operation that changes something.
    pub(super) const fn write(name: &'static str, absent: Absent) -> Self {
        Self {
            name,
            effect: CallEffect::Write,
            absent,
        }
    }

    /// The same operation as a part of another one.
    pub(super) const fn within(self, whole: Self) -> Self {
        Self {
            name: whole.name,
            ..self
        }
    }

    /// The class of an unknown outcome.
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

/// The service needs at least 40 s after a table was deleted, and 30 s for queues and containers
/// ("Delete Table", "Delete Queue", "Delete Container").
pub(super) const BEING_DELETED_WAIT: Duration = Duration::from_secs(40);

/// The class of a refused request.
pub(super) fn refused(operation: CallKind, refusal: &Refusal) -> ErrorClass {
    refusal
        .service_code()
        .and_then(|code| by_code(operation, refusal, code))
        .unwrap_or_else(|| by_status(operation, refusal))
}

/// The codes that say more than their status, or that come with different ones.
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
        // 400 PopReceiptMismatch in the documentation of errors, 404 in that of Update Message.
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
        // A copy that is under way, an account that is being set up, a lease held on a blob,
        // bytes that were damaged or cut off on their way: not executed, and over sooner or later.
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

        // The last two are 409s: disabled by an administrator, who may enable them again, as a suspended account (403).
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

        // 409s without information about the order of writers.
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
        // The last: a commit drops the blocks that other writers left waiting.
        "UpdateConditionNotSatisfied"
        | "ConditionNotMet"
        | "TargetConditionNotMet"
        | "InvalidBlockList" => ErrorClass::Precondition,
        _ => return None,
    })
}

/// Gateways between a worker and the service answer for it: Envoy gives 503 where the connection was lost *after* the request was
/// forwarded, others 408 where the answer took too long, an ingress 404 while a route is missing. Only the service's own statement proves
/// that a request was not executed, or that something is absent, present or at another ETag.
fn by_status(operation: CallKind, refusal: &Refusal) -> ErrorClass {
    let retry_after = refusal.retry_after;
    let busy = ErrorClass::Throttled { retry_after };
    match refusal.status {
        401 | 403 | 407 => ErrorClass::Unauthorised,
        404 | 410 if refusal.is_of_the_service() => operation.not_found(),
        409 if refusal.is_of_the_service() => ErrorClass::Conflict,
        304 | 412 if refusal.is_of_the_service() => ErrorClass::Precondition,
        // It asks for the request again.
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
        // 400 and the rest of the 4xx, redirections, and numbers that HTTP does not know.
        _ => ErrorClass::Permanent,
    }
}

/// The class of a request that got no whole answer.
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
    fn what_is_not_there_is_told_apart() {
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
    fn a_gateway_that_answers_for_the_service_leaves_a_write_in_doubt() {
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
        // A gateway's own code says nothing of the service, not even one of the service's.
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
            "limits of a gateway are asked before anything is forwarded"
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
