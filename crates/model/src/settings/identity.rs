//! Identities of Entra ID, with which tokens are requested.

use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

/// How to sign in to Entra ID.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The credentials are tried in this order until one gives a token. From then on only that
    /// credential is used.
    pub credentials: Vec<EntraCredential>,
    /// Credentials that `credential = "auto"` ruled out, each with its reason.
    pub ruled_out: Vec<String>,
    /// Where tokens are requested; the authority of the endpoints' cloud if absent.
    pub authority: Option<Url>,
}

/// An application of Entra ID (a service principal).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// The id or domain of the application's tenant.
    pub tenant: String,
    /// The client id of the application.
    pub client: String,
}

/// A source of tokens.
#[derive(Debug, Clone)]
pub enum EntraCredential {
    /// An application that signs in with its secret.
    ClientSecret {
        /// The application.
        application: Application,
        /// The secret's value.
        secret: SecretString,
    },
    /// An application that signs in with its certificate.
    ClientCertificate {
        /// The application.
        application: Application,
        /// A PEM file with the certificate and its private key, read at every token request.
        certificate: PathBuf,
    },
    /// Workload identity of Kubernetes: an application signs in with a token of another issuer. The
    /// application trusts this issuer.
    WorkloadIdentity {
        /// The application.
        application: Application,
        /// The file with the issuer's token, read at every token request.
        token: PathBuf,
    },
    /// The identity of the machine: of a virtual machine, App Service or Container Apps.
    ManagedIdentity {
        /// The client id of a user-assigned identity; the system-assigned one if absent.
        client: Option<String>,
    },
    /// The user that `az login` signed in.
    AzureCli {
        /// The tenant, if it is not the default one.
        tenant: Option<String>,
    },
    /// The user that `azd auth login` signed in.
    AzureDeveloperCli {
        /// The tenant, if it is not the default one.
        tenant: Option<String>,
    },
}

impl fmt::Display for Application {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} in tenant {}", self.client, self.tenant)
    }
}

impl fmt::Display for EntraCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientSecret { application, .. } => write!(f, "client secret ({application})"),
            Self::ClientCertificate { application, .. } => {
                write!(f, "client certificate ({application})")
            }
            Self::WorkloadIdentity { application, .. } => {
                write!(f, "workload identity ({application})")
            }
            Self::ManagedIdentity {
                client: Some(client),
            } => write!(f, "managed identity (client {client})"),
            Self::ManagedIdentity { client: None } => {
                f.write_str("managed identity (system-assigned)")
            }
            Self::AzureCli { .. } => f.write_str("Azure CLI"),
            Self::AzureDeveloperCli { .. } => f.write_str("Azure Developer CLI"),
        }
    }
}
