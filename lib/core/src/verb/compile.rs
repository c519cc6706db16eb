//! From a candidate to a plan: is everything declared, does it fit together, and what exactly will run?

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::count::counted;
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest;
use crate::fingerprint;
use crate::manifest::candidate::{
    Averaging, Candidate, Clipping, Early, Model, Optimizer, Schedule, Tokenizer, Treatment,
};
use crate::manifest::command::Hypothesis;
use crate::manifest::dataset::{Dataset, Member};
use crate::manifest::encoding::Fitted;
use crate::manifest::intent::Intent;
use crate::manifest::plan::{Ground, Input, Mode, Plan, Role, Work};
use crate::order::{Shape, samples_per_epoch};
use crate::verb::environment::environment;
use crate::verb::{adapter, admit, command, depart, envelope, evaluate, fit, groups, regime};

/// What was found out about the tokenizer, for which text must be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Distinct tokens of the tokenizer.
    pub vocabulary: u64,
    /// Tokens of the split, separators included.
    pub count: u64,
    /// Size of the tokenizer file; 0 for bytes.
    pub tokenizer_bytes: u64,
}

/// The members of the candidate's split, in the order in which they are joined.
pub fn members<'a>(candidate: &Candidate, dataset: &'a Dataset) -> Vec<&'a Member> {
    dataset.members.iter().filter(|member| member.split == candidate.data.split).collect()
}

/// Notes what makes a candidate impossible, alone and with its dataset and intent, before any text is read.
pub fn check(candidate: &Candidate, dataset: &Dataset, intent: &Intent, faults: &mut Faults) {
    check_model(candidate, faults);
    fit::model(candidate, faults);
    fit::columns(candidate, faults);
    fit::objective(candidate, faults);
    check_recipe(candidate, faults);
    let mut data = Faults::new();
    admit::check(dataset, &mut data);
    faults.0.extend(data.within("dataset").0);
    if dataset.id() != candidate.data.dataset {
        let message =
            format!("the candidate names {}, the dataset at hand is {}", candidate.data.dataset, dataset.id());
        faults.add("/data/dataset", "data.other", message);
    }
    if members(candidate, dataset).is_empty() {
        let known: Vec<&str> = dataset.counts.keys().map(String::as_str).collect();
        let message = format!("the dataset has no split {}; it has {}", candidate.data.split, known.join(", "));
        faults.add("/data/split", "data.split", message);
    }
    fit::format(candidate, dataset, faults);
    check_host(candidate, intent, faults);
}

/// Notes what the intent does not grant.
pub(crate) fn check_host(candidate: &Candidate, intent: &Intent, faults: &mut Faults) {
    envelope::check(intent, faults);
    if !intent.secrets.is_empty() {
        faults.add(
            "intent#/secrets",
            "intent.secret",
            "the trainer of this toolkit has no use for secrets: commands have",
        );
    }
    if intent.resources.cores < candidate.execution.threads {
        let (cores, threads) = (intent.resources.cores, candidate.execution.threads);
        let message = format!("{threads} threads do not fit into the {cores} cores of the intent");
        faults.add("/execution/threads", "intent.cores", message);
    }
    if let Some(accelerator) = intent.resources.accelerators.first() {
        let message = format!("no device of this version is an accelerator, so {accelerator} cannot be had");
        faults.add("intent#/resources/accelerators/0", "intent.accelerator", message);
    }
}

fn check_model(candidate: &Candidate, faults: &mut Faults) {
    let (heads, width, deviation) = match &candidate.model {
        Model::Gpt { heads, width, layer_norm_epsilon, initializer_range, .. }
        | Model::Encoder { heads, width, layer_norm_epsilon, initializer_range, .. } => {
            single("/model/layer_norm_epsilon", layer_norm_epsilon.get(), faults);
            (heads, width, initializer_range)
        }
        Model::Llama { heads, width, key_value_heads, rms_norm_epsilon, initializer_range, .. } => {
            single("/model/rms_norm_epsilon", rms_norm_epsilon.get(), faults);
            if heads % key_value_heads != 0 {
                let message = format!("{heads} heads are no multiple of {key_value_heads} heads of keys and values");
                faults.add("/model/key_value_heads", "model.shape", message);
            }
            if width % heads == 0 && (width / heads) % 2 != 0 {
                let message = format!("a head has {} values, and rotary positions need an even number", width / heads);
                faults.add("/model/width", "model.shape", message);
            }
            (heads, width, initializer_range)
        }
        Model::Mlp { .. } | Model::Cnn { .. } | Model::TorchScript { .. } => return,
    };
    if width % heads != 0 {
        faults.add("/model/width", "model.shape", format!("the width {width} is no multiple of {heads} heads"));
    }
    let vocabulary = candidate.model.vocabulary();
    if let Some(separator) = candidate.data.separator.filter(|separator| *separator >= vocabulary) {
        let message = format!("the separator {separator} is outside the vocabulary of {vocabulary} tokens");
        faults.add("/data/separator", "tokenizer.vocabulary", message);
    }
    let (start, end) = match &candidate.tokenizer {
        Tokenizer::Records { end, .. } => (None, *end),
        Tokenizer::Labelled { start, end, .. } => (*start, *end),
        _ => (None, None),
    };
    for (at, token) in [("/tokenizer/start", start), ("/tokenizer/end", end)] {
        if let Some(token) = token.filter(|token| *token >= vocabulary) {
            let message = format!("the token {token} is outside the vocabulary of {vocabulary} tokens");
            faults.add(at, "tokenizer.vocabulary", message);
        }
    }
    single("/model/initializer_range", deviation.get(), faults);
}

fn check_recipe(candidate: &Candidate, faults: &mut Faults) {
    single("/optimizer/learning_rate", candidate.optimizer.learning_rate().get(), faults);
    match &candidate.optimizer {
        Optimizer::AdamW { epsilon, .. } | Optimizer::Adam { epsilon, .. } => {
            single("/optimizer/epsilon", epsilon.get(), faults);
        }
        Optimizer::Adafactor { epsilon, minimum_scale, update_limit, .. } => {
            // The square of it is used, too.
            single("/optimizer/epsilon", epsilon.get() * epsilon.get(), faults);
            single("/optimizer/minimum_scale", minimum_scale.get(), faults);
            single("/optimizer/update_limit", update_limit.get(), faults);
        }
        Optimizer::Sgd { momentum, nesterov: true, .. } if momentum.get() == 0.0 => {
            faults.add("/optimizer/nesterov", "optimizer.nesterov", "Nesterov's step needs a momentum above 0");
        }
        Optimizer::Sgd { .. } | Optimizer::Lion { .. } => {}
    }
    adapter::check(candidate, faults);
    groups::check(candidate, faults);
    for (place, group) in candidate.groups.iter().enumerate() {
        if let Treatment::Trained { learning_rate_factor, .. } = &group.treatment {
            let rate = candidate.optimizer.learning_rate().get() * learning_rate_factor.get();
            single(&format!("/groups/{place}/treatment/learning_rate_factor"), rate, faults);
        }
    }
    if let Averaging::Exponential { decay, .. } = &candidate.averaging {
        single("/averaging/decay", 1.0 - decay.get(), faults);
    }
    if let Clipping::Norm { maximum } | Clipping::Value { maximum } = &candidate.clipping {
        single("/clipping/maximum", maximum.get(), faults);
    }
    if let Early::TrainingLoss { target: None, patience: None, limit: None, .. } = &candidate.stops.early {
        let message = "a run that may stop early declares a target, a patience or a limit; `none` goes on to the end";
        faults.add("/stops/early", "early.condition", message);
    }
    if let Early::TrainingLoss { target: Some(target), limit: Some(limit), .. } = &candidate.stops.early
        && target.get() > limit.get()
    {
        let message = format!("the target {target} lies above the limit {limit}, so it could never be reached");
        faults.add("/stops/early/target", "early.condition", message);
    }
    if let Early::TrainingLoss { target, limit, patience, minimum_improvement, .. } = &candidate.stops.early {
        for (at, bound) in [("/stops/early/target", target), ("/stops/early/limit", limit)] {
            match bound {
                Some(bound) if bound.get() < 0.0 => {
                    let message = format!("no loss is below 0, and this is {bound}");
                    faults.add(at, "early.condition", message);
                }
                // A loss of exactly 0 may be asked for.
                Some(bound) if bound.get() > 0.0 => single(at, bound.get(), faults),
                _ => {}
            }
        }
        if limit.is_some_and(|limit| limit.get() == 0.0) {
            faults.add(
                "/stops/early/limit",
                "early.condition",
                "every loss lies above a limit of 0, so the first look would hold the run",
            );
        }
        if minimum_improvement.get() != 0.0 {
            single("/stops/early/minimum_improvement", minimum_improvement.get(), faults);
            if patience.is_none() {
                let message =
                    format!("without a patience nothing waits for an improvement of {minimum_improvement}; say 0");
                faults.add("/stops/early/minimum_improvement", "early.improvement", message);
            }
        }
    }
}

/// A value that 32-bit arithmetic turns into 0 or infinity would not be honoured.
pub(crate) fn single(at: &str, value: f64, faults: &mut Faults) {
    #[expect(clippy::cast_possible_truncation, reason = "whether it truncates is the question")]
    let narrowed = value as f32;
    if narrowed == 0.0 || narrowed.is_infinite() {
        faults.add(at, "field.range", format!("{value:e} is {narrowed} in 32-bit numbers"));
    }
}

/// Samples of so many tokens, records, rows or images.
pub const fn samples(candidate: &Candidate, count: u64) -> u64 {
    if candidate.tokenizer.whole() { count } else { samples_per_epoch(count, candidate.model.context()) }
}

/// The plan of one run over text, once the text was counted. Notes everything that `check` could not see.
pub fn compile(
    candidate: Candidate,
    dataset: Dataset,
    intent: Intent,
    seed: u64,
    tokens: Tokens,
) -> Result<Plan, Faults> {
    compile_fitted(candidate, dataset, intent, seed, (tokens, Vec::new()))
}

/// What was seen of the files that a candidate names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What was counted.
    pub tokens: Tokens,
    /// What scales numbers.
    pub fitted: Vec<Fitted>,
    /// The files of the base.
    pub base: Vec<Input>,
}

/// The plan of one run, once the data were counted and, for numbers, what scales them was fitted.
pub fn compile_fitted(
    candidate: Candidate,
    dataset: Dataset,
    intent: Intent,
    seed: u64,
    (tokens, fitted): (Tokens, Vec<Fitted>),
) -> Result<Plan, Faults> {
    compile_seen(candidate, dataset, intent, seed, Seen { tokens, fitted, base: Vec::new() })
}

/// The plan of one run, once all files that the candidate names were looked at.
pub fn compile_seen(
    candidate: Candidate,
    dataset: Dataset,
    intent: Intent,
    seed: u64,
    Seen { tokens, fitted, base }: Seen,
) -> Result<Plan, Faults> {
    let mut faults = Faults::new();
    check_base(candidate.base.files(), &base, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let chosen = members(&candidate, &dataset);
    let count = tokens.count;
    let vocabulary = candidate.model.vocabulary();
    if tokens.vocabulary > vocabulary {
        let has = tokens.vocabulary;
        let message = format!("the tokenizer has {has} tokens, more than the {vocabulary} of the model");
        faults.add("/model/vocabulary", "tokenizer.vocabulary", message);
    }
    let samples = samples(&candidate, count);
    let shape = Shape::new(samples, candidate.batching, candidate.data.order, &candidate.length);
    let shape = match shape {
        Ok(shape) => shape,
        Err(error) => {
            let message = if candidate.tokenizer.whole() {
                format!("there are {samples} samples: {error}")
            } else {
                let context = candidate.model.context();
                format!("{count} tokens give {samples} samples of {context} tokens: {error}")
            };
            faults.add("/batching", "data.too-little", message);
            return Err(faults);
        }
    };
    if let Averaging::Exponential { first_step, .. } = &candidate.averaging
        && *first_step > shape.steps
    {
        let message = format!("an average from step {first_step} on never begins in a run of {} steps", shape.steps);
        faults.add("/averaging/first_step", "averaging.first-step", message);
    }
    if let Early::TrainingLoss { window, patience, .. } = &candidate.stops.early {
        let looks = shape.steps / (*window).max(1);
        if looks == 0 {
            let message = format!("a window of {window} steps is never full in a run of {} steps", shape.steps);
            faults.add("/stops/early/window", "early.window", message);
        } else if let Some(patience) = patience.filter(|patience| *patience >= looks) {
            // The first look is always an improvement.
            let message = format!(
                "a patience of {patience} never runs out: {} steps are {}",
                shape.steps,
                counted(looks, "look")
            );
            faults.add("/stops/early/patience", "early.patience", message);
        }
    }
    let warmup = candidate.schedule.warmup_steps();
    if warmup > shape.steps {
        let message = format!("{warmup} warm-up steps are more than the {} steps of the run", shape.steps);
        faults.add("/schedule/warmup_steps", "schedule.warmup", message);
    } else if let Schedule::WarmupStableDecay { decay_steps, .. } = &candidate.schedule
        && *decay_steps > shape.steps - warmup
    {
        let (left, all) = (shape.steps - warmup, shape.steps);
        let message =
            format!("a fall of {decay_steps} steps does not fit into the {left} of {all} steps after the rise");
        faults.add("/schedule/decay_steps", "schedule.decay", message);
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let work = Work {
        tokens: count,
        samples_per_epoch: samples,
        micro_batches_per_epoch: shape.micro_batches,
        steps: shape.steps,
    };
    let inputs = inputs(&candidate, &chosen, tokens.tokenizer_bytes, base);
    let mut plan = Plan {
        mode: Mode::Mainline,
        fingerprint: fingerprint::candidate(&candidate),
        seed,
        evaluation: None,
        departure: None,
        ground: Ground::None {},
        inputs,
        fitted,
        work,
        environment: environment(&candidate.execution),
        request: Digest::of(b""),
        program: None,
        candidate: candidate.into(),
        dataset: Some(dataset),
        intent,
    };
    plan.request = fingerprint::request(&plan);
    Ok(plan)
}

/// Notes inputs that are not the files of a base.
pub(crate) fn check_base(due: Option<[Digest; 2]>, base: &[Input], faults: &mut Faults) {
    let due: BTreeSet<Digest> = due.into_iter().flatten().collect();
    let found: BTreeSet<Digest> = base.iter().map(|input| input.digest).collect();
    if due != found {
        faults.add("/base", "base.missing", "the files at hand are not those of the base");
    }
}

/// The files of the base among the inputs of a plan.
pub fn base_inputs(plan: &Plan) -> Vec<Input> {
    plan.inputs.iter().filter(|input| input.role == Role::Base).cloned().collect()
}

/// Every file the trainer may read, once, sorted by digest.
fn inputs(candidate: &Candidate, chosen: &[&Member], tokenizer_bytes: u64, base: Vec<Input>) -> Vec<Input> {
    let data = chosen.iter().map(|member| Input { digest: member.digest, bytes: member.bytes, role: Role::Data });
    let tokenizer =
        candidate.tokenizer.digest().map(|digest| Input { digest, bytes: tokenizer_bytes, role: Role::Tokenizer });
    let all: BTreeMap<_, _> = data.chain(base).chain(tokenizer).map(|input| (input.digest, input)).collect();
    all.into_values().collect()
}

/// Notes what does not agree inside a plan that someone hands in: everything derived is derived again.
pub fn check_plan(plan: &Plan) -> Result<(), Faults> {
    let mut faults = Faults::new();
    if let Some(evaluating) = &plan.evaluation {
        evaluate::check_plan(plan, evaluating, &mut faults);
        return faults.or(());
    }
    let again = match &plan.candidate {
        Hypothesis::Native(candidate) => {
            let (departure, ground) = (plan.departure.clone(), plan.ground.clone());
            Plan { mode: plan.mode, departure, ground, ..native_again(plan, candidate)? }
        }
        Hypothesis::Command(command) => command::again(plan, command)?,
    };
    same(plan, &again, &mut faults);
    depart::check_inside(plan, &mut faults);
    regime::check_inside(plan, &mut faults);
    faults.or(())
}

/// Notes where a plan is not what was derived again from its parts.
pub(crate) fn same(plan: &Plan, again: &Plan, faults: &mut Faults) {
    let pairs = [
        ("/mode", (plan.mode == Mode::Evaluation) == (again.mode == Mode::Evaluation)),
        ("/fingerprint", plan.fingerprint == again.fingerprint),
        ("/seed", plan.seed == again.seed),
        ("/evaluation", plan.evaluation == again.evaluation),
        ("/departure", plan.departure == again.departure),
        ("/ground", plan.ground == again.ground),
        ("/inputs", plan.inputs == again.inputs),
        ("/work", plan.work == again.work),
        ("/fitted", plan.fitted == again.fitted),
        ("/program", plan.program == again.program),
        ("/environment", plan.environment == again.environment),
        ("/request", plan.request == fingerprint::request(plan)),
    ];
    for (at, _) in pairs.iter().filter(|(_, same)| !same) {
        faults.add(*at, "plan.derived", "does not follow from candidate, dataset, intent and seed of this plan");
    }
}

/// Compiles the plan of a candidate again from what it says.
pub(crate) fn native_again(plan: &Plan, candidate: &Candidate) -> Result<Plan, Faults> {
    let Some(dataset) = &plan.dataset else {
        return Err(Faults::one("/dataset", "data.other", "the trainer of this toolkit needs a dataset"));
    };
    let mut faults = Faults::new();
    check(candidate, dataset, &plan.intent, &mut faults);
    faults.or(())?;
    let tokens = Tokens {
        vocabulary: 0,
        count: plan.work.tokens,
        tokenizer_bytes: plan.inputs.iter().find(|input| input.role == Role::Tokenizer).map_or(0, |input| input.bytes),
    };
    // What was fitted cannot be seen without the data: the trainer fits again and compares.
    let seen = Seen { tokens, fitted: plan.fitted.clone(), base: base_inputs(plan) };
    compile_seen(candidate.clone(), dataset.clone(), plan.intent.clone(), plan.seed, seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    use crate::canonical::{Value, parse};
    use crate::field::Field as _;
    use crate::manifest::dataset::{Format, GroupBy, Splitting};
    use crate::relpath::RelativePath;
    use crate::verb::admit::{Offered, admit};

    fn dataset() -> Dataset {
        let file = |path: &str, bytes| Offered {
            path: RelativePath::new(path).unwrap(),
            digest: Digest::of(path.as_bytes()),
            bytes,
        };
        let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
        admit(Format::Text, &[file("a", 600), file("b", 425)], &BTreeMap::new(), splitting).unwrap()
    }

    /// A candidate in which every value differs from every default a trainer might have.
    const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"sentinel",
        "model":{"kind":"gpt","layers":3,"heads":5,"width":35,"inner":77,"context":16,"vocabulary":259,
            "dropout":0.17,"layer_norm_epsilon":3e-6,"initializer_range":0.031},
        "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
        "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":257},
        "objective":{"kind":"next-token-cross-entropy","label_smoothing":0,"z_loss":0},
        "optimizer":{"kind":"adamw","learning_rate":0.0017,"beta1":0.87,"beta2":0.93,"epsilon":3e-9,
            "weight_decay":0.07,"decay":"matrices"},
        "schedule":{"kind":"cosine","warmup_steps":3,"final_fraction":0.13},
        "groups":[],"clipping":{"kind":"norm","maximum":0.7},"averaging":{"kind":"none"},
        "batching":{"samples":3,"remainder":"keep","accumulation":2,"accumulation_remainder":"carry"},
        "length":{"kind":"epochs","epochs":3},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
        "execution":{"device":"cpu","threads":1,"cpu_capability":"avx2","math_mode":"avx2-strict","onednn":false},
        "regime":"exact"}"#;

    fn candidate(changes: &[(&str, &str)]) -> Result<Candidate, Faults> {
        let mut text = CANDIDATE.replace("DATASET", &dataset().id().to_string());
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        Candidate::decode(&parse(text.as_bytes()).unwrap())
    }

    const GROUPS: &str = r#""groups":[{"pattern":"*","treatment":
        {"kind":"trained","learning_rate_factor":1,"weight_decay":null}}]"#;
    const TOKENS: Tokens = Tokens { vocabulary: 256, count: 1026, tokenizer_bytes: 0 };

    fn plan(changes: &[(&str, &str)], seed: u64) -> Result<Plan, Faults> {
        let candidate = candidate(changes)?;
        let mut faults = Faults::new();
        check(&candidate, &dataset(), &Intent::default_for(1), &mut faults);
        faults.or(())?;
        compile(candidate, dataset(), Intent::default_for(1), seed, TOKENS)
    }

    fn pointers(result: Result<Plan, Faults>) -> Vec<String> {
        result.err().unwrap_or_default().0.into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn the_promised_steps_follow_from_data_and_recipe() {
        let plan = plan(&[], 1).unwrap();
        // 1026 tokens: 64 windows of 16; 22 micro-batches an epoch, 66 in all, two a step.
        assert_eq!((plan.work.samples_per_epoch, plan.work.micro_batches_per_epoch, plan.work.steps), (64, 22, 33));
        assert_eq!(check_plan(&plan), Ok(()));
    }

    #[test]
    fn each_undeclared_value_is_refused_by_name() {
        let whole = candidate(&[]).unwrap().write();
        let Value::Object(members) = &whole else { unreachable!() };
        for key in members.keys().filter(|key| *key != "id") {
            let mut fewer = members.clone();
            fewer.remove(key);
            let faults = Candidate::decode(&Value::Object(fewer)).unwrap_err();
            assert_eq!(faults.0.iter().map(|f| f.pointer.as_str()).collect::<Vec<_>>(), [format!("/{key}")]);
        }
    }

    #[test]
    fn every_impossible_value_is_refused_at_once() {
        let changes = [
            ("\"heads\":5", "\"heads\":4"),
            ("\"separator\":257", "\"separator\":259"),
            ("\"learning_rate\":0.0017", "\"learning_rate\":1e-60"),
            ("\"maximum\":0.7", "\"maximum\":1e39"),
            ("\"split\":\"train\"", "\"split\":\"test\""),
            ("\"threads\":1", "\"threads\":2"),
        ];
        assert_eq!(
            pointers(plan(&changes, 1)),
            [
                "/model/width",
                "/data/separator",
                "/optimizer/learning_rate",
                "/clipping/maximum",
                "/data/split",
                "/execution/threads",
            ]
        );
        assert_eq!(pointers(plan(&[("\"warmup_steps\":3", "\"warmup_steps\":34")], 1)), ["/schedule/warmup_steps"]);
        let stable = |decay: u64| {
            let text = format!(
                r#"{{"kind":"warmup-stable-decay","warmup_steps":3,"decay_steps":{decay},"final_fraction":0.13,"curve":"linear"}}"#
            );
            pointers(plan(&[(r#"{"kind":"cosine","warmup_steps":3,"final_fraction":0.13}"#, &text)], 1))
        };
        assert_eq!((stable(30), stable(31)), (vec![], vec!["/schedule/decay_steps".to_string()]));
        assert_eq!(pointers(plan(&[("\"context\":16", "\"context\":2000")], 1)), ["/batching"]);
        assert_eq!(pointers(plan(&[("259", "255"), ("257", "null")], 1)), ["/model/vocabulary"]);
    }

    #[test]
    fn an_early_end_that_can_never_come_is_refused_by_name() {
        let early = |target: &str, patience: &str, limit: &str, window: u64| {
            let text = format!(
                r#""early":{{"kind":"training-loss","window":{window},"target":{target},"patience":{patience},"minimum_improvement":0,"limit":{limit}}}"#
            );
            pointers(plan(&[(r#""early":{"kind":"none"}"#, &text)], 1))
        };
        assert_eq!(early("1", "null", "null", 33), Vec::<String>::new());
        assert_eq!(early("1", "null", "null", 34), ["/stops/early/window"]);
        assert_eq!(early("null", "null", "null", 3), ["/stops/early"]);
        assert_eq!(early("2", "null", "1", 3), ["/stops/early/target"]);
        assert_eq!(early("null", "0", "null", 3), ["/stops/early/patience"]);
        assert_eq!((early("null", "10", "null", 3), early("0", "null", "1e38", 3)), (vec![], vec![]));
        for beyond in ["11", "1000000"] {
            assert_eq!(early("null", beyond, "null", 3), ["/stops/early/patience"]);
        }
        for never in ["-1e300", "-0.5", "1e-300", "1e39"] {
            assert_eq!(early(never, "null", "null", 3), ["/stops/early/target"], "{never}");
            assert_eq!(early("null", "null", never, 3), ["/stops/early/limit"], "{never}");
        }
        assert_eq!(early("null", "null", "1", 0), ["/stops/early/window"]);
        assert_eq!(early("null", "null", "0", 3), ["/stops/early/limit"]);
        let improving = |patience: &str, minimum: &str| {
            let text = format!(
                r#""early":{{"kind":"training-loss","window":3,"target":1,"patience":{patience},"minimum_improvement":{minimum},"limit":null}}"#
            );
            pointers(plan(&[(r#""early":{"kind":"none"}"#, &text)], 1))
        };
        assert_eq!(improving("2", "0.1"), Vec::<String>::new());
        assert_eq!(improving("2", "1e308"), ["/stops/early/minimum_improvement"]);
        assert_eq!(improving("null", "0.1"), ["/stops/early/minimum_improvement"]);
    }

    /// Every pattern that fits nothing is named, and so is one whose parameters are all taken.
    #[test]
    fn a_pattern_that_fits_no_parameter_is_refused_with_every_such_pattern() {
        let group = |pattern: &str, treatment: &str| format!(r#"{{"pattern":"{pattern}","treatment":{treatment}}}"#);
        let (frozen, trained) =
            (r#"{"kind":"frozen"}"#, r#"{"kind":"trained","learning_rate_factor":0.5,"weight_decay":null}"#);
        let faults = |groups: &[String]| {
            let groups = format!("\"groups\":[{}]", groups.join(","));
            plan(&[("\"groups\":[]", &groups)], 1).err().unwrap_or_default()
        };
        let found = faults(&[group("*.attn.*", frozen), group("h.0.*", trained), group("*.c_atn.*", frozen)]);
        let pointers: Vec<&str> = found.0.iter().map(|fault| fault.pointer.as_str()).collect();
        assert_eq!(pointers, ["/groups/1/pattern", "/groups/2/pattern"]);
        assert!(found.0[0].message.contains("fits none of the 40 parameters"), "{found}");
        let shadowed = faults(&[group("*.attn.*", frozen), group("*.c_attn.*", trained)]);
        assert!(shadowed.0[0].message.contains("belongs to an earlier group"), "{shadowed}");
        assert_eq!(faults(&[group("*.attn.*", frozen), group("*", trained)]), Faults::new());
        assert_eq!(faults(&[group("*", frozen)]).0[0].code, "groups.frozen");
        let vanishing = r#"{"kind":"trained","learning_rate_factor":1e-60,"weight_decay":0.1}"#;
        assert_eq!(faults(&[group("*", vanishing)]).0[0].pointer, "/groups/0/treatment/learning_rate_factor");
    }

    /// Row F-11: a negative, zero, vanishing or textual clipping norm.
    #[test]
    fn a_clipping_norm_that_turns_gradients_around_is_refused() {
        for bad in ["-1", "0", "1e-400", "\"1\"", "-0.0", "null"] {
            let change = format!("\"maximum\":{bad}");
            assert_eq!(pointers(plan(&[("\"maximum\":0.7", &change)], 1)), ["/clipping/maximum"], "{bad}");
        }
    }

    #[test]
    fn the_seed_and_the_name_are_not_identity_and_everything_else_is() {
        let base = plan(&[], 1).unwrap();
        let other_seed = plan(&[], 2).unwrap();
        assert_eq!(base.fingerprint, other_seed.fingerprint);
        assert_ne!(base.request, other_seed.request);
        assert_eq!(plan(&[("sentinel", "other")], 1).unwrap().fingerprint, base.fingerprint);
        let changes = vec![
            ("\"layers\":3", "\"layers\":4"),
            ("\"inner\":77", "\"inner\":78"),
            ("0.17", "0.18"),
            ("3e-6", "4e-6"),
            ("0.031", "0.032"),
            ("\"separator\":257", "\"separator\":null"),
            ("shuffled", "sequential"),
            ("0.0017", "0.0018"),
            ("0.87", "0.88"),
            ("0.93", "0.94"),
            ("3e-9", "4e-9"),
            ("0.07", "0.08"),
            ("matrices", "all"),
            ("cosine", "linear"),
            ("\"label_smoothing\":0", "\"label_smoothing\":0.1"),
            ("\"z_loss\":0", "\"z_loss\":0.001"),
            ("\"groups\":[]", GROUPS),
            (r#""averaging":{"kind":"none"}"#, r#""averaging":{"kind":"exponential","decay":0.9,"first_step":1}"#),
            ("\"warmup_steps\":3", "\"warmup_steps\":4"),
            ("0.13", "0.14"),
            ("\"maximum\":0.7", "\"maximum\":0.8"),
            ("\"samples\":3", "\"samples\":4"),
            ("keep", "drop"),
            ("\"accumulation\":2", "\"accumulation\":1"),
            ("carry", "flush"),
            ("\"epochs\":3", "\"epochs\":4"),
            ("hold", "record"),
            (
                r#""early":{"kind":"none"}"#,
                r#""early":{"kind":"training-loss","window":1,"target":null,"patience":2,"minimum_improvement":0,"limit":null}"#,
            ),
            ("\"avx2\"", "\"default\""),
            ("avx2-strict", "compatible"),
            ("\"onednn\":false", "\"onednn\":true"),
            ("\"vocabulary\":259", "\"vocabulary\":260"),
            ("\"context\":16", "\"context\":17"),
            ("\"heads\":5", "\"heads\":7"),
            ("\"width\":35", "\"width\":40"),
        ];
        for change in changes {
            assert_ne!(plan(&[change], 1).unwrap().fingerprint, base.fingerprint, "{change:?}");
        }
    }

    /// Literal identity of version 1: it may never move.
    #[test]
    fn the_fingerprint_of_version_1_stays_what_it_was() {
        let found = fingerprint::candidate(&candidate(&[]).unwrap()).to_string();
        assert_eq!(found, "sha256:5c8fa21fa008a5c6ef7bd221e8bb32bc65e3552bc88186d3ea962ed66c12fc9a");
    }

    #[test]
    fn a_plan_edited_by_hand_is_refused_where_it_was_edited() {
        let mut plan = plan(&[], 1).unwrap();
        plan.work.steps += 1;
        plan.environment.insert("LD_PRELOAD".into(), "x".into());
        let found: Vec<String> = check_plan(&plan).unwrap_err().0.into_iter().map(|fault| fault.pointer).collect();
        assert_eq!(found, ["/work", "/environment", "/request"]);
    }
}
