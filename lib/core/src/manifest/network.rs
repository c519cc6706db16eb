//! Parts that networks of several families are declared with.

use alloc::string::String;
use alloc::vec::Vec;

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

crate::record! {
    /// A tensor of a module that is not built here.
    pub struct ModuleTensor {
        /// Its name in the module, with those of the modules around it.
        name: String,
        /// Its dimensions; none for a single number.
        shape: Vec<u64>,
    }
}

crate::record! {
    /// What a module is made of.
    pub struct ModuleTensors {
        /// Its parameters.
        parameters: Vec<ModuleTensor>,
        /// Its buffers.
        buffers: Vec<ModuleTensor>,
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
