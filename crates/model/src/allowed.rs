//! Limits on the jobs that a queue accepts: their operations and their tables.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::dated::DatedTables;
use super::{Job, TableName};

/// Limits on the jobs of a queue. An absent limit allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobAllowance {
    /// `allow`: the permitted operations.
    pub ops: Option<BTreeSet<String>>,
    /// `tables`: the permitted tables. If a job names an archive or a view, the tables of that archive or view must be permitted.
    pub tables: Option<AllowedTables>,
}

/// The tables that jobs may concern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedTables(Arc<[AllowedTable]>);

/// One table, or dated tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedTable {
    /// One table.
    One(TableName),
    /// Every table of a pattern.
    Dated(DatedTables),
}

impl JobAllowance {
    /// Returns why an operation is not allowed, in words.
    pub fn refuses_op(&self, op: &str) -> Option<String> {
        let ops = self.ops.as_ref().filter(|ops| !ops.contains(op))?;
        let ops: Vec<&str> = ops.iter().map(String::as_str).collect();
        Some(format!(
            "op {op:?} is not allowed on this queue; allowed are: {}",
            ops.join(", ")
        ))
    }

    /// Returns why a job is not allowed, in words. This check has no catalog, so it covers only tables that the job itself names, not the
    /// tables of its archive or view.
    /// The limits apply to workers too. A worker sends a job that exceeds these limits to its own recheck queue.
    pub fn refuses(&self, job: &Job) -> Option<String> {
        self.refuses_op(job.op()).or_else(|| {
            self.tables
                .as_ref()?
                .refuse(job.operation().subject().tables())
        })
    }
}

impl AllowedTables {
    /// A limit to these tables.
    pub fn new(tables: Vec<AllowedTable>) -> Self {
        Self(tables.into())
    }

    /// Returns why one of the given tables is not allowed, in words.
    pub fn refuse<'t>(&self, tables: impl IntoIterator<Item = &'t TableName>) -> Option<String> {
        let other = tables
            .into_iter()
            .find(|table| !self.0.iter().any(|allowed| allowed.is_of(table)))?;
        let allowed: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        Some(format!(
            "table {other} is not allowed on this queue; allowed are: {}",
            allowed.join(", ")
        ))
    }
}

impl AllowedTable {
    /// Parses a table name, or a pattern with a date.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('%') {
            return DatedTables::parse(text)
                .map(Self::Dated)
                .map_err(|error| error.to_string());
        }
        TableName::new(text)
            .map(Self::One)
            .map_err(|error| error.to_string())
    }

    fn is_of(&self, table: &TableName) -> bool {
        match self {
            Self::One(one) => one == table,
            Self::Dated(dated) => dated.period(table).is_some(),
        }
    }
}

impl fmt::Display for AllowedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(one) => one.fmt(f),
            Self::Dated(dated) => dated.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::decode;

    #[test]
    fn a_job_counts_for_the_tables_that_it_names_in_any_case_or_by_date() {
        let tables = ["Employees", "Logins%Y%m"].map(|text| AllowedTable::parse(text).unwrap());
        let allowed = JobAllowance {
            ops: None,
            tables: Some(AllowedTables::new(tables.to_vec())),
        };
        for (job, is_allowed) in [
            (
                r#"{"op":"sync","table":"employees","pk":"p","rk":"r"}"#,
                true,
            ),
            (
                r#"{"op":"delete","table":"Logins202611","pk":"p","rk":"r"}"#,
                true,
            ),
            (
                r#"{"op":"delete","table":"Logins202613","pk":"p","rk":"r"}"#,
                false,
            ),
            (
                r#"{"op":"put","table":"Salaries","entity":{"PartitionKey":"p","RowKey":"r"}}"#,
                false,
            ),
            (
                r#"{"op":"move","table":"Employees","pk":"p","rk":"r","to_table":"Salaries","to_pk":"p","to_rk":"r"}"#,
                false,
            ),
            (
                r#"{"op":"move","table":"Salaries","pk":"p","rk":"r","to_table":"Employees","to_pk":"p","to_rk":"r"}"#,
                false,
            ),
            (r#"{"op":"backfill","table":"Salaries"}"#, false),
            (r#"{"op":"audit","table":"Employees"}"#, true),
            (r#"{"op":"drop_table","table":"Sessions202611"}"#, false),
            (
                r#"{"op":"propagate","view":"names","owner":{"pk":"p","rk":"r"},"table":"Salaries","pk":"p"}"#,
                false,
            ),
            (
                r#"{"op":"propagate","view":"names","owner":{"pk":"p","rk":"r"},"table":"Employees","pk":"p","mark":{"table":"Salaries","mark":"1"}}"#,
                false,
            ),
            (
                r#"{"op":"propagate","view":"names","owner":{"pk":"p","rk":"r"},"table":"Employees","pk":"p","mark":{"table":"Employees","mark":"1"}}"#,
                true,
            ),
        ] {
            let refused = allowed.refuses(&decode(job).unwrap().job);
            assert_eq!(refused.is_none(), is_allowed, "{job}: {refused:?}");
            assert!(
                refused
                    .is_none_or(|refused| refused.ends_with("allowed are: Employees, Logins%Y%m"))
            );
        }
        assert!(
            AllowedTable::parse("not a table").is_err() && AllowedTable::parse("Logins%d").is_err()
        );
    }
}
