//! Writes footprints to their table, each on the condition of its ETag.

use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::protocol::footprint::Footprint;
use crate::protocol::scope::Scope;
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::ETag;
use evenkeel_storage::{ErrorClass, IfMatch, TableOperation};

/// Writes the footprint over the version with the ETag `over`, or inserts it if `over` is `None`. Returns the new ETag,
/// or `None` if the condition failed or the write got no answer.
pub(crate) async fn write(
    scope: &Scope<'_>,
    unanswered: &mut UnansweredWrites,
    footprint: &Footprint,
    over: Option<&ETag>,
    doing: &str,
) -> Result<Option<ETag>, Failure> {
    let step = || format!("{doing} the footprint of {}", scope.primary);
    let entity = footprint
        .encode(&scope.primary, scope.env.secret.get())
        .map_err(|error| permanent(step(), error))?;
    let operation = match over {
        Some(etag) => TableOperation::Replace(entity, IfMatch::Matches(etag.clone())),
        None => TableOperation::Insert(entity),
    };
    match scope.tables()?.apply(&scope.footprints, &operation).await {
        Ok(etag) => {
            unanswered.footprint_written();
            Ok(etag)
        }
        Err(error) if error.class == ErrorClass::Ambiguous => {
            unanswered.footprint_unanswered();
            Ok(None)
        }
        Err(error) if error.may_have_lost() => {
            unanswered.footprint_overtaken();
            Ok(None)
        }
        Err(error) => Err(storage(step(), error)),
    }
}
