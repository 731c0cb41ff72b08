//! Characters that are invisible or change how others are displayed.

/// Whether a character controls the display or is invisible: control characters, characters that change the direction of writing, and other
/// format characters (Unicode general categories Cc, Cf, Zl and Zp).
/// The joiners U+200C and U+200D are excluded, because words of Arabic and Indic scripts and emoji need them.
pub fn is_unprintable(character: char) -> bool {
    character.is_control() || is_format(character)
}

/// Like [`is_unprintable`], but false for control characters.
pub fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'
            | '\u{e0020}'..='\u{e007f}'
    )
}

/// Makes external text safe for a terminal: invisible characters, and those that change the direction of writing, are escaped. Terminal
/// colours stay.
pub fn escape_bidi(text: &str) -> String {
    escaped(text, is_format, |safe, c| safe.extend(c.escape_default()))
}

/// As [`escape_bidi`] for JSON. Control characters except line breaks are escaped too; JSON has them only in strings, where escapes are
/// equivalent.
pub fn escape_bidi_json(json: &str) -> String {
    let is_hidden = |c: char| c != '\n' && is_unprintable(c);
    escaped(json, is_hidden, |safe, c| {
        safe.extend(
            c.encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}")),
        );
    })
}

/// Escapes some characters of a text.
pub fn escaped(
    text: &str,
    is_hidden: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            escape(&mut safe, c);
        } else {
            safe.push(c);
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_turn_or_hide_text_are_recognised() {
        for character in [
            '\u{202e}',
            '\u{2066}',
            '\u{200b}',
            '\u{feff}',
            '\u{9b}',
            '\u{7f}',
            '\n',
            '\u{2028}',
            '\u{e0041}',
        ] {
            assert!(is_unprintable(character), "{character:?}");
        }
        for character in [
            'a', '한', 'ü', ' ', '\u{a0}', '\u{200d}', '\u{200c}', '\u{301}', '👩',
        ] {
            assert!(!is_unprintable(character), "{character:?}");
        }
    }
}
