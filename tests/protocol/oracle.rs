//! What must hold in the end, computed from scratch by a second, simple implementation.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel::model::job::Primary;
use evenkeel::model::{EdmValue, Row};
use evenkeel::reconcile::footprint::{self, Footprint};

use crate::world::{Lab, table};

/// A derived row: table, partition key, row key.
type Address = (String, String, String);

/// What should exist because of an employee. Written without the catalog, templates and patterns.
fn expected(row: &Row) -> Vec<(Address, BTreeMap<String, EdmValue>)> {
    let (pk, rk) = (row.entity.key.pk.as_str(), row.entity.key.rk.as_str());
    let own: BTreeMap<String, EdmValue> =
        row.entity.properties.iter().filter(|(name, _)| !name.starts_with("ek_")).map(|(n, v)| (n.clone(), v.clone())).collect();
    let only =
        |names: &[&str]| own.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut items = Vec::new();
    if let Some(email) = row.entity.text("Email").filter(|email| !email.is_empty()) {
        items.push((("ByEmail".to_owned(), format!("email_{pk}"), email.to_lowercase()), only(&["FirstName", "Email"])));
    }
    if let Some(name) = row.entity.text("LastName").filter(|name| !name.is_empty()) {
        items.push((("Employees".to_owned(), pk.to_owned(), format!("name_{name}_{rk}")), own.clone()));
    }
    if row.entity.get("IsManager") == Some(&EdmValue::Bool(true)) {
        items.push((("Managers".to_owned(), "managers".to_owned(), format!("{pk}_{rk}")), only(&["LastName"])));
    }
    items
}

fn source(row: &Row) -> String {
    format!("[\"Employees\",\"{}\",\"{}\"]", row.entity.key.pk, row.entity.key.rk)
}

fn address(table: &str, row: &Row) -> Address {
    (table.to_owned(), row.entity.key.pk.to_string(), row.entity.key.rk.to_string())
}

/// Derived rows, footprints and plans agree with the primaries.
pub(crate) async fn check(lab: &Lab, story: &str) {
    let employees = lab.rows("Employees").await;
    let (derived, primaries): (Vec<&Row>, Vec<&Row>) = employees.iter().partition(|row| row.entity.get("ek_view").is_some());

    let mut wanted: BTreeMap<Address, (String, BTreeMap<String, EdmValue>)> = BTreeMap::new();
    let mut contested = BTreeSet::new();
    for row in &primaries {
        for (address, properties) in expected(row) {
            // Two primaries may want one key: exactly one of them has it, and the other's job is poison.
            if wanted.insert(address.clone(), (source(row), properties)).is_some() {
                contested.insert(address);
            }
        }
    }
    let mut found: BTreeMap<Address, (String, BTreeMap<String, EdmValue>)> = BTreeMap::new();
    let elsewhere = [("ByEmail", lab.rows("ByEmail").await), ("Managers", lab.rows("Managers").await)];
    let rows = elsewhere
        .iter()
        .flat_map(|(name, rows)| rows.iter().map(move |row| (*name, row)))
        .chain(derived.iter().map(|row| ("Employees", *row)));
    for (name, row) in rows {
        let properties =
            row.entity.properties.iter().filter(|(name, _)| !name.starts_with("ek_")).map(|(n, v)| (n.clone(), v.clone())).collect();
        found.insert(address(name, row), (row.entity.text("ek_source").unwrap_or_default().to_owned(), properties));
    }
    for address in &contested {
        assert!(found.contains_key(address), "{story}: nobody has the contested {address:?}");
        wanted.remove(address);
        found.remove(address);
    }
    assert_eq!(found, wanted, "{story}: derived data (left) is not what the primaries say (right)");

    let mut listed = BTreeSet::new();
    for row in lab.rows(footprint::FOOTPRINTS).await {
        let (table_name, pk) = row.entity.key.pk.as_str().split_once('~').unwrap();
        let primary = Primary { table: table(table_name), key: evenkeel::model::EntityKey::new(pk, row.entity.key.rk.as_str()).unwrap() };
        let footprint = Footprint::decode(&primary, &row.entity).unwrap();
        for (item, entry) in &footprint.items {
            assert!(!entry.changing, "{story}: the footprint of {primary} still has {item} as changing");
            let address = (item.table.to_string(), item.key.pk.to_string(), item.key.rk.to_string());
            assert!(listed.insert(address.clone()), "{story}: two footprints list {address:?}");
        }
        let exists = primaries.iter().any(|row| row.entity.key == primary.key);
        assert!(exists || footprint.items.is_empty(), "{story}: the tombstone of {primary} lists items");
    }
    let existing: BTreeSet<Address> = found.into_keys().chain(contested.iter().cloned()).collect();
    assert_eq!(listed, existing, "{story}: the footprints (left) do not list what exists (right)");

    for row in primaries {
        let primary = Primary { table: table("Employees"), key: row.entity.key.clone() };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step || !contested.is_empty(), "{story}: a second plan finds work to do: {plan}");
    }
}

/// What the meddling client wrote is in the table or in the archive.
pub(crate) async fn nothing_lost(lab: &Lab, story: &str) {
    let last = lab.last_client_write.lock().unwrap().clone();
    let Some((rk, email)) = last else { return };
    for name in ["Employees", "FormerEmployees"] {
        if let Some(row) = lab.read(name, "Sales", &rk).await
            && row.entity.text("Email") == Some(&email)
        {
            return;
        }
    }
    panic!("{story}: the client's write of {email} to {rk} is neither in the table nor in the archive");
}
