//! Lists the operations of the API in one table. Both the router and the OpenAPI document are built from this table.

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
use super::poison::{self, PoisonList, PoisonReport, Selection};
use super::problem::ErrorBody;
use super::status::{self, Status};
use super::submit::{self, SentJob};
use super::wake::{self, Wake, Woken};
use super::{Api, config};
use crate::state::{
    Costs, Headline, HotPartition, JobRecord, LimitedScope, QueueNow, QueueSlot, StorageHour,
    ViewNow,
};

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
    path: &'static str,
    id: &'static str,
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

fn read<T: 'static>(
    path: &'static str,
    id: &'static str,
    handler: impl Handler<T, Api>,
    answer: Schema,
    summary: &'static str,
) -> ApiOperation {
    operation("get", get(handler), path, id, answer, summary)
}

fn change<T: 'static>(
    path: &'static str,
    id: &'static str,
    handler: impl Handler<T, Api>,
    answer: Schema,
    summary: &'static str,
) -> ApiOperation {
    operation("post", post(handler), path, id, answer, summary)
}

impl ApiOperation {
    fn with_parameters(self, parameters: &'static [(&'static str, &'static str)]) -> Self {
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

/// The operations, with paths relative to `/api/v1`.
fn operations() -> Vec<ApiOperation> {
    vec![
        read(
            "/status",
            "status",
            status::status,
            one::<Status>,
            "The state of the program: headline, queues, poison, views, storage, tasks",
        ),
        read("/queues", "queues", status::queues, list::<QueueNow>, "The state of every queue"),
        read(
            "/hour",
            "hour",
            status::hour,
            list::<QueueSlot>,
            "The last hour of one queue, or of all job queues together, in slots of 10 s",
        )
        .with_parameters(&[("queue", "the queue or shard; all job queues if absent")]),
        read(
            "/storage",
            "storage",
            status::storage,
            list::<StorageHour>,
            "The last hour of every storage service, in slots of 10 s",
        ),
        read(
            "/partitions",
            "partitions",
            status::partitions,
            list::<HotPartition>,
            "The busiest partitions and queues of the last hour, the hottest first, with advice",
        ),
        read(
            "/pacing",
            "pacing",
            status::pacing,
            list::<LimitedScope>,
            "Scopes whose requests are paused, the longest pause first; then scopes whose requests are paced, the slowest first",
        ),
        read("/costs", "costs", status::costs, one::<Costs>, "Estimated cost of the requests"),
        read("/views", "views", status::views, list::<ViewNow>, "Views in alphabetical order, 100 per page")
            .with_parameters(&[("after", "the last name of the previous page")]),
        read("/jobs", "jobs", jobs::jobs, list::<JobRecord>, "Recent jobs, the newest first; the last 1,000 are kept").with_parameters(&[
            ("key", "part of the table, PartitionKey, RowKey, message id or client's id; case-insensitive"),
            ("outcome", "done, skipped, retried, poisoned or lost"),
            ("before", "the number of the last job of the previous page"),
            ("number", "only the job with this number, with all of its recorded keys"),
            ("top", "maximum number of jobs, up to 1000; 100 if absent"),
        ]),
        read("/poison", "poison", poison::list, one::<PoisonList>, "The front of the poison queues").with_parameters(&[
            ("queue", "the queue as configured"),
            ("reason", "exhausted, permanent, undecodable, expired or foreign"),
            ("cause", "the cause, as shown in a message"),
            ("view", "a view named by the job or the error"),
            ("table", "the table of the entity; case-insensitive"),
            ("key", "the entity, as PartitionKey/RowKey, or a PartitionKey alone"),
            ("text", "a text in the error, step, ids or body; case-insensitive"),
            ("since", "poisoned after this time (RFC 3339), or within this duration (2h)"),
            ("before", "poisoned before this time (RFC 3339), or longer ago than this duration (2h)"),
        ]),
        read("/entities/{table}", "entity_by_query", entity::by_query, one::<EntityReport>, "One entity, with its key as query parameters, which can be empty")
            .with_parameters(&[("pk", "the PartitionKey"), ("rk", "the RowKey")]),
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
        .with_parameters(&[
            ("etag", "the version, as the store returned it for the write; the present one if absent"),
            ("wait", "how long to wait, at most 20s; 0s if absent"),
        ]),
        read("/config", "config", config::config, |_| json!({"type": ["object", "array"]}), "The configuration in force, without secrets"),
        read("/log", "log", log::level, one::<Log>, "The log level"),
        read("/openapi.json", "openapi", document, |_| json!({"type": "object"}), "This document"),
        change(
            "/acknowledge",
            "acknowledge",
            acknowledge::acknowledge,
            one::<Headline>,
            "Acknowledges the headline or a note, which this worker then no longer shows; 404 if it is not current",
        )
        .taking(one::<Acknowledgement>),
        change(
            "/poison/requeue",
            "requeue",
            poison::requeue,
            one::<PoisonReport>,
            "Puts poisoned messages back on their queues; 202 if it continues in the background",
        )
        .taking(one::<Selection>),
        change(
            "/poison/discard",
            "discard",
            poison::discard,
            one::<PoisonReport>,
            "Deletes poisoned messages; 202 if it continues in the background",
        )
        .taking(one::<Selection>),
        change(
            "/entities/{table}/{pk}/{rk}/reconcile",
            "reconcile",
            submit::reconcile,
            one::<SentJob>,
            "Sends a sync job for this entity; after 503 it may have been sent",
        )
        .accepted(),
        change(
            "/submit",
            "submit",
            submit::submit,
            submit::answer,
            "Checks and sends a job, an array of jobs, or one job per line; after 503 they may have been sent",
        )
        .with_parameters(&[
            ("queue", "the queue as configured; the first that accepts the job if absent"),
            ("pack", "maximum number of jobs per message, if they differ only in their primary: 1 to 1000; 100 if absent"),
        ])
        .taking(submit::body)
        .accepted(),
        change("/wake", "wake", wake::wake, one::<Woken>, "Reports new messages, so that an idle queue is polled at once")
            .taking(one::<Wake>)
            .accepted(),
        operation(
            "put",
            put(log::change),
            "/log",
 "set_log",
            one::<Log>,
            "Changes the log level until the program ends or reloads its configuration",
        )
        .taking(one::<Log>),
    ]
}

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

/// Returns the OpenAPI 3.1 document of this version.
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
            "description": "The data and actions of the dashboard. Reading on loopback needs no token. Everything else needs `Authorization: Bearer TOKEN`, or the session cookie that POST /login returns for the token.",
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
            "default": {"description": "error", "content": content(one::<ErrorBody<'static>>)},
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
