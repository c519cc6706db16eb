//! Products in binary16: what overflows there and not in binary32 is held at the first stage, and what does not goes on.

use xt_core::manifest::job::Message;
use xt_core::manifest::trace::StageName;

use crate::desk::{Desk, plan};

const HALF: (&str, &str) = ("\"precision\":\"float32\"", "\"precision\":\"float16\"");
/// Weights so large that products of them leave binary16 and not binary32.
const LARGE: (&str, &str) = ("\"initializer_range\":0.02", "\"initializer_range\":10");
const WIDE: (&str, &str) = ("\"inner\":64", "\"inner\":32768");

/// In binary32 the same run is clean: the overflow is that of the narrower numbers.
#[test]
fn products_that_leave_binary16_are_held_in_the_forward_stage_and_leave_no_model() {
    let narrow = plan(&[HALF, LARGE, WIDE], 1);
    let left = Desk::new(&narrow).train(&narrow, None);
    assert_eq!(left.code, Some(3), "{}", left.stderr);
    let Some(Message::Held { step: 1, reason }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
    assert!(reason.contains("the stage forward holds"), "{reason}");
    let steps = left.steps(&narrow);
    let (input, forward) = (&steps[0].stages[0], &steps[0].stages[1]);
    assert_eq!((input.non_finite(), forward.stage), (0, StageName::Forward));
    assert!(forward.non_finite() > 0 && steps[0].skipped);
    assert!(!left.wrote("model/model.safetensors"));
    let wide = plan(&[LARGE, WIDE], 1);
    let left = Desk::new(&wide).train(&wide, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let steps = left.steps(&wide);
    assert!(steps.iter().flat_map(|step| &step.stages).all(|stage| stage.non_finite() == 0));
    let largest = steps.iter().map(|step| step.stages[1].maximum.get()).fold(0.0, f64::max);
    assert!(largest > 65504.0, "{largest}");
}

/// The clean control: ordinary weights train in binary16, bit for bit again, near the losses of binary32 and not at them.
#[test]
fn ordinary_weights_train_in_binary16_and_the_run_repeats_bit_for_bit() {
    let (narrow, wide) = (plan(&[HALF], 1), plan(&[], 1));
    let run = |plan| {
        let left = Desk::new(plan).train(plan, None);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        left.steps(plan)
    };
    let (first, again, other) = (run(&narrow), run(&narrow), run(&wide));
    assert_eq!(first, again);
    for (one, two) in first.iter().zip(&other) {
        let difference = (one.loss.unwrap().get() - two.loss.unwrap().get()).abs();
        assert!(difference < 0.02, "step {}: {difference}", one.step);
    }
    assert!(first.iter().zip(&other).any(|(one, two)| one.loss != two.loss));
    assert!(first.iter().all(|step| step.stages.iter().all(|stage| stage.checked > 0 && stage.non_finite() == 0)));
}
