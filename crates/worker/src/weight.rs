//! Estimates the memory of a message during and after decoding, before it is decoded. Pure.

use super::decode::Payload;
use evenkeel_engine::Work;
use evenkeel_model::body::Extent;
use evenkeel_model::job::BATCH_KEYS;
use evenkeel_storage::{Message, MessageText};

/// Number of copies of the text in memory: as received, as kept for the lease, and decoded.
const TEXTS: u64 = 3;
/// Memory of the error of one job, kept until its message is settled: a shortened chain of causes,
/// the poison verdict and the log line.
const ERROR_BYTES: u64 = 2_048;

/// Memory of a received message that is not decoded.
pub(crate) fn received(message: &Message) -> u64 {
    TEXTS
        * match &message.text {
            MessageText::Readable(text) => text.len() as u64,
            MessageText::Unreadable { raw, .. } => raw.len() as u64,
        }
}

/// Upper bound of the memory that decoding takes for a message of this extent.
pub(crate) fn decoding(message: &Message, extent: Extent) -> u64 {
    read(message, extent) + ERROR_BYTES * extent.values.min(BATCH_KEYS as u64)
}

/// Memory of a decoded message, without the errors of its jobs.
fn read(message: &Message, extent: Extent) -> u64 {
    received(message) + TEXTS * extent.bytes + extent.parsed()
}

pub(crate) fn kept(message: &Message, payload: Option<&Payload>, extent: Extent) -> u64 {
    match payload {
        // Each job of a batch is decoded a second time, and each may fail.
        Some(Payload::Batch(batch)) => read(message, extent) + ERROR_BYTES * batch.len() as u64,
        Some(Payload::Single(assignment)) => match &*assignment.work {
            // The job keeps the entity's properties, which are as large as the text.
            Work::Job(job) if job.operation().holds_entity() => read(message, extent),
            Work::Recheck(_) => read(message, extent),
            Work::Job(_) => received(message),
        },
        None => received(message),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use evenkeel_model::job::{self, JobRequest};

    #[test]
    fn the_errors_of_a_batch_count_towards_its_memory() {
        let text = serde_json::json!({"op": "sync", "table": "Staff", "pk": "p", "rks": (0..500).map(|n| n.to_string()).collect::<Vec<_>>()});
        let Ok(JobRequest::Batch(batch)) = job::decode_request(text.as_object().unwrap().clone())
        else {
            panic!("no batch")
        };
        let extent = Extent::of(text.to_string().as_bytes());
        let message = Message {
            id: "m1".to_owned(),
            pop_receipt: "r".to_owned(),
            text: MessageText::Readable(text.to_string()),
            dequeue_count: 1,
            inserted: Timestamp::UNIX_EPOCH,
            expires: None,
            next_visible: Timestamp::UNIX_EPOCH,
        };
        let (decoded, many) = (
            decoding(&message, extent),
            kept(&message, Some(&Payload::Batch(batch)), extent),
        );
        let errors = many - read(&message, extent);
        assert!(
            errors == 500 * ERROR_BYTES && many <= decoded && kept(&message, None, extent) < many
        );
    }
}
