//! `kind = "sql_table"`: a row of a table in a database for each primary.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;
use crate::model::template::Template;

/// `kind = "sql_table"`: a row of a table in a database for each primary. Every field has a type.
#[derive(Debug, Clone)]
pub struct SqlTable(pub Documents);

impl<P> Kind<P> for SqlTable {
    fn name(&self) -> &'static str {
        "sql_table"
    }

    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn properties(&self) -> BTreeSet<&str> {
        self.0.fields.values().flat_map(Template::properties).collect()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("columns {} types {}", canonical::map(&self.0.fields), canonical::map(&self.0.types))
    }
}
