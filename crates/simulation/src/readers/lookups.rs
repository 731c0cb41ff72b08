//! Lookups by the values in the keys of views. A lookup returns copies, or the entities of these copies. Before some
//! lookups, the reader asks whether the primary is settled.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::copies::{SeenCopies, SeenCopy};
use super::{CompanyReaders, MOST, PART, request_failed};
use crate::content::{self, Content};
use crate::fault_plan::Draw;
use crate::history::SOURCE;
use crate::items::Properties;
use evenkeel_account::company::{table, view_name};
use evenkeel_client::LookupResult;
use evenkeel_model::{EdmValue, EntityKey, Row};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LookedUpIndex {
    Email,
    Name,
}

impl LookedUpIndex {
    const fn view(self) -> &'static str {
        match self {
            Self::Email => "by_email",
            Self::Name => "by_name",
        }
    }

    const fn table(self) -> &'static str {
        match self {
            Self::Email => "ByEmail",
            Self::Name => SOURCE,
        }
    }

    /// The terms that find the copy of an employee, or `None` if the employee has no copy.
    fn terms(self, key: &EntityKey, says: &Content) -> Option<Vec<String>> {
        let text = |name: &str| match says.get(name) {
            Some(EdmValue::String(text)) if !text.is_empty() => Some(format!("{name}={text}")),
            _ => None,
        };
        let pk = format!("PartitionKey={}", key.pk);
        match self {
            Self::Email => Some(vec![pk, text("Email")?]),
            Self::Name => Some(vec![pk, text("LastName")?, format!("RowKey={}", key.rk)]),
        }
    }

    fn copied(self, says: &Content) -> Properties {
        let is_copied = |name: &str| self == Self::Name || matches!(name, "FirstName" | "Email");
        says.iter()
            .filter(|(name, _)| is_copied(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedFor {
    Copies,
    Entities,
    /// Reads copies after asking whether the primary is settled.
    SettledCopies,
}

impl CompanyReaders {
    pub(super) async fn look_up(&self, over: &CancellationToken) {
        let rng = self.shared_state.rng(PART + 3);
        let draw = Draw(&rng);
        let mut seen = SeenCopies::default();
        let pace: Duration = self.storm * 2 / MOST;
        for _ in 0..MOST {
            if over
                .run_until_cancelled(sleep(draw.moment(pace)))
                .await
                .is_none()
            {
                return;
            }
            let key = draw.of(&self.employees);
            let index = if self.shape.apart || draw.happens(0.5) {
                LookedUpIndex::Email
            } else {
                LookedUpIndex::Name
            };
            let wanted = *draw.of(&[
                AskedFor::Copies,
                AskedFor::Entities,
                AskedFor::SettledCopies,
            ]);
            if let Err(wrong) = self.ask(index, key, wanted, &mut seen).await {
                self.shared_state.violated(wrong);
                return;
            }
        }
    }

    async fn ask(
        &self,
        index: LookedUpIndex,
        key: &EntityKey,
        wanted: AskedFor,
        seen: &mut SeenCopies,
    ) -> Result<(), String> {
        let asked = self.shared_state.tick();
        let Some(says) = self
            .shared_state
            .records()
            .history
            .states(SOURCE, key)
            .last()
            .cloned()
        else {
            return Ok(());
        };
        let Some(terms) = index.terms(key, &says) else {
            return Ok(());
        };
        let told = match wanted {
            AskedFor::SettledCopies => Some(
                self.client
                    .settled(&table(SOURCE), key, None)
                    .await
                    .map_err(|error| request_failed(&error))?,
            ),
            AskedFor::Copies | AskedFor::Entities => None,
        };
        let lookup = self
            .client
            .lookup(&view_name(index.view()), &terms)
            .map_err(|error| request_failed(&error))?;
        let lookup = if wanted == AskedFor::Entities {
            lookup.entities()
        } else {
            lookup
        };
        let LookupResult { rows, .. } =
            lookup.run().await.map_err(|error| request_failed(&error))?;
        if rows.len() > 1 {
            return Err(format!(
                "a reader looked up {terms:?} in {} and found several copies, expected at most one: {rows:?}",
                index.view()
            ));
        }
        for row in &rows {
            match wanted {
                AskedFor::Entities => self.is_entity(row, asked)?,
                AskedFor::Copies | AskedFor::SettledCopies => {
                    self.is_copy(index, row, asked, seen)?;
                }
            }
        }
        let records = self.shared_state.records();
        let known = records.history.known(SOURCE, key);
        let unchanged = known.is_some_and(|known| {
            known.present && known.written.0 <= asked && known.content == says
        });
        // If the last writer of a key wins, another employee with the same e-mail address may have taken the copy.
        let is_promised = told.is_some_and(|told| told.in_step)
            && unchanged
            && !(self.shape.last_writer && index == LookedUpIndex::Email);
        let is_it = |row: &Row| owner(row).as_ref() == Some(key) && own(row) == index.copied(&says);
        if is_promised && !rows.iter().any(is_it) {
            return Err(format!(
                "a reader was told that {key} is settled, then a lookup of {terms:?} found {rows:?} in {}, expected the copy",
                index.view()
            ));
        }
        Ok(())
    }

    fn is_entity(&self, row: &Row, asked: u64) -> Result<(), String> {
        let (key, says) = (&row.entity.key, Content::new(own(row)));
        if self
            .shared_state
            .records()
            .history
            .had_content_since(SOURCE, key, &says, asked)
        {
            return Ok(());
        }
        Err(format!(
            "a lookup found {key} with content that the entity has not had since the lookup began: {says:?}"
        ))
    }

    fn is_copy(
        &self,
        index: LookedUpIndex,
        row: &Row,
        asked: u64,
        seen: &mut SeenCopies,
    ) -> Result<(), String> {
        let says = own(row);
        let owner = owner(row)
            .ok_or_else(|| format!("a lookup found a copy without a primary: {row:?}"))?;
        let records = self.shared_state.records();
        let shown: Vec<bool> = records
            .history
            .states(SOURCE, &owner)
            .map(|state| index.copied(state) == says)
            .collect();
        let copy: SeenCopy = (index.view(), row.entity.key.clone(), owner);
        let is_anew = seen.since(&copy).is_some_and(|since| {
            records
                .history
                .deleted_since(index.table(), &row.entity.key, since)
        });
        drop(records);
        if is_anew {
            seen.forget(&copy);
        }
        let words = format!("{} of {}", row.entity.key, copy.2);
        seen.see(copy, asked, &shown)
            .map_err(|wrong| format!("a reader found copy {words} with {wrong}: {says:?}"))
    }
}

fn own(row: &Row) -> Properties {
    content::own(&row.entity.properties).collect()
}

fn owner(copy: &Row) -> Option<EntityKey> {
    let [source, pk, rk]: [String; 3] =
        serde_json::from_str(copy.entity.text("ek_source")?).ok()?;
    EntityKey::new(pk, rk).ok().filter(|_| source == SOURCE)
}
