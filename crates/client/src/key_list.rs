//! Lists of primaries of any number: staged as a blob, and sent as one message.

use bytes::{Bytes, BytesMut};
use evenkeel_azure::system::SystemChance;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::submission::{check_item, table_of};
use super::{Client, ClientError, Sent};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::model::job::{self, JobError, JobRequest, ListCheck};
use evenkeel_model::model::large::STAGING;
use evenkeel_model::model::{BlobName, ContainerName, QueueName, cause, limits};
use evenkeel_model::ports::{BlobStore, BlobUpload, BlockId, Chance as _};

/// Bytes of a block of a staged list, and of a list that is staged in one request.
const BLOCK_BYTES: usize = 4 << 20;
/// The media type of JSON lines.
const JSON_LINES: &str = "application/jsonl";

/// A list that was staged, and the message about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentList {
    /// The message.
    pub sent: Sent,
    /// How many lines the list has.
    pub lines: u64,
    /// Its blob in the container `evenkeel-staging` of the table's account. The last of its jobs deletes it.
    pub blob: BlobName,
}

/// A list on its way into a blob.
struct ListUpload<'a> {
    blobs: &'a dyn BlobStore,
    container: ContainerName,
    blob: BlobName,
    lines: ListCheck,
    client: &'a Client,
    hash: Sha256,
    /// What is of no block yet.
    part: BytesMut,
    /// How much of that is checked: whole lines.
    checked: usize,
    blocks: Vec<BlockId>,
}

impl Client {
    /// Sends one message about all primaries of a list: JSON lines, each a `[PartitionKey, RowKey]`, a RowKey where the job has `pk`, or an
    /// entity where it is a `put`. The list is checked, and staged in blocks of 4 MiB: at most 195 GiB, and 1,000,000 lines where the
    /// operation is not `sync`. `told` hears how many lines there are so far.
    ///
    /// # Errors
    ///
    /// [`ClientError::Job`] for a job or a line that a worker would poison: nothing was sent. [`ClientError::Store`] where a store does not
    /// answer; the message may have been sent where that was its queue.
    ///
    /// ```
    /// # use evenkeel::client::{Client, ClientError};
    /// # async fn example(client: &Client) -> Result<(), ClientError> {
    /// let keys = "[\"Sales\", \"000223\"]\n[\"Marketing\", \"000301\"]\n";
    /// let sent = client.submit_list(None, r#"{"op": "sync", "table": "Employees"}"#, keys.as_bytes(), |_| {}).await?;
    /// println!("{} primaries in {}", sent.lines, sent.sent.message_id);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn submit_list(
        &self,
        queue: Option<&QueueName>,
        job: &str,
        mut list: impl AsyncRead + Unpin,
        mut told: impl FnMut(u64),
    ) -> Result<SentList, ClientError> {
        let refused = |error: &JobError| ClientError::Job(cause::chain(error));
        let message = job::decode_object(job).map_err(|error| refused(&error))?;
        let chance = SystemChance::new();
        let name = format!("lists/{:016x}{:016x}.jsonl", chance.next_u64(), chance.next_u64());
        let mut upload = self.list_upload(&message, &name)?;
        // A job that no queue carries is told before the list is read.
        self.prepare(&Value::Object(with_list(&message, &name, None)).to_string(), queue)?;
        let unread = |error: std::io::Error| ClientError::Job(format!("reading the list: {error}"));
        while list.read_buf(&mut upload.part).await.map_err(unread)? > 0 {
            upload.check(false)?;
            if upload.part.len() >= BLOCK_BYTES {
                upload.put_block().await?;
                told(upload.lines.primaries());
            }
        }
        upload.check(true)?;
        let (lines, blob, sha256) = upload.commit().await?;
        told(lines);
        let message = Value::Object(with_list(&message, &name, Some(&sha256))).to_string();
        let sent = self.send(&self.prepare(&message, queue)?).await?;
        Ok(SentList { sent, lines, blob })
    }

    fn list_upload(&self, message: &Map<String, Value>, name: &str) -> Result<ListUpload<'_>, ClientError> {
        if message.contains_key("keys_ref") {
            return Err(ClientError::Job("the job names a list already, in \"keys_ref\"".to_owned()));
        }
        let list = match job::decode_request(with_list(message, name, None)).map_err(|error| ClientError::Job(cause::chain(&error)))? {
            JobRequest::Listed(list) => list,
            JobRequest::Job(_) | JobRequest::Batch(_) => return Err(ClientError::Job("the job takes no list".to_owned())),
        };
        let sample = list.sample().map_err(|error| ClientError::Job(cause::chain(&error)))?;
        let table: TableRef = table_of(&sample.job, &self.catalog).map_err(ClientError::Job)?;
        let broken = |error| ClientError::Broken(cause::chain(&error));
        Ok(ListUpload {
            blobs: self.account(&table.account)?.blobs.as_ref(),
            container: ContainerName::new(STAGING).map_err(broken)?,
            blob: BlobName::new(name).map_err(broken)?,
            lines: ListCheck::of(list),
            client: self,
            hash: Sha256::new(),
            part: BytesMut::with_capacity(BLOCK_BYTES),
            checked: 0,
            blocks: Vec::new(),
        })
    }
}

fn with_list(message: &Map<String, Value>, name: &str, sha256: Option<&str>) -> Map<String, Value> {
    let mut message = message.clone();
    let mut list = json!({"blob": format!("{STAGING}/{name}")});
    if let Some(sha256) = sha256 {
        list["sha256"] = Value::from(sha256);
    }
    message.insert("keys_ref".to_owned(), list);
    message
}

impl ListUpload<'_> {
    /// Checks the lines that are whole, or, at the end, all of them.
    fn check(&mut self, is_end: bool) -> Result<(), ClientError> {
        while let Some(rest) = self.part.get(self.checked..).filter(|rest| !rest.is_empty()) {
            let line = match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => &rest[..=at],
                // Beyond this a line is refused, wherever it ends.
                None if is_end || rest.len() > 2 * limits::QUEUE_BODY_BYTES => rest,
                None => return Ok(()),
            };
            if let Some(item) = self.lines.line(line).map_err(ClientError::Job)? {
                let checked = check_item(self.lines.list(), item, &self.client.catalog);
                checked.map_err(|problem| ClientError::Job(format!("line {}: {problem}", self.lines.number())))?;
            }
            self.checked += line.len();
        }
        Ok(())
    }

    async fn put_block(&mut self) -> Result<(), ClientError> {
        if self.blocks.is_empty() {
            self.create_container().await?;
        }
        let content = self.part.split_to(self.checked).freeze();
        self.checked = 0;
        self.hash.update(&content);
        let block = BlockId::numbered(self.blocks.len() as u128);
        self.blobs.put_block(&self.container, &self.blob, block, content).await.map_err(self.staged())?;
        self.blocks.push(block);
        Ok(())
    }

    async fn commit(mut self) -> Result<(u64, BlobName, String), ClientError> {
        if self.lines.primaries() == 0 {
            return Err(ClientError::Job("the list names no primary".to_owned()));
        }
        let upload = BlobUpload { content_type: Some(JSON_LINES.to_owned()), ..BlobUpload::default() };
        if self.blocks.is_empty() {
            self.create_container().await?;
            let content: Bytes = self.part.split().freeze();
            self.hash.update(&content);
            self.blobs.put(&self.container, &self.blob, content, &upload).await.map_err(self.staged())?;
        } else {
            if !self.part.is_empty() {
                self.put_block().await?;
            }
            self.blobs.put_block_list(&self.container, &self.blob, &self.blocks, &upload).await.map_err(self.staged())?;
        }
        Ok((self.lines.primaries(), self.blob, hex::encode(self.hash.finalize())))
    }

    async fn create_container(&self) -> Result<(), ClientError> {
        let made = self.blobs.create_container(&self.container).await;
        made.map(|_| ()).map_err(ClientError::store(format!("creating the container {STAGING}")))
    }

    fn staged(&self) -> impl FnOnce(evenkeel_model::ports::StoreError) -> ClientError + use<> {
        ClientError::store(format!("staging the list as {STAGING}/{}", self.blob))
    }
}
