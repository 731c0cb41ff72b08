//! `[accounts.NAME]`

use std::collections::BTreeSet;
use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use url::Url;

use super::address;
use super::identity;
use super::request::AccountCheck;
use super::secret::SecretKeys;
use super::section::Section;
use evenkeel_model::AccountName;
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::connection_string::names_more_than_account;
use evenkeel_model::settings::{
    AccountKind, AccountSettings, AzureAuth, ConfiguredSecret, ConnectionString, Endpoints,
};

const CONNECTION_STRING: SecretKeys = SecretKeys {
    env: "connection_string_env",
    file: "connection_string_file",
};
/// The only valid value of this key is the connection string of the emulator. This string is not a secret.
const EMULATOR: &str = "connection_string";
pub(super) const KEY: SecretKeys = SecretKeys {
    env: "key_env",
    file: "key_file",
};
const SAS: SecretKeys = SecretKeys {
    env: "sas_env",
    file: "sas_file",
};

const CONNECTION_STRING_KEYS: [&str; 3] = [EMULATOR, CONNECTION_STRING.env, CONNECTION_STRING.file];
const NAMED_KEYS: [&str; 2] = ["name", "endpoints"];
pub(super) const KEY_KEYS: [&str; 2] = KEY.keys();
const SAS_KEYS: [&str; 2] = SAS.keys();

struct Choice<C> {
    word: &'static str,
    chosen: C,
    keys: &'static [&'static [&'static str]],
}

/// The kinds of accounts, each with the keys that are allowed for it. Azure accounts also have the keys of [`AUTHS`].
static KINDS: [Choice<Backend>; 2] = [
    Choice {
        word: "embedded",
        chosen: Backend::Embedded,
        keys: &[&["path"]],
    },
    Choice {
        word: "azure",
        chosen: Backend::Azure,
        keys: &[&["auth"]],
    },
];

/// The ways to sign in to Azure Storage. The first one is the default.
static AUTHS: [Choice<Auth>; 4] = [
    Choice {
        word: "connection_string",
        chosen: Auth::ConnectionString,
        keys: &[&CONNECTION_STRING_KEYS],
    },
    Choice {
        word: "key",
        chosen: Auth::Key,
        keys: &[&NAMED_KEYS, &KEY_KEYS],
    },
    Choice {
        word: "sas",
        chosen: Auth::Sas,
        keys: &[&NAMED_KEYS, &SAS_KEYS],
    },
    Choice {
        word: "entra",
        chosen: Auth::Entra,
        keys: &[&NAMED_KEYS, &identity::KEYS],
    },
];

fn keys_of(kind: &Choice<Backend>) -> Vec<&'static str> {
    let auths: &[Choice<Auth>] = match kind.chosen {
        Backend::Embedded => &[],
        Backend::Azure => &AUTHS,
    };
    let keys = kind
        .keys
        .iter()
        .chain(auths.iter().flat_map(|auth| auth.keys));
    keys.copied().flatten().copied().collect()
}

fn reject_other_keys(
    section: &Section<'_>,
    choice: &'static str,
    (word, own): (&str, &[&'static str]),
    all: impl Iterator<Item = &'static str>,
) {
    let others: BTreeSet<&str> = all.filter(|key| !own.contains(key)).collect();
    let others: Vec<&str> = others.into_iter().collect();
    section.reject_keys(choice, &format!("{choice} = {word:?}"), &[&others]);
}

#[derive(Clone, Copy, PartialEq)]
enum Backend {
    Embedded,
    Azure,
}

#[derive(Clone, Copy, PartialEq)]
enum Auth {
    ConnectionString,
    Key,
    Sas,
    Entra,
}

/// Reads every account. An account with a mistake is `None`.
pub(super) fn read(
    root: &Section<'_>,
    check: Option<AccountCheck>,
) -> Vec<(AccountName, Option<AccountSettings>)> {
    let mut accounts = Vec::new();
    for (name, section) in root.subsections("accounts") {
        match AccountName::new(name) {
            Ok(name) => accounts.push((name.clone(), account(name, &section, check))),
            Err(error) => section.error("", error),
        }
    }
    accounts
}

fn account(
    name: AccountName,
    section: &Section<'_>,
    check: Option<AccountCheck>,
) -> Option<AccountSettings> {
    let words = KINDS.each_ref().map(|kind| (kind.word, kind));
    let kind = section.required_one_of("kind", &words);
    for kind in &KINDS {
        section.mark_known(&keys_of(kind));
    }
    section.finish();
    let kind = kind?;
    reject_other_keys(
        section,
        "kind",
        (kind.word, &keys_of(kind)),
        KINDS.iter().flat_map(keys_of),
    );
    let kind = match kind.chosen {
        Backend::Embedded => {
            let path = section.required_text(
                "path",
                "the path of a database file, such as \"data/evenkeel.db\"",
            )?;
            if path.trim().is_empty() {
                section.error("path", "expected the path of a database file, such as \"data/evenkeel.db\", found an empty string");
                return None;
            }
            AccountKind::Embedded {
                path: PathBuf::from(path),
            }
        }
        Backend::Azure => {
            let auth = azure(section)?;
            if let Some(Err(problem)) = check.map(|check| check(&name, &auth)) {
                let keys: &[&'static str] = match auth {
                    AzureAuth::ConnectionString(_) => &CONNECTION_STRING_KEYS,
                    AzureAuth::Key { .. } => &KEY_KEYS,
                    AzureAuth::Sas { .. } => &SAS_KEYS,
                    AzureAuth::Entra { .. } => &NAMED_KEYS,
                };
                section.error(last_set_key(section, keys), problem);
                return None;
            }
            AccountKind::Azure(auth)
        }
    };
    Some(AccountSettings { name, kind })
}

fn azure(section: &Section<'_>) -> Option<AzureAuth> {
    let words = AUTHS.each_ref().map(|auth| (auth.word, auth));
    let auth = section.with_default("auth", &AUTHS[0], |key| section.one_of(key, &words))?;
    let all = AUTHS.iter().flat_map(|auth| auth.keys.concat());
    reject_other_keys(section, "auth", (auth.word, &auth.keys.concat()), all);
    match auth.chosen {
        Auth::ConnectionString => {
            let secret = connection_string(section)?;
            let parts = ConnectionString::parse(secret.text.expose_secret())
                .map_err(|problem| section.error(secret.setting, problem))
                .ok()?;
            if let Some(host) = unencrypted_host_of(&parts) {
                section.warning(secret.setting, unencrypted_warning(&host));
            }
            Some(AzureAuth::ConnectionString(secret))
        }
        Auth::Key => {
            let (account, endpoints, key) = (
                storage_name(section),
                endpoints(section),
                KEY.required(section, "an account key in Base64"),
            );
            Some(AzureAuth::Key {
                account: account?,
                key: key?,
                endpoints: endpoints?,
            })
        }
        Auth::Sas => {
            let (account, endpoints, token) = (
                storage_name(section),
                endpoints(section),
                SAS.required(section, "an account SAS"),
            );
            Some(AzureAuth::Sas {
                account: account?,
                token: token?,
                endpoints: endpoints?,
            })
        }
        Auth::Entra => {
            let (account, endpoints, identity) = (
                storage_name(section),
                endpoints(section),
                identity::read(section),
            );
            Some(AzureAuth::Entra {
                account: account?,
                identity: identity?,
                endpoints: endpoints?,
            })
        }
    }
}

/// Returns the connection string: a secret from the environment or a file, or the fixed string of the emulator. If
/// both a secret and the emulator are configured, the one in the later layer is used.
fn connection_string(section: &Section<'_>) -> Option<ConfiguredSecret> {
    const EXPECTED: &str = "expected UseDevelopmentStorage=true. Any other connection string is a secret: set connection_string_env to the name of an environment variable, or connection_string_file to the path of a file";
    if !section.has(EMULATOR) {
        return CONNECTION_STRING.required(section, "a connection string");
    }
    let emulator = section.parsed(EMULATOR, |text| match ConnectionString::parse(text) {
        Ok(parts) if parts.is_development() => Ok(ConfiguredSecret::fixed(EMULATOR, text.into())),
        Ok(_) => Err(EXPECTED.to_owned()),
        Err(problem) => Err(problem.to_string()),
    })?;
    let later = CONNECTION_STRING
        .keys()
        .iter()
        .all(|key| section.rank(key) < section.rank(EMULATOR));
    if later {
        Some(emulator)
    } else {
        CONNECTION_STRING.configured(section).or(Some(emulator))
    }
}

/// Returns the last key in this list that is set, or `kind` if none is set.
fn last_set_key(section: &Section<'_>, keys: &[&'static str]) -> &'static str {
    keys.iter()
        .rev()
        .copied()
        .find(|key| section.has(key))
        .unwrap_or("kind")
}

fn storage_name(section: &Section<'_>) -> Option<String> {
    let name = section.required_text("name", "the storage account's own name")?;
    if (3..=24).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    {
        return Some(name.to_owned());
    }
    section.error("name", format!("expected the storage account's own name, 3 to 24 lower-case letters and digits, found {name:?}"));
    None
}

fn endpoints(section: &Section<'_>) -> Option<Endpoints> {
    let Some(section) = section.section("endpoints") else {
        return (!section.has("endpoints")).then(Endpoints::default);
    };
    let read = |key| {
        section.optional(key, |section: &Section<'_>| {
            section.parsed(key, parse_endpoint)
        })
    };
    let (table, queue, blob) = (read("table"), read("queue"), read("blob"));
    section.finish();
    for (key, endpoint) in [("table", &table), ("queue", &queue), ("blob", &blob)] {
        if let Ok(Some(endpoint)) = endpoint
            && let Some(host) = unencrypted_remote_host(endpoint)
        {
            section.warning(key, unencrypted_warning(&host));
        }
    }
    Some(Endpoints {
        table: table.ok()?,
        queue: queue.ok()?,
        blob: blob.ok()?,
    })
}

fn unencrypted_warning(host: &str) -> String {
    format!(
        "requests to {host} are unencrypted (http) and can be read and changed on the network. Use https"
    )
}

fn unencrypted_remote_host(url: &str) -> Option<String> {
    let url = Url::parse(url.trim())
        .ok()
        .filter(|url| url.scheme() == "http")?;
    url.host_str()
        .filter(|host| !is_local_host(host))
        .map(str::to_owned)
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    let url = address::parse(
        text,
        "an address such as https://contoso.table.core.windows.net",
    )?;
    if names_more_than_account(&url, None) {
        return Err(
            "the address names a container, table or queue; expected the address of the account"
                .to_owned(),
        );
    }
    Ok(text.trim().trim_end_matches('/').to_owned())
}

fn unencrypted_host_of(parts: &ConnectionString<'_>) -> Option<String> {
    let is_plain = parts
        .get("DefaultEndpointsProtocol")
        .is_some_and(|protocol| protocol.eq_ignore_ascii_case("http"));
    [
        ("table", "TableEndpoint"),
        ("queue", "QueueEndpoint"),
        ("blob", "BlobEndpoint"),
    ]
    .into_iter()
    .find_map(
        |(service, name)| match (parts.get(name), parts.get("AccountName")) {
            (Some(endpoint), _) => unencrypted_remote_host(endpoint),
            (None, Some(account)) if is_plain => Some(format!(
                "{account}.{service}.{}",
                parts.get("EndpointSuffix").unwrap_or("core.windows.net")
            )),
            (None, _) => None,
        },
    )
}
