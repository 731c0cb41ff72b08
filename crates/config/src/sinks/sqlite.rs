//! `kind = "sqlite"`: a database in one file.

use std::path::PathBuf;

use crate::section::Section;
use evenkeel_model::settings::{SinkKind, SqlSettings};

const EXPECTED: &str = "the path of a database file, such as \"data/reporting.db\"";

pub(super) fn read(section: &Section<'_>) -> Option<SinkKind> {
    let path = section.required("path", EXPECTED, |text| match text.trim() {
        "" => Err(format!("expected {EXPECTED}, found an empty string")),
        path => Ok(PathBuf::from(path)),
    })?;
    Some(SinkKind::Sql(SqlSettings::Sqlite { path }))
}
