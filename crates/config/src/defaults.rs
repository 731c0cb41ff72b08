//! Configuration built into the program.

/// `config/default.toml` of the source tree: every key with its default, and an example catalog.
pub(super) const DEFAULT: &str = include_str!("../../../config/default.toml");

/// The built-in profiles. A built-in profile is used only if the configuration folder has no profile with the same name.
pub(super) const PROFILES: [(&str, &str); 1] =
    [("azurite", include_str!("../../../config/azurite.toml"))];

/// The sections that describe data. The built-in sections are only an example, so they are dropped if there is a configuration
/// folder.
pub(super) const CATALOG_SECTIONS: [&str; 5] =
    ["tables", "views", "archives", "retention", "events"];
