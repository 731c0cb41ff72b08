//! A port with a layer around it.

use std::future::Future;
use std::sync::Arc;

use super::Request;
use evenkeel_storage::StoreError;

pub trait Layer: Send + Sync + 'static {
    /// Sends a request, or returns an error instead. The request is not sent before `send` is polled.
    fn call<T: Send>(
        &self,
        request: Request<'_>,
        send: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;
}

pub struct Layered<S: ?Sized, L> {
    pub(super) inner: Arc<S>,
    pub(super) layer: Arc<L>,
}

impl<S: ?Sized, L> Layered<S, L> {
    pub const fn new(inner: Arc<S>, layer: Arc<L>) -> Self {
        Self { inner, layer }
    }
}
