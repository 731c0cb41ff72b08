//! Malformed pages of messages.

use super::*;

fn message(id: &str, text: &str) -> String {
    format!(
        "<QueueMessage><MessageId>{id}</MessageId><InsertionTime>Fri, 20 Nov 2026 15:00:00 GMT</InsertionTime>\
         <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>AgAA{id}</PopReceipt>\
         <TimeNextVisible>Fri, 20 Nov 2026 15:01:00 GMT</TimeNextVisible><DequeueCount>2</DequeueCount>{text}</QueueMessage>"
    )
}

fn page(messages: &[String]) -> String {
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>{}</QueueMessagesList>",
        messages.concat()
    )
}

#[tokio::test]
async fn one_unreadable_message_does_not_keep_the_others_back() {
    let messages = [
        message("a", "<MessageText>one</MessageText>"),
        message("b", "<MessageText><job>markup</job></MessageText>"),
        message("c", "<MessageText>three</MessageText>"),
    ];
    let stub = Stub::always(Reply::status(200).like_azure().body(page(&messages)));
    let got = connect(&stub)
        .queues
        .get(&queue(), 32, MINUTE)
        .await
        .unwrap();
    assert_eq!(
        got.iter().map(|m| m.id.as_str()).collect::<Vec<_>>(),
        ["a", "b", "c"]
    );
    assert_eq!(got[0].text, MessageText::Readable("one".into()));
    assert_eq!(
        got[1].pop_receipt, "AgAAb",
        "the message must be movable to the poison queue"
    );
    let MessageText::Unreadable { reason, raw } = &got[1].text else {
        panic!("{:?}", got[1].text)
    };
    assert!(
        reason.contains("markup") && raw.contains("<job>markup</job>"),
        "{reason} {raw}"
    );
    assert_eq!((got[2].dequeue_count, got[2].expires), (2, None));
    assert_eq!(got[2].next_visible.to_string(), "2026-11-20T15:01:00Z");
}

#[tokio::test]
async fn a_page_that_is_cut_off_gives_what_it_holds() {
    let whole = page(&[
        message("a", "<MessageText>one</MessageText>"),
        message("b", "<MessageText>two</MessageText>"),
    ]);
    let stub = Stub::always(
        Reply::status(200)
            .like_azure()
            .body(&whole.as_bytes()[..whole.len() - 60]),
    );
    assert_eq!(
        connect(&stub)
            .queues
            .get(&queue(), 32, MINUTE)
            .await
            .unwrap()
            .len(),
        1
    );
    let stub = Stub::always(
        Reply::status(200)
            .like_azure()
            .body(&whole.as_bytes()[..90]),
    );
    assert_eq!(
        connect(&stub)
            .queues
            .get(&queue(), 32, MINUTE)
            .await
            .unwrap_err()
            .class,
        ErrorClass::Ambiguous
    );
    assert_eq!(
        connect(&stub)
            .queues
            .peek(&queue(), 32)
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
}

#[tokio::test]
async fn a_batch_that_the_service_cannot_write_down_is_got_one_by_one() {
    let stub = Stub::start(|request| {
        if request.target.contains("numofmessages=1&")
            || request.target.ends_with("numofmessages=1")
        {
            Reply::status(200)
                .like_azure()
                .body(page(&[message("a", "<MessageText>one</MessageText>")]))
                .into()
        } else {
            Reply::status(500).body(xml("InternalError")).into()
        }
    });
    let queues = connect(&stub).queues;
    for _ in 0..5 {
        assert_eq!(queues.get(&queue(), 32, MINUTE).await.unwrap().len(), 1);
    }
    assert_eq!(
        stub.requests().len(),
        6,
        "the batch must be tried once, and not again for a while"
    );
}

#[tokio::test]
async fn an_id_that_is_none_never_clears_the_queue() {
    let stub = Stub::always(Reply::status(204).like_azure());
    let queues = connect(&stub).queues;
    for id in ["", ".", "..", "a/b", "a\nb", "한"] {
        assert_eq!(
            queues
                .delete(&queue(), id, "receipt")
                .await
                .unwrap_err()
                .class,
            ErrorClass::LeaseLost,
            "{id:?}"
        );
        assert_eq!(
            queues
                .update(&queue(), id, "receipt", "x", MINUTE)
                .await
                .unwrap_err()
                .class,
            ErrorClass::LeaseLost,
            "{id:?}"
        );
    }
    assert_eq!(
        queues.delete(&queue(), "id", "").await.unwrap_err().class,
        ErrorClass::LeaseLost
    );
    assert!(stub.requests().is_empty());
}
