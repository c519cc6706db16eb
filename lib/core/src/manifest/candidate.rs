//! `xt.candidate/1`: one training hypothesis. It declares every value that changes what is learned; the seed is not
//! part of it (rows X22, X27, T90).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::encoding::{Augmentation, Column, Scaling, Target};
use crate::manifest::network::{Activation, Convolution, ModuleTensor};
pub use crate::manifest::recipe::{
    Averaging, Clipping, Curve, Decay, Group, Objective, Optimizer, Schedule, Treatment,
};
use crate::name::Name;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// One training hypothesis: every value that changes what is learned.
    pub struct Candidate as tag::CANDIDATE {
        /// What people call it; not part of its identity.
        name: Name,
        /// What is trained.
        model: Model,
        /// What it starts from.
        base: Base,
        /// How what is learned from becomes numbers.
        tokenizer: Tokenizer,
        /// What it learns from.
        data: Data,
        /// What is minimised.
        objective: Objective,
        /// How the parameters are updated.
        optimizer: Optimizer,
        /// Parameters that are treated in another way than the rest, by name. The first group with a fitting pattern counts.
        groups: Vec<Group>,
        /// How the learning rate moves.
        schedule: Schedule,
        /// How gradients are limited before an update.
        clipping: Clipping,
        /// Whether an average of the parameters is kept beside them.
        averaging: Averaging,
        /// How samples become batches and batches become steps.
        batching: Batching,
        /// How long training goes on.
        length: Length,
        /// When it stops early.
        stops: Stops,
        /// In which numbers it computes.
        precision: Precision,
        /// On what it computes, and with which arithmetic.
        execution: Execution,
        /// Which claim of reproducibility it makes.
        regime: Regime,
    }
}

crate::choice! {
    /// What is trained.
    pub enum Model {
        /// A decoder-only transformer with learned positions and pre-normalisation (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019).
        Gpt "gpt" {
            /// Transformer blocks.
            layers: u64 [Range::from(1.0).to(1024.0)],
            /// Attention heads; the width is a multiple of them.
            heads: u64 [Range::from(1.0).to(1024.0)],
            /// Width of the residual stream.
            width: u64 [Range::from(1.0).to(65_536.0)],
            /// Width of the inner layer of each block's feed-forward part.
            inner: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Tokens of context.
            context: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Distinct tokens.
            vocabulary: u64 [Range::from(2.0).to(16_777_216.0)],
            /// Probability of dropping an activation: embeddings, attention weights and residual branches.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// Added to the variance in layer normalisation.
            layer_norm_epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Standard deviation of the initial weights; residual projections use it divided by the square root of twice the number of layers.
            initializer_range: Finite [Range::above(0.0).to(10.0)],
        },
        /// A decoder-only transformer with root mean square normalisation, rotary positions, a gated feed-forward part and shared keys and values (Touvron et al., "LLaMA", 2023; Ainslie et al., "GQA", EMNLP 2023). Named and laid out as transformers' `LlamaForCausalLM`.
        Llama "llama" {
            /// Transformer blocks.
            layers: u64 [Range::from(1.0).to(1024.0)],
            /// Attention heads of queries; the width is an even multiple of them.
            heads: u64 [Range::from(1.0).to(1024.0)],
            /// Attention heads of keys and values; `heads` is a multiple of them.
            key_value_heads: u64 [Range::from(1.0).to(1024.0)],
            /// Width of the residual stream.
            width: u64 [Range::from(1.0).to(65_536.0)],
            /// Width of the inner layer of each block's feed-forward part.
            inner: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Tokens of context.
            context: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Distinct tokens.
            vocabulary: u64 [Range::from(2.0).to(16_777_216.0)],
            /// Whether the output layer is the embedding of the tokens, or has weights of its own.
            tied: bool,
            /// The rotary angles of a position fall from 1 to 1 over about this (`rope_theta`; Su et al., "RoFormer", 2021).
            rotary_base: Finite [Range::from(1.0).to(1e12)],
            /// Probability of dropping an attention weight.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// Added to the mean square in normalisation.
            rms_norm_epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Standard deviation of the initial weights.
            initializer_range: Finite [Range::above(0.0).to(10.0)],
        },
        /// An encoder of text with learned positions and post-normalisation, with a class for each text (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", NAACL 2019). Named and laid out as transformers' `BertForSequenceClassification`: the first token of a text, through one more layer and a tanh, tells its class.
        Encoder "encoder" {
            /// Transformer blocks.
            layers: u64 [Range::from(1.0).to(1024.0)],
            /// Attention heads; the width is a multiple of them.
            heads: u64 [Range::from(1.0).to(1024.0)],
            /// Width of the residual stream.
            width: u64 [Range::from(1.0).to(65_536.0)],
            /// Width of the inner layer of each block's feed-forward part.
            inner: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Places that have a learned position; texts may be shorter.
            context: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Distinct tokens.
            vocabulary: u64 [Range::from(2.0).to(16_777_216.0)],
            /// Rows of the embedding of segments; every text is of the first segment.
            segments: u64 [Range::from(1.0).to(1024.0)],
            /// Outputs: one for each class.
            outputs: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Probability of dropping an activation: embeddings, attention weights, residual branches, and what tells the class.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// Added to the variance in layer normalisation.
            layer_norm_epsilon: Finite [Range::above(0.0).to(1.0)],
            /// Standard deviation of the initial weights.
            initializer_range: Finite [Range::above(0.0).to(10.0)],
        },
        /// Layers that are fully connected, with an activation between each two. Named and laid out as PyTorch's `Linear` in the list `layers`.
        Mlp "mlp" {
            /// Inputs of a sample.
            inputs: u64 [Range::from(1.0).to(16_777_216.0)],
            /// Widths of the layers in between, from the input on; none makes a linear model.
            widths: Vec<u64>,
            /// Outputs: one for each class, or 1.
            outputs: u64 [Range::from(1.0).to(1_048_576.0)],
            /// What lies between the layers.
            activation: Activation,
            /// Probability of dropping a value behind an activation.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// Initial weights are normal with this, divided by the square root of the inputs of the layer, as standard deviation (the square root of 2 for `relu`: He et al., "Delving Deep into Rectifiers", ICCV 2015); biases are 0.
            initializer_gain: Finite [Range::above(0.0).to(100.0)],
        },
        /// Convolutions with pooling, then layers that are fully connected. Named and laid out as PyTorch's `Conv2d` and `Linear` in the lists `convolutions` and `layers`.
        Cnn "cnn" {
            /// Channels of an image.
            channels: u64 [Range::from(1.0).to(65_536.0)],
            /// Height of an image.
            height: u64 [Range::from(1.0).to(65_536.0)],
            /// Width of an image.
            width: u64 [Range::from(1.0).to(65_536.0)],
            /// The convolutions, from the input on.
            convolutions: Vec<Convolution>,
            /// Widths of the layers between the last convolution and the outputs.
            widths: Vec<u64>,
            /// Outputs: one for each class, or 1.
            outputs: u64 [Range::from(1.0).to(1_048_576.0)],
            /// What lies behind each convolution and between the layers.
            activation: Activation,
            /// Probability of dropping a value before each layer that is fully connected.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// As for `mlp`; the inputs of a convolution are the channels before it times the values of its kernel.
            initializer_gain: Finite [Range::above(0.0).to(100.0)],
        },
        /// Any module that `torch.jit.script` and `torch.jit.save` wrote, which is the base. Its `forward` takes one tensor of binary32, (samples, shape...), and gives one, (samples, outputs), also on the way of autocast. What it draws by itself, such as dropout, follows from the run's seed and the number of the micro-batch. In training it is a module in training, and when it is measured it is in use (`eval`).
        TorchScript "torchscript" {
            /// Dimensions of a sample, as `forward` takes it: its inputs, or channels, height and width.
            shape: Vec<u64>,
            /// Outputs: one for each class, or 1.
            outputs: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Every parameter of the module; all are of binary32.
            parameters: Vec<ModuleTensor>,
            /// Every buffer of the module, such as running means: binary32, whole numbers below 2^24, or truth values. They are part of the state and saved as parameters are, and a group freezes them.
            buffers: Vec<ModuleTensor>,
        },
    }
}

crate::choice! {
    /// What the model starts from.
    pub enum Base {
        /// Fresh parameters, drawn from the run's seed.
        Random "random" {},
        /// The parameters of a frozen bundle, all of them. The bundle and its parameters must be in the store.
        Bundle "bundle" {
            /// Id of the `xt.bundle/1`.
            digest: Digest,
            /// Digest of its `model/model.safetensors`, or of its averaged one.
            weights: Digest,
            /// Whether its parameters are trained, or adapters beside them.
            adapter: Box<Adapter>,
        },
        /// Parameters in a safetensors file, as Hugging Face has them. The file and its `config.json` must be in the store.
        Safetensors "safetensors" {
            /// Digest of the file.
            digest: Digest,
            /// Digest of its `config.json`, which must describe the candidate's model in everything that changes what the parameters mean.
            configuration: Digest,
            /// What the names of its tensors lack in front, to be those of the model's parameters; mostly empty.
            prefix: String,
            /// Parameters that do not come from it and are drawn from the run's seed, by name; `*` stands for any characters and `?` for one.
            fresh: Vec<String>,
            /// Tensors of it that the model does not have, by name; every other one must be used.
            unused: Vec<String>,
            /// Whether its parameters are trained, or adapters beside them.
            adapter: Box<Adapter>,
        },
        /// A module of TorchScript, which must be in the store, with the parameters and buffers that it has. Only the worker opens the file; it may have 64 MiB and 8 bytes for each declared number.
        Module "module" {
            /// Digest of the file.
            digest: Digest,
        },
    }
}

crate::choice! {
    /// Whether the parameters of a base are trained, or adapters beside them.
    pub enum Adapter {
        /// The parameters themselves, all of them or by groups.
        None "none" {},
        /// The base stays as it is, to the bit. Beside each target layer the product of two small matrices is trained, of which one starts normal with 1 over the rank as standard deviation and the other at 0 (Hu et al., "LoRA", ICLR 2022). Saved in the form of PEFT, with the digest of the base, and never used without that base. Groups name parameters as PEFT does.
        Lora "lora" {
            /// Inner size of the product.
            rank: u64 [Range::from(1.0).to(65_536.0)],
            /// The product is multiplied by this over the rank.
            alpha: Finite [Range::above(0.0).to(1e6)],
            /// Probability of dropping an input of an adapter.
            dropout: Finite [Range::from(0.0).below(1.0)],
            /// Linear layers inside the blocks that get one, by name without `.weight`; `*` stands for any characters and `?` for one.
            targets: Vec<String>,
            /// Parameters that are trained whole and saved with the adapters, such as a new head, by name; always all of a module.
            saved: Vec<String>,
        },
    }
}

crate::choice! {
    /// How what is learned from becomes numbers.
    pub enum Tokenizer {
        /// One token a byte; the vocabulary is 256.
        Bytes "bytes" {},
        /// A `tokenizer.json` of the Hugging Face tokenizers library.
        HuggingFace "huggingface" {
            /// Digest of the file, which must be in the store.
            digest: Digest,
        },
        /// Records of JSON Lines, each a sample: the tokens of its prompt, of its completion and `end`. Prompt and completion become tokens by themselves, so that the border between them is one between tokens. Short records are filled up behind their end with places that are neither counted nor predicted.
        Records "records" {
            /// Digest of a `tokenizer.json`, which must be in the store; `null` takes one token a byte.
            file: Option<Digest>,
            /// Which tokens are predicted.
            predicted: Predicted,
            /// Token put behind each record, predicted like its completion; `null` puts none.
            end: Option<u64>,
            /// What becomes of a record with more tokens than the context and one.
            long: LongRecord,
        },
        /// Texts with a class each: records of JSON Lines with the members `text` and `label`, or tables with the columns `text` and `label`. A sample is the token `start`, those of its text, and `end`; what is shorter than `length` is filled up behind, where no token looks.
        Labelled "labelled" {
            /// Digest of a `tokenizer.json`, which must be in the store; `null` takes one token a byte.
            file: Option<Digest>,
            /// The labels, in the order of the classes.
            levels: Vec<String>,
            /// Token put before each text, such as `[CLS]`; `null` puts none.
            start: Option<u64>,
            /// Token put behind each text, such as `[SEP]`; `null` puts none.
            end: Option<u64>,
            /// Tokens of a sample at most, `start` and `end` included.
            length: u64 [Range::from(1.0).to(1_048_576.0)],
            /// What becomes of a longer text; one that is cut keeps `start` and `end`.
            long: LongRecord,
        },
        /// Rows of a table with declared columns; the inputs of a row are those of its columns in this order. One column is the target.
        Table "table" {
            /// The columns.
            columns: Vec<Column>,
            /// Which numbers are scaled.
            scaling: Scaling,
        },
        /// Images of one shape, each with the number of its class.
        Image "image" {
            /// Channels of an image.
            channels: u64 [Range::from(1.0).to(65_536.0)],
            /// Height of an image.
            height: u64 [Range::from(1.0).to(65_536.0)],
            /// Width of an image.
            width: u64 [Range::from(1.0).to(65_536.0)],
            /// Classes; labels are below it.
            classes: u64 [Range::from(2.0).to(1_048_576.0)],
            /// The folders of the images, in the order of the classes, where the files are PNG: an image belongs to the class that the folder which holds it is called by. `null` where labels are numbers in files of their own.
            levels: Option<Vec<String>>,
            /// Which numbers are scaled; a class is none.
            scaling: Scaling,
            /// How images are changed at random when they are trained on.
            augmentation: Augmentation,
        },
        /// Samples in safetensors files: in each file one tensor with the inputs, and one with the targets, whose first dimension counts the samples of the file. No other tensor is in it.
        Tensors "tensors" {
            /// Name of the tensor with the inputs, in binary32 (`F32`).
            inputs: String,
            /// Its dimensions behind the first one, of one sample.
            shape: Vec<u64>,
            /// Name of the tensor with the targets, of one dimension.
            targets: String,
            /// Classes: targets are whole numbers (`I64`) from 0 and below it. With `null` they are numbers (`F32`).
            classes: Option<u64> [Range::from(2.0).to(1_048_576.0)],
            /// Which numbers are scaled; all inputs are scaled together.
            scaling: Scaling,
        },
    }
}

crate::words! {
    /// Which tokens of a record are predicted; its first one never is, for nothing stands before it.
    pub enum Predicted {
        /// Those of the completion, and `end`: the loss is a mean over them alone. A text without a prompt is a completion.
        Completion "completion",
        /// All of them.
        All "all",
    }
}

crate::words! {
    /// What becomes of a record with more tokens than the context and one.
    pub enum LongRecord {
        /// It is a fault of the file.
        Refuse "refuse",
        /// Its last tokens are left out, even when they are all that would be predicted.
        Cut "cut",
    }
}

crate::record! {
    /// What it learns from.
    pub struct Data {
        /// Id of the `xt.dataset/1`.
        dataset: Digest,
        /// Which split of it.
        split: Name,
        /// Order of the samples in each epoch.
        order: Order,
        /// Token put between members; `null` joins them without one. Samples are windows of `context` + 1 tokens, one every `context` tokens; tokens after the last whole window are not used. Records, rows and images have none, so it is `null`.
        separator: Option<u64>,
    }
}

crate::words! {
    /// Order of the samples in an epoch.
    pub enum Order {
        /// A new permutation each epoch, from the run's seed.
        Shuffled "shuffled",
        /// As they are, each epoch.
        Sequential "sequential",
    }
}

crate::record! {
    /// How samples become micro-batches and micro-batches become optimiser steps.
    pub struct Batching {
        /// Samples of a micro-batch.
        samples: u64 [Range::from(1.0).to(1_048_576.0)],
        /// What becomes of the last samples of an epoch that fill no micro-batch.
        remainder: BatchRemainder,
        /// Micro-batches whose gradients make one optimiser step.
        accumulation: u64 [Range::from(1.0).to(1_048_576.0)],
        /// What becomes of the last micro-batches of an epoch that fill no step.
        accumulation_remainder: AccumulationRemainder,
    }
}

impl Copy for Batching {}

crate::words! {
    /// What becomes of the last samples of an epoch that fill no micro-batch.
    pub enum BatchRemainder {
        /// They are left out of this epoch.
        Drop "drop",
        /// They make a short micro-batch.
        Keep "keep",
    }
}

crate::words! {
    /// What becomes of the last micro-batches of an epoch that fill no step.
    pub enum AccumulationRemainder {
        /// They make a step of their own.
        Flush "flush",
        /// They are left out of this epoch.
        Drop "drop",
        /// The next epoch fills the step up.
        Carry "carry",
    }
}

crate::choice! {
    /// How long training goes on.
    pub enum Length {
        /// So many optimiser steps, over as many epochs as they take.
        Steps "steps" {
            /// Optimiser steps.
            steps: u64 [Range::from(1.0).to(1e15)],
        },
        /// So many passes over the split.
        Epochs "epochs" {
            /// Passes.
            epochs: u64 [Range::from(1.0).to(1e9)],
        },
    }
}

crate::record! {
    /// When training stops before its length is reached.
    pub struct Stops {
        /// What a run does at the first step where a stage holds a non-finite value.
        non_finite: NonFinite,
        /// When it stops because of what it has learned, or has not. The length then is the most that is trained, and schedules run as if all of it were.
        early: Early,
    }
}

crate::choice! {
    /// When a run stops because of what it has learned, or has not.
    pub enum Early {
        /// Never: it goes on to its length.
        None "none" {},
        /// By its training loss, as the lines of its trace say it; no held-out data are looked at. After each `window` steps the mean of their losses is looked at once, in binary32. The first condition that holds ends the run at that step, and at least one is declared. A branch takes no notice: it goes on to its horizon.
        TrainingLoss "training-loss" {
            /// Steps whose losses make one look.
            window: u64 [Range::from(1.0).to(1e6)],
            /// A mean of at most this ends the run, which has succeeded; `null` for none.
            target: Option<Finite>,
            /// So many looks in a row without an improvement end the run, which has succeeded; `null` for none.
            patience: Option<u64> [Range::from(1.0).to(1e6)],
            /// A mean is an improvement when it lies below the best one by more than this. The first one always is.
            minimum_improvement: Finite [Range::from(0.0)],
            /// A mean above this holds the run, which never freezes; `null` for none.
            limit: Option<Finite>,
        },
    }
}

crate::words! {
    /// What a run does at the first step where a stage holds a non-finite value.
    pub enum NonFinite {
        /// Stops at that step, before its update; such a run never freezes.
        Hold "hold",
        /// Goes on; the trace counts the values.
        Record "record",
    }
}

crate::words! {
    /// In which numbers it computes.
    pub enum Precision {
        /// IEEE 754 binary32 throughout.
        Float32 "float32",
        /// Products of matrices and convolutions in IEEE 754 binary16, forward and backward, by the rules of the tensor library (autocast): what they give above 65504 is infinite, and what lies below 6e-8 is 0. Parameters, sums between layers, loss and update stay binary32. The loss is not scaled. Evaluators and sampling compute in binary32.
        Float16 "float16",
        /// As `float16`, and the loss is multiplied by a scale before it is computed backward, by which the gradients are divided, so that small ones do not vanish (Micikevicius et al., "Mixed Precision Training", ICLR 2018). The scale begins at 65536. A step whose loss is finite and whose gradients are not leaves its update out and halves the scale; it is told as skipped and does not hold the run unless the scale is 1 already. After 2000 steps in a row without that, the scale doubles. Scale and count of steps are part of the state.
        Float16Scaled "float16-scaled",
        /// As `float16` in bfloat16, which has the range of binary32 and 8 bits of its digits: nothing overflows, and small differences vanish.
        Bfloat16 "bfloat16",
    }
}

crate::record! {
    /// On what it computes, and with which arithmetic: values that change bits.
    pub struct Execution {
        /// The device; `cpu` is the only one so far.
        device: Device,
        /// Threads inside an operation.
        threads: u64 [Range::from(1.0).to(1024.0)],
        /// Vector instructions of the tensor library.
        cpu_capability: CpuCapability,
        /// Summation mode of the matrix library.
        math_mode: MathMode,
        /// Whether oneDNN kernels may be used.
        onednn: bool,
    }
}

crate::words! {
    /// The device.
    pub enum Device {
        /// The processor.
        Cpu "cpu",
    }
}

crate::words! {
    /// Vector instructions of the tensor library (`ATEN_CPU_CAPABILITY`).
    pub enum CpuCapability {
        /// None beyond the base of x86-64: the same on every machine.
        Default "default",
        /// AVX2.
        Avx2 "avx2",
        /// AVX-512.
        Avx512 "avx512",
        /// AVX-512 with its instructions for bfloat16, in which products in `bfloat16` by oneDNN are computed; those of `avx512` do without, and take several times as long. Everything else is as in `avx512`.
        Avx512Bf16 "avx512-bf16",
    }
}

crate::words! {
    /// Summation mode of the matrix library (`MKL_CBWR`, Intel oneMKL conditional numerical reproducibility).
    pub enum MathMode {
        /// The same result on every processor.
        Compatible "compatible",
        /// AVX2 with strict reproducibility.
        Avx2Strict "avx2-strict",
        /// AVX-512 with strict reproducibility.
        Avx512Strict "avx512-strict",
        /// AVX2: the same result on one processor for data that lie alike, as everything here does; faster than the strict mode.
        Avx2 "avx2",
        /// AVX-512 in the same way.
        Avx512 "avx512",
    }
}

crate::words! {
    /// Which claim is made. `calibrated` and `field` stay locked until a calibration against exact evidence unlocks them.
    pub enum Regime {
        /// Restore and common future give a bitwise identical trace.
        Exact "exact",
        /// Effects stand for those of the exact regime as far as a calibration says. It computes in the precision of the exact evidence; threads, instructions and order of summation may be others.
        Calibrated "calibrated",
        /// The same in any precision.
        Field "field",
    }
}

impl Base {
    /// What lineage calls it: the id of the bundle, or the digest of the file; `None` for random parameters.
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Random {} => None,
            Self::Bundle { digest, .. } | Self::Safetensors { digest, .. } | Self::Module { digest } => Some(*digest),
        }
    }

    /// The adapters that are trained beside it; `None` where its own parameters are.
    pub fn adapter(&self) -> Option<&Adapter> {
        match self {
            Self::Random {} | Self::Module { .. } => None,
            Self::Bundle { adapter, .. } | Self::Safetensors { adapter, .. } => {
                Some(&**adapter).filter(|adapter| **adapter != Adapter::None {})
            }
        }
    }

    /// Whether what was trained needs it later on, too: under adapters, and where it is what computes.
    pub fn stays(&self) -> bool {
        self.adapter().is_some() || matches!(self, Self::Module { .. })
    }

    /// The files that it is made of: the document that says what it is, and its parameters.
    pub const fn files(&self) -> Option<[Digest; 2]> {
        match self {
            Self::Random {} => None,
            Self::Bundle { digest, weights, .. } => Some([*digest, *weights]),
            Self::Safetensors { digest, configuration, .. } => Some([*configuration, *digest]),
            // It describes itself.
            Self::Module { digest } => Some([*digest, *digest]),
        }
    }
}

impl Model {
    /// Tokens of context; 1 for models of rows and images, which see one at a time.
    pub const fn context(&self) -> u64 {
        match self {
            Self::Gpt { context, .. } | Self::Llama { context, .. } | Self::Encoder { context, .. } => *context,
            Self::Mlp { .. } | Self::Cnn { .. } | Self::TorchScript { .. } => 1,
        }
    }

    /// Distinct tokens; 0 for models that read none.
    pub const fn vocabulary(&self) -> u64 {
        match self {
            Self::Gpt { vocabulary, .. } | Self::Llama { vocabulary, .. } | Self::Encoder { vocabulary, .. } => {
                *vocabulary
            }
            Self::Mlp { .. } | Self::Cnn { .. } | Self::TorchScript { .. } => 0,
        }
    }

    /// Inputs of a sample, at most, and outputs for it; `None` for models that predict tokens.
    pub fn ends(&self) -> Option<(u64, u64)> {
        match self {
            Self::Gpt { .. } | Self::Llama { .. } => None,
            Self::Encoder { context, outputs, .. } => Some((*context, *outputs)),
            Self::Mlp { inputs, outputs, .. } => Some((*inputs, *outputs)),
            Self::TorchScript { shape, outputs, .. } => {
                Some((shape.iter().fold(1, |all: u64, size| all.saturating_mul(*size)), *outputs))
            }
            Self::Cnn { channels, height, width, outputs, .. } => {
                Some((channels.saturating_mul(*height).saturating_mul(*width), *outputs))
            }
        }
    }
}

impl LongRecord {
    const fn told(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Refuse => "refused",
        }
    }
}

/// What is made of the data.
impl Tokenizer {
    /// Digest of the tokenizer file, if there is one.
    pub const fn digest(&self) -> Option<Digest> {
        match self {
            Self::HuggingFace { digest } => Some(*digest),
            Self::Records { file, .. } | Self::Labelled { file, .. } => *file,
            Self::Bytes {} | Self::Table { .. } | Self::Image { .. } | Self::Tensors { .. } => None,
        }
    }

    /// Whether a sample is a whole row, image or record; of a text it is a window.
    pub const fn whole(&self) -> bool {
        !matches!(self, Self::Bytes {} | Self::HuggingFace { .. })
    }

    /// Inputs of a sample, at most; `None` for text and records of it, whose tokens are predicted.
    pub fn inputs(&self) -> Option<u64> {
        match self {
            Self::Bytes {} | Self::HuggingFace { .. } | Self::Records { .. } => None,
            Self::Labelled { length, .. } => Some(*length),
            Self::Table { columns, .. } => Some(columns.iter().map(Column::inputs).sum()),
            Self::Image { channels, height, width, .. } => {
                Some(channels.saturating_mul(*height).saturating_mul(*width))
            }
            Self::Tensors { shape, .. } => Some(shape.iter().fold(1, |all: u64, size| all.saturating_mul(*size))),
        }
    }

    /// Channels, height and width of a sample, where it has them.
    pub fn image(&self) -> Option<[u64; 3]> {
        match self {
            Self::Image { channels, height, width, .. } => Some([*channels, *height, *width]),
            Self::Tensors { shape, .. } => <[u64; 3]>::try_from(shape.as_slice()).ok(),
            _ => None,
        }
    }

    /// What is predicted; `None` for text, and for a table without a target.
    pub fn target(&self) -> Option<Target> {
        match self {
            Self::Bytes {} | Self::HuggingFace { .. } | Self::Records { .. } => None,
            Self::Labelled { levels, .. } => Some(Target::Classes(levels.len() as u64)),
            Self::Table { columns, .. } => columns.iter().find_map(Column::target),
            Self::Image { classes, .. } => Some(Target::Classes(*classes)),
            Self::Tensors { classes, .. } => Some(classes.map_or(Target::Number, Target::Classes)),
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        match self {
            Self::Bytes {} => "bytes".into(),
            Self::HuggingFace { digest } => alloc::format!("tokenizer.json {digest}"),
            Self::Records { file, predicted, end, long } => {
                let by = file.map_or_else(|| "bytes".into(), |digest| alloc::format!("tokenizer.json {digest}"));
                let end = end.map_or_else(|| "nothing".into(), |end| alloc::format!("token {end}"));
                let long = long.told();
                alloc::format!("records by {by}, predicted: {predicted}, {end} behind each, long ones {long}")
            }
            Self::Labelled { file, levels, start, end, length, long } => {
                let by = file.map_or_else(|| "bytes".into(), |digest| alloc::format!("tokenizer.json {digest}"));
                let [start, end] = [start, end]
                    .map(|token| token.map_or_else(|| "nothing".into(), |token| alloc::format!("token {token}")));
                alloc::format!(
                    "texts in the classes {} by {by}, {start} before and {end} behind each, at most {length} tokens, long ones {}",
                    levels.join(", "),
                    long.told()
                )
            }
            Self::Table { columns, scaling } => {
                alloc::format!("rows of {} columns, scaled: {scaling}", columns.len())
            }
            Self::Image { channels, height, width, classes, levels, scaling, augmentation } => {
                let named = levels.as_ref().map_or_else(String::new, |levels| alloc::format!(" {}", levels.join(", ")));
                let changed = augmentation.describe();
                alloc::format!(
                    "images of {channels} x {height} x {width} in {classes} classes{named}, scaled: {scaling}{changed}"
                )
            }
            Self::Tensors { inputs, shape, targets, classes, scaling } => {
                let due =
                    classes.map_or_else(|| "a number".into(), |classes| alloc::format!("one of {classes} classes"));
                alloc::format!("tensors {inputs} of {shape:?}, with {due} in {targets}, scaled: {scaling}")
            }
        }
    }
}
