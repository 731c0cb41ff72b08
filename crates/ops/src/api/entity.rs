//! Reports on one entity: the primary, its footprint, and what a job to reconcile it would do now.

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Api, Problem};
use crate::guard::Visitor;
use evenkeel_client::InStep;
use evenkeel_engine::PlanReport;
use evenkeel_engine::footprint::{self, Footprint, Settled};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::nearest::meant_or_known;
use evenkeel_model::units::parse_duration;
use evenkeel_model::{ETag, EntityKey, Site, TableName, odata};

/// Maximum time for which one request waits. It is less than the server's answer timeout of 30 s.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Report on one entity.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "entity")]
pub(crate) struct EntityReport {
    /// Its table, as declared.
    pub(crate) table: String,
    /// Its PartitionKey.
    pub(crate) pk: String,
    /// Its RowKey.
    pub(crate) rk: String,
    /// The entity as OData JSON; null if it does not exist.
    pub(crate) primary: Option<Map<String, Value>>,
    /// The footprint; null if there is none.
    pub(crate) footprint: Option<FootprintReport>,
    /// What reconciling the entity would do now.
    #[schemars(with = "Map<String, Value>")]
    pub(crate) plan: PlanReport,
}

/// The footprint of a primary.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "footprint")]
pub(crate) struct FootprintReport {
    /// The outcome of the last pass: `never`, `absent` (the primary did not exist), or the primary's ETag.
    /// `waiting at ETAG` means that the primary sets properties on an entity that did not exist.
    pub(crate) settled: String,
    /// Whether a range overlay of the primary has not been applied to all entities of its range yet.
    pub(crate) propagating: bool,
    /// Time until which the insert of an earlier pass may still arrive (RFC 3339).
    pub(crate) tainted_until: Option<String>,
    pub(crate) items: Vec<ItemReport>,
}

/// One derived item.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "item")]
pub(crate) struct ItemReport {
    pub(crate) view: String,
    /// Generation of the view.
    pub(crate) generation: u32,
    /// Account of the item.
    pub(crate) account: String,
    /// Location of the item.
    #[serde(flatten)]
    #[schemars(with = "SiteFields")]
    pub(crate) site: Site,
    /// The part of a shared row or blob, such as a member of a list, as JSON.
    pub(crate) part: Option<String>,
    /// Whether a pass has announced a change of the item and not recorded its outcome.
    pub(crate) changing: bool,
}

/// Fields of an item's location: a row, a blob, a file or a document.
#[derive(JsonSchema)]
#[expect(
    dead_code,
    reason = "only the schema of `Site`, which has no schema of its own"
)]
struct SiteFields {
    /// Table of a row.
    table: Option<String>,
    /// PartitionKey of a row.
    pk: Option<String>,
    /// RowKey of a row.
    rk: Option<String>,
    /// Container of a blob.
    container: Option<String>,
    /// Name of a blob.
    blob: Option<String>,
    /// Folder of a file.
    dir: Option<String>,
    /// Path of a file in its folder.
    file: Option<String>,
    /// Index of a search document.
    index: Option<String>,
    /// Key of a search document.
    document: Option<String>,
}

/// The key as query parameters. A path segment cannot be empty, but a key can.
#[derive(Debug, Deserialize)]
pub(super) struct KeyQuery {
    #[serde(default)]
    pk: String,
    #[serde(default)]
    rk: String,
}

pub(super) async fn entity(
    State(api): State<Api>,
    Path((table, pk, rk)): Path<(String, String, String)>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Json<EntityReport>, Problem> {
    entity_report(&api, &table, &pk, &rk, visitor)
        .await
        .map(Json)
}

pub(super) async fn by_query(
    State(api): State<Api>,
    Path(table): Path<String>,
    Query(key): Query<KeyQuery>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Json<EntityReport>, Problem> {
    entity_report(&api, &table, &key.pk, &key.rk, visitor)
        .await
        .map(Json)
}

#[derive(Debug, Deserialize)]
pub(super) struct AwaitedQuery {
    etag: Option<String>,
    wait: Option<String>,
}

/// Whether everything derived from an entity is in step.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "in step", rename = "InStep")]
pub(crate) struct InStepReport {
    /// Whether every item has the requested version, or a later one.
    in_step: bool,
    /// Whether neither the primary nor its footprint exists: it never existed, or its tombstone has been removed.
    missing: bool,
    /// Whether a range overlay of the primary has not been applied to all entities of its range yet.
    propagating: bool,
    /// Storage requests sent.
    requests: u64,
}

pub(super) async fn settled(
    State(api): State<Api>,
    Path((table, pk, rk)): Path<(String, String, String)>,
    Query(AwaitedQuery { etag, wait }): Query<AwaitedQuery>,
) -> Result<Json<InStepReport>, Problem> {
    let (_, primary) = primary(&api, &table, &pk, &rk)?;
    let etag = etag
        .as_deref()
        .map(ETag::copied)
        .transpose()
        .map_err(|error| Problem::unusable(format!("etag: {error}")))?;
    let wait = wait
        .as_deref()
        .map(parse_duration)
        .transpose()
        .map_err(|error| Problem::unusable(format!("wait: {error}")))?;
    let wait = wait.unwrap_or_default();
    if wait > LONGEST_WAIT {
        return Err(Problem::unusable(format!(
            "wait: expected at most {} s. Repeat the request to wait longer",
            LONGEST_WAIT.as_secs()
        )));
    }
    let InStep {
        in_step,
        missing,
        propagating,
        requests,
    } = api
        .client()
        .wait_for(&primary.table, &primary.key, etag.as_ref(), wait)
        .await?;
    Ok(Json(InStepReport {
        in_step,
        missing,
        propagating,
        requests,
    }))
}

/// Returns the primary with this table and key. The table must be in the catalog.
pub(super) fn primary(
    api: &Api,
    table: &str,
    pk: &str,
    rk: &str,
) -> Result<(TableRef, Primary), Problem> {
    let name = TableName::new(table).map_err(|error| Problem::unusable(error.to_string()))?;
    let key = EntityKey::new(pk, rk).map_err(|error| Problem::unusable(error.to_string()))?;
    // evenkeel must not read tables outside the catalog.
    let known = api
        .ops_state
        .catalog()
        .table(&name)
        .cloned()
        .ok_or_else(|| {
            let known: Vec<String> = api
                .ops_state
                .catalog()
                .tables
                .values()
                .map(ToString::to_string)
                .collect();
            Problem::unknown(format!(
                "the catalog has no table {name}; {}",
                meant_or_known(name.as_str(), &known)
            ))
        })?;
    let primary = Primary {
        table: known.table.clone(),
        key,
    };
    Ok((known, primary))
}

/// Builds the report on an entity. The visitor needs the right to see contents, because the keys of items contain
/// properties.
pub(crate) async fn entity_report(
    api: &Api,
    table: &str,
    pk: &str,
    rk: &str,
    visitor: Visitor,
) -> Result<EntityReport, Problem> {
    if !visitor.contents {
        return Err(Problem::withheld(
            "reading an entity requires a token with contents = true ([http.tokens.NAME])",
        ));
    }
    let (table, primary) = primary(api, table, pk, rk)?;
    let engine = api.ops_state.engine().ok_or_else(|| {
        Problem::not_yet(
            "the program is starting and has not opened its stores yet. Try again in a moment",
        )
    })?;
    let account = api
        .stores
        .account(&table.account)
        .map_err(|error| Problem::unknown(error.to_string()))?;
    let reading = |error| Problem::store("could not read the entity", &error);
    let row = api
        .client()
        .whole(&table, &primary.key)
        .await?
        .map(|whole| whole.row);
    let recorded = account
        .tables
        .get(
            &engine.catalog().footprint_table(&table),
            &footprint::key(&primary),
            None,
        )
        .await
        .map_err(reading)?;
    let recorded = recorded
        .map(|row| Footprint::decode(&primary, &row.entity, None))
        .transpose();
    let recorded = recorded.map_err(|error| Problem::unusable(error.to_string()))?;
    let plan = engine.plan(&primary).await?;
    Ok(EntityReport {
        table: primary.table.to_string(),
        pk: primary.key.pk.as_str().to_owned(),
        rk: primary.key.rk.as_str().to_owned(),
        primary: row.as_ref().map(odata::encode_row),
        footprint: recorded.as_ref().map(shown),
        plan,
    })
}

fn shown(footprint: &Footprint) -> FootprintReport {
    let items = footprint.items.iter().map(|(address, entry)| ItemReport {
        view: address.view.to_string(),
        generation: entry.generation,
        account: address.account.to_string(),
        site: address.site.clone(),
        part: address.part.as_ref().map(ToString::to_string),
        changing: entry.changing,
    });
    FootprintReport {
        settled: match &footprint.settled {
            Settled::Never => "never".to_owned(),
            Settled::Absent => "absent".to_owned(),
            Settled::At { etag, .. } => etag.to_string(),
            Settled::Waiting { etag, .. } => format!("waiting at {etag}"),
        },
        propagating: !footprint.propagations.is_empty(),
        tainted_until: footprint.tainted_until.map(|until| until.to_string()),
        items: items.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_of_an_item_has_the_fields_of_every_kind_of_site() {
        let sites = evenkeel_account::company::sites();
        let written: std::collections::BTreeSet<String> = sites
            .iter()
            .map(|site| serde_json::to_value(site).unwrap())
            .flat_map(|json| {
                json.as_object()
                    .unwrap()
                    .keys()
                    .cloned()
                    .collect::<Vec<_>>()
            })
            .collect();
        let schema = schemars::schema_for!(SiteFields);
        let known = schema.as_value()["properties"].as_object().unwrap();
        assert_eq!(written, known.keys().cloned().collect());
    }
}
