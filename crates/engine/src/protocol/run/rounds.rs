//! The rounds of a pass. Each round begins with an observation. Another round follows, up to `ROUNDS`, if a race was
//! lost, if items had to be looked at first or were left to the next round, or if passes over holders of wanted keys
//! had to run.

use std::time::Duration;

use crate::env::Env;
use crate::execute::Failure;
use crate::failure::{ROUNDS, lost_race};
use crate::protocol::footprint::record;
use crate::protocol::footprint::store;
use crate::protocol::observe::{self, Observation};
use crate::protocol::overlays;
use crate::protocol::queueing::queue_recheck;
use crate::protocol::run::pass::Pass;
use evenkeel_model::catalog::ViewStatus;

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) enum RoundStart {
    Observed(Box<Observation>),
    /// Nothing is derived from the primary, so nothing is left to do.
    NothingDerived,
    Lost,
}

impl Pass<'_> {
    /// Begins a round: counts it and observes everything. Range overlays on the primary are read last, and are applied
    /// to the stored primary if it differs from them.
    pub(crate) async fn begin_round(&mut self) -> Result<RoundStart, Failure> {
        if !self.scope.has_views() && !self.scope.reads_overlays() {
            return Ok(RoundStart::NothingDerived);
        }
        self.next_round().await?;
        let mut seen = self.observe().await?;
        let Some(changes) = overlays::apply_overlays(&self.scope, &mut seen).await? else {
            return Ok(RoundStart::Lost);
        };
        self.summary.changes.extend(changes);
        if self.scope.has_views() {
            return Ok(RoundStart::Observed(Box::new(seen)));
        }
        if self.unanswered.rechecks_the_primary() {
            queue_recheck(&self.scope, &[], None).await?;
        }
        Ok(RoundStart::NothingDerived)
    }

    /// Counts a round. After a lost race, waits first, because passes that begin again at once interrupt each other, so
    /// that none of them completes.
    pub(crate) async fn next_round(&mut self) -> Result<(), Failure> {
        let lost = self.rounds;
        if lost == ROUNDS {
            self.mark_touched().await;
            return Err(lost_race(
                format!("reconciling {}", self.scope.primary),
                ROUNDS,
            ));
        }
        let Env { clock, rng, .. } = self.scope.env;
        if lost > 0 && !self.tracker.begin_at_once {
            let wait = pause(
                lost,
                clock.monotonic().saturating_sub(self.round_began),
                rng.unit(),
            );
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
        self.round_began = clock.monotonic();
        self.rounds += 1;
        self.summary.extra_rounds = lost;
        Ok(())
    }

    /// Before the run gives up, marks the items that it touched as changing in the footprint. This is needed only if
    /// the run has inserted items, because a faster pass may have looked before the insert and closed. If the marks
    /// cannot be written, only the recheck repairs the items.
    async fn mark_touched(&mut self) {
        let Pass {
            scope,
            unanswered,
            tracker,
            summary,
            ..
        } = self;
        if !summary.has_created() {
            return;
        }
        scope.remove_foreign(&mut tracker.touched);
        tracker
            .touched
            .retain(|address| scope.status(address, 0) != ViewStatus::Newer);
        for _ in 0..ROUNDS {
            let Ok(read) = scope.read_footprint().await else {
                return;
            };
            let (footprint, over) = read.map(|(footprint, row)| (footprint, row.etag)).unzip();
            let footprint = footprint.unwrap_or_default();
            let marked =
                record::marked_as_changing(&scope.env.catalog, footprint.clone(), &tracker.touched);
            let is_listed = marked == footprint;
            if is_listed
                || !matches!(
                    store::write(
                        scope,
                        unanswered,
                        &marked,
                        over.as_ref(),
                        "marking items in"
                    )
                    .await,
                    Ok(None)
                )
            {
                return;
            }
        }
    }

    /// Observes everything but range overlays, beginning with a walk's page if there is one.
    pub(crate) async fn observe(&mut self) -> Result<Observation, Failure> {
        let (scope, reads, touched) = (&self.scope, self.reads, &mut self.tracker.touched);
        if let Some(ahead) = self.ahead.take()
            && let Some(seen) = observe::from_page(scope, reads, touched, ahead).await?
        {
            return Ok(seen);
        }
        observe::observe(scope, reads, touched, self.unanswered.reads_leftovers()).await
    }
}

/// The wait after `lost` rounds: the duration of the last round, doubled for each lost round, at most `LONGEST_PAUSE`,
/// times the random fraction `unit`.
fn pause(lost: u32, took: Duration, unit: f64) -> Duration {
    took.saturating_mul(2_u32.saturating_pow(lost))
        .min(LONGEST_PAUSE)
        .mul_f64(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_lost_round_is_random_and_grows() {
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
