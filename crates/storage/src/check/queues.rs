//! Limits of queue storage.

use std::time::Duration;

use super::Objection;
use crate::Ttl;
use evenkeel_model::limits;

/// Checks the size of a text, and that it has only characters that XML allows.
pub fn text(text: &str) -> Result<(), Objection> {
    if text.len() > limits::QUEUE_TEXT_BYTES {
        return Err(Objection::too_large(format!(
            "the text has {} bytes; at most 65,536 (64 KiB) are allowed",
            text.len()
        )));
    }
    match text.chars().find(|c| !is_xml(*c)) {
        Some(found) => Err(Objection::permanent(format!(
            "the text contains the character U+{:04X}, which XML does not allow",
            u32::from(found)
        ))),
        None => Ok(()),
    }
}

/// Whether an XML document can contain a character (XML 1.0, "Char"). Every message is checked, so the common case comes first.
const fn is_xml(c: char) -> bool {
    if c >= ' ' {
        !matches!(c, '\u{fffe}' | '\u{ffff}')
    } else {
        matches!(c, '\t' | '\n' | '\r')
    }
}

/// Checks a visibility timeout, and returns it in whole seconds. `least` is 0 s for a put or an update, and 1 s for a get.
pub fn visibility(time: Duration, least: u64) -> Result<Duration, Objection> {
    let rounded = whole_seconds(time);
    let seconds = rounded.as_secs();
    if (least..=limits::QUEUE_VISIBILITY_SECONDS).contains(&seconds) {
        return Ok(rounded);
    }
    Err(Objection::permanent(format!(
        "the visibility timeout is {seconds} s; {least} s to 604,800 s (7 days) are allowed"
    )))
}

/// Checks a time to live, and returns it in whole seconds. It must be longer than the initial delay. `None` is unlimited.
pub fn lifetime(ttl: Ttl, delay: Duration) -> Result<Option<Duration>, Objection> {
    let Ttl::After(lifetime) = ttl else {
        return Ok(None);
    };
    let (lifetime, delay) = (whole_seconds(lifetime), whole_seconds(delay));
    if lifetime.is_zero() {
        return Err(Objection::permanent(
            "the time to live is 0 s; at least 1 s is required",
        ));
    }
    if delay >= lifetime {
        return Err(Objection::permanent(format!(
            "a message that expires after {} s cannot be hidden for {} s",
            lifetime.as_secs(),
            delay.as_secs()
        )));
    }
    Ok(Some(lifetime))
}

/// Checks the number of messages of a get or peek.
pub fn batch(max: u32) -> Result<u8, Objection> {
    match u8::try_from(max) {
        Ok(number) if (1..=limits::QUEUE_BATCH).contains(&max) => Ok(number),
        _ => Err(Objection::permanent(format!(
            "{max} messages were requested; 1 to 32 are allowed"
        ))),
    }
}

/// Rounds up, so that half a second does not become zero.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(
        time.as_secs()
            .saturating_add(u64::from(time.subsec_nanos() > 0)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(
                visibility(Duration::from_millis(millis), 0).unwrap(),
                Duration::from_secs(seconds)
            );
        }
        assert!(visibility(Duration::ZERO, 1).is_err());
        assert!(visibility(Duration::MAX, 0).is_err());
        assert!(lifetime(Ttl::After(Duration::MAX), Duration::ZERO).is_ok());
    }

    #[test]
    fn the_characters_of_xml_are_allowed() {
        assert!(text("\t\n\r \u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}").is_ok());
        for bad in ['\u{0}', '\u{1}', '\u{b}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            assert!(text(&bad.to_string()).is_err(), "{bad:?}");
        }
    }
}
