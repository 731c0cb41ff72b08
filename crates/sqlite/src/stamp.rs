//! Stamps: the versions that writes make.
//!
//! A stamp is a time, as a number of 100 ns ticks: the clock's present time or one tick more than
//! the last stamp of the file, whichever is later. So it is unique in the file and increases with
//! every write even if the clock goes back. It serves as Timestamp, ETag, message number and pop
//! receipt. The last stamp is stored in the file in the same transaction as the write, so it is
//! correct across processes and restarts.

use jiff::Timestamp;

use evenkeel_model::{ETag, EdmDateTime};

use super::fault::Fault;

/// The stamps of one transaction.
#[derive(Debug)]
pub(super) struct Stamps {
    last: i64,
    changed: bool,
}

impl Stamps {
    /// Continues after the last stamp of the file.
    pub(super) const fn after(last: i64) -> Self {
        Self {
            last,
            changed: false,
        }
    }

    pub(super) fn next(&mut self, now: Timestamp) -> i64 {
        self.last = of(now).max(self.last + 1).max(FIRST);
        self.changed = true;
        self.last
    }

    /// The last stamp, if any was given.
    pub(super) const fn to_keep(&self) -> Option<i64> {
        if self.changed { Some(self.last) } else { None }
    }
}

/// 1601-01-01, the earliest `Edm.DateTime`.
const FIRST: i64 = 504_911_232_000_000_000;

/// The stamp of the clock's time alone, or 0 if this time is outside 1601 to 9999. The next stamp
/// is then one more than the last, as with a clock that stands still.
pub(super) fn of(now: Timestamp) -> i64 {
    EdmDateTime::from_timestamp(now).map_or(0, EdmDateTime::ticks)
}

pub(super) fn timestamp(stamp: i64) -> Result<EdmDateTime, Fault> {
    EdmDateTime::from_ticks(stamp).map_err(|_| Fault::corrupt(format_args!("the version {stamp}")))
}

/// The ETag of an entity at this stamp, in the form that the service uses.
pub(super) fn entity_etag(stamp: i64) -> Result<ETag, Fault> {
    let text = timestamp(stamp)?.to_string().replace(':', "%3A");
    ETag::new(format!("W/\"datetime'{text}'\""))
        .map_err(|_| Fault::corrupt(format_args!("the version {stamp}")))
}

/// The stamp of an entity's ETag. `None` if no store gives such an ETag, so that it matches
/// nothing.
pub(super) fn entity_stamp(etag: &ETag) -> Option<i64> {
    let text = etag
        .as_str()
        .strip_prefix("W/\"datetime'")?
        .strip_suffix("'\"")?
        .replace("%3A", ":");
    let stamp = EdmDateTime::parse(&text).ok()?.ticks();
    // A version has exactly one ETag. ETags are opaque, so another spelling of the same time is a
    // different ETag.
    (entity_etag(stamp).ok()? == *etag).then_some(stamp)
}

/// The ETag of a blob at this stamp, in the form that the service uses.
pub(super) fn blob_etag(stamp: i64) -> Result<ETag, Fault> {
    ETag::new(format!("\"0x{stamp:X}\""))
        .map_err(|_| Fault::corrupt(format_args!("the version {stamp}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn stamps_follow_the_clock_and_rise_when_it_does_not() {
        let mut stamps = Stamps::after(0);
        assert_eq!(stamps.to_keep(), None);
        let noon = stamps.next(at("2026-11-20T12:00:00Z"));
        assert_eq!(timestamp(noon).unwrap().to_string(), "2026-11-20T12:00:00Z");
        assert_eq!(stamps.next(at("2026-11-20T12:00:00Z")), noon + 1);
        assert_eq!(stamps.next(at("2026-11-20T11:00:00Z")), noon + 2);
        assert_eq!(stamps.to_keep(), Some(noon + 2));
        let later = Stamps::after(noon + 2).next(at("2026-11-20T12:00:01Z"));
        assert_eq!(
            timestamp(later).unwrap().to_string(),
            "2026-11-20T12:00:01Z"
        );
    }

    #[test]
    fn an_etag_stands_for_one_stamp_and_only_in_its_own_spelling() {
        let stamp = Stamps::after(0).next(at("2026-11-20T12:00:00.5Z"));
        let etag = entity_etag(stamp).unwrap();
        assert_eq!(etag.as_str(), "W/\"datetime'2026-11-20T12%3A00%3A00.5Z'\"");
        assert_eq!(entity_stamp(&etag), Some(stamp));
        for other in [
            "W/\"datetime'2026-11-20T12%3A00%3A00.50Z'\"",
            "W/\"datetime'2026-11-20T12:00:00.5Z'\"",
            "\"0x1\"",
            "x",
        ] {
            assert_eq!(entity_stamp(&ETag::new(other).unwrap()), None, "{other}");
        }
    }
}
