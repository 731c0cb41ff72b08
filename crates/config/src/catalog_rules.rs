//! Rules between views, archives and tables.

use super::archives::{ArchiveDraft, TargetDraft};
use super::circles;
use super::section::Section;
use super::views::{Named, TableDraft, ViewDraft, ViewTables};
use evenkeel_model::catalog::{
    Catalog, Documents, FILING_PREFIX, FOOTPRINTS, Figure, FileTarget, Form, Members, RowForm,
};
use evenkeel_model::claim::CLAIMS;
use evenkeel_model::names::KEYS;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::nearest::nearest;
use evenkeel_model::patterns::lookup::{Unranged, unranged};
use evenkeel_model::template::{Apart, Crowding, Template, TemplatePart, keys_tell};
use evenkeel_model::{TableName, ViewName};

/// Tables that evenkeel keeps its own records in.
const RESERVED_TABLES: [&str; 4] = [CLAIMS, MIGRATIONS, "EvenkeelAudits", KEYS];

/// Checks the catalog as a whole.
pub(super) fn check(
    catalog: &Catalog,
    tables: &[TableDraft<'_>],
    views: &[ViewDraft<'_>],
    archives: &[ArchiveDraft<'_>],
) {
    for table in tables {
        reserved(&table.name, &table.section, "");
    }
    for view in views {
        reserved(&view.source, &view.section, "source");
        if let Some(target) = view.target() {
            reserved(target, &view.section, view.declared.table_key);
        }
        keys(view);
    }
    for archive in archives {
        reserved(&archive.source, &archive.section, "source");
        if let Some(target) = archive.table() {
            reserved(target, &archive.to, "table");
            if archive.source == *target {
                archive.to.error(
                    "table",
                    format!("the archive of {} cannot be the same table", archive.source),
                );
            }
        }
    }
    wide(catalog, views, archives);
    same_rows(views);
    ranges(views);
    large_values(views, archives);
    pointers(catalog, views);
    shared_archives(views, archives);
    circles::check(views);
    archive_circles(archives);
    likely_typos(catalog, tables, views, archives);
}

fn reserved(table: &TableName, section: &Section<'_>, key: &str) {
    if is_reserved(table.as_str()) {
        section.error(
            key,
            format!("the table {table} holds evenkeel's own records; expected another one"),
        );
    }
}

/// Whether a name is one of evenkeel's own tables, or could be that of footprints of tables by date or of entities kept as documents.
pub(super) fn is_reserved(name: &str) -> bool {
    let begins = |with: &str| {
        name.get(..with.len())
            .is_some_and(|begins| begins.eq_ignore_ascii_case(with))
    };
    begins(FOOTPRINTS)
        || begins(FILING_PREFIX)
        || RESERVED_TABLES
            .iter()
            .any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Rules on the keys of a view.
pub(super) fn keys<T: ViewTables>(view: &ViewDraft<'_, T>) {
    if let Some(rows) = view.rows() {
        own_row(view, &rows);
        collisions(view, &rows);
        // What tells the members of a row apart would take it to pieces.
        let has_members = matches!(view.form(), Form::Lists { .. });
        let apart = if has_members {
            properties([rows.row_key]).first().cloned()
        } else {
            Some("RowKey".to_owned())
        };
        crowding(
            &view.section,
            "partition_key",
            rows.partition_key,
            apart.as_deref(),
        );
        for (key, template) in [
            ("partition_key", rows.partition_key),
            ("row_key", rows.row_key),
        ] {
            if let Some(Unranged { problem, .. }) = unranged(template) {
                view.section.warning(
                    key,
                    format!("no lookup can ask for a range here: {problem}"),
                );
            }
        }
    }
    spelling(view);
}

/// A copy must not be its own primary.
fn own_row<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, Named<T>>) {
    if view.source != rows.target.tables {
        return;
    }
    if is_just(rows.partition_key, "PartitionKey") && is_just(rows.row_key, "RowKey") {
        view.section.error(
            "row_key",
            "this is the key of the primary itself; expected another table, or another key such as \"email_{Email|lower}\"",
        );
    } else if view.sets().is_some() {
        // It makes no rows.
    } else if !starts_literally(rows.partition_key) && !starts_literally(rows.row_key) {
        view.section.warning(
            "row_key",
            format!(
                "copies lie in the table of their primaries, {}, and nothing keeps their keys apart; better begin with a literal, such as \"email_{{Email|lower}}\"",
                view.source
            ),
        );
    }
}

/// Views write single rows, and entities of several rows go only where these are allowed.
fn wide(catalog: &Catalog, views: &[ViewDraft<'_>], archives: &[ArchiveDraft<'_>]) {
    let is_wide = |table: &TableName| catalog.wide.iter().any(|wide| wide.table == *table);
    for view in views {
        let others = |target: &&TableName| {
            is_wide(target) && (**target != view.source || view.sets().is_some())
        };
        if let Some(target) = view.target().filter(others) {
            let message = format!(
                "{target} is wide, and what views write lies in single rows; expected another table"
            );
            view.section.error(view.declared.table_key, message);
        }
        if is_wide(&view.source) && matches!(view.form(), Form::Copies { select: None, .. }) {
            view.section.warning(
                "row_key",
                format!("the entities of {} may have more properties than a copy, which is one row; better select some", view.source),
            );
        }
    }
    for archive in archives {
        if let Some(target) = archive
            .table()
            .filter(|target| is_wide(&archive.source) && !is_wide(target))
        {
            let message = format!(
                "the entities of {} may take several rows; expected wide = true in [tables.{target}]",
                archive.source
            );
            archive.to.error("table", message);
        }
    }
}

fn is_just(template: &Template, property: &str) -> bool {
    matches!(template.parts(), [TemplatePart::Field(field)] if field.property() == property && field.filters().is_empty())
}

fn starts_literally(template: &Template) -> bool {
    matches!(template.parts().first(), Some(TemplatePart::Literal(_)))
}

/// Reports where two primaries can want one key, unless the catalog decides the conflict.
fn collisions<T: ViewTables>(view: &ViewDraft<'_, T>, rows: &RowForm<'_, Named<T>>) {
    // Lists and groups take members of every primary.
    if view.declared.on_conflict.is_some() || matches!(view.form(), Form::Lists { .. }) {
        return;
    }
    let covered = |property: &str| {
        keys_tell(
            &[rows.partition_key, rows.row_key],
            property,
            Apart::Texts,
            None,
        )
    };
    let named = |property: &&str| {
        rows.partition_key.properties().contains(property)
            || rows.row_key.properties().contains(property)
    };
    let (blurred, missing): (Vec<&str>, Vec<&str>) = ["PartitionKey", "RowKey"]
        .into_iter()
        .filter(|property| !covered(property))
        .partition(named);
    if blurred.is_empty() && missing.is_empty() {
        return;
    }
    let why = if missing.is_empty() {
        ambiguous(rows, &blurred)
    } else {
        format!("it lacks their {}", missing.join(" and "))
    };
    let adds = (!missing.is_empty()).then(|| format!("add {} to a key", missing.join(" and ")));
    let whole = blurred
        .first()
        .map(|property| format!("write {{{property}|hash:64}}"));
    let remedy = adds
        .into_iter()
        .chain(whole)
        .collect::<Vec<_>>()
        .join(", and ");
    view.section.warning(
        "row_key",
        format!("two entities can get the same key: {why}. Set on_conflict, or {remedy}"),
    );
}

/// Says which key has properties that its reader cannot tell from what is beside them.
fn ambiguous<T: ViewTables>(rows: &RowForm<'_, Named<T>>, blurred: &[&str]) -> String {
    let key = [rows.row_key, rows.partition_key].into_iter().find(|key| {
        blurred
            .iter()
            .any(|property| key.properties().contains(property))
    });
    let key = key.unwrap_or(rows.row_key);
    let example = match key.parts() {
        [
            TemplatePart::Field(one),
            TemplatePart::Literal(between),
            TemplatePart::Field(other),
        ] if [one, other].iter().all(|field| field.filters().is_empty()) => {
            format!(" (`a{between}b`+`c`, `a`+`b{between}c`)")
        }
        _ => String::new(),
    };
    format!("`{key}` is ambiguous{example}")
}

/// Says where a partition key sends every new row to one partition, which takes 2,000 entities a second (Azure scalability targets).
/// `apart` tells its rows apart.
fn crowding(section: &Section<'_>, key: &str, template: &Template, apart: Option<&str>) {
    let buckets = apart.map(|property| format!("{{{property}|bucket:16}}"));
    match template.crowding() {
        None => {}
        Some(Crowding::Constant) => section.warning(
            key,
            format!(
                "every row has this one partition key, and a partition takes 2,000 entities a second{}",
                buckets
                    .map(|buckets| format!("; where that is not enough, add a property or spread one over buckets, such as \"{buckets}\""))
                    .unwrap_or_default()
            ),
        ),
        Some(Crowding::Grows { property, rendered }) => section.warning(
            key,
            format!(
                "it leads with {rendered} ({property}), so that all new rows lie in one partition, which takes 2,000 entities a second{}",
                buckets.map(|buckets| format!("; better lead with what varies, such as \"{buckets}_…\"")).unwrap_or_default()
            ),
        ),
    }
}

/// A property that is a key's name but for its case is another property, most likely by mistake.
fn spelling<T: ViewTables>(view: &ViewDraft<'_, T>) {
    let keys = view.rows().into_iter().flat_map(|rows| {
        [
            ("partition_key", rows.partition_key),
            ("row_key", rows.row_key),
        ]
    });
    let keys = keys.map(|(key, template)| (key, properties([template])));
    let when = view.when.iter().map(|when| {
        (
            "when",
            when.properties().into_iter().map(str::to_owned).collect(),
        )
    });
    let own: Vec<(&str, Vec<String>)> = match view.form() {
        Form::Copies { .. } | Form::Values(_) => Vec::new(),
        Form::Lists {
            members: Members::Rendered { templates, .. },
            ..
        } => vec![("member", properties(templates))],
        Form::Lists {
            members: Members::Contributions(set),
            ..
        } => {
            vec![(
                "set",
                set.values()
                    .filter_map(Figure::property)
                    .map(str::to_owned)
                    .collect(),
            )]
        }
        Form::BlobLists(lists) => {
            let name = lists
                .name
                .properties()
                .into_iter()
                .map(str::to_owned)
                .collect();
            vec![("member", properties(&lists.member)), ("name", name)]
        }
        Form::Properties { set, .. } => vec![("set", properties(set.values()))],
        Form::Claims(range) => vec![("set", properties(range.set.values()))],
        Form::Documents(Documents { fields, types, .. }) => {
            vec![(
                if types.is_empty() {
                    "fields"
                } else {
                    "columns"
                },
                properties(fields.values()),
            )]
        }
    };
    let all: Vec<(&str, Vec<String>)> = keys.chain(when).chain(own).collect();
    for (key, properties) in all {
        for property in &properties {
            for known in ["PartitionKey", "RowKey"] {
                if property != known && property.eq_ignore_ascii_case(known) {
                    view.section.warning(
                        key,
                        format!("{property:?} is a property of its own; did you mean {known}?"),
                    );
                }
            }
        }
    }
}

fn properties<'t>(templates: impl IntoIterator<Item = &'t Template>) -> Vec<String> {
    templates
        .into_iter()
        .flat_map(Template::properties)
        .map(str::to_owned)
        .collect()
}

pub(super) fn same_rows<T: ViewTables>(views: &[ViewDraft<'_, T>]) {
    for (at, view) in views.iter().enumerate() {
        let before = &views[..at];
        match view.form() {
            Form::BlobLists(lists) => {
                let same = |other: &&ViewDraft<'_, T>| matches!(other.form(), Form::BlobLists(others) if (&others.accounts, &others.container, &others.name) == (&lists.accounts, &lists.container, &lists.name));
                if let Some(other) = before.iter().find(same) {
                    let container = &lists.container;
                    view.section.error(
                        "name",
                        format!(
                            "the view {} writes the same blobs into the container {container}",
                            other.name
                        ),
                    );
                }
            }
            Form::Documents(documents) => {
                let Documents {
                    sink,
                    collection,
                    types,
                    ..
                } = documents;
                // A table of a database has the columns of one view.
                let same = |other: &&ViewDraft<'_, T>| {
                    (other.source == view.source || !types.is_empty())
                        && matches!(other.form(), Form::Documents(others) if (&others.sink, &others.collection) == (sink, collection))
                };
                if let Some(other) = before.iter().find(same) {
                    let source = &view.source;
                    let (key, message) = if types.is_empty() {
                        (
                            if view.section.has("topic") {
                                "topic"
                            } else {
                                "index"
                            },
                            format!(
                                "the view {} writes the documents of {source} into the index {collection}",
                                other.name
                            ),
                        )
                    } else {
                        (
                            "table",
                            format!(
                                "the view {} writes the table {collection} of {sink}; expected a table of its own",
                                other.name
                            ),
                        )
                    };
                    view.section.error(key, message);
                }
            }
            Form::Copies { rows, .. }
            | Form::Lists { rows, .. }
            | Form::Properties { rows, .. } => same_keys(view, &rows, before),
            Form::Values(_) | Form::Claims(_) => {}
        }
    }
}

fn same_keys<T: ViewTables>(
    view: &ViewDraft<'_, T>,
    rows: &RowForm<'_, Named<T>>,
    before: &[ViewDraft<'_, T>],
) {
    let target = &rows.target.tables;
    for (other, there) in before
        .iter()
        .filter_map(|other| Some((other, other.rows()?)))
    {
        if there.target.tables != *target || !may_meet(rows, &there) {
            continue;
        }
        let same = [rows.partition_key, rows.row_key].map(ToString::to_string)
            == [there.partition_key, there.row_key].map(ToString::to_string);
        match (view.sets(), other.sets()) {
            (Some(set), Some(others)) => {
                let Some(name) = set.keys().find(|name| others.contains_key(*name)) else {
                    continue;
                };
                if same {
                    view.section.error(
                        "set",
                        format!(
                            "the view {} sets {name} on the same entities of {target}",
                            other.name
                        ),
                    );
                    return;
                }
                // What the values of keys keep apart cannot be seen here.
                view.section.warning(
                    "set",
                    format!(
                        "the view {} sets {name} on entities of {target} too, and nothing keeps their keys apart: on one entity each would write over the other's; better another name, or keys that begin with different literals",
                        other.name
                    ),
                );
            }
            _ if same => {
                view.section.error(
                    "row_key",
                    format!(
                        "the view {} writes the same keys into the same table {target}",
                        other.name
                    ),
                );
                return;
            }
            (Some(_), None) => on_copies(view, other, target),
            (None, Some(_)) => on_copies(other, view, target),
            (None, None) => {}
        }
    }
}

/// A copy is written whole, without the properties that another view would keep on it, whose job fails. (Copies beside their primaries are
/// no primaries.)
fn on_copies<T: ViewTables>(setting: &ViewDraft<'_, T>, making: &ViewDraft<'_, T>, target: &T) {
    if matches!(making.form(), Form::Copies { .. }) && making.source != *target {
        setting.section.warning(
            setting.declared.table_key,
            format!(
                "the view {} writes rows of its own into {target}, on which no properties are kept, and nothing keeps their keys from those of your entities; better a table of your own entities alone, or keys that begin with different literals",
                making.name
            ),
        );
    }
}

/// Whether rows of two views may have one key: not where one of their keys begins with different literals.
fn may_meet<T>(one: &RowForm<'_, Named<T>>, other: &RowForm<'_, Named<T>>) -> bool {
    let keys = [
        (one.partition_key, other.partition_key),
        (one.row_key, other.row_key),
    ];
    keys.into_iter()
        .all(|(one, other)| may_begin(one, other) && may_begin(other, one))
}

/// Whether a key of the first template may begin as those of the second do.
fn may_begin(one: &Template, other: &Template) -> bool {
    let literal = |template: &Template| match template.parts() {
        [TemplatePart::Literal(text), rest @ ..] => (text.clone(), rest.is_empty()),
        _ => (String::new(), false),
    };
    let ((one, is_whole), (other, _)) = (literal(one), literal(other));
    one.starts_with(&other) || (!is_whole && other.starts_with(&one))
}

/// Properties that ranges of entities have of a view lie on entities of the user's own, and nothing else sets them.
fn ranges(views: &[ViewDraft<'_>]) {
    for (at, view) in views.iter().enumerate() {
        let Form::Claims(range) = view.form() else {
            continue;
        };
        let (target, set) = (&range.target.tables, &range.set);
        for (other_at, other) in views
            .iter()
            .enumerate()
            .filter(|(_, other)| other.target() == Some(target))
        {
            let Some(others) = other.sets() else {
                // Rows that a view makes beside its primaries are no primaries, and no range has them.
                if other.source == *target {
                    continue;
                }
                view.section.error(
                    "table",
                    format!("the view {} writes rows of its own into {target}; expected a table of your own entities", other.name),
                );
                continue;
            };
            // Two ranges are told once.
            let told = other_at >= at && matches!(other.form(), Form::Claims(_));
            if let Some(name) = set
                .keys()
                .find(|name| others.contains_key(*name))
                .filter(|_| !told)
            {
                view.section.error(
                    "set",
                    format!(
                        "the view {} sets {name} on entities of {target} too",
                        other.name
                    ),
                );
            }
        }
    }
}

/// Pointers and their blobs go together: a target that takes in an entity with pointers has to keep its blobs.
fn large_values(views: &[ViewDraft<'_>], archives: &[ArchiveDraft<'_>]) {
    let mut sources: Vec<(&TableName, &ViewName)> = Vec::new();
    for view in views
        .iter()
        .filter(|view| matches!(view.form(), Form::Values(_)))
    {
        match sources.iter().find(|(source, _)| **source == view.source) {
            Some((_, first)) => {
                let message = format!(
                    "the view {first} keeps the large values of {} already; expected one such view for a table",
                    view.source
                );
                view.section.error("source", message);
            }
            None => sources.push((&view.source, &view.name)),
        }
    }
    for archive in archives {
        let Some((source, view)) = sources
            .iter()
            .find(|(source, _)| **source == archive.source)
        else {
            continue;
        };
        match &archive.target {
            TargetDraft::Table(target, _) if !sources.iter().any(|(source, _)| *source == target) => archive.to.error(
                "table",
                format!("{source} has large values in blobs (view {view}), and {target} would have none; expected a large_entity view with source = \"{target}\""),
            ),
            TargetDraft::Table(..) | TargetDraft::Blob(_) | TargetDraft::File(_) => {}
            TargetDraft::Log(_) => archive.to.error(
                "kind",
                format!(
                    "{source} has large values in blobs (view {view}), which are taken along into tables, containers and folders only"
                ),
            ),
        }
    }
}

/// Nothing is computed from a pointer. (A value that has to go, though not declared, is refused by its job.)
fn pointers(catalog: &Catalog, views: &[ViewDraft<'_>]) {
    for view in views {
        let Form::Values(large) = view.form() else {
            continue;
        };
        for other in catalog
            .views
            .values()
            .filter(|other| other.source.table == view.source)
        {
            if let Some(name) = other
                .computed()
                .into_iter()
                .find(|name| large.properties.contains(*name))
            {
                let message = format!(
                    "the view {} computes from {name}, and from a pointer in its place nothing can be; expected properties that views copy whole, or do not name",
                    other.name
                );
                view.section.error("properties", message);
            }
        }
        for archive in catalog
            .archives
            .values()
            .filter(|archive| archive.source.table == view.source)
        {
            if let Some(name) = archive
                .target
                .properties()
                .into_iter()
                .find(|name| large.properties.contains(*name))
            {
                let message = format!(
                    "the archive {} makes metadata of {name}, and of a pointer in its place nothing can be made; expected other properties",
                    archive.name
                );
                view.section.error("properties", message);
            }
        }
    }
}

fn shared_archives(views: &[ViewDraft<'_>], archives: &[ArchiveDraft<'_>]) {
    for (at, archive) in archives.iter().enumerate() {
        if let Some(target) = archive.table()
            && let Some(view) = views.iter().find(|view| view.target() == Some(target))
        {
            view.section.error(
                "table",
                format!(
                    "{target} is the archive {:?}; copies need a table that is no archive",
                    archive.name.as_str()
                ),
            );
        }
        for other in &archives[..at] {
            let (key, what) = match (&archive.target, &other.target) {
                (TargetDraft::Table(one, _), TargetDraft::Table(two, _)) if one == two => {
                    ("table", one.to_string())
                }
                (TargetDraft::Blob(one), TargetDraft::Blob(two))
                    if (&one.account, &one.container, &one.path)
                        == (&two.account, &two.container, &two.path) =>
                {
                    (
                        "container",
                        format!("{}/{}", one.container, one.path.as_str()),
                    )
                }
                (TargetDraft::Log(one), TargetDraft::Log(two))
                    if (&one.account, &one.container, &one.path)
                        == (&two.account, &two.container, &two.path) =>
                {
                    (
                        "container",
                        format!("{}/{}", one.container, one.path.as_str()),
                    )
                }
                // A folder may be named whole, or in part by the path below another one.
                (TargetDraft::File(one), TargetDraft::File(two))
                    if documents(one) == documents(two) =>
                {
                    ("dir", documents(one))
                }
                _ => continue,
            };
            archive.to.error(
                key,
                format!("{what} is the archive {:?} already", other.name.as_str()),
            );
        }
    }
}

/// Where the documents of a folder lie.
fn documents(target: &FileTarget) -> String {
    format!("{}/{}", target.dir, target.path.as_str())
}

/// Archives that lead back to where they began: an entity that the last one archives is again a primary of the first. The way back is a
/// `restore` job.
fn archive_circles(archives: &[ArchiveDraft<'_>]) {
    for archive in archives {
        // Each archive that is reached, and the one before it on the way.
        let mut reached: Vec<(&ArchiveDraft<'_>, Option<usize>)> = vec![(archive, None)];
        let mut at = 0;
        while let Some((last, _)) = reached.get(at).copied() {
            let target = last.table();
            if at > 0 && target == Some(&archive.source) {
                break;
            }
            for next in archives.iter().filter(|next| Some(&next.source) == target) {
                if !reached.iter().any(|(passed, _)| passed.name == next.name) {
                    reached.push((next, Some(at)));
                }
            }
            at += 1;
        }
        let back = std::iter::successors(reached.get(at), |(_, before)| reached.get((*before)?));
        let mut way: Vec<String> = back
            .filter(|(_, before)| before.is_some())
            .map(|(last, _)| format!("{:?}", last.name.as_str()))
            .collect();
        if !way.is_empty() {
            way.reverse();
            archive.to.error(
                "table",
                format!(
                    "the archives go round in a circle: what leaves {} comes back into it by {}; the way out of an archive is a restore job",
                    archive.source,
                    way.join(", then ")
                ),
            );
        }
    }
}

/// One word must not mean two things: `lookup` takes a view or an archive.
pub(super) fn names_of_their_own<'a>(
    views: impl Iterator<Item = &'a ViewName>,
    archives: &[ArchiveDraft<'_>],
) {
    for name in views {
        for archive in archives.iter().filter(|archive| archive.name == *name) {
            archive.section.warning(
                "",
                format!("a view is called {name} as well, so that `evenkeel lookup {name}` finds the view's rows and never the archive's; expected another name"),
            );
        }
    }
}

/// A source is known by being named, so a misspelt one is only suspicious: when nothing else names it, and something close exists.
fn likely_typos(
    catalog: &Catalog,
    tables: &[TableDraft<'_>],
    views: &[ViewDraft<'_>],
    archives: &[ArchiveDraft<'_>],
) {
    let uses = |table: &TableName| {
        tables.iter().filter(|other| other.name == *table).count()
            + views
                .iter()
                .flat_map(|view| [Some(&view.source), view.target()])
                .flatten()
                .filter(|other| *other == table)
                .count()
            + archives
                .iter()
                .flat_map(|archive| [Some(&archive.source), archive.table()])
                .flatten()
                .filter(|other| *other == table)
                .count()
    };
    let sources = views
        .iter()
        .map(|view| (&view.section, &view.source))
        .chain(
            archives
                .iter()
                .map(|archive| (&archive.section, &archive.source)),
        );
    for (section, source) in sources.filter(|(_, source)| uses(source) == 1) {
        let others = catalog
            .tables
            .keys()
            .filter(|other| *other != source && uses(other) > 1)
            .map(TableName::as_str);
        if let Some(known) = nearest(source.as_str(), others)
            .filter(|known| known.len().abs_diff(source.as_str().len()) <= 1)
        {
            section.warning(
                "source",
                format!("nothing else names the table {source}; did you mean {known:?}?"),
            );
        }
    }
}
