//! One pass over one primary. Each round goes through its stages (`stage`). If a round leaves something to do, the next
//! round begins (`rounds`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::env::Env;
use crate::env::waiting::record_unreported;
use crate::execute::{Delivery, Failure, FailureClass, Summary};
use crate::items::value::RunValues;
use crate::protocol::apply::ApplyOutcome;
use crate::protocol::change::{Change, Commit, RoundOutcome};
use crate::protocol::commit::{self, PreparedChange, RunState};
use crate::protocol::conflicts::{self, ConflictTracker, Resolution};
use crate::protocol::observe::{Observation, ReadAhead};
use crate::protocol::plan::{self, Decision};
use crate::protocol::plan_input::{OutdatedCatalog, PlanInput, Presence};
use crate::protocol::run::nesting::{Nesting, Role};
use crate::protocol::run::rounds::RoundStart;
use crate::protocol::run::stage::{Applied, Child, Children, Seen, Stage, Step};
use crate::protocol::scope::{Desired, PassOptions, Scope};
use crate::protocol::steps::Plan;
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{ItemReads, Primary};

pub(crate) struct Pass<'e> {
    pub(crate) scope: Scope<'e>,
    pub(crate) values: RunValues,
    pub(crate) unanswered: UnansweredWrites,
    pub(crate) tracker: ConflictTracker,
    pub(crate) reads: ItemReads,
    pub(crate) summary: Summary,
    pub(crate) rounds: u32,
    /// Monotonic time at which the last round began.
    pub(crate) round_began: Duration,
    /// A page of a walk with which the first round begins, if the page is still valid.
    pub(crate) ahead: Option<ReadAhead>,
}

impl Drop for Pass<'_> {
    /// Records the changes of a pass that failed or was dropped half-way. The items have changed nevertheless, but no
    /// outcome reports these changes.
    fn drop(&mut self) {
        record_unreported(std::mem::take(&mut self.summary.changes));
    }
}

impl<'e> Pass<'e> {
    pub(crate) fn new(
        env: &'e Env,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
        mut options: PassOptions<'e>,
    ) -> Self {
        let (reads, met) = (options.reads, std::mem::take(&mut options.met));
        let ahead = options.ahead.take();
        Self {
            scope: Scope::with(env, source, primary, delivery, options),
            values: RunValues::default(),
            unanswered: UnansweredWrites::default(),
            tracker: ConflictTracker::of(met),
            reads,
            summary: Summary::default(),
            rounds: 0,
            round_began: Duration::ZERO,
            ahead,
        }
    }

    /// Runs one stage of a round. `change` is the change of the primary that the round writes, if any.
    pub(crate) async fn step<'r>(
        &mut self,
        stage: Stage<'r>,
        change: Option<&'r Change>,
        nesting: &Nesting,
    ) -> Result<Step<'r>, Failure> {
        let ended = |end| Step::Ended(RoundOutcome::Ended(end));
        match stage {
            Stage::Fresh => Ok(match self.begin_round().await? {
                RoundStart::Observed(seen) => Step::Go(Stage::Seen(Seen::Own(seen))),
                RoundStart::NothingDerived => ended(Commit::Closed),
                RoundStart::Lost => Step::Go(Stage::Fresh),
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
                    self.tracker.observe_again(&applied.plan);
                }
                Ok(ended(self.end(applied.change, closed?)))
            }
        }
    }

    fn end(&self, change: Option<&Change>, closed: bool) -> Commit {
        match change {
            Some(change) if closed => commit::closed(&self.scope, change),
            Some(_) => Commit::Committed,
            None if closed => Commit::Closed,
            None => Commit::Lost,
        }
    }

    async fn carry_out<'r>(
        &mut self,
        seen: Seen<'r>,
        change: Option<&'r Change>,
        nesting: &Nesting,
    ) -> Result<Step<'r>, Failure> {
        let ended = |end| Ok(Step::Ended(RoundOutcome::Ended(end)));
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
            None => (seen.row().map(|row| &row.entity), Presence::of(&seen)),
        };
        let desired = self.scope.derive(entity)?;
        let plan = match self.decide(&seen, &desired, state.clone(), change.is_some())? {
            Decision::Settled => {
                self.settled(&seen, &desired).await?;
                return ended(Commit::Closed);
            }
            Decision::LookFirst(items) => {
                self.tracker.look_first_at(items);
                return ended(Commit::Lost);
            }
            Decision::Do(plan) => plan,
        };
        match conflicts::resolve(&self.scope, &mut self.tracker, &plan, nesting).await? {
            Resolution::Clear => {}
            Resolution::NewRound => return ended(Commit::Lost),
            Resolution::Holders(holders) => {
                let holders = Children::of(Role::Frees, holders);
                return Ok(Step::Go(Stage::Holders(holders)));
            }
        }
        if change.is_some()
            && let Some(end) = commit::blocked(&self.scope, &seen, &plan, &desired)?
        {
            return Ok(Step::Ended(end));
        }
        let Some(etag) = self.announce(&seen, &plan).await? else {
            return ended(Commit::Lost);
        };
        let mut applied = Box::new(Applied {
            seen,
            desired,
            plan,
            change,
            state,
            etag,
            written: BTreeMap::new(),
        });
        match self.apply(&mut applied, prepared).await? {
            ApplyOutcome::Done => {
                let followers = Children::of(Role::Follows, self.followers(&applied.plan));
                Ok(Step::Go(Stage::Applied(applied, followers)))
            }
            ApplyOutcome::Lost => ended(self.end(change, false)),
            ApplyOutcome::Ended(end) => ended(end),
        }
    }

    fn decide(
        &self,
        seen: &Observation,
        desired: &Desired,
        state: Presence,
        writes: bool,
    ) -> Result<Decision, Failure> {
        let input = PlanInput {
            writes,
            ..self.input(seen, desired, state)
        };
        let mark = || self.scope.env.new_mark();
        plan::decide(&input, &self.tracker.touched, mark).map_err(|error| self.outdated(error))
    }

    /// The plan after an observation, before key conflicts are resolved.
    pub(crate) fn plan(&self, seen: &Observation, desired: &Desired) -> Result<Plan, Failure> {
        let input = self.input(seen, desired, Presence::of(seen));
        plan::plan(&input).map_err(|error| self.outdated(error))
    }

    fn input<'s>(
        &'s self,
        seen: &'s Observation,
        desired: &'s Desired,
        state: Presence,
    ) -> PlanInput<'s> {
        PlanInput::of(
            &self.scope,
            &self.values,
            &self.unanswered,
            seen,
            desired,
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

    pub(crate) fn parts(&mut self) -> (&Scope<'e>, &RunValues, RunState<'_>) {
        let Self {
            scope,
            values,
            unanswered,
            tracker,
            summary,
            ..
        } = self;
        (
            scope,
            values,
            RunState {
                unanswered,
                touched: &mut tracker.touched,
                changes: &mut summary.changes,
            },
        )
    }

    /// The primaries that a plan changed: entities on which it set properties, and items that are primaries themselves.
    /// Items that were written in the primary's own transaction are included.
    fn followers(&self, plan: &Plan) -> Vec<Child> {
        let followers = plan.changed().filter_map(|item| {
            let primary = self.scope.derived_primary(item)?;
            Some(Child {
                primary,
                item: item.clone(),
            })
        });
        followers.collect()
    }
}
