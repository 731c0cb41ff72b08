//! The catalog of a company's employees, with every kind of derived data.
//!
//! | view | source | target | |
//! |---|---|---|---|
//! | `by_email` | Employees | ByEmail | another partition; its key can collide |
//! | `by_name` | Employees | Employees | the primary's own partition, so that a `put` commits both (not with `apart`) |
//! | `by_badge` | Employees | Employees | a second copy there (with `twins`) |
//! | `managers` | Employees | Managers | conditional |
//! | `former_by_email` | FormerEmployees | FormerByEmail | an index of the archive (with `former_index`) |
//! | `by_last_name` | Employees | Lists | an index entity for each last name (with `lists`) |
//! | `by_last_name_near` | Employees | Employees | index entities in the primaries' partition, committed with them (with `near`) |
//! | `department_manager` | Employees | Departments | properties on existing entities; two managers collide (with `sets`) |
//! | `headcount` | Employees | Groups | aggregates of each department (with `groups`) |
//! | `managers_by_name` | Managers | ManagersByName | a view of a view (with `chain`) |

mod placement;
mod sites;

use std::sync::Arc;

use evenkeel_model::catalog::{
    Aggregate, Archive, ArchiveTarget, BlobTarget, Catalog, Denormalize, FileTarget, IndexEntity,
    LogTarget, OnConflict, SecondaryIndex, TableRef, View, ViewKind,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::document::{DEFAULT_PATH, DocumentPath};
use evenkeel_model::log::LogPath;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::template::Template;
use evenkeel_model::{
    AccountName, ContainerName, Entity, EntityKey, QueueName, TableName, ViewName,
};

pub use placement::{Placement, SPREADABLE, abroad, account_of, base, located};
pub use sites::sites;

/// The property that is encrypted with [`Shape::encrypted`].
pub const SSN: &str = "Ssn";
/// The archive in a table.
pub const ARCHIVE: &str = "former";
/// An archive in a container.
pub const BLOB_ARCHIVE: &str = "former_blobs";
/// An archive in a shared folder.
pub const FILE_ARCHIVE: &str = "former_files";
/// An archive that is a log, in [`CONTAINER`] too.
pub const LOG_ARCHIVE: &str = "former_log";
/// The container of [`BLOB_ARCHIVE`].
pub const CONTAINER: &str = "former-employees";
/// The folder of [`FILE_ARCHIVE`].
pub const FOLDER: &str = "/mnt/former";
/// All tables, including footprints.
pub const TABLES: [&str; 10] = [
    "Employees",
    "ByEmail",
    "Managers",
    "FormerEmployees",
    "FormerByEmail",
    "ManagersByName",
    "Lists",
    "Departments",
    "Groups",
    FOOTPRINTS,
];

/// The optional parts of the catalog.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each part is independent of the others"
)]
pub struct Shape {
    /// The archive has an index.
    pub former_index: bool,
    /// A view is the source of another view.
    pub chain: bool,
    /// Index entities by last name.
    pub lists: bool,
    /// Index entities by last name in the employees' partition.
    pub near: bool,
    /// Departments have the name of their manager. The department Ops does not exist.
    pub sets: bool,
    /// Aggregates of each department.
    pub groups: bool,
    /// Employees have a second copy in their partition, whose key never changes.
    pub twins: bool,
    /// No items are in the employees' partition, so a job writes employees without a transaction.
    pub apart: bool,
    /// If two employees have the same e-mail address, the last writer gets its row in ByEmail.
    pub last_writer: bool,
    /// Departments are created and deleted.
    pub targets: bool,
    /// Employees have an encrypted property.
    pub encrypted: bool,
    /// Two views have their second definitions: another key, and one more property.
    pub anew: bool,
    /// Many employees compete for two e-mail addresses.
    pub crowd: bool,
    /// The accounts of derived rows.
    pub placement: Placement,
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
pub fn table(name: &str) -> TableName {
    TableName::new(name).expect("a table name")
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a queue name")
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
pub fn container(name: &str) -> ContainerName {
    ContainerName::new(name).expect("a container name")
}

pub fn table_ref(name: &str) -> TableRef {
    TableRef {
        account: AccountName::main(),
        table: table(name),
    }
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
pub fn view_name(name: &str) -> ViewName {
    ViewName::new(name).expect("a view name")
}

struct Index<'a> {
    name: &'a str,
    from: &'a str,
    to: &'a str,
    key: (&'a str, &'a str),
    when: Option<&'a str>,
    select: Option<&'a [&'a str]>,
    on_conflict: OnConflict,
}

impl Index<'_> {
    #[expect(clippy::expect_used, reason = "constants, which every run uses")]
    fn view(&self) -> Arc<View> {
        let template = |text| Template::parse(text).expect("a template");
        Arc::new(View {
            name: view_name(self.name),
            source: table_ref(self.from),
            when: self
                .when
                .map(|when| Condition::parse(when).expect("a condition")),
            kind: ViewKind::SecondaryIndex(SecondaryIndex {
                target: table_ref(self.to).into(),
                partition_key: template(self.key.0),
                row_key: template(self.key.1),
                select: self
                    .select
                    .map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            }),
            on_conflict: self.on_conflict,
        })
    }
}

/// The only department that exists at first.
#[expect(clippy::expect_used, reason = "constants, which every run uses")]
pub fn department() -> Entity {
    Entity::new(EntityKey::new("Sales", "department").expect("a key")).with("Name", "Sales")
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
fn department_manager() -> Arc<View> {
    let template = |text| Template::parse_text(text).expect("a template");
    let set = [
        ("ManagerName", "{LastName}"),
        ("ManagerEmail", "mailto:{Email|lower}"),
    ];
    Arc::new(View {
        name: view_name("department_manager"),
        source: table_ref("Employees"),
        when: Some(Condition::parse("IsManager == true").expect("a condition")),
        kind: ViewKind::Denormalize(Denormalize {
            target: table_ref("Departments").into(),
            partition_key: template("{PartitionKey}"),
            row_key: template("department"),
            set: set
                .map(|(name, text)| (name.to_owned(), template(text)))
                .into(),
        }),
        on_conflict: OnConflict::Reject,
    })
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
fn headcount() -> Arc<View> {
    let template = |text| Template::parse(text).expect("a template");
    let set = [("Headcount", "count()"), ("Versions", "sum(Version)")];
    Arc::new(View {
        name: view_name("headcount"),
        source: table_ref("Employees"),
        when: None,
        kind: ViewKind::Aggregate(Aggregate {
            target: table_ref("Groups").into(),
            partition_key: template("group"),
            row_key: template("{PartitionKey}"),
            set: set
                .map(|(name, text)| {
                    (
                        name.to_owned(),
                        text.parse().expect("an aggregate function"),
                    )
                })
                .into(),
        }),
        on_conflict: OnConflict::Reject,
    })
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
fn lists(name: &str, target: &str, key: (&str, &str), member: &[&str]) -> Arc<View> {
    let template = |text| Template::parse_text(text).expect("a template");
    Arc::new(View {
        name: view_name(name),
        source: table_ref("Employees"),
        when: None,
        kind: ViewKind::IndexEntity(IndexEntity {
            target: table_ref(target).into(),
            partition_key: template(key.0),
            row_key: template(key.1),
            member: member.iter().map(|text| template(text)).collect(),
            property: "Employees".to_owned(),
        }),
        on_conflict: OnConflict::Reject,
    })
}

pub fn catalog(shape: Shape) -> Catalog {
    let employees = [
        Index {
            name: "by_email",
            from: "Employees",
            to: "ByEmail",
            key: (
                if shape.anew {
                    "mail_{PartitionKey}"
                } else {
                    "email_{PartitionKey}"
                },
                "{Email|lower}",
            ),
            when: None,
            select: Some(&["FirstName", "Email"]),
            on_conflict: if shape.last_writer {
                OnConflict::LastWriter
            } else {
                OnConflict::Reject
            },
        },
        Index {
            name: "by_name",
            from: "Employees",
            to: "Employees",
            key: ("{PartitionKey}", "name_{LastName}_{RowKey}"),
            when: None,
            select: None,
            on_conflict: OnConflict::Reject,
        },
        Index {
            name: "managers",
            from: "Employees",
            to: "Managers",
            key: ("managers", "{PartitionKey}_{RowKey}"),
            when: Some("IsManager == true"),
            select: Some(if shape.anew {
                &["LastName", "FirstName"]
            } else {
                &["LastName"]
            }),
            on_conflict: OnConflict::Reject,
        },
    ];
    let former = Index {
        name: "former_by_email",
        from: "FormerEmployees",
        to: "FormerByEmail",
        key: ("former_{Email|lower}", "{PartitionKey}_{RowKey}"),
        when: None,
        select: Some(&["Email"]),
        on_conflict: OnConflict::Reject,
    };
    let chained = Index {
        name: "managers_by_name",
        from: "Managers",
        to: "ManagersByName",
        key: ("{LastName}", "{RowKey}"),
        when: None,
        select: Some(&["LastName"]),
        on_conflict: OnConflict::Reject,
    };
    let badge = Index {
        name: "by_badge",
        from: "Employees",
        to: "Employees",
        key: ("{PartitionKey}", "badge_{RowKey}"),
        when: None,
        select: None,
        on_conflict: OnConflict::Reject,
    };
    let views = employees
        .iter()
        .filter(|index| !shape.apart || index.name != "by_name")
        .chain(shape.twins.then_some(&badge));
    let views = views
        .chain(shape.former_index.then_some(&former))
        .chain(shape.chain.then_some(&chained));
    let far = shape.lists.then(|| {
        lists(
            "by_last_name",
            "Lists",
            ("list_{LastName}", "list"),
            &["{PartitionKey}", "{RowKey}"],
        )
    });
    let near = shape.near.then(|| {
        lists(
            "by_last_name_near",
            "Employees",
            ("{PartitionKey}", "list_{LastName}"),
            &["{RowKey}"],
        )
    });
    let (sets, groups) = (
        shape.sets.then(department_manager),
        shape.groups.then(headcount),
    );
    Catalog {
        tables: TABLES[..9]
            .iter()
            .map(|name| (table(name), table_ref(name)))
            .collect(),
        views: views
            .map(Index::view)
            .chain(far)
            .chain(near)
            .chain(sets)
            .chain(groups)
            .map(|view| (view.name.clone(), view))
            .collect(),
        archives: archives()
            .into_iter()
            .map(|archive| (archive.name.clone(), Arc::new(archive)))
            .collect(),
        encrypted: shape
            .encrypted
            .then(|| (table_ref("Employees"), [SSN.to_owned()].into()))
            .into_iter()
            .collect(),
        ..Catalog::default()
    }
}

#[expect(clippy::expect_used, reason = "constants, which every run uses")]
fn archives() -> [Archive; 4] {
    let path = || DocumentPath::parse(DEFAULT_PATH).expect("a path");
    let blobs = BlobTarget {
        account: AccountName::main(),
        container: container(CONTAINER),
        path: path(),
        metadata: [(
            "last_name".to_owned(),
            Template::parse("{LastName}").expect("a template"),
        )]
        .into(),
    };
    let files = FileTarget {
        dir: FOLDER.to_owned(),
        path: path(),
    };
    let log = LogTarget {
        account: AccountName::main(),
        container: container(CONTAINER),
        path: LogPath::parse("logs/%Y/%m/%d/%H00").expect("a path"),
        time: None,
        spread: 1,
        roll_at: LogTarget::ROLL_AT,
    };
    let archive = |name, target| Archive {
        name: view_name(name),
        source: table_ref("Employees"),
        target,
    };
    [
        archive(ARCHIVE, ArchiveTarget::Table(table_ref("FormerEmployees"))),
        archive(BLOB_ARCHIVE, ArchiveTarget::Blob(blobs)),
        archive(FILE_ARCHIVE, ArchiveTarget::File(files)),
        archive(LOG_ARCHIVE, ArchiveTarget::Log(log)),
    ]
}
