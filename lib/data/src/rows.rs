//! Samples as rows of numbers, whatever file they come from: read raw, fitted on the training split, and scaled.

use std::collections::BTreeSet;

use xt_core::fault::Faults;
use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::encoding::{Fitted, Scaling};
use xt_core::number::Finite;

use crate::{image, table, tensors};

/// Faults of files that are told one by one; the rest is counted.
const TOLD: usize = 200;

/// Inputs that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The column; `pixels` for images.
    pub column: String,
    /// Its first input.
    pub start: usize,
    /// Its inputs.
    pub width: usize,
    /// Whether they are numbers that can be scaled, and not marks of a level.
    pub number: bool,
}

/// What is predicted of each sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Numbers.
    Numbers(Vec<f32>),
    /// Classes, from 0.
    Classes(Vec<i64>),
}

/// Samples as they stand in the files.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    /// The inputs of a sample by column.
    pub spans: Vec<Span>,
    /// Inputs of a sample.
    pub width: usize,
    /// The inputs, sample by sample; 0 where one is missing.
    pub values: Vec<f32>,
    /// Places in `values` of numbers that are missing.
    pub missing: BTreeSet<usize>,
    /// The targets.
    pub targets: Targets,
    /// The column of the target.
    pub target: String,
    /// Samples of each file, in the order of the files; 0 for a file of labels.
    pub counts: Vec<u64>,
}

/// Samples as a model sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Inputs of a sample.
    pub width: usize,
    /// The inputs, sample by sample.
    pub values: Vec<f32>,
    /// The targets.
    pub targets: Targets,
}

/// Reads `files` (path and bytes) as `tokenizer` declares. Every fault of every file is told, with its line and column.
pub fn read(tokenizer: &Tokenizer, files: &[(&str, Vec<u8>)]) -> Result<Raw, Faults> {
    let mut faults = Faults::new();
    let raw = match tokenizer {
        Tokenizer::Table { columns, .. } => table::read(columns, files, &mut faults),
        Tokenizer::Image { channels, height, width, classes, levels, .. } => {
            image::read([*channels, *height, *width], (*classes, levels.as_deref()), files, &mut faults)
        }
        Tokenizer::Tensors { inputs, shape, targets, classes, scaling: _ } => {
            tensors::read(&tensors::Declared { inputs, shape, targets, classes: *classes }, files, &mut faults)
        }
        Tokenizer::Bytes {}
        | Tokenizer::HuggingFace { .. }
        | Tokenizer::Records { .. }
        | Tokenizer::Labelled { .. } => {
            return Err(Faults::one("/tokenizer", "tokenizer.format", "text has no rows of numbers"));
        }
    };
    if faults.is_empty() && raw.samples() == 0 {
        faults.add("data", "data.empty", "the split holds no sample");
    }
    shorten(&mut faults);
    faults.or(raw)
}

/// Keeps so many faults as a person reads, and says how many more there are.
pub(crate) fn shorten(faults: &mut Faults) {
    let more = faults.0.len().saturating_sub(TOLD);
    if more > 0 {
        faults.0.truncate(TOLD);
        faults.add("data", "data.more", format!("and {more} more faults of this kind"));
    }
}

impl Raw {
    /// Samples.
    pub const fn samples(&self) -> usize {
        match &self.targets {
            Targets::Numbers(all) => all.len(),
            Targets::Classes(all) => all.len(),
        }
    }

    /// Fits what scales the numbers, on the finite values alone, in binary64 and in the order of the samples. A column
    /// without a finite value is a fault.
    pub fn fit(&self, scaling: Scaling) -> Result<Vec<Fitted>, Faults> {
        let (mut faults, mut all) = (Faults::new(), Vec::new());
        for span in self.spans.iter().filter(|span| span.number) {
            let values = self.values.iter().enumerate().filter(|(place, _)| {
                let within = place % self.width.max(1);
                (span.start..span.start + span.width).contains(&within) && !self.missing.contains(place)
            });
            fit(&span.column, values.map(|(_, value)| *value), &mut all, &mut faults);
        }
        if let (Targets::Numbers(values), Scaling::InputsAndTarget) = (&self.targets, scaling) {
            fit(&self.target, values.iter().copied(), &mut all, &mut faults);
        }
        faults.or(all)
    }

    /// The samples as a model sees them: missing numbers filled, and numbers scaled as declared.
    pub fn scale(self, fitted: &[Fitted], scaling: Scaling) -> Rows {
        let Self { spans, width, mut values, missing, mut targets, target, counts: _ } = self;
        let of = |column: &str| fitted.iter().find(|fitted| fitted.column == column);
        for span in spans.iter().filter(|span| span.number) {
            let Some(fitted) = of(&span.column) else { continue };
            for (row, inputs) in values.chunks_mut(width.max(1)).enumerate() {
                for (place, value) in inputs.iter_mut().enumerate().skip(span.start).take(span.width) {
                    let known = !missing.contains(&(row * width + place));
                    let raw = if known { f64::from(*value) } else { fitted.mean.get() };
                    *value = narrowed(if scaling == Scaling::None { raw } else { scaled(raw, fitted) });
                }
            }
        }
        if let (Targets::Numbers(numbers), Scaling::InputsAndTarget, Some(fitted)) =
            (&mut targets, scaling, of(&target))
        {
            for number in numbers {
                *number = narrowed(scaled(f64::from(*number), fitted));
            }
        }
        Rows { width, values, targets }
    }
}

/// What a 0 of a file is to the model, when the numbers are scaled by `fitted`.
pub fn scaled_zero(fitted: Option<&Fitted>) -> f32 {
    fitted.map_or(0.0, |fitted| narrowed(scaled(0.0, fitted)))
}

fn scaled(value: f64, fitted: &Fitted) -> f64 {
    (value - fitted.mean.get()) / fitted.deviation.get()
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
const fn narrowed(value: f64) -> f32 {
    value as f32
}

fn fit(column: &str, values: impl Iterator<Item = f32> + Clone, all: &mut Vec<Fitted>, faults: &mut Faults) {
    let values = values.map(f64::from).filter(|value| value.is_finite());
    let (count, sum) = values.clone().fold((0u64, 0.0), |(count, sum), value| (count + 1, sum + value));
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let number = count as f64;
    let mean = sum / number;
    let squares: f64 = values.map(|value| (value - mean) * (value - mean)).sum();
    let deviation = (squares / number).sqrt();
    let deviation = if deviation > 0.0 { deviation } else { 1.0 };
    match (Finite::new(mean), Finite::new(deviation)) {
        (Some(mean), Some(deviation)) => all.push(Fitted { column: column.into(), count, mean, deviation }),
        _ => faults.add("data", "column.empty", format!("the column {column:?} has no finite number in this split")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(values: &[f32], missing: &[usize]) -> Raw {
        let span = |column: &str, start, number| Span { column: column.into(), start, width: 1, number };
        Raw {
            spans: vec![span("a", 0, true), span("b", 1, false)],
            width: 2,
            values: values.into(),
            missing: missing.iter().copied().collect(),
            targets: Targets::Numbers(vec![10.0, 20.0, 30.0]),
            target: "t".into(),
            counts: vec![3],
        }
    }

    /// Worked out by hand.
    #[test]
    fn numbers_are_scaled_by_what_was_fitted_and_marks_of_levels_are_not() {
        let all = raw(&[1.0, 1.0, 3.0, 0.0, 0.0, 1.0], &[4]);
        let fitted = all.fit(Scaling::InputsAndTarget).unwrap();
        assert_eq!(fitted.iter().map(|one| (one.column.as_str(), one.count)).collect::<Vec<_>>(), [("a", 2), ("t", 3)]);
        assert_eq!((fitted[0].mean.get(), fitted[0].deviation.get()), (2.0, 1.0));
        let rows = all.clone().scale(&fitted, Scaling::InputsAndTarget);
        assert_eq!(rows.values, [-1.0, 1.0, 1.0, 0.0, 0.0, 1.0], "what is missing is the mean");
        let Targets::Numbers(targets) = rows.targets else { panic!() };
        assert_eq!((targets[0], targets[1]), (-targets[2], 0.0));
        assert_eq!(all.scale(&fitted, Scaling::None).values, [1.0, 1.0, 3.0, 0.0, 2.0, 1.0]);
    }

    /// Row of the sandbox against leaks: held-out rows are scaled by the training split and move nothing of it.
    #[test]
    fn what_is_fitted_does_not_see_the_rows_that_it_is_used_on() {
        let (train, other) = (raw(&[1.0, 0.0, 3.0, 0.0, 2.0, 0.0], &[]), raw(&[100.0, 0.0, 3.0, 0.0, 2.0, 0.0], &[]));
        let fitted = train.fit(Scaling::Inputs).unwrap();
        assert_ne!(other.fit(Scaling::Inputs).unwrap(), fitted);
        let rows = other.scale(&fitted, Scaling::Inputs);
        assert!((f64::from(rows.values[0]) - 98.0 / (2.0f64 / 3.0).sqrt()).abs() < 1e-4);
    }

    #[test]
    fn what_is_not_finite_is_not_fitted_on_and_stays_what_it_is() {
        let all = raw(&[f32::NAN, 0.0, 3.0, 0.0, 5.0, 0.0], &[]);
        let fitted = all.fit(Scaling::Inputs).unwrap();
        assert_eq!((fitted[0].count, fitted[0].mean.get()), (2, 4.0));
        assert!(all.scale(&fitted, Scaling::Inputs).values[0].is_nan());
        let none = raw(&[f32::NAN, 0.0, f32::INFINITY, 0.0, 1.0, 0.0], &[4]).fit(Scaling::Inputs).unwrap_err();
        assert_eq!(none.0[0].code, "column.empty");
    }

    #[test]
    fn a_column_of_equal_numbers_is_divided_by_one() {
        let all = raw(&[7.0, 0.0, 7.0, 0.0, 7.0, 0.0], &[]);
        let fitted = all.fit(Scaling::Inputs).unwrap();
        assert_eq!(fitted[0].deviation.get(), 1.0);
        assert_eq!(all.scale(&fitted, Scaling::Inputs).values[0], 0.0);
    }
}
