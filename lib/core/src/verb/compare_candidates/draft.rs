//! One candidate against another: what is computed, and what may be said.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::sentence::sentence;
use super::{Unit, Units, finite, interval, mean, score};
use crate::manifest::comparison::{
    ComparisonContext, CrossedTest, Difference, Effect, Equivalence, ExampleEffect, Hesitation, Needed, Pair,
    Replicate, Resampling, Scope, SignFlip, SignTest, TTest, Tests, Verdict,
};
use crate::manifest::decision::Direction;
use crate::name::Name;
use crate::number::Finite;
use crate::statistics::paired::{self, Crossed};
use crate::statistics::signs::{self, Shares, fewest_pairs, sign_test, smallest_p};
use crate::statistics::{float, power, resample};

/// How far the mean of the examples may be from the score, relative to the larger of score and 1.
const SAME: f64 = 1e-6;

/// One candidate against another, before the p-values of all are corrected.
pub struct Draft<'a> {
    candidate: &'a Name,
    reference: &'a Name,
    missing: bool,
    differences: Vec<Difference>,
    pub values: Vec<f64>,
    unpaired: Vec<String>,
    summary: Option<paired::Summary>,
    effect: Option<Effect>,
    pub tests: Option<Tests>,
    pub equivalence: Option<Equivalence>,
    examples: Option<ExampleEffect>,
}

impl<'a> Draft<'a> {
    pub fn new(
        context: &ComparisonContext,
        candidate: &'a Name,
        reference: &'a Name,
        candidates: &BTreeMap<&'a Name, Units<'a>>,
    ) -> Self {
        let (ours, theirs) = (&candidates[candidate], &candidates[reference]);
        let common: Vec<Unit<'_>> = ours.keys().filter(|unit| theirs.contains_key(unit)).copied().collect();
        let differences: Vec<Difference> =
            common.iter().filter_map(|unit| difference(*unit, &ours[unit], &theirs[unit])).collect();
        let values: Vec<f64> = differences.iter().map(|difference| difference.difference.get()).collect();
        let summary = paired::Summary::of(&values);
        let profile = example_differences(&common, ours, theirs);
        let by_example = profile.as_deref().and_then(paired::Summary::of);
        let both = summary.zip(by_example).and_then(|(seeds, examples)| paired::crossed(&seeds, &examples));
        // When nothing varies, there is no chance of examples to reckon with.
        let over_both = (context.scope == Scope::OtherExamples).then_some(both).flatten();
        let level = context.level.get();
        let one_sided = ours.keys().filter(|unit| !theirs.contains_key(unit));
        let other_sided = theirs.keys().filter(|unit| !ours.contains_key(unit));
        Self {
            candidate,
            reference,
            missing: [ours, theirs].iter().any(|units| units.values().any(|unit| score(unit).is_none())),
            unpaired: one_sided.chain(other_sided).map(|unit| unit.name()).collect(),
            effect: summary.map(|summary| effect(&summary, &values, level, &context.resampling)),
            tests: summary.map(|summary| tests(&summary, &values, over_both, &context.resampling)),
            equivalence: summary
                .zip(context.margin)
                .map(|(summary, margin)| equivalence(&summary, &values, margin.get(), over_both, &context.resampling)),
            examples: summary.zip(by_example).map(|(seeds, examples)| example_effect(&seeds, &examples, both, level)),
            summary,
            differences,
            values,
        }
    }

    /// Says what can be said, now that the p-values are corrected. `possible` is the smallest corrected p that so many
    /// pairs allow, `family` the number of comparisons.
    pub fn conclude(self, context: &ComparisonContext, possible: f64, family: usize) -> Pair {
        let (outcome, hesitations) = self.outcome(context, possible);
        let needed = self.needed(context, family);
        let mut pair = Pair {
            candidate: self.candidate.clone(),
            reference: self.reference.clone(),
            outcome,
            reason: String::new(),
            hesitations,
            smallest_p: finite(smallest_p(self.values.len())),
            differences: self.differences,
            unpaired: self.unpaired,
            effect: self.effect,
            tests: self.tests,
            equivalence: self.equivalence,
            examples: self.examples,
            needed,
        };
        pair.reason = sentence(context, &pair);
        pair
    }

    fn outcome(&self, context: &ComparisonContext, possible: f64) -> (Option<Verdict>, Vec<Hesitation>) {
        let level = context.level.get();
        let mut hesitations = Vec::new();
        let mut note = |applies: bool, hesitation: Hesitation| {
            if applies {
                hesitations.push(hesitation);
            }
        };
        note(self.missing, Hesitation::ScoreMissing);
        note(self.values.is_empty() && !self.missing, Hesitation::NoPairs);
        note(context.scope == Scope::OtherExamples && self.examples.is_none(), Hesitation::ExamplesMissing);
        let blocked = !hesitations.is_empty();
        let equivalent = self.equivalence.as_ref().is_some_and(|tests| tests.adjusted_p.get() <= level);
        let differs = self.tests.as_ref().is_some_and(|tests| tests.adjusted_p.get() <= level);
        if !blocked && equivalent {
            return (Some(Verdict::Equivalent), hesitations);
        }
        let mean = self.summary.map_or(0.0, |summary| summary.mean);
        let noise = context.execution.as_ref().map_or(0.0, |noise| noise.kappa.get() * noise.sigma.get());
        if !blocked && differs && mean.abs() > noise {
            let better = (mean > 0.0) == (context.direction == Direction::Maximize);
            return (Some(if better { Verdict::Better } else { Verdict::Worse }), hesitations);
        }
        let few = possible > level;
        let mut note = |applies: bool, hesitation: Hesitation| {
            if applies {
                hesitations.push(hesitation);
            }
        };
        note(!blocked && few, Hesitation::TooFewPairs);
        note(!blocked && !few && !differs, Hesitation::WithinChance);
        note(!blocked && differs && mean.abs() <= noise, Hesitation::WithinExecutionNoise);
        (None, hesitations)
    }

    fn needed(&self, context: &ComparisonContext, family: usize) -> Needed {
        let (level, power) = (context.level.get() / float(family), context.power.get());
        let deviation = self.summary.map_or(0.0, |summary| summary.deviation);
        // Without any spread, in units of which could a difference be stated?
        let in_deviations = |value: f64| if deviation > 0.0 { value / deviation } else { f64::INFINITY };
        let for_difference = self
            .summary
            .filter(|summary| summary.mean != 0.0)
            .and_then(|summary| power::pairs_for_difference(in_deviations(summary.mean), level, power));
        let for_equivalence = self.summary.zip(context.margin).and_then(|(summary, margin)| {
            let (mean, margin) = (summary.mean, margin.get());
            if deviation == 0.0 {
                return (mean.abs() < margin).then(|| fewest_pairs((2.0 * level).min(1.0)));
            }
            power::pairs_for_equivalence(in_deviations(mean), in_deviations(margin), level, power)
        });
        let count = |pairs: usize| pairs as u64;
        Needed {
            for_difference: for_difference.map(count),
            for_equivalence: for_equivalence.map(count),
            at_least: count(fewest_pairs(level)),
        }
    }
}

fn difference(unit: Unit<'_>, ours: &[&Replicate], theirs: &[&Replicate]) -> Option<Difference> {
    let (candidate, reference) = (score(ours)?, score(theirs)?);
    Some(Difference {
        unit: unit.name(),
        candidate: finite(candidate),
        reference: finite(reference),
        difference: finite(candidate - reference),
    })
}

/// Of each example, the difference averaged over all units. `None` unless every replicate has the same examples, and
/// they average to its score.
fn example_differences(common: &[Unit<'_>], ours: &Units<'_>, theirs: &Units<'_>) -> Option<Vec<f64>> {
    let mut names: Option<Vec<&String>> = None;
    let mut per_unit: Vec<Vec<f64>> = Vec::new();
    for unit in common {
        let mut sides = Vec::new();
        for replicates in [&ours[unit], &theirs[unit]] {
            let mut lists = Vec::new();
            for replicate in replicates {
                let examples = replicate.examples.as_ref()?;
                let found: Vec<&String> = examples.keys().collect();
                if *names.get_or_insert_with(|| found.clone()) != found {
                    return None;
                }
                let list: Vec<f64> = examples.values().map(|value| value.get()).collect();
                let (score, average) = (replicate.value?.get(), mean(&list));
                if (score - average).abs() > SAME * score.abs().max(1.0) {
                    return None;
                }
                lists.push(list);
            }
            sides.push(average(&lists));
        }
        per_unit.push(sides[0].iter().zip(&sides[1]).map(|(one, other)| one - other).collect());
    }
    (!per_unit.is_empty()).then(|| average(&per_unit))
}

/// The mean of several lists, place by place.
fn average(lists: &[Vec<f64>]) -> Vec<f64> {
    let length = lists.first().map_or(0, Vec::len);
    (0..length).map(|place| mean(&lists.iter().map(|list| list[place]).collect::<Vec<f64>>())).collect()
}

fn effect(summary: &paired::Summary, values: &[f64], level: f64, resampling: &Resampling) -> Effect {
    let hedges = summary.hedges(level);
    Effect {
        pairs: summary.count as u64,
        mean: finite(summary.mean),
        standard_deviation: finite(summary.deviation),
        standard_error: finite(summary.error()),
        interval: interval(summary.interval(level)),
        bootstrap_interval: interval(resample::bootstrap(values, resampling.seed, count(resampling), level)),
        hedges_g: hedges.and_then(|(g, _)| Finite::new(g)),
        hedges_g_interval: hedges.and_then(|(_, ends)| ends).map(interval),
    }
}

fn count(resampling: &Resampling) -> usize {
    usize::try_from(resampling.count).unwrap_or(usize::MAX)
}

fn sign_flips(values: &[f64], resampling: &Resampling) -> (Shares, bool) {
    signs::sign_flips(values).map_or_else(
        || (resample::sign_flips(values, resampling.seed, count(resampling)), false),
        |shares| (shares, true),
    )
}

fn tests(summary: &paired::Summary, values: &[f64], over_both: Option<Crossed>, resampling: &Resampling) -> Tests {
    let (shares, exact) = sign_flips(values, resampling);
    let higher = values.iter().filter(|value| **value > 0.0).count();
    let lower = values.iter().filter(|value| **value < 0.0).count();
    let p = finite(over_both.map_or(shares.as_far, |both| shares.as_far.max(both.p)));
    Tests {
        sign_flip: SignFlip { p: finite(shares.as_far), exact },
        sign: SignTest {
            higher: higher as u64,
            lower: lower as u64,
            ties: (values.len() - higher - lower) as u64,
            p: finite(sign_test(higher, lower)),
        },
        paired_t: t_test(summary),
        p,
        adjusted_p: p,
    }
}

fn t_test(summary: &paired::Summary) -> TTest {
    TTest { t: Finite::new(summary.t()), degrees_of_freedom: finite(summary.freedom()), p: finite(summary.p()) }
}

fn equivalence(
    summary: &paired::Summary,
    values: &[f64],
    margin: f64,
    over_both: Option<Crossed>,
    resampling: &Resampling,
) -> Equivalence {
    let above: Vec<f64> = values.iter().map(|value| value + margin).collect();
    let below: Vec<f64> = values.iter().map(|value| margin - value).collect();
    let flips = |values: &[f64]| sign_flips(values, resampling).0.at_least;
    let (t_p, sign_flip_p) = (summary.equivalence(margin), flips(&above).max(flips(&below)));
    let both = over_both.map_or(0.0, |both| both.equivalence(summary.mean, margin));
    let p = finite(t_p.max(sign_flip_p).max(both));
    Equivalence { t_p: finite(t_p), sign_flip_p: finite(sign_flip_p), p, adjusted_p: p }
}

fn example_effect(
    seeds: &paired::Summary,
    examples: &paired::Summary,
    both: Option<Crossed>,
    level: f64,
) -> ExampleEffect {
    ExampleEffect {
        examples: examples.count as u64,
        standard_error: finite(examples.error()),
        over_examples: t_test(examples),
        over_both: both.map(|both| CrossedTest {
            t: finite(both.t),
            degrees_of_freedom: finite(both.freedom),
            p: finite(both.p),
        }),
        interval: both.map(|both| interval(both.interval(seeds.mean, level))),
    }
}
