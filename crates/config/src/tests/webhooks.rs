//! Sinks and views of kind `webhook`.

use super::*;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const TEXT: &str = r#"
[sinks.hooks]
kind = "webhook"
url = "https://example.com/hooks/staff"
secret_env = "WEBHOOK_SECRET"

[views.staff]
kind = "webhook"
source = "Employees"
sink = "hooks"
topic = "staff"
select = ["Salary"]
"#;

fn read(text: &str) -> Result<Configuration, ConfigErrors> {
    let folder = folder(&[("default.toml", text)]);
    load(&with_environment(
        request(folder.path()),
        &[("WEBHOOK_SECRET", KEY), ("SHORT", "whsec_c2hvcnQ=")],
    ))
}

#[test]
fn a_receiver_and_its_view_are_read_and_the_secret_is_shown_nowhere() {
    let loaded = read(TEXT).unwrap();
    assert_eq!(loaded.warnings, []);
    let SinkKind::Webhook(settings) = &loaded.settings.sinks[0].kind else {
        panic!("no receiver")
    };
    assert_eq!(
        (settings.url.as_str(), settings.timeout),
        ("https://example.com/hooks/staff", Duration::from_secs(10))
    );
    let ViewKind::WebhookEvents(events) =
        &loaded.catalog.views[&ViewName::new("staff").unwrap()].kind
    else {
        panic!("no events")
    };
    assert_eq!(
        (events.0.sink.as_str(), events.0.collection.as_str()),
        ("hooks", "staff")
    );
    let everything = format!("{loaded:?} {} {}", show_text(&loaded), show_json(&loaded));
    assert!(!everything.contains("MfKQ"), "{everything}");
    let local = TEXT.replace("https://example.com", "http://receiver.localhost:8080");
    assert!(
        read(&local).is_ok(),
        "a receiver on this machine may use http"
    );
}

#[test]
fn each_mistake_is_reported_at_its_key_with_the_expected_input() {
    const URL: &str = "sinks.hooks.url: expected the address of a receiver, such as \"https://example.com/hooks/staff\"";
    const NO_KEY: &str = "expected whsec_ and the Base64 of 24 to 64 random bytes, as `echo whsec_$(openssl rand -base64 32)` prints them";
    for (right, wrong, line, expected) in [
        ("url = \"https://example.com/hooks/staff\"\n", "", 3, "sinks.hooks.url: missing; expected the address of a receiver, such as \"https://example.com/hooks/staff\"".to_owned()),
        ("https://example.com", "http://example.com", 4, format!("{URL}; http would send the credential unencrypted")),
        ("hooks/staff\"", "hooks/staff?code=topsecret\"", 4, format!("{URL}, without user, password, query or fragment")),
        ("https://example", "https://user:topsecret@example", 4, format!("{URL}, without user, password, query or fragment")),
        ("https://example.com", "amqp://example.com", 4, format!("{URL}, without user, password, query or fragment")),
        ("secret_env = \"WEBHOOK_SECRET\"\n", "", 3, "sinks.hooks.secret_env: missing; expected the key that events are signed with (whsec_ and Base64). Set secret_env to the name of an environment variable, or secret_file to the path of a file".to_owned()),
        ("\"WEBHOOK_SECRET\"", "\"NOT_SET\"", 5, "sinks.hooks.secret_env: expected the key that events are signed with (whsec_ and Base64) in the environment variable NOT_SET, which is not set".to_owned()),
        ("\"WEBHOOK_SECRET\"", "\"SHORT\"", 5, format!("sinks.hooks.secret_env: {NO_KEY}")),
        ("\"WEBHOOK_SECRET\"", "\"WEBHOOK_SECRET\"\nsecond_secret_env = \"SHORT\"", 6, "sinks.hooks.second_secret_env: unknown key; let the receiver accept both".to_owned()),
        ("\"WEBHOOK_SECRET\"", "\"WEBHOOK_SECRET\"\ntimeout = \"2m\"", 6, "sinks.hooks.timeout: unknown key; the timeout is always 10 s".to_owned()),
        ("\"WEBHOOK_SECRET\"", "\"WEBHOOK_SECRET\"\nkey_env = \"K\"", 6, "sinks.hooks.key_env: unknown key".to_owned()),
        ("sink = \"hooks\"", "sink = \"hook\"", 10, "views.staff.sink: unknown sink \"hook\"; did you mean \"hooks\"?".to_owned()),
        ("topic = \"staff\"\n", "", 8, "views.staff.topic: missing; expected the topic of the events, such as \"staff\"".to_owned()),
        ("topic = \"staff\"", "topic = \"Staff!\"", 11, "views.staff.topic: ".to_owned()),
        ("select = [\"Salary\"]", "", 8, "expected select".to_owned()),
        ("select = [\"Salary\"]", "select = [\"RowKey\"]", 12, "cannot be selected".to_owned()),
        ("topic =", "table = \"T\"\ntopic =", 11, "views.staff.table: an event already names its primary; remove this key".to_owned()),
        ("topic =", "index = \"i\"\ntopic =", 11, "an event already names its primary".to_owned()),
        ("topic =", "on_conflict = \"reject\"\ntopic =", 11, "each event is about one primary, so there are no conflicts".to_owned()),
        ("kind = \"webhook\"\nsource", "kind = \"search_index\"\nindex = \"staff\"\nsource", 11, "views.staff.sink: [sinks.hooks] is another kind of sink".to_owned()),
    ] {
        assert!(TEXT.contains(right), "{right}");
        let errors: Vec<String> = read(&TEXT.replacen(right, wrong, 1)).unwrap_err().errors.iter().map(ToString::to_string).collect();
        let at = format!("default.toml:{line}: ");
        assert!(errors.iter().any(|error| error.contains(&at) && error.contains(&expected)), "{at}{expected}: {errors:#?}");
        assert!(!errors.iter().any(|error| error.contains("topsecret") || error.contains("c2hvcnQ")), "{errors:?}");
    }
}

#[test]
fn a_missing_empty_or_invalid_secret_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    let text = TEXT.replace(
        "secret_env = \"WEBHOOK_SECRET\"",
        &format!("secret_file = '{}'", file.display()),
    );
    for (content, expected) in [
        (None, "cannot be read"),
        (Some(""), "is empty; expected a secret"),
        (
            Some("topsecret"),
            "sinks.hooks.secret_file: expected whsec_",
        ),
    ] {
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        let errors: Vec<String> = read(&text)
            .unwrap_err()
            .errors
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            matches!(&errors[..], [one] if one.contains(expected) && one.contains("default.toml:5") && !one.contains("topsecret")),
            "{errors:?}"
        );
    }
    std::fs::write(&file, KEY).unwrap();
    assert!(read(&text).is_ok());
}
