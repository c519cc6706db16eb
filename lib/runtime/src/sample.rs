//! Text from a trained model: the worker in the same custody as in training, with the model as its only input. It is no
//! training run, so it has no attempt and leaves nothing behind.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::{Input, Plan, Role};
use xt_core::number::Finite;
use xt_store::Store;

use crate::digests::Digests;
use crate::error::{RuntimeError, file};
use crate::launch::{self, Launch, Places};
use crate::lines::Lines;
use crate::signals::Signals;
use crate::stream::Stream;
use crate::telemetry;
use crate::watch::wait_for;
use crate::worker::Worker;

/// What to write.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// Digest of the trained parameters.
    pub weights: Digest,
    /// Their size in bytes.
    pub bytes: u64,
    /// What to go on from.
    pub prompt: String,
    /// Tokens to write.
    pub tokens: u64,
    /// Divides the logits; 0 always takes the likeliest token.
    pub temperature: Finite,
    /// Seed of the draws.
    pub seed: u64,
}

/// Lets `worker` write text by `plan`'s model, and hands each stretch to `on_text` as it comes. A signal ends it, and so
/// does `on_text` with `false`.
pub fn sample(
    store: &Store,
    plan: &Plan,
    sampling: &Sampling,
    worker: &Path,
    signals: &Signals,
    on_text: &mut dyn FnMut(&str) -> bool,
) -> Result<SampleEnd, RuntimeError> {
    let candidate = writes(plan)?;
    let library_path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
    let worker = Worker::inspect(worker, library_path, &mut Digests::open(store.path()))?;
    let scratch = Scratch::new(store)?;
    let (inputs, outputs) = (scratch.0.join("in"), scratch.0.join("out"));
    for folder in [&inputs, &outputs] {
        fs::create_dir_all(folder).map_err(file("create", folder))?;
    }
    launch::lay_out(store, &admitted(plan, sampling), &inputs)?;
    let job = Job::Sample {
        model: Box::new(candidate.model.clone()),
        base: Box::new(candidate.base.clone()),
        weights: sampling.weights,
        tokenizer: candidate.tokenizer.clone(),
        execution: candidate.execution.clone(),
        prompt: sampling.prompt.clone(),
        tokens: sampling.tokens,
        temperature: sampling.temperature,
        seed: sampling.seed,
    };
    let places = Places { inputs: &inputs, outputs: &outputs, mark: None };
    let launch = launch::start(&worker, &job, &places, &plan.intent, &plan.environment)?;
    listen(launch, signals, on_text)
}

/// The candidate of a plan whose model writes text. Any other is refused, before anything is started.
pub fn writes(plan: &Plan) -> Result<&Candidate, RuntimeError> {
    let refused = |why: String| RuntimeError::Refused(Faults::one("/candidate/model", "sample.model", why));
    let Some(candidate) = plan.native() else {
        return Err(refused("the model of a command is its own affair: nothing here can let it write".into()));
    };
    match candidate.model.ends() {
        None => Ok(candidate),
        Some((inputs, outputs)) => Err(refused(format!(
            "this model makes {outputs} numbers of {inputs}, and writes no text; `xt-compile evaluate` measures it"
        ))),
    }
}

/// The model and, where there are such, its tokenizer and the base of its adapters.
fn admitted(plan: &Plan, sampling: &Sampling) -> Vec<Input> {
    let mut inputs = vec![Input { digest: sampling.weights, bytes: sampling.bytes, role: Role::Model }];
    let adapts = plan.native().is_some_and(|candidate| candidate.base.adapter().is_some());
    let wanted = |input: &&Input| input.role == Role::Tokenizer || (adapts && input.role == Role::Base);
    inputs.extend(plan.inputs.iter().filter(wanted).cloned());
    inputs
}

/// Scratch folders start like this; the number of the process that made it follows.
const SCRATCH: &str = "sample-";

/// Removes the scratch folders of processes that are gone, and one of an earlier process with this number.
fn sweep(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.strip_prefix(SCRATCH)?.parse::<u32>().ok());
        let lives = |number| number != std::process::id() && Path::new(&format!("/proc/{number}")).exists();
        if number.is_some_and(|number| !lives(number)) {
            // Best effort: the next one sweeps again.
            drop(fs::remove_dir_all(entry.path()));
        }
    }
}

/// A folder that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(store: &Store) -> Result<Self, RuntimeError> {
        let path = store.runs().join(format!("{SCRATCH}{}", std::process::id()));
        sweep(&store.runs());
        fs::create_dir_all(&path).map_err(file("create", &path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// How a worker that was to write text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleEnd {
    /// All was written.
    Completed,
    /// A signal, or whoever took the text, ended it.
    Stopped,
}

/// Hears the worker until it ends.
fn listen(launch: Launch, signals: &Signals, on_text: &mut dyn FnMut(&str) -> bool) -> Result<SampleEnd, RuntimeError> {
    let Launch { running, pipes, .. } = launch;
    let mut ear = Ear { lines: Lines::default(), said: None, wanted: true, on_text };
    let [mut telemetry, mut stdout, mut stderr] =
        [Stream::new(pipes.telemetry)?, Stream::new(pipes.stdout)?, Stream::new(pipes.stderr)?];
    let mut errors = Vec::new();
    loop {
        let ended = wait_for(&[&telemetry, &stdout, &stderr], &running, signals)?;
        stdout.take();
        errors.extend(stderr.take());
        errors.truncate(MAX_ERRORS);
        ear.hear(&telemetry.take())?;
        if !ear.wanted || signals.take()?.is_some() {
            drop(running.signal(Signal::SIGKILL));
            return running.finish().map(|_| SampleEnd::Stopped).map_err(RuntimeError::from);
        }
        if ended {
            break;
        }
    }
    let ending = running.finish()?;
    ear.hear_all(&mut telemetry)?;
    errors.extend(stderr.take());
    let said = String::from_utf8_lossy(&errors);
    match ear.said {
        Some(Message::Completed { .. }) if ending.code == Some(0) => Ok(SampleEnd::Completed),
        Some(Message::Failed { reason, .. }) => Err(RuntimeError::Silent(reason)),
        _ => Err(RuntimeError::Silent(said.lines().last().unwrap_or("it ended without a report").to_string())),
    }
}

/// More of a worker's complaints is not shown.
const MAX_ERRORS: usize = 1 << 16;

struct Ear<'a> {
    lines: Lines,
    said: Option<Message>,
    wanted: bool,
    on_text: &'a mut dyn FnMut(&str) -> bool,
}

impl Ear<'_> {
    fn hear(&mut self, bytes: &[u8]) -> Result<(), RuntimeError> {
        for line in self.lines.push(bytes).map_err(|error| RuntimeError::Silent(error.to_string()))? {
            match telemetry::message(&line).map_err(RuntimeError::Silent)? {
                Message::Text { text } if self.wanted => self.wanted = (self.on_text)(&text),
                other => self.said = Some(other),
            }
        }
        Ok(())
    }

    fn hear_all(&mut self, telemetry: &mut Stream) -> Result<(), RuntimeError> {
        loop {
            let bytes = telemetry.take();
            if bytes.is_empty() {
                return Ok(());
            }
            self.hear(&bytes)?;
        }
    }
}
