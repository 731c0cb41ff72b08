//! An event: its body (CloudEvents 1.0, JSON format) and its signature (Standard Webhooks, `v1`).

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use evenkeel_model::settings::{WebhookKeyError, webhook_key};
use evenkeel_model::{AccountName, CollectionName, DocumentKey, SinkDocument};
use evenkeel_storage::DocumentWrite;

/// A signing key. `Debug` omits the secret.
#[derive(Debug, Clone)]
pub(super) struct WebhookKey {
    key: hmac::Key,
    text: SecretString,
}

impl WebhookKey {
    /// Parses `whsec_` and the Base64 of 24 to 64 bytes.
    pub(super) fn parse(secret: &SecretString) -> Result<Self, WebhookKeyError> {
        let bytes = webhook_key(secret)?;
        let text = SecretString::from(STANDARD.encode(bytes.expose_secret()));
        Ok(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, bytes.expose_secret()),
            text,
        })
    }

    pub(super) fn occurs_in(&self, text: &str) -> bool {
        text.contains(self.text.expose_secret())
    }

    /// The signature of a body, as a receiver computes it.
    fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(format!("{id}.{timestamp}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WebhookEvent {
    /// The same for every repetition of one change.
    pub(super) id: String,
    pub(super) body: String,
}

impl WebhookEvent {
    pub(super) fn of(sink: &AccountName, topic: &CollectionName, write: &DocumentWrite) -> Self {
        let DocumentWrite {
            key,
            document,
            version,
            ..
        } = write;
        let id = format!("{topic}/{key}/{version}");
        let mut event = json!({
            "specversion": "1.0",
            "id": id,
            "source": format!("urn:evenkeel:{sink}:{topic}"),
            "type": if document.is_some() { "evenkeel.document.changed" } else { "evenkeel.document.deleted" },
            "subject": key.as_str(),
            // CloudEvents extension "sequence": strings of equal length, in the order of the changes.
            "sequence": format!("{version:019}"),
            "datacontenttype": "application/json",
            "data": data(key, document.as_ref()),
        });
        if let Ok(time) = Timestamp::from_millisecond(*version) {
            event["time"] = time.to_string().into();
        }
        Self {
            id,
            body: event.to_string(),
        }
    }

    pub(super) fn signature(&self, key: &WebhookKey, timestamp: i64) -> String {
        key.sign(&self.id, timestamp, self.body.as_bytes())
    }
}

/// The primary, as far as the document key identifies it, and the document.
fn data(key: &DocumentKey, document: Option<&SinkDocument>) -> Value {
    // A key that was too long is a hash and does not identify the primary.
    let primary: Option<[String; 3]> = URL_SAFE_NO_PAD
        .decode(key.as_str())
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok());
    let [table, pk, rk] = primary.map_or([Value::Null, Value::Null, Value::Null], |parts| {
        parts.map(Value::from)
    });
    let document = document.map(|document| {
        document
            .0
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    });
    json!({"table": table, "partition_key": pk, "row_key": rk, "document": document.map_or(Value::Null, Value::Object)})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Result<WebhookKey, WebhookKeyError> {
        WebhookKey::parse(&SecretString::from(text))
    }

    #[test]
    fn the_signature_is_that_of_the_published_example() {
        // The test vector of the Standard Webhooks libraries.
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = key.sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            br#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_key_is_printed_nowhere() {
        assert!(!format!("{:?}", key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).contains("MfKQ"));
    }

    #[test]
    fn an_event_names_its_primary_and_a_repetition_has_the_same_id() {
        let topic = CollectionName::new("people").unwrap();
        let key = DocumentKey::new(URL_SAFE_NO_PAD.encode(r#"["employees","Sales","7"]"#)).unwrap();
        let document = Some(SinkDocument(
            serde_json::from_value(json!({"name": "Ada"})).unwrap(),
        ));
        let write = DocumentWrite {
            key: key.clone(),
            document,
            version: 1_800_000_000_000,
            deadline: None,
        };
        let sink = AccountName::new("hooks").unwrap();
        let event = WebhookEvent::of(&sink, &topic, &write);
        assert_eq!(event, WebhookEvent::of(&sink, &topic, &write));
        let body: Value = serde_json::from_str(&event.body).unwrap();
        assert_eq!(
            body["data"],
            json!({"table": "employees", "partition_key": "Sales", "row_key": "7", "document": {"name": "Ada"}})
        );
        assert_eq!(
            (&body["specversion"], &body["source"]),
            (&json!("1.0"), &json!("urn:evenkeel:hooks:people"))
        );
        assert_eq!(
            (&body["type"], &body["time"]),
            (
                &json!("evenkeel.document.changed"),
                &json!("2027-01-15T08:00:00Z")
            )
        );
        let gone = WebhookEvent::of(
            &sink,
            &topic,
            &DocumentWrite {
                document: None,
                version: 1_800_000_000_001,
                ..write
            },
        );
        let later: Value = serde_json::from_str(&gone.body).unwrap();
        assert_eq!(
            (&later["type"], &later["data"]["document"]),
            (&json!("evenkeel.document.deleted"), &Value::Null)
        );
        assert!(gone.id != event.id && later["sequence"].as_str() > body["sequence"].as_str());
        let hashed = DocumentWrite {
            key: DocumentKey::new("sha256-00").unwrap(),
            document: None,
            version: i64::MAX,
            deadline: None,
        };
        let body: Value =
            serde_json::from_str(&WebhookEvent::of(&sink, &topic, &hashed).body).unwrap();
        assert_eq!(
            (&body["data"]["row_key"], body.get("time")),
            (&Value::Null, None)
        );
    }
}
