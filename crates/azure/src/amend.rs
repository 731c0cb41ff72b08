//! Changes to requests that the client library does not support, made before the request is signed.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::headers::{CONTENT_LENGTH, HeaderName};
use azure_core::{Body, Context, Policy, PolicyResult, Request};

/// Changes to one request. The context of the library's call passes them to [`Amend`].
#[derive(Debug, Clone, Default)]
pub(super) struct Amendment {
    headers: Vec<(&'static str, String)>,
    without: Vec<&'static str>,
    query: Vec<(&'static str, String)>,
    body: Vec<fn(&str) -> String>,
}

impl Amendment {
    /// Sets a header. `name` must be in lower case.
    #[must_use]
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    #[must_use]
    pub(super) fn without(mut self, name: &'static str) -> Self {
        self.without.push(name);
        self
    }

    #[must_use]
    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// Rewrites the body. Rewrites run in the order in which they were added.
    #[must_use]
    pub(super) fn body(mut self, rewrite: fn(&str) -> String) -> Self {
        self.body.push(rewrite);
        self
    }

    /// A context that contains these changes.
    pub(super) fn context(self) -> Context {
        let mut context = Context::new();
        context.insert(self);
        context
    }
}

/// Applies the [`Amendment`] of a request. It runs before signing, so the signature covers the changes.
#[derive(Debug)]
pub(super) struct Amend;

#[async_trait]
impl Policy for Amend {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        if let Some(amendment) = context.get::<Amendment>() {
            amendment.apply(request)?;
        }
        match next {
            [first, rest @ ..] => first.send(context, request, rest).await,
            [] => Err(azure_core::Error::message(ErrorKind::Other, "no transport")),
        }
    }
}

impl Amendment {
    fn apply(&self, request: &mut Request) -> azure_core::Result<()> {
        if !self.without.is_empty() {
            // The library cannot remove a header, so the request is built again from the rest.
            let mut lighter = Request::new(request.url().clone(), *request.method());
            for (name, value) in request
                .headers()
                .iter()
                .filter(|(name, _)| !self.without.contains(&name.as_str()))
            {
                lighter.insert_header(name.clone(), value.clone());
            }
            lighter.set_body(request.body().clone());
            *request = lighter;
        }
        for (name, value) in &self.query {
            request.url_mut().query_pairs_mut().append_pair(name, value);
        }
        if let (false, Body::Bytes(body)) = (self.body.is_empty(), request.body()) {
            let body = std::str::from_utf8(body)?.to_owned();
            let body = self.body.iter().fold(body, |body, rewrite| rewrite(&body));
            request.insert_header(CONTENT_LENGTH, body.len().to_string());
            request.set_body(body);
        }
        for (name, value) in &self.headers {
            request.insert_header(HeaderName::from_static(name), value.clone());
        }
        Ok(())
    }
}
