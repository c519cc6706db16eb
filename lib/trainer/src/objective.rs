//! What is minimised.

use tch::{Kind, Reduction, Tensor};
use xt_core::manifest::candidate::Objective;

use crate::fault::TrainError;

/// A target that is not predicted.
const NO_TARGET: i64 = -100;

/// The objective over `logits`, (predictions, tokens), for the tokens that were `due`: the mean over all predictions of
///
/// `(1 - s) * -log p(due) + s * mean over all tokens of -log p + z * log(Z)^2`,
///
/// where `p` is the softmax of the logits, `Z` its denominator, `s` the label smoothing (section 7 of Szegedy et al., CVPR
/// 2016) and `z` the factor of the z-loss (section 5 of Chowdhery et al., "PaLM", JMLR 2023).
pub fn loss(objective: &Objective, logits: &Tensor, due: &Tensor) -> Result<Tensor, TrainError> {
    let Objective::NextToken { label_smoothing, z_loss } = objective;
    let smoothing = label_smoothing.get();
    let loss = logits.f_cross_entropy_loss::<Tensor>(due, None, Reduction::Mean, NO_TARGET, smoothing)?;
    if z_loss.get() == 0.0 {
        return Ok(loss);
    }
    let square = logits.f_logsumexp([-1i64].as_slice(), false)?.f_square()?.f_mean(Kind::Float)?;
    Ok(loss.f_add(&square.f_mul_scalar(z_loss.get())?)?)
}
