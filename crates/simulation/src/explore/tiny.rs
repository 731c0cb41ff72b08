//! The rows of the search, and a compact form of the requests on them. Each content that was ever written has a number,
//! so that a state takes a few words and a step takes a few comparisons.

use std::collections::HashMap;

use super::recorder::{StoreReply, StoreRequest};
use crate::items::{ItemPlace, held, listed};
use evenkeel_engine::Recheck;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{ETag, EdmDateTime, Entity, EntityKey, ItemAddress, Row, TableName};
use evenkeel_storage::{ErrorClass, IfMatch, Missing, TableOperation};

pub(super) const ROWS: usize = 6;

/// The state of one row. The version increases with every write and every deletion, so that no ETag occurs twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct RowState {
    /// Number of the row's content, or 0 if the row is absent.
    pub(super) content: u16,
    pub(super) version: u8,
    pub(super) era: u8,
}

pub(super) type RowStates = [RowState; ROWS];

pub(super) type Rows = u8;

#[derive(Debug, Clone)]
pub(super) enum ItemOp {
    Read(u8),
    Write(Vec<RowWrite>),
    Recheck(u16),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct RowWrite {
    row: u8,
    /// Number of the new content, or 0 to delete the row.
    content: u16,
    merges: bool,
    over: WriteCondition,
}

#[derive(Debug, Clone, Copy)]
enum WriteCondition {
    Nothing,
    Anything,
    Something,
    Version(u8),
    /// An ETag that this row never had, so the condition never holds.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum RequestAnswer {
    Absent,
    Found(RowState),
    /// The new versions of up to four rows. The version of a deleted row is 0.
    Written([u8; 4]),
    Queued,
    /// Why the write was refused, and the index of the refused operation.
    Refused(WriteRefusal, u8),
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WriteRefusal {
    Exists,
    Changed,
    Gone,
}

#[derive(Debug, Default)]
struct KnownContent {
    entity: Option<Entity>,
    /// Whether the content is a derived item.
    derived: bool,
    /// If the content is a footprint, the rows that it lists, as one bit for each row.
    lists: Rows,
}

pub(super) struct Registry {
    rows: Vec<(TableName, EntityKey)>,
    contents: Vec<KnownContent>,
    by_entity: HashMap<String, u16>,
}

impl Registry {
    pub(super) fn new() -> Self {
        Self {
            rows: Vec::new(),
            contents: vec![KnownContent::default()],
            by_entity: HashMap::new(),
        }
    }

    pub(super) fn row(&mut self, table: &TableName, key: &EntityKey) -> u8 {
        let known = self
            .rows
            .iter()
            .position(|(name, other)| name == table && other == key);
        let at = known.unwrap_or_else(|| {
            self.rows.push((table.clone(), key.clone()));
            self.rows.len() - 1
        });
        assert!(
            at < ROWS,
            "the search has more than {ROWS} rows: {:?}",
            self.rows
        );
        u8::try_from(at).unwrap_or(u8::MAX)
    }

    pub(super) fn content(&mut self, table: &TableName, entity: &Entity) -> u16 {
        let name = format!("{table} {entity:?}");
        if let Some(known) = self.by_entity.get(&name) {
            return *known;
        }
        let lists = if table.as_str() == FOOTPRINTS {
            let items = listed(entity).unwrap_or_else(|wrong| unreachable!("{wrong}"));
            let rows = items.into_keys().filter_map(|(place, _)| {
                if let ItemPlace::Row(name, key) = place {
                    Some((name, key))
                } else {
                    None
                }
            });
            rows.map(|(name, key)| self.bit(&name, &key))
                .fold(0, |all, bit| all | bit)
        } else {
            0
        };
        let number = u16::try_from(self.contents.len())
            .unwrap_or_else(|_| unreachable!("too many contents"));
        let derived = held(table.as_str(), entity).is_ok_and(|held| !held.is_empty());
        self.contents.push(KnownContent {
            entity: Some(entity.clone()),
            derived,
            lists,
        });
        self.by_entity.insert(name, number);
        number
    }

    fn bit(&mut self, table: &str, key: &EntityKey) -> Rows {
        1 << self.row(&evenkeel_account::company::table(table), key)
    }

    pub(super) fn rows_of_recheck(&mut self, recheck: &Recheck) -> Rows {
        let bits = recheck
            .items
            .iter()
            .filter_map(|ItemAddress { site, .. }| site.row())
            .map(|(table, key)| self.bit(table.as_str(), key));
        bits.collect::<Vec<_>>()
            .into_iter()
            .fold(0, |all, bit| all | bit)
    }

    pub(super) fn show(&self, row: usize, row_state: RowState) -> String {
        let Some((table, key)) = self.rows.get(row) else {
            return String::new();
        };
        let held = self
            .contents
            .get(usize::from(row_state.content))
            .and_then(|content| content.entity.as_ref());
        let held = held.map_or_else(
            || "nothing".to_owned(),
            |entity| format!("{:?}", entity.properties),
        );
        format!("{table}{key} v{}: {held}", row_state.version)
    }

    pub(super) fn tables(
        &self,
        row_states: &RowStates,
    ) -> std::collections::BTreeMap<String, Vec<Row>> {
        let mut tables = std::collections::BTreeMap::<String, Vec<Row>>::new();
        for (at, (table, _)) in self.rows.iter().enumerate() {
            if row_states[at].content > 0 {
                tables
                    .entry(table.to_string())
                    .or_default()
                    .extend(self.read(at, row_states[at], None));
            }
        }
        tables
    }

    pub(super) fn derived_and_listed(&self, row_states: &RowStates) -> (Rows, Rows) {
        row_states
            .iter()
            .enumerate()
            .fold((0, 0), |(derived, listed), (row, row_state)| {
                let content = &self.contents[usize::from(row_state.content)];
                (
                    derived | (Rows::from(content.derived) << row),
                    listed | content.lists,
                )
            })
    }

    /// Converts a request to its compact form. `recheck` returns the number of a recheck.
    pub(super) fn item_op(
        &mut self,
        request: &StoreRequest,
        recheck: impl FnOnce(&mut Self, Recheck) -> u16,
    ) -> ItemOp {
        match request {
            StoreRequest::Get(table, key, _) => ItemOp::Read(self.row(table, key)),
            StoreRequest::Apply(table, operation) => {
                ItemOp::Write(vec![self.row_write(table, operation)])
            }
            StoreRequest::Transact(table, operations) => ItemOp::Write(
                operations
                    .iter()
                    .map(|operation| self.row_write(table, operation))
                    .collect(),
            ),
            StoreRequest::Put(text) => {
                let decoded = Recheck::decode(text).unwrap_or_else(|error| unreachable!("{error}"));
                ItemOp::Recheck(recheck(self, decoded))
            }
        }
    }

    pub(super) fn row_write(&mut self, table: &TableName, operation: &TableOperation) -> RowWrite {
        let row = self.row(table, operation.key());
        let content = operation
            .entity()
            .map_or(0, |entity| self.content(table, entity));
        let over = |condition: &IfMatch| match condition {
            IfMatch::Any => WriteCondition::Something,
            IfMatch::Matches(etag) => {
                let version = etag
                    .as_str()
                    .split_once('.')
                    .filter(|(at, _)| *at == row.to_string())
                    .and_then(|(_, v)| v.parse().ok());
                version.map_or(WriteCondition::Never, WriteCondition::Version)
            }
        };
        let (merges, over) = match operation {
            TableOperation::Insert(_) => (false, WriteCondition::Nothing),
            TableOperation::InsertOrReplace(_) => (false, WriteCondition::Anything),
            TableOperation::InsertOrMerge(_) => (true, WriteCondition::Anything),
            TableOperation::Replace(_, condition) | TableOperation::Delete(_, condition) => {
                (false, over(condition))
            }
            TableOperation::Merge(_, condition) => (true, over(condition)),
        };
        RowWrite {
            row,
            content,
            merges,
            over,
        }
    }

    pub(super) fn write(
        &mut self,
        row_states: &mut RowStates,
        era: u8,
        row_writes: &[RowWrite],
    ) -> RequestAnswer {
        let before = *row_states;
        let mut versions = [0; 4];
        for (index, row_write) in row_writes.iter().enumerate() {
            let row_state = row_states[usize::from(row_write.row)];
            let present = row_state.content > 0;
            let refusal = match row_write.over {
                WriteCondition::Nothing if present => Some(WriteRefusal::Exists),
                WriteCondition::Something | WriteCondition::Version(_) | WriteCondition::Never
                    if !present =>
                {
                    Some(WriteRefusal::Gone)
                }
                WriteCondition::Version(version) if version != row_state.version => {
                    Some(WriteRefusal::Changed)
                }
                WriteCondition::Never => Some(WriteRefusal::Changed),
                WriteCondition::Nothing
                | WriteCondition::Anything
                | WriteCondition::Something
                | WriteCondition::Version(_) => None,
            };
            if let Some(refusal) = refusal {
                *row_states = before;
                return RequestAnswer::Refused(refusal, u8::try_from(index).unwrap_or(u8::MAX));
            }
            let content = if row_write.merges && present {
                self.merged(*row_write, row_state)
            } else {
                row_write.content
            };
            let version = row_state
                .version
                .checked_add(1)
                .unwrap_or_else(|| unreachable!("more than 255 writes of one row"));
            row_states[usize::from(row_write.row)] = RowState {
                content,
                version,
                era,
            };
            if content > 0 {
                versions[index] = version;
            }
        }
        RequestAnswer::Written(versions)
    }

    fn merged(&mut self, row_write: RowWrite, row_state: RowState) -> u16 {
        let table = self.rows[usize::from(row_write.row)].0.clone();
        let held = |number: u16| self.contents[usize::from(number)].entity.clone();
        match (held(row_state.content), held(row_write.content)) {
            (Some(old), Some(new)) => self.content(&table, &old.merged(&new)),
            _ => row_write.content,
        }
    }

    fn read(&self, row: usize, row_state: RowState, select: Option<&[String]>) -> Option<Row> {
        let mut entity = self
            .contents
            .get(usize::from(row_state.content))?
            .entity
            .clone()?;
        if let Some(select) = select {
            entity.properties.retain(|name, _| select.contains(name));
        }
        let etag = etag(row, row_state.version);
        Some(Row {
            entity,
            etag,
            timestamp: EdmDateTime::from_timestamp(super::moment(row_state.era)).ok(),
        })
    }

    /// Converts a compact answer to the reply that the real code gets.
    pub(super) fn reply(
        &self,
        request: &StoreRequest,
        item_op: &ItemOp,
        answer: RequestAnswer,
    ) -> StoreReply {
        match (answer, item_op, request) {
            (
                RequestAnswer::Found(row_state),
                ItemOp::Read(row),
                StoreRequest::Get(_, _, select),
            ) => StoreReply::Row(self.read(usize::from(*row), row_state, select.as_deref())),
            (RequestAnswer::Written(versions), ItemOp::Write(row_writes), _) => {
                let etags = row_writes.iter().zip(versions);
                StoreReply::Written(
                    etags
                        .map(|(row_write, version)| {
                            (version > 0).then(|| etag(usize::from(row_write.row), version))
                        })
                        .collect(),
                )
            }
            (RequestAnswer::Queued, ..) => StoreReply::Queued,
            (RequestAnswer::Refused(refusal, index), ..) => {
                let class = match refusal {
                    WriteRefusal::Exists => ErrorClass::Conflict,
                    WriteRefusal::Changed => ErrorClass::Precondition,
                    WriteRefusal::Gone => ErrorClass::NotFound(Missing::Item),
                };
                StoreReply::Failed(class, Some(usize::from(index)))
            }
            (RequestAnswer::Silence, ..) => StoreReply::Failed(ErrorClass::Ambiguous, None),
            (RequestAnswer::Absent | RequestAnswer::Found(_) | RequestAnswer::Written(_), ..) => {
                StoreReply::Row(None)
            }
        }
    }
}

fn etag(row: usize, version: u8) -> ETag {
    ETag::new(format!("{row}.{version}")).unwrap_or_else(|error| unreachable!("{error}"))
}
