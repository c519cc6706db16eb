//! `xt.replay/1`: whether it came out bit for bit, and if not, where it parted first.

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
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
        /// Steps asked for.
        steps: u64,
        /// Steps compared and equal, from the first on.
        equal_steps: u64,
        /// Where it parted first; `null` when it did not.
        divergence: Option<Divergence>,
        /// Outputs compared after the last step, when the whole run was replayed.
        outputs: Vec<OutputComparison>,
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
