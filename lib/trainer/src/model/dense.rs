//! Parts of networks of several families: layers that are fully connected, and what lies between them.

use tch::Tensor;
use xt_core::manifest::network::Activation;

use crate::dropout::{Dropout, dropped};
use crate::fault::TrainError;
use crate::layout::{Declared, Start};
use crate::model::Look;
use crate::parameters::Parameters;

/// The activation of `input`.
pub fn activate(activation: Activation, input: &Tensor) -> Result<Tensor, TrainError> {
    Ok(match activation {
        Activation::Relu => input.f_relu()?,
        Activation::Tanh => input.f_tanh()?,
        Activation::Gelu => input.f_gelu("tanh")?,
    })
}

/// A weight and a bias, named and laid out as PyTorch does: the weight is (outputs, inputs...). The weight starts normal
/// with `gain` over the square root of its inputs, as section 2.2 of He et al., "Delving Deep into Rectifiers", ICCV 2015.
pub fn declared(name: &str, weight: &[i64], gain: f64) -> [Declared; 2] {
    #[expect(clippy::cast_precision_loss, reason = "sizes of tensors that fit into memory")]
    let inputs = weight[1..].iter().product::<i64>() as f64;
    [
        Declared { name: format!("{name}.weight"), shape: weight.into(), start: Start::Normal(gain / inputs.sqrt()) },
        Declared { name: format!("{name}.bias"), shape: vec![weight[0]], start: Start::Zeros },
    ]
}

/// A weight and a bias.
#[derive(Debug)]
pub struct Weights {
    /// Name of the layer.
    pub name: String,
    /// (outputs, inputs...).
    pub weight: Tensor,
    /// (outputs).
    pub bias: Tensor,
}

impl Weights {
    /// Those of the layer `name`.
    pub fn of(parameters: &Parameters, name: String) -> Result<Self, TrainError> {
        let tensor = |part| parameters.tensor(&format!("{name}.{part}"));
        Ok(Self { weight: tensor("weight")?, bias: tensor("bias")?, name })
    }
}

/// The sizes of layers that are fully connected: from the inputs through the widths to the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// Inputs, widths, outputs.
    pub sizes: Vec<i64>,
    /// What lies between two layers.
    pub activation: Activation,
    /// As the candidate declares it.
    pub gain: f64,
}

impl Dense {
    /// The parameters of the layers, in the list `layers`.
    pub fn parameters(&self) -> Vec<Declared> {
        let pairs = self.sizes.windows(2).enumerate();
        pairs.flat_map(|(index, pair)| declared(&format!("layers.{index}"), &[pair[1], pair[0]], self.gain)).collect()
    }

    /// The layers over their parameters.
    pub fn layers(&self, parameters: &Parameters) -> Result<Layers, TrainError> {
        let layer = |index| Weights::of(parameters, format!("layers.{index}"));
        let layers: Result<_, _> = (0..self.sizes.len().saturating_sub(1)).map(layer).collect();
        Ok(Layers { layers: layers?, activation: self.activation })
    }
}

/// Layers that are fully connected.
#[derive(Debug)]
pub struct Layers {
    layers: Vec<Weights>,
    activation: Activation,
}

impl Layers {
    /// `input` (samples, inputs) through all layers, the activation and then dropout behind each but the last.
    pub fn forward(&self, input: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let mut stream = input.shallow_clone();
        for (index, layer) in self.layers.iter().enumerate() {
            stream = layer.bias.f_addmm(&stream, &layer.weight.f_tr()?)?;
            if index + 1 < self.layers.len() {
                stream = dropped(dropout, &layer.name, activate(self.activation, &stream)?)?;
                look(&layer.name, &stream)?;
            }
        }
        look("outputs", &stream)?;
        Ok(stream)
    }
}
