//! How a candidate is trained: objective, optimiser and its groups, averaging, schedule, clipping.

use alloc::string::String;

use crate::field::Range;
use crate::number::Finite;

crate::choice! {
    /// What is minimised.
    pub enum Objective {
        /// Mean over all predicted tokens of a step of the negative log-probability of the next token, in nats.
        NextToken "next-token-cross-entropy" {
            /// Share of the target that is spread evenly over all tokens (Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016).
            label_smoothing: Finite [Range::from(0.0).below(1.0)],
            /// Times this, the mean square of the logarithm of the softmax's denominator is added (Chowdhery et al., "PaLM", JMLR 2023).
            z_loss: Finite [Range::from(0.0).to(1000.0)],
        },
        /// Mean over the samples of a step of the negative log-probability of the class, in nats; outputs are the logits of the classes.
        CrossEntropy "cross-entropy" {
            /// Share of the target that is spread evenly over all classes (Szegedy et al., "Rethinking the Inception Architecture", CVPR 2016).
            label_smoothing: Finite [Range::from(0.0).below(1.0)],
            /// Times this, the mean square of the logarithm of the softmax's denominator is added (Chowdhery et al., "PaLM", JMLR 2023).
            z_loss: Finite [Range::from(0.0).to(1000.0)],
        },
        /// The same for two classes and one output, the logit of the second class, without smoothing.
        BinaryCrossEntropy "binary-cross-entropy" {},
        /// Mean over the samples of a step of the squared error.
        MeanSquaredError "mean-squared-error" {},
        /// Mean over the samples of a step of half the squared error up to `delta`, and from there on of `delta` times the error, less half of `delta` (Huber, "Robust Estimation of a Location Parameter", 1964).
        Huber "huber" {
            /// The error up to which the loss is quadratic.
            delta: Finite [Range::above(0.0).to(1e6)],
        },
    }
}

crate::choice! {
    /// How the parameters are updated.
    pub enum Optimizer {
        /// Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019).
        AdamW "adamw" {
            /// Peak learning rate.
            learning_rate: Finite [Range::above(0.0).to(1000.0)],
            /// Decay of the first moment.
            beta1: Finite [Range::from(0.0).below(1.0)],
            /// Decay of the second moment.
            beta2: Finite [Range::from(0.0).below(1.0)],
            /// Added to the root of the second moment.
            epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Decay of the weights a step, times the learning rate.
            weight_decay: Finite [Range::from(0.0).to(10.0)],
            /// Which parameters decay.
            decay: Decay,
        },
        /// Adam with the decay added to the gradient, as an L2 penalty would (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015).
        Adam "adam" {
            /// Peak learning rate.
            learning_rate: Finite [Range::above(0.0).to(1000.0)],
            /// Decay of the first moment.
            beta1: Finite [Range::from(0.0).below(1.0)],
            /// Decay of the second moment.
            beta2: Finite [Range::from(0.0).below(1.0)],
            /// Added to the root of the second moment.
            epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Weight times this is added to the gradient.
            weight_decay: Finite [Range::from(0.0).to(10.0)],
            /// Which parameters decay.
            decay: Decay,
        },
        /// Steps of one size along the sign of a mixture of momentum and gradient, with decoupled weight decay (Chen et al., "Symbolic Discovery of Optimization Algorithms", NeurIPS 2023).
        Lion "lion" {
            /// Peak learning rate.
            learning_rate: Finite [Range::above(0.0).to(1000.0)],
            /// Share of the momentum in the mixture whose sign is taken.
            beta1: Finite [Range::from(0.0).below(1.0)],
            /// Decay of the momentum.
            beta2: Finite [Range::from(0.0).below(1.0)],
            /// Decay of the weights a step, times the learning rate.
            weight_decay: Finite [Range::from(0.0).to(10.0)],
            /// Which parameters decay.
            decay: Decay,
        },
        /// Second moments of matrices kept as one row and one column, without momentum, steps relative to the size of the weights (Shazeer and Stern, "Adafactor", ICML 2018), as PyTorch's `Adafactor`: the rate of update t is at most 1 / sqrt(t).
        Adafactor "adafactor" {
            /// Peak of the relative learning rate.
            learning_rate: Finite [Range::above(0.0).to(1000.0)],
            /// The share of the new square in update t is t to the power of this with a minus sign.
            decay_power: Finite [Range::above(0.0).to(1.0)],
            /// Least mean of the rows of the second moment; its square is the least second moment.
            epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Least size of the weights (root of the mean square) that steps are relative to.
            minimum_scale: Finite [Range::above(0.0).to(1000.0)],
            /// Updates of a tensor are scaled down to this size (root of the mean square).
            update_limit: Finite [Range::from(1.0).to(1e6)],
            /// Decay of the weights a step, times the learning rate.
            weight_decay: Finite [Range::from(0.0).to(10.0)],
            /// Which parameters decay.
            decay: Decay,
        },
        /// Stochastic gradient descent, with momentum as PyTorch defines it (the first buffer is the first gradient).
        Sgd "sgd" {
            /// Peak learning rate.
            learning_rate: Finite [Range::above(0.0).to(1000.0)],
            /// Momentum.
            momentum: Finite [Range::from(0.0).below(1.0)],
            /// Whether the momentum looks ahead (Nesterov).
            nesterov: bool,
            /// Weight times this is added to the gradient.
            weight_decay: Finite [Range::from(0.0).to(10.0)],
            /// Which parameters decay.
            decay: Decay,
        },
    }
}

crate::record! {
    /// Parameters that are treated in another way than the rest.
    pub struct Group {
        /// Fits whole names; `*` stands for any characters, also none, and `?` for one.
        pattern: String,
        /// What is done with them.
        treatment: Treatment,
    }
}

crate::choice! {
    /// What is done with the parameters of a group.
    pub enum Treatment {
        /// They stay as they are, to the bit, and their gradients are not computed.
        Frozen "frozen" {},
        /// They are trained by these values.
        Trained "trained" {
            /// The learning rate is multiplied by this.
            learning_rate_factor: Finite [Range::above(0.0).to(1000.0)],
            /// Takes the place of the optimiser's `weight_decay`, whatever its `decay` says; `null` leaves both.
            weight_decay: Option<Finite> [Range::from(0.0).to(10.0)],
        },
    }
}

crate::choice! {
    /// Whether an average of the parameters is kept beside them. It is a part of the state, is traced, and is saved as a second model; training does not look at it.
    pub enum Averaging {
        /// No.
        None "none" {},
        /// The exponential moving average: after each update a := a + (1 - decay) * (w - a) (Polyak and Juditsky, 1992, with exponential weights).
        Exponential "exponential" {
            /// Share of the average that stays in an update.
            decay: Finite [Range::from(0.0).below(1.0)],
            /// Up to this step the average is a copy of the parameters.
            first_step: u64 [Range::from(1.0).to(1e15)],
        },
    }
}

crate::words! {
    /// Which parameters decay.
    pub enum Decay {
        /// All of them.
        All "all",
        /// Those of two or more dimensions: no biases, no normalisation.
        Matrices "matrices",
    }
}

crate::choice! {
    /// How the learning rate moves over optimiser steps, after a linear rise over `warmup_steps` from 1/`warmup_steps` of the peak.
    pub enum Schedule {
        /// Stays at the peak.
        Constant "constant" {
            /// Steps of the rise.
            warmup_steps: u64,
        },
        /// Falls in a straight line to `final_fraction` of the peak at the last step.
        Linear "linear" {
            /// Steps of the rise.
            warmup_steps: u64,
            /// Where it ends, as a fraction of the peak.
            final_fraction: Finite [Range::from(0.0).to(1.0)],
        },
        /// Falls along half a cosine to `final_fraction` of the peak at the last step (Loshchilov and Hutter, "SGDR", ICLR 2017, without restarts).
        Cosine "cosine" {
            /// Steps of the rise.
            warmup_steps: u64,
            /// Where it ends, as a fraction of the peak.
            final_fraction: Finite [Range::from(0.0).to(1.0)],
        },
        /// Is multiplied by `factor` each time `every` steps have passed since the peak.
        Step "step" {
            /// Steps of the rise.
            warmup_steps: u64,
            /// Steps between two falls.
            every: u64 [Range::from(1.0).to(1e15)],
            /// What the rate is multiplied by at each fall.
            factor: Finite [Range::above(0.0).to(1.0)],
        },
        /// Falls as the inverse square root: n steps after the peak it is the peak times sqrt(t / (t + n)), where t is `timescale_steps` (Vaswani et al., "Attention Is All You Need", NeurIPS 2017, where t is the length of the rise).
        InverseSquareRoot "inverse-square-root" {
            /// Steps of the rise.
            warmup_steps: u64,
            /// Steps after the peak in which it falls to the peak times the square root of one half.
            timescale_steps: u64 [Range::from(1.0).to(1e15)],
        },
        /// Stays at the peak, and falls to `final_fraction` of it over the last `decay_steps` steps (Hu et al., "MiniCPM", 2024).
        WarmupStableDecay "warmup-stable-decay" {
            /// Steps of the rise.
            warmup_steps: u64,
            /// Steps of the fall.
            decay_steps: u64 [Range::from(1.0).to(1e15)],
            /// Where it ends, as a fraction of the peak.
            final_fraction: Finite [Range::from(0.0).to(1.0)],
            /// Along which curve it falls.
            curve: Curve,
        },
    }
}

crate::words! {
    /// Along which curve a rate falls, where p goes from 0 to 1 over the fall.
    pub enum Curve {
        /// As 1 - p.
        Linear "linear",
        /// As 1 - sqrt(p) (Haegele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations", NeurIPS 2024).
        OneMinusRoot "one-minus-root",
    }
}

crate::choice! {
    /// How gradients are limited before an update.
    pub enum Clipping {
        /// Not at all.
        None "none" {},
        /// Scaled down to this global 2-norm when above it (Pascanu, Mikolov, Bengio, ICML 2013).
        Norm "norm" {
            /// The largest norm.
            maximum: Finite [Range::above(0.0)],
        },
        /// Each value by itself brought into the range from minus this to this.
        Value "value" {
            /// The largest magnitude.
            maximum: Finite [Range::above(0.0)],
        },
    }
}

impl Optimizer {
    /// The peak learning rate.
    pub const fn learning_rate(&self) -> Finite {
        match self {
            Self::AdamW { learning_rate, .. }
            | Self::Adam { learning_rate, .. }
            | Self::Lion { learning_rate, .. }
            | Self::Adafactor { learning_rate, .. }
            | Self::Sgd { learning_rate, .. } => *learning_rate,
        }
    }

    /// How strongly weights decay.
    pub const fn weight_decay(&self) -> Finite {
        match self {
            Self::AdamW { weight_decay, .. }
            | Self::Adam { weight_decay, .. }
            | Self::Lion { weight_decay, .. }
            | Self::Adafactor { weight_decay, .. }
            | Self::Sgd { weight_decay, .. } => *weight_decay,
        }
    }

    /// Which parameters decay.
    pub const fn decay(&self) -> Decay {
        match self {
            Self::AdamW { decay, .. }
            | Self::Adam { decay, .. }
            | Self::Lion { decay, .. }
            | Self::Adafactor { decay, .. }
            | Self::Sgd { decay, .. } => *decay,
        }
    }
}

impl Schedule {
    /// Steps of the rise.
    pub const fn warmup_steps(&self) -> u64 {
        match self {
            Self::Constant { warmup_steps }
            | Self::Linear { warmup_steps, .. }
            | Self::Cosine { warmup_steps, .. }
            | Self::Step { warmup_steps, .. }
            | Self::InverseSquareRoot { warmup_steps, .. }
            | Self::WarmupStableDecay { warmup_steps, .. } => *warmup_steps,
        }
    }
}
