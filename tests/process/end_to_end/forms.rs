//! All forms that a message can have.

use serde_json::{Value, json};

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::sdk::{node_with, python_with};
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::end_to_end::worker::wait_until;

/// Keys that XML, URLs or OData must escape, and keys in scripts other than Latin.
const KEYS: [(&str, &str); 5] = [
    ("R&D <a> \"b\"", "it's ]]> &amp; %41"),
    ("부서 한국", "직원 😀"),
    ("a+b c", "x=y;z,w"),
    ("(Sales)", "R'K''"),
    ("é è", "\u{10ffff}~"),
];

#[test]
fn plain_base64_and_compressed_messages_of_both_sdks_go_to_the_right_row_whatever_their_keys() {
    let site = Site::azurite(EMPLOYEES);
    let mut expected = Vec::new();
    for sdk in ["python", "node"] {
        for encoding in ["plain", "base64", "gzip"] {
            let lines: Vec<String> = KEYS
                .iter()
                .enumerate()
                .map(|(number, (pk, rk))| {
                    let rk = format!("{rk} {sdk} {encoding}");
                    let email = format!("{sdk}.{encoding}.{number}@contoso.com");
                    let entity = json!({"PartitionKey": pk, "RowKey": rk, "FirstName": "<&>\"'한 😀", "Email": email});
                    expected.push(((*pk).to_owned(), rk));
                    json!({"op": "put", "table": "Employees", "entity": entity}).to_string()
                })
                .collect();
            let (lines, arguments) = (lines.join("\n"), ["--queue", QUEUE, "--encoding", encoding]);
            match sdk {
                "python" => python_with(site.ports(), "enqueue_lines.py", &arguments, &lines),
                _ => node_with(site.ports(), "enqueue_lines.mjs", &arguments, &lines),
            };
        }
    }
    assert_eq!(site.run_until_idle(&[]).done, expected.len() as u64);
    site.assert_all_done();
    let rows = site.rows("Employees");
    expected.sort();
    assert_eq!(rows.keys().cloned().collect::<Vec<_>>(), expected);
    assert!(
        rows.values()
            .all(|row| row.entity.text("FirstName") == Some("<&>\"'한 😀"))
    );
    assert_index_complete(&site);
}

fn good(number: u32) -> String {
    format!(
        "{}\n",
        json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": number.to_string()}})
    )
}

fn among_good_ones(others: &[&str]) -> String {
    let other = |number: u32| {
        others
            .get(number as usize / 10)
            .filter(|_| number % 10 == 5)
            .unwrap_or(&"")
    };
    (0..40).map(|number| good(number) + other(number)).collect()
}

#[test]
fn an_unreadable_message_among_good_ones_ends_in_poison_and_does_not_hold_them_back() {
    let site = Site::azurite(EMPLOYEES);
    let input = among_good_ones(&[
        "<job>&nothing;</job>\n",
        "<![CDATA[ {} ]]>\n",
        "]]>\n",
        "\u{fffd}😀\n",
    ]);
    python_with(
        site.ports(),
        "enqueue_lines.py",
        &["--queue", QUEUE],
        &input,
    );
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (40, 4));
    assert_eq!(site.rows("Employees").len(), 40);
    let poison = site.poison();
    assert!(
        poison.len() == 4 && poison.iter().all(|one| one["reason"] == "undecodable"),
        "{poison:#?}"
    );
    assert!(
        poison
            .iter()
            .all(|one: &Value| !one["error"].as_str().unwrap().is_empty())
    );
}

#[test]
fn a_message_that_the_service_itself_cannot_write_down_does_not_hold_good_ones_back() {
    let site = Site::azurite(EMPLOYEES);
    // Azurite accepts these control characters, but answers every Get of the message with 500. So nobody can read or
    // delete the message until it expires.
    python_with(
        site.ports(),
        "enqueue_lines.py",
        &["--queue", QUEUE],
        &among_good_ones(&["a\u{1}b\u{1f}\n"]),
    );
    let worker = site.worker(&[]);
    wait_until("all good ones are done", || site.count(QUEUE) <= 1);
    worker.stop();
    assert_eq!(site.rows("Employees").len(), 40);
    assert!(site.poison().is_empty());
}
