//! Does a job: trains by a plan, measures, or writes text.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use xt_core::field::Manifest;
use xt_core::manifest::candidate::NonFinite;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::Plan;
use xt_core::verb::compile::check_plan;

use crate::data::text::TextData;
use crate::evaluate::evaluate;
use crate::fault::TrainError;
use crate::sample::{Request, sample};
use crate::step::{Trainer, hold};
use crate::telemetry::Telemetry;
use crate::trace::{self, TraceWriter};
use crate::{checkpoint, regime};

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All is done and written.
    Completed,
    /// A stop condition holds the run.
    Held,
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
pub fn perform<W: Write>(job: Job, folders: Folders<'_>, telemetry: &mut Telemetry<W>) -> Result<Ending, TrainError> {
    match job {
        Job::Train { plan, to_step } => train(*plan, to_step, folders, telemetry),
        Job::Evaluate { plan } => evaluate(&plan, folders, telemetry),
        Job::Sample { model, weights, tokenizer, execution, prompt, tokens, temperature, seed } => {
            let request = Request {
                model: &model,
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

fn train<W: Write>(
    plan: Plan,
    to_step: Option<u64>,
    folders: Folders<'_>,
    telemetry: &mut Telemetry<W>,
) -> Result<Ending, TrainError> {
    let differences = regime::environment(&plan.environment, |name| std::env::var(name).ok());
    if !differences.is_empty() {
        return Err(TrainError::Pins(differences));
    }
    check_plan(&plan).map_err(TrainError::Plan)?;
    let pins = regime::pin(&plan.candidate.execution)?;
    let (data, tokenizer) = TextData::read(&plan, folders.inputs)?;
    let samples_per_epoch = data.samples();
    let mut trace = TraceWriter::create(folders.outputs, plan.id())?;
    let (candidate, last) = (plan.candidate.clone(), to_step.unwrap_or(plan.work.steps).min(plan.work.steps));
    let whole = last == plan.work.steps;
    let mut trainer = Trainer::new(plan, data)?;
    telemetry.say(&Message::Ready {
        version: env!("CARGO_PKG_VERSION").into(),
        samples_per_epoch,
        parameters: trainer.state.parameters.layout.parameters(),
        cpu_capability: pins.cpu_capability,
        threads: pins.threads,
    })?;
    let stops = candidate.stops.non_finite == NonFinite::Hold;
    while trainer.state.steps < last {
        let reason = step(&mut trainer, &mut trace, telemetry)?;
        if let Some(reason) = reason.filter(|_| stops) {
            trace.finish()?;
            telemetry.say(&Message::Held { step: trainer.state.steps, reason })?;
            return Ok(Ending::Held);
        }
    }
    trace.finish()?;
    let mut outputs = vec![trace::PATH.to_string()];
    if whole {
        outputs.extend(checkpoint::save(
            folders.outputs,
            &candidate.model,
            &trainer.state.parameters,
            tokenizer.as_deref(),
        )?);
        outputs.sort();
    }
    telemetry.say(&Message::Completed { steps: last, outputs })?;
    Ok(Ending::Completed)
}

/// One step: computed, traced, told. Gives the reason to hold, if there is one.
fn step<W: Write>(
    trainer: &mut Trainer,
    trace: &mut TraceWriter,
    telemetry: &mut Telemetry<W>,
) -> Result<Option<String>, TrainError> {
    let start = Instant::now();
    let line = trace.append(trainer.step()?)?;
    let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let reason = hold(&line);
    telemetry.say(&Message::Step { line: Box::new(line), nanoseconds })?;
    Ok(reason)
}
