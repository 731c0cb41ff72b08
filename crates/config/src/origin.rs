//! Where a value came from.

use std::fmt;

/// A layer of the configuration; a later one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// Built into the program.
    Default,
    /// A file of the configuration folder.
    File,
    /// The environment.
    Environment,
    /// The command line.
    Flag,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Which kind of layer.
    pub layer: Layer,
    /// Which of the layers, counted from the lowest.
    pub(super) rank: usize,
    /// The file's path, the variable's name, or the flag as given.
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

/// The origins of one loading. The `config` crate carries a text with each value; here it is a number in this list.
#[derive(Debug, Default)]
pub(super) struct Origins(Vec<Origin>);

impl Origins {
    /// Adds an origin and returns the text that stands for it.
    pub(super) fn add(&mut self, origin: Origin) -> String {
        self.0.push(origin);
        (self.0.len() - 1).to_string()
    }

    /// The origin that a text stands for.
    pub(super) fn get(&self, id: Option<&str>) -> Option<&Origin> {
        self.0.get(id?.parse::<usize>().ok()?)
    }
}
