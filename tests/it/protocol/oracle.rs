//! Checks the end state with the simulation's oracle, which computes derived data a second time in a simpler way.

use evenkeel_account::company::TABLES;
use evenkeel_model::job::Primary;
use evenkeel_simulation::oracle::{Tables, judge};

use crate::protocol::world::{Lab, table};

pub(crate) async fn check(lab: &Lab, story: &str) {
    let mut tables = Tables::new();
    for name in TABLES {
        tables.insert(name.to_owned(), lab.sim.rows(&table(name)));
    }
    let judgement = judge(&tables, lab.shape).unwrap_or_else(|wrong| panic!("{story}: {wrong}"));
    for (name, key) in judgement.primaries.difference(&judgement.losers) {
        let primary = Primary {
            table: table(name),
            key: key.clone(),
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(
            plan.in_step,
            "{story}: a second pass would still change something: {plan}"
        );
    }
    one_line_each(lab, story).await;
}

pub(crate) async fn one_line_each(lab: &Lab, story: &str) {
    let mut seen = std::collections::BTreeSet::new();
    for line in lab.lines().await {
        let version = format!(
            "{} {} {}",
            line["PartitionKey"], line["RowKey"], line["ek_source_etag"]
        );
        assert!(
            seen.insert(version.clone()),
            "{story}: {version} has two lines"
        );
    }
}

/// Checks that the last write of the meddling client is still in the table, under its key or the key that it was moved
/// to, or in an archive.
pub(crate) async fn nothing_lost(lab: &Lab, story: &str) {
    let last = lab.last_client_write.lock().unwrap().clone();
    let Some((rk, email)) = last else { return };
    for name in ["Employees", "FormerEmployees"] {
        let primaries = lab
            .rows(name)
            .await
            .into_iter()
            .filter(|row| row.entity.get("ek_view").is_none());
        if primaries
            .into_iter()
            .any(|row| row.entity.text("Email") == Some(&email))
        {
            return;
        }
    }
    if lab
        .document(&rk)
        .await
        .is_some_and(|document| document.text("Email") == Some(&email))
    {
        return;
    }
    if lab
        .lines()
        .await
        .iter()
        .any(|line| line["Email"] == email.as_str())
    {
        return;
    }
    panic!(
        "{story}: the client's write of {email} to {rk} is neither in the table nor in the archive"
    );
}
