//! PostgreSQL: a few connections, each driven by the request that uses it.
//!
//! Statements are not prepared and settings last for one transaction, so both work through a transaction pooler (PgBouncer).
//! After an error the connection is closed, which rolls back what was not committed. It is kept if the transaction failed
//! because of its rows (a locked row, a deadlock) and was rolled back.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{BoxFuture, Either, select};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::database::{Contention, Database, DatabaseError, LockWait};
use super::statement::{KEY, SqlRow, TableSchema, VERSION, listed, quoted};
use evenkeel_model::settings::{PostgresSettings, SqlTls};
use evenkeel_model::{ColumnType, EdmDateTime};
use evenkeel_storage::{ErrorClass, Fields, Missing};

const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(30);
const ROLLBACK: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 8;
/// Begins a transaction. The timeouts end the transaction if the server has lost its client. They also end a slow statement
/// before the request times out.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = '25s'; SET LOCAL lock_timeout = '10s'; \
                     SET LOCAL idle_in_transaction_session_timeout = '60s'";
/// The `statement_timeout` in [`BEGIN`].
const STATEMENT: Duration = Duration::from_secs(25);
/// Time for all statements of a write. The server then reports and rolls back a slow write before the request times out.
const STATEMENTS: Duration = Duration::from_secs(28);

/// For a row whose batch has already waited: as long as an ordinary transaction takes.
const SHORT_WAIT: &str = "SET LOCAL lock_timeout = '50ms'";

pub(super) struct Postgres {
    settings: PostgresSettings,
    idle: Mutex<Vec<ServerSession>>,
    connections: Semaphore,
}

/// A connection, and the future that transfers its bytes; `None` once it has ended.
struct ServerSession {
    client: Client,
    driver: Option<BoxFuture<'static, Result<(), tokio_postgres::Error>>>,
}

type Work<T> =
    Box<dyn for<'c> FnOnce(&'c Client) -> BoxFuture<'c, Result<T, tokio_postgres::Error>> + Send>;

impl Postgres {
    pub(super) fn new(settings: PostgresSettings) -> Self {
        Self {
            settings,
            idle: Mutex::default(),
            connections: Semaphore::new(CONNECTIONS),
        }
    }

    async fn connect(&self) -> Result<ServerSession, DatabaseError> {
        let PostgresSettings {
            host,
            port,
            database,
            user,
            password,
            tls,
        } = &self.settings;
        let mut config = tokio_postgres::Config::new();
        config
            .host(host)
            .port(*port)
            .dbname(database)
            .user(user)
            .application_name("evenkeel")
            .connect_timeout(CONNECT);
        if let Some(password) = password {
            // The file is read for every connection, so a rotated password needs no restart.
            config.password(password.current().map_err(refused)?.expose_secret());
        }
        match tls {
            SqlTls::Off => {
                config.ssl_mode(tokio_postgres::config::SslMode::Disable);
                let (client, connection) = config
                    .connect(NoTls)
                    .await
                    .map_err(|error| connecting(&error))?;
                Ok(ServerSession {
                    client,
                    driver: Some(Box::pin(connection)),
                })
            }
            SqlTls::Verify { ca_file } => {
                config.ssl_mode(tokio_postgres::config::SslMode::Require);
                let tls = client_config(ca_file.as_deref()).map_err(refused)?;
                let (client, connection) = config
                    .connect(MakeRustlsConnect::new(tls))
                    .await
                    .map_err(|error| connecting(&error))?;
                Ok(ServerSession {
                    client,
                    driver: Some(Box::pin(connection)),
                })
            }
        }
    }

    /// Begins a transaction on an idle connection if its server still accepts it, otherwise on a new one.
    async fn begin(&self) -> Result<ServerSession, DatabaseError> {
        loop {
            let used = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let again = used.is_some();
            let mut session = match used {
                Some(session) => session,
                None => tokio::time::timeout(CONNECT, self.connect())
                    .await
                    .map_err(|_| timed_out("connecting"))??,
            };
            match tokio::time::timeout(
                REQUEST,
                session.run(|client| Box::pin(client.batch_execute(BEGIN))),
            )
            .await
            {
                Ok(Ok(())) => return Ok(session),
                _ if again => {}
                Ok(Err(error)) => return Err(executing(&error)),
                Err(_) => return Err(timed_out("beginning a transaction")),
            }
        }
    }

    fn keep(&self, session: ServerSession) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(session);
    }

    async fn transact<T: Send + 'static>(&self, work: Work<T>) -> Result<T, DatabaseError> {
        // The semaphore is never closed, so `acquire` cannot fail.
        let _slot = self
            .connections
            .acquire()
            .await
            .map_err(|_| timed_out("waiting for a connection"))?;
        let mut session = self.begin().await?;
        let committing = Arc::new(AtomicBool::new(false));
        let commits = Arc::clone(&committing);
        let all = session.run(move |client| {
            Box::pin(async move {
                let result = work(client).await?;
                commits.store(true, Ordering::SeqCst);
                client.batch_execute("COMMIT").await?;
                Ok(result)
            })
        });
        let mut error = match tokio::time::timeout(REQUEST, all).await {
            Ok(Ok(result)) => {
                self.keep(session);
                return Ok(result);
            }
            Ok(Err(error)) => {
                let error = executing(&error);
                // A locked row must not cost a connection. After other errors the connection is closed, because the error may
                // concern the connection itself (for example, its server has become a standby).
                if error.contention.is_some()
                    && !committing.load(Ordering::SeqCst)
                    && session.roll_back().await
                {
                    self.keep(session);
                }
                error
            }
            Err(_) => timed_out("the transaction"),
        };
        // Closing the connection rolls an open transaction back.
        if committing.load(Ordering::SeqCst)
            && !error
                .code
                .as_deref()
                .is_some_and(|code| code.starts_with("40") || code.starts_with("23"))
        {
            error.class = ErrorClass::Ambiguous;
            error.contention = None;
        }
        Err(error)
    }
}

impl ServerSession {
    /// Runs requests while transferring their bytes.
    async fn run<T>(
        &mut self,
        work: impl for<'c> FnOnce(&'c Client) -> BoxFuture<'c, Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let Self { client, driver } = self;
        let work = work(client);
        let Some(moving) = driver else {
            return work.await;
        };
        match select(work, moving).await {
            Either::Left((result, _)) => result,
            Either::Right((_, work)) => {
                // The connection has ended, and no more answers will arrive.
                *driver = None;
                work.await
            }
        }
    }

    /// Rolls the transaction back. Returns whether the server confirmed it.
    async fn roll_back(&mut self) -> bool {
        let undone = self.run(|client| Box::pin(client.batch_execute("ROLLBACK")));
        tokio::time::timeout(ROLLBACK, undone)
            .await
            .is_ok_and(|undone| undone.is_ok())
    }
}

#[async_trait]
impl Database for Postgres {
    fn type_name(column: ColumnType) -> String {
        match column {
            ColumnType::Text(None) => "text".to_owned(),
            ColumnType::Text(Some(chars)) => format!("character varying({chars})"),
            ColumnType::Integer => "bigint".to_owned(),
            ColumnType::Double => "double precision".to_owned(),
            ColumnType::Boolean => "boolean".to_owned(),
            ColumnType::Timestamp => "timestamp with time zone".to_owned(),
            ColumnType::Uuid => "uuid".to_owned(),
        }
    }

    async fn columns(&self, table: &str) -> Result<Option<Fields>, DatabaseError> {
        let name = quoted(table);
        let found = self.transact(Box::new(move |client| {
            Box::pin(async move {
                const COLUMNS: &str = "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute \
                                       WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped";
                client
                    .query_typed(COLUMNS, &[(&name, Type::TEXT)])
                    .await?
                    .iter()
                    .map(|row| Ok((row.try_get(0)?, column_type_name(row.try_get(1)?))))
                    .collect()
            })
        }));
        Ok(Some(found.await?).filter(|columns: &Fields| !columns.is_empty()))
    }

    async fn execute(&self, statements: Vec<String>) -> Result<(), DatabaseError> {
        self.transact(Box::new(move |client| {
            Box::pin(async move { client.batch_execute(&statements.join("; ")).await })
        }))
        .await
    }

    async fn write(
        &self,
        table: &TableSchema,
        rows: Vec<SqlRow>,
        wait: LockWait,
    ) -> Result<Vec<bool>, DatabaseError> {
        let table = table.clone();
        let written = self.transact(Box::new(move |client| {
            Box::pin(async move {
                if wait == LockWait::Short {
                    client.batch_execute(SHORT_WAIT).await?;
                }
                write(client, table, rows).await
            })
        }));
        written.await
    }

    async fn read(
        &self,
        table: &TableSchema,
        key: &str,
    ) -> Result<Option<Map<String, Value>>, DatabaseError> {
        let names = table.own().map(|(name, kind)| match kind {
            "timestamp" => format!(", {0} AT TIME ZONE 'UTC' AS {0}", quoted(name)),
            _ => format!(", {}", quoted(name)),
        });
        let (names, name, key) = (
            names.collect::<String>(),
            quoted(&table.name),
            key.to_owned(),
        );
        let statement = format!(
            "SELECT row_to_json(one)::text FROM (SELECT {KEY}{names} FROM {name} WHERE {KEY} = $1) AS one"
        );
        let found = self.transact(Box::new(move |client| {
            Box::pin(async move {
                let rows = client
                    .query_typed(&statement, &[(&key, Type::TEXT)])
                    .await?;
                rows.first()
                    .map(|row| row.try_get::<_, String>(0))
                    .transpose()
            })
        }));
        let Some(text) = found.await? else {
            return Ok(None);
        };
        let mut fields: Map<String, Value> = serde_json::from_str(&text)
            .map_err(|_| DatabaseError::transient("the row is not valid JSON"))?;
        fields.remove(KEY);
        for (name, _) in table.own().filter(|(_, kind)| *kind == "timestamp") {
            let moment = fields
                .get(name)
                .and_then(Value::as_str)
                .and_then(|text| EdmDateTime::parse(text).ok());
            fields
                .extend(moment.map(|moment| (name.to_owned(), Value::from(moment.sorting_text()))));
        }
        Ok(Some(fields))
    }
}

/// Runs the steps of `statement` in a transaction.
async fn write(
    client: &Client,
    table: TableSchema,
    rows: Vec<SqlRow>,
) -> Result<Vec<bool>, tokio_postgres::Error> {
    let columns: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row.document.as_ref())
        .flat_map(|document| document.0.keys())
        .map(String::as_str)
        .collect();
    let typed = table
        .own()
        .filter(|(name, _)| columns.contains(name))
        .map(|(name, kind)| {
            // If the owner has changed the type of a column, `kind` is the database's own name of the new type.
            format!(
                ", {} {}",
                quoted(name),
                ColumnType::parse(kind).map_or_else(|_| kind.to_owned(), Postgres::type_name)
            )
        });
    let typed = typed.collect::<String>();
    let names = listed(columns.iter().copied());
    // Key order prevents a deadlock between two batches.
    let source = format!(
        "SELECT {KEY}, {VERSION}{names} FROM json_to_recordset($1::json) AS one ({KEY} text, {VERSION} bigint{typed}) ORDER BY {KEY}"
    );
    let batch = rows.iter().map(
        |SqlRow {
             key,
             version,
             document,
         }| {
            let mut row: Map<String, Value> = document
                .iter()
                .flat_map(|document| document.0.clone())
                .collect();
            row.extend([
                (KEY.to_owned(), json!(key)),
                (VERSION.to_owned(), json!(version)),
            ]);
            Value::Object(row)
        },
    );
    let batch = Value::Array(batch.collect()).to_string();
    let began = Instant::now();
    let written = keys(
        &client
            .query_typed(&table.upsert(&columns, &source), &[(&batch, Type::TEXT)])
            .await?,
    )?;
    let gone: Vec<&SqlRow> = rows
        .iter()
        .filter(|row| row.document.is_none() && written.contains(&row.key))
        .collect();
    if let Some(now) = gone.iter().map(|row| row.version).max() {
        let source =
            "SELECT $1, key, version FROM unnest($2, $3) AS one (key, version) ORDER BY key";
        let (gone, versions): (Vec<&str>, Vec<i64>) = gone
            .iter()
            .map(|row| (row.key.as_str(), row.version))
            .unzip();
        let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
            (&table.name, Type::TEXT),
            (&gone, Type::TEXT_ARRAY),
            (&versions, Type::INT8_ARRAY),
        ];
        bound(client, began).await?;
        client
            .query_typed(&TableSchema::entomb(source), &parameters)
            .await?;
        bound(client, began).await?;
        client.batch_execute(&TableSchema::purge(now)).await?;
    }
    bound(client, began).await?;
    let all: Vec<&String> = written.iter().collect();
    let buried = keys(
        &client
            .query_typed(&table.bury("= ANY ($1)"), &[(&all, Type::TEXT_ARRAY)])
            .await?,
    )?;
    Ok(rows
        .iter()
        .map(|row| {
            written.contains(&row.key) && (row.document.is_none() || !buried.contains(&row.key))
        })
        .collect())
}

/// Limits the next statement of a write to the time that is left for all of them.
async fn bound(client: &Client, began: Instant) -> Result<(), tokio_postgres::Error> {
    match limit_after(began.elapsed()) {
        Some(limit) => client.batch_execute(&limit).await,
        None => Ok(()),
    }
}

/// The timeout for the next statement of a write that has already taken this time. Returns `None` if the timeout of a single
/// statement ([`STATEMENT`]) is no longer than the time that is left.
fn limit_after(taken: Duration) -> Option<String> {
    let left = STATEMENTS.saturating_sub(taken);
    // Zero would mean no limit.
    (left < STATEMENT).then(|| format!("SET LOCAL statement_timeout = {}", left.as_millis().max(1)))
}

fn keys(rows: &[Row]) -> Result<BTreeSet<String>, tokio_postgres::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

/// Translates a type of the database to a column type if one matches.
fn column_type_name(declared: String) -> String {
    match declared.as_str() {
        "bigint" => ColumnType::Integer.to_string(),
        "double precision" => ColumnType::Double.to_string(),
        "timestamp with time zone" => ColumnType::Timestamp.to_string(),
        other => match other.strip_prefix("character varying(") {
            Some(length) => format!("text({length}"),
            None => declared,
        },
    }
}

/// Configures TLS with the system's certificate authorities, or with those in a file.
fn client_config(ca_file: Option<&std::path::Path>) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let Some(path) = ca_file else {
        return Ok(builder
            .with_platform_verifier()
            .map_err(|error| error.to_string())?
            .with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    let unreadable = |error: &dyn std::fmt::Display| {
        format!("cannot use the certificates in {}: {error}", path.display())
    };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        roots
            .add(certificate.map_err(|error| unreadable(&error))?)
            .map_err(|error| unreadable(&error))?;
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The error if the server or this machine rejects the settings. Such an error must not poison jobs.
fn refused(message: String) -> DatabaseError {
    DatabaseError::new(ErrorClass::Unauthorised, message)
}

fn timed_out(doing: &str) -> DatabaseError {
    DatabaseError::transient(format!("{doing} took too long"))
}

/// The error of a failed connection. Nothing was sent.
fn connecting(error: &tokio_postgres::Error) -> DatabaseError {
    if error.as_db_error().is_some() {
        return executing(error);
    }
    let class = match std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<std::io::Error>())
    {
        // TLS errors are reported as invalid data.
        Some(error) if error.kind() != std::io::ErrorKind::InvalidData => ErrorClass::Refused,
        Some(_) | None => ErrorClass::Unauthorised,
    };
    DatabaseError::new(class, evenkeel_model::cause::chain(error))
}

/// The error of a statement before the commit. Its transaction was rolled back.
fn executing(error: &tokio_postgres::Error) -> DatabaseError {
    let Some(error) = error.as_db_error() else {
        return DatabaseError::transient(evenkeel_model::cause::chain(error));
    };
    let code = error.code();
    // Messages of this class may quote the value, which must not be shown.
    let quotes = code.code().starts_with("22") && *code != SqlState::STRING_DATA_RIGHT_TRUNCATION;
    let message = if quotes {
        "a value does not fit its column".to_owned()
    } else {
        error.message().to_owned()
    };
    // A user's function or trigger needs an object that does not exist. `migrate up` does not create it, so waiting for that
    // would not help.
    let theirs = error.where_().is_some_and(|context| !context.is_empty());
    let class = match class_of(code) {
        ErrorClass::NotFound(_) if theirs => ErrorClass::Permanent,
        class => class,
    };
    DatabaseError {
        class,
        code: Some(code.code().to_owned()),
        contention: contention_of(code),
        message,
    }
}

/// Whether the combination of rows made a transaction fail, by its code: serialization, deadlock, locked row, slow statement, or a
/// server's own transaction timeout (25P04).
fn contention_of(code: &SqlState) -> Option<Contention> {
    match code.code().get(..2) {
        Some("40" | "55") => Some(Contention::Held),
        _ if *code == SqlState::QUERY_CANCELED || code.code() == "25P04" => Some(Contention::Slow),
        _ => None,
    }
}

/// The class of an error by its code ("PostgreSQL Error Codes").
fn class_of(code: &SqlState) -> ErrorClass {
    match code.code() {
        // No such table or column.
        "42P01" | "42703" => ErrorClass::NotFound(Missing::Container),
        // Insufficient privilege or no such database.
        "42501" | "3D000" => ErrorClass::Unauthorised,
        "54000" => ErrorClass::TooLarge,
        other => match other.get(..2) {
            Some("28") => ErrorClass::Unauthorised,
            Some("53") => ErrorClass::Throttled { retry_after: None },
            // Connection, standby server (25006), serialization or deadlock, lock, shutdown, system, and internal errors.
            Some("08" | "25" | "40" | "55" | "57" | "58" | "XX") => {
                ErrorClass::Transient { retry_after: None }
            }
            _ => ErrorClass::Permanent,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_determine_the_class() {
        let transient = ErrorClass::Transient { retry_after: None };
        for (code, expected) in [
            ("40001", transient),
            ("40P01", transient),
            ("55P03", transient),
            ("57P01", transient),
            ("57P03", transient),
            ("57014", transient),
            ("25006", transient),
            ("53300", ErrorClass::Throttled { retry_after: None }),
            ("28P01", ErrorClass::Unauthorised),
            ("42501", ErrorClass::Unauthorised),
            ("3D000", ErrorClass::Unauthorised),
            ("42P01", ErrorClass::NotFound(Missing::Container)),
            ("42703", ErrorClass::NotFound(Missing::Container)),
            ("22001", ErrorClass::Permanent),
            ("22P02", ErrorClass::Permanent),
            ("23502", ErrorClass::Permanent),
        ] {
            assert_eq!(class_of(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn the_statements_of_a_write_end_before_its_request() {
        let set = |ms: &str| Some(format!("SET LOCAL statement_timeout = {ms}"));
        assert_eq!(
            [0, 2_999, 3_000].map(|ms| limit_after(Duration::from_millis(ms))),
            [None, None, None]
        );
        assert_eq!(limit_after(Duration::from_millis(3_001)), set("24999"));
        assert_eq!(limit_after(Duration::from_millis(27_500)), set("500"));
        assert_eq!(
            [28, 40].map(|seconds| limit_after(Duration::from_secs(seconds))),
            [set("1"), set("1")]
        );
        assert!(
            BEGIN.contains(&format!("statement_timeout = '{}s'", STATEMENT.as_secs()))
                && STATEMENTS < REQUEST
        );
    }

    #[test]
    fn types_come_back_as_they_were_declared() {
        for name in [
            "text",
            "text(80)",
            "integer",
            "double",
            "boolean",
            "timestamp",
            "uuid",
        ] {
            assert_eq!(
                column_type_name(Postgres::type_name(ColumnType::parse(name).unwrap())),
                name
            );
        }
        assert_eq!(
            column_type_name("numeric(10,2)".to_owned()),
            "numeric(10,2)"
        );
    }
}
