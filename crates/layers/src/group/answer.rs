//! The answer to a caller, and the attribution of a shared request.

use tokio::sync::oneshot;

use evenkeel_storage::StoreError;

/// Where a caller waits.
pub(super) type Answer<T> = oneshot::Sender<Answered<T>>;

/// A caller's answer.
pub(super) struct Answered<T> {
    pub(super) result: Result<T, StoreError>,
    pub(super) paid: Paid,
}

/// The caller that a shared request is counted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Paid {
    /// With this caller.
    Here,
    /// With another.
    Elsewhere,
}

impl Paid {
    /// The first of many pays for all.
    pub(super) fn by_the_first() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Here).chain(std::iter::repeat(Self::Elsewhere))
    }
}

/// Runs a request for as long as a caller waits for it.
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

/// Tells a caller.
pub(super) fn tell<T>(answer: Answer<T>, paid: Paid, result: Result<T, StoreError>) {
    // A dropped caller needs no answer.
    drop(answer.send(Answered { result, paid }));
}
