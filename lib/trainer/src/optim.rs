//! The optimisers: own code over flat rows, with state that is complete and open.
//!
//! Only sums, products, quotients and square roots of binary32 numbers are used, which IEEE 754 defines exactly, so an
//! update gives the same bits on every processor and with every vector width. The state is the rows and one counter;
//! nothing is made lazily (row R-20).

mod adafactor;
mod adam;
mod lion;
mod sgd;

use std::ops::Range;

use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Decay, Group, Optimizer};
use xt_core::number::Finite;
use xt_core::verb::groups::{Handling, handling};
use xt_core::verb::snapshot::optimizer_digest;
use xt_torch::memory::Flat;
use xt_torch::wide::wide;

use crate::fault::TrainError;
use crate::layout::{self, Declared, Layout, Span, Start};
use crate::parameters::narrowed;
use crate::probe::{BLOCK, Counts};

/// An optimiser and its whole state.
#[derive(Debug)]
pub struct Optim {
    settings: Optimizer,
    /// How each parameter is updated; frozen ones are not.
    handling: Vec<Option<Handling>>,
    /// Rows of state, sorted by the prefix of their names.
    rows: Vec<Row>,
    /// Updates made so far.
    updates: u64,
}

/// A row of state. Its tensors are named `prefix` and the name of the parameter.
#[derive(Debug)]
pub struct Row {
    /// What the names of its tensors begin with.
    pub prefix: &'static str,
    /// Where its tensors lie: as the parameters do, or smaller ones.
    pub layout: Layout,
    /// The values.
    pub values: Flat,
}

/// What one update is made of.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// Gradients, clipped by value if at all: one for each parameter that is trained, sorted by name.
    pub gradients: &'a [Option<&'a [f32]>],
    /// Learning rate.
    pub rate: f64,
    /// Factor on each gradient, from clipping by norm.
    pub factor: f32,
}

/// What an update of one parameter is scaled by.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Learning rate.
    rate: f64,
    /// Factor on each gradient.
    factor: f32,
    /// Updates made, with this one.
    updates: u64,
}

/// The values of one parameter, with its gradient.
#[derive(Debug)]
struct Stretch<'a> {
    values: &'a mut [f32],
    gradients: &'a [f32],
}

impl Row {
    /// A row of zeros.
    pub(crate) fn zeros(prefix: &'static str, layout: Layout) -> Result<Self, TrainError> {
        Ok(Self { prefix, values: Flat::zeros(layout.length())?, layout })
    }

    /// As a part of a digest or a file.
    pub fn part(&self) -> (&str, &Layout, &[f32]) {
        (self.prefix, &self.layout, self.values.values())
    }
}

impl Optim {
    /// The optimiser before its first update.
    pub fn new(settings: &Optimizer, groups: &[Group], layout: &Layout) -> Result<Self, TrainError> {
        let same = |names: &[&'static str]| names.iter().map(|name| (*name, layout.clone())).collect::<Vec<_>>();
        let rows = match settings {
            Optimizer::AdamW { .. } | Optimizer::Adam { .. } => same(&["first_moment/", "second_moment/"]),
            Optimizer::Lion { .. } => same(&["momentum/"]),
            Optimizer::Sgd { momentum, .. } if momentum.get() > 0.0 => same(&["momentum/"]),
            Optimizer::Sgd { .. } => Vec::new(),
            Optimizer::Adafactor { .. } => factored(layout),
        };
        let rows: Result<_, TrainError> = rows.into_iter().map(|(name, layout)| Row::zeros(name, layout)).collect();
        let handling = |span: &Span| {
            let Declared { name, shape, .. } = &span.declared;
            handling(settings, groups, name, shape.len())
        };
        let handling = layout.spans().iter().map(handling).collect();
        Ok(Self { settings: settings.clone(), handling, rows: rows?, updates: 0 })
    }

    /// Updates made so far.
    pub const fn updates(&self) -> u64 {
        self.updates
    }

    /// Everything it remembers: the rows with the prefixes of their names, and the count of updates. Settings and
    /// handling are the plan's. Taken apart without `..`: a new field does not compile until someone decides whether it
    /// is remembered.
    pub fn memory(&self) -> (&[Row], u64) {
        let Self { settings: _, handling: _, rows, updates } = self;
        (rows, *updates)
    }

    /// The same, to be filled from a snapshot.
    pub fn memory_mut(&mut self) -> (&mut [Row], &mut u64) {
        let Self { settings: _, handling: _, rows, updates } = self;
        (rows, updates)
    }

    /// Changes `values` in place. `seen` is shown everything that they and the state then hold, most of it while it is still
    /// in the cache: each value once, in any order, and zeros between them.
    pub fn update(&mut self, layout: &Layout, values: &mut [f32], update: Update<'_>, mut seen: impl FnMut(&[f32])) {
        self.updates += 1;
        for ((span, handling), gradients) in layout.spans().iter().zip(&self.handling).zip(update.gradients) {
            let place = span.offset..span.offset + span.count;
            let (Some(handling), Some(gradients)) = (handling, gradients) else {
                self.show_frozen(&place, values, &mut seen);
                continue;
            };
            let rate = update.rate * handling.rate_factor;
            let scale = Scale { rate, factor: update.factor, updates: self.updates };
            let stretch = Stretch { values: &mut values[place.clone()], gradients };
            let (decay, rows, seen) = (handling.decay, self.rows.as_mut_slice(), &mut seen);
            match &self.settings {
                Optimizer::AdamW { beta1, beta2, epsilon, .. } | Optimizer::Adam { beta1, beta2, epsilon, .. } => {
                    let [beta1, beta2, epsilon] = [beta1, beta2, epsilon].map(|number| number.get());
                    let coupled = matches!(self.settings, Optimizer::Adam { .. });
                    let settings = adam::Settings { beta1, beta2, epsilon, decay, coupled };
                    let [first, second] = rows else { continue };
                    adam::update(stretch, [first.at(&place), second.at(&place)], &settings, scale, seen);
                }
                Optimizer::Lion { beta1, beta2, .. } => {
                    let settings = lion::Settings { beta1: beta1.get(), beta2: beta2.get(), decay };
                    let [momentum] = rows else { continue };
                    lion::update(stretch, momentum.at(&place), &settings, scale, seen);
                }
                Optimizer::Sgd { momentum, nesterov, .. } => {
                    let settings = sgd::Settings { momentum: momentum.get(), nesterov: *nesterov, decay };
                    match rows.first_mut() {
                        Some(buffer) => sgd::momentum(stretch, buffer.at(&place), &settings, scale, seen),
                        None => sgd::plain(stretch, &settings, scale, seen),
                    }
                }
                Optimizer::Adafactor { decay_power, epsilon, minimum_scale, update_limit, .. } => {
                    let numbers =
                        [decay_power, epsilon, minimum_scale, update_limit].map(|number: &Finite| number.get());
                    let [decay_power, epsilon, minimum_scale, update_limit] = numbers;
                    let settings = adafactor::Settings { decay_power, epsilon, minimum_scale, update_limit, decay };
                    let Some(moment) = moment(rows, span) else { continue };
                    let Stretch { values, gradients } = stretch;
                    adafactor::update(values, gradients, moment, &settings, scale);
                    seen(values);
                }
            }
        }
        if let Optimizer::Adafactor { .. } = &self.settings {
            self.rows.iter().for_each(|row| seen(row.values.values()));
        }
    }

    /// Shows a parameter that is not updated, and what lies at its place in rows of the same layout.
    fn show_frozen(&self, place: &Range<usize>, values: &[f32], seen: &mut impl FnMut(&[f32])) {
        seen(&values[place.clone()]);
        if !matches!(self.settings, Optimizer::Adafactor { .. }) {
            self.rows.iter().for_each(|row| seen(&row.values.values()[place.clone()]));
        }
    }

    /// Digest of the whole state and of a row beside it whose prefix sorts before all others: SHA-256 of the digest of all
    /// rows by name and of the number of updates, 8 little-endian bytes.
    pub fn digest(&self, beside: Option<&Row>) -> Digest {
        let rows = beside.into_iter().chain(&self.rows);
        optimizer_digest(layout::digest_of(rows.map(Row::part)), self.updates)
    }

    /// Counts the values of the state.
    pub fn look(&self, counts: &mut Counts) {
        for row in &self.rows {
            look(&row.layout, row.prefix, &row.values, counts);
        }
    }
}

impl Row {
    fn at(&mut self, place: &Range<usize>) -> &mut [f32] {
        &mut self.values.values_mut()[place.clone()]
    }

    /// The values of the tensor for the parameter `name`, if the row has one.
    fn of(&mut self, name: &str) -> Option<&mut [f32]> {
        let spans = self.layout.spans();
        let index = spans.binary_search_by(|span| span.declared.name.as_str().cmp(name)).ok()?;
        let (from, count) = (spans[index].offset, spans[index].count);
        Some(&mut self.values.values_mut()[from..from + count])
    }
}

/// The rows of Adafactor: means over columns and over rows of parameters with two dimensions or more, over the last two of
/// them, and the squares of the others.
fn factored(layout: &Layout) -> Vec<(&'static str, Layout)> {
    let part = |shape: &dyn Fn(&[i64]) -> Option<Vec<i64>>| {
        let declared = layout.spans().iter().filter_map(|span| {
            let shape = shape(&span.declared.shape)?;
            Some(Declared { name: span.declared.name.clone(), shape, start: Start::Zeros })
        });
        Layout::new(declared.collect(), Decay::All)
    };
    let replaced = |shape: &[i64], from_behind: usize| {
        let mut shape = shape.to_vec();
        let at = shape.len().checked_sub(from_behind).filter(|_| shape.len() >= 2)?;
        shape[at] = 1;
        Some(shape)
    };
    Vec::from([
        ("column_variance/", part(&|shape| replaced(shape, 2))),
        ("row_variance/", part(&|shape| replaced(shape, 1))),
        ("variance/", part(&|shape| (shape.len() < 2).then(|| shape.to_vec()))),
    ])
}

/// Where Adafactor remembers the second moment of a parameter.
fn moment<'a>(rows: &'a mut [Row], span: &Span) -> Option<adafactor::Moment<'a>> {
    let [of_columns, of_rows, whole] = rows else { return None };
    let Declared { name, shape, .. } = &span.declared;
    let [.., rows, columns] = shape.as_slice() else { return whole.of(name).map(adafactor::Moment::Whole) };
    let (rows, columns) = (usize::try_from(*rows).ok()?, usize::try_from(*columns).ok()?);
    Some(adafactor::Moment::Factored { columns, rows, of_rows: of_rows.of(name)?, of_columns: of_columns.of(name)? })
}

/// Counts the values of every tensor of a row.
pub fn look(layout: &Layout, prefix: &str, row: &Flat, counts: &mut Counts) {
    for span in layout.spans() {
        counts.look_at(|| format!("{prefix}{}", span.declared.name), span.of(row.values()));
    }
}

/// Global 2-norm of some rows: squares are summed in binary64, in eight lanes that are added at the end, always in the same
/// order. `seen` is shown the rows block by block.
pub fn norm<'a>(rows: impl Iterator<Item = &'a [f32]>, mut seen: impl FnMut(&[f32])) -> f64 {
    let mut lanes = [0.0f64; 8];
    for block in rows.flat_map(|row| row.chunks(BLOCK)) {
        lanes = wide(|| with_squares(lanes, block));
        seen(block);
    }
    lanes.iter().sum::<f64>().sqrt()
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the vectors of its caller")]
fn with_squares(mut lanes: [f64; 8], values: &[f32]) -> [f64; 8] {
    let (blocks, rest) = values.as_chunks::<8>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(*value) * f64::from(*value);
    }
    lanes
}

/// Factor that brings a gradient of this norm down to `maximum`: `maximum / (norm + 1e-6)` where that is below 1, as
/// PyTorch's `clip_grad_norm_` (Pascanu, Mikolov, Bengio, ICML 2013). A norm that is not finite gives 1: such gradients
/// are not repaired.
pub fn clipping_factor(norm: f64, maximum: f64) -> f32 {
    let factor = maximum / (norm + 1e-6);
    if norm.is_finite() && factor < 1.0 { narrowed(factor) } else { 1.0 }
}
