//! Keys that a user may expect but that do not exist. The error names what to use instead.

const SECTIONS_WITH_IDENTITY: [&str; 3] = ["accounts", "encryption", "sinks"];
const ROTATION: &str =
    "to rotate a key, write the other key to its file. Regenerate the old key ten seconds later";
const AZURE_LIMIT: &str = "the limit is the one that Azure publishes, and a 503 response lowers it. Only account, the maximum rate of this process, can be set";

/// Each entry has some top-level sections, a key that does not exist in them, and the advice for users who set this key.
/// A key that ends with `_` stands for all keys with this prefix.
const UNSUPPORTED: [(&[&str], &str, &str); 22] = [
    (
        &[""],
        "freshness",
        "the goal is 5 s. For another goal, change the bucket in the alerts of deploy/prometheus",
    ),
    (
        &["worker"],
        "idle_cost",
        "set poll.max, the longest poll interval. `evenkeel config check` shows the cost a month",
    ),
    (
        &["http"],
        "read_token_",
        "declare [http.tokens.NAME] with role = \"read\"",
    ),
    (
        &["http"],
        "open_contents",
        "set open_reads = false to require a token. Each [http.tokens.NAME] has its own contents = true or false",
    ),
    (&["pace"], "partition", AZURE_LIMIT),
    (&["pace"], "queue", AZURE_LIMIT),
    (&["pace"], "blob", AZURE_LIMIT),
    (
        &["pace"],
        "start_percent",
        "each rate starts at 10 % of its limit and doubles every second under load",
    ),
    (&["accounts"], "second_", ROTATION),
    (&["sinks"], "second_key_", ROTATION),
    (
        &["sinks"],
        "second_secret_",
        "let the receiver accept both secrets while you replace the file",
    ),
    (
        &SECTIONS_WITH_IDENTITY,
        "client_secret_env",
        "set client_secret_file, or the environment variable AZURE_CLIENT_SECRET",
    ),
    (
        &SECTIONS_WITH_IDENTITY,
        "federated_token_file",
        "set the environment variable AZURE_FEDERATED_TOKEN_FILE, as the workload identity webhook does",
    ),
    (
        &SECTIONS_WITH_IDENTITY,
        "authority_host",
        "the authority follows from the cloud of the endpoint, or from the environment variable AZURE_AUTHORITY_HOST",
    ),
    (&["sinks"], "timeout", "the timeout is always 10 s"),
    (
        &["sinks"],
        "key_field",
        "the key field of every index is id",
    ),
    (
        &["sinks"],
        "tls",
        "TLS is used unless the server is on this machine. Set ca_file to use it there, too",
    ),
    (
        &["archives"],
        "content_type",
        "documents are always application/json",
    ),
    (
        &["archives"],
        "roll_at",
        "a log starts its next blob at 64 MiB",
    ),
    (
        &["retention"],
        "ahead",
        "two tables are always created ahead of the current one",
    ),
    (
        &["rules"],
        "per_second",
        "a rule processes 500 entities a second. The commands archive-where and delete-where have --per-second",
    ),
    (
        &["views"],
        "spill",
        "rows have at most 252 properties. Set `wide = true` in the [tables] section, or use dated tables",
    ),
];

pub(super) fn advice(path: &str, key: &str) -> Option<&'static str> {
    let section = path.split(['.', '[']).next().unwrap_or_default();
    let is_key = |name: &str| {
        if name.ends_with('_') {
            key.starts_with(name)
        } else {
            key == name
        }
    };
    UNSUPPORTED
        .iter()
        .find(|(sections, name, _)| sections.contains(&section) && is_key(name))
        .map(|(.., advice)| *advice)
}
