//! Results of audits in the table `EvenkeelAudits`: one row per view, in the partition of its source table.
//!
//! Only the results of the last completed audit are kept. If a backfill repairs items later, it subtracts them from the
//! results. A view of dated tables has one row for each of its source tables. The row is deleted with the table.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::env::Env;
use crate::execute::Failure;
use crate::failure::{permanent, storage};
use evenkeel_model::audit::AuditCursor;
use evenkeel_model::backfill::BackfillCursor;
use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::{
    Comparison, EdmDateTime, EdmValue, Entity, EntityKey, Filter, TableName, ViewName,
};
use evenkeel_storage::{
    ErrorClass, IfMatch, Query, StoreError, TableOperation, TableStore, all_rows,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub view: ViewName,
    /// Items that were found wrong, and that neither the audit nor a later backfill has repaired.
    pub drift: u64,
    /// When the audit ended, by the worker's clock.
    pub completed: Timestamp,
}

#[expect(clippy::expect_used, reason = "a constant")]
fn table() -> TableName {
    TableName::new("EvenkeelAudits").expect("a table name")
}

pub(crate) async fn write(
    env: &Env,
    source: &TableRef,
    only: Option<&ViewName>,
    cursor: &AuditCursor,
) -> Result<(), Failure> {
    let now = EdmDateTime::from_timestamp(env.clock.now())
        .map_err(|error| permanent("reading the clock", error))?;
    let ranges = env
        .catalog
        .ranges_over(source)
        .filter(|view| view.source != *source);
    for view in env
        .catalog
        .views_of(source)
        .chain(ranges)
        .filter(|view| only.is_none_or(|only| *only == view.name))
    {
        let step = || format!("writing the results of the audit of {source}");
        let key = EntityKey::new(source.table.as_str(), view.name.as_str())
            .map_err(|error| permanent(step(), error))?;
        let of =
            |counts: &BTreeMap<String, u64>| counts.get(view.name.as_str()).copied().unwrap_or(0);
        let entity = Entity::new(key)
            .with("Drift", count(of(&cursor.drift)))
            .with("Unlisted", count(of(&cursor.unlisted)))
            .with("Primaries", count(cursor.primaries))
            .with("Repaired", count(cursor.repaired))
            .with("Failed", count(cursor.failed))
            .with("Completed", EdmValue::DateTime(now));
        let kept = env
            .account(source)?
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(entity))
            .await;
        kept.map_err(|error| storage(step(), error))?;
    }
    Ok(())
}

/// Corrects the results of earlier audits after a backfill that began at `begun`: the items that the backfill has
/// repaired are subtracted. Items that no footprint lists, and items whose keys are taken, still count. If a primary
/// failed, nothing is subtracted, because it is unknown which of its items are wrong.
pub(crate) async fn subtract_repaired(
    env: &Env,
    source: &TableRef,
    cursor: &BackfillCursor,
    begun: Timestamp,
) -> Result<(), Failure> {
    if cursor.failed > 0 {
        return Ok(());
    }
    let tables = &env.account(source)?.tables;
    for view in env.catalog.views_of(source) {
        let step = || format!("correcting the audit results of {source}");
        let key = EntityKey::new(source.table.as_str(), view.name.as_str())
            .map_err(|error| permanent(step(), error))?;
        let row = match tables.get(&table(), &key, None).await {
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => return Ok(()),
            row => row.map_err(|error| storage(step(), error))?,
        };
        let Some((row, found)) = row.and_then(|row| record(&row.entity).map(|found| (row, found)))
        else {
            continue;
        };
        let unlisted = match row.entity.get("Unlisted") {
            Some(EdmValue::Int64(unlisted)) => u64::try_from(*unlisted).unwrap_or_default(),
            _ => found.drift,
        };
        let left = unlisted
            + cursor
                .taken
                .get(view.name.as_str())
                .map_or(0, |taken| taken.items);
        if found.completed >= begun || left >= found.drift {
            continue;
        }
        let left = Entity::new(key).with("Drift", count(left));
        match tables
            .apply(
                &table(),
                &TableOperation::Merge(left, IfMatch::Matches(row.etag)),
            )
            .await
        {
            Ok(_) => {}
            // Another audit has ended meanwhile. Its result is more recent, so it stays.
            Err(error)
                if matches!(
                    error.class,
                    ErrorClass::Precondition | ErrorClass::NotFound(_)
                ) => {}
            Err(error) => return Err(storage(step(), error)),
        }
    }
    Ok(())
}

pub(crate) async fn forget(env: &Env, source: &TableRef) -> Result<(), Failure> {
    for view in env.catalog.views_of(source) {
        let step = || format!("deleting the audit results of {source}");
        let key = EntityKey::new(source.table.as_str(), view.name.as_str())
            .map_err(|error| permanent(step(), error))?;
        match env
            .account(source)?
            .tables
            .apply(&table(), &TableOperation::Delete(key, IfMatch::Any))
            .await
        {
            Ok(_) => {}
            Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
            Err(error) => return Err(storage(step(), error)),
        }
    }
    Ok(())
}

fn count(number: u64) -> EdmValue {
    EdmValue::Int64(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Number of primaries of a table at the end of its last audit; `None` without an audit.
pub async fn audited_primaries(
    tables: &dyn TableStore,
    source: &TableName,
) -> Result<Option<u64>, StoreError> {
    let of_source = Filter::compare("PartitionKey", Comparison::Equal, source.as_str());
    let query = Query {
        filter: Some(of_source),
        select: Some(vec!["Primaries".to_owned()]),
        top: Some(1),
        continuation: None,
    };
    let page = match tables.query(&table(), &query).await {
        Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => return Ok(None),
        page => page?,
    };
    Ok(page
        .rows
        .first()
        .and_then(|row| match row.entity.get("Primaries") {
            Some(EdmValue::Int64(primaries)) => u64::try_from(*primaries).ok(),
            _ => None,
        }))
}

/// The audit results of an account, one per view. Unreadable rows are skipped.
pub async fn audit_records(
    tables: &dyn TableStore,
    catalog: &Catalog,
) -> Result<Vec<AuditRecord>, StoreError> {
    let mut records: BTreeMap<ViewName, AuditRecord> = BTreeMap::new();
    let rows = all_rows(tables, &table(), Query::default()).await?;
    for record in rows.iter().filter_map(|row| record(&row.entity)) {
        // For a view over a range, two tables are audited: the table with the owners of the range overlays, and the
        // table with the range. The earlier of the two audits counts. For dated tables, the latest audit counts,
        // because later audits cover the new tables.
        let by_date = catalog.dated_views.contains_key(&record.view);
        let known = records
            .entry(record.view.clone())
            .or_insert_with(|| AuditRecord {
                drift: 0,
                ..record.clone()
            });
        known.drift += record.drift;
        known.completed = if by_date {
            known.completed.max(record.completed)
        } else {
            known.completed.min(record.completed)
        };
    }
    Ok(records.into_values().collect())
}

fn record(entity: &Entity) -> Option<AuditRecord> {
    let view = ViewName::new(entity.key.rk.as_str()).ok()?;
    let (Some(EdmValue::Int64(drift)), Some(EdmValue::DateTime(completed))) =
        (entity.get("Drift"), entity.get("Completed"))
    else {
        return None;
    };
    Some(AuditRecord {
        view,
        drift: u64::try_from(*drift).ok()?,
        completed: completed.timestamp(),
    })
}
