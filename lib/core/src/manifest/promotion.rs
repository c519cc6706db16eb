//! `xt.promotion-policy/1`: by what rule a bundle of an experiment is chosen; `xt.promotion/1`: which one was, and on what
//! (rows L65, L90, L91).

use alloc::string::String;
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Range;
use crate::manifest::decision::Direction;
use crate::name::Name;
use crate::number::Finite;
use crate::tag;

crate::record! {
    /// By what rule a bundle is chosen. It is stated before the choice, and nothing in it has a default.
    pub struct PromotionPolicy as tag::PROMOTION_POLICY {
        /// Which candidate.
        candidate: CandidateRule,
        /// Which of its bundles.
        bundle: BundleRule,
        /// How often chance alone may be taken for a difference between candidates.
        level: Finite [Range::above(0.0).below(0.5)],
        /// How likely a repeat should be to show a difference, when replicates are counted that would still be needed.
        power: Finite [Range::from(0.5).below(1.0)],
        /// What it may be used for.
        envelope: String,
        /// How it is brought into use.
        rollout: String,
        /// When that is stopped.
        stop: String,
        /// How it is taken back.
        rollback: String,
        /// When it is retired.
        retirement: String,
    }
}

crate::words! {
    /// Which candidate is chosen, among those that were judged and accepted.
    pub enum CandidateRule {
        /// The only one; with several, none.
        Only "only",
        /// The one that is better than each other by more than chance, on the metric of the objective; otherwise none.
        Best "best",
    }
}

crate::words! {
    /// Which bundle of the candidate is chosen. There is no rule for the best one: the best of several seeds owes part of
    /// its score to chance.
    pub enum BundleRule {
        /// The only one; with several, none.
        Only "only",
        /// The one in the middle by the metric of the objective; of two, the worse one.
        Median "median",
    }
}

crate::record! {
    /// Which bundle was chosen, and on what. It says no more than the decisions and the comparison it names.
    pub struct Promotion as tag::PROMOTION {
        /// The experiment.
        experiment_id: Name,
        /// The rule.
        policy: PromotionPolicy,
        /// The metric of the objective.
        metric: String,
        /// Which way it is better.
        direction: Direction,
        /// The candidates that were judged and accepted, in the order of their nodes.
        eligible: Vec<Eligible>,
        /// The comparison among them; `null` when none was needed.
        comparison: Option<Digest>,
        /// What is chosen; `null` when nothing is.
        chosen: Option<Chosen>,
        /// Why nothing is chosen; empty when something is.
        withheld: Vec<Withheld>,
        /// In a sentence.
        reason: String,
    }
}

crate::record! {
    /// A candidate that was judged and accepted.
    pub struct Eligible {
        /// Its node.
        node: Name,
        /// What people call it.
        candidate: Name,
        /// Id of the recorded decision.
        decision: Digest,
        /// Its bundles that were measured in the cycle that was decided, each with its score.
        bundles: Vec<Scored>,
    }
}

crate::record! {
    /// A bundle and its score.
    pub struct Scored {
        /// Id of the bundle.
        bundle: Digest,
        /// Seed of its training.
        seed: u64,
        /// The metric of the objective.
        value: Finite,
        /// Id of the evaluation.
        evaluation: Digest,
    }
}

crate::record! {
    /// What is chosen.
    pub struct Chosen {
        /// The node of the candidate.
        node: Name,
        /// Id of the bundle: exactly this one and no other.
        bundle: Digest,
        /// Id of the decision that accepted it.
        decision: Digest,
    }
}

crate::words! {
    /// Why nothing is chosen.
    pub enum Withheld {
        /// No candidate was judged and accepted.
        NoneAccepted "none-accepted",
        /// Several were, and the rule takes an only one.
        SeveralAccepted "several-accepted",
        /// None of them is better than each other by more than chance.
        NoneBetter "none-better",
        /// Several bundles were measured, and the rule takes an only one.
        SeveralBundles "several-bundles",
    }
}
