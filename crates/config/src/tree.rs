//! The merged configuration in a fixed order. Every value has its origin.

use std::collections::BTreeMap;

use config::{Value, ValueKind};
use serde::Serialize;
use serde_json::json;

use super::origin::{Origin, Origins};

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: Toml,
    pub(super) origin: Option<Origin>,
}

#[derive(Debug, Clone)]
pub(super) enum Toml {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
}

impl Node {
    /// Converts the merged values of the `config` crate to a tree with a fixed order. Nil values (gaps in a list) are
    /// left out.
    pub(super) fn of(value: Value, origins: &Origins) -> Option<Self> {
        let mut origin = origins.get(value.origin()).cloned();
        let kind =
            match value.kind {
                ValueKind::Nil => return None,
                ValueKind::Boolean(truth) => Toml::Bool(truth),
                ValueKind::I64(number) => Toml::Integer(number),
                ValueKind::I128(number) => i64::try_from(number)
                    .map_or_else(|_| Toml::Text(number.to_string()), Toml::Integer),
                ValueKind::U64(number) => i64::try_from(number)
                    .map_or_else(|_| Toml::Text(number.to_string()), Toml::Integer),
                ValueKind::U128(number) => i64::try_from(number)
                    .map_or_else(|_| Toml::Text(number.to_string()), Toml::Integer),
                ValueKind::Float(number) => Toml::Float(number),
                ValueKind::String(text) => Toml::Text(text),
                ValueKind::Array(items) => Toml::List(
                    items
                        .into_iter()
                        .filter_map(|item| Self::of(item, origins))
                        .collect(),
                ),
                ValueKind::Table(table) => Toml::Table(
                    table
                        .into_iter()
                        .filter_map(|(key, value)| Some((key, Self::of(value, origins)?)))
                        .collect(),
                ),
            };
        if let Toml::Table(table) = &kind {
            // The `config` crate drops the origin of a table that it merges. The table gets the origin of its first
            // value in the latest layer.
            let first = table.values().filter_map(|node| node.origin.as_ref());
            origin = origin.or_else(|| {
                first
                    .min_by_key(|origin| (usize::MAX - origin.rank, origin.line))
                    .cloned()
            });
        }
        Some(Self { kind, origin })
    }

    pub(super) const fn type_name(&self) -> &'static str {
        match self.kind {
            Toml::Bool(_) => "true or false",
            Toml::Integer(_) => "an integer",
            Toml::Float(_) => "a number",
            Toml::Text(_) => "a string",
            Toml::List(_) => "a list",
            Toml::Table(_) => "a table",
        }
    }

    fn toml(&self) -> String {
        match &self.kind {
            Toml::Bool(truth) => truth.to_string(),
            Toml::Integer(number) => number.to_string(),
            Toml::Float(number) => format!("{number:?}"),
            Toml::Text(text) => json!(text).to_string(),
            Toml::List(items) => format!(
                "[{}]",
                items.iter().map(Self::toml).collect::<Vec<_>>().join(", ")
            ),
            Toml::Table(table) => {
                let pairs: Vec<String> = table
                    .iter()
                    .map(|(key, node)| format!("{key} = {}", node.toml()))
                    .collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EffectiveValue {
    /// The key, such as `worker.lease` or `queues[0].name`.
    pub key: String,
    /// The value as TOML. A configuration contains no secrets.
    pub value: String,
    pub layer: super::Layer,
    pub origin: String,
}

pub(super) fn effective(root: &BTreeMap<String, Node>) -> Vec<EffectiveValue> {
    let mut found = Vec::new();
    for (key, node) in root {
        collect(key.clone(), node, &mut found);
    }
    // If a later layer changes an account to Azure, the database file that an earlier layer sets for it has no effect.
    let azure: Vec<String> = found
        .iter()
        .filter(|value| value.value == "\"azure\"")
        .filter_map(|value| {
            value
                .key
                .strip_suffix(".kind")
                .map(|account| format!("{account}.path"))
        })
        .collect();
    found.retain(|value| !azure.contains(&value.key));
    found
}

fn collect(path: String, node: &Node, found: &mut Vec<EffectiveValue>) {
    match &node.kind {
        Toml::Table(table) if !table.is_empty() => {
            for (key, child) in table {
                collect(format!("{path}.{key}"), child, found);
            }
        }
        Toml::List(items) if items.iter().any(|item| matches!(item.kind, Toml::Table(_))) => {
            for (at, item) in items.iter().enumerate() {
                collect(format!("{path}[{at}]"), item, found);
            }
        }
        Toml::Bool(_)
        | Toml::Integer(_)
        | Toml::Float(_)
        | Toml::Text(_)
        | Toml::List(_)
        | Toml::Table(_) => {
            found.push(EffectiveValue {
                key: path,
                value: node.toml(),
                layer: node
                    .origin
                    .as_ref()
                    .map_or(super::Layer::Default, |origin| origin.layer),
                origin: node
                    .origin
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default(),
            });
        }
    }
}
