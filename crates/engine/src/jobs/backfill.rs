//! `backfill`: syncs every primary of a table, and reads each of its items.
//!
//! ```text
//!   the rows of the table      ─▶ a pass over each primary, which reads every item that its footprint lists
//!   the table's footprints     ─▶ a pass for each footprint that has no primary
//! ```
//!
//! A backfill runs the same passes as a `sync` of each primary, so it may be repeated or interrupted, and may run while
//! workers and clients write. It continues from the cursor in its message: a part takes about ten seconds, then the
//! message is released with the new cursor. A primary that fails permanently does not stop the others. A `sync` job of
//! that primary is queued, and ends in the poison queue with the reason.
//!
//! No job is queued if all taken keys of a primary belong to rows or blobs that evenkeel did not write. These keys are
//! counted and reported at the end, with one example per view, because a thousand poison messages would report nothing
//! more. If another primary holds a key, a job is queued, so that each primary without its key gets a poison message.
//!
//! A backfill does not find derived rows that no footprint lists. Only a manual write can create such rows.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::{Map, json};

use crate::env::waiting::RunSummary;
use crate::env::{Env, Unknown};
use crate::execute::{Action, Delivery, Failure, FailureClass, Outcome, Summary};
use crate::failure::{is_lost_race, permanent};
use crate::jobs::RunJob;
use crate::jobs::audit_records;
use crate::jobs::context::JobContext;
use crate::jobs::dated;
use crate::jobs::walk::{AT_ONCE, PrimaryPage, Walk};
use crate::protocol::conflicts::KeysTaken;
use crate::protocol::observe::ReadAhead;
use crate::protocol::queueing::queue_syncs;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::PassOptions;
use evenkeel_model::EntityKey;
use evenkeel_model::backfill::{Backfill, BackfillCursor, BackfillPart, BackfillScope, TakenKeys};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{ItemReads, Primary};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillPass {
    pub cursor: BackfillCursor,
    pub ended: bool,
    pub summary: Summary,
}

/// Syncs the primaries after the cursor, for about ten seconds or to the end of the table. `None` if the table has no
/// views.
pub(crate) async fn backfill(
    cx: &JobContext,
    backfill: &Backfill,
    delivery: &Delivery,
) -> Result<Option<BackfillPass>, Failure> {
    let source = source(&cx.env, &backfill.scope)?;
    if !cx.env.catalog.derives_from(source) {
        return Ok(None);
    }
    match part(
        &Walk {
            cx,
            source,
            delivery,
        },
        backfill.cursor.clone(),
    )
    .await
    {
        Ok(pass) => Ok(Some(pass)),
        Err(failure) => Err(dated::explained(&cx.env, &source.table, failure).await),
    }
}

/// Corrects the results of earlier audits after a complete backfill.
pub(crate) async fn backfilled(
    env: &Env,
    backfill: &Backfill,
    cursor: &BackfillCursor,
    delivery: &Delivery,
) -> Result<(), Failure> {
    audit_records::subtract_repaired(
        env,
        source(env, &backfill.scope)?,
        cursor,
        delivery.stamp.enqueued,
    )
    .await
}

impl RunJob for Backfill {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        Ok(match backfill(cx, self, delivery).await? {
            None => Outcome::Skipped {
                reason: format!("nothing is derived from {}", self.scope),
                summary: Summary::default(),
            },
            Some(BackfillPass {
                ended: true,
                summary,
                cursor,
            }) => {
                backfilled(&cx.env, self, &cursor, delivery).await?;
                for (view, TakenKeys { items, example }) in &cursor.taken {
                    tracing::warn!(
                        view,
                        items,
                        example,
                        "could not write {items} items of view {view}: rows that evenkeel did not write have their keys; `evenkeel audit` lists them"
                    );
                }
                Outcome::Done(summary)
            }
            Some(BackfillPass {
                cursor, summary, ..
            }) => Outcome::Advanced {
                fields: Map::from_iter([("cursor".to_owned(), json!(cursor))]),
                summary,
            },
        })
    }
}

async fn part(walk: &Walk<'_>, mut cursor: BackfillCursor) -> Result<BackfillPass, Failure> {
    let began = walk.cx.env.clock.monotonic();
    let mut summary = RunSummary::default();
    loop {
        let from = (cursor.next_pk.take(), cursor.next_rk.take());
        let PrimaryPage { keys, ahead, next } = match cursor.part {
            BackfillPart::Primaries => walk.existing(&from).await?,
            BackfillPart::Footprints => walk.gone(&from).await?,
        };
        bring_in_step(walk, keys, ahead, &mut cursor, &mut summary.0).await?;
        let ended = next.0.is_none();
        (cursor.next_pk, cursor.next_rk) = next;
        match cursor.part {
            BackfillPart::Footprints if ended => {
                return Ok(BackfillPass {
                    cursor,
                    ended,
                    summary: summary.take(),
                });
            }
            BackfillPart::Primaries if ended => cursor.part = BackfillPart::Footprints,
            BackfillPart::Primaries | BackfillPart::Footprints => {}
        }
        if walk.cx.env.clock.monotonic().saturating_sub(began) >= walk.cx.part {
            return Ok(BackfillPass {
                cursor,
                ended: false,
                summary: summary.take(),
            });
        }
    }
}

fn source<'e>(env: &'e Env, scope: &BackfillScope) -> Result<&'e TableRef, Failure> {
    match scope {
        BackfillScope::Table(table) => env.table(table),
        BackfillScope::View(name) => {
            let catalog = &env.catalog;
            if let Some(view) = catalog.dated_views.get(name) {
                let unknown = Unknown::WhichTable {
                    view: name.clone(),
                    tables: view.source.tables.to_string(),
                };
                return Err(permanent("finding the table", unknown));
            }
            let view = catalog.views.get(name);
            view.map(|view| &view.source)
                .ok_or_else(|| permanent("finding the view", Unknown::view(catalog, name)))
        }
    }
}

async fn bring_in_step(
    walk: &Walk<'_>,
    keys: Vec<EntityKey>,
    mut ahead: BTreeMap<EntityKey, ReadAhead>,
    cursor: &mut BackfillCursor,
    summary: &mut Summary,
) -> Result<(), Failure> {
    let passes: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let ahead = ahead.remove(&key);
            pass(walk, key, ahead)
        })
        .collect();
    let mut passes = stream::iter(passes).buffer_unordered(AT_ONCE);
    let (mut slower, mut failed) = (Vec::new(), BTreeSet::new());
    while let Some((primary, ended)) = passes.next().await {
        match ended {
            Err(failure) if is_lost_race(&failure) => {
                slower.push(primary.key);
            }
            ended => count(primary, ended, cursor, summary, &mut failed)?,
        }
    }
    // If many primaries need the same key, or parts of the same row, their concurrent passes lose races against each
    // other. Primaries whose passes gave up for this reason are synced again, one by one.
    for key in slower {
        let (primary, ended) = pass(walk, key, None).await;
        count(primary, ended, cursor, summary, &mut failed)?;
    }
    queue_syncs(&walk.cx.env, &failed, ItemReads::All, walk.delivery).await
}

/// If a pass failed because of taken keys, returns these keys. `None` if evenkeel wrote any of the rows or blobs that
/// hold the keys.
fn foreign_keys(failure: &Failure) -> Option<&KeysTaken> {
    failure
        .cause
        .downcast_ref::<KeysTaken>()
        .filter(|taken| taken.are_foreign())
}

/// Counts the result of a pass. A primary that failed permanently is added to `failed`, unless foreign rows or blobs
/// hold all of its taken keys.
fn count(
    primary: Primary,
    ended: Result<Summary, Failure>,
    cursor: &mut BackfillCursor,
    summary: &mut Summary,
    failed: &mut BTreeSet<Primary>,
) -> Result<(), Failure> {
    match ended {
        Ok(done) => {
            cursor.done += 1;
            for change in &done.changes {
                match change.action {
                    Action::Create => cursor.created += 1,
                    Action::Update => cursor.updated += 1,
                    Action::Delete => cursor.deleted += 1,
                }
            }
            summary.add(done);
        }
        Err(failure) if failure.class != FailureClass::Permanent => return Err(failure),
        Err(failure) => {
            if let Some(taken) = foreign_keys(&failure) {
                taken
                    .each()
                    .for_each(|(view, what)| cursor.count_taken(view, &what));
            } else {
                cursor.failed += 1;
                tracing::warn!(%primary, error = failure.chain(), "could not sync {primary}; its sync job is queued");
                failed.insert(primary);
            }
        }
    }
    Ok(())
}

fn pass<'w>(
    walk: &'w Walk<'_>,
    key: EntityKey,
    ahead: Option<ReadAhead>,
) -> BoxFuture<'w, (Primary, Result<Summary, Failure>)> {
    let primary = walk.primary(key);
    let options = PassOptions {
        reads: ItemReads::All,
        ahead,
        ..PassOptions::default()
    };
    let reconciler = Reconciler::new(
        &walk.cx.env,
        walk.source,
        primary.clone(),
        Some(walk.delivery),
        options,
    );
    Box::pin(async move { (primary, reconciler.reconcile().await) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::*;
    use crate::{Engine, EngineParts, Waits, exclude_from_timeout, footprint};
    use evenkeel_account::company::{Shape, TABLES, catalog, queue, table};
    use evenkeel_account::{FaultDecision, FaultPolicy, NoFaults, OperationInfo, SimWorld};
    use evenkeel_model::audit::{Audit, AuditCursor};
    use evenkeel_model::job::Stamp;
    use evenkeel_model::{AccountName, Entity, ViewName};
    use evenkeel_storage::system::{SeededRng, SystemClock};
    use evenkeel_storage::{Clock, ErrorClass, Rng as _, Stores, TableOperation};

    struct SlowRequests(SeededRng);

    #[async_trait]
    impl FaultPolicy for SlowRequests {
        async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
            tokio::time::sleep(Duration::from_secs_f64(self.0.between(0.01, 1.0))).await;
            FaultDecision::Execute
        }
    }

    struct NoFootprints;

    #[async_trait]
    impl FaultPolicy for NoFootprints {
        async fn before(&self, operation: &OperationInfo) -> FaultDecision {
            let fails = operation.name == "Query Entities"
                && format!("{:?}", operation.what).contains("EvenkeelFootprints");
            if fails {
                FaultDecision::Fail(ErrorClass::Transient { retry_after: None })
            } else {
                FaultDecision::Execute
            }
        }
    }

    #[derive(Default)]
    struct RequestCounter {
        all: AtomicUsize,
        reads: AtomicUsize,
    }

    #[async_trait]
    impl FaultPolicy for RequestCounter {
        async fn before(&self, operation: &OperationInfo) -> FaultDecision {
            self.all.fetch_add(1, Ordering::SeqCst);
            if operation.name == "Get Entity" {
                self.reads.fetch_add(1, Ordering::SeqCst);
            }
            FaultDecision::Execute
        }
    }

    impl RequestCounter {
        fn take(&self) -> (usize, usize) {
            (
                self.all.swap(0, Ordering::SeqCst),
                self.reads.swap(0, Ordering::SeqCst),
            )
        }
    }

    async fn employees(
        faults: Arc<dyn FaultPolicy>,
        seed: u64,
        email: fn(u32) -> String,
    ) -> (Engine, Delivery, Backfill) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let account = SimWorld::new(AccountName::main(), Arc::clone(&clock), faults).account();
        for name in TABLES {
            account.tables.create_table(&table(name)).await.unwrap();
        }
        for n in 0..15 {
            let employee = Entity::new(EntityKey::new("Sales", n.to_string()).unwrap())
                .with("Email", email(n));
            account
                .tables
                .apply(&table("Employees"), &TableOperation::Insert(employee))
                .await
                .unwrap();
        }
        account
            .queues
            .create_queue(&queue("jobs-recheck"))
            .await
            .unwrap();
        let engine = Engine::new(EngineParts {
            stores: Stores::new([(AccountName::main(), account)].into()),
            catalog: Arc::new(catalog(Shape {
                apart: true,
                last_writer: true,
                ..Shape::default()
            })),
            clock: Arc::clone(&clock),
            rng: Arc::new(SeededRng::new(seed)),
            recheck_after: Duration::from_mins(26),
        });
        let delivery = Delivery {
            stamp: Stamp {
                message_id: "m".to_owned(),
                enqueued: clock.now(),
                job: None,
            },
            dequeue_count: 1,
            account: AccountName::main(),
            propagation_queue: queue("jobs"),
            sync_queue: queue("jobs"),
            recheck_queue: queue("jobs-recheck"),
            tables: None,
        };
        let backfill = Backfill {
            scope: BackfillScope::Table(table("Employees")),
            cursor: BackfillCursor::default(),
        };
        (engine, delivery, backfill)
    }

    /// Makes the engine expect rows of this size in the table. A walk reads a page of rows ahead only if they are
    /// small.
    fn expects(engine: &Engine, bytes: usize) {
        let env = &engine.context().env;
        env.row_sizes
            .learn(env.table(&table("Employees")).unwrap(), bytes);
    }

    fn walk<'e>(engine: &'e Engine, delivery: &'e Delivery) -> Walk<'e> {
        let cx = engine.context();
        let source = cx.env.table(&table("Employees")).unwrap();
        Walk {
            cx,
            source,
            delivery,
        }
    }

    async fn writes(walk: &Walk<'_>, key: &EntityKey, email: &str) {
        let tables = &walk.cx.env.account(walk.source).unwrap().tables;
        let changed = Entity::new(key.clone()).with("Email", email);
        tables
            .apply(
                &walk.source.table,
                &TableOperation::InsertOrReplace(changed),
            )
            .await
            .unwrap();
    }

    /// Writes the footprint unchanged, so that it gets another ETag.
    async fn touches(walk: &Walk<'_>, key: &EntityKey) {
        let env = &walk.cx.env;
        let tables = &env.account(walk.source).unwrap().tables;
        let footprints = env.catalog.footprint_table(walk.source);
        let at = footprint::key(&walk.primary(key.clone()));
        let row = tables.get(&footprints, &at, None).await.unwrap().unwrap();
        tables
            .apply(&footprints, &TableOperation::InsertOrReplace(row.entity))
            .await
            .unwrap();
    }

    async fn nothing_is_wrong(engine: &Engine, delivery: &Delivery) {
        let Walk { cx, source, .. } = walk(engine, delivery);
        let tables = &cx.env.account(source).unwrap().tables;
        // The table may exist already.
        let _ = tables.create_table(&table("EvenkeelAudits")).await;
        let audit = Audit {
            table: table("Employees"),
            repair: false,
            cursor: AuditCursor::default(),
        };
        let pass = engine.audit(&audit, delivery).await.unwrap().unwrap();
        assert_eq!((pass.findings, pass.cursor.primaries), (Vec::new(), 15));
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_replaces_the_reads_of_each_footprint_and_primary() {
        let mut requests = Vec::new();
        for known in [false, true] {
            let counted = Arc::new(RequestCounter::default());
            let email = |n| format!("{n}@contoso.com");
            let (engine, delivery, backfill) = employees(counted.clone(), 1, email).await;
            for n in 0..15 {
                let key = EntityKey::new(format!("Team {n}"), "1").unwrap();
                writes(
                    &walk(&engine, &delivery),
                    &key,
                    &format!("{n}@fabrikam.com"),
                )
                .await;
            }
            for _ in 0..2 {
                expects(&engine, if known { 100 } else { 1 << 20 });
                counted.take();
                let pass = engine
                    .backfill(&backfill, &delivery)
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!((pass.cursor.done, pass.cursor.failed), (30, 0));
                requests.push(counted.take().0);
            }
        }
        let [first, again, first_by_page, again_by_page] = requests[..] else {
            panic!("{requests:?}");
        };
        assert_eq!(first - first_by_page, 2 * 30 - 2, "{requests:?}");
        assert_eq!(again - again_by_page, 2 * 30 - 2, "{requests:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_begins_with_a_page_loses_to_a_later_write_of_the_footprint() {
        let email = |n| format!("{n}@contoso.com");
        let (engine, delivery, _) = employees(Arc::new(NoFaults), 1, email).await;
        expects(&engine, 100);
        let walk = walk(&engine, &delivery);
        let sees = async || walk.existing(&Default::default()).await.unwrap();
        let runs = async |key: &EntityKey, ahead| {
            let summary = pass(&walk, key.clone(), ahead).await.1.unwrap();
            (summary.extra_rounds, summary.changes.len())
        };

        // Another pass creates the footprint after the page was read. The pass that begins with the page loses its
        // first round.
        let PrimaryPage {
            keys, mut ahead, ..
        } = sees().await;
        assert_eq!(ahead.len(), 15);
        writes(&walk, &keys[0], "ada@contoso.com").await;
        assert_eq!(runs(&keys[0], None).await, (0, 1));
        assert_eq!(runs(&keys[0], ahead.remove(&keys[0])).await, (1, 0));
        for key in &keys[1..] {
            assert_eq!(runs(key, ahead.remove(key)).await, (0, 1));
        }
        nothing_is_wrong(&engine, &delivery).await;

        // The footprint gets another ETag after the page was read. The pass that begins with the page loses its first
        // round, although the content of the footprint is unchanged.
        writes(&walk, &keys[0], "eve@contoso.com").await;
        let mut ahead = sees().await.ahead;
        touches(&walk, &keys[0]).await;
        assert_eq!(runs(&keys[0], ahead.remove(&keys[0])).await, (1, 2));

        // Another pass writes the items from a newer state after the page was read. The pass that begins with the page
        // notices their new versions, and writes nothing.
        let mut ahead = sees().await.ahead;
        writes(&walk, &keys[1], "bob@contoso.com").await;
        assert_eq!(runs(&keys[1], None).await, (0, 2));
        assert_eq!(runs(&keys[1], ahead.remove(&keys[1])).await, (0, 0));

        // Here the other pass only rewrites an item, which needs no announcement. The pass that begins with the page
        // notices this, too.
        let mut ahead = sees().await.ahead;
        let email = format!("{}@contoso.com", keys[2].rk.as_str());
        writes(&walk, &keys[2], &email).await;
        assert_eq!(runs(&keys[2], None).await, (0, 1));
        assert_eq!(runs(&keys[2], ahead.remove(&keys[2])).await, (0, 0));
        nothing_is_wrong(&engine, &delivery).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_not_used_if_it_is_old_or_its_run_has_waited() {
        let counted = Arc::new(RequestCounter::default());
        let email = |n| format!("{n}@contoso.com");
        let (engine, delivery, backfill) = employees(counted.clone(), 1, email).await;
        engine.backfill(&backfill, &delivery).await.unwrap();
        expects(&engine, 100);
        let walk = walk(&engine, &delivery);
        let reads = async |after: Duration, excluded: bool| {
            let waits = Waits::new(Arc::clone(&walk.cx.env.clock));
            let run = async {
                let PrimaryPage {
                    keys, mut ahead, ..
                } = walk.existing(&Default::default()).await.unwrap();
                if excluded {
                    exclude_from_timeout(tokio::time::sleep(after)).await;
                } else {
                    tokio::time::sleep(after).await;
                }
                counted.take();
                let ahead = ahead.remove(&keys[0]);
                pass(&walk, keys[0].clone(), ahead).await.1.unwrap();
                counted.take().1
            };
            waits.of(run).await
        };
        let item = 1;
        assert_eq!(reads(Duration::from_secs(10), false).await, item);
        assert_eq!(reads(Duration::from_secs(11), false).await, item + 2);
        assert_eq!(reads(Duration::from_millis(1), true).await, item + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn primaries_that_compete_for_one_key_do_not_stop_the_backfill() {
        for seed in 0..5 {
            let far = Arc::new(SlowRequests(SeededRng::new(seed)));
            let (engine, delivery, backfill) =
                employees(far, seed, |_| "ada@contoso.com".to_owned()).await;
            let pass = engine
                .backfill(&backfill, &delivery)
                .await
                .unwrap()
                .unwrap();
            assert_eq!(
                (pass.cursor.done, pass.cursor.failed),
                (15, 0),
                "seed {seed}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_backfill_reports_the_changes_it_made() {
        let (engine, delivery, backfill) =
            employees(Arc::new(NoFootprints), 1, |n| format!("{n}@contoso.com")).await;
        // A walk does not read rows of this size ahead.
        expects(&engine, 1 << 20);
        let waits = Waits::new(Arc::new(SystemClock::new()));
        waits
            .of(engine.backfill(&backfill, &delivery))
            .await
            .unwrap_err();
        assert!(waits.unreported().len() >= 15, "one item per primary");
    }

    #[tokio::test(start_paused = true)]
    async fn an_audit_records_its_view_alone_and_a_backfill_corrects_earlier_results() {
        let (engine, delivery, backfill) =
            employees(Arc::new(NoFaults), 1, |n| format!("{n}@contoso.com")).await;
        let tables = &engine
            .context()
            .env
            .account(engine.context().env.table(&table("Employees")).unwrap())
            .unwrap()
            .tables;
        tables.create_table(&table("EvenkeelAudits")).await.unwrap();
        let drift = async |view: &str| {
            let records = audit_records::audit_records(tables.as_ref(), engine.catalog())
                .await
                .unwrap();
            records
                .iter()
                .find(|record| record.view.as_str() == view)
                .map(|record| record.drift)
        };
        let audit = Audit {
            table: table("Employees"),
            repair: false,
            cursor: AuditCursor::default(),
        };
        engine
            .audit_of(&audit, Some(&ViewName::new("by_email").unwrap()), &delivery)
            .await
            .unwrap();
        assert_eq!(
            (drift("by_email").await, drift("managers").await),
            (Some(15), None)
        );
        engine.audit(&audit, &delivery).await.unwrap();
        assert!(drift("managers").await.is_some());

        let pass = engine
            .backfill(&backfill, &delivery)
            .await
            .unwrap()
            .unwrap();
        engine
            .backfilled(&backfill, &pass.cursor, &delivery)
            .await
            .unwrap();
        assert_eq!(
            drift("by_email").await,
            Some(15),
            "the audit ended after this backfill began"
        );
        let later = Delivery {
            stamp: Stamp {
                enqueued: engine.context().env.clock.now() + Duration::from_secs(1),
                ..delivery.stamp
            },
            ..delivery
        };
        let failed = BackfillCursor {
            failed: 1,
            ..pass.cursor.clone()
        };
        engine.backfilled(&backfill, &failed, &later).await.unwrap();
        assert_eq!(
            drift("by_email").await,
            Some(15),
            "a backfill with a failed primary subtracts nothing"
        );
        engine
            .backfilled(&backfill, &pass.cursor, &later)
            .await
            .unwrap();
        assert_eq!(drift("by_email").await, Some(0));
    }
}
