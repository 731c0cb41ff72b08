//! Blobs that senders stage for their jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::JobError;
use crate::quoted::Quoted;
use crate::{BlobName, large};

/// A blob in the container [`STAGING`](crate::large::STAGING) that a sender has put there for a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedBlob {
    /// Its name.
    pub name: BlobName,
    /// The SHA-256 that its content is to have, in lower-case hex digits; not checked where absent.
    pub sha256: Option<String>,
}

/// A staged blob.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StagedFields {
    /// Where it is: "evenkeel-staging/NAME". The job deletes it when it is done.
    blob: String,
    /// The SHA-256 of its content, in lower-case hex digits; checked where it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// A staged blob. A sender with the right to put jobs on a queue may have it read and deleted, so it lies in one
/// container only.
pub(super) fn staged_blob(
    op: &'static str,
    field: &str,
    fields: StagedFields,
) -> Result<StagedBlob, JobError> {
    let wrong = |problem: String| JobError::field(op, problem);
    let Some((container, name)) = large::place(&fields.blob) else {
        return Err(wrong(format!(
            "{field:?}: {} is not \"{}/NAME\"",
            Quoted(&fields.blob),
            large::STAGING
        )));
    };
    if container.as_str() != large::STAGING {
        return Err(wrong(format!(
            "{field:?}: staged blobs lie in the container {}, not in {container}",
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
            "{field:?}: \"sha256\" is not 64 hex digits in lower case"
        )));
    }
    Ok(StagedBlob {
        name,
        sha256: fields.sha256,
    })
}
