//! The primaries that a job concerns.

use std::sync::Arc;

use evenkeel_model::Job;
use evenkeel_model::catalog::{Archive, Catalog};
use evenkeel_model::job::{JobSubject, Primary};

/// The primary that a job concerns, with its table spelled as declared. `None` if the catalog does not have the table,
/// or if the job concerns many primaries.
fn primary_of(catalog: &Catalog, job: &Job) -> Option<Primary> {
    let (table, key) = match job.operation().subject() {
        JobSubject::Primary(table, key) => (table, key),
        JobSubject::Moved(from, _) => (&from.table, &from.key),
        JobSubject::Archived(archive, key) | JobSubject::Restored(archive, key) => {
            (&catalog.archives.get(archive)?.source.table, key)
        }
        JobSubject::Table(_)
        | JobSubject::View(_)
        | JobSubject::Source(_)
        | JobSubject::Range(_)
        | JobSubject::DatedTable(_) => {
            return None;
        }
    };
    Some(Primary {
        table: catalog.table(table)?.table.clone(),
        key: key.clone(),
    })
}

/// Lists the primary that a job concerns. If the table of a listed primary is the target of an archive, the next
/// primary of the list has the same key in the source table of that archive.
pub(crate) fn forms_of(catalog: &Catalog, job: &Job) -> Vec<Primary> {
    let mut forms: Vec<Primary> = primary_of(catalog, job).into_iter().collect();
    while let Some(last) = forms.last() {
        let of_its_table = |archive: &&Arc<Archive>| {
            archive
                .target
                .table()
                .is_some_and(|table| table.table == last.table)
        };
        let Some(archive) = catalog.archives.values().find(of_its_table) else {
            break;
        };
        let source = Primary {
            table: archive.source.table.clone(),
            key: last.key.clone(),
        };
        if forms.contains(&source) {
            break;
        }
        forms.push(source);
    }
    forms
}

/// The primaries that a job writes or syncs, with their tables spelled as declared. Empty if the job concerns a table,
/// a view or a range.
pub(crate) fn primaries_of(catalog: &Catalog, job: &Job) -> Vec<Primary> {
    let Some(source) = primary_of(catalog, job) else {
        return Vec::new();
    };
    let kept = match job.operation().subject() {
        JobSubject::Archived(archive, key) | JobSubject::Restored(archive, key) => {
            let archived = catalog
                .archived_values_of(archive)
                .map(|archived| &archived.table);
            let target = archived.or_else(|| catalog.archives.get(archive)?.target.table());
            target.map(|target| Primary {
                table: target.table.clone(),
                key: key.clone(),
            })
        }
        JobSubject::Moved(_, to) => Some(to.clone()),
        JobSubject::Primary(..)
        | JobSubject::Table(_)
        | JobSubject::View(_)
        | JobSubject::Source(_)
        | JobSubject::Range(_)
        | JobSubject::DatedTable(_) => None,
    };
    [Some(source), kept].into_iter().flatten().collect()
}
