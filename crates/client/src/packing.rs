//! Packs many jobs into few messages. Jobs that differ only in their primary share a message.

use futures::stream::{FuturesOrdered, StreamExt as _};
use serde_json::{Map, Value};

use super::{Client, ClientError, PreparedMessage, SentMessage};
use evenkeel_model::QueueName;
use evenkeel_model::job::{self, PackResult, Packer};

/// Maximum number of messages sent concurrently. This is enough to hide the round trips, but too few to cause throttling (Azure allows
/// 2,000 messages/s per queue).
pub const IN_FLIGHT: usize = 32;

/// Collects jobs and packs them into messages.
pub struct MessagePacker<'a> {
    client: &'a Client,
    queue: Option<&'a QueueName>,
    /// Maximum number of jobs per message.
    most: usize,
    packer: Packer,
    /// Number of the first waiting job.
    first: u64,
}

/// A message that is ready to be sent, or the reason why its job cannot be sent.
#[derive(Debug)]
pub struct ReadyMessage {
    /// Number of the first job in the message.
    pub first: u64,
    /// Number of consecutive jobs in the message.
    pub jobs: usize,
    /// The message, or the reason why its job cannot be sent.
    pub message: Result<PreparedMessage, ClientError>,
}

/// The result of sending one message.
#[derive(Debug)]
pub struct SendResult {
    /// Index of the first job in the message.
    pub first: usize,
    /// Number of consecutive jobs in the message.
    pub jobs: usize,
    /// The sent message, or an error. If a store failed, the message may have been sent nevertheless.
    pub sent: Result<SentMessage, ClientError>,
}

impl Client {
    /// Creates a packer for messages of at most `most` jobs (1 to 1,000). The messages go to this queue. If `queue` is `None`, each
    /// message goes to the first declared queue that accepts its jobs.
    pub fn packing<'a>(&'a self, queue: Option<&'a QueueName>, most: usize) -> MessagePacker<'a> {
        MessagePacker {
            client: self,
            queue,
            most,
            packer: Packer::new(most),
            first: 0,
        }
    }

    /// Sends many jobs. Each job has the form that [`submit`](Self::submit) accepts. Consecutive jobs that differ only in their primary
    /// share a message of at most `most` jobs (1 to 1,000; 100 jobs fill a transaction). Up to 32 messages are sent concurrently. The
    /// results are in the order of the jobs. A refused job does not stop the remaining jobs.
    ///
    /// ```
    /// # use evenkeel_client::Client;
    /// # async fn example(client: &Client, keys: &[&str]) {
    /// let jobs = keys.iter().map(|rk| format!(r#"{{"op": "sync", "table": "Employees", "pk": "Sales", "rk": "{rk}"}}"#));
    /// for message in client.submit_many(None, 100, jobs).await {
    ///     if let Err(error) = message.sent {
    ///         eprintln!("jobs {} to {}: {error}", message.first, message.first + message.jobs - 1);
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn submit_many<J: AsRef<str>>(
        &self,
        queue: Option<&QueueName>,
        most: usize,
        jobs: impl IntoIterator<Item = J>,
    ) -> Vec<SendResult> {
        let (mut packing, mut sent, mut on_their_way) =
            (self.packing(queue, most), Vec::new(), FuturesOrdered::new());
        for (number, job) in (0_u64..).zip(jobs) {
            for ready in packing.add(number, job.as_ref()) {
                on_their_way.push_back(self.send_ready(ready));
            }
            while on_their_way.len() >= IN_FLIGHT {
                sent.extend(on_their_way.next().await);
            }
        }
        on_their_way.extend(packing.flush().map(|ready| self.send_ready(ready)));
        while let Some(message) = on_their_way.next().await {
            sent.push(message);
        }
        sent
    }

    async fn send_ready(
        &self,
        ReadyMessage {
            first,
            jobs,
            message,
        }: ReadyMessage,
    ) -> SendResult {
        let sent = match message {
            Ok(message) => self.send(&message).await,
            Err(error) => Err(error),
        };
        SendResult {
            first: usize::try_from(first).unwrap_or(usize::MAX),
            jobs,
            sent,
        }
    }
}

impl MessagePacker<'_> {
    /// Whether no job is waiting to be packed.
    pub fn is_empty(&self) -> bool {
        self.packer.is_empty()
    }

    /// Adds a job and returns the messages that are now ready to be sent.
    pub fn add(&mut self, number: u64, job: &str) -> Vec<ReadyMessage> {
        let message = self.client.prepare(job, self.queue);
        let object = message
            .as_ref()
            .ok()
            .filter(|_| self.most > 1)
            .and_then(|message| job::decode_object(&message.text).ok());
        let alone = ReadyMessage {
            first: number,
            jobs: 1,
            message,
        };
        let Some(object) = object else {
            return self.flush().into_iter().chain([alone]).collect();
        };
        let jobs = self.packer.len();
        let PackResult { ready, is_packed } = self.packer.add(&object);
        let mut ready: Vec<_> = ready
            .map(|message| self.ready(jobs, message))
            .into_iter()
            .collect();
        if !is_packed {
            ready.push(alone);
        } else if self.packer.len() == 1 {
            self.first = number;
        }
        if self.packer.len() == self.most {
            ready.extend(self.flush());
        }
        ready
    }

    /// Returns a message with the waiting jobs; `None` if no job is waiting.
    pub fn flush(&mut self) -> Option<ReadyMessage> {
        let jobs = self.packer.len();
        let message = self.packer.take()?;
        Some(self.ready(jobs, message))
    }

    fn ready(&self, jobs: usize, message: Map<String, Value>) -> ReadyMessage {
        ReadyMessage {
            first: self.first,
            jobs,
            message: self
                .client
                .prepare(&Value::Object(message).to_string(), self.queue),
        }
    }
}
