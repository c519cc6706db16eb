//! Products in binary16: what overflows there and not in binary32 is held at the first stage, and what does not goes on.

use xt_core::manifest::job::Message;
use xt_core::manifest::snapshot::Cadence;
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

/// What leaves binary16 does not leave bfloat16: the run of the test above goes to its end.
#[test]
fn products_that_leave_binary16_stay_in_bfloat16() {
    let narrow = plan(&[("\"precision\":\"float32\"", "\"precision\":\"bfloat16\""), LARGE, WIDE], 1);
    let left = Desk::new(&narrow).train(&narrow, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    let largest = left.steps(&narrow).iter().map(|step| step.stages[1].maximum.get()).fold(0.0, f64::max);
    assert!(largest > 65504.0, "{largest}");
}

const SCALED: (&str, &str) = ("\"precision\":\"float32\"", "\"precision\":\"float16-scaled\"");
const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };
/// A loss of which gradients overflow under the first scale, and not under a smaller one.
const STEEP: (&str, &str) = ("\"z_loss\":0.0", "\"z_loss\":1000.0");

/// The scale of the first steps is too large here: they are skipped, told as such, and the scale goes down until gradients are
/// numbers. The run does not hold, and goes on in a new process bit for bit, whether from amid the skipped steps or behind.
#[test]
fn gradients_that_overflow_under_the_scale_skip_their_update_and_halve_it() {
    let scaled = plan(&[SCALED, STEEP, ("\"steps\":8", "\"steps\":14")], 1);
    let straight = Desk::new(&scaled).train_part(&scaled, None, &EACH, None);
    assert_eq!(straight.code, Some(0), "{}", straight.stderr);
    let steps = straight.told();
    let skipped = steps.iter().take_while(|step| step.skipped).count();
    assert!((1..12).contains(&skipped), "{skipped}");
    for (number, step) in steps.iter().enumerate() {
        let halvings = i32::try_from(steps[..number].iter().filter(|step| step.skipped).count()).unwrap();
        assert_eq!(step.loss_scale.get(), 65536.0 / 2f64.powi(halvings), "step {number}");
        assert_eq!(step.skipped, step.stages[3].non_finite() > 0);
    }
    assert_eq!(steps[0].parameters, steps[skipped - 1].parameters, "a skipped step changes no parameter");
    assert_ne!(steps[0].parameters, steps[skipped].parameters);
    for from in [1, skipped as u64 + 1] {
        let resumed = Desk::new(&scaled).train_part(&scaled, None, &EACH, Some(&straight.shot(&scaled, from)));
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        assert_eq!(resumed.told(), steps[usize::try_from(from).unwrap()..]);
    }
}

/// Where nothing overflows the scale changes little: the losses are near those of the run without one.
#[test]
fn a_scale_under_which_nothing_overflows_trains_near_the_run_without_one() {
    let run = |precision| {
        let plan = plan(&[precision], 1);
        let left = Desk::new(&plan).train(&plan, None);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        left.steps(&plan)
    };
    let (scaled, plain) = (run(SCALED), run(HALF));
    assert!(scaled.iter().all(|step| !step.skipped && step.loss_scale.get() == 65536.0));
    for (one, two) in scaled.iter().zip(&plain) {
        let difference = (one.loss.unwrap().get() - two.loss.unwrap().get()).abs();
        assert!(difference < 0.02, "step {}: {difference}", one.step);
    }
    assert_ne!(scaled.last().unwrap().parameters, plain.last().unwrap().parameters);
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
