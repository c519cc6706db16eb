//! Products in narrower numbers, by the rules of libtorch.

use std::ffi::c_int;

use crate::shim::{TorchError, call, xt_set_autocast};

/// While it lives, this thread computes the products of matrices and the convolutions of forward passes in binary16 or
/// bfloat16 (`at::autocast` on the processor). Nothing is kept from one operation to the next, so that a weight which changes in
/// place is never used as it was.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Autocast(());

impl Autocast {
    /// Begins, in binary16.
    pub fn float16() -> Result<Self, TorchError> {
        switch(1)?;
        Ok(Self(()))
    }

    /// Begins, in bfloat16.
    pub fn bfloat16() -> Result<Self, TorchError> {
        switch(2)?;
        Ok(Self(()))
    }
}

impl Drop for Autocast {
    fn drop(&mut self) {
        // Switching off sets a flag of the thread; there is nothing in it that fails, and nobody to tell.
        drop(switch(0));
    }
}

fn switch(on: c_int) -> Result<(), TorchError> {
    // SAFETY: a plain number.
    call(|message, capacity| unsafe { xt_set_autocast(on, message, capacity) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Kind, Tensor};

    #[test]
    fn products_are_in_binary16_while_it_lives_and_sums_are_not() {
        let one = Tensor::ones([2, 2], (Kind::Float, tch::Device::Cpu));
        let half = Autocast::float16().unwrap();
        assert_eq!((one.mm(&one).kind(), (&one + &one).kind()), (Kind::Half, Kind::Float));
        drop(half);
        assert_eq!(one.mm(&one).kind(), Kind::Float);
        let narrow = Autocast::bfloat16().unwrap();
        assert_eq!((one.mm(&one).kind(), (&one + &one).kind()), (Kind::BFloat16, Kind::Float));
        drop(narrow);
        assert_eq!(one.mm(&one).kind(), Kind::Float);
    }
}
