//! Shared access signatures for applications: what can be granted, and how a request narrows it.

use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;

use crate::{AccountName, BlobName, ContainerName, Key, QueueName, TableName, ViewName, key};

/// `[sas.NAME]`: what a shared access signature of this name may allow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SasGrant {
    /// The name of the grant.
    pub name: ViewName,
    /// The account whose key signs.
    pub account: AccountName,
    /// The target.
    pub target: SasTarget,
    /// Letters of the permissions, in the order that the service requires, such as `raud`.
    pub permissions: String,
    /// Maximum validity.
    pub valid: Duration,
}

/// The target of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SasTarget {
    /// A table, or a range of its rows.
    Table(TableName, SasRows),
    /// A container, or one blob of it.
    Blob(ContainerName, Option<BlobName>),
    /// A queue.
    Queue(QueueName),
}

/// Rows that a signature allows, both ends included. Without bounds, a signature allows the whole
/// table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SasRows {
    /// The only PartitionKey.
    pub pk: Option<Key>,
    /// The first RowKey.
    pub rk_from: Option<Key>,
    /// The last RowKey.
    pub rk_to: Option<Key>,
}

/// A request for a part of a grant.
#[derive(Debug, Clone, Default)]
pub struct SasRequest {
    /// Rows of the table.
    pub rows: SasRows,
    /// One blob of the container.
    pub blob: Option<BlobName>,
    /// The requested validity, if it is shorter than that of the grant.
    pub valid: Option<Duration>,
}

/// A signature.
#[derive(Debug, Clone)]
pub struct IssuedSas {
    /// The address of the target.
    pub url: String,
    /// The query string, without the question mark.
    pub token: SecretString,
    /// When the signature expires.
    pub expires: Timestamp,
}

/// Why a grant does not allow a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SasRefusal {
    /// The request exceeds what is declared.
    #[error("{0} exceeds what [sas.{1}] allows")]
    Beyond(&'static str, ViewName),
    /// The request names a part that the target does not have.
    #[error("{0} does not apply to the target of [sas.{1}]")]
    Meaningless(&'static str, ViewName),
    /// The request names a range of rows without a partition.
    #[error("a range of rows needs a partition. Give it with --pk")]
    Partition,
    /// The range of rows contains no row.
    #[error("the range of rows ends before it begins")]
    Empty,
}

impl SasGrant {
    /// Returns the part of this grant that a request asks for.
    pub fn narrowed(&self, request: &SasRequest) -> Result<Self, SasRefusal> {
        let beyond = |part| SasRefusal::Beyond(part, self.name.clone());
        let meaningless = |part| Err(SasRefusal::Meaningless(part, self.name.clone()));
        let mut permissions = self.permissions.clone();
        let has_row_range = request.rows != SasRows::default();
        let target = match &self.target {
            SasTarget::Blob(..) | SasTarget::Queue(_) if has_row_range => {
                return meaningless("--pk");
            }
            SasTarget::Table(..) | SasTarget::Queue(_) if request.blob.is_some() => {
                return meaningless("--blob");
            }
            SasTarget::Table(table, rows) => SasTarget::Table(
                table.clone(),
                rows.narrowed(&request.rows)
                    .map_err(|refusal| refusal.of(self))?,
            ),
            SasTarget::Blob(container, blob) => {
                let blob = only(blob.as_ref(), request.blob.as_ref())
                    .map_err(|Mismatch| beyond("--blob"))?;
                if blob.is_some() {
                    // Only containers can be listed.
                    permissions.retain(|letter| letter != 'l');
                }
                SasTarget::Blob(container.clone(), blob)
            }
            SasTarget::Queue(queue) => SasTarget::Queue(queue.clone()),
        };
        let valid = request.valid.unwrap_or(self.valid);
        if valid > self.valid {
            return Err(beyond("--valid"));
        }
        if permissions.is_empty() {
            return meaningless("--blob");
        }
        Ok(Self {
            target,
            permissions,
            valid,
            ..self.clone()
        })
    }
}

enum RowsError {
    Beyond(&'static str),
    Other(SasRefusal),
}

impl RowsError {
    fn of(self, grant: &SasGrant) -> SasRefusal {
        match self {
            Self::Beyond(part) => SasRefusal::Beyond(part, grant.name.clone()),
            Self::Other(refusal) => refusal,
        }
    }
}

impl SasRows {
    fn narrowed(&self, wanted: &Self) -> Result<Self, RowsError> {
        let pk = only(self.pk.as_ref(), wanted.pk.as_ref())
            .map_err(|Mismatch| RowsError::Beyond("--pk"))?;
        let below = |from: &Key| {
            self.rk_from
                .as_ref()
                .is_some_and(|first| sorts_before(from, first))
                || self
                    .rk_to
                    .as_ref()
                    .is_some_and(|last| sorts_before(last, from))
        };
        let above = |to: &Key| {
            self.rk_to
                .as_ref()
                .is_some_and(|last| sorts_before(last, to))
                || self
                    .rk_from
                    .as_ref()
                    .is_some_and(|first| sorts_before(to, first))
        };
        if wanted.rk_from.as_ref().is_some_and(below) {
            return Err(RowsError::Beyond("--rk-from"));
        }
        if wanted.rk_to.as_ref().is_some_and(above) {
            return Err(RowsError::Beyond("--rk-to"));
        }
        let rows = Self {
            pk,
            rk_from: wanted.rk_from.clone().or_else(|| self.rk_from.clone()),
            rk_to: wanted.rk_to.clone().or_else(|| self.rk_to.clone()),
        };
        rows.check().map_err(RowsError::Other)?;
        Ok(rows)
    }

    fn check(&self) -> Result<(), SasRefusal> {
        let Self { pk, rk_from, rk_to } = self;
        match (rk_from, rk_to) {
            (None, None) => Ok(()),
            _ if pk.is_none() => Err(SasRefusal::Partition),
            (Some(from), Some(to)) if sorts_before(to, from) => Err(SasRefusal::Empty),
            _ => Ok(()),
        }
    }
}

/// Whether a table sorts one key before another. A table compares UTF-16 code units, so characters
/// beyond U+FFFF come before U+E000.
pub fn sorts_before(one: &Key, other: &Key) -> bool {
    key::service_order(one.as_str(), other.as_str()).is_lt()
}

/// The requested part differs from the declared part.
struct Mismatch;

/// Returns the declared part, or the requested part if none is declared.
fn only<T: Clone + PartialEq>(
    declared: Option<&T>,
    wanted: Option<&T>,
) -> Result<Option<T>, Mismatch> {
    match (declared, wanted) {
        (Some(declared), Some(wanted)) if declared != wanted => Err(Mismatch),
        (declared, wanted) => Ok(declared.or(wanted).cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn key(text: &str) -> Option<Key> {
        (!text.is_empty()).then(|| Key::new(text).unwrap())
    }

    fn rows((pk, from, to): (&str, &str, &str)) -> SasRows {
        SasRows {
            pk: key(pk),
            rk_from: key(from),
            rk_to: key(to),
        }
    }

    fn grant(target: SasTarget) -> SasGrant {
        SasGrant {
            name: ViewName::new("g").unwrap(),
            account: AccountName::main(),
            target,
            permissions: "r".to_owned(),
            valid: HOUR,
        }
    }

    fn narrowed(
        declared: (&str, &str, &str),
        wanted: (&str, &str, &str),
    ) -> Result<SasRows, SasRefusal> {
        let grant = grant(SasTarget::Table(
            TableName::new("Employees").unwrap(),
            rows(declared),
        ));
        match grant
            .narrowed(&SasRequest {
                rows: rows(wanted),
                ..SasRequest::default()
            })?
            .target
        {
            SasTarget::Table(_, rows) => Ok(rows),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rows_are_narrowed_and_never_widened() {
        let beyond = |part| Err(SasRefusal::Beyond(part, ViewName::new("g").unwrap()));
        for (declared, wanted, expected) in [
            (("", "", ""), ("", "", ""), Ok(("", "", ""))),
            (("", "", ""), ("Sales", "b", "d"), Ok(("Sales", "b", "d"))),
            (("Sales", "b", "d"), ("", "", ""), Ok(("Sales", "b", "d"))),
            (
                ("Sales", "b", "d"),
                ("Sales", "c", ""),
                Ok(("Sales", "c", "d")),
            ),
            (("Sales", "b", ""), ("", "", "x"), Ok(("Sales", "b", "x"))),
            (("", "b", "d"), ("Sales", "", ""), Ok(("Sales", "b", "d"))),
            (("Sales", "", ""), ("Marketing", "", ""), beyond("--pk")),
            (("Sales", "b", "d"), ("", "a", ""), beyond("--rk-from")),
            (("Sales", "b", "d"), ("", "e", ""), beyond("--rk-from")),
            (("Sales", "b", "d"), ("", "", "e"), beyond("--rk-to")),
            (("Sales", "b", "d"), ("", "", "a"), beyond("--rk-to")),
            (("Sales", "", ""), ("", "d", "b"), Err(SasRefusal::Empty)),
            (("", "b", "d"), ("", "", ""), Err(SasRefusal::Partition)),
        ] {
            assert_eq!(
                narrowed(declared, wanted),
                expected.map(rows),
                "{declared:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn requests_narrow_blobs_and_validity_but_not_missing_parts() {
        let blob = |name: &str| Some(BlobName::new(name).unwrap());
        let container = |name| grant(SasTarget::Blob(ContainerName::new("large").unwrap(), name));
        let request = |blob| SasRequest {
            blob,
            ..SasRequest::default()
        };
        assert!(matches!(
            container(None)
                .narrowed(&request(blob("a")))
                .unwrap()
                .target,
            SasTarget::Blob(_, Some(_))
        ));
        assert!(container(blob("a")).narrowed(&request(blob("a"))).is_ok());
        assert!(matches!(
            container(blob("a")).narrowed(&request(blob("b"))),
            Err(SasRefusal::Beyond("--blob", _))
        ));
        let with = |permissions: &str| SasGrant {
            permissions: permissions.to_owned(),
            ..container(None)
        };
        assert_eq!(
            with("rl")
                .narrowed(&request(blob("a")))
                .unwrap()
                .permissions,
            "r",
            "a blob is not listed"
        );
        assert!(matches!(
            with("l").narrowed(&request(blob("a"))),
            Err(SasRefusal::Meaningless("--blob", _))
        ));
        assert_eq!(with("l").narrowed(&request(None)).unwrap().permissions, "l");
        let queue = grant(SasTarget::Queue(QueueName::new("jobs").unwrap()));
        assert!(matches!(
            queue.narrowed(&request(blob("a"))),
            Err(SasRefusal::Meaningless("--blob", _))
        ));
        let by_row = SasRequest {
            rows: rows(("p", "", "")),
            ..SasRequest::default()
        };
        assert!(matches!(
            queue.narrowed(&by_row),
            Err(SasRefusal::Meaningless("--pk", _))
        ));
        let valid = |valid| SasRequest {
            valid: Some(valid),
            ..SasRequest::default()
        };
        assert_eq!(queue.narrowed(&valid(HOUR / 2)).unwrap().valid, HOUR / 2);
        assert!(matches!(
            queue.narrowed(&valid(HOUR * 2)),
            Err(SasRefusal::Beyond("--valid", _))
        ));
    }
}
