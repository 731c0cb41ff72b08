//! A storage account: its name in the configuration, the endpoints of its services, and its credential.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use crate::cloud::Cloud;
use crate::http::{Authentication, Exchange, Far};
use crate::keyring::{AccountKey, KeySlot, Keyring, MakeSigner, Signer};
use evenkeel_model::AccountName;
use evenkeel_model::local::is_local_host;
use evenkeel_model::settings::{
    self, AzureAuth, ConfiguredSecret, ConnectionStringError, Identity,
};
use evenkeel_storage::Service;

/// Everything needed to connect to an account. `Debug` prints no secret.
#[derive(Debug, Clone)]
pub struct AzureAccount {
    /// The account's name in the configuration, and in errors.
    pub account: AccountName,
    /// The account's name on the service (`contoso`, `devstoreaccount1`), with which a key signs. Empty where
    /// only a shared access signature is known, which needs no name.
    pub name: String,
    /// The credential.
    pub credential: Credential,
    /// Where its services are.
    pub endpoints: ServiceEndpoints,
    /// How long requests may take.
    pub timeouts: Timeouts,
}

/// Credential of an account.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Account keys or shared access signatures. A key can do everything, so prefer a signature.
    Secrets(Arc<Keyring>),
    /// An identity of Entra ID, with tokens for requests.
    Entra(Arc<Identity>),
}

impl Credential {
    /// Whether requests carry it whole, so that who reads one has it. A key signs them, and stays here.
    fn is_sent(&self) -> bool {
        match self {
            Self::Secrets(keyring) => matches!(&*keyring.in_use(), Signer::Sas(_)),
            Self::Entra(_) => true,
        }
    }
}

/// Where the services of an account are, without trailing slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceEndpoints {
    /// Table storage.
    pub table: Url,
    /// Queue storage.
    pub queue: Url,
    /// Blob storage.
    pub blob: Url,
}

/// Endpoints that differ from those of the public cloud (`https://<name>.table.core.windows.net`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointOverrides {
    /// `TableEndpoint`
    pub table: Option<String>,
    /// `QueueEndpoint`
    pub queue: Option<String>,
    /// `BlobEndpoint`
    pub blob: Option<String>,
    /// `EndpointSuffix`, such as `core.chinacloudapi.cn`, for those not given.
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

/// How long requests may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// To get a connection.
    pub connect: Duration,
    /// For a whole request, answer included; one second more for each MiB it carries. Longer than the 30 s
    /// after which the services give up themselves ("Setting timeouts for Table/Queue service operations"),
    /// so that their answer, which says more than silence, is waited for.
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

/// Why settings make no account. The texts hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A text that is no connection string.
    #[error(transparent)]
    ConnectionString(#[from] ConnectionStringError),
    /// Two credentials.
    #[error(
        "the connection string gives AccountKey and SharedAccessSignature; leave one of them out"
    )]
    Both,
    /// Something is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The account key is no Base64.
    #[error("the account key is not Base64: it was cut off, or something else stands in its place")]
    Key,
    /// The shared access signature has no `sig=`.
    #[error("the shared access signature is not a query string with a sig= in it")]
    Sas,
    /// The account's name cannot be one.
    #[error(
        "the account name {0:?} is not 3 to 24 lower-case letters and digits; for another one give all endpoints"
    )]
    Name(String),
    /// An endpoint that is no plain http or https address.
    #[error("the {} endpoint is not a plain http:// or https:// address without query, user and password", .0.name())]
    Endpoint(Service),
    /// A token or a signature that would go over the network unencrypted.
    #[error("the {} endpoint is asked over http, and each request carries the token or signature; expected https", .0.name())]
    Unencrypted(Service),
    /// A secret of another account than the one before.
    #[error(
        "it is of another account or other endpoints than the one before: that takes a restart"
    )]
    OtherAccount,
    /// A protocol other than http and https.
    #[error("DefaultEndpointsProtocol is neither http nor https")]
    Protocol,
    /// Cosmos DB.
    #[error(
        "{0} is an endpoint of Azure Cosmos DB for Table, which does not return rows in the order of their keys; only Azure Storage accounts are supported"
    )]
    Cosmos(String),
}

impl AzureAccount {
    /// Whether it lies at one of Azure's own endpoints, and not at an emulator or behind a custom name.
    pub fn is_at_azure(&self) -> bool {
        Cloud::of(&self.endpoints.table).is_some()
    }

    /// An account by the settings of `[accounts.NAME]`.
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

    /// An account by a secret that may be rotated: each content of its file makes an account of its own.
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

    /// A client for its endpoints.
    pub(crate) fn exchange(
        &self,
        authentication: Authentication,
    ) -> Result<Exchange, reqwest::Error> {
        let far = if self.endpoints.are_azure() {
            Far::Azure
        } else {
            Far::Local
        };
        Ok(Exchange::new(far, self.timeouts.connect, self.timeouts.request)?.with(authentication))
    }

    /// The secret that its requests are signed with. `None` where an identity signs in.
    pub fn keyring(&self) -> Option<Arc<Keyring>> {
        match &self.credential {
            Credential::Secrets(keyring) => Some(Arc::clone(keyring)),
            Credential::Entra(_) => None,
        }
    }

    /// An account by its name and key.
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

    /// An account by its name and a shared access signature, with or without its question mark.
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

    /// An account by its name and an identity of Entra ID.
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

    /// With other timeouts.
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

/// Makes an account of a secret.
type ReadAccount = dyn Fn(&SecretString) -> Result<AzureAccount, SettingsError> + Send + Sync;

fn key_credential(account: &str, key: SecretString) -> Credential {
    Credential::Secrets(Keyring::fixed(Signer::SharedKey {
        account: account.to_owned(),
        key: AccountKey::new(key),
    }))
}

/// Checks a shared access signature and takes its question mark off.
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

    /// The first service of another machine that is asked over http.
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

    /// Whether all of them belong to a cloud of Azure, and not to an emulator or a custom name.
    pub(super) fn are_azure(&self) -> bool {
        [&self.table, &self.queue, &self.blob]
            .into_iter()
            .all(|url| Cloud::of(url).is_some())
    }
}

/// A storage account's name as Azure has it: it becomes a host name.
fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn parse(text: &str, service: Service) -> Result<Url, SettingsError> {
    let bad = SettingsError::Endpoint(service);
    // The client library appends segments: a slash at the end would become an empty one.
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

/// Cosmos DB's own domains, and the port of its emulator's table endpoint.
fn is_cosmos(url: &Url) -> bool {
    (is_local(url) && url.port() == Some(8902))
        || url.host_str().is_some_and(|host| {
            [".cosmos.azure.", ".cosmosdb.azure.", ".documents.azure."]
                .iter()
                .any(|domain| host.contains(domain))
        })
}

/// Whether an address is one of this machine.
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
                "a key stays here"
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
    fn what_cannot_be_a_host_name_needs_endpoints() {
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
