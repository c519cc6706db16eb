//! Snapshots and restores by the real worker, row by row of the failures that others have reported.

use std::collections::BTreeMap;

use xt_core::digest::Digest;
use xt_core::field::Field as _;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Step;
use xt_core::order::Walk;
use xt_core::verb::chain::shape;
use xt_core::verb::weights::{self, views};

use crate::desk::{Desk, Left, Shot, plan};
use crate::records;

const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };
const ADAMW: &str = "\"kind\":\"adamw\"";

/// A whole run that writes its state after each step.
fn straight(plan: &Plan) -> Left {
    let left = Desk::new(plan).train_part(plan, None, &EACH, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

fn resume(plan: &Plan, shot: &Shot, to: Option<u64>) -> Left {
    let left = Desk::new(plan).train_part(plan, to, &EACH, Some(shot));
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

fn refused(plan: &Plan, shot: &Shot) -> String {
    let left = Desk::new(plan).train_part(plan, None, &EACH, Some(shot));
    assert_eq!(left.code, Some(1), "{}", left.stderr);
    assert!(left.told().is_empty(), "no step was taken");
    left.failure().to_string()
}

fn after(steps: &[Step], step: u64) -> &[Step] {
    &steps[usize::try_from(step).unwrap()..]
}

/// Tensors by name: shape and values.
pub type Tensors = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

fn tensors(file: &[u8]) -> Tensors {
    let values = |bytes: &[u8]| bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    views(file).unwrap().into_iter().map(|view| (view.name, (view.shape, values(view.values)))).collect()
}

/// A snapshot whose tensors were changed, with everything made to fit.
pub fn changed(shot: &Shot, change: impl FnOnce(&mut Tensors, &mut Tensors)) -> Shot {
    let (mut parameters, mut optimizer) = (tensors(&shot.parameters), tensors(&shot.optimizer));
    change(&mut parameters, &mut optimizer);
    shot.clone().with(weights::file(&parameters), weights::file(&optimizer))
}

/// Row R-08: taking snapshots changes nothing in the trace, however often they are taken.
#[test]
fn r_08_snapshots_at_any_cadence_leave_the_trace_as_it_is() {
    let plan = plan(&[], 1);
    let none = Desk::new(&plan).train(&plan, None);
    for every in [1, 2, 3, 7, 100] {
        let cadence = Cadence { every: Some(every), ..EACH };
        let left = Desk::new(&plan).train_part(&plan, None, &cadence, None);
        assert_eq!((left.code, &left.trace), (Some(0), &none.trace), "every {every}: {}", left.stderr);
        assert_eq!(left.output("model/model.safetensors"), none.output("model/model.safetensors"));
    }
}

/// Row R-01: 103 samples, four micro-batches of four a step.
#[test]
fn r_01_the_samples_of_a_resumed_step_are_counted_in_micro_batches() {
    let plan = plan(&[("\"accumulation\":2", "\"accumulation\":4")], 7);
    let whole = straight(&plan);
    let shot = whole.shot(&plan, 3);
    let all = plan.work.micro_batches_per_epoch;
    let mut walk = Walk::new(shape(&plan).unwrap(), plan.seed);
    let numbers: Vec<u64> = walk.step(3).iter().map(|batch| batch.number).collect();
    assert_eq!((shot.snapshot.step, shot.snapshot.generator.micro_batch), (3, numbers[0]));
    assert_eq!((shot.snapshot.cursor.epoch, shot.snapshot.cursor.micro_batch), (numbers[0] / all, numbers[0] % all));
    assert_eq!(resume(&plan, &shot, Some(6)).told(), after(&whole.told(), 3)[..3]);
}

/// Row R-03: five micro-batches an epoch, steps of two: under each policy the border of the epoch is crossed alike.
#[test]
fn r_03_replay_from_the_border_of_an_epoch_matches_under_each_policy() {
    let base = [
        ("\"samples\":4", "\"samples\":6"),
        ("{\"kind\":\"steps\",\"steps\":8}", "{\"kind\":\"epochs\",\"epochs\":3}"),
    ];
    for policy in ["flush", "drop", "carry"] {
        let word = format!("\"accumulation_remainder\":\"{policy}\"");
        let plan = plan(&[base[0], base[1], ("\"accumulation_remainder\":\"flush\"", &word)], 1);
        let whole = straight(&plan);
        assert_eq!(whole.told().len() as u64, plan.work.steps);
        for step in 2..=4 {
            assert_eq!(
                resume(&plan, &whole.shot(&plan, step), None).told(),
                after(&whole.told(), step),
                "{policy} {step}"
            );
        }
    }
}

/// Rows: chains of two and three restores, over the end of the warm-up.
#[test]
fn r_05_and_r_06_the_learning_rates_of_chained_resumes_are_those_of_one_run() {
    let linear = (
        "{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}",
        "{\"kind\":\"linear\",\"warmup_steps\":15,\"final_fraction\":0.0}",
    );
    let plan = plan(&[linear, ("\"steps\":8", "\"steps\":15")], 1);
    let whole = straight(&plan);
    let rates = |steps: &[Step]| steps.iter().map(|step| step.learning_rate.get()).collect::<Vec<_>>();
    let (mut chained, mut shot) = (whole.told()[..4].to_vec(), whole.shot(&plan, 4));
    for to in [9, 12, 15] {
        let left = resume(&plan, &shot, Some(to));
        chained.extend(left.told());
        shot = left.shot(&plan, to);
    }
    assert_eq!(rates(&chained), rates(&whole.told()));
    assert_eq!(chained, whole.told());
    // The control: no two of these rates are the same, so that none can trail by one.
    assert!(rates(&chained).windows(2).all(|pair| pair[0] < pair[1]));
}

/// Rows: 29 samples, restored in the second epoch, and on through two more.
#[test]
fn r_09_and_r_10_the_order_of_the_epoch_comes_back_and_the_next_ones_follow() {
    let plan = plan(
        &[
            ("\"accumulation\":2", "\"accumulation\":1"),
            ("{\"kind\":\"steps\",\"steps\":8}", "{\"kind\":\"epochs\",\"epochs\":4}"),
        ],
        3,
    );
    let whole = straight(&plan);
    let per_epoch = plan.work.micro_batches_per_epoch;
    let at = per_epoch + 2;
    let shot = whole.shot(&plan, at);
    assert_eq!((shot.snapshot.cursor.epoch, shot.snapshot.cursor.micro_batch), (1, 2));
    let resumed = resume(&plan, &shot, None).told();
    assert_eq!(resumed, after(&whole.told(), at));
    let orders: Vec<Digest> =
        (0..4).map(|epoch| whole.shot(&plan, epoch * per_epoch + 1).snapshot.cursor.order).collect();
    assert!((1..4).all(|i| !orders[..i].contains(&orders[i])), "no two epochs share an order");
    assert_eq!(shot.snapshot.cursor.order, orders[1]);
}

/// Row R-12: the cursor of a snapshot that a resumed run takes is ten steps' worth of data, not five.
#[test]
fn r_12_a_second_snapshot_after_a_resume_holds_the_later_cursor() {
    let plan = plan(&[("\"steps\":8", "\"steps\":10"), ("\"accumulation\":2", "\"accumulation\":1")], 1);
    let whole = straight(&plan);
    let second = resume(&plan, &whole.shot(&plan, 5), None).shot(&plan, 10);
    assert_eq!(second.snapshot, whole.shot(&plan, 10).snapshot);
    assert_eq!(second.snapshot.generator.micro_batch, 10);
    assert_ne!(second.snapshot.cursor, whole.shot(&plan, 5).snapshot.cursor);
}

/// Row R-13: a state at the border of an epoch has one spelling.
#[test]
fn r_13_the_border_of_an_epoch_has_one_spelling_and_the_other_is_refused() {
    let plan = plan(
        &[
            ("\"accumulation\":2", "\"accumulation\":1"),
            ("{\"kind\":\"steps\",\"steps\":8}", "{\"kind\":\"epochs\",\"epochs\":2}"),
        ],
        1,
    );
    let (whole, border) = (straight(&plan), plan.work.micro_batches_per_epoch);
    let shot = whole.shot(&plan, border);
    assert_eq!((shot.snapshot.cursor.epoch, shot.snapshot.cursor.micro_batch, shot.snapshot.cursor.sample), (1, 0, 0));
    let resumed = resume(&plan, &shot, None).told();
    assert_eq!((resumed[0].epoch, &resumed[..]), (1, after(&whole.told(), border)));
    let mut other = shot.clone();
    other.snapshot.cursor.epoch = 0;
    other.snapshot.cursor.micro_batch = border;
    let reason = refused(&plan, &other);
    assert!(reason.contains("snapshot#/cursor/epoch") && reason.contains("snapshot#/cursor/micro_batch"), "{reason}");
}

/// Row R-14: three segments of three steps are steps 1 to 9, each once.
#[test]
fn r_14_step_numbers_do_not_drift_over_resumes() {
    let plan = plan(&[("\"steps\":8", "\"steps\":9")], 1);
    let first = Desk::new(&plan).train_part(&plan, Some(3), &EACH, None);
    let second = resume(&plan, &first.shot(&plan, 3), Some(6));
    let third = resume(&plan, &second.shot(&plan, 6), None);
    let numbers: Vec<u64> =
        [&first, &second, &third].iter().flat_map(|left| left.told()).map(|step| step.step).collect();
    assert_eq!(numbers, (1..=9).collect::<Vec<_>>());
}

/// Row R-15: with dropout the generator must come back, and one that is missing or another is refused.
#[test]
fn r_15_the_generator_comes_back_and_none_or_another_is_refused() {
    let plan = plan(&[("\"dropout\":0.1", "\"dropout\":0.5")], 1);
    let whole = straight(&plan);
    let shot = whole.shot(&plan, 5);
    let resumed = resume(&plan, &shot, None).told();
    assert_eq!(resumed[0].loss_bits, whole.told()[5].loss_bits);
    let mut text = shot.snapshot.write();
    if let xt_core::canonical::Value::Object(members) = &mut text {
        members.remove("generator");
    }
    let mut faults = xt_core::fault::Faults::new();
    assert!(xt_core::manifest::snapshot::Snapshot::read(&text, "", &mut faults).is_none());
    assert_eq!(faults.0[0].pointer, "/generator");
    let seed_moved: fn(&mut Shot) = |shot| shot.snapshot.generator.seed += 1;
    let time_moved: fn(&mut Shot) = |shot| shot.snapshot.generator.micro_batch += 1;
    for change in [seed_moved, time_moved] {
        let mut other = shot.clone();
        change(&mut other);
        assert!(refused(&plan, &other).contains("snapshot#/generator/"));
    }
    // What a shifted stream would do: the next step of a run with another seed differs at once.
    let other = crate::desk::plan(&[("\"dropout\":0.1", "\"dropout\":0.5")], 2);
    assert_ne!(straight(&other).told()[5].loss_bits, resumed[0].loss_bits);
}

/// Row R-19: each part of the state is in the snapshot: a change of any one of them changes the next line.
#[test]
fn r_19_a_change_of_any_tensor_of_the_state_is_seen_at_the_next_step() {
    let plan = plan(&[], 1);
    let whole = straight(&plan);
    let (shot, next) = (whole.shot(&plan, 5), &whole.told()[5]);
    let names: Vec<(bool, String)> = tensors(&shot.parameters)
        .into_keys()
        .map(|name| (true, name))
        .chain(tensors(&shot.optimizer).into_keys().map(|name| (false, name)))
        .collect();
    assert_eq!(names.len(), 3 * 28, "parameters and two moments each");
    for (is_parameter, name) in names.iter().step_by(9) {
        let other = changed(&shot, |parameters, optimizer| {
            let tensors = if *is_parameter { parameters } else { optimizer };
            let value = &mut tensors.get_mut(name).unwrap().1[0];
            *value = f32::from_bits(value.to_bits() ^ 1 << 20);
        });
        let line = &resume(&plan, &other, Some(6)).told()[0];
        assert!((line.parameters, line.optimizer) != (next.parameters, next.optimizer), "{name}");
    }
}

/// Rows: moments and count of updates are there before any step, equal in bits.
#[test]
fn r_20_and_r_21_moments_and_counts_are_restored_before_any_step() {
    let plan = plan(&[], 1);
    let shot = straight(&plan).shot(&plan, 5);
    let optimizer = tensors(&shot.optimizer);
    let both = ["first_moment/", "second_moment/"];
    assert!(both.iter().all(|prefix| optimizer.keys().filter(|name| name.starts_with(prefix)).count() == 28));
    assert!(optimizer.values().any(|(_, values)| values.iter().any(|value| *value != 0.0)));
    assert_eq!(shot.snapshot.updates, 5);
    // Restored, and held against the digests of the snapshot before the first step: another count is refused there.
    let mut other = shot.clone();
    other.snapshot.updates = 4;
    let line = resume(&plan, &shot, Some(6)).told();
    let with_four = resume(&plan, &other, Some(6)).told();
    assert_ne!(line[0].parameters, with_four[0].parameters, "the count of updates is part of what is learned");
}

/// Row R-22: live, resumed, and resumed with a part of the state lost; only the last differs.
#[test]
fn r_22_a_resume_without_the_state_of_the_optimiser_differs() {
    for optimizer in ["adamw", "sgd"] {
        let sgd = "{\"kind\":\"sgd\",\"learning_rate\":0.05,\"momentum\":0.9,\"nesterov\":false,\"weight_decay\":0.01,\"decay\":\"all\"}";
        let adamw = format!(
            "{{{ADAMW},\"learning_rate\":0.003,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.1,\"decay\":\"matrices\"}}"
        );
        let changes = if optimizer == "sgd" { vec![(adamw.as_str(), sgd)] } else { vec![] };
        let plan = plan(&changes, 1);
        let whole = straight(&plan);
        let shot = whole.shot(&plan, 4);
        assert_eq!(resume(&plan, &shot, None).told(), after(&whole.told(), 4));
        let zeroed = changed(&shot, |_, optimizer| optimizer.values_mut().for_each(|(_, values)| values.fill(0.0)));
        let line = resume(&plan, &zeroed, Some(5)).told();
        assert_ne!(line[0].parameters, whole.told()[4].parameters, "{optimizer}");
        assert_eq!(line[0].gradients, whole.told()[4].gradients, "only the optimiser lost something");
    }
}

/// The other two control arms: a stream that is shifted by one, and a cursor that is moved by one, are other runs. Their
/// states cannot even be written down, so the step itself is shifted.
#[test]
fn a_state_that_is_moved_by_one_step_is_refused_or_differs() {
    let plan = plan(
        &[(
            "\"schedule\":{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}",
            "\"schedule\":{\"kind\":\"constant\",\"warmup_steps\":0}",
        )],
        1,
    );
    let whole = straight(&plan);
    let (shot, other) = (whole.shot(&plan, 4), whole.shot(&plan, 5));
    let mut moved = shot.clone();
    moved.snapshot.cursor.clone_from(&other.snapshot.cursor);
    assert!(refused(&plan, &moved).contains("snapshot#/cursor/"));
    let mut shifted = shot.clone();
    shifted.snapshot.generator.clone_from(&other.snapshot.generator);
    assert!(refused(&plan, &shifted).contains("snapshot#/generator/"));
    // Everything at step 5 but the tensors of step 4.
    let mut all = other.clone().with(shot.parameters.clone(), shot.optimizer.clone());
    all.snapshot.updates = 4;
    let line = resume(&plan, &all, Some(6)).told();
    assert_ne!(line[0].samples, whole.told()[4].samples);
    assert_ne!(line[0].loss_bits, whole.told()[4].loss_bits);
    assert_ne!(line[0].parameters, whole.told()[5].parameters);
}

/// Row R-23: state belongs to a name and a shape, not to a place.
#[test]
fn r_23_tensors_are_found_by_name_and_a_swap_is_another_state() {
    let plan = plan(&[], 1);
    let whole = straight(&plan);
    let shot = whole.shot(&plan, 5);
    let names = ["first_moment/transformer.h.0.ln_1.weight", "first_moment/transformer.h.1.ln_1.weight"];
    let swapped = changed(&shot, |_, optimizer| {
        let [one, other] = names.map(|name| optimizer[name].clone());
        optimizer.insert(names[0].into(), other);
        optimizer.insert(names[1].into(), one);
    });
    assert_ne!(swapped.snapshot.optimizer.digest, shot.snapshot.optimizer.digest);
    assert_ne!(resume(&plan, &swapped, Some(6)).told()[0].optimizer, whole.told()[5].optimizer);
    let mut faults = xt_core::fault::Faults::new();
    xt_core::verb::snapshot::check_line(&swapped.snapshot, &whole.told()[4], &mut faults);
    assert_eq!(faults.0[0].pointer, "snapshot#/optimizer", "and the trace contradicts it");
}

/// Row R-24: a tensor too many, one too few, one with another name, another type or another shape; every reason at once.
#[test]
fn r_24_entries_that_are_missing_extra_misnamed_or_misshapen_refuse_the_restore_by_name() {
    let plan = plan(&[], 1);
    let shot = straight(&plan).shot(&plan, 5);
    let wrong = changed(&shot, |parameters, optimizer| {
        let bias = parameters.remove("transformer.ln_f.bias").unwrap();
        parameters.insert("transformer.ln_f.bias_".into(), bias);
        optimizer.insert("scaler/scale".into(), (vec![1], vec![256.0]));
        let moment = optimizer.get_mut("first_moment/transformer.h.0.ln_1.weight").unwrap();
        moment.0 = vec![4, 8];
        optimizer.remove("second_moment/transformer.h.0.ln_1.weight").unwrap();
    });
    let reason = refused(&plan, &wrong);
    for part in [
        "it has no tensor transformer.ln_f.bias",
        "it has a tensor transformer.ln_f.bias_ that the model has not",
        "it has a tensor scaler/scale that the model has not",
        "first_moment/transformer.h.0.ln_1.weight is F32 [4, 8], the model has F32 [32]",
        "it has no tensor second_moment/transformer.h.0.ln_1.weight",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    // Another type: the same tensors as 16-bit numbers, in half the room.
    let half = half_wide(&shot.parameters);
    let mut typed = shot.clone();
    (typed.snapshot.parameters.file, typed.parameters) = (Digest::of(&half), half);
    let reason = refused(&plan, &typed);
    assert_eq!(reason.matches(" is F16 ").count(), 28, "each is named: {reason}");
    let other = changed(&shot, |parameters, _| {
        parameters.get_mut("transformer.ln_f.bias").unwrap().1[0] += 1.0;
    });
    let mut stated = other.clone();
    stated.snapshot.parameters.digest = shot.snapshot.parameters.digest;
    let reason = refused(&plan, &stated);
    assert!(reason.contains("snapshot#/parameters/digest") && reason.contains("snapshot.digest"), "{reason}");
}

/// The tensors of a file with the same names and shapes, declared as 16-bit numbers.
fn half_wide(file: &[u8]) -> Vec<u8> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for view in views(file).unwrap() {
        let end = at + view.values.len() / 2;
        parts.push(format!(
            "\"{}\":{{\"dtype\":\"F16\",\"shape\":{:?},\"data_offsets\":[{at},{end}]}}",
            view.name, view.shape
        ));
        at = end;
    }
    let header = format!("{{{}}}", parts.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + at, 0);
    bytes
}

/// A snapshot of another plan is refused before anything is read.
#[test]
fn a_snapshot_of_another_plan_or_beyond_the_end_is_refused() {
    let (one, other) = (plan(&[], 1), plan(&[("0.003", "0.004")], 1));
    let shot = straight(&one).shot(&one, 5);
    assert!(refused(&other, &shot).contains("snapshot#/plan"));
    let mut beyond = shot;
    beyond.snapshot.step = 9;
    assert!(refused(&one, &beyond).contains("snapshot#/step"));
}

/// Row N-04: two runs at once give what they give one after the other.
#[test]
fn n_04_two_runs_at_once_give_what_each_gives_alone() {
    let plans = [plan(&[], 1), plan(&[], 2)];
    let alone = plans.each_ref().map(|plan| straight(plan).trace);
    let both = plans.map(|plan| std::thread::spawn(move || straight(&plan).trace)).map(|thread| thread.join().unwrap());
    assert_eq!(alone, both);
    assert_ne!(alone[0], alone[1]);
}

/// Row N-10: the files of a state are the same bytes each time.
#[test]
fn n_10_the_same_state_is_the_same_bytes_each_time() {
    let plan = plan(&[], 1);
    let [one, two] = [0, 1].map(|_| straight(&plan).shot(&plan, 6));
    assert_eq!(one.snapshot, two.snapshot);
    assert!(one.parameters == two.parameters && one.optimizer == two.optimizer);
    assert_ne!(one.parameters, straight(&plan).shot(&plan, 5).parameters);
}

const HELD_OUT: [(&str, &str); 2] = [("gull", " wing"), ("harpoon", " barb")];

/// Row R-07: the scale of the loss comes back as it was, at any value; updates that are left out are counted apart from
/// those that are made, and the learning rate follows the steps.
#[test]
fn r_07_the_scale_of_the_loss_comes_back_and_the_rate_follows_the_documented_counter() {
    const SCALE: &str = "loss_scaler/scale";
    let scaled = ("\"precision\":\"float32\"", "\"precision\":\"float16-scaled\"");
    // Gradients overflow under the first scale, so that it is another one when the state is taken.
    let steep = ("\"z_loss\":0.0", "\"z_loss\":1000.0");
    let plan = plan(&[scaled, steep, ("\"steps\":8", "\"steps\":13")], 1);
    let whole = straight(&plan);
    let (told, shot) = (whole.told(), whole.shot(&plan, 11));
    let skipped = told[..11].iter().filter(|step| step.skipped).count() as u64;
    assert!(skipped > 0 && told[0].loss_scale.get() == 65536.0);
    assert_eq!((shot.snapshot.step, shot.snapshot.updates), (11, 11 - skipped));
    let resumed = resume(&plan, &shot, Some(12)).told();
    assert_eq!(resumed[0], told[11]);
    assert!(resumed[0].loss_scale.get() < 65536.0, "a run begins with that");
    let with = |scale: f32| {
        let other = changed(&shot, |_, optimizer| optimizer.get_mut(SCALE).unwrap().1[0] = scale);
        resume(&plan, &other, Some(12)).told().remove(0)
    };
    let (small, at_256, too_large) = (with(2.0), with(256.0), with(1_099_511_627_776.0));
    assert_eq!((small.loss_scale.get(), small.skipped, at_256.loss_scale.get()), (2.0, false, 256.0));
    // An update that is left out takes no step from the schedule.
    assert!(too_large.skipped && too_large.step == 12);
    assert_eq!([&at_256, &too_large].map(|line| line.learning_rate), [told[11].learning_rate; 2]);
    let lost = changed(&shot, |_, optimizer| drop(optimizer.remove(SCALE)));
    assert!(refused(&plan, &lost).contains(SCALE));
}

/// Row R-16: what a worker would do that seeds again after loading: the state of one run goes on with the draws of
/// another seed. The first resumed step differs, and the generator is named first.
#[test]
fn r_16_seeding_again_after_loading_is_seen_at_the_first_step_with_the_generator_first() {
    let changes = [("\"dropout\":0.1", "\"dropout\":0.5"), ("\"order\":\"shuffled\"", "\"order\":\"sequential\"")];
    let (plan, other) = (plan(&changes, 1), plan(&changes, 2));
    let whole = straight(&plan);
    let shot = whole.shot(&plan, 5);
    let mut seeded = straight(&other).shot(&other, 5).with(shot.parameters.clone(), shot.optimizer.clone());
    seeded.snapshot.chain = shot.snapshot.chain;
    let line = &resume(&other, &seeded, Some(6)).told()[0];
    let parted = xt_core::verb::compare::steps(&whole.told()[5], line).unwrap();
    assert_eq!(parted.step, 6);
    assert_eq!(parted.component, xt_core::manifest::replay::Component::Generator);
    assert!(parted.differing.contains(&xt_core::manifest::replay::Component::Loss), "{:?}", parted.differing);
    // The control: not seeded again, nothing differs.
    let line = &resume(&plan, &shot, Some(6)).told()[0];
    assert_eq!(xt_core::verb::compare::steps(&whole.told()[5], line), None);
}

/// Row R-17: evaluated after every second step, and never: the same lines.
#[test]
fn r_17_evaluating_at_any_cadence_leaves_the_trace_as_it_is() {
    let shuffled = [("\"order\":\"sequential\"", "\"order\":\"shuffled\""), ("\"dropout\":0.0", "\"dropout\":0.3")];
    let plan = records::plan(&records::CLEAN, &shuffled);
    let desk = || records::desk(&plan, &records::CLEAN);
    let never = desk().train_part(&plan, None, &EACH, None);
    let (mut lines, mut left, mut measured) = (Vec::new(), desk().train_part(&plan, Some(2), &EACH, None), 0);
    for step in (2..plan.work.steps).step_by(2) {
        lines.extend(left.told());
        let shot = left.shot(&plan, step);
        let evaluated = records::measured(&plan, &shot.parameters, &HELD_OUT);
        assert_eq!(evaluated.code, Some(0), "{}", evaluated.stderr);
        measured += 1;
        left = desk().train_part(&plan, Some(step + 2), &EACH, Some(&shot));
    }
    lines.extend(left.told());
    assert_eq!((lines, measured), (never.told(), plan.work.steps / 2 - 1));
}

/// Row R-18: the average never stands in for the weights: before, in and after a snapshot they are the raw ones, and a
/// run that goes on from it goes on from these.
#[test]
fn r_18_a_snapshot_holds_the_raw_weights_and_the_average_beside_them() {
    let averaging = (
        "\"averaging\":{\"kind\":\"none\"}",
        "\"averaging\":{\"kind\":\"exponential\",\"decay\":0.9,\"first_step\":1}",
    );
    let (with, without) = (plan(&[averaging], 1), plan(&[], 1));
    let (averaged, plain) = (straight(&with), straight(&without));
    let (line, shot) = (&averaged.told()[4], averaged.shot(&with, 5));
    assert_eq!(shot.snapshot.parameters.digest, line.parameters);
    assert_eq!(shot.parameters, plain.shot(&without, 5).parameters, "what it is without an average");
    assert_ne!(Some(line.parameters), line.averaged);
    let resumed = resume(&with, &shot, None);
    assert_eq!(resumed.told(), after(&averaged.told(), 5));
    assert_eq!(resumed.told()[0].parameters, plain.told()[5].parameters);
    // The control: a run that goes on from the average is another one.
    let stands_in = changed(&shot, |parameters, optimizer| {
        for (name, tensor) in parameters.iter_mut() {
            tensor.clone_from(&optimizer[&format!("averaged/{name}")]);
        }
    });
    assert_ne!(resume(&with, &stands_in, Some(6)).told()[0].parameters, plain.told()[5].parameters);
}
