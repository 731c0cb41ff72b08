//! Simulated files.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;

use super::world::{Inner, SimWorld};
use crate::adapters::files::version;
use crate::model::ETag;
use crate::ports::{BlobCondition, ErrorClass, File, FilePlace, FileStore, StoreError, What};

/// All files of all folders.
#[derive(Default)]
pub(super) struct Files(BTreeMap<FilePlace, File>);

const READ: &str = "Read File";
const WRITE: &str = "Write File";
const DELETE: &str = "Delete File";

fn what(place: &FilePlace) -> What {
    What::File(place.dir.clone(), place.name.clone())
}

fn refused(inner: &Inner, name: &'static str, place: &FilePlace, class: ErrorClass, message: &str) -> StoreError {
    inner.error(class, name, what(place), message)
}

#[async_trait]
impl FileStore for SimWorld {
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError> {
        let wanted = place.clone();
        self.send(READ, what(place), false, move |state, _| Ok(state.files.0.get(&wanted).cloned())).await
    }

    async fn write(&self, place: &FilePlace, content: Bytes, condition: &BlobCondition) -> Result<ETag, StoreError> {
        let (target, condition) = (place.clone(), condition.clone());
        let written = self.send(WRITE, what(place), true, move |state, inner| {
            let there = state.files.0.get(&target).map(|file| &file.etag);
            match (&condition, there) {
                (BlobCondition::Absent, Some(_)) => {
                    return Err(refused(inner, WRITE, &target, ErrorClass::Conflict, "the file exists already"));
                }
                (BlobCondition::Matches(etag), there) if there != Some(etag) => {
                    return Err(refused(inner, WRITE, &target, ErrorClass::Precondition, "the file is at another version"));
                }
                (BlobCondition::None | BlobCondition::Absent | BlobCondition::Matches(_), _) => {}
            }
            let etag = version(&content);
            state.files.0.insert(target, File { content, etag: etag.clone() });
            Ok(etag)
        });
        written.await
    }

    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError> {
        let (target, wanted) = (place.clone(), if_match.clone());
        let deleted = self.send(DELETE, what(place), true, move |state, inner| match state.files.0.get(&target) {
            None => Ok(false),
            Some(file) if file.etag != wanted => {
                Err(refused(inner, DELETE, &target, ErrorClass::Precondition, "the file is at another version"))
            }
            Some(_) => Ok(state.files.0.remove(&target).is_some()),
        });
        deleted.await
    }
}
