//! A stand-in for `xt-train` in tests: speaks its protocol (a job on descriptor 3, messages on descriptor 4, inputs and
//! outputs in folders), computes nothing, and misbehaves on request. What it is to do stands in the plan's
//! `intent.purpose`, as words: `exit-early 3`, `hang-ignoring 2`, … ; anything else is done properly.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Error, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal, raise};
use xt_core::canonical;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field, Manifest as _};
use xt_core::manifest::evaluation::{Metrics, Window};
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::manifest::trace::{Generator, Stage, StageName, Step};
use xt_core::number::{Bits32, Finite};
use xt_core::order::{Shape, Walk, samples_digest};
use xt_core::random::GENERATOR;
use xt_core::verb::bind::{CONFIGURATION, WEIGHTS};
use xt_core::verb::chain::{self, LINES};
use xt_core::verb::early::Follow;
use xt_core::verb::snapshot;
use xt_core::verb::weights::{self, Weights};
use xt_core::verb::{evaluate, measure};

fn main() -> ExitCode {
    // Grandchildren of `children` and `daemon`.
    match std::env::args().nth(1).as_deref() {
        Some("--sleep") => std::thread::sleep(Duration::from_mins(5)),
        Some("--end") => return ExitCode::SUCCESS,
        _ => {}
    }
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stand-in: {error}");
            ExitCode::FAILURE
        }
    }
}

fn work() -> Result<(), Error> {
    let mut text = Vec::new();
    File::from(xt_sandbox::inherited(3)?).read_to_end(&mut text)?;
    let job = canonical::parse(&text).map_err(Error::other)?;
    let mut faults = Faults::new();
    let mut voice = Voice(xt_sandbox::inherited(4)?.into());
    match Job::read(&job, "", &mut faults) {
        Some(Job::Train { plan, to_step, cadence, from, locate: _ }) => {
            let ear = Ear::new()?;
            train(&plan, &Span { to_step, cadence, from: from.map(|from| *from) }, &ear, &mut voice)
        }
        Some(Job::Evaluate { plan }) => measure(&plan, &mut voice),
        Some(Job::Sample { prompt, tokens, seed, weights, .. }) => sample(&prompt, tokens, seed, weights, &mut voice),
        None => Err(Error::other(faults)),
    }
}

/// Descriptor 4.
struct Voice(File);

impl Voice {
    fn say(&mut self, message: &Message) -> Result<(), Error> {
        self.0.write_all((message.write().canonical() + "\n").as_bytes())
    }
}

/// Descriptor 5: `drain` and `taken N`, heard by a thread.
struct Ear(Receiver<String>);

impl Ear {
    fn new() -> Result<Self, Error> {
        let (teller, listener) = channel();
        let lines = BufReader::new(File::from(xt_sandbox::inherited(5)?)).lines();
        // Signals are for the thread that works.
        let before = SigSet::thread_get_mask()?;
        SigSet::all().thread_block()?;
        std::thread::spawn(move || lines.map_while(Result::ok).all(|line| teller.send(line).is_ok()));
        before.thread_set_mask()?;
        Ok(Self(listener))
    }

    /// Whether it was told to drain.
    fn drained(&self) -> bool {
        self.0.try_iter().any(|word| word == "drain")
    }

    /// Waits until the state after `step` is taken; says whether it was told to drain meanwhile.
    fn until_taken(&self, step: u64) -> bool {
        let waited = self.0.iter().take_while(|word| *word != format!("taken {step}"));
        waited.filter(|word| word == "drain").count() > 0
    }
}

/// What of a run is to be done.
struct Span {
    to_step: Option<u64>,
    cadence: Cadence,
    from: Option<Snapshot>,
}

/// Writes the state after a step and waits until it is taken; says whether it was told to drain meanwhile.
fn shoot(plan: &Plan, step: u64, ear: &Ear, voice: &mut Voice) -> Result<bool, Error> {
    let place = folder("XT_OUTPUTS")?.join(snapshot::folder(step));
    fs::create_dir_all(&place)?;
    fs::write(place.join(snapshot::PARAMETERS), weights_after(plan.seed, step))?;
    fs::write(place.join(snapshot::OPTIMIZER), weights::file(&BTreeMap::new()))?;
    let shape = chain::shape(plan).ok_or_else(|| Error::other("the plan makes no run"))?;
    let mut walk = Walk::new(shape, plan.seed);
    let generator =
        Generator { algorithm: GENERATOR.into(), seed: plan.seed, micro_batch: walk.next_micro_batch(step) };
    voice.say(&Message::Snapshot { step, updates: step, generator, cursor: walk.cursor(step), nanoseconds: 1000 })?;
    let drained = ear.until_taken(step);
    fs::remove_dir_all(place)?;
    Ok(drained)
}

fn folder(variable: &str) -> Result<PathBuf, Error> {
    std::env::var_os(variable).map(PathBuf::from).ok_or_else(|| Error::other(format!("{variable} is not set")))
}

fn sample(prompt: &str, tokens: u64, seed: u64, weights: Digest, voice: &mut Voice) -> Result<(), Error> {
    let model = fs::read(folder("XT_INPUTS")?.join(weights.hex()))?;
    if Digest::of(&model) != weights {
        return Err(Error::other("the weights are not those of the job"));
    }
    voice.say(&ready(0, 1))?;
    println!("{prompt}");
    for token in 0..tokens {
        voice.say(&Message::Text { text: format!(" {}", (seed + token) % 7) })?;
    }
    voice.say(&Message::Completed { steps: 0, outputs: Vec::new() })
}

/// Measures made-up windows, which follow from the trained seed, and misbehaves as its plan says.
fn measure(plan: &Plan, voice: &mut Voice) -> Result<(), Error> {
    let Some(evaluating) = &plan.evaluation else { return Err(Error::other("the plan measures nothing")) };
    let purpose = plan.intent.purpose.clone();
    let (behaviour, argument) = purpose.split_once(' ').unwrap_or((&purpose, "0"));
    let argument: u64 = argument.parse().unwrap_or(0);
    let model = fs::read(folder("XT_INPUTS")?.join(evaluating.subject.weights.hex()))?;
    if Digest::of(&model) != evaluating.subject.weights {
        return Err(Error::other("the weights are not those of the plan"));
    }
    voice.say(&ready(plan.work.samples_per_epoch, plan.candidate.threads()))?;
    for batch in 1..=plan.work.steps {
        voice.say(&Message::Measured { batch, nanoseconds: 1000 })?;
        misbehave(behaviour, argument, batch)?;
    }
    let Some((candidate, dataset)) = plan.training() else { return Err(Error::other("the plan measures nothing")) };
    let (mut windows, context) = (Vec::new(), candidate.model.context());
    for part in &evaluating.parts {
        for window in 0..evaluate::windows(part.tokens, context) {
            let number = windows.len() as u64;
            let loss =
                1.0 + f64::from(u32::try_from((evaluating.subject.seed + number + window) % 7).unwrap_or(0)) / 8.0;
            windows.push(Window { window: number, path: part.path.clone(), tokens: 1, loss: finite(loss), correct: 0 });
        }
    }
    let slice = |window: &Window| {
        let members = evaluate::members(&evaluating.spec, dataset);
        evaluate::slice_of(&evaluating.spec, members.into_iter().find(|member| member.path == window.path)?)
    };
    let mut metrics = Metrics {
        evaluator: evaluating.spec.evaluator.version(),
        metrics: measure::measure(&evaluating.spec, &windows, slice).map_err(Error::other)?,
    };
    match behaviour {
        "no-metrics" => metrics.metrics.clear(),
        "other-evaluator" => metrics.evaluator.version = "2".into(),
        "other-slice" => metrics.metrics[0].slice = Some("nowhere".into()),
        "twice-measured" => metrics.metrics.push(metrics.metrics[0].clone()),
        _ => {}
    }
    let mut text = metrics.encode().canonical();
    if behaviour == "infinite-metric" {
        text = text.replacen("\"sample_count\":", "\"sample_count\":0,\"was\":", 1);
    }
    let outputs = folder("XT_OUTPUTS")?;
    fs::create_dir_all(outputs.join("evaluation"))?;
    fs::write(outputs.join(evaluate::METRICS), text)?;
    let lines: String = windows.iter().map(|window| window.write().canonical() + "\n").collect();
    fs::write(outputs.join(evaluate::SAMPLES), lines)?;
    finish(behaviour, argument, &outputs)?;
    let names = [evaluate::METRICS, evaluate::SAMPLES].map(String::from);
    voice.say(&Message::Completed { steps: plan.work.steps, outputs: names.into() })?;
    if behaviour == "exit-after-report" {
        exit(i32::try_from(argument).unwrap_or(1));
    }
    Ok(())
}

fn ready(samples_per_epoch: u64, threads: u64) -> Message {
    Message::Ready {
        version: "stand-in".into(),
        samples_per_epoch,
        parameters: 1,
        cpu_capability: "DEFAULT".into(),
        threads,
    }
}

fn train(plan: &Plan, span: &Span, ear: &Ear, voice: &mut Voice) -> Result<(), Error> {
    let purpose = plan.intent.purpose.clone();
    let (purpose, path) =
        purpose.split_once(" count ").map_or((purpose.as_str(), None), |(head, path)| (head, Some(path)));
    let (behaviour, argument) = purpose.split_once(' ').unwrap_or((purpose, "0"));
    let argument: u64 = argument.parse().unwrap_or(0);
    let at = |name: &str, step: u64| behaviour == name && argument == step;
    let outputs = folder("XT_OUTPUTS")?;
    for input in &plan.inputs {
        if Digest::of(&fs::read(folder("XT_INPUTS")?.join(input.digest.hex()))?) != input.digest {
            return Err(Error::other("an input is not what the plan says"));
        }
    }
    match behaviour {
        "hang-ignoring" => SigSet::all().thread_block()?,
        "crash-when-told" => crash_when_told()?,
        "late" => std::thread::sleep(Duration::from_millis(argument)),
        _ => {}
    }
    // Counts the starts of this attempt: two workers in one folder would give 2.
    fs::create_dir_all(outputs.join("model"))?;
    OpenOptions::new().append(true).create(true).open(outputs.join("model/starts"))?.write_all(b"1")?;
    // Counts them outside of the run, too: `… count PATH`, where isolation lets it.
    if let Some(path) = path {
        OpenOptions::new().append(true).create(true).open(path)?.write_all(b"1")?;
    }
    println!("stand-in: {} steps", plan.work.steps);
    babble(behaviour, plan, voice)?;
    let mut last = span.to_step.unwrap_or(plan.work.steps);
    // The lines before a restored state are those that this worker would have said.
    let mut early = Follow::new(plan);
    let before = 1..=span.from.as_ref().map_or(0, |from| from.step);
    before.for_each(|step| early.take_in(step, loss_of(step)));
    let shape = chain::shape(plan).ok_or_else(|| Error::other("the plan makes no run"))?;
    let start = span.from.as_ref().map_or(0, |from| from.step);
    let (mut chain, mut lines) = (span.from.as_ref().map_or(plan.id(), |from| from.chain), String::new());
    let mut draining = false;
    for step in start + 1..=last {
        if at("held", step) {
            voice.say(&Message::Held { step, reason: "the loss is not finite".into() })?;
            exit(3);
        }
        let before = chain;
        let mut line = line(plan.seed, step, &shape)?.chain_to(before);
        if behaviour == "skip-updates" {
            line.skipped = true;
            line = line.chain_to(before);
        }
        chain = line.chain;
        early.take_in(step, line.loss_bits.value());
        if at("break-chain", step) {
            line.learning_rate = finite(0.5);
        }
        lines += &(line.write().canonical() + "\n");
        if !at("leave-out", step) {
            voice.say(&Message::Step { line: Box::new(line), nanoseconds: 1000 })?;
        }
        // As the true worker does: the step at which it is held is in the trace.
        if at("held-after", step) {
            voice.say(&Message::Held { step, reason: "the loss is not finite".into() })?;
            exit(3);
        }
        misbehave(behaviour, argument, step)?;
        draining |= ear.drained();
        if span.cadence.due(step, last) || (draining && step < last) {
            draining |= shoot(plan, step, ear, voice)?;
        }
        if early.stopped().is_some() && behaviour != "run-on" {
            last = step;
            break;
        }
        if draining && step < last {
            fs::create_dir(outputs.join("trace"))?;
            fs::write(outputs.join(LINES), lines)?;
            voice.say(&Message::Drained { step, outputs: vec!["model/starts".into(), LINES.into()] })?;
            exit(4);
        }
    }
    fs::write(outputs.join(WEIGHTS), weights_after(plan.seed, last))?;
    fs::write(outputs.join(CONFIGURATION), "{}")?;
    fs::create_dir(outputs.join("trace"))?;
    if behaviour == "other-trace" {
        lines.push('\n');
    }
    fs::write(outputs.join(LINES), lines)?;
    let names = [CONFIGURATION, WEIGHTS, "model/starts", LINES];
    finish(behaviour, argument, &outputs)?;
    let steps = if behaviour == "other-count" { last + 1 } else { last };
    let done = Message::Completed { steps, outputs: names.iter().map(ToString::to_string).collect() };
    if behaviour == "cut-report" {
        let text = done.write().canonical();
        return voice.0.write_all(&text.as_bytes()[..text.len() / 2]);
    }
    voice.say(&done)?;
    match behaviour {
        "abort-after-report" => raise(Signal::SIGABRT)?,
        "kill-after-report" => raise(Signal::SIGKILL)?,
        "talk-after-report" => voice.say(&Message::Failed { reason: "second thoughts".into(), of_model: false })?,
        "exit-after-report" => exit(i32::try_from(argument).unwrap_or(1)),
        "linger-after-report" => std::thread::sleep(Duration::from_secs(argument)),
        _ => {}
    }
    Ok(())
}

/// Says that it is ready, properly or in some way that cannot be true.
fn babble(behaviour: &str, plan: &Plan, voice: &mut Voice) -> Result<(), Error> {
    let (samples, threads) = (plan.work.samples_per_epoch, plan.candidate.threads());
    match behaviour {
        "not-ready" => return Ok(()),
        "other-threads" => return voice.say(&ready(samples, threads + 1)),
        "other-samples" => return voice.say(&ready(samples - 1, threads)),
        "garbage" => voice.0.write_all(b"{\"kind\":\"ready\"}\n")?,
        "endless-line" => voice.0.write_all(&vec![b'x'; 2 << 20])?,
        "text" => {
            voice.say(&ready(samples, threads))?;
            return voice.say(&Message::Text { text: "Call me".into() });
        }
        "twice-ready" => voice.say(&ready(samples, threads))?,
        _ => {}
    }
    voice.say(&ready(samples, threads))
}

/// Breaks down as soon as someone asks it to stop.
fn crash_when_told() -> Result<(), Error> {
    let mut term = SigSet::empty();
    term.add(Signal::SIGTERM);
    term.thread_block()?;
    std::thread::spawn(move || {
        while term.wait().is_err() {}
        raise(Signal::SIGABRT).is_ok()
    });
    Ok(())
}

/// What goes wrong after a step.
fn misbehave(behaviour: &str, argument: u64, step: u64) -> Result<(), Error> {
    match behaviour {
        "slow" | "crash-when-told" => std::thread::sleep(Duration::from_millis(argument)),
        "exit-early" if step == argument => exit(0),
        "crash" if step == argument => raise(Signal::SIGABRT)?,
        "hang" | "hang-ignoring" if step == argument => std::thread::sleep(Duration::from_mins(5)),
        _ => {}
    }
    Ok(())
}

/// What goes wrong after the last step, before completion is reported.
fn finish(behaviour: &str, argument: u64, outputs: &std::path::Path) -> Result<(), Error> {
    let own = || std::env::current_exe().map(Command::new);
    match behaviour {
        "odd-name" => fs::write(outputs.join("line\nfeed"), "x")?,
        "flood" => flood(argument)?,
        "daemon" => {
            // The shell-less double fork: a child that leaves a child behind and ends.
            let mut child = own()?;
            child.arg("--sleep").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            drop(child.spawn()?);
        }
        "children" => {
            for _ in 0..argument {
                own()?.arg("--end").spawn()?.wait()?;
            }
        }
        "memory" => drop(std::hint::black_box(vec![1u8; usize::try_from(argument).unwrap_or(0)])),
        "disk" => fs::write(outputs.join("big"), vec![1u8; usize::try_from(argument).unwrap_or(0)])?,
        "unreported-output" => fs::write(outputs.join("extra"), "x")?,
        _ => {}
    }
    Ok(())
}

fn flood(bytes: u64) -> Result<(), Error> {
    let block = [b'x'; 4096];
    let mut stdout = std::io::stdout().lock();
    for _ in 0..bytes / 4096 {
        stdout.write_all(&block)?;
    }
    stdout.flush()
}

/// The loss of a step: it falls towards 0.
fn loss_of(step: u64) -> f32 {
    1.0 / f32::from(u16::try_from(step).unwrap_or(u16::MAX))
}

/// Step `step` of a run with `seed`: what follows from the plan is right, the other figures are made up and differ by seed
/// and step.
fn line(seed: u64, step: u64, shape: &Shape) -> Result<Step, Error> {
    let digest = |what: &str| Digest::of(format!("{what} {seed} {step}").as_bytes());
    let loss = loss_of(step);
    let mut walk = Walk::new(*shape, seed);
    let batches = walk.step(step - 1);
    let generator = Generator { algorithm: GENERATOR.into(), seed, micro_batch: walk.next_micro_batch(step) };
    Ok(Step {
        step,
        epoch: batches.last().map_or(0, |batch| batch.epoch),
        micro_batches: batches.len() as u64,
        samples: samples_digest(&batches),
        learning_rate: finite(0.001),
        loss: Finite::new(f64::from(loss)),
        loss_bits: Bits32::of(loss),
        loss_scale: finite(1.0),
        gradient_norm: Finite::new(1.0),
        gradient_norm_bits: Bits32::of(1.0),
        stages: StageName::ALL.iter().map(|stage| stage_of(*stage)).collect(),
        gradients: digest("gradients"),
        parameters: Weights::of(&weights_after(seed, step)).map_err(Error::other)?,
        optimizer: snapshot::optimizer_digest(
            Weights::of(&weights::file(&BTreeMap::new())).map_err(Error::other)?,
            step,
        ),
        averaged: None,
        generator: generator.digest(),
        cursor: walk.cursor(step).digest(),
        skipped: false,
        chain: digest("chain"),
    })
}

/// The trained parameters after a step: one tensor, made up of the digest of seed and step.
fn weights_after(seed: u64, step: u64) -> Vec<u8> {
    let digest = Digest::of(format!("weights {seed} {step}").as_bytes());
    let values: Vec<f32> = digest.bytes().iter().map(|byte| f32::from(*byte)).collect();
    weights::file(&BTreeMap::from([("made.up".to_string(), (vec![values.len() as u64], values))]))
}

fn finite(number: f64) -> Finite {
    Finite::new(number).unwrap_or_else(|| unreachable!("a literal"))
}

fn stage_of(stage: StageName) -> Stage {
    Stage {
        stage,
        checked: 1,
        nan: 0,
        positive_infinite: 0,
        negative_infinite: 0,
        maximum: finite(0.0),
        tensors: Vec::new(),
    }
}
