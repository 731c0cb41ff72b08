//! `kind = "webhook"`: a receiver of events.

use crate::address;
use crate::secret::SecretKeys;
use crate::section::Section;
use evenkeel_model::settings::{SinkKind, WebhookSettings, webhook_key};

const SECRET: SecretKeys = SecretKeys {
    env: "secret_env",
    file: "secret_file",
};

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let expected = "the address of a receiver, such as \"https://example.com/hooks/staff\"";
    let url = section.required("url", expected, |text| {
        address::parse_trusted(text, expected)
    });
    let secret = SECRET.required(
        section,
        "the key that events are signed with (whsec_ and Base64)",
    );
    let secret = secret.filter(|secret| {
        webhook_key(&secret.text)
            .map_err(|error| section.error(secret.setting, error))
            .is_ok()
    });
    Some(SinkKind::Webhook(WebhookSettings {
        url: url?,
        secret: secret?,
        timeout: WebhookSettings::TIMEOUT,
    }))
}
