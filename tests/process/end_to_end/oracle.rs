//! A second, simpler computation of derived data.

use std::collections::BTreeMap;

use evenkeel_model::{EdmValue, Entity, Row};

use crate::end_to_end::site::Site;

/// The properties of each row, by partition key and row key.
type Rows = BTreeMap<(String, String), BTreeMap<String, EdmValue>>;

pub(crate) fn assert_index_complete(site: &Site) {
    let employees = site.rows("Employees");
    let mut expected = Rows::new();
    for ((pk, rk), row) in &employees {
        let Some(email) = row.entity.text("Email").filter(|email| !email.is_empty()) else {
            continue;
        };
        let mut copy: BTreeMap<String, EdmValue> = ["FirstName", "LastName", "Email"]
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), row.entity.get(name)?.clone())))
            .collect();
        copy.insert(
            "ek_source".to_owned(),
            serde_json::json!(["Employees", pk, rk]).to_string().into(),
        );
        copy.insert("ek_view".to_owned(), "employees_by_email".into());
        expected.insert((format!("email_{pk}"), email.to_lowercase()), copy);
    }
    let found: Rows = site
        .rows("EmployeesByEmail")
        .into_iter()
        .map(|(key, row)| (key, row.entity.properties))
        .collect();
    let missing: Vec<_> = expected
        .keys()
        .filter(|key| !found.contains_key(*key))
        .collect();
    let stale: Vec<_> = found
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "missing {missing:?}, stale {stale:?}"
    );
    assert_eq!(found, expected);
}

pub(crate) fn assert_archived(row: &Row, source: &Entity) {
    let kept: BTreeMap<_, _> = row.entity.user_properties().collect();
    let wanted: BTreeMap<_, _> = source.user_properties().collect();
    assert_eq!(kept, wanted, "{:?}", row.entity.key);
    for name in ["ek_archived_at", "ek_source", "ek_source_etag"] {
        assert!(
            row.entity.get(name).is_some(),
            "{:?} has no {name}",
            row.entity.key
        );
    }
}
