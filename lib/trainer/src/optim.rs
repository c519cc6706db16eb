//! The optimisers: own code over flat rows, with state that is complete and open.
//!
//! Only sums, products, quotients and square roots of binary32 numbers are used, which IEEE 754 defines exactly, so an
//! update gives the same bits on every processor and with every vector width. The state is the rows and one counter;
//! nothing is made lazily (row R-20).

use xt_core::digest::{Digest, Hasher};
use xt_core::manifest::candidate::Optimizer;
use xt_torch::memory::Flat;

use crate::fault::TrainError;
use crate::layout::{self, Layout};
use crate::parameters::narrowed;
use crate::probe::Counts;

/// An optimiser and its whole state.
#[derive(Debug)]
pub struct Optim {
    settings: Optimizer,
    /// Rows of state with the prefix of their names, sorted by it.
    rows: Vec<(&'static str, Flat)>,
    /// Updates made so far.
    updates: u64,
}

/// What one update is made of.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    /// Gradients before clipping, in the layout of the values.
    pub gradients: &'a [f32],
    /// Learning rate.
    pub rate: f64,
    /// Factor on each gradient, from clipping.
    pub factor: f32,
}

impl Optim {
    /// The optimiser before its first update.
    pub fn new(settings: &Optimizer, layout: &Layout) -> Result<Self, TrainError> {
        let names: &[&str] = match settings {
            Optimizer::AdamW { .. } => &["first_moment/", "second_moment/"],
            Optimizer::Sgd { momentum, .. } if momentum.get() > 0.0 => &["momentum/"],
            Optimizer::Sgd { .. } => &[],
        };
        let rows: Result<_, TrainError> = names.iter().map(|name| Ok((*name, Flat::zeros(layout.length())?))).collect();
        Ok(Self { settings: settings.clone(), rows: rows?, updates: 0 })
    }

    /// Updates made so far.
    pub const fn updates(&self) -> u64 {
        self.updates
    }

    /// Everything it remembers: the rows with the prefixes of their names, and the count of updates. The settings are the
    /// plan's. Taken apart without `..`: a new field does not compile until someone decides whether it is remembered.
    pub fn memory(&self) -> (&[(&'static str, Flat)], u64) {
        let Self { settings: _, rows, updates } = self;
        (rows, *updates)
    }

    /// The same, to be filled from a snapshot.
    pub fn memory_mut(&mut self) -> (&mut [(&'static str, Flat)], &mut u64) {
        let Self { settings: _, rows, updates } = self;
        (rows, updates)
    }

    /// Changes `values` in place.
    pub fn update(&mut self, layout: &Layout, values: &mut [f32], update: Update<'_>) {
        self.updates += 1;
        let border = layout.decayed();
        let (decayed, plain) = values.split_at_mut(border);
        let (first, second) = update.gradients.split_at(border);
        for (values, gradients, from, decays) in [(decayed, first, 0, true), (plain, second, border, false)] {
            let part = Part { from, decays, update: Update { gradients, ..update } };
            match self.settings.clone() {
                Optimizer::AdamW { beta1, beta2, epsilon, weight_decay, .. } => {
                    self.adamw(values, part, [beta1, beta2, epsilon, weight_decay].map(xt_core::number::Finite::get));
                }
                Optimizer::Sgd { momentum, nesterov, weight_decay, .. } => {
                    self.sgd(values, part, momentum.get(), nesterov, weight_decay.get());
                }
            }
        }
    }

    /// Algorithm 2 of Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, with the decay times the
    /// learning rate, and with the correction of the second moment before epsilon is added, as in algorithm 1 of Kingma
    /// and Ba, "Adam", ICLR 2015:
    ///
    /// `w -= rate * decay * w`, `m += (1 - b1) * (g - m)`, `v = b2 * v + (1 - b2) * g * g`,
    /// `w -= rate / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)`.
    fn adamw(&mut self, values: &mut [f32], part: Part<'_>, [beta1, beta2, epsilon, decay]: [f64; 4]) {
        #[expect(clippy::cast_precision_loss, reason = "counts of updates are far below 2^53")]
        let corrections = [beta1, beta2].map(|beta| 1.0 - libm::pow(beta, self.updates as f64));
        let keep = narrowed(1.0 - part.update.rate * if part.decays { decay } else { 0.0 });
        let (rate, root) = (narrowed(part.update.rate / corrections[0]), narrowed(corrections[1].sqrt()));
        let (new1, beta2, new2, epsilon) =
            (narrowed(1.0 - beta1), narrowed(beta2), narrowed(1.0 - beta2), narrowed(epsilon));
        let [(_, first), (_, second)] = self.rows.as_mut_slice() else { return };
        let first = &mut first.values_mut()[part.from..][..values.len()];
        let second = &mut second.values_mut()[part.from..][..values.len()];
        for (((value, m), v), gradient) in values.iter_mut().zip(first).zip(second).zip(part.update.gradients) {
            let gradient = gradient * part.update.factor;
            *m += new1 * (gradient - *m);
            *v = beta2 * *v + new2 * (gradient * gradient);
            *value = *value * keep - rate * (*m / (v.sqrt() / root + epsilon));
        }
    }

    /// Stochastic gradient descent as PyTorch writes it: `g += decay * w`; with momentum, the buffer `b` is the first
    /// gradient and then `b = momentum * b + g`, and the step is along `b`, or along `g + momentum * b` (Nesterov, as
    /// Sutskever et al., ICML 2013, put it); `w -= rate * step`.
    fn sgd(&mut self, values: &mut [f32], part: Part<'_>, momentum: f64, nesterov: bool, decay: f64) {
        let (rate, factor, momentum) = (narrowed(part.update.rate), part.update.factor, narrowed(momentum));
        let decay = if part.decays { narrowed(decay) } else { 0.0 };
        let first_update = self.updates == 1;
        let Some((_, buffer)) = self.rows.first_mut() else {
            for (value, gradient) in values.iter_mut().zip(part.update.gradients) {
                *value -= rate * (gradient * factor + decay * *value);
            }
            return;
        };
        let buffer = &mut buffer.values_mut()[part.from..][..values.len()];
        for ((value, buffer), gradient) in values.iter_mut().zip(buffer).zip(part.update.gradients) {
            let gradient = gradient * factor + decay * *value;
            *buffer = if first_update { gradient } else { momentum * *buffer + gradient };
            *value -= rate * if nesterov { gradient + momentum * *buffer } else { *buffer };
        }
    }

    /// Digest of the whole state: SHA-256 of the digest of all rows by name and of the number of updates, 8 little-endian
    /// bytes.
    pub fn digest(&self, layout: &Layout) -> Digest {
        let rows: Vec<(&str, &Flat)> = self.rows.iter().map(|(prefix, row)| (*prefix, row)).collect();
        let mut hasher = Hasher::new();
        hasher.update(layout::digest(layout, &rows).bytes());
        hasher.update(&self.updates.to_le_bytes());
        hasher.finish()
    }

    /// Counts the values of the state.
    pub fn look(&self, layout: &Layout, counts: &mut Counts) {
        for (prefix, row) in &self.rows {
            look(layout, prefix, row, counts);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    /// Where the part begins in the rows.
    from: usize,
    decays: bool,
    update: Update<'a>,
}

/// Counts the values of every tensor of a row.
pub fn look(layout: &Layout, prefix: &str, row: &Flat, counts: &mut Counts) {
    for span in layout.spans() {
        counts.look_at(|| format!("{prefix}{}", span.declared.name), span.of(row.values()));
    }
}

/// Global 2-norm of a row: squares are summed in binary64, in eight lanes that are added at the end, always in the same
/// order. The gaps of the row are zero and add nothing.
pub fn norm(row: &[f32]) -> f64 {
    let mut lanes = [0.0f64; 8];
    let (blocks, rest) = row.as_chunks::<8>();
    for block in blocks {
        for (lane, value) in lanes.iter_mut().zip(block) {
            *lane += f64::from(*value) * f64::from(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += f64::from(*value) * f64::from(*value);
    }
    lanes.iter().sum::<f64>().sqrt()
}

/// Factor that brings a gradient of this norm down to `maximum`: `maximum / (norm + 1e-6)` where that is below 1, as
/// PyTorch's `clip_grad_norm_` (Pascanu, Mikolov, Bengio, ICML 2013). A norm that is not finite gives 1: such gradients
/// are not repaired.
pub fn clipping_factor(norm: f64, maximum: f64) -> f32 {
    let factor = maximum / (norm + 1e-6);
    if norm.is_finite() && factor < 1.0 { narrowed(factor) } else { 1.0 }
}
