//! The parts of `everything` that need more than a catalog: a search service, the date of today, and a series that
//! becomes too large for one row.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use evenkeel_model::{EdmValue, Row};
use evenkeel_storage::Clock as _;
use evenkeel_storage::system::SystemClock;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use crate::end_to_end::site::{QUEUE, Site};
use crate::support::search::{KEY, SearchStub};

const CATALOG: &str = r#"
[views.found]
kind = "search_index"
source = "Articles"
sink = "search"
index = "articles"
select = ["Title", "Pages"]

[views.logins_by_user]
kind = "secondary_index"
source = "Logins%Y%m%d"
table = "LoginsByUser%Y%m%d"
partition_key = "{User}"
row_key = "{PartitionKey}_{RowKey}"
select = ["User"]

[tables.Series]
wide = true
"#;
const AT_ONCE: usize = 8;
/// Number of merges that make the series exceed a row of 252 properties.
pub(crate) const ENOUGH_READINGS: usize = 40;

pub(crate) struct Elsewhere {
    search: SearchStub,
    key: NamedTempFile,
    day: String,
}

impl Elsewhere {
    pub(crate) fn new() -> Self {
        let search = SearchStub::start();
        search.create(
            "articles",
            &[("Title", "Edm.String"), ("Pages", "Edm.Int32")],
        );
        let key = NamedTempFile::new().unwrap();
        std::fs::write(key.path(), KEY).unwrap();
        Self {
            search,
            key,
            day: SystemClock::new().now().strftime("%Y%m%d").to_string(),
        }
    }

    pub(crate) fn catalog(&self) -> String {
        let (endpoint, key) = (self.search.endpoint(), self.key.path().display());
        format!(
            "{CATALOG}\n[sinks.search]\nkind = \"search\"\nendpoint = \"{endpoint}\"\nkey_file = '{key}'\n"
        )
    }

    pub(crate) fn login(&self, rk: &str, user: &str) -> Value {
        json!({"op": "put", "table": format!("Logins{}", self.day), "entity": {"PartitionKey": "web", "RowKey": rk, "User": user}})
    }

    /// Checks every document. If both workers wrote a document at the same moment, the older one may remain until its
    /// recheck half an hour later. The test does not wait for the recheck, but sends a full sync.
    fn assert_documents(&self, site: &Site, wanted: &BTreeMap<String, Map<String, Value>>) {
        let found = self.search.documents("articles");
        let differing: BTreeSet<&String> = found
            .keys()
            .chain(wanted.keys())
            .filter(|key| found.get(*key) != wanted.get(*key))
            .collect();
        if !differing.is_empty() {
            assert!(
                site.count(&format!("{QUEUE}-recheck")) > 0,
                "a second look is queued"
            );
            let syncs = differing.iter().map(|key| {
                let [table, pk, rk]: [String; 3] =
                    serde_json::from_slice(&BASE64.decode(key).unwrap()).unwrap();
                json!({"op": "sync", "table": table, "pk": pk, "rk": rk, "thorough": true})
            });
            site.submit(&syncs.collect::<Vec<_>>());
            site.run_until_idle(&[]);
        }
        assert_eq!(self.search.documents("articles"), *wanted);
    }

    /// Checks the documents of the articles and the copies of the logins against their primaries. Checks that the
    /// series is complete.
    pub(crate) fn assert_derived(&self, site: &Site, readings: usize) {
        let documents = site.rows("Articles").into_iter().map(|((pk, rk), row)| {
            let key = BASE64.encode(json!(["articles", pk, rk]).to_string());
            let Some(EdmValue::Int32(pages)) = row.entity.get("Pages") else {
                panic!("{row:?}")
            };
            let document = json!({"id": key, "Title": row.entity.text("Title"), "Pages": pages});
            (key, document.as_object().unwrap().clone())
        });
        self.assert_documents(site, &documents.collect());

        let says = |row: &Row, name: &str| row.entity.text(name).unwrap_or_default().to_owned();
        let logins = site.rows(&format!("Logins{}", self.day));
        let wanted: BTreeMap<_, _> = logins
            .iter()
            .map(|((pk, rk), row)| {
                (
                    (says(row, "User"), format!("{pk}_{rk}")),
                    json!([format!("Logins{}", self.day), pk, rk]).to_string(),
                )
            })
            .collect();
        let copies = site.rows(&format!("LoginsByUser{}", self.day));
        assert_eq!(
            copies
                .iter()
                .map(|(key, row)| (key.clone(), says(row, "ek_source")))
                .collect::<BTreeMap<_, _>>(),
            wanted
        );
        assert!(!wanted.is_empty(), "there must be a login");

        let found = site.command(&["--json", "get", "Series", "series", "1", "--resolve"]);
        assert_eq!(found.code, 0, "{}", found.err);
        let series: Value = serde_json::from_str(&found.out).unwrap();
        let names: BTreeSet<&String> = series
            .as_object()
            .unwrap()
            .keys()
            .filter(|name| name.starts_with('V'))
            .collect();
        assert_eq!(names.len(), readings * AT_ONCE);
        let row = site.row("Series", "series", "1").unwrap();
        assert!(
            row.entity.get("ek_rows").is_some(),
            "an entity with {} readings must be stored in several rows",
            names.len()
        );
    }
}

pub(crate) fn article(rk: &str, number: usize) -> Value {
    if number.is_multiple_of(5) {
        return json!({"op": "delete", "table": "Articles", "pk": "a", "rk": rk});
    }
    let entity = json!({"PartitionKey": "a", "RowKey": rk, "Title": format!("Article {number}"), "Pages": number});
    json!({"op": "put", "table": "Articles", "entity": entity})
}

pub(crate) fn reading(number: usize) -> Value {
    let mut entity = json!({"PartitionKey": "series", "RowKey": "1"});
    for nth in 0..AT_ONCE {
        entity[format!("V{number:05}_{nth}")] = number.into();
    }
    json!({"op": "put", "table": "Series", "mode": "merge", "entity": entity})
}
