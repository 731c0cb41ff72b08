//! Shared entities: each contains parts of many primaries. A shared entity is read, changed in memory
//! (`evenkeel_model::shared`), and written at its ETag.
//!
//! ```text
//!   pass A ── its changes ──┐
//!   pass B ── its changes ──┤ waiting ──▶ the writer: read ─▶ change ─▶ write at the ETag ─▶ answer all
//!   pass C ── its changes ──┘               ▲                     │ another process was faster
//!                                           └─────────────────────┘ (changes that arrive meanwhile are coalesced)
//! ```
//!
//! One process has at most one writer per entity at a time, and the next write coalesces all waiting changes. A
//! contended list thus costs one read and one write for many changes. Between processes, the ETag decides. Correctness
//! does not depend on the single writer: if its future is dropped, the callers that wait for it get no answer and read
//! the entity again.

mod blob;
mod turn;
mod write;

pub(crate) use turn::{DocumentTurns, HeldTurn};
pub(crate) use write::{ChangeResult, PreparedWrite, SharedEntity, operation};
