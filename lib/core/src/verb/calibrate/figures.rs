//! What a calibration measures: ranking, choice, decisions, tails of the error.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::evidence::{Arm, State};
use crate::digest::Digest;
use crate::manifest::calibration::{Gates, Limit, Measure, Measured, Scatter, Spread};
use crate::number::Finite;
use crate::random::Stream;
use crate::statistics::ranks::{nearest_rank, tau_b};
use crate::statistics::resample::below;
use crate::statistics::{float, root};

/// One state with some of its branches, which a resample may hold more than once.
#[derive(Clone, Debug)]
pub(super) struct Chosen<'a> {
    state: &'a State,
    arms: Vec<&'a Arm>,
}

/// One state with one horizon in one world: effects in the exact regime and in this world.
#[derive(Clone, Debug)]
pub(super) struct Case {
    horizon: u64,
    pairs: Vec<(f64, f64)>,
}

impl Case {
    /// The pairs with the no-op, whose effect is 0 in every regime, at their head.
    fn with_no_op(&self) -> Vec<(f64, f64)> {
        core::iter::once((0.0, 0.0)).chain(self.pairs.iter().copied()).collect()
    }

    fn differences(&self) -> impl Iterator<Item = f64> + '_ {
        self.pairs.iter().map(|(exact, other)| other - exact)
    }
}

/// All states with all of their branches.
pub(super) fn all(states: &[State]) -> Vec<Chosen<'_>> {
    states.iter().map(|state| Chosen { state, arms: state.arms.iter().collect() }).collect()
}

/// The cases that have something to compare.
pub(super) fn cases(chosen: &[Chosen<'_>]) -> Vec<Case> {
    let mut cases = Vec::new();
    for Chosen { state, arms } in chosen {
        for (place, horizon) in state.horizons.iter().enumerate() {
            for world in 0..state.worlds {
                let pairs: Vec<_> =
                    arms.iter().filter_map(|arm| Some((arm.exact[place]?, at(arm, world, place)?))).collect();
                if !pairs.is_empty() {
                    cases.push(Case { horizon: *horizon, pairs });
                }
            }
        }
    }
    cases
}

/// The effect of a branch in a world at the horizon with this place.
fn at(arm: &Arm, world: usize, place: usize) -> Option<f64> {
    arm.others.get(world)?.as_ref()?.effects.get(place).copied().flatten()
}

/// What execution adds to an effect, by horizon.
pub(super) fn spreads(cases: &[Case]) -> Vec<Spread> {
    let of = |(horizon, all): (u64, Vec<f64>)| {
        let sigma = root(all.iter().map(|one| one * one).sum::<f64>() / float(all.len()));
        Some(Spread { horizon, pairs: all.len() as u64, sigma: Finite::new(sigma)? })
    };
    by_horizon(cases).into_iter().filter_map(of).collect()
}

fn by_horizon(cases: &[Case]) -> BTreeMap<u64, Vec<f64>> {
    let mut all: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for case in cases {
        all.entry(case.horizon).or_default().extend(case.differences());
    }
    all
}

/// A measure with its interval, held against its limit.
pub(super) fn measured(limit: &Limit, states: &[State], gates: &Gates) -> Measured {
    let whole = all(states);
    let value = figure(limit.measure, &whole, &cases(&whole), gates);
    let interval = interval(limit.measure, states, gates);
    Measured {
        measure: limit.measure,
        value: value.and_then(Finite::new),
        low: interval.and_then(|(low, _)| Finite::new(low)),
        high: interval.and_then(|(_, high)| Finite::new(high)),
        limit: limit.limit,
        passed: value.is_some_and(|value| limit.measure.passes(value, limit.limit.get())),
    }
}

/// The middle 95 % of the measure over resamples (Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of
/// Statistics 1979; percentile interval), level by level from the top: trajectories, in each of them states, in each of them
/// branches (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). Branches of one state have
/// their batches and their start in common, so they never count as independent states.
fn interval(which: Measure, states: &[State], gates: &Gates) -> Option<(f64, f64)> {
    if states.len() < 2 && states.iter().all(|state| state.arms.len() < 2) {
        return None;
    }
    let mut trajectories: BTreeMap<Digest, Vec<&State>> = BTreeMap::new();
    for state in states {
        trajectories.entry(state.root).or_default().push(state);
    }
    let trajectories: Vec<Vec<&State>> = trajectories.into_values().collect();
    let resample = |number: u64| {
        let drawn = drawn(&trajectories, Stream::new(gates.resampling.seed, "calibration", number));
        figure(which, &drawn, &cases(&drawn), gates)
    };
    let mut values: Vec<f64> = (0..gates.resampling.count).filter_map(resample).collect();
    values.sort_by(f64::total_cmp);
    Some((nearest_rank(&values, 0.025)?, nearest_rank(&values, 0.975)?))
}

/// One resample. The words of the stream are taken one after the other.
fn drawn<'a>(trajectories: &[Vec<&'a State>], stream: Stream) -> Vec<Chosen<'a>> {
    let mut taken = 0;
    let mut places = |size: usize| -> Vec<usize> {
        let from = taken;
        taken += size as u64;
        (0..size as u64).map(|place| below(stream.word(from + place), size)).collect()
    };
    let mut chosen = Vec::new();
    for trajectory in places(trajectories.len()) {
        let states = &trajectories[trajectory];
        for state in places(states.len()) {
            let state = states[state];
            let arms = places(state.arms.len()).into_iter().map(|arm| &state.arms[arm]).collect();
            chosen.push(Chosen { state, arms });
        }
    }
    chosen
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / float(count))
}

fn share(flags: impl Iterator<Item = bool>) -> Option<f64> {
    mean(flags.map(|flag| f64::from(u8::from(flag))))
}

fn figure(which: Measure, chosen: &[Chosen<'_>], cases: &[Case], gates: &Gates) -> Option<f64> {
    match which {
        Measure::RankAgreement => mean(cases.iter().filter_map(|case| tau_b(&case.with_no_op()))),
        Measure::TopAgreement => share(cases.iter().map(|case| regret(case) <= 0.0)),
        Measure::Regret => mean(cases.iter().map(regret)),
        Measure::Disagreement => {
            let accepted = |effect: f64| effect < -gates.threshold.get();
            let pairs = cases.iter().flat_map(|case| &case.pairs);
            share(pairs.map(|(exact, other)| accepted(*exact) != accepted(*other)))
        }
        Measure::Coverage => coverage(cases, gates.kappa.get()),
        Measure::Error95 => nearest_rank(&errors(cases), 0.95),
        Measure::Error99 => nearest_rank(&errors(cases), 0.99),
        Measure::ErrorWorst => errors(cases).last().copied(),
        Measure::Failures => share(chosen.iter().flat_map(|one| {
            let arms = one.arms.iter().flat_map(|arm| arm.others.iter().flatten().map(|seen| seen.failed));
            one.state.no_op.iter().copied().chain(arms)
        })),
        Measure::RankStability => mean(chosen.iter().flat_map(stability)),
    }
}

/// Absolute differences of effects, sorted.
fn errors(cases: &[Case]) -> Vec<f64> {
    let mut all: Vec<f64> = cases.iter().flat_map(Case::differences).map(f64::abs).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The exact loss that is given away by the choice of the other regime; of equal ones the first is taken, and the no-op is
/// the first of all.
fn regret(case: &Case) -> f64 {
    let none = (0.0, 0.0);
    let chosen = case.pairs.iter().fold(&none, |best, pair| if pair.1 < best.1 { pair } else { best });
    let best = case.pairs.iter().map(|pair| pair.0).fold(0.0, f64::min);
    chosen.0 - best
}

/// The share of exact effects within `kappa` standard deviations, which come from all other pairs with the same horizon: a
/// pair does not widen its own interval. A horizon with one pair has none.
fn coverage(cases: &[Case], kappa: f64) -> Option<f64> {
    let all = by_horizon(cases);
    let covered = all.values().filter(|all| all.len() > 1).flat_map(|all| {
        all.iter().enumerate().map(move |(left_out, one)| {
            let others = all.iter().enumerate().filter(|(place, _)| *place != left_out);
            let squares: f64 = others.map(|(_, other)| other * other).sum();
            one.abs() <= kappa * root(squares / float(all.len() - 1))
        })
    });
    share(covered)
}

/// Agreement of the order of effects in each two worlds, at each horizon.
fn stability(chosen: &Chosen<'_>) -> Vec<f64> {
    let (state, mut all) = (chosen.state, Vec::new());
    for place in 0..state.horizons.len() {
        for one in 0..state.worlds {
            for other in one + 1..state.worlds {
                let both = chosen.arms.iter().filter_map(|arm| Some((at(arm, one, place)?, at(arm, other, place)?)));
                let pairs: Vec<_> = core::iter::once((0.0, 0.0)).chain(both).collect();
                all.extend(tau_b(&pairs));
            }
        }
    }
    all
}

/// What became of each branch at each horizon.
pub(super) fn scatters(states: &[State]) -> Vec<Scatter> {
    let mut all = Vec::new();
    for state in states {
        for (place, horizon) in state.horizons.iter().enumerate() {
            all.extend(state.arms.iter().map(|arm| scatter(state, *horizon, arm, place)));
        }
    }
    all
}

fn scatter(state: &State, horizon: u64, arm: &Arm, place: usize) -> Scatter {
    let found: Vec<f64> = (0..state.worlds).filter_map(|world| at(arm, world, place)).collect();
    let middle = mean(found.iter().copied());
    let deviation = middle.filter(|_| found.len() > 1).map(|middle| {
        let squares: f64 = found.iter().map(|value| (value - middle) * (value - middle)).sum();
        root(squares / float(found.len() - 1))
    });
    Scatter {
        snapshot: state.snapshot,
        horizon,
        arm: arm.name.clone(),
        exact: arm.exact[place].and_then(Finite::new),
        worlds: found.len() as u64,
        mean: middle.and_then(Finite::new),
        deviation: deviation.and_then(Finite::new),
        least: found.iter().copied().min_by(f64::total_cmp).and_then(Finite::new),
        largest: found.iter().copied().max_by(f64::total_cmp).and_then(Finite::new),
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "these values are exact")]
mod tests {
    use super::*;

    fn case(exact: &[f64], other: &[f64]) -> Case {
        Case { horizon: 1, pairs: exact.iter().copied().zip(other.iter().copied()).collect() }
    }

    #[test]
    fn what_is_given_away_is_counted_in_the_exact_regime() {
        assert_eq!(regret(&case(&[-1.0, -2.0], &[-3.0, -1.0])), 1.0);
        assert_eq!(regret(&case(&[-1.0, -2.0], &[-1.0, -9.0])), 0.0);
        // Where this regime finds nothing better than the no-op, the best branch is given away.
        assert_eq!(regret(&case(&[-1.0, 2.0], &[0.0, 1.0])), 1.0);
    }

    #[test]
    fn no_pair_widens_its_own_interval_and_horizons_are_kept_apart() {
        let off = case(&[0.0; 4], &[0.1, 0.1, 0.1, 1.0]);
        assert_eq!(coverage(core::slice::from_ref(&off), 2.0), Some(0.75));
        assert_eq!(coverage(&[case(&[0.0], &[0.1])], 2.0), None);
        let later = Case { horizon: 2, ..case(&[0.0; 2], &[5.0, 5.0]) };
        assert_eq!(coverage(&[off, later.clone()], 2.0), Some(5.0 / 6.0));
        let sigma =
            |cases: &[Case]| spreads(cases).iter().map(|one| (one.horizon, one.sigma.get())).collect::<Vec<_>>();
        assert_eq!(sigma(&[case(&[1.0, 1.0], &[4.0, 5.0]), later]), [(1, root(12.5)), (2, 5.0)]);
    }
}
