//! Prefixes of keys, with one or several spellings.

use std::collections::BTreeSet;

use super::span::behind;

/// A prefix of keys. A prefix has several spellings if its spelling depends on the text that
/// follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Prefix {
    /// The common start of all spellings.
    stem: String,
    /// The rest of each spelling, sorted; empty if there is only one spelling.
    tails: Vec<String>,
}

impl Prefix {
    pub(super) fn of(spellings: impl IntoIterator<Item = String>) -> Self {
        let spellings: BTreeSet<String> = spellings.into_iter().collect();
        let (Some(first), Some(last)) = (spellings.first(), spellings.last()) else {
            return Self::default();
        };
        // The spellings are sorted, so all of them share the start that the first and the last one
        // share.
        let apart = first
            .char_indices()
            .zip(last.chars())
            .find(|((_, one), other)| one != other);
        let length = apart.map_or_else(|| first.len().min(last.len()), |((at, _), _)| at);
        let tails = if spellings.len() == 1 {
            Vec::new()
        } else {
            spellings
                .iter()
                .map(|text| text[length..].to_owned())
                .collect()
        };
        Self {
            stem: first[..length].to_owned(),
            tails,
        }
    }

    pub(super) fn behind_head(&self, head: &str) -> Self {
        Self {
            stem: format!("{head}{}", self.stem),
            tails: self.tails.clone(),
        }
    }

    pub(super) fn stem(&self) -> &str {
        &self.stem
    }

    /// The first text with this prefix; `None` if every text has this prefix.
    pub(super) fn first(&self) -> Option<String> {
        let first = format!(
            "{}{}",
            self.stem,
            self.tails.first().map_or("", String::as_str)
        );
        (!first.is_empty()).then_some(first)
    }

    /// The nearest possible text that sorts after all texts with this prefix; `None` if there is
    /// none.
    pub(super) fn end(&self) -> Option<String> {
        if self.tails.is_empty() {
            return behind(&self.stem);
        }
        let ends: Option<Vec<String>> = self
            .tails
            .iter()
            .map(|tail| behind(&format!("{}{tail}", self.stem)))
            .collect();
        ends?.into_iter().max()
    }

    pub(super) fn begins(&self, text: &str) -> bool {
        let rest = text.strip_prefix(self.stem.as_str());
        rest.is_some_and(|rest| {
            self.tails.is_empty()
                || self
                    .tails
                    .iter()
                    .any(|tail| rest.starts_with(tail.as_str()))
        })
    }
}

/// The possible spellings of a lower-case text to which more text may be appended, sorted. In lower
/// case, `Σ` becomes `ς` at the end of a word and `σ` elsewhere. If the last sigma is followed only
/// by characters that may be inside a word, such as an apostrophe, the appended text decides
/// whether the word ends there, so both spellings are possible.
pub(super) fn lower_case_spellings(text: &str) -> Vec<String> {
    let Some(at) = text.rfind(['ς', 'σ']) else {
        return vec![text.to_owned()];
    };
    let (before, after) = (&text[..at], &text[at + 'σ'.len_utf8()..]);
    let (ended, gone_on) = (
        format!("αΣ{after}").to_lowercase(),
        format!("αΣ{after}α").to_lowercase(),
    );
    if gone_on.starts_with(ended.as_str()) {
        return vec![text.to_owned()];
    }
    ["ς", "σ"]
        .map(|sigma| format!("{before}{sigma}{after}"))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(spellings: &[&str]) -> Prefix {
        Prefix::of(spellings.iter().map(|text| (*text).to_owned()))
    }

    #[test]
    fn a_prefix_with_several_spellings_spans_all_of_them() {
        let one = prefix(&["ab"]);
        assert_eq!(
            (one.first().as_deref(), one.end().as_deref(), one.stem()),
            (Some("ab"), Some("ac"), "ab")
        );
        let sigmas = prefix(&["xσ", "xς"]);
        assert_eq!(
            (
                sigmas.first().as_deref(),
                sigmas.end().as_deref(),
                sigmas.stem()
            ),
            (Some("xς"), Some("xτ"), "x")
        );
        assert!(
            sigmas.begins("xσy")
                && sigmas.begins("xς")
                && !sigmas.begins("xτ")
                && !sigmas.begins("x")
        );
        // The texts with the prefix `%` end after the texts with the prefix `%25`, so `%`
        // determines the end.
        let signs = prefix(&["%", "%25"]);
        assert_eq!(
            (signs.first().as_deref(), signs.end().as_deref()),
            (Some("%"), Some("&"))
        );
        assert!(signs.begins("%3") && !signs.begins("&"));
        let every = Prefix::default();
        assert_eq!((every.first(), every.end()), (None, None));
        assert!(every.begins("") && every.begins("a"));
        assert_eq!(one.behind_head("h_").first().as_deref(), Some("h_ab"));
    }

    #[test]
    fn a_sigma_has_two_spellings_if_its_word_may_go_on() {
        for (text, spellings) in [
            ("παπας", &["παπας", "παπασ"][..]),
            ("παπασ", &["παπας", "παπασ"]),
            ("ας'", &["ας'", "ασ'"]),
            ("σας", &["σας", "σασ"]),
            ("ας ", &["ας "]),
            ("ασο", &["ασο"]),
            ("kim", &["kim"]),
            ("", &[""]),
        ] {
            assert_eq!(lower_case_spellings(text), spellings, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn texts_with_a_prefix_in_any_case_begin_with_a_spelling(begins in "[ΑΣασςx'. 1]{1,6}", more in "[ΑΣασςx'. 1]{0,4}") {
            let prefix = Prefix::of(lower_case_spellings(&begins.to_lowercase()));
            let text = format!("{begins}{more}").to_lowercase();
            prop_assert!(prefix.begins(&text), "{prefix:?} of {text:?}");
            prop_assert!(prefix.first().is_none_or(|first| first <= text));
            prop_assert!(prefix.end().is_none_or(|end| text < end));
        }
    }
}
