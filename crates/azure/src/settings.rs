//! A storage account: its name, endpoints and credential.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cloud::Cloud;
use crate::http::{Authentication, EndpointKind, Exchange};
use crate::keyring::{AccountKey, KeySlot, Keyring, MakeSigner, Signer};
use evenkeel_model::AccountName;
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{
    self, AzureAuth, ConfiguredSecret, ConnectionStringError, Identity,
};
use evenkeel_storage::Service;

/// Everything needed to connect to an account. `Debug` omits secrets.
#[derive(Debug, Clone)]
pub struct AzureAccount {
    /// Name in the configuration and in errors.
    pub account: AccountName,
    /// Name at the service (`contoso`, `devstoreaccount1`), needed for signing with a key. Empty if only a shared access
    /// signature is known.
    pub name: String,
    pub credential: Credential,
    pub endpoints: ServiceEndpoints,
    pub timeouts: Timeouts,
}

#[derive(Debug, Clone)]
pub enum Credential {
    /// Account keys or shared access signatures. A key has all permissions, so prefer a signature.
    Secrets(Arc<Keyring>),
    Entra(Arc<Identity>),
}

impl Credential {
    /// Whether requests contain the credential, so that anyone who reads a request has it. A key only signs requests.
    fn is_sent(&self) -> bool {
        match self {
            Self::Secrets(keyring) => matches!(&*keyring.in_use(), Signer::Sas(_)),
            Self::Entra(_) => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoints {
    pub table: Url,
    pub queue: Url,
    pub blob: Url,
}

/// Endpoints that differ from those of the public cloud (`https://<name>.table.core.windows.net`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOverrides {
    pub table: Option<String>,
    pub queue: Option<String>,
    pub blob: Option<String>,
    /// `EndpointSuffix`, such as `core.chinacloudapi.cn`, for services without an endpoint of their own.
    pub suffix: Option<String>,
}

impl From<&settings::Endpoints> for EndpointOverrides {
    fn from(endpoints: &settings::Endpoints) -> Self {
        let settings::Endpoints { table, queue, blob } = endpoints.clone();
        Self {
            table,
            queue,
            blob,
            suffix: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// Timeout of a whole request including the answer, plus one second for each MiB sent. It exceeds the services' own timeout
    /// of 30 s ("Setting timeouts for Table/Queue service operations"), because their error is more specific than a missing
    /// answer.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(35),
        }
    }
}

/// Why settings are invalid. The texts contain no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    ConnectionString(#[from] ConnectionStringError),
    #[error(
        "the connection string contains both AccountKey and SharedAccessSignature; remove one of them"
    )]
    Both,
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("the account key is not Base64; it may be truncated or not a key at all")]
    Key,
    #[error("the shared access signature is not a query string with a sig= in it")]
    Sas,
    #[error(
        "the account name {0:?} must be 3 to 24 lower-case letters and digits. For another name, configure all endpoints"
    )]
    Name(String),
    #[error("the {} endpoint must be a plain http:// or https:// address without query, user and password", .0.name())]
    Endpoint(Service),
    #[error("the {} endpoint must use https, because each request carries the token or signature", .0.name())]
    Unencrypted(Service),
    #[error("the new secret is for another account or other endpoints. Restart to use it")]
    OtherAccount,
    #[error("DefaultEndpointsProtocol must be http or https")]
    Protocol,
    #[error(
        "{0} is an endpoint of Azure Cosmos DB for Table, which does not sort rows by key; expected an Azure Storage account"
    )]
    Cosmos(String),
}

impl AzureAccount {
    /// Whether the account has an endpoint of Azure, not of an emulator or a custom domain.
    pub fn is_at_azure(&self) -> bool {
        Cloud::of(&self.endpoints.table).is_some()
    }

    pub fn of(account: AccountName, auth: &AzureAuth) -> Result<Self, SettingsError> {
        match auth {
            AzureAuth::ConnectionString(secret) => Self::rotated(
                secret,
                Arc::new(move |text| Self::from_connection_string(account.clone(), text)),
            ),
            AzureAuth::Key {
                account: name,
                key,
                endpoints,
            } => {
                let (name, endpoints) = (name.clone(), endpoints.into());
                Self::rotated(
                    key,
                    Arc::new(move |key| Self::with_key(account.clone(), &name, key, &endpoints)),
                )
            }
            AzureAuth::Sas {
                account: name,
                token,
                endpoints,
            } => {
                let (name, endpoints) = (name.clone(), endpoints.into());
                Self::rotated(
                    token,
                    Arc::new(move |token| {
                        Self::with_sas(account.clone(), &name, token, &endpoints)
                    }),
                )
            }
            AzureAuth::Entra {
                account: name,
                identity,
                endpoints,
            } => Self::with_identity(account, name, Arc::clone(identity), &endpoints.into()),
        }
    }

    /// Creates an account whose secret may be rotated. Each new content of the file is checked by creating an account from it.
    fn rotated(secret: &ConfiguredSecret, read: Arc<ReadAccount>) -> Result<Self, SettingsError> {
        let account = read(&secret.text)?;
        let (name, endpoints) = (account.name.clone(), account.endpoints.clone());
        let signer = move |text: &SecretString| {
            let other = read(text)?;
            if other.name != name || other.endpoints != endpoints {
                return Err(SettingsError::OtherAccount);
            }
            other
                .keyring()
                .map(|keyring| keyring.in_use())
                .ok_or(SettingsError::Key)
        };
        let make: MakeSigner<SettingsError> = Arc::new(signer);
        let keyring = Keyring::new(
            format!("[accounts.{}]", account.account),
            KeySlot::new(secret, make)?,
        );
        Ok(Self {
            credential: Credential::Secrets(keyring),
            ..account
        })
    }

    pub(crate) fn exchange(
        &self,
        authentication: Authentication,
    ) -> Result<Exchange, reqwest::Error> {
        let far = if self.endpoints.are_azure() {
            EndpointKind::Azure
        } else {
            EndpointKind::Local
        };
        Ok(Exchange::new(far, self.timeouts.connect, self.timeouts.request)?.with(authentication))
    }

    /// The secrets that sign its requests; `None` for an identity.
    pub fn keyring(&self) -> Option<Arc<Keyring>> {
        match &self.credential {
            Credential::Secrets(keyring) => Some(Arc::clone(keyring)),
            Credential::Entra(_) => None,
        }
    }

    pub fn with_key(
        account: AccountName,
        name: &str,
        key: &SecretString,
        overrides: &EndpointOverrides,
    ) -> Result<Self, SettingsError> {
        let key = SecretString::from(key.expose_secret().trim().to_owned());
        let valid = BASE64
            .decode(key.expose_secret())
            .is_ok_and(|bytes| !bytes.is_empty());
        if !valid {
            return Err(SettingsError::Key);
        }
        if name.is_empty() {
            return Err(SettingsError::Missing("the account name"));
        }
        Self::new(account, name, key_credential(name, key), overrides, "https")
    }

    /// Accepts a shared access signature with or without its question mark.
    pub fn with_sas(
        account: AccountName,
        name: &str,
        sas: &SecretString,
        overrides: &EndpointOverrides,
    ) -> Result<Self, SettingsError> {
        Self::new(
            account,
            name,
            sas_credential(sas.expose_secret())?,
            overrides,
            "https",
        )
    }

    pub fn with_identity(
        account: AccountName,
        name: &str,
        identity: Arc<Identity>,
        overrides: &EndpointOverrides,
    ) -> Result<Self, SettingsError> {
        Self::new(
            account,
            name,
            Credential::Entra(identity),
            overrides,
            "https",
        )
    }

    #[must_use]
    pub const fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    pub(super) fn new(
        account: AccountName,
        name: &str,
        credential: Credential,
        overrides: &EndpointOverrides,
        protocol: &str,
    ) -> Result<Self, SettingsError> {
        let endpoints = ServiceEndpoints::new(name, overrides, protocol)?;
        if credential.is_sent()
            && let Some(service) = endpoints.unencrypted()
        {
            return Err(SettingsError::Unencrypted(service));
        }
        Ok(Self {
            account,
            name: name.to_owned(),
            credential,
            endpoints,
            timeouts: Timeouts::default(),
        })
    }
}

type ReadAccount = dyn Fn(&SecretString) -> Result<AzureAccount, SettingsError> + Send + Sync;

fn key_credential(account: &str, key: SecretString) -> Credential {
    Credential::Secrets(Keyring::fixed(Signer::SharedKey {
        account: account.to_owned(),
        key: AccountKey::new(key),
    }))
}

/// Checks a shared access signature and removes its question mark.
pub(super) fn sas_credential(sas: &str) -> Result<Credential, SettingsError> {
    let sas = sas.trim().trim_start_matches('?');
    let signed = url::form_urlencoded::parse(sas.as_bytes())
        .any(|(name, value)| name == "sig" && !value.is_empty());
    let signer = || Signer::Sas(SecretString::from(sas.to_owned()));
    if signed {
        Ok(Credential::Secrets(Keyring::fixed(signer())))
    } else {
        Err(SettingsError::Sas)
    }
}

impl ServiceEndpoints {
    fn new(
        name: &str,
        overrides: &EndpointOverrides,
        protocol: &str,
    ) -> Result<Self, SettingsError> {
        let endpoint = |given: &Option<String>, service: Service, missing: &'static str| match given
        {
            Some(given) => parse(given, service),
            None if name.is_empty() => Err(SettingsError::Missing(missing)),
            None if !is_account_name(name) => Err(SettingsError::Name(name.to_owned())),
            None => {
                let suffix = overrides
                    .suffix
                    .as_deref()
                    .unwrap_or("core.windows.net")
                    .trim_matches('.');
                parse(
                    &format!("{protocol}://{name}.{}.{suffix}", service.name()),
                    service,
                )
            }
        };
        Ok(Self {
            table: endpoint(
                &overrides.table,
                Service::Table,
                "the table endpoint (or the account name)",
            )?,
            queue: endpoint(
                &overrides.queue,
                Service::Queue,
                "the queue endpoint (or the account name)",
            )?,
            blob: endpoint(
                &overrides.blob,
                Service::Blob,
                "the blob endpoint (or the account name)",
            )?,
        })
    }

    /// The first service that uses plain http and is on another machine.
    fn unencrypted(&self) -> Option<Service> {
        let Self { table, queue, blob } = self;
        let endpoints = [
            (table, Service::Table),
            (queue, Service::Queue),
            (blob, Service::Blob),
        ];
        endpoints
            .into_iter()
            .find(|(url, _)| url.scheme() == "http" && !is_local(url))
            .map(|(_, service)| service)
    }

    /// Whether all endpoints belong to an Azure cloud.
    pub(super) fn are_azure(&self) -> bool {
        [&self.table, &self.queue, &self.blob]
            .into_iter()
            .all(|url| Cloud::of(url).is_some())
    }
}

/// Whether a name is valid for a storage account, so that it can be part of a host name.
fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn parse(text: &str, service: Service) -> Result<Url, SettingsError> {
    let bad = SettingsError::Endpoint(service);
    // The client library appends segments, so a trailing slash would become an empty one.
    let Ok(url) = Url::parse(text.trim().trim_end_matches('/')) else {
        return Err(bad);
    };
    let plain = matches!(url.scheme(), "http" | "https")
        && url.host().is_some()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !plain {
        return Err(bad);
    }
    if is_cosmos(&url) {
        return Err(SettingsError::Cosmos(
            url.host_str().unwrap_or_default().to_owned(),
        ));
    }
    Ok(url)
}

/// The domains of Cosmos DB, and the port of its emulator's table endpoint.
fn is_cosmos(url: &Url) -> bool {
    (is_local(url) && url.port() == Some(8902))
        || url.host_str().is_some_and(|host| {
            [".cosmos.azure.", ".cosmosdb.azure.", ".documents.azure."]
                .iter()
                .any(|domain| host.contains(domain))
        })
}

fn is_local(url: &Url) -> bool {
    url.host_str().is_some_and(is_local_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c2VjcmV0LWtleS1vZi10aGUtYWNjb3VudA==";

    fn key() -> SecretString {
        SecretString::from(KEY)
    }

    #[test]
    fn the_public_cloud_needs_a_name_and_a_key() {
        let account = AzureAccount::with_key(
            AccountName::main(),
            "contoso",
            &key(),
            &EndpointOverrides::default(),
        )
        .unwrap();
        assert_eq!(
            account.endpoints.table.as_str(),
            "https://contoso.table.core.windows.net/"
        );
        assert_eq!(
            account.endpoints.blob.as_str(),
            "https://contoso.blob.core.windows.net/"
        );
        assert!(account.endpoints.are_azure());
        assert_eq!(account.timeouts.request, Duration::from_secs(35));
    }

    #[test]
    fn other_clouds_and_own_endpoints_are_possible() {
        let china = EndpointOverrides {
            suffix: Some("core.chinacloudapi.cn".into()),
            ..EndpointOverrides::default()
        };
        let account =
            AzureAccount::with_key(AccountName::main(), "contoso", &key(), &china).unwrap();
        assert_eq!(
            account.endpoints.queue.as_str(),
            "https://contoso.queue.core.chinacloudapi.cn/"
        );
        let own = EndpointOverrides {
            table: Some("http://127.0.0.1:10002/devstoreaccount1/".into()),
            ..EndpointOverrides::default()
        };
        let account = AzureAccount::with_key(AccountName::main(), "contoso", &key(), &own).unwrap();
        assert_eq!(
            account.endpoints.table.as_str(),
            "http://127.0.0.1:10002/devstoreaccount1"
        );
        assert!(!account.endpoints.are_azure());
    }

    #[test]
    fn nothing_prints_a_secret() {
        let account = AzureAccount::with_key(
            AccountName::main(),
            "contoso",
            &key(),
            &EndpointOverrides::default(),
        )
        .unwrap();
        assert!(!format!("{account:?}").contains(KEY));
        let sas = SecretString::from("?sv=2022-11-02&sig=TOPSECRET");
        let account = AzureAccount::with_sas(
            AccountName::main(),
            "contoso",
            &sas,
            &EndpointOverrides::default(),
        )
        .unwrap();
        assert!(!format!("{account:?}").contains("TOPSECRET"));
        let bad = SecretString::from("n0t base64!");
        let error = AzureAccount::with_key(
            AccountName::main(),
            "contoso",
            &bad,
            &EndpointOverrides::default(),
        )
        .unwrap_err();
        assert!(!format!("{error} {error:?}").contains("n0t"));
    }

    #[test]
    fn cosmos_db_is_refused() {
        for endpoint in [
            "https://c.table.cosmos.azure.com:443/",
            "https://c.table.cosmosdb.azure.com",
            "https://c.documents.azure.cn",
            "http://localhost:8902/",
            "http://127.0.0.1:8902",
        ] {
            let overrides = EndpointOverrides {
                table: Some(endpoint.into()),
                ..EndpointOverrides::default()
            };
            let error = AzureAccount::with_key(AccountName::main(), "contoso", &key(), &overrides)
                .unwrap_err();
            assert!(
                matches!(error, SettingsError::Cosmos(_)),
                "{endpoint}: {error}"
            );
        }
    }

    #[test]
    fn endpoints_that_carry_more_than_an_address_are_refused_without_being_quoted() {
        for endpoint in [
            "https://c.table.core.windows.net/?sig=SECRET",
            "https://u:SECRET@h/",
            "ftp://h/",
            "h",
        ] {
            let overrides = EndpointOverrides {
                table: Some(endpoint.into()),
                ..EndpointOverrides::default()
            };
            let error = AzureAccount::with_key(AccountName::main(), "contoso", &key(), &overrides)
                .unwrap_err();
            assert_eq!(error, SettingsError::Endpoint(Service::Table));
            assert!(!error.to_string().contains("SECRET"));
        }
    }

    #[test]
    fn a_signature_is_sent_over_https_alone_or_to_this_machine() {
        let sas = SecretString::from("sv=2022-11-02&sig=TOPSECRET");
        let overrides = |table: &str| EndpointOverrides {
            table: Some(table.into()),
            ..EndpointOverrides::default()
        };
        for plain in [
            "http://contoso.table.core.windows.net",
            "http://azurite:10002/contoso",
        ] {
            let error =
                AzureAccount::with_sas(AccountName::main(), "contoso", &sas, &overrides(plain))
                    .unwrap_err();
            assert_eq!(error, SettingsError::Unencrypted(Service::Table), "{plain}");
            assert!(
                AzureAccount::with_key(AccountName::main(), "contoso", &key(), &overrides(plain))
                    .is_ok(),
                "a key is not sent"
            );
        }
        for safe in [
            "https://tables.example.com",
            "http://127.0.0.1:10002/contoso",
            "http://localhost:10002/contoso",
        ] {
            assert!(
                AzureAccount::with_sas(AccountName::main(), "contoso", &sas, &overrides(safe))
                    .is_ok(),
                "{safe}"
            );
        }
        let text = SecretString::from(
            "DefaultEndpointsProtocol=http;AccountName=contoso;SharedAccessSignature=sv=1&sig=TOPSECRET",
        );
        let error = AzureAccount::from_connection_string(AccountName::main(), &text).unwrap_err();
        assert_eq!(error, SettingsError::Unencrypted(Service::Table));
    }

    #[test]
    fn a_name_that_is_no_host_name_needs_endpoints() {
        let error = AzureAccount::with_key(
            AccountName::main(),
            "Dev_Account",
            &key(),
            &EndpointOverrides::default(),
        )
        .unwrap_err();
        assert_eq!(error, SettingsError::Name("Dev_Account".into()));
    }
}
