//! The channel that answers a caller, and the choice of the caller that is charged for a shared request.

use tokio::sync::oneshot;

use evenkeel_storage::StoreError;

pub(super) type Answer<T> = oneshot::Sender<Answered<T>>;

pub(super) struct Answered<T> {
    pub(super) result: Result<T, StoreError>,
    pub(super) paid: Paid,
}

/// Whether this caller is charged for the shared request in counts and traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paid {
    Here,
    /// Another caller of the same request is charged.
    Elsewhere,
}

impl Paid {
    /// Charges the first caller of a request only.
    pub(super) fn by_the_first() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Here).chain(std::iter::repeat(Self::Elsewhere))
    }
}

/// Runs a request until it ends or `given_up` resolves because no caller waits any more.
pub(super) async fn awaited<T>(
    request: impl Future<Output = T>,
    given_up: impl Future<Output = ()>,
) -> Option<T> {
    tokio::select! {
        biased;
        result = request => Some(result),
        () = given_up => None,
    }
}

pub(super) fn tell<T>(answer: Answer<T>, paid: Paid, result: Result<T, StoreError>) {
    // The send fails if the caller was dropped, and then nobody needs the answer.
    drop(answer.send(Answered { result, paid }));
}
