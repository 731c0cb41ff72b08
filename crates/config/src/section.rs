//! Reads typed and bounded values from a table. Mistakes are collected, so that reading does not stop at the first one.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::finding::Finding;
use super::origin::{Layer, Origin};
use super::tree::{Node, Toml};
use super::unsupported_keys;
pub(super) use evenkeel_model::catalog::AlreadyReported;
use evenkeel_model::nearest::nearest;
use evenkeel_model::units::{duration_text, parse_duration, parse_size, size_text};

pub(super) struct ReaderContext<'a> {
    pub(super) environment: &'a BTreeMap<String, String>,
    errors: RefCell<Vec<Finding>>,
    warnings: RefCell<Vec<Finding>>,
}

impl<'a> ReaderContext<'a> {
    pub(super) const fn new(environment: &'a BTreeMap<String, String>) -> Self {
        Self {
            environment,
            errors: RefCell::new(Vec::new()),
            warnings: RefCell::new(Vec::new()),
        }
    }

    pub(super) fn error(&self, finding: Finding) {
        self.errors.borrow_mut().push(finding);
    }

    pub(super) fn warning(&self, finding: Finding) {
        self.warnings.borrow_mut().push(finding);
    }

    pub(super) fn into_findings(self) -> (Vec<Finding>, Vec<Finding>) {
        (self.errors.into_inner(), self.warnings.into_inner())
    }
}

/// A table that is being read. Every key that a reader requests becomes known, and [`finish`](Self::finish) reports all
/// other keys.
pub(super) struct Section<'a> {
    pub(super) context: &'a ReaderContext<'a>,
    pub(super) path: String,
    table: &'a BTreeMap<String, Node>,
    origin: Option<&'a Origin>,
    known: RefCell<BTreeSet<&'static str>>,
    ignores_unknown_keys: Cell<bool>,
}

pub(super) type LocatedText = (String, Option<Origin>);

impl<'a> Section<'a> {
    pub(super) const fn new(
        context: &'a ReaderContext<'a>,
        path: String,
        table: &'a BTreeMap<String, Node>,
        origin: Option<&'a Origin>,
    ) -> Self {
        Self {
            context,
            path,
            table,
            origin,
            known: RefCell::new(BTreeSet::new()),
            ignores_unknown_keys: Cell::new(false),
        }
    }

    pub(super) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Returns the value of a key. The key becomes known.
    pub(super) fn node(&self, key: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().insert(key);
        self.table.get(key)
    }

    /// Returns the origin of a key, or of the section if the key is absent.
    pub(super) fn origin_of(&self, key: &str) -> Option<&'a Origin> {
        self.table
            .get(key)
            .map_or(self.origin, |node| node.origin.as_ref())
    }

    pub(super) fn is_known(&self, key: &str) -> bool {
        self.known.borrow().contains(key)
    }

    pub(super) fn has(&self, key: &'static str) -> bool {
        self.node(key).is_some()
    }

    /// Reports a mistake at a key, or at the section if the key is empty.
    pub(super) fn error(&self, key: &str, message: impl Display) {
        let path = if key.is_empty() {
            self.path.clone()
        } else {
            self.path_of(key)
        };
        self.context
            .error(Finding::new(self.origin_of(key), path, message.to_string()));
    }

    pub(super) fn warning(&self, key: &str, message: impl Display) {
        let path = if key.is_empty() {
            self.path.clone()
        } else {
            self.path_of(key)
        };
        self.context
            .warning(Finding::new(self.origin_of(key), path, message.to_string()));
    }

    pub(super) fn missing(&self, key: &str, expected: &str) {
        self.error(key, format!("missing; expected {expected}"));
    }

    fn mistyped(&self, key: &str, node: &Node, expected: &str) {
        self.error(
            key,
            format!("expected {expected}, found {}", node.type_name()),
        );
    }

    /// Like [`mistyped`](Self::mistyped), but the error shows the value. The value must not be a secret.
    fn unexpected(&self, key: &str, node: &Node, expected: &str) {
        let found = match &node.kind {
            Toml::Text(text) => format!("{text:?}"),
            Toml::Integer(number) => number.to_string(),
            Toml::Bool(_) | Toml::Float(_) | Toml::List(_) | Toml::Table(_) => {
                node.type_name().to_owned()
            }
        };
        self.error(key, format!("expected {expected}, found {found}"));
    }

    pub(super) fn peek_text(&self, key: &'static str) -> Option<&'a str> {
        match &self.node(key)?.kind {
            Toml::Text(text) => Some(text),
            Toml::Bool(_) | Toml::Integer(_) | Toml::Float(_) | Toml::List(_) | Toml::Table(_) => {
                None
            }
        }
    }

    pub(super) fn text(&self, key: &'static str) -> Option<&'a str> {
        let node = self.node(key)?;
        match &node.kind {
            Toml::Text(text) => Some(text),
            Toml::Bool(_) | Toml::Integer(_) | Toml::Float(_) | Toml::List(_) | Toml::Table(_) => {
                self.mistyped(key, node, "a string");
                None
            }
        }
    }

    pub(super) fn required_text(&self, key: &'static str, expected: &str) -> Option<&'a str> {
        if !self.has(key) {
            self.missing(key, expected);
        }
        self.text(key)
    }

    pub(super) fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(key)?;
        parse(text).map_err(|error| self.error(key, error)).ok()
    }

    pub(super) fn required<T, E: Display>(
        &self,
        key: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.required_text(key, expected)?;
        parse(text).map_err(|error| self.error(key, error)).ok()
    }

    pub(super) fn one_of<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        let text = self.text(key)?;
        let found = words
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value);
        if found.is_none() {
            let hint = nearest(text, words.iter().map(|(word, _)| *word))
                .map(|word| format!("; did you mean {word:?}?"))
                .unwrap_or_default();
            self.error(
                key,
                format!("expected {}, found {text:?}{hint}", alternatives(words)),
            );
        }
        found
    }

    pub(super) fn required_one_of<T: Copy>(
        &self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Option<T> {
        if !self.has(key) {
            self.missing(key, &alternatives(words));
        }
        self.one_of(key, words)
    }

    pub(super) fn duration(
        &self,
        key: &'static str,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let duration = self.quantity(key, "a duration such as \"60s\"", "s", parse_duration)?;
        if bounds.contains(&duration) {
            return Some(duration);
        }
        let (least, most) = (duration_text(*bounds.start()), duration_text(*bounds.end()));
        self.error(
            key,
            format!(
                "expected {least} to {most}, found {}",
                duration_text(duration)
            ),
        );
        None
    }

    /// Reads a required text that contains a number and its unit. The error for a bare number names the missing unit.
    pub(super) fn quantity<T>(
        &self,
        key: &'static str,
        expected: &str,
        unit: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if let Some(Node {
            kind: Toml::Integer(number),
            ..
        }) = self.node(key)
        {
            self.error(key, format!("expected {expected}, found the number {number} without a unit; did you mean \"{number}{unit}\"?"));
            return None;
        }
        self.required(key, expected, parse)
    }

    pub(super) fn size(&self, key: &'static str, bounds: RangeInclusive<u64>) -> Option<u64> {
        let size = self.quantity(key, "a size such as \"128MiB\"", "MiB", parse_size)?;
        if bounds.contains(&size) {
            return Some(size);
        }
        self.error(
            key,
            format!(
                "expected {} to {}, found {}",
                size_text(*bounds.start()),
                size_text(*bounds.end()),
                size_text(size)
            ),
        );
        None
    }

    pub(super) fn integer(&self, key: &'static str, bounds: RangeInclusive<u32>) -> Option<u32> {
        let expected = format!("an integer from {} to {}", bounds.start(), bounds.end());
        let Some(node) = self.node(key) else {
            self.missing(key, &expected);
            return None;
        };
        let number = match &node.kind {
            Toml::Integer(number) => Some(*number),
            // Values from environment variables and flags are always texts.
            Toml::Text(text) if untyped(node) => text.trim().parse().ok(),
            Toml::Bool(_) | Toml::Float(_) | Toml::Text(_) | Toml::List(_) | Toml::Table(_) => None,
        };
        let number = number
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| bounds.contains(number));
        if number.is_none() {
            self.unexpected(key, node, &expected);
        }
        number
    }

    pub(super) fn boolean(&self, key: &'static str) -> Option<bool> {
        let node = self.node(key)?;
        match &node.kind {
            Toml::Bool(truth) => Some(*truth),
            Toml::Text(text) if untyped(node) && text.trim() == "true" => Some(true),
            Toml::Text(text) if untyped(node) && text.trim() == "false" => Some(false),
            Toml::Text(_) | Toml::Integer(_) | Toml::Float(_) | Toml::List(_) | Toml::Table(_) => {
                self.unexpected(key, node, "true or false");
                None
            }
        }
    }

    /// Reads an optional list of texts. In environment variables and flags, commas separate the texts.
    pub(super) fn texts(&self, key: &'static str) -> Option<Vec<LocatedText>> {
        let node = self.node(key)?;
        match &node.kind {
            Toml::List(items) => {
                let texts: Vec<Option<LocatedText>> = items
                    .iter()
                    .map(|item| match &item.kind {
                        Toml::Text(text) => Some((text.clone(), item.origin.clone())),
                        Toml::Bool(_)
                        | Toml::Integer(_)
                        | Toml::Float(_)
                        | Toml::List(_)
                        | Toml::Table(_) => {
                            self.context.error(Finding::new(
                                item.origin.as_ref(),
                                self.path_of(key),
                                format!(
                                    "expected strings in this list, found {}",
                                    item.type_name()
                                ),
                            ));
                            None
                        }
                    })
                    .collect();
                texts.into_iter().collect()
            }
            Toml::Text(text) if untyped(node) => {
                let inner = text.trim().trim_start_matches('[').trim_end_matches(']');
                let items = inner
                    .split(',')
                    .map(|item| item.trim().trim_matches('"'))
                    .filter(|item| !item.is_empty());
                Some(
                    items
                        .map(|item| (item.to_owned(), node.origin.clone()))
                        .collect(),
                )
            }
            Toml::Text(_) | Toml::Bool(_) | Toml::Integer(_) | Toml::Float(_) | Toml::Table(_) => {
                self.mistyped(key, node, "a list of strings");
                None
            }
        }
    }

    pub(super) fn list<T>(
        &self,
        key: &'static str,
        mut read: impl FnMut(String) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let read = self
            .texts(key)?
            .into_iter()
            .map(|(text, origin)| match read(text) {
                Ok(value) => Some(value),
                Err(problem) => {
                    self.context
                        .error(Finding::new(origin.as_ref(), self.path_of(key), problem));
                    None
                }
            });
        // All items are read before the first mistake ends the function, so that every mistake is reported.
        let read: Vec<Option<T>> = read.collect();
        read.into_iter().collect()
    }

    /// Whether the value of a key is a list. Environment variables and flags have no types, so their text is a list if it has a comma or
    /// begins like a list or a number.
    pub(super) fn is_list(&self, key: &'static str) -> bool {
        self.node(key).is_some_and(|node| match &node.kind {
            Toml::List(_) => true,
            Toml::Text(text) => {
                let begins = |first: char| first == '[' || first.is_ascii_digit();
                untyped(node) && (text.contains(',') || text.trim_start().starts_with(begins))
            }
            Toml::Bool(_) | Toml::Integer(_) | Toml::Float(_) | Toml::Table(_) => false,
        })
    }

    /// Reads an optional list of durations within bounds. The error for a bare number names the missing unit.
    pub(super) fn durations(
        &self,
        key: &'static str,
        bounds: RangeInclusive<Duration>,
    ) -> Option<Vec<Duration>> {
        if let Some(Node {
            kind: Toml::List(items),
            ..
        }) = self.node(key)
            && let Some((number, at)) = items.iter().find_map(|item| match item.kind {
                Toml::Integer(number) => Some((number, item.origin.as_ref())),
                Toml::Bool(_) | Toml::Float(_) | Toml::Text(_) | Toml::List(_) | Toml::Table(_) => {
                    None
                }
            })
        {
            let problem = format!(
                "expected durations such as \"60s\" in this list, found the number {number} without a unit; did you mean \"{number}s\"?"
            );
            self.context
                .error(Finding::new(at, self.path_of(key), problem));
            return None;
        }
        let (least, most) = (duration_text(*bounds.start()), duration_text(*bounds.end()));
        self.list(key, |text| match parse_duration(&text)? {
            duration if bounds.contains(&duration) => Ok(duration),
            duration => Err(format!(
                "expected {least} to {most}, found {}",
                duration_text(duration)
            )),
        })
    }

    pub(super) fn section(&self, key: &'static str) -> Option<Self> {
        let node = self.node(key)?;
        self.section_of(key, node)
    }

    fn section_of(&self, key: &str, node: &'a Node) -> Option<Self> {
        if let Toml::Table(table) = &node.kind {
            return Some(Self::new(
                self.context,
                self.path_of(key),
                table,
                node.origin.as_ref(),
            ));
        }
        let hint = if untyped(node) {
            "; set its keys one by one"
        } else {
            ""
        };
        self.error(
            key,
            format!("expected a table, found {}{hint}", node.type_name()),
        );
        None
    }

    pub(super) fn subsections(&self, key: &'static str) -> Vec<(&'a str, Self)> {
        let Some(outer) = self.section(key) else {
            return Vec::new();
        };
        outer
            .table
            .iter()
            .filter_map(|(name, node)| Some((name.as_str(), outer.section_of(name, node)?)))
            .collect()
    }

    /// Returns the texts of a table by their names: `set = { Name = "…" }`. The table itself is returned as well, so
    /// that mistakes can be reported at its keys.
    pub(super) fn texts_by_name(
        &self,
        key: &'static str,
    ) -> Option<(Self, Vec<(&'a str, &'a str)>)> {
        let inner = self.section(key)?;
        let mut texts = Vec::new();
        for (name, node) in inner.table {
            match &node.kind {
                Toml::Text(text) => texts.push((name.as_str(), text.as_str())),
                Toml::Bool(_)
                | Toml::Integer(_)
                | Toml::Float(_)
                | Toml::List(_)
                | Toml::Table(_) => {
                    inner.mistyped(name, node, "a string");
                }
            }
        }
        Some((inner, texts))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Node)> + use<'a> {
        self.table.iter().map(|(key, node)| (key.as_str(), node))
    }

    /// Returns the tables of a list: `[[queues]]`.
    pub(super) fn table_list(&self, key: &'static str) -> Vec<Self> {
        let Some(node) = self.node(key) else {
            return Vec::new();
        };
        let Toml::List(items) = &node.kind else {
            self.mistyped(key, node, "a list of tables, as in [[queues]]");
            return Vec::new();
        };
        let read = |(at, item): (usize, &'a Node)| match &item.kind {
            Toml::Table(table) => Some(Self::new(
                self.context,
                format!("{}[{at}]", self.path_of(key)),
                table,
                item.origin.as_ref(),
            )),
            Toml::Bool(_) | Toml::Integer(_) | Toml::Float(_) | Toml::Text(_) | Toml::List(_) => {
                self.context.error(Finding::new(
                    item.origin.as_ref(),
                    format!("{}[{at}]", self.path_of(key)),
                    format!("expected a table, found {}", item.type_name()),
                ));
                None
            }
        };
        items.iter().enumerate().filter_map(read).collect()
    }

    pub(super) fn rank(&self, key: &str) -> usize {
        self.table
            .get(key)
            .and_then(|node| node.origin.as_ref())
            .map_or(0, |origin| origin.rank)
    }

    /// Reports every key in `others` that is set. The value of the key `choice` does not allow these keys. `chosen` describes this value
    /// in the error. A key from an earlier layer than `choice` is not reported, because the later layer overrides it.
    pub(super) fn reject_keys(
        &self,
        choice: &'static str,
        chosen: &str,
        others: &[&[&'static str]],
    ) {
        for key in others.iter().flat_map(|keys| keys.iter()) {
            if self.has(key) && self.rank(key) >= self.rank(choice) && self.has(choice) {
                self.error(key, format!("not allowed with {chosen}"));
            }
        }
    }

    pub(super) fn mark_known(&self, keys: &[&'static str]) {
        self.known.borrow_mut().extend(keys);
    }

    pub(super) fn optional<V>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Self) -> Option<V>,
    ) -> Result<Option<V>, AlreadyReported> {
        if self.has(key) {
            read(self).map(Some).ok_or(AlreadyReported)
        } else {
            Ok(None)
        }
    }

    pub(super) fn with_default<V>(
        &self,
        key: &'static str,
        default: V,
        read: impl FnOnce(&'static str) -> Option<V>,
    ) -> Option<V> {
        if self.has(key) {
            read(key)
        } else {
            Some(default)
        }
    }

    /// Suppresses the report of unknown keys. It is called after a mistake that makes it impossible to decide which
    /// keys are allowed.
    pub(super) fn ignore_unknown_keys(&self) {
        self.ignores_unknown_keys.set(true);
    }

    /// Reports the keys that no reader has requested, unless `ignore_unknown_keys` was called.
    pub(super) fn finish(&self) {
        if self.ignores_unknown_keys.get() {
            return;
        }
        let known = self.known.borrow();
        for key in self
            .table
            .keys()
            .filter(|key| !known.contains(key.as_str()))
        {
            let names: Vec<&str> = known
                .iter()
                .copied()
                .filter(|name| names_secret(key, name))
                .collect();
            let hint = match (
                unsupported_keys::advice(&self.path, key),
                nearest(key, known.iter().copied()),
            ) {
                (Some(advice), _) => advice.to_owned(),
                (None, _) if !names.is_empty() => format!(
                    "secrets cannot be written in a configuration; expected {}",
                    names.join(" or ")
                ),
                (None, Some(meant)) => format!("did you mean {meant:?}?"),
                (None, None) => format!(
                    "known keys are {}",
                    known.iter().copied().collect::<Vec<_>>().join(", ")
                ),
            };
            self.error(key, format!("unknown key; {hint}"));
        }
    }
}

/// The words as alternatives in an error: `"a" or "b"`.
pub(super) fn alternatives<T>(words: &[(&'static str, T)]) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    words.join(" or ")
}

fn names_secret(secret: &str, key: &str) -> bool {
    key.strip_prefix(secret)
        .is_some_and(|suffix| matches!(suffix, "_env" | "_file"))
}

fn untyped(node: &Node) -> bool {
    node.origin
        .as_ref()
        .is_some_and(|origin| matches!(origin.layer, Layer::Environment | Layer::Flag))
}
