//! `kind = "denormalize"` with `targets = "range"`: properties of a primary, kept on all entities of a range.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::Form;
use crate::catalog::place::TargetRef;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "denormalize"` with `targets = "range"`: properties of a primary, kept on all entities of a partition, or of a range of
/// its row keys.
#[derive(Debug, Clone)]
pub struct DenormalizeRange<P = TargetRef> {
    /// The table of the entities.
    pub target: P,
    /// The partition key of the entities.
    pub partition_key: Template,
    /// The range within the partition.
    pub rows: RangeRows,
    /// The properties, by name.
    pub set: BTreeMap<String, Template>,
}

/// The row keys of a range.
#[derive(Debug, Clone)]
pub enum RangeRows {
    /// All of the partition.
    All,
    /// Those with a prefix.
    Prefix(Template),
    /// A half-open interval.
    Between {
        /// The first; open where absent.
        from: Option<Template>,
        /// The one behind the last; open where absent.
        before: Option<Template>,
    },
}

impl RangeRows {
    /// The templates of its ends.
    fn templates(&self) -> Vec<&Template> {
        match self {
            Self::All => Vec::new(),
            Self::Prefix(prefix) => vec![prefix],
            Self::Between { from, before } => from.iter().chain(before).collect(),
        }
    }
}

impl fmt::Display for RangeRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |template: &Option<Template>| template.as_ref().map_or_else(|| "open".to_owned(), canonical::quoted);
        match self {
            Self::All => f.write_str("all"),
            Self::Prefix(prefix) => write!(f, "prefix {}", canonical::quoted(prefix)),
            Self::Between { from, before } => write!(f, "from {} before {}", text(from), text(before)),
        }
    }
}

impl<P> Kind<P> for DenormalizeRange<P> {
    fn name(&self) -> &'static str {
        "denormalize"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Claims(self)
    }

    fn properties(&self) -> BTreeSet<&str> {
        let templates = self.set.values().chain([&self.partition_key]).chain(self.rows.templates());
        templates.flat_map(Template::properties).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("set {}", canonical::map(&self.set))
    }
}

impl<P> DenormalizeRange<P> {
    /// The same kind with its target elsewhere.
    pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> DenormalizeRange<Q> {
        DenormalizeRange {
            target: place(&self.target),
            partition_key: self.partition_key.clone(),
            rows: self.rows.clone(),
            set: self.set.clone(),
        }
    }
}
