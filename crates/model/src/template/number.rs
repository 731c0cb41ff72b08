//! Numbers, and texts that sort by the value of their number.

use crate::EdmValue;

/// Length of a [`sortable`] text.
pub const SORTABLE_DIGITS: usize = 19;

/// A number of any EDM type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// An integer that fits into Edm.Int64.
    Integer(i64),
    /// Any other number.
    Double(f64),
}

impl Number {
    /// The value as a number; `None` if it has another type.
    pub fn of(value: &EdmValue) -> Option<Self> {
        match value {
            EdmValue::Int32(number) => Some(Self::Integer(i64::from(*number))),
            EdmValue::Int64(number) => Some(Self::Integer(*number)),
            EdmValue::Double(number) => Some(Self::Double(*number)),
            EdmValue::String(_)
            | EdmValue::Bool(_)
            | EdmValue::DateTime(_)
            | EdmValue::Guid(_)
            | EdmValue::Binary(_) => None,
        }
    }

    /// Parses a number: digits with an optional sign, fraction and exponent, or `Infinity`. Integers are exact in every notation (`5`,
    /// `+5`, `5.0`, `0.5e1`). Returns `None` for other texts, for integers beyond Edm.Int64, and for numbers beyond the largest Double.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(sign) = ["Infinity", "INF", "inf"]
            .iter()
            .find_map(|name| text.strip_suffix(name))
        {
            return match sign {
                "" | "+" => Some(Self::Double(f64::INFINITY)),
                "-" => Some(Self::Double(f64::NEG_INFINITY)),
                _ => None,
            };
        }
        let decimal = Decimal::read(text)?;
        match decimal.integer() {
            Some(integer) => Some(Self::Integer(integer)),
            // Rounding to a Double would give two numbers the same text.
            None if decimal.fraction.is_empty() && decimal.exponent == 0 => None,
            None => text
                .parse()
                .ok()
                .filter(|double: &f64| double.is_finite())
                .map(Self::Double),
        }
    }
}

/// Whether a text is a decimal number of any size.
pub fn is_decimal(text: &str) -> bool {
    Decimal::read(text).is_some()
}

struct Decimal<'a> {
    is_negative: bool,
    digits: &'a str,
    fraction: &'a str,
    exponent: i32,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let is_read = all_digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
                (
                    mantissa,
                    is_read.then(|| exponent.parse().unwrap_or(i32::MAX / 2))?,
                )
            }
            None => (unsigned, 0),
        };
        let (digits, fraction) = match mantissa.split_once('.') {
            Some((digits, fraction)) => (digits, Some(fraction)),
            None => (mantissa, None),
        };
        let is_read = all_digits(digits) && fraction.is_none_or(all_digits);
        is_read.then(|| Self {
            is_negative: text.starts_with('-'),
            digits,
            fraction: fraction.unwrap_or_default(),
            exponent,
        })
    }

    /// Returns the number, if it is an integer that fits. Beyond 2^53, a text with an exponent does not count as an integer: it was written
    /// from a Double and is not the exact value of that Double.
    fn integer(&self) -> Option<i64> {
        let all = format!("{}{}", self.digits, self.fraction);
        let significant = all.trim_end_matches('0');
        let zeros = all.len() - significant.len();
        let digits = significant.trim_start_matches('0');
        if digits.is_empty() {
            return Some(0);
        }
        let scale = i64::from(self.exponent) - i64::try_from(self.fraction.len()).ok()?
            + i64::try_from(zeros).ok()?;
        let scale = usize::try_from(scale)
            .ok()
            .filter(|scale| digits.len() + scale <= 19)?;
        let integer: i64 = format!(
            "{}{digits}{:0<scale$}",
            if self.is_negative { "-" } else { "" },
            ""
        )
        .parse()
        .ok()?;
        (self.exponent == 0 || integer.unsigned_abs() <= 1 << 53).then_some(integer)
    }
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns a text of 19 hex digits that sorts by value across types. The first 16 digits are for the largest Double that is not greater
/// than the number. The last 3 digits are for the rest, which only integers beyond 2^53 have.
/// The 16 digits are the Double's bits, with the sign bit flipped for positive numbers and zero, and all bits flipped for negative ones.
/// Returns `None` for NaN.
pub fn sortable(number: Number) -> Option<String> {
    let (double, above) = match number {
        Number::Integer(integer) => floor(integer),
        Number::Double(double) => (double, 0),
    };
    if double.is_nan() {
        return None;
    }
    // Negative zero equals zero.
    let bits = if double == 0.0 { 0 } else { double.to_bits() };
    let ordered = if bits >> 63 == 0 {
        bits | 1 << 63
    } else {
        !bits
    };
    Some(format!("{ordered:016x}{above:03x}"))
}

/// Returns the largest Double that is not greater than an integer, and the rest. The rest is less than 1,024, because neighbouring Doubles
/// below 2^63 are at most 1,024 apart.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounding to the nearest Double is intended, and the result is an integer"
)]
fn floor(integer: i64) -> (f64, i128) {
    let nearest = integer as f64;
    let double = if nearest as i128 > i128::from(integer) {
        nearest.next_down()
    } else {
        nearest
    };
    (double, i128::from(integer) - double as i128)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::condition::compare_by_value;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_exactly_however_they_are_written() {
        for (text, number) in [
            ("5", 5),
            ("+5", 5),
            ("-5.00", -5),
            ("007", 7),
            ("0.5e1", 5),
            ("50e-1", 5),
            ("-0", 0),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808.0", i64::MIN),
            ("9007199254740993.0", 9_007_199_254_740_993),
        ] {
            assert_eq!(Number::parse(text), Some(Number::Integer(number)), "{text}");
        }
        for (text, number) in [
            ("1.4198202431368978e18", 1.419_820_243_136_897_8e18),
            ("5.5", 5.5),
            ("-1e300", -1e300),
            ("1e-3", 0.001),
            ("-Infinity", f64::NEG_INFINITY),
            ("INF", f64::INFINITY),
        ] {
            assert_eq!(Number::parse(text), Some(Number::Double(number)), "{text}");
        }
        for text in [
            "",
            "-",
            ".5",
            "5.",
            "1e",
            "e5",
            "NaN",
            "0x10",
            "1_000",
            "5 ",
            "9223372036854775808",
            "1e999",
            "Infinityx",
            "١",
        ] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        assert!(
            is_decimal("9223372036854775808")
                && !is_decimal("2026-11-20")
                && !is_decimal("Infinity")
        );
    }

    #[test]
    fn sortable_texts_are_as_documented() {
        for (number, text) in [
            (Number::Integer(0), "8000000000000000000"),
            (Number::Double(-0.0), "8000000000000000000"),
            (Number::Integer(5), "c014000000000000000"),
            (Number::Double(5.0), "c014000000000000000"),
            (Number::Integer(-5), "3febffffffffffff000"),
            (
                Number::Integer(9_007_199_254_740_993),
                "c340000000000000001",
            ),
            (Number::Double(f64::INFINITY), "fff0000000000000000"),
            (Number::Double(f64::NEG_INFINITY), "000fffffffffffff000"),
        ] {
            assert_eq!(sortable(number).as_deref(), Some(text), "{number:?}");
        }
        assert_eq!(sortable(Number::Double(f64::NAN)), None);
    }

    fn number() -> impl Strategy<Value = Number> {
        let edges = [
            0,
            1,
            -1,
            1 << 53,
            (1 << 53) + 1,
            -(1 << 53) - 1,
            i64::MAX,
            i64::MAX - 511,
            i64::MAX - 512,
            i64::MIN,
            i64::MIN + 1,
        ];
        prop_oneof![
            any::<i64>().prop_map(Number::Integer),
            (-1_000_i64..1_000).prop_map(Number::Integer),
            (0..edges.len()).prop_map(move |at| Number::Integer(edges[at])),
            any::<f64>()
                .prop_filter("a number", |double| !double.is_nan())
                .prop_map(Number::Double),
            (-1_000_i32..1_000).prop_map(|halves| Number::Double(f64::from(halves) / 2.0)),
        ]
    }

    fn value(number: Number) -> EdmValue {
        match number {
            Number::Integer(integer) => EdmValue::Int64(integer),
            Number::Double(double) => EdmValue::Double(double),
        }
    }

    proptest! {
        #[test]
        fn texts_sort_as_the_numbers_and_are_equal_only_together(a in number(), b in number(), near in -2_000_i64..2_000) {
            let mut pairs = vec![(a, b)];
            if let Number::Integer(integer) = a {
                pairs.push((a, Number::Integer(integer.saturating_add(near))));
                #[expect(clippy::cast_precision_loss, reason = "a Double beside it")]
                pairs.push((a, Number::Double(integer as f64)));
            }
            for (a, b) in pairs {
                let (x, y) = (sortable(a).unwrap(), sortable(b).unwrap());
                prop_assert_eq!((x.len(), y.len()), (SORTABLE_DIGITS, SORTABLE_DIGITS));
                prop_assert_eq!(Some(x.cmp(&y)), compare_by_value(&value(a), &value(b)), "{:?} {:?}", a, b);
            }
        }

        #[test]
        fn numbers_are_read_as_they_were_written(integer in any::<i64>(), double in any::<f64>(), text in any::<String>()) {
            prop_assert_eq!(Number::parse(&integer.to_string()), Some(Number::Integer(integer)));
            if double.is_finite() {
                let read = Number::parse(&format!("{double:e}")).unwrap();
                prop_assert_eq!(compare_by_value(&value(read), &EdmValue::Double(double)), Some(Ordering::Equal));
            }
            let _ = (Number::parse(&text), is_decimal(&text));
        }
    }
}
