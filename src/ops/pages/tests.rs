//! Invariants of every page.

#[test]
fn pages_ask_nobody_else_for_anything_and_have_nothing_inline() {
    for asset in [include_str!("assets/style.css"), include_str!("assets/app.js")] {
        assert!(!asset.contains("http://") && !asset.contains("https://") && !asset.contains("@import"));
    }
    let script = include_str!("assets/app.js");
    assert!(!script.contains("eval(") && !script.contains("new Function"));
}
