//! Documents of comparisons of candidates.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use xt_core::digest::Digest;
use xt_core::left_out::LeftOut;
use xt_core::manifest::comparison::{
    Absence, Comparison, ComparisonContext, ExecutionNoise, Replicate, Resampling, Scope,
};
use xt_core::manifest::decision::{Direction, Objective, Primary};
use xt_core::manifest::promotion::{BundleRule, CandidateRule, Eligible, Promotion, PromotionPolicy, Scored};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::compare_candidates::compare;
use xt_core::verb::promote::promote;

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("{text} is a name"))
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| panic!("{value} is finite"))
}

fn replicate(candidate: &str, seed: u64, value: f64) -> Replicate {
    Replicate {
        candidate: name(candidate),
        seed,
        trajectory: None,
        value: Some(number(value)),
        absence: None,
        examples: None,
        subject: None,
        evaluation: None,
    }
}

/// A replicate whose two examples lie `spread` around its value.
fn scored(candidate: &str, seed: u64, value: f64, spread: f64) -> Replicate {
    let examples = [("first", value - spread), ("second", value + spread)];
    Replicate {
        examples: Some(BTreeMap::from(examples.map(|(key, value)| (String::from(key), number(value))))),
        subject: Some(Digest::of(candidate.as_bytes())),
        ..replicate(candidate, seed, value)
    }
}

fn context(replicates: Vec<Replicate>) -> ComparisonContext {
    ComparisonContext {
        experiment_id: None,
        metric: String::from("accuracy"),
        slice: Some(String::from("rare")),
        direction: Direction::Maximize,
        reference: Some(name("base")),
        level: number(0.25),
        power: number(0.8),
        margin: Some(number(0.75)),
        scope: Scope::OtherExamples,
        execution: None,
        resampling: Resampling { seed: 1, count: 100 },
        replicates,
    }
}

/// Contexts with and without everything that may be `null`.
pub fn contexts() -> Vec<ComparisonContext> {
    let varied = (0..3).flat_map(|seed| {
        let noise = 0.01 * f64::from(u32::try_from(seed * seed % 5).unwrap_or_default());
        [scored("base", seed, 0.25, 0.125), scored("new", seed, 0.5 + noise, 0.12)]
    });
    let constant = (0..2).flat_map(|seed| {
        ["base", "new"].map(|candidate| Replicate {
            trajectory: Some(name(&format!("run-{seed}"))),
            evaluation: Some(Digest::of(format!("{candidate} {seed}").as_bytes())),
            ..scored(candidate, seed, if candidate == "new" { 0.75 } else { 0.25 }, 0.125)
        })
    });
    let broken = Replicate { value: None, absence: Some(Absence::ModelError), ..replicate("new", 1, 0.0) };
    let plain = ComparisonContext {
        experiment_id: Some(name("experiment-1")),
        slice: None,
        reference: None,
        margin: None,
        execution: Some(ExecutionNoise { sigma: number(0.125), kappa: number(2.5) }),
        ..context(constant.collect())
    };
    vec![context(varied.collect()), plain, context(vec![replicate("base", 2, 0.125), broken])]
}

/// A policy.
pub fn policies() -> Vec<PromotionPolicy> {
    vec![PromotionPolicy {
        candidate: CandidateRule::Best,
        bundle: BundleRule::Median,
        level: number(0.05),
        power: number(0.8),
        envelope: String::from("as a draft for people"),
        rollout: String::from("one team first"),
        stop: String::from("at the first complaint"),
        rollback: String::from("the one before"),
        retirement: String::from("with the next promotion"),
    }]
}

/// A choice of each kind.
pub fn promotions() -> Vec<Promotion> {
    let objective = Objective {
        primary: Primary { name: String::from("accuracy"), direction: Direction::Maximize },
        target: None,
        constraints: Vec::new(),
        risk: LeftOut(None),
    };
    let eligible = |candidate: &str| Eligible {
        node: name(&format!("node-{candidate}")),
        candidate: name(candidate),
        decision: Digest::of(candidate.as_bytes()),
        bundles: vec![Scored {
            bundle: Digest::of(format!("bundle of {candidate}").as_bytes()),
            seed: 3,
            value: number(0.625),
            evaluation: Digest::of(format!("evaluation of {candidate}").as_bytes()),
        }],
    };
    let experiment = name("experiment-1");
    let choose = |all: &[&str], comparison: Option<&Comparison>| {
        let all = all.iter().map(|candidate| eligible(candidate)).collect();
        promote(&experiment, &policies()[0], &objective, all, comparison)
    };
    vec![choose(&["new"], None), choose(&["base", "new"], comparisons().first()), choose(&[], None)]
}

/// What comes of them.
pub fn comparisons() -> &'static [Comparison] {
    // Resampling takes its time, and these are asked for again and again.
    static MADE: LazyLock<Vec<Comparison>> = LazyLock::new(|| contexts().iter().map(compare).collect());
    &MADE
}
