//! `audit`: compares every item of every primary of a table with its expected state.
//!
//! ```text
//!   the rows of the table      ─▶ plan a pass over each primary, which reads every item
//!   the table's footprints     ─▶ the same for each footprint that has no primary
//!   the derived rows           ─▶ each row must be listed in the footprint of its owner
//! ```
//!
//! If `repair` is set, passes of a thorough `sync` repair the mismatches. Otherwise, an audit only reads. An audit may
//! run beside workers and clients. Each finding is checked again at the end of its page, so that a pass in progress is
//! not reported as drift. But if a primary has changed and its `sync` is still queued, items of the primary are
//! reported. Progress is kept in a cursor, as in a backfill. If a view changes meanwhile, the audit begins again. The
//! final results are kept in `EvenkeelAudits`, by table and view, for monitoring.
//!
//! An audit finds members of lists and groups, properties, and documents of sinks only if a footprint lists them. Only
//! a manual write can create unlisted ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _};
use serde::Serialize;
use serde_json::{Map, json};

use crate::env::waiting::RunSummary;
use crate::execute::{Delivery, Failure, FailureClass, Outcome, Summary};
use crate::items;
use crate::jobs::RunJob;
use crate::jobs::audit_records;
use crate::jobs::context::JobContext;
use crate::jobs::dated;
use crate::jobs::walk::{AT_ONCE, PagePosition, Walk, place};
use crate::protocol::conflicts::KeysTaken;
use crate::protocol::observe::ReadAhead;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::plan_input::own_items;
use crate::protocol::queueing::queue_syncs;
use crate::protocol::report::{Ahead, look_ahead, observe_ahead};
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::PassOptions;
use evenkeel_model::audit::{Audit, AuditCursor, AuditPart};
use evenkeel_model::catalog::{RowForm, TableRef, View};
use evenkeel_model::cursor::JobCursor as _;
use evenkeel_model::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::job::{ItemReads, Primary};
use evenkeel_model::{AccountName, Comparison, EntityKey, Filter, ItemAddress, Site, ViewName};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPass {
    pub cursor: AuditCursor,
    pub ended: bool,
    pub findings: Vec<AuditFinding>,
    pub failures: Vec<AuditFailure>,
    pub summary: Summary,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditFinding {
    pub problem: Mismatch,
    #[serde(flatten)]
    pub item: ItemAddress,
    pub of: String,
    pub repaired: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditFailure {
    /// Always "failed". This tells a failure from an [`AuditFinding`], which has a [`Mismatch`] under this name.
    pub problem: &'static str,
    /// The views that could not be checked or repaired; empty if they are unknown.
    pub views: Vec<ViewName>,
    pub of: String,
    pub error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    Missing,
    Different,
    Unwanted,
    /// Another primary, or a row that evenkeel did not write, has the key.
    Taken,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Different => "different",
            Self::Unwanted => "unwanted",
            Self::Taken => "taken",
        })
    }
}

impl fmt::Display for AuditFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.repaired { " (repaired)" } else { "" };
        write!(
            f,
            "{:<9} {}, derived from {}{suffix}",
            self.problem, self.item, self.of
        )
    }
}

impl fmt::Display for AuditFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<9} {}: {}", self.problem, self.of, self.error)
    }
}

/// Compares items, starting at the cursor, for about ten seconds or to the end. If `view` is given, only the results of
/// that view are recorded. `None` if the table has no views.
pub(crate) async fn audit(
    cx: &JobContext,
    audit: &Audit,
    view: Option<&ViewName>,
    delivery: &Delivery,
) -> Result<Option<AuditPass>, Failure> {
    let source = cx.env.table(&audit.table)?;
    if !cx.env.catalog.derives_from(source) {
        return Ok(None);
    }
    let walk = Walk {
        cx,
        source,
        delivery,
    };
    let mut run = AuditRun {
        walk,
        repair: audit.repair,
        cursor: resumed(cx, audit, source),
        findings: Vec::new(),
        failures: Vec::new(),
        summary: RunSummary::default(),
        reported: BTreeSet::new(),
        failed: BTreeSet::new(),
    };
    let ended = match run.part().await {
        Ok(ended) => ended,
        Err(failure) => return Err(dated::explained(&cx.env, &source.table, failure).await),
    };
    if ended {
        audit_records::write(&cx.env, source, view, &run.cursor).await?;
    }
    Ok(Some(AuditPass {
        cursor: run.cursor,
        ended,
        findings: run.findings,
        failures: run.failures,
        summary: run.summary.take(),
    }))
}

/// Returns the cursor of the audit. If the views of the table have changed since the audit began, returns a new cursor.
fn resumed(cx: &JobContext, audit: &Audit, source: &TableRef) -> AuditCursor {
    let views = Some(cx.env.catalog.audit_fingerprint(source));
    if audit.cursor.views == views {
        return audit.cursor.clone();
    }
    if audit.cursor.has_begun() {
        tracing::info!(table = %source.table, "restarting the audit of {}: its views have changed", source.table);
    }
    AuditCursor {
        views,
        ..AuditCursor::default()
    }
}

impl RunJob for Audit {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let Some(pass) = audit(cx, self, None, delivery).await? else {
            return Ok(Outcome::Skipped {
                reason: format!("nothing is derived from {}", self.table),
                summary: Summary::default(),
            });
        };
        for finding in &pass.findings {
            tracing::warn!(view = %finding.item.view, problem = %finding.problem, repaired = finding.repaired, "{finding}");
        }
        let AuditPass {
            cursor,
            ended,
            summary,
            ..
        } = pass;
        if !ended {
            return Ok(Outcome::Advanced {
                fields: Map::from_iter([("cursor".to_owned(), json!(cursor))]),
                summary,
            });
        }
        tracing::info!(
            table = %self.table,
            primaries = cursor.primaries,
            drift = cursor.drifted(),
            repaired = cursor.repaired,
            failed = cursor.failed,
            "audited table {}",
            self.table
        );
        Ok(Outcome::Done(summary))
    }
}

struct AuditRun<'e> {
    walk: Walk<'e>,
    repair: bool,
    cursor: AuditCursor,
    findings: Vec<AuditFinding>,
    failures: Vec<AuditFailure>,
    summary: RunSummary,
    reported: BTreeSet<(AccountName, Site)>,
    /// Primaries of this page whose check or repair failed permanently.
    failed: BTreeSet<Primary>,
}

/// A primary to compare, and an item to read even if the footprint does not list it.
#[derive(Clone)]
struct AuditSubject {
    primary: Primary,
    met: Option<ItemAddress>,
    /// The footprint and row that the walk has read with the page. Only the first comparison uses them.
    ahead: Option<ReadAhead>,
}

impl AuditRun<'_> {
    /// Checks pages until the audit is complete or the time of one part (`JobContext::part`) is over. Returns whether
    /// the audit is complete.
    async fn part(&mut self) -> Result<bool, Failure> {
        let clock = &self.walk.cx.env.clock;
        let began = clock.monotonic();
        loop {
            let from = (self.cursor.next_pk.take(), self.cursor.next_rk.take());
            let next = match self.cursor.part {
                AuditPart::Primaries => {
                    let page = self.walk.existing(&from).await?;
                    self.primaries(page.keys, page.ahead).await?;
                    page.next
                }
                AuditPart::Footprints => {
                    let page = self.walk.gone(&from).await?;
                    self.primaries(page.keys, page.ahead).await?;
                    page.next
                }
                AuditPart::Rows => {
                    let Some(view) = self.view() else {
                        return Ok(true);
                    };
                    self.rows(&view, &from).await?
                }
            };
            // The target of a view may be in several accounts. `cursor.account` is set while accounts of the target
            // remain to be checked.
            if next.0.is_none() && self.cursor.account.is_none() {
                match self.cursor.part {
                    AuditPart::Primaries => self.cursor.part = AuditPart::Footprints,
                    AuditPart::Footprints | AuditPart::Rows => self.next_view(),
                }
            }
            (self.cursor.next_pk, self.cursor.next_rk) = next;
            if clock.monotonic().saturating_sub(began) >= self.walk.cx.part {
                return Ok(false);
            }
        }
    }

    /// The views of the table whose items record their owner, sorted by name. For these views, the audit also reads the
    /// rows of the target, to find rows that no footprint lists.
    fn row_views(&self) -> Vec<Arc<View>> {
        let catalog = &self.walk.cx.env.catalog;
        let mut views: Vec<_> = catalog
            .views_of(self.walk.source)
            .filter(|view| view.form().copies().is_some())
            .cloned()
            .collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    fn view(&self) -> Option<Arc<View>> {
        let current = self.cursor.view.as_deref()?;
        self.row_views()
            .into_iter()
            .find(|view| view.name.as_str() >= current)
    }

    fn next_view(&mut self) {
        let views = self.row_views();
        let after = |view: &&Arc<View>| match (&self.cursor.part, self.cursor.view.as_deref()) {
            (AuditPart::Rows, Some(current)) => view.name.as_str() > current,
            _ => true,
        };
        self.cursor.view = views.iter().find(after).map(|view| view.name.to_string());
        self.cursor.part = AuditPart::Rows;
    }

    async fn primaries(
        &mut self,
        keys: Vec<EntityKey>,
        mut ahead: BTreeMap<EntityKey, ReadAhead>,
    ) -> Result<(), Failure> {
        self.cursor.primaries += keys.len() as u64;
        let subjects = keys
            .into_iter()
            .map(|key| AuditSubject {
                // A page may lack a footprint that exists. If a pass writes, it notices this, because its insert of the
                // footprint fails. But an audit inserts no footprint. So if the page has no footprint of a primary, the
                // pass reads the footprint itself.
                ahead: ahead.remove(&key).filter(|ahead| ahead.footprint.is_some()),
                primary: self.walk.primary(key),
                met: None,
            })
            .collect();
        self.compare(subjects).await
    }

    /// Checks a page of a view's target, in one of its accounts, for rows that the footprint of their owner does not
    /// list.
    async fn rows(&mut self, view: &View, from: &PagePosition) -> Result<PagePosition, Failure> {
        let Some(RowForm { target, .. }) = view.rows() else {
            return Ok(PagePosition::default());
        };
        let filter = Filter::compare(VIEW_PROPERTY, Comparison::Equal, view.name.as_str());
        let select = vec![SOURCE_PROPERTY.to_owned(), VIEW_PROPERTY.to_owned()];
        let accounts = &target.accounts;
        let begun = |account: &&AccountName| {
            self.cursor
                .account
                .as_deref()
                .is_none_or(|current| account.as_str() >= current)
        };
        let Some(account) = accounts.iter().find(begun).cloned() else {
            self.cursor.account = None;
            return Ok(PagePosition::default());
        };
        let target = TableRef {
            account,
            table: target.table.clone(),
        };
        let page = self
            .walk
            .page(&target, &target.table, Some(filter), Some(select), from)
            .await?;
        self.cursor.rows += page.rows.len() as u64;
        let subjects: Vec<AuditSubject> = page
            .rows
            .into_iter()
            .filter_map(|row| {
                let owner = Owner::of(&row.entity)?;
                let met = ItemAddress::row(
                    view.name.clone(),
                    target.account.clone(),
                    target.table.clone(),
                    row.entity.key,
                );
                (owner.primary.table == self.walk.source.table).then_some(AuditSubject {
                    primary: owner.primary,
                    met: Some(met),
                    ahead: None,
                })
            })
            .collect();
        let listed: Vec<_> = subjects
            .iter()
            .map(|subject| self.is_listed(subject))
            .collect();
        let listed: Vec<Result<bool, Failure>> =
            stream::iter(listed).buffered(AT_ONCE).collect().await;
        let mut strays = Vec::new();
        for (subject, listed) in subjects.into_iter().zip(listed) {
            match listed {
                Ok(true) => {}
                Ok(false) => strays.push(subject),
                Err(failure) => self.record_failure(&subject.primary, failure)?,
            }
        }
        self.compare(strays).await?;
        if page.continuation.is_none() {
            self.cursor.account = accounts
                .iter()
                .find(|account| **account > target.account)
                .map(ToString::to_string);
        }
        Ok(place(page.continuation))
    }

    async fn is_listed(&self, subject: &AuditSubject) -> Result<bool, Failure> {
        let mut reconciler = Reconciler::new(
            &self.walk.cx.env,
            self.walk.source,
            subject.primary.clone(),
            None,
            PassOptions::default(),
        );
        let seen = reconciler.observe().await?;
        Ok(subject
            .met
            .as_ref()
            .is_some_and(|met| seen.footprint.items.contains_key(met)))
    }

    /// Compares each subject, then compares those with mismatches again. A permanent failure of one primary does not
    /// stop the others. If `repair` is set, repairs what still differs, and queues a sync job for each primary that
    /// failed.
    async fn compare(&mut self, subjects: Vec<AuditSubject>) -> Result<(), Failure> {
        let mut suspects = Vec::new();
        for (subject, seen) in self.look(subjects).await? {
            if let Some(failure) = seen.underived {
                failure
                    .views
                    .iter()
                    .for_each(|view| self.cursor.count_drift(view));
                self.record_failure(&subject.primary, failure)?;
            }
            suspects.push(subject);
        }
        for (subject, seen) in self.look(suspects).await? {
            let outcome = if self.repair {
                self.repair_items(&subject, &seen).await?
            } else {
                RepairOutcome::Nothing
            };
            // Several primaries may derive the same shared row, which is reported once.
            let behind = seen.behind.into_iter().filter(|item| {
                self.reported
                    .insert((item.account.clone(), item.site.clone()))
            });
            let behind: Vec<_> = behind.map(|item| (item, Mismatch::Different)).collect();
            for (item, problem) in seen.problems.into_iter().chain(behind) {
                let repaired = outcome.covers(&item.view);
                if repaired {
                    self.cursor.repaired += 1;
                } else if subject.met.is_some() {
                    self.cursor.count_unlisted(&item.view);
                } else {
                    self.cursor.count_drift(&item.view);
                }
                self.findings.push(AuditFinding {
                    problem,
                    item,
                    of: subject.primary.whole(),
                    repaired,
                });
            }
        }
        let failed = std::mem::take(&mut self.failed);
        if self.repair {
            queue_syncs(
                &self.walk.cx.env,
                &failed,
                ItemReads::All,
                self.walk.delivery,
            )
            .await
        } else {
            Ok(())
        }
    }

    /// The mismatches of each subject. Subjects with nothing to report or repair are omitted.
    async fn look(
        &mut self,
        subjects: Vec<AuditSubject>,
    ) -> Result<Vec<(AuditSubject, AuditObservation)>, Failure> {
        let observed: Vec<_> = subjects
            .into_iter()
            .map(|mut subject| {
                let ahead = subject.ahead.take();
                // The document in a sink must be read even if a write of the document is announced. Only a pass without
                // a delivery reads it then.
                let reconciler = self.pass(&subject, ahead, None);
                async move { (subject, compare(reconciler).await) }
            })
            .collect();
        let looked: Vec<_> = stream::iter(observed).buffered(AT_ONCE).collect().await;
        let mut wrong = Vec::new();
        for (subject, seen) in looked {
            match seen {
                Ok(mut seen) => {
                    if let Some(met) = &subject.met {
                        // The audit has found this row in the view's target, so only this row is checked here. The
                        // owner's other items are checked when the owner itself is audited.
                        seen.problems.retain(|(item, _)| item == met);
                        seen.underived = None;
                        seen.behind.clear();
                    }
                    if !seen.problems.is_empty()
                        || (self.repair && seen.unfinished)
                        || seen.underived.is_some()
                        || !seen.behind.is_empty()
                    {
                        wrong.push((subject, seen));
                    }
                }
                Err(failure) => self.record_failure(&subject.primary, failure)?,
            }
        }
        Ok(wrong)
    }

    async fn repair_items(
        &mut self,
        subject: &AuditSubject,
        seen: &AuditObservation,
    ) -> Result<RepairOutcome, Failure> {
        if !seen.unfinished
            && seen.behind.is_empty()
            && seen
                .problems
                .iter()
                .all(|(_, problem)| *problem == Mismatch::Taken)
        {
            return Ok(RepairOutcome::Nothing);
        }
        match self
            .pass(subject, None, Some(self.walk.delivery))
            .reconcile()
            .await
        {
            Ok(done) => {
                self.summary.0.add(done);
                Ok(RepairOutcome::AllBut(Vec::new()))
            }
            Err(failure)
                if failure.class == FailureClass::Permanent && !failure.views.is_empty() =>
            {
                let views = failure.views.clone();
                // A taken key is already a finding, and a sync job of the primary would report nothing more.
                if seen.underived.is_none() && !failure.cause.is::<KeysTaken>() {
                    self.record_failure(&subject.primary, failure)?;
                }
                Ok(RepairOutcome::AllBut(views))
            }
            Err(failure) => self
                .record_failure(&subject.primary, failure)
                .map(|()| RepairOutcome::Nothing),
        }
    }

    fn pass<'a>(
        &'a self,
        subject: &AuditSubject,
        ahead: Option<ReadAhead>,
        delivery: Option<&'a Delivery>,
    ) -> Reconciler<'a> {
        let options = PassOptions {
            reads: ItemReads::All,
            met: subject.met.iter().cloned().collect(),
            ahead,
            ..PassOptions::default()
        };
        Reconciler::new(
            &self.walk.cx.env,
            self.walk.source,
            subject.primary.clone(),
            delivery,
            options,
        )
    }

    fn record_failure(&mut self, primary: &Primary, failure: Failure) -> Result<(), Failure> {
        if failure.class != FailureClass::Permanent {
            return Err(failure);
        }
        if self.failed.insert(primary.clone()) {
            self.cursor.failed += 1;
            let error = failure.chain();
            tracing::warn!(%primary, error, "could not audit the items of {primary}");
            self.failures.push(AuditFailure {
                problem: "failed",
                views: failure.views,
                of: primary.whole(),
                error,
            });
        }
        Ok(())
    }
}

enum RepairOutcome {
    Nothing,
    /// All items are repaired, except those of the listed views. The repair of these views failed.
    AllBut(Vec<ViewName>),
}

impl RepairOutcome {
    fn covers(&self, view: &ViewName) -> bool {
        match self {
            Self::Nothing => false,
            Self::AllBut(failed) => !failed.contains(view),
        }
    }
}

#[derive(Default)]
struct AuditObservation {
    problems: Vec<(ItemAddress, Mismatch)>,
    /// The footprint lists announced changes, or an item that was left to the next pass (generation 0). Even if all
    /// items are right, the footprint must be written.
    unfinished: bool,
    underived: Option<Failure>,
    /// Members of lists. In the row of each of these lists, the count or an aggregate is wrong.
    behind: BTreeSet<ItemAddress>,
}

async fn compare(mut reconciler: Reconciler<'_>) -> Result<AuditObservation, Failure> {
    let seen = observe_ahead(&mut reconciler).await?;
    if seen.is_derived_alone() {
        return Ok(AuditObservation::default());
    }
    let Ahead {
        seen,
        overlaid,
        desired,
        plan,
    } = look_ahead(&reconciler, seen).await?;
    let catalog = &reconciler.scope().env.catalog;
    let left = own_items(catalog, &seen.footprint)
        .flatten()
        .any(|(item, entry)| entry.generation == 0 && !desired.underived.contains_key(&item.view));
    let unfinished = left || seen.footprint.is_changing();
    let underived =
        (!desired.underived.is_empty()).then(|| desired.failure(&reconciler.scope().primary));
    // Each view with a range overlay that the stored primary lacks is a finding.
    let mut problems: Vec<(ItemAddress, Mismatch)> = overlaid
        .into_iter()
        .map(|item| (item, Mismatch::Different))
        .collect();
    if plan.in_step || !reconciler.scope().has_views() {
        return Ok(AuditObservation {
            problems,
            unfinished,
            underived,
            behind: seen.behind,
        });
    }
    let listed = |address: &ItemAddress| {
        seen.footprint
            .items
            .get(address)
            .and_then(|entry| entry.etag.as_ref())
    };
    for write in &plan.writes {
        // Another primary may hold the item of a `last_writer` view. The item is then checked when that primary is
        // audited.
        let others = matches!(seen.observed.get(&write.address), Some(ObservedItem::Foreign { owner, .. }) if owner.as_ref().is_none_or(|owner| owner.primary != reconciler.scope().primary));
        if write.over.is_none() {
            problems.push((write.address.clone(), Mismatch::Missing));
        } else if let Some(ObservedItem::Content(found)) = seen.observed.get(&write.address) {
            if desired
                .items
                .get(&write.address)
                .is_none_or(|item| !item.matches(found))
            {
                problems.push((write.address.clone(), Mismatch::Different));
            }
        } else if !others
            && items::differs(reconciler.scope(), write, listed(&write.address)).await?
        {
            problems.push((write.address.clone(), Mismatch::Different));
        }
    }
    let there = plan
        .drops
        .iter()
        .filter(|(address, _)| seen.observed.get(address) != Some(&ObservedItem::Absent));
    problems.extend(there.map(|(address, _)| (address.clone(), Mismatch::Unwanted)));
    // A waiting item that is not a row is a large value whose content is missing. Only a sender that has the content
    // can restore it.
    let dangling = plan
        .waiting
        .iter()
        .filter(|address| address.site.row().is_none());
    problems.extend(dangling.map(|address| (address.clone(), Mismatch::Missing)));
    problems.extend(
        plan.taken
            .iter()
            .map(|taken| (taken.address.clone(), Mismatch::Taken)),
    );
    Ok(AuditObservation {
        problems,
        unfinished,
        underived,
        behind: seen.behind,
    })
}
