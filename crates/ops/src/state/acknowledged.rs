//! Acknowledged news. The headline does not show it until something new happens. Pure.
//!
//! Acknowledgements are kept only in memory, so the news is shown again by other workers, and by this worker after a
//! restart.

use std::fmt;

use jiff::Timestamp;

/// For each kind of [`News`], the latest time that has been acknowledged. (For poison messages,
/// [`super::poison::PoisonCounts`] keeps a number per queue instead.)
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acknowledgements {
    pub(super) silent: Option<Timestamp>,
    pub(super) replaced: Option<Timestamp>,
    pub(super) drift: Option<Timestamp>,
}

/// A piece of news that can be acknowledged, written as `kind:value`. The value identifies the state that the user saw,
/// so that later events are shown as further news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// Number of poisoned messages that have not been acknowledged.
    Poison(u64),
    /// The latest time at which any of the silent workers was heard of.
    Silent(Timestamp),
    /// The latest time at which any of the replaced workers was heard of.
    Replaced(Timestamp),
    /// The latest time at which an audit that found drift ended.
    Drift(Timestamp),
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poison(count) => write!(f, "poison:{count}"),
            Self::Silent(since) => write!(f, "silent:{since}"),
            Self::Replaced(since) => write!(f, "replaced:{since}"),
            Self::Drift(audited) => write!(f, "drift:{audited}"),
        }
    }
}

impl News {
    pub(super) fn read(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once(':')?;
        let moment = || value.parse().ok();
        match kind {
            "poison" => value.parse().ok().map(Self::Poison),
            "silent" => moment().map(Self::Silent),
            "replaced" => moment().map(Self::Replaced),
            "drift" => moment().map(Self::Drift),
            _ => None,
        }
    }
}

impl Acknowledgements {
    pub(super) fn add(&mut self, subject: News) {
        match subject {
            News::Silent(since) => self.silent = Some(since),
            News::Replaced(since) => self.replaced = Some(since),
            News::Drift(audited) => self.drift = Some(audited),
            News::Poison(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let moment = Timestamp::from_second(1_700_000_000).unwrap();
        for subject in [
            News::Poison(3),
            News::Silent(moment),
            News::Replaced(moment),
            News::Drift(moment),
        ] {
            assert_eq!(News::read(&subject.to_string()), Some(subject), "{subject}");
        }
        for text in ["", "poison", "poison:", "poison:-1", "drift:soon", "all:1"] {
            assert_eq!(News::read(text), None, "{text}");
        }
    }
}
