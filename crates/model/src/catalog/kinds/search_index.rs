//! `kind = "search_index"`: a document of a search service for each primary.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;

/// `kind = "search_index"`: a document of a search service for each primary. A property by itself keeps its type; any other template
/// is a text.
#[derive(Debug, Clone)]
pub struct SearchIndex(pub Documents);

impl<P> Kind<P> for SearchIndex {
    fn name(&self) -> &'static str {
        "search_index"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.0.properties()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("fields {}", canonical::map(&self.0.fields))
    }
}
