use std::sync::Arc;

use super::shape::KeptIn;
use super::{
    ArchivesShape, DOCUMENTS, EVENTS, FOLDER, INDEX, LARGE, LARGE_PROPERTY, LOGS, OLD_ATTEMPTS,
    OLD_ATTEMPTS_FOLDER, PAPERS, RECORDS, SINK, TABLES, TITLES, archive_of,
};
use evenkeel_account::company::{container, table, table_ref, view_name};
use evenkeel_model::catalog::{
    Archive, ArchiveTarget, BlobTarget, Catalog, DatedRef, Documents, FileTarget, LargeEntity,
    LogTarget, OnConflict, Retention, SearchIndex, SecondaryIndex, TableArchive, View, ViewKind,
};
use evenkeel_model::condition::Condition;
use evenkeel_model::dated::DatedTables;
use evenkeel_model::document::{DEFAULT_PATH, DocumentPath};
use evenkeel_model::log::LogPath;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, CollectionName};

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn key(text: &str) -> Template {
    Template::parse(text).expect("a template")
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn text(text: &str) -> Template {
    Template::parse_text(text).expect("a template")
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn dated(pattern: &str) -> DatedRef {
    DatedRef {
        account: AccountName::main(),
        tables: DatedTables::parse(pattern).expect("a pattern"),
    }
}

fn view(name: &str, source: &str, when: Option<Condition>, kind: ViewKind) -> Arc<View> {
    Arc::new(View {
        name: view_name(name),
        source: table_ref(source),
        when,
        kind,
        on_conflict: OnConflict::Reject,
    })
}

fn copies(target: &str, keys: (&str, &str), select: Option<Vec<String>>) -> ViewKind {
    let (partition_key, row_key) = (key(keys.0), key(keys.1));
    ViewKind::SecondaryIndex(SecondaryIndex {
        target: table_ref(target).into(),
        partition_key,
        row_key,
        select,
    })
}

fn large() -> ViewKind {
    let properties = [LARGE_PROPERTY.to_owned()].into();
    ViewKind::LargeEntity(LargeEntity {
        account: AccountName::main(),
        container: container(LARGE),
        properties,
        threshold: 16,
    })
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn found(name: &str, source: &str) -> Arc<View> {
    let fields = [("title", "{Title}"), ("version", "{Version}")];
    let kind = ViewKind::SearchIndex(SearchIndex(Documents {
        sink: AccountName::new(SINK).expect("a name"),
        collection: CollectionName::new(INDEX).expect("a name"),
        fields: fields
            .map(|(name, field)| (name.to_owned(), text(field)))
            .into(),
        types: [].into(),
    }));
    view(
        name,
        source,
        Some(Condition::parse("exists(Title)").expect("a condition")),
        kind,
    )
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn archives(shape: ArchivesShape) -> [Archive; 3] {
    let path = || DocumentPath::parse(DEFAULT_PATH).expect("a path");
    let archive = |source, target| Archive {
        name: view_name(archive_of(source)),
        source: table_ref(source),
        target,
    };
    let log = LogTarget {
        account: AccountName::main(),
        container: container(LOGS),
        path: LogPath::parse("%Y/%m/%d/%H00").expect("a path"),
        time: shape.timed.then(|| "At".to_owned()),
        spread: shape.spread,
        roll_at: shape.roll_at,
    };
    let documents = BlobTarget {
        account: AccountName::main(),
        container: container(DOCUMENTS),
        path: path(),
        metadata: [("title".to_owned(), key("{Title}"))].into(),
    };
    [
        archive(EVENTS, ArchiveTarget::Log(log)),
        archive(PAPERS, ArchiveTarget::Blob(documents)),
        archive(
            RECORDS,
            ArchiveTarget::File(FileTarget {
                dir: FOLDER.to_owned(),
                path: path(),
            }),
        ),
    ]
}

fn retention(shape: ArchivesShape) -> Retention {
    Retention {
        name: view_name("attempts"),
        account: AccountName::main(),
        tables: dated("Attempts%Y%m%d%H").tables,
        keep: shape.keep,
        ahead: 1,
        archive_to: match shape.kept_in {
            KeptIn::Nowhere => None,
            KeptIn::Container => Some(TableArchive::Blob {
                account: AccountName::main(),
                container: container(OLD_ATTEMPTS),
            }),
            KeptIn::Folder => Some(TableArchive::File {
                dir: OLD_ATTEMPTS_FOLDER.to_owned(),
            }),
        },
    }
}

fn by_user() -> Arc<View<DatedRef>> {
    let index = SecondaryIndex {
        target: dated("ByUser%Y%m%d%H"),
        partition_key: key("{User}"),
        row_key: key("{PartitionKey}_{RowKey}"),
        select: None,
    };
    let (name, source) = (view_name("by_user"), dated("Attempts%Y%m%d%H"));
    Arc::new(View {
        name,
        source,
        when: None,
        kind: ViewKind::SecondaryIndex(index),
        on_conflict: OnConflict::Reject,
    })
}

pub(crate) fn catalog(shape: ArchivesShape) -> Catalog {
    let kinds = || copies(EVENTS, ("{PartitionKey}", "kind_{Title}_{RowKey}"), None);
    let titles = || {
        copies(
            TITLES,
            ("title_{Title}", "{PartitionKey}_{RowKey}"),
            Some(vec!["Title".to_owned(), "Version".to_owned()]),
        )
    };
    let views = [
        shape.kinds.then(|| view("kinds", EVENTS, None, kinds())),
        shape.titles.then(|| view("titles", PAPERS, None, titles())),
        shape.found.then(|| found("found_papers", PAPERS)),
        shape.found.then(|| found("found_records", RECORDS)),
        shape.large.then(|| view("scans", PAPERS, None, large())),
        shape
            .large
            .then(|| view("record_scans", RECORDS, None, large())),
    ];
    let retention = retention(shape);
    Catalog {
        tables: TABLES[..4]
            .iter()
            .map(|name| (table(name), table_ref(name)))
            .collect(),
        views: views
            .into_iter()
            .flatten()
            .map(|view| (view.name.clone(), view))
            .collect(),
        dated_views: shape
            .by_user
            .then(by_user)
            .into_iter()
            .map(|view| (view.name.clone(), view))
            .collect(),
        archives: archives(shape)
            .into_iter()
            .map(|archive| (archive.name.clone(), Arc::new(archive)))
            .collect(),
        retentions: [(retention.name.clone(), Arc::new(retention))].into(),
        ..Catalog::default()
    }
    .with_archived_values()
}
