//! Parts of the canonical encoding of views: texts, lists, sets and maps of texts.
//!
//! Migration records and footprints hash the encoding, so it never changes. Version 0.1 made it of `Debug` output; these functions write
//! the same bytes. A text is quoted and escaped as [`str`]'s `Debug` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// `"text"`, escaped.
pub(super) fn quoted<T: Display + ?Sized>(text: &T) -> String {
    format!("{:?}", text.to_string())
}

/// `["one", "two"]`.
pub(super) fn list<T: Display>(texts: &[T]) -> String {
    format!("[{}]", joined(texts))
}

/// `{"one", "two"}`, in order.
pub(super) fn set<T: Display>(texts: &BTreeSet<T>) -> String {
    format!("{{{}}}", joined(texts))
}

/// `{"name": "text"}`, in the order of the names.
pub(super) fn map<T: Display>(texts: &BTreeMap<String, T>) -> String {
    let entries: Vec<String> = texts.iter().map(|(name, text)| format!("{}: {}", quoted(name), quoted(text))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// `Some(text)` or `None`.
pub(super) fn option(text: Option<String>) -> String {
    text.map_or_else(|| "None".to_owned(), |text| format!("Some({text})"))
}

fn joined<'t, T: Display + 't>(texts: impl IntoIterator<Item = &'t T>) -> String {
    texts.into_iter().map(quoted).collect::<Vec<_>>().join(", ")
}
