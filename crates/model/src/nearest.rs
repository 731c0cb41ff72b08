//! "Did you mean": the known word most similar to a misspelt one, or all known words.

use std::borrow::Borrow;

use strsim::osa_distance;

/// Maximum length of a compared word. No name in a configuration is longer.
const MAX_CHARS: usize = 64;

/// The candidate with the fewest edits to `word`, if they are at most a third of its characters (at least one edit is allowed).
/// Case is ignored, and swapping two neighbouring characters counts as one edit.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = word.trim().to_lowercase();
    let chars = wanted.chars().take(MAX_CHARS + 1).count();
    if chars > MAX_CHARS {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= MAX_CHARS)
        .map(|candidate| (osa_distance(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(edits, candidate)| {
            *edits <= (candidate.len().max(chars) / 3).max(1) && *edits < candidate.len()
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Known words for a message, separated by commas.
pub fn listed<S: Borrow<str>>(words: &[S]) -> String {
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
    }
}

/// The hint for an unknown name: the most similar known name, or else all known names.
pub fn meant_or_known<S: Borrow<str>>(name: &str, known: &[S]) -> String {
    match nearest(name, known.iter().map(<S as Borrow<str>>::borrow)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known are {}", listed(known)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_slips_are_recognised_and_other_words_are_not() {
        let known = ["lower", "upper", "partition_key", "row_key", "when"];
        assert_eq!(nearest("lowr", known), Some("lower"));
        assert_eq!(nearest("partitionkey", known), Some("partition_key"));
        assert_eq!(nearest("RowKey", known), Some("row_key"));
        assert_eq!(nearest("wehn", known), Some("when"));
        assert_eq!(nearest("retention", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn a_name_that_resembles_none_gets_the_list_of_all() {
        assert_eq!(
            meant_or_known("Order", &["Orders", "Employees"]),
            "did you mean Orders?"
        );
        assert_eq!(
            meant_or_known("Nowhere", &["Orders", "Employees"]),
            "known are Orders, Employees"
        );
        assert_eq!(meant_or_known("Nowhere", &[] as &[&str]), "known are none");
    }

    proptest! {
        #[test]
        fn any_word_has_an_answer(word in any::<String>(), known in proptest::collection::vec(any::<String>(), 0..4)) {
            let _ = nearest(&word, known.iter().map(String::as_str));
        }
    }
}
