//! The part of a footprint that readers ask: up to which version of a primary its items are in step.
//!
//! | `Settled` | |
//! |---|---|
//! | absent | no pass has closed, or the last one could not reach everything |
//! | `at ETAG` | everything derived from the primary is in step with this version |
//! | `waiting at ETAG` | the same, but for properties of entities that do not exist |
//! | `absent` | the primary was gone, and everything derived from it is |
//! | `carrying …` | as the rest says, but for the entities of a range, to which a `carry` is still on its way |

use sha2::{Digest as _, Sha256};

use super::job::Primary;
use super::{ETag, Entity, EntityKey, Key, TableName};

/// The start of the names of tables of footprints.
pub const FOOTPRINTS: &str = "EvenkeelFootprints";
/// The property that says it.
pub const SETTLED: &str = "Settled";
/// The start of what it says while a range is still to be told.
const CARRYING: &str = "carrying ";
/// The property that says under which views.
pub const FINGERPRINT: &str = "Fingerprint";

/// The state of the primary at the last closed pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Settled {
    /// No pass has closed, or the last one could not reach everything.
    #[default]
    Never,
    /// The primary was absent.
    Absent,
    /// The primary was at this ETag, and its table's views had this fingerprint.
    At {
        /// The primary's ETag.
        etag: ETag,
        /// `Catalog::fingerprint`.
        fingerprint: String,
    },
    /// As `At`, but for properties of entities that do not exist.
    Waiting {
        /// The primary's ETag.
        etag: ETag,
        /// `Catalog::fingerprint`.
        fingerprint: String,
    },
}

impl Settled {
    /// Reads it from a footprint, and whether a range is still to be told; the text that is none of these where there is one.
    pub fn read(footprint: &Entity) -> Result<(Self, bool), String> {
        let Some(text) = footprint.text(SETTLED) else {
            return Ok((Self::Never, false));
        };
        let (carrying, said) = text
            .strip_prefix(CARRYING)
            .map_or((false, text), |said| (true, said));
        Ok((
            Self::said(said, footprint).ok_or_else(|| text.to_owned())?,
            carrying,
        ))
    }

    fn said(text: &str, footprint: &Entity) -> Option<Self> {
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

    /// As a footprint and its readers have it; `None` where no pass has closed.
    pub fn text(&self, carrying: bool) -> Option<String> {
        let said = match self {
            Self::Never => return None,
            Self::Absent => "absent".to_owned(),
            Self::At { etag, .. } => format!("at {etag}"),
            Self::Waiting { etag, .. } => format!("waiting at {etag}"),
        };
        Some(if carrying {
            format!("{CARRYING}{said}")
        } else {
            said
        })
    }

    /// Writes it to a footprint.
    #[must_use]
    pub fn write(&self, footprint: Entity, carrying: bool) -> Entity {
        let Some(text) = self.text(carrying) else {
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

    /// The version of the primary that it names.
    pub const fn version(&self) -> Option<&ETag> {
        match self {
            Self::At { etag, .. } | Self::Waiting { etag, .. } => Some(etag),
            Self::Never | Self::Absent => None,
        }
    }

    /// Whether every item that can be was in step with this version of the primary, under views of this fingerprint.
    pub fn is_at(&self, version: &ETag, views: &str) -> bool {
        match self {
            Self::At { etag, fingerprint } | Self::Waiting { etag, fingerprint } => {
                etag == version && fingerprint == views
            }
            Self::Never | Self::Absent => false,
        }
    }
}

/// The table of footprints, but for those of tables by date.
pub fn footprints() -> TableName {
    #[expect(clippy::expect_used, reason = "a constant that a test checks")]
    TableName::new(FOOTPRINTS).expect("a valid table name")
}

/// Where the footprint of a primary lies in the table of footprints. A partition key that would be too long is hashed.
pub fn footprint_key(primary: &Primary) -> EntityKey {
    let plain = format!("{}~{}", primary.table, primary.key.pk);
    let pk = Key::new(plain).unwrap_or_else(|_| {
        let hash = hex::encode(Sha256::digest(primary.key.pk.as_str()));
        #[expect(
            clippy::expect_used,
            reason = "63 + 1 + 64 letters and digits are a key"
        )]
        Key::new(format!("{}~{hash}", primary.table)).expect("a short key")
    });
    EntityKey {
        pk,
        rk: primary.key.rk.clone(),
    }
}
