//! Chooses where to read next, so that a sample spreads over sorted keys that are not known in advance. Pure.
//!
//! The service returns the first keys from a given key on, but neither the number of keys nor the
//! last key. So the sampler first looks for the end of the keys: it reads beyond all keys that have
//! the common prefix of the keys found so far. Then it halves the widest unread range again and
//! again.

/// If this many halvings of a range have found no key, the range is skipped.
const MISSES: u8 = 10;
/// Greater than every key of ASCII characters. The characters between the last ASCII character and
/// this one are not valid in a key, and the service may refuse a query for them.
const ASCII_END: &str = "\u{a0}";
/// Greater than nearly every key.
const END: &str = "\u{fffd}";
/// Maximum number of characters in a generated key.
const LONGEST: usize = 128;

/// A range of keys to read from its beginning; `before` is exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyRange {
    pub(super) from: String,
    pub(super) before: Option<String>,
}

/// A range between two known keys, from which no key was read.
#[derive(Debug)]
struct Gap {
    /// The last key that was read.
    after: String,
    /// The end of the gap, exclusive: a key that was read, or the beginning of a range in which no
    /// key was found. `None` as long as no upper bound of all keys is known.
    before: Option<String>,
    misses: u8,
}

#[derive(Debug)]
pub(super) struct KeySampler {
    first: String,
    gaps: Vec<Gap>,
}

impl KeySampler {
    /// Creates a sampler after the first page of keys was read.
    pub(super) fn after(first: &str, last: &str) -> Self {
        Self {
            first: first.to_owned(),
            gaps: vec![Gap {
                after: last.to_owned(),
                before: None,
                misses: 0,
            }],
        }
    }

    /// The next range to read, with the value to pass to [`record`](Self::record) afterwards.
    /// `None` if no range is left.
    pub(super) fn next_range(&mut self) -> Option<(KeyRange, PendingRange)> {
        while let Some(at) = self.widest() {
            let gap = self.gaps.swap_remove(at);
            let from = match &gap.before {
                None => Some(end_of(&self.first, &gap.after)),
                Some(before) => between(&gap.after, before),
            };
            if let Some(from) = from.filter(|from| *from > gap.after) {
                return Some((
                    KeyRange {
                        from: from.clone(),
                        before: gap.before.clone(),
                    },
                    PendingRange { gap, from },
                ));
            }
        }
        None
    }

    /// Records the first and last key that were read from a range, or that none was read.
    pub(super) fn record(
        &mut self,
        PendingRange { gap, from }: PendingRange,
        keys: Option<(&str, &str)>,
    ) {
        let Gap {
            after,
            before,
            misses,
        } = gap;
        match keys {
            Some((first, last)) => {
                self.gaps.push(Gap {
                    after: last.to_owned(),
                    before,
                    misses: 0,
                });
                self.gaps.push(Gap {
                    after,
                    before: Some(first.to_owned()),
                    misses,
                });
            }
            None if before.is_some() && misses >= MISSES => {}
            // A read without an upper bound found no key, so no key is greater than `from`.
            None if before.is_none() => self.gaps.push(Gap {
                after,
                before: Some(from),
                misses: 0,
            }),
            None => self.gaps.push(Gap {
                after,
                before: Some(from),
                misses: misses + 1,
            }),
        }
        // If several gaps have no upper bound, only the one that begins last is kept.
        let open = self
            .gaps
            .iter()
            .filter(|gap| gap.before.is_none())
            .map(|gap| gap.after.clone())
            .max();
        self.gaps
            .retain(|gap| gap.before.is_some() || Some(&gap.after) == open.as_ref());
    }

    /// The gap without an upper bound if there is one, otherwise the widest gap.
    fn widest(&self) -> Option<usize> {
        let ends = self
            .gaps
            .iter()
            .flat_map(|gap| std::iter::once(&gap.after).chain(&gap.before));
        let common = ends.map(|end| common(&self.first, end)).min().unwrap_or(0);
        let place = |key: &str| place(key, common);
        let width = |gap: &Gap| {
            gap.before
                .as_ref()
                .map_or(f64::INFINITY, |before| place(before) - place(&gap.after))
        };
        (0..self.gaps.len())
            .max_by(|one, other| width(&self.gaps[*one]).total_cmp(&width(&self.gaps[*other])))
    }
}

#[derive(Debug)]
pub(super) struct PendingRange {
    gap: Gap,
    from: String,
}

/// Returns a key beyond all keys that begin with the common prefix of `first` and `last`. If they
/// have no common prefix, returns a key beyond all ASCII keys, or beyond nearly all keys.
fn end_of(first: &str, last: &str) -> String {
    let mut key: Vec<char> = first.chars().take(common(first, last)).collect();
    while let Some(end) = key.pop() {
        if let Some(next) = char::from_u32(u32::from(end) + 1) {
            key.push(next);
            return key.into_iter().collect();
        }
    }
    (if last < ASCII_END { ASCII_END } else { END }).to_owned()
}

/// Length of the common prefix of two keys, in characters.
fn common(one: &str, other: &str) -> usize {
    one.chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other)
        .count()
}

/// Returns the first code after the class of a character, such as digits or capital letters. Keys
/// rarely mix classes at one position.
const fn end_of_kind(code: u32) -> u32 {
    match code {
        0x00..=0x2f => 0x30,
        0x30..=0x39 => 0x3a,
        0x3a..=0x40 => 0x41,
        0x41..=0x5a => 0x5b,
        0x5b..=0x60 => 0x61,
        0x61..=0x7a => 0x7b,
        _ => u32::MAX,
    }
}

/// A key about half way between two others; `None` if there is hardly any key between them.
fn between(after: &str, before: &str) -> Option<String> {
    let (after, before): (Vec<char>, Vec<char>) =
        (after.chars().collect(), before.chars().collect());
    let common = after
        .iter()
        .zip(&before)
        .take_while(|(one, other)| one == other)
        .count();
    let mut key: Vec<char> = after[..common].to_vec();
    // The end of a key counts as a character below the space, the lowest character in keys.
    let code = |key: &[char], at: usize| key.get(at).map_or(0x1f, |c| u32::from(*c));
    let (mut low, mut high) = (code(&after, common), code(&before, common));
    // Keys rarely differ in a separator, so the part after the separator is halved.
    let separates = |low: u32, at: usize| {
        at + 1 < after.len() && char::from_u32(low).is_some_and(|c| c.is_ascii_punctuation())
    };
    while high.saturating_sub(low) < 2 || separates(low, key.len()) {
        key.push(*after.get(key.len())?);
        low = code(&after, key.len());
        high = if low < 0x7d { 0x7f } else { 0xfffd };
        if key.len() > LONGEST {
            return None;
        }
    }
    let end = end_of_kind(low);
    let middle = match if end < high {
        end
    } else {
        low + (high - low) / 2
    } {
        0x7f..=0x9f if low < 0x7e => 0x7e,
        0x7f..=0x9f => 0xa0,
        // A surrogate is not a character, so it is replaced.
        0xd800..=0xdfff => 0xe000,
        middle => middle,
    };
    key.push(char::from_u32(middle).filter(|_| middle < high)?);
    Some(key.into_iter().collect())
}

/// Returns the position of a key as a number between 0 and 1. The first `without` characters of the
/// key are ignored.
fn place(key: &str, without: usize) -> f64 {
    let digit = |c: char| f64::from(u32::from(c).min(0xffff)) / 65_536.0;
    // The precision of an `f64` suffices for three characters.
    key.chars()
        .skip(without)
        .take(3)
        .fold((0.0, 1.0), |(sum, unit): (f64, f64), c| {
            (digit(c).mul_add(unit, sum), unit / 65_536.0)
        })
        .0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Returns the first key of each range that was read, and the number of reads after the first one. A read returns
    /// at most five keys.
    fn places(keys: &BTreeSet<String>, questions: usize) -> (Vec<String>, usize) {
        let read = |range: &KeyRange| -> Vec<String> {
            let before = |key: &&String| range.before.as_ref().is_none_or(|before| *key < before);
            keys.range(range.from.clone()..)
                .take_while(before)
                .take(5)
                .cloned()
                .collect()
        };
        let all = KeyRange {
            from: String::new(),
            before: None,
        };
        let first = read(&all);
        let mut spread = KeySampler::after(&first[0], first.last().unwrap());
        let (mut places, mut reads) = (vec![first[0].clone()], 0);
        while reads < questions && places.len() < 20 {
            let Some((range, question)) = spread.next_range() else {
                break;
            };
            reads += 1;
            let found = read(&range);
            spread.record(
                question,
                found
                    .first()
                    .map(|first| (first.as_str(), found.last().unwrap().as_str())),
            );
            places.extend(found.first().cloned());
        }
        places.sort();
        (places, reads)
    }

    /// Returns the largest distance from one of the places to the next one, or to the end, in percent of the number
    /// of keys.
    fn longest_gap(keys: &BTreeSet<String>, places: &[String]) -> usize {
        let all: Vec<&String> = keys.iter().collect();
        let at: Vec<usize> = places
            .iter()
            .map(|place| all.binary_search(&place).unwrap())
            .chain([all.len()])
            .collect();
        at.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap() * 100 / all.len()
    }

    #[test]
    fn twenty_places_are_spread_over_common_kinds_of_keys() {
        let hex = |n: u64| format!("{:08x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
        let cases: [(&str, BTreeSet<String>, usize); 6] = [
            (
                "numbers",
                (0..5000).map(|n| format!("{n:05}")).collect(),
                20,
            ),
            (
                "a common beginning",
                (0..5000).map(|n| format!("customer-{n:07}")).collect(),
                20,
            ),
            ("hashes", (0..5000).map(hex).collect(), 20),
            (
                "dates",
                (0..5000)
                    .map(|n| format!("2026-{:02}-{:02}", n / 400 + 1, n % 28 + 1))
                    .collect(),
                45,
            ),
            (
                "names",
                (0..5000)
                    .map(|n| {
                        format!(
                            "{}{}",
                            char::from(b'a' + u8::try_from(n % 26).unwrap()),
                            hex(n)
                        )
                    })
                    .collect(),
                20,
            ),
            (
                "names in Korean",
                (0..3000_u32)
                    .map(|n| format!("{}{n}", char::from_u32(0xac00 + n * 3).unwrap()))
                    .collect(),
                25,
            ),
        ];
        for (what, keys, most) in cases {
            let (places, reads) = places(&keys, 45);
            assert!(
                places.len() >= 14,
                "{what}: {} places after {reads} reads",
                places.len()
            );
            let gap = longest_gap(&keys, &places);
            assert!(
                gap <= most,
                "{what}: a gap of {gap}% after {reads} reads: {places:?}"
            );
        }
    }

    #[test]
    fn a_sample_of_few_keys_ends() {
        for keys in [
            vec!["only"],
            vec!["a", "b"],
            vec!["a", "~"],
            vec!["a", "\u{ffff}"],
        ] {
            let keys: BTreeSet<String> = keys.into_iter().map(str::to_owned).collect();
            assert!(places(&keys, 1000).1 < 60, "{keys:?}");
        }
    }

    proptest! {
        #[test]
        fn every_range_is_read_within_its_bounds(keys in proptest::collection::btree_set("[ -~가-힣]{1,12}", 1..60)) {
            let (places, _) = places(&keys, 200);
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        }

        #[test]
        fn the_middle_key_is_between_its_neighbours(one in "[ -~가-힣\u{10000}]{0,9}", other in "[ -~가-힣\u{10000}]{0,9}") {
            let (after, before) = (one.clone().min(other.clone()), one.max(other));
            if after != before && let Some(middle) = between(&after, &before) {
                prop_assert!(after < middle && middle < before, "{after:?} {middle:?} {before:?}");
            }
        }
    }
}
