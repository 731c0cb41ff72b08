//! Lists in blobs, disturbed at every operation of every job: where their view says so, where they move out of their row and back,
//! and where they are made of blocks.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel::adapters::sim::OperationInfo;
use evenkeel::catalog::{Catalog, ListSizes};
use evenkeel::model::item::{metadata, shared_source_text};
use evenkeel::model::job::Primary;
use evenkeel::model::{
    AccountName, BlobName, ContainerName, ETag, EdmValue, Entity, EntityKey, ItemAddress, Job, Member, Part, Site, ViewName,
};
use evenkeel::ports::{BlobUpload, BlockId, ErrorClass, IfMatch, Service, TableOperation};
use evenkeel::reconcile::footprint::{self, Footprint};
use evenkeel::reconcile::{Execute, FailureClass, Work};
use evenkeel::shared::blocks::{BlockedList, ListWrite};
use evenkeel::shared::{Edit, PartChange, spilled};
use futures::future::{BoxFuture, join_all};
use serde_json::Value;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.named]
kind = "index_entity"
source = "Employees"
store = "table"
table = "Lists"
partition_key = "list"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]
property = "Employees"

[views.skilled]
kind = "index_entity"
source = "Employees"
store = "blob"
container = "skilled"
name = "{Skill}.jsonl"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]

[views.payroll]
kind = "aggregate"
source = "Employees"
group_table = "Groups"
partition_key = "group"
row_key = "{Group}"
set = { Headcount = "count()", Payroll = "sum(Salary)" }
"#;

/// Three bytes of UTF-8 each, one unit of UTF-16: seventeen members with it take more than one property.
const NOTE: usize = 1_900;
/// As many members as fit into one property.
const FULL: usize = 16;
/// As many as take more than one block.
const BLOCKS: usize = 48;

async fn lab() -> Lab {
    lab_of(declared(CATALOG)).await
}

async fn lab_of(catalog: Catalog) -> Lab {
    let lab = Lab::with(SMALL, catalog);
    for container in ["skilled", spilled::CONTAINER] {
        lab.account.blobs.create_container(&ContainerName::new(container).unwrap()).await.unwrap();
    }
    lab
}

fn person(rk: &str, name: &str, skill: &str) -> Entity {
    let entity = Entity::new(EntityKey::new("Sales", rk).unwrap()).with("LastName", name).with("Skill", skill);
    entity.with("Group", name).with("Salary", 3).with("Note", "한".repeat(NOTE))
}

/// People whose jobs are done, at once.
async fn people(lab: &Lab, range: std::ops::Range<usize>, name: &str, skill: &str) {
    lab.faults.take_turns();
    let keys: Vec<String> = range.map(|n| format!("{n:03}")).collect();
    for rk in &keys {
        lab.write(person(rk, name, skill)).await;
    }
    let jobs: Vec<Job> = keys.iter().map(|rk| sync("Sales", rk)).collect();
    for result in join_all(jobs.iter().map(|job| lab.work(job))).await {
        result.unwrap();
    }
}

/// Leaves a row no room for another property.
async fn pad(lab: &Lab, name: &str, pk: &str, rk: &str) {
    let mut row = lab.read(name, pk, rk).await.unwrap().entity;
    let mut n = 0;
    while row.properties.len() < 252 {
        row = row.with(format!("Padding{n:03}"), n);
        n += 1;
    }
    lab.account.tables.apply(&table(name), &TableOperation::Replace(row, IfMatch::Any)).await.unwrap();
}

/// A list that one more member pushes out of its row.
async fn full_row(lab: &Lab) {
    people(lab, 0..FULL, "King", "").await;
    pad(lab, "Lists", "list", "King").await;
}

/// The same, and that member, who has no job yet.
async fn overfull_row(lab: &Lab) {
    full_row(lab).await;
    lab.write(person("900", "King", "")).await;
}

async fn without_padding(lab: &Lab, name: &str, pk: &str, rk: &str) {
    let mut row = lab.read(name, pk, rk).await.unwrap().entity;
    row.properties.retain(|name, _| !name.starts_with("Padding"));
    lab.account.tables.apply(&table(name), &TableOperation::Replace(row, IfMatch::Any)).await.unwrap();
}

/// Seventeen people called King, whose list lies in a blob.
async fn moved_out(lab: &Lab) {
    full_row(lab).await;
    people(lab, FULL..FULL + 1, "King", "").await;
    assert!(lab.read("Lists", "list", "King").await.unwrap().entity.text("ek_blob").is_some());
}

/// Marks the list's blob, as a worker that was to take the list back into its row, and stopped there: most members had left at once.
async fn mark_moved(lab: &Lab) {
    let row = lab.read("Lists", "list", "King").await.unwrap().entity;
    let (container, name) = row.text("ek_blob").unwrap().split_once('/').unwrap();
    let (container, name) = (ContainerName::new(container).unwrap(), BlobName::new(name).unwrap());
    let there = lab.account.blobs.properties(&container, &name).await.unwrap().unwrap();
    assert!(there.length > 256 << 10, "the list is no list of blocks");
    let mut metadata = there.metadata;
    metadata.insert("ek_moved".to_owned(), "1".to_owned());
    lab.account.blobs.set_metadata(&container, &name, &metadata, &there.etag).await.unwrap();
}

type Step = fn(Lab) -> BoxFuture<'static, ()>;

struct Scenario {
    name: &'static str,
    prepare: Step,
    /// Whose sync it is.
    rk: &'static str,
}

fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario { name: "a list moves out of its row", prepare: |lab| Box::pin(async move { overfull_row(&lab).await }), rk: "900" },
        Scenario {
            name: "a member joins a list that has moved out",
            prepare: |lab| {
                Box::pin(async move {
                    moved_out(&lab).await;
                    lab.write(person("900", "King", "")).await;
                })
            },
            rk: "900",
        },
        Scenario {
            name: "a member goes from a list that has moved out to another",
            prepare: |lab| {
                Box::pin(async move {
                    moved_out(&lab).await;
                    lab.write(person("005", "Lovelace", "")).await;
                })
            },
            rk: "005",
        },
        Scenario {
            name: "a list returns into its row",
            prepare: |lab| {
                Box::pin(async move {
                    moved_out(&lab).await;
                    without_padding(&lab, "Lists", "list", "King").await;
                    lab.remove("Sales", "005").await;
                })
            },
            rk: "005",
        },
        Scenario {
            name: "a list of blocks that was about to return is too long again",
            prepare: |lab| {
                Box::pin(async move {
                    moved_out(&lab).await;
                    people(&lab, FULL + 1..BLOCKS, "King", "").await;
                    mark_moved(&lab).await;
                    lab.remove("Sales", "030").await;
                })
            },
            rk: "030",
        },
        Scenario {
            name: "the last member leaves a list that has moved out",
            prepare: |lab| {
                Box::pin(async move {
                    moved_out(&lab).await;
                    for n in 1..=FULL {
                        lab.remove("Sales", &format!("{n:03}")).await;
                        lab.work(&sync("Sales", &format!("{n:03}"))).await.unwrap();
                    }
                    assert!(lab.read("Lists", "list", "King").await.unwrap().entity.text("ek_blob").is_some());
                    lab.remove("Sales", "000").await;
                })
            },
            rk: "000",
        },
        Scenario {
            name: "the first member makes a list in a blob",
            prepare: |lab| Box::pin(async move { lab.write(person("900", "", "Rust")).await }),
            rk: "900",
        },
        Scenario {
            name: "a member changes lists in blobs",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..3, "", "Rust").await;
                    people(&lab, 3..4, "", "C").await;
                    lab.write(person("003", "", "Rust")).await;
                })
            },
            rk: "003",
        },
        Scenario {
            name: "a list in a blob becomes blocks",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..BLOCKS - 3, "", "Rust").await;
                    lab.write(person("900", "", "Rust")).await;
                })
            },
            rk: "900",
        },
        Scenario {
            name: "a member leaves a list of blocks",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..BLOCKS, "", "Rust").await;
                    lab.remove("Sales", "030").await;
                })
            },
            rk: "030",
        },
        Scenario {
            name: "a group moves out of its row",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..3, "King", "").await;
                    without_padding(&lab, "Groups", "group", "King").await;
                    fill(&lab, "Groups", "group", "King").await;
                    lab.write(person("900", "King", "")).await;
                })
            },
            rk: "900",
        },
    ]
}

/// Leaves a row no room for a member more: little is missing to 1 MiB, as Azure counts.
async fn fill(lab: &Lab, name: &str, pk: &str, rk: &str) {
    let mut row = lab.read(name, pk, rk).await.unwrap().entity;
    for size in [32_000, 4_000, 500, 60, 5] {
        for n in 0.. {
            let larger = row.clone().with(format!("Padding{size}_{n}"), "x".repeat(size));
            if !spilled::fits(&larger, ListSizes::default()) {
                break;
            }
            row = larger;
        }
    }
    lab.account.tables.apply(&table(name), &TableOperation::Replace(row, IfMatch::Any)).await.unwrap();
}

/// What a list says: its members and their tokens, read by simple means.
type Listed = BTreeMap<Vec<String>, String>;

async fn lines(lab: &Lab, story: &str, container: &str, name: &str) -> Listed {
    let (container, name) = (ContainerName::new(container).unwrap(), BlobName::new(name).unwrap());
    let blob = lab.account.blobs.get(&container, &name, None).await.unwrap();
    let blob = blob.unwrap_or_else(|| panic!("{story}: {container}/{name} does not exist"));
    let text = String::from_utf8(blob.content.to_vec()).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let members: Vec<(Vec<String>, String)> = lines.map(|line| serde_json::from_value(line).unwrap()).collect();
    assert!(members.is_sorted_by(|one, next| one.0 < next.0), "{story}: {name} is not sorted");
    assert_eq!(head["ek_count"], members.len(), "{story}");
    members.into_iter().collect()
}

async fn in_row(lab: &Lab, story: &str, row: &Entity) -> Listed {
    if let Some(blob) = row.text("ek_blob") {
        let (container, name) = blob.split_once('/').unwrap();
        return lines(lab, story, container, name).await;
    }
    let property = row.text("ek_list").unwrap();
    let pieces = |property: &str| -> Vec<Value> {
        let names = std::iter::once(property.to_owned()).chain((1..).map(|n| format!("{property}_{n}")));
        let texts = names.map_while(|name| row.text(&name).map(ToOwned::to_owned));
        texts.flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap()).collect()
    };
    let (members, tokens) = (pieces(property), pieces("ek_tokens"));
    assert_eq!(members.len(), tokens.len(), "{story}");
    members
        .into_iter()
        .zip(tokens)
        .map(|(member, token)| (serde_json::from_value(member).unwrap(), token.as_str().unwrap().to_owned()))
        .collect()
}

/// Lists, groups and footprints are what the employees make them, and no blob is there that no row names.
async fn check(lab: &Lab, story: &str) {
    let mut wanted: BTreeMap<(&str, String), BTreeSet<Vec<String>>> = BTreeMap::new();
    let people = lab.rows("Employees").await;
    for row in &people {
        let entity = &row.entity;
        let (pk, rk) = (entity.key.pk.to_string(), entity.key.rk.to_string());
        let (note, text) = (entity.text("Note").unwrap().to_owned(), |name: &str| entity.text(name).unwrap().to_owned());
        for (place, value) in [("Lists", text("LastName")), ("skilled", text("Skill"))] {
            if !value.is_empty() {
                wanted.entry((place, value)).or_default().insert(vec![pk.clone(), rk.clone(), note.clone()]);
            }
        }
        if !text("Group").is_empty() {
            wanted.entry(("Groups", text("Group"))).or_default().insert(vec![pk, rk, "Salary=i3".to_owned()]);
        }
    }

    let mut found: BTreeMap<(&str, String), Listed> = BTreeMap::new();
    let mut named = BTreeSet::new();
    for place in ["Lists", "Groups"] {
        for row in lab.rows(place).await {
            let listed = in_row(lab, story, &row.entity).await;
            let count = i64::try_from(listed.len()).unwrap();
            assert_eq!(row.entity.get("ek_count"), Some(&EdmValue::Int64(count)), "{story}: the row says another number of members");
            if place == "Groups" {
                let figures = ["Headcount", "Payroll"].map(|name| row.entity.get(name).cloned());
                assert_eq!(figures, [Some(EdmValue::Int64(count)), Some(EdmValue::Int64(3 * count))], "{story}");
            }
            named.extend(row.entity.text("ek_blob").map(ToOwned::to_owned));
            found.insert((place, row.entity.key.rk.to_string()), listed);
        }
    }
    let container = ContainerName::new("skilled").unwrap();
    for blob in lab.account.blobs.list(&container, "", None).await.unwrap().blobs {
        let name = blob.name.as_str().strip_suffix(".jsonl").unwrap().to_owned();
        found.insert(("skilled", name), lines(lab, story, "skilled", blob.name.as_str()).await);
    }
    let members: BTreeMap<_, BTreeSet<_>> = found.iter().map(|(place, listed)| (place.clone(), listed.keys().cloned().collect())).collect();
    assert_eq!(members, wanted, "{story}");

    let container = ContainerName::new(spilled::CONTAINER).unwrap();
    for blob in lab.account.blobs.list(&container, "", None).await.unwrap().blobs {
        assert!(named.contains(&format!("{container}/{}", blob.name)), "{story}: {} lies there, and no row names it", blob.name);
    }

    for row in people {
        let primary = Primary { table: table("Employees"), key: row.entity.key };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step, "{story}: a second plan finds work to do: {plan}");
        let recorded = lab.account.tables.get(&footprint::table(), &footprint::key(&primary), None).await.unwrap().unwrap();
        let recorded = Footprint::decode(&primary, &recorded.entity, None).unwrap();
        for (ItemAddress { site, part, .. }, entry) in &recorded.items {
            let place = match site {
                Site::Row { table, key } => (if table.as_str() == "Lists" { "Lists" } else { "Groups" }, key.rk.to_string()),
                Site::Blob { name, .. } => ("skilled", name.as_str().strip_suffix(".jsonl").unwrap().to_owned()),
                Site::File { .. } | Site::Document { .. } => panic!("{story}: {site} is no list"),
            };
            let Some(Part::Member(member)) = part else { panic!("{story}: {part:?} is no member") };
            let token =
                found.get(&place).and_then(|listed| listed.get(&member.0)).unwrap_or_else(|| panic!("{story}: {place:?} lacks {member}"));
            assert_eq!(entry.etag.as_ref().map(evenkeel::model::ETag::as_str), Some(token.as_str()), "{story}");
        }
    }
}

async fn undisturbed(scenario: &Scenario) -> u64 {
    let lab = lab().await;
    (scenario.prepare)(lab.clone()).await;
    let operations = lab.operations_of(&sync("Sales", scenario.rk)).await;
    lab.finish().await;
    check(&lab, scenario.name).await;
    operations
}

#[tokio::test]
async fn every_change_of_a_list_in_a_blob_disturbed_at_every_operation_converges() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let mut sweep = Sweep::over(undisturbed(&scenario).await);
        while let Some(case) = sweep.next() {
            let lab = lab().await;
            (scenario.prepare)(lab.clone()).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&sync("Sales", scenario.rk)).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            check(&lab, &format!("{}, {case}", scenario.name)).await;
        }
        runs += sweep.runs().0;
    }
    assert!(runs > 400, "only {runs} runs: the sweep has lost its scenarios");
}

/// A list is about to leave its row, or has left it, when its worker stops or hears nothing. Before anybody goes on the change is taken back.
#[tokio::test]
async fn a_list_that_need_not_leave_its_row_after_all_leaves_no_blob() {
    let prepared = async || {
        let lab = lab().await;
        overfull_row(&lab).await;
        lab
    };
    let joins = sync("Sales", "900");
    let mut sweep = Sweep::over(prepared().await.operations_of(&joins).await);
    while let Some(case) = sweep.next() {
        let lab = prepared().await;
        case.arm(&lab.faults);
        drop(lab.deliver(&joins, 1).await);
        lab.faults.calm();
        lab.remove("Sales", "900").await;
        lab.faults.go_on();
        lab.deliver_until_done(&joins).await;
        sweep.seen(&lab);
        lab.faults.calm();
        lab.finish().await;
        check(&lab, &case.to_string()).await;
    }
    assert!(sweep.runs().0 > 40, "only {} runs: the sweep has lost its story", sweep.runs().0);
}

/// The blob service is away.
fn away(operation: &OperationInfo) -> Option<ErrorClass> {
    (operation.what.service() == Service::Blob).then_some(ErrorClass::Refused)
}

/// No blob may be deleted.
fn legal_hold(operation: &OperationInfo) -> Option<ErrorClass> {
    (operation.name == "Delete Blob").then_some(ErrorClass::Permanent)
}

/// No blobs can be listed.
fn unlisted(operation: &OperationInfo) -> Option<ErrorClass> {
    (operation.name == "List Blobs").then_some(ErrorClass::Refused)
}

/// The names of the blobs of lists that have left their rows.
async fn blobs(lab: &Lab) -> Vec<String> {
    let container = ContainerName::new(spilled::CONTAINER).unwrap();
    let listed = lab.account.blobs.list(&container, "", None).await.unwrap();
    listed.blobs.into_iter().map(|blob| blob.name.to_string()).collect()
}

/// A put is interrupted anywhere, and comes again while the blob service is away: its list is in its row.
#[tokio::test]
async fn a_put_that_was_interrupted_needs_no_blob_service_where_its_list_is_in_its_row() {
    let put = crate::protocol::world::job(&serde_json::json!({"op": "put", "table": "Employees", "entity": {
        "PartitionKey": "Sales", "RowKey": "900", "LastName": "King", "Skill": "", "Group": "", "Salary": 3, "Note": "한".repeat(NOTE),
    }}));
    let prepared = async || {
        let lab = lab().await;
        people(&lab, 0..3, "King", "").await;
        lab
    };
    for at in 1..=prepared().await.operations_of(&put).await {
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::Crash);
        assert!(lab.deliver(&put, 1).await.is_none(), "operation {at}");
        lab.faults.refuse(Some(away));
        let ended = lab.deliver(&put, 2).await;
        assert!(matches!(ended, Some(Ok(_))), "operation {at}: {ended:?}");
        assert!(lab.read("Employees", "Sales", "900").await.is_some(), "operation {at}");
        lab.faults.refuse(None);
        lab.faults.calm();
        lab.finish().await;
        check(&lab, &format!("operation {at}")).await;
    }
}

/// A list was about to leave its row when its worker stopped, and need not any more. Nobody can reach the blobs meanwhile; or none may be
/// deleted.
#[tokio::test]
async fn blobs_that_a_list_has_left_are_the_recheck_s_where_they_cannot_be_deleted() {
    let prepared = async || {
        let lab = lab().await;
        overfull_row(&lab).await;
        lab
    };
    let joins = sync("Sales", "900");
    let (operations, mut left) = (prepared().await.operations_of(&joins).await, 0);
    for (at, held) in (1..=operations).flat_map(|at| [(at, false), (at, true)]) {
        let story = format!("operation {at}, a legal hold: {held}");
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::Crash);
        assert!(lab.deliver(&joins, 1).await.is_none(), "{story}");
        let row = lab.read("Lists", "list", "King").await.unwrap().entity;
        if row.text("ek_blob").is_some() || blobs(&lab).await.is_empty() {
            continue;
        }
        left += 1;
        lab.remove("Sales", "900").await;
        lab.faults.refuse(Some(if held { legal_hold } else { away }));
        let ended = lab.deliver(&joins, 2).await;
        assert!(matches!(ended, Some(Ok(_))), "{story}: {ended:?}");
        lab.faults.calm();
        if held {
            for recheck in lab.rechecks().await {
                lab.engine.execute(&Work::Recheck(recheck), &lab.delivery()).await.unwrap();
            }
            assert!(!blobs(&lab).await.is_empty(), "{story}");
        } else {
            lab.faults.refuse(None);
            lab.finish().await;
            check(&lab, &story).await;
        }
    }
    assert!(left > 1, "no list was about to leave its row");
}

/// A list leaves its row undisturbed, and whether it has left anything cannot be found out.
#[tokio::test]
async fn a_list_leaves_its_row_also_where_no_blobs_can_be_listed() {
    let lab = lab().await;
    overfull_row(&lab).await;
    lab.faults.refuse(Some(unlisted));
    let ended = lab.deliver(&sync("Sales", "900"), 1).await;
    assert!(matches!(ended, Some(Ok(_))), "{ended:?}");
    assert!(lab.read("Lists", "list", "King").await.unwrap().entity.text("ek_blob").is_some());
    let recheck = lab.rechecks().await.into_iter().find(|recheck| recheck.primary.key.rk.as_str() == "900").unwrap();
    let failure = lab.engine.execute(&Work::Recheck(recheck), &lab.delivery()).await.unwrap_err();
    assert!(failure.views.contains(&ViewName::new("named").unwrap()), "{}: {:?}", failure.chain(), failure.views);
    lab.faults.refuse(None);
    lab.finish().await;
    check(&lab, "listed again").await;
}

/// The row of a list is the primary of a view, and a blob for it arrives when its worker has stopped and nobody moves it any more.
#[tokio::test]
async fn a_row_that_is_written_against_a_late_move_is_in_step_again() {
    let copied = format!(
        r#"{CATALOG}
[views.copied]
kind = "secondary_index"
source = "Lists"
table = "ListCopies"
partition_key = "copies"
row_key = "{{RowKey}}"
select = []
"#
    );
    let prepared = async || {
        let lab = lab().await;
        full_row(&lab).await;
        lab.account.tables.create_table(&table("ListCopies")).await.unwrap();
        let lab = lab.under(declared(&copied));
        lab.work(&crate::protocol::world::job(&serde_json::json!({"op": "sync", "table": "Lists", "pk": "list", "rk": "King"})))
            .await
            .unwrap();
        lab.write(person("900", "King", "")).await;
        lab
    };
    let joins = sync("Sales", "900");
    let (operations, mut fenced) = (prepared().await.operations_of(&joins).await, 0);
    for at in 1..=operations {
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::ArriveLater(1_000_000));
        lab.faults.arm(at + 1, Disturbance::Crash);
        drop(lab.deliver(&joins, 1).await);
        lab.faults.calm();
        lab.remove("Sales", "900").await;
        lab.deliver_until_done(&joins).await;
        lab.sim.settle();
        let is_late = !blobs(&lab).await.is_empty();
        let before = lab.read("Lists", "list", "King").await.unwrap();
        lab.finish().await;
        let after = lab.read("Lists", "list", "King").await.unwrap();
        fenced += u32::from(is_late && before.etag != after.etag);
        let plan = lab.engine.plan(&Primary { table: table("Lists"), key: after.entity.key }).await.unwrap();
        assert!(plan.in_step, "operation {at} arrives last of all: {plan}");
    }
    assert!(fenced > 0, "no row was written against a late move");
}

/// Bytes of a group's members that are read at most.
const GROUP_BYTES: u64 = 16 << 20;

/// Makes a group whose members leave so many bytes.
async fn nearly_full(lab: &Lab, room: usize) {
    let view = ViewName::new("payroll").unwrap();
    let key = EntityKey::new("group", "King").unwrap();
    let site = Site::Row { table: table("Groups"), key: key.clone() };
    let mut list = BlockedList::new(view.clone(), table("Employees"));
    let mut put = |rk: String| {
        let part = Some(Part::Member(Member(["Sales", &rk, "Salary=i3"].map(str::to_owned).to_vec())));
        let address = ItemAddress { view: view.clone(), account: AccountName::main(), site: site.clone(), part };
        let before = list.bytes();
        list.apply(&PartChange { address, write: Edit::Put { over: None, token: ETag::token(1) }, says: None }).unwrap();
        list.bytes() - before
    };
    let line = put(format!("{:0>500}", 0));
    let members = GROUP_BYTES / line - 1;
    (1..members).for_each(|n| assert_eq!(put(format!("{n:0>500}")), line));
    let left = usize::try_from(GROUP_BYTES - members * line).unwrap() - room;
    put("x".repeat(left - usize::try_from(line).unwrap() + 500));
    assert_eq!(list.bytes() + room as u64, GROUP_BYTES);

    list.reshape();
    let row = lab.read("Groups", "group", "King").await.unwrap();
    let container = ContainerName::new(spilled::CONTAINER).unwrap();
    let name = spilled::fresh_name(lab.engine.catalog(), &view, &site, &row.etag, 1).unwrap();
    let mut ids = 0;
    let ListWrite::Blocks { new, all } = list.write(|| {
        ids += 1;
        ids
    }) else {
        panic!("it is written whole")
    };
    let id = |id: u128| BlockId(id.to_be_bytes());
    for (block, content) in new {
        lab.account.blobs.put_block(&container, &name, id(block), content.into()).await.unwrap();
    }
    let mut metadata = metadata(&shared_source_text(list.source()), &view);
    metadata.insert("ek_count".to_owned(), list.count().to_string());
    let upload = BlobUpload { metadata, ..BlobUpload::default() };
    lab.account.blobs.put_block_list(&container, &name, &all.into_iter().map(id).collect::<Vec<_>>(), &upload).await.unwrap();
    let entity = spilled::pointing(lab.engine.catalog(), &site, row.entity, &list, (&container, &name)).unwrap();
    lab.account.tables.apply(&table("Groups"), &TableOperation::Replace(entity, IfMatch::Any)).await.unwrap();
}

#[tokio::test]
async fn a_member_that_a_group_has_no_room_for_is_refused_and_others_can_leave_for_it() {
    let lab = lab().await;
    people(&lab, 0..1, "King", "").await;
    nearly_full(&lab, 60).await;
    let [one, other] = ["900", "901"].map(|rk| sync("Sales", rk));
    for rk in ["900", "901"] {
        lab.write(person(rk, "King", "")).await;
    }
    let headcount = async || lab.read("Groups", "group", "King").await.unwrap().entity.get("Headcount").cloned();
    let before = headcount().await;
    lab.work(&one).await.unwrap();
    let full = headcount().await;
    assert_ne!(full, before, "there is room for one");
    let refused = lab.work(&other).await.unwrap_err();
    assert!(refused.class == FailureClass::Permanent && refused.chain().contains("spread it over more entities"), "{}", refused.chain());
    assert_eq!(headcount().await, full, "the group is as it was");
    lab.remove("Sales", "900").await;
    lab.work(&one).await.unwrap();
    assert_eq!(headcount().await, before, "members can leave");
    lab.work(&other).await.unwrap();
    assert_eq!(headcount().await, full, "and others come");
}

/// Eight people come at once to a list whose row has room for fewer. One of the requests arrives when all of them have left again.
#[tokio::test]
async fn a_list_too_long_for_its_row_from_the_first_moment_leaves_nobody_behind() {
    let keys: Vec<String> = (0..8).map(|n| format!("{n:03}")).collect();
    let prepared = async || {
        let sizes = ListSizes { row_bytes: 20_000, ..ListSizes::default() };
        let lab = lab_of(Catalog { list_sizes: sizes, ..declared(CATALOG) }).await;
        for rk in &keys {
            lab.write(person(rk, "King", "")).await;
        }
        lab.faults.take_turns();
        lab
    };
    let come = async |lab: &Lab| {
        let jobs: Vec<Job> = keys.iter().map(|rk| sync("Sales", rk)).collect();
        for ended in join_all(jobs.iter().map(|job| lab.work(job))).await {
            ended.unwrap();
        }
    };
    let operations = {
        let lab = prepared().await;
        lab.faults.arm(u64::MAX, Disturbance::Crash);
        come(&lab).await;
        let operations = lab.faults.counted();
        lab.faults.calm();
        lab.finish().await;
        assert!(lab.read("Lists", "list", "King").await.unwrap().entity.text("ek_blob").is_some());
        check(&lab, "undisturbed").await;
        operations
    };
    for (at, joined) in (1..=operations).flat_map(|at| [(at, false), (at, true)]) {
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::ArriveLater(1_000_000));
        if joined {
            lab.faults.arm(at + 1, Disturbance::Meddle);
            let other = lab.of_another_worker();
            lab.faults.meddle(Box::pin(async move {
                other.write(person("800", "King", "")).await;
                other.work(&sync("Sales", "800")).await.unwrap();
            }));
        }
        come(&lab).await;
        lab.faults.calm();
        for rk in keys.iter().map(String::as_str).chain(["800"]) {
            lab.remove("Sales", rk).await;
            lab.work(&sync("Sales", rk)).await.unwrap();
        }
        lab.finish().await;
        check(&lab, &format!("operation {at} arrives last of all, somebody else joins: {joined}")).await;
    }
}

/// A department says something on the row of a list in a blob, unheard and late, and is gone by then.
#[tokio::test]
async fn what_is_said_late_on_the_row_of_a_list_in_a_blob_goes_with_who_said_it() {
    let titled = format!(
        r#"{CATALOG}
[views.bosses]
kind = "denormalize"
source = "Families"
table = "Lists"
partition_key = "list"
row_key = "{{Name}}"
set = {{ Boss = "{{Boss}}" }}
"#
    );
    let prepared = async || {
        let lab = lab_of(declared(&titled)).await;
        moved_out(&lab).await;
        without_padding(&lab, "Lists", "list", "King").await;
        let family = Entity::new(EntityKey::new("f", "1").unwrap()).with("Name", "King").with("Boss", "Ada");
        lab.account.tables.apply(&table("Families"), &TableOperation::Insert(family)).await.unwrap();
        lab
    };
    let said = async |lab: &Lab| {
        let row = lab.read("Lists", "list", "King").await.unwrap().entity;
        (row.text("Boss").map(str::to_owned), row.get("ek_owner_bosses").is_some())
    };
    let family = crate::protocol::world::job(&serde_json::json!({"op": "sync", "table": "Families", "pk": "f", "rk": "1"}));
    let lab = prepared().await;
    let operations = lab.operations_of(&family).await;
    assert_eq!(said(&lab).await, (Some("Ada".to_owned()), true));
    for at in 1..=operations {
        for gone in 1..=4 {
            let lab = prepared().await;
            lab.faults.arm(at, Disturbance::ArriveLater(1_000_000));
            lab.faults.arm(at + gone, Disturbance::Meddle);
            let client = lab.clone();
            lab.faults.meddle(Box::pin(async move { client.delete_row("Families", "f", "1").await }));
            drop(lab.deliver_until_done(&family).await);
            lab.faults.calm();
            lab.delete_row("Families", "f", "1").await;
            lab.work(&family).await.unwrap();
            lab.finish().await;
            assert_eq!(said(&lab).await, (None, false), "operation {at} arrives last of all, gone {gone} later");
        }
    }
}

fn meddlers() -> Vec<(&'static str, Step)> {
    vec![
        ("others join and their syncs", |lab| {
            Box::pin(async move {
                lab.write(person("800", "King", "Rust")).await;
                drop(lab.work(&sync("Sales", "800")).await);
            })
        }),
        ("others leave and their syncs", |lab| {
            Box::pin(async move {
                for rk in ["001", "002"] {
                    lab.remove("Sales", rk).await;
                    drop(lab.work(&sync("Sales", rk)).await);
                }
            })
        }),
        ("its own primary changes and its sync comes later", |lab| {
            Box::pin(async move {
                for rk in ["900", "005", "003"] {
                    if lab.read("Employees", "Sales", rk).await.is_some() {
                        lab.write(person(rk, "Byron", "C")).await;
                        lab.sync_later.lock().unwrap().push(sync("Sales", rk));
                    }
                }
            })
        }),
    ]
}

#[tokio::test]
async fn another_worker_who_changes_the_same_list_at_every_operation_loses_nothing() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = undisturbed(&scenario).await;
        for (name, meddle) in meddlers() {
            for at in 1..=operations {
                let lab = lab().await;
                (scenario.prepare)(lab.clone()).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                lab.deliver_until_done(&sync("Sales", scenario.rk)).await;
                lab.faults.calm();
                lab.finish().await;
                check(&lab, &format!("{}, {name} before operation {at}", scenario.name)).await;
                runs += 1;
            }
        }
    }
    assert!(runs > 200, "only {runs} runs: the sweep has lost its scenarios");
}

const BESIDE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.named_near]
kind = "index_entity"
source = "Employees"
store = "partition"
row_key = "name_{LastName}"
member = ["{RowKey}"]
property = "Ids"
"#;

/// The list lies in the partition `100%25`.
#[tokio::test]
async fn a_list_beside_primaries_whose_partition_key_is_escaped_follows_them() {
    let lab = Lab::with(SMALL, declared(BESIDE));
    let put = |rk: &str, name: &str| {
        let entity = serde_json::json!({"PartitionKey": "100%", "RowKey": rk, "LastName": name});
        crate::protocol::world::job(&serde_json::json!({"op": "put", "table": "Employees", "entity": entity}))
    };
    let delete = |rk: &str| crate::protocol::world::job(&serde_json::json!({"op": "delete", "table": "Employees", "pk": "100%", "rk": rk}));
    let lives = [
        (put("1", "King"), vec![("name_King", r#"[["1"]]"#)]),
        (put("2", "King"), vec![("name_King", r#"[["1"],["2"]]"#)]),
        (put("1", "King"), vec![("name_King", r#"[["1"],["2"]]"#)]),
        (put("1", "Byron"), vec![("name_Byron", r#"[["1"]]"#), ("name_King", r#"[["2"]]"#)]),
        (delete("2"), vec![("name_Byron", r#"[["1"]]"#)]),
        (delete("1"), vec![]),
    ];
    for (job, wanted) in lives {
        lab.work(&job).await.unwrap();
        let rows = lab.rows("Employees").await;
        let listed: Vec<(&str, &str)> = rows.iter().filter_map(|row| Some((row.entity.key.rk.as_str(), row.entity.text("Ids")?))).collect();
        assert_eq!(listed, wanted, "{job:?}");
        for row in rows.iter().filter(|row| row.entity.text("Ids").is_none()) {
            let primary = Primary { table: table("Employees"), key: row.entity.key.clone() };
            let plan = lab.engine.plan(&primary).await.unwrap();
            assert!(plan.in_step, "{job:?}: {plan}");
        }
    }
}
