//! Checks rules that hold for every page.

#[test]
fn pages_load_nothing_from_other_servers_and_have_nothing_inline() {
    for asset in [
        include_str!("assets/style.css"),
        include_str!("assets/app.js"),
    ] {
        assert!(
            !asset.contains("http://") && !asset.contains("https://") && !asset.contains("@import")
        );
    }
    let script = include_str!("assets/app.js");
    assert!(!script.contains("eval(") && !script.contains("new Function"));
}

/// Returns every attribute value in a template that begins with a slash.
fn absolute(name: &str, template: &str) -> Vec<String> {
    template
        .split("=\"/")
        .skip(1)
        .map(|rest| format!("{name}: /{}", rest.split('"').next().unwrap_or_default()))
        .collect()
}

#[test]
fn no_link_is_absolute() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pages/templates");
    let templates: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(templates.len() > 15, "{templates:?}");
    for path in templates {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(
            absolute(&name, &std::fs::read_to_string(path).unwrap()),
            Vec::<String>::new()
        );
    }
    assert_eq!(
        absolute("x", "<a href=\"/jobs\"><a href=\"jobs\"/>"),
        ["x: /jobs"]
    );
    for asset in [
        include_str!("assets/style.css"),
        include_str!("assets/app.js"),
    ] {
        assert!(
            !asset.contains("url(/") && !asset.contains("\"/") && !asset.contains("`/"),
            "an address in an asset is absolute"
        );
    }
}
