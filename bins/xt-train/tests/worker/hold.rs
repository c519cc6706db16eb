//! Non-finite values: counted where they first appear, before anything repairs them.

use xt_core::manifest::job::Message;
use xt_core::manifest::trace::{StageName, Step};

use crate::desk::{Desk, Left, plan};

/// SGD with a rate that throws the weights out of all bounds.
const EXPLODING: (&str, &str) = (
    "{\"kind\":\"adamw\",\"learning_rate\":0.003,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.1,\"decay\":\"matrices\"}",
    "{\"kind\":\"sgd\",\"learning_rate\":1000,\"momentum\":0,\"nesterov\":false,\"weight_decay\":10,\"decay\":\"all\"}",
);
const LONG: (&str, &str) = ("\"steps\":8", "\"steps\":30");

fn non_finite(step: &Step) -> Vec<StageName> {
    step.stages.iter().filter(|stage| stage.non_finite() > 0).map(|stage| stage.stage).collect()
}

/// Row F-06: the update is left out, and the clipping between gradient and update has repaired nothing.
#[test]
fn an_exploding_rate_is_held_at_the_first_stage_before_its_update() {
    let plan = plan(&[EXPLODING, LONG, ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")], 1);
    let left = Desk::new(&plan).train(&plan, None);
    assert_eq!(left.code, Some(3), "{}", left.stderr);
    let steps = left.steps(&plan);
    let (last, before) = (steps.last().unwrap(), &steps[steps.len() - 2]);
    let Some(Message::Held { step, reason }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
    assert_eq!(*step, last.step);
    assert!(reason.contains("the stage forward holds"), "{reason}");
    assert!(last.skipped && steps.iter().filter(|step| step.skipped).count() == 1);
    assert_eq!(non_finite(last)[0], StageName::Forward);
    assert!(non_finite(before).is_empty());
    assert_eq!(last.stages[4].checked, 0, "the optimiser did not run");
    assert_eq!((last.parameters, last.optimizer), (before.parameters, before.optimizer));
    assert!(last.loss.is_none() && !last.loss_bits.value().is_finite());
    assert!(!left.wrote("model/model.safetensors"));
}

/// Row F-07: nothing is averaged or repaired on the way to the log.
#[test]
fn a_run_that_records_goes_on_and_counts() {
    let record = ("\"non_finite\":\"hold\"", "\"non_finite\":\"record\"");
    let plan = plan(&[EXPLODING, LONG, record, ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")], 1);
    let left = Desk::new(&plan).train(&plan, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let steps = left.steps(&plan);
    assert_eq!(steps.len(), 30);
    assert!(steps.iter().all(|step| !step.skipped));
    let last = steps.last().unwrap();
    assert!(last.loss.is_none() && last.loss_bits.value().is_nan());
    assert_eq!(last.stages[4].nan, last.stages[4].checked, "NaN has reached every weight");
}

/// The counts of the stages agree with what is known of them.
#[test]
fn names_of_the_first_tensors_are_kept() {
    let plan = plan(&[EXPLODING, LONG, ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")], 1);
    let left: Left = Desk::new(&plan).train(&plan, None);
    let steps = left.steps(&plan);
    let forward = &steps.last().unwrap().stages[1];
    assert!(!forward.tensors.is_empty() && forward.tensors.len() <= 8);
    let known = ["embedding", "block.0", "block.1", "normalised", "logits"];
    assert!(forward.tensors.iter().all(|name| known.contains(&name.as_str())), "{:?}", forward.tensors);
    assert_eq!(forward.nan + forward.positive_infinite + forward.negative_infinite, forward.non_finite());
    assert!(forward.maximum.get() > 1e6);
}
