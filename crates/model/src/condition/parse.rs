//! Parser of conditions.

use std::ops::Range;

use jiff::Timestamp;

use super::lex::{Lexeme, Lexer, NameKind};
use super::tree::{Condition, Expr};
use crate::caret::Caret;
use crate::entity::valid_property_name;
use crate::event::check_path;
use crate::nearest::nearest;
use crate::{Comparison, EdmValue};

/// Maximum length of a condition, in bytes.
const MAX_BYTES: usize = 8_192;
/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 64;

/// Words that cannot be property names.
pub(super) const KEYWORDS: [&str; 4] = ["and", "or", "not", "in"];
pub(super) const FUNCTIONS: [&str; 2] = ["exists", "startsWith"];

/// A syntax error in a condition, displayed on three lines: the problem, the condition, and carets under the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n{}", Caret::new(condition, span))]
pub struct ConditionError {
    /// The problem, and the expected input.
    pub message: String,
    /// The condition.
    pub condition: String,
    /// The faulty bytes.
    pub span: Range<usize>,
}

impl Condition {
    /// Parses a condition.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        Self::parse_with(text, None)
    }

    /// Parses a condition that may contain `Timestamp`, and `now` with this value.
    pub(super) fn parse_with(text: &str, now: Option<Timestamp>) -> Result<Self, ConditionError> {
        Self::parse_of(text, NameKind::Properties, now)
    }

    /// Parses a condition on the fields of an event: `type == "…" and data.contentLength > 0`.
    pub fn parse_of_event(text: &str) -> Result<Self, ConditionError> {
        Self::parse_of(text, NameKind::Fields, None)
    }

    fn parse_of(
        text: &str,
        names: NameKind,
        now: Option<Timestamp>,
    ) -> Result<Self, ConditionError> {
        if text.len() > MAX_BYTES {
            let message = format!("the condition is longer than {MAX_BYTES} bytes");
            let condition = text[..text.ceil_char_boundary(MAX_BYTES + 1)].to_owned();
            return Err(ConditionError {
                message,
                condition,
                span: MAX_BYTES..text.len(),
            });
        }
        let mut lexer = Lexer {
            text,
            at: 0,
            names,
            now,
        };
        let (token, span) = lexer.next()?;
        let mut parser = ConditionParser {
            lexer,
            token,
            span,
            depth: 0,
        };
        let root = parser.any()?;
        if parser.token != Lexeme::EndOfText {
            return parser.expected("\"and\", \"or\" or the end");
        }
        Ok(Self {
            text: text.to_owned(),
            root,
        })
    }
}

struct ConditionParser<'a> {
    lexer: Lexer<'a>,
    /// The current token, and its place.
    token: Lexeme,
    span: Range<usize>,
    depth: usize,
}

impl ConditionParser<'_> {
    fn error<T>(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Result<T, ConditionError> {
        Err(ConditionError {
            message: message.into(),
            condition: self.lexer.text.to_owned(),
            span,
        })
    }

    fn expected<T>(&self, what: &str) -> Result<T, ConditionError> {
        let hint = match &self.token {
            Lexeme::Word(word) => match word.to_lowercase().as_str() {
                lower @ ("and" | "or" | "not" | "in") if word != lower => {
                    format!("; did you mean {lower:?}?")
                }
                _ => String::new(),
            },
            _ => String::new(),
        };
        self.error(
            self.span.clone(),
            format!("expected {what}, found {}{hint}", self.token),
        )
    }

    /// Returns the current token and moves on to the next one.
    fn take(&mut self) -> Result<(Lexeme, Range<usize>), ConditionError> {
        let (token, span) = self.lexer.next()?;
        Ok((
            std::mem::replace(&mut self.token, token),
            std::mem::replace(&mut self.span, span),
        ))
    }

    fn sign(&mut self, sign: char, what: &str) -> Result<(), ConditionError> {
        if self.token == Lexeme::Sign(sign) {
            self.take().map(|_| ())
        } else {
            self.expected(what)
        }
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(&self.token, Lexeme::Word(found) if found == word)
    }

    fn any(&mut self) -> Result<Expr, ConditionError> {
        let mut nodes = vec![self.all()?];
        while self.at_word("or") {
            self.take()?;
            nodes.push(self.all()?);
        }
        Ok(single_or(nodes, Expr::Any))
    }

    fn all(&mut self) -> Result<Expr, ConditionError> {
        let mut nodes = vec![self.not()?];
        while self.at_word("and") {
            self.take()?;
            nodes.push(self.not()?);
        }
        Ok(single_or(nodes, Expr::All))
    }

    fn not(&mut self) -> Result<Expr, ConditionError> {
        let opens = self.token == Lexeme::Sign('(');
        if !opens && !self.at_word("not") {
            return self.test();
        }
        if self.depth == MAX_DEPTH {
            return self.error(
                self.span.clone(),
                format!("parentheses and \"not\" are nested deeper than {MAX_DEPTH}"),
            );
        }
        self.depth += 1;
        self.take()?;
        let node = if opens {
            let node = self.any()?;
            self.sign(')', "\"and\", \"or\" or ')'")?;
            node
        } else {
            Expr::Not(Box::new(self.not()?))
        };
        self.depth -= 1;
        Ok(node)
    }

    fn test(&mut self) -> Result<Expr, ConditionError> {
        const WHAT: &str = "a property, exists(…), startsWith(…), \"not\" or '('";
        let Lexeme::Word(word) = self.token.clone() else {
            return self.expected(WHAT);
        };
        if KEYWORDS.contains(&word.as_str()) {
            return self.expected(WHAT);
        }
        let (_, span) = self.take()?;
        if self.token == Lexeme::Sign('(') {
            return match word.as_str() {
                "exists" => self.exists(),
                "startsWith" => self.starts_with(),
                _ => {
                    let hint = match nearest(&word, FUNCTIONS) {
                        Some(known) => format!("did you mean {known:?}?"),
                        None => format!("known are {}", FUNCTIONS.join(" and ")),
                    };
                    self.error(span, format!("unknown function {word:?}; {hint}"))
                }
            };
        }
        self.check_property(&word, &span)?;
        match self.token.clone() {
            Lexeme::Operator(op) => {
                self.take()?;
                let (value, span) = self.value("a value")?;
                let ordered = !matches!(value, EdmValue::Bool(_) | EdmValue::Guid(_));
                if !ordered && !matches!(op, Comparison::Equal | Comparison::NotEqual) {
                    return self.error(
                        span,
                        "true, false and GUIDs can be compared only with == and !=",
                    );
                }
                Ok(Expr::Compare {
                    property: word,
                    op,
                    value,
                })
            }
            Lexeme::Word(found) if found == "in" => {
                self.take()?;
                self.sign('[', "'['")?;
                let mut values = vec![self.value("a value")?.0];
                while self.token == Lexeme::Sign(',') {
                    self.take()?;
                    values.push(self.value("a value")?.0);
                }
                self.sign(']', "',' or ']'")?;
                Ok(Expr::In {
                    property: word,
                    values,
                })
            }
            Lexeme::Word(_) | Lexeme::Value(_) | Lexeme::Sign(_) | Lexeme::EndOfText => {
                self.expected("one of == != < <= > >= in")
            }
        }
    }

    fn exists(&mut self) -> Result<Expr, ConditionError> {
        self.sign('(', "'('")?;
        let property = self.property()?;
        self.sign(')', "')'")?;
        Ok(Expr::Exists { property })
    }

    fn starts_with(&mut self) -> Result<Expr, ConditionError> {
        self.sign('(', "'('")?;
        let property = self.property()?;
        self.sign(',', "','")?;
        let prefix = match self.value("a text in double quotes")? {
            (EdmValue::String(prefix), _) => prefix,
            (_, span) => return self.error(span, "expected a text in double quotes"),
        };
        self.sign(')', "')'")?;
        Ok(Expr::StartsWith { property, prefix })
    }

    fn property(&mut self) -> Result<String, ConditionError> {
        let Lexeme::Word(word) = self.token.clone() else {
            return self.expected("a property");
        };
        let (_, span) = self.take()?;
        self.check_property(&word, &span)?;
        Ok(word)
    }

    fn check_property(&self, name: &str, span: &Range<usize>) -> Result<(), ConditionError> {
        if self.lexer.names == NameKind::Fields && !KEYWORDS.contains(&name) {
            return check_path(name).or_else(|problem| self.error(span.clone(), problem));
        }
        if name == "Timestamp" && self.lexer.now.is_none() {
            return self
                .error(span.clone(), "Timestamp cannot be used here: every write changes it, also evenkeel's own. Compare a property of your own");
        }
        if KEYWORDS.contains(&name) {
            return self.error(span.clone(), format!("expected a property, found {name:?}"));
        }
        if matches!(name, "PartitionKey" | "RowKey" | "Timestamp") || valid_property_name(name) {
            return Ok(());
        }
        self.error(
            span.clone(),
            "the property name is longer than 255 characters",
        )
    }

    fn value(&mut self, what: &str) -> Result<(EdmValue, Range<usize>), ConditionError> {
        if let Lexeme::Value(value) = self.token.clone() {
            let (_, span) = self.take()?;
            return Ok((value, span));
        }
        match &self.token {
            Lexeme::Word(word) if word == "now" => {
                self.error(self.span.clone(), "\"now\" is allowed only in jobs and rules, because the items of a view do not change with time")
            }
            Lexeme::Word(word) if nearest(word, ["true", "false"]).is_some() => self.expected("true or false"),
            Lexeme::Word(word) => self.expected(&format!("{what}; write texts in double quotes: \"{word}\"")),
            Lexeme::Value(_) | Lexeme::Operator(_) | Lexeme::Sign(_) | Lexeme::EndOfText => {
                self.expected(&format!("{what}, such as \"text\", 42, true, datetime'…' or guid'…'"))
            }
        }
    }
}

fn single_or(mut nodes: Vec<Expr>, many: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        Some(last) => {
            nodes.push(last);
            many(nodes)
        }
        None => many(nodes),
    }
}
