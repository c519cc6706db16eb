//! Tables and images in the real worker: exact, restored in a new process, held at a value that is not finite, measured.
#![expect(clippy::cast_precision_loss, reason = "small counts")]

use std::collections::BTreeMap;

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::{Field, Manifest};
use xt_core::fingerprint;
use xt_core::manifest::candidate::{Candidate, Tokenizer};
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::evaluation::{
    Answer, Estimate, Evaluator, HeldOut, Leakage, Measure, Metrics, Parameters as Which, Part, Shared, Slices, Spec,
    Subject,
};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::manifest::trace::{Stage, StageName};
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::random::Stream;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::compile::{Seen, Tokens, check, compile_fitted, compile_seen};
use xt_core::verb::evaluate::{Comparison, Found, METRICS, SAMPLES, compile as compile_evaluation};

use crate::desk::{Desk, Left};
use crate::module;

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"table","model":MODEL,"base":{"kind":"random"},
    "tokenizer":TOKENIZER,"data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":null},
    "objective":OBJECTIVE,"groups":[],"averaging":{"kind":"none"},
    "optimizer":{"kind":"adamw","learning_rate":0.01,"beta1":0.9,"beta2":0.95,"epsilon":1e-8,
        "weight_decay":0.01,"decay":"matrices"},
    "schedule":{"kind":"cosine","warmup_steps":2,"final_fraction":0.1},
    "clipping":{"kind":"norm","maximum":1},
    "batching":{"samples":7,"remainder":"keep","accumulation":2,"accumulation_remainder":"flush"},
    "length":{"kind":"steps","steps":9},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

const MSE: &str = "{\"kind\":\"mean-squared-error\"}";
const HUBER: &str = "{\"kind\":\"huber\",\"delta\":0.5}";
const CLASSES: &str = "{\"kind\":\"cross-entropy\",\"label_smoothing\":0.1,\"z_loss\":0.001}";
const BINARY: &str = "{\"kind\":\"binary-cross-entropy\"}";

/// A job without the parts that all share.
#[derive(Clone, Copy)]
pub struct Job {
    objective: &'static str,
    images: bool,
    activation: &'static str,
    dropout: &'static str,
    widths: &'static str,
    scaling: &'static str,
    /// A cell in the column `x` of the third row.
    cell: &'static str,
}

const JOB: Job = Job {
    objective: MSE,
    images: false,
    activation: "relu",
    dropout: "0.1",
    widths: "[6,5]",
    scaling: "inputs",
    cell: "0.25",
};

impl Job {
    fn number(self) -> bool {
        self.objective == MSE || self.objective == HUBER
    }

    fn outputs(self) -> u64 {
        if self.objective == CLASSES { 3 } else { 1 }
    }

    fn model(self) -> String {
        let Self { activation, dropout, widths, .. } = self;
        let outputs = self.outputs();
        let rest = format!(
            r#""widths":{widths},"outputs":{outputs},"activation":"{activation}","dropout":{dropout},"initializer_gain":1.4"#
        );
        if self.images {
            return format!(
                r#"{{"kind":"cnn","channels":1,"height":6,"width":5,{rest},"convolutions":[
                    {{"channels":4,"kernel":3,"stride":1,"padding":1,"pool":2}},
                    {{"channels":3,"kernel":2,"stride":1,"padding":0,"pool":1}}]}}"#
            );
        }
        format!(r#"{{"kind":"mlp","inputs":5,{rest}}}"#)
    }

    fn tokenizer(self) -> String {
        let scaling = self.scaling;
        if self.images {
            let classes = if self.objective == BINARY { 2 } else { 3 };
            return format!(
                r#"{{"kind":"image","channels":1,"height":6,"width":5,"classes":{classes},"levels":null,"scaling":"{scaling}",
                    "augmentation":{{"shift":0,"mirror":false,"cut_out":0}}}}"#
            );
        }
        let target = match self.objective {
            CLASSES => r#"{"kind":"target-category","levels":["p","q","r"]}"#,
            BINARY => r#"{"kind":"target-category","levels":["p","q"]}"#,
            _ => r#"{"kind":"target-number","non_finite":"keep"}"#,
        };
        format!(
            r#"{{"kind":"table","scaling":"{scaling}","columns":[
                {{"name":"x","holds":{{"kind":"number","missing":"fill","non_finite":"keep"}}}},
                {{"name":"y","holds":{{"kind":"number","missing":"refuse","non_finite":"refuse"}}}},
                {{"name":"z","holds":{{"kind":"category","levels":["a","b","c"],"missing":"fill"}}}},
                {{"name":"t","holds":{target}}}]}}"#
        )
    }

    /// The files of a split, which `salt` makes other ones.
    fn files(self, salt: u64, rows: u64) -> Vec<(String, Vec<u8>)> {
        let draw = Stream::new(salt, "table", 0);
        if self.images {
            let classes = if self.objective == BINARY { 2 } else { 3 };
            let size = u32::try_from(rows).unwrap().to_be_bytes();
            let mut images = [&[0, 0, 8, 3][..], &size, &6u32.to_be_bytes(), &5u32.to_be_bytes()].concat();
            images.extend((0..rows * 30).map(|at| u8::try_from(draw.word(at) % 256).unwrap()));
            let mut labels = [&[0, 0, 8, 1][..], &size].concat();
            labels.extend((0..rows).map(|row| u8::try_from(images_sum(&images, row) % classes).unwrap()));
            return vec![(format!("{salt}-images-idx3"), images), (format!("{salt}-labels-idx1"), labels)];
        }
        let mut text = String::from("t,x,y,z\n");
        for row in 0..rows {
            let part = |at| draw.word(row * 4 + at) % 1000;
            let (x, y) = (part(0) as f64 / 500.0 - 1.0, part(1) as f64 / 10.0);
            let z = usize::try_from(part(2) % 3).unwrap();
            let t = match self.objective {
                CLASSES => ["p", "q", "r"][z].to_string(),
                BINARY => if x > 0.0 { "q" } else { "p" }.to_string(),
                _ => format!("{}", 3.0 * x - 0.05 * y + z as f64),
            };
            let x = if row == 2 { self.cell.to_string() } else { x.to_string() };
            text.push_str(&[t.as_str(), x.as_str(), y.to_string().as_str(), ["a", "b", "c"][z]].join(","));
            text.push('\n');
        }
        vec![(format!("{salt}.csv"), text.into_bytes())]
    }

    fn dataset(self, salt: u64, rows: u64) -> Dataset {
        admitted(if self.images { Format::Idx } else { Format::Csv }, &self.files(salt, rows))
    }

    fn candidate(self) -> Candidate {
        self.changed(&[])
    }

    /// The candidate with these replacements in its text.
    pub fn changed(self, changes: &[(&str, &str)]) -> Candidate {
        let mut text = CANDIDATE.replace("DATASET", &self.dataset(1, ROWS).id().to_string());
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        for (key, value) in
            [("MODEL", self.model()), ("TOKENIZER", self.tokenizer()), ("OBJECTIVE", self.objective.to_string())]
        {
            text = text.replacen(key, &value, 1);
        }
        Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{faults}"))
    }

    fn plan(self, seed: u64) -> Plan {
        self.plan_of(self.candidate(), seed)
    }

    /// The plan of a candidate for these rows or images.
    pub fn plan_of(self, candidate: Candidate, seed: u64) -> Plan {
        let dataset = self.dataset(1, ROWS);
        let intent = Intent::default_for(1);
        let mut faults = xt_core::fault::Faults::new();
        check(&candidate, &dataset, &intent, &mut faults);
        assert_eq!(faults, xt_core::fault::Faults::new());
        let raw = raw(&candidate, &self.files(1, ROWS));
        let (Tokenizer::Table { scaling, .. } | Tokenizer::Image { scaling, .. }) = &candidate.tokenizer else {
            panic!()
        };
        let fitted = raw.fit(*scaling).unwrap();
        let tokens = Tokens { vocabulary: 0, count: ROWS, tokenizer_bytes: 0 };
        let base = module::inputs(&candidate);
        compile_seen(candidate, dataset, intent, seed, Seen { tokens, fitted, base }).unwrap()
    }

    /// A place for it, with its files.
    pub fn desk(self, plan: &Plan) -> Desk {
        let desk = Desk::new(plan);
        self.files(1, ROWS).iter().for_each(|(_, bytes)| desk.give(bytes));
        desk
    }

    fn train(self, plan: &Plan) -> Left {
        let left = self.desk(plan).train(plan, None);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        left
    }
}

/// What these files are admitted as, each for training.
pub fn admitted(format: Format, files: &[(String, Vec<u8>)]) -> Dataset {
    let offer = |(path, bytes): &(String, Vec<u8>)| Offered {
        path: RelativePath::new(path).unwrap(),
        digest: Digest::of(bytes),
        bytes: bytes.len() as u64,
    };
    let offered: Vec<Offered> = files.iter().map(offer).collect();
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
    admit(format, &offered, &BTreeMap::new(), splitting).unwrap()
}

/// The candidate of images in three classes that reads by `tokenizer`, with nothing dropped.
pub fn images_of(tokenizer: &str, dataset: Digest) -> Candidate {
    let job = Job { images: true, objective: CLASSES, dropout: "0.0", ..JOB };
    let text = CANDIDATE.replace("DATASET", &dataset.to_string()).replacen("MODEL", &job.model(), 1);
    let text = text.replacen("TOKENIZER", tokenizer, 1).replacen("OBJECTIVE", CLASSES, 1);
    Candidate::decode(&parse(text.as_bytes()).unwrap()).unwrap_or_else(|faults| panic!("{faults}"))
}

const ROWS: u64 = 33;
const WEIGHTS: &str = "model/model.safetensors";

fn images_sum(images: &[u8], row: u64) -> u64 {
    let start = 16 + usize::try_from(row).unwrap() * 30;
    images[start..start + 30].iter().map(|pixel| u64::from(*pixel)).sum()
}

fn raw(candidate: &Candidate, files: &[(String, Vec<u8>)]) -> xt_data::Raw {
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())).collect();
    xt_data::rows::read(&candidate.tokenizer, &files).unwrap()
}

/// Rows in three classes.
pub fn in_classes() -> Job {
    Job { objective: CLASSES, ..JOB }
}

/// Every kind of job.
pub fn jobs() -> Vec<Job> {
    let mut all = Vec::new();
    for objective in [MSE, HUBER, CLASSES, BINARY] {
        for (activation, dropout, widths) in [("relu", "0.1", "[6,5]"), ("tanh", "0.0", "[8]"), ("gelu", "0.2", "[]")] {
            let scaling = match (objective, activation) {
                (_, "tanh") => "none",
                (MSE | HUBER, "relu") => "inputs-and-target",
                _ => "inputs",
            };
            let job = Job { objective, activation, dropout, widths, scaling, cell: "", ..JOB };
            all.push(job);
            if !job.number() {
                all.push(Job { images: true, ..job });
            }
        }
    }
    all
}

#[test]
fn the_same_job_on_a_table_or_images_gives_the_same_bytes_and_another_seed_does_not() {
    for images in [false, true] {
        let job = Job { objective: CLASSES, images, ..JOB };
        let (first, other) = (job.plan(1), job.plan(2));
        let [one, two, three] = [&first, &first, &other].map(|plan| job.train(plan));
        assert_eq!((one.trace.clone(), one.output(WEIGHTS)), (two.trace.clone(), two.output(WEIGHTS)));
        assert_ne!(one.output(WEIGHTS), three.output(WEIGHTS));
        for (left, right) in one.steps(&first).iter().zip(&three.steps(&other)) {
            assert_ne!((left.samples, left.parameters), (right.samples, right.parameters));
            assert!(left.stages.iter().all(|stage| stage.checked > 0 && stage.non_finite() == 0));
        }
        let config = parse(&one.output("model/config.json")).unwrap();
        assert_eq!(config.get("model_type").unwrap().as_str(), Some(if images { "xt-cnn" } else { "xt-mlp" }));
    }
}

/// The four losses on the same rows, and the loss falls when there is something to learn.
#[test]
fn each_objective_learns() {
    for objective in [MSE, HUBER, CLASSES, BINARY] {
        let job = Job {
            objective,
            dropout: "0.0",
            scaling: if objective == MSE { "inputs-and-target" } else { "inputs" },
            ..JOB
        };
        let mut candidate = job.candidate();
        candidate.length = xt_core::manifest::candidate::Length::Epochs { epochs: 60 };
        let known = job.plan(1);
        let tokens = Tokens { vocabulary: 0, count: ROWS, tokenizer_bytes: 0 };
        let plan =
            compile_fitted(candidate, job.dataset(1, ROWS), known.intent.clone(), 1, (tokens, known.fitted)).unwrap();
        let steps = job.train(&plan).steps(&plan);
        let mean = |steps: &[xt_core::manifest::trace::Step]| {
            steps.iter().map(|step| step.loss.unwrap().get()).sum::<f64>() / steps.len() as f64
        };
        let (first, last) = (mean(&steps[..6]), mean(&steps[steps.len() - 6..]));
        assert!(last < 0.6 * first, "{objective}: {first} to {last}");
    }
}

/// Issue 7: the value is in the data, so the input stage is the first that holds it, at the step that reads the row.
#[test]
fn a_nan_in_a_cell_holds_the_run_at_the_step_that_reads_it_with_the_stage_input() {
    for (job, tensor) in [(Job { cell: "nan", ..JOB }, "inputs"), (Job { cell: "-inf", ..JOB }, "inputs")] {
        let plan = job.plan(1);
        let left = job.desk(&plan).train(&plan, None);
        assert_eq!(left.code, Some(3), "{}", left.stderr);
        let steps = left.steps(&plan);
        let last = steps.last().unwrap();
        let Some(Message::Held { step, reason }) = left.messages.last() else { panic!("{:?}", left.messages.last()) };
        assert_eq!((*step, last.skipped), (last.step, true));
        assert!(reason.contains("the stage input holds") && reason.contains(tensor), "{reason}");
        let input = &last.stages[0];
        assert_eq!((input.stage, input.non_finite()), (StageName::Input, 1));
        assert_eq!((input.nan, input.negative_infinite), if job.cell == "nan" { (1, 0) } else { (0, 1) });
        assert!(steps[..steps.len() - 1].iter().all(|step| step.stages.iter().all(|stage| stage.non_finite() == 0)));
        // The row is the third: it is read in the first epoch, which has three steps.
        assert!(last.step <= 3);
        assert!(!left.wrote(WEIGHTS));
        let finite = Job { cell: "1", ..job };
        assert_eq!(finite.train(&finite.plan(1)).code, Some(0), "a control without the cell goes on");
    }
}

#[test]
fn a_run_that_records_goes_on_past_a_cell_that_is_not_finite() {
    let job = Job { cell: "NaN", ..JOB };
    let mut candidate = job.candidate();
    candidate.stops.non_finite = xt_core::manifest::candidate::NonFinite::Record;
    let known = job.plan(1);
    let tokens = Tokens { vocabulary: 0, count: ROWS, tokenizer_bytes: 0 };
    let plan =
        compile_fitted(candidate, job.dataset(1, ROWS), known.intent.clone(), 1, (tokens, known.fitted)).unwrap();
    let steps = job.train(&plan).steps(&plan);
    let inputs: Vec<&Stage> = steps.iter().map(|step| &step.stages[0]).collect();
    assert_eq!(inputs.iter().map(|stage| stage.nan).sum::<u64>(), 3, "once an epoch");
    assert!(steps.last().unwrap().loss.is_none());
}

/// What scales numbers belongs to the training split: a plan that says otherwise is not run.
#[test]
fn a_plan_with_another_fit_than_its_training_split_gives_is_refused() {
    let mut plan = JOB.plan(1);
    plan.fitted[0].mean = Finite::new(0.125).unwrap();
    plan.request = fingerprint::request(&plan);
    let left = JOB.desk(&plan).train(&plan, None);
    assert!(left.failure().contains("what is fitted on the training split"), "{}", left.failure());
    assert!(!left.wrote(WEIGHTS));
}

#[test]
fn every_family_and_objective_goes_on_bit_for_bit_from_a_random_step_in_a_new_process() {
    let each = Cadence { every: Some(1), keep: None, last: false };
    let mut compared = 0;
    for (number, job) in (0..).zip(jobs()) {
        let plan = job.plan(number);
        let straight = job.desk(&plan).train_part(&plan, None, &each, None);
        assert_eq!(straight.code, Some(0), "{}", straight.stderr);
        let steps = straight.told();
        let at = 1 + Stream::new(number, "restore", 0).word(0) % (plan.work.steps - 1);
        let resumed = job.desk(&plan).train_part(&plan, None, &each, Some(&straight.shot(&plan, at)));
        assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
        assert_eq!(resumed.told(), steps[usize::try_from(at).unwrap()..]);
        assert_eq!(resumed.output(WEIGHTS), straight.output(WEIGHTS));
        compared += resumed.told().len();
    }
    println!("{} combinations of tables and images, {compared} restored steps", jobs().len());
    assert!(jobs().len() >= 18 && compared > 2 * jobs().len());
}

const HELD_OUT_ROWS: u64 = 12;

fn spec(job: Job, seed: u64) -> Spec {
    let confidence = Finite::new(0.9).unwrap();
    let evaluator = if job.number() {
        Evaluator::Regression { batch: 5, resamples: 200, confidence }
    } else {
        Evaluator::Classification { batch: 5, resamples: 200, confidence, bins: 5 }
    };
    Spec {
        name: Name::new("held-out").unwrap(),
        evaluator,
        data: HeldOut { dataset: job.dataset(2, HELD_OUT_ROWS).id(), split: Name::new("train").unwrap() },
        slices: Slices::None,
        parameters: Which::Trained,
        leakage: Leakage { minimum_bytes: 4, shared: Shared::Refuse },
        seed,
    }
}

fn measured(job: Job, trained: &Plan, weights: &[u8], seed: u64) -> Left {
    let spec = spec(job, seed);
    let files = job.files(2, HELD_OUT_ROWS);
    let candidate = trained.native().unwrap().clone();
    let mut comparison = Comparison::new(&spec);
    for (_, bytes) in &files {
        comparison.held_out(bytes, []);
    }
    let counts = raw(&candidate, &files).counts;
    let part = |((path, _), tokens): (&(String, Vec<u8>), u64)| Part { path: RelativePath::new(path).unwrap(), tokens };
    let found = Found {
        subject: Subject {
            bundle: Digest::of(b"bundle"),
            run: Digest::of(b"run"),
            candidate: fingerprint::candidate(&candidate),
            name: candidate.name.clone(),
            seed: trained.seed,
            weights: Digest::of(weights),
        },
        weights_bytes: weights.len() as u64,
        tokenizer_bytes: 0,
        parts: files.iter().zip(counts).map(part).collect(),
        overlap: comparison.overlap(),
        fitted: trained.fitted.clone(),
        base: Vec::new(),
    };
    let dataset = job.dataset(2, HELD_OUT_ROWS);
    let plan = compile_evaluation(spec, candidate, dataset, trained.intent.clone(), found).unwrap();
    let desk = Desk::new(&plan);
    desk.give(weights);
    for (_, bytes) in &files {
        desk.give(bytes);
    }
    let left = desk.evaluate(&plan);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

fn metrics(left: &Left) -> Vec<Measure> {
    Metrics::decode(&parse(&left.output(METRICS)).unwrap()).unwrap().metrics
}

fn lines<F: Field>(left: &Left) -> Vec<F> {
    let text = String::from_utf8(left.output(SAMPLES)).unwrap();
    let read = |line| F::read(&parse(str::as_bytes(line)).unwrap(), "", &mut xt_core::fault::Faults::new()).unwrap();
    text.lines().map(read).collect()
}

/// The layers of an mlp in binary64 and plain loops, from the file of its weights; ReLU in between.
fn plain(weights: &[u8], mut stream: Vec<f64>) -> Vec<f64> {
    let stored = safetensors::SafeTensors::deserialize(weights).unwrap();
    let get = |name: &str| -> Vec<f64> {
        let tensor = stored.tensor(name).unwrap();
        tensor.data().as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect()
    };
    for layer in 0..3 {
        let (weight, bias) = (get(&format!("layers.{layer}.weight")), get(&format!("layers.{layer}.bias")));
        let rows = weight.chunks(stream.len()).zip(&bias);
        stream = rows.map(|(row, bias)| row.iter().zip(&stream).map(|(a, b)| a * b).sum::<f64>() + bias).collect();
        if layer < 2 {
            for value in &mut stream {
                *value = value.max(0.0);
            }
        }
    }
    stream
}

/// Held-out rows are scaled by what the training split gave, and errors are in the unit of the target.
#[test]
fn estimates_are_those_of_a_plain_computation_in_the_unit_of_the_target() {
    let job = Job { scaling: "inputs-and-target", cell: "", ..JOB };
    let trained = job.plan(1);
    let weights = job.train(&trained).output(WEIGHTS);
    let left = measured(job, &trained, &weights, 1);
    let estimates: Vec<Estimate> = lines(&left);
    let raw = raw(trained.native().unwrap(), &job.files(2, HELD_OUT_ROWS));
    let xt_data::Targets::Numbers(targets) = raw.targets.clone() else { panic!() };
    let scale = trained.fitted.last().unwrap();
    assert_eq!(scale.column, "t");
    let mut squares = 0.0;
    for (row, (estimate, due)) in estimates.iter().zip(&targets).enumerate() {
        let mut inputs: Vec<f64> = raw.values[row * 5..row * 5 + 5].iter().map(|value| f64::from(*value)).collect();
        for (column, value) in inputs.iter_mut().take(2).enumerate() {
            let fitted = &trained.fitted[column];
            let known = !raw.missing.contains(&(row * 5 + column));
            *value = if known { (*value - fitted.mean.get()) / fitted.deviation.get() } else { 0.0 };
        }
        let answer = plain(&weights, inputs)[0] * scale.deviation.get() + scale.mean.get();
        assert!((estimate.answer.get() - answer).abs() < 1e-5, "{row}: {} {answer}", estimate.answer);
        assert_eq!(estimate.due.get(), f64::from(*due));
        squares += (answer - f64::from(*due)).powi(2);
    }
    let found = metrics(&left);
    let mse = found.iter().find(|measure| measure.name == "mse").unwrap();
    assert!((mse.value.get() - squares / HELD_OUT_ROWS as f64).abs() < 1e-4 * squares);
    assert_eq!((mse.sample_count, estimates.len() as u64), (HELD_OUT_ROWS, HELD_OUT_ROWS));
    assert_eq!(found.iter().map(|measure| measure.name.as_str()).collect::<Vec<_>>(), ["mae", "mse", "r2"]);
}

#[test]
fn answers_are_those_of_a_plain_computation_and_measuring_again_gives_the_same_bytes() {
    for objective in [CLASSES, BINARY] {
        let job = Job { objective, cell: "0.5", ..JOB };
        let trained = job.plan(1);
        let weights = job.train(&trained).output(WEIGHTS);
        let (left, again, other) = (
            measured(job, &trained, &weights, 1),
            measured(job, &trained, &weights, 1),
            measured(job, &trained, &weights, 2),
        );
        for file in [METRICS, SAMPLES] {
            assert_eq!(left.output(file), again.output(file));
        }
        assert_eq!(left.output(SAMPLES), other.output(SAMPLES));
        assert_ne!(left.output(METRICS), other.output(METRICS), "another seed draws other resamples");
        let raw = raw(trained.native().unwrap(), &job.files(2, HELD_OUT_ROWS));
        let xt_data::Targets::Classes(targets) = raw.targets.clone() else { panic!() };
        let rows = raw.scale(&trained.fitted, xt_core::manifest::encoding::Scaling::Inputs);
        let answers: Vec<Answer> = lines(&left);
        let mut right = 0;
        for (row, (answer, due)) in answers.iter().zip(&targets).enumerate() {
            let inputs = rows.values[row * 5..row * 5 + 5].iter().map(|value| f64::from(*value)).collect();
            let mut logits = plain(&weights, inputs);
            if logits.len() == 1 {
                logits.insert(0, 0.0);
            }
            let all: f64 = logits.iter().map(|logit| logit.exp()).sum();
            let best = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            let due = usize::try_from(*due).unwrap();
            assert_eq!((answer.due, answer.answer), (due as u64, best as u64));
            assert!((answer.probability.get() - logits[best].exp() / all).abs() < 1e-6);
            assert!((answer.loss.get() - (all.ln() - logits[due])).abs() < 1e-5);
            right += u64::from(best == due);
        }
        let found = metrics(&left);
        let accuracy = found.iter().find(|measure| measure.name == "accuracy").unwrap();
        assert!((accuracy.value.get() - right as f64 / HELD_OUT_ROWS as f64).abs() < 1e-12);
        for name in ["calibration_error", "f1", "f1/p", "confusion/p/q", "loss"] {
            assert!(found.iter().any(|measure| measure.name == name), "{name}");
        }
    }
    let images = Job { objective: CLASSES, images: true, ..JOB };
    let trained = images.plan(1);
    let weights = images.train(&trained).output(WEIGHTS);
    assert_eq!(lines::<Answer>(&measured(images, &trained, &weights, 1)).len() as u64, HELD_OUT_ROWS);
}
