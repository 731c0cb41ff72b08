//! The dashboard in a real browser: `tests/browser/dashboard.mjs` controls Chromium against a daemon that each test
//! starts.

use std::path::Path;
use std::process::Command;

use crate::cli::api::Api;
use crate::cli::pages::PAGES;

/// Runs a scenario. The scenario also ends its browser.
fn play(scenario: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    assert!(
        folder.join("node_modules/playwright-core").exists(),
        "the browser's driver is not installed: run scripts/test"
    );
    let api = Api::start();
    let played = Command::new("node")
        .args([
            "dashboard.mjs",
            scenario,
            &format!("http://{}", api.address),
            "s3cret-token-of-tests",
        ])
        .args(std::env::var_os("EVENKEEL_TEST_SCREENSHOTS"))
        .env("PAGES", PAGES.join(" "))
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(
        played.status.success(),
        "{}{}",
        String::from_utf8_lossy(&played.stdout),
        String::from_utf8_lossy(&played.stderr)
    );
}

#[test]
fn every_page_is_usable_wide_and_narrow_light_and_dark_and_asks_nobody_else() {
    play("pages");
}

#[test]
fn the_numbers_of_the_dashboard_are_updated() {
    play("live");
}

#[test]
fn a_poisoned_job_is_read_requeued_after_its_cause_is_mended_and_gone_in_a_browser() {
    play("poison");
}

#[test]
fn some_of_many_are_discarded_after_a_question() {
    play("discarding");
}

#[test]
fn what_became_of_one_key_of_many_is_found_by_the_key() {
    play("many");
}

#[test]
fn without_the_token_and_from_another_site_nothing_is_changed() {
    play("refused");
}

#[test]
fn everything_is_reached_with_the_keyboard() {
    play("keyboard");
}
