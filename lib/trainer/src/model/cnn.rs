//! Convolutions with pooling, then layers that are fully connected (LeCun, Bottou, Bengio, Haffner, "Gradient-based
//! learning applied to document recognition", Proceedings of the IEEE 1998).

use tch::Tensor;
use xt_core::fault::Faults;
use xt_core::manifest::candidate::Model;
use xt_core::manifest::network::{Activation, Convolution};
use xt_core::verb::fit::behind;

use crate::dropout::{Dropout, dropped};
use crate::fault::TrainError;
use crate::layout::Declared;
use crate::model::dense::{Dense, Layers, Weights, activate, declared};
use crate::model::{Family, Look, Network, size};
use crate::parameters::Parameters;

/// The sizes of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Cnn {
    /// Channels, height and width of an image.
    shape: [i64; 3],
    convolutions: Vec<Sizes>,
    dense: Dense,
    dropout: f64,
}

/// The sizes of one convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    channels: i64,
    kernel: i64,
    stride: i64,
    padding: i64,
    pool: i64,
}

impl Sizes {
    fn of(convolution: &Convolution) -> Result<Self, TrainError> {
        let Convolution { channels, kernel, stride, padding, pool } = convolution;
        Ok(Self {
            channels: size(*channels)?,
            kernel: size(*kernel)?,
            stride: size(*stride)?,
            padding: size(*padding)?,
            pool: size(*pool)?,
        })
    }
}

impl Cnn {
    /// The sizes that a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
        let Model::Cnn {
            channels,
            height,
            width,
            convolutions,
            widths,
            outputs,
            activation,
            dropout,
            initializer_gain,
        } = model
        else {
            return Err(TrainError::Model(format!("a {} is no cnn", model.word())));
        };
        let mut faults = Faults::new();
        let [high, wide] = behind(convolutions, [*height, *width], &mut faults);
        faults.or(()).map_err(|faults| TrainError::Model(faults.to_string()))?;
        let last = convolutions.last().map_or(*channels, |convolution| convolution.channels);
        let flat = last.saturating_mul(high).saturating_mul(wide);
        let sizes: Result<_, _> = [flat].iter().chain(widths).chain([outputs]).map(|width| size(*width)).collect();
        let convolutions: Result<_, _> = convolutions.iter().map(Sizes::of).collect();
        Ok(Self {
            shape: [size(*channels)?, size(*height)?, size(*width)?],
            convolutions: convolutions?,
            dense: Dense { sizes: sizes?, activation: *activation, gain: initializer_gain.get() },
            dropout: dropout.get(),
        })
    }
}

impl Family for Cnn {
    fn parameters(&self) -> Vec<Declared> {
        let mut all = Vec::new();
        let mut before = self.shape[0];
        for (index, Sizes { channels, kernel, .. }) in self.convolutions.iter().enumerate() {
            let weight = [*channels, before, *kernel, *kernel];
            all.extend(declared(&format!("convolutions.{index}"), &weight, self.dense.gain));
            before = *channels;
        }
        all.extend(self.dense.parameters());
        all
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        let convolution =
            |(index, sizes): (usize, &Sizes)| Ok((*sizes, Weights::of(parameters, format!("convolutions.{index}"))?));
        let convolutions: Result<_, TrainError> = self.convolutions.iter().enumerate().map(convolution).collect();
        Ok(Box::new(Convolved {
            shape: self.shape,
            convolutions: convolutions?,
            activation: self.dense.activation,
            layers: self.dense.layers(parameters)?,
        }))
    }
}

/// The model over its parameters.
#[derive(Debug)]
struct Convolved {
    shape: [i64; 3],
    convolutions: Vec<(Sizes, Weights)>,
    activation: Activation,
    layers: Layers,
}

impl Network for Convolved {
    /// `seen` is (samples, channels * height * width).
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let [channels, height, width] = self.shape;
        let mut stream = seen.f_view([-1, channels, height, width])?;
        for (sizes, Weights { name, weight, bias }) in &self.convolutions {
            let Sizes { stride, padding, pool, .. } = *sizes;
            stream = stream.f_conv2d(weight, Some(bias), [stride; 2], [padding; 2], [1; 2], 1)?;
            stream = activate(self.activation, &stream)?;
            if pool > 1 {
                stream = stream.f_max_pool2d([pool; 2], [pool; 2], [0; 2], [1; 2], false)?;
            }
            look(name, &stream)?;
        }
        let samples = stream.size().first().copied().unwrap_or(0);
        let flat = dropped(dropout, "flat", stream.f_reshape([samples, -1])?)?;
        self.layers.forward(&flat, dropout, look)
    }
}
