//! `kind = "large_entity"`: large values in blobs, with pointers in their place.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::Form;
use crate::catalog::view::OnConflict;
use crate::model::{AccountName, ContainerName};

/// `kind = "large_entity"`: large values in blobs, with pointers in their place. A table has at most one such view, and every
/// primary of the table is in it.
#[derive(Debug, Clone)]
pub struct LargeEntity {
    /// The account of the container.
    pub account: AccountName,
    /// The container of the values.
    pub container: ContainerName,
    /// The properties whose values are stored there above the threshold. (A value that would break a limit of the service is stored
    /// there in any case.)
    pub properties: BTreeSet<String>,
    /// In bytes: of UTF-8 for a string.
    pub threshold: u64,
    /// Whether half of an entity's properties move into one blob when there are more than its row takes.
    pub spill: bool,
}

impl<P> Kind<P> for LargeEntity {
    fn name(&self) -> &'static str {
        "large_entity"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Values(self)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.properties.iter().map(String::as_str).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        let spilling = if self.spill { " spilling" } else { "" };
        format!("properties {} above {}{spilling}", canonical::set(&self.properties), self.threshold)
    }
}
