//! The operations of the API: one table, of which both the router and the OpenAPI document are made.

use axum::handler::Handler;
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use schemars::JsonSchema;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::acknowledge::{self, Acknowledgement};
use super::entity::{self, EntityReport, InStepReport};
use super::jobs;
use super::log::{self, Log};
use super::poison::{self, Poison, Report, Selection};
use super::problem::ErrorBody;
use super::status::{self, Status};
use super::submit::{self, SentJob};
use super::wake::{self, Wake, Woken};
use super::{Api, config};
use crate::board::{
    Costs, Headline, Hold, HotPartition, JobRecord, QueueNow, QueueSlot, StorageHour, ViewNow,
};

/// One operation.
struct ApiOperation {
    path: &'static str,
    method: &'static str,
    route: MethodRouter<Api>,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Schema>,
    status: &'static str,
    answer: Schema,
}

/// The schema of a body.
type Schema = fn(&mut SchemaGenerator) -> Value;

fn one<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().as_value().clone()
}

fn list<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    json!({"type": "array", "items": one::<T>(schemas)})
}

fn operation(
    method: &'static str,
    route: MethodRouter<Api>,
    (path, id): (&'static str, &'static str),
    answer: Schema,
    summary: &'static str,
) -> ApiOperation {
    ApiOperation {
        path,
        method,
        route,
        id,
        summary,
        parameters: &[],
        body: None,
        status: "200",
        answer,
    }
}

/// An operation that reads.
fn read<T: 'static>(
    path: &'static str,
    id: &'static str,
    handler: impl Handler<T, Api>,
    answer: Schema,
    summary: &'static str,
) -> ApiOperation {
    operation("get", get(handler), (path, id), answer, summary)
}

/// An operation that changes something.
fn change<T: 'static>(
    path: &'static str,
    id: &'static str,
    handler: impl Handler<T, Api>,
    answer: Schema,
    summary: &'static str,
) -> ApiOperation {
    operation("post", post(handler), (path, id), answer, summary)
}

impl ApiOperation {
    fn asked(self, parameters: &'static [(&'static str, &'static str)]) -> Self {
        Self { parameters, ..self }
    }

    fn taking(self, body: Schema) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    fn accepted(self) -> Self {
        Self {
            status: "202",
            ..self
        }
    }
}

/// The operations, with their paths below `/api/v1`.
fn operations() -> Vec<ApiOperation> {
    vec![
        read(
            "/status",
            "status",
            status::status,
            one::<Status>,
            "How things stand: a headline in words, queues, poison, views, storage, tasks",
        ),
        read("/queues", "queues", status::queues, list::<QueueNow>, "Every queue now"),
        read(
            "/hour",
            "hour",
            status::hour,
            list::<QueueSlot>,
            "The last hour of one queue, or of all job queues together, in slots of ten seconds",
        )
        .asked(&[("queue", "the queue, or its shard; all job queues where absent")]),
        read(
            "/storage",
            "storage",
            status::storage,
            list::<StorageHour>,
            "The last hour of every storage service, in slots of ten seconds",
        ),
        read(
            "/partitions",
            "partitions",
            status::partitions,
            list::<HotPartition>,
            "The partitions and queues that were asked for most in the last hour, the hottest first, and what to change",
        ),
        read(
            "/pacing",
            "pacing",
            status::pacing,
            list::<Hold>,
            "What throttles and is left alone now, the longest first, and what requests wait for, the slowest first",
        ),
        read("/costs", "costs", status::costs, one::<Costs>, "What the requests cost, by estimate"),
        read("/views", "views", status::views, list::<ViewNow>, "Views in the order of their names, a hundred at a time")
            .asked(&[("after", "the last name of the page before")]),
        read("/jobs", "jobs", jobs::jobs, list::<JobRecord>, "Recent jobs, the newest first; a thousand are kept").asked(&[
            ("key", "a part of the table, the PartitionKey, the RowKey, the message's id or the client's, in any case"),
            ("outcome", "done, skipped, retried, poisoned or lost"),
            ("before", "the number of the last job of the page before"),
            ("number", "only the job with this number, with all the keys that are kept of it"),
            ("top", "how many at most: 100 where absent, never more than 1000"),
        ]),
        read("/poison", "poison", poison::list, one::<Poison>, "The front of the poison queues").asked(&[
            ("queue", "the queue as configured"),
            ("reason", "exhausted, permanent, undecodable, expired or foreign"),
            ("cause", "the cause, as a message has it here"),
            ("view", "a view that the job or the error names"),
            ("table", "the table of the entity, in any case"),
            ("key", "the entity, as PartitionKey/RowKey, or a PartitionKey alone"),
            ("text", "a text in the error, step, ids or body, in any case"),
            ("since", "poisoned since then: a time (RFC 3339), or a duration until now (2h)"),
            ("before", "poisoned before then, likewise"),
        ]),
        read("/entities/{table}", "entity_by_query", entity::by_query, one::<EntityReport>, "The same as below, for keys that are empty")
            .asked(&[("pk", "the PartitionKey"), ("rk", "the RowKey")]),
        read(
            "/entities/{table}/{pk}/{rk}",
            "entity",
            entity::entity,
            one::<EntityReport>,
            "One entity, its footprint, and what reconciling it would do now",
        ),
        read(
            "/entities/{table}/{pk}/{rk}/settled",
            "settled",
            entity::settled,
            one::<InStepReport>,
            "Whether everything derived from one entity is in step with a version of it, or a later one",
        )
        .asked(&[
            ("etag", "the version, as the store answered its write; the present one where absent"),
            ("wait", "how long to wait for it, at most 20s; 0s where absent"),
        ]),
        read("/config", "config", config::config, |_| json!({"type": ["object", "array"]}), "The configuration in force, secrets hidden"),
        read("/log", "log", log::level, one::<Log>, "What is logged"),
        read("/openapi.json", "openapi", document, |_| json!({"type": "object"}), "This document"),
        change(
            "/acknowledge",
            "acknowledge",
            acknowledge::acknowledge,
            one::<Headline>,
            "Says that somebody knows of a piece of news: it is no headline of this worker until something new comes; 404 if it is none now",
        )
        .taking(one::<Acknowledgement>),
        change(
            "/poison/requeue",
            "requeue",
            poison::requeue,
            one::<Report>,
            "Puts poisoned messages back on their queues; 202 where that takes long and goes on",
        )
        .taking(one::<Selection>),
        change(
            "/poison/discard",
            "discard",
            poison::discard,
            one::<Report>,
            "Deletes poisoned messages; 202 where that takes long and goes on",
        )
        .taking(one::<Selection>),
        change(
            "/entities/{table}/{pk}/{rk}/reconcile",
            "reconcile",
            submit::reconcile,
            one::<SentJob>,
            "Sends a sync job for this entity; 503 where that takes long: it may have been sent",
        )
        .accepted(),
        change(
            "/submit",
            "submit",
            submit::submit,
            submit::answer,
            "Sends a job, checked first; or an array of jobs, or one in each line; 503 where that takes long: they may have been sent",
        )
        .asked(&[
            ("queue", "the queue as configured; the first that carries the operation where absent"),
            ("pack", "of many: how many that differ in their primary alone go in one message, 1 to 1000; 100 where absent"),
        ])
        .taking(submit::body)
        .accepted(),
        change("/wake", "wake", wake::wake, one::<Woken>, "Says that there are new messages: an idle queue is asked at once")
            .taking(one::<Wake>)
            .accepted(),
        operation(
            "put",
            put(log::change),
            ("/log", "set_log"),
            one::<Log>,
            "Changes what is logged, until the program ends or its configuration is read again",
        )
        .taking(one::<Log>),
    ]
}

/// The routes below `/api/v1`: those of the table and no others.
pub(super) fn router() -> Router<Api> {
    operations()
        .into_iter()
        .fold(Router::new(), |router, operation| {
            router.route(operation.path, operation.route)
        })
}

async fn document() -> Json<Value> {
    Json(openapi())
}

/// The OpenAPI 3.1 document of this version.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths
            .entry(format!("/api/v1{}", operation.path))
            .or_insert_with(|| json!({}));
        path[operation.method] = described(&operation, &mut schemas);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "evenkeel",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the dashboard shows and does. On loopback, reading needs no token; everything else needs `Authorization: Bearer TOKEN`, or the session cookie that POST /login gives for it.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:9464"}],
        "security": [{"token": []}, {"session": []}, {}],
        "paths": paths,
        "components": {
            "schemas": schemas.take_definitions(true),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "evenkeel_session"},
            },
        },
    })
}

fn described(operation: &ApiOperation, schemas: &mut SchemaGenerator) -> Value {
    let mut content = |schema: Schema| json!({"application/json": {"schema": schema(schemas)}});
    let in_path = operation
        .path
        .split('{')
        .skip(1)
        .filter_map(|part| part.split('}').next());
    let in_path = in_path.map(
        |name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}),
    );
    let in_query = operation
        .parameters
        .iter()
        .map(|(name, what)| json!({"name": name, "in": "query", "description": what, "schema": {"type": "string"}}));
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            operation.status: {"description": "done", "content": content(operation.answer)},
            "default": {"description": "not done", "content": content(one::<ErrorBody<'static>>)},
        },
    });
    if let Some(body) = operation.body {
        described["requestBody"] = json!({"required": true, "content": content(body)});
    }
    if operation.method != "get" {
        described["security"] = json!([{"token": []}, {"session": []}]);
    }
    described
}
