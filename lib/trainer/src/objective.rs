//! What is minimised.

use tch::{Kind, Reduction, Tensor};
use xt_core::manifest::candidate::Objective;

use crate::fault::TrainError;

/// A target that is not predicted.
pub const NO_TARGET: i64 = -100;

/// The objective over `outputs`, a row for each prediction, against what was `due`: the mean over all predictions,
/// which of none is NaN. A target [`NO_TARGET`] is no prediction. That of
/// the next token, and of classes, is the mean of
///
/// `(1 - s) * -log p(due) + s * mean over all of them of -log p + z * log(Z)^2`,
///
/// where `p` is the softmax of the logits, `Z` its denominator, `s` the label smoothing (section 7 of Szegedy et al., CVPR
/// 2016) and `z` the factor of the z-loss (section 5 of Chowdhery et al., "PaLM", JMLR 2023). The other formulas stand with
/// [`Objective`].
pub fn loss(objective: &Objective, outputs: &Tensor, due: &Tensor) -> Result<Tensor, TrainError> {
    let smoothing = match objective {
        Objective::NextToken { label_smoothing, .. } | Objective::CrossEntropy { label_smoothing, .. } => {
            label_smoothing.get()
        }
        _ => 0.0,
    };
    let loss = reduced(objective, outputs, due, Reduction::Mean, smoothing)?;
    match objective {
        Objective::NextToken { z_loss, .. } | Objective::CrossEntropy { z_loss, .. } if z_loss.get() != 0.0 => {
            let outputs = predicted(outputs, due)?;
            let square = outputs.f_logsumexp([-1i64].as_slice(), false)?.f_square()?.f_mean(Kind::Float)?;
            Ok(loss.f_add(&square.f_mul_scalar(z_loss.get())?)?)
        }
        _ => Ok(loss),
    }
}

/// The rows of `outputs` that are predictions; all of them, as they are, where each has a target.
fn predicted(outputs: &Tensor, due: &Tensor) -> Result<Tensor, TrainError> {
    let wanted = due.f_ne(NO_TARGET)?;
    if bool::try_from(wanted.f_all()?)? {
        return Ok(outputs.shallow_clone());
    }
    Ok(outputs.f_index_select(0, &wanted.f_nonzero()?.f_view([-1])?)?)
}

/// The objective of each prediction by itself, without smoothing and without what is added to a mean: what evaluations
/// measure.
pub fn losses(objective: &Objective, outputs: &Tensor, due: &Tensor) -> Result<Tensor, TrainError> {
    reduced(objective, outputs, due, Reduction::None, 0.0)
}

fn reduced(
    objective: &Objective,
    outputs: &Tensor,
    due: &Tensor,
    by: Reduction,
    smoothing: f64,
) -> Result<Tensor, TrainError> {
    // One output a prediction is a row, not a table of one column: the two would be broadcast against each other.
    let row = || outputs.f_view([-1]);
    Ok(match objective {
        Objective::NextToken { .. } | Objective::CrossEntropy { .. } => {
            outputs.f_cross_entropy_loss::<Tensor>(due, None, by, NO_TARGET, smoothing)?
        }
        Objective::BinaryCrossEntropy {} => row()?.f_binary_cross_entropy_with_logits::<Tensor>(due, None, None, by)?,
        Objective::MeanSquaredError {} => row()?.f_mse_loss(due, by)?,
        Objective::Huber { delta } => row()?.f_huber_loss(due, by, delta.get())?,
    })
}
