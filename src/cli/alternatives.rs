//! Options that users may expect but that do not exist. The error message for such an option names
//! an alternative.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

const ALTERNATIVES: [(&str, &str); 3] = [
    (
        "--list",
        "`evenkeel submit --pack 1000 - < jobs.jsonl` puts up to 1,000 single jobs into a message; `evenkeel backfill` syncs a whole table",
    ),
    (
        "--wait",
        "the command waits a minute for a store that does not answer; to wait longer, repeat `evenkeel migrate up`, which is safe",
    ),
    (
        "--entities",
        "a sample has 1,000 entities at most; to choose them yourself, write them to a file for --sample",
    ),
];

/// Adds the alternative to the error message for an unknown option, if there is one.
#[must_use]
pub fn with_alternative(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    if let Some((_, instead)) = ALTERNATIVES
        .into_iter()
        .find(|(argument, _)| argument == found)
    {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(instead)]),
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn an_unknown_option_is_refused_with_its_alternative() {
        for (command, instead) in [
            (
                &[
                    "submit",
                    "--list",
                    "keys.jsonl",
                    r#"{"op":"sync","table":"Employees"}"#,
                ][..],
                "submit --pack 1000",
            ),
            (
                &["migrate", "up", "--wait", "5m"],
                "repeat `evenkeel migrate up`",
            ),
            (&["stress", "--entities", "400"], "1,000 entities at most"),
        ] {
            let error = with_alternative(
                Cli::try_parse_from([&["evenkeel"], command].concat()).unwrap_err(),
            );
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.contains(instead), "{error}");
        }
    }
}
