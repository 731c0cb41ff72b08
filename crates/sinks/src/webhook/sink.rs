//! The sink port for a receiver of events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};

use super::answer;
use super::event::{WebhookEvent, WebhookKey};
use evenkeel_azure::http::{EndpointKind, Exchange, HttpFault};
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{WebhookKeyError, WebhookSettings};
use evenkeel_model::{AccountName, CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{
    Clock, DocumentWrite, ErrorClass, Fields, Resource, Sink, SinkBatching, StoreError, Subject,
    WriteResults,
};

const SEND: &str = "Send Event";
const DEFINE: &str = "Define Topic";
const CONNECT: Duration = Duration::from_secs(5);
/// Maximum number of concurrent requests per topic.
const MAX_CONCURRENT: usize = 8;
/// Maximum size of an answer that is read, in bytes.
const ANSWER_BYTES: usize = 2_048;

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// Setting up TLS with this machine's certificates failed.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    #[error(transparent)]
    Key(#[from] WebhookKeyError),
}

struct Webhook {
    sink: AccountName,
    settings: WebhookSettings,
    exchange: Exchange,
    clock: Arc<dyn Clock>,
}

/// Opens a receiver. Nothing is sent yet.
pub fn open(
    sink: &AccountName,
    settings: WebhookSettings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Sink>, WebhookError> {
    WebhookKey::parse(&settings.secret.text)?;
    let far = if settings.url.host_str().is_some_and(is_local_host) {
        EndpointKind::Local
    } else {
        EndpointKind::Azure
    };
    let exchange = Exchange::new(far, CONNECT, settings.timeout)
        .map_err(WebhookError::Client)?
        .reading_at_most(ANSWER_BYTES);
    Ok(Arc::new(Webhook {
        sink: sink.clone(),
        settings,
        exchange,
        clock,
    }))
}

impl Webhook {
    fn error(
        &self,
        operation: &'static str,
        what: Resource,
        class: ErrorClass,
        message: impl Into<String>,
    ) -> StoreError {
        StoreError::new(
            class,
            operation,
            Subject {
                account: self.sink.clone(),
                resource: what,
            },
            message,
        )
    }

    /// Reads the key from its file each time, so that a rotated secret needs no restart.
    fn key(&self) -> Result<WebhookKey, String> {
        let secret = &self.settings.secret;
        WebhookKey::parse(&secret.current()?)
            .map_err(|error| format!("{}: {error}", secret.setting))
    }

    async fn send(
        &self,
        topic: &CollectionName,
        write: &DocumentWrite,
        key: &WebhookKey,
    ) -> Result<(), StoreError> {
        let what = || Resource::Document(topic.clone(), write.key.clone());
        let event = WebhookEvent::of(&self.sink, topic, write);
        let timestamp = self.clock.now().as_second();
        let headers = headers(&event, timestamp, key).ok_or_else(|| {
            self.error(
                SEND,
                what(),
                ErrorClass::Permanent,
                "the id of the event is not valid in a header",
            )
        })?;
        let sent = self
            .exchange
            .send(
                Method::POST,
                self.settings.url.clone(),
                headers,
                event.body.into(),
            )
            .await;
        let answer = sent.map_err(|fault: HttpFault| {
            self.error(SEND, what(), answer::faulted(&fault), fault.text())
        })?;
        if answer.is_success() {
            return Ok(());
        }
        // The check covers everything that was read, because the shown beginning could end within the secret.
        let body = String::from_utf8_lossy(&answer.body);
        let message = if key.occurs_in(&body) {
            format!(
                "the receiver answered {}; its message contains the secret and is not shown",
                answer.status
            )
        } else {
            answer::message(&answer)
        };
        Err(self
            .error(SEND, what(), answer::refused(&answer), message)
            .with_status(answer.status, None))
    }
}

fn headers(event: &WebhookEvent, timestamp: i64, key: &WebhookKey) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(
        "content-type",
        HeaderValue::from_static("application/cloudevents+json; charset=utf-8"),
    );
    headers.insert(
        "user-agent",
        HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION"))),
    );
    headers.insert("webhook-id", HeaderValue::from_str(&event.id).ok()?);
    headers.insert("webhook-timestamp", HeaderValue::from(timestamp));
    headers.insert(
        "webhook-signature",
        HeaderValue::from_str(&event.signature(key, timestamp)).ok()?,
    );
    Some(headers)
}

#[async_trait]
impl Sink for Webhook {
    /// A receiver cannot be queried: it knows only events.
    fn is_readable(&self) -> bool {
        false
    }

    fn batching(&self) -> SinkBatching {
        SinkBatching::Apart {
            at_once: MAX_CONCURRENT,
        }
    }

    /// Sends events one after another. The error of a single event is returned as the error of the request.
    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        let key = self.key().map_err(|problem| {
            self.error(
                SEND,
                Resource::Collection(collection.clone()),
                ErrorClass::Unauthorised,
                problem,
            )
        })?;
        if let [event] = writes {
            self.send(collection, event, &key).await?;
            return Ok(vec![Ok(())]);
        }
        let mut sent = Vec::with_capacity(writes.len());
        for event in writes {
            sent.push(self.send(collection, event, &key).await);
        }
        Ok(sent)
    }

    /// Returns a document without fields, because a receiver cannot be read.
    async fn get(
        &self,
        _: &CollectionName,
        _: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        Ok(Some(SinkDocument::default()))
    }

    async fn fields(&self, _: &CollectionName) -> Result<Option<Fields>, StoreError> {
        Ok(Some(Fields::new()))
    }

    async fn define(
        &self,
        collection: &CollectionName,
        _: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let message = "a webhook has no collections to define";
        Err(self.error(
            DEFINE,
            Resource::Collection(collection.clone()),
            ErrorClass::Permanent,
            message,
        ))
    }
}
