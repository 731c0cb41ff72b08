//! The rules of queues.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_model::QueueName;
use evenkeel_storage::{ErrorClass, Message, MessageText, Ttl};
use futures::future::join_all;
use uuid::Uuid;

use super::{NO_CONTAINER, World, class, queue_name};

const MINUTE: Duration = Duration::from_mins(1);
const SECOND: Duration = Duration::from_secs(1);

/// The shortest visibility timeout (at least a second), and a time that is longer.
fn short(world: &World) -> (Duration, Duration) {
    let short = SECOND.max(world.capabilities.visibility_step);
    (short, short * 3 / 2)
}

async fn put(world: &World, queue: &QueueName, text: &str) -> evenkeel_storage::SentMessage {
    world
        .account
        .queues
        .put(queue, text, Duration::ZERO, Ttl::Never)
        .await
        .unwrap()
}

async fn get(world: &World, queue: &QueueName) -> Option<Message> {
    let mut messages = world.account.queues.get(queue, 1, MINUTE).await.unwrap();
    assert!(messages.len() <= 1);
    messages.pop()
}

async fn get_one(world: &World, queue: &QueueName) -> Message {
    get(world, queue).await.expect("a message is visible")
}

/// Makes a received message visible at once.
async fn release(world: &World, queue: &QueueName, message: &Message) -> String {
    let updated = world
        .account
        .queues
        .update(
            queue,
            &message.id,
            &message.pop_receipt,
            text(&message.text),
            Duration::ZERO,
        )
        .await;
    updated.unwrap().pop_receipt
}

fn text(text: &MessageText) -> &str {
    match text {
        MessageText::Readable(text) => text,
        MessageText::Unreadable { reason, .. } => panic!("unreadable: {reason}"),
    }
}

pub async fn a_queue_is_created_once(world: &World) {
    let queue = queue_name();
    assert!(world.account.queues.create_queue(&queue).await.unwrap());
    put(world, &queue, "kept").await;
    assert!(!world.account.queues.create_queue(&queue).await.unwrap());
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        1
    );
}

pub async fn a_queue_is_deleted_once(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "gone").await;
    assert!(world.account.queues.delete_queue(&queue).await.unwrap());
    assert!(!world.account.queues.delete_queue(&queue).await.unwrap());
    assert_eq!(
        class(world.account.queues.get(&queue, 1, MINUTE).await),
        NO_CONTAINER
    );
}

pub async fn an_absent_queue_is_not_found(world: &World) {
    let absent = queue_name();
    let queues = &world.account.queues;
    assert_eq!(
        class(
            queues
                .put(&absent, "text", Duration::ZERO, Ttl::Never)
                .await
        ),
        NO_CONTAINER
    );
    assert_eq!(class(queues.get(&absent, 1, MINUTE).await), NO_CONTAINER);
    assert_eq!(class(queues.peek(&absent, 1).await), NO_CONTAINER);
    assert_eq!(class(queues.approximate_count(&absent).await), NO_CONTAINER);
}

pub async fn a_message_is_received_as_it_was_sent(world: &World) {
    let queue = world.queue().await;
    let sent = put(world, &queue, "hello").await;
    let message = get_one(world, &queue).await;
    assert_eq!(message.id, sent.id);
    assert_eq!(text(&message.text), "hello");
    assert_eq!(message.dequeue_count, 1);
    assert_eq!(message.expires, None);
    assert!(message.next_visible > message.inserted);
    assert_ne!(message.pop_receipt, sent.pop_receipt);
}

pub async fn any_text_that_xml_carries_survives(world: &World) {
    let queue = world.queue().await;
    let texts = [
        "<a b=\"c\">&amp;</a>".to_owned(),
        "]]> <![CDATA[ x ]]>".to_owned(),
        "{\"op\":\"sync\",\"pk\":\"O'Brien\"}".to_owned(),
        "line\r\nbreak\ttab\nend".to_owned(),
        "한글 😀 é".to_owned(),
        "&#x1; &lt;".to_owned(),
        "한".repeat(16_000),
        "a".repeat(world.capabilities.message_bytes),
    ];
    for expected in &texts {
        put(world, &queue, expected).await;
        let message = get_one(world, &queue).await;
        assert!(
            text(&message.text) == expected,
            "{} bytes starting {:?}",
            expected.len(),
            expected.chars().take(20).collect::<String>()
        );
        world
            .account
            .queues
            .delete(&queue, &message.id, &message.pop_receipt)
            .await
            .unwrap();
    }
}

pub async fn text_over_the_maximum_length_is_refused(world: &World) {
    let most = world.capabilities.message_bytes;
    let queue = world.queue().await;
    for large in ["a".repeat(most + 1), "한".repeat(most / 3 + 1)] {
        assert_eq!(
            class(
                world
                    .account
                    .queues
                    .put(&queue, &large, Duration::ZERO, Ttl::Never)
                    .await
            ),
            ErrorClass::TooLarge
        );
    }
    put(world, &queue, "small").await;
    let message = get_one(world, &queue).await;
    let update = world
        .account
        .queues
        .update(
            &queue,
            &message.id,
            &message.pop_receipt,
            &"a".repeat(most + 1),
            MINUTE,
        )
        .await;
    assert_eq!(class(update), ErrorClass::TooLarge);
    world
        .account
        .queues
        .delete(&queue, &message.id, &message.pop_receipt)
        .await
        .unwrap();
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        0
    );
}

pub async fn text_that_xml_cannot_carry_is_refused(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "good").await;
    for bad in [
        "a\u{0}", "\u{1}", "a\u{8}b", "\u{b}", "\u{c}", "\u{1f}", "\u{fffe}", "\u{ffff}",
    ] {
        assert_eq!(
            class(
                world
                    .account
                    .queues
                    .put(&queue, bad, Duration::ZERO, Ttl::Never)
                    .await
            ),
            ErrorClass::Permanent,
            "{bad:?}"
        );
    }
    let message = get_one(world, &queue).await;
    let update = world
        .account
        .queues
        .update(&queue, &message.id, &message.pop_receipt, "\u{1}", MINUTE)
        .await;
    assert_eq!(class(update), ErrorClass::Permanent);
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        1
    );
}

pub async fn a_received_message_is_hidden(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    get_one(world, &queue).await;
    assert_eq!(get(world, &queue).await, None);
    assert_eq!(world.account.queues.peek(&queue, 32).await.unwrap(), []);
}

pub async fn a_hidden_message_returns_and_counts_again(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let (short, over) = short(world);
    let first = world
        .account
        .queues
        .get(&queue, 1, short)
        .await
        .unwrap()
        .remove(0);
    world.advance_time(over).await;
    let second = get_one(world, &queue).await;
    assert_eq!(
        (second.id.as_str(), second.inserted),
        (first.id.as_str(), first.inserted)
    );
    assert_eq!((first.dequeue_count, second.dequeue_count), (1, 2));
    assert_eq!(second.text, first.text);
    assert_ne!(second.pop_receipt, first.pop_receipt);
}

pub async fn a_delayed_message_arrives_later(world: &World) {
    let queue = world.queue().await;
    world
        .account
        .queues
        .put(
            &queue,
            "later",
            world.capabilities.response_time,
            Ttl::Never,
        )
        .await
        .unwrap();
    assert_eq!(get(world, &queue).await, None);
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        1
    );
    world
        .advance_time(world.capabilities.response_time + SECOND)
        .await;
    let message = get_one(world, &queue).await;
    assert_eq!((text(&message.text), message.dequeue_count), ("later", 1));
}

pub async fn an_update_to_zero_seconds_shows_the_message_at_once(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    for count in 1..6 {
        let message = get_one(world, &queue).await;
        assert_eq!(message.dequeue_count, count);
        assert_eq!(get(world, &queue).await, None);
        release(world, &queue, &message).await;
    }
}

pub async fn an_update_changes_text_and_receipt_and_counts_nothing(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "before").await;
    let message = get_one(world, &queue).await;
    let updated = world
        .account
        .queues
        .update(
            &queue,
            &message.id,
            &message.pop_receipt,
            "<after> 한",
            MINUTE,
        )
        .await
        .unwrap();
    assert_ne!(updated.pop_receipt, message.pop_receipt);
    assert!(updated.next_visible >= message.next_visible);
    world
        .account
        .queues
        .update(
            &queue,
            &message.id,
            &updated.pop_receipt,
            "<last> 한",
            Duration::ZERO,
        )
        .await
        .unwrap();
    let again = get_one(world, &queue).await;
    assert_eq!((text(&again.text), again.dequeue_count), ("<last> 한", 2));
    assert_eq!(
        (again.id, again.inserted, again.expires),
        (message.id, message.inserted, message.expires)
    );
}

pub async fn an_update_hides_the_message_anew(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let (short, over) = short(world);
    let message = world
        .account
        .queues
        .get(&queue, 1, short)
        .await
        .unwrap()
        .remove(0);
    world
        .account
        .queues
        .update(&queue, &message.id, &message.pop_receipt, "one", MINUTE)
        .await
        .unwrap();
    world.advance_time(over).await;
    assert_eq!(get(world, &queue).await, None);
}

pub async fn a_receipt_outlives_its_visibility_until_the_next_get(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "to update").await;
    put(world, &queue, "to delete").await;
    let (short, over) = short(world);
    let held = world.account.queues.get(&queue, 2, short).await.unwrap();
    assert_eq!(held.len(), 2);
    world.advance_time(over).await;
    world
        .account
        .queues
        .update(&queue, &held[0].id, &held[0].pop_receipt, "updated", MINUTE)
        .await
        .unwrap();
    world
        .account
        .queues
        .delete(&queue, &held[1].id, &held[1].pop_receipt)
        .await
        .unwrap();
    assert_eq!(get(world, &queue).await, None);
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        1
    );
}

pub async fn a_receipt_ends_with_the_next_get(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let first = get_one(world, &queue).await;
    let released = release(world, &queue, &first).await;
    let second = get_one(world, &queue).await;
    for stale in [&first.pop_receipt, &released] {
        assert_eq!(
            class(
                world
                    .account
                    .queues
                    .update(&queue, &first.id, stale, "stolen", MINUTE)
                    .await
            ),
            ErrorClass::LeaseLost
        );
        assert_eq!(
            class(world.account.queues.delete(&queue, &first.id, stale).await),
            ErrorClass::LeaseLost
        );
    }
    let kept = world
        .account
        .queues
        .update(&queue, &second.id, &second.pop_receipt, "mine", MINUTE)
        .await
        .unwrap();
    world
        .account
        .queues
        .delete(&queue, &second.id, &kept.pop_receipt)
        .await
        .unwrap();
}

pub async fn a_receipt_ends_with_an_update(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let message = get_one(world, &queue).await;
    let updated = world
        .account
        .queues
        .update(&queue, &message.id, &message.pop_receipt, "one", MINUTE)
        .await
        .unwrap();
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&queue, &message.id, &message.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
    world
        .account
        .queues
        .delete(&queue, &message.id, &updated.pop_receipt)
        .await
        .unwrap();
}

pub async fn a_deleted_message_is_a_lost_lease(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let message = get_one(world, &queue).await;
    world
        .account
        .queues
        .delete(&queue, &message.id, &message.pop_receipt)
        .await
        .unwrap();
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&queue, &message.id, &message.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
    assert_eq!(
        class(
            world
                .account
                .queues
                .update(&queue, &message.id, &message.pop_receipt, "x", MINUTE)
                .await
        ),
        ErrorClass::LeaseLost
    );
    let never = Uuid::new_v4().to_string();
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&queue, &never, &message.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
}

pub async fn the_receipt_of_put_works_until_the_first_get(world: &World) {
    let queue = world.queue().await;
    let sent = put(world, &queue, "never mind").await;
    world
        .account
        .queues
        .delete(&queue, &sent.id, &sent.pop_receipt)
        .await
        .unwrap();
    assert_eq!(get(world, &queue).await, None);
    let sent = put(world, &queue, "too late").await;
    get_one(world, &queue).await;
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&queue, &sent.id, &sent.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
}

pub async fn a_peek_neither_hides_nor_counts(world: &World) {
    let queue = world.queue().await;
    let sent = put(world, &queue, "<looked> at").await;
    for _ in 0..3 {
        let peeked = world.account.queues.peek(&queue, 32).await.unwrap();
        assert_eq!(peeked.len(), 1);
        assert_eq!(
            (
                peeked[0].id.as_str(),
                text(&peeked[0].text),
                peeked[0].dequeue_count
            ),
            (sent.id.as_str(), "<looked> at", 0)
        );
        assert_eq!(peeked[0].expires, None);
    }
    let message = get_one(world, &queue).await;
    assert_eq!(message.dequeue_count, 1);
    release(world, &queue, &message).await;
    assert_eq!(
        world.account.queues.peek(&queue, 1).await.unwrap()[0].dequeue_count,
        1
    );
}

pub async fn the_count_includes_hidden_messages(world: &World) {
    let queue = world.queue().await;
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        0
    );
    for number in 0..3 {
        put(world, &queue, &number.to_string()).await;
    }
    world
        .account
        .queues
        .put(&queue, "later", MINUTE, Ttl::Never)
        .await
        .unwrap();
    let message = get_one(world, &queue).await;
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        4
    );
    world
        .account
        .queues
        .delete(&queue, &message.id, &message.pop_receipt)
        .await
        .unwrap();
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&queue)
            .await
            .unwrap(),
        3
    );
}

pub async fn a_batch_has_at_most_the_requested_messages(world: &World) {
    let queue = world.queue().await;
    let most = world.capabilities.messages;
    let mut sent = BTreeSet::new();
    for number in 0..most + 8 {
        sent.insert(put(world, &queue, &number.to_string()).await.id);
    }
    assert!(world.account.queues.peek(&queue, most).await.unwrap().len() <= most as usize);
    let mut received = BTreeSet::new();
    for max in [1, 5, most, most, most] {
        let batch = world.account.queues.get(&queue, max, MINUTE).await.unwrap();
        assert!(batch.len() <= usize::try_from(max).unwrap());
        if world.capabilities.receipts_differ {
            assert_eq!(
                batch
                    .iter()
                    .map(|message| &message.pop_receipt)
                    .collect::<BTreeSet<_>>()
                    .len(),
                batch.len()
            );
        }
        for message in batch {
            assert!(
                received.insert(message.id.clone()),
                "message {:?} was delivered twice",
                message.id
            );
        }
    }
    assert_eq!(received, sent);
}

pub async fn batches_and_timeouts_out_of_range_are_refused(world: &World) {
    let queue = world.queue().await;
    put(world, &queue, "one").await;
    let (most, longest) = (world.capabilities.messages, world.capabilities.visibility);
    let queues = &world.account.queues;
    for (max, visibility) in [
        (0, MINUTE),
        (most + 1, MINUTE),
        (1, Duration::ZERO),
        (1, longest + SECOND),
    ] {
        assert_eq!(
            class(queues.get(&queue, max, visibility).await),
            ErrorClass::Permanent,
            "expected an error for {max} messages, hidden for {visibility:?}"
        );
    }
    assert_eq!(class(queues.peek(&queue, 0).await), ErrorClass::Permanent);
    assert_eq!(
        class(queues.peek(&queue, most + 1).await),
        ErrorClass::Permanent
    );
    assert_eq!(
        class(queues.put(&queue, "x", longest + SECOND, Ttl::Never).await),
        ErrorClass::Permanent
    );
    assert_eq!(
        class(
            queues
                .put(&queue, "x", Duration::ZERO, Ttl::After(Duration::ZERO))
                .await
        ),
        ErrorClass::Permanent
    );
    let message = queues.get(&queue, most, longest).await.unwrap().remove(0);
    let update = queues
        .update(
            &queue,
            &message.id,
            &message.pop_receipt,
            "x",
            longest + SECOND,
        )
        .await;
    assert_eq!(class(update), ErrorClass::Permanent);
    queues
        .delete(&queue, &message.id, &message.pop_receipt)
        .await
        .unwrap();
    assert_eq!(queues.approximate_count(&queue).await.unwrap(), 0);
}

pub async fn less_than_a_step_is_rounded_up(world: &World) {
    let queue = world.queue().await;
    let moment = world.capabilities.visibility_step / 1_000;
    if moment.is_zero() {
        return;
    }
    world
        .account
        .queues
        .put(&queue, "delayed", moment, Ttl::Never)
        .await
        .unwrap();
    assert_eq!(get(world, &queue).await, None);
    let kept = world.queue().await;
    put(world, &kept, "one").await;
    assert_eq!(
        world
            .account
            .queues
            .get(&kept, 1, moment)
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(get(world, &kept).await, None);
}

pub async fn a_message_expires(world: &World) {
    let queue = world.queue().await;
    world
        .account
        .queues
        .put(
            &queue,
            "short",
            Duration::ZERO,
            Ttl::After(world.capabilities.response_time),
        )
        .await
        .unwrap();
    world
        .account
        .queues
        .put(
            &queue,
            "hidden",
            Duration::ZERO,
            Ttl::After(world.capabilities.response_time),
        )
        .await
        .unwrap();
    put(world, &queue, "lasting").await;
    let held = world.account.queues.get(&queue, 32, MINUTE).await.unwrap();
    assert_eq!(held.len(), 3);
    for message in &held {
        let lasting = text(&message.text) == "lasting";
        assert_eq!(message.expires.is_none(), lasting);
        if text(&message.text) != "hidden" {
            release(world, &queue, message).await;
        }
    }
    world
        .advance_time(world.capabilities.response_time + SECOND)
        .await;
    let left = world.account.queues.get(&queue, 32, MINUTE).await.unwrap();
    assert_eq!(
        left.iter()
            .map(|message| text(&message.text))
            .collect::<Vec<_>>(),
        ["lasting"]
    );
    let hidden = held
        .iter()
        .find(|message| text(&message.text) == "hidden")
        .unwrap();
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&queue, &hidden.id, &hidden.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
}

pub async fn a_delay_must_end_before_the_message_expires(world: &World) {
    let queue = world.queue().await;
    for delay in [MINUTE, MINUTE + SECOND] {
        let put = world
            .account
            .queues
            .put(&queue, "x", delay, Ttl::After(MINUTE))
            .await;
        assert_eq!(class(put), ErrorClass::Permanent);
    }
    world
        .account
        .queues
        .put(&queue, "x", Duration::from_secs(59), Ttl::After(MINUTE))
        .await
        .unwrap();
}

pub async fn concurrent_gets_never_share_a_message(world: &World) {
    let queue = world.queue().await;
    for number in 0..32 {
        put(world, &queue, &number.to_string()).await;
    }
    let batches = join_all((0..8).map(|_| world.account.queues.get(&queue, 8, MINUTE))).await;
    let ids = batches
        .into_iter()
        .flat_map(Result::unwrap)
        .map(|message| message.id)
        .collect::<Vec<_>>();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert_eq!(ids.len(), 32);
}

pub async fn queues_do_not_share_messages(world: &World) {
    let (one, other) = (world.queue().await, world.queue().await);
    let sent = put(world, &one, "mine").await;
    assert_eq!(get(world, &other).await, None);
    assert_eq!(
        world
            .account
            .queues
            .approximate_count(&other)
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        class(
            world
                .account
                .queues
                .delete(&other, &sent.id, &sent.pop_receipt)
                .await
        ),
        ErrorClass::LeaseLost
    );
    assert_eq!(text(&get_one(world, &one).await.text), "mine");
}
