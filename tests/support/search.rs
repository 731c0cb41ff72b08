//! A search service on loopback with the part of Azure AI Search's REST API that evenkeel uses: indexes with typed
//! fields, documents by key, and a status for each document of a batch. Writes are visible at once, which the real
//! service does not promise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Map, Value, json};

use evenkeel_model::AccountName;
use evenkeel_model::settings::SinkAuth;
use evenkeel_sinks::search::SearchService;

use super::stub::{Answer, Reply, Request, Stub};

pub const KEY: &str = "admin-key-of-the-stub";
pub const KEY_FIELD: &str = "id";
/// Maximum number of documents per request (Azure AI Search: 1,000).
const BATCH: usize = 1_000;

pub struct SearchStub {
    stub: Stub,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    indexes: BTreeMap<String, Index>,
    /// One fault for each of the next requests. A fault is applied before any other check.
    trouble: Vec<Trouble>,
}

#[derive(Default)]
struct Index {
    fields: BTreeMap<String, String>,
    documents: BTreeMap<String, Map<String, Value>>,
}

#[derive(Debug, Clone)]
pub enum Trouble {
    /// Refuses the request with this status, and with this Retry-After in seconds if there is one.
    Refused(u16, Option<u64>),
    Gateway(u16),
    LoseAnswer,
    /// Refuses the document that contains this text with this status, and writes the others.
    Document(&'static str, u16),
}

impl SearchStub {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let stub = Stub::start({
            let state = Arc::clone(&state);
            move |request| state.lock().unwrap().answer(request)
        });
        Self { stub, state }
    }

    pub fn create(&self, index: &str, fields: &[(&str, &str)]) {
        let fields = fields
            .iter()
            .chain(&[(KEY_FIELD, "Edm.String")])
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()));
        let index_of = Index {
            fields: fields.collect(),
            documents: BTreeMap::new(),
        };
        self.state
            .lock()
            .unwrap()
            .indexes
            .insert(index.to_owned(), index_of);
    }

    /// Adds faults, one for each of the next requests.
    pub fn trouble(&self, trouble: impl IntoIterator<Item = Trouble>) {
        self.state.lock().unwrap().trouble.extend(trouble);
    }

    pub fn documents(&self, index: &str) -> BTreeMap<String, Map<String, Value>> {
        self.state.lock().unwrap().indexes[index].documents.clone()
    }

    pub fn tamper(&self, index: &str, key: &str, document: Option<Value>) {
        let mut state = self.state.lock().unwrap();
        let documents = &mut state.indexes.get_mut(index).unwrap().documents;
        match document {
            None => drop(documents.remove(key)),
            Some(document) => {
                drop(documents.insert(key.to_owned(), document.as_object().unwrap().clone()));
            }
        }
    }

    pub fn requests(&self) -> Vec<Request> {
        self.stub.requests()
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.stub.port())
    }

    pub fn service(&self, sink: &AccountName) -> SearchService {
        SearchService {
            sink: sink.clone(),
            endpoint: self.endpoint().parse().unwrap(),
            auth: SinkAuth::Key(SecretString::from(KEY).into()),
        }
    }
}

/// An answer with the request ids that the real service always sends.
fn named(status: u16) -> Answer {
    Reply::status(status)
        .header("request-id", "7d6eb5c1-0002-0000-0000-000000000000")
        .header("elapsed-time", "5")
}

fn reply(status: u16, body: &Value) -> Answer {
    named(status)
        .header("content-type", "application/json")
        .body(body.to_string())
}

fn refusal(status: u16, message: &str) -> Answer {
    reply(status, &json!({"error": {"code": "", "message": message}}))
}

impl State {
    fn answer(&mut self, request: &Request) -> Reply {
        if request.header("api-key") != Some(KEY) {
            return named(403).into();
        }
        let trouble = if self.trouble.is_empty() {
            None
        } else {
            Some(self.trouble.remove(0))
        };
        if let Some(Trouble::Refused(status, wait)) = trouble {
            let answer = refusal(status, "trouble");
            return match wait {
                Some(seconds) => answer.header("retry-after", seconds.to_string()).into(),
                None => answer.into(),
            };
        }
        if let Some(Trouble::Gateway(status)) = trouble {
            return Reply::status(status).body("default backend - 404").into();
        }
        let Some(path) = request.target.strip_suffix("?api-version=2024-07-01") else {
            return refusal(400, "the api-version is missing").into();
        };
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let answer = match (request.method.as_str(), segments.as_slice()) {
            ("GET", ["indexes", index]) => self.describe(index),
            ("GET", ["indexes", index, "docs", key]) => self.lookup(index, key),
            ("POST", ["indexes", index, "docs", "search.index"]) => {
                self.write(index, &request.body, trouble.as_ref())
            }
            _ => refusal(404, "no such resource"),
        };
        match trouble {
            Some(Trouble::LoseAnswer) => answer.cut_after(1).into(),
            _ => answer.into(),
        }
    }

    fn describe(&self, index: &str) -> Answer {
        let Some(found) = self.indexes.get(index) else {
            return refusal(404, "no such index");
        };
        let field = |(name, kind): (&String, &String)| json!({"name": name, "type": kind, "key": name == KEY_FIELD});
        reply(
            200,
            &json!({"name": index, "fields": found.fields.iter().map(field).collect::<Vec<_>>()}),
        )
    }

    fn lookup(&self, index: &str, key: &str) -> Answer {
        let Some(found) = self
            .indexes
            .get(index)
            .and_then(|index| index.documents.get(key))
        else {
            return named(404);
        };
        let mut body = found.clone();
        body.insert("@odata.context".to_owned(), "…".into());
        reply(200, &Value::Object(body))
    }

    fn write(&mut self, index: &str, body: &[u8], trouble: Option<&Trouble>) -> Answer {
        let Some(index) = self.indexes.get_mut(index) else {
            return refusal(404, "no such index");
        };
        let actions: Value = serde_json::from_slice(body).unwrap();
        let actions = actions["value"].as_array().unwrap();
        if actions.is_empty() || actions.len() > BATCH {
            return refusal(400, "1 to 1,000 actions");
        }
        // The real service refuses the whole request if one field is unknown.
        let known = |action: &Value| {
            action
                .as_object()
                .unwrap()
                .keys()
                .all(|name| name == "@search.action" || index.fields.contains_key(name))
        };
        if let Some(unknown) = actions.iter().find(|action| !known(action)) {
            return refusal(
                400,
                &format!(
                    "The request is invalid: a property does not exist on type 'search.documentFields': {unknown}"
                ),
            );
        }
        let mut results = Vec::new();
        for action in actions {
            let key = action[KEY_FIELD].as_str().unwrap();
            let (status, message) = match trouble {
                Some(Trouble::Document(text, status)) if action.to_string().contains(text) => {
                    (*status, Some("trouble".to_owned()))
                }
                _ => index.carry_out(key, action),
            };
            results.push(json!({"key": key, "status": status < 300, "statusCode": status, "errorMessage": message}));
        }
        let all = results.iter().all(|result| result["status"] == true);
        reply(if all { 200 } else { 207 }, &json!({"value": results}))
    }
}

impl Index {
    fn carry_out(&mut self, key: &str, action: &Value) -> (u16, Option<String>) {
        let valid = key.len() <= 1_024
            && !key.starts_with('_')
            && key
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b));
        if !valid {
            return (400, Some(format!("Invalid document key: '{key}'")));
        }
        if action["@search.action"] == "delete" {
            self.documents.remove(key);
            return (200, None);
        }
        let mut document = Map::new();
        for (name, kind) in &self.fields {
            let value = action.get(name).cloned().unwrap_or_default();
            if !fits(kind, &value) {
                return (
                    400,
                    Some(format!("cannot convert {value} to {kind} (field {name})")),
                );
            }
            document.insert(name.clone(), value);
        }
        let new = self.documents.insert(key.to_owned(), document).is_none();
        (if new { 201 } else { 200 }, None)
    }
}

fn fits(kind: &str, value: &Value) -> bool {
    match kind {
        _ if value.is_null() => true,
        "Edm.String" | "Edm.DateTimeOffset" => value.is_string(),
        "Edm.Boolean" => value.is_boolean(),
        "Edm.Int32" | "Edm.Int64" => value.is_i64(),
        "Edm.Double" => value.is_number(),
        other => panic!("unsupported type: {other}"),
    }
}
