//! What a replay says, to programs and to people.

use std::ffi::OsString;
use std::path::Path;

use xt_cli::{Error, Output, note};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::replay::{Outcome, Replay, TraceDiff};
use xt_core::manifest::run::Status;
use xt_core::manifest::trace::Step;
use xt_core::verb::{compare, sentence, trace_svg};
use xt_runtime::Followed;

use crate::Arguments;
use crate::recorded::Recorded;

impl Arguments {
    /// Draws both traces, when that was asked for.
    pub(crate) fn draw(&self, recorded: &Recorded, seen: &[Step]) -> Result<(), Error> {
        let Some(path) = &self.svg else { return Ok(()) };
        let Some(first) = seen.first().and_then(|step| usize::try_from(step.step - 1).ok()) else { return Ok(()) };
        let names = [format!("recorded: {}", recorded.id), "replayed".to_string()];
        let svg = trace_svg::comparison([&names[0], &names[1]], &recorded.papers.steps[first..], seen);
        picture(path, &svg)
    }

    /// Compares two recorded traces.
    pub(crate) fn diff(&self, first: &OsString, second: &OsString, svg: Option<&Path>) -> Result<Exit, Error> {
        let (first, second) = (Recorded::read(self, first, None)?, Recorded::read(self, second, None)?);
        let (one, other) = (&first.papers.steps, &second.papers.steps);
        let (equal_steps, divergence, components) = compare::traces(one, other);
        let (outcome, exit) = match &divergence {
            Some(_) => (Outcome::Diverged, Exit::No),
            None if one.len() == other.len() => (Outcome::Equal, Exit::Yes),
            None => (Outcome::Incomplete, Exit::Undecided),
        };
        let found = TraceDiff {
            first: first.id,
            second: second.id,
            same_plan: first.run.plan == second.run.plan,
            outcome,
            first_steps: one.len() as u64,
            second_steps: other.len() as u64,
            equal_steps,
            divergence,
            components,
        };
        if let Some(path) = svg {
            let names = [first.id.to_string(), second.id.to_string()];
            picture(path, &trace_svg::comparison([&names[0], &names[1]], one, other))?;
        }
        note(&self.common, &format!("replay: {}", sentence::difference(&found)));
        let mut output = Output::new(self.output.as_deref().filter(|_| exit == Exit::Yes))?;
        output.document(&found.encode())?;
        output.finish()?;
        Ok(exit)
    }

    /// Prints the report, and says in one line what it says.
    pub(crate) fn report(&self, recorded: &Recorded, replay: &Replay, followed: &Followed) -> Result<Exit, Error> {
        let exit = match (replay.outcome, followed.run.status) {
            (Outcome::Equal, _) => Exit::Yes,
            (Outcome::Diverged, _) => Exit::No,
            (Outcome::Incomplete, Status::NotStarted) if followed.run.custody.is_some() => Exit::Custody,
            (Outcome::Incomplete, _) => Exit::Workload,
        };
        note(&self.common, &format!("replay: {}", sentence::replay(replay, &followed.run)));
        if let Some(from) = &recorded.papers.plan.departure {
            let (step, run) = (from.step, from.run);
            note(
                &self.common,
                &format!("replay: it leaves from the state after step {step} of run {run}, which was not replayed"),
            );
        }
        if let Some(found) = &replay.localization {
            note(&self.common, &format!("replay: {}", sentence::localization(found)));
        }
        if !replay.allowed.is_empty() {
            let names: Vec<&str> = replay.allowed.iter().map(|pin| pin.what.as_str()).collect();
            note(&self.common, &format!("replay: on another stack than run {}: {}", recorded.id, names.join(", ")));
        }
        let mut output = Output::new(self.output.as_deref().filter(|_| exit == Exit::Yes))?;
        output.document(&replay.encode())?;
        output.finish()?;
        Ok(exit)
    }
}

/// Writes a picture, whole or not at all.
fn picture(path: &Path, svg: &str) -> Result<(), Error> {
    let mut output = Output::new(Some(path))?;
    output.bytes(svg.as_bytes())?;
    output.finish()
}
