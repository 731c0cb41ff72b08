//! The keys of an identity of Entra ID, in `[accounts.NAME]` and `[sinks.NAME]`.
//!
//! A key that is not set gets the value of the environment variable that the identity libraries of Azure read. `credential = "auto"`
//! uses the first credential that has all of its settings. If no credential has all of its settings, the managed identity and the
//! developer tools are tried at run time, because only a request shows whether they are available.

use std::path::PathBuf;
use std::sync::Arc;

use secrecy::SecretString;
use url::Url;

use super::address;
use super::secret;
use super::section::Section;
use evenkeel_model::settings::{Application, EntraCredential, Identity};

pub(super) const KEYS: [&str; 5] = [
    "credential",
    "tenant_id",
    "client_id",
    "client_secret_file",
    "client_certificate_file",
];

const CREDENTIAL: &str = "credential";
const SECRET_FILE: &str = "client_secret_file";

/// A setting of an identity. Its value comes from its configuration key if that key is set, or else from an environment variable.
struct IdentitySetting {
    key: Option<&'static str>,
    variable: &'static str,
    expected: &'static str,
}

const TENANT: IdentitySetting = IdentitySetting {
    key: Some("tenant_id"),
    variable: "AZURE_TENANT_ID",
    expected: "the id or domain of the tenant",
};
const CLIENT: IdentitySetting = IdentitySetting {
    key: Some("client_id"),
    variable: "AZURE_CLIENT_ID",
    expected: "the client id of the application",
};
const SECRET: IdentitySetting = IdentitySetting {
    key: Some(SECRET_FILE),
    variable: "AZURE_CLIENT_SECRET",
    expected: "a file with an application's secret",
};
const CERTIFICATE: IdentitySetting = IdentitySetting {
    key: Some("client_certificate_file"),
    variable: "AZURE_CLIENT_CERTIFICATE_PATH",
    expected: "a PEM file with an application's certificate and private key",
};
const FEDERATED_TOKEN: IdentitySetting = IdentitySetting {
    key: None,
    variable: "AZURE_FEDERATED_TOKEN_FILE",
    expected: "the file with the token that the application trusts",
};
const AUTHORITY: IdentitySetting = IdentitySetting {
    key: None,
    variable: "AZURE_AUTHORITY_HOST",
    expected: "an https address such as \"https://login.microsoftonline.com\"",
};

struct CredentialKind {
    word: &'static str,
    /// The keys that are allowed with this credential.
    keys: &'static [&'static str],
    /// The keys that are allowed with this credential only.
    exclusive_keys: &'static [&'static str],
    read: fn(&mut Reader<'_>) -> Option<Vec<EntraCredential>>,
}

/// The credentials that `auto` considers first. `auto` uses the first credential that has all of its settings.
const COMPLETE: [CredentialKind; 3] = [
    CredentialKind {
        word: "client_secret",
        keys: &["tenant_id", "client_id", "client_secret_file"],
        exclusive_keys: &["client_secret_file"],
        read: |from| {
            let (application, secret) = (from.application(), from.secret());
            Some(vec![EntraCredential::ClientSecret {
                application: application?,
                secret: secret?,
            }])
        },
    },
    CredentialKind {
        word: "client_certificate",
        keys: &["tenant_id", "client_id", "client_certificate_file"],
        exclusive_keys: &["client_certificate_file"],
        read: |from| {
            let (application, certificate) = (from.application(), from.required(&CERTIFICATE));
            Some(vec![EntraCredential::ClientCertificate {
                application: application?,
                certificate: PathBuf::from(certificate?),
            }])
        },
    },
    CredentialKind {
        word: "workload_identity",
        keys: &["tenant_id", "client_id"],
        exclusive_keys: &[],
        read: |from| {
            let (application, token) = (from.application(), from.required(&FEDERATED_TOKEN));
            Some(vec![EntraCredential::WorkloadIdentity {
                application: application?,
                token: PathBuf::from(token?),
            }])
        },
    },
];

/// The credentials that `auto` tries at run time, in this order, if none of [`COMPLETE`] has all of its settings.
const FALLBACKS: [CredentialKind; 2] = [
    CredentialKind {
        word: "managed_identity",
        keys: &["client_id"],
        exclusive_keys: &[],
        read: |from| {
            Some(vec![EntraCredential::ManagedIdentity {
                client: CLIENT.read(from.section),
            }])
        },
    },
    CredentialKind {
        word: "developer_tools",
        keys: &["tenant_id"],
        exclusive_keys: &[],
        read: |from| {
            let tenant = TENANT.read(from.section);
            Some(vec![
                EntraCredential::AzureCli {
                    tenant: tenant.clone(),
                },
                EntraCredential::AzureDeveloperCli { tenant },
            ])
        },
    },
];

pub(super) fn read(section: &Section<'_>) -> Option<Arc<Identity>> {
    section.mark_known(&KEYS);
    let mut words = vec![("auto", None)];
    words.extend(
        COMPLETE
            .iter()
            .chain(&FALLBACKS)
            .map(|kind| (kind.word, Some(kind))),
    );
    let chosen = section.with_default("credential", None, |key| section.one_of(key, &words))?;
    let authority = match AUTHORITY.read(section) {
        Some(text) => Some(
            authority(&text)
                .map_err(|expected| section.error(CREDENTIAL, expected))
                .ok()?,
        ),
        None => None,
    };
    let (credentials, ruled_out) = match chosen {
        Some(kind) => (kind.read_chosen(section)?, Vec::new()),
        None => auto(section)?,
    };
    Some(Arc::new(Identity {
        credentials,
        ruled_out,
        authority,
    }))
}

fn auto(section: &Section<'_>) -> Option<(Vec<EntraCredential>, Vec<String>)> {
    let mut ruled_out = Vec::new();
    for kind in &COMPLETE {
        let mut reader = Reader {
            section,
            missing: Vec::new(),
        };
        match (kind.read)(&mut reader) {
            Some(credentials) => return Some((credentials, ruled_out)),
            // A key is set that only this credential allows. So the missing settings of this credential are a mistake.
            None if kind.exclusive_keys.iter().any(|key| section.has(key)) => {
                reader.report();
                return None;
            }
            None => {
                let missing: Vec<String> = reader
                    .missing
                    .iter()
                    .map(|setting| {
                        setting
                            .key
                            .into_iter()
                            .chain([setting.variable])
                            .collect::<Vec<_>>()
                            .join(" or ")
                    })
                    .collect();
                ruled_out.push(format!("{} without {}", kind.word, missing.join(", ")));
            }
        }
    }
    let fallbacks = FALLBACKS.iter().filter_map(|kind| {
        (kind.read)(&mut Reader {
            section,
            missing: Vec::new(),
        })
    });
    Some((fallbacks.flatten().collect(), ruled_out))
}

impl CredentialKind {
    fn read_chosen(&self, section: &Section<'_>) -> Option<Vec<EntraCredential>> {
        let others: Vec<&'static str> = KEYS
            .into_iter()
            .filter(|key| *key != CREDENTIAL && !self.keys.contains(key))
            .collect();
        section.reject_keys(
            CREDENTIAL,
            &format!("credential = {:?}", self.word),
            &[&others],
        );
        let mut reader = Reader {
            section,
            missing: Vec::new(),
        };
        let credentials = (self.read)(&mut reader);
        reader.report();
        credentials
    }
}

impl IdentitySetting {
    fn read(&self, section: &Section<'_>) -> Option<String> {
        let given = match self.key.filter(|key| section.has(key)) {
            Some(key) => section.text(key),
            None => self.environment_value(section),
        };
        given
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
    }

    fn environment_value<'s>(&self, section: &Section<'s>) -> Option<&'s str> {
        section
            .context
            .environment
            .get(self.variable)
            .map(String::as_str)
    }
}

struct Reader<'s> {
    section: &'s Section<'s>,
    missing: Vec<&'static IdentitySetting>,
}

impl Reader<'_> {
    fn required(&mut self, setting: &'static IdentitySetting) -> Option<String> {
        let found = setting.read(self.section);
        if found.is_none() {
            self.missing.push(setting);
        }
        found
    }

    fn application(&mut self) -> Option<Application> {
        let (tenant, client) = (self.required(&TENANT), self.required(&CLIENT));
        let tenant = tenant?;
        if !tenant
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
        {
            self.section.error(
                "tenant_id",
                format!("expected {}, found {tenant:?}", TENANT.expected),
            );
            return None;
        }
        Some(Application {
            tenant,
            client: client?,
        })
    }

    fn secret(&mut self) -> Option<SecretString> {
        let from_environment = || {
            SECRET
                .environment_value(self.section)
                .filter(|secret| !secret.is_empty())
                .map(SecretString::from)
        };
        let found = if self.section.has(SECRET_FILE) {
            secret::from_file(self.section, SECRET_FILE)
        } else {
            from_environment()
        };
        // Problems with the secret's file are already reported.
        if found.is_none() && !self.section.has(SECRET_FILE) {
            self.missing.push(&SECRET);
        }
        found
    }

    fn report(&self) {
        for IdentitySetting {
            key,
            variable,
            expected,
        } in &self.missing
        {
            match key {
                Some(key) => self.section.error(
                    key,
                    format!("missing; expected {expected}, or the environment variable {variable}"),
                ),
                None => {
                    self.section.error(CREDENTIAL, format!("expected {expected} in the environment variable {variable}, which is not set"));
                }
            }
        }
    }
}

fn authority(text: &str) -> Result<Url, String> {
    let IdentitySetting {
        variable, expected, ..
    } = AUTHORITY;
    let url = address::parse(text, expected)
        .ok()
        .filter(|url| url.scheme() == "https");
    url.ok_or_else(|| format!("expected {expected} in the environment variable {variable}"))
}
