//! Asynchronous copies: `Copy Blob` may answer before the content is copied.

use std::time::Duration;

use azure_core::prelude::IfMatchCondition;

use super::blobs::{Address, AzureBlobs, DELETE, PROPERTIES};
use super::classify::{Absent, CallKind};
use super::transport::HttpAnswer;
use evenkeel_model::ETag;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{ErrorClass, Resource, StoreError};

pub(super) const COPY: CallKind = CallKind::write("Copy Blob", Absent::Item);

/// Maximum number of status queries for a pending copy, over about 5 minutes.
const COPY_QUERIES: u32 = 66;
/// Waits before the queries. A copy inside one account usually takes moments.
const COPY_WAITS: WaitPolicy = WaitPolicy {
    jitter: 0.0,
    ..WaitPolicy::doubling(Duration::from_millis(50), Duration::from_secs(5))
};

/// Status of the last copy onto a blob ("Get Blob Properties", `x-ms-copy-status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyStatus {
    /// No copy, or the blob was overwritten since.
    None,
    Done,
    Pending,
    Failed,
}

pub(super) fn copy_status(answer: &HttpAnswer) -> CopyStatus {
    match answer.header("x-ms-copy-status") {
        None => CopyStatus::None,
        Some("success") => CopyStatus::Done,
        Some("pending") => CopyStatus::Pending,
        Some(_) => CopyStatus::Failed,
    }
}

impl AzureBlobs {
    /// Waits for an asynchronous copy, identified by the service's id.
    pub(super) async fn finished_copy(
        &self,
        to: Address<'_>,
        id: Option<&str>,
        what: impl Fn() -> Resource,
    ) -> Result<ETag, StoreError> {
        for query in 1..=COPY_QUERIES {
            tokio::time::sleep(COPY_WAITS.unjittered(query)).await;
            let replaced = || {
                let message = "the copy was overwritten by another write";
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
                // The copy continues even if this query fails.
                Err(error) if error.class.is_transient() => continue,
                Err(mut error) => {
                    error.class = ErrorClass::Ambiguous;
                    return Err(error);
                }
            };
            if id.is_some_and(|id| answer.header("x-ms-copy-id") != Some(id)) {
                return Err(replaced());
            }
            match copy_status(&answer) {
                CopyStatus::Pending => {}
                CopyStatus::None | CopyStatus::Done => {
                    return self.caller.etag(COPY, what, &answer);
                }
                CopyStatus::Failed => {
                    // The failed copy left an empty blob. It must not be taken for a complete copy, and it would block the next
                    // one, so it is deleted.
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
                        "the service aborted the copy",
                    ));
                }
            }
        }
        Err(self.caller.error(
            ErrorClass::Ambiguous,
            COPY,
            what(),
            "the copy is still pending after 5 minutes",
        ))
    }
}
