//! Text from a trained model.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};

use xt_bundle::Given;
use xt_cli::{Error, Output, Source, parse_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Faults};
use xt_core::field::Manifest as _;
use xt_core::manifest::Artifact;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::number::Finite;
use xt_core::verb::bind::{ADAPTER, WEIGHTS};
use xt_runtime::{SampleEnd, Sampling, Signals, worker, writes};
use xt_store::Store;

use crate::XtRun;
use crate::results::printable;

#[derive(clap::Args, Debug)]
pub(crate) struct Sample {
    /// Run record, bundle or archive of a bundle: a file, a digest in the store, or - for standard input
    #[arg(value_name = "RUN|BUNDLE")]
    source: OsString,
    /// What to go on from
    #[arg(long, value_name = "TEXT", default_value = "\n", allow_hyphen_values = true,
        value_parser = prompt)]
    prompt: String,
    /// Tokens to write
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tokens: u64,
    /// Divides the logits; 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value = "0.8", value_parser = temperature)]
    temperature: Finite,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn prompt(text: &str) -> Result<String, &'static str> {
    if text.is_empty() {
        return Err("a model goes on from at least one character; without --prompt from a line feed");
    }
    Ok(text.into())
}

fn temperature(text: &str) -> Result<Finite, String> {
    let number = text.parse().ok().and_then(Finite::new).filter(|number| (0.0..=100.0).contains(&number.get()));
    number.ok_or_else(|| "expected a number from 0 to 100".into())
}

impl XtRun {
    /// Lets the model of a run or bundle write.
    pub(crate) fn sample(&self, sample: &Sample) -> Result<Exit, Error> {
        let value = self.trained(&Source::from(sample.source.as_os_str()))?;
        let store = Store::open(&self.common.store)?;
        let (plan, weights) = model(&value)?;
        let plan: Plan = store.manifest(plan)?;
        writes(&plan)?;
        let sampling = Sampling {
            weights: weights.digest,
            bytes: weights.bytes,
            prompt: sample.prompt.clone(),
            tokens: sample.tokens,
            temperature: sample.temperature,
            seed: sample.seed,
        };
        let (worker, signals) = (worker::find(self.worker.as_deref())?, Signals::block()?);
        let mut output = Output::new(None)?;
        output.bytes(sample.prompt.as_bytes())?;
        // A model may write anything, and a model from a stranger may do so on purpose.
        let to_people = io::stdout().is_terminal();
        let mut written = Ok(());
        let ended = xt_runtime::sample(&store, &plan, &sampling, &worker, &signals, &mut |text| {
            let text = if to_people { printable(text) } else { text.to_string() };
            written = output.bytes(text.as_bytes());
            written.is_ok()
        })?;
        written?;
        output.bytes(b"\n")?;
        Ok(if ended == SampleEnd::Completed { Exit::Yes } else { Exit::Workload })
    }
}

impl XtRun {
    /// The run record or bundle at `source`; an archive is verified and taken into the store first.
    fn trained(&self, source: &Source) -> Result<Value, Error> {
        let failed = |error| Error::from(source.unreadable(error));
        let given = match source {
            Source::Digest(digest) => Given::Text(self.lookup(*digest)?),
            Source::Stdin => Given::look(io::stdin()).map_err(failed)?,
            Source::File(path) => Given::look(std::fs::File::open(path).map_err(failed)?).map_err(failed)?,
        };
        match given {
            Given::Text(text) => parse_one(&text, &source.name()),
            Given::Archive(archive) => {
                let store = Store::open_or_create(&self.common.store)?;
                Ok(xt_bundle::import(&store, archive, &source.name())?.encode())
            }
        }
    }
}

/// The plan and the trained parameters that a run record or a bundle names.
fn model(value: &Value) -> Result<(Digest, Artifact), Faults> {
    let none = |what: &str| Faults::one("", "model.missing", format!("{what} names no {WEIGHTS}"));
    if value.get("schema").and_then(Value::as_str) == Some(Bundle::TAG) {
        let bundle = Bundle::decode(value)?;
        let member = bundle.members.into_iter().find(|member| [WEIGHTS, ADAPTER].contains(&member.file.path.as_str()));
        return Ok((bundle.plan, member.ok_or_else(|| none("this bundle"))?.file));
    }
    let run = Run::decode(value)?;
    if run.status != Status::Succeeded {
        let message = format!("only a succeeded run has a model, this one is {}: {}", run.status, run.cause);
        return Err(Faults::one("/status", "model.status", message));
    }
    let file = run.artifacts.into_iter().find(|file| [WEIGHTS, ADAPTER].contains(&file.path.as_str()));
    Ok((run.plan, file.ok_or_else(|| none("this run"))?))
}
