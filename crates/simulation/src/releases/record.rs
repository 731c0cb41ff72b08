//! Checks the changes of the recorded catalog. No row is deleted, no generation decreases, and workers never change the
//! definition of a recorded view.

use std::collections::BTreeMap;

use crate::shared_state::WORKERS;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_model::{EdmValue, Entity};

#[derive(Debug, Default)]
pub(crate) struct KnownRecord {
    rows: BTreeMap<String, Entity>,
}

impl KnownRecord {
    /// Records the changes of one operation. An error describes a violation.
    pub(crate) fn record_changes(&mut self, execution: &Execution<'_>) -> Result<(), String> {
        for change in execution.changes {
            let ObservedChange::Row { table, key, row } = change else {
                continue;
            };
            if table.as_str() != "EvenkeelMigrations" || key.pk.as_str() != "catalog" {
                continue;
            }
            let name = key.rk.to_string();
            let Some(row) = row else {
                return Err(format!("the record of {name} was deleted"));
            };
            let before = self.rows.insert(name.clone(), row.entity.clone());
            let number = |entity: &Entity| rank(entity.get("Generation"));
            if let Some(before) = before {
                if number(&row.entity) < number(&before) {
                    return Err(format!(
                        "the generation of {name} decreased from {before:?} to {:?}",
                        row.entity
                    ));
                }
                let told = |entity: &Entity| {
                    ["Generation", "Definition0", "Retired"].map(|name| entity.get(name).cloned())
                };
                if execution.caller >= WORKERS
                    && name.starts_with("view~")
                    && told(&before) != told(&row.entity)
                {
                    return Err(format!(
                        "a worker changed the record of {name} from {before:?} to {:?}",
                        row.entity
                    ));
                }
            }
        }
        Ok(())
    }
}

fn rank(generation: Option<&EdmValue>) -> i64 {
    match generation {
        Some(EdmValue::Int64(number)) => *number,
        _ => 0,
    }
}
