//! The indexes of search services that views write to. Their owner makes them: missing fields are reported, and not
//! mended.

use std::fmt;

use serde::Serialize;

use super::Migrator;
use crate::catalog::{Form, SearchIndex};
use crate::model::{AccountName, CollectionName, ViewName};

/// An index that a view cannot write to as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexLack {
    /// The view.
    pub view: ViewName,
    /// The search service.
    pub sink: AccountName,
    /// The index.
    pub index: CollectionName,
    /// The problem.
    #[serde(flatten)]
    pub lack: Lack,
}

/// A problem of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "lack", rename_all = "snake_case")]
pub enum Lack {
    /// It does not exist.
    Index,
    /// It has no such fields.
    Fields {
        /// Their names.
        fields: Vec<String>,
    },
    /// The service did not say.
    Unknown {
        /// Why, in words.
        reason: String,
    },
}

impl Migrator {
    /// The problems of the indexes of the catalog's views. Reads only, one request for each.
    pub async fn indexes(&self) -> Vec<IndexLack> {
        let mut lacking = Vec::new();
        for view in self.catalog.views.values() {
            let Form::Documents(search) = view.form() else { continue };
            if let Some(lack) = self.lack(search).await {
                lacking.push(IndexLack { view: view.name.clone(), sink: search.sink.clone(), index: search.index.clone(), lack });
            }
        }
        lacking
    }

    async fn lack(&self, search: &SearchIndex) -> Option<Lack> {
        let sink = match self.stores.sink(&search.sink) {
            Ok(sink) => sink,
            Err(error) => return Some(Lack::Unknown { reason: error.to_string() }),
        };
        match sink.fields(&search.index).await {
            Ok(None) => Some(Lack::Index),
            Ok(Some(there)) => {
                let fields: Vec<String> = search.fields.keys().filter(|name| !there.contains(*name)).cloned().collect();
                (!fields.is_empty()).then_some(Lack::Fields { fields })
            }
            Err(error) => Some(Lack::Unknown { reason: error.to_string() }),
        }
    }
}

impl fmt::Display for IndexLack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, sink, index, lack } = self;
        match lack {
            Lack::Index => write!(f, "the index {index} of the sink {sink} does not exist, and view {view} writes to it: create it"),
            Lack::Fields { fields } => {
                write!(f, "the index {index} of the sink {sink} lacks fields of view {view}: add {}", fields.join(", "))
            }
            Lack::Unknown { reason } => write!(f, "the index {index} of the sink {sink} (view {view}) could not be looked at: {reason}"),
        }
    }
}
