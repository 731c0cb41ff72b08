//! A `delete_where` or `archive_where` job: its entities, and its progress.

use std::fmt;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::condition::TimedCondition;
use super::cursor::cursor;
use super::{Comparison, Filter, Key, TableName, ViewName};

/// Default number of entities per second: a quarter of the 2,000 of one partition.
pub const PER_SECOND: u32 = 500;
/// Allowed numbers of entities per second. The maximum is the rate of five partitions.
pub const PACES: RangeInclusive<u32> = 1..=10_000;

/// A job for the entities of a table that satisfy a condition. Each entity is handled like a job of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// The action on each entity.
    pub action: SweepAction,
    /// The range of the entities' keys.
    pub range: SweepRange,
    /// The condition that each entity must satisfy when it is read for the action; `None` for all entities in the range.
    pub when: Option<TimedCondition>,
    /// Maximum number of entities per second.
    pub per_second: u32,
    /// Progress of the job.
    pub cursor: SweepCursor,
}

/// The action on each entity of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepAction {
    /// Deletes the entity from this table.
    Delete(TableName),
    /// Moves the entity to this archive.
    Archive(ViewName),
}

/// A range of row keys in one partition, or a range of partitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepRange {
    /// The partition, for a range of row keys.
    pub pk: Option<Key>,
    /// The first row key, or without `pk` the first partition key.
    pub from: Option<Key>,
    /// The end of the range, exclusive.
    pub before: Option<Key>,
}

/// A range of keys in messages.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeFields {
    /// The PartitionKey. With it, `from` and `before` are RowKeys; without it, they are PartitionKeys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pk: Option<String>,
    /// The first key; absent to start with the first key of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The end of the range, exclusive; absent for an open end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

cursor! {
    /// Progress of a `delete_where` or `archive_where`. Clients send none; a worker writes it into the message.
    pub struct SweepCursor {
        /// The part in progress.
        pub part: SweepPart,
        /// Entities checked so far.
        pub seen: u64,
        /// Entities deleted or archived so far.
        pub done: u64,
        /// Entities skipped because they changed or were deleted before the action.
        pub left: u64,
        /// Entities that could not be deleted or archived.
        pub failed: u64,
        /// The first failure.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failure: Option<String>,
        /// Dequeue count of the delivery that wrote this cursor. For the remaining entities, the next delivery counts as the first.
        pub delivery: u32,
        /// Whether entities may be unfinished, for example because a delivery was cut off. They are searched for at the end of the sweep.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub disturbed: bool,
    }
}

/// Parts of a sweep, in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SweepPart {
    /// The rows of the table.
    #[default]
    Rows,
    /// The footprints of primaries that are gone. Visited only if entities may be unfinished.
    Footprints,
    /// The unsettled footprints of archived entities. Visited only if entities may be unfinished.
    Archived,
}

impl Sweep {
    /// Creates a job without progress.
    ///
    /// # Errors
    ///
    /// A field is invalid, or the sweep covers a whole table without `all`.
    pub fn new(
        action: SweepAction,
        range: Option<RangeFields>,
        when: Option<TimedCondition>,
        all: bool,
        per_second: u32,
    ) -> Result<Self, String> {
        let range = range
            .map(SweepRange::try_from)
            .transpose()?
            .unwrap_or_default();
        let whole = range == SweepRange::default() && when.is_none();
        if whole != all {
            return Err(if all {
                "\"all\" cannot be combined with \"range\" or \"when\"".to_owned()
            } else {
                "\"range\" and \"when\" are missing; set \"all\": true to include every entity of the table".to_owned()
            });
        }
        if !PACES.contains(&per_second) {
            return Err(format!(
                "\"per_second\" is {per_second}; {} to {} are allowed",
                PACES.start(),
                PACES.end()
            ));
        }
        Ok(Self {
            action,
            range,
            when,
            per_second,
            cursor: SweepCursor::default(),
        })
    }

    /// The message of the job, without progress.
    pub fn message(&self) -> Value {
        let mut message = match &self.action {
            SweepAction::Delete(table) => json!({"op": self.action.op(), "table": table}),
            SweepAction::Archive(archive) => json!({"op": self.action.op(), "archive": archive}),
        };
        let Some(fields) = message.as_object_mut() else {
            return message;
        };
        let SweepRange { pk, from, before } = &self.range;
        let ends = [("pk", pk), ("from", from), ("before", before)];
        let range: Map<String, Value> = ends
            .into_iter()
            .filter_map(|(name, key)| Some((name.to_owned(), json!(key.as_ref()?))))
            .collect();
        let when = self
            .when
            .as_ref()
            .map(|when| ("when".to_owned(), json!(when.to_string())));
        if range.is_empty() && when.is_none() {
            fields.insert("all".to_owned(), json!(true));
        }
        fields.extend((!range.is_empty()).then_some(("range".to_owned(), Value::Object(range))));
        fields.extend(when);
        if self.per_second != PER_SECOND {
            fields.insert("per_second".to_owned(), json!(self.per_second));
        }
        message
    }
}

impl SweepAction {
    /// The operation of the job.
    pub const fn op(&self) -> &'static str {
        match self {
            Self::Delete(_) => "delete_where",
            Self::Archive(_) => "archive_where",
        }
    }
}

impl fmt::Display for SweepAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete(table) => write!(f, "the table {table}"),
            Self::Archive(archive) => write!(f, "the archive {archive}"),
        }
    }
}

impl TryFrom<RangeFields> for SweepRange {
    type Error = String;

    fn try_from(fields: RangeFields) -> Result<Self, String> {
        let key = |text: Option<String>| {
            text.map(Key::new)
                .transpose()
                .map_err(|error| format!("\"range\": {error}"))
        };
        Ok(Self {
            pk: key(fields.pk)?,
            from: key(fields.from)?,
            before: key(fields.before)?,
        })
    }
}

impl SweepRange {
    /// Returns the filter that queries the entities of the sweep, or `None` for the whole table.
    pub fn filter(&self) -> Option<Filter> {
        let ends = if self.pk.is_some() {
            "RowKey"
        } else {
            "PartitionKey"
        };
        let end = |key: &Option<Key>, op| {
            key.as_ref()
                .map(|key| Filter::compare(ends, op, key.as_str()))
        };
        let partition = self.pk.as_ref().map(Filter::partition);
        let parts = [
            partition,
            end(&self.from, Comparison::GreaterOrEqual),
            end(&self.before, Comparison::Less),
        ];
        parts.into_iter().flatten().reduce(Filter::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Job, decode};

    fn job(json: &Value) -> Result<Sweep, String> {
        match decode(&json.to_string())
            .map_err(|error| error.to_string())?
            .job
        {
            Job::DeleteWhere(sweep) | Job::ArchiveWhere(sweep) => Ok(*sweep),
            _ => panic!("{json} is no sweep"),
        }
    }

    #[test]
    fn a_message_contains_the_whole_sweep() {
        for message in [
            json!({"op": "delete_where", "table": "Sessions", "when": "Ended < now - 90d"}),
            json!({"op": "delete_where", "table": "Sessions", "range": {"pk": "web", "from": "a", "before": "b"}, "per_second": 7}),
            json!({"op": "delete_where", "table": "Sessions", "all": true}),
            json!({"op": "archive_where", "archive": "past", "range": {"before": "2026"}, "when": "not exists(Kept)"}),
        ] {
            assert_eq!(job(&message).unwrap().message(), message);
        }
    }

    #[test]
    fn a_range_is_of_rows_in_a_partition_or_of_partitions() {
        let filter = |range: Value| {
            job(&json!({"op": "delete_where", "table": "Sessions", "range": range}))
                .unwrap()
                .range
                .filter()
        };
        let text = |range| filter(range).map(|filter| filter.to_string());
        assert_eq!(
            text(json!({"pk": "web"})).as_deref(),
            Some("PartitionKey eq 'web'")
        );
        assert_eq!(
            text(json!({"pk": "web", "before": "b"})).as_deref(),
            Some("(PartitionKey eq 'web' and RowKey lt 'b')")
        );
        assert_eq!(
            text(json!({"from": "a", "before": "b"})).as_deref(),
            Some("(PartitionKey ge 'a' and PartitionKey lt 'b')")
        );
    }

    #[test]
    fn a_whole_table_requires_the_field_all() {
        for (fields, word) in [
            (json!({}), "\"all\": true"),
            (json!({"range": {}}), "\"all\": true"),
            (json!({"all": true, "when": "A == 1"}), "cannot be combined"),
            (json!({"when": "A = 1"}), "\"==\""),
            (json!({"range": {"pk": "a/b"}}), "'/'"),
            (json!({"range": {"rk": "a"}}), "rk"),
            (json!({"all": true, "per_second": 0}), "1 to 10000"),
        ] {
            let mut message = json!({"op": "delete_where", "table": "Sessions"});
            message
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            let error = job(&message).unwrap_err();
            assert!(error.contains(word), "{error} does not name {word}");
        }
    }
}
