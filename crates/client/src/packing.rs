//! Packs many jobs into few messages: jobs that differ only in their primary share one.

use futures::stream::{FuturesOrdered, StreamExt as _};
use serde_json::{Map, Value};

use super::{Client, ClientError, Prepared, Sent};
use evenkeel_model::QueueName;
use evenkeel_model::job::{self, PackResult, Packer};

/// Maximum number of messages sent concurrently: enough to hide the round trip, and too few to be throttled (Azure
/// allows 2,000 messages/s per queue).
pub const IN_FLIGHT: usize = 32;

/// Packs jobs into messages.
pub struct Packing<'a> {
    client: &'a Client,
    queue: Option<&'a QueueName>,
    /// Maximum number of jobs per message.
    most: usize,
    packer: Packer,
    /// Number of the first job in the packer.
    first: u64,
}

/// A message that is ready to be sent, or the reason why its job cannot be sent.
#[derive(Debug)]
pub struct ReadyMessage {
    /// Number of its first job.
    pub first: u64,
    /// How many consecutive jobs it contains, the first included.
    pub jobs: usize,
    /// The message.
    pub message: Result<Prepared, ClientError>,
}

/// The result of sending one message.
#[derive(Debug)]
pub struct SentJobs {
    /// Index of its first job.
    pub first: usize,
    /// How many consecutive jobs it contains, the first included.
    pub jobs: usize,
    /// The sent message, or an error. After an error of a store the message may have been sent nevertheless.
    pub sent: Result<Sent, ClientError>,
}

impl Client {
    /// Packs jobs into messages of at most `most` jobs (1 to 1,000), for this queue or for the first declared queue
    /// that accepts each job.
    pub fn packing<'a>(&'a self, queue: Option<&'a QueueName>, most: usize) -> Packing<'a> {
        Packing {
            client: self,
            queue,
            most,
            packer: Packer::new(most),
            first: 0,
        }
    }

    /// Sends many jobs, each as [`submit`](Self::submit) accepts it. Consecutive jobs that differ only in their primary share a message of
    /// at most `most` jobs (1 to 1,000; 100 fill a transaction). 32 messages are sent concurrently. The results are in the order of the
    /// jobs, and a refused job does not stop the others.
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
    ) -> Vec<SentJobs> {
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
    ) -> SentJobs {
        let sent = match message {
            Ok(message) => self.send(&message).await,
            Err(error) => Err(error),
        };
        SentJobs {
            first: usize::try_from(first).unwrap_or(usize::MAX),
            jobs,
            sent,
        }
    }
}

impl Packing<'_> {
    /// Whether no job is waiting to be packed.
    pub fn is_empty(&self) -> bool {
        self.packer.is_empty()
    }

    /// Adds a job and returns the messages that are ready.
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

    /// Returns the message of the waiting jobs, if any.
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
