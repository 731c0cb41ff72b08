//! Entities of one table that set properties on other entities of the same table. Each person names a deputy, and the view sets the person's name and
//! age on the deputy's entity. People and deputies are in one partition, or in different partitions.

use std::collections::BTreeMap;

use evenkeel_model::{EdmValue, TableName, odata};
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.deputy]
kind = "denormalize"
source = "People§"
table = "People§"
partition_key = "{DeputyTown}"
row_key = "{Deputy}"
set = { ForName = "{Name}", ForAge = "{Age}" }
on_conflict = "reject"

[views.by_absent]
kind = "secondary_index"
source = "People§"
table = "ByAbsent§"
partition_key = "{ForName|slug}"
row_key = "{PartitionKey}_{RowKey}"
select = ["Name"]
on_conflict = "reject"

[views.latest]
kind = "denormalize"
source = "Desks§"
table = "Desks§"
partition_key = "{PartitionKey}"
row_key = "{Deputy}"
set = { ForName = "{Name}" }
on_conflict = "last_writer"
"#;

type Key = (&'static str, &'static str);

#[derive(Clone, Copy)]
struct Person {
    name: &'static str,
    age: i32,
    deputy: Option<Key>,
}

type People = BTreeMap<Key, Person>;

fn put((town, rk): Key, Person { name, age, deputy }: Person) -> Value {
    let mut entity = json!({"PartitionKey": town, "RowKey": rk, "Name": name, "Age": age});
    if let Some((town, rk)) = deputy {
        (entity["DeputyTown"], entity["Deputy"]) = (town.into(), rk.into());
    }
    json!({"op": "put", "table": "People§", "entity": entity})
}

fn thorough((town, rk): Key) -> Value {
    json!({"op": "sync", "table": "People§", "pk": town, "rk": rk, "thorough": true})
}

/// Runs the queued jobs, which must succeed. Checks that each deputy has the properties of the person who names it.
async fn agrees(site: &Site, people: &People) {
    assert_eq!(site.do_queued().await, [""; 0]);
    let mut filed = Vec::new();
    for ((town, rk), person) in people {
        let row = site
            .row("People§", town, rk)
            .await
            .unwrap_or_else(|| panic!("{town}/{rk} does not exist"))
            .entity;
        let other = people
            .values()
            .find(|other| other.deputy == Some((town, rk)));
        assert_eq!(
            row.text("ForName"),
            other.map(|other| other.name),
            "{row:?}"
        );
        assert_eq!(
            row.get("ForAge"),
            other.map(|other| EdmValue::Int32(other.age)).as_ref(),
            "{row:?}"
        );
        assert_eq!(
            (row.text("Name"), row.get("ek_owner_deputy").is_some()),
            (Some(person.name), other.is_some()),
            "{row:?}"
        );
        filed.extend(other.map(|other| {
            (
                other.name.to_lowercase(),
                format!("{town}_{rk}"),
                person.name.to_owned(),
            )
        }));
    }
    filed.sort();
    assert_eq!(
        site.keys("ByAbsent§", "Name").await,
        filed,
        "items derived from set properties must follow"
    );
    assert_eq!(site.keys("People§", "Name").await.len(), people.len());
    site.in_step("People§").await;
}

async fn becomes(site: &Site, people: &mut People, key: Key, person: Person) {
    people.insert(key, person);
    site.work(put(key, person)).await;
    agrees(site, people).await;
}

pub(crate) async fn each_says_for_whom_and_nothing_is_written_that_is_there_already(site: &Site) {
    for [ann, bob, cid] in [
        [("Lund", "ann"), ("Lund", "bob"), ("Lund", "cid")],
        [("Rome", "ann"), ("Oslo", "bob"), ("Bonn", "cid")],
    ] {
        let mut people = People::new();
        let person = |name, age, deputy| Person { name, age, deputy };
        for (key, person) in [
            (cid, person("Cid", 32, None)),
            (bob, person("Bob", 31, Some(cid))),
            (ann, person("Ann", 30, Some(bob))),
        ] {
            becomes(site, &mut people, key, person).await;
        }
        // A change of Ann's own properties changes only Ann's entity, unless the view sets these properties on her deputy. A new name is written on
        // the deputy, but not on the deputy of the deputy.
        let etag = async |(town, rk): Key| site.row("People§", town, rk).await.unwrap().etag;
        let before = (etag(bob).await, etag(cid).await);
        becomes(site, &mut people, ann, person("Ann", 30, Some(bob))).await;
        assert_eq!(
            (etag(bob).await, etag(cid).await),
            before,
            "the properties are already set"
        );
        becomes(site, &mut people, ann, person("Anna", 30, Some(bob))).await;
        assert_ne!(etag(bob).await, before.0);
        site.work(thorough(ann)).await;
        assert_eq!(
            etag(cid).await,
            before.1,
            "Bob's own properties must be unchanged"
        );

        // If two people name the same deputy, the job of the second fails, but the rest of that job is done. The same holds for a person who names
        // itself as deputy.
        let second = site.refused(put(ann, person("Anna", 30, Some(cid)))).await;
        assert!(
            second.contains("taken") && second.contains(bob.1),
            "{second}"
        );
        let second = site.refused(put(ann, person("Anna", 30, Some(ann)))).await;
        assert!(second.contains("itself"), "{second}");
        becomes(
            site,
            &mut people,
            ann,
            person("Anna", 30, Some(("Lund", "nobody"))),
        )
        .await;
        becomes(site, &mut people, bob, person("Bob", 31, None)).await;
        becomes(site, &mut people, ann, person("Anna", 30, Some(cid))).await;

        // A client removes the properties that the view has set on Cid. The next put of Ann, who names Cid, restores them.
        let mut bare = site.row("People§", cid.0, cid.1).await.unwrap().entity;
        bare.properties
            .retain(|name, _| !name.starts_with("ek_owner") && !name.starts_with("For"));
        site.write("People§", bare).await;
        site.work(json!({"op": "sync", "table": "People§", "pk": cid.0, "rk": cid.1}))
            .await;
        becomes(site, &mut people, ann, person("Anna", 33, Some(cid))).await;
        for (town, rk) in [ann, bob, cid] {
            site.work(json!({"op": "delete", "table": "People§", "pk": town, "rk": rk}))
                .await;
        }
        agrees(site, &People::new()).await;
    }
}

/// An application writes a ring of deputies, and then syncs it. The job that follows the whole ring reports the ring, and everything else in that job
/// is done.
pub(crate) async fn a_ring_ends_in_an_error_that_names_it_and_its_entities_lose_nothing(
    site: &Site,
) {
    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    for [ann, bob, cid] in [
        [("Lund", "ann"), ("Lund", "bob"), ("Lund", "cid")],
        [("Rome", "ann"), ("Oslo", "bob"), ("Bonn", "cid")],
    ] {
        let mut people = People::new();
        let person = |name, deputy| Person {
            name,
            age: 30,
            deputy,
        };
        for (key, name, deputy) in [(ann, "Ann", bob), (bob, "Bob", cid), (cid, "Cid", ann)] {
            people.insert(key, person(name, Some(deputy)));
            let json = site.name(&put(key, people[&key])["entity"].to_string());
            site.write(
                "People§",
                odata::decode(&serde_json::from_str(&json).unwrap()).unwrap(),
            )
            .await;
        }
        let told = site
            .refused(json!({"op": "sync", "table": "People§", "pk": ann.0, "rk": ann.1}))
            .await;
        let ring = [ann, bob, cid, ann]
            .map(|(town, rk)| site.name(&format!("People§(\"{town}\", \"{rk}\")")));
        assert!(
            told.contains(&format!("a cycle of entities, {}, ", ring.join(" -> "))),
            "{told}"
        );
        for (key, person) in &people {
            let row = site.row("People§", key.0, key.1).await.unwrap().entity;
            let other = people
                .values()
                .find(|other| other.deputy == Some(*key))
                .unwrap();
            assert_eq!(
                (row.text("Name"), row.text("Deputy")),
                (Some(person.name), person.deputy.map(|(_, rk)| rk)),
                "{row:?}"
            );
            assert_eq!(row.text("ForName"), Some(other.name), "{row:?}");
        }
        becomes(site, &mut people, cid, person("Cid", None)).await;
        for job in [
            json!({"op": "backfill", "table": "People§"}),
            json!({"op": "audit", "table": "People§", "repair": true}),
        ] {
            site.work(job).await;
        }
        agrees(site, &people).await;
        for (town, rk) in [ann, bob, cid] {
            site.work(json!({"op": "delete", "table": "People§", "pk": town, "rk": rk}))
                .await;
        }
        agrees(site, &People::new()).await;
    }
}

/// Two people name the same deputy. The deputy has the properties of the person who was written last. A put of either
/// person replaces the properties of the other, and the jobs do not trigger each other forever.
pub(crate) async fn the_last_of_two_has_the_one_that_both_name(site: &Site) {
    let put = |rk: &str, deputy: &str| json!({"op": "put", "table": "Desks§", "entity": {"PartitionKey": "p", "RowKey": rk, "Name": rk, "Deputy": deputy}});
    let said = async |rk: &str| {
        site.row("Desks§", "p", rk)
            .await
            .unwrap()
            .entity
            .text("ForName")
            .map(str::to_owned)
    };
    site.work(put("bob", "")).await;
    for (rk, deputy) in [
        ("ann", "bob"),
        ("cid", "bob"),
        ("ann", "bob"),
        ("cid", "bob"),
    ] {
        site.work(put(rk, deputy)).await;
        assert_eq!(site.do_queued().await, [""; 0]);
        assert_eq!(said("bob").await.as_deref(), Some(rk));
    }
    site.work(json!({"op": "delete", "table": "Desks§", "pk": "p", "rk": "cid"}))
        .await;
    assert_eq!(site.do_queued().await, [""; 0]);
    assert_eq!(
        said("bob").await.as_deref(),
        Some("ann"),
        "the primary that gave way must get the key"
    );
}
