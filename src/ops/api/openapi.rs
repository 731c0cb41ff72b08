//! The OpenAPI document, made from the types that are sent and received.

use axum::Json;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};

use super::entity::EntityReport;
use super::log::Log;
use super::poison::{Poison, Report, Selection};
use super::problem::Body;
use super::status::Status;
use super::submit::Sent;
use super::wake::{Wake, Woken};
use crate::model::job;
use crate::ops::board::{Costs, Hold, HotPartition, JobRecord, QueueNow, QueueSlot, StorageHour, ViewNow};

pub(super) async fn document() -> Json<Value> {
    Json(openapi())
}

/// One operation.
struct Operation {
    path: &'static str,
    method: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    body: Option<Value>,
    status: &'static str,
    answer: Value,
}

/// The OpenAPI 3.1 document of this version.
pub fn openapi() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut schemas = settings.into_generator();
    let operations = operations(&mut schemas);
    let problem = reference(&schemas.subschema_for::<Body<'static>>());
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(format!("/api/v1{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method] = described(&operation, &problem);
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

fn operations(schemas: &mut SchemaGenerator) -> Vec<Operation> {
    let of = |path, id, summary, parameters, answer: Value| Operation {
        path,
        method: "get",
        id,
        summary,
        parameters,
        body: None,
        status: "200",
        answer,
    };
    let list = |schema: Value| json!({"type": "array", "items": schema});
    let (queue, job, slot) = (
        reference(&schemas.subschema_for::<QueueNow>()),
        reference(&schemas.subschema_for::<JobRecord>()),
        reference(&schemas.subschema_for::<QueueSlot>()),
    );
    let (view, storage) = (reference(&schemas.subschema_for::<ViewNow>()), reference(&schemas.subschema_for::<StorageHour>()));
    let (status, poison, entity) = (
        reference(&schemas.subschema_for::<Status>()),
        reference(&schemas.subschema_for::<Poison>()),
        reference(&schemas.subschema_for::<EntityReport>()),
    );
    let (selection, report, sent) = (
        reference(&schemas.subschema_for::<Selection>()),
        reference(&schemas.subschema_for::<Report>()),
        reference(&schemas.subschema_for::<Sent>()),
    );
    let (hot, hold, costs) = (
        reference(&schemas.subschema_for::<HotPartition>()),
        reference(&schemas.subschema_for::<Hold>()),
        reference(&schemas.subschema_for::<Costs>()),
    );
    let log = reference(&schemas.subschema_for::<Log>());
    let (wake, woken) = (reference(&schemas.subschema_for::<Wake>()), reference(&schemas.subschema_for::<Woken>()));
    let sent_job = job::schema();
    let mut all = vec![
        of("/status", "status", "How things stand: a headline in words, queues, poison, views, storage, tasks", &[], status),
        of("/queues", "queues", "Every queue now", &[], list(queue)),
        of(
            "/hour",
            "hour",
            "The last hour of one queue, or of all job queues together, in slots of ten seconds",
            &[("queue", "the queue, or its shard; all job queues where absent")],
            list(slot),
        ),
        of("/storage", "storage", "The last hour of every storage service, in slots of ten seconds", &[], list(storage)),
        of(
            "/partitions",
            "partitions",
            "The partitions and queues that were asked for most in the last hour, the hottest first, and what to change",
            &[],
            list(hot),
        ),
        of("/pacing", "pacing", "What throttles and is left alone now, the longest first", &[], list(hold)),
        of("/costs", "costs", "What the requests cost, by estimate", &[], costs),
        of(
            "/views",
            "views",
            "Views in the order of their names, a hundred at a time",
            &[("after", "the last name of the page before")],
            list(view),
        ),
        of(
            "/jobs",
            "jobs",
            "Recent jobs, the newest first; a thousand are kept",
            &[
                ("key", "a part of the table, the PartitionKey, the RowKey, the message's id or the client's, in any case"),
                ("outcome", "done, skipped, retried, poisoned or lost"),
                ("before", "the number of the last job of the page before"),
                ("top", "how many at most: 100 where absent, never more than 1000"),
            ],
            list(job),
        ),
        of(
            "/poison",
            "poison",
            "The front of the poison queues",
            &[("queue", "the queue as configured"), ("reason", "exhausted, permanent, undecodable, expired or foreign")],
            poison,
        ),
        of(
            "/entities/{table}",
            "entity_by_query",
            "The same as below, for keys that are empty",
            &[("pk", "the PartitionKey"), ("rk", "the RowKey")],
            entity.clone(),
        ),
        of("/entities/{table}/{pk}/{rk}", "entity", "One entity, its footprint, and what reconciling it would do now", &[], entity),
        of("/config", "config", "The configuration in force, secrets hidden", &[], json!({"type": ["object", "array"]})),
        of("/log", "log", "What is logged", &[], log.clone()),
        of("/openapi.json", "openapi", "This document", &[], json!({"type": "object"})),
    ];
    let mut change = |path, id, summary, parameters, body, status, answer: Value| {
        all.push(Operation { path, method: "post", id, summary, parameters, body, status, answer });
    };
    change(
        "/poison/requeue",
        "requeue",
        "Puts poisoned messages back on their queues; 202 where that takes long and goes on",
        &[],
        Some(selection.clone()),
        "200",
        report.clone(),
    );
    change(
        "/poison/discard",
        "discard",
        "Deletes poisoned messages; 202 where that takes long and goes on",
        &[],
        Some(selection),
        "200",
        report,
    );
    change("/entities/{table}/{pk}/{rk}/reconcile", "reconcile", "Sends a sync job for this entity", &[], None, "202", sent.clone());
    change(
        "/submit",
        "submit",
        "Sends a job, checked first",
        &[("queue", "the queue as configured; the first that carries the operation where absent")],
        Some(sent_job),
        "202",
        sent,
    );
    all.push(Operation {
        path: "/wake",
        method: "post",
        id: "wake",
        summary: "Says that there are new messages: an idle queue is asked at once",
        parameters: &[],
        body: Some(wake),
        status: "202",
        answer: woken,
    });
    all.push(Operation {
        path: "/log",
        method: "put",
        id: "set_log",
        summary: "Changes what is logged, until the program ends or its configuration is read again",
        parameters: &[],
        body: Some(log.clone()),
        status: "200",
        answer: log,
    });
    all
}

fn described(operation: &Operation, problem: &Value) -> Value {
    let content = |schema: &Value| json!({"application/json": {"schema": schema}});
    let in_path = operation.path.split('{').skip(1).filter_map(|part| part.split('}').next());
    let in_path = in_path.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
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
            operation.status: {"description": "done", "content": content(&operation.answer)},
            "default": {"description": "not done", "content": content(problem)},
        },
    });
    if let Some(body) = &operation.body {
        described["requestBody"] = json!({"required": true, "content": content(body)});
    }
    if operation.method != "get" {
        described["security"] = json!([{"token": []}, {"session": []}]);
    }
    described
}

fn reference(schema: &schemars::Schema) -> Value {
    schema.as_value().clone()
}
