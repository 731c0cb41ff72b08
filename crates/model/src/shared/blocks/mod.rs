//! Lists in blobs: a head, then one line for each member, sorted.
//!
//! ```text
//!   {"ek_list":1,"ek_view":"by_name","ek_source":["Employees"],"ek_count":3,"ek_blocks":[…]}     the head: one line
//!   [["Sales","000223"],"9sHl0mq2kPo"]                                                           a member and its token
//!   [["Sales","000412"],"EVT7Qj0xN1U"]
//! ```
//!
//! A list of up to 256 KiB is written in one request. A longer one is a block list of the service: the head is a block,
//! and so are the members from each member that the head names up to the next, 256 KiB of lines at most. A change reads the
//! head and the blocks that it is about, and uploads these two; the others stay where they are.
//!
//! Everything here is a value: which bytes are to be read and written is said, and done elsewhere.

mod block;
mod head;
mod list;
#[cfg(test)]
mod tests;

pub use list::{BlockedList, ListWrite, OpenedList};

pub use crate::model::limits::LIST_BLOCK_BYTES as BLOCK_BYTES;
