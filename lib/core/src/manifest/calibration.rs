//! `xt.gates/1`: what a regime must reach; `xt.calibration/1`: what it reached against exact evidence, for what, and until
//! when (rows T29, T47-T55, T65-T67, T94).

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::instant::Instant;
use crate::manifest::candidate::{Execution, Precision, Regime};
use crate::manifest::comparison::Resampling;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// What a calibration must reach, stated before anything is measured.
    pub struct Gates as tag::GATES {
        /// A branch is accepted when its loss falls below that of the no-op by more than this.
        threshold: Finite [Range::from(0.0)],
        /// Intervals of effects reach this many standard deviations of execution to both sides.
        kappa: Finite [Range::above(0.0).to(100.0)],
        /// Days for which a calibration counts.
        days: u64 [Range::from(1.0).to(3650.0)],
        /// How intervals of the measures are drawn.
        resampling: Resampling,
        /// The limit of each measure, once; `rank-stability` may be left out where a regime was executed in one way only.
        limits: Vec<Limit>,
    }
}

crate::record! {
    /// What one measure must reach.
    pub struct Limit {
        /// The measure.
        measure: Measure,
        /// The least value that passes of `rank-agreement`, `top-agreement`, `coverage` and `rank-stability`, and the largest of all others.
        limit: Finite,
    }
}

crate::words! {
    /// How two regimes are held against each other. A case is one state with one horizon in one world, which is one declared execution of the regime and one of its repeats; in it stand the branches of the state, the no-op among them.
    pub enum Measure {
        /// Mean over the cases of Kendall's tau-b between the effects of both regimes (Kendall, "The Treatment of Ties in Ranking Problems", Biometrika 1945).
        RankAgreement "rank-agreement",
        /// Share of the cases in which the branch that this regime finds best is among the best of the exact one.
        TopAgreement "top-agreement",
        /// Mean over the cases of the exact loss that is given away by taking the branch that this regime finds best.
        Regret "regret",
        /// Share of the branches that one regime accepts over the no-op and the other does not.
        Disagreement "disagreement",
        /// Share of the exact effects that lie in the interval of this regime; the standard deviation is taken from all other pairs with the same horizon.
        Coverage "coverage",
        /// 95th percentile of the absolute difference of effects, the nearest rank.
        Error95 "error-95",
        /// 99th percentile of it.
        Error99 "error-99",
        /// The largest of them.
        ErrorWorst "error-worst",
        /// Share of the runs of this regime that did not succeed or met a value that is not finite.
        Failures "failures",
        /// Mean of Kendall's tau-b between the effects of each two worlds of the same state and horizon: whether repeats of this regime agree with each other.
        RankStability "rank-stability",
    }
}

crate::record! {
    /// How far a regime that is not exact can be trusted.
    pub struct Calibration as tag::CALIBRATION {
        /// What it holds for.
        scope: CalibrationScope,
        /// Id of the gates.
        gates: Digest,
        /// Ids of the exact branches, in order.
        exact: Vec<Digest>,
        /// Ids of the branches in the regime, in order.
        other: Vec<Digest>,
        /// Independent units behind it: trajectories, however many states and branches each of them has (T87).
        trajectories: u64,
        /// States that branches left from.
        states: u64,
        /// Cases that were compared.
        cases: u64,
        /// Pairs of effects in them, without those of no-ops.
        pairs: u64,
        /// What execution adds to an effect, by horizon, rising.
        spreads: Vec<Spread>,
        /// How many of these an effect must exceed.
        kappa: Finite,
        /// The measures.
        measures: Vec<Measured>,
        /// What the worlds gave for each branch and horizon.
        outcomes: Vec<Scatter>,
        /// Whether all gates were passed.
        passed: bool,
        /// When it was made.
        made: Instant,
        /// From then on it counts no more.
        expires: Instant,
    }
}

crate::record! {
    /// What a calibration holds for.
    pub struct CalibrationScope {
        /// The regime.
        regime: Regime,
        /// Identity of the execution stack.
        stack: Digest,
        /// Family of the model.
        family: String,
        /// In which numbers it computes.
        precision: Precision,
        /// On what it computes: each way that was measured.
        executions: Vec<Execution>,
        /// Steps after a state, up to this.
        horizon: u64,
        /// In which numbers the exact branches were computed.
        exact_precision: Precision,
        /// On what the exact branches were computed.
        exact_execution: Execution,
    }
}

crate::record! {
    /// What execution adds to an effect at one horizon.
    pub struct Spread {
        /// Steps after the state.
        horizon: u64,
        /// Pairs of effects.
        pairs: u64,
        /// Root of the mean square of their differences.
        sigma: Finite,
    }
}

crate::record! {
    /// What a measure came to.
    pub struct Measured {
        /// The measure.
        measure: Measure,
        /// Its value; `null` when there is too little to have one, which does not pass.
        value: Option<Finite>,
        /// Lower end of its interval at 95 %, by drawing again trajectories, in them states, and in them branches; `null` when there is only one of each. Of one trajectory alone it says nothing about others.
        low: Option<Finite>,
        /// Upper end.
        high: Option<Finite>,
        /// Its limit.
        limit: Finite,
        /// Whether the value passes it.
        passed: bool,
    }
}

crate::record! {
    /// What became of one branch at one horizon over all worlds of a regime (T48).
    pub struct Scatter {
        /// Id of the snapshot.
        snapshot: Digest,
        /// Steps after it.
        horizon: u64,
        /// The branch.
        arm: String,
        /// Its effect in the exact regime; `null` when it is not finite.
        exact: Option<Finite>,
        /// Worlds with an effect.
        worlds: u64,
        /// Mean of their effects; `null` without any.
        mean: Option<Finite>,
        /// Standard deviation of them; `null` with fewer than two.
        deviation: Option<Finite>,
        /// The least.
        least: Option<Finite>,
        /// The largest.
        largest: Option<Finite>,
    }
}

impl Measure {
    /// Whether more of it is better.
    pub const fn rises(self) -> bool {
        matches!(self, Self::RankAgreement | Self::TopAgreement | Self::Coverage | Self::RankStability)
    }

    /// Whether `value` is on the right side of `limit`.
    pub fn passes(self, value: f64, limit: f64) -> bool {
        if self.rises() { value >= limit } else { value <= limit }
    }
}

impl Calibration {
    /// The standard deviation that holds for an effect at this horizon: that of the nearest horizon which is not below it.
    /// `None` beyond the last.
    pub fn sigma(&self, horizon: u64) -> Option<Finite> {
        self.spreads.iter().find(|spread| spread.horizon >= horizon).map(|spread| spread.sigma)
    }
}
