//! A storage account at Azure's distance: the REST protocol of tables and queues over maps in memory, where every answer takes 6 ms in the
//! median and 30 ms once in a hundred, and a queue and a table partition let as much through as Azure publishes for them.
//!
//! It knows what the contenders send and no more: no continuations, no projections, no signatures, no blobs beyond their containers.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response};
use evenkeel_storage::Clock as _;
use evenkeel_storage::system::SystemClock;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::azurite::Ports;

/// The median of an answer's time, in seconds.
const MEDIAN: f64 = 0.006;
/// The logarithm's deviation: the 99th percentile, 2.326 deviations away, is five times the median.
const DEVIATION: f64 = 1.609_437_9 / 2.326_348;
/// Requests a second to one queue, and entities a second in one table partition: the published targets of both.
const TARGET: f64 = 2_000.0;

/// The running account.
pub(crate) struct Distant {
    ports: Ports,
    /// Ends with it.
    _services: JoinSet<std::io::Result<()>>,
}

struct Store {
    clock: SystemClock,
    state: Mutex<Contents>,
    lanes: Mutex<HashMap<String, Instant>>,
}

#[derive(Default)]
struct Contents {
    tables: BTreeMap<String, BTreeMap<(String, String), Stored>>,
    queues: BTreeMap<String, Queue>,
    writes: u64,
}

#[derive(Clone)]
struct Stored {
    etag: String,
    properties: Map<String, Value>,
}

/// Messages in the order of their insertion, each also by its id: deleting one costs the same however many there are.
#[derive(Default)]
struct Queue {
    messages: BTreeMap<u64, Posted>,
    places: HashMap<String, u64>,
    next: u64,
}

impl Queue {
    fn add(&mut self, posted: Posted) {
        self.places.insert(posted.id.clone(), self.next);
        self.messages.insert(self.next, posted);
        self.next += 1;
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut Posted> {
        self.messages.get_mut(self.places.get(id)?)
    }

    fn remove(&mut self, id: &str) {
        self.messages.remove(&self.places.remove(id).unwrap());
    }
}

struct Posted {
    id: String,
    receipt: String,
    /// As it was sent: escaped.
    text: String,
    visible: Timestamp,
    inserted: Timestamp,
    deliveries: u32,
}

/// An answer of the service.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl Answer {
    fn of(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    }

    fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn json(status: u16, body: &Value) -> Self {
        Self {
            status,
            headers: vec![(
                "content-type",
                "application/json;odata=minimalmetadata".to_owned(),
            )],
            body: body.to_string(),
        }
    }

    fn xml(status: u16, body: String) -> Self {
        Self {
            status,
            headers: vec![("content-type", "application/xml".to_owned())],
            body,
        }
    }

    /// A refusal of the table service.
    fn refused(status: u16, code: &str) -> Self {
        Self::json(
            status,
            &json!({"odata.error": {"code": code, "message": {"lang": "en-US", "value": code}}}),
        )
    }

    /// A refusal of the others.
    fn missing(status: u16, code: &'static str) -> Self {
        Self::xml(
            status,
            format!(
                "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
            ),
        )
        .header("x-ms-error-code", code)
    }
}

/// One request, read.
struct Asked {
    method: Method,
    /// Behind the account's name, decoded.
    path: String,
    query: HashMap<String, String>,
    if_match: Option<String>,
    body: String,
}

impl Distant {
    pub(crate) async fn start() -> Self {
        let store = Arc::new(Store {
            clock: SystemClock::new(),
            state: Mutex::default(),
            lanes: Mutex::default(),
        });
        let (mut ports, mut services) = ([0; 3], JoinSet::new());
        let answers: [fn(&Store, &Asked) -> Answer; 3] =
            [|_, asked| blob(asked), Store::queue, Store::table];
        for (port, service) in ports.iter_mut().zip(answers) {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
                .await
                .unwrap();
            *port = listener.local_addr().unwrap().port();
            let app = Router::new().fallback(move |state: State<Arc<Store>>, request: Request| {
                answer(state.0, request, service)
            });
            services.spawn(axum::serve(listener, app.with_state(Arc::clone(&store))).into_future());
        }
        let [blob, queue, table] = ports;
        Self {
            ports: Ports { blob, queue, table },
            _services: services,
        }
    }

    pub(crate) const fn ports(&self) -> Ports {
        self.ports
    }
}

async fn answer(
    store: Arc<Store>,
    request: Request,
    service: fn(&Store, &Asked) -> Answer,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let (_, path) = head
        .uri
        .path()
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or_default();
    let query = head.uri.query().unwrap_or_default();
    let asked = Asked {
        path: decoded(path),
        query: url::form_urlencoded::parse(query.as_bytes())
            .into_owned()
            .collect(),
        if_match: header(&head.headers, "if-match"),
        body: String::from_utf8(to_bytes(body, usize::MAX).await.unwrap().to_vec()).unwrap(),
        method: head.method,
    };
    let answer = if let Some(partition) = partition_asked_for(&asked) {
        // A query counts by the entities that it brings.
        let answer = service(&store, &asked);
        #[expect(clippy::cast_precision_loss, reason = "a page at most")]
        let rows = answer.body.matches("odata.etag").count().max(1) as f64;
        store
            .toll(partition_lane(address(&asked.path).0, partition), rows)
            .await;
        answer
    } else {
        let (lane, units) = lane(&asked);
        store.toll(lane, units).await;
        service(&store, &asked)
    };
    let mut response = Response::builder()
        .status(answer.status)
        .header("x-ms-request-id", "0");
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap()
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().unwrap().to_owned())
}

/// A path without its percent signs.
fn decoded(path: &str) -> String {
    let escaped = path
        .replace('+', "%2B")
        .replace('&', "%26")
        .replace('=', "%3D");
    url::form_urlencoded::parse(escaped.as_bytes())
        .next()
        .map(|(name, _)| name.into_owned())
        .unwrap_or_default()
}

/// A key out of `Table(PartitionKey='…',RowKey='…')`.
fn address(path: &str) -> (&str, Option<(String, String)>) {
    let Some((table, rest)) = path.split_once('(') else {
        return (path, None);
    };
    let key = || {
        let (pk, rk) = rest
            .strip_prefix("PartitionKey='")?
            .strip_suffix("')")?
            .split_once("',RowKey='")?;
        Some((pk.replace("''", "'"), rk.replace("''", "'")))
    };
    (table, key())
}

impl Store {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.state.lock().unwrap()
    }

    /// Waits as long as the service takes.
    async fn toll(&self, lane: String, units: f64) {
        let turn = {
            let mut lanes = self.lanes.lock().unwrap();
            let free = lanes.entry(lane).or_insert_with(Instant::now);
            let turn = (*free).max(Instant::now());
            *free = turn + Duration::from_secs_f64(units / TARGET);
            turn
        };
        // Two uniform numbers make one that is normally distributed.
        let (one, other) = (
            rand::random::<f64>().max(f64::MIN_POSITIVE),
            rand::random::<f64>(),
        );
        let normal = (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos();
        let time = MEDIAN * (DEVIATION * normal).exp();
        tokio::time::sleep_until(turn + Duration::from_secs_f64(time)).await;
    }

    fn table(&self, asked: &Asked) -> Answer {
        let mut contents = self.contents();
        if asked.path == "$batch" {
            return contents.transact(&asked.body);
        }
        if asked.path.starts_with("Tables") {
            return contents.tables_answer(asked);
        }
        let (table, key) = address(&asked.path);
        if asked.method == Method::GET && key.is_none() {
            return contents.query(table, asked);
        }
        contents.entity(
            &asked.method,
            table,
            key,
            asked.if_match.as_deref(),
            &asked.body,
        )
    }

    fn queue(&self, asked: &Asked) -> Answer {
        let mut contents = self.contents();
        let mut parts = asked.path.split('/');
        let (name, id) = (parts.next().unwrap_or_default(), parts.nth(1));
        if !asked.path.contains("/messages") {
            return match asked.method {
                Method::PUT => {
                    let there = contents.queues.contains_key(name);
                    contents.queues.entry(name.to_owned()).or_default();
                    Answer::of(if there { 204 } else { 201 })
                }
                _ => match contents.queues.get(name) {
                    Some(queue) => Answer::of(200).header(
                        "x-ms-approximate-messages-count",
                        queue.messages.len().to_string(),
                    ),
                    None => Answer::missing(404, "QueueNotFound"),
                },
            };
        }
        let Some(queue) = contents.queues.get_mut(name) else {
            return Answer::missing(404, "QueueNotFound");
        };
        let number = |name: &str| {
            asked
                .query
                .get(name)
                .and_then(|number| number.parse::<i64>().ok())
        };
        let now = self.clock.now();
        let hidden =
            now + jiff::SignedDuration::from_secs(number("visibilitytimeout").unwrap_or_default());
        match (&asked.method, id) {
            (&Method::POST, _) => {
                let text = element(&asked.body, "MessageText");
                let posted = Posted {
                    id: unique(),
                    receipt: unique(),
                    text,
                    visible: hidden,
                    inserted: now,
                    deliveries: 0,
                };
                let shown = posted.shown(false);
                queue.add(posted);
                Answer::xml(201, listed(&shown))
            }
            (&Method::GET, _) => {
                let peeks = asked.query.contains_key("peekonly");
                let most = usize::try_from(number("numofmessages").unwrap_or(1)).unwrap();
                let mut shown = String::new();
                for posted in queue
                    .messages
                    .values_mut()
                    .filter(|posted| posted.visible <= now)
                    .take(most)
                {
                    if !peeks {
                        (posted.visible, posted.receipt) = (hidden, unique());
                        posted.deliveries += 1;
                    }
                    shown += &posted.shown(true);
                }
                Answer::xml(200, listed(&shown))
            }
            (_, Some(id)) => {
                let Some(posted) = queue.get_mut(id) else {
                    return Answer::missing(404, "MessageNotFound");
                };
                if asked.query.get("popreceipt") != Some(&posted.receipt) {
                    return Answer::missing(400, "PopReceiptMismatch");
                }
                if asked.method == Method::DELETE {
                    queue.remove(id);
                    return Answer::of(204);
                }
                if !asked.body.is_empty() {
                    posted.text = element(&asked.body, "MessageText");
                }
                (posted.visible, posted.receipt) = (hidden, unique());
                Answer::of(204)
                    .header("x-ms-popreceipt", posted.receipt.clone())
                    .header("x-ms-time-next-visible", date(hidden))
            }
            (_, None) => Answer::missing(400, "InvalidUri"),
        }
    }
}

/// Containers can be made; there is nothing in them.
fn blob(asked: &Asked) -> Answer {
    if asked.method == Method::PUT {
        Answer::of(201)
    } else {
        Answer::missing(404, "BlobNotFound")
    }
}

impl Asked {
    fn filter(&self) -> &str {
        self.query.get("$filter").map_or("", String::as_str)
    }
}

/// The partition whose rows a query asks for.
fn partition_asked_for(asked: &Asked) -> Option<&str> {
    Some(
        asked
            .filter()
            .split_once("PartitionKey eq '")?
            .1
            .split_once('\'')?
            .0,
    )
}

/// The RowKey that a filter compares with so.
fn bound<'a>(filter: &'a str, comparison: &str) -> Option<&'a str> {
    Some(
        filter
            .split_once(&format!("RowKey {comparison} '"))?
            .1
            .split_once('\'')?
            .0,
    )
}

fn partition_lane(table: &str, pk: &str) -> String {
    format!("{table}(PartitionKey='{pk}")
}

/// What a request is counted against, and for how much.
fn lane(asked: &Asked) -> (String, f64) {
    let of = |table: &str, (pk, _): (String, String)| partition_lane(table, &pk);
    if asked.path == "$batch" {
        let changes = changes(&asked.body);
        #[expect(clippy::cast_precision_loss, reason = "at most a hundred")]
        let units = changes.len() as f64;
        return (
            changes
                .first()
                .map(|change| of(address(&change.path).0, change.key()))
                .unwrap_or_default(),
            units,
        );
    }
    let name = match address(&asked.path) {
        (table, Some(key)) => of(table, key),
        // An insert has its key in the body, as has a table's creation its name.
        (table, None) if asked.method == Method::POST && asked.body.contains("PartitionKey") => {
            of(table, brought_key(&asked.body))
        }
        _ => asked.path.split('/').next().unwrap_or_default().to_owned(),
    };
    (name, 1.0)
}

/// The key that an entity brings.
fn brought_key(body: &str) -> (String, String) {
    let brought: Value = serde_json::from_str(body).unwrap();
    let text = |name: &str| brought[name].as_str().unwrap_or_default().to_owned();
    (text("PartitionKey"), text("RowKey"))
}

/// One operation of a transaction.
struct OneChange {
    method: Method,
    path: String,
    if_match: Option<String>,
    body: String,
}

fn changes(batch: &str) -> Vec<OneChange> {
    let pieces = batch.split("--changeset_").skip(1);
    let change = |piece: &str| {
        let mut lines = piece.lines();
        let (method, url) = lines
            .by_ref()
            .find_map(|line| line.strip_suffix(" HTTP/1.1")?.split_once(' '))?;
        let (_, path) = url
            .split_once("://")?
            .1
            .split_once('/')?
            .1
            .split_once('/')?;
        let mut if_match = None;
        for line in lines.by_ref().take_while(|line| !line.is_empty()) {
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("if-match")
            {
                if_match = Some(value.to_owned());
            }
        }
        let method = Method::from_bytes(method.as_bytes()).ok()?;
        Some(OneChange {
            method,
            path: decoded(path.split('?').next()?),
            if_match,
            body: lines.collect(),
        })
    };
    pieces.filter_map(change).collect()
}

impl Contents {
    fn tables_answer(&mut self, asked: &Asked) -> Answer {
        match asked.method {
            Method::POST => {
                let named: Value = serde_json::from_str(&asked.body).unwrap();
                let name = named["TableName"].as_str().unwrap().to_owned();
                if self.tables.contains_key(&name) {
                    return Answer::refused(409, "TableAlreadyExists");
                }
                self.tables.insert(name, BTreeMap::new());
                Answer::of(204)
            }
            _ => Answer::json(
                200,
                &json!({"value": self.tables.keys().map(|name| json!({"TableName": name})).collect::<Vec<_>>()}),
            ),
        }
    }

    fn query(&self, table: &str, asked: &Asked) -> Answer {
        let Some(rows) = self.tables.get(table) else {
            return Answer::refused(404, "TableNotFound");
        };
        let filter = asked.filter();
        // The whole table is read only where no partition is named first, and a partition from the first row that is asked for to the last.
        let partition = partition_asked_for(asked).map(str::to_owned);
        let (first, last) = if filter.contains(" or ") {
            (None, None)
        } else {
            (bound(filter, "ge"), bound(filter, "le"))
        };
        let start = (
            partition.clone().unwrap_or_default(),
            first.unwrap_or_default().to_owned(),
        );
        let near = rows.range(start..).take_while(|(key, _)| {
            partition
                .as_ref()
                .is_none_or(|partition| key.0 == *partition)
                && last.is_none_or(|last| key.1.as_str() <= last)
        });
        let mut matching =
            near.filter(|(key, _)| filter.is_empty() || Reader { rest: filter }.either(key));
        let most = asked
            .query
            .get("$top")
            .map_or(usize::MAX, |top| top.parse().unwrap());
        let rows: Vec<Value> = matching
            .by_ref()
            .take(most)
            .map(|(_, stored)| stored.shown())
            .collect();
        let answer = Answer::json(200, &json!({"value": rows}));
        match matching.next() {
            Some(((pk, rk), _)) => answer
                .header("x-ms-continuation-NextPartitionKey", pk.as_str())
                .header("x-ms-continuation-NextRowKey", rk.as_str()),
            None => answer,
        }
    }

    /// Carries out one operation on one entity.
    fn entity(
        &mut self,
        method: &Method,
        table: &str,
        key: Option<(String, String)>,
        if_match: Option<&str>,
        body: &str,
    ) -> Answer {
        let Some(rows) = self.tables.get_mut(table) else {
            return Answer::refused(404, "TableNotFound");
        };
        let brought: Map<String, Value> = if body.is_empty() {
            Map::new()
        } else {
            serde_json::from_str(body).unwrap()
        };
        let text = |name: &str| {
            brought
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let key = key.unwrap_or_else(|| (text("PartitionKey"), text("RowKey")));
        let there = rows.get(&key);
        match (there, if_match) {
            (None, Some(_)) => return Answer::refused(404, "ResourceNotFound"),
            (Some(there), Some(wanted)) if wanted != "*" && wanted != there.etag => {
                return Answer::refused(412, "UpdateConditionNotSatisfied");
            }
            _ => {}
        }
        let properties = match (method.as_str(), there) {
            ("GET" | "DELETE", None) => return Answer::refused(404, "ResourceNotFound"),
            ("GET", Some(there)) => {
                return Answer::json(200, &there.shown()).header("etag", there.etag.clone());
            }
            ("DELETE", Some(_)) => {
                rows.remove(&key);
                return Answer::of(204);
            }
            ("POST", Some(_)) => return Answer::refused(409, "EntityAlreadyExists"),
            ("MERGE" | "PATCH", Some(there)) => there
                .properties
                .clone()
                .into_iter()
                .chain(brought)
                .collect(),
            _ => brought,
        };
        self.writes += 1;
        let etag = format!(
            "W/\"datetime'2026-01-01T00%3A00%3A00.{:09}Z'\"",
            self.writes
        );
        let keys = [
            ("PartitionKey".to_owned(), key.0.as_str().into()),
            ("RowKey".to_owned(), key.1.as_str().into()),
        ];
        rows.insert(
            key,
            Stored {
                etag: etag.clone(),
                properties: properties.into_iter().chain(keys).collect(),
            },
        );
        Answer::of(204).header("etag", etag)
    }

    /// Carries out all operations, or none.
    fn transact(&mut self, batch: &str) -> Answer {
        let changes = changes(batch);
        let table = changes
            .first()
            .map(|change| address(&change.path).0.to_owned())
            .unwrap_or_default();
        let before = self.tables.get(&table).map(|rows| {
            let keys = changes.iter().map(OneChange::key);
            keys.map(|key| (rows.get(&key).cloned(), key))
                .collect::<Vec<_>>()
        });
        let mut parts = String::new();
        for (number, change) in changes.iter().enumerate() {
            let answer = self.entity(
                &change.method,
                &table,
                Some(change.key()),
                change.if_match.as_deref(),
                &change.body,
            );
            if answer.status < 300 {
                parts += &part(&answer);
                continue;
            }
            if let Some(rows) = self.tables.get_mut(&table) {
                for (stored, key) in before.into_iter().flatten() {
                    rows.remove(&key);
                    rows.extend(stored.map(|stored| (key, stored)));
                }
            }
            let body = answer
                .body
                .replace("\"value\":\"", &format!("\"value\":\"{number}:"));
            return enclosed(&part(&Answer { body, ..answer }));
        }
        enclosed(&parts)
    }
}

impl OneChange {
    fn key(&self) -> (String, String) {
        address(&self.path)
            .1
            .unwrap_or_else(|| brought_key(&self.body))
    }
}

fn part(answer: &Answer) -> String {
    let mut headers = String::new();
    for (name, value) in &answer.headers {
        write!(headers, "{name}: {value}\r\n").unwrap();
    }
    format!(
        "--changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 {} -\r\n{headers}\r\n{}\r\n",
        answer.status, answer.body
    )
}

fn enclosed(parts: &str) -> Answer {
    let start =
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n";
    Answer {
        status: 202,
        headers: Vec::new(),
        body: format!("{start}{parts}--changesetresponse_2--\r\n--batchresponse_1--\r\n"),
    }
    .header("content-type", "multipart/mixed; boundary=batchresponse_1")
}

impl Stored {
    fn shown(&self) -> Value {
        let mut shown = self.properties.clone();
        shown.insert("odata.etag".to_owned(), self.etag.as_str().into());
        shown.insert(
            "Timestamp".to_owned(),
            "2026-01-01T00:00:00.0000000Z".into(),
        );
        Value::Object(shown)
    }
}

impl Posted {
    fn shown(&self, whole: bool) -> String {
        let (inserted, expires) = (
            date(self.inserted),
            date(self.inserted + jiff::SignedDuration::from_hours(168)),
        );
        let count = if whole {
            format!(
                "<DequeueCount>{}</DequeueCount><MessageText>{}</MessageText>",
                self.deliveries, self.text
            )
        } else {
            String::new()
        };
        format!(
            "<QueueMessage><MessageId>{}</MessageId><InsertionTime>{inserted}</InsertionTime><ExpirationTime>{expires}</ExpirationTime>\
             <PopReceipt>{}</PopReceipt><TimeNextVisible>{}</TimeNextVisible>{count}</QueueMessage>",
            self.id,
            self.receipt,
            date(self.visible)
        )
    }
}

fn listed(messages: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>{messages}</QueueMessagesList>"
    )
}

fn element(xml: &str, name: &str) -> String {
    let inside = || {
        Some(
            xml.split_once(&format!("<{name}>"))?
                .1
                .split_once(&format!("</{name}>"))?
                .0
                .to_owned(),
        )
    };
    inside().unwrap_or_default()
}

fn unique() -> String {
    uuid::Uuid::new_v4().to_string()
}

fn date(at: Timestamp) -> String {
    at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// Reads a filter over keys: comparisons of text, `and`, `or`, `not`, parentheses.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        let Some(after) = rest.strip_prefix(word) else {
            return false;
        };
        self.rest = after;
        true
    }

    fn either(&mut self, key: &(String, String)) -> bool {
        let mut holds = self.both(key);
        while self.take("or ") {
            holds |= self.both(key);
        }
        holds
    }

    fn both(&mut self, key: &(String, String)) -> bool {
        let mut holds = self.one(key);
        while self.take("and ") {
            holds &= self.one(key);
        }
        holds
    }

    fn one(&mut self, key: &(String, String)) -> bool {
        if self.take("not ") {
            return !self.one(key);
        }
        if self.take("(") {
            let holds = self.either(key);
            assert!(
                self.take(")"),
                "a filter that this account cannot read: {}",
                self.rest
            );
            return holds;
        }
        let (name, rest) = self.rest.trim_start().split_once(' ').unwrap();
        let (comparison, rest) = rest.split_once(' ').unwrap();
        let side = match name {
            "PartitionKey" => &key.0,
            "RowKey" => &key.1,
            _ => panic!("a filter that this account cannot read: {}", self.rest),
        };
        let text = rest.strip_prefix('\'').unwrap();
        let end = (0..text.len()).find(|at| {
            text[*at..].starts_with('\'')
                && !text[*at..].starts_with("''")
                && !text[..*at].ends_with('\'')
        });
        let (value, rest) = text.split_at(end.unwrap_or_else(|| text.find('\'').unwrap()));
        self.rest = &rest[1..];
        let value = value.replace("''", "'");
        match comparison {
            "eq" => *side == value,
            "ne" => *side != value,
            "lt" => *side < value,
            "le" => *side <= value,
            "gt" => *side > value,
            _ => *side >= value,
        }
    }
}
