//! A port with a layer around it.

use std::future::Future;
use std::sync::Arc;

use super::Request;
use evenkeel_storage::StoreError;

/// Sees every request to a port.
pub trait Layer: Send + Sync + 'static {
    /// Sends a request, or refuses to. `send` sends it when it is polled, and not before.
    fn call<T: Send>(
        &self,
        request: Request<'_>,
        send: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;
}

/// A port with a layer around it: itself the same port.
pub struct Layered<S: ?Sized, L> {
    pub(super) inner: Arc<S>,
    pub(super) layer: Arc<L>,
}

impl<S: ?Sized, L> Layered<S, L> {
    /// Puts a layer around a port.
    pub const fn new(inner: Arc<S>, layer: Arc<L>) -> Self {
        Self { inner, layer }
    }
}
