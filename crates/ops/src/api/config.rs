use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::Api;

pub(super) async fn config(State(api): State<Api>) -> Json<Value> {
    Json(api.config())
}
