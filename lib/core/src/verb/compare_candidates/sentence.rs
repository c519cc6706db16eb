//! What was found, in sentences for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::manifest::comparison::{ComparisonContext, Hesitation, Pair, Scope, Verdict};
use crate::manifest::decision::Interval;

/// What was found, in a sentence.
pub fn sentence(context: &ComparisonContext, pair: &Pair) -> String {
    let Pair { candidate, reference, .. } = pair;
    match pair.outcome {
        Some(Verdict::Better) => format!("{candidate} is better than {reference}: {}", figures(context, pair)),
        Some(Verdict::Worse) => format!("{candidate} is worse than {reference}: {}", figures(context, pair)),
        Some(Verdict::Equivalent) => {
            let margin = context.margin.map_or_else(String::new, |margin| short(margin.get()));
            let p = pair.equivalence.as_ref().map_or(1.0, |tests| tests.adjusted_p.get());
            let figures = figures(context, pair);
            format!("{candidate} and {reference} differ by less than {margin} (p {}): {figures}", short(p))
        }
        None => {
            let reasons: Vec<String> =
                pair.hesitations.iter().map(|hesitation| hesitates(context, pair, *hesitation)).collect();
            format!("nothing can be said of {candidate} against {reference}: {}", reasons.join(", and "))
        }
    }
}

fn figures(context: &ComparisonContext, pair: &Pair) -> String {
    let (Some(effect), Some(tests)) = (&pair.effect, &pair.tests) else { return String::new() };
    let ends = pair.examples.as_ref().filter(|_| context.scope == Scope::OtherExamples).and_then(|e| e.interval);
    let Interval { low, high } = ends.unwrap_or(effect.interval);
    let metric = &context.metric;
    let (mean, low, high) = (short(effect.mean.get()), short(low.get()), short(high.get()));
    let share = short(100.0 * (1.0 - context.level.get()));
    let (pairs, p) = (effect.pairs, short(tests.adjusted_p.get()));
    format!("{metric} differs by {mean} over {pairs} pairs ({share} % interval {low} to {high}, corrected p {p})")
}

fn hesitates(context: &ComparisonContext, pair: &Pair, hesitation: Hesitation) -> String {
    let pairs = pair.differences.len();
    let at_least = pair.needed.at_least;
    match hesitation {
        Hesitation::NoPairs => "they have no seed and no trajectory in common".into(),
        Hesitation::ScoreMissing => "a replicate has no score, and leaving it out would favour what broke".into(),
        Hesitation::TooFewPairs => {
            let (level, p) = (short(context.level.get()), short(pair.smallest_p.get()));
            let so_many = if pairs == 1 { "1 pair".to_string() } else { format!("{pairs} pairs") };
            format!(
                "{so_many} cannot show a difference at level {level}, since no p of theirs is below {p}; it takes at \
                     least {at_least}"
            )
        }
        Hesitation::WithinChance => {
            format!("{}, which may be chance{}", figures(context, pair), outlook(context, pair))
        }
        Hesitation::WithinExecutionNoise => {
            let noise = context.execution.as_ref().map_or(0.0, |noise| noise.kappa.get() * noise.sigma.get());
            let figures = figures(context, pair);
            format!("{figures}, which executing the runs again may change by {}; repeat them exactly", short(noise))
        }
        Hesitation::ExamplesMissing => {
            "an answer for other examples needs the score of each example, averaging to the score, in every pair".into()
        }
    }
}

fn outlook(context: &ComparisonContext, pair: &Pair) -> String {
    let power = short(context.power.get());
    let difference = match pair.needed.for_difference {
        Some(needed) => format!("; if it is real, {needed} pairs would show it with probability {power}"),
        None => String::new(),
    };
    let equivalence = match pair.needed.for_equivalence {
        Some(needed) => format!("; {needed} pairs would show equivalence"),
        None => String::new(),
    };
    difference + &equivalence
}

/// Four significant digits.
fn short(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".into();
    }
    if !(1e-4..1e6).contains(&size) {
        return format!("{value:.3e}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 7")]
    let decimals = (3.0 - libm::floor(libm::log10(size))).max(0.0) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}
