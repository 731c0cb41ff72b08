//! Characters that differ from their looks.

/// Whether a character controls the display, or is not seen: control characters, those that turn the direction of writing, and other
/// format characters (Unicode, general categories Cc, Cf, Zl and Zp). The joiners of Arabic, Indic scripts and emoji (U+200C, U+200D) are
/// letters' own.
pub fn is_unprintable(character: char) -> bool {
    character.is_control() || is_format(character)
}

/// As [`is_unprintable`], but for control characters.
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

/// Text for a terminal, regardless of its source: characters that turn the direction of writing, or are not seen, are shown as escapes.
/// The colours of a terminal stay.
pub fn upright(text: &str) -> String {
    escaped(text, is_format, |safe, c| safe.extend(c.escape_default()))
}

/// As [`upright`], of JSON, and without other control characters: they stand in strings alone, where an escape says the same.
pub fn upright_json(json: &str) -> String {
    let is_hidden = |c: char| c != '\n' && is_unprintable(c);
    escaped(json, is_hidden, |safe, c| {
        safe.extend(
            c.encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}")),
        );
    })
}

/// A text with some of its characters escaped.
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
    fn what_turns_or_hides_text_is_told_from_letters() {
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
