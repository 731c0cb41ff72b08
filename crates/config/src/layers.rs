//! Collects the layers of the configuration, lowest first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::defaults;
use super::finding::Finding;
use super::origin::{Layer, Origin, Origins};
use super::request::{Folder, Request};
use super::source::{LayerMap, is_segment};
use super::tree::{Node, Toml};
use super::unread;

/// Prefix of the environment variables that set a key. Variables with a single underscore, such as `EVENKEEL_PROFILE`,
/// set no key.
const PREFIX: &str = "EVENKEEL__";
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum number of segments in a key.
const MAX_SEGMENTS: usize = 8;

pub(super) struct Layers<'a> {
    pub(super) values: Vec<LayerMap>,
    pub(super) findings: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    pub(super) origins: &'a mut Origins,
    read: BTreeSet<PathBuf>,
}

impl<'a> Layers<'a> {
    pub(super) fn of_files(request: &Request, origins: &'a mut Origins) -> Self {
        let mut layers = Self {
            values: Vec::new(),
            findings: Vec::new(),
            warnings: Vec::new(),
            origins,
            read: BTreeSet::new(),
        };
        let (folder, named) = match &request.folder {
            Folder::Named(folder) => (folder, true),
            Folder::Default(folder) => (folder, false),
        };
        let found = folder.is_dir();
        if named && !found {
            let problem = if folder.is_file() {
                "is a file; expected the folder that contains it"
            } else {
                "does not exist"
            };
            layers.mistake(format!(
                "the configuration folder {} {problem}",
                folder.display()
            ));
        }
        let defaults = layers.toml(defaults::DEFAULT, Layer::Default, "built-in default.toml");
        layers.values.push(if found {
            defaults.without(&defaults::CATALOG_SECTIONS)
        } else {
            defaults
        });
        let at = layers.values.len();
        let default = (found && layers.add_if_present(&folder.join("default.toml"))).then_some(at);
        if named && found && default.is_none() {
            layers.mistake(format!(
                "the configuration folder {} has no default.toml. Check the path and the mount, or create an empty file to use every default",
                folder.display()
            ));
        }
        if let Some(profile) = request
            .profile
            .as_deref()
            .filter(|profile| !profile.is_empty())
        {
            layers.profile(profile, folder);
        }
        if found {
            layers.catalog(&folder.join("catalog"), default);
            layers.warnings = unread::warnings(folder, &layers.read);
        }
        layers
    }

    fn mistake(&mut self, message: String) {
        self.findings.push(Finding::new(None, "", message));
    }

    fn toml(&mut self, text: &str, layer: Layer, name: &str) -> LayerMap {
        let (values, findings) = LayerMap::toml(text, layer, self.values.len(), name, self.origins);
        self.findings.extend(findings);
        values
    }

    fn profile(&mut self, profile: &str, folder: &Path) {
        if !is_segment(profile) || profile == "default" {
            self.mistake(format!(
                "{profile:?} is not a profile name; expected letters, digits, dashes and underscores, and not \"default\""
            ));
            return;
        }
        let path = folder.join(format!("{profile}.toml"));
        if self.add_if_present(&path) {
            return;
        }
        match defaults::PROFILES
            .into_iter()
            .find(|(name, _)| *name == profile)
        {
            Some((name, text)) => {
                let values = self.toml(text, Layer::Default, &format!("built-in {name}.toml"));
                self.values.push(values);
            }
            None => self.mistake(format!(
                "the profile {profile:?} has no file {}",
                path.display()
            )),
        }
    }

    fn add_if_present(&mut self, path: &Path) -> bool {
        if !path.exists() {
            return false;
        }
        let name = path.display().to_string();
        self.read.insert(path.to_owned());
        match read(path) {
            Ok(text) => {
                let values = self.toml(&text, Layer::File, &name);
                self.values.push(values);
            }
            Err(problem) => {
                let origin = Origin {
                    layer: Layer::File,
                    rank: self.values.len(),
                    name,
                    line: None,
                };
                self.findings.push(Finding::new(Some(&origin), "", problem));
            }
        }
        true
    }

    /// Reads `catalog/*.toml` in the order of their names. `default` is the index of the layer of `default.toml`.
    fn catalog(&mut self, folder: &Path, default: Option<usize>) {
        if !folder.is_dir() {
            return;
        }
        let mut paths: Vec<PathBuf> = match std::fs::read_dir(folder) {
            Ok(entries) => entries
                .filter_map(|entry| Some(entry.ok()?.path()))
                .filter(|path| path.extension().is_some_and(|e| e == "toml"))
                .collect(),
            Err(error) => {
                self.mistake(format!(
                    "cannot read the folder {}: {error}",
                    folder.display()
                ));
                return;
            }
        };
        paths.sort();
        let first = self.values.len();
        for path in &paths {
            self.add_if_present(path);
        }
        self.report_duplicates(default, first);
    }

    /// Reports declarations that occur more than once in `default.toml` and the files of the catalog, because these files do not
    /// override each other.
    fn report_duplicates(&mut self, default: Option<usize>, first: usize) {
        let mut declared: BTreeMap<String, Origin> = BTreeMap::new();
        let files = default
            .and_then(|at| self.values.get(at))
            .into_iter()
            .chain(&self.values[first..]);
        for values in files {
            for section in defaults::CATALOG_SECTIONS {
                for (name, value) in values.names_in(section) {
                    let Some(origin) = self.origins.get(value.origin()) else {
                        continue;
                    };
                    let key = format!("{section}.{name}");
                    if let Some(other) = declared.insert(key.clone(), origin.clone()) {
                        self.findings.push(Finding::new(
                            Some(origin),
                            key,
                            format!("already declared in {other}"),
                        ));
                    }
                }
            }
        }
    }

    /// Adds the environment and the flags. `below` contains the merged files. The names of variables are upper case, so each
    /// segment of a name gets the spelling that the files use for it.
    pub(super) fn add_variables_and_flags(
        &mut self,
        request: &Request,
        below: &BTreeMap<String, Node>,
    ) {
        for (name, value) in &request.environment {
            let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !value.is_empty()) else {
                continue;
            };
            self.assign(
                rest.split("__"),
                below,
                value,
                Layer::Environment,
                name.clone(),
            );
        }
        for flag in &request.overrides {
            match flag.split_once('=') {
                Some((key, value)) => {
                    let path = key.trim().replace('[', ".").replace(']', "");
                    self.assign(path.split('.'), below, value.trim(), Layer::Flag, key.trim().to_owned());
                }
                None => self.mistake(format!("the override {flag:?} has no value; expected key=value, such as worker.lease=90s")),
            }
        }
    }

    fn assign<'s>(
        &mut self,
        segments: impl Iterator<Item = &'s str>,
        below: &BTreeMap<String, Node>,
        value: &str,
        layer: Layer,
        name: String,
    ) {
        let segments: Vec<&str> = segments.take(MAX_SEGMENTS + 1).collect();
        let origin = Origin {
            layer,
            rank: self.values.len(),
            name,
            line: None,
        };
        match key_path(&segments, below) {
            Ok(path) => self
                .values
                .push(LayerMap::one(path, value, origin, self.origins)),
            Err(problem) => self.findings.push(Finding::new(Some(&origin), "", problem)),
        }
    }
}

fn key_path(segments: &[&str], below: &BTreeMap<String, Node>) -> Result<String, String> {
    if segments.len() > MAX_SEGMENTS || !segments.iter().all(|segment| is_segment(segment)) {
        return Err(
            "not a key; expected a name such as EVENKEEL__WORKER__LEASE, or worker.lease as a flag"
                .to_owned(),
        );
    }
    let mut path = String::new();
    let mut table = Some(below);
    let mut list: Option<&[Node]> = None;
    for segment in segments {
        let node = if let Some(items) = list {
            let at = segment.parse::<usize>().ok().filter(|at| *at < items.len());
            let at = at.ok_or_else(|| {
                format!(
                    "expected a number below {} after {path}, found {segment:?}",
                    items.len()
                )
            })?;
            let _ = write!(path, "[{at}]");
            items.get(at)
        } else {
            let found = table.and_then(|table| {
                table
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(segment))
            });
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&found.map_or_else(|| segment.to_lowercase(), |(key, _)| key.clone()));
            found.map(|(_, node)| node)
        };
        (table, list) = match node.map(|node| &node.kind) {
            Some(Toml::Table(table)) => (Some(table), None),
            Some(Toml::List(items)) => (None, Some(items.as_slice())),
            _ => (None, None),
        };
    }
    Ok(path)
}

fn read(path: &Path) -> Result<String, String> {
    super::text_file::read(path, MAX_FILE_BYTES, "a configuration file")
}
