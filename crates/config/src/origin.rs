//! The origin of a value.

use std::fmt;

/// The kind of a layer of the configuration. Values of later layers override those of earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Built into the program.
    Default,
    File,
    Environment,
    Flag,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub layer: Layer,
    /// The position of the layer, counted from the lowest.
    pub(super) rank: usize,
    /// The path of the file, or the name of the variable or flag.
    pub name: String,
    /// The line of the file, from 1.
    pub line: Option<usize>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layer, self.line) {
            (Layer::Default | Layer::File, Some(line)) => write!(f, "{}:{line}", self.name),
            (Layer::Default | Layer::File, None) => f.write_str(&self.name),
            (Layer::Environment, _) => write!(f, "environment variable {}", self.name),
            (Layer::Flag, _) => write!(f, "flag {}", self.name),
        }
    }
}

/// All origins of a configuration. The `config` crate keeps a text with each value. This text is the index of the
/// value's origin in the list.
#[derive(Debug, Default)]
pub(super) struct Origins(Vec<Origin>);

impl Origins {
    /// Adds an origin and returns its index as a text.
    pub(super) fn add(&mut self, origin: Origin) -> String {
        self.0.push(origin);
        (self.0.len() - 1).to_string()
    }

    pub(super) fn get(&self, id: Option<&str>) -> Option<&Origin> {
        self.0.get(id?.parse::<usize>().ok()?)
    }
}
