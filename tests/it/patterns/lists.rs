//! Long lists: in blobs, in rows until the rows are full, and spread over buckets.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use evenkeel_engine::FailureClass;
use evenkeel_model::{BlobName, ContainerName, EdmValue, Entity, ViewName};
use evenkeel_storage::BlobUpload;
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_name]
kind = "index_entity"
source = "Staff§"
store = "blob"
container = "lists-§"
name = "by_name/{LastName|lower}.jsonl"
member = ["{PartitionKey}", "{RowKey}"]

[views.by_team]
kind = "index_entity"
source = "Staff§"
store = "table"
table = "Teams§"
partition_key = "team"
row_key = "{Team}"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]
property = "Staff"

[views.by_team_bucket]
kind = "index_entity"
source = "Staff§"
store = "table"
table = "Buckets§"
partition_key = "team"
row_key = "{Team}_{RowKey|bucket:4}"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]
property = "Staff"

[views.by_team_near]
kind = "index_entity"
source = "Staff§"
store = "partition"
row_key = "team_{Team}"
member = ["{RowKey}", "{Note}"]
property = "Staff"

[views.payroll]
kind = "aggregate"
source = "Staff§"
group_table = "Groups§"
partition_key = "team"
row_key = "{Team}"
set = { Headcount = "count()", Payroll = "sum(Salary)" }

[views.payroll_in_buckets]
kind = "aggregate"
source = "Staff§"
group_table = "BucketGroups§"
partition_key = "team_{RowKey|bucket:3}"
row_key = "{Team}_{RowKey|bucket:2}"
set = { Headcount = "count()", Payroll = "sum(Salary)", Least = "min(Salary)", Greatest = "max(Salary)" }
when = "Salary > 0"

[views.payroll_by_range]
kind = "aggregate"
source = "Staff§"
group_table = "RangeGroups§"
partition_key = "team_{RowKey|bucket:3}"
row_key = "{Team}"
set = { Headcount = "count()", Payroll = "sum(Salary)" }
when = "Salary > 0"
"#;

type Staff = BTreeMap<(String, String), (&'static str, &'static str, i32)>;

fn put((pk, rk): &(String, String), (name, team, salary): (&str, &str, i32)) -> Value {
    let note = if team.is_empty() {
        String::new()
    } else {
        "한".repeat(1_900)
    };
    json!({"op": "put", "table": "Staff§", "entity":
        {"PartitionKey": pk, "RowKey": rk, "LastName": name, "Team": team, "Note": note, "Salary": salary}})
}

fn key(pk: &str, rk: &str) -> (String, String) {
    (pk.to_owned(), rk.to_owned())
}

async fn lines(site: &Site, container: &str, name: &str) -> Vec<Vec<String>> {
    let blob = site
        .blob(container, name)
        .await
        .unwrap_or_else(|| panic!("no blob {name}"));
    let text = String::from_utf8(blob.content.to_vec()).unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let members: Vec<Vec<String>> = lines
        .map(|line| serde_json::from_value(line[0].clone()).unwrap())
        .collect();
    assert_eq!(head["ek_count"], json!(members.len()));
    assert_eq!(
        blob.properties.metadata["ek_view"],
        head["ek_view"].as_str().unwrap()
    );
    assert_eq!(
        blob.properties.metadata["ek_count"],
        members.len().to_string()
    );
    assert!(members.is_sorted(), "{members:?}");
    members
}

async fn agrees(site: &Site, staff: &Staff) {
    let (mut names, mut teams): (BTreeMap<String, BTreeSet<_>>, BTreeMap<&str, BTreeSet<_>>) =
        (BTreeMap::new(), BTreeMap::new());
    for ((pk, rk), (name, team, _)) in staff {
        if !name.is_empty() {
            names
                .entry(name.to_lowercase())
                .or_default()
                .insert(vec![pk.clone(), rk.clone()]);
        }
        if !team.is_empty() {
            teams
                .entry(team)
                .or_default()
                .insert(vec![pk.clone(), rk.clone(), "한".repeat(1_900)]);
        }
    }
    let found = site.blobs("lists-§").await;
    let wanted: Vec<String> = names
        .keys()
        .map(|name| format!("by_name/{}.jsonl", escaped(name)))
        .collect();
    assert_eq!(found, wanted);
    for (name, members) in names {
        assert_eq!(
            lines(
                site,
                "lists-§",
                &format!("by_name/{}.jsonl", escaped(&name))
            )
            .await,
            members.into_iter().collect::<Vec<_>>()
        );
    }
    let found: Vec<String> = site
        .keys("Teams§", "")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk)
        .collect();
    assert_eq!(found, teams.keys().copied().collect::<Vec<_>>());
    for (team, members) in &teams {
        let row = site.row("Teams§", "team", team).await.unwrap().entity;
        assert_eq!(
            row.get("ek_count"),
            Some(&EdmValue::Int64(i64::try_from(members.len()).unwrap())),
            "{team}"
        );
        assert_eq!(listed(&row), members.iter().cloned().collect::<Vec<_>>());
        let group = site.row("Groups§", "team", team).await.unwrap().entity;
        let of_team = staff.values().filter(|person| person.1 == *team);
        let payroll: i64 = of_team.map(|person| i64::from(person.2)).sum();
        assert_eq!(
            group.get("Headcount"),
            Some(&EdmValue::Int64(i64::try_from(members.len()).unwrap()))
        );
        assert_eq!(group.get("Payroll"), Some(&EdmValue::Int64(payroll)));
    }
    let near = site
        .keys("Staff§", "ek_view")
        .await
        .into_iter()
        .filter(|(_, _, view)| !view.is_empty());
    for (pk, rk, _) in near {
        let row = site.row("Staff§", &pk, &rk).await.unwrap().entity;
        let wanted: Vec<Vec<String>> = staff
            .iter()
            .filter(|((p, _), (_, team, _))| *p == pk && rk == format!("team_{team}"))
            .map(|((_, rk), _)| vec![rk.clone(), "한".repeat(1_900)])
            .collect();
        assert_eq!(listed(&row), wanted, "{rk}");
    }
    site.in_step("Staff§").await;
}

fn escaped(name: &str) -> String {
    name.bytes()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() || b",' ".contains(&byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}

fn listed(row: &Entity) -> Vec<Vec<String>> {
    let pieces = std::iter::once("Staff".to_owned()).chain((1..).map(|n| format!("Staff_{n}")));
    let pieces = pieces.map_while(|name| row.text(&name).map(ToOwned::to_owned));
    pieces
        .flat_map(|piece| serde_json::from_str::<Vec<Vec<String>>>(&piece).unwrap())
        .collect()
}

async fn live(
    site: &Site,
    staff: &mut Staff,
    who: (String, String),
    person: Option<(&'static str, &'static str, i32)>,
) {
    if let Some(person) = person {
        site.work(put(&who, person)).await;
        staff.insert(who, person);
    } else {
        site.work(json!({"op": "delete", "table": "Staff§", "pk": who.0, "rk": who.1}))
            .await;
        staff.remove(&who);
    }
}

pub(crate) async fn a_list_in_a_blob_follows_its_primaries_through_their_lives(site: &Site) {
    let mut staff = Staff::new();
    let lives = [
        (key("Sales", "1"), Some(("King", "", 1))),
        (key("Sa\"les,", "한 2"), Some(("King", "", 1))),
        (key("Sales", "10"), Some(("O'Brien, \"한\"", "", 1))),
        (key("Sales", "1"), Some(("O'Brien, \"한\"", "", 1))),
        (key("Sales", "1"), Some(("", "", 1))),
        (key("Sa\"les,", "한 2"), None),
        (key("Sales", "10"), Some(("king", "", 1))),
        (key("Sa\"les,", "한 2"), Some(("KING", "", 1))),
        (key("Sales", "10"), None),
        (key("Sa\"les,", "한 2"), None),
        (key("Sales", "1"), Some(("Kim", "", 1))),
    ];
    for (who, person) in lives {
        live(site, &mut staff, who, person).await;
        agrees(site, &staff).await;
    }
}

/// Fills a row with other properties, so that only a few members fit into the row.
async fn pad(site: &Site, table: &str, pk: &str, rk: &str) {
    let mut row = site.row(table, pk, rk).await.unwrap().entity;
    for n in 0..14 {
        row = row.with(format!("Padding{n:02}"), "x".repeat(32_000));
    }
    site.write(table, row).await;
}

pub(crate) async fn a_full_list_refuses_members_until_others_leave_and_buckets_take_them_all(
    site: &Site,
) {
    let mut staff = Staff::new();
    live(site, &mut staff, key("Sales", "00"), Some(("", "Red", 0))).await;
    pad(site, "Teams§", "team", "Red").await;
    let last = loop {
        let who = key("Sales", &format!("{:02}", staff.len()));
        let person = ("", "Red", 7);
        match site.attempt(&put(&who, person)).await {
            Ok(_) => drop(staff.insert(who, person)),
            Err(failure) => {
                assert_eq!(failure.class, FailureClass::Permanent);
                let error = failure.chain();
                assert!(
                    error.contains("the list is full")
                        && error.contains("with the filter |bucket:N in its key"),
                    "{error}"
                );
                break who;
            }
        }
    };
    assert!(staff.len() > 10, "{}", staff.len());
    assert!(
        site.row("Teams§", "team", "Red")
            .await
            .unwrap()
            .entity
            .get("Padding00")
            .is_some(),
        "properties of others must remain"
    );

    let buckets = ViewName::new("by_team_bucket").unwrap();
    let found = site
        .client
        .lookup(&buckets, &["Team=Red"])
        .unwrap()
        .run()
        .await
        .unwrap();
    let found: BTreeSet<&str> = found
        .rows
        .iter()
        .map(|row| row.entity.key.rk.as_str())
        .collect();
    assert_eq!(
        found,
        staff
            .keys()
            .map(|(_, rk)| rk.as_str())
            .chain([last.1.as_str()])
            .collect()
    );

    live(site, &mut staff, key("Sales", "05"), None).await;
    live(site, &mut staff, last, Some(("", "Red", 7))).await;
    agrees(site, &staff).await;
    for who in staff.keys().cloned().collect::<Vec<_>>() {
        live(site, &mut staff, who, None).await;
    }
    agrees(site, &staff).await;
}

pub(crate) async fn a_put_whose_member_has_no_room_beside_it_writes_nothing(site: &Site) {
    let mut staff = Staff::new();
    live(site, &mut staff, key("Sales", "00"), Some(("", "Red", 0))).await;
    pad(site, "Staff§", "Sales", "team_Red").await;
    for n in 1..100 {
        let who = key("Sales", &format!("{n:02}"));
        let person = ("", "Red", 7);
        if site.attempt(&put(&who, person)).await.is_ok() {
            staff.insert(who, person);
            continue;
        }
        assert!(n > 10, "{n}");
        assert!(
            site.row("Staff§", &who.0, &who.1).await.is_none(),
            "the put must be refused as a whole"
        );
        let error = site.refused(put(&who, person)).await;
        assert!(error.contains("the list is full"), "{error}");
        live(site, &mut staff, who, Some(("King", "", 7))).await;
        agrees(site, &staff).await;
        return;
    }
    panic!("the list must fill its row");
}

pub(crate) async fn figures_of_a_group_in_buckets_are_looked_up_as_one(site: &Site) {
    for n in 1..=12 {
        let team = if n % 3 == 0 { "Blue" } else { "Red" };
        site.work(put(&key("Sales", &format!("{n:02}")), ("", team, n)))
            .await;
    }
    assert!(
        site.keys("BucketGroups§", "").await.len() > 2,
        "there must be more than one bucket"
    );
    let in_buckets = ViewName::new("payroll_in_buckets").unwrap();
    let found = site
        .client
        .lookup(&in_buckets, &["Team=Red"])
        .unwrap()
        .run()
        .await
        .unwrap();
    let [red] = &found.rows[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        (red.entity.key.pk.as_str(), red.entity.key.rk.as_str()),
        ("team_", "Red_")
    );
    let figures =
        ["Headcount", "Payroll", "Least", "Greatest"].map(|name| red.entity.get(name).cloned());
    assert_eq!(
        figures,
        [8_i64, 48, 1, 11].map(|number| Some(number.into()))
    );

    let by_range = ViewName::new("payroll_by_range").unwrap();
    let mut lookup = site.client.lookup(&by_range, &["Team>=A"]).unwrap().top(1);
    let mut pages = Vec::new();
    loop {
        let found = lookup.clone().run().await.unwrap();
        let [group] = &found.rows[..] else {
            panic!("{found:?}")
        };
        pages.push((
            group.entity.key.rk.to_string(),
            group.entity.get("Headcount").cloned(),
            group.entity.get("Payroll").cloned(),
        ));
        let Some(continuation) = found.continuation else {
            break;
        };
        lookup = lookup.after(continuation);
    }
    let group =
        |team: &str, count: i64, sum: i64| (team.to_owned(), Some(count.into()), Some(sum.into()));
    assert_eq!(pages, [group("Blue", 4, 30), group("Red", 8, 48)]);

    // A lookup that names a member reads only the bucket that contains that member.
    let found = site
        .client
        .lookup(&in_buckets, &["Team=Red", "RowKey=01"])
        .unwrap()
        .run()
        .await
        .unwrap();
    assert!(
        found.rows[0].entity.key.rk.as_str().len() > "Red_".len(),
        "{found:?}"
    );
}

pub(crate) async fn a_list_in_a_blob_that_was_edited_by_hand_is_left_alone_and_mended_by_its_members(
    site: &Site,
) {
    const NAME: &str = "by_name/king.jsonl";
    let mut staff = Staff::new();
    for n in ["1", "2"] {
        live(site, &mut staff, key("Sales", n), Some(("King", "", 1))).await;
    }
    let (container, name) = (
        ContainerName::new(site.name("lists-§")).unwrap(),
        BlobName::new(NAME).unwrap(),
    );
    let metadata = site
        .blob("lists-§", NAME)
        .await
        .unwrap()
        .properties
        .metadata;
    let upload = BlobUpload {
        metadata,
        ..BlobUpload::default()
    };
    site.account
        .blobs
        .put(
            &container,
            &name,
            Bytes::from_static(b"Sales;1\nSales;2\n"),
            &upload,
        )
        .await
        .unwrap();
    let error = site.refused(put(&key("Sales", "3"), ("King", "", 1))).await;
    assert!(
        error.contains(NAME)
            && error.contains("is not as evenkeel writes it")
            && error.contains("delete the blob"),
        "{error}"
    );
    assert_eq!(
        site.blob("lists-§", NAME).await.unwrap().content,
        &b"Sales;1\nSales;2\n"[..]
    );

    site.account
        .blobs
        .delete(&container, &name, None)
        .await
        .unwrap();
    staff.insert(key("Sales", "3"), ("King", "", 1));
    site.work(json!({"op": "backfill", "view": "by_name"}))
        .await;
    agrees(site, &staff).await;

    // A blob that another writer has written is not read as a list, and is not overwritten.
    site.account
        .blobs
        .put(
            &container,
            &BlobName::new("by_name/kim.jsonl").unwrap(),
            Bytes::from_static(b"mine"),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    let error = site.refused(put(&key("Sales", "4"), ("Kim", "", 1))).await;
    assert!(
        error.contains("by_name/kim.jsonl") && error.contains("a blob that evenkeel did not write"),
        "{error}"
    );
    assert_eq!(
        site.blob("lists-§", "by_name/kim.jsonl")
            .await
            .unwrap()
            .content,
        &b"mine"[..]
    );
}

pub(crate) async fn a_list_beside_primaries_whose_partition_key_is_escaped_is_looked_up(
    site: &Site,
) {
    let near = ViewName::new("by_team_near").unwrap();
    for rk in ["1", "2"] {
        site.work(put(&key("100%", rk), ("", "Red", 1))).await;
    }
    site.work(put(&key("100%", "1"), ("King", "Red", 1))).await;
    let found = site
        .client
        .lookup(&near, &["PartitionKey=100%", "Team=Red"])
        .unwrap()
        .entities()
        .run()
        .await
        .unwrap();
    let found: Vec<_> = found
        .rows
        .iter()
        .map(|row| {
            (
                row.entity.key.pk.as_str(),
                row.entity.key.rk.as_str(),
                row.entity.text("LastName"),
            )
        })
        .collect();
    assert_eq!(
        found,
        [("100%", "1", Some("King")), ("100%", "2", Some(""))]
    );
    site.in_step("Staff§").await;
}

pub(crate) async fn lists_in_blobs_take_as_many_requests_as_the_documentation_says(site: &Site) {
    site.work(put(&key("Sales", "1"), ("King", "", 1))).await;
    let requests = [
        site.requests_of(put(&key("Sales", "2"), ("King", "", 1)))
            .await,
        site.requests_of(put(&key("Sales", "2"), ("Kim", "", 1)))
            .await,
        site.requests_of(put(&key("Sales", "2"), ("Kim", "", 2)))
            .await,
    ];
    assert_eq!(
        requests, COSTS,
        "docs/patterns/index-entities.md has these numbers"
    );
}

/// Number of requests of a put that adds a member to a list in a blob, a put that moves the member to another list, and a put that changes no list.
const COSTS: [u64; 3] = [7, 9, 4];
