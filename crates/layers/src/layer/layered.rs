//! A port with a layer around it.

use std::future::Future;
use std::sync::Arc;

use super::Request;
use crate::retry::EarlierAttempts;
use evenkeel_storage::StoreError;

pub trait Layer: Send + Sync + 'static {
    /// Sends a request, or returns an error instead. Each future that `send` returns is one attempt, and sends nothing before it
    /// is polled.
    fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
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

impl<S: ?Sized, L: Layer> Layered<S, L> {
    /// Creates or deletes something.
    pub(super) async fn change<F: Future<Output = Result<bool, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<bool, StoreError> {
        let earlier = EarlierAttempts::default();
        let changed = self.layer.call(request.after(&earlier), send).await;
        earlier.done(changed)
    }
}
