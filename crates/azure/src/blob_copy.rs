//! Copies that the service makes later: `Copy Blob` may answer before the content is there.

use std::time::Duration;

use azure_core::prelude::IfMatchCondition;

use super::blobs::{Address, AzureBlobs, DELETE, PROPERTIES};
use super::classify::{Absent, CallKind};
use super::transport::HttpAnswer;
use evenkeel_model::ETag;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{ErrorClass, Resource, StoreError};

pub(super) const COPY: CallKind = CallKind::write("Copy Blob", Absent::Item);

/// How often a pending copy is looked at: for about 5 minutes in all.
const COPY_LOOKS: u32 = 66;
/// The pauses before the looks; inside one account a copy is a matter of moments.
const COPY_PAUSES: WaitPolicy = WaitPolicy {
    jitter: 0.0,
    ..WaitPolicy::doubling(Duration::from_millis(50), Duration::from_secs(5))
};

/// State of the last copy onto a blob, from an answer ("Get Blob Properties", `x-ms-copy-status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copying {
    /// There was none, or something else was written since.
    None,
    Done,
    Pending,
    /// It failed, or was aborted.
    GivenUp,
}

pub(super) fn copy_of(answer: &HttpAnswer) -> Copying {
    match answer.header("x-ms-copy-status") {
        None => Copying::None,
        Some("success") => Copying::Done,
        Some("pending") => Copying::Pending,
        Some(_) => Copying::GivenUp,
    }
}

impl AzureBlobs {
    /// Waits until a copy that the service does later is done: this one, by the id that the service gave it.
    pub(super) async fn finished_copy(
        &self,
        to: Address<'_>,
        id: Option<&str>,
        what: impl Fn() -> Resource,
    ) -> Result<ETag, StoreError> {
        for look in 1..=COPY_LOOKS {
            tokio::time::sleep(COPY_PAUSES.unjittered(look)).await;
            let replaced = || {
                let message = "another write took the place of the copy while it was under way";
                self.caller
                    .error(ErrorClass::Precondition, COPY, what(), message)
            };
            let answer = match self
                .caller
                .run(
                    PROPERTIES,
                    &what,
                    self.blob(to).get_properties().into_future(),
                )
                .await
            {
                Ok(answer) => answer,
                Err(error) if error.is_missing_item() => return Err(replaced()),
                // The copy goes on regardless of this request.
                Err(error) if error.class.is_transient() => continue,
                Err(mut error) => {
                    error.class = ErrorClass::Ambiguous;
                    return Err(error);
                }
            };
            if id.is_some_and(|id| answer.header("x-ms-copy-id") != Some(id)) {
                return Err(replaced());
            }
            match copy_of(&answer) {
                Copying::Pending => {}
                Copying::None | Copying::Done => return self.caller.etag(COPY, what, &answer),
                Copying::GivenUp => {
                    // It leaves a blob without content, which must not be taken for the copy, and which would be in the
                    // way of another.
                    let etag = self.caller.etag(COPY, &what, &answer)?;
                    let emptied = self
                        .blob(to)
                        .delete()
                        .if_match(IfMatchCondition::Match(etag.as_str().to_owned()));
                    let class = match self.caller.run(DELETE, &what, emptied.into_future()).await {
                        Ok(_) => ErrorClass::Transient { retry_after: None },
                        Err(_) => ErrorClass::Ambiguous,
                    };
                    return Err(self.caller.error(
                        class,
                        COPY,
                        what(),
                        "the service gave the copy up",
                    ));
                }
            }
        }
        Err(self.caller.error(
            ErrorClass::Ambiguous,
            COPY,
            what(),
            "the copy is still under way after 5 minutes",
        ))
    }
}
