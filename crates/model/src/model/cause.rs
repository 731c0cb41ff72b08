//! Errors on one line.

use std::any::Any;
use std::error::Error;

use super::quoted;

/// Most bytes of one error of a chain.
const LEVEL_BYTES: usize = 1_024;
/// Most bytes of a chain: a few hundred are usual.
pub const CHAIN_BYTES: usize = 4_096;

/// An error and every cause below it. What is long is cut in its middle, each error by itself, so that none pushes another out.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = quoted::cut(error, LEVEL_BYTES);
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&quoted::cut(error, LEVEL_BYTES));
        cause = error.source();
    }
    if text.len() > CHAIN_BYTES { quoted::cut(text, CHAIN_BYTES - '…'.len_utf8()) } else { text }
}

/// The message of a panic.
pub fn panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    quoted::cut(text.unwrap_or("a value that is no text"), LEVEL_BYTES)
}

/// The start of a text, at most `bytes` long, marked where it was cut.
pub fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(bytes.saturating_sub(3))]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Level {
        text: String,
        source: Option<Box<Self>>,
    }

    #[test]
    fn each_error_of_a_chain_says_how_it_begins_and_ends_however_long_the_others_are() {
        let level = |number: usize, length, source| Level { text: format!("begin{number} {} end{number}", "k".repeat(length)), source };
        let root = level(3, 20, None);
        let middle = level(2, 1 << 20, Some(Box::new(root)));
        let text = chain(&level(1, 5_000, Some(Box::new(middle))));
        assert!(text.len() < 2_200, "{text}");
        assert!(
            [1, 2, 3].iter().all(|number| text.contains(&format!("begin{number} k")) && text.contains(&format!("k end{number}"))),
            "{text}"
        );
        let deep = (0..20).fold(None, |source, number| Some(Box::new(level(number, 2_000, source))));
        let text = chain(&*deep.unwrap());
        assert!(text.len() <= CHAIN_BYTES && text.contains("begin19") && text.ends_with("end0"), "{text}");
    }
}
