//! The request to load a configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use evenkeel_model::AccountName;
use evenkeel_model::settings::AzureAuth;

/// Checks the settings of an account without a request to the service. The error contains no secret.
pub type AccountCheck = fn(&AccountName, &AzureAuth) -> Result<(), String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// A folder that the user named (`--config`, `EVENKEEL_CONFIG`). The folder must exist.
    Named(PathBuf),
    /// The default folder. If it does not exist, only the built-in defaults and their example catalog are used.
    Default(PathBuf),
}

impl Default for Folder {
    fn default() -> Self {
        Self::Default(PathBuf::from("config"))
    }
}

impl Folder {
    pub fn missing_default(&self) -> Option<PathBuf> {
        match self {
            Self::Default(folder) if !folder.is_dir() => Some(absolute(folder)),
            Self::Named(_) | Self::Default(_) => None,
        }
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Named(folder) | Self::Default(folder)) = self;
        match self.missing_default() {
            Some(folder) => write!(
                f,
                "the built-in configuration: there is no folder {}",
                folder.display()
            ),
            None => write!(f, "the folder {}", absolute(folder).display()),
        }
    }
}

fn absolute(folder: &Path) -> PathBuf {
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
}

/// A configuration to load. It contains the environment, so that loading it twice gives the same result.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub folder: Folder,
    /// The profile (`--profile`, `EVENKEEL_PROFILE`).
    pub profile: Option<String>,
    /// Environment variables. `EVENKEEL__WORKER__LEASE` sets `worker.lease`. A key that ends with `_env` may name
    /// any variable.
    pub environment: BTreeMap<String, String>,
    /// `key=value` from the command line, such as `worker.lease=90s`.
    pub overrides: Vec<String>,
    /// The store adapter's check of credentials and endpoints. If it is `None`, credentials and endpoints are
    /// checked only when the store is opened.
    pub account_check: Option<AccountCheck>,
}

impl Request {
    /// Creates a request with the environment of this process. Variables that are not Unicode are left out.
    pub fn of_process(
        folder: Option<PathBuf>,
        profile: Option<String>,
        overrides: Vec<String>,
    ) -> Self {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self {
            folder: folder.map(Folder::Named).unwrap_or_default(),
            profile,
            environment,
            overrides,
            account_check: None,
        }
    }
}
