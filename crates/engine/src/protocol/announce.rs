//! The announcement: before a pass creates or drops items, it lists them in the footprint.

use crate::execute::{Failure, FailureClass};
use crate::failure::permanent;
use crate::protocol::footprint::{NoRoom, store};
use crate::protocol::observe::Observation;
use crate::protocol::run::pass::Pass;
use crate::protocol::scope::Scope;
use crate::protocol::sent_at::SentAt;
use crate::protocol::steps::{Plan, Write};
use evenkeel_model::ETag;

impl Pass<'_> {
    /// Writes the plan's announcement, if the plan has one. Returns the ETag at which the pass closes the footprint.
    /// `Some(None)` means that no footprint exists, so the close inserts one. `None` means that another pass was
    /// faster, or that the write got no answer.
    pub(crate) async fn announce(
        &mut self,
        seen: &Observation,
        plan: &Plan,
    ) -> Result<Option<Option<ETag>>, Failure> {
        let Some(footprint) = &plan.announce else {
            return Ok(Some(seen.etag.clone()));
        };
        refuse_unclosable(&self.scope, seen, plan)?;
        let sent = SentAt::now(self.scope.env.clock.as_ref());
        let etag = store::write(
            &self.scope,
            &mut self.unanswered,
            footprint,
            seen.etag.as_ref(),
            "announcing changes in",
        )
        .await?;
        if let Some(etag) = &etag {
            self.unanswered
                .announced(seen, footprint, etag.clone(), sent);
        }
        Ok(etag.map(Some))
    }
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{0} ranges still wait for their `propagate` jobs, more than a footprint can list. Check that these jobs are not in the poison queue"
)]
struct TooManyRanges(usize);

/// Fails if the plan has new items and the footprint would be too large for one entity at the close. The close adds the
/// ETags of the new items. Also fails if too many ranges are marked. That failure is transient, because each
/// `propagate` job removes its mark.
fn refuse_unclosable(scope: &Scope<'_>, seen: &Observation, plan: &Plan) -> Result<(), Failure> {
    let is_new = |write: &Write| !seen.footprint.items.contains_key(&write.address);
    let Some(footprint) = &plan.announce else {
        return Ok(());
    };
    match footprint.fits() {
        Err(NoRoom::Ranges) => Err(Failure::new(
            FailureClass::Transient { retry_after: None },
            format!("announcing range overlays of {}", scope.primary),
            TooManyRanges(footprint.propagations.len()),
        )),
        Err(NoRoom::Items) if plan.writes.iter().any(is_new) => Err(permanent(
            format!("announcing items of {}", scope.primary),
            footprint.too_large(&scope.primary),
        )),
        Ok(()) | Err(NoRoom::Items) => Ok(()),
    }
}
