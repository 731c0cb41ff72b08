//! A receiver, as a sink.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};

use super::answer;
use super::event::{WebhookEvent, WebhookKey};
use evenkeel_azure::http::{Exchange, Far, HttpFault};
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{WebhookKeyError, WebhookSettings};
use evenkeel_model::{AccountName, CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{
    Clock, DocumentWrite, ErrorClass, Fields, Resource, Sink, SinkBatching, StoreError, Subject,
    WriteResults,
};

const SEND: &str = "Send Event";
const DEFINE: &str = "Define Topic";
/// To get a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Events under way at once.
const AT_ONCE: usize = 8;
/// Most of an answer that is read.
const ANSWER_BYTES: usize = 2_048;

/// Why a receiver cannot be sent to at all.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The HTTP client could not be set up, because of this machine's certificates.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// A secret is no key.
    #[error(transparent)]
    Key(#[from] WebhookKeyError),
}

/// A receiver of events.
struct Webhook {
    sink: AccountName,
    settings: WebhookSettings,
    exchange: Exchange,
    clock: Arc<dyn Clock>,
}

/// A receiver. Nothing is sent yet.
pub fn open(
    sink: &AccountName,
    settings: WebhookSettings,
    clock: Arc<dyn Clock>,
) -> Result<Arc<dyn Sink>, WebhookError> {
    WebhookKey::parse(&settings.secret.text)?;
    let far = if settings.url.host_str().is_some_and(is_local_host) {
        Far::Local
    } else {
        Far::Azure
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

    /// The key as its file has it now: a rotated secret needs no restart.
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
                "the event's id cannot be sent as a header",
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
        // Of the whole answer that was read: its beginning could end within the secret.
        let body = String::from_utf8_lossy(&answer.body);
        let message = if key.is_told_by(&body) {
            format!(
                "the receiver answered {}, and its message holds the secret, and is not shown",
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
    /// A receiver is asked nothing: all that it could answer is an event.
    fn is_readable(&self) -> bool {
        false
    }

    fn batching(&self) -> SinkBatching {
        SinkBatching::Apart { at_once: AT_ONCE }
    }

    /// Sends events, one after another. The failure of a single one is the request's own.
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

    /// Nothing can be read back: a document of which no field is known.
    async fn get(
        &self,
        _: &CollectionName,
        _: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        Ok(Some(SinkDocument::default()))
    }

    /// Any field.
    async fn fields(&self, _: &CollectionName) -> Result<Option<Fields>, StoreError> {
        Ok(Some(Fields::new()))
    }

    async fn define(
        &self,
        collection: &CollectionName,
        _: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let message = "a receiver has no collections to define";
        Err(self.error(
            DEFINE,
            Resource::Collection(collection.clone()),
            ErrorClass::Permanent,
            message,
        ))
    }
}
