//! Reads an account from a connection string.

use secrecy::{ExposeSecret as _, SecretString};

use super::settings::{AzureAccount, EndpointOverrides, SettingsError, sas_credential};
use evenkeel_model::AccountName;
use evenkeel_model::settings::ConnectionString;

/// Name and key of the emulator, which are public ("Use the Azurite emulator", well-known storage account).
const EMULATOR_ACCOUNT: &str = azure_storage::EMULATOR_ACCOUNT;
const EMULATOR_KEY: &str = azure_storage::EMULATOR_ACCOUNT_KEY;
/// Ports of the emulator: blob, queue, table.
const EMULATOR_PORTS: [u16; 3] = [10_000, 10_001, 10_002];

impl AzureAccount {
    /// Accepts `UseDevelopmentStorage=true`, `AccountName` with `AccountKey` or `SharedAccessSignature`, or a signature with
    /// explicit endpoints. Keys may have any case and order.
    pub fn from_connection_string(
        account: AccountName,
        text: &SecretString,
    ) -> Result<Self, SettingsError> {
        let parts = ConnectionString::parse(text.expose_secret())?;
        let owned = |name: &str| parts.get(name).map(str::to_owned);
        if parts.is_development() {
            return development(account, &parts);
        }
        let overrides = EndpointOverrides {
            table: owned("TableEndpoint"),
            queue: owned("QueueEndpoint"),
            blob: owned("BlobEndpoint"),
            suffix: owned("EndpointSuffix"),
        };
        let protocol = match parts
            .get("DefaultEndpointsProtocol")
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            None | Some("https") => "https",
            Some("http") => "http",
            Some(_) => return Err(SettingsError::Protocol),
        };
        let name = parts.get("AccountName").unwrap_or_default();
        match (parts.get("AccountKey"), parts.get("SharedAccessSignature")) {
            (Some(_), Some(_)) => Err(SettingsError::Both),
            (Some(key), None) => {
                // This checks name and key. The endpoints are determined below, because they depend on the protocol.
                let checked = Self::with_key(
                    account,
                    name,
                    &SecretString::from(key.to_owned()),
                    &overrides,
                )?;
                Self::new(
                    checked.account,
                    name,
                    checked.credential,
                    &overrides,
                    protocol,
                )
            }
            (None, Some(sas)) => {
                Self::new(account, name, sas_credential(sas)?, &overrides, protocol)
            }
            (None, None) => Err(SettingsError::Missing(
                "AccountKey or SharedAccessSignature",
            )),
        }
    }
}

/// The emulator on this machine or at `DevelopmentStorageProxyUri`.
fn development(
    account: AccountName,
    parts: &ConnectionString<'_>,
) -> Result<AzureAccount, SettingsError> {
    let host = parts
        .get("DevelopmentStorageProxyUri")
        .unwrap_or("http://127.0.0.1")
        .trim_end_matches('/');
    let endpoint = |port: u16| Some(format!("{host}:{port}/{EMULATOR_ACCOUNT}"));
    let [blob, queue, table] = EMULATOR_PORTS;
    let overrides = EndpointOverrides {
        table: endpoint(table),
        queue: endpoint(queue),
        blob: endpoint(blob),
        suffix: None,
    };
    AzureAccount::with_key(
        account,
        EMULATOR_ACCOUNT,
        &SecretString::from(EMULATOR_KEY),
        &overrides,
    )
}

#[cfg(test)]
mod tests {
    use evenkeel_model::settings::ConnectionStringError;

    use super::*;
    use crate::keyring::Signer;

    const KEY: &str = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA==";

    fn read(text: &str) -> Result<AzureAccount, SettingsError> {
        AzureAccount::from_connection_string(AccountName::main(), &SecretString::from(text))
    }

    #[test]
    fn reads_the_connection_string_of_the_portal() {
        let account =
            read(&format!("DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey={KEY};EndpointSuffix=core.windows.net")).unwrap();
        assert_eq!(
            account.endpoints.table.as_str(),
            "https://contoso.table.core.windows.net/"
        );
        assert!(
            matches!(&*account.keyring().unwrap().in_use(), Signer::SharedKey { key, .. } if key.secret.expose_secret() == KEY)
        );
    }

    #[test]
    fn reads_any_case_order_and_spacing() {
        let account =
            read(&format!(" \"accountkey={KEY}; ACCOUNTNAME = contoso ;defaultendpointsprotocol=HTTP;;FileEndpoint=https://x/;\" "))
                .unwrap();
        assert_eq!(
            account.endpoints.table.as_str(),
            "http://contoso.table.core.windows.net/"
        );
    }

    #[test]
    fn reads_the_connection_string_of_the_emulator() {
        let account = read("UseDevelopmentStorage=true").unwrap();
        assert_eq!(
            account.endpoints.table.as_str(),
            "http://127.0.0.1:10002/devstoreaccount1"
        );
        assert_eq!(
            account.endpoints.blob.as_str(),
            "http://127.0.0.1:10000/devstoreaccount1"
        );
        let account =
            read("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite").unwrap();
        assert_eq!(
            account.endpoints.queue.as_str(),
            "http://azurite:10001/devstoreaccount1"
        );
        let account = read(&format!(
            "AccountName=devstoreaccount1;AccountKey={KEY};TableEndpoint=http://127.0.0.1:5/devstoreaccount1;QueueEndpoint=http://127.0.0.1:6/devstoreaccount1/;BlobEndpoint=http://127.0.0.1:7/devstoreaccount1"
        ))
        .unwrap();
        assert_eq!(
            account.endpoints.queue.as_str(),
            "http://127.0.0.1:6/devstoreaccount1"
        );
    }

    #[test]
    fn a_signature_needs_a_name_or_endpoints() {
        let sas = "sv=2022-11-02&ss=tqb&sig=a%2Bb%3D";
        let account = read(&format!("AccountName=contoso;SharedAccessSignature={sas}")).unwrap();
        assert!(
            matches!(&*account.keyring().unwrap().in_use(), Signer::Sas(found) if found.expose_secret() == sas)
        );
        let account =
            read(&format!("TableEndpoint=https://a/;QueueEndpoint=https://b/;BlobEndpoint=https://c/;SharedAccessSignature=?{sas}"))
                .unwrap();
        assert_eq!(account.endpoints.table.as_str(), "https://a/");
        assert!(matches!(
            read(&format!(
                "TableEndpoint=https://a/;SharedAccessSignature={sas}"
            )),
            Err(SettingsError::Missing(_))
        ));
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (text, expected) in [
            (
                "AccountName=contoso".to_owned(),
                SettingsError::Missing("AccountKey or SharedAccessSignature"),
            ),
            (
                String::new(),
                SettingsError::Missing("AccountKey or SharedAccessSignature"),
            ),
            (
                format!("AccountName=contoso;{KEY}")
                    .replace('=', "!")
                    .replace("AccountName!", "AccountName="),
                ConnectionStringError::Part(2).into(),
            ),
            (
                "AccountName=contoso;AccountKey=S3CRET!".to_owned(),
                SettingsError::Key,
            ),
            (
                "AccountName=contoso;SharedAccessSignature=S3CRET".to_owned(),
                SettingsError::Sas,
            ),
            (
                format!("AccountName=a;AccountName=b;AccountKey={KEY}"),
                ConnectionStringError::Twice("AccountName").into(),
            ),
            (
                format!("DefaultEndpointsProtocol=ftp;AccountName=contoso;AccountKey={KEY}"),
                SettingsError::Protocol,
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert_eq!(error, expected);
            assert!(!format!("{error} {error:?}").contains("S3CRET"));
        }
    }
}
