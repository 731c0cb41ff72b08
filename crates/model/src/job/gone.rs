//! Fields that no job has but that senders may expect. The error for such a field names the alternative.

use serde_json::{Map, Value};

use super::JobError;

/// Name of each unsupported field, and the alternative that the error names.
const UNSUPPORTED: [(&str, &str); 1] = [(
    "keys_ref",
    "send up to 1,000 primaries per message (`evenkeel submit --pack 1000` joins single jobs), or a \"backfill\" of the whole table",
)];

/// Refuses an object that has an unsupported field.
pub(super) fn refuse(object: &Map<String, Value>) -> Result<(), JobError> {
    match UNSUPPORTED
        .into_iter()
        .find(|(field, _)| object.contains_key(*field))
    {
        Some((field, instead)) => Err(JobError::Unsupported { field, instead }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::job::decode_request;

    #[test]
    fn a_field_that_no_job_has_is_refused_with_the_alternative() {
        let list = json!({"blob": "evenkeel-staging/list.jsonl"});
        for message in [
            json!({"op": "sync", "table": "Staff", "keys_ref": list}),
            json!({"op": "sync", "table": "Staff", "pk": "p", "rk": "1", "keys_ref": list}),
            json!({"op": "delete", "table": "Staff", "pk": "p", "rks": ["1", "2"], "keys_ref": list}),
        ] {
            let Value::Object(object) = message else {
                panic!("no object")
            };
            let error = decode_request(object).unwrap_err().to_string();
            assert!(
                error.contains("\"keys_ref\"")
                    && error.contains("submit --pack")
                    && error.contains("backfill"),
                "{error}"
            );
        }
    }
}
