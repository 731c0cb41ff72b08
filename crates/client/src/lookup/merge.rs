//! Merges several ranges into one sequence in the order of their keys.

use futures::future::try_join_all;

use super::cursor::{AccountRange, Cursor, ReadContext};
use super::token::Position;
use evenkeel_model::Row;
use evenkeel_model::patterns::lookup::KeyRange;
use evenkeel_storage::StoreError;

pub(super) struct FoundRows {
    pub(super) rows: Vec<Row>,
    /// The position in each range; `None` if all ranges have been read to their ends.
    pub(super) positions: Option<Vec<Position>>,
    /// Requests sent.
    pub(super) requests: u64,
}

pub(super) struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
    /// The index of the cursor that returned the last row, and the position of this cursor before that row.
    last: Option<(usize, Position)>,
}

impl<'a> Merge<'a> {
    /// Reads the first page of all ranges concurrently. The ranges are few: in each account, at most one for each
    /// bucket of a template.
    pub(super) async fn start(
        reading: &ReadContext<'_>,
        ranges: &[AccountRange<'a>],
        from: Vec<Position>,
    ) -> Result<Self, StoreError> {
        let mut cursors: Vec<Cursor<'a>> = ranges
            .iter()
            .copied()
            .zip(from)
            .map(|(range, position)| Cursor::new(range, position))
            .collect();
        try_join_all(cursors.iter_mut().map(|cursor| cursor.fill(reading))).await?;
        Ok(Self {
            cursors,
            last: None,
        })
    }

    /// Returns the next row and its range. Rows are ordered by their keys without the parts in which the ranges differ,
    /// such as buckets. A cursor reads its next page only when a row of that page is requested, so that a caller who
    /// wants ten rows causes no further request.
    pub(super) async fn next(
        &mut self,
        reading: &ReadContext<'_>,
    ) -> Result<Option<(Row, &'a KeyRange)>, StoreError> {
        if let Some((last, _)) = self.last.take() {
            let cursor: &mut Cursor<'_> = &mut self.cursors[last];
            cursor.fill(reading).await?;
        }
        // The next row of a starved cursor is unknown and may come before the rows of all other cursors.
        if self.cursors.iter().any(Cursor::is_starved) {
            return Ok(None);
        }
        let Some(least) = least(&self.cursors) else {
            return Ok(None);
        };
        self.last = Some((least, self.cursors[least].position()));
        let cursor = &mut self.cursors[least];
        Ok(cursor.take().map(|row| (row, cursor.range)))
    }

    /// Returns up to `most` rows. There are fewer at the end of all ranges, or if a cursor is starved.
    pub(super) async fn rows(
        &mut self,
        reading: &ReadContext<'_>,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        while rows.len() < most {
            let Some((row, _)) = self.next(reading).await? else {
                break;
            };
            rows.push(row);
        }
        Ok(rows)
    }

    /// Returns the position in each range; `None` if all ranges have been read to their ends.
    pub(super) fn positions(&self) -> Option<Vec<Position>> {
        let positions: Vec<Position> = self.cursors.iter().map(Cursor::position).collect();
        positions
            .iter()
            .any(|position| !position.ended)
            .then_some(positions)
    }

    /// Returns the position in each range before the last row, so that a continuation returns this row again first.
    pub(super) fn positions_before_last(&self) -> Vec<Position> {
        let before = |(at, cursor): (usize, &Cursor<'_>)| match &self.last {
            Some((last, before)) if *last == at => before.clone(),
            _ => cursor.position(),
        };
        self.cursors.iter().enumerate().map(before).collect()
    }

    /// Returns the number of requests sent.
    pub(super) fn requests(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.requests).sum()
    }
}

pub(super) async fn read(
    reading: &ReadContext<'_>,
    ranges: &[AccountRange<'_>],
    from: Vec<Position>,
    top: u32,
) -> Result<FoundRows, StoreError> {
    let mut merge = Merge::start(reading, ranges, from).await?;
    let rows = merge.rows(reading, top as usize).await?;
    Ok(FoundRows {
        rows,
        positions: merge.positions(),
        requests: merge.requests(),
    })
}

/// Returns the index of the cursor whose next row has the smallest key. If several cursors have it, the first of them
/// is returned.
fn least(cursors: &[Cursor<'_>]) -> Option<usize> {
    let heads = cursors
        .iter()
        .enumerate()
        .filter_map(|(index, cursor)| Some((cursor.merge_key()?, index)));
    heads.min().map(|(_, index)| index)
}
