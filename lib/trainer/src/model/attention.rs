//! Attention in one kernel that holds no table of weights: Dao et al., "FlashAttention", NeurIPS 2022, as libtorch has it for
//! processors.

use tch::{Kind, Tensor};
use xt_torch::switches;

use crate::dropout::Dropout;
use crate::fault::TrainError;

/// Whether attention may be computed so: the pins of a run say it (`sdp_flash`). It is one kernel for each set of vector
/// instructions, and one of them, that of the base of x86-64, calls the C library, which is not the same everywhere: runs with
/// those pins compute attention by products of matrices.
pub fn allowed() -> Result<bool, TrainError> {
    Ok(switches::get()?.sdp_flash)
}

/// Whether it can be: no weight is dropped, since there is none to be multiplied by a mask of ours, and all is in binary32.
pub fn possible(dropout: Option<&Dropout>, values: &Tensor) -> bool {
    !dropout.is_some_and(Dropout::drops_activations) && values.kind() == Kind::Float
}

/// What each position sees of those up to it. `query`, `key` and `value` are (samples, heads, time, head), and so is what it
/// gives; scores are multiplied by `scale`.
pub fn causal([query, key, value]: [&Tensor; 3], scale: f64) -> Result<Tensor, TrainError> {
    let (seen, _) = Tensor::f_internal_scaled_dot_product_flash_attention_for_cpu::<Tensor>(
        query, key, value, 0.0, true, None, scale,
    )?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// Against sums in binary64, with gradients; a sample by itself sees what it sees among others.
    #[test]
    fn it_is_the_softmax_of_products_up_to_each_position() {
        let shape = [2, 3, 37, 8];
        let parts = [1, 2, 3].map(|seed| {
            tch::manual_seed(seed);
            Tensor::randn(shape, (Kind::Float, Device::Cpu)).set_requires_grad(true)
        });
        let [query, key, value] = &parts;
        let found = causal([query, key, value], 0.25).unwrap();
        let wide = parts.each_ref().map(|part| part.detach().to_kind(Kind::Double).set_requires_grad(true));
        let future = Tensor::full([37, 37], f64::NEG_INFINITY, (Kind::Double, Device::Cpu)).triu(1);
        let scores = wide[0].matmul(&wide[1].transpose(2, 3)) * 0.25 + future;
        let expected = scores.softmax(-1, None).matmul(&wide[2]);
        let apart = |one: &Tensor, other: &Tensor| (one.to_kind(Kind::Double) - other).abs().max().double_value(&[]);
        assert!(apart(&found, &expected) < 1e-6);
        found.square().sum(Kind::Float).backward();
        expected.square().sum(Kind::Double).backward();
        for (part, wide) in parts.iter().zip(&wide) {
            assert!(apart(&part.grad(), &wide.grad()) < 1e-5);
        }
        let second = parts.each_ref().map(|part| part.detach().narrow(0, 1, 1));
        let alone = causal(second.each_ref(), 0.25).unwrap();
        assert_eq!(alone, found.detach().narrow(0, 1, 1));
    }
}
