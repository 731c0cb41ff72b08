use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{EdmDateTime, EdmValue, Entity, EntityKey};

fn employee() -> Entity {
    Entity::new(EntityKey::new("Sales", "000123").unwrap())
        .with("Email", " Kim@Contoso.com ")
        .with("LastName", "O'Brien/Kim")
        .with("Number", 42)
        .with("Big", 9_000_000_000_i64)
        .with("Negative", -1)
        .with("Manager", true)
        .with("Salary", 5.5)
        .with("Photo", EdmValue::Binary(vec![1]))
        .with("Id", EdmValue::Guid(Uuid::from_u128(0xABC)))
        .with("Hired", EdmDateTime::parse("2026-11-20T15:04:05Z").unwrap())
        .with(
            "Left",
            EdmDateTime::parse("9999-12-31T23:59:59.9999999Z").unwrap(),
        )
        .with("HiredText", "2026-11-20T15:04:05Z")
        .with("NaN", f64::NAN)
        .with("Blank", "   ")
        .with("Empty", "")
}

fn render(template: &str) -> Option<String> {
    Template::parse(template)
        .unwrap()
        .render(&employee())
        .unwrap()
        .map(String::from)
}

fn refused(template: &str) -> String {
    Template::parse(template)
        .unwrap()
        .render(&employee())
        .unwrap_err()
        .to_string()
}

#[test]
fn literals_and_properties_are_joined() {
    assert_eq!(
        render("email_{PartitionKey}").as_deref(),
        Some("email_Sales")
    );
    assert_eq!(
        render("{PartitionKey}-{RowKey}").as_deref(),
        Some("Sales-000123")
    );
    assert_eq!(render("{{{RowKey}}}").as_deref(), Some("{000123}"));
    assert_eq!(render("department").as_deref(), Some("department"));
    assert_eq!(render("").as_deref(), Some(""));
}

#[test]
fn every_filter_does_what_its_name_says() {
    for (template, key) in [
        ("{Email|trim|lower}", "kim@contoso.com"),
        ("{Email|trim|upper}", "KIM@CONTOSO.COM"),
        ("{Number|pad:8}", "00000042"),
        ("{Big|pad:10}", "9000000000"),
        ("{RowKey|pad:8}", "00000123"),
        ("{Number|sortable}", "c045000000000000000"),
        ("{Negative|sortable}", "400fffffffffffff000"),
        ("{Salary|sortable}", "c016000000000000000"),
        ("{RowKey|sortable}", "c05ec00000000000000"),
        ("{Hired|inverted_ticks}", "2516071137549999999"),
        ("{HiredText|inverted_ticks}", "2516071137549999999"),
        ("{Left|inverted_ticks}", "0000000000000000000"),
        ("{Hired|date:%Y%m%d}", "20261120"),
        ("{Hired|date:%S%Y%m%d}", "0520261120"),
        ("{Hired|date:%H:%M}", "15:04"),
        ("{Hired|date:%D}", "11%2F20%2F26"),
        ("{Left|date:%Y%m%d}", "99991231"),
        ("{PartitionKey|hash:3}", &hash("Sales")[..3]),
        ("{PartitionKey|hash:64}", &hash("Sales")),
        ("{LastName|slug}", "o-brien-kim"),
    ] {
        assert_eq!(render(template).as_deref(), Some(key), "{template}");
    }
}

fn hash(text: &str) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(text))
}

#[test]
fn a_bucket_is_the_hash_modulo_its_count_in_even_digits() {
    let number = u32::from_str_radix(&hash("Sales")[..8], 16).unwrap();
    assert_eq!(
        render("{PartitionKey|bucket:16}"),
        Some(format!("{:02}", number % 16))
    );
    assert_eq!(
        render("{PartitionKey|bucket:10}"),
        Some(format!("{}", number % 10))
    );
    assert_eq!(render("{PartitionKey|bucket:1}").as_deref(), Some("0"));
    assert_eq!(
        KeyFilter::Bucket(11)
            .buckets()
            .unwrap()
            .last()
            .map(String::as_str),
        Some("10")
    );
}

#[test]
fn every_type_with_one_text_renders_as_it() {
    for (template, key) in [
        ("{Number}", "42"),
        ("{Negative}", "-1"),
        ("{Big}", "9000000000"),
        ("{Manager}", "true"),
        ("{Id}", "00000000-0000-0000-0000-000000000abc"),
        ("{Hired}", "2026-11-20T15:04:05.0000000Z"),
        ("{Left}", "9999-12-31T23:59:59.9999999Z"),
    ] {
        assert_eq!(render(template).as_deref(), Some(key), "{template}");
    }
}

#[test]
fn a_missing_or_empty_property_means_no_item() {
    for template in [
        "{Nickname}",
        "x_{Empty}",
        "{Empty|hash:3}",
        "{Blank|trim}",
        "{Blank|trim|bucket:16}",
        "{Blank|slug}",
        "{Nickname|pad:3}",
    ] {
        assert_eq!(render(template), None, "{template}");
    }
}

#[test]
fn an_empty_key_is_a_value() {
    let nameless = Entity::new(EntityKey::new("alice", "").unwrap());
    let render = |template: &str| {
        Template::parse(template)
            .unwrap()
            .render(&nameless)
            .unwrap()
            .map(String::from)
    };
    for (template, key) in [
        ("{RowKey}", ""),
        ("{PartitionKey}_{RowKey}", "alice_"),
        ("{RowKey|lower}x", "x"),
        ("{RowKey|bucket:1}", "0"),
    ] {
        assert_eq!(render(template).as_deref(), Some(key), "{template}");
    }
    assert_eq!(
        Template::parse("{RowKey}")
            .unwrap()
            .render_text(&nameless)
            .unwrap()
            .as_deref(),
        Some("")
    );
    // A key that is empty after its filters gives no item, like any other property.
    assert_eq!(render("{PartitionKey|after:-}"), None);
}

#[test]
fn values_are_escaped_and_literals_are_not() {
    assert_eq!(render("%{LastName}").as_deref(), Some("%O'Brien%2FKim"));
}

#[test]
fn an_invalid_key_is_a_permanent_error_that_names_template_and_property() {
    for (template, words) in [
        ("{Salary}", ["Salary", "Edm.Double"]),
        ("{Salary|hash:3}", ["Salary", "Edm.Double"]),
        ("{Photo|lower}", ["Photo", "Edm.Binary"]),
        ("{Negative|pad:8}", ["Negative", "negative"]),
        ("{Big|pad:9}", ["Big", "9 digits"]),
        ("{LastName|pad:9}", ["LastName", "expects a number"]),
        ("{Manager|pad:9}", ["Manager", "Edm.Boolean"]),
        ("{Manager|sortable}", ["Manager", "Edm.Boolean"]),
        ("{LastName|sortable}", ["LastName", "sortable expects"]),
        ("{NaN|sortable}", ["NaN", "cannot be sorted"]),
        ("{LastName|date:%Y}", ["LastName", "2026-11-20T15:00:00Z"]),
        ("{Number|inverted_ticks}", ["Number", "Edm.DateTime"]),
    ] {
        let error = refused(template);
        assert!(
            error.contains(template) && words.iter().all(|word| error.contains(word)),
            "{error}"
        );
    }
}

#[test]
fn a_key_over_the_limit_is_an_error_and_not_cut_off() {
    let template = Template::parse("{Long}").unwrap();
    assert!(
        template
            .render(&employee().with("Long", "x".repeat(512)))
            .unwrap()
            .is_some()
    );
    assert!(
        template
            .render(&employee().with("Long", "x".repeat(513)))
            .unwrap_err()
            .to_string()
            .contains("513")
    );
}

#[test]
fn errors_show_their_place() {
    for (template, message) in [
        (
            "{Email|lowr}",
            "unknown filter \"lowr\"; did you mean \"lower\"?\n  {Email|lowr}\n         ^^^^",
        ),
        (
            "{Email|sha}",
            "unknown filter \"sha\"; known are lower, upper, trim, nfc, pad, sortable, inverted_ticks, date, hash, bucket, slug, after, before, after_last, before_last, each\n  {Email|sha}\n         ^^^",
        ),
        (
            "{Number|pad}",
            "pad requires a number from 1 to 20, such as pad:8\n  {Number|pad}\n          ^^^",
        ),
        (
            "{Number|pad:99}",
            "pad requires a number from 1 to 20, such as pad:8\n  {Number|pad:99}\n              ^^",
        ),
        (
            "{Email|lower:5}",
            "lower takes no argument\n  {Email|lower:5}\n               ^",
        ),
        (
            "{Timestamp}",
            "Timestamp cannot be used in keys, because every write changes it, also evenkeel's own\n  {Timestamp}\n   ^^^^^^^^^",
        ),
        (
            "{}",
            "expected a property name, such as {Email}\n  {}\n   ^",
        ),
        (
            "a/b",
            "Azure Table storage forbids '/' in keys\n  a/b\n   ^",
        ),
        (
            "a}",
            "this '}' has no matching '{'; write }} for a literal brace\n  a}\n   ^",
        ),
        (
            "a{b",
            "this '{' is not closed; write {{ for a literal brace\n  a{b\n   ^^",
        ),
        (
            "{a{b}",
            "'{' inside a field; close the field with '}' first\n  {a{b}\n    ^",
        ),
    ] {
        assert_eq!(Template::parse(template).unwrap_err().to_string(), message);
    }
    assert!(
        Template::parse("{Hired|date:%!}")
            .unwrap_err()
            .message
            .starts_with("date requires a strftime format")
    );
    assert!(
        Template::parse("{E-mail}")
            .unwrap_err()
            .message
            .contains("\"E-mail\" is not a property name")
    );
    assert!(
        Template::parse(&"x".repeat(513))
            .unwrap_err()
            .message
            .contains("513")
    );
    assert!(Template::parse(&"x".repeat(5_000)).is_err());
    assert!(
        Template::parse(&format!("{{A{}}}", "|lower".repeat(9)))
            .unwrap_err()
            .message
            .contains("at most 8")
    );
}

#[test]
fn a_key_covers_properties_that_can_be_cut_out_of_it_unchanged() {
    let covers =
        |template: &str, property: &str| Template::parse(template).unwrap().covers(&[property]);
    for template in [
        "{RowKey}",
        "x_{RowKey}_y",
        "{Number|pad:8}_{RowKey}",
        "{Name|bucket:16}{RowKey}",
        "{Name|slug}_{RowKey}",
        "{RowKey}{Hired|inverted_ticks}",
        "{RowKey|hash:64}",
    ] {
        assert!(covers(template, "RowKey"), "{template}");
    }
    for template in [
        "",
        "{PartitionKey}",
        "{RowKey|lower}",
        "{RowKey|hash:8}",
        "{RowKey|pad:8}",
        "{LastName}_{RowKey}",
        "{Name|slug}-{RowKey}",
        "{RowKey}_{LastName}",
        "{Name|slug}%{RowKey|trim}",
        "{RowKey|nfc}",
        "{RowKey|before:_}",
        "{RowKey|before:_}-{RowKey|after:_}",
        "{RowKey|before:A}A{RowKey|after:A}",
        "{RowKey|before:_}_{RowKey|after_last:_}",
        "{RowKey|before:_}_{RowKey|after:_}",
        "{RowKey|before_last:.|hash:64}{RowKey|after_last:.}",
    ] {
        assert!(!covers(template, "RowKey"), "{template}");
    }
    assert!(Template::parse("{Name|slug}_{RowKey}").unwrap().covers(&[]));
    assert!(
        !Template::parse("{PartitionKey}_{RowKey}")
            .unwrap()
            .covers(&["PartitionKey", "RowKey"])
    );
}

#[test]
fn many_fields_of_one_property_are_checked_quickly() {
    let field = format!("{{X{}|hash:63}}", "|hash:64".repeat(7));
    let many = Template::parse(&field.repeat(25)).unwrap();
    assert!(!keys_determine(&[&many], "X", Distinction::Texts, None));
}

#[test]
fn two_keys_determine_a_text_by_its_parts_or_by_a_known_prefix() {
    let determine = |keys: [&str; 2], apart: Distinction, beginning: Option<&str>| {
        let keys = keys.map(|key| Template::parse_key_of_event(key).unwrap());
        keys_determine(&[&keys[0], &keys[1]], "subject", apart, beginning)
    };
    let begins = Some("/blobServices/default/containers/portraits/blobs/");
    for (keys, apart, beginning, expected) in [
        (
            ["{subject|before:/}", "{subject|after:/}"],
            Distinction::Texts,
            None,
            true,
        ),
        (
            ["{subject|after_last:.}", "{subject|before_last:.}"],
            Distinction::Texts,
            None,
            true,
        ),
        (
            ["{subject|before:/}", "{subject|after_last:/}"],
            Distinction::Texts,
            None,
            false,
        ),
        (
            [
                "{subject|before:/}",
                "{subject|after:/|after:/|hash:64}{subject|after:/|before:/}",
            ],
            Distinction::Texts,
            None,
            true,
        ),
        (
            ["p", "{subject|after:/blobs/}"],
            Distinction::Texts,
            begins,
            true,
        ),
        (
            ["p", "{subject|after:/blobs/}"],
            Distinction::Texts,
            None,
            false,
        ),
        (
            ["p", "{subject|after:/blobs/}"],
            Distinction::Texts,
            Some("/blobServices/default/containers/portraits/"),
            false,
        ),
        (
            [
                "{subject|after:/blobs/|before:/}",
                "{subject|after:/blobs/|after:/}",
            ],
            Distinction::Texts,
            begins,
            true,
        ),
        (
            [
                "{subject|after:/blobs/|before:/}",
                "{subject|after:/blobs/|after:/|before:.}",
            ],
            Distinction::Texts,
            begins,
            false,
        ),
        (
            ["p", "{subject|after:/|after:/|after:/|after:/|after:/}"],
            Distinction::Texts,
            begins,
            true,
        ),
        (
            ["p", "{subject|trim|lower|nfc}"],
            Distinction::Texts,
            None,
            false,
        ),
        (
            ["p", "{subject|trim|lower|nfc}"],
            Distinction::Spellings,
            None,
            true,
        ),
        (
            [
                "{subject|lower|after:@}",
                "{subject|lower|before:@|hash:64}",
            ],
            Distinction::Spellings,
            None,
            true,
        ),
        (
            ["{subject|after:@}", "{subject|lower|before:@}"],
            Distinction::Spellings,
            None,
            false,
        ),
        (["p", "{subject|slug}"], Distinction::Spellings, None, false),
        (["p", "{subject}_{id}"], Distinction::Spellings, None, false),
        (["{id}", "{subject}"], Distinction::Texts, None, true),
    ] {
        assert_eq!(
            determine(keys, apart, beginning),
            expected,
            "{keys:?} {apart:?} {beginning:?}"
        );
    }
}

#[test]
fn texts_are_cut_at_the_first_or_last_occurrence_and_composed() {
    for (template, text, expected) in [
        ("{X|before_last:.}", "john.smith.png", Some("john.smith")),
        ("{X|after_last:.}", "john.smith.png", Some("png")),
        ("{X|before:.}", "john.smith.png", Some("john")),
        ("{X|before_last:.}", "john", None),
        ("{X|after_last:.}", "john.", None),
        ("{X|trim|lower|nfc}", " Ju\u{308}RGEN ", Some("j\u{fc}rgen")),
        ("{X|nfc}", "\u{1100}\u{1161}\u{11a8}", Some("\u{ac01}")),
        ("{X|lower|nfc}", "J\u{30c}", Some("\u{1f0}")),
    ] {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap()).with("X", text);
        let key = Template::parse(template).unwrap().render(&entity).unwrap();
        assert_eq!(
            key.as_ref().map(crate::Key::as_str),
            expected,
            "{template} {text}"
        );
    }
    assert!(
        Template::parse("{X|before_last}")
            .unwrap_err()
            .to_string()
            .contains("before_last requires a text, such as before_last:.")
    );
}

#[test]
fn the_text_comes_back_and_the_properties_are_known() {
    let template = Template::parse("{{x}}_{PartitionKey}_{Email|lower|hash:3}").unwrap();
    assert_eq!(
        template.to_string(),
        "{{x}}_{PartitionKey}_{Email|lower|hash:3}"
    );
    assert_eq!(
        template.properties().into_iter().collect::<Vec<_>>(),
        ["Email", "PartitionKey"]
    );
    assert_eq!(template.parts().len(), 4);
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Template::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn text_that_looks_like_a_template_never_panics(text in r"[a-z{}|:%0-9é/]{0,24}") {
        match Template::parse(&text) {
            Err(error) => prop_assert!(error.to_string().contains('^')),
            Ok(template) => {
                let _ = template.render(&employee()).map_err(|error| error.to_string());
                prop_assert_eq!(template.to_string(), text);
            }
        }
    }

    #[test]
    fn any_date_format_writes_any_moment_or_says_why(format in "(%[-_0^#]?[0-9]{0,3}:{0,3}[A-Za-z%])([ -z]{0,3})", ticks in 504_911_232_000_000_000_i64..=3_155_378_975_999_999_999) {
        let moment = EdmDateTime::from_ticks(ticks).unwrap();
        if let Ok(template) = Template::parse(&format!("{{Hired|date:{format}}}")) {
            let _ = template.render(&employee().with("Hired", moment)).map_err(|error| error.to_string());
        }
    }

    #[test]
    fn a_template_that_covers_a_key_differs_for_different_keys(a in "[a-c_/%-]{1,3}", b in "[a-c_/%-]{1,3}", x in "[a-c_/%-]{1,3}", y in "[a-c_/%-]{1,3}", pick in 0..8_usize) {
        let template = Template::parse(["{N}_{RowKey}", "{N|slug}_{RowKey}", "{N|slug}-{RowKey}", "{RowKey}{N|hash:2}", "{N|bucket:7}{RowKey}", "{N|slug}_{N}_{RowKey}", "{RowKey|before:_}_{RowKey|after:_}", "{RowKey|before_last:b}-{RowKey|after_last:b}"][pick]).unwrap();
        let key = |rk: &str, name: &str| template.render(&Entity::new(EntityKey::new("p", rk.replace('/', "")).unwrap()).with("N", name)).unwrap();
        if template.covers(&["RowKey"]) && a.replace('/', "") != b.replace('/', "") {
            let (left, right) = (key(&a, &x), key(&b, &y));
            prop_assert!(left.is_none() || left != right);
        }
    }
}
