//! SQLite: one file; requests run on blocking threads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension as _, ToSql, TransactionBehavior, params,
    params_from_iter,
};
use serde_json::{Map, Value};

use super::database::{Database, DatabaseError, LockWait};
use super::statement::{KEY, SqlRow, TOMBSTONES, TableSchema, listed, quoted};
use evenkeel_model::ColumnType;
use evenkeel_storage::{ErrorClass, Fields, Missing};

const BUSY: Duration = Duration::from_secs(5);
/// SQLite's messages for a missing table or column.
const ABSENT: [&str; 3] = ["no such table", "no such column", "has no column named"];

pub(super) struct Sqlite {
    path: PathBuf,
    /// Opened at the first request, and again after an error of the file.
    connection: Arc<Mutex<Option<Connection>>>,
}

impl Sqlite {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            connection: Arc::default(),
        }
    }

    /// Runs a request on a thread that may block. It continues if the caller is dropped.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, DatabaseError> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let (path, shared) = (self.path.clone(), Arc::clone(&self.connection));
        let done = tokio::task::spawn_blocking(move || {
            let mut held = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let mut connection = match held.take() {
                Some(connection) => connection,
                None => connect(&path)?,
            };
            let result = work(&mut connection);
            if !matches!(&result, Err(error) if error.class.is_transient()) {
                *held = Some(connection);
            }
            result
        });
        // If the work panics, its connection is dropped, which rolls the transaction back.
        done.await.unwrap_or_else(|error| {
            Err(DatabaseError::transient(format!(
                "the request stopped unexpectedly: {error}"
            )))
        })
    }
}

fn connect(path: &Path) -> Result<Connection, DatabaseError> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        let failed = |error| {
            DatabaseError::transient(format!(
                "cannot create the folder {}: {error}",
                folder.display()
            ))
        };
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let open = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // An acknowledged row must survive a power failure, because its footprint does.
        connection.pragma_update(None, "synchronous", "full")?;
        // Deleted content is overwritten with zeros, because an erased row must not stay readable in free pages of the file.
        connection.pragma_update(None, "secure_delete", "on")?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| {
        let mut failed = DatabaseError::from(error);
        failed.message = format!(
            "cannot open the database {}: {}",
            path.display(),
            failed.message
        );
        failed
    })
}

#[async_trait]
impl Database for Sqlite {
    fn type_name(column: ColumnType) -> String {
        match column {
            ColumnType::Double => "REAL".to_owned(),
            other => other.to_string().to_uppercase(),
        }
    }

    async fn columns(&self, table: &str) -> Result<Option<Fields>, DatabaseError> {
        let table = table.to_owned();
        let found = self.run(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT name, type FROM pragma_table_info(?1)")?;
            let column = |row: &rusqlite::Row<'_>| {
                Ok((row.get(0)?, column_type_name(&row.get::<_, String>(1)?)))
            };
            let columns = statement
                .query_map([&table], column)?
                .collect::<Result<Fields, _>>()?;
            Ok(columns)
        });
        Ok(Some(found.await?).filter(|columns| !columns.is_empty()))
    }

    async fn execute(&self, statements: Vec<String>) -> Result<(), DatabaseError> {
        let executed = self.run(move |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for statement in statements {
                transaction.execute(&statement, [])?;
            }
            transaction.commit().map_err(committing)
        });
        executed.await
    }

    /// The lock wait is not used, because SQLite locks the whole file.
    async fn write(
        &self,
        table: &TableSchema,
        rows: Vec<SqlRow>,
        _: LockWait,
    ) -> Result<Vec<bool>, DatabaseError> {
        let table = table.clone();
        self.run(move |connection| {
            write(connection, &table, &rows).map_err(|error| attributed(error, &table.name))
        })
        .await
    }

    async fn read(
        &self,
        table: &TableSchema,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, DatabaseError> {
        let (table, key) = (table.clone(), key.to_owned());
        let read = self.run(move |connection| {
            let columns: Vec<(&str, &str)> = table.own().collect();
            let names = listed(columns.iter().map(|(name, _)| *name));
            let statement = format!(
                "SELECT {KEY}{names} FROM {} WHERE {KEY} = ?1",
                quoted(&table.name)
            );
            let row = |row: &rusqlite::Row<'_>| {
                let fields = columns.iter().enumerate().map(|(at, (name, kind))| {
                    Ok(field_of(row.get_ref(at + 1)?, kind)
                        .map(|value| ((*name).to_owned(), value)))
                });
                fields
                    .filter_map(Result::transpose)
                    .collect::<Result<Map<String, Value>, rusqlite::Error>>()
            };
            Ok(connection
                .prepare_cached(&statement)?
                .query_row([&key], row)
                .optional()?)
        });
        read.await
    }
}

fn write(
    connection: &mut Connection,
    table: &TableSchema,
    rows: &[SqlRow],
) -> Result<Vec<bool>, DatabaseError> {
    let columns: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.document.as_ref())
        .flat_map(|document| document.0.keys())
        .map(String::as_str)
        .collect();
    let holes = (1..=columns.len() + 2)
        .map(|n| format!("?{n}"))
        .collect::<Vec<_>>()
        .join(", ");
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut applied = Vec::with_capacity(rows.len());
    {
        let mut upsert =
            transaction.prepare_cached(&table.upsert(&columns, &format!("VALUES ({holes})")))?;
        let mut entomb = transaction.prepare_cached(&TableSchema::entomb("VALUES (?1, ?2, ?3)"))?;
        let mut bury = transaction.prepare_cached(&table.bury("= ?1"))?;
        for SqlRow {
            key,
            version,
            document,
        } in rows
        {
            let own = [SqlField::Text(key), SqlField::Integer(*version)].into_iter();
            let fields = columns.iter().map(|column| {
                document
                    .as_ref()
                    .and_then(|document| document.0.get(*column))
                    .map_or(SqlField::Null, SqlField::Json)
            });
            let written = upsert
                .query_row(params_from_iter(own.chain(fields)), |_| Ok(()))
                .optional()?
                .is_some();
            if written && document.is_none() {
                entomb.execute(params![table.name, key, version])?;
            }
            let buried = written && bury.query_row([key], |_| Ok(())).optional()?.is_some();
            applied.push(written && (document.is_none() || !buried));
        }
        if let Some(now) = rows
            .iter()
            .filter(|row| row.document.is_none())
            .map(|row| row.version)
            .max()
        {
            transaction.execute(&TableSchema::purge(now), [])?;
        }
    }
    transaction.commit().map_err(committing)?;
    Ok(applied)
}

enum SqlField<'v> {
    Text(&'v str),
    Integer(i64),
    Json(&'v Value),
    Null,
}

impl ToSql for SqlField<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Json(Value::String(text)) => {
                ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
            }
            Self::Integer(number) => ToSqlOutput::Owned(SqlValue::Integer(*number)),
            Self::Null | Self::Json(Value::Null) => ToSqlOutput::Owned(SqlValue::Null),
            Self::Json(Value::Bool(truth)) => {
                ToSqlOutput::Owned(SqlValue::Integer(i64::from(*truth)))
            }
            Self::Json(Value::Number(number)) => {
                ToSqlOutput::Owned(match (number.as_i64(), number.as_f64()) {
                    (Some(whole), _) => SqlValue::Integer(whole),
                    (None, Some(number)) => SqlValue::Real(number),
                    (None, None) => SqlValue::Null,
                })
            }
            Self::Json(other) => ToSqlOutput::Owned(SqlValue::Text(other.to_string())),
        })
    }
}

/// Converts a stored value to a field, or returns `None` if it has no JSON representation.
fn field_of(value: ValueRef<'_>, kind: &str) -> Option<Value> {
    Some(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) if kind == "boolean" => Value::from(number != 0),
        ValueRef::Integer(number) => Value::from(number),
        ValueRef::Real(number) => Value::from(number),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text)),
        ValueRef::Blob(_) => return None,
    })
}

/// Translates a declared type to a column type if one matches.
fn column_type_name(declared: &str) -> String {
    match declared.to_lowercase().as_str() {
        "real" => ColumnType::Double.to_string(),
        other => other.to_owned(),
    }
}

/// The error of a write to `table`. If the error names another table, except the tombstones, a user's trigger is the cause, and
/// the error is permanent.
fn attributed(error: DatabaseError, table: &str) -> DatabaseError {
    let named = |start: &str| error.message.strip_prefix(start)?.split_whitespace().next();
    let lacking = named("no such table: ").or_else(|| named("table "));
    // Statements use `present` as an alias of the table.
    let is_ours = |name: &str| {
        [table, TOMBSTONES, "present"].contains(&name.strip_prefix("main.").unwrap_or(name))
    };
    let theirs = matches!(error.class, ErrorClass::NotFound(_))
        && lacking.is_some_and(|name| !is_ours(name));
    if theirs {
        DatabaseError {
            class: ErrorClass::Permanent,
            ..error
        }
    } else {
        error
    }
}

/// The error of a commit. If the disk failed, the commit may have been executed.
fn committing(error: rusqlite::Error) -> DatabaseError {
    let unknown = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure)
    );
    let mut error = DatabaseError::from(error);
    if unknown {
        error.class = ErrorClass::Ambiguous;
    }
    error
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let message = error.to_string();
        let class = match error.sqlite_error_code() {
            Some(ErrorCode::Unknown) if ABSENT.iter().any(|words| message.contains(words)) => {
                ErrorClass::NotFound(Missing::Container)
            }
            Some(
                ErrorCode::PermissionDenied
                | ErrorCode::AuthorizationForStatementDenied
                | ErrorCode::ReadOnly,
            ) => ErrorClass::Unauthorised,
            Some(ErrorCode::TooBig) => ErrorClass::TooLarge,
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::OutOfMemory
                | ErrorCode::OperationInterrupted
                | ErrorCode::SystemIoFailure
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::DiskFull
                | ErrorCode::CannotOpen
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::SchemaChanged
                | ErrorCode::NotADatabase,
            ) => ErrorClass::Transient { retry_after: None },
            _ => ErrorClass::Permanent,
        };
        Self {
            class,
            code: None,
            contention: None,
            message,
        }
    }
}
