//! Non-finite values: counted where they first appear, before anything repairs them.

use xt_core::manifest::incident::Located;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
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

// ---- module and tensor ----

fn located(plan: &Plan, step: u64) -> (Left, Located) {
    let left = Desk::new(plan).locate(plan, step);
    let place = left.messages.iter().find_map(|message| match message {
        Message::Located { step: at, place } => {
            assert_eq!(*at, step);
            Some((**place).clone())
        }
        _ => None,
    });
    let place = place.unwrap_or_else(|| panic!("nothing was located: {}", left.stderr));
    (left, place)
}

/// The look names what the counts of the same step name, and changes nothing of the step: its line is the same, bit for bit.
#[test]
fn the_first_module_that_overflows_forward_is_named_and_the_step_stays_the_same() {
    let plan = plan(&[EXPLODING, LONG, ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")], 1);
    let without = Desk::new(&plan).train(&plan, None);
    let steps = without.steps(&plan);
    let last = steps.last().unwrap();
    let (left, place) = located(&plan, last.step);
    assert_eq!(left.told(), steps);
    assert_eq!(left.code, without.code);
    assert!(
        !without.messages.iter().any(|message| matches!(message, Message::Located { .. })),
        "only who asks is told"
    );
    assert_eq!((place.stage, place.micro_batch), (StageName::Forward, 0));
    // Inside of the first block that the counts name, or that block itself.
    let block = &last.stages[1].tensors[0];
    assert!(place.tensor == *block || place.tensor.starts_with(&format!("{block}/")), "{place:?} {block}");
    assert!(place.module.starts_with(block.as_str()), "{place:?}");
    assert!(place.nan + place.positive_infinite + place.negative_infinite > 0 && place.nan <= place.checked);
    let finite = place.last_finite.unwrap();
    assert!(place.before > 0 && finite.maximum.get() > 1e6, "{finite:?}");
}

/// Clean steps have no place, and a run that records what is not finite has the one of its first such step.
#[test]
fn a_run_that_records_has_one_place_and_a_clean_one_none() {
    let record = ("\"non_finite\":\"hold\"", "\"non_finite\":\"record\"");
    let recipe = [EXPLODING, LONG, record, ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")];
    let records = plan(&recipe, 1);
    let steps = Desk::new(&records).train(&records, None).steps(&records);
    let first = steps.iter().find(|step| !non_finite(step).is_empty()).unwrap().step;
    let left = Desk::new(&records).locate(&records, first + 2);
    assert_eq!(left.told(), steps[..usize::try_from(first + 2).unwrap()]);
    let places = left.messages.iter().filter(|message| matches!(message, Message::Located { .. }));
    assert_eq!(places.count(), 1);
    let clean = plan(&[], 1);
    let left = Desk::new(&clean).locate(&clean, 8);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    assert!(!left.messages.iter().any(|message| matches!(message, Message::Located { .. })));
}

/// Row F-04: the loss is a number, its slope is not. What the counts name are parameters; the look says through which
/// module the gradient came.
#[test]
fn the_first_gradient_that_overflows_backward_is_named() {
    let small =
        ("\"layers\":2,\"heads\":2,\"width\":32,\"inner\":64", "\"layers\":1,\"heads\":1,\"width\":4,\"inner\":8");
    let changes = [
        small,
        ("\"context\":16", "\"context\":32"),
        ("\"dropout\":0.1", "\"dropout\":0.0"),
        ("\"initializer_range\":0.02", "\"initializer_range\":0.01"),
        (
            EXPLODING.0,
            "{\"kind\":\"sgd\",\"learning_rate\":22,\"momentum\":0,\"nesterov\":false,\"weight_decay\":0,\"decay\":\"all\"}",
        ),
        (
            "{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}",
            "{\"kind\":\"constant\",\"warmup_steps\":0}",
        ),
        ("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}"),
        ("\"samples\":4", "\"samples\":16"),
        ("\"accumulation\":2", "\"accumulation\":1"),
        ("\"steps\":8", "\"steps\":60"),
    ];
    let plans = (1..=20).map(|seed| plan(&changes, seed));
    let backward = plans.into_iter().find_map(|plan| {
        let steps = Desk::new(&plan).train(&plan, None).steps(&plan);
        let last = steps.last().unwrap().clone();
        (non_finite(&last).first() == Some(&StageName::Backward)).then_some((plan, last))
    });
    let (plan, last) = backward.expect("no seed overflows backward first");
    let (left, place) = located(&plan, last.step);
    assert_eq!(left.told().last(), Some(&last));
    assert_eq!(place.stage, StageName::Backward);
    let known = ["logits", "normalised", "block.0", "embedding", "transformer."];
    assert!(known.iter().any(|name| place.tensor.starts_with(name)), "{place:?}");
    assert!(!place.module.is_empty() && place.checked > 0, "{place:?}");
}
