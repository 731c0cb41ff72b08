//! "Did you mean": the known word that a misspelt one is nearest to.

/// Longest word that is looked at; no name in a configuration is longer.
const MAX_CHARS: usize = 64;

/// The candidate with the fewest edits to `word`, if that is at most a third of its characters (at least one).
/// Case does not count as an edit.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted: Vec<char> = word.trim().to_lowercase().chars().take(MAX_CHARS + 1).collect();
    if wanted.len() > MAX_CHARS {
        return None;
    }
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= MAX_CHARS)
        .map(|candidate| (edits(&wanted, &candidate.to_lowercase().chars().collect::<Vec<_>>()), candidate))
        .filter(|(edits, candidate)| *edits <= (candidate.len().max(wanted.len()) / 3).max(1) && *edits < candidate.len())
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits between two words, a swap of two neighbours being one edit (optimal string alignment), row by row of its table.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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

    proptest! {
        #[test]
        fn any_word_has_an_answer(word in any::<String>(), known in proptest::collection::vec(any::<String>(), 0..4)) {
            let _ = nearest(&word, known.iter().map(String::as_str));
        }
    }
}
