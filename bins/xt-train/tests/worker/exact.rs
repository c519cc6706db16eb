//! The same job gives the same bytes, another one does not, and the trace says what was done.

use safetensors::SafeTensors;
use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::{Step, read_steps};
use xt_core::tensors::TensorsHasher;

use crate::desk::{Desk, Left, plan};

const WEIGHTS: &str = "model/model.safetensors";

fn train(plan: &Plan) -> Left {
    let left = Desk::new(plan).train(plan, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

#[test]
fn the_same_job_gives_the_same_bytes_and_another_seed_does_not() {
    let (first, other) = (plan(&[], 1), plan(&[], 2));
    let [one, two, three] = [&first, &first, &other].map(train);
    assert!(matches!(one.messages.last(), Some(Message::Completed { steps: 8, .. })));
    assert_eq!(one.trace, two.trace);
    assert_eq!(one.output(WEIGHTS), two.output(WEIGHTS));
    assert_eq!(one.output("model/config.json"), two.output("model/config.json"));
    assert_ne!(one.output(WEIGHTS), three.output(WEIGHTS));
    for (left, right) in one.steps(&first).iter().zip(&three.steps(&other)) {
        assert_ne!(left.samples, right.samples);
        assert_ne!(left.parameters, right.parameters);
        assert_ne!(left.generator, right.generator);
        assert_ne!(left.loss_bits, right.loss_bits);
    }
}

/// Sums of several threads are added in an order that the number of threads fixes.
#[test]
fn two_threads_give_the_same_bytes_each_time() {
    let plan = plan(&[("\"threads\":1", "\"threads\":2")], 1);
    let [one, two] = [&plan, &plan].map(train);
    assert_eq!(one.steps(&plan), two.steps(&plan));
    assert_eq!(one.output(WEIGHTS), two.output(WEIGHTS));
}

#[test]
fn messages_and_trace_tell_the_same_steps() {
    let plan = plan(&[], 1);
    let left = train(&plan);
    let told: Vec<Step> = left
        .messages
        .iter()
        .filter_map(|message| if let Message::Step { line, .. } = message { Some((**line).clone()) } else { None })
        .collect();
    assert_eq!(told, left.steps(&plan));
    assert_eq!(told.len() as u64, plan.work.steps);
    let Some(Message::Ready { samples_per_epoch, parameters, cpu_capability, threads: 1, .. }) = left.messages.first()
    else {
        panic!("{:?}", left.messages.first());
    };
    assert_eq!((*samples_per_epoch, cpu_capability.as_str()), (plan.work.samples_per_epoch, "DEFAULT"));
    // Two embeddings, two blocks of 12 tensors, and the last normalisation.
    let block = 4 * 32 + (32 * 96 + 96) + (32 * 32 + 32) + (32 * 64 + 64) + (64 * 32 + 32);
    assert_eq!(*parameters, 256 * 32 + 16 * 32 + 2 * block + 64);
}

#[test]
fn the_loss_falls_and_every_stage_was_looked_at() {
    let plan = plan(&[("\"steps\":8", "\"steps\":40"), ("\"dropout\":0.1", "\"dropout\":0.0")], 1);
    let steps = train(&plan).steps(&plan);
    let loss = |step: &Step| step.loss.unwrap().get();
    assert!(loss(&steps[39]) < loss(&steps[0]) - 1.0, "{} to {}", loss(&steps[0]), loss(&steps[39]));
    // Untrained, all 256 bytes are about equally likely.
    assert!((loss(&steps[0]) - 256f64.ln()).abs() < 0.1);
    for step in &steps {
        assert!(step.stages.iter().all(|stage| stage.checked > 0 && stage.non_finite() == 0));
    }
    // Parameters and two moments.
    assert_eq!(steps[0].stages[4].checked, 3 * steps[0].stages[3].checked);
}

#[test]
fn a_flipped_byte_of_the_trace_breaks_the_chain_at_its_line() {
    let plan = plan(&[], 1);
    let mut trace = train(&plan).trace;
    let third = trace.split_inclusive(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum::<usize>();
    trace[third + 40] ^= 1;
    let (steps, bad) = read_steps(plan.id(), &trace);
    assert_eq!((steps.len(), bad.unwrap().line), (2, 3));
}

/// A stranger who has the model file alone can compute the last digest of the trace.
#[test]
fn the_last_digest_of_the_parameters_is_that_of_the_saved_model() {
    let plan = plan(&[], 1);
    let left = train(&plan);
    let file = left.output(WEIGHTS);
    let model = SafeTensors::deserialize(&file).unwrap();
    let mut names = model.names();
    names.sort_unstable();
    let mut hasher = TensorsHasher::new();
    for name in names {
        let tensor = model.tensor(name).unwrap();
        hasher.begin(["", name], tensor.shape().iter().map(|size| *size as u64));
        hasher.values(tensor.data());
    }
    assert_eq!(left.steps(&plan).last().unwrap().parameters, hasher.finish());
    let config = parse(&left.output("model/config.json")).unwrap();
    assert_eq!(config.get("n_positions").unwrap().canonical(), "16");
}

#[test]
fn a_partial_run_is_the_start_of_the_whole_one_and_writes_no_model() {
    let plan = plan(&[], 1);
    let (whole, part) = (train(&plan), Desk::new(&plan).train(&plan, Some(3)));
    assert_eq!(part.code, Some(0), "{}", part.stderr);
    assert_eq!(part.steps(&plan), whole.steps(&plan)[..3]);
    assert!(!part.wrote(WEIGHTS) && whole.wrote(WEIGHTS));
    let Some(Message::Completed { steps: 3, outputs }) = part.messages.last() else { panic!("{:?}", part.messages) };
    assert_eq!(outputs, &["trace/steps.jsonl"]);
}

/// Row R-03: the steps that are taken are those that the plan promised, under each policy.
#[test]
fn each_policy_takes_the_promised_steps_over_the_right_samples() {
    // 29 samples, batches of 6: five micro-batches an epoch, the last of five samples.
    let base = [
        ("\"samples\":4", "\"samples\":6"),
        ("{\"kind\":\"steps\",\"steps\":8}", "{\"kind\":\"epochs\",\"epochs\":3}"),
    ];
    let shapes = ["flush", "drop", "carry"].map(|policy| {
        let word = format!("\"accumulation_remainder\":\"{policy}\"");
        let plan = plan(&[base[0], base[1], ("\"accumulation_remainder\":\"flush\"", &word)], 1);
        assert_eq!((plan.work.samples_per_epoch, plan.work.micro_batches_per_epoch), (29, 5));
        let steps = train(&plan).steps(&plan);
        assert_eq!(steps.len() as u64, plan.work.steps);
        steps.iter().map(|step| (step.epoch, step.micro_batches)).collect::<Vec<_>>()
    });
    assert_eq!(shapes[0], [(0, 2), (0, 2), (0, 1), (1, 2), (1, 2), (1, 1), (2, 2), (2, 2), (2, 1)]);
    assert_eq!(shapes[1], [(0, 2), (0, 2), (1, 2), (1, 2), (2, 2), (2, 2)]);
    assert_eq!(shapes[2], [(0, 2), (0, 2), (1, 2), (1, 2), (1, 2), (2, 2), (2, 2)]);
}

/// Micro-batches count by their tokens: a step over 6 + 4 samples has the loss and the gradient of one batch of the ten.
#[test]
fn accumulated_micro_batches_are_one_batch_to_rounding() {
    let changes = [
        ("\"dropout\":0.1", "\"dropout\":0.0"),
        ("\"order\":\"shuffled\"", "\"order\":\"sequential\""),
        ("\"context\":16", "\"context\":46"),
        ("\"steps\":8", "\"steps\":2"),
    ];
    let first = |samples: &str, accumulation: &str| {
        let plan =
            plan(&[&changes[..], &[("\"samples\":4", samples), ("\"accumulation\":2", accumulation)]].concat(), 1);
        assert_eq!(plan.work.samples_per_epoch, 10);
        let steps = train(&plan).steps(&plan);
        (steps[0].loss.unwrap().get(), steps[0].gradient_norm.unwrap().get())
    };
    let together = first("\"samples\":10", "\"accumulation\":1");
    let apart = first("\"samples\":6", "\"accumulation\":2");
    assert!((together.0 - apart.0).abs() < 1e-5, "{together:?} {apart:?}");
    assert!((together.1 / apart.1 - 1.0).abs() < 1e-4, "{together:?} {apart:?}");
    let unlike = first("\"samples\":6", "\"accumulation\":1");
    assert!((together.1 / unlike.1 - 1.0).abs() > 1e-3, "{together:?} {unlike:?}");
}

/// Every recipe trains, and each learns something else.
#[test]
fn each_optimiser_schedule_and_clipping_changes_what_is_learned() {
    let adamw = "{\"kind\":\"adamw\",\"learning_rate\":0.003,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.1,\"decay\":\"matrices\"}";
    let sgd = |momentum: &str, nesterov: &str| {
        format!(
            "{{\"kind\":\"sgd\",\"learning_rate\":0.05,\"momentum\":{momentum},\"nesterov\":{nesterov},\"weight_decay\":0.01,\"decay\":\"all\"}}"
        )
    };
    let cosine = "{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}";
    let (without, momentum, nesterov) = (sgd("0.0", "false"), sgd("0.9", "false"), sgd("0.9", "true"));
    let recipes: [&[(&str, &str)]; 8] = [
        &[],
        &[(adamw, &without)],
        &[(adamw, &momentum)],
        &[(adamw, &nesterov)],
        &[(cosine, "{\"kind\":\"linear\",\"warmup_steps\":2,\"final_fraction\":0.1}")],
        &[(cosine, "{\"kind\":\"constant\",\"warmup_steps\":2}")],
        &[("{\"kind\":\"norm\",\"maximum\":1}", "{\"kind\":\"none\"}")],
        &[("\"decay\":\"matrices\"", "\"decay\":\"all\"")],
    ];
    let mut digests: Vec<Digest> = recipes
        .iter()
        .map(|changes| {
            let plan = plan(changes, 1);
            train(&plan).steps(&plan).last().unwrap().parameters
        })
        .collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), recipes.len());
}
