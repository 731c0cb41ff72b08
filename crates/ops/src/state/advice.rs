//! Advice for partitions and queues with too many requests. Pure.

use evenkeel_engine::footprint;
use evenkeel_model::catalog::{Catalog, DatedRef, Form, Members, RowForm, View};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, TableName, ViewName};

/// Maximum number of entities per second that each bucket should get: half of the target of a partition.
const ROOM: f64 = 1_000.0;

/// Returns the change that is advised for a partition or queue. `peak` is in entities per second for a partition, and
/// in messages per second for a queue.
pub(super) fn advice(
    catalog: &Catalog,
    account: &AccountName,
    name: &str,
    partition: Option<&str>,
    peak: f64,
) -> String {
    let Some(partition) = partition else {
        let shards = buckets(peak);
        return format!(
            "Spread the jobs over more queues: set shards = {shards} under [[queues]], and let senders choose the shard by key."
        );
    };
    if name.starts_with(footprint::FOOTPRINTS) {
        let source = partition.split('~').next().unwrap_or_default();
        return format!(
            "These are the footprints of one partition of {source}. More partition keys in {source} would spread them, too."
        );
    }
    let of_one = catalog
        .views
        .values()
        .filter_map(|view| Some((&view.name, partition_key(view, account, name)?)));
    let of_dated = catalog
        .dated_views
        .values()
        .filter_map(|view| Some((&view.name, partition_key_by_date(view, account, name)?)));
    let targets: Vec<(&ViewName, &Template)> = of_one.chain(of_dated).collect();
    let near = catalog.views.values().find(|view| {
        let there = view.source.account == *account
            && view.source.table.as_str().eq_ignore_ascii_case(name);
        there && lists_beside_its_source(view)
    });
    let near = near.map(|view| view.name.as_str());
    match targets.as_slice() {
        [] if near.is_some() => format!(
            "The lists of view {} are in this partition, and each change of a member writes to it. With store = \"table\" they get partitions of their own.",
            near.unwrap_or_default()
        ),
        [] => "No view writes these entities: they are those of your application. Spread them over more partition keys, for example with a hash of the row key as prefix. Ascending keys (dates, counters) all go to the last partition.".to_owned(),
        [(view, key)] => {
            let buckets = buckets(peak);
            format!(
                "View {view} writes its items to this partition with partition_key = \"{key}\". Add a bucket, for example \"{key}_{{RowKey|bucket:{buckets}}}\". A lookup then reads {buckets} partitions in parallel."
            )
        }
        several => {
            let names: Vec<&str> = several.iter().map(|(view, _)| view.as_str()).collect();
            format!("Views {} write items to this table. Give the busiest of these views a table of its own, or add a bucket to its partition_key.", names.join(", "))
        }
    }
}

/// Whether the view has lists in its source table, so that a change of a primary also writes to a list in the partition
/// of that primary.
fn lists_beside_its_source(view: &View) -> bool {
    match view.form() {
        Form::Lists {
            rows,
            members: Members::Rendered { .. },
        } => rows.target.has(&view.source),
        Form::Lists {
            members: Members::Contributions(_),
            ..
        }
        | Form::Copies { .. }
        | Form::BlobLists(_)
        | Form::Values(_)
        | Form::Properties { .. }
        | Form::RangeOverlays(_)
        | Form::Documents(_) => false,
    }
}

/// Returns the PartitionKey template of a view that writes to this table.
fn partition_key<'v>(view: &'v View, account: &AccountName, name: &str) -> Option<&'v Template> {
    let RowForm {
        target,
        partition_key,
        ..
    } = view.rows()?;
    let there = target.accounts.has(account)
        && target.table.as_str().eq_ignore_ascii_case(name)
        && !target.has(&view.source);
    there.then_some(partition_key)
}

/// Like [`partition_key`], for dated tables.
fn partition_key_by_date<'v>(
    view: &'v View<DatedRef>,
    account: &AccountName,
    name: &str,
) -> Option<&'v Template> {
    let RowForm {
        target,
        partition_key,
        ..
    } = view.rows()?;
    let name = TableName::new(name).ok()?;
    let there = target.account == *account
        && target.tables.period(&name).is_some()
        && *target != view.source;
    there.then_some(partition_key)
}

/// Returns the smallest number of buckets with which no bucket gets more than `ROOM` entities per second: a power of
/// two from 2 to 256.
pub fn buckets(peak: f64) -> u32 {
    let mut buckets = 2;
    while f64::from(buckets) * ROOM < peak && buckets < 256 {
        buckets *= 2;
    }
    buckets
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use evenkeel_model::catalog::{OnConflict, SecondaryIndex, TableRef, ViewKind};

    fn catalog() -> Catalog {
        let table = |name: &str| TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        };
        let template = |text: &str| Template::parse(text).unwrap();
        let index = SecondaryIndex {
            target: table("Managers").into(),
            partition_key: template("manager"),
            row_key: template("{RowKey}"),
            select: None,
        };
        let name = ViewName::new("managers").unwrap();
        let view = View {
            name: name.clone(),
            source: table("Employees"),
            when: None,
            kind: ViewKind::SecondaryIndex(index),
            on_conflict: OnConflict::Reject,
        };
        let mut catalog = Catalog::default();
        catalog.views.insert(name, Arc::new(view));
        catalog
    }

    #[test]
    fn advice_names_the_change_of_the_key() {
        let of = |name: &str, partition: Option<&str>, peak| {
            advice(&catalog(), &AccountName::main(), name, partition, peak)
        };
        let view = of("Managers", Some("manager"), 3_500.0);
        assert!(
            view.contains("partition_key = \"manager\"")
                && view.contains("\"manager_{RowKey|bucket:4}\""),
            "{view}"
        );
        assert!(of("Employees", Some("Sales"), 3_500.0).contains("those of your application"));
        assert!(
            of("EvenkeelFootprints", Some("Employees~Sales"), 3_500.0)
                .contains("footprints of one partition of Employees")
        );
        assert!(of("jobs", None, 9_000.0).contains("shards = 16"));
    }
}
