//! A run over one primary: its own pass, which begins a round after each race that was lost, and the passes over others that this one
//! waits for.
//!
//! ```text
//!   pass over C   observe, plan, announce, apply      on top: works
//!   pass over B   applied; follower 1 of 2: C         its announcement is open
//!   pass over A   applied; follower 1 of 1: B         the run's own; its announcement is open
//! ```
//!
//! A pass is opened above another to free a key that this one wants, before the announcement (a *holder*), or to follow what it has
//! written, before the close (a *follower*). It ends, and the one below goes on with its next child. A failure for good is told to the
//! one below; any other ends the run.

use std::collections::BTreeMap;

use crate::env::Env;
use crate::env::waiting::RunSummary;
use crate::execute::{Delivery, Failure, FailureClass, Summary};
use crate::items::value::{Staged, ValueOrigin};
use crate::protocol::change::{Advance, Change, Commit};
use crate::protocol::commit;
use crate::protocol::footprint::Footprint;
use crate::protocol::footprint::store;
use crate::protocol::freshness::found_after;
use crate::protocol::observe::Observation;
use crate::protocol::run::nesting::{Nesting, Role};
use crate::protocol::run::pass::Pass;
use crate::protocol::run::rounds::Sight;
use crate::protocol::run::stage::{Child, Seen, Stage, Step};
use crate::protocol::scope::{PassOptions, Scope, Wanted};
use crate::protocol::steps::Plan;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::{ETag, Entity, ItemAddress};

/// The passes of one run over one primary.
pub(crate) struct Reconciler<'e> {
    pass: Pass<'e>,
    /// What the passes over other primaries have changed.
    others: RunSummary,
    /// This run writes the primary: how soon that is found says nothing of others' writes.
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

    /// Brings every item of the primary in step with its present state.
    pub(crate) async fn reconcile(mut self) -> Result<Summary, Failure> {
        self.settle().await?;
        Ok(self.take_summary())
    }

    /// What its passes are about.
    pub(crate) const fn scope(&self) -> &Scope<'e> {
        &self.pass.scope
    }

    /// The changes of its own primary's items made so far.
    pub(crate) const fn summary(&self) -> &Summary {
        &self.pass.summary
    }

    /// Whether this run has written the primary, or may have.
    pub(crate) const fn may_have_written(&self) -> bool {
        self.pass.doubt.may_have_written()
    }

    /// Whether a round has queued a recheck.
    pub(crate) const fn has_queued_a_recheck(&self) -> bool {
        self.pass.doubt.rechecks.are_queued()
    }

    /// Whether the run of a recheck leaves the primary to a faster pass.
    pub(crate) const fn gives_way(&self) -> bool {
        self.pass.doubt.gives_way()
    }

    /// Reads from now on also rows of a wide entity that have lost their first.
    pub(crate) const fn rows_may_be_left(&mut self) {
        self.pass.doubt.rows_may_be_left();
    }

    /// Also looks at these, where it observes once more. Whether it looks at anything then.
    pub(crate) fn will_look_at(&mut self, items: impl Iterator<Item = ItemAddress>) -> bool {
        self.pass.met.touched.extend(items);
        !self.pass.met.touched.is_empty()
    }

    /// Takes large values out of a change, and puts pointers in their place.
    pub(crate) fn take_out(
        &mut self,
        change: Change,
        staged: &BTreeMap<String, (Staged, String)>,
    ) -> Result<Change, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_out(scope, change, staged)
    }

    /// Takes in an entity that comes from another primary, with its large values.
    pub(crate) async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_in(scope, from, entity).await
    }

    /// Whether this run brings large values.
    pub(crate) fn brings_values(&self) -> bool {
        !self.pass.values.supplies.is_empty()
    }

    /// Whether it brings this one.
    pub(crate) fn brings(&self, value: &ItemAddress) -> bool {
        self.pass.values.supplies.contains_key(value)
    }

    /// Writes the announcement of a plan, over what was seen; nothing where another pass was faster.
    pub(crate) async fn announce(
        &mut self,
        seen: &Observation,
        plan: &Plan,
    ) -> Result<Option<Option<ETag>>, Failure> {
        self.take_slot().await;
        self.pass.announce(seen, plan).await
    }

    /// Writes a footprint over its own announcement. Whether it was written.
    pub(crate) async fn announce_again(&mut self, footprint: &Footprint) -> Result<bool, Failure> {
        let Pass { scope, doubt, .. } = &mut self.pass;
        let over = doubt.announcement().cloned();
        let doing = "keeping the large values in";
        let written = store::write(scope, doubt, footprint, over.as_ref(), doing).await?;
        let is_written = written.is_some();
        if let Some(etag) = written {
            doubt.announced_again(etag);
        }
        Ok(is_written)
    }

    /// Uploads the values of an announced plan. `false` where a race was lost.
    pub(crate) async fn upload(&mut self, plan: &Plan) -> Result<bool, Failure> {
        let (scope, values, mut run) = self.pass.run();
        let uploaded = commit::upload(scope, values, &mut run, plan).await?;
        Ok(uploaded.is_some())
    }

    /// Writes the primary alone, with all that follows from it still to come.
    pub(crate) async fn write_alone(
        &mut self,
        seen: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        let Pass { scope, doubt, .. } = &mut self.pass;
        commit::write_alone(scope, doubt, seen, change).await
    }

    /// The plan of a pass with this observation.
    pub(crate) fn plan(&self, seen: &Observation, wanted: &Wanted) -> Result<Plan, Failure> {
        self.pass.plan(seen, wanted)
    }

    /// The changes made so far, for the outcome of its job.
    pub(crate) fn take_summary(&mut self) -> Summary {
        let mut summary = std::mem::take(&mut self.pass.summary);
        let others = self.others.take();
        summary.others += others.changed();
        summary.add(others);
        summary
    }

    /// As [`reconcile`](Self::reconcile), for a pass that goes on afterwards.
    pub(crate) async fn settle(&mut self) -> Result<(), Failure> {
        loop {
            match self.see().await? {
                Sight::Lost => {}
                Sight::Alone => return Ok(()),
                Sight::Whole(seen) => {
                    if self.closes(&seen).await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// As [`settle`](Self::settle), from the given observation.
    pub(crate) async fn settle_from(&mut self, seen: &Observation) -> Result<(), Failure> {
        // The overlays of others are read after the primary, and this observation has none.
        let done = !self.pass.scope.receives()
            && (!self.pass.scope.has_views() || self.closes(seen).await?);
        if done { Ok(()) } else { self.settle().await }
    }

    /// Takes the memory for large values, where the run brings some. Before anything is announced, so that the waiting time counts against
    /// no deadline. Passes over others bring none.
    async fn take_slot(&mut self) {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_slot(scope).await;
    }

    /// Counts a round. After a race that was lost it waits.
    pub(crate) async fn next_round(&mut self) -> Result<(), Failure> {
        self.pass.next_round().await
    }

    /// Observes everything but the overlays of others on the primary: for a job that may write it.
    pub(crate) async fn observe(&mut self) -> Result<Observation, Failure> {
        self.pass.observe().await
    }

    /// Begins a round with an observation of everything.
    pub(crate) async fn see(&mut self) -> Result<Sight, Failure> {
        self.pass.see().await
    }

    /// One round of the run's own pass, with all that it needs of others: each pass that is open waits for the one above it, down to
    /// this one.
    async fn round(
        &mut self,
        seen: &Observation,
        change: Option<&Change>,
    ) -> Result<Advance, Failure> {
        self.take_slot().await;
        let mut own = Stage::Seen(Seen::Given(seen));
        let ended = self.run_from(&mut own, change).await;
        if let (Err(_), Stage::Applied(applied, _)) = (&ended, &own) {
            self.pass.met.look_again_at(&applied.plan);
        }
        ended
    }

    async fn run_from<'r>(
        &mut self,
        own: &mut Stage<'r>,
        change: Option<&'r Change>,
    ) -> Result<Advance, Failure> {
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
                        // The one that asked for it goes on, or fails itself.
                        Err(failure) => match stage.child_ended(item, Err(failure)) {
                            Ok(()) => continue,
                            failed => failed,
                        },
                    }
                }
                Ok(Step::Ended(end)) if above.is_empty() => return Ok(end),
                Ok(Step::Ended(Advance::Ended(Commit::Closed))) => Ok(()),
                Ok(Step::Ended(Advance::Ended(_) | Advance::Obstructed)) => continue,
                Ok(Step::Ended(Advance::Refused(failure))) | Err(failure) => Err(failure),
            };
            let others = &mut self.others;
            hand_down(ended, &mut above, own, &mut nesting, others)?;
        }
    }

    /// Goes from an observation to a closed footprint; whether it got there.
    pub(crate) async fn closes(&mut self, seen: &Observation) -> Result<bool, Failure> {
        match self.round(seen, None).await? {
            Advance::Ended(end) => {
                let closed = end == Commit::Closed;
                if closed && !self.writes {
                    self.pass.summary.found_after = found_after(&self.pass.scope, seen);
                }
                Ok(closed)
            }
            Advance::Refused(failure) => Err(failure),
            Advance::Obstructed => Ok(false),
        }
    }

    /// Writes the primary as `change` says, based on the observation, and brings its items in step.
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
            Ok(Advance::Ended(end)) => Ok(end),
            // The announcement for the refused state is withdrawn.
            Ok(Advance::Refused(failure)) => self.settle_from(seen).await.and(Err(failure)),
            Ok(Advance::Obstructed) => self.settle_from(seen).await.map(|()| Commit::Lost),
            // It may be written all the same, with a view that fails: the claims of others on it are still to follow.
            Err(failure)
                if failure.class == FailureClass::Permanent
                    && change.result().is_some()
                    && self.pass.scope.receives() =>
            {
                self.settle().await.and(Err(failure))
            }
            Err(failure) => Err(failure),
        }
    }
}

/// A pass above the run's own.
struct Nested<'e, 'r> {
    pass: Pass<'e>,
    stage: Stage<'r>,
    /// What it is to the pass below.
    item: ItemAddress,
}

impl<'e> Nested<'e, '_> {
    /// A pass over another primary. It inherits the delivery alone. What is derived has a key that its view has checked, and is in no
    /// archive.
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

/// The pass on top has ended: the one below goes on, or has failed with it, and so on. An error ends the run, and every announcement
/// stays open.
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
