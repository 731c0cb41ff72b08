//! Keys that there are not, and what does the same: whoever expects one reads it in the error.

const ACCOUNTS_OF_AZURE: [&str; 3] = ["accounts", "encryption", "sinks"];
const BY_FILE: &str = "a key is rotated by its file alone: write the other key into it, and regenerate the first ten seconds later";
const PUBLISHED: &str = "the ceiling is what Azure publishes, and where a service refuses, the pace gives way; account is this process's share";

/// Sections, up to the first name of the user's; a key of them, or what keys begin with; and the advice.
const GONE: [(&[&str], &str, &str); 22] = [
    (
        &[""],
        "freshness",
        "a write is to be found within 5 s; another goal is another bucket in the alerts of deploy/prometheus",
    ),
    (
        &["worker"],
        "idle_cost",
        "poll.max is the longest wait, and `evenkeel config check` says what it costs a month",
    ),
    (
        &["http"],
        "read_token_",
        "a token that reads is [http.tokens.NAME] with role = \"read\"",
    ),
    (
        &["http"],
        "open_contents",
        "with open_reads = false nobody reads without a token, and a token sees contents where it says so",
    ),
    (&["pace"], "partition", PUBLISHED),
    (&["pace"], "queue", PUBLISHED),
    (&["pace"], "blob", PUBLISHED),
    (
        &["pace"],
        "start_percent",
        "each rate begins at a tenth, and doubles every second while it is waited for",
    ),
    (&["accounts"], "second_", BY_FILE),
    (&["sinks"], "second_key_", BY_FILE),
    (
        &["sinks"],
        "second_secret_",
        "let the receiver accept both secrets while the file gets the new one",
    ),
    (
        &ACCOUNTS_OF_AZURE,
        "client_secret_env",
        "client_secret_file, or the environment variable AZURE_CLIENT_SECRET",
    ),
    (
        &ACCOUNTS_OF_AZURE,
        "federated_token_file",
        "the environment variable AZURE_FEDERATED_TOKEN_FILE, as the webhook of Kubernetes sets it",
    ),
    (
        &ACCOUNTS_OF_AZURE,
        "authority_host",
        "it follows from the cloud of the endpoint, else from the environment variable AZURE_AUTHORITY_HOST",
    ),
    (&["sinks"], "timeout", "an answer is waited for 10 s"),
    (
        &["sinks"],
        "key_field",
        "the field of the key is called id in every index",
    ),
    (
        &["sinks"],
        "tls",
        "a server on this machine is asked without TLS unless ca_file is there, any other one with TLS",
    ),
    (
        &["archives"],
        "content_type",
        "documents are application/json",
    ),
    (
        &["archives"],
        "roll_at",
        "a blob of a log is followed by the next at 64 MiB",
    ),
    (
        &["retention"],
        "ahead",
        "two tables are created ahead of the present one",
    ),
    (
        &["rules"],
        "per_second",
        "a rule takes 500 entities a second; the commands archive-where and delete-where have --per-second",
    ),
    (
        &["views"],
        "spill",
        "a series of more than 252 values lies in a wide table (`wide = true` in its [tables] section), or in one table for each day",
    ),
];

/// What to do instead of a key of a section, where somebody may expect it.
pub(super) fn advice(path: &str, key: &str) -> Option<&'static str> {
    let section = path.split(['.', '[']).next().unwrap_or_default();
    let is_key = |name: &str| {
        if name.ends_with('_') {
            key.starts_with(name)
        } else {
            key == name
        }
    };
    GONE.iter()
        .find(|(of, name, _)| of.contains(&section) && is_key(name))
        .map(|(.., advice)| *advice)
}
