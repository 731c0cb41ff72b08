//! Obtains tokens from the credentials of an identity, tried in order.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use azure_core_v1::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core_v1::credentials::{Secret, TokenCredential};
use azure_core_v1::http::{ClientOptions, HttpClient, RetryOptions, Transport};
use azure_identity::{
    AzureCliCredential, AzureCliCredentialOptions, AzureDeveloperCliCredential,
    AzureDeveloperCliCredentialOptions, ClientAssertionCredential,
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use secrecy::ExposeSecret as _;
use tracing::info;
use url::Url;

use super::cache::{Issuer, TokenCache};
use super::certificate::Assertion;
use super::transport::TokenTransport;
use super::{BearerToken, TokenError};
use crate::cloud::Cloud;
use evenkeel_model::settings::{EntraCredential, Identity};
use evenkeel_storage::system::{SystemClock, SystemRng};
use evenkeel_storage::{Clock, Rng};

/// Timeout of one credential. Developer tools have no timeout of their own and may wait for user input.
const LONGEST: Duration = Duration::from_mins(1);

pub(super) struct CredentialChain {
    identity: Arc<Identity>,
    authority: String,
    scope: &'static str,
    name: String,
    http: Arc<dyn HttpClient>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    /// Index of the credential that issued the first token.
    taken: OnceLock<usize>,
}

impl TokenCache {
    /// Tokens for `scope`. `name` states their purpose in logs. Nothing is requested yet.
    pub fn of(
        identity: &Arc<Identity>,
        cloud: &Cloud,
        scope: &'static str,
        name: String,
    ) -> Result<Arc<Self>, reqwest::Error> {
        let http = Arc::new(TokenTransport::new()?);
        Ok(Self::over(
            identity,
            cloud,
            scope,
            name,
            http,
            Arc::new(SystemClock::new()),
            Arc::new(SystemRng::new()),
        ))
    }

    /// Like [`of`](Self::of), with a given transport.
    pub(super) fn over(
        identity: &Arc<Identity>,
        cloud: &Cloud,
        scope: &'static str,
        name: String,
        http: Arc<dyn HttpClient>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Arc<Self> {
        let source = CredentialChain {
            authority: identity
                .authority
                .as_ref()
                .map_or(cloud.authority, Url::as_str)
                .trim_end_matches('/')
                .to_owned(),
            identity: Arc::clone(identity),
            scope,
            name,
            http,
            clock: clock.clone(),
            rng: rng.clone(),
            taken: OnceLock::new(),
        };
        Arc::new(Self::new(Box::new(source), clock, rng))
    }
}

impl CredentialChain {
    fn options(&self) -> ClientOptions {
        let mut cloud = CustomConfiguration::default();
        cloud.authority_host.clone_from(&self.authority);
        ClientOptions {
            transport: Some(Transport::new(Arc::clone(&self.http))),
            retry: RetryOptions::none(),
            cloud: Some(Arc::new(CloudConfiguration::Custom(cloud))),
            ..ClientOptions::default()
        }
    }

    /// Creates the library's credential anew for each request. A credential that is kept would return its token until five
    /// minutes before the token's end, even if a service rejects this token. It would also keep a federated token for ten
    /// minutes.
    fn credential(
        &self,
        credential: &EntraCredential,
    ) -> Result<Arc<dyn TokenCredential>, TokenError> {
        let client_options = self.options();
        let made: azure_core_v1::Result<Arc<dyn TokenCredential>> = match credential {
            EntraCredential::ClientSecret {
                application,
                secret,
            } => ClientSecretCredential::new(
                &application.tenant,
                application.client.clone(),
                Secret::new(secret.expose_secret().to_owned()),
                Some(ClientSecretCredentialOptions { client_options }),
            )
            .map(|made| made as _),
            EntraCredential::ClientCertificate {
                application,
                certificate,
            } => ClientAssertionCredential::new(
                application.tenant.clone(),
                application.client.clone(),
                Assertion::sign(
                    application,
                    certificate,
                    &self.authority,
                    self.clock.now(),
                    &*self.rng,
                )?,
                Some(ClientAssertionCredentialOptions { client_options }),
            )
            .map(|made| made as _),
            EntraCredential::WorkloadIdentity { application, token } => {
                WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
                    credential_options: ClientAssertionCredentialOptions { client_options },
                    client_id: Some(application.client.clone()),
                    tenant_id: Some(application.tenant.clone()),
                    token_file_path: Some(token.clone()),
                }))
                .map(|made| made as _)
            }
            EntraCredential::ManagedIdentity { client } => {
                ManagedIdentityCredential::new(Some(ManagedIdentityCredentialOptions {
                    user_assigned_id: client.clone().map(UserAssignedId::ClientId),
                    client_options,
                }))
                .map(|made| made as _)
            }
            EntraCredential::AzureCli { tenant } => {
                AzureCliCredential::new(Some(AzureCliCredentialOptions {
                    tenant_id: tenant.clone(),
                    ..Default::default()
                }))
                .map(|made| made as _)
            }
            EntraCredential::AzureDeveloperCli { tenant } => {
                AzureDeveloperCliCredential::new(Some(AzureDeveloperCliCredentialOptions {
                    tenant_id: tenant.clone(),
                    ..Default::default()
                }))
                .map(|made| made as _)
            }
        };
        made.map_err(|error| TokenError::of(&error))
    }

    async fn ask(
        &self,
        credential: &EntraCredential,
    ) -> Result<(BearerToken, Duration), TokenError> {
        let token = self
            .credential(credential)?
            .get_token(&[self.scope], None)
            .await
            .map_err(|error| TokenError::of(&error))?;
        let seconds = token.expires_on.unix_timestamp() - self.clock.now().as_second();
        Ok((
            BearerToken::new(token.token.secret())?,
            Duration::from_secs(seconds.try_into().unwrap_or(0)),
        ))
    }

    /// Logs once which credential is used and why the others are not.
    fn take(&self, place: usize, failures: Vec<(String, TokenError)>) {
        if self.taken.set(place).is_ok() {
            let failed = failures
                .into_iter()
                .map(|(name, error)| format!("{name}: {error}"));
            let others: Vec<String> = self
                .identity
                .ruled_out
                .iter()
                .cloned()
                .chain(failed)
                .collect();
            let others = if others.is_empty() {
                String::new()
            } else {
                format!(", not {}", others.join("; "))
            };
            info!(
                "entra: {} signs in with {}{others}",
                self.name, self.identity.credentials[place]
            );
        }
    }
}

#[async_trait]
impl Issuer for CredentialChain {
    async fn issue(&self) -> Result<(BearerToken, Duration), TokenError> {
        let mut failures = Vec::new();
        for (place, credential) in self.identity.credentials.iter().enumerate() {
            if self.taken.get().is_some_and(|taken| *taken != place) {
                continue;
            }
            let issued = tokio::time::timeout(LONGEST, self.ask(credential)).await;
            match issued.unwrap_or_else(|_| Err(TokenError::silent(LONGEST))) {
                Ok(issued) => {
                    self.take(place, failures);
                    return Ok(issued);
                }
                Err(error) => {
                    let is_there = error.is_temporary();
                    failures.push((credential.to_string(), error));
                    // This credential is only temporarily unavailable. The next one is not tried, because it would be a
                    // different identity.
                    if is_there {
                        break;
                    }
                }
            }
        }
        Err(TokenError::of_all(&failures))
    }

    fn name(&self) -> &str {
        &self.name
    }
}
