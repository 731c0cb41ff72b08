//! The stamp that a job leaves on every entity that it writes.

use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::Entity;

/// The message that wrote an entity: the value of `ek_job`.
///
/// ```text
///   6f9f3b0e-5f6b-4c39-9e4f-6d8a6f6d1f52 2026-11-20T09:00:00Z
///   6f9f3b0e-5f6b-4c39-9e4f-6d8a6f6d1f52 2026-11-20T09:00:00Z[_job=0123456789abcdef0123456789abcdef]
///   6f9f3b0e-5f6b-4c39-9e4f-6d8a6f6d1f52 2026-11-20T09:00:00Z[_of=0123456789abcdef]
/// ```
///
/// The parts in brackets are suffixes of the time (RFC 9557). `_job` is present if the job has an `id`. `_of` is a digest of the content
/// that the job left. A client that writes properties without evenkeel leaves the stamp unchanged, and the digest no longer matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The message's id on the queue.
    pub message_id: String,
    /// Time at which the message was first enqueued, by the queue's clock.
    pub enqueued: Timestamp,
    /// Digest of the job, which is the same in each message of the job; `None` if the job has no `id`.
    pub job: Option<JobDigest>,
}

/// A digest of a job with an `id`. Two messages with the same digest are one job that was sent twice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobDigest(String);

/// Fields that are not part of the job: the worker's note, the format version, and the trace of the message.
const BESIDE: [&str; 3] = ["ek", "v", "traceparent"];

impl JobDigest {
    /// Number of hex digits, for 128 bits.
    const DIGITS: usize = 32;

    /// Returns the digest of the job in a message, or `None` if the job has no `id`.
    pub fn of(object: &Map<String, Value>) -> Option<Self> {
        object.get("id")?.as_str()?;
        let mut fields: Vec<(&String, &Value)> = object
            .iter()
            .filter(|(name, _)| !BESIDE.contains(&name.as_str()))
            .collect();
        fields.sort_unstable_by_key(|(name, _)| *name);
        let mut hash = Sha256::new();
        for (name, value) in fields {
            for text in [name.as_str(), &value.to_string()] {
                hash.update((text.len() as u64).to_be_bytes());
                hash.update(text);
            }
        }
        let mut digits = hex::encode(hash.finalize());
        digits.truncate(Self::DIGITS);
        Some(Self(digits))
    }

    /// Returns the digest as a MAC, so that a reader cannot find the content of the job by guessing.
    #[must_use]
    pub fn keyed(&self, mac: impl FnOnce(&str) -> [u8; 32]) -> Self {
        let mut digits = hex::encode(mac(&self.0));
        digits.truncate(Self::DIGITS);
        Self(digits)
    }

    fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == Self::DIGITS
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| Self(text.to_owned()))
    }
}

impl Stamp {
    /// The property with the stamp.
    pub const PROPERTY: &'static str = "ek_job";

    /// Reads the stamp of an entity, if it has one.
    pub fn of(entity: &Entity) -> Option<Self> {
        Self::under(Self::PROPERTY, entity)
    }

    /// Reads a stamp in another property, if there is one.
    pub fn under(property: &str, entity: &Entity) -> Option<Self> {
        let (message_id, time) = entity.text(property)?.split_once(' ')?;
        let time = time.split_once('[').map_or(time, |(time, _)| time);
        let job = suffix(entity.text(property)?, "_job").and_then(JobDigest::parse);
        Some(Self {
            message_id: message_id.to_owned(),
            enqueued: time.parse().ok()?,
            job,
        })
    }

    /// Returns the digest of the content that the job left, or `None` if the entity's stamp has no such digest.
    pub fn content_on(entity: &Entity) -> Option<&str> {
        suffix(entity.text(Self::PROPERTY)?, "_of")
    }

    /// Returns the stamp of an entity with a new digest of the content.
    pub fn with_content(entity: &Entity, digest: &str) -> Option<String> {
        let text = entity.text(Self::PROPERTY)?;
        let former = suffix(text, "_of").map(|former| format!("[_of={former}]"));
        let text = former.map_or_else(|| text.to_owned(), |former| text.replace(&former, ""));
        Some(format!("{text}[_of={digest}]"))
    }

    /// Adds the stamp to an entity.
    #[must_use]
    pub fn on(&self, entity: Entity) -> Entity {
        entity.with(Self::PROPERTY, self.to_string())
    }

    /// Whether both stamps belong to one job: they name the same message, or two messages of the same job.
    pub fn is_same_job(&self, other: &Self) -> bool {
        let one_message = self.message_id == other.message_id && self.enqueued == other.enqueued;
        one_message || (self.job.is_some() && self.job == other.job)
    }

    /// Whether this job was the last to write an entity.
    pub fn is_on(&self, entity: &Entity) -> bool {
        Self::of(entity).is_some_and(|written| written.is_same_job(self))
    }
}

/// Returns a suffix of the time in a stamp.
fn suffix<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut suffixes = text
        .split('[')
        .skip(1)
        .filter_map(|part| part.strip_suffix(']')?.split_once('='));
    suffixes
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value)
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.message_id, self.enqueued)?;
        match &self.job {
            Some(JobDigest(digits)) => write!(f, "[_job={digits}]"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::EntityKey;

    fn digest(job: &Value) -> Option<JobDigest> {
        JobDigest::of(job.as_object().unwrap())
    }

    fn stamp(message_id: &str, job: Option<JobDigest>) -> Stamp {
        Stamp {
            message_id: message_id.to_owned(),
            enqueued: "2026-11-20T15:00:00.25Z".parse().unwrap(),
            job,
        }
    }

    #[test]
    fn two_messages_with_the_same_id_and_fields_are_one_job() {
        let job = json!({"op": "delete", "table": "T", "pk": "p", "rk": "r", "id": "leaver 한"});
        let mut again = job.clone();
        again["ek"] = json!({"id": "m", "free": 3});
        again["v"] = json!(1);
        again["traceparent"] = json!("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert!(digest(&job).is_some());
        assert_eq!(digest(&job), digest(&again));
        // An id that is used for several jobs does not make them the same job.
        for (field, value) in [("op", "sync"), ("rk", "s"), ("id", "other")] {
            let mut other = job.clone();
            other[field] = json!(value);
            assert_ne!(digest(&job), digest(&other), "{field}");
        }
        assert_eq!(
            digest(&json!({"op": "delete", "table": "T", "pk": "p", "rk": "r"})),
            None
        );
        assert!(stamp("m", digest(&job)).is_same_job(&stamp("n", digest(&again))));
        assert!(!stamp("m", None).is_same_job(&stamp("n", None)));
        assert!(
            stamp("m", None).is_same_job(&stamp("m", digest(&job))),
            "the first stamp was written before the message had a digest"
        );
    }

    #[test]
    fn a_stamp_has_a_digest_of_the_content_that_its_job_left() {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        assert_eq!(Stamp::with_content(&entity, "0f"), None);
        for stamp in [
            stamp("m", None),
            stamp("m", digest(&json!({"op": "sync", "id": "x"}))),
        ] {
            let mut stamped = stamp.on(entity.clone());
            for content in ["0f", "1e"] {
                stamped = stamped.clone().with(
                    Stamp::PROPERTY,
                    Stamp::with_content(&stamped, content).unwrap(),
                );
                assert_eq!(
                    (Stamp::of(&stamped), Stamp::content_on(&stamped)),
                    (Some(stamp.clone()), Some(content))
                );
            }
        }
    }

    #[test]
    fn a_stamp_survives_on_an_entity() {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        let known = stamp("m", digest(&json!({"op": "sync", "id": "x"})));
        for stamp in [stamp("m", None), known.clone()] {
            assert_eq!(Stamp::of(&stamp.on(entity.clone())), Some(stamp));
        }
        let text = known.to_string();
        let (id, time) = text.split_once(' ').unwrap();
        assert_eq!(
            (id, time.parse::<Timestamp>().unwrap()),
            ("m", known.enqueued),
            "{text}"
        );
        for strange in [
            "m 2026-11-20T15:00:00Z[_job=zz]",
            "m 2026-11-20T15:00:00Z[_other=1]",
        ] {
            assert_eq!(
                Stamp::of(&entity.clone().with(Stamp::PROPERTY, strange)).map(|stamp| stamp.job),
                Some(None),
                "{strange}"
            );
        }
    }
}
