//! Bounds of numbers.

use alloc::format;
use alloc::string::String;

use crate::canonical::Value;
use crate::number::Finite;

/// The numbers a field may hold.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    low: f64,
    high: f64,
    open_low: bool,
    open_high: bool,
}

impl Range {
    /// From `low` on, `low` included.
    pub const fn from(low: f64) -> Self {
        Self { low, high: f64::INFINITY, open_low: false, open_high: false }
    }

    /// Greater than `low`.
    pub const fn above(low: f64) -> Self {
        Self { low, high: f64::INFINITY, open_low: true, open_high: false }
    }

    /// Up to `high`, `high` included.
    #[must_use]
    pub const fn to(self, high: f64) -> Self {
        Self { high, open_high: false, ..self }
    }

    /// Less than `high`.
    #[must_use]
    pub const fn below(self, high: f64) -> Self {
        Self { high, open_high: true, ..self }
    }

    /// Whether `number` is in it.
    pub fn holds(&self, number: f64) -> bool {
        let above = if self.open_low { number > self.low } else { number >= self.low };
        let below = if self.open_high { number < self.high } else { number <= self.high };
        above && below
    }

    /// In words.
    pub fn text(&self) -> String {
        let low = format!("{} {}", if self.open_low { "above" } else { "at least" }, self.low);
        if self.high.is_infinite() {
            return low;
        }
        format!("{low} and {} {}", if self.open_high { "below" } else { "at most" }, self.high)
    }

    /// Adds the bounds to the JSON Schema of a number.
    pub fn describe(&self, schema: Value) -> Value {
        let Value::Object(mut members) = schema else { return schema };
        // Where `null` is allowed, the bounds are those of what else may stand there.
        if let Some(Value::List(options)) = members.get_mut("anyOf") {
            if let Some(first) = options.first_mut() {
                *first = self.describe(first.clone());
            }
            return Value::Object(members);
        }
        // A whole bound is written as an integer, so that 1024 stands in a schema and not 1024.0.
        #[expect(clippy::cast_possible_truncation, reason = "the guard admits exact ones only")]
        let bound = |number: f64| match Finite::new(number) {
            Some(_) if number % 1.0 == 0.0 && number.abs() <= 1e15 => Value::from(number as i64),
            Some(number) => Value::Float(number),
            None => Value::Null,
        };
        members.insert(if self.open_low { "exclusiveMinimum" } else { "minimum" }.into(), bound(self.low));
        if self.high.is_finite() {
            members.insert(if self.open_high { "exclusiveMaximum" } else { "maximum" }.into(), bound(self.high));
        }
        Value::Object(members)
    }
}
