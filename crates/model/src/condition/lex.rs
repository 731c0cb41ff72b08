//! Lexer of conditions.

use std::fmt;
use std::ops::Range;

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::parse::ConditionError;
use crate::entity::in_property_name;
use crate::units::parse_duration;
use crate::{Comparison, EdmDateTime, EdmValue};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Lexeme {
    /// A property name or a keyword.
    Word(String),
    /// A literal.
    Value(EdmValue),
    /// `== != < <= > >=`
    Operator(Comparison),
    Sign(char),
    /// The end of the text.
    EndOfText,
}

impl fmt::Display for Lexeme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => write!(f, "{word:?}"),
            Self::Value(EdmValue::String(_)) => f.write_str("a text"),
            Self::Value(EdmValue::Bool(truth)) => write!(f, "\"{truth}\""),
            Self::Value(EdmValue::DateTime(_)) => f.write_str("a datetime"),
            Self::Value(EdmValue::Guid(_)) => f.write_str("a guid"),
            Self::Value(_) => f.write_str("a number"),
            Self::Operator(_) => f.write_str("an operator"),
            Self::Sign(sign) => write!(f, "'{sign}'"),
            Self::EndOfText => f.write_str("the end"),
        }
    }
}

/// Kind of the names in a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Properties of an entity.
    Properties,
    /// Fields of an event: paths with dots.
    Fields,
}

pub(super) struct Lexer<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// The moment that `now` stands for; `None` if `now` is not allowed.
    pub(super) now: Option<Timestamp>,
    pub(super) names: NameKind,
}

/// Parses a text that is a single string literal, such as `"Sales"`.
pub(crate) fn quoted_text(literal: &str) -> Result<String, String> {
    let mut lexer = Lexer {
        text: literal,
        at: 0,
        now: None,
        names: NameKind::Properties,
    };
    match lexer.next() {
        Ok((Lexeme::Value(EdmValue::String(text)), span)) if span.end == literal.len() => Ok(text),
        Ok(_) => Err("unexpected text after the closing quote".to_owned()),
        Err(error) => Err(error.message),
    }
}

impl Lexer<'_> {
    fn error<T>(
        &self,
        span: Range<usize>,
        message: impl Into<String>,
    ) -> Result<T, ConditionError> {
        Err(ConditionError {
            message: message.into(),
            condition: self.text.to_owned(),
            span,
        })
    }

    /// Returns the next token and its place.
    pub(super) fn next(&mut self) -> Result<(Lexeme, Range<usize>), ConditionError> {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        let start = self.at;
        let Some(first) = rest.chars().next() else {
            return Ok((Lexeme::EndOfText, start..start));
        };
        let token = match first {
            '(' | ')' | '[' | ']' | ',' => {
                self.at += 1;
                Lexeme::Sign(first)
            }
            '"' => self.string()?,
            '=' | '!' | '<' | '>' => self.operator(rest)?,
            '0'..='9' | '-' | '+' | '.' => self.number()?,
            _ if in_property_name(first) => self.word()?,
            '&' | '|' => {
                let word = if first == '&' { "and" } else { "or" };
                let length = rest.chars().take_while(|c| *c == first).count();
                return self.error(start..start + length, format!("write {word:?}"));
            }
            '\'' | '“' | '”' | '‘' | '’' => {
                return self.error(
                    start..start + first.len_utf8(),
                    "write texts in double quotes, such as \"Sales\"",
                );
            }
            _ => {
                return self.error(
                    start..start + first.len_utf8(),
                    format!("unexpected {first:?}; expected a property, a value, an operator or a parenthesis"),
                );
            }
        };
        Ok((token, start..self.at))
    }

    fn operator(&mut self, rest: &str) -> Result<Lexeme, ConditionError> {
        let start = self.at;
        let (op, length) = match rest.as_bytes() {
            [b'=', b'=', ..] => (Comparison::Equal, 2),
            [b'!', b'=', ..] => (Comparison::NotEqual, 2),
            [b'<', b'=', ..] => (Comparison::LessOrEqual, 2),
            [b'>', b'=', ..] => (Comparison::GreaterOrEqual, 2),
            [b'<', b'>', ..] => return self.error(start..start + 2, "write \"!=\""),
            [b'<', ..] => (Comparison::Less, 1),
            [b'>', ..] => (Comparison::Greater, 1),
            [b'=', ..] => return self.error(start..start + 1, "write \"==\" to compare"),
            _ => return self.error(start..start + 1, "write \"not\""),
        };
        self.at += length;
        Ok(Lexeme::Operator(op))
    }

    fn number(&mut self) -> Result<Lexeme, ConditionError> {
        let start = self.at;
        let mut previous = ' ';
        let length = self.text[start..]
            .find(|c: char| {
                let part = c.is_ascii_alphanumeric()
                    || c == '.'
                    || (matches!(c, '+' | '-') && matches!(previous, ' ' | 'e' | 'E'));
                previous = c;
                !part
            })
            .unwrap_or(self.text.len() - start);
        self.at += length.max(1);
        let text = &self.text[start..self.at];
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        if digits(unsigned) {
            return match text.parse() {
                Ok(number) => Ok(Lexeme::Value(EdmValue::Int64(number))),
                Err(_) => self.error(start..self.at, "the integer does not fit into Edm.Int64"),
            };
        }
        // A digit must stand on both sides of the point. This refuses ".5", and also "inf", which the number parser would accept.
        let shaped = unsigned.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_digit())
            && !text.contains(".e")
            && !text.contains(".E");
        match text.parse::<f64>() {
            Ok(number) if shaped && number.is_finite() => {
                Ok(Lexeme::Value(EdmValue::Double(number)))
            }
            _ => self.error(start..self.at, "not a number such as 42, -1, 4.2 or 1.5e3"),
        }
    }

    fn word(&mut self) -> Result<Lexeme, ConditionError> {
        let start = self.at;
        let rest = &self.text[start..];
        let length = rest
            .find(|c: char| {
                !in_property_name(c) && (c != '.' || self.names == NameKind::Properties)
            })
            .unwrap_or(rest.len());
        let word = &rest[..length];
        self.at += length;
        if !rest[length..].starts_with('\'') {
            return Ok(match word {
                "true" => Lexeme::Value(EdmValue::Bool(true)),
                "false" => Lexeme::Value(EdmValue::Bool(false)),
                "now" if let Some(now) = self.now => self.moment(now, start)?,
                _ => Lexeme::Word(word.to_owned()),
            });
        }
        let inner = start + length + 1;
        let Some(quoted) = self.text[inner..].find('\'') else {
            return self.error(start..self.text.len(), "the quote is not closed");
        };
        let (literal, span) = (&self.text[inner..inner + quoted], inner..inner + quoted);
        self.at = span.end + 1;
        match word {
            "datetime" => match EdmDateTime::parse(literal) {
                Ok(moment) => Ok(Lexeme::Value(EdmValue::DateTime(moment))),
                Err(error) => self.error(span, error.to_string()),
            },
            "guid" => match Uuid::parse_str(literal) {
                Ok(guid) => Ok(Lexeme::Value(EdmValue::Guid(guid))),
                Err(_) => self.error(
                    span,
                    "not a GUID such as c9da6455-213d-42c9-9a79-3e9149a57833",
                ),
            },
            _ => self.error(
                start..start + length,
                format!("unknown kind of literal {word:?}; expected datetime'…' or guid'…'"),
            ),
        }
    }

    /// Parses the rest of `now`: a duration that is added or subtracted.
    fn moment(&mut self, now: Timestamp, start: usize) -> Result<Lexeme, ConditionError> {
        let rest = self.text[self.at..].trim_start();
        let sign = rest.chars().next().filter(|sign| matches!(sign, '-' | '+'));
        let mut moment = Ok(now);
        if let Some(sign) = sign {
            let rest = rest[1..].trim_start();
            let from = self.text.len() - rest.len();
            self.at = from
                + rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
            let duration = match parse_duration(&self.text[from..self.at]) {
                Ok(duration) => SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX),
                Err(expected) => {
                    return self.error(from..self.at.max(from + 1).min(self.text.len()), expected);
                }
            };
            moment = if sign == '-' {
                now.checked_sub(duration)
            } else {
                now.checked_add(duration)
            };
        }
        match moment
            .ok()
            .and_then(|moment| EdmDateTime::from_timestamp(moment).ok())
        {
            Some(moment) => Ok(Lexeme::Value(EdmValue::DateTime(moment))),
            None => self.error(
                start..self.at,
                "the moment is outside the years 1601 to 9999",
            ),
        }
    }

    fn string(&mut self) -> Result<Lexeme, ConditionError> {
        let open = self.at;
        let mut value = String::new();
        let mut chars = self.text[open + 1..]
            .char_indices()
            .map(|(at, c)| (open + 1 + at, c));
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = at + 1;
                    return Ok(Lexeme::Value(EdmValue::String(value)));
                }
                '\\' => match chars.next() {
                    Some((_, '"')) => value.push('"'),
                    Some((_, '\\')) => value.push('\\'),
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'u')) => {
                        let rest = &self.text[at + 2..];
                        let end = rest.find('}').filter(|end| (2..=7).contains(end));
                        let code = end
                            .and_then(|end| rest[..end].strip_prefix('{'))
                            .filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))
                            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                        let Some((c, end)) = code.and_then(char::from_u32).zip(end) else {
                            return self.error(
                                at..at + 2,
                                "expected a character as \\u{1F600}, with one to six hex digits",
                            );
                        };
                        value.push(c);
                        chars.nth(end);
                    }
                    _ => {
                        return self.error(
                            at..at + 1,
                            "unknown escape; expected \\\" \\\\ \\n \\r \\t or \\u{…}",
                        );
                    }
                },
                c => value.push(c),
            }
        }
        self.error(open..self.text.len(), "the quote is not closed")
    }
}
