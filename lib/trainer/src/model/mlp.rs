//! Layers that are fully connected, with an activation between each two (Rumelhart, Hinton, Williams, "Learning
//! representations by back-propagating errors", Nature 1986).

use tch::Tensor;
use xt_core::manifest::candidate::Model;

use crate::dropout::Dropout;
use crate::fault::TrainError;
use crate::layout::Declared;
use crate::model::dense::{Dense, Layers};
use crate::model::{Family, Look, Network, size};
use crate::parameters::Parameters;

/// The sizes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    dense: Dense,
    dropout: f64,
}

impl Mlp {
    /// The sizes that a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
        let Model::Mlp { inputs, widths, outputs, activation, dropout, initializer_gain } = model else {
            return Err(TrainError::Model(format!("a {} is no mlp", model.word())));
        };
        let sizes: Result<_, _> =
            [inputs].into_iter().chain(widths).chain([outputs]).map(|width| size(*width)).collect();
        let dense = Dense { sizes: sizes?, activation: *activation, gain: initializer_gain.get() };
        Ok(Self { dense, dropout: dropout.get() })
    }
}

impl Family for Mlp {
    fn parameters(&self) -> Vec<Declared> {
        self.dense.parameters()
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        Ok(Box::new(self.dense.layers(parameters)?))
    }
}

impl Network for Layers {
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        Self::forward(self, seen, dropout, look)
    }
}
