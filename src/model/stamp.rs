//! What a job leaves on everything that it writes.

use jiff::Timestamp;

use super::Entity;

/// Which message wrote something: the value of `ek_job`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// The message's id on the queue.
    pub message_id: String,
    /// When the message was first enqueued, by the queue's clock.
    pub enqueued: Timestamp,
}

impl Stamp {
    /// The property that carries a stamp.
    pub const PROPERTY: &'static str = "ek_job";

    /// Reads the stamp of an entity, where it has one.
    pub fn of(entity: &Entity) -> Option<Self> {
        Self::under(Self::PROPERTY, entity)
    }

    /// Reads a stamp that an entity has under another name, where it has one.
    pub fn under(property: &str, entity: &Entity) -> Option<Self> {
        let (message_id, enqueued) = entity.text(property)?.split_once(' ')?;
        Some(Self { message_id: message_id.to_owned(), enqueued: enqueued.parse().ok()? })
    }

    /// Puts the stamp on an entity.
    #[must_use]
    pub fn on(&self, entity: Entity) -> Entity {
        entity.with(Self::PROPERTY, self.to_string())
    }
}

impl std::fmt::Display for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.message_id, self.enqueued)
    }
}
