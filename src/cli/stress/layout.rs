//! Distributes the entities of a load over partitions. Pure.

use std::collections::BTreeMap;

use evenkeel_model::template::Template;
use evenkeel_model::{Entity, EntityKey, Key};
use evenkeel_storage::TableOperation;

use super::super::UsageError;

/// Maximum number of operations in an entity group transaction (Azure).
const OPERATIONS: usize = 100;
/// Maximum size of the entities in a transaction, so that the whole request stays below 4 MiB.
const BYTES: usize = 3 << 20;

#[derive(Debug)]
pub(super) struct StressLayout {
    /// The key template, or the number of partitions.
    pub(super) name: String,
    /// The entities with their keys in the scratch table.
    pub(super) entities: Vec<Entity>,
    pub(super) partitions: usize,
    pub(super) hottest: Key,
    /// The hottest partition's share of the entities, and therefore of the requests.
    pub(super) hottest_share: f64,
    /// Number of entities of the sample that lack a property of the key.
    pub(super) without_key: usize,
}

impl StressLayout {
    /// Spreads the sample evenly over partitions.
    pub(super) fn even(
        number: usize,
        partitions: usize,
        sample: &[Entity],
    ) -> Result<Self, UsageError> {
        let name = if partitions == 1 {
            "1 partition".to_owned()
        } else {
            format!("{partitions} partitions")
        };
        let keys = (0..sample.len()).map(|at| Key::new(format!("p{:04}", at % partitions)).ok());
        Self::of(number, name, keys, sample)
    }

    /// Distributes the sample by a key template. Returns an error if the template cannot be
    /// rendered, or if no entity gets a key.
    pub(super) fn keyed(
        number: usize,
        template: &Template,
        sample: &[Entity],
    ) -> Result<Self, UsageError> {
        let rendered: Result<Vec<Option<Key>>, _> = sample
            .iter()
            .map(|entity| template.render(entity))
            .collect();
        let rendered =
            rendered.map_err(|error| UsageError::new(format!("--key {template}: {error}")))?;
        Self::of(number, template.to_string(), rendered.into_iter(), sample)
    }

    fn of(
        number: usize,
        name: String,
        keys: impl Iterator<Item = Option<Key>>,
        sample: &[Entity],
    ) -> Result<Self, UsageError> {
        let mut entities = Vec::new();
        let mut counts: BTreeMap<Key, usize> = BTreeMap::new();
        for (at, (pk, entity)) in keys.zip(sample).enumerate() {
            let Some(pk) = pk else { continue };
            // All loads use the same table, so their row keys must differ.
            let rk = Key::new(format!("{number}-{at:06}")).map_err(UsageError::of)?;
            *counts.entry(pk.clone()).or_default() += 1;
            entities.push(Entity {
                key: EntityKey { pk, rk },
                properties: entity.properties.clone(),
            });
        }
        let Some((hottest, most)) = counts.iter().max_by_key(|(_, count)| **count) else {
            return Err(UsageError::new(format!(
                "{name}: none of {} entities has a property that this key needs",
                sample.len()
            )));
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a share of at most 100,000 entities"
        )]
        let hottest_share = *most as f64 / entities.len() as f64;
        let (hottest, partitions, without_key) =
            (hottest.clone(), counts.len(), sample.len() - entities.len());
        Ok(Self {
            name,
            entities,
            partitions,
            hottest,
            hottest_share,
            without_key,
        })
    }

    /// The transactions that write the entities. Each is for one partition.
    pub(super) fn transactions(&self) -> Vec<(Key, Vec<TableOperation>)> {
        let mut filling: BTreeMap<&Key, (usize, Vec<TableOperation>)> = BTreeMap::new();
        let mut full = Vec::new();
        for entity in &self.entities {
            let (pk, size) = (&entity.key.pk, entity.size());
            let (bytes, operations) = filling.entry(pk).or_default();
            if operations.len() == OPERATIONS || *bytes + size > BYTES {
                full.push((pk.clone(), std::mem::take(operations)));
                *bytes = 0;
            }
            *bytes += size;
            operations.push(TableOperation::InsertOrReplace(entity.clone()));
        }
        full.extend(
            filling
                .into_iter()
                .map(|(pk, (_, operations))| (pk.clone(), operations)),
        );
        full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staff() -> Vec<Entity> {
        let departments = ["Sales", "Sales", "Sales", "Legal"];
        let entity = |at: usize| {
            Entity::new(EntityKey::new("all", format!("{at:05}")).unwrap())
                .with("Department", departments[at % 4])
        };
        (0..1_000)
            .map(entity)
            .chain([Entity::new(EntityKey::new("all", "none").unwrap())])
            .collect()
    }

    #[test]
    fn a_template_spreads_entities_over_its_partitions() {
        let layout =
            StressLayout::keyed(0, &Template::parse("{Department}").unwrap(), &staff()).unwrap();
        assert_eq!(
            (
                layout.partitions,
                layout.hottest.as_str(),
                layout.without_key
            ),
            (2, "Sales", 1)
        );
        assert!((layout.hottest_share - 0.75).abs() < 1e-9);
        let spread = StressLayout::keyed(
            1,
            &Template::parse("{Department}_{RowKey|bucket:8}").unwrap(),
            &staff(),
        )
        .unwrap();
        assert!(
            spread.partitions == 16 && spread.hottest_share < 0.15,
            "{spread:?}"
        );
    }

    #[test]
    fn a_key_that_no_entity_has_or_that_cannot_be_rendered_is_refused() {
        let refused = |template: &str, entity: Entity| {
            StressLayout::keyed(0, &Template::parse(template).unwrap(), &[entity])
                .unwrap_err()
                .to_string()
        };
        let entity = || Entity::new(EntityKey::new("p", "r").unwrap()).with("Salary", 1.5);
        assert!(refused("{Nothing}", entity()).contains("none of 1 entities"));
        assert!(refused("{Salary}", entity()).contains("--key {Salary}"));
    }

    #[test]
    fn entities_are_loaded_by_full_transactions_of_one_partition_each() {
        let layout = StressLayout::even(0, 3, &staff()).unwrap();
        let transactions = layout.transactions();
        assert_eq!(transactions.len(), 12, "334, 334 and 333 entities");
        assert_eq!(
            transactions
                .iter()
                .map(|(_, operations)| operations.len())
                .sum::<usize>(),
            1_001
        );
        assert!(
            transactions.iter().all(|(pk, operations)| operations
                .iter()
                .all(|operation| operation.key().pk == *pk))
        );
        let large =
            Entity::new(EntityKey::new("p", "r").unwrap()).with("Text", "x".repeat(900_000));
        let layout = StressLayout::even(0, 1, &vec![large; 4]).unwrap();
        assert!(
            layout
                .transactions()
                .iter()
                .all(|(_, operations)| operations.len() == 1),
            "two entities together exceed the limit of a transaction, as Azure counts their size"
        );
    }
}
