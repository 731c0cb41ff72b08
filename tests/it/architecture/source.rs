//! Reads a Rust file as far as the names in it go: words and paths, without comments, strings and test code.

/// A word or a sign, and the line it stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

/// A file, without comments, strings and what is only compiled for tests.
pub(crate) struct Source {
    tokens: Vec<Token>,
    test_modules: Vec<String>,
}

impl Source {
    pub(crate) fn read(text: &str) -> Self {
        let tokens = tokens(text);
        let (mut kept, mut test_modules) = (Vec::new(), Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            let Some(length) = test_item(&tokens[at..]) else {
                kept.push(tokens[at].clone());
                at += 1;
                continue;
            };
            let item = &tokens[at..at + length];
            let word = |n: usize| item.get(length - n).map(|token| token.text.as_str());
            if (word(1), word(3)) == (Some(";"), Some("mod")) {
                test_modules.extend(word(2).map(str::to_owned));
            }
            at += length;
        }
        Self {
            tokens: kept,
            test_modules,
        }
    }

    /// Modules that stand in files of their own and are only compiled for tests.
    pub(crate) fn test_modules(&self) -> &[String] {
        &self.test_modules
    }

    /// The top-level modules of this crate that are named here, by `crate::`, `evenkeel::`, or `super::` from
    /// the module `here`.
    pub(crate) fn rooms_named(&self, here: &[String]) -> Vec<(usize, String)> {
        let mut named = Vec::new();
        for at in 0..self.tokens.len() {
            let inside_a_path = at > 0 && self.is(at - 1, "::");
            let after = match self.text(at) {
                "crate" | "evenkeel" => at + 1,
                "super" if !inside_a_path => {
                    let mut supers = 1;
                    while self.is(at + supers * 2 - 1, "::") && self.is(at + supers * 2, "super") {
                        supers += 1;
                    }
                    if supers != here.len() {
                        continue;
                    }
                    at + supers * 2 - 1
                }
                _ => continue,
            };
            if self.is(after, "::") {
                named.extend(
                    self.first_parts(after + 1)
                        .into_iter()
                        .map(|part| (self.tokens[at].line, part)),
                );
            }
        }
        named
    }

    /// The first parts of a path, or of each path of a `{group}`, that begins at a token.
    fn first_parts(&self, at: usize) -> Vec<String> {
        if !self.is(at, "{") {
            return vec![self.text(at).to_owned()];
        }
        let (mut parts, mut depth, mut next) = (Vec::new(), 1, at + 1);
        let mut begins = true;
        while depth > 0 && next < self.tokens.len() {
            match self.text(next) {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," if depth == 1 => {
                    begins = true;
                    next += 1;
                    continue;
                }
                word if begins && depth == 1 => parts.push(word.to_owned()),
                _ => {}
            }
            begins = false;
            next += 1;
        }
        parts
    }

    /// Paths that begin with one of these (`std::fs`, or `azure_` for whatever begins so).
    pub(crate) fn paths_beginning_with(&self, beginnings: &[&str]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for at in 0..self.tokens.len() {
            if at > 0 && self.is(at - 1, "::") {
                continue;
            }
            let ends_use = self.is(at + 1, ";") && at > 0 && self.is(at - 1, "use");
            if !self.is(at + 1, "::") && !ends_use {
                continue;
            }
            let first = self.text(at);
            for beginning in beginnings {
                let names = match beginning.split_once("::") {
                    Some((library, part)) => {
                        first == library
                            && self.is(at + 1, "::")
                            && self.first_parts(at + 2).iter().any(|p| p == part)
                    }
                    None if beginning.ends_with('_') => first.starts_with(beginning),
                    None => first == *beginning,
                };
                if names {
                    found.push((self.tokens[at].line, (*beginning).to_owned()));
                }
            }
        }
        found
    }

    /// Where these words stand.
    pub(crate) fn words(&self, words: &[&str]) -> Vec<(usize, String)> {
        self.tokens
            .iter()
            .filter(|token| words.contains(&token.text.as_str()))
            .map(|token| (token.line, token.text.clone()))
            .collect()
    }

    fn text(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| token.text.as_str())
    }

    fn is(&self, at: usize, text: &str) -> bool {
        self.text(at) == text
    }
}

/// How many tokens the item takes that begins here, where it is marked `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_item(tokens: &[Token]) -> Option<usize> {
    let begins = |text: &[&str]| {
        tokens.len() >= text.len()
            && tokens
                .iter()
                .zip(text)
                .all(|(token, text)| token.text == *text)
    };
    if !begins(&["#", "[", "cfg", "(", "test", ")", "]"])
        && !begins(&["#", "[", "cfg", "(", "all", "(", "test"])
    {
        return None;
    }
    let (mut depth, mut in_attribute) = (0_usize, true);
    for (at, token) in tokens.iter().enumerate().skip(1) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token.text == "}" {
                    return Some(at + 1);
                }
                if depth == 0 && in_attribute {
                    in_attribute = tokens.get(at + 1).is_some_and(|next| next.text == "#");
                }
            }
            ";" if depth == 0 => return Some(at + 1),
            _ => {}
        }
    }
    Some(tokens.len())
}

fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    let word = |c: char| c.is_alphanumeric() || c == '_';
    while at < chars.len() {
        let rest = &chars[at..];
        let length = match rest {
            ['/', '/', ..] => rest.iter().take_while(|c| **c != '\n').count(),
            ['/', '*', ..] => block_comment(rest),
            ['"', ..] => string(rest),
            ['b' | 'c', '"', ..] => 1 + string(&rest[1..]),
            ['b', '\'', ..] => 1 + character(&rest[1..]),
            ['\'', ..] => character(rest),
            ['r', '"' | '#', ..] => raw_string(rest, 1),
            ['b' | 'c', 'r', '"' | '#', ..] => raw_string(rest, 2),
            [':', ':', ..] => {
                tokens.push(Token {
                    text: "::".to_owned(),
                    line,
                });
                2
            }
            [c, ..] if word(*c) => {
                let length = rest.iter().take_while(|c| word(**c)).count();
                tokens.push(Token {
                    text: rest[..length].iter().collect(),
                    line,
                });
                length
            }
            [c, ..] => {
                if !c.is_whitespace() {
                    tokens.push(Token {
                        text: c.to_string(),
                        line,
                    });
                }
                1
            }
            [] => break,
        };
        line += rest[..length].iter().filter(|c| **c == '\n').count();
        at += length;
    }
    tokens
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// A character; or the quote of a lifetime alone, whose name is then a word that no rule looks for.
fn character(rest: &[char]) -> usize {
    match rest {
        [_, '\\', _, tail @ ..] => 3 + tail.iter().take_while(|c| **c != '\'').count() + 1,
        [_, _, '\'', ..] => 3,
        _ => 1,
    }
}

/// A raw string, or the first letters of a word or a raw identifier that only look like one.
fn raw_string(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return prefix + hashes;
    }
    let mut at = prefix + hashes + 1;
    while at < rest.len() {
        if rest[at] == '"'
            && rest[at + 1..]
                .iter()
                .take(hashes)
                .filter(|c| **c == '#')
                .count()
                == hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}

#[test]
fn paths_are_found_however_they_are_written() {
    let source = Source::read(
        "use crate::model::{Key, worker};\nuse crate::{ports, catalog::{View, cli}, self as this};\nfn f() -> crate::settings::Settings { super::super::reconcile::run(); super::near() }",
    );
    let named: Vec<(usize, String)> =
        source.rooms_named(&["worker".to_owned(), "lease".to_owned()]);
    let named: Vec<(usize, &str)> = named
        .iter()
        .map(|(line, name)| (*line, name.as_str()))
        .collect();
    assert_eq!(
        named,
        [
            (1, "model"),
            (2, "ports"),
            (2, "catalog"),
            (2, "self"),
            (3, "settings"),
            (3, "reconcile")
        ]
    );
}

#[test]
fn comments_strings_and_tests_do_not_count() {
    let source = Source::read(
        "//! [`crate::a`]\n/* crate::b /* crate::c */ crate::d */\nconst S: &str = \"crate::e \\\" crate::f\";\nconst R: &str = r#\"crate::g \" crate::h\"#;\nfn f<'a>(x: &'a str) -> char { '\"' }\n#[cfg(test)]\n#[expect(unused, reason = \"}\")]\nmod tests {\n    use crate::i;\n}\n#[cfg(test)]\nmod more;\nuse crate::j;\n",
    );
    assert_eq!(source.rooms_named(&[]), [(13, "j".to_owned())]);
    assert_eq!(source.test_modules(), ["more"]);
}

#[test]
fn libraries_are_known_by_the_beginning_of_a_path() {
    let source = Source::read(
        "use azure_core::Url;\nuse std::{fs, io};\nuse tokio;\nlet tokio = x.tokio; crate::azure_like::f(); my::tokio::f()\n",
    );
    let found = source.paths_beginning_with(&["azure_", "std::fs", "std::env", "tokio"]);
    assert_eq!(
        found,
        [
            (1, "azure_".to_owned()),
            (2, "std::fs".to_owned()),
            (3, "tokio".to_owned())
        ]
    );
}
