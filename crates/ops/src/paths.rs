//! Relative paths between pages of this server. Pure.

/// Returns the relative path from a page's path to the root of this server. The result never points to another server.
pub(super) fn to_root(path: &str) -> String {
    match path.matches('/').count() {
        0 | 1 => "./".to_owned(),
        levels => "../".repeat(levels - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    #[test]
    fn the_root_is_found_from_any_depth_below_any_path() {
        for prefix in ["", "/keel", "/a/b"] {
            for path in [
                "/",
                "/jobs",
                "/poison/ask",
                "/api/v1/nowhere",
                "//",
                "/a//b",
                "/a/",
            ] {
                let page = Url::parse(&format!("https://host{prefix}{path}")).unwrap();
                assert_eq!(
                    page.join(&to_root(path)).unwrap().path(),
                    format!("{prefix}/"),
                    "{page}"
                );
            }
        }
    }
}
