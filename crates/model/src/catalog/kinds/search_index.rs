//! `kind = "search_index"`: a document of a search service for each primary.

use std::collections::{BTreeMap, BTreeSet};

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::Form;
use crate::catalog::view::OnConflict;
use crate::model::template::Template;
use crate::model::{AccountName, CollectionName};

/// `kind = "search_index"`: a document of a search service for each primary, under a key made of the primary's.
#[derive(Debug, Clone)]
pub struct SearchIndex {
    /// The search service.
    pub sink: AccountName,
    /// The index.
    pub index: CollectionName,
    /// The fields, by name. A property by itself keeps its type; any other template is a text.
    pub fields: BTreeMap<String, Template>,
}

impl<P> Kind<P> for SearchIndex {
    fn name(&self) -> &'static str {
        "search_index"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Documents(self)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.fields.values().flat_map(Template::properties).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("fields {}", canonical::map(&self.fields))
    }
}
