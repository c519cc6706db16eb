//! `xt.replay/1`: whether it came out bit for bit, and if not, where it parted first.

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::manifest::snapshot::TensorDifference;
use crate::manifest::trace::StageName;
use crate::tag;

crate::record! {
    /// The outcome of a replay.
    pub struct Replay as tag::REPLAY {
        /// Id of the run that was replayed.
        run: Digest,
        /// Id of the plan that both followed.
        plan: Digest,
        /// Id of the run record of the replay.
        replayed: Digest,
        /// Pins of the stack that differ and were allowed to, by name; empty when it ran on the recorded stack.
        allowed: Vec<PinDifference>,
        /// The answer.
        outcome: Outcome,
        /// Steps before the first that was computed again; 0 when it began at the start.
        from: u64,
        /// Id of the snapshot that was restored; `null` when it began at the start.
        snapshot: Option<Digest>,
        /// Last step asked for.
        steps: u64,
        /// Steps compared and equal.
        equal_steps: u64,
        /// Where it parted first; `null` when it did not.
        divergence: Option<Divergence>,
        /// Outputs compared after the last step, when the whole run was replayed.
        outputs: Vec<OutputComparison>,
        /// What was looked at, when only a part drawn by lot was; otherwise `null`.
        audit: Option<Audit>,
        /// What was found out about the place of the divergence, when it was asked for and there is one.
        localization: Option<Localization>,
    }
}

crate::record! {
    /// A pin of the execution stack that does not have its recorded value.
    pub struct PinDifference {
        /// The pin, such as `worker` or `library libc.so.6`.
        what: String,
        /// What the record says.
        recorded: String,
        /// What is found now.
        now: String,
    }
}

crate::words! {
    /// The answer of a replay.
    pub enum Outcome {
        /// Every compared step and output is equal.
        Equal "equal",
        /// Something differs.
        Diverged "diverged",
        /// The replay ended before the comparison did.
        Incomplete "incomplete",
    }
}

crate::record! {
    /// Where two traces part first.
    pub struct Divergence {
        /// The step.
        step: u64,
        /// The component, in the order in which a step computes them.
        component: Component,
        /// What the record says.
        recorded: String,
        /// What the replay gave.
        replayed: String,
        /// All components that differ at this step.
        differing: Vec<Component>,
    }
}

crate::words! {
    /// Part of a step that can differ, in the order in which a step computes them.
    pub enum Component {
        /// Which samples were seen.
        SampleOrder "sample-order",
        /// The generator.
        Generator "generator",
        /// The learning rate.
        LearningRate "learning-rate",
        /// The loss.
        Loss "loss",
        /// The gradients.
        Gradients "gradients",
        /// The optimiser's state.
        Optimizer "optimizer",
        /// The parameters.
        Parameters "parameters",
        /// The data cursor.
        Cursor "cursor",
        /// The stage counts.
        Stages "stages",
        /// Whether the update was made.
        Update "update",
        /// A line of a command's telemetry.
        Telemetry "telemetry",
    }
}

crate::record! {
    /// A spot check: parts of the run between stored states, drawn by lot from the digest of its trace.
    pub struct Audit {
        /// The parts that were drawn, by step.
        segments: Vec<Segment>,
        /// Number of parts that the run has.
        of: u64,
        /// Steps of the parts that were drawn.
        steps: u64,
        /// Steps of the run.
        of_steps: u64,
    }
}

crate::record! {
    /// A part of a run between two stored states.
    pub struct Segment {
        /// Steps before it.
        from: u64,
        /// Its last step.
        to: u64,
        /// Steps of it that are equal.
        equal_steps: u64,
        /// Id of the run record of its replay.
        replayed: Digest,
    }
}

crate::record! {
    /// Where a divergence is, as closely as the stored states tell.
    pub struct Localization {
        /// The step.
        step: u64,
        /// The first stage of the computation that shows it.
        stage: StageName,
        /// The module of the first tensor that differs; `null` when no recorded state could be compared.
        module: Option<String>,
        /// That tensor.
        tensor: Option<String>,
        /// The step after which the states were compared: `step`, or the first one after it with a stored state.
        compared_at: Option<u64>,
        /// Id of the recorded state.
        recorded: Option<Digest>,
        /// Id of the state that was computed again.
        replayed: Option<Digest>,
        /// Tensors that differ there.
        differing: u64,
        /// The first of them, at most 20.
        tensors: Vec<TensorDifference>,
        /// States that were restored to find out.
        restores: u64,
        /// Steps that were computed again to find out.
        steps_again: u64,
    }
}

crate::record! {
    /// Two recorded traces, compared without running anything.
    pub struct TraceDiff as tag::TRACE_DIFF {
        /// Id of the first run.
        first: Digest,
        /// Id of the second run.
        second: Digest,
        /// Whether both follow one plan.
        same_plan: bool,
        /// The answer: `incomplete` when all common steps are equal and one trace is longer.
        outcome: Outcome,
        /// Steps of the first.
        first_steps: u64,
        /// Steps of the second.
        second_steps: u64,
        /// Steps that are equal, from the first on.
        equal_steps: u64,
        /// Where they part first; `null` when they do not.
        divergence: Option<Divergence>,
        /// Components that differ anywhere, in the order in which a step computes them.
        components: Vec<ComponentDifference>,
    }
}

crate::record! {
    /// How often a component differs.
    pub struct ComponentDifference {
        /// The component.
        component: Component,
        /// The first step at which it differs.
        first_step: u64,
        /// Steps at which it differs.
        steps: u64,
    }
}

crate::record! {
    /// An output file, compared.
    pub struct OutputComparison {
        /// Its path.
        path: String,
        /// Digest in the record; `null` when the record has no such file.
        recorded: Option<Digest>,
        /// Digest of the replay; `null` when the file is missing.
        replayed: Option<Digest>,
    }
}
