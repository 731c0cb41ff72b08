//! One site of each kind, for tests of code that stores or shows sites.

#![expect(clippy::expect_used, reason = "the texts are constants")]

use evenkeel_model::{
    BlobName, CollectionName, ContainerName, DocumentKey, EntityKey, Site, TableName,
};

/// One site of each kind. The row is first.
pub fn sites() -> Vec<Site> {
    std::iter::successors(Some(row()), next).collect()
}

fn row() -> Site {
    Site::Row {
        table: TableName::new("ByEmail").expect("a table"),
        key: EntityKey::new("p", "r").expect("a key"),
    }
}

fn next(site: &Site) -> Option<Site> {
    match site {
        Site::Row { .. } => Some(Site::Blob {
            container: ContainerName::new("lists").expect("a container"),
            name: BlobName::new("a/b.json").expect("a blob"),
        }),
        Site::Blob { .. } => Some(Site::File {
            dir: "/srv/papers".to_owned(),
            name: BlobName::new("a/b.pdf").expect("a path"),
        }),
        Site::File { .. } => Some(Site::Document {
            collection: CollectionName::new("people").expect("a collection"),
            key: DocumentKey::new("Wy-_=").expect("a document's key"),
        }),
        Site::Document { .. } => None,
    }
}
