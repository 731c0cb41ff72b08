//! Connection strings, as the portal, the emulator and other tools write them.
//!
//! Read here and not by the client library, which knows neither the development storage nor explicit endpoints,
//! is particular about case, and prints the text that it cannot read.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::settings::{AzureAccount, EndpointOverrides, SettingsError, sas_credential};
use evenkeel_model::model::AccountName;

/// The emulator's account and key, which are public ("Use the Azurite emulator", well-known storage account).
const EMULATOR_ACCOUNT: &str = azure_storage::EMULATOR_ACCOUNT;
const EMULATOR_KEY: &str = azure_storage::EMULATOR_ACCOUNT_KEY;
/// The emulator's ports: blob, queue, table.
const EMULATOR_PORTS: [u16; 3] = [10_000, 10_001, 10_002];

/// The keys that mean something here. Others (`FileEndpoint`, secondary endpoints) are ignored.
const KEYS: [&str; 10] = [
    "AccountName",
    "AccountKey",
    "SharedAccessSignature",
    "DefaultEndpointsProtocol",
    "EndpointSuffix",
    "TableEndpoint",
    "QueueEndpoint",
    "BlobEndpoint",
    "UseDevelopmentStorage",
    "DevelopmentStorageProxyUri",
];

impl AzureAccount {
    /// An account by a connection string: `UseDevelopmentStorage=true`, or `AccountName` with `AccountKey` or
    /// `SharedAccessSignature`, or a signature with explicit endpoints. Keys in any case and order.
    pub fn from_connection_string(account: AccountName, text: &SecretString) -> Result<Self, SettingsError> {
        let parts = Parts::read(text.expose_secret())?;
        if parts.get("UseDevelopmentStorage").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return development(account, &parts);
        }
        let overrides = EndpointOverrides {
            table: parts.owned("TableEndpoint"),
            queue: parts.owned("QueueEndpoint"),
            blob: parts.owned("BlobEndpoint"),
            suffix: parts.owned("EndpointSuffix"),
        };
        let protocol = match parts.get("DefaultEndpointsProtocol").map(str::to_ascii_lowercase).as_deref() {
            None | Some("https") => "https",
            Some("http") => "http",
            Some(_) => return Err(SettingsError::Protocol),
        };
        let name = parts.get("AccountName").unwrap_or_default();
        match (parts.get("AccountKey"), parts.get("SharedAccessSignature")) {
            (Some(_), Some(_)) => Err(SettingsError::Twice("AccountKey and SharedAccessSignature")),
            (Some(key), None) => {
                // The endpoints are worked out again below, with the protocol; this checks name and key.
                let checked = Self::with_key(account, name, &SecretString::from(key.to_owned()), &overrides)?;
                Self::new(checked.account, name, checked.credential, &overrides, protocol)
            }
            (None, Some(sas)) => Self::new(account, name, sas_credential(sas)?, &overrides, protocol),
            (None, None) => Err(SettingsError::Missing("AccountKey or SharedAccessSignature")),
        }
    }
}

/// The emulator on this machine, or behind `DevelopmentStorageProxyUri`.
fn development(account: AccountName, parts: &Parts<'_>) -> Result<AzureAccount, SettingsError> {
    let host = parts.get("DevelopmentStorageProxyUri").unwrap_or("http://127.0.0.1").trim_end_matches('/');
    let endpoint = |port: u16| Some(format!("{host}:{port}/{EMULATOR_ACCOUNT}"));
    let [blob, queue, table] = EMULATOR_PORTS;
    let overrides = EndpointOverrides { table: endpoint(table), queue: endpoint(queue), blob: endpoint(blob), suffix: None };
    AzureAccount::with_key(account, EMULATOR_ACCOUNT, &SecretString::from(EMULATOR_KEY), &overrides)
}

/// The parts of a connection string, by their keys as [`KEYS`] spells them.
struct Parts<'a>(BTreeMap<&'static str, &'a str>);

impl<'a> Parts<'a> {
    fn read(text: &'a str) -> Result<Self, SettingsError> {
        let mut parts = BTreeMap::new();
        let pieces = text.trim().trim_matches(['"', '\'']).split(';').map(str::trim);
        for (number, piece) in pieces.enumerate().filter(|(_, piece)| !piece.is_empty()) {
            // Keys are Base64 and signatures are query strings: both have equals signs of their own.
            let (key, value) = piece.split_once('=').ok_or(SettingsError::Part(number + 1))?;
            let Some(known) = KEYS.into_iter().find(|known| known.eq_ignore_ascii_case(key.trim())) else { continue };
            if !value.trim().is_empty() && parts.insert(known, value.trim()).is_some() {
                return Err(SettingsError::Twice(known));
            }
        }
        Ok(Self(parts))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).copied()
    }

    fn owned(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::Signer;

    const KEY: &str = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA==";

    fn read(text: &str) -> Result<AzureAccount, SettingsError> {
        AzureAccount::from_connection_string(AccountName::main(), &SecretString::from(text))
    }

    #[test]
    fn what_the_portal_writes() {
        let account =
            read(&format!("DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey={KEY};EndpointSuffix=core.windows.net")).unwrap();
        assert_eq!(account.endpoints.table.as_str(), "https://contoso.table.core.windows.net/");
        assert!(matches!(&*account.keyring().unwrap().in_use(), Signer::SharedKey { key, .. } if key.secret.expose_secret() == KEY));
    }

    #[test]
    fn what_people_write() {
        let account =
            read(&format!(" \"accountkey={KEY}; ACCOUNTNAME = contoso ;defaultendpointsprotocol=HTTP;;FileEndpoint=https://x/;\" "))
                .unwrap();
        assert_eq!(account.endpoints.table.as_str(), "http://contoso.table.core.windows.net/");
    }

    #[test]
    fn the_emulator() {
        let account = read("UseDevelopmentStorage=true").unwrap();
        assert_eq!(account.endpoints.table.as_str(), "http://127.0.0.1:10002/devstoreaccount1");
        assert_eq!(account.endpoints.blob.as_str(), "http://127.0.0.1:10000/devstoreaccount1");
        let account = read("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite").unwrap();
        assert_eq!(account.endpoints.queue.as_str(), "http://azurite:10001/devstoreaccount1");
        let account = read(&format!(
            "AccountName=devstoreaccount1;AccountKey={KEY};TableEndpoint=http://127.0.0.1:5/devstoreaccount1;QueueEndpoint=http://127.0.0.1:6/devstoreaccount1/;BlobEndpoint=http://127.0.0.1:7/devstoreaccount1"
        ))
        .unwrap();
        assert_eq!(account.endpoints.queue.as_str(), "http://127.0.0.1:6/devstoreaccount1");
    }

    #[test]
    fn a_signature_needs_a_name_or_endpoints() {
        let sas = "sv=2022-11-02&ss=tqb&sig=a%2Bb%3D";
        let account = read(&format!("AccountName=contoso;SharedAccessSignature={sas}")).unwrap();
        assert!(matches!(&*account.keyring().unwrap().in_use(), Signer::Sas(found) if found.expose_secret() == sas));
        let account =
            read(&format!("TableEndpoint=https://a/;QueueEndpoint=https://b/;BlobEndpoint=https://c/;SharedAccessSignature=?{sas}"))
                .unwrap();
        assert_eq!(account.endpoints.table.as_str(), "https://a/");
        assert!(matches!(read(&format!("TableEndpoint=https://a/;SharedAccessSignature={sas}")), Err(SettingsError::Missing(_))));
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (text, expected) in [
            ("AccountName=contoso".to_owned(), SettingsError::Missing("AccountKey or SharedAccessSignature")),
            (String::new(), SettingsError::Missing("AccountKey or SharedAccessSignature")),
            (format!("AccountName=contoso;{KEY}").replace('=', "!").replace("AccountName!", "AccountName="), SettingsError::Part(2)),
            ("AccountName=contoso;AccountKey=S3CRET!".to_owned(), SettingsError::Key),
            ("AccountName=contoso;SharedAccessSignature=S3CRET".to_owned(), SettingsError::Sas),
            (format!("AccountName=a;AccountName=b;AccountKey={KEY}"), SettingsError::Twice("AccountName")),
            (format!("DefaultEndpointsProtocol=ftp;AccountName=contoso;AccountKey={KEY}"), SettingsError::Protocol),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error, expected);
            assert!(!format!("{error} {error:?}").contains("S3CRET"));
        }
    }
}
