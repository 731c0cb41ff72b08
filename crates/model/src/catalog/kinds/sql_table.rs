//! `kind = "sql_table"`: a row of a table in a database for each primary.

use std::collections::BTreeSet;

use super::Kind;
use crate::catalog::canonical;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;

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
        self.0.properties()
    }

    fn canonical(&self, _: OnConflict) -> String {
        format!("columns {} types {}", canonical::map(&self.0.fields), canonical::map(&self.0.types))
    }
}
