//! The text form of a join: `Departments={PartitionKey}/{DepartmentId|lower}`. Pure.

use std::fmt;
use std::str::FromStr;

use evenkeel_model::large::Pointer;
use evenkeel_model::template::{Escaping, RenderError, Template, TemplateError};
use evenkeel_model::{EdmValue, Entity, EntityKey, TableName};
use evenkeel_storage::encryption::is_encrypted;

/// A join of the rows of a lookup with the entities of another table. Two [key templates](evenkeel_model::template) make the
/// PartitionKey and the RowKey of the joined entity from properties of the row. If a row lacks one of these properties, no entity is
/// joined to it.
///
/// The text form is `Table=PARTITION_KEY/ROW_KEY`. Neither of the two keys can contain a slash.
///
/// ```
/// use evenkeel_client::JoinSpec;
///
/// let join: JoinSpec = "Departments={PartitionKey}/{DepartmentId|lower}".parse()?;
/// assert_eq!(join.table().as_str(), "Departments");
/// assert!("Departments={PartitionKey}".parse::<JoinSpec>().is_err(), "both keys");
/// # Ok::<(), evenkeel_client::JoinSpecError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinSpec {
    table: TableName,
    partition_key: Template,
    row_key: Template,
}

/// Why a text is not a join.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinSpecError {
    /// The text does not have the form of a join.
    #[error(
        "{text:?} is not a join: {problem}; expected TABLE={{PartitionKey}}/{{RowKey}}, each key a template"
    )]
    Form {
        /// The text.
        text: String,
        /// The problem.
        problem: String,
    },
    /// One of the templates is invalid. The message marks the position with carets.
    #[error(transparent)]
    Template(#[from] TemplateError),
}

impl JoinSpec {
    /// Creates a join with a table. The templates make the keys of its entities from properties of a row.
    pub const fn new(table: TableName, partition_key: Template, row_key: Template) -> Self {
        Self {
            table,
            partition_key,
            row_key,
        }
    }

    /// Returns the joined table.
    pub const fn table(&self) -> &TableName {
        &self.table
    }

    /// Returns the names of the properties in both templates, except `PartitionKey` and `RowKey`. A name may occur
    /// twice.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        let all = self
            .partition_key
            .properties()
            .into_iter()
            .chain(self.row_key.properties());
        all.filter(|name| !matches!(*name, "PartitionKey" | "RowKey"))
    }

    /// Returns the key of the entity that is joined to a row; `None` if the row lacks a property of the key. An
    /// encrypted value and a value in a blob count as absent.
    pub(super) fn key(
        &self,
        escaping: Escaping,
        row: &Entity,
    ) -> Result<Option<EntityKey>, RenderError> {
        let value = |property: &str| match property {
            "PartitionKey" => Some(EdmValue::from(row.key.pk.as_str())),
            "RowKey" => Some(EdmValue::from(row.key.rk.as_str())),
            name => row
                .get(name)
                .filter(|value| !is_encrypted(value) && Pointer::of(value).is_none())
                .cloned(),
        };
        let (pk, rk) = (
            self.partition_key.render_with(escaping, value)?,
            self.row_key.render_with(escaping, value)?,
        );
        Ok(pk.zip(rk).map(|(pk, rk)| EntityKey { pk, rk }))
    }
}

impl FromStr for JoinSpec {
    type Err = JoinSpecError;

    fn from_str(text: &str) -> Result<Self, JoinSpecError> {
        let form = |problem: &str| JoinSpecError::Form {
            text: text.to_owned(),
            problem: problem.to_owned(),
        };
        let (table, keys) = text.split_once('=').ok_or_else(|| form("there is no ="))?;
        let table = TableName::new(table).map_err(|error| form(&error.to_string()))?;
        let slash = slash_between(keys).ok_or_else(|| form("there is no / between its keys"))?;
        let begins = text.len() - keys.len();
        let template = |from: usize, to: usize| {
            let part = &text[from..to];
            if part.is_empty() {
                return Err(form("one of its keys is empty"));
            }
            // Moves the carets from the position in the template to the position in the text of the join.
            let shifted = |error: TemplateError| TemplateError {
                span: error.span.start + from..error.span.end + from,
                template: text.to_owned(),
                ..error
            };
            Template::parse(part).map_err(|error| shifted(error).into())
        };
        let partition_key = template(begins, begins + slash)?;
        let row_key = template(begins + slash + 1, text.len())?;
        Ok(Self {
            table,
            partition_key,
            row_key,
        })
    }
}

impl fmt::Display for JoinSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/{}", self.table, self.partition_key, self.row_key)
    }
}

/// Finds the first slash that is not in a field. The literals of templates cannot contain a slash, but the arguments of
/// filters can.
fn slash_between(keys: &str) -> Option<usize> {
    let mut in_field = false;
    let mut rest = keys;
    while let Some(c) = rest.chars().next() {
        let at = keys.len() - rest.len();
        if !in_field && (rest.starts_with("{{") || rest.starts_with("}}")) {
            rest = &rest[2..];
            continue;
        }
        match c {
            '{' => in_field = true,
            '}' => in_field = false,
            '/' if !in_field => return Some(at),
            _ => {}
        }
        rest = &rest[c.len_utf8()..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Entity {
        let row = Entity::new(EntityKey::new("Sales", "000223").unwrap());
        row.with("Department", "East")
            .with("Office", 7_i32)
            .with("Seat", 1.5)
            .with("Secret", "ek1.c2VhbGVk")
            .with("Unit", "R%2FD")
            .with("Path", "a/b")
    }

    fn key(join: &str) -> Option<String> {
        key_of(Escaping::WhereForbidden, join)
    }

    fn key_of(escaping: Escaping, join: &str) -> Option<String> {
        let join: JoinSpec = join.parse().unwrap();
        join.key(escaping, &row())
            .unwrap()
            .map(|key| format!("{}/{}", key.pk, key.rk))
    }

    #[test]
    fn both_keys_are_made_from_the_row_or_there_is_none() {
        assert_eq!(
            key("Departments={PartitionKey}/{Department|lower}").as_deref(),
            Some("Sales/east")
        );
        assert_eq!(
            key("Offices=office/{Office|pad:3}_{RowKey}").as_deref(),
            Some("office/007_000223")
        );
        assert_eq!(
            key("Odd={{}}/a{{{Department}").as_deref(),
            Some("{}/a{East")
        );
        assert_eq!(key("Departments={Nowhere}/{Department}"), None);
        assert_eq!(key("Departments={PartitionKey}/{Nowhere}"), None);
        assert_eq!(
            key("Departments={PartitionKey}/{Secret}"),
            None,
            "encrypted"
        );
        let double: JoinSpec = "Seats={PartitionKey}/{Seat}".parse().unwrap();
        assert!(
            double
                .key(Escaping::WhereForbidden, &row())
                .unwrap_err()
                .to_string()
                .contains("Seat")
        );
    }

    #[test]
    fn a_percent_sign_is_escaped_only_in_keys_of_views() {
        for (escaping, expected) in [
            (Escaping::WhereForbidden, "R%2FD/a%2Fb"),
            (Escaping::Always, "R%252FD/a%2Fb"),
        ] {
            assert_eq!(
                key_of(escaping, "Departments={Unit}/{Path}").as_deref(),
                Some(expected)
            );
        }
    }

    #[test]
    fn a_join_displays_as_written_and_lists_its_properties() {
        for text in [
            "Departments={PartitionKey}/{DepartmentId|lower}",
            "Days={Day|date:%Y/%m}/x{RowKey}",
            "Odd={{/}}",
        ] {
            let join: JoinSpec = text.parse().unwrap();
            assert_eq!(join.to_string(), text);
        }
        let join: JoinSpec = "Offices={City}/{RowKey}_{Office}".parse().unwrap();
        assert_eq!(join.properties().collect::<Vec<_>>(), ["City", "Office"]);
    }

    #[test]
    fn an_invalid_join_is_refused_with_the_position() {
        for (text, problem) in [
            ("Departments", "there is no ="),
            ("Depart-ments={A}/{B}", "is not a join"),
            ("Departments={A}{B}", "there is no / between"),
            ("Departments={A}/", "empty"),
            ("Departments=/{B}", "empty"),
            ("Departments={A/B}", "there is no / between"),
            ("Departments={A}/{B}/{C}", "forbids '/'"),
        ] {
            let error = text.parse::<JoinSpec>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
        let error = "Departments={A}/{B|lwoer}"
            .parse::<JoinSpec>()
            .unwrap_err()
            .to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert!(lines[0].contains("lower"), "{error}");
        let (shown, carets) = (lines[1], lines[2]);
        assert_eq!(shown.find("lwoer"), carets.find('^'), "{error}");
        assert!(shown.contains("Departments={A}/"), "{error}");
    }
}
