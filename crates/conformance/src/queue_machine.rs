//! Executes random operations on one queue and on a simple model of a queue, and compares the results. The operations use
//! current and stale receipts.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::QueueName;
use evenkeel_storage::{ErrorClass, MessageText, StoreError, Ttl};
use proptest::prelude::*;
use proptest::sample::Index;

use super::World;
use super::machine::check;

const CASES: u32 = 8;
const HOUR: Duration = Duration::from_hours(1);

#[derive(Debug, Clone)]
enum Step {
    Put {
        text: u8,
        hidden: bool,
    },
    Get {
        max: u32,
    },
    Update {
        receipt: Index,
        text: u8,
        hidden: bool,
    },
    Delete {
        receipt: Index,
    },
    Peek,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<u8>(), prop::bool::weighted(0.2)).prop_map(|(text, hidden)| Step::Put { text, hidden }),
        3 => (1..5_u32).prop_map(|max| Step::Get { max }),
        3 => (any::<Index>(), any::<u8>(), any::<bool>()).prop_map(|(receipt, text, hidden)| Step::Update { receipt, text, hidden }),
        2 => any::<Index>().prop_map(|receipt| Step::Delete { receipt }),
        1 => Just(Step::Peek),
    ];
    prop::collection::vec(step, 1..40)
}

struct ExpectedMessage {
    text: String,
    dequeue_count: u32,
    hidden: bool,
    receipt: String,
}

/// The expected messages of a queue, and every receipt so far.
#[derive(Default)]
struct Model {
    messages: BTreeMap<String, ExpectedMessage>,
    receipts: Vec<(String, String)>,
}

impl Model {
    fn visible(&self) -> usize {
        self.messages
            .values()
            .filter(|expected| !expected.hidden)
            .count()
    }

    /// Receipts are kept with their message, because those of one batch may be equal (`Capabilities::receipts_differ`).
    fn add_receipt(&mut self, id: &str, receipt: &str) {
        self.receipts.push((id.to_owned(), receipt.to_owned()));
    }

    /// A random receipt, and whether it is still valid.
    fn choose_receipt(&self, index: Index) -> Option<(String, String, bool)> {
        let (id, receipt) = self
            .receipts
            .get(index.index(self.receipts.len().max(1)))?
            .clone();
        let valid = self
            .messages
            .get(&id)
            .is_some_and(|expected| expected.receipt == receipt);
        Some((id, receipt, valid))
    }
}

fn check_result<T>(
    step: &Step,
    result: Result<T, StoreError>,
    valid: bool,
) -> Result<Option<T>, String> {
    match (result, valid) {
        (Ok(value), true) => Ok(Some(value)),
        (Err(error), false) if error.class == ErrorClass::LeaseLost => Ok(None),
        (Ok(_), false) => Err(format!("{step:?} succeeded with a stale receipt")),
        (Err(error), _) => Err(format!("{step:?} failed: {error}")),
    }
}

fn check_message(
    step: &Step,
    id: &str,
    text: &MessageText,
    dequeue_count: u32,
    expected: Option<&ExpectedMessage>,
) -> Result<(), String> {
    match expected {
        Some(expected)
            if !expected.hidden
                && *text == MessageText::Readable(expected.text.clone())
                && dequeue_count == expected.dequeue_count =>
        {
            Ok(())
        }
        Some(expected) => Err(format!(
            "{step:?} returned {id} with {text:?} and count {dequeue_count}; expected {:?}, count {}, hidden: {}",
            expected.text, expected.dequeue_count, expected.hidden
        )),
        None => Err(format!(
            "{step:?} returned {id}, which was deleted or never put"
        )),
    }
}

async fn step(
    world: &World,
    queue: &QueueName,
    model: &mut Model,
    step: &Step,
) -> Result<(), String> {
    let queues = &world.account.queues;
    let visibility = |hidden: bool| if hidden { HOUR } else { Duration::ZERO };
    match step {
        Step::Put { text, hidden } => {
            let text = format!("text {text}");
            let sent = queues
                .put(queue, &text, visibility(*hidden), Ttl::Never)
                .await
                .map_err(|error| error.to_string())?;
            model.add_receipt(&sent.id, &sent.pop_receipt);
            model.messages.insert(
                sent.id,
                ExpectedMessage {
                    text,
                    dequeue_count: 0,
                    hidden: *hidden,
                    receipt: sent.pop_receipt,
                },
            );
        }
        Step::Get { max } => {
            let expected = model.visible().min(*max as usize);
            let messages = queues
                .get(queue, *max, HOUR)
                .await
                .map_err(|error| error.to_string())?;
            if messages.len() != expected {
                return Err(format!(
                    "{step:?} returned {} messages, expected {expected}",
                    messages.len()
                ));
            }
            for message in messages {
                check_message(
                    step,
                    &message.id,
                    &message.text,
                    message.dequeue_count - 1,
                    model.messages.get(&message.id),
                )?;
                model.add_receipt(&message.id, &message.pop_receipt);
                if let Some(expected) = model.messages.get_mut(&message.id) {
                    (expected.dequeue_count, expected.hidden, expected.receipt) =
                        (message.dequeue_count, true, message.pop_receipt);
                }
            }
        }
        Step::Update {
            receipt,
            text,
            hidden,
        } => {
            let Some((id, receipt, valid)) = model.choose_receipt(*receipt) else {
                return Ok(());
            };
            let text = format!("text {text}");
            let result = queues
                .update(queue, &id, &receipt, &text, visibility(*hidden))
                .await;
            if let Some(updated) = check_result(step, result, valid)? {
                model.add_receipt(&id, &updated.pop_receipt);
                if let Some(expected) = model.messages.get_mut(&id) {
                    (expected.text, expected.hidden, expected.receipt) =
                        (text, *hidden, updated.pop_receipt);
                }
            }
        }
        Step::Delete { receipt } => {
            let Some((id, receipt, valid)) = model.choose_receipt(*receipt) else {
                return Ok(());
            };
            if check_result(step, queues.delete(queue, &id, &receipt).await, valid)?.is_some() {
                model.messages.remove(&id);
            }
        }
        Step::Peek => {
            let peeked = queues
                .peek(queue, 32)
                .await
                .map_err(|error| error.to_string())?;
            if peeked.len() != model.visible().min(32) {
                return Err(format!(
                    "{step:?} returned {} messages, expected {}",
                    peeked.len(),
                    model.visible()
                ));
            }
            for message in peeked {
                check_message(
                    step,
                    &message.id,
                    &message.text,
                    message.dequeue_count,
                    model.messages.get(&message.id),
                )?;
            }
        }
    }
    let count = queues
        .approximate_count(queue)
        .await
        .map_err(|error| error.to_string())?;
    if count == model.messages.len() as u64 {
        Ok(())
    } else {
        Err(format!(
            "after {step:?} the queue counts {count}, expected {}",
            model.messages.len()
        ))
    }
}

pub async fn random_queue_operations_agree_with_the_model(world: &World) {
    check(CASES, steps(), async |steps| {
        let queue = world.queue().await;
        let mut model = Model::default();
        for one in steps {
            step(world, &queue, &mut model, one).await?;
        }
        Ok(())
    })
    .await;
}
