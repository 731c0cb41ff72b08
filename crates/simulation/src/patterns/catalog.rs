use std::collections::BTreeMap;
use std::sync::Arc;

use super::{FORMER_LARGE, LARGE, LEAD, PatternsShape, SKILLED, TABLES, TEAM};
use evenkeel_account::company::SSN;
use evenkeel_account::company::{ARCHIVE, container, table, table_ref, view_name};
use evenkeel_model::blob_path::BlobPath;
use evenkeel_model::catalog::{
    Aggregate, Archive, ArchiveTarget, BlobLists, Catalog, Denormalize, DenormalizeRange,
    IndexEntity, LargeEntity, OnConflict, RangeRows, View, ViewKind,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, ContainerName};

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn key(text: &str) -> Template {
    Template::parse(text).expect("a template")
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn text(text: &str) -> Template {
    Template::parse_text(text).expect("a template")
}

fn view(name: &str, source: &str, kind: ViewKind) -> Arc<View> {
    Arc::new(View {
        name: view_name(name),
        source: table_ref(source),
        when: None,
        kind,
        on_conflict: OnConflict::Reject,
    })
}

fn list(target: &str, keys: (&str, &str), member: &[&str]) -> ViewKind {
    ViewKind::IndexEntity(IndexEntity {
        target: table_ref(target).into(),
        partition_key: key(keys.0),
        row_key: key(keys.1),
        member: member.iter().map(|member| text(member)).collect(),
        property: "Employees".to_owned(),
    })
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn by_skill(anew: bool) -> ViewKind {
    ViewKind::BlobLists(BlobLists {
        accounts: AccountName::main().into(),
        container: container(SKILLED),
        name: BlobPath::parse(if anew {
            "anew/{Skill}.jsonl"
        } else {
            "{Skill}.jsonl"
        })
        .expect("a path"),
        member: ["{PartitionKey}", "{RowKey}", "{Note}"].map(text).to_vec(),
    })
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn headcount() -> ViewKind {
    let set = [("Headcount", "count()"), ("Versions", "sum(Version)")];
    ViewKind::Aggregate(Aggregate {
        target: table_ref("Groups").into(),
        partition_key: key("group"),
        row_key: key("{PartitionKey}"),
        set: set
            .map(|(name, text)| {
                (
                    name.to_owned(),
                    text.parse().expect("an aggregate function"),
                )
            })
            .into(),
    })
}

fn large(container: ContainerName) -> ViewKind {
    let properties = ["Photo", "Resume"].map(str::to_owned).into();
    ViewKind::LargeEntity(LargeEntity {
        account: AccountName::main(),
        container,
        properties,
        threshold: 16,
    })
}

fn team_name(together: bool) -> ViewKind {
    let prefix = key("{Prefix}");
    ViewKind::DenormalizeRange(DenormalizeRange {
        target: table_ref("Employees").into(),
        partition_key: key("{PartitionKey}"),
        rows: if together {
            RangeRows::Between {
                from: Some(prefix),
                before: None,
            }
        } else {
            RangeRows::Prefix(prefix)
        },
        set: BTreeMap::from([("Team".to_owned(), text("{Name}"))]),
    })
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn lead() -> Arc<View> {
    let kind = ViewKind::Denormalize(Denormalize {
        target: table_ref("Employees").into(),
        partition_key: key("{PartitionKey}"),
        row_key: key(TEAM),
        set: BTreeMap::from([("Lead".to_owned(), text("{Version}"))]),
    });
    let when = Some(Condition::parse(&format!("RowKey == \"{LEAD}\"")).expect("a condition"));
    Arc::new(View {
        when,
        ..View::clone(&view("lead", "Employees", kind))
    })
}

pub(crate) fn catalog(shape: PatternsShape) -> Catalog {
    let far = || {
        list(
            "Lists",
            ("list", "{LastName}"),
            &["{PartitionKey}", "{RowKey}", "{Note}"],
        )
    };
    let near = || {
        list(
            "Employees",
            ("{PartitionKey}", "list_{LastName}"),
            &["{PartitionKey}", "{RowKey}", "{Note}"],
        )
    };
    let views = [
        shape
            .lists
            .then(|| view("by_last_name", "Employees", far())),
        shape
            .near
            .then(|| view("by_last_name_near", "Employees", near())),
        shape
            .groups
            .then(|| view("headcount", "Employees", headcount())),
        shape
            .skilled
            .then(|| view("by_skill", "Employees", by_skill(shape.anew))),
        shape
            .large
            .then(|| view("photos", "Employees", large(container(LARGE)))),
        shape.large.then(|| {
            view(
                "former_photos",
                "FormerEmployees",
                large(container(FORMER_LARGE)),
            )
        }),
        shape
            .ranges
            .then(|| view("team_name", shape.teams(), team_name(shape.together))),
        shape.has_teams_within().then(lead),
    ];
    let archive = Archive {
        name: view_name(ARCHIVE),
        source: table_ref("Employees"),
        target: ArchiveTarget::Table(table_ref("FormerEmployees")),
    };
    Catalog {
        tables: TABLES[..5]
            .iter()
            .map(|name| (table(name), table_ref(name)))
            .collect(),
        wide: ["Employees", "FormerEmployees"]
            .into_iter()
            .filter(|_| shape.wide)
            .map(table_ref)
            .collect(),
        views: views
            .into_iter()
            .flatten()
            .map(|view| (view.name.clone(), view))
            .collect(),
        archives: BTreeMap::from([(archive.name.clone(), Arc::new(archive))]),
        encrypted: shape
            .encrypted
            .then(|| (table_ref("Employees"), [SSN.to_owned()].into()))
            .into_iter()
            .collect(),
        ..Catalog::default()
    }
}
