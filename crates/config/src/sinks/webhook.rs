//! `kind = "webhook"`: a receiver of events.

use std::time::Duration;

use crate::accounts::SECRET;
use crate::address;
use crate::section::Section;
use evenkeel_model::settings::{ConfiguredSecret, SinkKind, WebhookSettings, webhook_key};

const TIMEOUT: Duration = Duration::from_secs(10);

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let expected = "the address of a receiver, such as \"https://example.com/hooks/staff\"";
    let url = section.required("url", expected, |text| address::trusted(text, expected));
    let secret = SECRET.required(section, "the key that events are signed with (whsec_ and Base64)");
    let secret = secret.filter(|pair| pair.iter().filter(|secret| is_mistaken(section, secret)).count() == 0);
    let timeout =
        if section.has("timeout") { section.duration("timeout", Duration::from_secs(1)..=Duration::from_mins(1)) } else { Some(TIMEOUT) };
    Some(SinkKind::Webhook(WebhookSettings { url: url?, secret: secret?, timeout: timeout? }))
}

/// Whether a secret is no key, which is reported.
fn is_mistaken(section: &Section<'_>, secret: &ConfiguredSecret) -> bool {
    webhook_key(&secret.text).map_err(|error| section.error(secret.setting, error)).is_err()
}
