//! Two who set properties on each other: what they are from time to time, and what each says of the other then.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{PatternsShape, SPOUSES};
use crate::client::{ClientAction, ClientMessage, ClientStep};
use crate::fault_plan::{Draw, FaultPlan, chance, seconds};
use crate::items::{Address, Item, ItemPlace, Properties, set_part};
use crate::oracle::Tables;
use evenkeel::model::{EdmValue, Entity, EntityKey};

/// Names, few enough to come back.
const NAMES: [&str; 3] = ["Ada", "Eve", "Kim"];

/// The keys of both.
fn keys(shape: PatternsShape) -> Option<[EntityKey; 2]> {
    Some([EntityKey::new("Sales", "ann").ok()?, EntityKey::new(shape.second_town?, "bob").ok()?])
}

/// Both, before they have met.
pub(crate) fn founded(shape: PatternsShape) -> Vec<(&'static str, Entity)> {
    keys(shape).into_iter().flatten().map(|key| (SPOUSES, Entity::new(key).with("Name", "Ada"))).collect()
}

/// What becomes of them: from time to time one has another name, parts from the other, or comes back. A client writes that and leaves to
/// views what is theirs, so that nobody has to look at anything but what has changed.
pub(super) fn steps(seed: u64, fault_plan: &FaultPlan, shape: PatternsShape, groups: usize) -> Vec<ClientStep> {
    let chance = chance(seed, 22);
    let draw = Draw(&chance);
    let Some([ann, bob]) = keys(shape) else { return Vec::new() };
    let sync = |key: &EntityKey| {
        ClientAction::Send(ClientMessage::Job { op: "sync", table: SPOUSES, key: key.clone(), to: None, condition: None })
    };
    let bursts = 3 + draw.below(6);
    // Whoever founded them has sent a job for each.
    let mut steps: Vec<_> =
        [&ann, &bob].into_iter().map(|key| ClientStep::new(Duration::ZERO, groups + 1 + bursts * 8, sync(key))).collect();
    for burst in 0..bursts {
        let start = draw.moment(fault_plan.storm);
        let within = seconds(*draw.of(&[0.02, 0.5, 5.0, 60.0]));
        for change in 0..=draw.below(5) {
            let (one, other) = if draw.happens(0.5) { (&ann, &bob) } else { (&bob, &ann) };
            let spouse = if draw.happens(0.8) { other.rk.as_str() } else { "" };
            let entity = Entity::new(one.clone()).with("Name", *draw.of::<&str>(&NAMES));
            let entity = entity.with("Spouse", spouse).with("Town", other.pk.as_str());
            let (at, group) = (start + draw.moment(within), groups + 1 + burst * 8 + change);
            steps.push(ClientStep::new(at, group, ClientAction::Merge(SPOUSES, entity)));
            steps.push(ClientStep::new(at + seconds(draw.magnitude(0.02, 20.0)), group, sync(one)));
        }
    }
    steps
}

/// What is to be set on the other because of one of them.
pub(super) fn set_by(tables: &Tables, (table, _): &Address, entity: &Entity, shape: PatternsShape) -> Option<(Item, Properties)> {
    let text = |name: &str| entity.text(name).filter(|text| !text.is_empty());
    shape.second_town.filter(|_| table == SPOUSES)?;
    let other = EntityKey::new(text("Town")?, text("Spouse")?).ok()?;
    tables.get(table)?.iter().find(|row| row.entity.key == other)?;
    let says = BTreeMap::from([("SpouseName".to_owned(), EdmValue::from(text("Name")?))]);
    Some(((ItemPlace::Row(table.clone(), other), set_part()), says))
}
