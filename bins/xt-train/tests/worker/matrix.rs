//! Every recipe that the trainer has, in combinations: a run that is restored in a new process goes on bit for bit.

use xt_core::digest::Digest;
use xt_core::manifest::dataset::Format;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Step;
use xt_core::random::Stream;

use crate::desk::{Desk, LLAMA, Left, plan, tokenizer};
use crate::resume::changed;
use crate::{encoder, module, records, table};

/// The parts of the test candidate that are replaced.
const ADAMW: &str = "{\"kind\":\"adamw\",\"learning_rate\":0.003,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.1,\"decay\":\"matrices\"}";
const TABLE_ADAMW: &str = "{\"kind\":\"adamw\",\"learning_rate\":0.01,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.01,\"decay\":\"matrices\"}";
const COSINE: &str = "{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}";
const NORM: &str = "{\"kind\":\"norm\",\"maximum\":1}";
const BATCHING: &str = "{\"samples\":4,\"remainder\":\"keep\",\"accumulation\":2,\"accumulation_remainder\":\"flush\"}";
const PRECISION: &str = "\"precision\":\"float32\"";
const LENGTH: &str = "{\"kind\":\"steps\",\"steps\":8}";

fn sgd(momentum: &str, nesterov: bool, decay: &str) -> String {
    format!(
        "{{\"kind\":\"sgd\",\"learning_rate\":0.05,\"momentum\":{momentum},\"nesterov\":{nesterov},\"weight_decay\":0.01,\"decay\":\"{decay}\"}}"
    )
}

const ADAM: &str =
    r#"{"kind":"adam","learning_rate":0.003,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,"weight_decay":0.1,"decay":"all"}"#;
const LION: &str =
    r#"{"kind":"lion","learning_rate":0.0005,"beta1":0.9,"beta2":0.99,"weight_decay":0.3,"decay":"matrices"}"#;
const ADAFACTOR: &str = r#"{"kind":"adafactor","learning_rate":0.02,"decay_power":0.8,"epsilon":1e-7,
    "minimum_scale":0.001,"update_limit":1.0,"weight_decay":0.1,"decay":"matrices"}"#;
const STABLE: &str =
    r#"{"kind":"warmup-stable-decay","warmup_steps":1,"decay_steps":2,"final_fraction":0.1,"curve":"CURVE"}"#;

/// The optimisers, all of which are combined with all schedules, clippings and dropouts; the other parts take turns.
fn recipes() -> Vec<Vec<(&'static str, String)>> {
    let optimizers = [
        ADAMW.to_string(),
        ADAMW.replace("matrices", "all"),
        ADAMW.replace("0.1,", "0.0,").replace("0.95", "0.5"),
        sgd("0.0", false, "all"),
        sgd("0.9", false, "matrices"),
        sgd("0.9", true, "all"),
        ADAM.to_string(),
        LION.to_string(),
        ADAFACTOR.to_string(),
    ];
    let schedules = [
        COSINE.to_string(),
        r#"{"kind":"linear","warmup_steps":3,"final_fraction":0.0}"#.into(),
        r#"{"kind":"constant","warmup_steps":0}"#.into(),
    ];
    let others = [
        r#"{"kind":"step","warmup_steps":1,"every":2,"factor":0.5}"#.to_string(),
        r#"{"kind":"inverse-square-root","warmup_steps":2,"timescale_steps":3}"#.into(),
        STABLE.replace("CURVE", "linear"),
        STABLE.replace("CURVE", "one-minus-root"),
    ];
    let clippings = [NORM, "{\"kind\":\"none\"}"];
    let by_value = r#"{"kind":"value","maximum":0.01}"#;
    let dropouts = ["\"dropout\":0.1", "\"dropout\":0.0"];
    let batchings = [
        BATCHING.to_string(),
        BATCHING.replace("flush", "carry"),
        BATCHING.replace("flush", "drop").replace("keep", "drop"),
        BATCHING.replace("\"accumulation\":2", "\"accumulation\":1").replace("\"samples\":4", "\"samples\":7"),
        BATCHING
            .replace("\"samples\":4", "\"samples\":6")
            .replace("flush", "carry")
            .replace("\"accumulation\":2", "\"accumulation\":3"),
    ];
    let lengths = ["{\"kind\":\"steps\",\"steps\":8}", "{\"kind\":\"epochs\",\"epochs\":3}"];
    let orders = ["\"order\":\"shuffled\"", "\"order\":\"sequential\""];
    let separators = ["\"separator\":0", "\"separator\":null"];
    let bytes = "{\"kind\":\"bytes\"}".to_string();
    let file = format!("{{\"kind\":\"huggingface\",\"digest\":\"{}\"}}", Digest::of(tokenizer().as_bytes()));
    let tokenizers = [bytes.clone(), file];
    let capabilities = ["\"cpu_capability\":\"default\"", "\"cpu_capability\":\"avx2\""];
    let models =
        ["\"layers\":2,\"heads\":2,\"width\":32,\"inner\":64", "\"layers\":1,\"heads\":4,\"width\":24,\"inner\":40"];
    let precisions =
        ["float32", "float16", "bfloat16", "float16-scaled"].map(|precision| format!("\"precision\":\"{precision}\""));
    let stops = ["\"non_finite\":\"hold\"", "\"non_finite\":\"record\""];
    let objectives = ["0.0,\"z_loss\":0.0", "0.1,\"z_loss\":0.001"].map(|to| format!("\"label_smoothing\":{to}"));
    let averagings = [
        r#""averaging":{"kind":"none"}"#,
        r#""averaging":{"kind":"exponential","decay":0.9,"first_step":1}"#,
        r#""averaging":{"kind":"exponential","decay":0.5,"first_step":4}"#,
    ];
    let groups = [
        "\"groups\":[]",
        r#""groups":[{"pattern":"*.ln_?.*","treatment":{"kind":"frozen"}},
            {"pattern":"*.mlp.*","treatment":{"kind":"trained","learning_rate_factor":0.3,"weight_decay":0.2}}]"#,
    ];
    let mut all = Vec::new();
    for optimizer in &optimizers {
        for schedule in &schedules {
            for (clipping, dropout) in clippings.iter().flat_map(|c| dropouts.iter().map(move |d| (c, d))) {
                let n = all.len();
                // The schedules beyond the first three take turns in the place of the constant one.
                let constant = schedule.contains("constant") && n % 3 > 0;
                let schedule = if constant { &others[(n / 2 + n / 12) % others.len()] } else { schedule };
                let clipping = if *clipping != NORM && n % 5 < 3 { &by_value } else { clipping };
                all.push(vec![
                    (ADAMW, optimizer.clone()),
                    (COSINE, schedule.clone()),
                    (NORM, (*clipping).to_string()),
                    ("\"dropout\":0.1", (*dropout).to_string()),
                    (BATCHING, batchings[n % batchings.len()].clone()),
                    (LENGTH, lengths[n / 2 % 2].to_string()),
                    (orders[0], orders[n / 3 % 2].to_string()),
                    (separators[0], separators[n / 5 % 2].to_string()),
                    (bytes.as_str().to_string().leak(), tokenizers[n / 7 % 2].clone()),
                    (capabilities[0], capabilities[n / 11 % 2].to_string()),
                    (models[0], models[n / 13 % 2].to_string()),
                    (objectives[0].clone().leak(), objectives[n / 2 % 2].clone()),
                    (averagings[0], averagings[n % 3].to_string()),
                    (groups[0], groups[n / 3 % 2].to_string()),
                    (stops[0], stops[n / 4 % 2].to_string()),
                    (PRECISION, precisions[(n / 2 + n / 12) % 4].clone()),
                ]);
            }
        }
    }
    all
}

fn plan_of(recipe: &[(&'static str, String)], seed: u64) -> Plan {
    let changes: Vec<(&str, &str)> = recipe.iter().map(|(from, to)| (*from, to.as_str())).collect();
    plan(&changes, seed)
}

const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };

/// What a check looked at.
#[derive(Clone, Copy, Default)]
pub struct Checked {
    /// Steps that were taken again and compared.
    pub steps: usize,
    /// Control arms that differed or were refused.
    pub controls: usize,
}

impl std::iter::Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self { steps: a.steps + b.steps, controls: a.controls + b.controls })
    }
}

/// One combination: a plan, what lays its inputs on a desk, and how a failure names it.
pub struct Case {
    pub plan: Plan,
    pub desk: Box<dyn Fn(&Plan) -> Desk + Sync>,
    pub what: String,
}

impl Case {
    fn of(recipe: &[(&'static str, String)], seed: u64) -> Self {
        Self { plan: plan_of(recipe, seed), desk: Box::new(Desk::new), what: format!("{recipe:?}") }
    }
}

/// Checks all cases, two at a time, prints how many there were and what was seen, and gives their number.
fn check_all(kind: &str, cases: &[Case]) -> usize {
    let half = |first: usize| {
        let mine = cases.iter().enumerate().skip(first).step_by(2);
        mine.map(|(number, case)| check(number as u64, case)).sum::<Checked>()
    };
    let Checked { steps, controls } = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        [half(0), other.join().unwrap()].into_iter().sum()
    });
    let count = cases.len();
    println!(
        "{count} combinations {kind}, {steps} restored steps equal in every component, {controls} control arms not"
    );
    assert!(steps > 2 * count && controls >= 2 * count.div_ceil(6));
    count
}

/// Trains a plan whole, taking each state; restores one of them in a new process; and compares all that follows, line
/// by line and state by state. Every sixth time the three control arms, too: they must differ.
pub fn check(number: u64, case: &Case) -> Checked {
    let Case { plan, what, .. } = case;
    let desk = || (case.desk)(plan);
    let straight = desk().train_part(plan, None, &EACH, None);
    assert_eq!(straight.code, Some(0), "{what}: {}", straight.stderr);
    let (steps, last) = (straight.told(), plan.work.steps);
    let at = 1 + Stream::new(number, "restore", 0).word(0) % (last - 1);
    let resumed = desk().train_part(plan, None, &EACH, Some(&straight.shot(plan, at)));
    assert_eq!(resumed.code, Some(0), "{what}: {}", resumed.stderr);
    let rest: Vec<Step> = resumed.told();
    // Each line holds the digests of samples, gradients, parameters, optimiser, generator and cursor, and the chain.
    assert_eq!(rest, steps[usize::try_from(at).unwrap()..], "{what} restored after step {at}");
    for step in at + 1..=last {
        let (first, second) = (straight.shot(plan, step), resumed.shot(plan, step));
        assert_eq!(first.snapshot, second.snapshot);
        assert!(first.parameters == second.parameters && first.optimizer == second.optimizer);
    }
    assert_eq!(resumed.output("model/model.safetensors"), straight.output("model/model.safetensors"));
    assert_eq!(straight.shot(plan, last).parameters, straight.output("model/model.safetensors"));
    let controls = if number.is_multiple_of(6) { control(case, &straight) } else { 0 };
    Checked { steps: rest.len(), controls }
}

/// The control arms, without which equality would prove nothing: the optimiser's state set to 0 gives other parameters, and
/// a generator or a cursor that is one step further is refused before any step. Gives how many there were: an optimiser
/// without state has nothing that could be lost.
fn control(case: &Case, straight: &Left) -> usize {
    let Case { plan, what, .. } = case;
    let desk = || (case.desk)(plan);
    let (shot, next) = (straight.shot(plan, 2), straight.shot(plan, 3));
    let mut arms = 2;
    let moment = |name: &str| !name.starts_with("averaged/") && !name.starts_with("loss_scaler/");
    if shot.snapshot.optimizer.tensors.iter().any(|tensor| moment(&tensor.name)) {
        let zeroed = changed(&shot, |_, optimizer| {
            let rows = optimizer.iter_mut().filter(|(name, _)| moment(name));
            rows.for_each(|(_, (_, values))| values.fill(0.0));
        });
        let left = desk().train_part(plan, Some(3), &EACH, Some(&zeroed));
        assert_eq!(left.code, Some(0), "{what}: {}", left.stderr);
        assert_ne!(left.told()[0].parameters, straight.told()[2].parameters, "{what}: optimiser zeroed");
        arms += 1;
    }
    let mut shifted = shot.clone();
    shifted.snapshot.generator.clone_from(&next.snapshot.generator);
    let mut moved = shot;
    moved.snapshot.cursor.clone_from(&next.snapshot.cursor);
    for (arm, word) in [(shifted, "snapshot#/generator"), (moved, "snapshot#/cursor")] {
        let left = desk().train_part(plan, Some(3), &EACH, Some(&arm));
        assert_eq!((left.code, left.told().len()), (Some(1), 0), "{what}: {}", left.stderr);
        assert!(left.failure().contains(word), "{what}: {}", left.failure());
    }
    arms
}

#[test]
fn every_recipe_goes_on_bit_for_bit_from_a_random_step_in_a_new_process() {
    // Half of them, so that each clipping and each dropout still meets each optimiser.
    let half = |(n, recipe): (usize, _)| (n + n / 4).is_multiple_of(2).then_some(recipe);
    let recipes: Vec<_> = recipes().into_iter().enumerate().filter_map(half).collect();
    let has = |what: &str| recipes.iter().any(|recipe| recipe.iter().any(|(_, to)| to.contains(what)));
    let kinds = [
        "adafactor",
        "lion",
        "\"adam\"",
        "inverse-square-root",
        "one-minus-root",
        "\"step\"",
        "\"linear\"}",
        "value",
        "frozen",
        "exponential",
        "\"z_loss\":0.001",
        "\"float32\"",
        "\"float16\"",
        "bfloat16",
        "float16-scaled",
    ];
    assert!(kinds.into_iter().all(has) && !has("rmsprop"));
    let cases: Vec<Case> = recipes.iter().zip(0..).map(|(recipe, seed)| Case::of(recipe, seed)).collect();
    assert_eq!(check_all("of a gpt", &cases), 9 * 3 * 2);
}

/// Every ninth recipe, for a llama; those with groups name its parameters.
#[test]
fn a_llama_goes_on_bit_for_bit_too() {
    let llama = |(recipe, seed): (Vec<(&'static str, String)>, u64)| {
        let kept = recipe.into_iter().filter(|(from, _)| !from.starts_with("\"layers\""));
        let mut recipe: Vec<_> = kept.map(|(from, to)| (from, to.replace("*.ln_?.*", "*norm*"))).collect();
        let tied = if seed.is_multiple_of(2) { "\"tied\":false" } else { "\"tied\":true" };
        recipe.insert(0, (LLAMA.0, LLAMA.1.replace("\"tied\":false", tied)));
        Case::of(&recipe, seed)
    };
    let cases: Vec<Case> = recipes().into_iter().step_by(9).zip(0..).map(llama).collect();
    assert_eq!(check_all("of a llama", &cases), 12);
}

/// The fastest pins of this processor, under which attention is one kernel and the matrix library is not strict, with heads
/// whose values lie at odd places.
#[test]
fn the_fastest_pins_go_on_bit_for_bit_too() {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if !processor.contains("GenuineIntel") || !std::arch::is_x86_feature_detected!("avx2") {
        return println!("not run here: the matrix library has these modes on Intel processors alone");
    }
    let wide = std::arch::is_x86_feature_detected!("avx512bw") && std::arch::is_x86_feature_detected!("avx512vl");
    let pin = if wide { "avx512" } else { "avx2" };
    let pinned = |(recipe, seed): (Vec<(&'static str, String)>, u64)| {
        let kept = recipe.into_iter().filter(|(from, _)| !from.starts_with("\"cpu_capability\""));
        let mut recipe: Vec<_> = kept.collect();
        recipe.push(("\"cpu_capability\":\"default\"", format!("\"cpu_capability\":\"{pin}\"")));
        recipe.push(("\"math_mode\":\"compatible\"", format!("\"math_mode\":\"{pin}\"")));
        Case::of(&recipe, seed)
    };
    let cases: Vec<Case> = recipes().into_iter().step_by(7).zip(0..).map(pinned).collect();
    assert_eq!(check_all(&format!("of a gpt under {pin}"), &cases), 16);
}

/// Products in bfloat16 by the processor's own instructions.
#[test]
fn bfloat16_at_the_speed_of_the_processor_goes_on_bit_for_bit_too() {
    if !std::arch::is_x86_feature_detected!("avx512bf16") {
        return println!("not run here: the processor has no avx512_bf16");
    }
    let pinned = |(recipe, seed): (Vec<(&'static str, String)>, u64)| {
        let own = |from: &str| from.starts_with("\"cpu_capability\"") || from == PRECISION;
        let mut recipe: Vec<_> = recipe.into_iter().filter(|(from, _)| !own(from)).collect();
        recipe.push(("\"cpu_capability\":\"default\"", "\"cpu_capability\":\"avx512-bf16\"".into()));
        recipe.push(("\"onednn\":false", "\"onednn\":true".into()));
        recipe.push((PRECISION, "\"precision\":\"bfloat16\"".into()));
        Case::of(&recipe, seed)
    };
    let cases: Vec<Case> = recipes().into_iter().step_by(27).zip(0..).map(pinned).collect();
    assert_eq!(check_all("of a gpt in bfloat16", &cases), 4);
}

/// What a recipe says that fits a candidate with the text of the table job, whose schedule is `schedule`.
fn shared<'a>(recipe: &'a [(&'static str, String)], schedule: &'a str) -> [(&'a str, &'a str); 5] {
    const AVERAGING: &str = "\"averaging\":{\"kind\":\"none\"}";
    let find = |key: &str| recipe.iter().find(|(from, _)| *from == key).unwrap().1.as_str();
    [
        (TABLE_ADAMW, find(ADAMW)),
        (schedule, find(COSINE)),
        (NORM, find(NORM)),
        (AVERAGING, find(AVERAGING)),
        (PRECISION, find(PRECISION)),
    ]
}

/// An encoder over texts with a class, with each optimiser.
#[test]
fn an_encoder_goes_on_bit_for_bit_with_every_optimiser() {
    const CONSTANT: &str = "{\"kind\":\"constant\",\"warmup_steps\":2}";
    let desk = |plan: &Plan| {
        let desk = Desk::new(plan);
        desk.give(encoder::file(Format::Jsonl).as_bytes());
        desk
    };
    let case = |recipe: Vec<(&'static str, String)>| {
        let changes = shared(&recipe, CONSTANT);
        Case { plan: encoder::plan(Format::Jsonl, &changes), desk: Box::new(desk), what: format!("{changes:?}") }
    };
    let cases: Vec<Case> = recipes().into_iter().skip(5).step_by(12).map(case).collect();
    assert_eq!(check_all("of an encoder", &cases), 9);
}

/// A module of TorchScript, which draws by itself and whose buffers change as it computes, with every optimiser.
#[test]
fn a_module_goes_on_bit_for_bit_with_every_optimiser() {
    let case = |recipe: Vec<(&'static str, String)>| {
        let changes = shared(&recipe, COSINE);
        let what = format!("module {changes:?}");
        Case { plan: module::plan(&changes, 3), desk: Box::new(module::desk), what }
    };
    let cases: Vec<Case> = recipes().into_iter().skip(5).step_by(12).map(case).collect();
    assert_eq!(check_all("of a module", &cases), 9);
}

/// A buffer that was not restored would be seen: without it the next steps are others.
#[test]
fn a_module_whose_buffers_are_lost_goes_on_otherwise() {
    let plan = module::plan(&[], 3);
    let straight = module::desk(&plan).train_part(&plan, None, &EACH, None);
    let zeroed = changed(&straight.shot(&plan, 2), |parameters, _| {
        let (_, values) = parameters.get_mut("mean").unwrap();
        values.fill(0.0);
    });
    let left = module::desk(&plan).train_part(&plan, Some(3), &EACH, Some(&zeroed));
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    assert_ne!(left.told()[0].loss_bits, straight.told()[2].loss_bits);
}

/// Tables and images with every optimiser and schedule, in every precision; and records.
#[test]
fn tables_images_and_records_go_on_bit_for_bit_with_every_optimiser_schedule_and_precision() {
    let jobs = table::jobs();
    let mut cases = Vec::new();
    for (number, recipe) in recipes().into_iter().step_by(4).enumerate() {
        let job = jobs[number % jobs.len()];
        let changes = shared(&recipe, COSINE);
        let plan = job.plan_of(job.changed(&changes), number as u64);
        cases.push(Case { plan, desk: Box::new(move |plan| job.desk(plan)), what: format!("{changes:?}") });
    }
    let shuffled = ("\"order\":\"sequential\"", "\"order\":\"shuffled\"");
    let dropout = ("\"dropout\":0.0", "\"dropout\":0.3");
    let half = (PRECISION, "\"precision\":\"float16\"");
    let all = ("\"predicted\":\"completion\"", "\"predicted\":\"all\"");
    for changes in [&[][..], &[shuffled, dropout], &[shuffled, half], &[half, dropout, all]] {
        let plan = records::plan(&records::CLEAN, changes);
        let desk = Box::new(|plan: &Plan| records::desk(plan, &records::CLEAN));
        cases.push(Case { plan, desk, what: format!("records {changes:?}") });
    }
    assert_eq!(check_all("on tables, images and records", &cases), 27 + 4);
}

#[test]
fn chains_of_three_restores_give_what_one_run_gives() {
    let mut chains = 0;
    for (number, recipe) in recipes().iter().enumerate().step_by(12) {
        let plan = plan_of(recipe, number as u64);
        let whole = Desk::new(&plan).train_part(&plan, None, &EACH, None);
        let last = plan.work.steps;
        let cuts = [last / 4, last / 2, 3 * last / 4].map(|cut| cut.max(1));
        let mut left = Desk::new(&plan).train_part(&plan, Some(cuts[0]), &EACH, None);
        let mut steps = left.told();
        for (from, to) in cuts.iter().zip(cuts[1..].iter().map(|cut| Some(*cut)).chain([None])) {
            let shot = left.shot(&plan, *from);
            left = Desk::new(&plan).train_part(&plan, to, &EACH, Some(&shot));
            assert_eq!(left.code, Some(0), "{recipe:?}: {}", left.stderr);
            steps.extend(left.told());
        }
        assert_eq!(steps, whole.told(), "{recipe:?} cut after {cuts:?}");
        assert_eq!(left.output("model/model.safetensors"), whole.output("model/model.safetensors"));
        chains += 1;
    }
    println!("{chains} chains of three restores");
    assert_eq!(chains, recipes().len().div_ceil(12));
}
