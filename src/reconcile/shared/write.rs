//! One read-modify-write of a document.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::model::{AccountName, EntityKey, Row, Site, TableName};
use crate::ports::{Condition, ErrorClass, TableOperation, TableStore};
use crate::reconcile::execute::Failure;
use crate::reconcile::failure::{permanent, storage};
use crate::shared::{self, Becomes, Change, Ended};

/// A document and where it lies.
pub(in crate::reconcile) struct Document<'e> {
    pub(in crate::reconcile) account: AccountName,
    pub(in crate::reconcile) site: Site,
    pub(in crate::reconcile) table: TableName,
    pub(in crate::reconcile) key: EntityKey,
    pub(in crate::reconcile) tables: &'e dyn TableStore,
    pub(in crate::reconcile) catalog: &'e Catalog,
}

/// How a change of a part ended.
#[derive(Debug, Clone)]
pub(in crate::reconcile) enum Answer {
    /// As it was meant to.
    Done,
    /// The part is not what was expected: look again.
    Lost,
    /// Nobody knows: look again, it may still arrive.
    Unanswered,
    /// It cannot be, for everybody who wanted something of this document.
    Failed(Shared),
}

/// A failure of everybody who wanted something of one document.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct Shared(Arc<Failure>);

impl Shared {
    /// The failure for one of them.
    pub(in crate::reconcile) fn failure(&self) -> Failure {
        Failure::new(self.0.class, self.0.step.clone(), Cause(Arc::clone(&self.0)))
    }
}

/// The cause below a shared failure.
#[derive(Debug)]
struct Cause(Arc<Failure>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.cause, f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.source()
    }
}

/// What makes changes of a document.
pub(in crate::reconcile) struct Prepared {
    /// The conditional operation; nothing where all is so already.
    pub(in crate::reconcile) operation: Option<TableOperation>,
    /// How each change ends with it.
    pub(in crate::reconcile) ended: Vec<Ended>,
}

/// How one round ended.
pub(super) enum Round {
    /// With an answer to each change.
    Over(Vec<Answer>),
    /// Somebody else was faster.
    Again,
}

impl Document<'_> {
    pub(in crate::reconcile) fn place(&self) -> (AccountName, Site) {
        (self.account.clone(), self.site.clone())
    }

    /// Reads the document, and decides what makes the changes.
    pub(in crate::reconcile) async fn prepare(&self, changes: &[Change]) -> Result<Prepared, Failure> {
        let row = self.tables.get(&self.table, &self.key, None).await;
        let row = row.map_err(|error| storage(format!("reading {}", self.site), error))?;
        let (becomes, ended) = shared::change(self.catalog, &self.site, row.as_ref().map(|row| &row.entity), changes)
            .map_err(|nonsense| permanent(format!("changing {}", self.site), nonsense))?;
        if let Becomes::Entity(entity) = &becomes {
            entity.check().map_err(|error| permanent(format!("writing {}", self.site), error))?;
        }
        Ok(Prepared { operation: operation(becomes, row.as_ref(), &self.key), ended })
    }

    /// Reads the document, applies the changes, and writes it at the ETag read.
    pub(super) async fn round(&self, changes: &[Change]) -> Round {
        let all = |failure: Failure| Round::Over(vec![Answer::Failed(Shared(Arc::new(failure))); changes.len()]);
        let Prepared { operation, ended } = match self.prepare(changes).await {
            Ok(prepared) => prepared,
            Err(failure) => return all(failure),
        };
        let Some(operation) = operation else { return Round::Over(answers(&ended, &Answer::Done)) };
        match self.tables.apply(&self.table, &operation).await {
            Ok(_) => Round::Over(answers(&ended, &Answer::Done)),
            Err(error) if error.is_lost_race() => Round::Again,
            Err(error) if error.class == ErrorClass::Ambiguous => Round::Over(answers(&ended, &Answer::Unanswered)),
            Err(error) => all(storage(format!("writing {}", self.site), error)),
        }
    }
}

fn answers(ended: &[Ended], of_written: &Answer) -> Vec<Answer> {
    let answer = |ended: &Ended| match ended {
        Ended::Done => of_written.clone(),
        Ended::Lost => Answer::Lost,
    };
    ended.iter().map(answer).collect()
}

/// What makes a document so; nothing where it is so already. A merge sends what has changed only, where nothing is taken
/// away.
pub(in crate::reconcile) fn operation(becomes: Becomes, row: Option<&Row>, key: &EntityKey) -> Option<TableOperation> {
    let at = |row: &Row| Condition::Matches(row.etag.clone());
    match (becomes, row) {
        (Becomes::Same, _) | (Becomes::Gone, None) => None,
        (Becomes::Entity(entity), None) => Some(TableOperation::Insert(entity)),
        (Becomes::Entity(mut entity), Some(row)) => {
            let before = &row.entity.properties;
            if before.keys().any(|name| !entity.properties.contains_key(name)) {
                return Some(TableOperation::Replace(entity, at(row)));
            }
            entity.properties.retain(|name, value| before.get(name) != Some(value));
            Some(TableOperation::Merge(entity, at(row)))
        }
        (Becomes::Gone, Some(row)) => Some(TableOperation::Delete(key.clone(), at(row))),
    }
}
