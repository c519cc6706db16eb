//! Points in time, given to us: this crate has no clock.

use alloc::string::String;
use core::fmt;

/// Whole seconds since 1970-01-01T00:00:00Z, written as RFC 3339 in UTC: `2026-11-29T12:00:00Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// The last second of the year 9999.
const MAX: u64 = 253_402_300_799;

impl Instant {
    /// The pattern as JSON Schema writes it: years from 1970, days that the month has, no leap seconds. It allows
    /// 29 February in every year.
    pub const PATTERN: &'static str = "^(19[7-9][0-9]|[2-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|[12][0-9]))T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$";

    /// The instant so many seconds after the epoch; years after 9999 have no text, so they are refused.
    pub const fn from_unix(seconds: u64) -> Option<Self> {
        if seconds <= MAX { Some(Self(seconds)) } else { None }
    }

    /// Seconds since the epoch.
    pub const fn unix(self) -> u64 {
        self.0
    }

    /// Reads the one text form, or whole seconds since the epoch.
    pub fn parse(text: &str) -> Option<Self> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().and_then(Self::from_unix);
        }
        let number = |from: usize, to: usize| -> Option<u64> {
            let digits = text.get(from..to)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
        let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
        if year < 1970 || !(1..=12).contains(&month) || day == 0 || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let instant = Self::from_unix(days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)?;
        // A day that the month lacks, or another separator, does not come back as the same text.
        let again: String = alloc::format!("{instant}");
        (again == text).then_some(instant)
    }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar (Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms", days_from_civil).
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // civil_from_days of the same source.
        let shifted = self.0 / 86_400 + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_index + 2) / 5 + 1;
        let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let second = self.0 % 86_400;
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_and_seconds_agree() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_798_761_599, "2026-12-31T23:59:59Z"),
            (MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(Instant::from_unix(seconds).map(|i| i.to_string()).as_deref(), Some(text));
            assert_eq!(Instant::parse(text).map(Instant::unix), Some(seconds));
        }
        for bad in ["2026-02-30T00:00:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00+01:00", "", "x"] {
            assert_eq!(Instant::parse(bad), None, "{bad}");
        }
    }
}
