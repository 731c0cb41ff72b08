//! The definition of a view as migrations record it: the keys of its section with their values.
//!
//! Defaults are left out, tables include their accounts, and equivalent spellings are normalized. A
//! comparison of two definitions shows whether a view changed, and in which keys.
//! [`View::recorded`] reads a view back from its definition with the same readers that read the
//! configuration. The fingerprints of footprints and audits are hashes of definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kinds::{AlreadyReported, ReadKind, ViewSection, declared_kinds};
use super::place::{AccountSet, DatedRef, SourcePlace, TableRef, TargetRef};
use super::view::{OnConflict, View};
use crate::condition::Condition;
use crate::dated::DatedTables;
use crate::settings::SinkKind;
use crate::{AccountName, TableName, ViewName};

/// The keys of a view's section, with their values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Definition(BTreeMap<String, Value>);

impl Definition {
    #[must_use]
    pub(super) fn with(mut self, key: &str, text: impl Display) -> Self {
        self.0.insert(key.to_owned(), json!(text.to_string()));
        self
    }

    #[must_use]
    pub(super) fn with_some(self, key: &str, text: Option<impl Display>) -> Self {
        match text {
            Some(text) => self.with(key, text),
            None => self,
        }
    }

    #[must_use]
    pub(super) fn with_list<T: Display>(
        mut self,
        key: &str,
        texts: impl IntoIterator<Item = T>,
    ) -> Self {
        let texts: Vec<String> = texts.into_iter().map(|text| text.to_string()).collect();
        self.0.insert(key.to_owned(), json!(texts));
        self
    }

    #[must_use]
    pub(super) fn with_map<T: Display>(mut self, key: &str, texts: &BTreeMap<String, T>) -> Self {
        let texts: BTreeMap<&String, String> = texts
            .iter()
            .map(|(name, text)| (name, text.to_string()))
            .collect();
        self.0.insert(key.to_owned(), json!(texts));
        self
    }

    #[must_use]
    pub(super) fn with_conflicts(self, answer: OnConflict) -> Self {
        match answer {
            OnConflict::Reject => self,
            OnConflict::LastWriter => self.with("on_conflict", "last_writer"),
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.as_str()
    }

    /// The keys whose values differ. If the value of a key is a TOML table, each name in that table
    /// counts as a separate key.
    pub fn changes(&self, to: &Self) -> Vec<KeyChange> {
        let (from, to) = (self.flat(), to.flat());
        let keys: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
        let change = |key: &String| KeyChange {
            key: key.clone(),
            from: from.get(key).cloned(),
            to: to.get(key).cloned(),
        };
        keys.into_iter()
            .map(change)
            .filter(|change| change.from != change.to)
            .collect()
    }

    fn flat(&self) -> BTreeMap<String, Value> {
        let named = |(key, value): (&String, &Value)| match value {
            Value::Object(texts) => texts
                .iter()
                .map(|(name, text)| (format!("{key}.{name}"), text.clone()))
                .collect(),
            value => vec![(key.clone(), value.clone())],
        };
        self.0.iter().flat_map(named).collect()
    }
}

/// Writes one JSON object with sorted keys.
impl Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", json!(self.0))
    }
}

/// A key of a view's section whose value has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// The key, or `key.name` for a name in a TOML table.
    pub key: String,
    /// The recorded value; absent if the key is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// The new value; absent if the key was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

impl Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| {
            value
                .as_ref()
                .map_or_else(|| "nothing".to_owned(), ToString::to_string)
        };
        write!(
            f,
            "{}: {} -> {}",
            self.key,
            shown(&self.from),
            shown(&self.to)
        )
    }
}

/// A source whose views can be read back from their definitions.
pub trait RecordedSource: SourcePlace {
    /// Whether the source is a set of dated tables.
    const BY_DATE: bool;

    /// Reads the target that a definition names.
    fn target(text: &str) -> Option<Self::Target>;
    /// The source as a target.
    fn as_target(&self) -> Self::Target;
}

impl RecordedSource for TableRef {
    const BY_DATE: bool = false;

    fn target(text: &str) -> Option<TargetRef> {
        let (accounts, table) = text.split_once('/')?;
        Some(TargetRef {
            accounts: accounts_of(accounts)?,
            table: TableName::new(table).ok()?,
        })
    }

    fn as_target(&self) -> TargetRef {
        self.clone().into()
    }
}

impl RecordedSource for DatedRef {
    const BY_DATE: bool = true;

    fn target(text: &str) -> Option<Self> {
        let (account, tables) = text.split_once('/')?;
        Some(Self {
            account: AccountName::new(account).ok()?,
            tables: DatedTables::parse(tables).ok()?,
        })
    }

    fn as_target(&self) -> Self {
        self.clone()
    }
}

fn accounts_of(text: &str) -> Option<AccountSet> {
    let names: Option<Vec<AccountName>> = text
        .split('+')
        .map(|name| AccountName::new(name).ok())
        .collect();
    AccountSet::of(names?)
}

impl<P: RecordedSource + Clone> View<P> {
    /// Reads the view that a definition describes. `None` if the text is not a definition, for
    /// example after a manual edit.
    pub fn recorded(name: &ViewName, source: &P, definition: &Definition) -> Option<Self> {
        let section = RecordedSection {
            name,
            source,
            definition,
        };
        let kinds = declared_kinds::<RecordedSection<'_, P>>();
        let kind = definition.text("kind")?;
        let read: ReadKind<RecordedSection<'_, P>> =
            kinds.into_iter().find(|(word, _)| *word == kind)?.1;
        let declared = read(&section)?;
        let when = match definition.text("when") {
            Some(when) => Some(Condition::parse(when).ok()?),
            None => None,
        };
        let on_conflict = declared.on_conflict.unwrap_or_default();
        Some(Self {
            name: name.clone(),
            source: source.clone(),
            when,
            kind: declared.kind,
            on_conflict,
        })
    }
}

/// Makes a definition readable as a section, for the readers of the kinds. A definition was checked
/// when it was recorded, so no mistakes are reported.
struct RecordedSection<'d, P> {
    name: &'d ViewName,
    source: &'d P,
    definition: &'d Definition,
}

impl<P: RecordedSource> ViewSection for RecordedSection<'_, P> {
    type Target = P::Target;

    fn is_by_date(&self) -> bool {
        P::BY_DATE
    }

    fn view_name(&self) -> Option<&ViewName> {
        Some(self.name)
    }

    fn has(&self, key: &'static str) -> bool {
        self.definition.0.contains_key(key)
    }

    fn error(&self, _: &str, _: impl Display) {}

    fn error_in(&self, _: &'static str, _: &str, _: impl Display) {}

    fn ignore_unknown_keys(&self) {}

    fn required<T, E: Display>(
        &self,
        key: &'static str,
        _: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.parsed(key, parse)
    }

    fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(self.definition.text(key)?).ok()
    }

    fn quantity<T>(
        &self,
        key: &'static str,
        _: &str,
        _: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.parsed(key, parse)
    }

    fn one_of<T: Copy>(&self, key: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let text = self.definition.text(key)?;
        words
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value)
    }

    fn list<T>(
        &self,
        key: &'static str,
        read: impl FnMut(String) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let texts = self.definition.0.get(key)?.as_array()?;
        let texts: Option<Vec<String>> = texts
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect();
        texts?.into_iter().map(read).collect::<Result<_, _>>().ok()
    }

    fn texts_by_name(&self, key: &'static str) -> Option<Vec<(&str, &str)>> {
        self.definition
            .0
            .get(key)?
            .as_object()?
            .iter()
            .map(|(name, text)| Some((name.as_str(), text.as_str()?)))
            .collect()
    }

    fn target(&self, key: &'static str) -> Option<P::Target> {
        // Some kinds use another key for the target in the configuration. Definitions use `table`.
        P::target(
            self.definition
                .text(key)
                .or_else(|| self.definition.text("table"))?,
        )
    }

    fn target_in_one_account(&self, key: &'static str, _: &str) -> Option<P::Target> {
        self.target(key)
    }

    fn source_as_target(&self) -> Option<P::Target> {
        Some(self.source.as_target())
    }

    fn account(&self, _: &str) -> Result<Option<AccountName>, AlreadyReported> {
        Ok(self.parsed("account", str::parse))
    }

    fn accounts(&self) -> Result<Option<AccountSet>, AlreadyReported> {
        Ok(self.definition.text("accounts").and_then(accounts_of))
    }

    fn sink<R>(
        &self,
        _: (&str, &str),
        _: impl Fn(&SinkKind) -> Option<R>,
    ) -> Option<(AccountName, Option<R>)> {
        // The settings of the sink are only needed to find mistakes.
        Some((self.parsed("sink", str::parse)?, None))
    }
}
