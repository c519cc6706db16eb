//! Plans that go on from a state of another run, and `xt.branch/1`: what came of matched branches (T16–T18, T20, T21, T32,
//! T33, T62, T68–T72, T86–T92).

use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::candidate::{Execution, Precision, Regime};
use crate::manifest::replay::PinDifference;
use crate::manifest::run::Status;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// What a plan goes on from, when it does not begin at the first step. The plan holds the candidate as it is from there on.
    pub struct Departure {
        /// What for.
        purpose: Purpose,
        /// Id of the run whose trace it continues: its lineage, which changes nothing that is learned.
        run: Digest,
        /// Id of the plan of that run.
        plan: Digest,
        /// Id of the plan with which the chain of the trace begins: that of the first run in the row.
        root: Digest,
        /// Id of the snapshot that is restored.
        snapshot: Digest,
        /// Steps taken before it.
        step: u64 [Range::from(1.0)],
        /// What differs from the candidate of that plan in all branches of the set, the no-op included, such as the regime; by path, in the order in which it was set.
        under: Vec<Change>,
        /// What differs beside that, in the order in which it was set; empty for a no-op.
        set: Vec<Change>,
        /// What is added to the weights once, before the next step; `null` for nothing.
        noise: Option<Noise>,
        /// Number of this one among repetitions of the same branch.
        replicate: u64 [Range::from(1.0)],
        /// Steps after the departure at which its effect is told, rising; the last of them ends the run. Empty for a run that goes on to the end of its plan.
        horizons: Vec<u64>,
        /// Id of the `xt.future/1` with the micro-batches that all branches of the set see; `null` for a run that goes on to the end of its plan.
        future: Option<Digest>,
        /// What is known of its effect beforehand: of every quality branch but the no-op, and of no other.
        known: Option<Known>,
    }
}

crate::record! {
    /// Between what its effect must lie at each horizon, both ends included.
    pub struct Known {
        /// The smallest.
        low: Finite,
        /// The largest.
        high: Finite,
    }
}

crate::words! {
    /// What a departure is for.
    pub enum Purpose {
        /// To compare matched continuations of one state.
        Branch "branch",
        /// The same for an intervention whose effect is known, to check the instrument.
        Quality "quality",
        /// The same under a new stack, recorded as re-baselining.
        Maintenance "maintenance",
        /// One cell of a grid of labels.
        Acquisition "acquisition",
        /// The mainline goes on from an earlier state of its own; what came after it is left behind.
        Rollback "rollback",
        /// A branch becomes the mainline.
        Adoption "adoption",
    }
}

crate::record! {
    /// A value of a candidate that is set otherwise.
    pub struct Change {
        /// Its path, such as `optimizer.learning_rate`; a number counts the items of a list from 0.
        path: String,
        /// The new value.
        value: Value,
    }
}

crate::record! {
    /// Normal noise on all parameters.
    pub struct Noise {
        /// Its standard deviation, in units of the root of the mean square of each tensor.
        relative: Finite [Range::above(0.0).to(10.0)],
        /// Seed of the draws.
        seed: u64,
    }
}

crate::record! {
    /// The micro-batches that come after a state, which all of its branches see (T16).
    pub struct Future as tag::FUTURE {
        /// Id of the dataset.
        dataset: Digest,
        /// Seed of the order.
        seed: u64,
        /// Steps taken before the first.
        after: u64,
        /// The steps, in their order.
        steps: Vec<FutureStep>,
    }
}

crate::record! {
    /// What one step sees.
    pub struct FutureStep {
        /// Digest of its samples, as lines of a trace state it.
        digest: Digest,
        /// Its micro-batches: the numbers of their samples in the split.
        micro_batches: Vec<Vec<u64>>,
    }
}

crate::record! {
    /// What came of one branch, against the no-op of its set.
    pub struct Branch as tag::BRANCH {
        /// Id of the snapshot that it left from.
        snapshot: Digest,
        /// Steps taken before it.
        step: u64,
        /// Id of the plan with which the trajectory of the snapshot began: branches of one trajectory are one statistical unit (T87).
        root: Digest,
        /// What it was for.
        purpose: Purpose,
        /// What it is called: the values that were set, the noise, or `no-op`.
        arm: String,
        /// What was set in all branches of the set.
        under: Vec<Change>,
        /// What was set.
        set: Vec<Change>,
        /// Standard deviation of the noise on the weights, relative to their size; `null` for none.
        noise: Option<Finite>,
        /// In which regime it ran.
        regime: Regime,
        /// Identity of the execution stack that it ran on.
        stack: Digest,
        /// Identity of the one that the state was computed on: another one in branches of the purpose `maintenance` after the stack was moved, which are the record of that (T78).
        baseline: Digest,
        /// Family of the model.
        family: String,
        /// In which numbers it computed.
        precision: Precision,
        /// On what it computed.
        execution: Execution,
        /// Id of the calibration that the regime stands on; `null` for the exact one, which needs none, and for evidence.
        calibration: Option<Digest>,
        /// Id of the `xt.future/1` that all branches of the set share.
        future: Digest,
        /// Its effect at each horizon.
        effects: Vec<Effect>,
        /// Its runs, by replicate.
        replicates: Vec<Replicate>,
        /// Where the standard deviations come from.
        uncertainty: Uncertainty,
        /// What was known of its effect, and whether that is what came; `null` for all but quality branches.
        known: Option<Proof>,
        /// What another stack makes of the same steps; `null` for all but maintenance branches.
        rebaseline: Option<Rebaseline>,
    }
}

crate::record! {
    /// An effect that was known beforehand, held against the one that came.
    pub struct Proof {
        /// The smallest that it could be.
        low: Finite,
        /// The largest.
        high: Finite,
        /// Whether it is there and within at every horizon. Where it is not, the instrument is wrong, and not the branch.
        holds: bool,
    }
}

crate::record! {
    /// The steps of a run, done again on another stack (T78). Both stay what they are; neither is written anew.
    pub struct Rebaseline {
        /// Identity of the stack on which the state was computed.
        before: Digest,
        /// Identity of the stack on which the branch ran.
        after: Digest,
        /// What differs between the two; empty when nothing does.
        differences: Vec<PinDifference>,
        /// Steps after the state at which the branch came to the bits of the run that it left.
        equal_steps: u64,
        /// Steps that were compared: those that both took.
        steps: u64,
    }
}

crate::record! {
    /// The effect of a branch at a horizon.
    pub struct Effect {
        /// Steps after the departure.
        horizon: u64,
        /// Mean over the replicates of the loss at that step; `null` when one of them has none that is finite.
        loss: Option<Finite>,
        /// The same less the loss of the no-op with the same replicate, whose micro-batch is the same: negative is better.
        effect: Option<Finite>,
        /// Mean of the same difference over all steps up to the horizon.
        mean_effect: Option<Finite>,
        /// Standard deviation of the effect over the replicates; `null` with fewer than two.
        deviation: Option<Finite>,
    }
}

crate::record! {
    /// One run of a branch.
    pub struct Replicate {
        /// Its number.
        replicate: u64,
        /// Id of the run.
        run: Digest,
        /// Id of the run of the no-op with which it is paired.
        no_op: Digest,
        /// How it ended.
        status: Status,
        /// Loss at each step; `null` where it is not finite.
        loss: Vec<Option<Finite>>,
        /// Norm of the gradient at each step; `null` where it is not finite.
        gradient_norm: Vec<Option<Finite>>,
        /// The largest loss above that of the no-op at any of its steps; 0 when it was never above, `null` when one of these losses is not finite.
        shock: Option<Finite>,
        /// Steps with a value that is not finite.
        unstable: Vec<u64>,
        /// Updates that were left out.
        skipped: u64,
        /// Digest of its replay: the chain of its last line, which fixes all that it computed.
        replay: Digest,
        /// Id of the snapshot of its last state; `null` when there is none.
        final_state: Option<Digest>,
        /// Steps that it took.
        steps: u64,
        /// Wall-clock nanoseconds from start to end; `null` when not observed.
        wall_nanoseconds: Option<u64>,
        /// Processor nanoseconds; `null` when not observed.
        cpu_nanoseconds: Option<u64>,
        /// Largest resident size in bytes; `null` when not observed.
        peak_memory_bytes: Option<u64>,
    }
}

crate::words! {
    /// Where standard deviations come from (T69).
    pub enum Uncertainty {
        /// From nowhere: one replicate in the exact regime, which gives the same bits each time.
        None "none",
        /// From replicates whose weights were shaken apart by declared noise.
        Noise "noise",
        /// From replicates that differ in nothing that is declared: the noise of the execution, which is 0 in the exact regime.
        Execution "execution",
    }
}
