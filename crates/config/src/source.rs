//! Sources for the `config` crate. Every value has its origin: a file and line, a variable or a flag.

use std::ops::Range;

use config::{ConfigError, Map, Value, ValueKind};
use toml::de::{DeTable, DeValue};

use super::duplicate::{Redeclaration, TextLines};
use super::finding::Finding;
use super::origin::{Layer, Origin, Origins};

/// Maximum nesting of tables and lists. A valid configuration needs five levels.
const MAX_DEPTH: usize = 16;
/// Maximum number of dots in a line that is not a comment. Lines are checked before parsing, because the parser creates a nested table
/// for each dot.
const MAX_DOTS: usize = 1_000;

const DUPLICATE: &str = "duplicate key";

#[derive(Debug, Clone)]
pub(super) struct LayerMap(Map<String, Value>);

impl config::Source for LayerMap {
    fn clone_into_box(&self) -> Box<dyn config::Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}

/// Whether a text can be one segment of a key. The `config` crate would read anything else as a path or an index.
pub(super) fn is_segment(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

impl LayerMap {
    /// Creates a layer with one value at one path (`worker.lease`, `queues[0].concurrency`). The segments of the path
    /// must have been checked.
    pub(super) fn one(path: String, value: &str, origin: Origin, origins: &mut Origins) -> Self {
        let id = origins.add(origin);
        Self(Map::from_iter([(
            path,
            Value::new(Some(&id), ValueKind::String(value.to_owned())),
        )]))
    }

    pub(super) fn toml(
        text: &str,
        layer: Layer,
        rank: usize,
        name: &str,
        origins: &mut Origins,
    ) -> (Self, Vec<Finding>) {
        let mut reader = SourceReader {
            lines: line_starts(text),
            layer,
            rank,
            name,
            origins,
            findings: Vec::new(),
        };
        if let Some(line) = text.lines().position(|line| {
            !line.trim_start().starts_with('#')
                && line.bytes().filter(|b| *b == b'.').count() > MAX_DOTS
        }) {
            let origin = Origin {
                layer,
                rank,
                name: name.to_owned(),
                line: Some(line + 1),
            };
            return (
                Self(Map::new()),
                vec![Finding::new(
                    Some(&origin),
                    "",
                    format!("expected at most {MAX_DOTS} dots in a line"),
                )],
            );
        }
        let (table, errors) = DeTable::parse_recoverable(text);
        let lines = TextLines::of(text);
        // The header of a table that is declared twice. The keys of this table are then declared twice as well, but only
        // the table is reported.
        let mut twice = None;
        for error in errors {
            let origin = reader.origin(&error.span().unwrap_or(0..0));
            let line = origin.line.unwrap_or(1);
            let (key, message) = match lines
                .redeclaration(line)
                .filter(|_| error.message() == DUPLICATE)
            {
                Some(again) if twice.is_some() && again.header == twice && !again.is_header => {
                    continue;
                }
                Some(Redeclaration {
                    header,
                    key,
                    first,
                    is_header,
                }) => {
                    if is_header {
                        twice = header;
                    }
                    (key, format!("already declared in {name}:{first}"))
                }
                None => (String::new(), format!("not TOML: {}", error.message())),
            };
            reader
                .findings
                .push(Finding::new(Some(&origin), key, message));
        }
        let mut values = Map::new();
        if reader.findings.is_empty() {
            for (key, value) in table.get_ref() {
                let name = key.get_ref().as_ref();
                if is_segment(name) {
                    let value = reader.value(value.get_ref(), value.span(), 1);
                    values.insert(name.to_owned(), value);
                } else {
                    let origin = reader.origin(&key.span());
                    reader
                        .findings
                        .push(Finding::new(Some(&origin), name, "unknown section"));
                }
            }
        }
        let findings = reader.findings;
        (Self(values), findings)
    }

    pub(super) fn names_in(&self, section: &str) -> Vec<(&String, &Value)> {
        match self.0.get(section).map(|value| &value.kind) {
            Some(ValueKind::Table(table)) => table.iter().collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn sections(text: &str) -> Vec<String> {
        let (table, _) = DeTable::parse_recoverable(text);
        table
            .get_ref()
            .keys()
            .map(|key| key.get_ref().to_string())
            .collect()
    }

    pub(super) fn without(mut self, sections: &[&str]) -> Self {
        self.0.retain(|name, _| !sections.contains(&name.as_str()));
        self
    }
}

struct SourceReader<'a> {
    lines: Vec<usize>,
    layer: Layer,
    rank: usize,
    name: &'a str,
    origins: &'a mut Origins,
    findings: Vec<Finding>,
}

impl SourceReader<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        let line = self.lines.partition_point(|start| *start <= span.start);
        Origin {
            layer: self.layer,
            rank: self.rank,
            name: self.name.to_owned(),
            line: Some(line.max(1)),
        }
    }

    fn value(&mut self, value: &DeValue<'_>, span: Range<usize>, depth: usize) -> Value {
        let origin = self.origin(&span);
        let id = self.origins.add(origin.clone());
        let mut refuse = |message: &str| {
            self.findings.push(Finding::new(Some(&origin), "", message));
            ValueKind::Nil
        };
        let kind = match value {
            DeValue::Table(_) | DeValue::Array(_) if depth >= MAX_DEPTH => refuse(&format!(
                "nested too deeply; expected at most {MAX_DEPTH} levels"
            )),
            DeValue::String(text) => ValueKind::String(text.clone().into_owned()),
            DeValue::Boolean(truth) => ValueKind::Boolean(*truth),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => ValueKind::I64(number),
                    Err(_) => refuse("the integer does not fit into 64 bits"),
                }
            }
            DeValue::Float(number) => number.as_str().parse().map_or_else(
                |_| refuse(&format!("expected a number, found {}", number.as_str())),
                ValueKind::Float,
            ),
            DeValue::Datetime(moment) => ValueKind::String(moment.to_string()),
            DeValue::Array(items) => ValueKind::Array(
                items
                    .iter()
                    .map(|item| self.value(item.get_ref(), item.span(), depth + 1))
                    .collect(),
            ),
            DeValue::Table(table) => ValueKind::Table(
                table
                    .iter()
                    .map(|(key, value)| {
                        // The span of a table's value does not cover its header line, so the span of its key is used.
                        let span = if value.get_ref().is_table() {
                            key.span()
                        } else {
                            value.span()
                        };
                        (
                            key.get_ref().clone().into_owned(),
                            self.value(value.get_ref(), span, depth + 1),
                        )
                    })
                    .collect(),
            ),
        };
        Value::new(Some(&id), kind)
    }
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0)
        .chain(
            text.bytes()
                .enumerate()
                .filter(|(_, b)| *b == b'\n')
                .map(|(at, _)| at + 1),
        )
        .collect()
}
