//! `xt.evaluation-spec/1`: how a trained model is to be measured; `xt.metrics/1`: what an evaluator measured;
//! `xt.evaluation/1`: that, bound to the model, the data and the run that measured (rows X51–X63).

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::Artifact;
use crate::manifest::candidate::Regime;
use crate::manifest::command::Trainer;
use crate::manifest::decision::Interval;
use crate::name::Name;
use crate::number::Finite;
use crate::relpath::RelativePath;
use crate::tag;

crate::record! {
    /// How trained models are to be measured. It is no part of what a candidate is (X58).
    pub struct Spec as tag::EVALUATION_SPEC {
        /// What people call it; not part of its fingerprint.
        name: Name,
        /// What measures.
        evaluator: Evaluator,
        /// Which parameters of the trained model are measured.
        parameters: Parameters,
        /// What it measures on.
        data: HeldOut,
        /// Which parts of the data are measured apart, beside the whole.
        slices: Slices,
        /// What is done about examples that the model was trained on.
        leakage: Leakage,
        /// Seed of everything drawn, such as the resamples of an interval.
        seed: u64,
    }
}

crate::choice! {
    /// What measures.
    pub enum Evaluator {
        /// Mean negative log-probability of the next token in nats (`loss`), its exponential (`perplexity`), and the share of tokens that get the largest logit (`accuracy`). Each file is cut into windows of the model's context, its last one may be shorter, and each token but the first of a file is predicted once. Of records, each is a window, and those of its tokens are predicted that its candidate declares; one without any is an error.
        NextToken "next-token" {
            /// Windows computed together. It can change the last bits.
            batch: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Resamples of the bootstrap that gives the intervals. What is drawn are windows.
            resamples: u64 [Range::from(100.0).to(100_000.0)],
            /// Level of the intervals.
            confidence: Finite [Range::above(0.0).below(1.0)],
        },
        /// For models that choose a class: mean negative log-probability of the class in nats (`loss`), share of right answers (`accuracy`), for each class the harmonic mean of precision and recall (`f1/CLASS`) and their mean (`f1`), how often each class was taken for each (`confusion/CLASS/ANSWER`), and how far the probability of the answer is from the share of right ones (`calibration_error`: Naeini et al., "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015). A class that neither is nor was answered has no `f1/CLASS`.
        Classification "classification" {
            /// Samples computed together. It can change the last bits.
            batch: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Resamples of the bootstrap that gives the intervals. What is drawn are samples.
            resamples: u64 [Range::from(100.0).to(100_000.0)],
            /// Level of the intervals.
            confidence: Finite [Range::above(0.0).below(1.0)],
            /// Bins of equal width that probabilities are put into for the calibration error.
            bins: u64 [Range::from(1.0).to(1000.0)],
        },
        /// For models that predict a number, in the unit of the target: mean squared error (`mse`), mean absolute error (`mae`), and the share of the variance that is explained (`r2`), which a set of equal targets has not.
        Regression "regression" {
            /// Samples computed together. It can change the last bits.
            batch: u64 [Range::from(1.0).to(1_048_576.0)],
            /// Resamples of the bootstrap that gives the intervals. What is drawn are samples.
            resamples: u64 [Range::from(100.0).to(100_000.0)],
            /// Level of the intervals.
            confidence: Finite [Range::above(0.0).below(1.0)],
        },
        /// A program of the host, pinned and confined as one that trains (xt-trainer(7)). It finds the files of the bundle below `XT_MODEL` and the held-out files below `XT_DATA`, and leaves an `xt.metrics/1` as `evaluation/metrics.json`.
        Command "command" {
            /// What results call it.
            name: Name,
            /// Its version; whoever computes differently has another one.
            version: String,
            /// What it says about measuring again.
            determinism: Determinism,
            /// Names of the metrics that it promises, at least one. Each has to be there, over everything and over each slice; others may be there, too.
            metrics: Vec<String>,
            /// Samples that each promised metric over everything rests on; `null` promises no number.
            samples: Option<u64> [Range::from(1.0)],
            /// Level of the intervals that it reports; `null` when it reports none.
            confidence: Option<Finite> [Range::above(0.0).below(1.0)],
            /// The program.
            program: Box<Trainer>,
            /// Free parameters: a JSON object of any form, handed to the program as the file `XT_PARAMETERS`.
            settings: crate::manifest::command::Parameters,
        },
    }
}

crate::words! {
    /// Which parameters of a trained model are meant.
    pub enum Parameters {
        /// Those that the last step left.
        Trained "trained",
        /// Their average, which only some candidates keep.
        Averaged "averaged",
    }
}

crate::record! {
    /// Held-out data, named by content.
    pub struct HeldOut {
        /// Id of the `xt.dataset/1`.
        dataset: Digest,
        /// Which split of it.
        split: Name,
    }
}

crate::words! {
    /// Which parts of the data are measured apart, beside the whole.
    pub enum Slices {
        /// None.
        None "none",
        /// Each file; the slice is called by its path.
        Member "member",
        /// Each lineage group; the slice is called like it.
        Group "group",
    }
}

crate::record! {
    /// What is done about examples that the model was trained on. An example is a line of a text without its line end, a record, a row of a table as it stands there, an image.
    pub struct Leakage {
        /// Shorter ones are no examples: a heading or a blank line stands in many texts.
        minimum_bytes: u64 [Range::from(1.0).to(1_048_576.0)],
        /// What is done about a shared one.
        shared: Shared,
    }
}

crate::words! {
    /// What is done about a shared example or file.
    pub enum Shared {
        /// The evaluation is refused.
        Refuse "refuse",
        /// It is counted, and the result says so.
        Disclose "disclose",
    }
}

crate::record! {
    /// The part of a plan that says what is measured, and how.
    pub struct Evaluating {
        /// How.
        spec: Spec,
        /// Fingerprint of how: results with the same one can be held against each other.
        fingerprint: Digest,
        /// What is measured.
        subject: Subject,
        /// The files of the split, in order.
        parts: Vec<Part>,
        /// What was found of the training data in them.
        overlap: Overlap,
        /// The files of the bundle that a command finds below `XT_MODEL`, sorted by path; empty for the evaluators of this toolkit.
        files: Vec<Artifact>,
    }
}

crate::record! {
    /// A trained model, and where it comes from.
    pub struct Subject {
        /// Id of the bundle.
        bundle: Digest,
        /// Id of the run record of its training.
        run: Digest,
        /// Fingerprint of the candidate.
        candidate: Digest,
        /// What people call the candidate.
        name: Name,
        /// Seed of its training.
        seed: u64,
        /// Digest of the file with the parameters that are measured; for a command, of the canonical list of the files that it finds.
        weights: Digest,
    }
}

crate::record! {
    /// A file of the held-out split.
    pub struct Part {
        /// Its path.
        path: RelativePath,
        /// Its tokens; records, rows of a table, images; 0 for a file of labels. For a command its bytes.
        tokens: u64,
    }
}

crate::record! {
    /// What held-out and training data have in common, by digest.
    pub struct Overlap {
        /// What the spec says about shared examples.
        shared: Shared,
        /// Files of the held-out split.
        files: u64,
        /// Those of them whose bytes are a training file's.
        shared_files: u64,
        /// Examples of the held-out split of at least the least length.
        examples: u64,
        /// Those of them that are a training file's example.
        shared_examples: u64,
    }
}

crate::record! {
    /// What an evaluator measured, and nothing about who or when: measuring again gives the same bytes.
    pub struct Metrics as tag::METRICS {
        /// What measured.
        evaluator: EvaluatorVersion,
        /// Every metric, over everything and over each slice.
        metrics: Vec<Measure>,
    }
}

crate::record! {
    /// What measured.
    pub struct EvaluatorVersion {
        /// Its name.
        name: String,
        /// Its version; whoever computes differently has another one.
        version: String,
        /// What it says about measuring again.
        determinism: Determinism,
    }
}

crate::words! {
    /// What an evaluator says about measuring again on the same stack (X59).
    pub enum Determinism {
        /// The same bits, whatever the seed.
        Deterministic "deterministic",
        /// The same bits for the same seed.
        Seeded "seeded",
        /// Other values each time.
        Stochastic "stochastic",
    }
}

crate::record! {
    /// One number that was measured. There is none for an empty set, and none that is not finite.
    pub struct Measure {
        /// Its name. It says nothing about which way is better.
        name: String,
        /// The slice of the data; `null` for everything.
        slice: Option<String>,
        /// The number.
        value: Finite,
        /// Samples behind it; for the evaluator `next-token` these are windows, for the others rows or images.
        sample_count: u64 [Range::from(1.0)],
        /// Standard error over the samples; `null` when there is only one. Of `f1`, `calibration_error` and `r2` it is the standard deviation over the resamples of the bootstrap.
        standard_error: Option<Finite> [Range::from(0.0)],
        /// Lower and upper end of the interval; `null` when there is only one sample.
        interval: Option<Interval>,
    }
}

crate::record! {
    /// What was measured of a frozen model. It exists only after completion was reported and the exit was clean (X55).
    pub struct Evaluation as tag::EVALUATION {
        /// The attempt that measured.
        attempt: Name,
        /// Id of its run record.
        run: Digest,
        /// Id of its plan.
        plan: Digest,
        /// What was measured.
        subject: Subject,
        /// Regime of the candidate.
        regime: Regime,
        /// What measured.
        evaluator: EvaluatorVersion,
        /// Fingerprint of how: results with the same one can be held against each other.
        fingerprint: Digest,
        /// Seed of the evaluation.
        seed: u64,
        /// Id of the held-out dataset.
        dataset: Digest,
        /// Which split of it.
        split: Name,
        /// What held-out and training data have in common.
        overlap: Overlap,
        /// Level of the intervals; `null` when the evaluator does not say.
        confidence: Option<Finite> [Range::above(0.0).below(1.0)],
        /// Every metric, over everything and over each slice.
        metrics: Vec<Measure>,
        /// Digest of the `xt.metrics/1` that the evaluator wrote: the same for each evaluation that measured the same.
        measured: Digest,
        /// Digest of the evaluator's lines, one for each sample; `null` when it wrote none.
        samples: Option<Digest>,
    }
}

crate::record! {
    /// One line of the evaluator `next-token` about one window, for comparisons sample by sample.
    pub struct Window {
        /// Number of the window, from 0, over all files in order.
        window: u64,
        /// The file.
        path: RelativePath,
        /// Tokens predicted.
        tokens: u64,
        /// Sum of their negative log-probabilities.
        loss: Finite,
        /// Tokens among them that got the largest logit.
        correct: u64,
    }
}

crate::record! {
    /// One line of the evaluator `classification` about one sample.
    pub struct Answer {
        /// Number of the sample, from 0, over all files in order.
        sample: u64,
        /// The file.
        path: RelativePath,
        /// Its number in the file, from 0.
        row: u64,
        /// Its class.
        due: u64,
        /// The class with the largest probability, the first one of equals.
        answer: u64,
        /// The probability of the answer.
        probability: Finite [Range::from(0.0).to(1.0)],
        /// The negative log-probability of its class.
        loss: Finite,
    }
}

crate::record! {
    /// One line of the evaluator `regression` about one sample, in the unit of the target.
    pub struct Estimate {
        /// Number of the sample, from 0, over all files in order.
        sample: u64,
        /// The file.
        path: RelativePath,
        /// Its number in the file, from 0.
        row: u64,
        /// The target.
        due: Finite,
        /// What the model says.
        answer: Finite,
    }
}

impl Evaluator {
    /// What a result says of it.
    pub fn version(&self) -> EvaluatorVersion {
        if let Self::Command { name, version, determinism, .. } = self {
            return EvaluatorVersion { name: name.to_string(), version: version.clone(), determinism: *determinism };
        }
        EvaluatorVersion { name: self.word().into(), version: "1".into(), determinism: Determinism::Seeded }
    }

    /// Level of the intervals, if there are any.
    pub const fn confidence(&self) -> Option<Finite> {
        match self {
            Self::NextToken { confidence, .. }
            | Self::Classification { confidence, .. }
            | Self::Regression { confidence, .. } => Some(*confidence),
            Self::Command { confidence, .. } => *confidence,
        }
    }

    /// Samples computed together; of a command it is its own affair, and 1 here.
    pub const fn batch(&self) -> u64 {
        match self {
            Self::NextToken { batch, .. } | Self::Classification { batch, .. } | Self::Regression { batch, .. } => {
                *batch
            }
            Self::Command { .. } => 1,
        }
    }

    /// Resamples of the bootstrap; none for a command.
    pub const fn resamples(&self) -> u64 {
        match self {
            Self::NextToken { resamples, .. }
            | Self::Classification { resamples, .. }
            | Self::Regression { resamples, .. } => *resamples,
            Self::Command { .. } => 0,
        }
    }

    /// The program, if it is one of the host.
    pub fn program(&self) -> Option<&Trainer> {
        if let Self::Command { program, .. } = self { Some(program) } else { None }
    }
}
