//! Simulates two other writers of derived data: a copy tool saves rows again, and a foreign writer edits footprints. At
//! the end, the affected primaries get a full sync.

use serde_json::{Value, json};

use super::client::{EMPLOYEES, SimulatedClient};
use super::fault::FaultKind;
use evenkeel_account::company::table;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EntityKey, Row};
use evenkeel_storage::{IfMatch, Query, StoreError, TableOperation};

const VIEW: &str = "by_name";

impl SimulatedClient {
    pub(super) async fn save_rows(&self, key: &EntityKey) -> Result<(), StoreError> {
        let source = json!([EMPLOYEES, key.pk, key.rk]).to_string();
        let rows = self
            .tables(EMPLOYEES)
            .query(&table(EMPLOYEES), &Query::default())
            .await?
            .rows;
        for Row { entity, etag, .. } in rows
            .into_iter()
            .filter(|row| row.entity.text("ek_source") == Some(&source))
        {
            if entity.text("ek_view").is_some() && self.shared_state.inject(FaultKind::RowSaved) {
                self.shared_state.record_foreign_write(key);
                let saved = TableOperation::Replace(entity, IfMatch::Matches(etag));
                ignore_lost_race(
                    self.tables(EMPLOYEES)
                        .apply(&table(EMPLOYEES), &saved)
                        .await,
                )?;
            }
        }
        Ok(())
    }

    pub(super) async fn forge_footprint(
        &self,
        list: &EntityKey,
        other: &EntityKey,
    ) -> Result<(), StoreError> {
        let pk = format!("{EMPLOYEES}~{}", list.pk);
        let Ok(of_list) = EntityKey::new(pk, list.rk.as_str()) else {
            return Ok(());
        };
        let footprint = self
            .tables(FOOTPRINTS)
            .get(&table(FOOTPRINTS), &of_list, None)
            .await?;
        let Some(victim) = self
            .tables(EMPLOYEES)
            .get(&table(EMPLOYEES), other, None)
            .await?
        else {
            return Ok(());
        };
        let Some(Row {
            mut entity, etag, ..
        }) = footprint
        else {
            return Ok(());
        };
        let items = entity
            .text("Items")
            .and_then(|items| serde_json::from_str::<Vec<Value>>(items).ok());
        let Some(mut items) = items.filter(|_| self.shared_state.inject(FaultKind::Forged)) else {
            return Ok(());
        };
        let (pk, rk, version) = (&other.pk, &other.rk, victim.etag.as_str());
        let generation = items
            .first()
            .map_or_else(|| json!(1), |item| item[1].clone());
        items.push(json!([
            VIEW,
            generation,
            "main",
            ["row", EMPLOYEES, pk, rk],
            null,
            version,
            0
        ]));
        entity = entity.with("Items", Value::from(items).to_string());
        self.shared_state.record_foreign_write(list);
        self.shared_state.tell(|| {
            format!(
                "FAULT {}: the footprint of {EMPLOYEES}{list} lists {EMPLOYEES}{other}",
                FaultKind::Forged
            )
        });
        ignore_lost_race(
            self.tables(FOOTPRINTS)
                .apply(
                    &table(FOOTPRINTS),
                    &TableOperation::Replace(entity, IfMatch::Matches(etag)),
                )
                .await,
        )
    }
}

/// A worker may have changed or deleted the item meanwhile, which is not an error here.
fn ignore_lost_race<T>(done: Result<T, StoreError>) -> Result<(), StoreError> {
    match done {
        Err(error) if error.is_lost_race() || error.is_missing_item() => Ok(()),
        done => done.map(drop),
    }
}
