//! The channel that answers a caller, and the choice of the caller that is charged for a shared request.

use tokio::sync::oneshot;

use evenkeel_storage::StoreError;

pub(super) type Answer<T> = oneshot::Sender<AnsweredRequest<T>>;

pub(super) struct AnsweredRequest<T> {
    pub(super) result: Result<T, StoreError>,
    pub(super) charge: RequestCharge,
}

/// Whether this caller is charged for the shared request in counts and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestCharge {
    Charged,
    /// Another caller of the same request is charged.
    Free,
}

impl RequestCharge {
    pub(super) fn first_caller_only() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Charged).chain(std::iter::repeat(Self::Free))
    }
}

/// Runs a request until it ends or `given_up` resolves because no caller waits any more.
pub(super) async fn run_while_awaited<T>(
    request: impl Future<Output = T>,
    given_up: impl Future<Output = ()>,
) -> Option<T> {
    tokio::select! {
        biased;
        result = request => Some(result),
        () = given_up => None,
    }
}

pub(super) fn send_answer<T>(
    answer: Answer<T>,
    charge: RequestCharge,
    result: Result<T, StoreError>,
) {
    // The send fails if the caller was dropped, and then nobody needs the answer.
    drop(answer.send(AnsweredRequest { result, charge }));
}
