//! Documents that many primaries have parts of: read, changed as values (`evenkeel_model::shared`), written under their ETag.
//!
//! ```text
//!   pass A ── its changes ──┐
//!   pass B ── its changes ──┤ waiting ──▶ the holder of the turn: read ─▶ change ─▶ write at the ETag ─▶ tell all
//!   pass C ── its changes ──┘                                 ▲                        │ another writer was faster
//!                                                             └────────────────────────┘ (changes that wait meanwhile are coalesced)
//! ```
//!
//! In one process a document has at most one writer at a time, and every change that waits for it is coalesced into its next
//! write: a list under contention costs one read and one write for many changes. Between processes the ETag
//! decides. Nothing rests on the turn: a writer that is dropped leaves the others without an answer, and they look again.

mod blob;
mod turn;
mod write;

pub(crate) use turn::{DocumentTurns, HeldTurn};
pub(crate) use write::{Answer, PreparedWrite, SharedEntity, operation, store_error};
