//! Adafactor: second moments of a matrix as one row and one column, and steps relative to the size of the weights.

use super::Scale;
use crate::parameters::narrowed;

/// The constants of Adafactor.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The share of the new square in update t is t to the power of this with a minus sign.
    pub decay_power: f64,
    /// Least mean of the rows of the second moment.
    pub epsilon: f64,
    /// Least size of the weights.
    pub minimum_scale: f64,
    /// Largest size of an update.
    pub update_limit: f64,
    /// How strongly these weights decay.
    pub decay: f64,
}

/// The second moment of one tensor.
#[derive(Debug)]
pub enum Moment<'a> {
    /// Of each value by itself.
    Whole(&'a mut [f32]),
    /// Means over rows and over columns of matrices with so many columns, which lie one after the other.
    Factored {
        /// Values in a row.
        columns: usize,
        /// Rows of a matrix.
        rows: usize,
        /// The mean square of each row.
        of_rows: &'a mut [f32],
        /// The mean square of each column.
        of_columns: &'a mut [f32],
    },
}

/// Algorithms 4 and 5 of Shazeer and Stern, "Adafactor", ICML 2018, in the form that PyTorch's `Adafactor` gives them: for one
/// tensor, `rho = min(rate, 1 / sqrt(t))`, `w -= rate * decay * w`, the second moments move by `t^-decay_power` towards
/// the new squares, `u = g / sqrt(moment)`, `w -= max(minimum_scale, rms(w)) * rho * u / max(1, rms(u) / update_limit)`,
/// where the size of the weights is taken before they decay.
/// Sums are in binary64, in the order of memory.
pub fn update(values: &mut [f32], gradients: &[f32], moment: Moment<'_>, settings: &Settings, scale: Scale) {
    #[expect(clippy::cast_precision_loss, reason = "counts of updates are far below 2^53")]
    let time = scale.updates as f64;
    let share = narrowed(libm::pow(time, -settings.decay_power));
    let size = settings.minimum_scale.max(root_mean_square(values.iter().copied()));
    let alpha = size * scale.rate.min(1.0 / time.sqrt());
    let keep = narrowed(1.0 - scale.rate * settings.decay);
    let gradient = |gradient: f32| gradient * scale.factor;
    let least = narrowed(settings.epsilon * settings.epsilon);
    match moment {
        Moment::Whole(squares) => {
            for (square, from) in squares.iter_mut().zip(gradients) {
                let new = gradient(*from) * gradient(*from);
                *square += share * (new - *square);
            }
            let update = |(from, square): (&f32, &f32)| gradient(*from) / at_least(*square, least).sqrt();
            let limit = limit(gradients.iter().zip(squares.iter()).map(update), settings);
            step(values, gradients.iter().zip(squares.iter()).map(update), keep, narrowed(alpha / limit));
        }
        Moment::Factored { columns, rows, of_rows, of_columns } => {
            move_means(gradients, [rows, columns], [of_rows, of_columns], scale.factor, share);
            let means = row_means(of_rows, rows, narrowed(settings.epsilon));
            let updates = |at: usize| {
                let (row, matrix) = (at / columns, at / (columns * rows));
                let square = of_rows[row] * of_columns[matrix * columns + at % columns] / means[matrix];
                gradient(gradients[at]) / at_least(square, least).sqrt()
            };
            let limit = limit((0..gradients.len()).map(updates), settings);
            step(values, (0..gradients.len()).map(updates), keep, narrowed(alpha / limit));
        }
    }
}

/// Moves the mean squares of rows and columns towards those of the gradients.
fn move_means(gradients: &[f32], [rows, columns]: [usize; 2], means: [&mut [f32]; 2], factor: f32, share: f32) {
    let [of_rows, of_columns] = means;
    let square = |from: &f32| f64::from(from * factor) * f64::from(from * factor);
    let matrices = gradients.chunks(rows * columns).zip(of_rows.chunks_mut(rows)).zip(of_columns.chunks_mut(columns));
    for ((matrix, of_rows), of_columns) in matrices {
        let mut sums = vec![0.0f64; columns];
        for (row, mean) in matrix.chunks(columns).zip(of_rows) {
            let mut sum = 0.0;
            for (from, of_column) in row.iter().zip(&mut sums) {
                sum += square(from);
                *of_column += square(from);
            }
            *mean += share * (mean_of(sum, columns) - *mean);
        }
        for (sum, mean) in sums.iter().zip(of_columns) {
            *mean += share * (mean_of(*sum, rows) - *mean);
        }
    }
}

/// For each matrix the mean of its rows' mean squares, at least `least`.
fn row_means(of_rows: &[f32], rows: usize, least: f32) -> Vec<f32> {
    let mean = |of_rows: &[f32]| mean_of(of_rows.iter().map(|mean| f64::from(*mean)).sum(), rows);
    of_rows.chunks(rows).map(|of_rows| at_least(mean(of_rows), least)).collect()
}

/// The larger of both; NaN stays NaN.
fn at_least(value: f32, least: f32) -> f32 {
    if value < least { least } else { value }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of tensors are far below 2^53")]
fn mean_of(sum: f64, count: usize) -> f32 {
    narrowed(sum / count.max(1) as f64)
}

#[expect(clippy::cast_precision_loss, reason = "sizes of tensors are far below 2^53")]
fn root_mean_square(values: impl ExactSizeIterator<Item = f32>) -> f64 {
    let count = values.len().max(1);
    (values.map(|value| f64::from(value) * f64::from(value)).sum::<f64>() / count as f64).sqrt()
}

/// By what an update is divided so that its size is at most the declared one.
fn limit(updates: impl ExactSizeIterator<Item = f32>, settings: &Settings) -> f64 {
    let limit = root_mean_square(updates) / settings.update_limit;
    if limit < 1.0 { 1.0 } else { limit }
}

fn step(values: &mut [f32], updates: impl Iterator<Item = f32>, keep: f32, alpha: f32) {
    for (value, update) in values.iter_mut().zip(updates) {
        *value = *value * keep - alpha * update;
    }
}
