//! What a run measured, step by step, in the forms of programs that draw curves.
//!
//! Everything comes from the telemetry of the run. A value that is not finite is left out: a gap in a curve, never a number
//! that was not measured. The names of a command's metrics are its own, and become names of files in some forms, so they
//! are held to what is safe there.

mod csv;
mod dvclive;
mod mlflow;
mod tensorboard;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

pub use csv::csv;
pub use dvclive::dvclive;
pub use mlflow::mlflow;
pub use tensorboard::tensorboard;

use crate::fault::Faults;
use crate::instant::Instant;
use crate::manifest::job::Message;
use crate::name::Name;

/// What was measured at one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The step.
    pub step: u64,
    /// Nanoseconds since the run began; 0 where steps are not timed.
    pub elapsed: u64,
    /// Values by name, finite ones only.
    pub values: Vec<(String, f64)>,
}

/// A run whose curves are exported.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// The attempt.
    pub attempt: Name,
    /// Its experiment.
    pub experiment: Name,
    /// What it was, by name: seed, candidate, plan.
    pub parameters: Vec<(String, String)>,
    /// When it began, as far as the record says.
    pub started: Instant,
    /// When it ended, and whether it succeeded; `None` while it runs.
    pub ended: Option<(Instant, bool)>,
    /// What it measured, in the order of its steps.
    pub points: Vec<Point>,
}

/// A file to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where, relative to the folder of the export.
    pub path: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl File {
    fn text(path: impl Into<String>, text: &str) -> Self {
        Self { path: path.into(), bytes: text.as_bytes().to_vec() }
    }
}

/// The points of a run's telemetry.
pub fn points<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<Point> {
    let mut elapsed = 0_u64;
    let mut points = Vec::new();
    for message in messages {
        match message {
            Message::Step { line, nanoseconds } => {
                elapsed = elapsed.saturating_add(*nanoseconds);
                let numbers = [
                    ("gradient_norm", line.gradient_norm),
                    ("learning_rate", Some(line.learning_rate)),
                    ("loss", line.loss),
                ];
                let values = numbers.iter().filter_map(|(name, value)| Some((name.to_string(), (*value)?.get())));
                points.push(Point { step: line.step, elapsed, values: values.collect() });
            }
            Message::Metric { line } => {
                let numbers = line.values.iter().filter_map(|(name, value)| {
                    let value = value.as_ref()?.approximate();
                    value.is_finite().then(|| (name.clone(), value))
                });
                points.push(Point { step: line.step, elapsed: 0, values: numbers.collect() });
            }
            _ => {}
        }
    }
    points
}

impl Curves {
    /// Names of everything that was measured, sorted.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.points.iter().flat_map(|point| &point.values).map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The steps and values of one name.
    fn curve<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a Point, f64)> {
        self.points.iter().filter_map(move |point| {
            let (_, value) = point.values.iter().find(|(found, _)| found == name)?;
            Some((point, *value))
        })
    }

    /// Milliseconds since 1970 of a point.
    fn milliseconds(&self, point: &Point) -> u64 {
        self.started.unix().saturating_mul(1000).saturating_add(point.elapsed / 1_000_000)
    }

    /// Whether every name can be a file below a folder, as dvclive and MLflow make it one: letters, digits, `_`, `-`, `.`,
    /// spaces, and `/` between parts; and no name a folder of another.
    pub fn check_names(&self) -> Result<(), Faults> {
        let mut faults = Faults::new();
        let names = self.names();
        for name in &names {
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-./ ".contains(c);
            let parts = name.split('/').all(|part| !part.is_empty() && part.chars().any(|c| c != '.'));
            if !name.chars().all(plain) || !parts || name.len() > 200 {
                let message = "expected at most 200 letters, digits, `_`, `-`, `.`, spaces, and `/` between parts";
                faults.add(format!("metric {name:?}"), "export.name", message);
            }
            let below = names.iter().find(|other| other.strip_prefix(*name).is_some_and(|rest| rest.starts_with('/')));
            if let Some(other) = below {
                let message = format!("it would be a file and the folder of {other:?} at once");
                faults.add(format!("metric {name:?}"), "export.name", message);
            }
        }
        faults.or(())
    }
}

/// A number as JSON and Python read it back exactly.
fn number(value: f64) -> String {
    format!("{value:?}")
}

#[cfg(test)]
pub(crate) fn example() -> Curves {
    let point = |step: u64, values: &[(&str, f64)]| Point {
        step,
        elapsed: step * 1_500_000_000,
        values: values.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
    };
    Curves {
        attempt: Name::new("att-1").unwrap(),
        experiment: Name::new("width").unwrap(),
        parameters: Vec::from([("seed".into(), "1".into())]),
        started: Instant::from_unix(1_700_000_000).unwrap(),
        ended: Some((Instant::from_unix(1_700_000_060).unwrap(), true)),
        points: Vec::from([
            point(1, &[("loss", 2.5), ("train/rate", 1e-7)]),
            point(2, &[("train/rate", 1e-7)]),
            point(3, &[("loss", 0.1), ("train/rate", 3e16)]),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_folder_or_clash_are_refused() {
        assert_eq!(example().check_names(), Ok(()));
        for bad in ["../x", "a//b", "/a", "a/", "..", "a\tb", "a:b", "ü", "train"] {
            let mut curves = example();
            curves.points[0].values.push((bad.into(), 1.0));
            assert_eq!(curves.check_names().unwrap_err().0.len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_gap_is_no_value() {
        let curves = example();
        let steps: Vec<u64> = curves.curve("loss").map(|(point, _)| point.step).collect();
        assert_eq!(steps, [1, 3]);
        assert_eq!(curves.names(), ["loss", "train/rate"]);
        assert_eq!(curves.milliseconds(&curves.points[2]), 1_700_000_004_500);
    }
}
