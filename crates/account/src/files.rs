//! Simulated files.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt as _;

use super::witness::ObservedChange;
use super::world::{AccountState, Inner, SimWorld};
use evenkeel_model::ETag;
use evenkeel_storage::files::version;
use evenkeel_storage::{
    BlobCondition, ErrorClass, File, FileInfo, FilePlace, FileStore, Pieces, Resource, StoreError,
};

/// The files of all folders, each with its mark.
#[derive(Default)]
pub(super) struct Files {
    kept: BTreeMap<FilePlace, (File, u64)>,
    marks: u64,
}

impl Files {
    fn put(&mut self, place: FilePlace, content: Bytes) -> File {
        self.marks += 1;
        let file = File {
            etag: version(&content),
            content,
        };
        self.kept.insert(place, (file.clone(), self.marks));
        file
    }

    /// The file if it has this mark.
    fn at(&self, place: &FilePlace, wanted: &ETag) -> Option<&File> {
        self.kept
            .get(place)
            .filter(|(_, mark)| ETag::token(*mark) == *wanted)
            .map(|(file, _)| file)
    }
}

const READ: &str = "Read File";
const WRITE: &str = "Write File";
const DELETE: &str = "Delete File";
const FIND: &str = "Find File";
const RENEW: &str = "Renew File";

fn what(place: &FilePlace) -> Resource {
    Resource::File(place.dir.clone(), place.name.clone())
}

fn refused(
    inner: &Inner,
    name: &'static str,
    place: &FilePlace,
    class: ErrorClass,
    message: &str,
) -> StoreError {
    inner.error(class, name, what(place), message)
}

impl AccountState {
    fn put_file(&mut self, place: FilePlace, content: Bytes) -> File {
        self.record_change(|| ObservedChange::File {
            place: place.clone(),
            content: Some(content.clone()),
        });
        self.files.put(place, content)
    }

    /// Returns whether the file existed.
    fn remove_file(&mut self, place: &FilePlace) -> bool {
        let removed = self.files.kept.remove(place).is_some();
        if removed {
            self.record_change(|| ObservedChange::File {
                place: place.clone(),
                content: None,
            });
        }
        removed
    }
}

impl SimWorld {
    /// The places of all files, for assertions. It is not an operation of the store.
    #[must_use]
    pub fn places(&self) -> Vec<FilePlace> {
        self.inner.lock().files.kept.keys().cloned().collect()
    }
}

#[async_trait]
impl FileStore for SimWorld {
    async fn read(&self, place: &FilePlace) -> Result<Option<File>, StoreError> {
        let wanted = place.clone();
        self.send(READ, what(place), false, move |state, _| {
            Ok(state.files.kept.get(&wanted).map(|(file, _)| file.clone()))
        })
        .await
    }

    async fn write(
        &self,
        place: &FilePlace,
        content: Bytes,
        condition: &BlobCondition,
    ) -> Result<ETag, StoreError> {
        let (target, condition) = (place.clone(), condition.clone());
        let written = self.send(WRITE, what(place), true, move |state, inner| {
            let there = state.files.kept.get(&target).map(|(file, _)| &file.etag);
            match (&condition, there) {
                (BlobCondition::Absent, Some(_)) => {
                    return Err(refused(
                        inner,
                        WRITE,
                        &target,
                        ErrorClass::Conflict,
                        "the file already exists",
                    ));
                }
                (BlobCondition::Matches(etag), there) if there != Some(etag) => {
                    return Err(refused(
                        inner,
                        WRITE,
                        &target,
                        ErrorClass::Precondition,
                        "the file has another version",
                    ));
                }
                (BlobCondition::None | BlobCondition::Absent | BlobCondition::Matches(_), _) => {}
            }
            Ok(state.put_file(target, content).etag)
        });
        written.await
    }

    async fn delete(&self, place: &FilePlace, if_match: &ETag) -> Result<bool, StoreError> {
        let (target, wanted) = (place.clone(), if_match.clone());
        let deleted = self.send(DELETE, what(place), true, move |state, inner| {
            match state.files.kept.get(&target) {
                None => Ok(false),
                Some((file, _)) if file.etag != wanted => Err(refused(
                    inner,
                    DELETE,
                    &target,
                    ErrorClass::Precondition,
                    "the file has another version",
                )),
                Some(_) => Ok(state.remove_file(&target)),
            }
        });
        deleted.await
    }

    async fn find(&self, place: &FilePlace) -> Result<Option<FileInfo>, StoreError> {
        let wanted = place.clone();
        let found = |(file, mark): &(File, u64)| FileInfo {
            mark: ETag::token(*mark),
            length: file.content.len() as u64,
        };
        self.send(FIND, what(place), false, move |state, _| {
            Ok(state.files.kept.get(&wanted).map(found))
        })
        .await
    }

    async fn read_at(
        &self,
        place: &FilePlace,
        range: Range<u64>,
        mark: &ETag,
    ) -> Result<Bytes, StoreError> {
        let (wanted, mark) = (place.clone(), mark.clone());
        let read = self.send(READ, what(place), false, move |state, inner| {
            match state.files.at(&wanted, &mark) {
                None => Err(refused(
                    inner,
                    READ,
                    &wanted,
                    ErrorClass::Precondition,
                    "the file has another mark",
                )),
                Some(file) => {
                    let end = |at: u64| {
                        usize::try_from(at)
                            .unwrap_or(usize::MAX)
                            .min(file.content.len())
                    };
                    Ok(file.content.slice(end(range.start)..end(range.end)))
                }
            }
        });
        read.await
    }

    async fn write_pieces(
        &self,
        place: &FilePlace,
        pieces: Pieces<'_>,
    ) -> Result<ETag, StoreError> {
        let pieces: Vec<Bytes> = pieces.try_collect().await?;
        let (target, content) = (place.clone(), Bytes::from(pieces.concat()));
        let written = self.send(WRITE, what(place), true, move |state, inner| {
            if state.files.kept.contains_key(&target) {
                return Err(refused(
                    inner,
                    WRITE,
                    &target,
                    ErrorClass::Conflict,
                    "the file already exists",
                ));
            }
            state.put_file(target, content);
            Ok(ETag::token(state.files.marks))
        });
        written.await
    }

    async fn renew(&self, place: &FilePlace, mark: &ETag) -> Result<ETag, StoreError> {
        let (target, mark) = (place.clone(), mark.clone());
        let renewed = self.send(RENEW, what(place), true, move |state, inner| {
            match state.files.at(&target, &mark).cloned() {
                None => Err(refused(
                    inner,
                    RENEW,
                    &target,
                    ErrorClass::Precondition,
                    "the file has another mark",
                )),
                Some(file) => {
                    state.put_file(target, file.content);
                    Ok(ETag::token(state.files.marks))
                }
            }
        });
        renewed.await
    }

    async fn remove(&self, place: &FilePlace, mark: &ETag) -> Result<bool, StoreError> {
        let (target, mark) = (place.clone(), mark.clone());
        let removed = self.send(DELETE, what(place), true, move |state, inner| {
            if !state.files.kept.contains_key(&target) {
                return Ok(false);
            }
            if state.files.at(&target, &mark).is_none() {
                return Err(refused(
                    inner,
                    DELETE,
                    &target,
                    ErrorClass::Precondition,
                    "the file has another mark",
                ));
            }
            Ok(state.remove_file(&target))
        });
        removed.await
    }
}
