//! Warns about files and environment variables that are not read but probably should be.
//!
//! ```text
//!   default.toml, NAME.toml of the profile, catalog/*.toml      are read
//!   bookings.toml, catalogue/a.toml, catalog/sub/a.toml, a.tml  are not; a warning follows if they declare data
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::defaults::CATALOG_SECTIONS;
use super::finding::Finding;
use super::section::Section;
use super::source::LayerMap;
use super::text_file;
use super::tree::EffectiveValue;
use evenkeel_model::nearest::nearest;

const MAX_DEPTH: usize = 4;
const MAX_ENTRIES: usize = 1_000;
const MAX_FILE_BYTES: u64 = 4 << 20;

const VARIABLES: [&str; 3] = ["EVENKEEL_CONFIG", "EVENKEEL_LOG", "EVENKEEL_PROFILE"];

/// Returns a warning for each variable that is probably misspelt: it is not read, and its name is similar to that of a variable
/// that is read. Other variables with the prefix get no warning, because Kubernetes sets `EVENKEEL_PORT` and further variables
/// for a service `evenkeel`.
pub(super) fn variables(
    environment: &BTreeMap<String, String>,
    values: &[EffectiveValue],
    root: &Section<'_>,
) -> Vec<Finding> {
    let named = values
        .iter()
        .filter(|value| value.key.ends_with("_env"))
        .map(|value| value.value.trim_matches('"'));
    let read: BTreeSet<&str> = VARIABLES.into_iter().chain(named).collect();
    let letters = |text: &str| {
        text.to_ascii_lowercase()
            .replace(|c: char| !c.is_ascii_alphanumeric(), "")
    };
    let meant = |name: &str| {
        let rest = name
            .strip_prefix("EVENKEEL_")
            .filter(|rest| !rest.starts_with('_') && !read.contains(name))?;
        if let Some(value) = values
            .iter()
            .find(|value| letters(&value.key) == letters(rest))
        {
            return Some(format!(
                "EVENKEEL__{}",
                value
                    .key
                    .to_uppercase()
                    .replace(['.', '['], "__")
                    .replace(']', "")
            ));
        }
        if rest
            .split_once("__")
            .is_some_and(|(section, _)| root.is_known(&section.to_lowercase()))
        {
            return Some(format!("EVENKEEL__{rest}"));
        }
        nearest(
            rest,
            read.iter()
                .filter_map(|read| read.strip_prefix("EVENKEEL_")),
        )
        .map(|near| format!("EVENKEEL_{near}"))
    };
    let set = environment.iter().filter(|(_, value)| !value.is_empty());
    set.filter_map(|(name, _)| {
        let message = format!("is not read; did you mean {}?", meant(name)?);
        Some(Finding {
            file: Some(format!("environment variable {name}")),
            line: None,
            key: String::new(),
            message,
        })
    })
    .collect()
}

pub(super) fn warnings(folder: &Path, read: &BTreeSet<PathBuf>) -> Vec<Finding> {
    let (mut files, mut remaining) = (Vec::new(), MAX_ENTRIES);
    collect(folder, 0, &mut remaining, &mut files);
    files.sort();
    files
        .iter()
        .filter(|file| !read.contains(*file))
        .filter_map(|file| warning(folder, file))
        .collect()
}

fn collect(folder: &Path, depth: usize, remaining: &mut usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if *remaining == 0 {
            return;
        }
        *remaining -= 1;
        // In mounted volumes, Kubernetes keeps the versions of files in folders whose names begin with a dot.
        if path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
        {
            continue;
        }
        if !path.is_dir() {
            files.push(path);
        } else if depth < MAX_DEPTH {
            collect(&path, depth + 1, remaining, files);
        }
    }
}

fn warning(folder: &Path, file: &Path) -> Option<Finding> {
    let extension = file.extension()?.to_str()?;
    nearest(extension, ["toml"])?;
    let name = file.file_stem()?.to_str()?;
    let text = text_file::read(file, MAX_FILE_BYTES, "a configuration file").ok()?;
    let declared: Vec<String> = LayerMap::sections(&text)
        .into_iter()
        .filter(|section| CATALOG_SECTIONS.contains(&section.as_str()))
        .collect();
    let is_top_level = file.parent() == Some(folder);
    let default = is_top_level && name.eq_ignore_ascii_case("default");
    if declared.is_empty() && !default {
        return None;
    }
    let place = if default {
        folder.join("default.toml")
    } else {
        folder.join("catalog").join(format!("{name}.toml"))
    };
    let profile = if is_top_level && extension == "toml" {
        format!(" (or use --profile {name} if it is a profile)")
    } else {
        String::new()
    };
    let declares = if declared.is_empty() {
        String::new()
    } else {
        format!(" and declares [{}]", declared.join("], ["))
    };
    let message = format!(
        "is not read{declares}; expected it at {}{profile}",
        place.display()
    );
    Some(Finding {
        file: Some(file.display().to_string()),
        line: None,
        key: String::new(),
        message,
    })
}
