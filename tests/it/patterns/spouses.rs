//! Entities of one table that set properties on each other: spouses, each of whom names the other. In one partition, and in two.

use std::collections::BTreeMap;

use evenkeel::model::{EdmValue, TableName};
use evenkeel::ports::TableOperation;
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.spouse]
kind = "denormalize"
source = "People§"
table = "People§"
partition_key = "{SpouseTown}"
row_key = "{Spouse}"
set = { SpouseName = "{Name}", SpouseAge = "{Age}" }
on_conflict = "reject"

[views.by_spouse]
kind = "secondary_index"
source = "People§"
table = "BySpouse§"
partition_key = "{SpouseName|slug}"
row_key = "{PartitionKey}_{RowKey}"
select = ["Name"]
on_conflict = "reject"

[views.latest]
kind = "denormalize"
source = "Couples§"
table = "Couples§"
partition_key = "{PartitionKey}"
row_key = "{Spouse}"
set = { SpouseName = "{Name}" }
on_conflict = "last_writer"
"#;

type Key = (&'static str, &'static str);

/// Name, age, and whom they name as their spouse.
#[derive(Clone, Copy)]
struct Person {
    name: &'static str,
    age: i32,
    spouse: Option<Key>,
}

type People = BTreeMap<Key, Person>;

fn put((town, rk): Key, Person { name, age, spouse }: Person) -> Value {
    let mut entity = json!({"PartitionKey": town, "RowKey": rk, "Name": name, "Age": age});
    if let Some((town, rk)) = spouse {
        (entity["SpouseTown"], entity["Spouse"]) = (town.into(), rk.into());
    }
    json!({"op": "put", "table": "People§", "entity": entity})
}

/// Each says of the other what is so. What was queued is done first, without a failure.
async fn agrees(site: &Site, people: &People) {
    assert_eq!(site.do_queued().await, [""; 0]);
    let mut filed = Vec::new();
    for ((town, rk), person) in people {
        let row = site.row("People§", town, rk).await.unwrap_or_else(|| panic!("{town}/{rk} is gone")).entity;
        let other = people.values().find(|other| other.spouse == Some((town, rk)));
        assert_eq!(row.text("SpouseName"), other.map(|other| other.name), "{row:?}");
        assert_eq!(row.get("SpouseAge"), other.map(|other| EdmValue::Int32(other.age)).as_ref(), "{row:?}");
        assert_eq!((row.text("Name"), row.get("ek_owner_spouse").is_some()), (Some(person.name), other.is_some()), "{row:?}");
        filed.extend(other.map(|other| (other.name.to_lowercase(), format!("{town}_{rk}"), person.name.to_owned())));
    }
    filed.sort();
    assert_eq!(site.keys("BySpouse§", "Name").await, filed, "what is derived from what was set follows");
    assert_eq!(site.keys("People§", "Name").await.len(), people.len());
    site.in_step("People§").await;
}

/// Puts a person, and says what that took.
async fn becomes(site: &Site, people: &mut People, key: Key, person: Person) -> u64 {
    people.insert(key, person);
    let requests = site.requests_of(put(key, person)).await;
    agrees(site, people).await;
    requests
}

/// The lives of a couple that live here and there. `requests` of a put of the first, who waits for the other, of the other, of one that
/// changes nothing that is set, and of one that does.
async fn lives(site: &Site, [ann, bob, cid]: [Key; 3], requests: [u64; 4]) {
    let mut people = People::new();
    let person = |name, age, spouse| Person { name, age, spouse };
    let first = becomes(site, &mut people, ann, person("Ann", 30, Some(bob))).await;
    let second = becomes(site, &mut people, bob, person("Bob", 31, Some(ann))).await;

    // A change that the other does not say is theirs alone; one that it says is written on the other, and goes no further.
    let etag = async |(town, rk): Key| site.row("People§", town, rk).await.unwrap().etag;
    let before = etag(bob).await;
    let same = becomes(site, &mut people, ann, person("Ann", 30, Some(bob))).await;
    assert_eq!(etag(bob).await, before, "the other says it already");
    let other = becomes(site, &mut people, ann, person("Anna", 30, Some(bob))).await;
    assert_ne!(etag(bob).await, before);
    let before = etag(ann).await;
    site.work(json!({"op": "sync", "table": "People§", "pk": bob.0, "rk": bob.1, "thorough": true})).await;
    assert_eq!(etag(ann).await, before, "nothing goes back and forth");
    assert_eq!([first, second, same, other], requests);

    // They part, one after the other, and find others.
    becomes(site, &mut people, ann, person("Anna", 30, None)).await;
    becomes(site, &mut people, bob, person("Bob", 31, None)).await;
    becomes(site, &mut people, cid, person("Cid", 32, Some(ann))).await;
    becomes(site, &mut people, ann, person("Anna", 30, Some(cid))).await;
    let second = site.refused(put(ann, person("Anna", 30, Some(ann)))).await;
    assert!(second.contains("itself"), "{second}");
    becomes(site, &mut people, ann, person("Anna", 30, Some(cid))).await;

    // Two name one: the second is refused, and the others go on.
    let second = site.refused(put(bob, person("Bob", 31, Some(cid)))).await;
    assert!(second.contains("taken") && second.contains(ann.1), "{second}");
    becomes(site, &mut people, bob, person("Bob", 31, None)).await;
    becomes(site, &mut people, bob, person("Bob", 31, Some(("Lund", "nobody")))).await;

    // One goes and comes back; so does the one that has the properties.
    site.work(json!({"op": "delete", "table": "People§", "pk": ann.0, "rk": ann.1})).await;
    people.remove(&ann);
    agrees(site, &people).await;
    site.work(put(ann, person("Anna", 33, Some(cid)))).await;
    people.insert(ann, person("Anna", 33, Some(cid)));
    site.work(json!({"op": "sync", "table": "People§", "pk": cid.0, "rk": cid.1})).await;
    agrees(site, &people).await;

    // A client takes away what is set on one: the other's next put puts it back.
    let row = site.row("People§", cid.0, cid.1).await.unwrap().entity;
    let mut bare = row.clone();
    bare.properties.retain(|name, _| !name.starts_with("ek_owner") && name != "SpouseName");
    site.write("People§", bare).await;
    site.work(json!({"op": "sync", "table": "People§", "pk": cid.0, "rk": cid.1})).await;
    becomes(site, &mut people, ann, person("Anna", 33, Some(cid))).await;

    // Nothing is left for a backfill, an audit or a thorough sync, and none of them goes round.
    site.work(json!({"op": "backfill", "table": "People§"})).await;
    agrees(site, &people).await;
    site.account.tables.create_table(&TableName::new("EvenkeelAudits").unwrap()).await.unwrap();
    site.work(json!({"op": "audit", "table": "People§", "repair": true})).await;
    for (pk, rk) in [ann, cid] {
        site.work(json!({"op": "sync", "table": "People§", "pk": pk, "rk": rk, "thorough": true})).await;
    }
    agrees(site, &people).await;
}

pub(crate) async fn spouses_in_one_partition_say_what_the_other_is_through_their_lives(site: &Site) {
    lives(site, [("Lund", "ann"), ("Lund", "bob"), ("Lund", "cid")], [10, 25, 6, 14]).await;
}

pub(crate) async fn spouses_in_two_partitions_say_what_the_other_is_through_their_lives(site: &Site) {
    lives(site, [("Lund", "ann"), ("Oslo", "bob"), ("Bonn", "cid")], [10, 26, 6, 15]).await;
}

/// A ring of three, each of whom names the next, written by an application and then synced: a pass writes on all of them, and ends.
pub(crate) async fn a_ring_comes_to_rest(site: &Site) {
    let ring: [Key; 3] = [("Lund", "ann"), ("Lund", "bob"), ("Oslo", "cid")];
    let mut people = People::new();
    for (at, key) in ring.into_iter().enumerate() {
        let person = Person { name: ["Ann", "Bob", "Cid"][at], age: 30, spouse: Some(ring[(at + 1) % 3]) };
        people.insert(key, person);
        let json = site.name(&put(key, person)["entity"].to_string());
        let entity = evenkeel::model::odata::decode(&serde_json::from_str(&json).unwrap()).unwrap();
        site.account.tables.apply(&site.table("People§"), &TableOperation::Insert(entity)).await.unwrap();
    }
    site.work(json!({"op": "sync", "table": "People§", "pk": "Lund", "rk": "ann"})).await;
    agrees(site, &people).await;
    for (name, key) in ["Anna", "Bobby", "Cyd"].into_iter().zip(ring) {
        let person = Person { name, ..people[&key] };
        becomes(site, &mut people, key, person).await;
    }
}

/// Two name one, and the last of them has it: the put of either takes it over, and nothing goes round.
pub(crate) async fn the_last_of_two_has_the_one_that_both_name(site: &Site) {
    let put = |rk: &str, spouse: &str| json!({"op": "put", "table": "Couples§", "entity": {"PartitionKey": "p", "RowKey": rk, "Name": rk, "Spouse": spouse}});
    let said = async |rk: &str| site.row("Couples§", "p", rk).await.unwrap().entity.text("SpouseName").map(str::to_owned);
    site.work(put("ann", "bob")).await;
    site.work(put("bob", "ann")).await;
    for (rk, spouse) in [("cid", "bob"), ("ann", "bob"), ("cid", "bob")] {
        site.work(put(rk, spouse)).await;
        assert_eq!(site.do_queued().await, [""; 0]);
        assert_eq!((said("bob").await.as_deref(), said("ann").await.as_deref()), (Some(rk), Some("bob")));
    }
    site.work(json!({"op": "delete", "table": "Couples§", "pk": "p", "rk": "cid"})).await;
    assert_eq!(site.do_queued().await, [""; 0]);
    assert_eq!(said("bob").await.as_deref(), Some("ann"), "who gave way gets it");
}
