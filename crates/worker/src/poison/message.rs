use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::note;
use evenkeel_engine::{EncryptBodies, Failure};
use evenkeel_model::cause;
use evenkeel_model::large::OWN_CONTAINERS;
use evenkeel_model::quoted::{self, Quoted};
use evenkeel_model::stored::{self, FormatVersion};
use evenkeel_model::{BlobName, ContainerName, QueueName, body, limits};

/// Container of bodies that do not fit into a poison message.
pub const BODY_CONTAINER: &str = OWN_CONTAINERS[1];
const VERSION: u32 = 1;
/// Maximum length of an error in bytes. A usual error with its causes has a few hundred bytes.
const ERROR_BYTES: usize = cause::CHAIN_BYTES;
const TEXT_BYTES: usize = 1_024;
/// Maximum length of a message id in bytes. A GUID has 36 characters.
const MESSAGE_ID_BYTES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The attempts or the time of the job were used up.
    Exhausted,
    /// Every further attempt would fail too.
    Permanent,
    Undecodable,
    Expired,
    /// Another program put the message on the poison queue. Workers never write this reason.
    Foreign,
}

impl Reason {
    /// The name of the reason in messages, in metrics and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Permanent => "permanent",
            Self::Undecodable => "undecodable",
            Self::Expired => "expired",
            Self::Foreign => "foreign",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Reason {
    type Err = PoisonError;
    fn from_str(name: &str) -> Result<Self, PoisonError> {
        [
            Self::Exhausted,
            Self::Permanent,
            Self::Undecodable,
            Self::Expired,
            Self::Foreign,
        ]
        .into_iter()
        .find(|reason| reason.name() == name)
        .ok_or_else(|| {
            PoisonError(format!(
                "unknown reason {}; expected exhausted, permanent, undecodable, expired or foreign",
                Quoted(name)
            ))
        })
    }
}

/// The error for a text that is not a poison message, or for an invalid filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PoisonError(String);

impl PoisonError {
    pub(super) fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string())
    }
}

/// A poison message in the format in which it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoisonMessage {
    pub v: FormatVersion<VERSION>,
    pub reason: Reason,
    /// The error with all its causes.
    pub error: String,
    pub step: String,
    pub op: Option<String>,
    pub dequeue_count: u32,
    /// When the message was first enqueued, by the queue's clock.
    pub first_enqueued: Timestamp,
    /// When the message was poisoned, by the worker's clock.
    pub poisoned: Timestamp,
    pub worker: String,
    /// The queue that the message came from, to which a requeue returns it.
    pub queue: QueueName,
    /// The id of the original message, which is the same in every copy.
    pub message_id: String,
    /// The id that the client gave to the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The JSON text if the message was plain or Base64. Otherwise the text as it was on the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// The blob with the body, if the body did not fit into the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_blob: Option<BodyBlob>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyBlob {
    pub container: ContainerName,
    pub name: BlobName,
}

impl PoisonMessage {
    /// Encodes the message for the queue. Texts from outside evenkeel are shortened.
    pub fn encode(&self) -> String {
        let mut wire = self.clone();
        // The error is shortened in the middle, because the root cause is at its end.
        wire.error = quoted::cut(&wire.error, ERROR_BYTES);
        for text in [
            Some(&mut wire.step),
            Some(&mut wire.worker),
            wire.op.as_mut(),
            wire.id.as_mut(),
        ]
        .into_iter()
        .flatten()
        {
            *text = cause::shortened(text, TEXT_BYTES);
        }
        // Serialising strings and numbers cannot fail.
        body::encode(&serde_json::to_string(&wire).unwrap_or_default())
    }

    /// Encrypts the secrets in the body.
    pub(crate) async fn encrypt(&mut self, bodies: &dyn EncryptBodies) -> Result<(), Failure> {
        let body = self.body.as_deref().unwrap_or_default();
        if let Some(encrypted) = bodies.encrypt_body(body).await? {
            self.body = Some(encrypted);
        }
        Ok(())
    }

    pub fn fits(&self) -> bool {
        self.encode().len() <= limits::QUEUE_TEXT_BYTES
    }

    pub fn decode(text: &str) -> Result<Self, PoisonError> {
        // Poison messages are never written compressed.
        let body = body::excerpt(text, limits::QUEUE_TEXT_BYTES);
        if body.cut {
            return Err(PoisonError(
                "it is compressed, but poison messages never are".to_owned(),
            ));
        }
        stored::read(&body.text, VERSION, || "the poison message".to_owned())
            .map_err(|error| PoisonError(cause::chain(&error)))
    }

    /// Returns the form in which a poison message keeps the text of a message. If the text is a
    /// JSON object in Base64, the JSON is kept. Any other text is kept unchanged. In particular,
    /// compressed text is not expanded.
    pub fn keep_body(text: &str) -> String {
        match body::decode(text) {
            Ok(body) if body.raw_bytes == body.text.len() && body.text.starts_with('{') => {
                body.text
            }
            Ok(_) | Err(_) => text.to_owned(),
        }
    }

    /// The text that puts a kept body back on its queue, without evenkeel's note. JSON is encoded
    /// as Base64, compressed if only that fits.
    pub fn requeued_text(kept: &str) -> String {
        let text = note::without_note(kept);
        if text.starts_with('{') {
            body::pack(&text).unwrap_or_else(|| body::encode(&text))
        } else {
            text
        }
    }

    /// Returns why no worker of these queues can have written this message; `None` if a worker can
    /// have written it. A worker's message refers only to its own queues and to the blob of its own
    /// body.
    pub fn forged(&self, queues: &[QueueName]) -> Option<String> {
        if !queues.contains(&self.queue) {
            return Some(format!(
                "its queue {} does not belong to this poison queue",
                self.queue
            ));
        }
        if self.message_id.len() > MESSAGE_ID_BYTES {
            return Some(format!(
                "its message id has {} bytes, at most {MESSAGE_ID_BYTES} are possible",
                self.message_id.len()
            ));
        }
        if self.reason == Reason::Foreign {
            return Some("its reason is foreign, which evenkeel never writes".to_owned());
        }
        let blob = self.body_blob.as_ref()?;
        if self.body.is_some() {
            return Some("it has both a body and a blob for the body".to_owned());
        }
        let digest = |rest: &str| rest.strip_prefix('-').is_some_and(|hex| hex.len() == 64);
        let own = self.blob_prefix().is_some_and(|prefix| {
            blob.name
                .as_str()
                .strip_prefix(prefix.as_str())
                .is_some_and(digest)
        });
        (blob.container.as_str() != BODY_CONTAINER || !own).then(|| {
            format!(
                "its blob {}/{} is not the blob of its body",
                blob.container, blob.name
            )
        })
    }

    /// The name of the blob for a body that does not fit into the message. It is equal for all
    /// copies of one original message. It cannot be guessed from the message id alone.
    pub fn body_blob_name(&self) -> Option<BodyBlob> {
        let digest = hex::encode(Sha256::digest(note::compared(self.body.as_ref()?)));
        let name = BlobName::new(format!("{}-{digest}", self.blob_prefix()?)).ok()?;
        Some(BodyBlob {
            container: ContainerName::new(BODY_CONTAINER).ok()?,
            name,
        })
    }

    fn blob_prefix(&self) -> Option<BlobName> {
        BlobName::new(format!("{}/{}", self.queue, self.message_id))
            .or_else(|_| {
                BlobName::new(format!(
                    "{}/{}",
                    self.queue,
                    hex::encode(Sha256::digest(&self.message_id))
                ))
            })
            .ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn poisoned(message_id: &str, body: &str) -> PoisonMessage {
        PoisonMessage {
            v: FormatVersion,
            reason: Reason::Permanent,
            error: "reading the primary: no such table".to_owned(),
            step: "reading the primary".to_owned(),
            op: Some("sync".to_owned()),
            dequeue_count: 1,
            first_enqueued: "2026-11-20T15:00:00Z".parse().unwrap(),
            poisoned: "2026-11-20T15:00:01Z".parse().unwrap(),
            worker: "w1".to_owned(),
            queue: QueueName::new("evenkeel-jobs").unwrap(),
            message_id: message_id.to_owned(),
            id: None,
            body: Some(body.to_owned()),
            body_blob: None,
        }
    }

    #[test]
    fn a_poison_message_survives_its_queue() {
        let message = poisoned("m1", "한😀 \" \\ \u{1}");
        assert_eq!(PoisonMessage::decode(&message.encode()), Ok(message));
        assert!(PoisonMessage::decode("hello").is_err());
        assert!(PoisonMessage::decode(r#"{"v":1}"#).is_err());
        let written = r#"{"v":1,"reason":"permanent","error":"reading the primary: no such table","step":"reading the primary","op":"sync","dequeue_count":1,"first_enqueued":"2026-11-20T15:00:00Z","poisoned":"2026-11-20T15:00:01Z","worker":"w1","queue":"evenkeel-jobs","message_id":"m1","body":"{}"}"#;
        assert_eq!(poisoned("m1", "{}").encode(), body::encode(written));
        let other = written.replacen(":1", ":2", 1);
        assert_eq!(
            PoisonMessage::decode(&other).unwrap_err().to_string(),
            "the poison message has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
    }

    #[test]
    fn texts_from_outside_never_make_it_too_large() {
        let mut message = poisoned("m1", "");
        message.error = "😀".repeat(50_000);
        message.id = Some("i".repeat(48_000));
        message.op = Some("o".repeat(48_000));
        assert!(message.fits());
        assert!(
            PoisonMessage::decode(&message.encode())
                .unwrap()
                .error
                .contains('…')
        );
    }

    #[test]
    fn a_body_is_kept_readable_and_goes_back_without_the_note() {
        let json = r#"{"op":"sync","ek":{"id":"m1","free":2}}"#;
        let kept = PoisonMessage::keep_body(&body::encode(json));
        assert_eq!(kept, json);
        assert_eq!(
            body::decode(&PoisonMessage::requeued_text(&kept))
                .unwrap()
                .text,
            r#"{"op":"sync"}"#
        );
        assert_eq!(PoisonMessage::keep_body("no job"), "no job");
        assert_eq!(PoisonMessage::requeued_text("no job"), "no job");
    }

    #[test]
    fn every_reason_is_read_as_it_is_written() {
        for reason in [
            Reason::Exhausted,
            Reason::Permanent,
            Reason::Undecodable,
            Reason::Expired,
            Reason::Foreign,
        ] {
            assert_eq!(reason.to_string().parse(), Ok(reason));
        }
        assert!("other".parse::<Reason>().is_err());
    }
}
