//! Views that make one item for each value of a list, and keys that contain a date in a time zone.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{EdmValue, ViewName};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_tag]
kind = "secondary_index"
source = "Articles§"
table = "ByTag§"
partition_key = "{Tags|each|lower}"
row_key = "{PartitionKey}_{RowKey}"

[views.by_tag_near]
kind = "secondary_index"
source = "Articles§"
table = "Articles§"
partition_key = "{PartitionKey}"
row_key = "tag_{Tags|each|lower|slug}_{RowKey}"
select = []

[views.by_author]
kind = "index_entity"
source = "Articles§"
store = "table"
table = "Authors§"
partition_key = "{Authors|each:,|trim|bucket:4}"
row_key = "{Authors|each:,|trim}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Articles"

[views.per_tag]
kind = "aggregate"
source = "Articles§"
group_table = "Groups§"
partition_key = "tag"
row_key = "{Tags|each|lower}"
set = { Articles = "count()", Words = "sum(Words)" }

[views.by_month]
kind = "secondary_index"
source = "Articles§"
table = "ByMonth§"
partition_key = "{At|date:%Y-%m:Europe/Berlin}"
row_key = "{At|date:%dT%H:%M:Europe/Berlin}_{PartitionKey}_{RowKey}"
select = []
"#;

type Articles = BTreeMap<&'static str, (&'static [&'static str], &'static str, i32)>;

fn put(rk: &str, (tags, authors, words): (&[&str], &str, i32)) -> Value {
    let tags = json!(tags).to_string();
    json!({"op": "put", "table": "Articles§", "entity":
        {"PartitionKey": "blog", "RowKey": rk, "Tags": tags, "Authors": authors, "Words": words, "At": "2026-11-30T23:30:00Z"}})
}

async fn agrees(site: &Site, articles: &Articles) {
    let (mut copies, mut near, mut lists) = (
        BTreeSet::new(),
        BTreeSet::new(),
        BTreeMap::<&str, BTreeSet<&str>>::new(),
    );
    let mut groups = BTreeMap::<String, (i64, i64)>::new();
    for (rk, (tags, authors, words)) in articles {
        let tags: BTreeSet<String> = tags
            .iter()
            .map(|tag| tag.to_lowercase())
            .filter(|tag| !tag.is_empty())
            .collect();
        for tag in tags {
            copies.insert((tag.clone(), format!("blog_{rk}")));
            near.insert(("blog".to_owned(), format!("tag_{tag}_{rk}")));
            let group = groups.entry(tag).or_default();
            *group = (group.0 + 1, group.1 + i64::from(*words));
        }
        for author in authors
            .split(',')
            .map(str::trim)
            .filter(|author| !author.is_empty())
        {
            lists.entry(author).or_default().insert(rk);
        }
    }
    let keys = async |table: &str| {
        site.keys(table, "ek_view")
            .await
            .into_iter()
            .filter(|(.., view)| !view.is_empty())
    };
    assert_eq!(
        keys("ByTag§")
            .await
            .map(|(pk, rk, _)| (pk, rk))
            .collect::<BTreeSet<_>>(),
        copies
    );
    assert_eq!(
        keys("Articles§")
            .await
            .map(|(pk, rk, _)| (pk, rk))
            .collect::<BTreeSet<_>>(),
        near
    );
    let found: BTreeSet<String> = site
        .keys("Authors§", "")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk)
        .collect();
    assert_eq!(
        found,
        lists.keys().map(|author| (*author).to_owned()).collect()
    );
    for (author, articles) in lists {
        let view = ViewName::new("by_author").unwrap();
        let found = site
            .client
            .lookup(&view, &[&format!("Authors={author}")])
            .unwrap()
            .run()
            .await
            .unwrap();
        let rows: BTreeSet<&str> = found
            .rows
            .iter()
            .map(|row| {
                row.entity
                    .text("RowKey")
                    .unwrap_or(row.entity.key.rk.as_str())
            })
            .collect();
        assert_eq!((rows, found.requests), (articles, 1), "{author}");
    }
    let found = site.keys("Groups§", "").await;
    assert_eq!(found.len(), groups.len(), "{found:?}");
    for (tag, (count, words)) in groups {
        let group = site.row("Groups§", "tag", &tag).await.unwrap().entity;
        assert_eq!(
            (group.get("Articles"), group.get("Words")),
            (Some(&EdmValue::Int64(count)), Some(&EdmValue::Int64(words))),
            "{tag}"
        );
    }
    site.in_step("Articles§").await;
}

type Article = (&'static [&'static str], &'static str, i32);

pub(crate) async fn one_item_for_each_value_of_a_list(site: &Site) {
    let mut articles = Articles::new();
    let steps: [(&str, Article); 6] = [
        ("a", (&["Rust", "Azure"], "Kim, Jun", 100)),
        ("b", (&["azure", "AZURE", ""], "Kim", 50)),
        ("a", (&["Rust", "Tables"], "Jun,Ada", 120)),
        ("b", (&[], "", 50)),
        ("a", (&["Rust", "Tables"], "Jun,Ada", 120)),
        ("b", (&["Tables"], "Kim,Kim", 70)),
    ];
    for (rk, article) in steps {
        site.work(put(rk, article)).await;
        articles.insert(rk, article);
        agrees(site, &articles).await;
    }
    let view = ViewName::new("by_tag").unwrap();
    let found = site
        .client
        .lookup(&view, &["Tags=tables"])
        .unwrap()
        .entities()
        .run()
        .await
        .unwrap();
    let keys: Vec<&str> = found
        .rows
        .iter()
        .map(|row| row.entity.key.rk.as_str())
        .collect();
    assert_eq!(keys, ["a", "b"]);

    // A value that is no list, or a list that is too long, fails only for the views that use this property. Their existing items stay.
    let mut wrong = put("a", (&[], "Jun,Ada", 120));
    for tags in [
        "not a list".to_owned(),
        json!((0..101).collect::<Vec<_>>()).to_string(),
    ] {
        wrong["entity"]["Tags"] = tags.into();
        let error = site.refused(wrong.clone()).await;
        assert!(
            error.contains("\"Tags\"") && error.contains("by_tag"),
            "{error}"
        );
    }
    assert_eq!(
        site.keys("ByTag§", "")
            .await
            .iter()
            .filter(|(_, rk, _)| rk == "blog_a")
            .count(),
        2
    );
    site.work(put("a", articles["a"])).await;
    agrees(site, &articles).await;

    for rk in ["a", "b"] {
        site.work(json!({"op": "delete", "table": "Articles§", "pk": "blog", "rk": rk}))
            .await;
        articles.remove(rk);
        agrees(site, &articles).await;
    }
    for table in ["ByTag§", "Authors§", "Groups§", "ByMonth§", "Articles§"] {
        assert!(site.keys(table, "").await.is_empty(), "{table}");
    }
}

/// In Berlin, the hour from two to three in the night of 25 October occurs twice.
pub(crate) async fn a_month_is_computed_in_the_time_zone(site: &Site) {
    for (rk, at) in [
        ("september", "2026-09-30T21:59:59Z"),
        ("october", "2026-09-30T22:00:00Z"),
        ("summer", "2026-10-25T00:30:00Z"),
        ("winter", "2026-10-25T01:10:00Z"),
        ("november", "2026-10-31T23:00:00Z"),
    ] {
        let mut job = put(rk, (&[], "", 1));
        job["entity"]["At"] = at.into();
        job["entity"]["At@odata.type"] = "Edm.DateTime".into();
        site.work(job).await;
    }
    let view = ViewName::new("by_month").unwrap();
    let found = async |terms: &[&str]| {
        let found = site
            .client
            .lookup(&view, terms)
            .unwrap()
            .entities()
            .run()
            .await
            .unwrap();
        found
            .rows
            .iter()
            .map(|row| row.entity.key.rk.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(&["At=2026-10-15T00:00:00Z"]).await,
        Vec::<String>::new(),
        "a time, and not a month"
    );
    assert_eq!(
        found(&[
            "At>=2026-10-01T00:00:00+02:00",
            "At<2026-11-01T00:00:00+01:00"
        ])
        .await,
        ["october", "winter", "summer"]
    );
    // The view sorts by local time. So 2:30 in summer time follows 2:10 in winter time, although it is earlier.
    assert_eq!(
        found(&["At>=2026-11-01T00:00:00+01:00"]).await,
        ["november"]
    );
    let keys = site.keys("ByMonth§", "").await;
    assert_eq!(
        keys.iter().filter(|(pk, ..)| pk == "2026-10").count(),
        3,
        "{keys:?}"
    );
}
