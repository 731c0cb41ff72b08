//! Large numbers of everything. The size of a page, and its number of requests, must not grow with the data.

use std::fmt::Write as _;

use crate::cli::api::{Api, ask_at};
use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, says};

const PAGE: usize = 200_000;

#[test]
fn ten_thousand_dead_letters_make_no_page_longer_and_one_of_them_is_requeued_for_one_page() {
    let api = Api::start();
    api.place.put_all(
        "jobs-poison",
        (0..10_000).map(|number| format!("dead letter {number}")),
    );
    until("they are counted", || {
        api.get("/api/v1/status").json()["poisoned"]["jobs"] == 10_000
    });
    says(&api.get("/").body, &["10,000 poisoned messages"]);
    let page = api.get("/poison").body;
    assert_eq!(page.matches("<li class=\"card").count(), 32);
    assert!(page.len() < PAGE, "{}", page.len());
    says(&page, &["10,000 in all"]);

    let id = api.get("/api/v1/poison").json()["messages"][0]["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let token = "Authorization: Bearer s3cret-token-of-tests\r\nContent-Type: application/json\r\n";
    let done = api.ask(
        "POST",
        "/api/v1/poison/discard",
        token,
        &format!("{{\"ids\":[\"{id}\"]}}"),
    );
    assert_eq!(
        done.json()["done"].as_array().unwrap().len(),
        1,
        "{}",
        done.body
    );
    let shown_again = requests(&api.get("/metrics").body, "update_message");
    assert!(
        (1..32).contains(&shown_again),
        "only the messages of one page may be hidden meanwhile: {shown_again}"
    );
}

fn requests(metrics: &str, op: &str) -> u64 {
    let of = |line: &&str| {
        line.starts_with("evenkeel_storage_requests_total{")
            && line.contains(&format!("op=\"{op}\""))
    };
    metrics
        .lines()
        .filter(of)
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn a_thousand_views_make_no_page_longer_and_all_are_found_page_by_page() {
    let place = Place::new();
    let mut views = String::new();
    for number in 0..1_000 {
        let _ = write!(
            views,
            "[views.v{number:04}]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"Index\"\npartition_key = \"v{number:04}\"\nrow_key = \"{{RowKey}}\"\nwhen = \"Kind == {number}\"\n"
        );
    }
    place.add(&views);
    // The catalog is recorded in advance. Otherwise a thousand lines about it would fill the daemon's log, which nobody
    // reads here.
    place.run(&["migrate", "up"]).success();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let get = |path: &str| ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);
    for path in ["/", "/views", "/storage", "/api/v1/status"] {
        let answer = get(path);
        assert!(
            answer.status == 200 && answer.body.len() < PAGE,
            "{path}: {}",
            answer.body.len()
        );
    }
    says(&get("/").body, &["All 1,001 views", "1,001 views"]);
    let (mut path, mut seen) = ("/views".to_owned(), 0);
    loop {
        let page = get(&path).body;
        seen += page.matches("never audited").count();
        let Some(next) = page.split("class=\"button\" href=\"views?after=").nth(1) else {
            break;
        };
        path = format!("/views?after={}", next.split('"').next().unwrap());
    }
    assert_eq!(seen, 1_001);
}
