//! What a footprint records for readers: the version of the primary with which everything derived from it is in step.
//!
//! | `Settled` | meaning |
//! |---|---|
//! | absent | no pass has closed, a pass is running, or the last pass left something out of step |
//! | `at ETAG` | everything derived from the primary is in step with this version |
//! | `waiting at ETAG` | like `at ETAG`, except for properties of entities that do not exist |
//! | `absent` | the primary and everything derived from it are gone |
//! | `propagating …` | the rest of the value is true, except for the entities of a range for which a `propagate` job is queued |

use sha2::{Digest as _, Sha256};

use super::job::Primary;
use super::{ETag, Entity, EntityKey, Key, TableName};

/// Prefix of the names of footprint tables.
pub const FOOTPRINTS: &str = "EvenkeelFootprints";
/// The property with the state.
pub const SETTLED: &str = "Settled";
/// Prefix of the state while a `propagate` job is queued.
const PROPAGATING: &str = "propagating ";
/// The property with the fingerprint of the views at the last closed pass.
pub const FINGERPRINT: &str = "Fingerprint";

/// The state of the primary at the last closed pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Settled {
    /// No pass has closed, a pass is running or was cut off, or the last pass left something out of step: another primary holds a key, a
    /// view cannot derive its items, a follower could not be synced, or items were left to the next round.
    #[default]
    Never,
    /// The primary was absent.
    Absent,
    /// The primary was at this ETag, and its table's views had this fingerprint.
    At {
        /// The primary's ETag.
        etag: ETag,
        /// The fingerprint of the table's views, from `Catalog::fingerprint`.
        fingerprint: String,
    },
    /// Like `At`, except for properties of entities that do not exist.
    Waiting {
        /// The primary's ETag.
        etag: ETag,
        /// The fingerprint of the table's views, from `Catalog::fingerprint`.
        fingerprint: String,
    },
}

impl Settled {
    /// Reads the state from a footprint, and whether a `propagate` job is queued. If the text is invalid, the error is this text.
    pub fn read(footprint: &Entity) -> Result<(Self, bool), String> {
        let Some(text) = footprint.text(SETTLED) else {
            return Ok((Self::Never, false));
        };
        let (propagating, state) = text
            .strip_prefix(PROPAGATING)
            .map_or((false, text), |state| (true, state));
        Ok((
            Self::parse(state, footprint).ok_or_else(|| text.to_owned())?,
            propagating,
        ))
    }

    fn parse(text: &str, footprint: &Entity) -> Option<Self> {
        if text == "absent" {
            return Some(Self::Absent);
        }
        let (waiting, at) = text
            .strip_prefix("waiting ")
            .map_or((false, text), |at| (true, at));
        let etag = at
            .strip_prefix("at ")
            .and_then(|etag| ETag::new(etag).ok())?;
        let fingerprint = footprint.text(FINGERPRINT).unwrap_or_default().to_owned();
        Some(if waiting {
            Self::Waiting { etag, fingerprint }
        } else {
            Self::At { etag, fingerprint }
        })
    }

    /// Returns the text in footprints and for readers, or `None` if no pass has closed.
    pub fn text(&self, propagating: bool) -> Option<String> {
        let state = match self {
            Self::Never => return None,
            Self::Absent => "absent".to_owned(),
            Self::At { etag, .. } => format!("at {etag}"),
            Self::Waiting { etag, .. } => format!("waiting at {etag}"),
        };
        Some(if propagating {
            format!("{PROPAGATING}{state}")
        } else {
            state
        })
    }

    /// Writes the state to a footprint.
    #[must_use]
    pub fn write(&self, footprint: Entity, propagating: bool) -> Entity {
        let Some(text) = self.text(propagating) else {
            return footprint;
        };
        let footprint = footprint.with(SETTLED, text);
        match self {
            Self::Never | Self::Absent => footprint,
            Self::At { fingerprint, .. } | Self::Waiting { fingerprint, .. } => {
                footprint.with(FINGERPRINT, fingerprint.as_str())
            }
        }
    }

    /// The version of the primary that the state names.
    pub const fn version(&self) -> Option<&ETag> {
        match self {
            Self::At { etag, .. } | Self::Waiting { etag, .. } => Some(etag),
            Self::Never | Self::Absent => None,
        }
    }

    /// Whether every item that can exist was in step with this version of the primary, under views with this fingerprint.
    pub fn is_at(&self, version: &ETag, views: &str) -> bool {
        match self {
            Self::At { etag, fingerprint } | Self::Waiting { etag, fingerprint } => {
                etag == version && fingerprint == views
            }
            Self::Never | Self::Absent => false,
        }
    }
}

/// The table of footprints. Dated tables have footprint tables of their own.
pub fn footprints() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(FOOTPRINTS).expect("a valid table name")
}

/// The key of a primary's footprint. A partition key that would be too long is hashed.
pub fn footprint_key(primary: &Primary) -> EntityKey {
    let plain = format!("{}~{}", primary.table, primary.key.pk);
    let pk = Key::new(plain).unwrap_or_else(|_| {
        let hash = hex::encode(Sha256::digest(primary.key.pk.as_str()));
        #[expect(
            clippy::expect_used,
            reason = "63 + 1 + 64 letters and digits fit into a key"
        )]
        Key::new(format!("{}~{hash}", primary.table)).expect("a short key")
    });
    EntityKey {
        pk,
        rk: primary.key.rk.clone(),
    }
}
