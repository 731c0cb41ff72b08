//! A dated table, under disturbance: the table is dropped when each of its rows is in exactly one file, and not
//! earlier.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_account::company::{CONTAINER, FOLDER};
use evenkeel_engine::{MemoryBudget, MemoryShare, MemoryUse, Outcome};
use evenkeel_model::catalog::{Catalog, Retention, TableArchive};
use evenkeel_model::dated::DatedTables;
use evenkeel_model::{AccountName, BlobName, ContainerName, Entity, EntityKey, Job, Key, ViewName};
use evenkeel_storage::{FilePlace, TableOperation, all_tables};
use serde_json::{Value, json};

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, job, table};

const TABLE: &str = "Logins20200101";
const ROWS: usize = 1_050;

fn lab(to: TableArchive) -> Lab {
    let name = ViewName::new("logins").unwrap();
    let retention = Retention {
        name: name.clone(),
        account: AccountName::main(),
        tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
        keep: Duration::from_hours(24),
        ahead: 1,
        archive_to: Some(to),
    };
    Lab::with(
        SMALL,
        Catalog {
            retentions: [(name, retention.into())].into(),
            ..Catalog::default()
        },
    )
}

fn blobs() -> TableArchive {
    TableArchive::Blob {
        account: AccountName::main(),
        container: ContainerName::new(CONTAINER).unwrap(),
    }
}

fn folder() -> TableArchive {
    TableArchive::File {
        dir: FOLDER.to_owned(),
    }
}

async fn filled(to: TableArchive) -> Lab {
    let lab = lab(to);
    lab.account
        .tables
        .create_table(&table(TABLE))
        .await
        .unwrap();
    let pk = Key::new("jun").unwrap();
    let rows: Vec<TableOperation> = (0..ROWS)
        .map(|n| {
            TableOperation::Insert(
                Entity::new(EntityKey::new("jun", format!("{n:05}")).unwrap())
                    .with("Ok", n % 2 == 0),
            )
        })
        .collect();
    for hundred in rows.chunks(100) {
        lab.account
            .tables
            .transact(&table(TABLE), &pk, hundred)
            .await
            .unwrap();
    }
    lab
}

fn drop_table(cursor: &Value) -> Job {
    job(&json!({"op": "drop_table", "table": TABLE, "cursor": cursor}))
}

async fn file(lab: &Lab, to: &TableArchive, name: &str) -> Option<Vec<u8>> {
    let name = BlobName::new(format!("{TABLE}/{name}")).unwrap();
    match to {
        TableArchive::Blob { container, .. } => lab
            .account
            .blobs
            .get(container, &name, None)
            .await
            .unwrap()
            .map(|blob| blob.content.to_vec()),
        TableArchive::File { dir } => lab
            .sim
            .files()
            .read(&FilePlace {
                dir: dir.clone(),
                name,
            })
            .await
            .unwrap()
            .map(|file| file.content.to_vec()),
    }
}

async fn files(lab: &Lab, to: &TableArchive, run: &str, story: &str) -> (Vec<Vec<Value>>, u64) {
    let complete = file(lab, to, &format!("{run}/complete.json"))
        .await
        .unwrap_or_else(|| panic!("{story}: {run} is not complete"));
    let complete: Value = serde_json::from_slice(&complete).unwrap();
    assert_eq!(complete["table"], TABLE, "{story}");
    let mut files = Vec::new();
    for number in 1..=complete["files"].as_u64().unwrap() {
        let content = file(lab, to, &format!("{run}/{number:06}.jsonl"))
            .await
            .unwrap_or_else(|| panic!("{story}: no file {number}"));
        files.push(
            String::from_utf8(content)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        );
    }
    (files, complete["rows"].as_u64().unwrap())
}

fn rows() -> BTreeMap<String, Value> {
    (0..ROWS)
        .map(|n| (format!("{n:05}"), json!(n % 2 == 0)))
        .collect()
}

fn found(files: Vec<Vec<Value>>, story: &str) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for row in files.into_iter().flatten() {
        let before = found.insert(
            row["RowKey"].as_str().unwrap().to_owned(),
            row["Ok"].clone(),
        );
        assert_eq!(before, None, "{story}: {row} is in two files");
    }
    found
}

/// Checks that the table is gone, and that its files contain each row exactly once.
async fn archived(lab: &Lab, to: &TableArchive, story: &str) {
    lab.faults.calm();
    lab.sim.settle();
    assert!(
        !all_tables(lab.account.tables.as_ref())
            .await
            .unwrap()
            .contains(&table(TABLE)),
        "{story}: the table still exists"
    );
    let claimed: Value = serde_json::from_slice(
        &file(lab, to, "archiving.json")
            .await
            .expect("another delivery was active"),
    )
    .unwrap();
    assert_eq!(claimed["ended"], true, "{story}");
    let (files, counted) = files(lab, to, claimed["run"].as_str().unwrap(), story).await;
    assert_eq!(
        (found(files, story), counted),
        (rows(), ROWS as u64),
        "{story}"
    );
}

#[tokio::test]
async fn a_table_is_dropped_when_every_row_of_it_is_in_a_file_whatever_fails() {
    let mut runs = 0;
    for to in [blobs(), folder()] {
        let lab = filled(to.clone()).await;
        lab.faults.arm(u64::MAX, Disturbance::Crash);
        lab.deliver(&drop_table(&json!({})), 1)
            .await
            .unwrap()
            .unwrap();
        let operations = lab.faults.counted();
        archived(&lab, &to, "undisturbed").await;
        let mut sweep = Sweep::over(operations);
        while let Some(case) = sweep.next() {
            let lab = filled(to.clone()).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&drop_table(&json!({}))).await;
            sweep.seen(&lab);
            archived(&lab, &to, &case.to_string()).await;
        }
        runs += sweep.runs().0;
    }
    assert!(runs > 100, "only {runs} runs");
}

#[tokio::test]
async fn what_takes_longer_goes_on_where_it_stopped() {
    for at in 1..20 {
        let (to, mut cursor, mut deliveries) = (blobs(), json!({}), 0);
        let lab = filled(to.clone()).await;
        lab.faults.arm(at, Disturbance::Meddle);
        let clock = lab.clone();
        lab.faults
            .meddle(Box::pin(async move { clock.wait(Duration::from_secs(11)) }));
        while let Some(Outcome::Advanced { fields, .. }) =
            lab.deliver_until_done(&drop_table(&cursor)).await
        {
            cursor = fields["cursor"].clone();
            deliveries += 1;
        }
        assert!(deliveries <= 1, "at most one more");
        archived(
            &lab,
            &to,
            &format!("long at operation {at}, {deliveries} parts"),
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_archived_waits_for_the_memory_that_it_takes() {
    let most = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&most);
    let listener = move |share, used: MemoryUse| {
        assert!(used.held <= used.bytes, "{share:?}: {used:?}");
        if share == MemoryShare::Values {
            seen.fetch_max(used.held, Ordering::SeqCst);
        }
    };
    let memory = Arc::new(MemoryBudget::with_listener(64 << 20, Box::new(listener)));
    let (to, job) = (blobs(), drop_table(&json!({})));
    let lab = filled(to.clone()).await.within(Arc::clone(&memory));
    let others = memory.take(MemoryShare::Values, 1).await;
    let mut archiving = Box::pin(lab.deliver(&job, 1));
    assert!(
        tokio::time::timeout(Duration::from_mins(1), &mut archiving)
            .await
            .is_err(),
        "the delivery must wait"
    );
    assert!(
        file(&lab, &to, "archiving.json").await.is_none(),
        "the delivery must not begin an archive"
    );
    drop(others);
    archiving.await.unwrap().unwrap();
    archived(&lab, &to, "after a wait").await;
    assert_eq!(
        (
            most.load(Ordering::SeqCst),
            memory.used(MemoryShare::Values).held
        ),
        (24 << 20, 0)
    );
}

async fn operations_with_short_pages() -> u64 {
    let lab = filled(blobs()).await;
    lab.faults.shorten_pages(Some(170));
    lab.operations_of(&drop_table(&json!({}))).await
}

/// A delivery that reads pages of 170 rows waits before one of its operations, until a second delivery with full pages
/// has ended.
async fn delivered_twice(lab: &Lab, at: u64, before: impl Future<Output = ()> + Send + 'static) {
    lab.faults.shorten_pages(Some(170));
    lab.faults.arm(at, Disturbance::Meddle);
    let other = lab.of_another_worker();
    lab.faults.meddle(Box::pin(async move {
        before.await;
        other.faults.shorten_pages(None);
        other
            .deliver(&drop_table(&json!({})), 2)
            .await
            .unwrap()
            .unwrap();
    }));
    lab.deliver_until_done(&drop_table(&json!({}))).await;
}

#[tokio::test]
async fn two_deliveries_whose_pages_differ_in_length_leave_every_row_in_a_file() {
    let operations = operations_with_short_pages().await;
    for (to, at) in [blobs(), folder()]
        .iter()
        .flat_map(|to| (1..=operations).map(move |at| (to, at)))
    {
        let lab = filled(to.clone()).await;
        delivered_twice(&lab, at, async {}).await;
        archived(
            &lab,
            to,
            &format!("{to:?}: the other delivery at operation {at}"),
        )
        .await;
    }
}

#[tokio::test]
async fn a_row_that_is_written_or_deleted_between_two_deliveries_takes_no_other_row_along() {
    for at in 1..=operations_with_short_pages().await {
        for inserted in [true, false] {
            let story = format!(
                "{} at operation {at}",
                if inserted { "written" } else { "deleted" }
            );
            let lab = filled(blobs()).await;
            let client = lab.clone();
            let change = async move {
                if inserted {
                    let row =
                        Entity::new(EntityKey::new("jun", "00500x").unwrap()).with("Ok", true);
                    drop(
                        client
                            .account
                            .tables
                            .apply(&table(TABLE), &TableOperation::Insert(row))
                            .await,
                    );
                } else {
                    client.delete_row(TABLE, "jun", "00500").await;
                }
            };
            delivered_twice(&lab, at, change).await;
            assert!(
                !all_tables(lab.account.tables.as_ref())
                    .await
                    .unwrap()
                    .contains(&table(TABLE)),
                "{story}: the table still exists"
            );
            let mut wanted = rows();
            if !inserted {
                wanted.remove("00500");
            }
            let mut kept = false;
            for run in complete(&lab).await.keys() {
                let found = found(files(&lab, &blobs(), run, &story).await.0, &story);
                kept |= wanted
                    .iter()
                    .all(|(key, value)| found.get(key) == Some(value));
            }
            assert!(kept, "{story}: no folder has all rows");
        }
    }
}

#[tokio::test]
async fn files_of_large_rows_end_at_the_same_rows_however_long_pages_are() {
    for page in [None, Some(4), Some(7)] {
        let lab = lab(blobs());
        lab.account
            .tables
            .create_table(&table(TABLE))
            .await
            .unwrap();
        for n in 0..40 {
            let row = Entity::new(EntityKey::new("jun", format!("{n:05}")).unwrap());
            let row = (0..16).fold(row, |row, n| {
                row.with(format!("Text{n}"), "x".repeat(30_000))
            });
            lab.account
                .tables
                .apply(&table(TABLE), &TableOperation::Insert(row))
                .await
                .unwrap();
        }
        lab.faults.shorten_pages(page);
        lab.deliver(&drop_table(&json!({})), 1)
            .await
            .unwrap()
            .unwrap();
        let complete = complete(&lab).await;
        let (run, _) = complete.first_key_value().expect("a complete folder");
        let (files, _) = files(&lab, &blobs(), run, "large rows").await;
        // A file ends with the row that makes it exceed 8 MiB. With 480,000 bytes per row this is the 18th row.
        assert_eq!(
            files.iter().map(Vec::len).collect::<Vec<_>>(),
            [18, 18, 4],
            "pages of {page:?}"
        );
    }
}

#[tokio::test]
async fn a_second_job_leaves_the_table_to_the_first_until_that_is_silent() {
    let to = blobs();
    let lab = filled(to.clone()).await;
    lab.faults.arm(9, Disturbance::Crash);
    assert!(
        lab.deliver(&drop_table(&json!({})), 1).await.is_none(),
        "it crashes half-way"
    );
    lab.faults.calm();
    let second = lab.work(&drop_table(&json!({}))).await.unwrap();
    assert!(
        matches!(&second, Outcome::Skipped { reason, .. } if reason.contains("another job is archiving")),
        "{second:?}"
    );
    assert!(
        all_tables(lab.account.tables.as_ref())
            .await
            .unwrap()
            .contains(&table(TABLE))
    );
    lab.wait(Duration::from_hours(2));
    assert!(matches!(
        lab.work(&drop_table(&json!({}))).await.unwrap(),
        Outcome::Done(_)
    ));
    archived(&lab, &to, "taken over").await;
    let late = lab
        .deliver(&drop_table(&json!({})), 2)
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(late, Outcome::Skipped { .. }), "{late:?}");
}

/// The progress that a first delivery stores in its message when it exceeds its time slice.
async fn begun(lab: &Lab) -> Value {
    lab.faults.arm(9, Disturbance::Meddle);
    let clock = lab.clone();
    lab.faults
        .meddle(Box::pin(async move { clock.wait(Duration::from_secs(11)) }));
    let Some(Outcome::Advanced { fields, .. }) =
        lab.deliver_until_done(&drop_table(&json!({}))).await
    else {
        panic!("it came to its end at once")
    };
    lab.faults.calm();
    fields["cursor"].clone()
}

#[tokio::test]
async fn a_cursor_that_no_worker_wrote_into_the_message_counts_for_nothing() {
    let to = blobs();
    let forged = json!({"next_pk": "zzzz", "next_rk": "z", "files": 1, "rows": 5});
    let mut signed_again = begun(&filled(to.clone()).await).await;
    signed_again["next_pk"] = json!("zzzz");
    for cursor in [forged, signed_again] {
        let lab = filled(to.clone()).await;
        lab.deliver_until_done(&drop_table(&cursor)).await;
        archived(&lab, &to, &format!("a foreign cursor: {cursor}")).await;
    }
    // The cursor was written by a worker, but into another message, as happens after a requeue.
    let lab = filled(to.clone()).await;
    let cursor = begun(&lab).await;
    lab.wait(Duration::from_hours(2));
    assert!(matches!(
        lab.work(&drop_table(&cursor)).await.unwrap(),
        Outcome::Done(_)
    ));
    archived(&lab, &to, "a cursor of another message").await;
}

#[tokio::test]
async fn an_archive_that_lost_a_file_is_begun_anew_before_its_table_is_dropped() {
    let to = blobs();
    let lab = filled(to.clone()).await;
    let cursor = begun(&lab).await;
    assert_eq!(cursor["files"], 1, "a file was written");
    let TableArchive::Blob { container, .. } = &to else {
        unreachable!("it is one")
    };
    let lost = lab
        .account
        .blobs
        .list(container, TABLE, None)
        .await
        .unwrap()
        .blobs;
    let lost = lost
        .iter()
        .find(|blob| blob.name.as_str().ends_with("000001.jsonl"))
        .unwrap();
    lab.account
        .blobs
        .delete(container, &lost.name, Some(&lost.etag))
        .await
        .unwrap();
    let Some(Outcome::Advanced { fields, .. }) = lab.deliver_until_done(&drop_table(&cursor)).await
    else {
        panic!("the folder must not be complete")
    };
    lab.deliver_until_done(&drop_table(&fields["cursor"])).await;
    archived(&lab, &to, "a file was lost").await;
}

/// The number of rows in each folder that is marked as complete.
async fn complete(lab: &Lab) -> BTreeMap<String, u64> {
    let container = ContainerName::new(CONTAINER).unwrap();
    let mut rows = BTreeMap::new();
    for blob in lab
        .account
        .blobs
        .list(&container, TABLE, None)
        .await
        .unwrap()
        .blobs
    {
        let name = blob
            .name
            .as_str()
            .strip_prefix(&format!("{TABLE}/"))
            .unwrap();
        let Some((run, "complete.json")) = name.split_once('/') else {
            continue;
        };
        let (files, counted) = files(lab, &blobs(), run, "complete").await;
        let lines = files.iter().map(Vec::len).sum::<usize>() as u64;
        assert_eq!(counted, lines, "{run}");
        rows.insert(run.to_owned(), lines);
    }
    rows
}

#[tokio::test]
async fn what_is_archived_stays_when_the_table_is_created_anew_before_its_job_comes_again() {
    for rows in [0, 1] {
        let lab = filled(blobs()).await;
        lab.deliver(&drop_table(&json!({})), 1)
            .await
            .unwrap()
            .unwrap();
        // The table is created again, by an application or by a worker whose clock is behind.
        lab.account
            .tables
            .create_table(&table(TABLE))
            .await
            .unwrap();
        for n in 0..rows {
            let row = Entity::new(EntityKey::new("late", n.to_string()).unwrap()).with("Ok", true);
            lab.account
                .tables
                .apply(&table(TABLE), &TableOperation::Insert(row))
                .await
                .unwrap();
        }
        for dequeue_count in 2..4 {
            lab.deliver(&drop_table(&json!({})), dequeue_count)
                .await
                .unwrap()
                .unwrap();
            assert!(
                !all_tables(lab.account.tables.as_ref())
                    .await
                    .unwrap()
                    .contains(&table(TABLE)),
                "{rows} rows: not dropped"
            );
            let mut kept: Vec<u64> = complete(&lab).await.into_values().collect();
            kept.sort_unstable();
            assert_eq!(
                kept,
                [rows, ROWS as u64],
                "{rows} rows: delivery {dequeue_count}"
            );
        }
    }
}

#[tokio::test]
async fn a_table_that_could_not_be_dropped_is_not_archived_twice() {
    let lab = filled(blobs()).await;
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    lab.deliver(&drop_table(&json!({})), 1)
        .await
        .unwrap()
        .unwrap();
    let operations = lab.faults.counted();
    for last in 0..4 {
        let lab = filled(blobs()).await;
        lab.faults.arm(operations - last, Disturbance::Crash);
        lab.deliver_until_done(&drop_table(&json!({}))).await;
        archived(&lab, &blobs(), "it was not dropped at first").await;
        assert_eq!(
            complete(&lab).await.into_values().collect::<Vec<_>>(),
            [ROWS as u64],
            "operation {}",
            operations - last
        );
    }
}

/// The worker of the first job is killed before one of the job's last four operations, and the job is not delivered
/// again.
#[tokio::test]
async fn a_second_job_for_a_table_that_was_archived_and_not_dropped_makes_no_second_archive() {
    let operations = filled(blobs())
        .await
        .operations_of(&drop_table(&json!({})))
        .await;
    for (to, last) in [blobs(), folder()]
        .iter()
        .flat_map(|to| (0..4).map(move |last| (to, last)))
    {
        let story = format!("{to:?}: killed at operation {}", operations - last);
        let lab = filled(to.clone()).await;
        lab.faults.arm(operations - last, Disturbance::Crash);
        assert!(
            lab.deliver(&drop_table(&json!({})), 1).await.is_none(),
            "{story}"
        );
        lab.faults.calm();
        lab.wait(Duration::from_hours(2));
        assert!(
            matches!(
                lab.work(&drop_table(&json!({}))).await.unwrap(),
                Outcome::Done(_)
            ),
            "{story}"
        );
        archived(&lab, to, &story).await;
        if *to == blobs() {
            assert_eq!(
                complete(&lab).await.into_values().collect::<Vec<_>>(),
                [ROWS as u64],
                "{story}"
            );
        }
    }
}

#[tokio::test]
async fn a_table_that_is_found_missing_is_not_dropped_unread() {
    let lab = lab(blobs());
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    assert!(matches!(
        lab.deliver(&drop_table(&json!({})), 1)
            .await
            .unwrap()
            .unwrap(),
        Outcome::Skipped { .. }
    ));
    assert_eq!(
        lab.faults.total("Delete Table"),
        0,
        "a table that is created now has rows that are in no file"
    );
}

#[tokio::test]
async fn a_table_is_dropped_by_the_queue_services_time_and_not_before() {
    let lab = lab(blobs());
    let delivery = lab.delivery();
    let tables = DatedTables::parse("Logins%Y%m%d").unwrap();
    let today = tables.name_at(delivery.stamp.enqueued);
    lab.account.tables.create_table(&today).await.unwrap();
    let drop = |name: &str| job(&json!({"op": "drop_table", "table": name}));
    // A worker whose clock is months ahead has queued this job.
    lab.wait(Duration::from_hours(24 * 90));
    let failure = lab
        .deliver(&drop(today.as_str()), 1)
        .await
        .unwrap()
        .unwrap_err();
    assert!(
        failure.chain().contains("must be kept until"),
        "{}",
        failure.chain()
    );
    assert_eq!(failure.class, evenkeel_engine::FailureClass::Permanent);
    assert!(
        all_tables(lab.account.tables.as_ref())
            .await
            .unwrap()
            .contains(&today)
    );
    // The retention time has passed by the clock of the queue service, so the next message is accepted.
    assert!(matches!(
        lab.work(&drop(today.as_str())).await.unwrap(),
        Outcome::Done(_)
    ));
    assert!(
        !all_tables(lab.account.tables.as_ref())
            .await
            .unwrap()
            .contains(&today)
    );
}

#[tokio::test]
async fn figures_that_no_audit_found_are_not_recorded() {
    let lab = Lab::new();
    lab.write(crate::protocol::world::employee(
        "1",
        "ada@contoso.com",
        "Lovelace",
    ))
    .await;
    lab.work(&crate::protocol::world::sync("Sales", "1"))
        .await
        .unwrap();
    let forged = json!({"op": "audit", "table": "Employees", "cursor": {"primaries": 99_999, "drift": {"by_email": 77_777}}});
    lab.work(&job(&forged)).await.unwrap();
    let recorded = format!("{:?}", lab.rows("EvenkeelAudits").await);
    assert!(
        recorded.contains("Primaries")
            && !recorded.contains("99999")
            && !recorded.contains("77777"),
        "{recorded}"
    );
}
