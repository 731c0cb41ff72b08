//! Error chains on one line.

use std::any::Any;
use std::error::Error;

use super::quoted;

/// Maximum bytes of one error of a chain.
const LEVEL_BYTES: usize = 1_024;
/// Maximum bytes of a chain. A few hundred are usual.
pub const CHAIN_BYTES: usize = 4_096;

/// Formats an error with all its causes. Each error of the chain that is too long is cut in its middle, so that no error displaces another.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = quoted::cut(error, LEVEL_BYTES);
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&quoted::cut(error, LEVEL_BYTES));
        cause = error.source();
    }
    if text.len() > CHAIN_BYTES {
        quoted::cut(text, CHAIN_BYTES - '…'.len_utf8())
    } else {
        text
    }
}

/// Removes the quoted value from an error of a JSON reader, because the value may be that of an encrypted property. Field names and the
/// expected type stay.
pub fn without_value(error: &str) -> String {
    if ["missing field", "duplicate field", "unknown field"]
        .iter()
        .any(|about| error.starts_with(about))
    {
        return error.to_owned();
    }
    // The expected type comes last, whatever the value contains.
    let (found, expected) = error
        .rfind(", expected ")
        .map_or((error, ""), |at| error.split_at(at));
    let Some((before, quoted)) = found.find(['"', '`']).map(|at| found.split_at(at)) else {
        return error.to_owned();
    };
    let after = match quoted.strip_prefix('"') {
        Some(text) => {
            let mut escaped = false;
            let ends = |byte| {
                let ends = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                ends
            };
            text.bytes()
                .position(ends)
                .map_or("", |end| &text[end + 1..])
        }
        // A text between backticks has no escapes and may contain backticks, so it ends at the last backtick.
        None => quoted.rfind('`').map_or("", |end| &quoted[end + 1..]),
    };
    format!("{before}…{after}{expected}")
}

/// Returns the beginning of the description of a failed step, without the keys that follow.
pub fn step(step: &str) -> &str {
    // Names of blobs and files follow the container or folder, and names of documents follow the word "document".
    let before = step
        .split(['(', '[', '"', ':', '/'])
        .next()
        .unwrap_or_default();
    let document = before
        .find("document ")
        .map_or(before.len(), |at| at + "document".len());
    before[..document].trim_end()
}

/// Formats an error for readers who may not see contents: the failed step, and its outcome.
pub fn in_short(of_step: &str, ending: &str) -> String {
    match step(of_step) {
        "" => ending.to_owned(),
        step => format!("{step}: {ending}"),
    }
}

/// Returns the message of a panic.
pub fn panic(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    quoted::cut(
        text.unwrap_or("a panic payload that is not text"),
        LEVEL_BYTES,
    )
}

/// Returns the start of a text, at most `bytes` long, with an ellipsis if it was cut.
pub fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        text.to_owned()
    } else {
        format!(
            "{}…",
            &text[..text.floor_char_boundary(bytes.saturating_sub(3))]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::{Value, json};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only what cannot be read is of interest")]
    struct Fields {
        truth: bool,
        #[serde(default)]
        mode: Option<Mode>,
        #[serde(default)]
        table: Option<crate::TableName>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        Replace,
        Merge,
    }

    #[test]
    fn in_short_an_error_names_no_key() {
        assert_eq!(
            in_short(
                "writing EmployeesByEmail(\"email_Sales\", \"kim@contoso.com\")",
                "permanent"
            ),
            "writing EmployeesByEmail: permanent"
        );
        for (step, shown) in [
            (
                "writing photos/employees/Sales/000223/Photo-5a of view photos",
                "writing photos",
            ),
            ("changing lists/Kim.jsonl", "changing lists"),
            ("reading /srv/archive/Sales/000223.json", "reading"),
            (
                "reading document U2FsZXM in people of the sink catalog, derived from Employees(\"Sales\", \"7\")",
                "reading document",
            ),
            (
                "dropping [\"Sales\",\"7\"] in lists/Kim.jsonl of view by_name",
                "dropping",
            ),
            (
                "reading evenkeel-staging/kim@contoso.com, which was staged for Employees",
                "reading evenkeel-staging",
            ),
        ] {
            assert_eq!(super::step(step), shown);
        }
        assert_eq!(in_short("", "skipped"), "skipped");
    }

    #[test]
    fn no_value_is_in_the_error_of_a_reader_and_what_was_expected_is() {
        let problem = |fields: Value| {
            without_value(
                &serde_json::from_value::<Fields>(fields)
                    .unwrap_err()
                    .to_string(),
            )
        };
        for value in [
            "987-65",
            "9`8`7-65",
            "\"987-65",
            "987-65, expected \"x\"",
            "\u{7f}987-65\\",
        ] {
            assert_eq!(
                problem(json!({"truth": value})),
                "invalid type: string …, expected a boolean"
            );
            assert_eq!(
                problem(json!({"truth": true, "mode": value})),
                "unknown variant …, expected `replace` or `merge`"
            );
            let table = problem(json!({"truth": true, "table": value}));
            assert!(
                !table.contains("987") && table.contains("is not a table name"),
                "{table}"
            );
        }
        assert_eq!(
            problem(json!({"truth": 98_765})),
            "invalid type: integer …, expected a boolean"
        );
        assert_eq!(
            problem(json!({"truth": {"a": 1}})),
            "invalid type: map, expected a boolean"
        );
        assert_eq!(problem(json!({})), "missing field `truth`");
        assert_eq!(
            problem(json!({"truth": true, "color": "red"})),
            "unknown field `color`, expected one of `truth`, `mode`, `table`"
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Level {
        text: String,
        source: Option<Box<Self>>,
    }

    #[test]
    fn each_error_of_a_chain_says_how_it_begins_and_ends_however_long_the_others_are() {
        let level = |number: usize, length, source| Level {
            text: format!("begin{number} {} end{number}", "k".repeat(length)),
            source,
        };
        let root = level(3, 20, None);
        let middle = level(2, 1 << 20, Some(Box::new(root)));
        let text = chain(&level(1, 5_000, Some(Box::new(middle))));
        assert!(text.len() < 2_200, "{text}");
        assert!(
            [1, 2, 3]
                .iter()
                .all(|number| text.contains(&format!("begin{number} k"))
                    && text.contains(&format!("k end{number}"))),
            "{text}"
        );
        let deep = (0..20).fold(None, |source, number| {
            Some(Box::new(level(number, 2_000, source)))
        });
        let text = chain(&*deep.unwrap());
        assert!(
            text.len() <= CHAIN_BYTES && text.contains("begin19") && text.ends_with("end0"),
            "{text}"
        );
    }
}
