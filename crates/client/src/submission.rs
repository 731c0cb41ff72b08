//! Sends jobs. A job is first checked as the worker checks it. It is sent to the first queue that accepts it.

use std::time::Duration;

use super::{Client, ClientError};
use evenkeel_model::catalog::{ArchiveTarget, Catalog, TableRef};
use evenkeel_model::job::{Batch, Effect, JobEnvelope, JobRequest, JobSubject};
use evenkeel_model::nearest::{listed, meant_or_known};
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{
    AccountName, Job, QueueName, TableName, ViewName, body, cause, job, limits, shard,
};
use evenkeel_storage::Ttl;

/// A checked job that is ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedMessage {
    /// The account of the queue.
    pub account: AccountName,
    /// The queue, or the queue's shard for the key of the job.
    pub queue: QueueName,
    /// The text of the message.
    pub text: String,
    /// The operation.
    pub op: &'static str,
    /// Number of jobs in the message. A batch has several jobs.
    pub jobs: usize,
    /// A text that describes what the job is about, for log lines and errors.
    pub about: String,
    /// The id that the client gave to the job.
    pub id: Option<String>,
    /// Names of fields in the job that the operation does not have.
    pub unknown_fields: Vec<String>,
}

/// A job that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// The queue, or the queue's shard for the key of the job.
    pub queue: QueueName,
    /// The id of the message.
    pub message_id: String,
    /// The operation.
    pub op: &'static str,
    /// The id that the client gave to the job.
    pub id: Option<String>,
    /// Names of fields in the job that the operation does not have. They are sent, and the worker ignores them.
    pub unknown_fields: Vec<String>,
}

impl Client {
    /// Sends a job: JSON as described in `docs/jobs.md`, of at most 1 MiB. It may be plain, in Base64, or compressed with gzip in Base64.
    /// The job goes to the first declared queue that accepts its operation. If the queue has shards, the key of the job selects the shard.
    /// A plain job is compressed if it exceeds 48 KiB.
    ///
    /// # Errors
    ///
    /// [`ClientError::Job`] if the worker would poison the job. Nothing was sent then. After any other error, the job may have been
    /// sent. It is safe to send it again, because a queue may deliver a message twice anyway.
    ///
    /// ```
    /// # use evenkeel_client::{Client, ClientError};
    /// # async fn example(client: &Client) -> Result<(), ClientError> {
    /// let sent = client.submit(r#"{"op": "archive", "archive": "former_employees", "pk": "Sales", "rk": "000223"}"#).await?;
    /// println!("{} on {}", sent.message_id, sent.queue);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn submit(&self, job: &str) -> Result<SentMessage, ClientError> {
        self.send(&self.prepare(job, None)?).await
    }

    /// Like [`submit`](Self::submit), but sends the job to this queue.
    pub async fn submit_to(
        &self,
        queue: &QueueName,
        job: &str,
    ) -> Result<SentMessage, ClientError> {
        self.send(&self.prepare(job, Some(queue))?).await
    }

    /// Checks a job as the worker does, without sending it.
    pub fn prepare(
        &self,
        job: &str,
        queue: Option<&QueueName>,
    ) -> Result<PreparedMessage, ClientError> {
        prepare(job, queue, &self.queues, &self.catalog).map_err(ClientError::Job)
    }

    /// Sends a checked job. If the key-encryption keys are available, the client encrypts the properties that must be
    /// encrypted; otherwise the worker encrypts them. An encrypted batch may need several messages. In this case the id
    /// of the first message is returned.
    pub async fn send(&self, job: &PreparedMessage) -> Result<SentMessage, ClientError> {
        let queues = &self.account(&job.account)?.queues;
        let encrypted = self.encrypted_texts(job).await?;
        let mut ids = Vec::new();
        for text in encrypted
            .as_deref()
            .unwrap_or_else(|| std::slice::from_ref(&job.text))
        {
            let sent = queues
                .put(&job.queue, text, Duration::ZERO, Ttl::Never)
                .await;
            ids.push(
                sent.map_err(ClientError::store(format!(
                    "could not send the job to queue {}",
                    job.queue
                )))?
                .id,
            );
        }
        let (queue, message_id, op, id) = (
            job.queue.clone(),
            ids.swap_remove(0),
            job.op,
            job.id.clone(),
        );
        Ok(SentMessage {
            queue,
            message_id,
            op,
            id,
            unknown_fields: job.unknown_fields.clone(),
        })
    }
}

/// Checks a job like the worker checks it. The error is the reason for which the worker would poison the job.
fn prepare(
    text: &str,
    queue: Option<&QueueName>,
    queues: &[QueueSettings],
    catalog: &Catalog,
) -> Result<PreparedMessage, String> {
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    // A message that is already encoded (Base64, or gzip in Base64) is sent unchanged.
    let message = if trimmed.starts_with('{') {
        packed(trimmed)?
    } else {
        trimmed.to_owned()
    };
    let object = job::decode_object(&message).map_err(|error| cause::chain(&error))?;
    let (envelope, jobs) =
        match job::decode_request(object).map_err(|error| cause::chain(&error))? {
            JobRequest::Job(envelope) => (envelope, 1),
            JobRequest::Batch(batch) => (first_of(&batch, catalog)?, batch.len()),
        };
    let table = table_of(&envelope.job, catalog)?;
    let op = envelope.job.op();
    let queue = accepting_queue(&envelope.job, queue, queues, catalog)?;
    // A job about a whole table has no key and goes to the first shard. A batch goes to the shard that the key of its
    // first job selects.
    let shard = envelope
        .job
        .key()
        .map_or(0, |key| shard(&table.table, key, queue.shards));
    let name = queue.shard_names().into_iter().nth(shard as usize);
    let name = name.ok_or_else(|| {
        format!(
            "queue {} with {} shards has no valid name for the shard of this key",
            queue.name, queue.shards
        )
    })?;
    Ok(PreparedMessage {
        account: queue.account.clone(),
        queue: name,
        text: message,
        op,
        about: match envelope.job.key() {
            None => format!("of {table}"),
            Some(key) if jobs == 1 => format!("{table}{key}"),
            Some(_) => format!("of {jobs} primaries of {table}"),
        },
        jobs,
        id: envelope.id,
        unknown_fields: envelope.unknown_fields,
    })
}

/// Checks every job of a batch and returns the first job.
fn first_of(batch: &Batch, catalog: &Catalog) -> Result<JobEnvelope, String> {
    let in_job =
        |at: usize, problem: String| format!("job {} of {}: {problem}", at + 1, batch.len());
    for at in 1..batch.len() {
        let envelope = batch
            .job(at)
            .map_err(|error| in_job(at, cause::chain(&error)))?;
        table_of(&envelope.job, catalog).map_err(|problem| in_job(at, problem))?;
    }
    let first = batch
        .job(0)
        .map_err(|error| in_job(0, cause::chain(&error)))?;
    let unknown_fields = batch
        .sample()
        .map_err(|error| cause::chain(&error))?
        .unknown_fields;
    Ok(JobEnvelope {
        unknown_fields,
        ..first
    })
}

pub(super) fn packed(json: &str) -> Result<String, String> {
    body::pack(json).ok_or_else(|| {
        format!(
            "the job has {} bytes, but a message holds at most {} (48 KiB) compressed and {} (1 MiB) expanded. Stage large values in a blob, or send several merges",
            json.len(),
            limits::QUEUE_BODY_BYTES,
            limits::EXPANDED_BODY_BYTES
        )
    })
}

/// Returns the table of the primary that a job is about. The shard of the job is selected by this table and the key.
/// For an archive or restore job, the table is the source of the archive, so that all jobs of one primary go to the
/// same shard.
pub(super) fn table_of(job: &Job, catalog: &Catalog) -> Result<TableRef, String> {
    let derives = job.effect() == Effect::Derives;
    match job.operation().subject() {
        // This includes archived entities that are stored as documents.
        JobSubject::Primary(table, _) => {
            let archived = catalog
                .archived_values
                .get(table)
                .filter(|_| derives)
                .map(|archived| archived.table.clone());
            archived.map_or_else(|| named_table(table, job, catalog), Ok)
        }
        JobSubject::Moved(from, to) => named_table(&to.table, job, catalog)
            .and_then(|_| named_table(&from.table, job, catalog)),
        JobSubject::Restored(archive, _)
            if catalog
                .archives
                .get(archive)
                .is_some_and(|archive| matches!(archive.target, ArchiveTarget::Log(_))) =>
        {
            Err(format!(
                "cannot restore from log archive {archive}. Read it with `evenkeel logs {archive}`"
            ))
        }
        JobSubject::Archived(archive, _)
        | JobSubject::Restored(archive, _)
        | JobSubject::Source(archive) => known_archive(archive, catalog),
        JobSubject::Table(table) => named_table(table, job, catalog),
        JobSubject::View(view) => known_view(view, catalog),
        JobSubject::Range(propagation) => known_view(&propagation.view, catalog),
        JobSubject::DatedTable(table) => dated_table(table, catalog),
    }
}

fn dated_table(name: &TableName, catalog: &Catalog) -> Result<TableRef, String> {
    catalog.dated_table(name).cloned().ok_or_else(|| {
        let known: Vec<String> = catalog
            .retentions
            .values()
            .map(|retention| retention.tables.to_string())
            .collect();
        format!(
            "cannot drop table {name}: it matches no [retention] pattern; patterns are {}",
            listed(&known)
        )
    })
}

fn known_view(name: &ViewName, catalog: &Catalog) -> Result<TableRef, String> {
    if let Some(view) = catalog.dated_views.get(name) {
        return Err(format!(
            "view {name} has the dated tables {} as its source. Name one of them as `table` instead of `view`",
            view.source
        ));
    }
    catalog
        .views
        .get(name)
        .map(|view| view.source.clone())
        .ok_or_else(|| {
            let known: Vec<String> = catalog
                .declared()
                .into_keys()
                .map(ToString::to_string)
                .collect();
            format!(
                "the catalog has no view {name}; {}",
                meant_or_known(name.as_str(), &known)
            )
        })
}

/// Returns a table of the catalog. It is an error if the job must not change this table.
fn named_table(name: &TableName, job: &Job, catalog: &Catalog) -> Result<TableRef, String> {
    let table = catalog.table(name).ok_or_else(|| {
        if catalog.spread.contains_key(name) {
            return format!("table {name} is spread over several accounts and written by views. Send jobs for the primaries of its rows");
        }
        let known: Vec<String> = catalog.tables.keys().map(ToString::to_string).collect();
        format!("the catalog has no table {name}; {}", meant_or_known(name.as_str(), &known))
    })?;
    let refused = catalog
        .refuse_view_table(table)
        .err()
        .filter(|_| job.effect() != Effect::Derives);
    refused.map_or_else(|| Ok(table.clone()), |refused| Err(refused.to_string()))
}

fn known_archive(name: &ViewName, catalog: &Catalog) -> Result<TableRef, String> {
    catalog
        .archives
        .get(name)
        .map(|archive| archive.source.clone())
        .ok_or_else(|| {
            let known: Vec<String> = catalog.archives.keys().map(ToString::to_string).collect();
            format!(
                "the catalog has no archive {name}; {}",
                meant_or_known(name.as_str(), &known)
            )
        })
}

/// Returns the requested queue. If none is requested, it is the first queue that accepts the job.
fn accepting_queue<'a>(
    job: &Job,
    requested: Option<&QueueName>,
    queues: &'a [QueueSettings],
    catalog: &Catalog,
) -> Result<&'a QueueSettings, String> {
    let op = job.op();
    let reaches =
        |queue: &&QueueSettings| queue.allows_tables(catalog.tables_of(job.operation().subject()));
    let Some(name) = requested else {
        let carrier = queues
            .iter()
            .filter(reaches)
            .find(|queue| queue.allows_op(op));
        return carrier.ok_or_else(|| {
            format!("no declared queue accepts {op} jobs for this table (see `allow` and `tables`)")
        });
    };
    let queue = queues
        .iter()
        .find(|queue| queue.name == *name)
        .ok_or_else(|| format!("queue {name} is not declared"))?;
    match (queue.allows_op(op), reaches(&queue)) {
        (true, true) => Ok(queue),
        (false, _) => Err(format!(
            "queue {name} does not accept {op} jobs (see its `allow`)"
        )),
        (true, false) => Err(format!(
            "queue {name} does not accept jobs for this table (see its `tables`)"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::allowed::JobAllowance;
    use evenkeel_model::catalog::{Archive, LogTarget};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn table(name: &str) -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new(name).unwrap(),
        }
    }

    fn catalog() -> Catalog {
        let mut catalog = Catalog::default();
        for name in ["Employees", "FormerEmployees"] {
            catalog
                .tables
                .insert(TableName::new(name).unwrap(), table(name));
        }
        let name = ViewName::new("former_employees").unwrap();
        let archive = Archive {
            name: name.clone(),
            source: table("Employees"),
            target: ArchiveTarget::Table(table("FormerEmployees")),
        };
        catalog.archives.insert(name, Arc::new(archive));
        let name = ViewName::new("the_log").unwrap();
        let target = ArchiveTarget::Log(LogTarget {
            account: AccountName::main(),
            container: "logs".parse().unwrap(),
            path: evenkeel_model::log::LogPath::parse("logs/%Y/%m/%d/%H00").unwrap(),
            time: None,
            spread: 1,
            roll_at: LogTarget::ROLL_AT,
        });
        catalog.archives.insert(
            name.clone(),
            Arc::new(Archive {
                name,
                source: table("Employees"),
                target,
            }),
        );
        catalog
    }

    fn settings(queues: &[(&str, u32, Option<&[&str]>)]) -> Vec<QueueSettings> {
        let queues = queues.iter().map(|(name, shards, allow)| QueueSettings {
            shards: *shards,
            allowed: JobAllowance {
                ops: allow.map(|ops| {
                    ops.iter()
                        .map(|op| (*op).to_owned())
                        .collect::<BTreeSet<_>>()
                }),
                tables: None,
            },
            ..QueueSettings::plain(QueueName::new(*name).unwrap())
        });
        queues.collect()
    }

    const SYNC: &str =
        r#"{"op":"sync","table":"employees","pk":"Sales","rk":"000223","id":"mine"}"#;
    const ARCHIVE: &str =
        r#"{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000223"}"#;

    #[test]
    fn all_jobs_of_one_primary_go_to_the_same_shard() {
        let settings = settings(&[("jobs", 16, None)]);
        let sync = prepare(SYNC, None, &settings, &catalog()).unwrap();
        let archive = prepare(ARCHIVE, None, &settings, &catalog()).unwrap();
        assert_eq!(sync.queue.as_str(), "jobs-05");
        assert_eq!(archive.queue, sync.queue);
    }

    #[test]
    fn fields_that_the_operation_does_not_have_are_counted_and_sent_along() {
        let mistyped =
            r#"{"op":"sync","table":"employees","pk":"Sales","rk":"000223","trace_parent":"x"}"#;
        let prepared =
            prepare(mistyped, None, &settings(&[("jobs", 1, None)]), &catalog()).unwrap();
        assert_eq!(
            (prepared.unknown_fields.len(), prepared.text),
            (1, body::encode(mistyped))
        );
    }

    #[test]
    fn a_message_is_sent_in_base64_and_an_encoded_one_as_it_is() {
        let settings = settings(&[("jobs", 1, None)]);
        let plain = prepare(SYNC, None, &settings, &catalog()).unwrap();
        assert_eq!(plain.text, body::encode(SYNC));
        let encoded = prepare(&body::encode(SYNC), None, &settings, &catalog()).unwrap();
        assert_eq!(encoded, plain);
        assert_eq!(
            (plain.queue.as_str(), plain.id.as_deref()),
            ("jobs", Some("mine"))
        );
    }

    #[test]
    fn a_long_job_is_compressed_and_one_that_is_too_long_says_what_to_do() {
        let settings = settings(&[("jobs", 1, None)]);
        let job = |note: &str| {
            format!(
                r#"{{"op":"sync","table":"employees","pk":"Sales","rk":"000223","note":"{note}"}}"#
            )
        };
        let prepared = prepare(&job(&"x".repeat(60_000)), None, &settings, &catalog()).unwrap();
        assert!(prepared.text.len() < 1_000);
        let error = prepare(&job(&"x".repeat(2_000_000)), None, &settings, &catalog()).unwrap_err();
        assert!(error.contains("Stage large values in a blob"), "{error}");
    }

    #[test]
    fn a_job_goes_to_the_first_queue_that_accepts_its_operation() {
        let settings = settings(&[("archives", 1, Some(&["archive"])), ("jobs", 1, None)]);
        assert_eq!(
            prepare(SYNC, None, &settings, &catalog())
                .unwrap()
                .queue
                .as_str(),
            "jobs"
        );
        assert_eq!(
            prepare(ARCHIVE, None, &settings, &catalog())
                .unwrap()
                .queue
                .as_str(),
            "archives"
        );
        let requested = QueueName::new("archives").unwrap();
        let error = prepare(SYNC, Some(&requested), &settings, &catalog()).unwrap_err();
        assert!(error.contains("does not accept sync"), "{error}");
    }

    #[test]
    fn a_job_that_would_be_poisoned_is_refused_with_the_reason() {
        let settings = settings(&[("jobs", 1, None)]);
        for (text, word) in [
            ("no job at all", "neither a JSON object nor Base64"),
            (r#"{"op":"sync","table":"Employees","pk":"Sales"}"#, "rk"),
            (
                r#"{"op":"sync","table":"Employee","pk":"Sales","rk":"7"}"#,
                "no table Employee; did you mean Employees?",
            ),
            (
                r#"{"op":"sync","table":"Nowhere","pk":"Sales","rk":"7"}"#,
                "known are Employees, FormerEmployees",
            ),
            (
                r#"{"op":"restore","archive":"nowhere","pk":"Sales","rk":"7"}"#,
                "known are former_employees",
            ),
            (
                r#"{"op":"restore","archive":"the_log","pk":"Sales","rk":"7"}"#,
                "Read it with `evenkeel logs the_log`",
            ),
        ] {
            let error = prepare(text, None, &settings, &catalog()).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
