//! Run records on their way out, and what people are told about them.

use std::io::{self, Write as _};
use std::path::PathBuf;

use xt_cli::{Error, Output, parse_one};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::evaluation::{Evaluation, Metrics};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::verb::evaluate;
use xt_runtime::LastWords;
use xt_store::Store;

use crate::XtRun;

impl XtRun {
    /// What a succeeded run of a plan that measures has measured.
    pub(crate) fn measured(&self, plan: &Plan, run: &Run) -> Result<Option<Evaluation>, Error> {
        let metrics = plan.evaluation.as_ref().and_then(|_| evaluate::output(run, evaluate::METRICS));
        let Some(metrics) = metrics else { return Ok(None) };
        let metrics: Metrics = Metrics::decode(&parse_one(&self.lookup(metrics.digest)?, evaluate::METRICS)?)?;
        Ok(evaluate::evaluation(plan, run, metrics))
    }

    /// Tells people of a run that did not succeed, with the last it said when it failed.
    pub(crate) fn tell(&self, run: &Run) {
        if run.status == Status::Succeeded {
            return;
        }
        eprintln_quietly(&format!("xt-run: {} {}: {}", run.attempt, run.status, run.cause));
        let words = Store::open(&self.common.store).ok().and_then(|store| LastWords::of(&store, run));
        if let Some(LastWords { line, log }) = words {
            let (line, log) = (printable(&line), log.display());
            eprintln_quietly(&format!(
                "xt-run: the last line of its standard error: {line}\nhint: all of it is in {log}"
            ));
        }
    }
}

/// Run records on their way out. To standard output each goes at once; a file appears only when every run succeeded,
/// and when one did not, the records go to standard output instead.
pub(crate) struct Results {
    file: Option<PathBuf>,
    kept: Vec<String>,
    exit: Exit,
}

impl Results {
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Self { file, kept: Vec::new(), exit: Exit::Yes }
    }

    pub(crate) fn run(&mut self, run: &Run, measured: Option<Evaluation>) -> Result<(), Error> {
        if self.exit == Exit::Yes {
            self.exit = exit_of(run);
        }
        self.line(measured.map_or_else(|| run.encode(), |evaluation| evaluation.encode()).canonical())
    }

    pub(crate) fn line(&mut self, line: String) -> Result<(), Error> {
        if self.file.is_some() {
            self.kept.push(line);
            return Ok(());
        }
        Output::new(None)?.line(&line)
    }

    pub(crate) fn finish(self) -> Result<Exit, Error> {
        let file = self.file.as_deref().filter(|_| self.exit == Exit::Yes);
        let mut output = Output::new(file)?;
        for line in &self.kept {
            output.line(line)?;
        }
        output.finish()?;
        Ok(self.exit)
    }
}

/// A worker that was not started because of its isolation has left a custody record.
pub(crate) fn exit_of(run: &Run) -> Exit {
    match run.status {
        Status::Succeeded => Exit::Yes,
        Status::Drained => Exit::Drained,
        Status::NotStarted if run.custody.is_some() => Exit::Custody,
        _ => Exit::Workload,
    }
}

/// Text without the control characters that move a terminal's cursor or change its state.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c }).collect()
}

pub(crate) fn eprintln_quietly(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
