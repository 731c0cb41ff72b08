//! Several ranges as one, in order.

use futures::future::try_join_all;

use super::cursor::{Cursor, Reading};
use super::token::Position;
use crate::model::Row;
use crate::patterns::lookup::KeyRange;
use crate::ports::StoreError;

/// What was found.
pub(super) struct Found {
    /// The rows, in order.
    pub(super) rows: Vec<Row>,
    /// Where each range stands; nothing where all have ended.
    pub(super) positions: Option<Vec<Position>>,
    /// Requests sent.
    pub(super) requests: u64,
}

/// Reads up to `top` rows of these ranges, merged in the order of what follows their prefixes.
pub(super) async fn read(reading: &Reading<'_>, ranges: &[KeyRange], from: Vec<Position>, top: u32) -> Result<Found, StoreError> {
    let mut cursors: Vec<Cursor<'_>> = ranges.iter().zip(from).map(|(range, position)| Cursor::new(range, position)).collect();
    // All at once: there are at most as many as a template has buckets.
    try_join_all(cursors.iter_mut().map(|cursor| cursor.fill(reading))).await?;
    let mut rows = Vec::new();
    let mut last = None;
    while rows.len() < top as usize {
        // Not behind the last row: who wants ten does not pay for the page that follows.
        if let Some(last) = last {
            let cursor: &mut Cursor<'_> = &mut cursors[last];
            cursor.fill(reading).await?;
        }
        let Some(least) = least(&cursors) else { break };
        rows.extend(cursors[least].take());
        last = Some(least);
    }
    let positions: Vec<Position> = cursors.iter().map(Cursor::position).collect();
    let requests = cursors.iter().map(|cursor| cursor.requests).sum();
    Ok(Found { rows, positions: positions.iter().any(|position| !position.ended).then_some(positions), requests })
}

/// The cursor whose next row comes first; of equals the first.
fn least(cursors: &[Cursor<'_>]) -> Option<usize> {
    let heads = cursors.iter().enumerate().filter_map(|(index, cursor)| Some((cursor.merge_key()?, index)));
    heads.min().map(|(_, index)| index)
}
