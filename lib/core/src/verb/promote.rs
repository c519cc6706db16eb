//! Which bundle of an experiment is chosen, by a stated rule, from recorded decisions and a comparison (rows L90, L91).

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::field::Manifest as _;
use crate::manifest::comparison::{Comparison, Resampling, Scope, Verdict};
use crate::manifest::decision::{Direction, Objective};
use crate::manifest::evaluation::{Evaluation, Measure};
use crate::manifest::promotion::{
    BundleRule, CandidateRule, Chosen, Eligible, Promotion, PromotionPolicy, Scored, Withheld,
};
use crate::name::Name;
use crate::verb::scores::Question;

/// Chooses. `comparison` is that of all eligible candidates with one another, when there are several.
pub fn promote(
    experiment: &Name,
    policy: &PromotionPolicy,
    objective: &Objective,
    eligible: Vec<Eligible>,
    comparison: Option<&Comparison>,
) -> Promotion {
    let direction = objective.primary.direction;
    let chosen = candidate(policy, &eligible, comparison)
        .and_then(|one| Ok((one, bundle(policy, direction, &one.bundles)?)))
        .map(|(one, scored)| Chosen { node: one.node.clone(), bundle: scored.bundle, decision: one.decision });
    let reason = match &chosen {
        Ok(chosen) => choice(policy, objective, &eligible, chosen),
        Err(withheld) => format!("nothing is chosen: {}", why(*withheld)),
    };
    Promotion {
        experiment_id: experiment.clone(),
        policy: policy.clone(),
        metric: objective.primary.name.clone(),
        direction,
        comparison: comparison.map(Comparison::id),
        withheld: chosen.as_ref().err().copied().into_iter().collect(),
        chosen: chosen.ok(),
        eligible,
        reason,
    }
}

/// A candidate that was accepted by `decision`, with what was measured in that cycle; `None` when nothing was.
pub fn eligible(node: &Name, decision: Digest, objective: &Objective, measured: &[Evaluation]) -> Option<Eligible> {
    let score = |evaluation: &Evaluation| {
        let whole = |metric: &&Measure| metric.name == objective.primary.name && metric.slice.is_none();
        Some(Scored {
            bundle: evaluation.subject.bundle,
            seed: evaluation.subject.seed,
            value: evaluation.metrics.iter().find(whole)?.value,
            evaluation: evaluation.id(),
        })
    };
    Some(Eligible {
        node: node.clone(),
        candidate: measured.first()?.subject.name.clone(),
        decision,
        bundles: measured.iter().filter_map(score).collect(),
    })
}

/// What is asked of the accepted candidates when there are several: every pair, on the metric of the objective.
pub fn question(
    experiment: &Name,
    policy: &PromotionPolicy,
    objective: &Objective,
    resampling: Resampling,
) -> Question {
    Question {
        experiment: Some(experiment.clone()),
        metric: objective.primary.name.clone(),
        slice: None,
        direction: objective.primary.direction,
        reference: None,
        level: policy.level,
        power: policy.power,
        margin: None,
        scope: Scope::TheseExamples,
        resampling,
    }
}

fn candidate<'a>(
    policy: &PromotionPolicy,
    eligible: &'a [Eligible],
    comparison: Option<&Comparison>,
) -> Result<&'a Eligible, Withheld> {
    match (eligible, policy.candidate) {
        ([], _) => Err(Withheld::NoneAccepted),
        ([one], _) => Ok(one),
        (_, CandidateRule::Only) => Err(Withheld::SeveralAccepted),
        (several, CandidateRule::Best) => several
            .iter()
            .find(|one| several.iter().all(|other| other.node == one.node || beats(comparison, one, other)))
            .ok_or(Withheld::NoneBetter),
    }
}

/// Whether the comparison says that `one` is better than `other`, in either order.
fn beats(comparison: Option<&Comparison>, one: &Eligible, other: &Eligible) -> bool {
    comparison.is_some_and(|comparison| {
        comparison.pairs.iter().any(|pair| {
            let (candidate, reference) = (&pair.candidate, &pair.reference);
            let forth = (candidate, reference) == (&one.candidate, &other.candidate);
            let back = (candidate, reference) == (&other.candidate, &one.candidate);
            forth && pair.outcome == Some(Verdict::Better) || back && pair.outcome == Some(Verdict::Worse)
        })
    })
}

fn bundle<'a>(policy: &PromotionPolicy, direction: Direction, bundles: &'a [Scored]) -> Result<&'a Scored, Withheld> {
    let mut ordered: Vec<&Scored> = bundles.iter().collect();
    // From best to worst; ties by digest, so that the choice does not depend on an order of reading.
    ordered.sort_by(|one, other| {
        let order = one.value.get().total_cmp(&other.value.get());
        if direction == Direction::Minimize { order } else { order.reverse() }.then(one.bundle.cmp(&other.bundle))
    });
    match (ordered.as_slice(), policy.bundle) {
        ([one], _) => Ok(one),
        (several, BundleRule::Median) if !several.is_empty() => Ok(several[several.len() / 2]),
        _ => Err(Withheld::SeveralBundles),
    }
}

fn choice(policy: &PromotionPolicy, objective: &Objective, eligible: &[Eligible], chosen: &Chosen) -> String {
    let metric = &objective.primary.name;
    let scored = eligible.iter().flat_map(|one| &one.bundles).find(|scored| scored.bundle == chosen.bundle);
    let value = scored.map_or_else(String::new, |scored| scored.value.to_string());
    let bundles = eligible.iter().find(|one| one.node == chosen.node).map_or(0, |one| one.bundles.len());
    let among = match eligible.len() {
        1 => format!("{} is the only candidate that was accepted", chosen.node),
        several => format!(
            "{} is better on {metric} than each other of {several} accepted candidates at level {}",
            chosen.node, policy.level
        ),
    };
    let which =
        if bundles == 1 { "its only bundle".to_string() } else { format!("the middle one of its {bundles} bundles") };
    format!("{among}; {which}, {}, has {metric} {value} on the held-out data and is chosen", chosen.bundle)
}

const fn why(withheld: Withheld) -> &'static str {
    match withheld {
        Withheld::NoneAccepted => "no candidate was judged and accepted",
        Withheld::SeveralAccepted => "several candidates were accepted, and the policy takes an only one",
        Withheld::NoneBetter => "no accepted candidate is better than each other by more than chance",
        Withheld::SeveralBundles => "several bundles were measured, and the policy takes an only one",
    }
}
