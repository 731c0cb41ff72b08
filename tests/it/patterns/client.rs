//! The library for applications: jobs, entities, lookups through every kind of view and archive, and entities that are
//! moved meanwhile.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_client::{
    CacheLimits, Client, ClientError, EntityLocation, FoundEntity, JoinSpec, LookupResult,
};
use evenkeel_model::patterns::lookup::QueryClass;
use evenkeel_model::{EdmValue, EntityKey, Row, TableName, ViewName};
use evenkeel_storage::{Clock, IfMatch, MessageText, TableOperation};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Surveys§]
wide = true

[tables.FormerSurveys§]
wide = true

[tables.Departments§]

[views.by_email]
kind = "secondary_index"
source = "Staff§"
table = "ByEmail§"
partition_key = "email_{Email|lower|bucket:4}"
row_key = "{Email|lower}"
select = ["Name"]
on_conflict = "reject"

[views.latest]
kind = "secondary_index"
source = "Staff§"
table = "Latest§"
partition_key = "{PartitionKey}"
row_key = "{Hired|inverted_ticks}_{RowKey}"
select = ["Name"]

[views.by_name]
kind = "index_entity"
source = "Staff§"
store = "table"
table = "ByName§"
partition_key = "name"
row_key = "{Name}"
member = ["{PartitionKey}", "{RowKey}"]
property = "Staff"

[views.manager]
kind = "denormalize"
source = "Staff§"
when = "Manager == true"
table = "Departments§"
partition_key = "{PartitionKey}"
row_key = "department"
set = { Manager = "{Name}" }
on_conflict = "reject"

[views.headcount]
kind = "aggregate"
source = "Staff§"
group_table = "Headcount§"
partition_key = "department"
row_key = "{PartitionKey}"
set = { Headcount = "count()" }

[views.surveys_by_rating]
kind = "secondary_index"
source = "Surveys§"
table = "ByRating§"
partition_key = "rating"
row_key = "{Rating}_{PartitionKey}_{RowKey}"
select = []

[archives.former]
source = "Staff§"
to = { kind = "table", table = "Former§" }

[archives.documents]
source = "Staff§"
to = { kind = "blob", container = "staff-§" }

[archives.files]
source = "Staff§"
to = { kind = "file", dir = "$SHARE" }

[archives.log]
source = "Staff§"
to = { kind = "append_blob", container = "staff-§", path = "logs/%Y/%m/%d/%H00" }

[archives.former_surveys]
source = "Surveys§"
to = { kind = "table", table = "FormerSurveys§" }
"#;

const PEOPLE: [(&str, &str, &str, bool); 5] = [
    ("Sales", "1", "King", true),
    ("Sales", "2", "Byron", false),
    ("Sales", "10", "King", false),
    ("Ops", "3", "Lovelace", true),
    ("Ops", "4", "King", false),
];

fn key(pk: &str, rk: &str) -> EntityKey {
    EntityKey::new(pk, rk).unwrap()
}

fn on(op: &str, archive: &str, pk: &str, rk: &str) -> Value {
    json!({"op": op, "archive": archive, "pk": pk, "rk": rk})
}

async fn employ(site: &Site, (pk, rk, name, manager): (&str, &str, &str, bool)) {
    let hired = format!("2026-11-{rk:0>2}T00:00:00Z");
    let entity = json!({"PartitionKey": pk, "RowKey": rk, "Name": name, "Email": format!("{name}.{rk}@contoso.com"), "Manager": manager,
        "Hired": hired, "Hired@odata.type": "Edm.DateTime"});
    site.work(json!({"op": "put", "table": "Staff§", "entity": entity}))
        .await;
}

async fn hire(site: &Site) {
    for department in ["Sales", "Ops"] {
        site.work(json!({"op": "put", "table": "Departments§", "entity": {"PartitionKey": department, "RowKey": "department"}})).await;
    }
    for person in PEOPLE {
        employ(site, person).await;
    }
}

async fn survey(site: &Site, rk: &str, answers: usize) {
    let mut entity = json!({"PartitionKey": "2026", "RowKey": rk, "Rating": 5});
    for n in 0..answers {
        entity[format!("Q{n:03}")] = n.into();
    }
    site.work(json!({"op": "put", "table": "Surveys§", "entity": entity}))
        .await;
}

async fn lookup(site: &Site, view: &str, terms: &[&str]) -> LookupResult {
    site.client
        .lookup(&ViewName::new(view).unwrap(), terms)
        .unwrap()
        .run()
        .await
        .unwrap()
}

async fn entities(site: &Site, view: &str, terms: &[&str]) -> LookupResult {
    site.client
        .lookup(&ViewName::new(view).unwrap(), terms)
        .unwrap()
        .entities()
        .run()
        .await
        .unwrap()
}

fn keys(rows: &[Row]) -> Vec<String> {
    rows.iter()
        .map(|row| format!("{}/{}", row.entity.key.pk, row.entity.key.rk))
        .collect()
}

pub(crate) async fn every_kind_of_view_is_looked_up(site: &Site) {
    hire(site).await;
    // First a single key with a computed bucket. Then a prefix over four buckets whose results are merged, and the same prefix page by page.
    let found = lookup(site, "by_email", &["Email=King.1@Contoso.com"]).await;
    assert_eq!(
        (
            found.rows[0].entity.text("Name"),
            found.class,
            found.requests
        ),
        (Some("King"), QueryClass::Point, 1)
    );
    let found = lookup(site, "by_email", &["Email^=king"]).await;
    let rows: Vec<&str> = found
        .rows
        .iter()
        .map(|row| row.entity.key.rk.as_str())
        .collect();
    assert_eq!(
        (rows, found.class, found.requests),
        (
            vec![
                "king.10@contoso.com",
                "king.1@contoso.com",
                "king.4@contoso.com"
            ],
            QueryClass::Range,
            4
        )
    );
    let by_email = ViewName::new("by_email").unwrap();
    let mut seen = Vec::new();
    let mut next = site
        .client
        .lookup(&by_email, &["Email^=king"])
        .unwrap()
        .top(1)
        .select(["Name"]);
    loop {
        let found = next.run().await.unwrap();
        assert!(
            found.rows.len() <= 1
                && found
                    .rows
                    .iter()
                    .all(|row| row.entity.properties.keys().eq(["Name"]))
        );
        seen.extend(
            found
                .rows
                .into_iter()
                .map(|row| row.entity.key.rk.to_string()),
        );
        let Some(continuation) = found.continuation else {
            break;
        };
        next = next.after(continuation);
    }
    assert_eq!(seen.len(), 3);

    let latest = ViewName::new("latest").unwrap();
    let found = site
        .client
        .lookup(&latest, &["PartitionKey=Sales"])
        .unwrap()
        .top(2)
        .entities()
        .run()
        .await
        .unwrap();
    assert_eq!(
        (keys(&found.rows), found.requests),
        (vec!["Sales/10".to_owned(), "Sales/2".to_owned()], 3)
    );
    let found = entities(
        site,
        "latest",
        &["PartitionKey=Sales", "Hired>=2026-11-02T00:00:00Z"],
    )
    .await;
    assert_eq!(keys(&found.rows), ["Sales/10", "Sales/2"]);

    let found = lookup(site, "by_name", &["Name=King"]).await;
    assert_eq!(
        (keys(&found.rows), found.requests),
        (
            vec![
                "Ops/4".to_owned(),
                "Sales/1".to_owned(),
                "Sales/10".to_owned()
            ],
            1
        )
    );
    let found = entities(site, "by_name", &["Name>=B", "Name<L"]).await;
    assert_eq!(
        keys(&found.rows),
        ["Sales/2", "Ops/4", "Sales/1", "Sales/10"]
    );
    assert_eq!(
        found.rows[0].entity.text("Email"),
        Some("Byron.2@contoso.com")
    );

    let found = lookup(site, "headcount", &["PartitionKey=Sales"]).await;
    assert_eq!(found.rows[0].entity.get("Headcount"), Some(&3_i64.into()));
    assert_eq!(
        keys(
            &entities(site, "headcount", &["PartitionKey=Ops"])
                .await
                .rows
        ),
        ["Ops/3", "Ops/4"]
    );
    assert_eq!(
        keys(&entities(site, "headcount", &[]).await.rows),
        ["Ops/3", "Ops/4", "Sales/1", "Sales/10", "Sales/2"]
    );
    let found = lookup(site, "manager", &["PartitionKey=Ops"]).await;
    assert_eq!(
        (keys(&found.rows), found.rows[0].entity.text("Manager")),
        (vec!["Ops/department".to_owned()], Some("Lovelace"))
    );
    assert_eq!(
        keys(&entities(site, "manager", &["PartitionKey=Ops"]).await.rows),
        ["Ops/3"]
    );

    survey(site, "a", 300).await;
    survey(site, "b", 3).await;
    let found = entities(site, "surveys_by_rating", &["Rating=5"]).await;
    assert_eq!(keys(&found.rows), ["2026/a", "2026/b"]);
    assert_eq!(
        (
            found.rows[0].entity.user_properties().count(),
            found.requests
        ),
        (301, 1 + 2 + 1)
    );
    let rating = ViewName::new("surveys_by_rating").unwrap();
    let found = site
        .client
        .lookup(&rating, &["Rating=5"])
        .unwrap()
        .entities()
        .select(["Q299"])
        .run()
        .await
        .unwrap();
    assert_eq!(found.rows[0].entity.get("Q299"), Some(&EdmValue::from(299)));
}

pub(crate) async fn a_lookup_goes_on_inside_its_list_though_others_have_come_before_it(
    site: &Site,
) {
    hire(site).await;
    let by_name = ViewName::new("by_name").unwrap();
    let next = async |after: Option<String>, top| {
        let lookup = site.client.lookup(&by_name, &["Name^=K"]).unwrap().top(top);
        let lookup = if let Some(token) = after {
            lookup.after(token)
        } else {
            lookup
        };
        let found = lookup.run().await.unwrap();
        (keys(&found.rows), found.continuation)
    };
    let (kings, inside) = next(None, 1).await;
    assert_eq!(kings, ["Ops/4"]);
    for rk in ["21", "22"] {
        employ(site, ("Sales", rk, "Kim", false)).await;
    }
    assert_eq!(
        next(inside.clone(), 10).await,
        (
            ["Sales/21", "Sales/22", "Sales/1", "Sales/10"]
                .map(str::to_owned)
                .to_vec(),
            None
        )
    );
    // With one, two and three rows, a page ends within the list of Kim, exactly at its end, and within the list of
    // King.
    for top in [1, 2, 3] {
        let (mut found, mut after) = (Vec::new(), inside.clone());
        while after.is_some() {
            let (rows, rest) = next(after, top).await;
            found.extend(rows);
            after = rest;
        }
        assert_eq!(
            found,
            ["Sales/21", "Sales/22", "Sales/1", "Sales/10"],
            "{top} at a time"
        );
    }
}

pub(crate) async fn archives_are_looked_up_by_their_entities_keys(site: &Site) {
    hire(site).await;
    for rk in ["1", "2", "10"] {
        site.work(on("archive", "former", "Sales", rk)).await;
    }
    let found = lookup(site, "former", &["PartitionKey=Sales"]).await;
    assert_eq!(
        (keys(&found.rows), found.class),
        (
            vec![
                "Sales/1".to_owned(),
                "Sales/10".to_owned(),
                "Sales/2".to_owned()
            ],
            QueryClass::PartitionScan
        )
    );
    let found = lookup(site, "former", &["PartitionKey=Sales", "RowKey^=1"]).await;
    assert_eq!(
        (keys(&found.rows), found.class),
        (
            vec!["Sales/1".to_owned(), "Sales/10".to_owned()],
            QueryClass::Range
        )
    );
    let found = lookup(site, "former", &["PartitionKey=Sales", "RowKey=2"]).await;
    assert_eq!(
        (
            found.rows[0].entity.text("Name"),
            found.class,
            found.requests
        ),
        (Some("Byron"), QueryClass::Point, 1)
    );

    site.work(on("archive", "documents", "Ops", "3")).await;
    site.work(on("archive", "files", "Ops", "4")).await;
    for (archive, rk, name) in [("documents", "3", "Lovelace"), ("files", "4", "King")] {
        let row_key = format!("RowKey={rk}");
        let found = lookup(site, archive, &["PartitionKey=Ops", &row_key]).await;
        assert_eq!(
            (found.rows[0].entity.text("Name"), found.requests),
            (Some(name), 1)
        );
        let lookup = site
            .client
            .lookup(&ViewName::new(archive).unwrap(), &["PartitionKey=Ops"])
            .unwrap();
        assert!(
            lookup
                .run()
                .await
                .unwrap_err()
                .to_string()
                .contains("by the keys of its primary only")
        );
    }

    for (rk, answers) in [("a", 300), ("b", 3), ("c", 600)] {
        survey(site, rk, answers).await;
        site.work(on("archive", "former_surveys", "2026", rk)).await;
    }
    let found = lookup(site, "former_surveys", &["PartitionKey=2026"]).await;
    assert_eq!(keys(&found.rows), ["2026/a", "2026/b", "2026/c"]);
    let counts: Vec<usize> = found
        .rows
        .iter()
        .map(|row| row.entity.user_properties().count())
        .collect();
    assert_eq!((counts, found.requests), (vec![301, 4, 601], 1 + 2 + 2));
}

async fn find(site: &Site, archive: &str, pk: &str, rk: &str) -> Option<FoundEntity> {
    site.client
        .find(&ViewName::new(archive).unwrap(), &key(pk, rk))
        .await
        .unwrap()
}

pub(crate) async fn an_entity_is_found_wherever_it_is(site: &Site) {
    hire(site).await;
    for (archive, rk) in [("former", "1"), ("documents", "2"), ("files", "10")] {
        let found = find(site, archive, "Sales", rk).await.unwrap();
        assert_eq!(found.at, EntityLocation::Source);
        site.work(on("archive", archive, "Sales", rk)).await;
        let gone = find(site, archive, "Sales", rk).await.unwrap();
        assert_eq!(
            (gone.at, gone.row.entity.text("Name")),
            (EntityLocation::Archive, found.row.entity.text("Name"))
        );
        site.work(on("restore", archive, "Sales", rk)).await;
        assert_eq!(
            find(site, archive, "Sales", rk).await.unwrap().at,
            EntityLocation::Source
        );
    }
    assert_eq!(find(site, "former", "Sales", "99").await, None);
    survey(site, "a", 300).await;
    site.work(on("archive", "former_surveys", "2026", "a"))
        .await;
    let found = find(site, "former_surveys", "2026", "a").await.unwrap();
    assert_eq!(
        (found.at, found.row.entity.user_properties().count()),
        (EntityLocation::Archive, 301)
    );
    let table = TableName::new(site.name("formersurveys§")).unwrap();
    let row = site
        .client
        .get(&table, &key("2026", "a"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row, found.row);
    assert_eq!(
        site.client.get(&table, &key("2026", "z")).await.unwrap(),
        None
    );
    assert!(matches!(
        site.client
            .get(&TableName::new("Nowhere").unwrap(), &key("a", "b"))
            .await,
        Err(ClientError::Unknown(_))
    ));
}

pub(crate) async fn an_entity_under_way_is_found_at_every_moment(site: &Site) {
    hire(site).await;
    let looking = async {
        let mut looked = 0;
        while looked < 60 {
            assert!(
                find(site, "former", "Ops", "3").await.is_some(),
                "missed at lookup {looked}"
            );
            looked += 1;
        }
    };
    let moving = async {
        for _ in 0..10 {
            site.work(on("archive", "former", "Ops", "3")).await;
            site.work(on("restore", "former", "Ops", "3")).await;
        }
    };
    tokio::join!(looking, moving);
    assert_eq!(
        find(site, "former", "Ops", "3").await.unwrap().at,
        EntityLocation::Source
    );
}

pub(crate) async fn jobs_are_sent_and_done(site: &Site) {
    let long = json!({"op": "put", "table": "Staff§", "id": "mine", "note": "x".repeat(60_000),
        "entity": {"PartitionKey": "Sales", "RowKey": "1", "Name": "King"}});
    let sent = site
        .client
        .submit(&site.name(&long.to_string()))
        .await
        .unwrap();
    assert_eq!(
        (sent.op, sent.id.as_deref(), sent.unknown_fields.len()),
        ("put", Some("mine"), 1)
    );
    let message = site
        .account
        .queues
        .get(&sent.queue, 1, std::time::Duration::from_mins(1))
        .await
        .unwrap()
        .remove(0);
    assert_eq!(message.id, sent.message_id);
    let MessageText::Readable(text) = message.text else {
        panic!("unreadable")
    };
    assert!(text.len() < 1_000, "compressed");
    let (_, delivery) = site.message(&long);
    let job = evenkeel_model::job::decode(&text).unwrap().job;
    site.deliver(&job, &delivery).await.unwrap();
    let table = TableName::new(site.name("Staff§")).unwrap();
    assert_eq!(
        site.client
            .get(&table, &key("Sales", "1"))
            .await
            .unwrap()
            .unwrap()
            .entity
            .text("Name"),
        Some("King")
    );
}

pub(crate) async fn a_write_is_timed_until_it_is_found(site: &Site) {
    let sync = json!({"op": "sync", "table": "Staff§", "pk": "Timed", "rk": "1"});
    let found_after = async || site.attempt(&sync).await.unwrap().summary().found_after;
    let write = async |name: &str| {
        site.write(
            "Staff§",
            evenkeel_model::Entity::new(key("Timed", "1"))
                .with("Name", name)
                .with("Email", "t@b.c"),
        )
        .await;
    };
    assert_eq!(
        found_after().await,
        None,
        "found an entity that does not exist"
    );
    write("King").await;
    // A service reports its time in whole seconds, and an answer may take a second. So the first answers leave an uncertainty of two seconds.
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    let after = found_after().await.unwrap().as_secs_f64();
    assert!((1.0..60.0).contains(&after), "{after} s after four");
    assert_eq!(
        found_after().await,
        None,
        "the entity must have been found before"
    );
    write("Queen").await;
    assert!(
        found_after()
            .await
            .is_some_and(|again| again.as_secs_f64() < 60.0)
    );
}

pub(crate) async fn a_table_is_looked_up_by_its_own_keys(site: &Site) {
    for number in 0..20_i32 {
        let entity = evenkeel_model::Entity::new(key("Owned", &format!("{number:02}")))
            .with("Name", format!("N{}", number % 3));
        let entity = match number % 4 {
            0 => entity.with("Salary", number),
            1 => entity.with("Salary", i64::from(number)),
            2 => entity.with("Salary", f64::from(number)),
            _ => entity,
        };
        site.write("Staff§", entity).await;
    }
    let table = TableName::new(site.name("Staff§")).unwrap();
    let found = async |terms: &[&str], condition: &str| {
        let lookup = site
            .client
            .lookup_table(&table, terms)
            .unwrap()
            .filtered(evenkeel_model::condition::Condition::parse(condition).unwrap());
        let found = lookup.run().await.unwrap();
        found
            .rows
            .iter()
            .map(|row| row.entity.key.rk.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(&["PartitionKey=Owned"], "Salary > 15").await,
        ["16", "17", "18"],
        "numbers of every type"
    );
    assert_eq!(
        found(
            &["PartitionKey=Owned", "RowKey>=04", "RowKey<10"],
            "Salary <= 8 or Name == \"N1\""
        )
        .await,
        ["04", "05", "06", "07", "08"]
    );
    assert_eq!(
        found(&["PartitionKey=Owned", "RowKey<08"], "not exists(Salary)").await,
        ["03", "07"]
    );
    assert_eq!(
        found(&["PartitionKey=Owned"], "Name != \"N0\" and Salary == 2").await,
        ["02"]
    );
    // Azure sorts the second key before the third. The embedded store sorts it after the third.
    let rare = ["K", "\u{20bb7}", "\u{ff21}"];
    for rk in rare {
        site.write(
            "Staff§",
            evenkeel_model::Entity::new(key("Rare", rk)).with("Name", "N0"),
        )
        .await;
    }
    for bound in rare {
        let (below, from) = (format!("RowKey<{bound}"), format!("RowKey>={bound}"));
        let mut both = found(&["PartitionKey=Rare", &below], "Name == \"N0\"").await;
        both.extend(found(&["PartitionKey=Rare", &from], "Name == \"N0\"").await);
        both.sort_unstable();
        assert_eq!(both, ["K", "\u{ff21}", "\u{20bb7}"], "{bound}");
    }
    let lookup = site
        .client
        .lookup_table(&table, &["PartitionKey=Rare", "RowKey>=L"])
        .unwrap();
    let lookup =
        lookup.filtered(evenkeel_model::condition::Condition::parse("Name == \"N0\"").unwrap());
    let mut first = lookup.clone().top(1).run().await.unwrap();
    let gone = first.rows.remove(0).entity.key;
    site.account
        .tables
        .apply(&table, &TableOperation::Delete(gone.clone(), IfMatch::Any))
        .await
        .unwrap();
    let second = lookup
        .after(first.continuation.unwrap())
        .run()
        .await
        .unwrap();
    assert!(
        second.rows.len() == 1 && second.rows[0].entity.key != gone,
        "{second:?}"
    );

    let plain = site
        .client
        .lookup_table(&table, &["PartitionKey=Owned", "RowKey=05"])
        .unwrap()
        .run()
        .await
        .unwrap();
    assert_eq!((plain.rows.len(), plain.requests), (1, 1));

    // A percent sign is allowed in keys. A slash is not.
    for (pk, rk) in [("100%", "5%"), ("100%25", "5%25")] {
        site.write(
            "Staff§",
            evenkeel_model::Entity::new(key(pk, rk)).with("Name", "N0"),
        )
        .await;
    }
    for (pk, rk) in [("100%", "5%"), ("100%25", "5%25")] {
        for row in [
            format!("RowKey={rk}"),
            format!("RowKey^={rk}"),
            format!("RowKey>={rk}"),
        ] {
            let lookup = site
                .client
                .lookup_table(&table, &[format!("PartitionKey={pk}"), row.clone()])
                .unwrap();
            assert_eq!(
                keys(&lookup.run().await.unwrap().rows),
                [format!("{pk}/{rk}")],
                "{row}"
            );
        }
    }
    let error = site
        .client
        .lookup_table(&table, &["PartitionKey=R/D"])
        .unwrap()
        .run()
        .await
        .unwrap_err();
    assert!(
        error.is_misuse()
            && error
                .to_string()
                .contains("'/', which Azure Table storage forbids"),
        "{error}"
    );
}

pub(crate) async fn rows_are_joined_with_entities_of_other_tables(site: &Site) {
    hire(site).await;
    survey(site, "joined", 300).await;
    site.write(
        "Staff§",
        evenkeel_model::Entity::new(key("Gone", "9")).with("Name", "Byron"),
    )
    .await;
    let (staff, departments, surveys) = (
        site.table("Staff§"),
        site.table("Departments§"),
        site.table("Surveys§"),
    );
    let join = |text: &str| site.name(text).parse::<JoinSpec>().unwrap();
    let of_department = "departments§={PartitionKey}/department";

    let by_name = ViewName::new("by_name").unwrap();
    let lookup = site
        .client
        .lookup(&by_name, &["Name^=K"])
        .unwrap()
        .entities();
    let before = site.requests();
    let found = lookup
        .clone()
        .with(join(of_department))
        .run()
        .await
        .unwrap();
    assert_eq!(
        (keys(&found.rows), found.requests),
        (
            ["Ops/4", "Sales/1", "Sales/10"].map(str::to_owned).to_vec(),
            1 + 3 + 2
        )
    );
    assert!(
        site.requests() - before <= found.requests,
        "reads of one partition must be grouped"
    );
    let managers = |found: &LookupResult| -> Vec<Option<String>> {
        let of = |row: &Option<Arc<Row>>| Some(row.as_ref()?.entity.text("Manager")?.to_owned());
        found.joined[&departments].iter().map(of).collect()
    };
    let (ops, sales) = (Some("Lovelace".to_owned()), Some("King".to_owned()));
    assert_eq!(
        managers(&found),
        [ops.clone(), sales.clone(), sales.clone()]
    );
    assert!(Arc::ptr_eq(
        found.joined[&departments][1].as_ref().unwrap(),
        found.joined[&departments][2].as_ref().unwrap()
    ));

    // Reads page by page, with one property of each row. The join needs other properties, which must not be returned.
    let (mut seen, mut next) = (
        Vec::new(),
        lookup
            .clone()
            .top(1)
            .select(["Email"])
            .with(join("Departments§={PartitionKey}/department")),
    );
    loop {
        let found = next.run().await.unwrap();
        seen.extend(managers(&found));
        let Some(continuation) = found.continuation else {
            break;
        };
        next = next.after(continuation);
    }
    assert_eq!(seen, [ops, sales.clone(), sales]);
    let by_manager = site
        .client
        .lookup_table(&staff, &["PartitionKey=Sales", "RowKey=2"])
        .unwrap()
        .select(["Email"]);
    let found = by_manager
        .with(join("ByName§=name/{Name}"))
        .run()
        .await
        .unwrap();
    assert!(
        found.rows[0].entity.properties.keys().eq(["Email"]),
        "Name is needed only for the join, and must not be returned"
    );
    assert_eq!(
        found.joined[&site.table("ByName§")][0]
            .as_ref()
            .unwrap()
            .entity
            .key
            .rk
            .as_str(),
        "Byron"
    );
    let copy = site
        .client
        .lookup(&ViewName::new("latest").unwrap(), &["PartitionKey=Ops"])
        .unwrap()
        .top(1)
        .select(["Nothing"]);
    let found = copy.with(join("ByName§=name/{Name}")).run().await.unwrap();
    assert_eq!(
        (found.rows[0].entity.properties.len(), found.requests),
        (0, 2)
    );
    assert!(found.joined[&site.table("ByName§")][0].is_some());

    // Four cases follow. First, the joined entity does not exist. Second, the found row lacks a property that the key
    // of the joined entity needs. Third, a lookup has two joins, and one of them joins a wide entity. Fourth, a lookup
    // finds no rows.
    let own = |pk: &str| {
        site.client
            .lookup_table(&staff, &[format!("PartitionKey={pk}")])
            .unwrap()
    };
    let found = own("Gone").with(join(of_department)).run().await.unwrap();
    assert_eq!(
        (managers(&found), found.requests),
        (vec![None], 2),
        "it was asked for"
    );
    let found = own("Gone")
        .with(join("Departments§={PartitionKey}/{Email}"))
        .run()
        .await
        .unwrap();
    assert_eq!(
        (managers(&found), found.requests),
        (vec![None], 1),
        "no request was needed"
    );
    let found = own("Sales")
        .with(join(of_department))
        .with(join("Surveys§=2026/joined"))
        .run()
        .await
        .unwrap();
    assert_eq!((found.rows.len(), found.requests), (3, 1 + 1 + 2));
    assert!(
        found.joined[&surveys].iter().all(|survey| survey
            .as_ref()
            .unwrap()
            .entity
            .user_properties()
            .count()
            == 301)
    );
    let none = own("Nobody").with(join(of_department)).run().await.unwrap();
    assert_eq!((none.joined[&departments].len(), none.requests), (0, 1));

    // A percent sign is allowed in the keys of entities. Views escape the sign in the keys of their items.
    site.write(
        "Departments§",
        evenkeel_model::Entity::new(key("100%", "department")),
    )
    .await;
    employ(site, ("100%", "2", "Hall", true)).await;
    let found = own("100%")
        .with(join(of_department))
        .with(join("Headcount§=department/{PartitionKey}"))
        .run()
        .await
        .unwrap();
    assert_eq!(managers(&found), [Some("Hall".to_owned())]);
    let headcount = found.joined[&site.table("Headcount§")][0].as_ref().unwrap();
    assert_eq!(headcount.entity.key.rk.as_str(), "100%25");

    // An invalid join is refused before a request is sent. A value that cannot be a key is reported with its row.
    let before = site.requests();
    let unknown = own("Sales")
        .with(join("Nowhere§=a/b"))
        .run()
        .await
        .unwrap_err();
    assert!(
        unknown.is_misuse()
            && unknown
                .to_string()
                .contains(&site.name("the catalog has no table Nowhere§")),
        "{unknown}"
    );
    let twice = own("Sales")
        .with(join(of_department))
        .with(join("Departments§=a/b"))
        .run()
        .await
        .unwrap_err();
    assert!(
        twice.is_misuse() && twice.to_string().contains("joined twice"),
        "{twice}"
    );
    assert_eq!(site.requests(), before);
    let Err(ClientError::Join { doing, source }) = own("Sales")
        .with(join("Departments§={Manager|inverted_ticks}/a"))
        .run()
        .await
    else {
        panic!("a boolean is not a time")
    };
    assert!(
        doing.contains("Sales") && source.to_string().contains("Manager"),
        "{doing}: {source}"
    );
}

pub(crate) async fn many_jobs_share_messages(site: &Site) {
    let name = |job: Value| site.name(&job.to_string());
    let sync = |rk: u32| {
        name(json!({"op": "sync", "table": "Staff§", "pk": "Packed", "rk": rk.to_string()}))
    };
    let mut jobs: Vec<String> = (0..5).map(sync).collect();
    jobs.insert(
        3,
        name(json!({"op": "sync", "table": "Nowhere§", "pk": "Packed", "rk": "9"})),
    );
    let sent = site.client.submit_many(None, 2, &jobs).await;
    let told: Vec<_> = sent
        .iter()
        .map(|message| (message.first, message.jobs, message.sent.is_ok()))
        .collect();
    assert_eq!(
        told,
        [(0, 2, true), (2, 1, true), (3, 1, false), (4, 2, true)]
    );
    assert!(sent[2].sent.as_ref().unwrap_err().is_misuse());
    assert_eq!(
        site.client.submit_many(None, 1, &jobs[..2]).await.len(),
        2,
        "each on its own"
    );
    let queue = sent[0].sent.as_ref().unwrap().queue.clone();
    for message in site
        .account
        .queues
        .get(&queue, 32, std::time::Duration::from_mins(1))
        .await
        .unwrap()
    {
        site.account
            .queues
            .delete(&queue, &message.id, &message.pop_receipt)
            .await
            .unwrap();
    }
}

pub(crate) async fn invalid_requests_are_refused_before_anything_is_sent(site: &Site) {
    let before = site.requests();
    let view = |name: &str| ViewName::new(name).unwrap();
    let job = site
        .client
        .submit(r#"{"op":"sync","table":"Nowhere","pk":"a","rk":"b"}"#)
        .await
        .unwrap_err();
    let term = site
        .client
        .lookup(&view("by_email"), &["Email"])
        .unwrap_err();
    let key = site
        .client
        .lookup(&view("by_email"), &["Name=King"])
        .unwrap()
        .run()
        .await
        .unwrap_err();
    let unknown = site
        .client
        .lookup(&view("nowhere"), &["Name=King"])
        .unwrap()
        .run()
        .await
        .unwrap_err();
    let token = site
        .client
        .lookup(&view("by_email"), &["Email=a"])
        .unwrap()
        .after("nonsense")
        .run()
        .await
        .unwrap_err();
    let log = site
        .client
        .lookup(&view("log"), &["PartitionKey=a"])
        .unwrap()
        .run()
        .await
        .unwrap_err();
    let find = site
        .client
        .find(&view("log"), &self::key("a", "b"))
        .await
        .unwrap_err();
    for (error, word) in [
        (job, "the catalog has no table Nowhere"),
        (term, "is not a term"),
        (key, "cannot use Name=King"),
        (unknown, "known are by_email, by_name"),
        (token, "expected the continuation of an earlier lookup"),
        (log, "evenkeel logs log"),
        (find, "evenkeel logs log"),
    ] {
        assert!(
            error.is_misuse() && error.to_string().contains(word),
            "{error}"
        );
    }
    assert_eq!(site.requests(), before);
}

#[derive(Default)]
struct HandClock(std::sync::atomic::AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(std::sync::atomic::Ordering::SeqCst))
    }
}

pub(crate) async fn a_cached_table_is_asked_when_its_time_is_over(site: &Site) {
    let (table, sales) = (site.table("Departments§"), key("Sales", "department"));
    let named = |name: &str| evenkeel_model::Entity::new(sales.clone()).with("Name", name);
    site.write("Departments§", named("Sales")).await;
    let clock = Arc::new(HandClock::default());
    let limits = CacheLimits {
        ttl: Duration::from_secs(30),
        ..CacheLimits::default()
    };
    let client = site
        .client
        .clone()
        .caching_with_clock(&table, limits, Arc::<HandClock>::clone(&clock))
        .unwrap();
    let read = async |client: &Client, key: &EntityKey| {
        let before = site.requests();
        let row = client.get(&table, key).await.unwrap();
        (
            row.map(|row| row.entity.text("Name").unwrap().to_owned()),
            site.requests() - before,
        )
    };
    let later = |seconds| {
        clock
            .0
            .fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
    };
    let found = |name: &str, requests| (Some(name.to_owned()), requests);

    assert_eq!(read(&client, &sales).await, found("Sales", 1));
    assert_eq!(read(&client, &sales).await, found("Sales", 0));
    assert_eq!(
        read(&client.clone(), &sales).await,
        found("Sales", 0),
        "clones share it"
    );
    // When the entry has expired, only the ETag is requested. The entry is then valid for the same time again.
    later(30);
    assert_eq!(read(&client, &sales).await, found("Sales", 1));
    later(29);
    assert_eq!(read(&client, &sales).await, found("Sales", 0));
    // Another client writes. The cache returns the new version only after the entry has expired, and then takes two
    // requests instead of one. A client without the cache, or after a `forget`, returns the new version at once.
    site.write("Departments§", named("Sales and Service")).await;
    assert_eq!(read(&client, &sales).await, found("Sales", 0));
    assert_eq!(
        read(&site.client, &sales).await,
        found("Sales and Service", 1)
    );
    later(1);
    assert_eq!(read(&client, &sales).await, found("Sales and Service", 2));
    site.write("Departments§", named("Service")).await;
    client.forget(&table, &sales).unwrap();
    assert_eq!(read(&client, &sales).await, found("Service", 1));
    let ops = key("Ops", "department");
    assert_eq!(
        (read(&client, &ops).await, read(&client, &ops).await),
        ((None, 1), (None, 0))
    );
    site.write(
        "Departments§",
        evenkeel_model::Entity::new(ops.clone()).with("Name", "Operations"),
    )
    .await;
    later(30);
    assert_eq!(read(&client, &ops).await, found("Operations", 1));

    hire(site).await;
    let join = || {
        site.name("Departments§={PartitionKey}/department")
            .parse::<JoinSpec>()
            .unwrap()
    };
    let by_name = ViewName::new("by_name").unwrap();
    let mut requests = Vec::new();
    for _ in 0..2 {
        requests.push(
            client
                .lookup(&by_name, &["Name^=K"])
                .unwrap()
                .entities()
                .with(join())
                .run()
                .await
                .unwrap()
                .requests,
        );
    }
    assert_eq!(
        requests[1] + 2,
        requests[0],
        "{requests:?}: Ops was cached, Sales had expired and changed"
    );
    let unknown = client
        .caching(&"Nowhere".parse().unwrap(), limits)
        .unwrap_err();
    assert!(
        matches!(&unknown, ClientError::Unknown(text) if text.contains("Nowhere")),
        "{unknown}"
    );
}
