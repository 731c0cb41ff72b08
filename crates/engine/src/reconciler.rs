//! Passes over one primary, until one closes: a race that was lost begins another, a few times.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::change::{Advance, Change, Commit};
use super::document::ArchiveDocument;
use super::engine::Engine;
use super::execute::{Delivery, Failure, FailureClass, Summary};
use super::failure::{ROUNDS, lost_race};
use super::footprint::Footprint;
use super::freshness::found_after;
use super::nesting::Nesting;
use super::observation::{self, Observation};
use super::pass::Pass;
use super::queueing::queue_recheck;
use super::scope::{ClaimReading, Scope, Wanted};

use super::steps::Plan;
use super::value::{Staged, ValueOrigin};
use super::waiting::note_untold;
use super::{commit, footprints, receive, record};
use evenkeel_model::catalog::{TableRef, ViewStatus};
use evenkeel_model::job::{Looks, Primary};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::{ETag, Entity, ItemAddress};

/// The longest wait between two rounds.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is asked of a pass, beside its primary.
#[derive(Default)]
pub(super) struct PassOptions<'e> {
    /// Which items are looked at besides those that it has met.
    pub(super) looks: Looks,
    /// Whether it reads the claims of others on its primary.
    pub(super) said: ClaimReading,
    /// To look at from the first round on, also where its footprint does not list them.
    pub(super) met: BTreeSet<ItemAddress>,
    /// Rechecks in a row before those that it queues: none unless it is a recheck's.
    pub(super) chained: u32,
    /// The document in place of the primary's row, where it is an archived one.
    pub(super) document: Option<ArchiveDocument<'e>>,
    /// The passes that it is nested in.
    pub(super) outer: Option<&'e Nesting<'e>>,
}

/// The passes of one run over one primary.
pub(super) struct Reconciler<'e> {
    pass: Pass<'e>,
    rounds: u32,
    /// When its last round began (monotonic).
    began: Duration,
    /// This run writes the primary: how soon that is found says nothing of others' writes.
    writes: bool,
}

impl<'e> Reconciler<'e> {
    pub(super) fn new(
        engine: &'e Engine,
        source: &'e TableRef,
        primary: Primary,
        delivery: Option<&'e Delivery>,
        mut options: PassOptions<'e>,
    ) -> Self {
        let (looks, met) = (options.looks, std::mem::take(&mut options.met));
        let scope = Scope::with(engine, source, primary, delivery, options);
        Self {
            pass: Pass::new(scope, looks, met),
            rounds: 0,
            began: Duration::ZERO,
            writes: false,
        }
    }

    /// Brings every item of the primary in step with its present state.
    pub(super) async fn reconcile(mut self) -> Result<Summary, Failure> {
        self.settle().await?;
        Ok(self.take_summary())
    }

    /// What its passes are about.
    pub(super) const fn scope(&self) -> &Scope<'e> {
        &self.pass.scope
    }

    /// The changes made so far.
    pub(super) const fn summary(&self) -> &Summary {
        &self.pass.summary
    }

    /// Whether this run has written the primary, or may have.
    pub(super) const fn may_have_written(&self) -> bool {
        self.pass.doubt.may_have_written()
    }

    /// Whether a round has queued a recheck.
    pub(super) const fn has_queued_a_recheck(&self) -> bool {
        self.pass.doubt.rechecks.are_queued()
    }

    /// Whether the run of a recheck leaves the primary to a faster pass.
    pub(super) const fn gives_way(&self) -> bool {
        self.pass.doubt.gives_way()
    }

    /// Reads from now on also rows of a wide entity that have lost their first.
    pub(super) const fn rows_may_be_left(&mut self) {
        self.pass.doubt.rows_may_be_left();
    }

    /// Also looks at these, where it observes once more. Whether it looks at anything then.
    pub(super) fn will_look_at(&mut self, items: impl Iterator<Item = ItemAddress>) -> bool {
        self.pass.met.touched.extend(items);
        !self.pass.met.touched.is_empty()
    }

    /// Takes large values out of a change, and puts pointers in their place.
    pub(super) fn take_out(
        &mut self,
        change: Change,
        staged: &BTreeMap<String, (Staged, String)>,
    ) -> Result<Change, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_out(scope, change, staged)
    }

    /// Takes in an entity that comes from another primary, with its large values.
    pub(super) async fn take_in(
        &mut self,
        from: Option<&ValueOrigin>,
        entity: Entity,
    ) -> Result<Entity, Failure> {
        let Pass { scope, values, .. } = &mut self.pass;
        values.take_in(scope, from, entity).await
    }

    /// Whether this run brings large values.
    pub(super) fn brings_values(&self) -> bool {
        !self.pass.values.supplies.is_empty()
    }

    /// Whether it brings this one.
    pub(super) fn brings(&self, value: &ItemAddress) -> bool {
        self.pass.values.supplies.contains_key(value)
    }

    /// Writes the announcement of a plan, over what was seen; nothing where another pass was faster.
    pub(super) async fn announce(
        &mut self,
        seen: &Observation,
        plan: &Plan,
    ) -> Result<Option<Option<ETag>>, Failure> {
        self.pass.announce(seen, plan).await
    }

    /// Writes a footprint over its own announcement. Whether it was written.
    pub(super) async fn announce_again(&mut self, footprint: &Footprint) -> Result<bool, Failure> {
        let Pass { scope, doubt, .. } = &mut self.pass;
        let over = doubt.announcement().cloned();
        let doing = "keeping the large values in";
        let written = footprints::write(scope, doubt, footprint, over.as_ref(), doing).await?;
        let is_written = written.is_some();
        if let Some(etag) = written {
            doubt.announced_again(etag);
        }
        Ok(is_written)
    }

    /// Uploads the values of an announced plan. `false` where a race was lost.
    pub(super) async fn upload(&mut self, plan: &Plan) -> Result<bool, Failure> {
        let (scope, values, mut run) = self.pass.run();
        let uploaded = commit::upload(scope, values, &mut run, plan).await?;
        Ok(uploaded.is_some())
    }

    /// Writes the primary alone, with all that follows from it still to come.
    pub(super) async fn write_alone(
        &mut self,
        seen: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        let Pass { scope, doubt, .. } = &mut self.pass;
        commit::write_alone(scope, doubt, seen, change).await
    }

    /// The plan of a pass with this observation.
    pub(super) fn plan(&self, seen: &Observation, wanted: &Wanted) -> Result<Plan, Failure> {
        self.pass.plan(seen, wanted)
    }

    /// The changes made so far, for the outcome of its job.
    pub(super) fn take_summary(&mut self) -> Summary {
        std::mem::take(&mut self.pass.summary)
    }

    /// As [`reconcile`](Self::reconcile), for a pass that goes on afterwards.
    pub(super) async fn settle(&mut self) -> Result<(), Failure> {
        if !self.pass.scope.has_views() && !self.pass.scope.receives() {
            return Ok(());
        }
        loop {
            self.next_round().await?;
            let mut seen = self.observe().await?;
            if !self.receive(&mut seen).await? {
                continue;
            }
            if !self.pass.scope.has_views() {
                let Pass { scope, doubt, .. } = &self.pass;
                return if doubt.rechecks_the_primary() {
                    queue_recheck(scope, &[], None).await
                } else {
                    Ok(())
                };
            }
            if self.closes(&seen).await? || planted(Bug::LostRaceIsDone) {
                return Ok(());
            }
        }
    }

    /// As [`settle`](Self::settle), from the given observation.
    pub(super) async fn settle_from(&mut self, seen: &Observation) -> Result<(), Failure> {
        // The claims of others are read after the primary.
        let done = !self.pass.scope.receives()
            && (!self.pass.scope.has_views() || self.closes(seen).await?);
        if done { Ok(()) } else { self.settle().await }
    }

    /// Counts a round. After a race that was lost it waits: passes that begin at once interrupt each other, and none comes to its end.
    pub(super) async fn next_round(&mut self) -> Result<(), Failure> {
        let lost = self.rounds;
        if lost == ROUNDS {
            self.leave_on_record().await;
            return Err(lost_race(
                format!("reconciling {}", self.pass.scope.primary),
                ROUNDS,
            ));
        }
        let Engine { clock, chance, .. } = self.pass.scope.engine;
        if lost > 0 && !self.pass.met.lost_no_race {
            let wait = pause(
                lost,
                clock.monotonic().saturating_sub(self.began),
                chance.unit(),
            );
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        self.began = clock.monotonic();
        self.rounds += 1;
        self.pass.summary.extra_rounds = lost;
        Ok(())
    }

    /// Marks the items that its rounds have met in the footprint, where it has inserted any: faster passes may have looked before, and closed. A
    /// best effort: otherwise they wait for the recheck.
    async fn leave_on_record(&mut self) {
        let Pass {
            scope,
            doubt,
            met,
            summary,
            ..
        } = &mut self.pass;
        if !summary.has_created() {
            return;
        }
        scope.disown(&mut met.touched);
        met.touched
            .retain(|address| scope.status(address, 0) != ViewStatus::Newer);
        for _ in 0..ROUNDS {
            let Ok(read) = scope.read_footprint().await else {
                return;
            };
            let (footprint, over) = read.map(|(footprint, row)| (footprint, row.etag)).unzip();
            let footprint = footprint.unwrap_or_default();
            let doubted = record::doubted(&scope.engine.catalog, footprint.clone(), &met.touched);
            let is_known = doubted == footprint;
            if is_known
                || !matches!(
                    footprints::write(scope, doubt, &doubted, over.as_ref(), "leaving a note in")
                        .await,
                    Ok(None)
                )
            {
                return;
            }
        }
    }

    pub(super) async fn observe(&mut self) -> Result<Observation, Failure> {
        observation::observe(
            &self.pass.scope,
            self.pass.looks,
            &mut self.pass.met.touched,
            self.pass.doubt.reads_leftovers(),
        )
        .await
    }

    /// Applies the claims of others to the primary. `false` where a race was lost.
    pub(super) async fn receive(&mut self, seen: &mut Observation) -> Result<bool, Failure> {
        let changes = receive::receive(&self.pass.scope, seen).await?;
        let received = changes.is_some();
        self.pass
            .summary
            .changes
            .extend(changes.into_iter().flatten());
        Ok(received)
    }

    /// Goes from an observation to a closed footprint; whether it got there.
    pub(super) async fn closes(&mut self, seen: &Observation) -> Result<bool, Failure> {
        match self.pass.advance(seen, None).await? {
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
    pub(super) async fn commit(
        &mut self,
        seen: &Observation,
        change: &Change,
    ) -> Result<Commit, Failure> {
        self.writes = true;
        if !self.pass.scope.has_views() {
            return self.write_alone(seen, change).await;
        }
        match self.pass.advance(seen, Some(change)).await {
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

impl Drop for Reconciler<'_> {
    /// The items of a pass that failed, or was dropped half-way, are changed all the same.
    fn drop(&mut self) {
        if self.pass.scope.outer.is_none() {
            note_untold(self.take_summary().changes);
        }
    }
}

/// How long a run waits after so many lost rounds: a random part of twice the last round's time, doubled with each.
fn pause(lost: u32, took: Duration, unit: f64) -> Duration {
    took.saturating_mul(2_u32.saturating_pow(lost))
        .min(LONGEST_PAUSE)
        .mul_f64(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_round_is_followed_by_a_random_part_of_a_time_that_grows_with_each() {
        let took = Duration::from_millis(50);
        assert_eq!(
            (1..=4)
                .map(|lost| pause(lost, took, 0.5).as_millis())
                .collect::<Vec<_>>(),
            [50, 100, 200, 400]
        );
        assert_eq!(pause(4, Duration::from_secs(3), 1.0), LONGEST_PAUSE);
        assert_eq!(pause(1, Duration::ZERO, 1.0), Duration::ZERO);
    }
}
