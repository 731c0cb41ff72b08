//! A run over one primary. The run has its own pass over that primary, which begins new rounds until a round leaves
//! nothing to do. The run also has the passes over other primaries for which its own pass waits.
//!
//! ```text
//!   pass over C   observe, plan, announce, apply      on top: works
//!   pass over B   applied; follower 1 of 2: C         its announcement is open
//!   pass over A   applied; follower 1 of 1: B         the run's own; its announcement is open
//! ```
//!
//! A pass is opened above another for one of two purposes: to free a key that the lower pass wants, before the
//! announcement (a *holder*), or to follow what the lower pass has written, before the close (a *follower*). When the
//! upper pass ends, the lower pass goes on with its next child. A permanent failure is passed to the lower pass. Any
//! other failure ends the run.

use std::collections::BTreeMap;

use crate::env::Env;
use crate::env::waiting::RunSummary;
use crate::execute::{Delivery, Failure, FailureClass, Summary};
use crate::items::value::{Staged, ValueOrigin};
use crate::protocol::change::{Change, Commit, RoundOutcome};
use crate::protocol::commit;
use crate::protocol::footprint::Footprint;
use crate::protocol::footprint::store;
use crate::protocol::freshness::found_after;
use crate::protocol::observe::Observation;
use crate::protocol::run::nesting::{Nesting, Role};
use crate::protocol::run::pass::Pass;
use crate::protocol::run::rounds::RoundStart;
use crate::protocol::run::stage::{Child, Seen, Stage, Step};
use crate::protocol::scope::{Desired, PassOptions, Scope};
use crate::protocol::steps::Plan;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::{ETag, Entity, ItemAddress};

pub(crate) struct Reconciler<'e> {
    pass: Pass<'e>,
    others: RunSummary,
    /// Whether the run writes the primary itself. Such a run does not report the time until items are in step, because
    /// that metric is about writes of other programs.
    writes: bool,
}

impl<'e> Reconciler<'e> {
    pub(crate) fn new(
        env: &'e Env,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
        options: PassOptions<'e>,
    ) -> Self {
        Self {
            pass: Pass::new(env, source, primary, delivery, options),
            others: RunSummary::default(),
            writes: false,
        }
    }

    pub(crate) async fn reconcile(mut self) -> Result<Summary, Failure> {
        self.settle().await?;
        Ok(self.take_summary())
    }

    pub(crate) const fn scope(&self) -> &Scope<'e> {
        &self.pass.scope
    }

    pub(crate) const fn summary(&self) -> &Summary {
        &self.pass.summary
    }

    pub(crate) const fn may_have_written(&self) -> bool {
        self.pass.unanswered.may_have_written()
    }

    pub(crate) const fn has_queued_a_recheck(&self) -> bool {
        self.pass.unanswered.rechecks.are_queued()
    }

    pub(crate) const fn gives_way(&self) -> bool {
        self.pass.unanswered.gives_way()
    }

    /// Makes later observations also read rows of a wide entity whose first row is gone.
    pub(crate) const fn rows_may_be_left(&mut self) {
        self.pass.unanswered.rows_may_be_left();
    }

    /// Adds items at which the next observation looks. Returns whether there are any, including items that were added
    /// before.
    pub(crate) fn will_look_at(&mut self, items: impl Iterator<Item = ItemAddress>) -> bool {
        self.pass.tracker.touched.extend(items);
        !self.pass.tracker.touched.is_empty()
    }

    /// Moves large values out of a change, and puts pointers in their place.
    pub(crate) fn take_out(
        &mut self,
        change: Change,
        staged: &BTreeMap<String, (Staged, String)>,
    ) -> Result<Change, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_out(scope, change, staged)
    }

    /// Takes over an entity of another primary, together with the large values of the entity.
    pub(crate) async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_in(scope, from, entity).await
    }

    pub(crate) fn brings_values(&self) -> bool {
        !self.pass.values.supplies.is_empty()
    }

    pub(crate) fn brings(&self, value: &ItemAddress) -> bool {
        self.pass.values.supplies.contains_key(value)
    }

    pub(crate) async fn announce(
        &mut self,
        seen: &Observation,
        plan: &Plan,
    ) -> Result<Option<Option<ETag>>, Failure> {
        self.take_slot().await;
        self.pass.announce(seen, plan).await
    }

    pub(crate) async fn announce_again(&mut self, footprint: &Footprint) -> Result<bool, Failure> {
        let Pass {
            scope, unanswered, ..
        } = &mut self.pass;
        let over = unanswered.announcement().cloned();
        let doing = "listing large values in";
        let written = store::write(scope, unanswered, footprint, over.as_ref(), doing).await?;
        let is_written = written.is_some();
        if let Some(etag) = written {
            unanswered.announced_again(etag);
        }
        Ok(is_written)
    }

    pub(crate) async fn upload(&mut self, plan: &Plan) -> Result<bool, Failure> {
        let (scope, values, mut run) = self.pass.parts();
        let uploaded = commit::upload(scope, values, &mut run, plan).await?;
        Ok(uploaded.is_some())
    }

    pub(crate) async fn write_alone(
        &mut self,
        seen: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        let Pass {
            scope, unanswered, ..
        } = &mut self.pass;
        commit::write_alone(scope, unanswered, seen, change).await
    }

    pub(crate) fn plan(&self, seen: &Observation, desired: &Desired) -> Result<Plan, Failure> {
        self.pass.plan(seen, desired)
    }

    pub(crate) fn take_summary(&mut self) -> Summary {
        let mut summary = std::mem::take(&mut self.pass.summary);
        let others = self.others.take();
        summary.others += others.changed();
        summary.add(others);
        summary
    }

    /// Like [`reconcile`](Self::reconcile), for a run that goes on afterwards.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        loop {
            match self.begin_round().await? {
                RoundStart::Lost => {}
                RoundStart::NothingDerived => return Ok(()),
                RoundStart::Observed(seen) => {
                    if self.closes(&seen).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    pub(crate) async fn settle_from(&mut self, seen: &Observation) -> Result<(), Failure> {
        // Range overlays are read after the primary, so this observation does not include them. If the table has range
        // overlays, a new round is needed.
        let done = !self.pass.scope.reads_overlays()
            && (!self.pass.scope.has_views() || self.closes(seen).await?);
        if done { Ok(()) } else { self.settle().await }
    }

    /// Reserves memory for large values if the run uploads some. This happens before anything is announced, so that the
    /// wait counts against no deadline. Passes over other primaries upload no large values.
    async fn take_slot(&mut self) {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_slot(scope).await;
    }

    pub(crate) async fn next_round(&mut self) -> Result<(), Failure> {
        self.pass.next_round().await
    }

    pub(crate) async fn observe(&mut self) -> Result<Observation, Failure> {
        self.pass.observe().await
    }

    pub(crate) async fn begin_round(&mut self) -> Result<RoundStart, Failure> {
        self.pass.begin_round().await
    }

    /// One round of the run's own pass, with the passes over other primaries for which the round waits. The open passes
    /// form a stack: a child stands above its parent, and the parent waits for the child.
    async fn round(
        &mut self,
        seen: &Observation,
        change: Option<&Change>,
    ) -> Result<RoundOutcome, Failure> {
        self.take_slot().await;
        let mut own = Stage::Seen(Seen::Given(seen));
        let ended = self.run_from(&mut own, change).await;
        if let (Err(_), Stage::Applied(applied, _)) = (&ended, &own) {
            self.pass.tracker.observe_again(&applied.plan);
        }
        ended
    }

    async fn run_from<'r>(
        &mut self,
        own: &mut Stage<'r>,
        change: Option<&'r Change>,
    ) -> Result<RoundOutcome, Failure> {
        let mut nesting = Nesting::of(self.pass.scope.primary.clone());
        let mut above: Vec<Nested<'e, 'r>> = Vec::new();
        loop {
            let change = change.filter(|_| above.is_empty());
            let Scope { env, delivery, .. } = self.pass.scope;
            let (top, stage) = match above.last_mut() {
                Some(nested) => (&mut nested.pass, &mut nested.stage),
                None => (&mut self.pass, &mut *own),
            };
            let step = Box::pin(top.step(std::mem::take(stage), change, &nesting)).await;
            let ended = match step {
                Ok(Step::Go(next)) => {
                    *stage = next;
                    continue;
                }
                Ok(Step::Open(next, child)) => {
                    let Child { primary, item } = *child;
                    let role = next.role();
                    *stage = next;
                    match Nested::open(env, delivery, &mut nesting, role, &primary, &item) {
                        Ok(pass) => {
                            above.push(Nested {
                                pass,
                                stage: Stage::Fresh,
                                item,
                            });
                            continue;
                        }
                        // The parent either goes on without this child, or fails with the same failure.
                        Err(failure) => match stage.child_ended(item, Err(failure)) {
                            Ok(()) => continue,
                            failed => failed,
                        },
                    }
                }
                Ok(Step::Ended(end)) if above.is_empty() => return Ok(end),
                Ok(Step::Ended(RoundOutcome::Ended(Commit::Closed))) => Ok(()),
                // `take` has left the default stage, `Fresh`, so the nested pass begins another round.
                Ok(Step::Ended(RoundOutcome::Ended(_) | RoundOutcome::Obstructed)) => continue,
                Ok(Step::Ended(RoundOutcome::Refused(failure))) | Err(failure) => Err(failure),
            };
            let others = &mut self.others;
            hand_down(ended, &mut above, own, &mut nesting, others)?;
        }
    }

    pub(crate) async fn closes(&mut self, seen: &Observation) -> Result<bool, Failure> {
        match self.round(seen, None).await? {
            RoundOutcome::Ended(end) => {
                let closed = end == Commit::Closed;
                if closed && !self.writes {
                    self.pass.summary.found_after = found_after(&self.pass.scope, seen);
                }
                Ok(closed)
            }
            RoundOutcome::Refused(failure) => Err(failure),
            RoundOutcome::Obstructed => Ok(false),
        }
    }

    pub(crate) async fn commit(
        &mut self,
        seen: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        self.writes = true;
        if !self.pass.scope.has_views() {
            return self.write_alone(seen, change).await;
        }
        match self.round(seen, Some(change)).await {
            Ok(RoundOutcome::Ended(end)) => Ok(end),
            // An earlier round may have announced the change that is refused now. A pass over the present state of the
            // primary withdraws that announcement.
            Ok(RoundOutcome::Refused(failure)) => self.settle_from(seen).await.and(Err(failure)),
            Ok(RoundOutcome::Obstructed) => self.settle_from(seen).await.map(|()| Commit::Lost),
            // The primary may have been written although a view failed. Its range overlays must still be applied.
            Err(failure)
                if failure.class == FailureClass::Permanent
                    && change.result().is_some()
                    && self.pass.scope.reads_overlays() =>
            {
                self.settle().await.and(Err(failure))
            }
            Err(failure) => Err(failure),
        }
    }
}

struct Nested<'e, 'r> {
    pass: Pass<'e>,
    stage: Stage<'r>,
    /// See `Child::item`.
    item: ItemAddress,
}

impl<'e> Nested<'e, '_> {
    /// Opens a pass over another primary. A derived primary is in no archive, so the pass needs no document. The view
    /// that derives the primary has checked its key.
    fn open(
        env: &'e Env,
        delivery: Option<&'e Delivery>,
        nesting: &mut Nesting,
        role: Role,
        primary: &Primary,
        item: &ItemAddress,
    ) -> Result<Pass<'e>, Failure> {
        let source = env.table(&primary.table)?;
        let primary = Primary {
            table: source.table.clone(),
            key: primary.key.clone(),
        };
        nesting.open(&primary, role)?;
        let met = (role == Role::Frees).then(|| item.clone());
        let options = PassOptions {
            met: met.into_iter().collect(),
            nested: true,
            ..PassOptions::default()
        };
        Ok(Pass::new(env, source, primary, delivery, options))
    }
}

/// Ends the top pass. Its parent goes on, or fails as well, and so on down the stack. An error ends the run, and every
/// announcement stays open.
fn hand_down<'r>(
    mut ended: Result<(), Failure>,
    above: &mut Vec<Nested<'_, 'r>>,
    own: &mut Stage<'r>,
    nesting: &mut Nesting,
    others: &mut RunSummary,
) -> Result<(), Failure> {
    while let Some(mut top) = above.pop() {
        others.0.add(std::mem::take(&mut top.pass.summary));
        if let Err(failure) = &ended
            && failure.class != FailureClass::Permanent
        {
            break;
        }
        nesting.close();
        let below = above.last_mut().map_or(&mut *own, |below| &mut below.stage);
        ended = below.child_ended(top.item, ended);
        if ended.is_ok() {
            break;
        }
    }
    ended
}
