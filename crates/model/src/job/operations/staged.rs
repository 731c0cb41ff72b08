//! Blobs that senders stage for their jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::JobError;
use crate::quoted::Quoted;
use crate::{BlobName, large};

/// A blob in the container [`STAGING`](crate::large::STAGING) that a sender uploaded for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedBlob {
    /// The name of the blob.
    pub name: BlobName,
    /// Expected SHA-256 of the content, in lower-case hex digits; not checked if absent.
    pub sha256: Option<String>,
}

/// A staged blob.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StagedFields {
    /// Its address, "evenkeel-staging/NAME". The job deletes the blob when it is done.
    blob: String,
    /// Expected SHA-256 of the content, in lower-case hex digits; not checked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Checks the reference to a staged blob. The blob must be in the staging container, because a job can make a worker read and delete the
/// blob.
pub(super) fn staged_blob(
    op: &'static str,
    field: &str,
    fields: StagedFields,
) -> Result<StagedBlob, JobError> {
    let wrong = |problem: String| JobError::field(op, problem);
    let Some((container, name)) = large::place(&fields.blob) else {
        return Err(wrong(format!(
            "{field:?}: expected \"{1}/NAME\", found {0}",
            Quoted(&fields.blob),
            large::STAGING
        )));
    };
    if container.as_str() != large::STAGING {
        return Err(wrong(format!(
            "{field:?}: staged blobs must be in container {}, not in {container}",
            large::STAGING
        )));
    }
    let is_hash = |text: &String| {
        text.len() == 64
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if fields
        .sha256
        .as_ref()
        .is_some_and(|sha256| !is_hash(sha256))
    {
        return Err(wrong(format!(
            "{field:?}: \"sha256\" must be 64 lower-case hex digits"
        )));
    }
    Ok(StagedBlob {
        name,
        sha256: fields.sha256,
    })
}
