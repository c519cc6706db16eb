//! Parts that networks of several families are declared with.

use crate::field::Range;

crate::words! {
    /// What is done to each value between two layers.
    pub enum Activation {
        /// The larger of the value and 0.
        Relu "relu",
        /// The hyperbolic tangent.
        Tanh "tanh",
        /// The Gaussian error linear unit in its tanh form (Hendrycks and Gimpel, 2016, equation 2).
        Gelu "gelu",
    }
}

crate::record! {
    /// A convolution with weights and biases, the activation, and a maximum over squares.
    pub struct Convolution {
        /// Channels that it makes.
        channels: u64 [Range::from(1.0).to(65_536.0)],
        /// Height and width of its kernel.
        kernel: u64 [Range::from(1.0).to(1024.0)],
        /// Pixels between two places of the kernel.
        stride: u64 [Range::from(1.0).to(1024.0)],
        /// Pixels of zeros around the image.
        padding: u64 [Range::from(0.0).to(1024.0)],
        /// Height and width of the squares whose largest value is kept, one square beside the other; 1 keeps all. What is left over at the edge is not used.
        pool: u64 [Range::from(1.0).to(1024.0)],
    }
}

impl Convolution {
    /// Height or width behind it of an image that is `size` high or wide; `None` when nothing is left.
    pub const fn behind(&self, size: u64) -> Option<u64> {
        let padded = size.saturating_add(2 * self.padding);
        if padded < self.kernel {
            return None;
        }
        let left = ((padded - self.kernel) / self.stride + 1) / self.pool;
        if left == 0 { None } else { Some(left) }
    }
}
