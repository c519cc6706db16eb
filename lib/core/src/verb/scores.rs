//! From evaluations to the context of a comparison. They have to be measured alike, by runs that repeat exactly.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, Manifest as _};
use crate::manifest::candidate::Regime;
use crate::manifest::comparison::{ComparisonContext, Replicate, Resampling, Scope};
use crate::manifest::decision::Direction;
use crate::manifest::evaluation::{Answer, Estimate, Evaluation, Window};
use crate::name::Name;
use crate::number::Finite;
use crate::relpath::RelativePath;

/// What is asked of some evaluations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The experiment, if any.
    pub experiment: Option<Name>,
    /// The metric.
    pub metric: String,
    /// The slice; `None` for everything.
    pub slice: Option<String>,
    /// Which way is better.
    pub direction: Direction,
    /// What the others are compared with; `None` for every pair.
    pub reference: Option<Name>,
    /// How often chance alone may be taken for a difference.
    pub level: Finite,
    /// How likely a repeat should be to show a difference.
    pub power: Finite,
    /// The difference that does not matter.
    pub margin: Option<Finite>,
    /// What the answer is about.
    pub scope: Scope,
    /// How intervals are drawn.
    pub resampling: Resampling,
}

/// What an evaluator wrote of each sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Windows of text, or records.
    Windows(Vec<Window>),
    /// Rows or images, by class.
    Answers(Vec<Answer>),
    /// Rows, by number.
    Estimates(Vec<Estimate>),
}

impl Samples {
    /// Reads lines of an evaluator of this toolkit; `None` for those of another.
    pub fn read(lines: &[Value]) -> Option<Self> {
        fn all<F: Field>(lines: &[Value]) -> Option<Vec<F>> {
            let mut faults = Faults::new();
            let read = lines.iter().map(|line| F::read(line, "", &mut faults)).collect();
            if faults.is_empty() { read } else { None }
        }
        let windows = || all(lines).map(Self::Windows);
        let answers = || all(lines).map(Self::Answers);
        windows().or_else(answers).or_else(|| all(lines).map(Self::Estimates))
    }
}

/// The context that asks `question` of evaluations, each with its samples if they are at hand. A candidate is called as
/// people call it.
pub fn context(
    question: &Question,
    evaluations: &[(Evaluation, Option<Samples>)],
) -> Result<ComparisonContext, Faults> {
    let mut faults = Faults::new();
    let mut fingerprints = BTreeMap::new();
    let mut replicates = Vec::new();
    for (place, (evaluation, samples)) in evaluations.iter().enumerate() {
        let mut fault = |code, message: String| faults.add(format!("/{place}"), code, message);
        let subject = &evaluation.subject;
        let first = &evaluations[0].0;
        if evaluation.fingerprint != first.fingerprint {
            let message =
                format!("it was measured by {}, the first one by {}", evaluation.fingerprint, first.fingerprint);
            fault("comparison.measured-otherwise", message);
        }
        if *fingerprints.entry(&subject.name).or_insert(subject.candidate) != subject.candidate {
            fault("comparison.ambiguous", format!("{} names another candidate, too", subject.name));
        }
        if evaluation.regime != Regime::Exact {
            let message = format!("its regime is {}; state the noise of execution in a context", evaluation.regime);
            fault("comparison.regime", message);
        }
        let asked = |name: &str, slice: Option<&str>| name == question.metric && slice == question.slice.as_deref();
        match evaluation.metrics.iter().find(|metric| asked(&metric.name, metric.slice.as_deref())) {
            None => {
                let names: BTreeSet<&str> = evaluation.metrics.iter().map(|metric| metric.name.as_str()).collect();
                let names: Vec<&str> = names.into_iter().collect();
                let message = format!("it has no such metric and slice; its metrics are {}", names.join(", "));
                fault("comparison.no-metric", message);
            }
            Some(metric) => replicates.push(Replicate {
                candidate: subject.name.clone(),
                seed: subject.seed,
                trajectory: None,
                value: Some(metric.value),
                absence: None,
                examples: samples.as_ref().and_then(|samples| examples(question, samples)),
                subject: Some(subject.bundle),
                evaluation: Some(evaluation.id()),
            }),
        }
    }
    let context = ComparisonContext {
        experiment_id: question.experiment.clone(),
        metric: question.metric.clone(),
        slice: question.slice.clone(),
        direction: question.direction,
        reference: question.reference.clone(),
        level: question.level,
        power: question.power,
        margin: question.margin,
        scope: question.scope,
        execution: None,
        resampling: question.resampling.clone(),
        replicates,
    };
    faults.or(())?;
    super::compare_candidates::context(&context.encode())
}

/// What each sample adds to a metric that is a mean over samples, by the name of the sample. `None` for other metrics and for
/// slices.
fn examples(question: &Question, samples: &Samples) -> Option<BTreeMap<String, Finite>> {
    if question.slice.is_some() {
        return None;
    }
    match samples {
        Samples::Windows(windows) => of_windows(question, windows),
        Samples::Answers(answers) => {
            let part: fn(&Answer) -> f64 = match question.metric.as_str() {
                "loss" => |answer| answer.loss.get(),
                "accuracy" => |answer| f64::from(u8::from(answer.due == answer.answer)),
                _ => return None,
            };
            answers.iter().map(|answer| named(&answer.path, answer.row, part(answer))).collect()
        }
        Samples::Estimates(estimates) => {
            let part: fn(f64) -> f64 = match question.metric.as_str() {
                "mse" => |error| error * error,
                "mae" => libm::fabs,
                _ => return None,
            };
            let error = |estimate: &Estimate| estimate.answer.get() - estimate.due.get();
            estimates.iter().map(|one| named(&one.path, one.row, part(error(one)))).collect()
        }
    }
}

/// A sample is called by its file and its number in the file.
fn named(path: &RelativePath, number: u64, part: f64) -> Option<(String, Finite)> {
    Some((format!("{path}#{number}"), Finite::new(part)?))
}

/// What each window adds to a metric that is a ratio of sums over tokens, times the number of windows: so they average
/// to the metric. All candidates predict the same tokens, so the divisor is no matter of chance.
fn of_windows(question: &Question, samples: &[Window]) -> Option<BTreeMap<String, Finite>> {
    let part: fn(&Window) -> f64 = match (question.metric.as_str(), &question.slice) {
        ("loss", None) => |window| window.loss.get(),
        ("accuracy", None) => |window| real(window.correct),
        _ => return None,
    };
    let share = real(samples.len() as u64) / real(samples.iter().map(|window| window.tokens).sum());
    samples.iter().map(|window| named(&window.path, window.window, part(window) * share)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens are far below 2^53")]
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::parse;

    fn question(metric: &str, slice: Option<&str>) -> Question {
        let number = |value| Finite::new(value).unwrap();
        Question {
            experiment: None,
            metric: metric.into(),
            slice: slice.map(String::from),
            direction: Direction::Minimize,
            reference: None,
            level: number(0.05),
            power: number(0.8),
            margin: None,
            scope: Scope::TheseExamples,
            resampling: Resampling { seed: 0, count: 100 },
        }
    }

    fn parts(lines: &[&str], metric: &str) -> Option<Vec<(String, f64)>> {
        let lines: Vec<Value> = lines.iter().map(|line| parse(line.as_bytes()).unwrap()).collect();
        let found = examples(&question(metric, None), &Samples::read(&lines).unwrap())?;
        Some(found.into_iter().map(|(name, part)| (name, part.get())).collect())
    }

    const ANSWERS: [&str; 2] = [
        r#"{"sample":0,"path":"a.csv","row":0,"due":1,"answer":1,"probability":0.75,"loss":0.25}"#,
        r#"{"sample":1,"path":"b.csv","row":0,"due":0,"answer":1,"probability":0.5,"loss":0.75}"#,
    ];
    const ESTIMATES: [&str; 2] = [
        r#"{"sample":0,"path":"a.csv","row":0,"due":1.0,"answer":3.0}"#,
        r#"{"sample":1,"path":"a.csv","row":1,"due":1.0,"answer":0.5}"#,
    ];

    /// Worked out by hand: a row is called by its file and its place there, and what it adds averages to the metric.
    #[test]
    fn rows_and_images_are_paired_by_file_and_row() {
        let named = |all: [(&str, f64); 2]| Some(all.map(|(name, part)| (name.into(), part)).to_vec());
        assert_eq!(parts(&ANSWERS, "loss"), named([("a.csv#0", 0.25), ("b.csv#0", 0.75)]));
        assert_eq!(parts(&ANSWERS, "accuracy"), named([("a.csv#0", 1.0), ("b.csv#0", 0.0)]));
        assert_eq!(parts(&ESTIMATES, "mse"), named([("a.csv#0", 4.0), ("a.csv#1", 0.25)]));
        assert_eq!(parts(&ESTIMATES, "mae"), named([("a.csv#0", 2.0), ("a.csv#1", 0.5)]));
        // These are no means over samples, and a slice is not cut out.
        for (lines, metric) in [(&ANSWERS, "f1"), (&ESTIMATES, "r2"), (&ESTIMATES, "loss")] {
            assert_eq!(parts(lines, metric), None, "{metric}");
        }
        let lines: Vec<Value> = ANSWERS.iter().map(|line| parse(line.as_bytes()).unwrap()).collect();
        let samples = Samples::read(&lines).unwrap();
        assert_eq!(examples(&question("loss", Some("a.csv")), &samples), None);
    }

    #[test]
    fn lines_of_another_form_are_no_samples() {
        let mixed: Vec<Value> = [ANSWERS[0], ESTIMATES[0]].iter().map(|line| parse(line.as_bytes()).unwrap()).collect();
        assert_eq!(Samples::read(&mixed), None);
    }
}
