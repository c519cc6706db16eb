//! Time as an input: the wall clock, or the instant that `XT_NOW` fixes (design rule 8).

use std::time::{SystemTime, UNIX_EPOCH};

use xt_core::instant::Instant;

/// Where instants come from. Durations never come from it: they are taken from the monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock(Option<Instant>);

impl Clock {
    /// The variable that fixes the clock.
    pub const VARIABLE: &str = "XT_NOW";

    /// The clock of the system.
    pub const fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still.
    pub const fn fixed(now: Instant) -> Self {
        Self(Some(now))
    }

    /// The clock that `XT_NOW` fixes, or the clock of the system. A value that is no time is left to the command line to
    /// refuse; here it counts as absent.
    pub fn from_environment() -> Self {
        Self(std::env::var(Self::VARIABLE).ok().and_then(|text| Instant::parse(&text)))
    }

    /// Now. A clock set before 1970 or after 9999 gives the nearest instant that has a text.
    pub fn now(self) -> Instant {
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let system = || Instant::from_unix(seconds()).or(Instant::parse("9999-12-31T23:59:59Z"));
        self.0.or_else(system).unwrap_or_else(|| unreachable!("a literal instant"))
    }

    /// The value to give to a process that is to share this clock.
    pub fn variable(self) -> Option<String> {
        self.0.map(|now| now.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_clock_stands_still_and_the_system_clock_is_past_2020() {
        let fixed = Instant::parse("2001-02-03T04:05:06Z").unwrap();
        assert_eq!(Clock::fixed(fixed).now(), fixed);
        assert_eq!(Clock::fixed(fixed).variable().as_deref(), Some("2001-02-03T04:05:06Z"));
        assert!(Clock::system().now() > Instant::parse("2020-01-01T00:00:00Z").unwrap());
        assert_eq!(Clock::system().variable(), None);
    }
}
