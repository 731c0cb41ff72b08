//! The queue port.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use azure_storage_queues::{
    NumberOfMessages, PopReceipt, PopReceiptClient, QueueClient, QueueServiceClient,
};
use jiff::Timestamp;

use super::amend::Amendment;
use super::ascii::{self, Encoding};
use super::call::{CallFailure, Caller};
use super::classify::{Absent, CallKind};
use super::messages::{self, MessagePage, RawMessage};
use super::transport::HttpAnswer;
use super::{http_date, xml};
use evenkeel_model::{QueueName, limits};
use evenkeel_storage::check::queues as check;
use evenkeel_storage::{
    ErrorClass, Message, Missing, PeekedMessage, QueueStore, Resource, SentMessage, StoreError,
    Ttl, UpdatedMessage,
};

const CREATE: CallKind = CallKind::write("Create Queue", Absent::Container);
const DELETE_QUEUE: CallKind = CallKind::write("Delete Queue", Absent::Container);
const PUT: CallKind = CallKind::write("Put Message", Absent::Container);
const GET: CallKind = CallKind::write("Get Messages", Absent::Container);
const UPDATE: CallKind = CallKind::write("Update Message", Absent::Lease);
const DELETE: CallKind = CallKind::write("Delete Message", Absent::Lease);
const PEEK: CallKind = CallKind::read("Peek Messages", Absent::Container);
const COUNT: CallKind = CallKind::read("Get Queue Metadata", Absent::Container);

/// Number of messages that are received one by one after a batch failed. A batch has at most this number, so the faulty
/// message is among them.
const SINGLE_GETS: u32 = limits::QUEUE_BATCH;

pub(super) struct AzureQueues {
    caller: Caller,
    service: QueueServiceClient,
    wire: Encoding,
    /// Queues whose messages are received one by one for now, each with the number of messages to receive before the next
    /// batch.
    singly: Mutex<HashMap<QueueName, u32>>,
}

impl AzureQueues {
    pub(super) fn new(caller: Caller, service: QueueServiceClient, wire: Encoding) -> Self {
        Self {
            caller,
            service,
            wire,
            singly: Mutex::new(HashMap::new()),
        }
    }

    fn queue(&self, queue: &QueueName) -> QueueClient {
        self.service.queue_client(queue.as_str())
    }

    fn text(&self) -> Amendment {
        let amendment = Amendment::default().body(messages::with_carriage_returns);
        match self.wire {
            Encoding::Utf8 => amendment,
            Encoding::Ascii => amendment.body(ascii::xml),
        }
    }

    /// Identifies a leased message. Rejects an invalid id. An id that is empty or consists of dots would disappear from the
    /// URL, and the URL would then be that of Clear Messages.
    fn lease(
        &self,
        operation: CallKind,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<PopReceiptClient, StoreError> {
        let valid = (1..=64).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !pop_receipt.is_empty();
        if valid {
            Ok(self
                .queue(queue)
                .pop_receipt_client(PopReceipt::new(id, pop_receipt)))
        } else {
            let what = Resource::Message(
                queue.clone(),
                id.chars().filter(|c| !c.is_control()).take(64).collect(),
            );
            Err(self.caller.error(
                ErrorClass::LeaseLost,
                operation,
                what,
                "no message has this id and pop receipt",
            ))
        }
    }

    fn receives_singly(&self, queue: &QueueName) -> bool {
        self.singly
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .contains_key(queue)
    }

    /// Counts a message of the failed batch as received. (An empty answer is not counted, because the messages of the batch are
    /// hidden until their visibility timeouts end.)
    fn count_received(&self, queue: &QueueName) {
        let mut singly = self
            .singly
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(left) = singly.get_mut(queue) else {
            return;
        };
        *left -= 1;
        if *left == 0 {
            singly.remove(queue);
        }
    }

    fn receive_singly(&self, queue: &QueueName) {
        let mut singly = self
            .singly
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        singly.insert(queue.clone(), SINGLE_GETS);
    }

    async fn get_page(
        &self,
        queue: &QueueName,
        number: NumberOfMessages,
        visibility: Duration,
    ) -> Result<HttpAnswer, CallFailure> {
        let call = self
            .queue(queue)
            .get_messages()
            .number_of_messages(number)
            .visibility_timeout(visibility);
        self.caller.try_run(call.into_future()).await
    }

    /// Parses a page. A truncated page still returns its messages, because they have been received. Without any message, the
    /// outcome is unknown.
    fn page(
        &self,
        operation: CallKind,
        queue: &QueueName,
        answer: &HttpAnswer,
    ) -> Result<MessagePage, StoreError> {
        let page = messages::read(&answer.body, date(answer));
        if page.lost > 0 || !page.complete {
            tracing::warn!(%queue, lost = page.lost, complete = page.complete,
                "could not read every message of a page from {queue}; unread messages will be delivered again");
        }
        if page.messages.is_empty() && !page.complete {
            return Err(self.caller.unusable(
                operation,
                Resource::Queue(queue.clone()),
                answer,
                "the answer is truncated or not a page of messages",
            ));
        }
        Ok(page)
    }
}

fn date(answer: &HttpAnswer) -> Option<Timestamp> {
    answer.header("date").and_then(http_date::parse)
}

/// A received message. One without a receipt cannot be settled and will be delivered again.
fn received(message: RawMessage, hidden_until: Timestamp) -> Option<Message> {
    let RawMessage {
        id,
        pop_receipt,
        text,
        dequeue_count,
        inserted,
        expires,
        next_visible,
    } = message;
    Some(Message {
        id,
        pop_receipt: pop_receipt?,
        text,
        dequeue_count,
        inserted,
        expires,
        next_visible: next_visible.unwrap_or(hidden_until),
    })
}

#[async_trait]
impl QueueStore for AzureQueues {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        match self
            .caller
            .run(
                CREATE,
                || Resource::Queue(queue.clone()),
                self.queue(queue).create().into_future(),
            )
            .await
        {
            // 201: created. 204: the queue exists with the same metadata.
            Ok(answer) => Ok(answer.status != 204),
            Err(error) if error.class == ErrorClass::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        match self
            .caller
            .try_run(self.queue(queue).delete().into_future())
            .await
        {
            Ok(_) => Ok(true),
            Err(CallFailure::Refusal(refusal)) if refusal.is("QueueBeingDeleted") => Ok(false),
            Err(failure) => {
                match self
                    .caller
                    .failed(DELETE_QUEUE, Resource::Queue(queue.clone()), failure)
                {
                    error if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
                    error => Err(error),
                }
            }
        }
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let checked = check::text(text)
            .and_then(|()| Ok((check::visibility(delay, 0)?, check::lifetime(ttl, delay)?)));
        let (delay, lifetime) = self.caller.checked(PUT, what, checked)?;
        let mut amendment = self.text();
        let mut call = self
            .queue(queue)
            .put_message(text)
            .visibility_timeout(delay);
        match lifetime {
            // The library cannot express this.
            None => amendment = amendment.query("messagettl", "-1"),
            Some(lifetime) => call = call.ttl(lifetime),
        }
        let answer = self
            .caller
            .run(PUT, what, call.context(amendment.context()).into_future())
            .await?;
        let body = String::from_utf8_lossy(&answer.body);
        match xml::texts_of(&body, ["MessageId", "PopReceipt"]) {
            Some([id, pop_receipt]) => Ok(SentMessage { id, pop_receipt }),
            None => Err(self.caller.unusable(
                PUT,
                what(),
                &answer,
                "the answer has no message id or no pop receipt",
            )),
        }
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let checked =
            check::visibility(visibility, 1).and_then(|time| Ok((time, check::batch(max)?)));
        let (visibility, number) = self.caller.checked(GET, what, checked)?;
        let number = NumberOfMessages::new(number);
        let one = || NumberOfMessages::new(1_u8);
        let singly = max > 1 && self.receives_singly(queue);
        let answer = match self
            .get_page(queue, if singly { one() } else { number }, visibility)
            .await
        {
            // A message that the service cannot serialise fails every batch that contains it. The others must still get
            // through.
            Err(CallFailure::Refusal(refusal)) if refusal.status == 500 && max > 1 && !singly => {
                self.receive_singly(queue);
                self.get_page(queue, one(), visibility).await
            }
            other => other,
        };
        let answer = answer.map_err(|failure| self.caller.failed(GET, what(), failure))?;
        let page = self.page(GET, queue, &answer)?;
        if singly && !page.messages.is_empty() {
            self.count_received(queue);
        }
        let now = date(&answer).unwrap_or(Timestamp::UNIX_EPOCH);
        let hidden_until = now.checked_add(visibility).unwrap_or(now);
        Ok(page
            .messages
            .into_iter()
            .filter_map(|message| received(message, hidden_until))
            .collect())
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        let what = || Resource::Message(queue.clone(), id.to_owned());
        let lease = self.lease(UPDATE, queue, id, pop_receipt)?;
        let checked = check::text(text).and_then(|()| check::visibility(visibility, 0));
        let visibility = self.caller.checked(UPDATE, what, checked)?;
        let call = lease
            .update(text, visibility)
            .context(self.text().context());
        let answer = self.caller.run(UPDATE, what, call.into_future()).await?;
        let next_visible = answer
            .header("x-ms-time-next-visible")
            .and_then(http_date::parse);
        let next_visible = next_visible.or_else(|| date(&answer)?.checked_add(visibility).ok());
        match (answer.header("x-ms-popreceipt"), next_visible) {
            (Some(pop_receipt), Some(next_visible)) => Ok(UpdatedMessage {
                pop_receipt: pop_receipt.to_owned(),
                next_visible,
            }),
            _ => Err(self.caller.unusable(
                UPDATE,
                what(),
                &answer,
                "the answer has no new pop receipt",
            )),
        }
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        let lease = self.lease(DELETE, queue, id, pop_receipt)?;
        let what = || Resource::Message(queue.clone(), id.to_owned());
        self.caller
            .run(DELETE, what, lease.delete().into_future())
            .await
            .map(drop)
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let number = self.caller.checked(PEEK, what, check::batch(max))?;
        let call = self
            .queue(queue)
            .peek_messages()
            .number_of_messages(NumberOfMessages::new(number));
        let answer = self.caller.run(PEEK, what, call.into_future()).await?;
        let peeked = |RawMessage {
                          id,
                          text,
                          dequeue_count,
                          inserted,
                          expires,
                          ..
                      }| PeekedMessage {
            id,
            text,
            dequeue_count,
            inserted,
            expires,
        };
        Ok(self
            .page(PEEK, queue, &answer)?
            .messages
            .into_iter()
            .map(peeked)
            .collect())
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let answer = self
            .caller
            .run(COUNT, what, self.queue(queue).get_metadata().into_future())
            .await?;
        let count = answer
            .header("x-ms-approximate-messages-count")
            .and_then(|count| count.trim().parse().ok());
        count.ok_or_else(|| {
            self.caller
                .unusable(COUNT, what(), &answer, "the answer has no message count")
        })
    }
}
