//! The rules of shared files.

use bytes::Bytes;
use evenkeel_model::{AccountName, BlobName, ETag};
use evenkeel_storage::{
    BlobCondition, ErrorClass, File, FilePlace, FileStore, Resource, StoreError, Subject,
};
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;

use super::class;

/// Shared files to test, and their folder.
pub struct FilesFixture {
    /// The store.
    pub files: std::sync::Arc<dyn FileStore>,
    /// An empty folder.
    pub dir: String,
    /// Lives as long as the store (a folder, a server).
    pub keep: Box<dyn std::any::Any + Send + Sync>,
}

impl FilesFixture {
    fn place(&self, name: &str) -> FilePlace {
        FilePlace {
            dir: self.dir.clone(),
            name: BlobName::new(name).unwrap(),
        }
    }

    async fn put(&self, name: &str, content: &'static str, condition: BlobCondition) -> ETag {
        self.files
            .write(
                &self.place(name),
                Bytes::from_static(content.as_bytes()),
                &condition,
            )
            .await
            .unwrap()
    }

    async fn refused(&self, name: &str, condition: BlobCondition) -> ErrorClass {
        class(
            self.files
                .write(
                    &self.place(name),
                    Bytes::from_static(b"refused"),
                    &condition,
                )
                .await,
        )
    }

    async fn read(&self, name: &str) -> Option<File> {
        self.files.read(&self.place(name)).await.unwrap()
    }
}

pub async fn a_file_is_read_as_it_was_written(shared: &FilesFixture) {
    assert_eq!(shared.read("a/b c/d%2F.json").await, None);
    let etag = shared
        .put("a/b c/d%2F.json", "{\"a\":1}\n", BlobCondition::Absent)
        .await;
    assert_eq!(
        shared.read("a/b c/d%2F.json").await,
        Some(File {
            content: Bytes::from_static(b"{\"a\":1}\n"),
            etag
        })
    );
    assert_eq!(shared.read("a/b c").await.map(drop), None);
}

pub async fn a_file_is_written_under_its_condition(shared: &FilesFixture) {
    let first = shared.put("a", "first", BlobCondition::Absent).await;
    assert_eq!(
        shared.refused("a", BlobCondition::Absent).await,
        ErrorClass::Conflict
    );
    let second = shared
        .put("a", "second", BlobCondition::Matches(first.clone()))
        .await;
    assert_ne!(first, second);
    assert_eq!(
        shared
            .refused("a", BlobCondition::Matches(first.clone()))
            .await,
        ErrorClass::Precondition
    );
    assert_eq!(
        shared.refused("b", BlobCondition::Matches(first)).await,
        ErrorClass::Precondition
    );
    assert_eq!(shared.read("a").await.unwrap().content, "second");
    shared.put("a", "third", BlobCondition::None).await;
    assert_eq!(shared.read("a").await.unwrap().content, "third");
}

pub async fn a_file_is_deleted_at_its_version_only(shared: &FilesFixture) {
    let first = shared.put("a/a", "first", BlobCondition::Absent).await;
    let second = shared
        .put("a/a", "second", BlobCondition::Matches(first.clone()))
        .await;
    let place = shared.place("a/a");
    assert_eq!(
        class(shared.files.delete(&place, &first).await),
        ErrorClass::Precondition
    );
    assert!(shared.files.delete(&place, &second).await.unwrap());
    assert!(!shared.files.delete(&place, &second).await.unwrap());
    assert_eq!(shared.read("a/a").await, None);
    shared.put("a/a", "again", BlobCondition::Absent).await;
}

pub async fn one_of_concurrent_writes_under_one_condition_wins(shared: &FilesFixture) {
    for round in 0..5 {
        let condition = match shared.read("a").await {
            None => BlobCondition::Absent,
            Some(file) => BlobCondition::Matches(file.etag),
        };
        let writes = (0..8).map(|writer| {
            let (place, condition) = (shared.place("a"), condition.clone());
            let content = Bytes::from(format!("{round} by {writer}"));
            async move { shared.files.write(&place, content, &condition).await }
        });
        let won = join_all(writes).await.into_iter().flatten().count();
        assert_eq!(won, 1, "exactly one write must succeed in round {round}");
    }
}

pub async fn readers_see_whole_files(shared: &FilesFixture) {
    let texts: Vec<String> = (0..4).map(|n| n.to_string().repeat(100_000)).collect();
    shared
        .files
        .write(
            &shared.place("a"),
            texts[0].clone().into(),
            &BlobCondition::None,
        )
        .await
        .unwrap();
    let writes = join_all((0..20).map(|n| {
        let (place, content) = (shared.place("a"), Bytes::from(texts[n % 4].clone()));
        async move {
            shared
                .files
                .write(&place, content, &BlobCondition::None)
                .await
                .unwrap()
        }
    }));
    let reads = join_all((0..20).map(|_| async {
        let read = shared.read("a").await.expect("it is always there");
        assert!(
            texts.iter().any(|text| read.content == text.as_bytes()),
            "read a mixture of several writes, {} bytes",
            read.content.len()
        );
    }));
    futures::future::join(writes, reads).await;
}

async fn pieces(
    shared: &FilesFixture,
    name: &str,
    pieces: &[&'static str],
) -> Result<ETag, StoreError> {
    let pieces = pieces
        .iter()
        .map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
    shared
        .files
        .write_pieces(
            &shared.place(name),
            stream::iter(pieces.collect::<Vec<_>>()).boxed(),
        )
        .await
}

pub async fn a_file_is_written_in_pieces_and_read_in_ranges(shared: &FilesFixture) {
    let place = shared.place("a%values/Photo");
    assert_eq!(shared.files.find(&place).await.unwrap(), None);
    let mark = pieces(shared, "a%values/Photo", &["first ", "second ", "third"])
        .await
        .unwrap();
    let found = shared.files.find(&place).await.unwrap().unwrap();
    assert_eq!((&found.mark, found.length), (&mark, 18));
    assert_eq!(
        shared.read("a%values/Photo").await.unwrap().content,
        "first second third"
    );
    assert_eq!(
        shared.files.read_at(&place, 6..12, &mark).await.unwrap(),
        "second"
    );
    assert_eq!(
        shared.files.read_at(&place, 13..99, &mark).await.unwrap(),
        "third"
    );
    assert_eq!(shared.files.read_at(&place, 0..0, &mark).await.unwrap(), "");
    assert_eq!(
        class(pieces(shared, "a%values/Photo", &["x"]).await),
        ErrorClass::Conflict
    );
    // No pieces make an empty file.
    let empty = pieces(shared, "empty", &[]).await.unwrap();
    assert_eq!(
        shared
            .files
            .find(&shared.place("empty"))
            .await
            .unwrap()
            .map(|found| (found.mark, found.length)),
        Some((empty, 0))
    );
}

pub async fn a_file_with_a_new_mark_cannot_be_changed_by_its_old_mark(shared: &FilesFixture) {
    let place = shared.place("a%values/Photo");
    let first = pieces(shared, "a%values/Photo", &["content"])
        .await
        .unwrap();
    let second = shared.files.renew(&place, &first).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(
        class(shared.files.remove(&place, &first).await),
        ErrorClass::Precondition
    );
    assert_eq!(
        class(shared.files.renew(&place, &first).await),
        ErrorClass::Precondition
    );
    assert_eq!(
        class(shared.files.read_at(&place, 0..1, &first).await),
        ErrorClass::Precondition
    );
    assert_eq!(
        shared.files.read_at(&place, 0..99, &second).await.unwrap(),
        "content"
    );
    assert!(shared.files.remove(&place, &second).await.unwrap());
    assert!(!shared.files.remove(&place, &second).await.unwrap());
    assert_eq!(
        class(shared.files.renew(&place, &second).await),
        ErrorClass::Precondition
    );
    assert_eq!(
        class(shared.files.read_at(&place, 0..1, &second).await),
        ErrorClass::Precondition
    );
    // A file that is written again gets a new mark.
    let third = pieces(shared, "a%values/Photo", &["content"])
        .await
        .unwrap();
    assert!(third != first && third != second);
    assert_eq!(
        class(shared.files.remove(&place, &second).await),
        ErrorClass::Precondition
    );
}

pub async fn pieces_that_end_in_an_error_leave_no_file(shared: &FilesFixture) {
    let place = shared.place("a");
    let about = Subject {
        account: AccountName::main(),
        resource: Resource::File(place.dir.clone(), place.name.clone()),
    };
    let broken = StoreError::new(
        ErrorClass::Refused,
        "Get Blob",
        about,
        "the source is unavailable",
    );
    let halfway = stream::iter([Ok(Bytes::from_static(b"half")), Err(broken)]).boxed();
    assert_eq!(
        class(shared.files.write_pieces(&place, halfway).await),
        ErrorClass::Refused
    );
    assert_eq!(shared.files.find(&place).await.unwrap(), None);
    pieces(shared, "a", &["whole"]).await.unwrap();
    assert_eq!(shared.read("a").await.unwrap().content, "whole");
}

pub async fn one_of_concurrent_writers_of_pieces_wins(shared: &FilesFixture) {
    let won = join_all((0..8).map(|_| pieces(shared, "a", &["same ", "content"])))
        .await
        .into_iter()
        .flatten()
        .count();
    assert_eq!(won, 1);
    assert_eq!(shared.read("a").await.unwrap().content, "same content");
}
