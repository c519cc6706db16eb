//! `xt.comparison-context/1`: what two or more candidates scored, seed by seed; `xt.comparison/1`: whether one is better
//! than another by more than chance (rows T53, T87, T93, L95, X86).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::decision::{Direction, Interval};
use crate::name::Name;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// What two or more candidates scored, and how the scores are to be compared.
    pub struct ComparisonContext as tag::COMPARISON_CONTEXT {
        /// The experiment; `null` when the scores come from elsewhere.
        experiment_id: Option<Name>,
        /// The metric, exactly.
        metric: String,
        /// The slice of the data; `null` for everything.
        slice: Option<String>,
        /// Which way is better.
        direction: Direction,
        /// The candidate that the others are compared with; `null` for every pair of candidates.
        reference: Option<Name>,
        /// How often chance alone may be taken for a difference, over all comparisons of this document: 0.05 is usual.
        level: Finite [Range::above(0.0).below(0.5)],
        /// How likely a repeat should be to show a difference as large as the one seen, when replicates are counted
        /// that would still be needed: 0.8 is usual.
        power: Finite [Range::from(0.5).below(1.0)],
        /// A difference smaller than this does not matter; `null` when no such size is stated, and then nothing can be
        /// called equivalent.
        margin: Option<Finite> [Range::above(0.0)],
        /// What the answer is about.
        scope: Scope,
        /// How exactly the runs were executed; `null` when they are exact, so that a repeat gives the same score.
        execution: Option<ExecutionNoise>,
        /// How intervals by resampling are drawn.
        resampling: Resampling,
        /// The scores. Their order does not matter.
        replicates: Vec<Replicate>,
    }
}

crate::words! {
    /// What an answer is about.
    pub enum Scope {
        /// Other seeds, on the held-out examples that were used.
        TheseExamples "these-examples",
        /// Other seeds and other held-out examples of the same kind; needs a score for each example.
        OtherExamples "other-examples",
    }
}

crate::record! {
    /// How much a score changes when the same run is executed again. A difference has to exceed `kappa * sigma`, or the
    /// runs have to be repeated exactly (T53, T93).
    pub struct ExecutionNoise {
        /// Standard deviation of a mean difference from execution alone.
        sigma: Finite [Range::from(0.0)],
        /// How many of them a difference has to exceed.
        kappa: Finite [Range::from(0.0)],
    }
}

crate::record! {
    /// How intervals by resampling are drawn.
    pub struct Resampling {
        /// The seed.
        seed: u64,
        /// How many resamples.
        count: u64 [Range::from(100.0).to(100_000.0)],
    }
}

crate::record! {
    /// One score of one candidate.
    pub struct Replicate {
        /// The candidate.
        candidate: Name,
        /// Seed of the run that was scored.
        seed: u64,
        /// The run that this one branched off; `null` for a run of its own. Branches of one run are one unit, whatever
        /// their seeds: they share most of their chance (T87).
        trajectory: Option<Name>,
        /// The score; `null` when there is none.
        value: Option<Finite>,
        /// Why there is no score; `null` when there is one.
        absence: Option<Absence>,
        /// The score of each held-out example, by its name; `null` when they were not kept.
        examples: Option<BTreeMap<String, Finite>>,
        /// What was scored: the digest of its bundle; `null` when it is no bundle.
        subject: Option<Digest>,
        /// The id of the evaluation that the score comes from; `null` when it was made elsewhere.
        evaluation: Option<Digest>,
    }
}

crate::words! {
    /// Why a replicate has no score. A run that broke is not left out in silence: the ones that remain would be chosen by
    /// their success (L95).
    pub enum Absence {
        /// Training diverged or broke, or the model gave values that are not finite.
        ModelError "model-error",
        /// The evaluation broke.
        HarnessError "harness-error",
        /// What judges an answer broke.
        GraderError "grader-error",
        /// It was not allowed to run.
        Blocked "blocked",
    }
}

crate::record! {
    /// Whether candidates differ by more than chance. It holds no time and no actor: the same context gives the same
    /// bytes, in whatever order the scores stand.
    pub struct Comparison as tag::COMPARISON {
        /// The experiment, if any.
        experiment_id: Option<Name>,
        /// Fingerprint of all that was compared.
        input_fingerprint: Digest,
        /// Version of the rules.
        method: Method,
        /// The metric.
        metric: String,
        /// The slice; `null` for everything.
        slice: Option<String>,
        /// Which way is better.
        direction: Direction,
        /// How often chance alone may be taken for a difference.
        level: Finite,
        /// The difference that does not matter, if stated.
        margin: Option<Finite>,
        /// What the answers are about.
        scope: Scope,
        /// The candidates, in the order of their names.
        candidates: Vec<Summary>,
        /// One candidate against another, each.
        pairs: Vec<Pair>,
        /// In a sentence.
        reason: String,
    }
}

crate::record! {
    /// The rules that were applied.
    pub struct Method {
        /// Their name.
        name: String,
        /// Their version; other rules get another one.
        version: String,
    }
}

crate::record! {
    /// What is known of one candidate.
    pub struct Summary {
        /// Its name.
        candidate: Name,
        /// Independent units: seeds, or trajectories with their branches.
        units: u64,
        /// Scores behind them.
        replicates: u64,
        /// Replicates without a score.
        absent: u64,
        /// Mean of the units; `null` without any.
        mean: Option<Finite>,
        /// Standard deviation of the units; `null` for fewer than two.
        standard_deviation: Option<Finite>,
        /// Bundles behind the scores, each once.
        subjects: Vec<Digest>,
    }
}

crate::record! {
    /// One candidate against another.
    pub struct Pair {
        /// The candidate.
        candidate: Name,
        /// What it is compared with.
        reference: Name,
        /// `null` when nothing can be said.
        outcome: Option<Verdict>,
        /// Why, in a sentence.
        reason: String,
        /// What stands in the way of an outcome; empty when there is one.
        hesitations: Vec<Hesitation>,
        /// Score of the candidate minus that of the reference, unit by unit.
        differences: Vec<Difference>,
        /// Units of only one of the two; they take no part.
        unpaired: Vec<String>,
        /// How large the difference is; `null` for fewer than two pairs.
        effect: Option<Effect>,
        /// Tests for a difference; `null` for fewer than two pairs.
        tests: Option<Tests>,
        /// Tests for equivalence; `null` without a margin or for fewer than two pairs.
        equivalence: Option<Equivalence>,
        /// What the scores of single examples say; `null` when they are not there for every pair.
        examples: Option<ExampleEffect>,
        /// The smallest p that so many pairs can give, however large the difference.
        smallest_p: Finite,
        /// How many pairs it would take.
        needed: Needed,
    }
}

crate::words! {
    /// What can be said of a candidate against another.
    pub enum Verdict {
        /// It is better by more than chance.
        Better "BETTER",
        /// It is worse by more than chance.
        Worse "WORSE",
        /// It differs by less than the margin.
        Equivalent "EQUIVALENT",
    }
}

crate::words! {
    /// What stands in the way of an outcome.
    pub enum Hesitation {
        /// The two have no unit in common.
        NoPairs "no-pairs",
        /// A replicate has no score.
        ScoreMissing "score-missing",
        /// No result of so few pairs could be told from chance.
        TooFewPairs "too-few-pairs",
        /// The difference could be chance.
        WithinChance "within-chance",
        /// The difference could come from execution alone: repeat the runs exactly (T53).
        WithinExecutionNoise "within-execution-noise",
        /// The answer is to hold for other examples, and their scores are not there, or do not average to the score.
        ExamplesMissing "examples-missing",
    }
}

crate::record! {
    /// The scores of one unit.
    pub struct Difference {
        /// The unit: `seed 3`, or the name of a trajectory.
        unit: String,
        /// Score of the candidate; the mean of several.
        candidate: Finite,
        /// Score of the reference; the mean of several.
        reference: Finite,
        /// The first minus the second.
        difference: Finite,
    }
}

crate::record! {
    /// How large a difference is, in units of the metric; above 0 when the candidate's score is the higher one.
    pub struct Effect {
        /// Pairs.
        pairs: u64,
        /// Mean difference.
        mean: Finite,
        /// Standard deviation of the differences.
        standard_deviation: Finite,
        /// Standard error of the mean.
        standard_error: Finite,
        /// Interval of the mean at 1 - level, by Student's t.
        interval: Interval,
        /// Interval of the mean at 1 - level, by the bootstrap.
        bootstrap_interval: Interval,
        /// Hedges' g for pairs; `null` for two pairs and when nothing varies.
        hedges_g: Option<Finite>,
        /// Interval of g at 1 - level; `null` also when the difference is more than 100 standard errors.
        hedges_g_interval: Option<Interval>,
    }
}

crate::record! {
    /// Tests for a difference, all two-sided.
    pub struct Tests {
        /// The test that decides.
        sign_flip: SignFlip,
        /// The exact sign test.
        sign: SignTest,
        /// The paired t test.
        paired_t: TTest,
        /// The p that decides before correction: of the sign-flip test, and when the answer is to hold for other
        /// examples, the larger of it and that of both sources of chance.
        p: Finite,
        /// The same, corrected for all comparisons of this document by Holm.
        adjusted_p: Finite,
    }
}

crate::record! {
    /// The sign-flip test.
    pub struct SignFlip {
        /// Its p.
        p: Finite,
        /// Whether all ways were counted, or a number of random ones.
        exact: bool,
    }
}

crate::record! {
    /// The exact sign test.
    pub struct SignTest {
        /// Pairs in which the candidate's score is the higher one.
        higher: u64,
        /// Pairs in which it is the lower one.
        lower: u64,
        /// Pairs without a difference.
        ties: u64,
        /// Its p.
        p: Finite,
    }
}

crate::record! {
    /// A t test.
    pub struct TTest {
        /// The statistic; `null` when nothing varies around a mean that is not 0.
        t: Option<Finite>,
        /// Degrees of freedom.
        degrees_of_freedom: Finite,
        /// Its p.
        p: Finite,
    }
}

crate::record! {
    /// Two one-sided tests for a difference within the margin.
    pub struct Equivalence {
        /// The larger p of two one-sided t tests.
        t_p: Finite,
        /// The larger p of two one-sided sign-flip tests.
        sign_flip_p: Finite,
        /// The p that decides before correction: the largest of these and, when the answer is to hold for other
        /// examples, that of both sources of chance.
        p: Finite,
        /// The same, corrected for all comparisons of this document by Holm.
        adjusted_p: Finite,
    }
}

crate::record! {
    /// What single examples say: of each, the difference averaged over all pairs.
    pub struct ExampleEffect {
        /// Examples.
        examples: u64,
        /// Standard error of the mean from the choice of examples.
        standard_error: Finite,
        /// The paired t test over examples: chance of examples, for the seeds at hand.
        over_examples: TTest,
        /// The t test for both sources of chance; `null` when nothing varies.
        over_both: Option<CrossedTest>,
        /// Interval of the mean at 1 - level for both sources of chance; `null` when nothing varies.
        interval: Option<Interval>,
    }
}

crate::record! {
    /// A t test whose error is made up of two.
    pub struct CrossedTest {
        /// The statistic; its square is the quasi-F called min F'.
        t: Finite,
        /// Degrees of freedom; in general no whole number.
        degrees_of_freedom: Finite,
        /// Its p.
        p: Finite,
    }
}

crate::record! {
    /// How many pairs it would take if the truth were as seen, with the power asked for. What was seen is the best guess
    /// and may be far off with few pairs.
    pub struct Needed {
        /// Pairs to show a difference this large; `null` when it cannot be reckoned or 100000 do not do.
        for_difference: Option<u64>,
        /// Pairs to show equivalence; `null` also without a margin, or when the difference exceeds it.
        for_equivalence: Option<u64>,
        /// The fewest pairs with which any difference could be shown.
        at_least: u64,
    }
}
