//! Parses a page of messages one by one, so that a malformed message does not affect the others.
//!
//! The service has hidden the messages and counted the delivery even if the page cannot be parsed, so every id and receipt that
//! can be recovered is recovered.

use jiff::Timestamp;
use quick_xml::Reader;
use quick_xml::events::Event;

use super::{http_date, xml};
use evenkeel_storage::MessageText;

/// A message of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawMessage {
    pub id: String,
    /// `None` if the message was only peeked at, or if the receipt cannot be recovered.
    pub pop_receipt: Option<String>,
    /// `MessageText`, or why it cannot be read.
    pub text: MessageText,
    pub dequeue_count: u32,
    pub inserted: Timestamp,
    /// `None` if the message never expires.
    pub expires: Option<Timestamp>,
    pub next_visible: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MessagePage {
    pub messages: Vec<RawMessage>,
    pub lost: usize,
    pub complete: bool,
}

const OPEN: &[u8] = b"<QueueMessage>";
const CLOSE: &[u8] = b"</QueueMessage>";

/// Parses a page. `date` is the date of the answer. It is used for messages without an insertion time.
pub(super) fn read(body: &[u8], date: Option<Timestamp>) -> MessagePage {
    let mut page = MessagePage {
        messages: Vec::new(),
        lost: 0,
        complete: false,
    };
    let mut rest = body;
    // Message texts are escaped, so these tags cannot occur in one.
    while let Some(start) = find(rest, OPEN) {
        rest = &rest[start + OPEN.len()..];
        let Some(end) = find(rest, CLOSE) else { break };
        match message(&rest[..end], date) {
            Some(message) => page.messages.push(message),
            None => page.lost += 1,
        }
        rest = &rest[end + CLOSE.len()..];
    }
    page.complete = [
        &b"</QueueMessagesList>"[..],
        b"<QueueMessagesList/>",
        b"<QueueMessagesList />",
    ]
    .iter()
    .any(|mark| find(rest, mark).is_some());
    page
}

fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|window| window == mark)
}

/// Parses one message. Returns `None` if its id cannot be read.
fn message(bytes: &[u8], date: Option<Timestamp>) -> Option<RawMessage> {
    let lossy = String::from_utf8_lossy(bytes);
    let (fields, mut problem) = match std::str::from_utf8(bytes) {
        Err(_) => (
            Fields::saved_from(&lossy),
            Some("the message is not UTF-8".to_owned()),
        ),
        Ok(text) => match Fields::read(text) {
            Ok(fields) => (fields, None),
            Err(problem) => (Fields::saved_from(text), Some(problem)),
        },
    };
    let id = fields.one("MessageId")?.to_owned();
    let text = match (&problem, fields.all("MessageText").as_slice()) {
        (Some(_), _) => None,
        (None, [text]) => Some((*text).to_owned()),
        (None, []) => {
            problem = Some("the message has no text".to_owned());
            None
        }
        (None, _) => {
            problem = Some("the message has more than one text".to_owned());
            None
        }
    };
    let when = |name: &str| fields.one(name).and_then(http_date::parse);
    let inserted = when("InsertionTime").or(date);
    let dequeue_count = fields
        .one("DequeueCount")
        .and_then(|count| count.trim().parse().ok());
    let text = match text {
        Some(text) => MessageText::Readable(text),
        None => MessageText::Unreadable {
            reason: problem.unwrap_or_else(|| "the message cannot be read".to_owned()),
            raw: lossy.clone().into_owned(),
        },
    };
    Some(RawMessage {
        id,
        pop_receipt: fields.one("PopReceipt").map(str::to_owned),
        text,
        // A message without a count has been received at least once.
        dequeue_count: dequeue_count.unwrap_or(1),
        inserted: inserted.unwrap_or(Timestamp::UNIX_EPOCH),
        expires: fields
            .one("ExpirationTime")
            .filter(|text| !http_date::is_never(text))
            .and_then(http_date::parse),
        next_visible: when("TimeNextVisible"),
    })
}

struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses well-formed XML without nested elements.
    fn read(text: &str) -> Result<Self, String> {
        let mut fields = Vec::new();
        let mut open: Option<(String, String)> = None;
        let mut reader = Reader::from_str(text);
        loop {
            match (
                reader
                    .read_event()
                    .map_err(|error| format!("the XML of the message is malformed: {error}"))?,
                &mut open,
            ) {
                (Event::Start(tag), None) => {
                    open = Some((tag.local_name().as_ref().to_owned(), String::new()));
                }
                (Event::Empty(tag), None) => {
                    fields.push((tag.local_name().as_ref().to_owned(), String::new()));
                }
                (Event::Start(_) | Event::Empty(_), Some((name, _))) => {
                    return Err(format!("the element {name} contains markup"));
                }
                (Event::Text(text), Some((_, value))) => value.push_str(&text),
                (Event::GeneralRef(reference), Some((name, value))) => {
                    let text = xml::referred(&reference);
                    value.push_str(&text.ok_or_else(|| {
                        format!(
                            "the element {name} contains the unknown reference &{};",
                            &*reference
                        )
                    })?);
                }
                (Event::CData(text), Some((_, value))) => value.push_str(&text),
                (Event::End(_), _) => fields.extend(open.take()),
                (Event::Eof, None) => return Ok(Self(fields)),
                (Event::Eof, Some((name, _))) => {
                    return Err(format!("the element {name} is not closed"));
                }
                _ => {}
            }
        }
    }

    /// Recovers the fields that are needed to settle a malformed message, from the texts between their tags.
    fn saved_from(text: &str) -> Self {
        let between = |name: &str| {
            let start = text.find(&format!("<{name}>"))? + name.len() + 2;
            let length = text[start..].find(&format!("</{name}>"))?;
            let raw = &text[start..start + length];
            let plain = quick_xml::escape::unescape(raw)
                .map_or_else(|_| raw.to_owned(), std::borrow::Cow::into_owned);
            Some((name.to_owned(), plain))
        };
        let names = [
            "MessageId",
            "PopReceipt",
            "InsertionTime",
            "ExpirationTime",
            "TimeNextVisible",
            "DequeueCount",
        ];
        Self(names.into_iter().filter_map(between).collect())
    }

    fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(found, _)| found == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    fn one(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.trim())
    }
}

/// Escapes carriage returns in a request body, because an XML reader turns bare ones into line feeds.
pub(super) fn with_carriage_returns(body: &str) -> String {
    body.replace('\r', "&#xD;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message_xml(id: &str, text: &str) -> String {
        format!(
            "<QueueMessage><MessageId>{id}</MessageId><InsertionTime>Fri, 20 Nov 2026 15:00:00 GMT</InsertionTime>\
             <ExpirationTime>Fri, 31 Dec 9999 23:59:59 GMT</ExpirationTime><PopReceipt>receipt-{id}</PopReceipt>\
             <TimeNextVisible>Fri, 20 Nov 2026 15:00:30 GMT</TimeNextVisible><DequeueCount>3</DequeueCount>{text}</QueueMessage>"
        )
    }

    fn page(messages: &[String]) -> Vec<u8> {
        format!("\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><QueueMessagesList>{}</QueueMessagesList>", messages.concat())
            .into_bytes()
    }

    fn texts(page: &MessagePage) -> Vec<(&str, Option<&str>)> {
        let text = |message: &'_ RawMessage| match &message.text {
            MessageText::Readable(text) => Some(text.clone()),
            MessageText::Unreadable { .. } => None,
        };
        page.messages
            .iter()
            .map(|m| (m.id.as_str(), text(m).map(|text| &*text.leak())))
            .collect()
    }

    #[test]
    fn a_message_is_read_whole() {
        let page = read(
            &page(&[message_xml(
                "a",
                "<MessageText>  x &lt;b&gt; &amp;#xD; &#xD;\n한 </MessageText>",
            )]),
            None,
        );
        assert!(page.complete);
        let message = &page.messages[0];
        assert_eq!(
            message.text,
            MessageText::Readable("  x <b> &#xD; \r\n한 ".into())
        );
        assert_eq!(message.pop_receipt.as_deref(), Some("receipt-a"));
        assert_eq!((message.dequeue_count, message.expires), (3, None));
        assert_eq!(message.inserted.to_string(), "2026-11-20T15:00:00Z");
        assert_eq!(
            message.next_visible.unwrap().to_string(),
            "2026-11-20T15:00:30Z"
        );
    }

    #[test]
    fn an_empty_text_is_a_text() {
        let page = read(
            &page(&[
                message_xml("a", "<MessageText></MessageText>"),
                message_xml("b", "<MessageText />"),
            ]),
            None,
        );
        assert_eq!(texts(&page), [("a", Some("")), ("b", Some(""))]);
    }

    #[test]
    fn one_malformed_message_does_not_affect_the_others() {
        for bad in [
            "",
            "<MessageText>1</MessageText><MessageText>2</MessageText>",
            "<MessageText><b>x</b></MessageText>",
            "<MessageText>&nope;</MessageText>",
            "<MessageText>a & b</MessageText>",
            "<MessageText>a < b</MessageText>",
            "<MessageText>never closed",
            "<MessageText>x</MessageTex>",
        ] {
            let page = read(
                &page(&[
                    message_xml("a", "<MessageText>1</MessageText>"),
                    message_xml("b", bad),
                    message_xml("c", "<MessageText>3</MessageText>"),
                ]),
                None,
            );
            assert_eq!(
                texts(&page),
                [("a", Some("1")), ("b", None), ("c", Some("3"))],
                "{bad}"
            );
            assert_eq!(
                page.messages[1].pop_receipt.as_deref(),
                Some("receipt-b"),
                "{bad}"
            );
            assert!(page.complete);
        }
    }

    #[test]
    fn invalid_utf8_is_kept_for_the_poison_queue() {
        let mut bytes = page(&[
            message_xml("a", "<MessageText>?</MessageText>"),
            message_xml("b", "<MessageText>2</MessageText>"),
        ]);
        let at = bytes.iter().position(|b| *b == b'?').unwrap();
        let at = bytes[at + 1..].windows(2).position(|w| w == b"?<").unwrap() + at + 1;
        bytes[at] = 0xff;
        let page = read(&bytes, None);
        assert_eq!(texts(&page), [("a", None), ("b", Some("2"))]);
        let MessageText::Unreadable { reason, raw } = &page.messages[0].text else {
            panic!()
        };
        assert_eq!(reason, "the message is not UTF-8");
        assert!(raw.contains("<MessageText>\u{fffd}</MessageText>"));
    }

    #[test]
    fn a_message_that_cannot_be_read_is_kept_whole() {
        let text = "x".repeat(60_000);
        let page = read(
            &page(&[message_xml(
                "a",
                &format!("<MessageText><b>{text}</b></MessageText>"),
            )]),
            None,
        );
        let MessageText::Unreadable { raw, .. } = &page.messages[0].text else {
            panic!()
        };
        assert!(raw.contains(&text), "{} characters of it", raw.len());
    }

    #[test]
    fn complete_messages_of_a_truncated_page_are_recovered() {
        let whole = page(&[
            message_xml("a", "<MessageText>1</MessageText>"),
            message_xml("b", "<MessageText>2</MessageText>"),
        ]);
        let page = read(&whole[..whole.len() - 60], None);
        assert_eq!(texts(&page), [("a", Some("1"))]);
        assert!(!page.complete);
    }

    #[test]
    fn an_empty_page_is_complete() {
        for body in [
            "<?xml version=\"1.0\"?><QueueMessagesList/>",
            "<QueueMessagesList />",
            "<QueueMessagesList></QueueMessagesList>",
        ] {
            let page = read(body.as_bytes(), None);
            assert!(page.complete && page.messages.is_empty(), "{body}");
        }
        assert!(!read(b"", None).complete);
        assert!(!read(b"<html>", None).complete);
    }

    proptest::proptest! {
        #[test]
        fn no_page_makes_it_panic(body in "(<QueueMessage>|</QueueMessage>|<MessageId>|</MessageId>|<MessageText>|</MessageText>|&|&#x1;|<|\\PC){0,40}") {
            let _ = read(body.as_bytes(), None);
        }
    }
}
