//! What somebody has acknowledged: it is no headline any more until something new comes. Pure.
//!
//! It is kept in the worker's memory alone: another worker, or this one after a restart, tells it again.

use std::fmt;

use jiff::Timestamp;

/// Until when news was acknowledged, kind by kind. (Of poison a count is kept, queue by queue: [`super::poison::PoisonCounts`].)
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acknowledged {
    /// Workers that fell silent until then.
    pub(super) silent: Option<Timestamp>,
    /// Workers that fell silent until then and were replaced.
    pub(super) replaced: Option<Timestamp>,
    /// Audits that ended until then.
    pub(super) drift: Option<Timestamp>,
}

/// News that can be acknowledged, as far as it was seen. Written as `kind:value`, so that what came meanwhile stays news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// So many poisoned messages that nobody had acknowledged.
    Poison(u64),
    /// Silent workers, the last of which was heard of then.
    Silent(Timestamp),
    /// Replaced workers, the last of which was heard of then.
    Replaced(Timestamp),
    /// Views with drift, the last of which was audited then.
    Drift(Timestamp),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poison(count) => write!(f, "poison:{count}"),
            Self::Silent(since) => write!(f, "silent:{since}"),
            Self::Replaced(since) => write!(f, "replaced:{since}"),
            Self::Drift(audited) => write!(f, "drift:{audited}"),
        }
    }
}

impl Subject {
    /// Reads one.
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

impl Acknowledged {
    /// Acknowledges news that is there now.
    pub(super) fn add(&mut self, subject: Subject) {
        match subject {
            Subject::Silent(since) => self.silent = Some(since),
            Subject::Replaced(since) => self.replaced = Some(since),
            Subject::Drift(audited) => self.drift = Some(audited),
            Subject::Poison(_) => {}
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
            Subject::Poison(3),
            Subject::Silent(moment),
            Subject::Replaced(moment),
            Subject::Drift(moment),
        ] {
            assert_eq!(
                Subject::read(&subject.to_string()),
                Some(subject),
                "{subject}"
            );
        }
        for text in ["", "poison", "poison:", "poison:-1", "drift:soon", "all:1"] {
            assert_eq!(Subject::read(text), None, "{text}");
        }
    }
}
