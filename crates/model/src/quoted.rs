//! External values in errors: escaped, and shortened in the middle if they are long.
//!
//! A compressed message of a few kilobytes may contain a text of a megabyte. If the message also has a thousand jobs, each of them would
//! repeat the text in an error.

use std::fmt::{self, Write as _};

/// Bytes shown of the start of a value, escaped.
const HEAD: usize = 120;
/// Bytes shown of the end of a value, escaped.
const TAIL: usize = 60;

/// Displays a text in quotes, escaped, and shortened in the middle if it is long.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'v>(pub &'v str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(text) = self;
        if text.len() <= HEAD + TAIL {
            let whole = format!("{text:?}");
            if whole.len() <= HEAD + TAIL + 2 {
                return f.write_str(&whole);
            }
        }
        let head = escaped(HEAD, |most| &text[..text.floor_char_boundary(most)]);
        let tail = escaped(TAIL, |most| {
            &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
        });
        write!(f, "\"{head}…{tail}\"")
    }
}

/// Escapes a part of a text. Takes a smaller part until the escaped form has at most `room` bytes.
fn escaped<'v>(room: usize, part: impl Fn(usize) -> &'v str) -> String {
    let mut most = room;
    loop {
        let quoted = format!("{:?}", part(most));
        let escaped = quoted.get(1..quoted.len() - 1).unwrap_or_default();
        if escaped.len() <= room || most == 0 {
            return escaped.to_owned();
        }
        most /= 2;
    }
}

/// Shortens an external text to some 200 bytes, for errors that store the text.
pub fn shortened(text: String) -> String {
    if text.len() <= HEAD + TAIL {
        text
    } else {
        cut(text, HEAD + TAIL)
    }
}

/// Formats a value in at most `most` bytes. In a longer value, an ellipsis replaces the middle, and the ellipsis comes on top of `most`.
/// Never holds much more than `most` bytes in memory.
pub fn cut(value: impl fmt::Display, most: usize) -> String {
    let mut ends = Ends {
        head: String::new(),
        tail: String::new(),
        most,
        bytes: 0,
    };
    // Writing to strings cannot fail.
    write!(ends, "{value}").unwrap_or_default();
    ends.text()
}

struct Ends {
    head: String,
    tail: String,
    most: usize,
    bytes: usize,
}

impl Ends {
    const fn tail_most(&self) -> usize {
        self.most / 3
    }

    fn text(mut self) -> String {
        if self.bytes <= self.most {
            self.head.push_str(&self.tail);
            return self.head;
        }
        let start = self
            .tail
            .ceil_char_boundary(self.tail.len().saturating_sub(self.tail_most()));
        format!("{}…{}", self.head, &self.tail[start..])
    }
}

impl fmt::Write for Ends {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let before = self.bytes;
        self.bytes = before.saturating_add(text.len());
        let mut rest = text;
        // Once the tail has content, the head is complete.
        if before == self.head.len() {
            let room = (self.most - self.tail_most()).saturating_sub(self.head.len());
            let (head, left) = text.split_at(text.floor_char_boundary(room));
            self.head.push_str(head);
            rest = left;
        }
        let most = 2 * self.tail_most() + char::MAX.len_utf8();
        let start = rest.ceil_char_boundary(rest.len().saturating_sub(most));
        self.tail.push_str(&rest[start..]);
        if self.tail.len() > 2 * most {
            let start = self.tail.ceil_char_boundary(self.tail.len() - most);
            self.tail.drain(..start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_value_is_shown_by_its_ends() {
        assert_eq!(Quoted("a\"b").to_string(), r#""a\"b""#);
        let long = format!("begin{}end", "x".repeat(1 << 20));
        for text in [
            Quoted(&long).to_string(),
            cut(&long, 180),
            shortened(long.clone()),
        ] {
            assert!(
                text.len() < 200
                    && text.contains("begin")
                    && text.contains("xend")
                    && text.contains('…'),
                "{text}"
            );
        }
        assert!(
            Quoted(&"\u{7f}".repeat(1 << 20)).to_string().len() < 200,
            "escapes count"
        );
        assert_eq!(
            cut(format_args!("{}{}", "한".repeat(60), "글"), 183),
            format!("{}글", "한".repeat(60)),
            "whole where it fits"
        );
    }

    proptest! {
        #[test]
        fn neither_form_exceeds_its_limit(pieces in prop::collection::vec(any::<String>(), 0..40), most in 12_usize..300) {
            struct Pieces<'a>(&'a [String]);
            impl fmt::Display for Pieces<'_> {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    self.0.iter().try_for_each(|piece| f.write_str(piece))
                }
            }
            let whole = pieces.concat();
            let shortened = cut(Pieces(&pieces), most);
            prop_assert!(shortened.len() <= most + '…'.len_utf8());
            if whole.len() <= most {
                prop_assert_eq!(&shortened, &whole);
            } else {
                // The text may contain an ellipsis of its own.
                let mut marks = shortened.match_indices('…').map(|(at, mark)| (&shortened[..at], &shortened[at + mark.len()..]));
                prop_assert!(marks.any(|(head, tail)| whole.starts_with(head) && whole.ends_with(tail)));
            }
            prop_assert!(Quoted(&whole).to_string().len() <= HEAD + TAIL + 2 + '…'.len_utf8());
        }
    }
}
