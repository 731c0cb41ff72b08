//! Encrypted properties, and malicious writers of rows and messages: whose values a reader sees, and which values are
//! stored.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_model::item::{SOURCE_PROPERTY, VIEW_PROPERTY};
use evenkeel_model::{Entity, EntityKey, body};
use serde_json::{Value, json};

use crate::end_to_end::encryption::{CATALOG, declare, declare_text, put, stored};
use crate::end_to_end::site::Site;

/// The beginning of every plain value. It occurs in nothing else.
const MARK: &str = "987-65";

fn entity(pk: &str, rk: &str) -> Entity {
    Entity::new(EntityKey::new(pk, rk).unwrap())
}

/// Somebody who can write rows, but has no key, must not make a reader see the value of another entity, or a plain
/// value, as the value of this row.
#[test]
fn values_are_shown_as_those_of_the_row_that_is_asked_for_whatever_it_says() {
    let site = Site::embedded("");
    declare(&site, "first");
    site.migrate();
    site.submit(&[put("1"), put("2")]);
    assert_eq!(site.run_until_idle(&[]).done, 2);
    let victim = site.row("Employees", "Sales", "1").unwrap().entity;
    let mallory = site.row("Employees", "Sales", "2").unwrap().entity;
    let said = r#"["Employees","Sales","1"]"#;
    let stolen = |row: Entity, view: Option<&str>| {
        let row = row
            .with("Email", "mallory@contoso.com")
            .with("Ssn", victim.text("Ssn").unwrap())
            .with(SOURCE_PROPERTY, said);
        match view {
            Some(view) => row.with(VIEW_PROPERTY, view),
            None => row,
        }
    };
    let copy = || entity("email_Sales", "mallory@contoso.com");
    for (table, row) in [
        ("Employees", stolen(mallory.clone(), None)),
        ("Employees", stolen(mallory.clone(), Some("none"))),
        ("Employees", stolen(mallory.clone(), Some("by_email"))),
        ("Employees", stolen(mallory.clone(), Some("beside"))),
        (
            "Employees",
            stolen(entity("Sales", "email_mallory@contoso.com"), Some("beside")),
        ),
        ("EmployeesByEmail", stolen(copy(), Some("by_email"))),
        ("EmployeesByEmail", stolen(copy(), Some("beside"))),
        ("EmployeesByEmail", stolen(copy(), None)),
        ("FormerEmployees", stolen(entity("Sales", "9"), None)),
        (
            "FormerEmployees",
            stolen(entity("Sales", "9"), Some("by_email")),
        ),
    ] {
        site.write(table, std::slice::from_ref(&row));
        let (pk, rk) = (row.key.pk.as_str(), row.key.rk.as_str());
        let mut shown = vec![site.command(&["get", table, pk, rk, "--resolve"])];
        shown.push(site.command(&["get", table, pk, rk, "--property", "Ssn", "--out", "-"]));
        shown.push(site.command(&[
            "lookup",
            "by_email",
            "PartitionKey=Sales",
            "Email=mallory@contoso.com",
            "--decrypt",
        ]));
        shown.push(site.command(&[
            "lookup",
            "--table",
            table,
            &format!("PartitionKey={pk}"),
            &format!("RowKey={rk}"),
            "--decrypt",
        ]));
        shown.push(site.command(&["find", "former", "Sales", "9", "--decrypt"]));
        for ended in shown {
            assert!(
                !ended.out.contains("canary 1"),
                "{table} {row:?}: {}",
                ended.out
            );
        }
    }
    // The worker does not decrypt the stolen value either.
    let archived = stolen(entity("Sales", "9"), None);
    site.write("FormerEmployees", std::slice::from_ref(&archived));
    site.write("Employees", &[stolen(entity("Sales", "8"), None)]);
    let away = |table: &str, rk: &str, to: &str| {
        json!({"op": "move", "table": table, "pk": "Sales", "rk": rk, "to_table": "Employees", "to_pk": "Sales", "to_rk": to}).to_string()
    };
    let texts = [
        away("FormerEmployees", "9", "10"),
        away("Employees", "8", "11"),
    ];
    site.put_texts(texts.iter().map(String::as_str));
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (0, 2));
    assert!(
        ["10", "11"]
            .iter()
            .all(|rk| site.row("Employees", "Sales", rk).is_none())
    );

    // The forger writes a plain value in place of an encrypted one.
    let plain = |row: &Entity| row.clone().with("Ssn", "forged");
    let of_primary = site
        .row("EmployeesByEmail", "email_Sales", "1@contoso.com")
        .unwrap()
        .entity;
    for (table, row) in [
        ("Employees", plain(&mallory)),
        ("EmployeesByEmail", plain(&of_primary)),
        (
            "EmployeesByEmail",
            plain(&entity("email_Sales", "1@contoso.com")),
        ),
        ("FormerEmployees", plain(&entity("Sales", "9"))),
    ] {
        site.write(table, std::slice::from_ref(&row));
        let get = [
            "get",
            table,
            row.key.pk.as_str(),
            row.key.rk.as_str(),
            "--resolve",
        ];
        let refused = site.command(&get);
        assert!(
            refused.code == 1
                && refused.err.contains("is stored in plain text")
                && !refused.out.contains("forged"),
            "{table}: {}",
            refused.err
        );
        let allowed = site.command(&[&get[..], &["--allow-plain"]].concat());
        assert!(
            allowed.code == 0 && allowed.out.contains("forged"),
            "{table}: {}",
            allowed.err
        );
    }
    site.write("EmployeesByEmail", &[plain(&of_primary)]);
    let lookup = [
        "lookup",
        "by_email",
        "PartitionKey=Sales",
        "Email=1@contoso.com",
        "--select",
        "Ssn",
        "--decrypt",
    ];
    assert_eq!(site.command(&lookup).code, 1);
    assert!(
        site.command(&[&lookup[..], &["--allow-plain"]].concat())
            .out
            .contains("forged")
    );
}

/// The values were written in plain text, before `encrypt` was added to the table.
#[test]
fn what_is_older_than_encrypt_is_read_where_that_is_allowed_until_it_is_encrypted() {
    let site = Site::embedded("");
    let later = CATALOG.replace("CURRENT", "first");
    let before = later.replace(
        "encrypt = [\"Ssn\", \"Salary\"]\nhash = { SsnHash = \"{Ssn|trim|lower}\" }\n",
        "",
    );
    declare_text(&site, &before);
    site.migrate();
    site.submit(&[put("1"), put("2"), json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "3"}})]);
    assert_eq!(site.run_until_idle(&[]).done, 3);
    declare_text(&site, &later);
    site.migrate();
    let get = ["--json", "get", "Employees", "Sales", "1", "--resolve"];
    assert!(site.command(&get).err.contains("evenkeel keys encrypt"));
    let allowed = site.command(&[&get[..], &["--allow-plain"]].concat());
    assert!(allowed.out.contains("canary 1"), "{}", allowed.err);
    let encrypted = || -> Value {
        let ended = site.command(&["--json", "keys", "encrypt", "employees"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        serde_json::from_str(&ended.out).unwrap()
    };
    // The table also contains copies, which do not count as entities.
    assert_eq!(
        encrypted(),
        json!({"entities": 3, "plain": 2, "in_blobs": 0})
    );
    assert_eq!(site.run_until_idle(&[]).done, 2);
    assert_eq!(encrypted()["plain"], 0);
    let all = stored(&site);
    assert!(!all.contains("canary"), "{all}");
    let own: Value = serde_json::from_str(&site.command(&get).out).unwrap();
    assert_eq!(
        (own["Ssn"].as_str(), own["Salary"].as_i64()),
        (Some("canary 1"), Some(75_000))
    );
    let found = site.command(&["--json", "lookup", "by_ssn", "Ssn=canary 2"]);
    assert!(
        found.out.contains("2@contoso.com"),
        "{} {}",
        found.out,
        found.err
    );
    assert_eq!(site.command(&["audit"]).code, 0);
}

fn gzip(content: &[u8]) -> String {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    BASE64.encode(encoder.finish().unwrap())
}

/// Invalid messages with a plain value. None of them can be run.
fn malformed() -> Vec<String> {
    let employee = json!({"PartitionKey": "Sales", "RowKey": "1", "Ssn": format!("{MARK}-1")});
    let put = json!({"op": "put", "table": "Employees", "entity": employee});
    let with = |field: &str, value: Value| {
        let mut job = put.clone();
        job[field] = value;
        job.to_string()
    };
    let text = put.to_string();
    let cut = &text[..text.len() - 1];
    let event = |data: Value| {
        json!({"specversion": "1.0", "id": "1", "source": "s", "type": "Fired", "data": data})
            .to_string()
    };
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut mistyped = employee.clone();
    mistyped["Ssn@odata.type"] = json!("Edm.Int64");
    let encoded = [
        json!([put]).to_string(),
        json!([employee]).to_string(),
        cut.to_owned(),
        format!("\u{feff}{cut}"),
        format!("{{\"op\":\"put\",{}", &text[1..]),
        with("entity", json!(employee.to_string())),
        with("entity", json!(BASE64.encode(employee.to_string()))),
        with("entity", json!([employee])),
        with("entity", mistyped),
        with("entity", json!({"PartitionKey": "Sales", "Ssn": format!("{MARK}-1")})),
        json!({"op": "put", "table": "Employees", "Ssn": format!("{MARK}-1"), "entity": {"PartitionKey": "Sales"}}).to_string(),
        with("mode", json!(format!("{MARK}-1"))),
        with("mode", json!(["merge", format!("{MARK}-1")])),
        with("if_absent", json!(format!("{MARK}-1, expected \"x\""))),
        with("v", json!(format!("{MARK}-1"))),
        with("op", json!({"Ssn": format!("{MARK}-1")})),
        with("table", json!({"Ssn": format!("{MARK}-1")})),
        json!({"op": "put", "table": "Employees", "entities": [employee.to_string()]}).to_string(),
        json!({"op": "sync", "table": "Employees", "keys": [["Sales", "1", format!("{MARK}-1")]]}).to_string(),
        json!({"op": "put", "table": "Employees", "entity_ref": {"blob": "evenkeel-staging/x", "Ssn": format!("{MARK}-1")}, "pk": "p", "rk": "r"})
            .to_string(),
        event(json!(employee.to_string())),
        event(employee.clone()),
        json!({"specversion": "1.0", "id": "1", "source": "s", "type": "Fired", "data_base64": BASE64.encode(employee.to_string())})
            .to_string(),
        text.replace(&format!("\"{MARK}-1\""), "98765000000000000000000001").replace("Ssn", "Salary"),
        text.replace("Ssn", "S\\u0073n").trim_end_matches('}').to_owned(),
    ];
    let plain = [
        json!([{"Ssn": format!("{MARK}-1")}]).to_string(),
        format!("Ssn: {MARK}-1"),
        cut.replace("Ssn", "S\\u0073n"),
        gzip(cut.as_bytes()),
        gzip(json!([put]).to_string().as_bytes()),
        BASE64.encode(utf16),
        BASE64.encode(BASE64.encode(&text)),
        with("table", json!("No such table")),
    ];
    encoded
        .iter()
        .map(|text| BASE64.encode(text))
        .chain(plain)
        .collect()
}

fn readable(text: &str, depth: u32, all: &mut String) {
    all.push_str(text);
    all.push('\n');
    let is_encoded = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
    for part in text
        .split(|c| !is_encoded(c))
        .filter(|part| depth > 0 && part.len() >= 8)
    {
        if let Ok(decoded) = body::decode(part) {
            readable(&decoded.text, depth - 1, all);
        }
        if let Ok(bytes) = BASE64.decode(part) {
            let units = bytes
                .chunks_exact(2)
                .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            let wide: String = char::decode_utf16(units)
                .map(|unit| unit.unwrap_or(' '))
                .collect();
            readable(&wide, depth - 1, all);
            readable(&String::from_utf8_lossy(&bytes), depth - 1, all);
        }
    }
}

/// If a message is invalid, no part of the encrypted properties in it is stored or reported.
#[test]
fn no_message_that_is_wrong_in_some_way_leaves_a_plain_value_anywhere() {
    let site = Site::embedded("");
    declare(&site, "first");
    site.migrate();
    let messages = malformed();
    let mut told = String::new();
    for message in &messages {
        readable(message, 3, &mut told);
        let told = std::mem::take(&mut told);
        assert!(
            told.contains(MARK) || told.contains("98765"),
            "the search must find the stored value: {message}"
        );
    }
    for some in messages.chunks(12) {
        site.put_texts(some.iter().map(String::as_str));
        let ended = site.command(&["--json", "-vv", "run", "--until-idle=1", "--no-http"]);
        let summary: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(
            summary["poisoned"],
            some.len(),
            "{} {}",
            ended.out,
            ended.err
        );
        let listed = site.command(&["--json", "poison", "list"]).out;
        for text in [ended.err, stored(&site), listed] {
            readable(&text, 4, &mut told);
        }
        for mark in [MARK, "98765"] {
            let at = told.find(mark).map(|at| {
                told[told.floor_char_boundary(at.saturating_sub(900))..]
                    .chars()
                    .take(1_200)
                    .collect::<String>()
            });
            assert_eq!(at, None);
        }
        told.clear();
        assert_eq!(
            site.command(&["poison", "discard", "--all", "--yes"]).code,
            0
        );
    }
}
