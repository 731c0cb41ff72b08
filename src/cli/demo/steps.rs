//! Parses `steps.sh`, which uses only a small part of the shell's language. Pure.
//!
//! A line is a comment, an `evenkeel` command, `set -e`, or the assignment of `DAY`. Words are
//! quoted as in a shell, and `$DAY` stands for the day. A here-document is the standard input of a
//! command.

use anyhow::{Context as _, bail};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuideStep {
    /// The comments before the command.
    pub comments: Vec<String>,
    pub text: String,
    pub arguments: Vec<String>,
    pub input: String,
}

/// The assignment of `DAY` at the beginning of a script.
const DAY: &str = "DAY=$(date -u +%Y%m%d)";

/// Parses the commands of a script. `day` replaces `$DAY`.
pub(super) fn parse(script: &str, day: &str) -> anyhow::Result<Vec<GuideStep>> {
    let mut steps = Vec::new();
    let mut comments = Vec::new();
    // The first two lines of a script are its interpreter and its title.
    let mut lines = script.lines().skip(2);
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("# ") {
            comments.push(comment.to_owned());
            continue;
        }
        if line.is_empty() || line == "set -e" || line == DAY {
            continue;
        }
        let (text, end) = match line.rsplit_once(" <<") {
            Some((text, end)) => (text, Some(end)),
            None => (line, None),
        };
        let mut input = String::new();
        if let Some(end) = end {
            let quoted = end
                .strip_prefix('\'')
                .and_then(|end| end.strip_suffix('\''));
            for line in lines
                .by_ref()
                .take_while(|line| *line != quoted.unwrap_or(end))
            {
                input.push_str(&if quoted.is_some() {
                    line.to_owned()
                } else {
                    line.replace("$DAY", day)
                });
                input.push('\n');
            }
        }
        let mut words = words(text, day).with_context(|| line.to_owned())?;
        if words.first().map(String::as_str) != Some("evenkeel") {
            bail!("not an evenkeel command: {line}");
        }
        words.remove(0);
        let text = text.replace("$DAY", day);
        steps.push(GuideStep {
            comments: std::mem::take(&mut comments),
            text,
            arguments: words,
            input,
        });
    }
    Ok(steps)
}

fn words(text: &str, day: &str) -> anyhow::Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let (part, after) = match c {
            ' ' => {
                words.extend(word.take());
                rest = tail;
                continue;
            }
            '\'' => tail
                .split_once('\'')
                .map(|(part, after)| (part.to_owned(), after))
                .context("an unclosed quote")?,
            '"' => tail
                .split_once('"')
                .map(|(part, after)| (part.replace("$DAY", day), after))
                .context("an unclosed quote")?,
            '\\' | '|' | ';' | '&' | '<' | '>' | '`' | '$' | '*' | '(' => {
                bail!("{c:?} is not supported outside quotes")
            }
            _ => (c.to_string(), tail),
        };
        word.get_or_insert_default().push_str(&part);
        rest = after;
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_in_a_shell() {
        let found = words(r#"evenkeel lookup 'A b'  "T$DAY"x '' 'q>=1'"#, "20261120").unwrap();
        assert_eq!(
            found,
            ["evenkeel", "lookup", "A b", "T20261120x", "", "q>=1"]
        );
        for odd in ["a | b", "a 'b", "a $X", "a > b"] {
            words(odd, "").unwrap_err();
        }
    }

    #[test]
    fn a_script_is_its_commands_with_comments_and_input() {
        let script = "#!/bin/sh\n# Title\nset -e\n\n# Why.\nevenkeel submit - <<JOBS\nT$DAY\nJOBS\nevenkeel get 'a b'\n";
        let steps = parse(script, "20261120").unwrap();
        assert_eq!(steps.len(), 2);
        assert_eq!(
            (steps[0].comments.as_slice(), steps[0].input.as_str()),
            (["Why.".to_owned()].as_slice(), "T20261120\n")
        );
        assert_eq!(steps[1].arguments, ["get", "a b"]);
        parse("#!/bin/sh\n# Title\nrm -r x\n", "").unwrap_err();
    }
}
