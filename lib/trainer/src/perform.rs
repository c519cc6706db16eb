//! Does a job: trains by a plan, measures, or writes text.

use std::io::Write;
use std::path::Path;
use std::thread::scope;
use std::time::Instant;

use xt_core::field::Manifest;
use xt_core::manifest::candidate::NonFinite;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::StopReason;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::verb::compile::check_plan;

use crate::average::Average;
use crate::checkpoint::Form;
use crate::control::Control;
use crate::evaluate::evaluate;
use crate::fault::TrainError;
use crate::recorder::Recorder;
use crate::sample::{Request, sample};
use crate::snapshot::Snapshots;
use crate::step::{Trainer, hold};
use crate::telemetry::Telemetry;
use crate::trace::{self, TraceWriter};
use crate::{base, checkpoint, data, regime};

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is done and written.
    Completed,
    /// A stop condition holds the run.
    Held,
    /// It stopped at a step boundary because it was asked to.
    Drained,
}

/// Where a job reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct Folders<'a> {
    /// Inputs, each named by the 64 digits of its digest.
    pub inputs: &'a Path,
    /// Outputs; empty at the start.
    pub outputs: &'a Path,
}

/// Does `job`, and says so.
pub fn perform<W: Write + Send>(
    job: Job,
    folders: Folders<'_>,
    control: Control,
    telemetry: &mut Telemetry<W>,
) -> Result<Ending, TrainError> {
    match job {
        Job::Train { plan, to_step, cadence, from, locate } => {
            let snapshots = Snapshots::new(folders.outputs.into(), cadence, control);
            train(*plan, Span { to_step, from: from.as_deref(), locate }, folders, snapshots, telemetry)
        }
        Job::Evaluate { plan } => evaluate(&plan, folders, telemetry),
        Job::Sample { model, base, weights, tokenizer, execution, prompt, tokens, temperature, seed } => {
            let request = Request {
                model: &model,
                base: &base,
                weights,
                tokenizer: &tokenizer,
                execution: &execution,
                prompt: &prompt,
                tokens,
                temperature: temperature.get(),
                seed,
            };
            sample(&request, folders.inputs, telemetry).map(|()| Ending::Completed)
        }
    }
}

/// The part of a run that is to be computed.
#[derive(Clone, Copy)]
struct Span<'a> {
    to_step: Option<u64>,
    from: Option<&'a Snapshot>,
    locate: bool,
}

fn train<W: Write + Send>(
    plan: Plan,
    span: Span<'_>,
    folders: Folders<'_>,
    mut snapshots: Snapshots,
    telemetry: &mut Telemetry<W>,
) -> Result<Ending, TrainError> {
    let differences = regime::environment(&plan.environment, |name| std::env::var(name).ok());
    if !differences.is_empty() {
        return Err(TrainError::Pins(differences));
    }
    check_plan(&plan).map_err(TrainError::Plan)?;
    let candidate = plan.native().ok_or(TrainError::Command)?.clone();
    let pins = regime::pin(&candidate.execution)?;
    let (data, tokenizer) = data::read(&plan, folders.inputs)?;
    let samples_per_epoch = data.samples();
    let chain = span.from.map_or_else(|| plan.id(), |snapshot| snapshot.chain);
    let trace = TraceWriter::create(folders.outputs, chain)?;
    let last = span.to_step.unwrap_or(plan.work.steps).min(plan.work.steps);
    let whole = last == plan.work.steps;
    let base = base::read(&candidate.model, &candidate.base, folders.inputs)?;
    let mut trainer = match span.from {
        None => Trainer::new(plan, data, base.as_deref())?,
        Some(snapshot) => Trainer::restored(plan, data, base.as_deref(), (snapshot, folders.inputs))?,
    };
    trainer.locates = span.locate;
    telemetry.say(&Message::Ready {
        version: env!("CARGO_PKG_VERSION").into(),
        samples_per_epoch,
        parameters: trainer.state.parameters.layout.parameters(),
        cpu_capability: pins.cpu_capability,
        threads: pins.threads,
    })?;
    let stops = candidate.stops.non_finite == NonFinite::Hold;
    let length = trainer.state.parameters.layout.length();
    let (held, mut outputs) = scope(|scope| {
        let mut recorder = Recorder::start(scope, trace, telemetry, length);
        let done = steps(&mut trainer, &mut snapshots, &mut recorder, Until { last, stops });
        // Why the recorder broke off says more than that it is gone.
        recorder.finish().and(done)
    })?;
    if let Some(reason) = held {
        telemetry.say(&Message::Held { step: trainer.state.steps, reason })?;
        return Ok(Ending::Held);
    }
    outputs.push(trace::PATH.to_string());
    // A run that is restored behind the step at which it stopped takes no further one.
    let stopped = trainer.stops().is_some();
    if trainer.state.steps < last && !stopped {
        telemetry.say(&Message::Drained { step: trainer.state.steps, outputs })?;
        return Ok(Ending::Drained);
    }
    if whole || stopped {
        let parameters = [(checkpoint::FOLDER, trainer.state.parameters.memory())];
        let average = trainer.state.average.as_ref().map(Average::memory);
        let averaged = average.map(|row| (checkpoint::AVERAGED, (&row.layout, &row.values)));
        for (folder, values) in parameters.into_iter().chain(averaged) {
            let saved = checkpoint::save(
                folders.outputs,
                folder,
                &Form::of(&candidate.model, &candidate.base),
                values,
                tokenizer.as_deref(),
            )?;
            outputs.extend(saved);
        }
    }
    outputs.sort();
    telemetry.say(&Message::Completed { steps: trainer.state.steps, outputs })?;
    Ok(Ending::Completed)
}

/// When steps end.
#[derive(Clone, Copy)]
struct Until {
    /// The last step.
    last: u64,
    /// Whether a value that is not finite ends them.
    stops: bool,
}

/// Takes steps until they end. Gives the reason to hold, if there is one, and the files of snapshots that nobody took.
fn steps<W: Write>(
    trainer: &mut Trainer,
    snapshots: &mut Snapshots,
    recorder: &mut Recorder<'_, '_, W>,
    until: Until,
) -> Result<(Option<String>, Vec<String>), TrainError> {
    let hasher = recorder.hasher();
    let mut held = None;
    while trainer.state.steps < until.last && trainer.stops().is_none() {
        let start = Instant::now();
        let step = trainer.step(&hasher)?;
        held = hold(&step.line).filter(|_| until.stops);
        recorder.step(step, u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))?;
        if let Some(place) = trainer.located.take() {
            trainer.locates = false;
            recorder.say(Message::Located { step: trainer.state.steps, place: Box::new(place) })?;
        }
        let stopped = trainer.stops();
        let limit = stopped.as_ref().filter(|(reason, _)| *reason == StopReason::Limit);
        held = held.or_else(|| limit.map(|(_, why)| why.clone()));
        if held.is_some() {
            break;
        }
        let last = if stopped.is_some() { trainer.state.steps } else { until.last };
        snapshots.after_step(trainer, last, recorder)?;
        if snapshots.begun() == trainer.state.steps && snapshots.draining() && trainer.state.steps < last {
            break;
        }
    }
    Ok((held, snapshots.finish(recorder)?))
}
