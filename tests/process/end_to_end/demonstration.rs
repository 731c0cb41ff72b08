use std::process::Command;

#[test]
fn the_demonstration_ends_well_in_an_empty_folder_and_leaves_it_empty() {
    let folder = tempfile::tempdir().unwrap();
    let told = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["demo", "--once"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&told.stdout),
        String::from_utf8_lossy(&told.stderr),
    );
    assert_eq!(told.status.code(), Some(0), "{err}");
    assert!(
        out.contains("everything is consistent") && !out.contains("WRONG"),
        "{out}"
    );
    assert_eq!(err, "", "the output must be on standard output only");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}
