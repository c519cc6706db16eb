//! The gradients of one step, as backward passes leave them: there is no row of zeros that is written first and added to,
//! which for small models costs a good part of the step.

use xt_core::digest::Digest;
use xt_core::tensors::TensorsHasher;
use xt_torch::memory::{Flat, Lent};

use crate::layout::{Layout, add_to, add_zeros_to};
use crate::optim::norm;
use crate::parameters::narrowed;
use crate::probe::{Counts, Glance};

/// One gradient for each parameter that is trained, in the layout of the parameters. Of the others it is zero.
#[derive(Debug)]
pub struct Gradients {
    layout: Layout,
    tensors: Vec<Option<Flat>>,
}

/// Gradients that are lent to be hashed.
#[derive(Debug)]
pub struct LentGradients {
    layout: Layout,
    tensors: Vec<Option<Lent>>,
}

impl Gradients {
    /// One tensor for each span of `layout`.
    pub const fn new(layout: Layout, tensors: Vec<Option<Flat>>) -> Self {
        Self { layout, tensors }
    }

    /// The gradient of each parameter, sorted by name.
    pub fn tensors(&self) -> Vec<Option<&[f32]>> {
        self.tensors.iter().map(|tensor| tensor.as_ref().map(Flat::values)).collect()
    }

    /// Counts of the gradient of each parameter, with its name.
    pub fn counts(&self) -> impl Iterator<Item = (&str, Counts)> {
        self.layout.spans().iter().zip(self.tensors()).map(|(span, values)| {
            let name = span.declared.name.as_str();
            let mut counts = Counts::default();
            counts.look_at(|| name.into(), values.unwrap_or_default());
            (name, counts)
        })
    }

    /// Counts all values into `counts`.
    pub fn look(&self, counts: &mut Counts) {
        for (span, values) in self.layout.spans().iter().zip(self.tensors()) {
            match values {
                Some(values) => counts.look_at(|| span.declared.name.clone(), values),
                None => counts.pass_zeros(span.count as u64),
            }
        }
    }

    /// Global 2-norm; counts all values into `counts` on the way.
    pub fn norm(&self, counts: &mut Counts) -> f64 {
        let mut glance = Glance::default();
        let norm = norm(self.tensors().into_iter().flatten(), |block| glance.see(block));
        if !counts.settle(self.layout.parameters(), glance) {
            self.look(counts);
        }
        norm
    }

    /// Divides every gradient by `divisor`.
    pub fn divide(&mut self, divisor: f32) {
        self.each(|gradient| *gradient /= divisor);
    }

    /// Brings each gradient into the range from minus `maximum` to `maximum`. NaN stays NaN.
    pub fn clip(&mut self, maximum: f64) {
        let maximum = narrowed(maximum);
        self.each(|gradient| *gradient = gradient.clamp(-maximum, maximum));
    }

    fn each(&mut self, change: impl Fn(&mut f32)) {
        self.tensors.iter_mut().flatten().for_each(|tensor| tensor.values_mut().iter_mut().for_each(&change));
    }

    /// Lends them to another thread.
    pub fn lend(&self) -> LentGradients {
        let tensors = self.tensors.iter().map(|tensor| tensor.as_ref().map(Flat::lend)).collect();
        LentGradients { layout: self.layout.clone(), tensors }
    }
}

impl LentGradients {
    /// Digest by the names of the parameters.
    pub fn digest(&self) -> Digest {
        let mut hasher = TensorsHasher::new();
        for (span, values) in self.layout.spans().iter().zip(&self.tensors) {
            match values {
                Some(values) => add_to(&mut hasher, "", span, values.values()),
                None => add_zeros_to(&mut hasher, "", span),
            }
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Declared, Start, digest};
    use tch::Tensor;
    use xt_core::manifest::candidate::Decay;

    fn layout() -> Layout {
        let declared = |name: &str, count| Declared { name: name.into(), shape: vec![count], start: Start::Zeros };
        Layout::new(vec![declared("a", 3), declared("b", 5000), declared("c", 1)], Decay::All)
    }

    fn gradients(a: [f32; 3], c: f32) -> Gradients {
        let flat = |values: &[f32]| Some(Flat::of(Tensor::from_slice(values)).unwrap());
        Gradients::new(layout(), vec![flat(&a), None, flat(&[c])])
    }

    #[test]
    fn those_that_are_not_trained_count_and_hash_as_zeros() {
        let some = gradients([1.0, -2.0, 0.5], 2.0);
        let mut row = Flat::zeros(layout().length()).unwrap();
        for (span, values) in layout().spans().iter().zip([&[1.0, -2.0, 0.5][..], &[], &[2.0]]) {
            row.values_mut()[span.offset..span.offset + values.len()].copy_from_slice(values);
        }
        assert_eq!(some.lend().digest(), digest(&layout(), &[("", &row)]));
        assert_ne!(some.lend().digest(), gradients([1.0, -2.0, 0.5], 3.0).lend().digest());
        let (mut passing, mut looking) = (Counts::default(), Counts::default());
        assert_eq!(some.norm(&mut passing).to_bits(), 9.25f64.sqrt().to_bits());
        some.look(&mut looking);
        assert_eq!(passing, looking);
    }

    #[test]
    fn what_is_not_finite_is_counted_with_its_name_and_stays_when_it_is_clipped() {
        let mut some = gradients([f32::NAN, -8.0, 0.5], f32::INFINITY);
        let mut counts = Counts::default();
        assert!(some.norm(&mut counts).is_nan());
        assert_eq!(counts.non_finite(), 2);
        some.divide(2.0);
        some.clip(1.0);
        let [Some([nan, clipped, small]), None, Some([one])] = some.tensors()[..] else { panic!("{some:?}") };
        assert!(nan.is_nan());
        assert_eq!([*clipped, *small, *one], [-1.0, 0.25, 1.0]);
    }
}
