use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{EdmDateTime, EdmValue, Entity, EntityKey};

fn employee() -> Entity {
    Entity::new(EntityKey::new("Sales", "000123").unwrap())
        .with("Name", "O\"Brien")
        .with("Age", 42)
        .with("Tokens", 9_007_199_254_740_993_i64)
        .with("Salary", 5.5)
        .with("Ratio", f64::NAN)
        .with("IsManager", true)
        .with("Hired", EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap())
        .with("Id", EdmValue::Guid(Uuid::from_u128(7)))
        .with("Note", "")
}

fn holds(condition: &str) -> bool {
    Condition::parse(condition).unwrap().holds(&employee())
}

#[test]
fn true_conditions_hold() {
    for condition in [
        "IsManager == true",
        "IsManager != false",
        "Age == 42",
        "Age == 42.0",
        "Age < 42.5 and Age > 41",
        "Tokens > 9007199254740992.0",
        "Salary >= 5",
        "Salary == 55e-1",
        "Name == \"O\\\"Brien\"",
        "Name >= \"O\"",
        "Name > \"O\\u{22}\"",
        "PartitionKey == \"Sales\" and RowKey < \"1\"",
        "PartitionKey in [\"HR\", \"Sales\"]",
        "Age in [1, 42.0]",
        "exists(Note) and exists(RowKey)",
        "not exists(Nickname)",
        "startsWith(Name, \"O\")",
        "startsWith(PartitionKey, \"Sal\") and startsWith(Note, \"\")",
        "Hired > datetime'2026-11-20T16:00:00+02:00'",
        "Id == guid'00000000-0000-0000-0000-000000000007'",
        "not (Age == 1 or Age == 2) and not not IsManager == true",
        "Age == 1 and Age == 2 or Age == 42",
        "Age == 42 or Age == 1 and Age == 2",
        "Age==42 and(Age>-1)",
    ] {
        assert!(holds(condition), "{condition}");
    }
}

#[test]
fn a_comparison_with_a_missing_property_or_another_type_is_false() {
    for condition in [
        "Nickname == \"x\"",
        "Nickname != \"x\"",
        "Nickname in [\"x\"]",
        "startsWith(Nickname, \"\")",
        "Age != \"42\"",
        "Age == \"42\"",
        "Name != 42",
        "IsManager == 1",
        "Hired == \"2026-11-20T15:00:00Z\"",
        "Ratio == 1.0",
        "Ratio != 1.0",
        "startsWith(Age, \"4\")",
        "exists(Nickname)",
    ] {
        assert!(!holds(condition), "{condition}");
    }
    assert!(holds("not Nickname == \"x\""));
}

#[test]
fn errors_show_their_place_and_the_expected_input() {
    for (condition, message) in [
        (
            "",
            "expected a property, exists(…), startsWith(…), \"not\" or '(', found the end\n  \n  ^",
        ),
        (
            "IsManager",
            "expected one of == != < <= > >= in, found the end\n  IsManager\n           ^",
        ),
        ("Age = 5", "write \"==\" to compare\n  Age = 5\n      ^"),
        ("Age <> 5", "write \"!=\"\n  Age <> 5\n      ^^"),
        (
            "Age == 5 && Age == 6",
            "write \"and\"\n  Age == 5 && Age == 6\n           ^^",
        ),
        ("!exists(Age)", "write \"not\"\n  !exists(Age)\n  ^"),
        (
            "Name == 'Kim'",
            "write texts in double quotes, such as \"Sales\"\n  Name == 'Kim'\n          ^",
        ),
        (
            "Name == Kim",
            "expected a value; write texts in double quotes: \"Kim\", found \"Kim\"\n  Name == Kim\n          ^^^",
        ),
        (
            "Name == \"Kim",
            "the quote is not closed\n  Name == \"Kim\n          ^^^^",
        ),
        (
            "Name == \"\\x\"",
            "unknown escape; expected \\\" \\\\ \\n \\r \\t or \\u{…}\n  Name == \"\\x\"\n           ^",
        ),
        (
            "Age == 5 AND Age == 6",
            "expected \"and\", \"or\" or the end, found \"AND\"; did you mean \"and\"?\n  Age == 5 AND Age == 6\n           ^^^",
        ),
        (
            "(Age == 5",
            "expected \"and\", \"or\" or ')', found the end\n  (Age == 5\n           ^",
        ),
        (
            "Age == 5)",
            "expected \"and\", \"or\" or the end, found ')'\n  Age == 5)\n          ^",
        ),
        (
            "exist(Age)",
            "unknown function \"exist\"; did you mean \"exists\"?\n  exist(Age)\n  ^^^^^",
        ),
        (
            "IsManager > true",
            "true, false and GUIDs can be compared only with == and !=\n  IsManager > true\n              ^^^^",
        ),
        (
            "IsManager == True",
            "expected true or false, found \"True\"\n  IsManager == True\n               ^^^^",
        ),
        (
            "Age == 99999999999999999999",
            "the integer does not fit into Edm.Int64\n  Age == 99999999999999999999\n         ^^^^^^^^^^^^^^^^^^^^",
        ),
        (
            "Age == 5x",
            "not a number such as 42, -1, 4.2 or 1.5e3\n  Age == 5x\n         ^^",
        ),
        (
            "Age in []",
            "expected a value, such as \"text\", 42, true, datetime'…' or guid'…', found ']'\n  Age in []\n          ^",
        ),
        (
            "Hired > datetime'soon'",
            "\"soon\" is not a date and time such as 2026-11-20T15:00:00Z\n  Hired > datetime'soon'\n                   ^^^^",
        ),
        (
            "Id == guid'7'",
            "not a GUID such as c9da6455-213d-42c9-9a79-3e9149a57833\n  Id == guid'7'\n             ^",
        ),
        (
            "Id == uuid'7'",
            "unknown kind of literal \"uuid\"; expected datetime'…' or guid'…'\n  Id == uuid'7'\n        ^^^^",
        ),
        (
            "startsWith(Name, 5)",
            "expected a text in double quotes\n  startsWith(Name, 5)\n                   ^",
        ),
    ] {
        assert_eq!(
            Condition::parse(condition).unwrap_err().to_string(),
            message
        );
    }
    assert!(
        Condition::parse("exists(Timestamp)")
            .unwrap_err()
            .message
            .contains("every write")
    );
}

#[test]
fn depth_and_length_are_bounded_and_long_chains_are_fine() {
    assert!(Condition::parse(&format!("{}Age == 1{}", "(".repeat(64), ")".repeat(64))).is_ok());
    assert!(
        Condition::parse(&format!("{}Age == 1", "not ".repeat(65)))
            .unwrap_err()
            .message
            .contains("64")
    );
    assert!(
        Condition::parse(&"(".repeat(8_000))
            .unwrap_err()
            .message
            .contains("64")
    );
    assert!(
        Condition::parse(&"x".repeat(9_000))
            .unwrap_err()
            .message
            .contains("8192")
    );
    assert!(holds(&format!("Age == 42{}", " and Age == 42".repeat(500))));
}

#[test]
fn the_text_comes_back_and_the_properties_are_known() {
    let condition =
        Condition::parse("exists(B) and (A == 1 or not startsWith(RowKey, \"x\"))").unwrap();
    assert_eq!(
        condition.to_string(),
        "exists(B) and (A == 1 or not startsWith(RowKey, \"x\"))"
    );
    assert_eq!(
        condition.properties().into_iter().collect::<Vec<_>>(),
        ["A", "B", "RowKey"]
    );
}

fn text_literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        let _ = Condition::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn text_that_looks_like_a_condition_never_panics(words in proptest::collection::vec(
        prop_oneof![
            Just("Age"), Just("=="), Just("<="), Just("in"), Just("["), Just("]"), Just("("), Just(")"), Just(","), Just("not"), Just("and"),
            Just("or"), Just("5"), Just("-5.5e1"), Just("\"x\\u{41}\""), Just("\"\\u"), Just("exists"), Just("startsWith"), Just("datetime'"),
            Just("guid''"), Just("true"), Just("é"), Just("'"),
        ], 0..12))
    {
        let text = words.join(" ");
        match Condition::parse(&text) {
            Ok(condition) => { condition.holds(&employee()); }
            Err(error) => prop_assert!(error.to_string().contains('^')),
        }
    }

    #[test]
    fn any_text_can_be_written_as_a_literal(text in any::<String>()) {
        let condition = Condition::parse(&format!("Name == {}", text_literal(&text))).unwrap();
        prop_assert!(condition.holds(&employee().with("Name", text)));
    }

    #[test]
    fn integers_and_doubles_read_back_as_themselves(integer in any::<i64>(), double in any::<f64>().prop_filter("finite", |d| d.is_finite())) {
        let (with_integer, with_double) = (format!("Age == {integer}"), format!("Age == {double:?}"));
        prop_assert!(Condition::parse(&with_integer).unwrap().holds(&employee().with("Age", integer)));
        prop_assert!(Condition::parse(&with_double).unwrap().holds(&employee().with("Age", double)));
    }
}
