//! Every recipe that the trainer has, in combinations: a run that is restored in a new process goes on bit for bit.

use xt_core::digest::Digest;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::Step;
use xt_core::random::Stream;

use crate::desk::{Desk, LLAMA, Left, plan, tokenizer};
use crate::resume::changed;
use crate::{records, table};

/// The parts of the test candidate that are replaced.
const ADAMW: &str = "{\"kind\":\"adamw\",\"learning_rate\":0.003,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.1,\"decay\":\"matrices\"}";
const COSINE: &str = "{\"kind\":\"cosine\",\"warmup_steps\":2,\"final_fraction\":0.1}";
const NORM: &str = "{\"kind\":\"norm\",\"maximum\":1}";
const BATCHING: &str = "{\"samples\":4,\"remainder\":\"keep\",\"accumulation\":2,\"accumulation_remainder\":\"flush\"}";
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
    let precisions = ["\"precision\":\"float32\"", "\"precision\":\"float16\""];
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
                let schedule = if constant { &others[(n + n / 12) % others.len()] } else { schedule };
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
                    (precisions[0], precisions[n / 6 % 2].to_string()),
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
struct Checked {
    /// Steps that were taken again and compared.
    steps: usize,
    /// Control arms that differed or were refused.
    controls: usize,
}

impl std::iter::Sum for Checked {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self { steps: a.steps + b.steps, controls: a.controls + b.controls })
    }
}

fn check(number: u64, recipe: &[(&'static str, String)]) -> Checked {
    let plan = plan_of(recipe, number);
    check_plan(number, &plan, &|| Desk::new(&plan), &format!("{recipe:?}"))
}

/// Trains a plan whole, taking each state; restores one of them in a new process; and compares all that follows, line
/// by line and state by state. Every sixth time the three control arms, too: they must differ.
fn check_plan(number: u64, plan: &Plan, desk: &dyn Fn() -> Desk, what: &str) -> Checked {
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
    let controls = if number.is_multiple_of(6) { control(plan, desk, &straight, what) } else { 0 };
    Checked { steps: rest.len(), controls }
}

/// The control arms, without which equality would prove nothing: the optimiser's state set to 0 gives other parameters, and
/// a generator or a cursor that is one step further is refused before any step. Gives how many there were: an optimiser
/// without state has nothing that could be lost.
fn control(plan: &Plan, desk: &dyn Fn() -> Desk, straight: &Left, what: &str) -> usize {
    let (shot, next) = (straight.shot(plan, 2), straight.shot(plan, 3));
    let mut arms = 2;
    if shot.snapshot.optimizer.tensors.iter().any(|tensor| !tensor.name.starts_with("averaged/")) {
        let zeroed = changed(&shot, |_, optimizer| {
            let rows = optimizer.iter_mut().filter(|(name, _)| !name.starts_with("averaged/"));
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
    let recipes = recipes();
    assert_eq!(recipes.len(), 9 * 3 * 2 * 2);
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
        "float16",
    ];
    assert!(kinds.into_iter().all(has) && !has("rmsprop"));
    let halves = [0, 1].map(|half| {
        let recipes: Vec<_> = recipes.clone().into_iter().enumerate().skip(half).step_by(2).collect();
        std::thread::spawn(move || {
            recipes.iter().map(|(number, recipe)| check(*number as u64, recipe)).sum::<Checked>()
        })
    });
    let Checked { steps, controls } = halves.into_iter().map(|half| half.join().unwrap()).sum();
    let count = recipes.len();
    println!("{count} combinations, {steps} restored steps equal in every component, {controls} control arms not");
    assert!(steps > 2 * count && controls >= 2 * count.div_ceil(6));
}

/// Every ninth recipe, for a llama; those with groups name its parameters.
#[test]
fn a_llama_goes_on_bit_for_bit_too() {
    let (mut number, mut checked) = (0, Checked::default());
    for recipe in recipes().into_iter().step_by(9) {
        let mut recipe: Vec<(&'static str, String)> = recipe
            .into_iter()
            .filter(|(from, _)| !from.starts_with("\"layers\""))
            .map(|(from, to)| (from, to.replace("*.ln_?.*", "*norm*")))
            .collect();
        let tied = LLAMA.1.replace("\"tied\":false", if number % 2 == 0 { "\"tied\":false" } else { "\"tied\":true" });
        recipe.insert(0, (LLAMA.0, tied));
        checked = [checked, check(number, &recipe)].into_iter().sum();
        number += 1;
    }
    let Checked { steps, controls } = checked;
    println!(
        "{number} recipes of a llama, {steps} restored steps equal in every component, {controls} control arms not"
    );
    assert!(number == 12 && steps > 24 && controls >= 4);
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
    let (mut number, mut checked) = (0, Checked::default());
    for recipe in recipes().into_iter().step_by(5) {
        let mut recipe: Vec<(&'static str, String)> =
            recipe.into_iter().filter(|(from, _)| !from.starts_with("\"cpu_capability\"")).collect();
        recipe.push(("\"cpu_capability\":\"default\"", format!("\"cpu_capability\":\"{pin}\"")));
        recipe.push(("\"math_mode\":\"compatible\"", format!("\"math_mode\":\"{pin}\"")));
        checked = [checked, check(number, &recipe)].into_iter().sum();
        number += 1;
    }
    let Checked { steps, controls } = checked;
    println!(
        "{number} recipes under {pin}, {steps} restored steps equal in every component, {controls} control arms not"
    );
    assert!(number == 22 && steps > 44 && controls >= 8);
}

/// Tables and images with every optimiser and schedule, in both precisions; and records.
#[test]
fn tables_images_and_records_go_on_bit_for_bit_with_every_optimiser_schedule_and_precision() {
    const TABLE_ADAMW: &str = "{\"kind\":\"adamw\",\"learning_rate\":0.01,\"beta1\":0.9,\"beta2\":0.95,\"epsilon\":1e-8,\n        \"weight_decay\":0.01,\"decay\":\"matrices\"}";
    let (mut number, mut checked) = (0, Checked::default());
    let jobs = table::jobs();
    for (at, recipe) in recipes().into_iter().enumerate().step_by(4) {
        let find = |key: &str| &recipe.iter().find(|(from, _)| *from == key).unwrap().1;
        let job = jobs[at / 4 % jobs.len()];
        let changes = [
            (TABLE_ADAMW, find(ADAMW).as_str()),
            (COSINE, find(COSINE)),
            (NORM, find(NORM)),
            ("\"averaging\":{\"kind\":\"none\"}", find("\"averaging\":{\"kind\":\"none\"}")),
            ("\"precision\":\"float32\"", find("\"precision\":\"float32\"")),
        ];
        let plan = job.plan_of(job.changed(&changes), number);
        let one = check_plan(number, &plan, &|| job.desk(&plan), &format!("{changes:?}"));
        checked = [checked, one].into_iter().sum();
        number += 1;
    }
    let shuffled = ("\"order\":\"sequential\"", "\"order\":\"shuffled\"");
    let dropout = ("\"dropout\":0.0", "\"dropout\":0.3");
    let half = ("\"precision\":\"float32\"", "\"precision\":\"float16\"");
    let all = ("\"predicted\":\"completion\"", "\"predicted\":\"all\"");
    for changes in [&[][..], &[shuffled, dropout], &[shuffled, half], &[half, dropout, all]] {
        let plan = records::plan(&records::CLEAN, changes);
        let desk = || records::desk(&plan, &records::CLEAN);
        checked = [checked, check_plan(number, &plan, &desk, &format!("records {changes:?}"))].into_iter().sum();
        number += 1;
    }
    let Checked { steps, controls } = checked;
    println!("{number} combinations on tables, images and records, {steps} steps equal, {controls} control arms not");
    assert!(number == 27 + 4 && steps > 60 && controls >= 12);
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
