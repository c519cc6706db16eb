//! Why a worker cannot go on.

use std::io;

use xt_core::digest::Digest;
use xt_core::fault::{Exit, Failure, Faults};
use xt_core::verb::measure::NoMetric;
use xt_data::TextError;
use xt_torch::TorchError;

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// An operation of the tensor library failed.
    #[error(transparent)]
    Torch(#[from] TorchError),
    /// A tokenizer or a text is not usable.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The plan is one for another program.
    #[error("the plan is one of a command, which this trainer is not")]
    Command,
    /// The plan contradicts itself.
    #[error("the plan contradicts itself:\n{0}")]
    Plan(Faults),
    /// The process does not compute as the plan demands.
    #[error("the environment differs from the plan: {}", .0.join("; "))]
    Pins(Vec<String>),
    /// An input cannot be read.
    #[error("the input {digest} cannot be read: {source}")]
    InputUnreadable {
        /// Its digest.
        digest: Digest,
        /// What the system says.
        source: io::Error,
    },
    /// An input holds other bytes than its name says.
    #[error("the input {expected} holds other bytes: their digest is {found}")]
    InputWrong {
        /// Digest in the plan.
        expected: Digest,
        /// Digest of the bytes.
        found: Digest,
    },
    /// A count of the plan is not what was found.
    #[error("the plan promises {expected} {what}, found {found}")]
    Work {
        /// What is counted.
        what: &'static str,
        /// In the plan.
        expected: u64,
        /// Found.
        found: u64,
    },
    /// A file of the data is not what the candidate declares.
    #[error("the data cannot be read:\n{0}")]
    Data(Faults),
    /// What scales numbers is not what the plan says was fitted.
    #[error("what is fitted on the training split is not what the plan states under /fitted")]
    Fitted,
    /// A model file does not fit its description.
    #[error("the model file does not fit: {0}")]
    Weights(String),
    /// What training is to begin from does not fit the candidate.
    #[error("training cannot begin from this base:\n{0}")]
    Base(Faults),
    /// A snapshot does not fit the plan, or its files do not fit it.
    #[error("the snapshot cannot be restored:\n{0}")]
    Snapshot(Faults),
    /// A model that cannot be built.
    #[error("the model cannot be built: {0}")]
    Model(String),
    /// Nothing to go on from.
    #[error("the prompt has no token; text can only go on from at least one")]
    EmptyPrompt,
    /// Logits that are no probabilities.
    #[error("the model gives no usable logits at token {0}: all are NaN or minus infinity, or one is infinite")]
    NoLogits(u64),
    /// What is measured is no number.
    #[error("the {what} of sample {window} is not finite, and what is not finite is no metric")]
    NoMetric {
        /// The window.
        window: u64,
        /// What was measured.
        what: &'static str,
    },
    /// A sample without a prediction.
    #[error("sample {window} has no token that is predicted, and of nothing there is no metric")]
    Masked {
        /// The sample.
        window: u64,
    },
    /// There are no metrics.
    #[error(transparent)]
    Unmeasured(#[from] NoMetric),
    /// An output cannot be written.
    #[error("the output {path} cannot be written: {source}")]
    Output {
        /// Path within the output folder.
        path: String,
        /// What the system says.
        source: io::Error,
    },
    /// The launcher does not listen any more.
    #[error("the telemetry descriptor cannot be written: {0}")]
    Telemetry(io::Error),
}

impl TrainError {
    /// Whether what is trained or measured made it impossible, and not what trains or measures.
    pub fn is_of_model(&self) -> bool {
        matches!(self, Self::Model(_) | Self::NoLogits(_) | Self::NoMetric { .. })
    }
}

impl From<tch::TchError> for TrainError {
    fn from(error: tch::TchError) -> Self {
        Self::Torch(error.into())
    }
}

impl Failure for TrainError {
    fn exit(&self) -> Exit {
        match self {
            Self::Text(fault) => fault.exit(),
            Self::Plan(_) | Self::Data(_) | Self::Base(_) | Self::Snapshot(_) | Self::Command => Exit::Refused,
            Self::Output { .. } | Self::Telemetry(_) => Exit::System,
            _ => Exit::Workload,
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Torch(_) => "train.library",
            Self::Text(fault) => fault.word(),
            Self::Plan(_) => "train.plan",
            Self::Command => "train.command",
            Self::Pins(_) => "train.pins",
            Self::InputUnreadable { .. } => "train.input-unreadable",
            Self::InputWrong { .. } => "train.input-wrong",
            Self::Work { .. } => "train.work",
            Self::Data(_) => "train.data",
            Self::Fitted => "train.fitted",
            Self::Weights(_) => "train.weights",
            Self::Base(_) => "train.base",
            Self::Snapshot(_) => "train.snapshot",
            Self::Model(_) => "train.model",
            Self::EmptyPrompt => "train.empty-prompt",
            Self::NoLogits(_) => "train.no-logits",
            Self::NoMetric { .. } | Self::Masked { .. } | Self::Unmeasured(_) => "train.no-metric",
            Self::Output { .. } => "train.output",
            Self::Telemetry(_) => "train.telemetry",
        }
    }

    fn faults(&self) -> Option<&Faults> {
        match self {
            Self::Plan(faults) | Self::Data(faults) | Self::Base(faults) | Self::Snapshot(faults) => Some(faults),
            _ => None,
        }
    }
}
