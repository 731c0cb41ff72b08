//! The sink port for the indexes of a search service.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};
use url::Url;

use super::answer::{self, DocumentResult, SearchEffect};
use super::service::SearchService;
use evenkeel_azure::call;
use evenkeel_azure::http::{Exchange, HttpAnswer};
use evenkeel_azure::identity::roles;
use evenkeel_azure::keyring::Keyring;
use evenkeel_model::catalog::KEY_FIELD;
use evenkeel_model::settings::SinkAuth;
use evenkeel_model::{CollectionName, ColumnType, DocumentKey, SinkDocument, limits};
use evenkeel_storage::{
    DocumentWrite, ErrorClass, Fields, Missing, Resource, Service, Sink, SinkBatching, StoreError,
    Subject, WriteResults,
};

const API_VERSION: &str = "2024-07-01";
/// Names of the operations in the service's documentation.
const WRITE: &str = "Index Documents";
const GET: &str = "Lookup Document";
const DESCRIBE: &str = "Get Index";
const ABSENT: ErrorClass = ErrorClass::NotFound(Missing::Container);

pub(super) struct Indexes {
    pub(super) service: SearchService,
    pub(super) headers: HeaderMap,
    pub(super) exchange: Exchange,
    pub(super) keyring: Option<Arc<Keyring>>,
}

/// The properties of a request that matter for its failures.
struct Call {
    operation: &'static str,
    effect: SearchEffect,
    what: Resource,
}

impl Indexes {
    fn url(&self, segments: &[&str]) -> Url {
        let mut url = self.service.endpoint.clone();
        // An http URL always has path segments.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url.query_pairs_mut()
            .append_pair("api-version", API_VERSION);
        url
    }

    async fn send(
        &self,
        call: &Call,
        method: Method,
        url: Url,
        body: Bytes,
    ) -> Result<HttpAnswer, StoreError> {
        let answer = self
            .exchange
            .send(method, url, self.headers.clone(), body)
            .await;
        answer.map_err(|fault| self.error(call, fault.class(call.effect.unknown()), fault.text()))
    }

    fn error(&self, call: &Call, class: ErrorClass, message: &str) -> StoreError {
        let tells = self
            .keyring
            .as_ref()
            .is_some_and(|keyring| keyring.occurs_in(message));
        let message = if tells {
            "the service's message contains the key and is not shown"
        } else {
            message
        };
        StoreError::new(
            class,
            call.operation,
            Subject {
                account: self.service.sink.clone(),
                resource: call.what.clone(),
            },
            message,
        )
    }

    fn refused(&self, call: &Call, answer: &HttpAnswer) -> StoreError {
        let class = answer::refused(call.effect, answer);
        let service_message = answer::message(answer).filter(|_| class != ErrorClass::Unauthorised);
        let message = service_message.unwrap_or_else(|| match (&self.service.auth, class) {
            (SinkAuth::Entra(_), ErrorClass::Unauthorised) => {
                // Documents belong to the data role. The definition of an index needs the service role.
                let role = if call.operation == DESCRIBE {
                    "Search Service Contributor"
                } else {
                    roles::least(Service::Search)
                };
                roles::refusal(
                    answer.status,
                    role,
                    &format!("the search service {}", self.service.endpoint),
                )
            }
            _ => default_message(class, answer.status).to_owned(),
        });
        self.error(call, class, &message)
            .with_status(answer.status, None)
    }

    fn action(write: &DocumentWrite) -> Value {
        let mut action = Map::new();
        let kind = if write.document.is_some() {
            "upload"
        } else {
            "delete"
        };
        action.insert("@search.action".to_owned(), kind.into());
        action.insert(KEY_FIELD.to_owned(), write.key.as_str().into());
        for (name, value) in write.document.iter().flat_map(|document| &document.0) {
            action.insert(name.clone(), value.clone());
        }
        Value::Object(action)
    }

    /// The result of each document. A document that the answer omits may have been written.
    fn results_of(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
        verdicts: Vec<DocumentResult>,
    ) -> WriteResults {
        let mut verdicts: BTreeMap<String, DocumentResult> = verdicts
            .into_iter()
            .map(|verdict| (verdict.key.clone(), verdict))
            .collect();
        let one = |write: &DocumentWrite| {
            let call = Call {
                operation: WRITE,
                effect: SearchEffect::Write,
                what: Resource::Document(collection.clone(), write.key.clone()),
            };
            let Some(verdict) = verdicts.remove(write.key.as_str()) else {
                return Err(self.error(
                    &call,
                    ErrorClass::Ambiguous,
                    "the answer contains no result for this document",
                ));
            };
            verdict.class().map_err(|class| {
                let message = verdict
                    .message
                    .as_deref()
                    .unwrap_or_else(|| default_message(class, verdict.status));
                self.error(&call, class, message)
                    .with_status(verdict.status, None)
            })
        };
        writes.iter().map(one).collect()
    }
}

#[async_trait]
impl Sink for Indexes {
    fn is_readable(&self) -> bool {
        true
    }

    fn batching(&self) -> SinkBatching {
        SinkBatching::Together
    }

    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        let call = Call {
            operation: WRITE,
            effect: SearchEffect::Write,
            what: Resource::Collection(collection.clone()),
        };
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let body =
            json!({"value": writes.iter().map(Self::action).collect::<Vec<_>>()}).to_string();
        if writes.len() > limits::BATCH_DOCUMENTS || body.len() > limits::BATCH_BYTES {
            let message = format!(
                "{} documents in {} bytes; at most 1,000 documents and 16 MB are allowed",
                writes.len(),
                body.len()
            );
            return Err(self.error(&call, ErrorClass::TooLarge, &message));
        }
        let url = self.url(&["indexes", collection.as_str(), "docs", "search.index"]);
        let answer = self.send(&call, Method::POST, url, body.into()).await?;
        if !answer.is_success() {
            return Err(self.refused(&call, &answer));
        }
        match answer::verdicts(&answer.body) {
            Some(verdicts) => Ok(self.results_of(collection, writes, verdicts)),
            None => Err(self
                .error(&call, ErrorClass::Ambiguous, "the answer cannot be parsed")
                .with_status(answer.status, None)),
        }
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        let call = Call {
            operation: GET,
            effect: SearchEffect::Read,
            what: Resource::Document(collection.clone(), key.clone()),
        };
        let url = self.url(&["indexes", collection.as_str(), "docs", key.as_str()]);
        let answer = self.send(&call, Method::GET, url, Bytes::new()).await?;
        if answer::refused(call.effect, &answer) == ABSENT {
            // A 404 is ambiguous: the document or its index may be missing.
            let missing = self.fields(collection).await?.is_none();
            return if missing {
                Err(self
                    .error(&call, ABSENT, default_message(ABSENT, 404))
                    .with_status(404, None))
            } else {
                Ok(None)
            };
        }
        if !answer.is_success() {
            return Err(self.refused(&call, &answer));
        }
        let fields: Result<BTreeMap<String, Value>, _> = serde_json::from_slice(&answer.body);
        let mut fields = fields.map_err(|_| {
            self.error(&call, call.effect.unknown(), "the answer is not a document")
        })?;
        fields.retain(|name, _| !name.starts_with('@') && *name != KEY_FIELD);
        Ok(Some(SinkDocument(fields)))
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        let call = Call {
            operation: DESCRIBE,
            effect: SearchEffect::Read,
            what: Resource::Collection(collection.clone()),
        };
        let answer = self
            .send(
                &call,
                Method::GET,
                self.url(&["indexes", collection.as_str()]),
                Bytes::new(),
            )
            .await?;
        if answer::refused(call.effect, &answer) == ABSENT {
            return Ok(None);
        }
        if !answer.is_success() {
            return Err(self.refused(&call, &answer));
        }
        let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let field = |field: &Value| {
            Some((
                text(&field["name"])?,
                text(&field["type"]).unwrap_or_default(),
            ))
        };
        match json["fields"].as_array() {
            Some(fields) => Ok(Some(fields.iter().filter_map(field).collect())),
            None => Err(self.error(
                &call,
                call.effect.unknown(),
                "the answer is not the definition of an index",
            )),
        }
    }

    async fn define(
        &self,
        collection: &CollectionName,
        _: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let call = Call {
            operation: DESCRIBE,
            effect: SearchEffect::Read,
            what: Resource::Collection(collection.clone()),
        };
        Err(self.error(
            &call,
            ErrorClass::Permanent,
            "evenkeel does not create indexes. Create the index in the search service",
        ))
    }
}

/// The message if the service's own is missing or not fit to show.
const fn default_message(class: ErrorClass, status: u16) -> &'static str {
    match class {
        ErrorClass::NotFound(_) => "the index does not exist. Create it in the search service",
        ErrorClass::Unauthorised => {
            "the service rejected the key. Writing documents takes an admin key, and the service's firewall must allow this machine"
        }
        other => call::default_message(other, status),
    }
}
