//! The sink port for the tables of a database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::database::{Contention, Database, DatabaseError, LockWait, declared};
use super::statement::{self, KEY, SqlRow, TOMBSTONES, TableSchema, VERSION};
use evenkeel_model::{AccountName, CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_storage::{
    DocumentWrite, ErrorClass, Fields, Missing, Resource, Sink, SinkBatching, StoreError, Subject,
    Withheld, WriteResults,
};

const WRITE: &str = "Write Rows";
const GET: &str = "Read Row";
const DESCRIBE: &str = "Read Columns";
const DEFINE: &str = "Define Table";
/// When this many rows of a batch, written one by one, have each failed after a long time, the remaining rows are not tried. Each
/// such row takes as long as the batch did.
const SLOW_ALONE: usize = 2;
/// Maximum time for writing the rows of a batch one by one. Their jobs have already waited for the batch, and must not exceed
/// `worker.job_timeout`.
const ALONE: Duration = Duration::from_secs(30);
const NOT_TRIED: &str = "NotTried";

/// Result of a row: `true` if written, `false` if a newer version exists, `None` if it was not tried.
type RowEnd = Option<Result<bool, DatabaseError>>;

pub(super) struct SqlSink<D> {
    sink: AccountName,
    database: D,
    tables: Mutex<BTreeMap<CollectionName, Arc<TableSchema>>>,
}

impl<D: Database> SqlSink<D> {
    pub(super) fn new(sink: &AccountName, database: D) -> Self {
        Self {
            sink: sink.clone(),
            database,
            tables: Mutex::default(),
        }
    }

    fn error(&self, operation: &'static str, what: Resource, error: DatabaseError) -> StoreError {
        let DatabaseError {
            class,
            code,
            message,
            ..
        } = error;
        let mut error = StoreError::new(
            class,
            operation,
            Subject {
                account: self.sink.clone(),
                resource: what,
            },
            message,
        );
        error.code = code.map(String::into_boxed_str);
        if class == ErrorClass::NotFound(Missing::Container) {
            // Every job would fail in the same way. The backlog must not be poisoned for this, so jobs wait for the table.
            error.withheld = Some(Withheld::TableMissing);
            error.message = format!("{}; `evenkeel migrate up` creates it", error.message).into();
        }
        error
    }

    /// The cached schema of a table, or the current one.
    async fn table(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        refresh: bool,
    ) -> Result<Arc<TableSchema>, StoreError> {
        let known = self
            .tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(collection)
            .cloned();
        if let Some(table) = known.filter(|_| !refresh) {
            return Ok(table);
        }
        let error = |error| self.error(operation, Resource::Collection(collection.clone()), error);
        let Some(columns) = self
            .database
            .columns(collection.as_str())
            .await
            .map_err(error)?
        else {
            self.forget(collection);
            return Err(error(DatabaseError::new(
                ErrorClass::NotFound(Missing::Container),
                "the table does not exist",
            )));
        };
        let table = Arc::new(TableSchema {
            name: collection.to_string(),
            columns,
        });
        self.tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(collection.clone(), Arc::clone(&table));
        Ok(table)
    }

    /// Writes rows in one transaction, or each in its own if they block each other. Returns `None` for a row that was not tried
    /// because earlier ones took too long.
    async fn apply(
        &self,
        table: &TableSchema,
        writes: &[&DocumentWrite],
    ) -> Result<Vec<RowEnd>, DatabaseError> {
        match self
            .database
            .write(
                table,
                writes.iter().copied().map(row_of).collect(),
                LockWait::Long,
            )
            .await
        {
            Ok(applied) => {
                return Ok(applied
                    .into_iter()
                    .map(|written| Some(Ok(written)))
                    .collect());
            }
            Err(error) if error.contention.is_some() && writes.len() > 1 => {}
            Err(error) => return Err(error),
        }
        let (mut ends, mut slow, began) = (Vec::with_capacity(writes.len()), 0, Instant::now());
        for write in writes {
            if slow == SLOW_ALONE || began.elapsed() >= ALONE {
                ends.push(None);
                continue;
            }
            let alone = self
                .database
                .write(table, vec![row_of(write)], LockWait::Short)
                .await;
            slow += usize::from(alone.as_ref().is_err_and(takes_long));
            ends.push(Some(alone.map(|written| written.first() == Some(&true))));
        }
        Ok(ends)
    }

    fn forget(&self, collection: &CollectionName) {
        self.tables
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(collection);
    }

    /// The error of a request. The cached schema is discarded if the error suggests that the table has changed.
    fn failed(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        what: Resource,
        error: DatabaseError,
    ) -> StoreError {
        if !error.class.is_transient() {
            self.forget(collection);
        }
        self.error(operation, what, error)
    }
}

#[async_trait]
impl<D: Database> Sink for SqlSink<D> {
    fn is_readable(&self) -> bool {
        true
    }

    fn batching(&self) -> SinkBatching {
        SinkBatching::Together
    }

    async fn write(
        &self,
        collection: &CollectionName,
        writes: &[DocumentWrite],
    ) -> Result<WriteResults, StoreError> {
        let fits = |table: &TableSchema| {
            writes
                .iter()
                .flat_map(|write| &write.document)
                .all(|document| unknown(table, document).is_none())
        };
        let mut table = self.table(WRITE, collection, false).await?;
        if !fits(&table) {
            table = self.table(WRITE, collection, true).await?;
        }
        let error = |write: &DocumentWrite, class, message: String| {
            self.error(
                WRITE,
                Resource::Document(collection.clone(), write.key.clone()),
                DatabaseError::new(class, message),
            )
        };
        let mut written: WriteResults = Vec::with_capacity(writes.len());
        let mut places = Vec::new();
        for (place, write) in writes.iter().enumerate() {
            written.push(
                if let Some(column) = write
                    .document
                    .as_ref()
                    .and_then(|document| unknown(&table, document))
                {
                    let lacks = error(
                        write,
                        ErrorClass::Permanent,
                        format!("the table has no column {column}. Run `evenkeel migrate up`"),
                    );
                    Err(StoreError {
                        withheld: Some(Withheld::TableMissing),
                        ..lacks
                    })
                } else {
                    places.push(place);
                    Ok(())
                },
            );
        }
        if places.is_empty() {
            return Ok(written);
        }
        let rows: Vec<&DocumentWrite> = places.iter().map(|place| &writes[*place]).collect();
        let applied = self.apply(&table, &rows).await;
        let applied = applied.map_err(|error| {
            self.failed(
                WRITE,
                collection,
                Resource::Collection(collection.clone()),
                error,
            )
        })?;
        for (place, end) in places.into_iter().zip(applied) {
            let write = &writes[place];
            match end {
                Some(Ok(true)) => {}
                Some(Ok(false)) => {
                    written[place] = Err(error(
                        write,
                        ErrorClass::Precondition,
                        "a newer version of this row exists".to_owned(),
                    ));
                }
                Some(Err(error)) => {
                    let what = Resource::Document(collection.clone(), write.key.clone());
                    written[place] = Err(self.failed(WRITE, collection, what, error));
                }
                None => {
                    let message = "not tried: earlier rows of the batch took too long".to_owned();
                    let untried =
                        error(write, ErrorClass::Transient { retry_after: None }, message);
                    written[place] = Err(untried.not_sent(Withheld::BatchTimedOut, NOT_TRIED));
                }
            }
        }
        Ok(written)
    }

    async fn get(
        &self,
        collection: &CollectionName,
        key: &DocumentKey,
    ) -> Result<Option<SinkDocument>, StoreError> {
        let table = self.table(GET, collection, false).await?;
        let found = self.database.read(&table, key.as_str()).await;
        let what = || Resource::Document(collection.clone(), key.clone());
        let found = found.map_err(|error| self.failed(GET, collection, what(), error))?;
        Ok(found.map(|columns| SinkDocument(columns.into_iter().collect())))
    }

    async fn fields(&self, collection: &CollectionName) -> Result<Option<Fields>, StoreError> {
        let found = self.database.columns(collection.as_str()).await;
        found.map_err(|error| self.error(DESCRIBE, Resource::Collection(collection.clone()), error))
    }

    async fn define(
        &self,
        collection: &CollectionName,
        fields: &BTreeMap<String, ColumnType>,
    ) -> Result<(), StoreError> {
        let error = |error| self.error(DEFINE, Resource::Collection(collection.clone()), error);
        self.forget(collection);
        let mut columns = declared::<D>(fields);
        let statements = match self
            .database
            .columns(collection.as_str())
            .await
            .map_err(error)?
        {
            Some(there) if collection.as_str() == TOMBSTONES && !there.contains_key("version") => {
                vec![statement::version_tombstones()]
            }
            _ if collection.as_str() == TOMBSTONES => vec![statement::tombstones()],
            None => statement::create(collection.as_str(), &columns),
            Some(there) if !there.contains_key(KEY) || !there.contains_key(VERSION) => {
                let message = format!(
                    "the table does not belong to evenkeel, because it lacks the columns {KEY} and {VERSION}. Use another table for the view"
                );
                return Err(error(DatabaseError::new(ErrorClass::Permanent, message)));
            }
            Some(there) => {
                columns.retain(|name, _| !there.contains_key(name));
                statement::add(collection.as_str(), &columns)
            }
        };
        let Err(problem) = self.database.execute(statements).await else {
            return Ok(());
        };
        // Another process may have made the same change meanwhile.
        let there = self
            .database
            .columns(collection.as_str())
            .await
            .map_err(error)?;
        if there.is_some_and(|there| fields.keys().all(|name| there.contains_key(name))) {
            Ok(())
        } else {
            Err(error(problem))
        }
    }
}

fn row_of(write: &DocumentWrite) -> SqlRow {
    SqlRow {
        key: write.key.to_string(),
        version: write.version,
        document: write.document.clone(),
    }
}

/// Whether a single row failed after a long time: not at once, and not after the short wait for its lock.
fn takes_long(error: &DatabaseError) -> bool {
    error.class.is_transient() && error.contention != Some(Contention::Held)
}

/// A column that a document needs and the table lacks.
fn unknown<'d>(table: &TableSchema, document: &'d SinkDocument) -> Option<&'d str> {
    let columns = document.0.keys().map(String::as_str);
    [KEY, VERSION]
        .into_iter()
        .chain(columns)
        .find(|column| !table.columns.contains_key(*column))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::sql::sqlite::Sqlite;
    use evenkeel_layers::stack::decorate_sink;
    use evenkeel_model::settings::{Backoff, RetryPolicy};
    use evenkeel_storage::system::{SeededRng, SystemClock};
    use evenkeel_storage::{Clock, Rng, StoreHealth as _};

    #[tokio::test]
    async fn jobs_wait_for_a_missing_table_and_the_error_names_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reporting.db");
        let sink = SqlSink::new(&AccountName::main(), Sqlite::new(path.clone()));
        let (staff, tombstones) = (
            CollectionName::new("staff").unwrap(),
            CollectionName::new(TOMBSTONES).unwrap(),
        );
        let fields = BTreeMap::from([("name".to_owned(), ColumnType::Text(None))]);
        let document = SinkDocument(BTreeMap::from([("name".to_owned(), json!("Ada"))]));
        let write = DocumentWrite {
            key: DocumentKey::new("a").unwrap(),
            document: Some(document),
            version: 1,
            deadline: None,
        };
        let write_it = async || {
            let written = sink.write(&staff, std::slice::from_ref(&write)).await;
            written
                .and_then(|written| written.into_iter().next().unwrap())
                .map_err(|error| (error.withheld, error.to_string()))
        };
        let waits = async |texts: [&str; 2]| {
            let (withheld, text) = write_it().await.unwrap_err();
            assert!(
                withheld == Some(Withheld::TableMissing)
                    && texts.iter().all(|part| text.contains(part)),
                "{withheld:?} {text}"
            );
        };
        let admin = |statement: &str| {
            Connection::open(&path)
                .unwrap()
                .execute_batch(statement)
                .unwrap();
        };
        waits([
            "the table does not exist",
            "`evenkeel migrate up` creates it",
        ])
        .await;
        sink.define(&staff, &fields).await.unwrap();
        assert_eq!(write_it().await, Ok(()));

        admin("DROP TABLE evenkeel_tombstones");
        waits([TOMBSTONES, "`evenkeel migrate up` creates it"]).await;
        assert_eq!(sink.fields(&tombstones).await.unwrap(), None);
        sink.define(&tombstones, &fields).await.unwrap();
        assert_eq!(write_it().await, Ok(()));

        admin("ALTER TABLE evenkeel_tombstones DROP COLUMN version");
        waits(["version", "`evenkeel migrate up` creates it"]).await;
        sink.define(&tombstones, &fields).await.unwrap();
        assert_eq!(write_it().await, Ok(()));

        // First the cached columns are used, then the current ones.
        admin("ALTER TABLE staff DROP COLUMN name");
        waits(["name", "`evenkeel migrate up` creates it"]).await;
        waits(["no column name", "Run `evenkeel migrate up`"]).await;
        sink.define(&staff, &fields).await.unwrap();
        assert_eq!(write_it().await, Ok(()));

        admin("ALTER TABLE staff RENAME COLUMN ek_key TO theirs");
        waits(["ek_key", "`evenkeel migrate up`"]).await;
        waits(["no column ek_key", "Run `evenkeel migrate up`"]).await;
        assert!(
            sink.define(&staff, &fields)
                .await
                .unwrap_err()
                .message
                .contains("does not belong to evenkeel")
        );
    }

    #[tokio::test]
    async fn a_table_that_a_users_trigger_lacks_fails_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reporting.db");
        let sink = SqlSink::new(&AccountName::main(), Sqlite::new(path.clone()));
        let staff = CollectionName::new("staff").unwrap();
        sink.define(
            &staff,
            &BTreeMap::from([("name".to_owned(), ColumnType::Text(None))]),
        )
        .await
        .unwrap();
        let document = SinkDocument(BTreeMap::from([("name".to_owned(), json!("Ada"))]));
        let write = DocumentWrite {
            key: DocumentKey::new("a").unwrap(),
            document: Some(document),
            version: 1,
            deadline: None,
        };
        let admin = |statement: &str| {
            Connection::open(&path)
                .unwrap()
                .execute_batch(statement)
                .unwrap();
        };
        admin("CREATE TABLE kept (at TEXT)");
        for does in [
            "INSERT INTO log VALUES (NEW.ek_key)",
            "INSERT INTO kept (absent) VALUES (1)",
        ] {
            admin(&format!(
                "CREATE TRIGGER theirs AFTER INSERT ON staff BEGIN {does}; END"
            ));
            let error = sink
                .write(&staff, std::slice::from_ref(&write))
                .await
                .unwrap_err();
            assert_eq!(
                (error.class, error.withheld),
                (ErrorClass::Permanent, None),
                "{does}: {error}"
            );
            admin("DROP TRIGGER theirs");
        }
        assert!(
            sink.write(&staff, std::slice::from_ref(&write))
                .await
                .unwrap()[0]
                .is_ok()
        );
    }

    /// A database in which certain rows are contended: a transaction with one of them fails after the time `takes`. Records the
    /// number of rows and the lock wait of each transaction.
    struct Contended {
        rows: BTreeMap<&'static str, Contention>,
        takes: Duration,
        transactions: Mutex<Vec<(usize, LockWait)>>,
    }

    #[async_trait]
    impl Database for Contended {
        fn type_name(column: ColumnType) -> String {
            column.to_string()
        }

        async fn columns(&self, _: &str) -> Result<Option<Fields>, DatabaseError> {
            Ok(Some(
                [KEY, VERSION, "name"]
                    .map(|name| (name.to_owned(), "text".to_owned()))
                    .into(),
            ))
        }

        async fn execute(&self, _: Vec<String>) -> Result<(), DatabaseError> {
            Ok(())
        }

        async fn write(
            &self,
            _: &TableSchema,
            rows: Vec<SqlRow>,
            wait: LockWait,
        ) -> Result<Vec<bool>, DatabaseError> {
            self.transactions.lock().unwrap().push((rows.len(), wait));
            match rows
                .iter()
                .find_map(|row| Some((&row.key, *self.rows.get(row.key.as_str())?)))
            {
                Some((key, why)) => {
                    if !self.takes.is_zero() {
                        tokio::time::sleep(self.takes).await;
                    }
                    let code = match why {
                        Contention::Held => "55P03",
                        Contention::Slow => "57014",
                    };
                    let error = DatabaseError::transient(format!("waiting for {key}"));
                    Err(DatabaseError {
                        contention: Some(why),
                        code: Some(code.to_owned()),
                        ..error
                    })
                }
                None => Ok(vec![true; rows.len()]),
            }
        }

        async fn read(
            &self,
            _: &TableSchema,
            _: &str,
        ) -> Result<Option<Map<String, Value>>, DatabaseError> {
            Ok(None)
        }
    }

    type Ended = Result<(), (Option<Withheld>, String)>;

    fn own(key: &str) -> Ended {
        Err((None, format!("waiting for {key}")))
    }

    fn behind() -> Ended {
        Err((
            Some(Withheld::BatchTimedOut),
            "not tried: earlier rows of the batch took too long".to_owned(),
        ))
    }

    fn contended(rows: &[(&'static str, Contention)], takes: Duration) -> SqlSink<Contended> {
        let database = Contended {
            rows: rows.iter().copied().collect(),
            takes,
            transactions: Mutex::default(),
        };
        SqlSink::new(&AccountName::main(), database)
    }

    fn rows<const N: usize>(keys: [&str; N]) -> [DocumentWrite; N] {
        keys.map(|key| DocumentWrite {
            key: DocumentKey::new(key).unwrap(),
            document: Some(SinkDocument(BTreeMap::from([(
                "name".to_owned(),
                json!("Ada"),
            )]))),
            version: 1,
            deadline: None,
        })
    }

    /// Writes five rows at once, some of which block the batch. Returns the results and the transactions.
    async fn five_at_once(
        held: &[(&'static str, Contention)],
        takes: Duration,
    ) -> (Vec<Ended>, Vec<(usize, LockWait)>) {
        let (sink, writes) = (contended(held, takes), rows(["a", "b", "c", "d", "e"]));
        let written = sink
            .write(&CollectionName::new("staff").unwrap(), &writes)
            .await
            .unwrap();
        let ended = written.into_iter().map(|ended| {
            ended.map_err(|error| {
                assert_eq!(error.class, ErrorClass::Transient { retry_after: None });
                (error.withheld, error.message.into_string())
            })
        });
        let transactions = sink.database.transactions.lock().unwrap().clone();
        (ended.collect(), transactions)
    }

    #[tokio::test]
    async fn each_row_of_a_batch_with_locked_rows_has_its_own_result() {
        let held = ["a", "b", "c"].map(|key| (key, Contention::Held));
        let (ended, transactions) = five_at_once(&held, Duration::ZERO).await;
        assert_eq!(ended, [own("a"), own("b"), own("c"), Ok(()), Ok(())]);
        let alone = [(1_usize, LockWait::Short); 5];
        assert_eq!(
            transactions,
            [&[(5_usize, LockWait::Long)][..], &alone].concat()
        );
    }

    #[tokio::test]
    async fn a_row_after_slow_ones_is_not_tried_and_has_not_failed() {
        let (ended, transactions) = five_at_once(
            &["a", "c"].map(|key| (key, Contention::Slow)),
            Duration::ZERO,
        )
        .await;
        assert_eq!(ended, [own("a"), Ok(()), own("c"), behind(), behind()]);
        assert_eq!(transactions.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_written_alone_for_half_a_minute() {
        let held = ["a", "b", "c", "d", "e"].map(|key| (key, Contention::Held));
        let (ended, _) = five_at_once(&held, Duration::from_secs(12)).await;
        assert_eq!(ended, [own("a"), own("b"), own("c"), behind(), behind()]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_statements_open_the_circuit_and_a_locked_row_closes_it() {
        let held = [
            ("a", Contention::Slow),
            ("b", Contention::Slow),
            ("c", Contention::Held),
            ("d", Contention::Held),
        ];
        let bare = Arc::new(contended(&held, Duration::from_secs(10)));
        let sink: Arc<dyn Sink> = bare.clone();
        let once = RetryPolicy::growing(
            Backoff {
                min: Duration::ZERO,
                base: Duration::ZERO,
                max: Duration::ZERO,
            },
            1,
        );
        let (clock, rng): (Arc<dyn Clock>, Arc<dyn Rng>) =
            (Arc::new(SystemClock::new()), Arc::new(SeededRng::new(7)));
        let decorated = decorate_sink(&AccountName::main(), sink, once, &clock, &rng);
        let staff = CollectionName::new("staff").unwrap();
        let transactions = || bare.database.transactions.lock().unwrap().len();
        let write = async |keys: [&str; 2]| {
            decorated
                .sink
                .write(&staff, &rows(keys))
                .await
                .map_err(|error| error.withheld)
        };
        for _ in 0..8 {
            assert!(decorated.circuit.open_circuits().is_empty());
            assert!(write(["a", "b"]).await.unwrap().iter().all(Result::is_err));
        }
        assert_eq!(decorated.circuit.open_circuits().len(), 1);
        assert_eq!(
            write(["a", "b"]).await.unwrap_err(),
            Some(Withheld::CircuitOpen)
        );
        for (keys, open) in [(["a", "b"], 1), (["c", "d"], 0)] {
            let before = transactions();
            tokio::time::sleep(Duration::from_secs(6)).await;
            assert!(write(keys).await.unwrap().iter().all(Result::is_err));
            assert_eq!(
                (
                    transactions() - before,
                    decorated.circuit.open_circuits().len()
                ),
                (3, open),
                "{keys:?}"
            );
        }
    }
}
