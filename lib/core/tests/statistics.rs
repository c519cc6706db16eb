//! The statistics agree with SciPy and statsmodels on stored cases (`statistics/make_references.py` makes them), and
//! have the properties that their definitions promise.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

use xt_core::canonical::{Value, parse};
use xt_core::statistics::correct::holm;
use xt_core::statistics::paired::{Summary, crossed};
use xt_core::statistics::{noncentral, power, resample, signs, student};

/// What a result may differ by, absolute or relative, whichever is larger.
const TOLERANCE: f64 = 1e-9;

fn cases(kind: &str) -> Vec<Value> {
    let all = parse(include_bytes!("statistics/cases.json")).unwrap();
    match all.get(kind) {
        Some(Value::List(items)) => items.clone(),
        Some(other) => vec![other.clone()],
        None => panic!("no cases of {kind}"),
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Float(number) => number.get(),
        Value::Integer(integer) => integer.text().parse().unwrap(),
        other => panic!("{}", other.canonical()),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    let Value::List(items) = value else { panic!("{}", value.canonical()) };
    items.iter().map(number).collect()
}

/// A case with its fields as numbers.
struct Case(Value);

impl Case {
    fn get(&self, field: &str) -> f64 {
        number(self.0.get(field).unwrap_or_else(|| panic!("no {field}")))
    }

    fn list(&self, field: &str) -> Vec<f64> {
        numbers(self.0.get(field).unwrap_or_else(|| panic!("no {field}")))
    }

    fn count(&self, field: &str) -> usize {
        let Some(Value::Integer(integer)) = self.0.get(field) else { panic!("no {field}") };
        integer.text().parse().unwrap()
    }

    fn has(&self, field: &str) -> bool {
        self.0.get(field) != Some(&Value::Null)
    }

    fn close(&self, what: &str, found: f64, expected: f64) -> f64 {
        let apart = (found - expected).abs() / expected.abs().max(1.0);
        assert!(apart <= TOLERANCE, "{what}: {found}, not {expected}, in {}", self.0.canonical());
        apart
    }
}

fn each(kind: &str, check: impl Fn(&Case) -> f64) {
    let cases: Vec<Case> = cases(kind).into_iter().map(Case).collect();
    let worst = cases.iter().map(check).fold(0.0, f64::max);
    println!("{kind}: {} cases, at most {worst:.1e} apart", cases.len());
}

#[test]
fn tails_and_quantiles_of_t_are_those_of_scipy() {
    each("t", |case| {
        let (t, freedom) = (case.get("t"), case.get("freedom"));
        let both = student::two_sided(t, freedom);
        // The far tail is right to its own last digits, not only to those of 1.
        let expected = case.get("two_sided");
        assert!((both - expected).abs() <= 1e-10 * expected, "{both} {expected} {t} {freedom}");
        case.close("upper", student::upper(t, freedom), case.get("upper"))
    });
    each("quantile", |case| {
        let (tail, freedom) = (case.get("tail"), case.get("freedom"));
        case.close("t", student::quantile_two_sided(tail, freedom), case.get("t"))
    });
}

#[test]
fn the_noncentral_t_is_that_of_scipy() {
    each("noncentral", |case| {
        let (t, freedom, delta) = (case.get("t"), case.get("freedom"), case.get("delta"));
        let lower = noncentral::lower(t, freedom, delta);
        assert!((lower + noncentral::upper(t, freedom, delta) - 1.0).abs() < 1e-13);
        case.close("lower", lower, case.get("lower"))
    });
}

#[test]
fn effects_intervals_and_tests_of_pairs_are_those_of_scipy_and_statsmodels() {
    each("paired", |case| {
        let values = case.list("values");
        let (level, margin) = (case.get("level"), case.get("margin"));
        let summary = Summary::of(&values).unwrap();
        let mut worst: f64 = 0.0;
        let mut hold = |what: &str, found: f64, expected: f64| worst = worst.max(case.close(what, found, expected));
        hold("mean", summary.mean, case.get("mean"));
        hold("deviation", summary.deviation, case.get("deviation"));
        hold("t", summary.t(), case.get("t"));
        hold("p", summary.p(), case.get("p"));
        let (low, high) = summary.interval(level);
        for (found, expected) in [low, high].iter().zip(case.list("interval")) {
            hold("interval", *found, expected);
        }
        assert_eq!(summary.hedges(level).is_some(), case.has("g"));
        if let Some((g, interval)) = summary.hedges(level) {
            hold("g", g, case.get("g"));
            let (low, high) = interval.unwrap();
            for (found, expected) in [low, high].iter().zip(case.list("g_interval")) {
                hold("interval of g", *found, expected);
            }
        }
        let higher = values.iter().filter(|value| **value > 0.0).count();
        let lower = values.iter().filter(|value| **value < 0.0).count();
        hold("sign test", signs::sign_test(higher, lower), case.get("sign"));
        hold("sign flips", signs::sign_flips(&values).unwrap().as_far, case.get("sign_flip"));
        hold("two one-sided t tests", summary.equivalence(margin), case.get("tost"));
        let above: Vec<f64> = values.iter().map(|value| value + margin).collect();
        let below: Vec<f64> = values.iter().map(|value| margin - value).collect();
        let one_sided = |values: &[f64]| signs::sign_flips(values).unwrap().at_least;
        hold("two one-sided sign-flip tests", one_sided(&above).max(one_sided(&below)), case.get("flip_tost"));
        let (low, high) = resample::bootstrap(&values, 11, 400, level);
        for (found, expected) in [low, high].iter().zip(case.list("bootstrap")) {
            hold("bootstrap", *found, expected);
        }
        worst
    });
}

#[test]
fn nineteen_values_have_the_p_that_all_half_million_sums_give() {
    each("nineteen", |case| {
        case.close("p", signs::sign_flips(&case.list("values")).unwrap().as_far, case.get("sign_flip"))
    });
}

#[test]
fn two_sources_of_chance_give_clarks_quasi_f() {
    each("crossed", |case| {
        let (seeds, examples) = (Summary::of(&case.list("seeds")), Summary::of(&case.list("examples")));
        let both = crossed(&seeds.unwrap(), &examples.unwrap()).unwrap();
        case.close("t", both.t, case.get("t")).max(case.close("p", both.p, case.get("p"))).max(case.close(
            "freedom",
            both.freedom,
            case.get("freedom"),
        ))
    });
}

#[test]
fn corrected_ps_are_those_of_statsmodels() {
    each("holm", |case| {
        let adjusted = holm(&case.list("p"));
        adjusted.iter().zip(case.list("adjusted")).map(|(f, e)| case.close("p", *f, e)).fold(0.0, f64::max)
    });
}

#[test]
fn power_and_the_pairs_it_takes_are_those_of_statsmodels_and_of_a_quadrature_by_scipy() {
    each("power", |case| {
        let found = power::of_difference(case.get("effect"), case.count("pairs"), case.get("level"));
        case.close("power", found, case.get("power"))
    });
    each("equivalence_power", |case| {
        let (effect, margin) = (case.get("effect"), case.get("margin"));
        let found = power::of_equivalence(effect, margin, case.count("pairs"), case.get("level"));
        case.close("power", found, case.get("power"))
    });
    each("needed", |case| {
        let found = power::pairs_for_difference(case.get("effect"), case.get("level"), case.get("power"));
        assert_eq!(found, Some(case.count("pairs")), "{}", case.0.canonical());
        0.0
    });
}

#[test]
fn the_sign_test_goes_on_smoothly_where_binomial_coefficients_leave_the_range_of_numbers() {
    // Expected value 0.5 ± a standard deviation: no jump from one way of computing to the other.
    let at = |count: usize| signs::sign_test(count / 2 - 20, count - (count / 2 - 20));
    let (before, after) = (at(1000), at(1002));
    assert!((before - after).abs() < 1e-3 && before > 0.15 && before < 0.25, "{before} {after}");
    assert_eq!(signs::sign_test(6, 0).to_bits(), 0.03125_f64.to_bits());
    assert_eq!((signs::sign_test(0, 0), signs::sign_test(4, 4)), (1.0, 1.0));
}

/// The exact test and the one by random draws are two programs for one number.
#[test]
fn random_sign_flips_come_near_the_exact_p_and_repeat_with_their_seed() {
    let values: Vec<f64> = (0..14).map(|i| f64::from(i % 5) - 1.4).collect();
    let exact = signs::sign_flips(&values).unwrap();
    let drawn = resample::sign_flips(&values, 3, 40_000);
    // Three standard deviations of a share of 40,000 draws are at most 0.0075.
    assert!((exact.as_far - drawn.as_far).abs() < 0.0075, "{exact:?} {drawn:?}");
    assert!((exact.at_least - drawn.at_least).abs() < 0.0075, "{exact:?} {drawn:?}");
    assert_eq!(resample::sign_flips(&values, 3, 40_000), drawn);
    assert_ne!(resample::sign_flips(&values, 4, 40_000), drawn);
    assert_eq!(signs::sign_flips(&[1.0; 33]), None);
}
