//! Carries out an announced plan: large values, the primary if it changes, then the items.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::execute::Failure;
use crate::items::{self, ItemOperation, LookContext, OperationResults, Stays, WriteContext};
use crate::protocol::change::Commit;
use crate::protocol::commit::{self, PreparedChange};
use crate::protocol::observe::Observation;
use crate::protocol::run::pass::Pass;
use crate::protocol::run::stage::Applied;
use crate::protocol::scope::{Desired, Scope};
use crate::protocol::steps::Plan;
use evenkeel_model::{ETag, ItemAddress};

pub(super) enum ApplyOutcome {
    Done,
    /// A write of an item lost a race. If the job changes the primary, the primary is already written.
    Lost,
    Ended(Commit),
}

impl Pass<'_> {
    pub(super) async fn apply(
        &mut self,
        applied: &mut Applied<'_>,
        change: Option<PreparedChange<'_>>,
    ) -> Result<ApplyOutcome, Failure> {
        let (plan, mut written) = (&*applied.plan, BTreeMap::new());
        let mut rest = Cow::Borrowed(plan);
        if let Some(change) = change {
            let (scope, values, mut run) = self.parts();
            let Some(uploaded) = commit::upload(scope, values, &mut run, plan).await? else {
                return Ok(ApplyOutcome::Ended(Commit::Lost));
            };
            match commit::write(scope, run, change, plan, uploaded).await? {
                Ok(committed) => {
                    applied.state = committed.state;
                    written = committed.written;
                    rest = Cow::Owned(committed.rest);
                }
                Err(end) => return Ok(ApplyOutcome::Ended(end)),
            }
        }
        let ended = self.write_items(&rest, &applied.seen, &applied.desired, written);
        let ended = match ended.await {
            Ok(Some(written)) => self.is_recorded(plan).await.map(|()| Some(written)),
            lost => lost,
        };
        if !matches!(ended, Ok(Some(_))) {
            self.tracker.observe_again(plan);
        }
        Ok(match ended? {
            Some(written) => {
                applied.written = written;
                ApplyOutcome::Done
            }
            None => ApplyOutcome::Lost,
        })
    }

    /// Writes and drops items. `done` has the versions of items that are already written. Items that are already
    /// dropped are no longer in the plan. Returns `None` if a race was lost.
    async fn write_items(
        &mut self,
        plan: &Plan,
        seen: &Observation,
        desired: &Desired,
        done: BTreeMap<ItemAddress, ETag>,
    ) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
        let open = ItemOperation::of(plan)
            .into_iter()
            .filter(|operation| !done.contains_key(operation.address()))
            .collect();
        let (scope, values, mut run) = self.parts();
        let by = WriteContext {
            scope,
            values,
            unanswered: run.unanswered,
        };
        let from = LookContext {
            scope,
            footprint: &seen.footprint,
            touched: run.touched,
        };
        let stays = Stays {
            items: &plan.unseen,
            desired: &desired.items,
        };
        let ended = match items::apply_in_order(by, from, stays, open).await? {
            OperationResults::Each(ended) => ended,
            OperationResults::NotSent(differ) => {
                run.touched.extend(differ);
                return Ok(None);
            }
        };
        Ok(commit::record_outcomes(ended, &mut run)?
            .map(|written| done.into_iter().chain(written).collect()))
    }

    /// Fails if another catalog is recorded by now, because that catalog may have new views of the changed items. The
    /// announcement then stays open, so that a pass with the other catalog looks at these items.
    async fn is_recorded(&self, plan: &Plan) -> Result<(), Failure> {
        if plan.changed().next().is_none() {
            return Ok(());
        }
        let Scope { env, primary, .. } = &self.scope;
        env.refuse_replaced(|| format!("closing the footprint of {primary}"))
            .await
    }
}
