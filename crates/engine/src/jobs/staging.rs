//! Staged blobs of a `put`. The sender of the job has uploaded its entity, or large values of the entity, to these
//! blobs.
//!
//! A staged blob is read at one version, and deleted at that version when its job is done. A blob that the job did not
//! need to read is deleted only if the job names the hash of its content. A job that fails permanently keeps its staged
//! blobs, so that it can be queued again.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::encryption::EncryptedEntity;
use crate::env::memory::{MemoryGrant, MemoryShare};
use crate::execute::Failure;
use crate::failure::{permanent, storage};
use crate::items::value::{self, Staged};
use crate::jobs::context::JobContext;
use crate::protocol::change::Change;
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::{self, Primary, Put, StagedBlob};
use evenkeel_model::large::STAGING;
use evenkeel_model::names::NameError;
use evenkeel_model::{BlobName, ContainerName, ETag, Entity, Row, limits};
use evenkeel_storage::encryption::FirstKey;
use evenkeel_storage::{BlobStore, ErrorClass, StoreError};

/// Maximum number of copies of a staged entity in memory: the bytes read, the parsed properties, and the requests that
/// write them.
const ENTITY_COPIES: u64 = 3;

pub(crate) struct Staging<'e> {
    cx: &'e JobContext,
    memory: Option<MemoryGrant>,
    blobs: &'e dyn BlobStore,
    account: &'e TableRef,
    container: ContainerName,
    put: &'e Put,
    entity: Option<Put>,
    /// The data key of the last encryption, if the stored entity has no encrypted values yet. `keeps_data_key` checks
    /// that no erasure has deleted it.
    first: Option<FirstKey>,
    values: Option<BTreeMap<String, (Staged, String)>>,
    versions: BTreeMap<BlobName, ETag>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "staged blob {STAGING}/{0} does not exist. Stage it under a unique name, then send the job. If an earlier delivery completed \
     the job, discard the job"
)]
pub(crate) struct MissingBlob(BlobName);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unstaged {
    Deleted,
    Gone,
    /// The blob was kept, because nothing proves that it was staged for this job.
    Kept,
}

/// Deletes a staged blob at the version that its job has read. If the job has not read the blob, the blob is deleted
/// only if its content has the SHA-256 that the job names. A sender may name any blob, and a name alone must not delete
/// a blob.
pub async fn unstage(
    blobs: &dyn BlobStore,
    container: &ContainerName,
    staged: &StagedBlob,
    read: Option<&ETag>,
) -> Result<Unstaged, StoreError> {
    let ended = async {
        let etag = if let Some(etag) = read {
            etag.clone()
        } else {
            let Some(found) = blobs.properties(container, &staged.name).await? else {
                return Ok(Unstaged::Gone);
            };
            let Some(expected) = &staged.sha256 else {
                return Ok(Unstaged::Kept);
            };
            let (mut hash, mut at) = (Sha256::new(), 0);
            while at < found.length {
                let end = found.length.min(at + value::BLOCK_BYTES);
                hash.update(
                    &blobs
                        .get_at(container, &staged.name, at..end, &found.etag)
                        .await?,
                );
                at = end;
            }
            if hex::encode(hash.finalize()) != *expected {
                return Ok(Unstaged::Kept);
            }
            found.etag
        };
        let deleted = blobs.delete(container, &staged.name, Some(&etag)).await?;
        Ok(if deleted {
            Unstaged::Deleted
        } else {
            Unstaged::Gone
        })
    };
    match ended.await {
        Err(StoreError {
            class: ErrorClass::Precondition,
            ..
        }) => Ok(Unstaged::Kept),
        Err(StoreError {
            class: ErrorClass::NotFound(_),
            ..
        }) => Ok(Unstaged::Gone),
        ended => ended,
    }
}

#[derive(Debug, thiserror::Error)]
enum StagedError {
    #[error("staged blob {STAGING}/{name} has SHA-256 {found}, but the job expects {expected}")]
    Hash {
        name: BlobName,
        found: String,
        expected: String,
    },
    #[error(
        "staged entity {STAGING}/{name} has {bytes} bytes, at most 16 MiB are allowed. Stage its large values separately, in \"blobs\""
    )]
    TooLarge { name: BlobName, bytes: u64 },
    #[error("staged entity {STAGING}/{name} is not JSON: {problem}")]
    Json { name: BlobName, problem: String },
    #[error("staged entity {STAGING}/{name} has another key than \"pk\" and \"rk\" of the job")]
    Key { name: BlobName },
}

impl<'e> Staging<'e> {
    pub(crate) fn new(cx: &'e JobContext, put: &'e Put) -> Result<Self, Failure> {
        let account = cx.env.table(&put.table)?;
        let container = ContainerName::new(STAGING)
            .map_err(|error: NameError| permanent("finding the staging container", error))?;
        let blobs = cx.env.account(account)?.blobs.as_ref();
        Ok(Self {
            cx,
            memory: None,
            blobs,
            account,
            container,
            put,
            entity: None,
            first: None,
            values: None,
            versions: BTreeMap::new(),
        })
    }

    /// The job as it was sent. It lacks the properties of the entity if these were staged.
    pub(crate) const fn as_sent(&self) -> &Put {
        self.put
    }

    /// The job with its entity, encrypted for a write over `stored`. Each call encrypts again, because the data key may
    /// have been erased and replaced.
    pub(crate) async fn put(
        &mut self,
        stored: Option<&Entity>,
    ) -> Result<Result<Cow<'_, Put>, MissingBlob>, Failure> {
        if let Err(gone) = self.read_entity().await? {
            return Ok(Err(gone));
        }
        let put = self.entity.as_ref().unwrap_or(self.put);
        let (encrypted, first) = match self.cx.encryption().encrypted_put(put, stored).await? {
            Some(EncryptedEntity { entity, first }) => (
                Cow::Owned(Put {
                    entity,
                    ..put.clone()
                }),
                first,
            ),
            None => (Cow::Borrowed(put), None),
        };
        self.first = first;
        Ok(Ok(encrypted))
    }

    /// Returns a change that encrypts values again if their data key was erased after this job wrote them. `None` if
    /// all values can be decrypted, or if the staged entity is gone.
    pub(crate) async fn encrypted_again(&mut self, row: &Row) -> Result<Option<Change>, Failure> {
        if !self.cx.env.catalog.encrypted.contains_key(self.account)
            || self.read_entity().await?.is_err()
        {
            return Ok(None);
        }
        let put = self.entity.as_ref().unwrap_or(self.put);
        let encrypted = self
            .cx
            .encryption()
            .encrypted_again(put, &row.entity)
            .await?;
        Ok(encrypted.map(|changes| Change::Merge {
            merged: row.entity.clone().merged(&changes),
            changes,
            etag: row.etag.clone(),
        }))
    }

    /// Checks, after the entity was written, whether the data key of the last encryption still exists. Returns `true`
    /// without a request if `first` is `None`.
    pub(crate) async fn keeps_data_key(&self) -> Result<bool, Failure> {
        let Some(first) = &self.first else {
            return Ok(true);
        };
        let home = Primary {
            table: self.account.table.clone(),
            key: self.put.entity.key.clone(),
        };
        self.cx
            .encryption()
            .keeps_data_key(self.account, &home, first)
            .await
    }

    async fn read_entity(&mut self) -> Result<Result<(), MissingBlob>, Failure> {
        let sent = self.put;
        if self.entity.is_none()
            && let Some(staged) = &sent.staged_entity
        {
            match self.staged_put(staged).await? {
                Ok(put) => self.entity = Some(put),
                Err(gone) => return Ok(Err(gone)),
            }
        }
        Ok(Ok(()))
    }

    async fn staged_put(
        &mut self,
        staged: &StagedBlob,
    ) -> Result<Result<Put, MissingBlob>, Failure> {
        let version = match self.version(staged).await? {
            Ok(version) => version,
            Err(gone) => return Ok(Err(gone)),
        };
        let (name, bytes) = (staged.name.clone(), version.length);
        if bytes > limits::STAGED_ENTITY_BYTES {
            return Err(permanent(
                self.reading(staged),
                StagedError::TooLarge { name, bytes },
            ));
        }
        self.memory = Some(
            self.cx
                .env
                .memory
                .take_untimed(MemoryShare::Bodies, bytes * ENTITY_COPIES)
                .await,
        );
        let content = self
            .blobs
            .get_at(&self.container, &staged.name, 0..bytes, &version.etag)
            .await;
        let content = content.map_err(|error| storage(self.reading(staged), error))?;
        self.check_hash(staged, &evenkeel_model::large::hash(&content))?;
        let json = job::plain_object(&content, limits::STAGED_KEYS).map_err(|error| {
            permanent(
                self.reading(staged),
                StagedError::Json {
                    name: name.clone(),
                    problem: error.to_string(),
                },
            )
        })?;
        drop(content);
        let entity = job::put_entity(json, &self.put.condition)
            .map_err(|error| permanent(self.reading(staged), error))?;
        if entity.key != self.put.entity.key {
            return Err(permanent(self.reading(staged), StagedError::Key { name }));
        }
        Ok(Ok(Put {
            entity,
            ..self.put.clone()
        }))
    }

    pub(crate) async fn values(
        &mut self,
    ) -> Result<Result<&BTreeMap<String, (Staged, String)>, MissingBlob>, Failure> {
        if self.values.is_none() {
            let mut values = BTreeMap::new();
            for (property, staged) in &self.put.staged_values {
                let version = match self.version(staged).await? {
                    Ok(version) => version,
                    Err(gone) => return Ok(Err(gone)),
                };
                let _blocks = self
                    .cx
                    .env
                    .memory
                    .take_untimed(MemoryShare::Values, value::VALUE_BYTES)
                    .await;
                let hash = value::hash(self.blobs, &version)
                    .await
                    .map_err(|error| storage(self.reading(staged), error))?;
                self.check_hash(staged, &hash)?;
                values.insert(property.clone(), (version, hash));
            }
            self.values = Some(values);
        }
        Ok(Ok(self.values.get_or_insert_default()))
    }

    /// Records the present versions of the staged blobs, as if this job had read the blobs. `remove` then deletes these
    /// versions. The row is already written, so an earlier attempt of the job has read the blobs.
    pub(crate) async fn assume_read(&mut self) -> Result<(), Failure> {
        let put = self.put;
        for staged in put.staged_entity.iter().chain(put.staged_values.values()) {
            if !self.versions.contains_key(&staged.name) {
                drop(self.version(staged).await?);
            }
        }
        Ok(())
    }

    /// Deletes the staged blobs after the job is done. A blob that was staged again meanwhile stays.
    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        for staged in self
            .put
            .staged_entity
            .iter()
            .chain(self.put.staged_values.values())
        {
            let read = self.versions.get(&staged.name);
            let _part = match read {
                Some(_) => None,
                None => Some(
                    self.cx
                        .env
                        .memory
                        .take_untimed(MemoryShare::Values, value::BLOCK_BYTES)
                        .await,
                ),
            };
            let unstaged = unstage(self.blobs, &self.container, staged, read).await;
            unstaged.map_err(|error| {
                storage(
                    format!("deleting the staged blob {STAGING}/{}", staged.name),
                    error,
                )
            })?;
        }
        Ok(())
    }

    async fn version(
        &mut self,
        staged: &StagedBlob,
    ) -> Result<Result<Staged, MissingBlob>, Failure> {
        let found = self.blobs.properties(&self.container, &staged.name).await;
        let Some(found) = found.map_err(|error| storage(self.reading(staged), error))? else {
            return Ok(Err(MissingBlob(staged.name.clone())));
        };
        self.versions
            .insert(staged.name.clone(), found.etag.clone());
        Ok(Ok(Staged::of(
            self.account.account.clone(),
            self.container.clone(),
            staged.name.clone(),
            found,
        )))
    }

    fn check_hash(&self, staged: &StagedBlob, found: &str) -> Result<(), Failure> {
        match &staged.sha256 {
            Some(expected) if expected != found => {
                let wrong = StagedError::Hash {
                    name: staged.name.clone(),
                    found: found.to_owned(),
                    expected: expected.clone(),
                };
                Err(permanent(self.reading(staged), wrong))
            }
            _ => Ok(()),
        }
    }

    fn reading(&self, staged: &StagedBlob) -> String {
        format!(
            "reading {STAGING}/{}, which was staged for {}{}",
            staged.name, self.put.table, self.put.entity.key
        )
    }
}
