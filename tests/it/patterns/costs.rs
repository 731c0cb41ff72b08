//! The storage requests of a job with one view, per pattern, compared with the table in `docs/performance.md`.

use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.beside]
kind = "secondary_index"
source = "Beside§"
table = "Beside§"
partition_key = "{PartitionKey}"
row_key = "name_{Name}_{RowKey}"

[views.elsewhere]
kind = "secondary_index"
source = "Elsewhere§"
table = "ByName§"
partition_key = "{Name}"
row_key = "{PartitionKey}_{RowKey}"

[views.near]
kind = "index_entity"
source = "Near§"
store = "partition"
row_key = "name_{Name}"
member = ["{RowKey}"]
property = "People"

[views.far]
kind = "index_entity"
source = "Far§"
store = "table"
table = "Lists§"
partition_key = "name"
row_key = "{Name}"
member = ["{PartitionKey}", "{RowKey}"]
property = "People"

[views.set]
kind = "denormalize"
source = "Set§"
table = "Departments§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { Manager = "{Name}" }

[views.group]
kind = "aggregate"
source = "Group§"
group_table = "Groups§"
partition_key = "group"
row_key = "{Name}"
set = { People = "count()" }

[sinks.catalog]
kind = "search"
endpoint = "$SEARCH"
auth = "entra"
credential = "developer_tools"

[views.found]
kind = "search_index"
source = "Found§"
sink = "catalog"
index = "people"
fields = { name = "{Name}" }

[tables.Plain§]
[tables.Departments§]
"#;
const PATTERNS: [(&str, &str); 8] = [
    ("no view", "Plain§"),
    ("secondary index in the source's partition", "Beside§"),
    ("secondary index elsewhere", "Elsewhere§"),
    ("index entity in the source's partition", "Near§"),
    ("index entity in a table", "Far§"),
    ("denormalization", "Set§"),
    ("count and sum per group", "Group§"),
    ("search index", "Found§"),
];
const PERFORMANCE: &str = include_str!("../../../docs/performance.md");

fn documented(pattern: &str) -> Vec<u64> {
    let row = PERFORMANCE
        .lines()
        .find(|line| line.starts_with(&format!("| {pattern} |")));
    let row = row.unwrap_or_else(|| panic!("docs/performance.md has no row {pattern:?}"));
    row.split('|')
        .skip(2)
        .filter_map(|cell| cell.trim().parse().ok())
        .collect()
}

fn put(table: &str, name: &str, salary: i32) -> Value {
    json!({"op": "put", "table": table, "entity": {"PartitionKey": "Sales", "RowKey": "1", "Name": name, "Salary": salary}})
}

pub(crate) async fn each_pattern_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    site.search().create("people", &[("name", "Edm.String")]);
    let department = evenkeel_model::EntityKey::new("Sales", "department").unwrap();
    site.write("Departments§", evenkeel_model::Entity::new(department))
        .await;
    let (mut found, mut wanted) = (Vec::new(), Vec::new());
    for (pattern, table) in PATTERNS {
        let on = |op: &str| json!({"op": op, "table": table, "pk": "Sales", "rk": "1"});
        let requests = vec![
            site.requests_of(put(table, "King", 1)).await,
            site.requests_of(put(table, "Byron", 1)).await,
            site.requests_of(put(table, "Byron", 2)).await,
            site.requests_of(on("sync")).await,
            site.requests_of(on("delete")).await,
        ];
        found.push((pattern, requests));
        wanted.push((pattern, documented(pattern)));
    }
    assert_eq!(found, wanted, "left: measured, right: docs/performance.md");
}
