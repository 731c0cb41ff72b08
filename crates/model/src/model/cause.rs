//! Errors on one line.

use std::any::Any;
use std::error::Error;

/// An error and every cause below it.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// The message of a panic.
pub fn panic(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text").to_owned()
}

/// The start of a text, at most `bytes` long, marked where it was cut.
pub fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes { text.to_owned() } else { format!("{}…", &text[..text.floor_char_boundary(bytes.saturating_sub(3))]) }
}
