//! `kind = "sql_table"`: a row in a table of a database for each primary.

use std::collections::BTreeMap;

use super::Kind;
use super::section::{DeclaredKind, ViewSection};
use crate::catalog::definition::Definition;
use crate::catalog::form::{Documents, Form};
use crate::catalog::view::OnConflict;
use crate::settings::SinkKind;
use crate::template::Template;
use crate::{CollectionName, ColumnType};

/// `kind = "sql_table"`: a row in a table of a database for each primary. Every column has a type.
#[derive(Debug, Clone)]
pub struct SqlTable(pub Documents);

impl<P> Kind<P> for SqlTable {
    fn form(&self) -> Form<'_, P> {
        Form::Documents(&self.0)
    }

    fn define(&self, keys: Definition, _: OnConflict) -> Definition {
        let Documents {
            collection,
            fields,
            types,
            ..
        } = &self.0;
        let column = |(name, template): (&String, &Template)| {
            Some((name.clone(), format!("{} {template}", types.get(name)?)))
        };
        keys.with("table", collection)
            .with_map("columns", &fields.iter().filter_map(column).collect())
    }
}

/// Longest name of a table or column, in bytes (PostgreSQL: NAMEDATALEN - 1).
const NAME_BYTES: usize = 63;
/// Maximum number of columns besides evenkeel's own two (PostgreSQL allows 1,600 and SQLite 2,000,
/// or fewer if rows are long).
const COLUMNS: usize = 500;

pub(super) fn read<S: ViewSection>(view: &S) -> Option<DeclaredKind<S::Target>> {
    view.reject_dated_source("kind", "no sql_table view")?;
    view.reject_keys(
        &["on_conflict"],
        "row keys are made of primary keys, so there are no conflicts",
    );
    view.reject_keys(
        &["partition_key", "row_key", "key"],
        "a row's key is made of its primary's keys, and columns hold what you join by",
    );
    let wanted = ("a database", "kind = \"sqlite\" and its path");
    let sink = view.sink(wanted, |kind| {
        matches!(kind, SinkKind::Sql(_)).then_some(())
    });
    let table = view.required("table", "the name of a table of the database", |text| {
        let name = identifier(text)?;
        name.parse::<CollectionName>()
            .map_err(|error| error.to_string())
    });
    let columns = columns(view);
    let (fields, types) = columns?;
    let documents = Documents {
        sink: sink?.0,
        collection: table?,
        fields,
        types,
    };
    Some(DeclaredKind::new(SqlTable(documents)))
}

type Columns = (BTreeMap<String, Template>, BTreeMap<String, ColumnType>);

fn columns(view: &impl ViewSection) -> Option<Columns> {
    const EXPECTED: &str = "a type and a template for each column, such as { name = \"text(80) {FirstName} {LastName}\" }";
    if !view.has("columns") {
        view.error("columns", format!("missing; expected {EXPECTED}"));
    }
    let texts = view.texts_by_name("columns")?;
    if texts.is_empty() || texts.len() > COLUMNS {
        view.error(
            "columns",
            format!(
                "{} columns; expected 1 to {COLUMNS}: {EXPECTED}",
                texts.len()
            ),
        );
        return None;
    }
    let (mut fields, mut types, mut wrong) = (BTreeMap::new(), BTreeMap::new(), false);
    for (name, text) in texts {
        match identifier(name).and_then(|name| Ok((name, column(text)?))) {
            Ok((name, (kind, template))) => {
                fields.insert(name.clone(), template);
                types.insert(name, kind);
            }
            Err(problem) => {
                wrong = true;
                view.error_in("columns", name, problem);
            }
        }
    }
    (!wrong).then_some((fields, types))
}

fn column(text: &str) -> Result<(ColumnType, Template), String> {
    let Some((kind, template)) = text.trim().split_once(' ') else {
        return Err(format!(
            "{text:?} is not a type and a template, such as \"text {{PartitionKey}}\" or \"integer {{Salary}}\""
        ));
    };
    let kind = ColumnType::parse(kind)?;
    let template =
        Template::parse_text(template.trim_start()).map_err(|error| error.to_string())?;
    let property = template
        .bare_property()
        .filter(|name| !matches!(*name, "PartitionKey" | "RowKey"));
    if property.is_none() && !matches!(kind, ColumnType::Text(_)) {
        return Err(format!(
            "{template} renders text; expected the type text, or one property alone, such as \"{kind} {{Salary}}\""
        ));
    }
    Ok((kind, template))
}

/// Checks the name of a table or column. The name must be valid in every database and mean the same
/// with any case and with or without quotes.
fn identifier(name: &str) -> Result<String, String> {
    let valid = (1..=NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        && name.as_bytes()[0].is_ascii_lowercase();
    match valid {
        true if name.starts_with("ek_")
            || name.starts_with("evenkeel_")
            || name.starts_with("sqlite_") =>
        {
            Err(format!(
                "{name:?} is reserved; expected a name that begins with neither ek_, evenkeel_ nor sqlite_"
            ))
        }
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{name:?} is not a valid name: expected 1 to 63 lower-case letters, digits and underscores, starting with a letter"
        )),
    }
}
