//! `[encryption]`, `[encryption.keys.NAME]`, and the keys `encrypt`, `hash` and `when` of `[tables.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_model::KeyBytes;
use evenkeel_model::ViewName;
use evenkeel_model::catalog::own_property;
use evenkeel_model::entity::{PROPERTY_NAME_RULE, RESERVED_PREFIX, valid_property_name};
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{
    EncryptionSettings, KeySource, VAULT_DOMAINS, VaultKey, WrappedText,
};
use evenkeel_model::template::Template;
use secrecy::ExposeSecret as _;
use url::Url;

use super::address;
use super::identity;
use super::secret::SecretKeys;
use super::section::Section;
use super::views::TableDraft;

const VAULT_KEY: &str = "vault_key";
const WRAPPED_KEY: &str = "wrapped_key";
const KEY: SecretKeys = SecretKeys {
    env: "key_env",
    file: "key_file",
};

/// Reads the key-encryption keys. A key without its secret is left out, because this process cannot unwrap the data
/// keys that are wrapped with it.
pub(super) fn read(root: &Section<'_>) -> EncryptionSettings {
    if !root.has("encryption") {
        return EncryptionSettings::default();
    }
    let Some(section) = root.section("encryption") else {
        return EncryptionSettings::default();
    };
    let named = section.subsections("keys");
    let names: Vec<&str> = named.iter().map(|(name, _)| *name).collect();
    let current = section.required("current", "the name of one of [encryption.keys]", |text| {
        if names.contains(&text) {
            Ok(text.to_owned())
        } else {
            Err(format!("expected one of [encryption.keys], found {text:?}"))
        }
    });
    let mut settings = EncryptionSettings {
        current,
        ..EncryptionSettings::default()
    };
    for (name, section) in named {
        if let Err(error) = ViewName::new(name) {
            section.error("", error);
        }
        if section.has(VAULT_KEY) {
            wrapped_key(name, &section, &mut settings);
        } else {
            local_key(name, &section, &mut settings);
        }
        section.finish();
    }
    section.finish();
    settings
}

fn local_key(name: &str, section: &Section<'_>, settings: &mut EncryptionSettings) {
    let Some((setting, secret)) = KEY.find(section) else {
        match KEY.describe_variable(section) {
            Some(variable) => section
                .warning(KEY.env, format!("{variable} is not set, so values encrypted under this key cannot be decrypted here")),
            None if !section.has(KEY.file) => {
                section.error(KEY.env, format!("missing; expected {} or {} (32 bytes in Base64), or {VAULT_KEY}", KEY.env, KEY.file));
            }
            None => {}
        }
        return;
    };
    let text = secret.expose_secret();
    let decoded = [BASE64.decode(text).ok(), hex::decode(text).ok()];
    match decoded.into_iter().flatten().find_map(|bytes| <[u8; 32]>::try_from(bytes).ok()) {
        Some(bytes) => drop(settings.keys.insert(name.to_owned(), KeySource::Here(KeyBytes(bytes)))),
        None => section.error(setting, "expected 32 bytes in Base64, as `openssl rand -base64 32` prints them, or 64 hexadecimal digits"),
    }
}

fn wrapped_key(name: &str, section: &Section<'_>, settings: &mut EncryptionSettings) {
    section.reject_keys(VAULT_KEY, VAULT_KEY, &[&KEY.keys()]);
    let address = section.parsed(VAULT_KEY, vault_key);
    let identity = identity::read(section);
    let (Some(address), Some(identity)) = (address, identity) else {
        return;
    };
    let by = VaultKey { address, identity };
    if !section.has(WRAPPED_KEY) {
        section.warning(
            WRAPPED_KEY,
            format!("not set, so this key cannot be used yet. Run `evenkeel keys new {name}` and add the line that it prints"),
        );
        settings.unused.insert(name.to_owned(), by);
    } else if let Some(wrapped) = section.parsed(WRAPPED_KEY, WrappedText::parse) {
        settings
            .keys
            .insert(name.to_owned(), KeySource::Wrapped { by, wrapped });
    }
}

/// Parses the address of a key in a vault. The address must have no version: each wrapped data key is stored with
/// the version of the key that wrapped it.
fn vault_key(text: &str) -> Result<Url, String> {
    const EXPECTED: &str = "the address of a key without its version, such as \"https://contoso.vault.azure.net/keys/evenkeel\"";
    let url = address::parse_trusted(text, EXPECTED)?;
    let parts: Vec<&str> = url.path().trim_matches('/').split('/').collect();
    if !matches!(parts.as_slice(), ["keys", name] if !name.is_empty()) {
        return Err(format!("expected {EXPECTED}"));
    }
    let is_vault = url.host_str().is_some_and(|host| {
        is_local_host(host) || VAULT_DOMAINS.iter().any(|domain| host.ends_with(domain))
    });
    if is_vault {
        Ok(url)
    } else {
        Err(format!(
            "expected {EXPECTED}. Tokens for vaults are sent only to Azure Key Vault"
        ))
    }
}

pub(super) fn properties(section: &Section<'_>) -> BTreeSet<String> {
    let names = section.list("encrypt", |name| {
        if name.starts_with(RESERVED_PREFIX) {
            Err(format!(
                "{name:?} is one of evenkeel's own properties, which are never encrypted; expected another property"
            ))
        } else if matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp") {
            Err(format!(
                "{name} cannot be encrypted because the service reads it; expected another property"
            ))
        } else if !valid_property_name(&name) {
            Err(format!(
                "{name:?} is not a property name: {PROPERTY_NAME_RULE}"
            ))
        } else {
            Ok(name)
        }
    });
    names.unwrap_or_default().into_iter().collect()
}

/// Reads the key `hash` of a table: `{ SsnHash = "{Ssn|trim}" }`.
pub(super) fn hashes(
    section: &Section<'_>,
    encrypted: &BTreeSet<String>,
) -> BTreeMap<String, Template> {
    let Some((inner, texts)) = section.texts_by_name("hash") else {
        return BTreeMap::new();
    };
    let hash = |(name, text): (&str, &str)| {
        let name = own_property(name).and_then(|name| {
            if encrypted.contains(&name) {
                Err(format!(
                    "{name:?} is itself encrypted; expected another name"
                ))
            } else {
                Ok(name)
            }
        });
        let template = Template::parse_text(text).map_err(|error| error.to_string()).and_then(|template| {
            let properties = template.properties();
            let has_one_encrypted = properties.len() == 1 && properties.iter().all(|property| encrypted.contains(*property));
            if has_one_encrypted {
                Ok(template)
            } else {
                Err(format!("expected a template of one encrypted property, such as \"{{Ssn|trim}}\", found {text:?}"))
            }
        });
        match (name, template) {
            (Ok(name), Ok(template)) => Some((name, template)),
            (Err(problem), _) | (_, Err(problem)) => {
                inner.error("", problem);
                None
            }
        }
    };
    texts.into_iter().filter_map(hash).collect()
}

pub(super) fn check(settings: &EncryptionSettings, tables: &[TableDraft<'_>]) {
    for table in tables {
        check_condition(table);
        if !table.encrypt.is_empty() && settings.current.is_none() {
            table.section.error(
                "encrypt",
                "there is no encryption key; expected [encryption] with current = \"NAME\", the name of a key",
            );
        }
    }
}

/// Checks the condition under which entities of a table are encrypted. A `put` evaluates the condition on plain
/// values.
fn check_condition(table: &TableDraft<'_>) {
    let Some(when) = &table.when else { return };
    let error = |problem: &str| table.section.error("when", problem);
    if table.encrypt.is_empty() {
        error("no property is encrypted; expected encrypt = [\"PROPERTY\"] as well");
    }
    for name in when.properties() {
        if table.encrypt.contains(name) {
            error(&format!(
                "{name} is itself encrypted and cannot be compared; expected another property"
            ));
        }
        if table.hash.contains_key(name) {
            error(&format!(
                "{name} is the keyed hash of an encrypted property; expected another property"
            ));
        }
    }
}
