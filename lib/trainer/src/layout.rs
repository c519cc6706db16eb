//! Where each parameter lies in the flat rows of values, gradients and moments.
//!
//! All rows share one layout, so that the optimiser, clipping, counting and digests are single passes over memory, and
//! nothing is copied to save or to hash it. State is found by name, never by position (row R-23).

use std::sync::Arc;

use xt_core::digest::Digest;
use xt_core::manifest::candidate::Decay;
use xt_core::tensors::TensorsHasher;
use xt_torch::memory::{ALIGNMENT, Flat, bytes};

/// A parameter as a model declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its name, as the saved model spells it.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<i64>,
    /// What it starts as.
    pub start: Start,
}

/// What a parameter starts as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// Independent normal draws with mean 0 and this standard deviation.
    Normal(f64),
}

/// The place of one parameter in a flat row.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// What the model declared.
    pub declared: Declared,
    /// First value in the row.
    pub offset: usize,
    /// Number of values.
    pub count: usize,
}

impl Span {
    /// Its values in `row`.
    pub fn of<'a>(&self, row: &'a [f32]) -> &'a [f32] {
        &row[self.offset..self.offset + self.count]
    }
}

/// The places of all parameters, sorted by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    spans: Arc<[Span]>,
    length: usize,
}

impl Layout {
    /// Lays out the parameters: those that decay first, so that they are one stretch of each row, and each at an aligned
    /// offset. The gaps stay zero.
    pub fn new(mut declared: Vec<Declared>, decay: Decay) -> Self {
        let decays = |parameter: &Declared| decay == Decay::All || parameter.shape.len() >= 2;
        declared.sort_by(|left, right| (!decays(left), &left.name).cmp(&(!decays(right), &right.name)));
        let mut offset = 0;
        let mut spans: Vec<Span> = Vec::with_capacity(declared.len());
        for parameter in declared {
            let count = usize::try_from(parameter.shape.iter().product::<i64>()).unwrap_or(0);
            spans.push(Span { declared: parameter, offset, count });
            offset += count.next_multiple_of(ALIGNMENT);
        }
        spans.sort_by(|left, right| left.declared.name.cmp(&right.declared.name));
        Self { spans: spans.into(), length: offset }
    }

    /// The places, sorted by name.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Values in a row, gaps included.
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Values in a row without the gaps: the number of trainable parameters.
    pub fn parameters(&self) -> u64 {
        self.spans.iter().map(|span| span.count as u64).sum()
    }
}

/// Digest of named tensors, sorted by whole name. A row stands for all its tensors, named `prefix` and the parameter's
/// name; prefixes are sorted.
pub fn digest(layout: &Layout, rows: &[(&str, &Flat)]) -> Digest {
    digest_of(rows.iter().map(|(prefix, row)| (*prefix, layout, row.values())))
}

/// The same for rows that each have their own layout.
pub fn digest_of<'a>(rows: impl Iterator<Item = (&'a str, &'a Layout, &'a [f32])>) -> Digest {
    let mut hasher = TensorsHasher::new();
    for (prefix, layout, row) in rows {
        layout.spans().iter().for_each(|span| add_to(&mut hasher, prefix, span, span.of(row)));
    }
    hasher.finish()
}

/// Takes one tensor into a digest.
pub fn add_to(hasher: &mut TensorsHasher, prefix: &str, span: &Span, values: &[f32]) {
    begin(hasher, prefix, span);
    hasher.values(bytes(values));
}

/// The same for a tensor of zeros that lies nowhere.
pub fn add_zeros_to(hasher: &mut TensorsHasher, prefix: &str, span: &Span) {
    const ZEROS: [f32; 4096] = [0.0; 4096];
    begin(hasher, prefix, span);
    let mut left = span.count;
    while left > 0 {
        let count = left.min(ZEROS.len());
        hasher.values(bytes(&ZEROS[..count]));
        left -= count;
    }
}

fn begin(hasher: &mut TensorsHasher, prefix: &str, span: &Span) {
    let Declared { name, shape, .. } = &span.declared;
    hasher.begin([prefix, name], shape.iter().map(|size| size.unsigned_abs()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared(name: &str, shape: &[i64]) -> Declared {
        Declared { name: name.into(), shape: shape.into(), start: Start::Zeros }
    }

    #[test]
    fn what_decays_comes_first_and_places_are_aligned_and_found_by_name() {
        let parameters = vec![declared("b.bias", &[3]), declared("b.weight", &[3, 5]), declared("a.weight", &[2, 2])];
        let layout = Layout::new(parameters.clone(), Decay::Matrices);
        let places: Vec<(&str, usize, usize)> =
            layout.spans().iter().map(|span| (span.declared.name.as_str(), span.offset, span.count)).collect();
        assert_eq!(places, [("a.weight", 0, 4), ("b.bias", 32, 3), ("b.weight", 16, 15)]);
        assert_eq!((layout.length(), layout.parameters()), (48, 22));
        let offsets: Vec<usize> = Layout::new(parameters, Decay::All).spans().iter().map(|span| span.offset).collect();
        assert_eq!(offsets, [0, 16, 32]);
    }

    #[test]
    fn the_digest_sees_values_names_and_shapes_but_not_where_they_lie() {
        let row = |layout: &Layout, values: &[(&str, f32)]| {
            let mut row = Flat::zeros(layout.length()).unwrap();
            for (name, value) in values {
                let span = layout.spans().iter().find(|span| span.declared.name == *name).unwrap();
                row.values_mut()[span.offset] = *value;
            }
            row
        };
        let parameters = vec![declared("a", &[2]), declared("b", &[2, 1])];
        let (all, matrices) = (Layout::new(parameters.clone(), Decay::All), Layout::new(parameters, Decay::Matrices));
        assert_ne!(all.spans()[0].offset, matrices.spans()[0].offset);
        let values = [("a", 1.0), ("b", 2.0)];
        let base = digest(&all, &[("", &row(&all, &values))]);
        assert_eq!(digest(&matrices, &[("", &row(&matrices, &values))]), base);
        assert_ne!(digest(&all, &[("", &row(&all, &[("a", 2.0), ("b", 1.0)]))]), base);
        assert_ne!(digest(&all, &[("m/", &row(&all, &values))]), base);
        let other = Layout::new(vec![declared("a", &[2]), declared("b", &[1, 2])], Decay::All);
        assert_ne!(digest(&other, &[("", &row(&other, &values))]), base);
        assert_ne!(digest(&all, &[("", &row(&all, &[("a", -0.0)]))]), digest(&all, &[("", &row(&all, &[("a", 0.0)]))]));
    }
}
