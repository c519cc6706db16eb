//! Comparing candidates: what may be said and what not, with a control beside each.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::left_out::LeftOut;
use xt_core::manifest::comparison::{
    Absence, Comparison, ComparisonContext, ExecutionNoise, Hesitation, Pair, Replicate, Resampling, Scope, Verdict,
};
use xt_core::manifest::decision::{Direction, Objective, Primary};
use xt_core::manifest::promotion::{BundleRule, CandidateRule, Eligible, Promotion, PromotionPolicy, Scored, Withheld};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::random::Stream;
use xt_core::verb::compare_candidates::{compare, context, input_fingerprint};
use xt_core::verb::promote::promote;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap()
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

fn of(replicates: Vec<Replicate>) -> ComparisonContext {
    ComparisonContext {
        experiment_id: None,
        metric: "accuracy".into(),
        slice: None,
        direction: Direction::Maximize,
        reference: Some(name("base")),
        level: number(0.05),
        power: number(0.8),
        margin: None,
        scope: Scope::TheseExamples,
        execution: None,
        resampling: Resampling { seed: 1, count: 200 },
        replicates,
    }
}

/// `base` scores 0 with each seed, up to what both share, and `new` the differences.
fn differing(differences: &[f64]) -> ComparisonContext {
    let shared = |seed: usize| 0.25 * f64::from(u32::try_from(seed % 3).unwrap());
    of(differences
        .iter()
        .enumerate()
        .flat_map(|(seed, difference)| {
            let number = u64::try_from(seed).unwrap();
            [replicate("base", number, shared(seed)), replicate("new", number, shared(seed) + difference)]
        })
        .collect())
}

fn checked(context_: &ComparisonContext) -> Comparison {
    assert_eq!(context(&context_.encode()).unwrap_or_else(|faults| panic!("{faults}")), *context_);
    compare(context_)
}

fn only(context: &ComparisonContext) -> Pair {
    let mut pairs = checked(context).pairs;
    assert_eq!(pairs.len(), 1);
    pairs.remove(0)
}

fn codes(context_: &ComparisonContext) -> Vec<(String, &'static str)> {
    let faults = context(&context_.encode()).err().map(|faults| faults.0).unwrap_or_default();
    faults.into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

/// Normal deviates by Box and Muller from counter-based words; `draw` tells one data set from another.
fn normal(draw: u64, count: usize) -> Vec<f64> {
    let stream = Stream::new(5, "test/normal", draw);
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    let uniform = |index: usize| ((stream.word(index as u64) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    (0..count)
        .map(|i| (-2.0 * uniform(2 * i).ln()).sqrt() * (std::f64::consts::TAU * uniform(2 * i + 1)).cos())
        .collect()
}

// ---- few pairs ----

#[test]
fn two_seeds_cannot_show_anything_however_far_apart_they_are() {
    for differences in [[1.0, 1.0], [1e6, 1.1e6], [-5.0, -5.1]] {
        let pair = only(&differing(&differences));
        assert_eq!((pair.outcome, &pair.hesitations[..]), (None, &[Hesitation::TooFewPairs][..]));
        assert!((pair.smallest_p.get() - 0.5).abs() < 1e-15);
        assert_eq!(pair.needed.at_least, 6);
        assert!(pair.reason.contains("2 pairs cannot show a difference at level 0.05"), "{}", pair.reason);
    }
    let five = only(&differing(&[1.0, 1.1, 0.9, 1.2, 0.8]));
    assert_eq!((five.outcome, &five.hesitations[..]), (None, &[Hesitation::TooFewPairs][..]));
    // The control: the same size of difference is shown by six, and the limit is that of the level.
    let six = [1.0, 1.1, 0.9, 1.2, 0.8, 1.05];
    assert_eq!(only(&differing(&six)).outcome, Some(Verdict::Better));
    let strict = ComparisonContext { level: number(0.01), ..differing(&six) };
    assert_eq!(only(&strict).hesitations, [Hesitation::TooFewPairs]);
    let lenient = ComparisonContext { level: number(0.1), ..differing(&six[..5]) };
    assert_eq!(only(&lenient).outcome, Some(Verdict::Better));
}

#[test]
fn a_single_pair_and_none_are_named_as_what_they_are() {
    let one = only(&differing(&[3.0]));
    assert_eq!((one.outcome, &one.hesitations[..]), (None, &[Hesitation::TooFewPairs][..]));
    assert_eq!((one.effect, one.tests), (None, None));
    assert!(one.reason.contains("1 pair cannot"), "{}", one.reason);
    let apart = of(vec![replicate("base", 1, 0.1), replicate("new", 2, 0.9)]);
    let none = only(&apart);
    assert_eq!(none.hesitations, [Hesitation::NoPairs, Hesitation::TooFewPairs][..1]);
    assert_eq!(none.unpaired, ["seed 2", "seed 1"]);
}

// ---- what is shown ----

#[test]
fn swapping_two_candidates_mirrors_the_answer() {
    for draw in 0..40 {
        let shift = [0.0, 0.7, -1.5][usize::try_from(draw % 3).unwrap()];
        let values: Vec<f64> = normal(draw, 7).iter().map(|value| value + shift).collect();
        let margin = Some(number(0.8));
        let one = ComparisonContext { margin, ..differing(&values) };
        let other = ComparisonContext { reference: Some(name("new")), ..one.clone() };
        let (one, other) = (only(&one), only(&other));
        let mirrored = match one.outcome {
            Some(Verdict::Better) => Some(Verdict::Worse),
            Some(Verdict::Worse) => Some(Verdict::Better),
            same => same,
        };
        assert_eq!(other.outcome, mirrored);
        assert_eq!(
            (&one.tests.as_ref().unwrap().p, &one.equivalence),
            (&other.tests.as_ref().unwrap().p, &other.equivalence)
        );
        let (one, other) = (one.effect.unwrap(), other.effect.unwrap());
        assert_eq!(one.mean.get().to_bits(), (-other.mean.get()).to_bits());
        assert_eq!(one.interval.low.get().to_bits(), (-other.interval.high.get()).to_bits());
        assert!((one.bootstrap_interval.low.get() + other.bootstrap_interval.high.get()).abs() < 1e-12);
        // The control: it is not all the same to begin with.
        assert_ne!(one.mean, other.mean);
    }
}

#[test]
fn the_direction_alone_turns_better_into_worse() {
    let up = differing(&[1.0, 1.1, 0.9, 1.2, 0.8, 1.05]);
    let down = ComparisonContext { direction: Direction::Minimize, ..up.clone() };
    assert_eq!((only(&up).outcome, only(&down).outcome), (Some(Verdict::Better), Some(Verdict::Worse)));
    assert_eq!(only(&up).effect, only(&down).effect);
}

/// Under the null every pattern of signs is as likely, so among all patterns the p-values are uniform on their grid: as
/// many as p says are at or below it.
#[test]
fn over_all_sign_patterns_p_is_exactly_uniform() {
    let sizes = [0.11, 0.23, 0.37, 0.59, 0.83, 1.31, 2.03];
    let all = 1u32 << sizes.len();
    let mut ps: Vec<f64> = (0..all)
        .map(|pattern| {
            let sign = |place: usize| if pattern >> place & 1 == 1 { -1.0 } else { 1.0 };
            let values: Vec<f64> = sizes.iter().enumerate().map(|(place, size)| sign(place) * size).collect();
            only(&differing(&values)).tests.unwrap().sign_flip.p.get()
        })
        .collect();
    ps.sort_by(f64::total_cmp);
    let distinct: BTreeSet<u64> = ps.iter().map(|p| p.to_bits()).collect();
    assert!(distinct.len() > 30, "{}", distinct.len());
    for bits in distinct {
        let p = f64::from_bits(bits);
        let at_most = u32::try_from(ps.iter().filter(|other| **other <= p).count()).unwrap();
        assert!((f64::from(at_most) / f64::from(all) - p).abs() < 1e-12, "{p}: {at_most}");
    }
}

#[test]
fn chance_is_taken_for_a_difference_no_more_often_than_the_level_and_a_real_one_is_found() {
    let found = |shift: f64, draws: std::ops::Range<u64>| {
        let outcome = |draw: u64| {
            let values: Vec<f64> = normal(draw, 10).iter().map(|value| value + shift).collect();
            only(&differing(&values)).outcome
        };
        let mut counts = BTreeMap::new();
        draws.map(outcome).for_each(|outcome| *counts.entry(outcome).or_insert(0u32) += 1);
        counts
    };
    let null = found(0.0, 1000..2000);
    let wrong = null.iter().filter(|(outcome, _)| outcome.is_some()).map(|(_, count)| count).sum::<u32>();
    println!("of 1000 comparisons of the same, {wrong} found a difference at level 0.05: {null:?}");
    // 0.05 of 1000, give or take three standard deviations of a binomial count.
    assert!((20..=71).contains(&wrong), "{null:?}");
    let real = found(2.0, 3000..3200);
    println!("of 200 comparisons with a difference of two standard deviations: {real:?}");
    assert!(real[&Some(Verdict::Better)] >= 195 && !real.contains_key(&Some(Verdict::Worse)), "{real:?}");
}

// ---- equivalence ----

#[test]
fn equivalence_needs_a_margin_and_enough_pairs() {
    let near = [0.01, -0.02, 0.015, 0.0, -0.01, 0.02];
    let silent = only(&differing(&near));
    assert_eq!((silent.outcome, silent.equivalence), (None, None));
    let with =
        |margin: f64, values: &[f64]| only(&ComparisonContext { margin: Some(number(margin)), ..differing(values) });
    assert_eq!(with(0.1, &near).outcome, Some(Verdict::Equivalent));
    assert_eq!(with(0.01, &near).outcome, None);
    // Two seeds show no equivalence either, be they as alike as they may.
    assert_eq!(with(0.1, &[0.0, 0.0]).outcome, None);
    assert_eq!(with(0.1, &[0.0, 0.0, 0.0, 0.0]).outcome, None);
    assert_eq!(with(0.1, &[0.0, 0.0, 0.0, 0.0, 0.0]).outcome, Some(Verdict::Equivalent));
    // A difference that is surely there and surely too small to matter is no improvement.
    let small = with(0.1, &[0.01, 0.012, 0.011, 0.009, 0.01, 0.011]);
    assert_eq!(small.outcome, Some(Verdict::Equivalent));
    assert!(small.tests.unwrap().adjusted_p.get() < 0.05);
    assert_eq!(with(0.1, &[0.3, 0.31, 0.28, 0.33, 0.3, 0.29]).outcome, Some(Verdict::Better));
}

// ---- several candidates ----

#[test]
fn several_comparisons_are_corrected_so_that_seven_seeds_show_what_six_do_not() {
    let many = |seeds: u64| {
        let rows = (0..seeds).flat_map(|seed| {
            let jitter = 0.01 * f64::from(u32::try_from(seed).unwrap());
            let value = |shift: f64| shift + jitter * shift;
            [replicate("base", seed, 0.0), replicate("one", seed, value(1.0)), replicate("two", seed, value(2.0))]
        });
        of(rows.collect())
    };
    let outcomes = |context: &ComparisonContext| -> Vec<Option<Verdict>> {
        checked(context).pairs.iter().map(|pair| pair.outcome).collect()
    };
    assert_eq!(outcomes(&many(6)), [None, None]);
    assert_eq!(checked(&many(6)).pairs[0].hesitations, [Hesitation::TooFewPairs]);
    assert_eq!(checked(&many(6)).pairs[0].needed.at_least, 7);
    assert_eq!(outcomes(&many(7)), [Some(Verdict::Better); 2]);
    // Without a reference all three pairs are compared, which takes a stricter correction.
    let all = |seeds: u64| ComparisonContext { reference: None, ..many(seeds) };
    let pairs: Vec<(String, String)> =
        checked(&all(7)).pairs.iter().map(|pair| (pair.candidate.to_string(), pair.reference.to_string())).collect();
    let named = |one: &str, other: &str| (one.to_string(), other.to_string());
    assert_eq!(pairs, [named("one", "base"), named("two", "base"), named("two", "one")]);
    assert_eq!((outcomes(&all(6)), outcomes(&all(7))), (vec![None; 3], vec![Some(Verdict::Better); 3]));
}

// ---- units ----

#[test]
fn branches_of_one_trajectory_are_one_unit_however_many_there_are() {
    let branches = |trajectories: u64, each: u64| {
        let rows = (0..trajectories).flat_map(move |run| {
            (0..each).flat_map(move |branch| {
                ["base", "new"].map(|candidate| Replicate {
                    trajectory: Some(name(&format!("run-{run}"))),
                    ..replicate(
                        candidate,
                        branch,
                        if candidate == "new" { 1.0 + 0.01 * f64::from(u32::try_from(branch).unwrap()) } else { 0.0 },
                    )
                })
            })
        });
        of(rows.collect())
    };
    let two = only(&branches(2, 50));
    assert_eq!((two.outcome, two.differences.len(), &two.hesitations[..]), (None, 2, &[Hesitation::TooFewPairs][..]));
    let summary = &checked(&branches(2, 50)).candidates[0];
    assert_eq!((summary.units, summary.replicates), (2, 100));
    // The control: as many runs of their own show it.
    assert_eq!(only(&branches(6, 2)).outcome, Some(Verdict::Better));
}

#[test]
fn a_run_that_broke_is_not_left_out() {
    let good = [1.0, 1.1, 0.9, 1.2, 0.8, 1.05, 0.95];
    let mut broken = differing(&good);
    broken.replicates[3].value = None;
    broken.replicates[3].absence = Some(Absence::ModelError);
    let pair = only(&broken);
    assert_eq!((pair.outcome, &pair.hesitations[..]), (None, &[Hesitation::ScoreMissing][..]));
    assert_eq!(only(&differing(&good)).outcome, Some(Verdict::Better));
    assert_eq!(checked(&broken).candidates[1].absent, 1);
}

// ---- execution and examples ----

#[test]
fn a_difference_within_the_noise_of_execution_is_sent_back_to_exact_runs() {
    let values = [1.0, 1.1, 0.9, 1.2, 0.8, 1.05];
    let noisy = |sigma: f64| {
        let execution = Some(ExecutionNoise { sigma: number(sigma), kappa: number(2.0) });
        only(&ComparisonContext { execution, ..differing(&values) })
    };
    assert_eq!((noisy(0.6).outcome, &noisy(0.6).hesitations[..]), (None, &[Hesitation::WithinExecutionNoise][..]));
    assert_eq!(noisy(0.4).outcome, Some(Verdict::Better));
}

/// Eight seeds that agree on every example, and few examples that do not agree with one another.
fn with_examples(spread: f64) -> ComparisonContext {
    let mut context = differing(&[1.0; 8]);
    for replicate in &mut context.replicates {
        let value = replicate.value.unwrap().get();
        let sides = if replicate.candidate.as_str() == "new" { spread } else { 0.0 };
        let list = [sides, -sides, 2.0 * sides, -2.0 * sides].map(|offset| number(value + offset));
        replicate.examples = Some(["a", "b", "c", "d"].iter().map(ToString::to_string).zip(list).collect());
    }
    context
}

#[test]
fn an_answer_for_other_examples_counts_their_chance_too() {
    let here = with_examples(3.0);
    let other = ComparisonContext { scope: Scope::OtherExamples, ..here.clone() };
    assert_eq!(only(&here).outcome, Some(Verdict::Better));
    assert_eq!((only(&other).outcome, &only(&other).hesitations[..]), (None, &[Hesitation::WithinChance][..]));
    let agreeing = ComparisonContext { scope: Scope::OtherExamples, ..with_examples(0.1) };
    assert_eq!(only(&agreeing).outcome, Some(Verdict::Better));
    let mut partial = other.clone();
    partial.replicates[4].examples = None;
    assert_eq!(only(&partial).hesitations, [Hesitation::ExamplesMissing]);
    // Scores that are no averages of their examples say nothing about examples.
    let mut unlike = agreeing;
    unlike.replicates[0].value = Some(number(17.0));
    assert_eq!(only(&unlike).hesitations, [Hesitation::ExamplesMissing]);
}

// ---- what is refused ----

#[test]
fn what_cannot_be_compared_is_refused_with_every_reason() {
    let good = differing(&[1.0, 2.0]);
    assert_eq!(codes(&good), []);
    let alone = of(vec![replicate("base", 1, 0.0)]);
    assert_eq!(codes(&alone), [("/replicates".into(), "comparison.alone")]);
    let stranger = ComparisonContext { reference: Some(name("old")), ..good.clone() };
    assert_eq!(codes(&stranger), [("/reference".into(), "comparison.reference")]);
    let mut wrong = good.clone();
    wrong.replicates[1] = replicate("base", 0, 1e101);
    wrong.replicates[2].absence = Some(Absence::Blocked);
    wrong.replicates[3].value = None;
    wrong.replicates[3].examples = Some(BTreeMap::new());
    assert_eq!(
        codes(&wrong),
        [
            ("/replicates/1".to_string(), "comparison.range"),
            ("/replicates/1/seed".into(), "comparison.duplicate"),
            ("/replicates/2/absence".into(), "comparison.absence"),
            ("/replicates/3/absence".into(), "comparison.absence"),
            ("/replicates/3/examples".into(), "comparison.empty"),
        ]
    );
    let mut twice = good;
    twice.replicates[0].evaluation = Some(Digest::of(b"evaluation"));
    twice.replicates[3].evaluation = Some(Digest::of(b"evaluation"));
    assert_eq!(codes(&twice), [("/replicates/3/evaluation".into(), "comparison.duplicate")]);
}

// ---- identity ----

#[test]
fn the_order_of_replicates_changes_no_byte_and_any_field_changes_the_fingerprint() {
    let first = with_examples(0.3);
    let bytes = compare(&first).encode().canonical();
    let mut turned = first.clone();
    turned.replicates.reverse();
    turned.replicates.rotate_left(3);
    assert_eq!(compare(&turned).encode().canonical(), bytes);
    let fingerprint = input_fingerprint(&first);
    let changes: [fn(&mut ComparisonContext); 16] = [
        |c| c.experiment_id = Some(name("e")),
        |c| c.metric = "loss".into(),
        |c| c.slice = Some("rare".into()),
        |c| c.direction = Direction::Minimize,
        |c| c.reference = None,
        |c| c.level = number(0.04),
        |c| c.power = number(0.9),
        |c| c.margin = Some(number(0.1)),
        |c| c.scope = Scope::OtherExamples,
        |c| c.execution = Some(ExecutionNoise { sigma: number(0.1), kappa: number(1.0) }),
        |c| c.resampling.seed = 2,
        |c| c.resampling.count = 201,
        |c| c.replicates[0].trajectory = Some(name("t")),
        |c| c.replicates[0].value = Some(number(0.4)),
        |c| c.replicates[0].subject = Some(Digest::of(b"s")),
        |c| c.replicates[0].evaluation = Some(Digest::of(b"e")),
    ];
    let mut seen = BTreeSet::from([fingerprint]);
    for (number, change) in changes.iter().enumerate() {
        let mut other = first.clone();
        change(&mut other);
        assert!(seen.insert(input_fingerprint(&other)), "change {number}");
    }
    assert_eq!(Comparison::decode(&compare(&first).encode()).map(|read| read.encode().canonical()), Ok(bytes));
    assert!(matches!(compare(&first).encode(), Value::Object(_)));
}

// ---- choosing ----

#[test]
fn the_candidate_that_is_better_than_each_other_is_chosen_and_otherwise_none() {
    let rows = |one: f64, two: f64| {
        let seeds = 0..8;
        of(seeds
            .flat_map(|seed| {
                let jitter = 0.01 * f64::from(u32::try_from(seed).unwrap());
                [
                    replicate("base", seed, 0.5),
                    replicate("one", seed, one + jitter),
                    replicate("two", seed, two - jitter),
                ]
            })
            .collect())
    };
    let objective = Objective {
        primary: Primary { name: "accuracy".into(), direction: Direction::Maximize },
        target: None,
        constraints: Vec::new(),
        risk: LeftOut(None),
    };
    let policy = PromotionPolicy {
        candidate: CandidateRule::Best,
        bundle: BundleRule::Only,
        level: number(0.05),
        power: number(0.8),
        envelope: String::new(),
        rollout: String::new(),
        stop: String::new(),
        rollback: String::new(),
        retirement: String::new(),
    };
    let choose = |context: ComparisonContext| {
        let eligible = ["base", "one", "two"].map(|candidate| Eligible {
            node: name(&format!("node-{candidate}")),
            candidate: name(candidate),
            decision: Digest::of(b"decision"),
            bundles: vec![Scored {
                bundle: Digest::of(candidate.as_bytes()),
                seed: 1,
                value: number(0.5),
                evaluation: Digest::of(b"evaluation"),
            }],
        });
        let comparison = compare(&ComparisonContext { reference: None, ..context });
        promote(&name("e"), &policy, &objective, eligible.to_vec(), Some(&comparison))
    };
    let node = |promotion: &Promotion| promotion.chosen.as_ref().map(|chosen| chosen.node.to_string());
    assert_eq!(node(&choose(rows(0.6, 0.9))), Some("node-two".into()));
    assert_eq!(node(&choose(rows(0.9, 0.7))), Some("node-one".into()));
    assert_eq!(node(&choose(rows(0.3, 0.4))), Some("node-base".into()));
    // Better than one of two is not better than each.
    let open = choose(rows(0.66, 0.73));
    assert_eq!((node(&open), &open.withheld[..]), (None, &[Withheld::NoneBetter][..]));
}
