//! The rules of shared files.

use bytes::Bytes;
use evenkeel::model::{BlobName, ETag};
use evenkeel::ports::{BlobCondition, ErrorClass, File, FilePlace, FileStore};
use futures::future::join_all;

use super::class;

/// Files to test, and the folder they lie in.
pub(crate) struct Shared {
    pub(crate) files: std::sync::Arc<dyn FileStore>,
    pub(crate) dir: String,
    pub(crate) _keep: Box<dyn std::any::Any + Send + Sync>,
}

impl Shared {
    fn place(&self, name: &str) -> FilePlace {
        FilePlace { dir: self.dir.clone(), name: BlobName::new(name).unwrap() }
    }

    async fn put(&self, name: &str, content: &'static str, condition: BlobCondition) -> ETag {
        self.files.write(&self.place(name), Bytes::from_static(content.as_bytes()), &condition).await.unwrap()
    }

    async fn refused(&self, name: &str, condition: BlobCondition) -> ErrorClass {
        class(self.files.write(&self.place(name), Bytes::from_static(b"refused"), &condition).await)
    }

    async fn read(&self, name: &str) -> Option<File> {
        self.files.read(&self.place(name)).await.unwrap()
    }
}

pub(crate) async fn a_file_is_read_as_it_was_written(shared: &Shared) {
    assert_eq!(shared.read("a/b c/d%2F.json").await, None);
    let etag = shared.put("a/b c/d%2F.json", "{\"a\":1}\n", BlobCondition::Absent).await;
    assert_eq!(shared.read("a/b c/d%2F.json").await, Some(File { content: Bytes::from_static(b"{\"a\":1}\n"), etag }));
    assert_eq!(shared.read("a/b c").await.map(drop), None);
}

pub(crate) async fn a_file_is_written_under_its_condition(shared: &Shared) {
    let first = shared.put("a", "first", BlobCondition::Absent).await;
    assert_eq!(shared.refused("a", BlobCondition::Absent).await, ErrorClass::Conflict);
    let second = shared.put("a", "second", BlobCondition::Matches(first.clone())).await;
    assert_ne!(first, second);
    assert_eq!(shared.refused("a", BlobCondition::Matches(first.clone())).await, ErrorClass::Precondition);
    assert_eq!(shared.refused("b", BlobCondition::Matches(first)).await, ErrorClass::Precondition);
    assert_eq!(shared.read("a").await.unwrap().content, "second");
    shared.put("a", "third", BlobCondition::None).await;
    assert_eq!(shared.read("a").await.unwrap().content, "third");
}

pub(crate) async fn a_file_is_deleted_at_its_version_only(shared: &Shared) {
    let first = shared.put("a/a", "first", BlobCondition::Absent).await;
    let second = shared.put("a/a", "second", BlobCondition::Matches(first.clone())).await;
    let place = shared.place("a/a");
    assert_eq!(class(shared.files.delete(&place, &first).await), ErrorClass::Precondition);
    assert!(shared.files.delete(&place, &second).await.unwrap());
    assert!(!shared.files.delete(&place, &second).await.unwrap());
    assert_eq!(shared.read("a/a").await, None);
    shared.put("a/a", "again", BlobCondition::Absent).await;
}

pub(crate) async fn of_concurrent_writes_under_one_condition_one_wins(shared: &Shared) {
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
        assert_eq!(won, 1, "round {round}");
    }
}

pub(crate) async fn readers_see_whole_files(shared: &Shared) {
    let texts: Vec<String> = (0..4).map(|n| n.to_string().repeat(100_000)).collect();
    shared.files.write(&shared.place("a"), texts[0].clone().into(), &BlobCondition::None).await.unwrap();
    let writes = join_all((0..20).map(|n| {
        let (place, content) = (shared.place("a"), Bytes::from(texts[n % 4].clone()));
        async move { shared.files.write(&place, content, &BlobCondition::None).await.unwrap() }
    }));
    let reads = join_all((0..20).map(|_| async {
        let read = shared.read("a").await.expect("it is always there");
        assert!(texts.iter().any(|text| read.content == text.as_bytes()), "a mixture of {} bytes", read.content.len());
    }));
    futures::future::join(writes, reads).await;
}
