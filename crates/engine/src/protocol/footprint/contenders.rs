//! Contenders: primaries that want a key which another primary holds.
//!
//! A contender is listed in the footprint of the key's holder, or of a primary that may still take over the key. A pass
//! that removes an item from that footprint has seen every contender of the item, because it writes the footprint at
//! the ETag that it has read. A contender that comes later does not find the item in the footprint, and looks at the
//! key again.
//!
//! A forged list does no harm, because a pass only looks at the listed items and queues syncs of the contenders.

use serde::{Deserialize, Serialize};

use evenkeel_model::ItemAddress;
use evenkeel_model::job::Primary;

/// Maximum number of contenders of one primary's items. Each costs a sync when the primary gives up the key.
const MAX_CONTENDERS: usize = 32;
/// Upper limit on the bytes of the list: half the capacity of one property.
const MAX_LIST_BYTES: usize = 16 << 10;

/// The contenders of one primary's items, the longest waiting first. A footprint stores them as a JSON array. The
/// format version of the footprint covers this array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Contenders(Vec<Contender>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contender {
    item: ItemAddress,
    primary: Primary,
}

impl Contenders {
    /// Adds a contender. Returns `false` if it is listed already. If there are too many, the longest waiting are
    /// removed.
    pub fn add(&mut self, item: &ItemAddress, primary: &Primary) -> bool {
        let contender = Contender {
            item: item.clone(),
            primary: primary.clone(),
        };
        if self.0.contains(&contender) {
            return false;
        }
        self.0.push(contender);
        while self.0.len() > MAX_CONTENDERS || self.text().len() > MAX_LIST_BYTES {
            self.0.remove(0);
        }
        true
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ItemAddress, &Primary)> {
        self.0
            .iter()
            .map(|contender| (&contender.item, &contender.primary))
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn retain(&mut self, kept: impl Fn(&ItemAddress, &Primary) -> bool) {
        self.0
            .retain(|contender| kept(&contender.item, &contender.primary));
    }

    /// Assigns the contenders of an item to another item of the same primary.
    pub fn moved(&mut self, from: &ItemAddress, to: &ItemAddress) {
        self.0
            .iter_mut()
            .filter(|contender| contender.item == *from)
            .for_each(|contender| contender.item.clone_from(to));
    }

    pub fn text(&self) -> String {
        // The fallback is unreachable, because names and keys always serialise.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Reads a property's text. If the text is not a list of contenders, returns an empty list, so that the footprint
    /// stays readable. Its contenders then get no sync.
    pub fn read(text: &str) -> Self {
        let mut contenders = Self::default();
        for Contender { item, primary } in
            serde_json::from_str::<Vec<Contender>>(text).unwrap_or_default()
        {
            contenders.add(&item, &primary);
        }
        contenders
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{AccountName, EntityKey, TableName, ViewName};
    use proptest::prelude::*;

    fn item(rk: &str) -> ItemAddress {
        let (view, table) = (
            ViewName::new("by_email").unwrap(),
            TableName::new("ByEmail").unwrap(),
        );
        ItemAddress::row(
            view,
            AccountName::main(),
            table,
            EntityKey::new("p", rk).unwrap(),
        )
    }

    fn primary(rk: &str) -> Primary {
        Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sales", rk).unwrap(),
        }
    }

    #[test]
    fn contenders_are_unique_and_the_longest_waiting_are_removed_first() {
        let mut contenders = Contenders::default();
        assert!(
            contenders.add(&item("a"), &primary("7")) && !contenders.add(&item("a"), &primary("7"))
        );
        (0..MAX_CONTENDERS)
            .for_each(|n| assert!(contenders.add(&item("b"), &primary(&n.to_string()))));
        assert_eq!(contenders.iter().count(), MAX_CONTENDERS);
        assert!(contenders.iter().all(|(at, _)| *at == item("b")));
        (0..MAX_CONTENDERS).for_each(|n| {
            assert!(contenders.add(&item(&"x".repeat(500)), &primary(&format!("{n:0>500}"))));
        });
        assert!(contenders.text().len() <= MAX_LIST_BYTES && !contenders.is_empty());
        assert_eq!(Contenders::read(&contenders.text()), contenders);
    }

    #[test]
    fn a_contender_is_an_object_and_any_other_text_has_none() {
        let mut contenders = Contenders::default();
        contenders.add(&item("a"), &primary("7"));
        let written = r#"[{"item":{"view":"by_email","account":"main","table":"ByEmail","pk":"p","rk":"a"},"primary":{"table":"Employees","pk":"Sales","rk":"7"}}]"#;
        assert_eq!(contenders.text(), written);
        assert_eq!(Contenders::read(written), contenders);
        for other in [
            written.replace("\"primary\"", "\"by\""),
            written.replacen('{', r#"{"since":1,"#, 1),
        ] {
            assert!(Contenders::read(&other).is_empty(), "{other}");
        }
    }

    #[test]
    fn contenders_move_to_the_item_of_another_view() {
        let mut contenders = Contenders::default();
        contenders.add(&item("a"), &primary("7"));
        contenders.moved(&item("a"), &item("b"));
        assert_eq!(
            contenders.iter().collect::<Vec<_>>(),
            [(&item("b"), &primary("7"))]
        );
        contenders.retain(|at, _| *at == item("a"));
        assert!(contenders.is_empty());
    }

    proptest! {
        #[test]
        fn whatever_a_property_says_it_names_few(text in ".{0,200}", names in proptest::collection::vec("[^/\\\\#?\\x00-\\x1f]{0,600}", 0..80)) {
            prop_assert!(Contenders::read(&text).is_empty());
            let forged: Vec<_> = names.iter().map(|name| serde_json::json!({"item": item("a"), "primary": {"table": "Employees", "pk": name, "rk": "r"}})).collect();
            let read = Contenders::read(&serde_json::to_string(&forged).unwrap());
            prop_assert!(read.iter().count() <= MAX_CONTENDERS && read.text().len() <= MAX_LIST_BYTES);
        }
    }
}
