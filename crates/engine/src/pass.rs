//! One pass over one primary: see, decide, announce, write, close. Each round goes through its stages (`stage`), and one that lost a race begins
//! anew (`rounds`).
//!
//! ```text
//!   observe   footprint → looks → primary        always in this order
//!   plan      (pure)
//!   announce  the footprint, at its ETag         before anything is created or dropped
//!   apply     large values and the primary, where it changes; then items written, then dropped, each conditional
//!   close     what follows is queued (`outbox`), then the footprint, at its ETag
//! ```
//!
//! The footprint is read before the primary, so a later successful write of it never rests on an older
//! state of the primary. A write that fails its condition sends the pass back to `observe`, with a look at
//! the items it touched. A pass dropped anywhere leaves its unfinished changes marked in the footprint for the next one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use super::change::{Advance, Change, Commit};
use super::commit::{self, PreparedChange, RunState};
use super::conflicts::{self, KeysMet, Resolution};
use super::doubt::Doubt;
use super::env::Env;
use super::execute::{Delivery, Failure, FailureClass, Summary};
use super::footprints;
use super::items::{self, ItemOperation, LookContext, Ran, Stays, WriteContext};
use super::nesting::{Nesting, Role};
use super::observation::Observation;
use super::plan::{self, Decision};
use super::rounds::Sight;
use super::scope::{PassOptions, Scope, Wanted};
use super::sent_at::SentAt;
use super::situation::{OutdatedCatalog, Presence, Situation};
use super::stage::{Applied, Child, Children, Seen, Stage, Step};
use super::steps::Plan;
use super::value::RunValues;
use super::waiting::note_untold;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{Looks, Primary};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::{ETag, ItemAddress};

/// One pass.
pub(super) struct Pass<'e> {
    pub(super) scope: Scope<'e>,
    /// The large values that it brings.
    pub(super) values: RunValues,
    pub(super) doubt: Doubt,
    pub(super) met: KeysMet,
    /// Which items are looked at besides those that it has met.
    pub(super) looks: Looks,
    pub(super) summary: Summary,
    pub(super) rounds: u32,
    /// When its last round began (monotonic).
    pub(super) began: Duration,
}

impl Drop for Pass<'_> {
    /// The items of a pass that failed, or was dropped half-way, are changed all the same.
    fn drop(&mut self) {
        note_untold(std::mem::take(&mut self.summary.changes));
    }
}

/// How it ended to carry a plan out.
enum Applying {
    /// It is carried out.
    Done,
    /// The primary is written, where it changes; the rest lost a race.
    Lost,
    /// The primary is not written.
    Ended(Commit),
}

impl<'e> Pass<'e> {
    pub(super) fn new(
        env: &'e Env,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
        mut options: PassOptions<'e>,
    ) -> Self {
        let (looks, met) = (options.looks, std::mem::take(&mut options.met));
        Self {
            scope: Scope::with(env, source, primary, delivery, options),
            values: RunValues::default(),
            doubt: Doubt::default(),
            met: KeysMet::of(met),
            looks,
            summary: Summary::default(),
            rounds: 0,
            began: Duration::ZERO,
        }
    }

    /// One stage of a round, which leads from an observation, and a change of the primary where there is one, to a closed footprint.
    pub(super) async fn step<'r>(
        &mut self,
        stage: Stage<'r>,
        change: Option<&'r Change>,
        nesting: &Nesting,
    ) -> Result<Step<'r>, Failure> {
        let ended = |end| Step::Ended(Advance::Ended(end));
        match stage {
            Stage::Fresh => Ok(match self.see().await? {
                Sight::Whole(seen) => Step::Go(Stage::Seen(Seen::Own(seen))),
                Sight::Alone => ended(Commit::Closed),
                Sight::Lost => Step::Go(Stage::Fresh),
            }),
            Stage::Seen(seen) => self.carry_out(seen, change, nesting).await,
            Stage::Holders(mut holders) => Ok(match holders.next() {
                Some(holder) => Step::Open(Stage::Holders(holders), Box::new(holder)),
                None => ended(Commit::Lost),
            }),
            Stage::Applied(applied, mut followers) => {
                if let Some(follower) = followers.next() {
                    let stage = Stage::Applied(applied, followers);
                    return Ok(Step::Open(stage, Box::new(follower)));
                }
                let closed = self.close(&applied, followers.followed()).await;
                if !matches!(closed, Ok(true)) {
                    self.met.look_again_at(&applied.plan);
                }
                Ok(ended(self.end(applied.change, closed?)))
            }
        }
    }

    /// How a round ends that has carried its plan out.
    fn end(&self, change: Option<&Change>, closed: bool) -> Commit {
        match change {
            Some(change) if closed => commit::closed(&self.scope, change),
            Some(_) => Commit::Committed,
            None if closed => Commit::Closed,
            None => Commit::Lost,
        }
    }

    /// Plans, announces and applies.
    async fn carry_out<'r>(
        &mut self,
        seen: Seen<'r>,
        change: Option<&'r Change>,
        nesting: &Nesting,
    ) -> Result<Step<'r>, Failure> {
        let ended = |end| Ok(Step::Ended(Advance::Ended(end)));
        let prepared = change
            .map(|change| PreparedChange::of(&self.scope, &seen, change))
            .transpose()?;
        let (entity, state) = match change {
            Some(change) => (
                change.result(),
                change
                    .result()
                    .map_or(Presence::Absent, |_| Presence::Present(None)),
            ),
            None => (
                seen.row.as_ref().map(|row| &row.entity),
                Presence::of(&seen),
            ),
        };
        let wanted = self.scope.derive(entity)?;
        let plan = match self.decide(&seen, &wanted, state.clone(), change.is_some())? {
            Decision::Settled => {
                self.settled(&seen, &wanted).await?;
                return ended(Commit::Closed);
            }
            Decision::LookFirst(items) => {
                self.met.look_first_at(items);
                return ended(Commit::Lost);
            }
            Decision::Do(plan) => plan,
        };
        match conflicts::resolve(&self.scope, &mut self.met, &plan, nesting).await? {
            Resolution::Clear => {}
            Resolution::Again => return ended(Commit::Lost),
            Resolution::Holders(holders) => {
                let holders = Children::of(Role::Frees, holders);
                return Ok(Step::Go(Stage::Holders(holders)));
            }
        }
        if change.is_some()
            && let Some(end) = commit::hindered(&self.scope, &seen, &plan, &wanted)?
        {
            return Ok(Step::Ended(end));
        }
        let Some(etag) = self.announce(&seen, &plan).await? else {
            return ended(Commit::Lost);
        };
        let mut applied = Box::new(Applied {
            seen,
            wanted,
            plan,
            change,
            state,
            etag,
            written: BTreeMap::new(),
        });
        match self.apply(&mut applied, prepared).await? {
            Applying::Done => {
                let followers = Children::of(Role::Follows, self.followers(&applied.plan));
                Ok(Step::Go(Stage::Applied(applied, followers)))
            }
            Applying::Lost => ended(self.end(change, false)),
            Applying::Ended(end) => ended(end),
        }
    }

    /// What to do after an observation.
    fn decide(
        &self,
        seen: &Observation,
        wanted: &Wanted,
        state: Presence,
        writes: bool,
    ) -> Result<Decision, Failure> {
        let situation = Situation {
            writes,
            ..self.situation(seen, wanted, state)
        };
        let mark = || self.scope.env.new_mark();
        plan::decide(&situation, &self.met.touched, mark).map_err(|error| self.outdated(error))
    }

    /// The plan after an observation, before anything is asked of others.
    pub(super) fn plan(&self, seen: &Observation, wanted: &Wanted) -> Result<Plan, Failure> {
        let situation = self.situation(seen, wanted, Presence::of(seen));
        plan::plan(&situation).map_err(|error| self.outdated(error))
    }

    fn situation<'s>(
        &'s self,
        seen: &'s Observation,
        wanted: &'s Wanted,
        state: Presence,
    ) -> Situation<'s> {
        Situation::of(
            &self.scope,
            (&self.values, &self.doubt),
            seen,
            wanted,
            state,
        )
    }

    fn outdated(&self, error: OutdatedCatalog) -> Failure {
        Failure::new(
            FailureClass::OutdatedCatalog,
            format!("planning {}", self.scope.primary),
            error,
        )
    }

    /// The state of this run that writes change, beside the rest of it.
    pub(super) fn run(&mut self) -> (&Scope<'e>, &RunValues, RunState<'_>) {
        let Self {
            scope,
            values,
            doubt,
            met,
            summary,
            ..
        } = self;
        (
            scope,
            values,
            RunState {
                doubt,
                touched: &mut met.touched,
                changes: &mut summary.changes,
            },
        )
    }

    /// Writes the announcement, where the plan has one. Returns the ETag under which to close; nothing where
    /// another pass was faster.
    pub(super) async fn announce(
        &mut self,
        seen: &Observation,
        plan: &Plan,
    ) -> Result<Option<Option<ETag>>, Failure> {
        let Some(footprint) = &plan.announce else {
            return Ok(Some(seen.etag.clone()));
        };
        footprints::refuse_unclosable(&self.scope, seen, plan)?;
        let sent = SentAt::now(self.scope.env.clock.as_ref());
        let etag = footprints::write(
            &self.scope,
            &mut self.doubt,
            footprint,
            seen.etag.as_ref(),
            "announcing changes in",
        )
        .await?;
        if let Some(etag) = &etag {
            self.doubt.announced(seen, footprint, etag.clone(), sent);
        }
        Ok(etag.map(Some))
    }

    /// Carries an announced plan out: large values and the primary, where it changes, then the items.
    async fn apply(
        &mut self,
        applied: &mut Applied<'_>,
        change: Option<PreparedChange<'_>>,
    ) -> Result<Applying, Failure> {
        let (plan, mut written) = (&*applied.plan, BTreeMap::new());
        let mut rest = Cow::Borrowed(plan);
        if let Some(change) = change {
            let (scope, values, mut run) = self.run();
            let Some(uploaded) = commit::upload(scope, values, &mut run, plan).await? else {
                return Ok(Applying::Ended(Commit::Lost));
            };
            match commit::write(scope, run, change, plan, uploaded).await? {
                Ok(committed) => {
                    applied.state = committed.state;
                    written = committed.written;
                    rest = Cow::Owned(committed.rest);
                }
                Err(end) => return Ok(Applying::Ended(end)),
            }
        }
        let ended = self.write_items(&rest, &applied.seen, &applied.wanted, written);
        let ended = match ended.await {
            Ok(Some(written)) => self.is_recorded(plan).await.map(|()| Some(written)),
            lost => lost,
        };
        if !matches!(ended, Ok(Some(_))) {
            self.met.look_again_at(plan);
        }
        Ok(match ended? {
            Some(written) => {
                applied.written = written;
                Applying::Done
            }
            None => Applying::Lost,
        })
    }

    /// Writes and drops items. `done` has the versions of those that are written already; items that are dropped already are
    /// not in the plan any more. Nothing where a race was lost.
    async fn write_items(
        &mut self,
        plan: &Plan,
        seen: &Observation,
        wanted: &Wanted,
        done: BTreeMap<ItemAddress, ETag>,
    ) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
        let open = ItemOperation::of(plan)
            .into_iter()
            .filter(|operation| !done.contains_key(operation.address()))
            .collect();
        let (scope, values, mut run) = self.run();
        let by = WriteContext {
            scope,
            values,
            doubt: run.doubt,
        };
        let from = LookContext {
            scope,
            footprint: &seen.footprint,
            touched: run.touched,
        };
        let stays = Stays {
            items: &plan.unseen,
            wanted: &wanted.items,
        };
        let ended = match items::apply_in_order(by, from, stays, open).await? {
            Ran::Each(ended) => ended,
            Ran::Nothing(differ) => {
                run.touched.extend(differ);
                return Ok(None);
            }
        };
        Ok(
            commit::noted(ended, &mut run)?
                .map(|written| done.into_iter().chain(written).collect()),
        )
    }

    /// Refuses to go on by a catalog that is not the recorded one any more: a view that only a newer one has may derive from what was
    /// changed. Its pass knows these items by their announcement.
    async fn is_recorded(&self, plan: &Plan) -> Result<(), Failure> {
        if plan.changed().next().is_none() {
            return Ok(());
        }
        let Scope { env, primary, .. } = &self.scope;
        env.refuse_replaced(|| format!("closing the footprint of {primary}"))
            .await
    }

    /// The primaries that a plan has written on, or that its items are. Those of the primary's own transaction are among them.
    fn followers(&self, plan: &Plan) -> Vec<Child> {
        let changed = plan.changed().filter(|_| !planted(Bug::NoSyncOn));
        let followers = changed.filter_map(|item| {
            let primary = self.scope.derived_primary(item)?;
            Some(Child {
                primary,
                item: item.clone(),
            })
        });
        followers.collect()
    }
}
