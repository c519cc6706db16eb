//! The parameters of a model: one flat row of values, and a tensor over each span.

use std::rc::Rc;

use tch::Tensor;
use xt_core::manifest::candidate::Decay;
use xt_core::random::Stream;
use xt_core::verb::adapter::PREFIX;
use xt_torch::memory::{Flat, take_gradient};
use xt_torch::module::Module;

use crate::fault::TrainError;
use crate::gradients::Gradients;
use crate::layout::{Declared, Layout, Span, Start};
use crate::model::low_rank::LowRank;
use crate::normal::normal;

/// The parameters of a model.
#[derive(Debug)]
pub struct Parameters {
    /// Where each parameter lies.
    pub layout: Layout,
    /// Their values.
    pub values: Flat,
    tensors: Vec<Tensor>,
    /// What they stand on, if they are adapters. It is an input of the plan and no part of the state.
    foundation: Option<Box<Foundation>>,
    /// What computes with them, where that is a file. It is an input of the plan, too.
    module: Option<Rc<Module>>,
}

/// A base that stays as it is, under adapters.
#[derive(Debug)]
pub struct Foundation {
    /// Its parameters.
    pub parameters: Parameters,
    /// What the product of an adapter is multiplied by.
    pub scale: f64,
}

impl Parameters {
    /// Parameters of these declarations, all zero.
    pub fn new(declared: Vec<Declared>, decay: Decay) -> Result<Self, TrainError> {
        let layout = Layout::new(declared, decay);
        let values = Flat::zeros(layout.length())?;
        let tensors: Result<_, _> =
            layout.spans().iter().map(|span| values.view(span.offset, &span.declared.shape)).collect();
        Ok(Self { tensors: tensors?, layout, values, foundation: None, module: None })
    }

    /// The same as adapters on a base.
    #[must_use]
    pub fn on(self, foundation: Foundation) -> Self {
        Self { foundation: Some(Box::new(foundation)), ..self }
    }

    /// The same as those of a module.
    #[must_use]
    pub fn of_module(self, module: Rc<Module>) -> Self {
        Self { module: Some(module), ..self }
    }

    /// The module that computes with them, if one does.
    pub fn module(&self) -> Option<Rc<Module>> {
        self.module.clone()
    }

    /// Gives each parameter what it starts as: a draw depends on seed, name and place in the tensor alone.
    pub fn initialise(&mut self, seed: u64) {
        self.initialise_some(seed, |_| true);
    }

    /// The same for those parameters that nothing else fills, by name.
    pub fn initialise_some(&mut self, seed: u64, drawn: impl Fn(&str) -> bool) {
        let Self { layout, values, .. } = self;
        let values = values.values_mut();
        for span in layout.spans().iter().filter(|span| drawn(&span.declared.name)) {
            let row = &mut values[span.offset..span.offset + span.count];
            match span.declared.start {
                Start::Zeros => row.fill(0.0),
                Start::Ones => row.fill(1.0),
                Start::Normal(deviation) => {
                    let stream = Stream::new(seed, &format!("init/{}", span.declared.name), 0);
                    for (index, value) in (0..).zip(row) {
                        *value = narrowed(deviation * normal(&stream, index));
                    }
                }
            }
        }
    }

    /// Where the values lie, and the values. The tensors are views of these.
    pub fn memory(&self) -> (&Layout, &Flat) {
        let Self { layout, values, tensors: _, foundation: _, module: _ } = self;
        (layout, values)
    }

    /// The same, to be filled from a snapshot.
    pub fn memory_mut(&mut self) -> (&Layout, &mut Flat) {
        let Self { layout, values, tensors: _, foundation: _, module: _ } = self;
        (layout, values)
    }

    /// The tensor of parameter `name`: where these are adapters, that which was trained whole beside them, or that of the
    /// base.
    pub fn tensor(&self, name: &str) -> Result<Tensor, TrainError> {
        let found = match &self.foundation {
            None => self.own(name),
            Some(foundation) => {
                self.own(&format!("{PREFIX}{name}")).or_else(|| foundation.parameters.tensor(name).ok())
            }
        };
        found.ok_or_else(|| TrainError::Model(format!("it has no parameter {name}")))
    }

    /// What an adapter adds beside the linear layer `name`, if it has one.
    pub fn adapter(&self, name: &str) -> Option<LowRank> {
        let scale = self.foundation.as_ref()?.scale;
        let part = |part: &str| self.own(&format!("{PREFIX}{name}.{part}.weight"));
        Some(LowRank { name: name.into(), down: part("lora_A")?, up: part("lora_B")?, scale })
    }

    fn own(&self, name: &str) -> Option<Tensor> {
        let index = self.layout.spans().binary_search_by(|span| span.declared.name.as_str().cmp(name)).ok()?;
        Some(self.tensors[index].shallow_clone())
    }

    /// From now on backward passes compute the gradients of those parameters that are `trained`.
    pub fn require_gradients(&mut self, trained: impl Fn(&Declared) -> bool) -> Result<(), TrainError> {
        for (tensor, span) in self.tensors.iter_mut().zip(self.layout.spans()) {
            if trained(&span.declared) {
                *tensor = tensor.f_set_requires_grad(true)?;
            }
        }
        Ok(())
    }

    /// What backward passes have added up since this was called last. A parameter that none of them reached has a gradient of
    /// zero.
    pub fn take_gradients(&mut self) -> Result<Gradients, TrainError> {
        let take = |(tensor, span): (&mut Tensor, &Span)| {
            if !tensor.requires_grad() {
                return Ok(None);
            }
            let zeros = || Flat::zeros(span.count);
            Ok::<_, TrainError>(Some(take_gradient(tensor)?.map_or_else(zeros, Flat::of)?))
        };
        let tensors: Result<_, _> = self.tensors.iter_mut().zip(self.layout.spans()).map(take).collect();
        Ok(Gradients::new(self.layout.clone(), tensors?))
    }
}

/// The nearest binary32 number.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
pub(crate) const fn narrowed(value: f64) -> f32 {
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(seed: u64, names: [&str; 2]) -> Parameters {
        let declared = names.map(|name| Declared { name: name.into(), shape: vec![3, 2], start: Start::Normal(0.02) });
        let mut parameters = Parameters::new(declared.into(), Decay::All).unwrap();
        parameters.initialise(seed);
        parameters
    }

    #[test]
    fn a_start_depends_on_seed_and_name_and_not_on_the_other_parameters() {
        let value = |parameters: &Parameters, name| parameters.tensor(name).unwrap().double_value(&[2, 1]);
        let base = parameters(1, ["b", "c"]);
        assert_eq!(value(&parameters(1, ["a", "b"]), "b"), value(&base, "b"));
        assert_ne!(value(&parameters(2, ["b", "c"]), "b"), value(&base, "b"));
        assert_ne!(value(&base, "c"), value(&base, "b"));
        assert!(base.tensor("d").is_err());
    }

    #[test]
    fn what_something_else_fills_is_not_drawn_and_the_other_draws_are_what_they_were() {
        let all = parameters(1, ["b", "c"]);
        let mut some =
            Parameters::new(all.layout.spans().iter().map(|span| span.declared.clone()).collect(), Decay::All);
        let some = some.as_mut().unwrap();
        some.initialise_some(1, |name| name == "c");
        let values = |parameters: &Parameters, place: usize| {
            parameters.layout.spans()[place].of(parameters.values.values()).to_vec()
        };
        assert_eq!((values(some, 0), values(some, 1)), (vec![0.0; 6], values(&all, 1)));
        assert_ne!(values(&all, 0), values(some, 0));
    }

    #[test]
    fn gradients_of_trained_parameters_are_added_up_until_they_are_taken() {
        let mut parameters = parameters(1, ["b", "c"]);
        parameters.require_gradients(|declared| declared.name == "c").unwrap();
        for _ in 0..2 {
            let product = parameters.tensor("b").unwrap() * 2.0 + parameters.tensor("c").unwrap() * 3.0;
            product.sum(tch::Kind::Float).backward();
        }
        let found = parameters.take_gradients().unwrap();
        assert_eq!(found.tensors(), [None, Some(&[6.0; 6][..])]);
        assert_eq!(parameters.take_gradients().unwrap().tensors(), [None, Some(&[0.0; 6][..])]);
    }
}
