//! Several ranges as one, in order.

use futures::future::try_join_all;

use super::cursor::{AskedRange, Cursor, Reading};
use super::token::Position;
use evenkeel_model::Row;
use evenkeel_model::patterns::lookup::KeyRange;
use evenkeel_storage::StoreError;

/// The rows found.
pub(super) struct FoundRows {
    /// The rows, in order.
    pub(super) rows: Vec<Row>,
    /// Where each range stands; `None` where all have ended.
    pub(super) positions: Option<Vec<Position>>,
    /// Requests sent.
    pub(super) requests: u64,
}

/// Several ranges that are read as one, row by row.
pub(super) struct Merge<'a> {
    cursors: Vec<Cursor<'a>>,
    /// The cursor that the last row came from, and where it stood before.
    last: Option<(usize, Position)>,
}

impl<'a> Merge<'a> {
    /// Reads the first page of each range, all at once: there are at most as many as a template has buckets, in each account.
    pub(super) async fn start(
        reading: &Reading<'_>,
        ranges: &[AskedRange<'a>],
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

    /// The next row and its range, in the order of the keys behind the ranges' prefixes. A page is not read before a row of it is asked for: a caller
    /// that wants ten does not request the next page.
    pub(super) async fn next(
        &mut self,
        reading: &Reading<'_>,
    ) -> Result<Option<(Row, &'a KeyRange)>, StoreError> {
        if let Some((last, _)) = self.last.take() {
            let cursor: &mut Cursor<'_> = &mut self.cursors[last];
            cursor.fill(reading).await?;
        }
        // Its next row may come before all others.
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

    /// Up to this many rows; fewer at the end, or after many pages without any.
    pub(super) async fn rows(
        &mut self,
        reading: &Reading<'_>,
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

    /// Where each range stands; `None` where all have ended.
    pub(super) fn positions(&self) -> Option<Vec<Position>> {
        let positions: Vec<Position> = self.cursors.iter().map(Cursor::position).collect();
        positions
            .iter()
            .any(|position| !position.ended)
            .then_some(positions)
    }

    /// Where each range stood before the last row: from there it comes first again.
    pub(super) fn positions_before_last(&self) -> Vec<Position> {
        let before = |(at, cursor): (usize, &Cursor<'_>)| match &self.last {
            Some((last, before)) if *last == at => before.clone(),
            _ => cursor.position(),
        };
        self.cursors.iter().enumerate().map(before).collect()
    }

    /// Requests sent.
    pub(super) fn requests(&self) -> u64 {
        self.cursors.iter().map(|cursor| cursor.requests).sum()
    }
}

/// Reads up to `top` rows of these ranges.
pub(super) async fn read(
    reading: &Reading<'_>,
    ranges: &[AskedRange<'_>],
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

/// The cursor with the least next row; of equals the first.
fn least(cursors: &[Cursor<'_>]) -> Option<usize> {
    let heads = cursors
        .iter()
        .enumerate()
        .filter_map(|(index, cursor)| Some((cursor.merge_key()?, index)));
    heads.min().map(|(_, index)| index)
}
