//! Documents of decisions.

use xt_core::digest::Digest;
use xt_core::left_out::LeftOut;
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::decision::{
    Constraint, Context, Decision, Direction, Engine, EvaluationResult, Inexact, Interval, Metric, MetricSpread,
    Objective as Asked, Operator, Primary, Risk, Sliced, Subject,
};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::decide::decide;

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("{text} is a name"))
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| panic!("{value} is finite"))
}

fn metrics() -> Vec<Metric> {
    let full = Metric {
        name: String::from("accuracy"),
        value: Some(number(0.83)),
        slice: Some(String::from("rare")),
        evaluator_name: String::from("native"),
        evaluator_version: String::from("1"),
        seed: Some(7),
        sample_count: Some(100),
        confidence_interval: Some(Interval { low: number(0.79), high: number(0.87) }),
        standard_error: Some(number(0.02)),
    };
    let bare = Metric {
        slice: None,
        seed: None,
        sample_count: None,
        confidence_interval: None,
        standard_error: None,
        ..full.clone()
    };
    vec![full, bare.clone(), Metric { name: String::from("loss"), value: None, ..bare }]
}

/// How a result came about that is not exact: of one metric it is known how far it is off, over a slice and everywhere.
fn execution() -> Inexact {
    let spread = |slice: Option<&str>| MetricSpread {
        metric: String::from("accuracy"),
        slice: slice.map(String::from),
        sigma: number(0.125),
    };
    Inexact {
        regime: Regime::Field,
        calibration: digest("calibration"),
        expires: crate::documents::instant(1_900_000_000),
        kappa: number(2.0),
        spreads: vec![spread(None), spread(Some("rare"))],
        exact: vec![digest("exact plan")],
    }
}

/// Contexts with and without everything that may be `null`.
pub fn contexts() -> Vec<Context> {
    let rule = |slice: Option<&str>| Sliced {
        slice: slice.map(String::from),
        of: Constraint { name: String::from("accuracy"), operator: Operator::AtLeast, value: number(0.75) },
    };
    let context = |primary: &str, target| Context {
        experiment_id: name("experiment-1"),
        node_id: name("node-1"),
        evaluation_cycle: 2,
        objective: Asked {
            primary: Primary { name: String::from(primary), direction: Direction::Maximize },
            target,
            constraints: vec![rule(None), rule(Some("rare"))],
            risk: LeftOut(None),
        },
        results: vec![EvaluationResult {
            id: name("result-1"),
            evaluation_run_id: name("evaluation-1"),
            node_id: name("node-1"),
            subject: Subject { id: name("bundle-1"), digest: digest("bundle") },
            evaluation_fingerprint: digest("how"),
            metrics: metrics(),
            execution: LeftOut(None),
        }],
    };
    let mut inexact = context("accuracy", Some(number(0.81)));
    inexact.objective.risk = LeftOut(Some(Risk::High));
    inexact.results[0].execution = LeftOut(Some(execution()));
    vec![
        context("accuracy", Some(number(0.81))),
        context("accuracy", None),
        context("loss", Some(number(0.5))),
        inexact,
    ]
}

/// What is decided on them.
pub fn decisions() -> Vec<Decision> {
    let mut contexts = contexts();
    // Without results every metric is missing, over everything and over a slice.
    contexts[2].results.clear();
    let now = crate::documents::instant(2_000_000_000);
    contexts.iter().map(|context| decide(context, Engine::Threshold, now)).collect()
}
