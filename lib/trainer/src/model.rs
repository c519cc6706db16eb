//! The models, one file each. A new family is a file here and a line in [`family`].

pub mod attention;
pub mod cnn;
pub mod dense;
pub mod encoder;
pub mod gpt;
pub mod llama;
pub mod low_rank;
pub mod mlp;
pub mod torchscript;

use std::fmt::Debug;

use tch::Tensor;
use xt_core::manifest::candidate::Model;

use crate::dropout::Dropout;
use crate::fault::TrainError;
use crate::layout::Declared;
use crate::parameters::Parameters;

/// What a candidate declares of a model.
pub trait Family: Debug {
    /// Every parameter.
    fn parameters(&self) -> Vec<Declared>;

    /// Probability of dropping an activation.
    fn dropout(&self) -> f64;

    /// Whether the model draws by itself when it is trained, so that it is told the micro-batch also where nothing is dropped.
    fn draws(&self) -> bool {
        false
    }

    /// The model over `parameters`, which were declared by this.
    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError>;
}

/// A model over its parameters.
pub trait Network: Debug {
    /// What the model gives for a batch: a row for each prediction. `look` is shown what appears on the way.
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError>;

    /// Takes what the model changed by itself while it computed, its buffers, into the parameters. Most have none.
    fn remember(&self, _parameters: &mut Parameters) -> Result<(), TrainError> {
        Ok(())
    }

    /// The other way: gives the model the buffers that the parameters hold.
    fn recall(&self, _parameters: &Parameters) -> Result<(), TrainError> {
        Ok(())
    }
}

/// The family of a model.
pub fn family(model: &Model) -> Result<Box<dyn Family>, TrainError> {
    Ok(match model {
        Model::Gpt { .. } => Box::new(gpt::Sizes::of(model)?),
        Model::Llama { .. } => Box::new(llama::Llama::of(model)?),
        Model::Encoder { .. } => Box::new(encoder::Encoder::of(model)?),
        Model::Mlp { .. } => Box::new(mlp::Mlp::of(model)?),
        Model::Cnn { .. } => Box::new(cnn::Cnn::of(model)?),
        Model::TorchScript { .. } => Box::new(torchscript::TorchScript::of(model)?),
    })
}

/// Whether this is the name of a tensor inside of a module, `MODULE/PART`: only who looks for a place looks at those.
pub fn inner(name: &str) -> bool {
    name.contains('/')
}

/// Is shown a tensor by name as it appears.
pub type Look<'a> = &'a mut dyn FnMut(&str, &Tensor) -> Result<(), TrainError>;

/// Looks at nothing.
pub fn blind(_: &str, _: &Tensor) -> Result<(), TrainError> {
    Ok(())
}

/// A size as the tensor library counts.
pub(crate) fn size(value: u64) -> Result<i64, TrainError> {
    i64::try_from(value).map_err(|_| TrainError::Model(format!("{value} is too large")))
}
