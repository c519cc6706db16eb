//! What an adapter adds beside a linear layer that stays as it is: Hu et al., "LoRA: Low-Rank Adaptation of Large Language
//! Models", ICLR 2022, section 4.1.

use tch::Tensor;

use crate::dropout::Dropout;
use crate::fault::TrainError;

/// The product of two small matrices.
#[derive(Debug)]
pub struct LowRank {
    /// Name of the layer.
    pub name: String,
    /// (rank, in).
    pub down: Tensor,
    /// (out, rank).
    pub up: Tensor,
    /// Alpha over the rank.
    pub scale: f64,
}

impl LowRank {
    /// `output` plus what the adapter makes of `input` (rows, in), after the adapters' own dropout.
    pub fn beside(&self, output: &Tensor, input: &Tensor, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        let thinned = match dropout {
            Some(dropout) => dropout.before_adapter(&self.name, input)?,
            None => input.shallow_clone(),
        };
        let added = thinned.f_mm(&self.down.f_tr()?)?.f_mm(&self.up.f_tr()?)?;
        Ok(output.f_add(&added.f_mul_scalar(self.scale)?)?)
    }
}

/// `output` with what the adapter adds, where there is one.
pub fn adapted(
    adapter: Option<&LowRank>,
    output: Tensor,
    input: &Tensor,
    dropout: Option<&Dropout>,
) -> Result<Tensor, TrainError> {
    match adapter {
        Some(adapter) => adapter.beside(&output, input, dropout),
        None => Ok(output),
    }
}
