//! Signatures on cursors: a cursor is trusted only if a worker wrote it into this very message.
//!
//! A cursor records which part of a job is already done. With a forged cursor, anybody who may add messages could make
//! a worker drop a table whose rows are in no archive, or record findings that no audit made. So each cursor has a
//! signature, an HMAC over the id of its message, the operation and the cursor. The secret is in `EvenkeelMigrations`
//! of the account `main`. The first worker that needs the secret creates it. If a cursor has no valid signature, it is
//! ignored and the job begins anew. The same secret is used to sign footprints, and as the key for digests of jobs.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::env::Env;
use crate::env::secret::{SECRET, Secret};
use crate::execute::{Delivery, Failure, Outcome};
use crate::failure::{permanent, storage};
use evenkeel_model::cursor::JobCursor;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::{AccountName, EdmValue, Entity, EntityKey, Job, TableName};
use evenkeel_storage::{ErrorClass, Missing, StoreError, TableOperation, TableStore};

const STEP: &str = "reading the signing secret of footprints and cursors";

#[derive(Debug, thiserror::Error)]
#[error(
    "the row (\"secret\", \"cursors\") of EvenkeelMigrations is malformed. Delete it. Running jobs will then start over"
)]
struct UnreadableSecret;

struct CursorSignature {
    secret: Secret,
    message_id: String,
    op: &'static str,
}

impl CursorSignature {
    fn of(&self, cursor: &Value) -> String {
        hex::encode(
            self.secret
                .mac(&[&serde_json::json!([self.message_id, self.op, cursor]).to_string()]),
        )
    }

    fn sign(&self, fields: &mut Map<String, Value>) {
        let Some(cursor) = fields.get_mut("cursor") else {
            return;
        };
        let signature = self.of(cursor);
        if let Some(cursor) = cursor.as_object_mut() {
            cursor.insert("signature".to_owned(), Value::String(signature));
        }
    }

    /// Resets a cursor that has no valid signature for this message.
    fn verify(&self, cursor: &mut dyn JobCursor) {
        let stored_signature = cursor.take_signature();
        if cursor.has_begun()
            && stored_signature.as_deref() != Some(self.of(&cursor.to_json()).as_str())
        {
            let Self { op, message_id, .. } = self;
            tracing::warn!(
                op,
                message_id,
                "ignored the cursor of {op} job {message_id}: no worker wrote it into this message; the job starts over"
            );
            cursor.restart();
        }
    }
}

pub(crate) async fn verified(env: &Env, job: &Job, delivery: &Delivery) -> Result<Job, Failure> {
    let mut job = job.clone();
    let op = job.op();
    if let Some(cursor) = job
        .operation_mut()
        .cursor_mut()
        .filter(|cursor| cursor.has_begun())
    {
        cursor_signature(env, op, delivery).await?.verify(cursor);
    }
    Ok(job)
}

pub(crate) async fn signed(
    env: &Env,
    job: &Job,
    mut outcome: Outcome,
    delivery: &Delivery,
) -> Result<Outcome, Failure> {
    if let Outcome::Advanced { fields, .. } = &mut outcome
        && fields.contains_key("cursor")
    {
        cursor_signature(env, job.op(), delivery)
            .await?
            .sign(fields);
    }
    Ok(outcome)
}

async fn cursor_signature(
    env: &Env,
    op: &'static str,
    delivery: &Delivery,
) -> Result<CursorSignature, Failure> {
    Ok(CursorSignature {
        secret: secret(env).await?,
        message_id: delivery.stamp.message_id.clone(),
        op,
    })
}

/// Returns the delivery with the job digest that stamps contain. If the catalog has encrypted properties, this digest
/// is keyed. With a plain digest, anybody who can read a stamp could check guesses of the job's encrypted values.
pub(crate) async fn keyed<'d>(
    env: &Env,
    delivery: &'d Delivery,
) -> Result<Cow<'d, Delivery>, Failure> {
    let digest = delivery
        .stamp
        .job
        .as_ref()
        .filter(|_| !env.catalog.encrypted.is_empty());
    let Some(digest) = digest else {
        return Ok(Cow::Borrowed(delivery));
    };
    let secret = secret(env).await?;
    let mut keyed = delivery.clone();
    keyed.stamp.job = Some(digest.keyed(|digits| secret.mac(&["job", digits])));
    Ok(Cow::Owned(keyed))
}

/// Reads the signing secret, unless it was read before. If it cannot be read, footprints are written without
/// signatures, and the secret is not read again for a minute, so that most jobs are not slowed down.
pub(crate) async fn read_secret(env: &Env) {
    if env.secret.is_to_be_read(env.clock.monotonic())
        && let Err(failure) = secret(env).await
    {
        tracing::warn!(
            error = failure.chain(),
            "could not read the signing secret; footprints are written without signatures until it can be read"
        );
    }
}

async fn secret(env: &Env) -> Result<Secret, Failure> {
    env.secret
        .read
        .get_or_try_init(|| read_or_draw(env))
        .await
        .copied()
}

async fn read_or_draw(env: &Env) -> Result<Secret, Failure> {
    let main = env
        .stores
        .account(&AccountName::main())
        .map_err(|error| permanent(STEP, error))?;
    let (table, key) = place().map_err(|error| permanent(STEP, error))?;
    let failed = |error| storage(STEP, error);
    if let Some(secret) = find(main.tables.as_ref(), &table, &key)
        .await
        .map_err(failed)?
    {
        return parse(&secret);
    }
    let mut drawn = [0; SECRET];
    for bytes in drawn.chunks_mut(8) {
        bytes.copy_from_slice(&env.rng.next_u64().to_be_bytes());
    }
    let row = Entity::new(key.clone()).with("Secret", hex::encode(drawn));
    match main
        .tables
        .apply(&table, &TableOperation::Insert(row))
        .await
    {
        Ok(_) => Ok(Secret(drawn)),
        // Another worker created the secret first, or this insert was executed and its answer was lost.
        Err(error) if error.may_have_lost() => {
            let found = find(main.tables.as_ref(), &table, &key)
                .await
                .map_err(failed)?;
            found.map_or_else(|| Err(failed(error)), |found| parse(&found))
        }
        Err(error) => Err(failed(error)),
    }
}

fn place() -> Result<(TableName, EntityKey), Box<dyn std::error::Error + Send + Sync>> {
    Ok((
        TableName::new(MIGRATIONS)?,
        EntityKey::new("secret", "cursors")?,
    ))
}

/// The text of the secret; `None` if there is no secret yet. Creates the table if migrations have not done so yet.
async fn find(
    tables: &dyn TableStore,
    table: &TableName,
    key: &EntityKey,
) -> Result<Option<String>, StoreError> {
    match tables.get(table, key, None).await {
        Ok(row) => Ok(row.map(|row| match row.entity.get("Secret") {
            Some(EdmValue::String(secret)) => secret.clone(),
            _ => String::new(),
        })),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
            tables.create_table(table).await.map(|_| None)
        }
        Err(error) => Err(error),
    }
}

fn parse(secret: &str) -> Result<Secret, Failure> {
    let bytes = hex::decode(secret)
        .ok()
        .and_then(|bytes| <[u8; SECRET]>::try_from(bytes).ok());
    bytes
        .map(Secret)
        .ok_or_else(|| permanent(STEP, UnreadableSecret))
}
