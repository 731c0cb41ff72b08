//! Cursors: how far a job about many has come, as its message carries it.

use serde::Serialize;
use serde_json::{Value, json};

use super::audit::AuditCursor;
use super::backfill::BackfillCursor;
use super::carry::CarryCursor;
use super::drop_table::DropTableCursor;

/// How far a job has come, with the seal of the worker that wrote it.
pub trait JobCursor: Send {
    /// Takes the seal off.
    fn take_seal(&mut self) -> Option<String>;
    /// Whether anything is done yet.
    fn has_begun(&self) -> bool;
    /// Nothing is done.
    fn restart(&mut self);
    /// As a message carries it.
    fn to_json(&self) -> Value;
}

macro_rules! cursor {
    ($($type:ty),+) => { $(impl JobCursor for $type {
        fn take_seal(&mut self) -> Option<String> {
            self.seal.take()
        }
        fn has_begun(&self) -> bool {
            is_begun(self)
        }
        fn restart(&mut self) {
            *self = Self::default();
        }
        fn to_json(&self) -> Value {
            json!(self)
        }
    })+ };
}

cursor!(BackfillCursor, AuditCursor, CarryCursor, DropTableCursor);

fn is_begun<T: Default + PartialEq + Serialize>(cursor: &T) -> bool {
    *cursor != T::default()
}
