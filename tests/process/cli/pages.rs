//! The dashboard in a browser without scripts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::cli::api::Api;
use crate::cli::daemon::until;
use crate::cli::place::says;

/// The headers of a signed-in browser, which names the origin of its requests.
fn signed_in(api: &Api) -> String {
    let form = "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n";
    let answer = api.ask("POST", "/login", form, "token=s3cret-token-of-tests");
    assert_eq!(answer.status, 303);
    let cookie = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap();
    format!("Cookie: {}\r\n{form}", cookie.split(';').next().unwrap())
}

/// All pages; the browser tests use this list, too. A page that another page links to must be in the list.
pub(crate) const PAGES: [&str; 13] = [
    "/",
    "/jobs",
    "/poison",
    "/entity",
    "/entity?table=Employees&pk=a&rk=b",
    "/views",
    "/storage",
    "/system",
    "/hour",
    "/queues/jobs",
    "/storage/hour?account=main&service=table",
    "/login",
    "/poison/confirm?what=discard",
];

/// The addresses in the attributes of a page, and whether a form is sent to that address.
fn addresses(page: &str) -> Vec<(String, bool)> {
    let of = |attribute: &'static str| {
        let begin = format!(" {attribute}=\"");
        let values = page.split(&begin).skip(1).map(|rest| {
            rest.split('"')
                .next()
                .unwrap()
                .replace("&#38;", "&")
                .replace("&amp;", "&")
        });
        values
            .map(|value| (value, attribute.ends_with("action")))
            .collect::<Vec<_>>()
    };
    [
        "href",
        "src",
        "action",
        "formaction",
        "data-live",
        "data-refresh",
    ]
    .into_iter()
    .flat_map(of)
    .collect()
}

/// A proxy may serve the pages below a path prefix. So no address may begin at the root of the host. Each address must
/// exist.
fn every_link_holds_below_any_path(api: &Api, page: &str) {
    let at = url::Url::parse("http://host/keel/")
        .unwrap()
        .join(page.trim_start_matches('/'))
        .unwrap();
    let body = api.ask("GET", page, &signed_in(api), "").body;
    let addresses = addresses(&body);
    let base = at.join(&addresses[0].0).unwrap();
    assert_eq!(base.as_str(), "http://host/keel/", "{page}");
    assert!(addresses.len() > 10, "{page}: {addresses:?}");
    for (address, is_sent_to) in addresses
        .iter()
        .skip(1)
        .filter(|(address, _)| address != "events")
    {
        let led = base.join(address).unwrap();
        let below = led
            .as_str()
            .strip_prefix("http://host/keel")
            .unwrap_or_else(|| panic!("{page}: {address} leaves the path prefix"));
        let below = below.split('#').next().unwrap();
        let answer = api.get(below);
        let status = answer.status;
        let there = [200, 405].contains(&status) || *is_sent_to && status == 401;
        assert!(there, "{page}: {address} is answered with {status}");
        // The pages of all queues count as one page.
        let path = |address: &str| {
            let path = address.split('?').next().unwrap();
            let queue = path.strip_prefix("/queues/");
            queue.map_or(path, |_| "/queues/").to_owned()
        };
        assert!(
            !answer.body.starts_with("<!doctype html>")
                || PAGES.iter().any(|known| path(known) == path(below)),
            "{below} is not in PAGES"
        );
        assert!(
            !address.ends_with("#main") || led.as_str() == format!("{at}#main"),
            "{page}: {address} leaves the page"
        );
    }
}

#[test]
fn every_page_is_whole_and_loads_nothing_from_elsewhere() {
    let api = Api::start();
    let worker = api.get("/api/v1/status").json()["worker"]
        .as_str()
        .unwrap()
        .to_owned();
    for path in PAGES {
        let page = api.get(path);
        assert_eq!(page.status, 200, "{path}");
        says(
            &page.head,
            &[
                "text/html",
                "content-security-policy: default-src 'none'; script-src 'self'",
                "referrer-policy: same-origin",
            ],
        );
        says(
            &page.body,
            &[
                "<html lang=\"en\">",
                "<main id=\"main\" tabindex=\"-1\">",
                "Skip to the content",
                "</html>",
            ],
        );
        for inline in ["<style", " style=", "onclick", "://", "<script>"] {
            assert!(!page.body.contains(inline), "{path} has {inline}");
        }
        assert_eq!(page.body.matches("<h1").count(), 1, "{path}");
        // Without a token, the page does not reveal the location.
        let title = page
            .body
            .split("<title>")
            .nth(1)
            .unwrap()
            .split("</title>")
            .next()
            .unwrap();
        assert_eq!(
            title.ends_with(&format!(" · {worker} · evenkeel")),
            path != "/login",
            "{path}: {title}"
        );
    }
    for page in PAGES {
        every_link_holds_below_any_path(&api, page);
    }
    for (path, kind) in [
        ("/assets/style.css", "text/css"),
        ("/assets/app.js", "text/javascript"),
        ("/assets/icon.svg", "image/svg+xml"),
    ] {
        says(&api.get(path).head, &["200", kind, "nosniff"]);
    }
    assert_eq!(api.get("/queues/nowhere").status, 404);
    assert_eq!(api.get("/jobs?outcome=sad").status, 400);
}

#[test]
fn data_is_escaped_on_every_page() {
    let api = Api::start();
    let evil = "<script>alert(1)</script>\"'";
    api.place.put(
        "jobs",
        &json!({"op": "sync", "id": evil, "table": "Nowhere", "pk": evil, "rk": evil}).to_string(),
    );
    api.place.put("jobs", evil);
    until("both are poisoned", || {
        api.get("/api/v1/poison").json()["total"] == 2
    });
    let searched = format!("/jobs?key={}", "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22");
    for path in [
        "/",
        "/jobs",
        "/poison",
        &searched,
        "/entity?table=%3Cscript%3E&pk=%22&rk=x",
        "/poison/confirm?what=discard&id=%3Cscript%3E",
    ] {
        let page = api.get(path).body;
        assert!(
            !page.contains("<script>") && !page.contains("\"'\"") && page.contains("evenkeel"),
            "{path}: {page}"
        );
    }
    says(
        &api.get("/poison").body,
        &["&#60;script&#62;alert(1)&#60;/script&#62;", "Nowhere"],
    );
}

#[test]
fn a_poisoned_job_is_read_requeued_after_its_cause_is_mended_and_gone() {
    let api = Api::start();
    let other = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Email": "a@b.c"}});
    let twin = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "2", "Email": "A@b.c"}});
    api.place.run(&["submit", &other.to_string()]).success();
    until("the first has the address", || {
        api.get("/jobs?outcome=done").body.contains("Sales / 1")
    });
    api.place.run(&["submit", &twin.to_string()]).success();
    until("the second is poisoned", || {
        api.get("/").body.contains("1 poisoned message")
    });
    let page = api.get("/poison").body;
    says(
        &page,
        &[
            "permanent",
            "Employees(&#34;Sales&#34;, &#34;1&#34;)",
            "Sign in</a> to requeue",
        ],
    );
    assert!(
        !page.contains("<button>Requeue"),
        "the page must not offer a refused action"
    );

    let browser = signed_in(&api);
    let page = api.ask("GET", "/poison", &browser, "").body;
    let id = page
        .split("name=\"id\" value=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let fields = format!("queue=jobs&id={id}");
    for (path, fields) in [
        ("/poison/requeue", fields.as_str()),
        ("/poison/discard", "all=true"),
    ] {
        let form = "Content-Type: application/x-www-form-urlencoded\r\n";
        assert_eq!(
            api.ask("POST", path, form, fields).status,
            401,
            "{path} without a session"
        );
        let foreign = browser.replace("same-origin", "cross-site");
        assert_eq!(
            api.ask("POST", path, &foreign, fields).status,
            403,
            "{path} from another site"
        );
    }
    assert_eq!(
        api.ask("POST", "/poison/discard", &browser, "queue=jobs")
            .status,
        400,
        "nothing is meant"
    );

    let moved = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Email": "other@b.c"}});
    api.place.run(&["submit", &moved.to_string()]).success();
    until("the address is free", || {
        api.get("/api/v1/entities/Employees/Sales/1")
            .body
            .contains("other@b.c")
    });
    until("it is settled", || {
        api.get("/api/v1/entities/Employees/Sales/1").json()["plan"]["in_step"] == true
    });
    let done = api.ask("POST", "/poison/requeue", &browser, &fields);
    assert_eq!(done.status, 303, "{}", done.body);
    says(&done.head, &["location: ../poison?requeued=1&failed=0"]);
    // The first job has moved the other entity and queued a sync of this one. That sync may have settled the entity
    // before the requeued job runs.
    let is_its_own = |job: &serde_json::Value| job["op"] == "put" && job["rk"] == "2";
    until("its own job is done", || {
        api.get("/api/v1/jobs?outcome=done")
            .json()
            .as_array()
            .unwrap()
            .iter()
            .any(is_its_own)
    });
    until("the second has its copy", || {
        api.get("/api/v1/entities/Employees/Sales/2").json()["plan"]["in_step"] == true
    });
    until("all is well", || {
        api.get("/").body.contains("<h1>Consistent</h1>")
    });
    says(&api.get("/poison").body, &["No poisoned messages."]);
    says(
        &api.get("/entity?table=Employees&pk=Sales&rk=2").body,
        &["In step: nothing to do.", "by_email", "a@b.c"],
    );
}

#[test]
fn a_message_about_many_opens_into_its_keys_and_is_found_by_each() {
    let api = Api::start();
    let entity = |number: u32| json!({"PartitionKey": "Sales", "RowKey": format!("{number:03}"), "Email": format!("p{}@b.c", number.min(29))});
    let many = json!({"op": "put", "table": "Employees", "entities": (0..=30).map(entity).collect::<Vec<_>>()});
    api.place.put("jobs", &many.to_string());
    let ended = |jobs: &serde_json::Value| jobs.as_array().is_some_and(|jobs| !jobs.is_empty());
    let job = api.awaits("/api/v1/jobs?key=007", ended)[0].clone();
    assert_eq!(
        (&job["table"], &job["pk"], &job["primaries"]),
        (&json!("Employees"), &json!(null), &json!(31))
    );
    assert_eq!(
        job["keys"][0],
        json!({"pk": "Sales", "rk": "007", "ending": "done", "error": null}),
        "what was searched for comes first"
    );
    assert_eq!(
        job["keys"][1]["ending"], "poisoned",
        "then the failed key: two employees want one address"
    );
    says(job["keys"][1]["error"].as_str().unwrap(), &["is taken by"]);
    assert_eq!(job["keys"].as_array().unwrap().len(), 20);
    let alone = format!("number={}", job["number"]);
    assert_eq!(
        api.get(&format!("/api/v1/jobs?{alone}")).json()[0]["keys"]
            .as_array()
            .unwrap()
            .len(),
        31
    );

    let found = api.get("/jobs?key=007").body;
    says(
        &found,
        &[
            "Employees / 31 primaries",
            "<a href=\"entity?table=Employees&amp;pk=Sales&amp;rk=007\">Sales / 007</a>",
            "poisoned",
        ],
    );
    says(
        &found,
        &[&format!("<a href=\"jobs?{alone}\">And 11 more</a>")],
    );
    assert_eq!(found.matches("href=\"entity?").count(), 20);
    let whole = api.get(&format!("/jobs?{alone}")).body;
    assert_eq!(whole.matches("href=\"entity?").count(), 31);
    says(&whole, &["<details open>"]);
    assert!(!whole.contains("data-refresh") && !whole.contains("which were not recorded"));
    says(&api.get("/jobs?key=031").body, &["No matching jobs."]);
}

#[test]
fn discarding_asks_first() {
    let api = Api::start();
    api.place.put("jobs", "no job at all");
    until("it is poisoned", || {
        api.get("/api/v1/poison").json()["total"] == 1
    });
    let browser = signed_in(&api);
    let page = api.ask("GET", "/poison", &browser, "").body;
    assert!(
        !page.contains("action=\"poison/discard\""),
        "the list must only link to the confirmation"
    );
    let link = page
        .split("href=\"poison/confirm?what=discard")
        .nth(2)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .replace("&amp;", "&");
    let question = api
        .ask(
            "GET",
            &format!("/poison/confirm?what=discard{link}"),
            &browser,
            "",
        )
        .body;
    says(
        &question,
        &[
            "This cannot be undone",
            "<button class=\"danger\">Discard</button>",
            ">Cancel</a>",
        ],
    );
    assert_eq!(api.get("/api/v1/poison").json()["total"], 1);
    assert_eq!(
        api.ask(
            "POST",
            "/poison/discard",
            &browser,
            "queue=jobs&reason=&id=&all=true"
        )
        .status,
        303
    );
    assert_eq!(api.get("/api/v1/poison").json()["total"], 0);
}

#[test]
fn what_is_poisoned_after_the_question_is_not_discarded() {
    let api = Api::start();
    api.place.put("jobs", "no job at all");
    until("it is poisoned", || {
        api.get("/api/v1/poison").json()["total"] == 1
    });
    let browser = signed_in(&api);
    let form = "queue=jobs&reason=&table=&key=&view=&text=job&cause=&since=1h&before=";
    assert_eq!(
        api.get(&format!("/poison?{form}"))
            .body
            .matches("<li class=\"card")
            .count(),
        1,
        "the list must contain only what the form selects"
    );
    let question = api
        .ask(
            "GET",
            "/poison/confirm?what=discard&queue=jobs&reason=",
            &browser,
            "",
        )
        .body;
    let asked = question
        .split("name=\"until\" value=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    api.place.put("jobs", "no job either");
    until("another is poisoned", || {
        api.get("/api/v1/poison").json()["total"] == 2
    });
    let done = api.ask(
        "POST",
        "/poison/discard",
        &browser,
        &format!("queue=jobs&reason=&all=true&until={asked}"),
    );
    says(
        &done.head,
        &["location: ../poison?discarded=1&failed=0&came=1"],
    );
    let page = api
        .ask("GET", "/poison?discarded=1&failed=0&came=1", &browser, "")
        .body;
    says(
        &page,
        &[
            "1 matching messages arrived after you opened the confirmation",
            "no job either",
        ],
    );
    let named = api.ask(
        "POST",
        "/poison/discard",
        &browser,
        "queue=jobs&reason=&id=nobody&until=",
    );
    says(
        &named.head,
        &["location: ../poison?discarded=0&failed=0&absent=1"],
    );
}

#[test]
fn an_entity_is_reconciled_from_its_page() {
    let api = Api::start();
    let browser = signed_in(&api);
    let done = api.ask(
        "POST",
        "/entity/reconcile",
        &browser,
        "table=employees&pk=a%2Fb&rk=",
    );
    assert_eq!(done.status, 400, "a slash is no key");
    let done = api.ask(
        "POST",
        "/entity/reconcile",
        &browser,
        "table=employees&pk=%ED%95%9C%26x&rk=",
    );
    says(
        &done.head,
        &[
            "303",
            "location: ../entity?table=employees&pk=%ED%95%9C%26x&rk=&queued=",
        ],
    );
    until("it was done", || {
        api.get("/api/v1/jobs?key=%ED%95%9C&outcome=done")
            .body
            .contains("sync")
    });
}

#[test]
fn the_first_page_is_updated_by_events() {
    let api = Api::start();
    let mut stream = TcpStream::connect(&api.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    write!(
        stream,
        "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n",
        api.address
    )
    .unwrap();
    api.place.put("jobs", "no job at all");
    let lines = BufReader::new(stream).lines().map(Result::unwrap);
    let told = lines
        .filter(|line| line.starts_with("data: "))
        .take(30)
        .find(|line| line.contains("1 poisoned message"));
    let told: serde_json::Value =
        serde_json::from_str(told.unwrap().trim_start_matches("data: ")).unwrap();
    says(
        told["parts"]["headline"].as_str().unwrap(),
        &["<div class=\"headline warn\"><h1>1 poisoned message</h1>"],
    );
}
