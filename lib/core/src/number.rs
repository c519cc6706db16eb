//! Numbers as manifests hold them: finite ones, and the exact bits of observed ones.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;

/// A finite binary64 number. The sign of zero is kept.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Finite(f64);

impl Finite {
    /// Zero.
    pub const ZERO: Self = Self(0.0);

    /// `value`, if it is neither NaN nor infinite.
    pub fn new(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self(value))
    }

    /// The number.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Finite {}

impl fmt::Debug for Finite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&float_text(*self))
    }
}

impl fmt::Display for Finite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&float_text(*self))
    }
}

/// Text of a finite number as Python's `repr` lays it out: shortest digits that read back, an exponent below
/// 1e-4 and from 1e16 on, at least two exponent digits, always a point or an exponent (design rule 3).
///
/// The digits come from serde_json's printer; `core`'s `{:e}` picks other, equally short digits for some numbers.
pub fn float_text(value: Finite) -> String {
    let value = value.get();
    if value == 0.0 {
        return if value.is_sign_negative() { "-0.0" } else { "0.0" }.to_string();
    }
    // A finite f64 always has a JSON text, so the fallback is never taken.
    let printed = serde_json::Number::from_f64(value.abs()).map_or_else(String::new, |number| number.to_string());
    let (digits, exponent) = decompose(&printed);
    let sign = if value < 0.0 { "-" } else { "" };
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if (-4..16).contains(&exponent) {
        let text = if exponent < 0 {
            format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1))
        } else if exponent + 1 >= count {
            format!("{digits}{}.0", "0".repeat((exponent + 1 - count).unsigned_abs() as usize))
        } else {
            let (whole, fraction) = digits.split_at(exponent.unsigned_abs() as usize + 1);
            format!("{whole}.{fraction}")
        };
        return format!("{sign}{text}");
    }
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.unsigned_abs())
}

/// Significant digits without leading or trailing zeros, and the decimal exponent of the first digit.
fn decompose(text: &str) -> (String, i32) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.trim_start_matches('+').parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0').to_string();
    let position = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(leading).unwrap_or(0) - 1;
    (digits, exponent + position)
}

/// The 32 bits of a binary32 observation, written as 8 hexadecimal digits: carries NaN and infinities exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits32(pub u32);

/// The 64 bits of a binary64 observation, written as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bits64(pub u64);

macro_rules! bits {
    ($name:ident, $float:ty, $word:ty, $digits:literal) => {
        impl $name {
            /// The bits of `value`.
            pub const fn of(value: $float) -> Self {
                Self(value.to_bits())
            }

            /// The number with these bits.
            pub const fn value(self) -> $float {
                <$float>::from_bits(self.0)
            }

            /// Reads the hexadecimal text; upper case and other lengths are no spelling of it.
            pub fn parse(text: &str) -> Option<Self> {
                let plain = text.len() == $digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                plain.then(|| <$word>::from_str_radix(text, 16).ok().map(Self)).flatten()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:0", $digits, "x}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

bits!(Bits32, f32, u32, 8);
bits!(Bits64, f64, u64, 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_text_is_pythons() {
        let pairs = [
            (1e9, "1000000000.0"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1e21, "1e+21"),
            (1e22, "1e+22"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e-6, "1e-06"),
            (5e-324, "5e-324"),
            (100.0, "100.0"),
            (-0.0, "-0.0"),
            (1.797_693_134_862_315_7e308, "1.7976931348623157e+308"),
            (0.5, "0.5"),
            (123.25, "123.25"),
            (1.234_567_890_123_456_8e16, "1.2345678901234568e+16"),
            (-1.5e-7, "-1.5e-07"),
            (0.0, "0.0"),
            (9_007_199_254_740_993.0, "9007199254740992.0"),
            (2e-5, "2e-05"),
        ];
        for (value, text) in pairs {
            assert_eq!(Finite::new(value).map(float_text).as_deref(), Some(text));
        }
    }

    #[test]
    fn bits_carry_what_json_cannot() {
        assert_eq!(Bits32::of(f32::NEG_INFINITY).to_string(), "ff800000");
        assert!(Bits64::parse("7ff8000000000000").is_some_and(|bits| bits.value().is_nan()));
        assert!(Bits32::parse("FF800000").is_none() && Bits32::parse("ff80000").is_none());
    }
}
