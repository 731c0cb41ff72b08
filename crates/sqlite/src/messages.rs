//! Messages: visibility and pop receipts.
//!
//! Times are microseconds since 1970. A message is found through the index of (queue, visibility),
//! so a get costs the same at any backlog. The row number is the stamp of the put, so messages of
//! equal visibility are sorted by insertion. A pop receipt is the stamp of the put, get or update
//! that gave it. Only the latest pop receipt of a message is stored. It stays valid until the next
//! one is given, even after the visibility timeout.
//!
//! The file stores the clock's time at its last write. If the clock now shows an earlier time, the
//! clock was set back. Then visibilities are set back by the same time.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};
use uuid::Uuid;

use evenkeel_model::QueueName;
use evenkeel_storage::{
    ErrorClass, Message, MessageText, PeekedMessage, SentMessage, UpdatedMessage,
};

use super::fault::Fault;
use super::stamp;
use super::writer::WriteContext;

/// Maximum number of expired messages that one get deletes. When it has found this many, it stops
/// its search.
const EXPIRED_PER_GET: usize = 2_000;
/// If stamps are further ahead of the clock than this, messages get the clock's time as their
/// insertion time. Conditions of jobs and retentions depend on insertion times.
const STAMPS_AHEAD: SignedDuration = SignedDuration::from_hours(24);
/// If the clock is set back by no more than this, in microseconds, messages just wait longer.
const SET_BACK: i64 = 1_000_000;

fn queue_id(connection: &Connection, queue: &QueueName) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT id FROM queues WHERE name = ?1")?;
    statement
        .query_row([queue.as_str()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| Fault::no_container("queue"))
}

fn count_by(connection: &Connection, queue: i64, change: i64) -> Result<(), Fault> {
    let sql = "UPDATE queues SET messages = messages + ?2 WHERE id = ?1";
    connection.prepare_cached(sql)?.execute((queue, change))?;
    Ok(())
}

fn after(now: Timestamp, duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).map_or(i64::MAX, |micros| {
        now.as_microsecond().saturating_add(micros)
    })
}

fn moment(micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_microsecond(micros)
        .map_err(|_| Fault::corrupt(format_args!("the time {micros}")))
}

/// If the clock was set back since the last write, sets visibilities back by the same time, so that
/// messages stay hidden as long as intended. If the receipt of a message is not later than the
/// present time, its visibility stays: either the clock was correct when the message was hidden, or
/// the message waits a little longer.
pub(super) fn follow_clock(
    connection: &Connection,
    last_clock: i64,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let present = now.as_microsecond();
    let behind = last_clock.saturating_sub(present);
    if behind <= SET_BACK {
        return Ok(());
    }
    let sql = "UPDATE messages SET visible = visible - ?3 WHERE visible > ?1 AND receipt > ?2";
    connection
        .prepare_cached(sql)?
        .execute((present, stamp::of(now), behind))?;
    connection
        .prepare_cached("UPDATE store SET last_clock = ?1")?
        .execute([present])?;
    Ok(())
}

/// The insertion time of a message. It comes from the stamp, as the Timestamp of a row does. So a
/// job is never older than rows that were written before it, even if the clock was set back. If the
/// stamp is too far ahead of the clock, the clock's time is used.
fn inserted(stamp: i64, now: Timestamp) -> Result<i64, Fault> {
    let stamped = stamp::timestamp(stamp)?.timestamp();
    let dated = if stamped.duration_since(now) <= STAMPS_AHEAD {
        stamped
    } else {
        now
    };
    Ok(dated.as_microsecond())
}

/// A message, identified by its id and a pop receipt. The id contains the identity of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageHandle {
    row: i64,
    receipt: i64,
}

impl MessageHandle {
    /// Parses the id and the pop receipt of a message. `None` if this file cannot have given them.
    pub(super) fn parse(identity: u64, id: &str, receipt: &str) -> Option<Self> {
        let (of_file, row) = Uuid::parse_str(id).ok()?.as_u64_pair();
        let number = u64::from_str_radix(receipt, 16).ok()?;
        (of_file == identity && receipt_text(number.cast_signed()) == receipt).then(|| Self {
            row: row.cast_signed(),
            receipt: number.cast_signed(),
        })
    }
}

fn id_text(identity: u64, row: i64) -> String {
    Uuid::from_u64_pair(identity, row.cast_unsigned()).to_string()
}

fn receipt_text(stamp: i64) -> String {
    format!("{stamp:016x}")
}

pub(super) fn put(
    writing: &mut WriteContext<'_>,
    identity: u64,
    queue: &QueueName,
    text: &str,
    delay: Duration,
    lifetime: Option<Duration>,
) -> Result<SentMessage, Fault> {
    let queue = queue_id(writing.connection, queue)?;
    let stamp = writing.stamp();
    // A message that would expire after the year 9999 never expires.
    let expires = lifetime
        .map(|lifetime| after(writing.now, lifetime))
        .filter(|micros| moment(*micros).is_ok());
    let sql = "INSERT INTO messages (id, queue_id, visible, expires, inserted, dequeues, receipt, text) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?1, ?6)";
    let visible = after(writing.now, delay);
    writing.connection.prepare_cached(sql)?.execute((
        stamp,
        queue,
        visible,
        expires,
        inserted(stamp, writing.now)?,
        text,
    ))?;
    count_by(writing.connection, queue, 1)?;
    Ok(SentMessage {
        id: id_text(identity, stamp),
        pop_receipt: receipt_text(stamp),
    })
}

pub(super) fn get(
    writing: &mut WriteContext<'_>,
    identity: u64,
    queue: &QueueName,
    max: usize,
    visibility: Duration,
) -> Result<Vec<Message>, Fault> {
    let queue = queue_id(writing.connection, queue)?;
    let (visible, expired) = visible(writing.connection, queue, writing.now.as_microsecond(), max)?;
    for row in &expired {
        writing
            .connection
            .prepare_cached("DELETE FROM messages WHERE id = ?1")?
            .execute([row])?;
    }
    if !expired.is_empty() {
        count_by(
            writing.connection,
            queue,
            -i64::try_from(expired.len()).unwrap_or(i64::MAX),
        )?;
    }
    let until = after(writing.now, visibility);
    let next_visible = moment(until)?;
    let mut messages = Vec::with_capacity(visible.len());
    for row in visible {
        let stamp = writing.stamp();
        let sql = "UPDATE messages SET visible = ?2, dequeues = dequeues + 1, receipt = ?3 WHERE id = ?1 RETURNING dequeues, inserted, expires, text";
        let mut statement = writing.connection.prepare_cached(sql)?;
        let (dequeue_count, inserted, expires, text) =
            statement.query_row((row, until, stamp), |row| {
                Ok((
                    row.get(0)?,
                    row.get(1)?,
                    row.get::<_, Option<i64>>(2)?,
                    row.get(3)?,
                ))
            })?;
        messages.push(Message {
            id: id_text(identity, row),
            pop_receipt: receipt_text(stamp),
            text: MessageText::Readable(text),
            dequeue_count,
            inserted: moment(inserted)?,
            expires: expires.map(moment).transpose()?,
            next_visible,
        });
    }
    Ok(messages)
}

/// The first visible messages, and the expired ones before them.
fn visible(
    connection: &Connection,
    queue: i64,
    now: i64,
    max: usize,
) -> Result<(Vec<i64>, Vec<i64>), Fault> {
    let sql = "SELECT id, expires FROM messages WHERE queue_id = ?1 AND visible <= ?2 ORDER BY visible, id";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((queue, now))?;
    let (mut visible, mut expired) = (Vec::with_capacity(max), Vec::new());
    while visible.len() < max
        && expired.len() < EXPIRED_PER_GET
        && let Some(row) = rows.next()?
    {
        let list = if row
            .get::<_, Option<i64>>(1)?
            .is_some_and(|expires| expires <= now)
        {
            &mut expired
        } else {
            &mut visible
        };
        list.push(row.get(0)?);
    }
    Ok((visible, expired))
}

fn lost() -> Fault {
    Fault::new(
        ErrorClass::LeaseLost,
        "the pop receipt is no longer valid, or the message is gone",
    )
}

pub(super) fn update(
    writing: &mut WriteContext<'_>,
    queue: &QueueName,
    held: Option<MessageHandle>,
    text: &str,
    visibility: Duration,
) -> Result<UpdatedMessage, Fault> {
    let queue = queue_id(writing.connection, queue)?;
    let held = held.ok_or_else(lost)?;
    let (stamp, until) = (writing.stamp(), after(writing.now, visibility));
    let sql = "UPDATE messages SET visible = ?5, receipt = ?6, text = ?7 \
               WHERE id = ?1 AND queue_id = ?2 AND receipt = ?3 AND (expires IS NULL OR expires > ?4)";
    let now = writing.now.as_microsecond();
    let updated = writing.connection.prepare_cached(sql)?.execute((
        held.row,
        queue,
        held.receipt,
        now,
        until,
        stamp,
        text,
    ))?;
    if updated == 0 {
        return Err(lost());
    }
    Ok(UpdatedMessage {
        pop_receipt: receipt_text(stamp),
        next_visible: moment(until)?,
    })
}

pub(super) fn delete(
    writing: &WriteContext<'_>,
    queue: &QueueName,
    held: Option<MessageHandle>,
) -> Result<(), Fault> {
    let queue = queue_id(writing.connection, queue)?;
    let held = held.ok_or_else(lost)?;
    let sql = "DELETE FROM messages WHERE id = ?1 AND queue_id = ?2 AND receipt = ?3 AND (expires IS NULL OR expires > ?4)";
    let now = writing.now.as_microsecond();
    let deleted =
        writing
            .connection
            .prepare_cached(sql)?
            .execute((held.row, queue, held.receipt, now))?;
    if deleted == 0 {
        return Err(lost());
    }
    count_by(writing.connection, queue, -1)
}

pub(super) fn peek(
    connection: &Connection,
    identity: u64,
    queue: &QueueName,
    now: Timestamp,
    max: u32,
) -> Result<Vec<PeekedMessage>, Fault> {
    let queue = queue_id(connection, queue)?;
    let sql = "SELECT id, text, dequeues, inserted, expires FROM messages \
               WHERE queue_id = ?1 AND visible <= ?2 AND (expires IS NULL OR expires > ?2) ORDER BY visible, id LIMIT ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query((queue, now.as_microsecond(), max))?;
    let mut messages = Vec::new();
    while let Some(row) = rows.next()? {
        messages.push(PeekedMessage {
            id: id_text(identity, row.get(0)?),
            text: MessageText::Readable(row.get(1)?),
            dequeue_count: row.get(2)?,
            inserted: moment(row.get(3)?)?,
            expires: row.get::<_, Option<i64>>(4)?.map(moment).transpose()?,
        });
    }
    Ok(messages)
}

/// Expired messages count until a get deletes them.
pub(super) fn count(connection: &Connection, queue: &QueueName) -> Result<u64, Fault> {
    let mut statement = connection.prepare_cached("SELECT messages FROM queues WHERE name = ?1")?;
    let count: Option<i64> = statement
        .query_row([queue.as_str()], |row| row.get(0))
        .optional()?;
    let count = count.ok_or_else(|| Fault::no_container("queue"))?;
    u64::try_from(count).map_err(|_| Fault::corrupt(format_args!("a queue of {count} messages")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_receipts_name_one_message_of_one_file() {
        let (id, receipt) = (id_text(7, 639_000), receipt_text(-5));
        assert_eq!(
            MessageHandle::parse(7, &id, &receipt),
            Some(MessageHandle {
                row: 639_000,
                receipt: -5
            })
        );
        assert_eq!(MessageHandle::parse(8, &id, &receipt), None);
        for (id, receipt) in [
            ("no id", receipt.as_str()),
            (&id, "no receipt"),
            (&id, ""),
            (&id, "5"),
            (&id, "+000000000000005"),
        ] {
            assert_eq!(MessageHandle::parse(7, id, receipt), None, "{id} {receipt}");
        }
    }
}
