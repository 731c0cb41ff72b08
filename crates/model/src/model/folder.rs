//! Shared folders, which configurations and footprints may spell in several ways.

use std::path::{Path, PathBuf};

/// A folder in its one spelling: without repeated slashes, `.` and a slash at the end. What `..` leads to, links decide.
pub fn spelled(dir: &str) -> String {
    let path: PathBuf = Path::new(dir).components().collect();
    path.to_string_lossy().into_owned()
}

/// Whether two spellings name one folder.
pub fn is_same(one: &str, two: &str) -> bool {
    one == two || spelled(one) == spelled(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_same_however_it_is_spelled() {
        for spelling in ["/mnt/former", "/mnt/former/", "//mnt/./former//"] {
            assert_eq!(spelled(spelling), "/mnt/former", "{spelling}");
            assert!(is_same("/mnt/former", spelling) && is_same(spelling, "/mnt/former/."), "{spelling}");
        }
        assert_eq!(spelled("/"), "/");
        for other in ["/mnt/formers", "/mnt", "/mnt/Former", "/mnt/x/../former"] {
            assert!(!is_same("/mnt/former", other), "{other}");
        }
    }
}
