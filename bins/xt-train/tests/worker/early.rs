//! Runs that stop early by their losses: at the same step and with the same model, however often they were restored.

use xt_core::manifest::candidate::Early;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::StopReason;
use xt_core::manifest::snapshot::Cadence;
use xt_core::verb::early::{Follow, Looks};

use crate::desk::{Desk, Left, plan};
use crate::resume::changed;

const LONG: (&str, &str) = ("\"steps\":8", "\"steps\":14");
const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };
const WEIGHTS: &str = "model/model.safetensors";

fn stopping(target: &str, patience: &str, minimum: &str, limit: &str) -> Plan {
    let early = format!(
        r#""early":{{"kind":"training-loss","window":2,"target":{target},"patience":{patience},"minimum_improvement":{minimum},"limit":{limit}}}"#
    );
    plan(&[LONG, (r#""early":{"kind":"none"}"#, &early)], 1)
}

fn completed(left: &Left) -> u64 {
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let Some(Message::Completed { steps, .. }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
    *steps
}

/// Nothing improves by 50, so the third look, at step 6, is the second in a row that did not.
#[test]
fn a_run_that_stops_early_stops_at_the_same_step_from_wherever_it_is_restored() {
    let plan = stopping("null", "2", "50", "null");
    let whole = Desk::new(&plan).train_part(&plan, None, &EACH, None);
    assert_eq!(completed(&whole), 6);
    let steps = whole.steps(&plan);
    let mut follow = Follow::new(&plan);
    for step in &steps {
        follow.take_in(step.step, step.loss_bits.value());
    }
    let stopped = follow.stopped().unwrap();
    assert_eq!((stopped.step, stopped.reason, steps.len()), (6, StopReason::Patience, 6));
    for at in 1..=6 {
        let rest = Desk::new(&plan).train_part(&plan, None, &EACH, Some(&whole.shot(&plan, at)));
        assert_eq!(completed(&rest), 6, "restored after step {at}");
        assert_eq!(rest.told(), steps[usize::try_from(at).unwrap()..]);
        assert_eq!(rest.output(WEIGHTS), whole.output(WEIGHTS));
    }
    // The controls: without its counters it waits anew, and without the rule it goes on to its length.
    let forgetful = changed(&whole.shot(&plan, 3), |_, optimizer| {
        let early = optimizer.iter_mut().filter(|(name, _)| name.starts_with("early_stop/"));
        assert_eq!(early.map(|(_, (_, values))| values.fill(0.0)).count(), Looks::NONE.named().len());
    });
    assert_eq!(completed(&Desk::new(&plan).train_part(&plan, None, &EACH, Some(&forgetful))), 9);
    let without = plan_without(&plan);
    assert_eq!(completed(&Desk::new(&without).train(&without, None)), 14);
}

fn plan_without(other: &Plan) -> Plan {
    let without = plan(&[LONG], 1);
    assert_ne!(without.fingerprint, other.fingerprint);
    assert_eq!(without.native().unwrap().stops.early, Early::None {});
    without
}

#[test]
fn a_target_ends_a_run_well_and_a_limit_holds_it() {
    let plan = stopping("100", "null", "0", "null");
    assert_eq!(completed(&Desk::new(&plan).train(&plan, None)), 2);
    // A part that ends before that has no model yet, and one up to there has.
    let part = Desk::new(&plan).train(&plan, Some(1));
    assert!(completed(&part) == 1 && !part.wrote(WEIGHTS));
    let plan = stopping("null", "null", "0", "0.5");
    let left = Desk::new(&plan).train(&plan, None);
    assert_eq!(left.code, Some(3), "{}", left.stderr);
    let Some(Message::Held { step: 2, reason }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
    assert!(reason.contains("is above the limit 0.5"), "{reason}");
    assert!(!left.wrote(WEIGHTS) && left.steps(&plan).len() == 2);
    let plan = stopping("null", "null", "0", "50");
    assert_eq!(completed(&Desk::new(&plan).train(&plan, None)), 14, "a control below its limit");
}
