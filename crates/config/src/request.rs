//! A request to load a configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use evenkeel_model::AccountName;
use evenkeel_model::settings::AzureAuth;

/// Checks whether an account can be opened with its settings, without asking the service. The error holds no secret.
pub type AccountCheck = fn(&AccountName, &AzureAuth) -> Result<(), String>;

/// The configuration folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Folder {
    /// Named by the user (`--config`, `EVENKEEL_CONFIG`): it must exist.
    Named(PathBuf),
    /// The usual one: where it does not exist, the built-in defaults and their example catalog are all there is.
    Usual(PathBuf),
}

impl Default for Folder {
    fn default() -> Self {
        Self::Usual(PathBuf::from("config"))
    }
}

impl Folder {
    /// The usual one, where it does not exist: the built-in configuration is in force.
    pub fn absent(&self) -> Option<PathBuf> {
        match self {
            Self::Usual(folder) if !folder.is_dir() => Some(absolute(folder)),
            Self::Named(_) | Self::Usual(_) => None,
        }
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Named(folder) | Self::Usual(folder)) = self;
        match self.absent() {
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

/// Which configuration to load. The environment is part of it, so that loading twice gives the same.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The folder.
    pub folder: Folder,
    /// The profile, where one was named (`--profile`, `EVENKEEL_PROFILE`).
    pub profile: Option<String>,
    /// The environment. `EVENKEEL__WORKER__LEASE` sets `worker.lease`; `*_env` keys name any variable.
    pub environment: BTreeMap<String, String>,
    /// `key=value` from the command line, such as `worker.lease=90s`.
    pub overrides: Vec<String>,
    /// The store adapter's check of credentials and endpoints; where absent, they are checked when the store is opened.
    pub account_check: Option<AccountCheck>,
}

impl Request {
    /// A request in this process's environment. Variables that are not Unicode are left out.
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
