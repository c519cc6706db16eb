//! From evaluations to what is decided on.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use xt_cli::{CliError, Common, Document, Error, Output, each};
use xt_core::canonical::Value;
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::branch::Branch;
use xt_core::manifest::decision::Objective;
use xt_core::manifest::evaluation::Evaluation;
use xt_core::tag;

use crate::ledger::Ledger;
use crate::{Arguments, branching, read};

#[derive(Args, Clone, Debug)]
pub(crate) struct Assemble {
    /// The experiment
    pub(crate) experiment: String,
    /// Only this candidate, by its node
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Ask whether every seed meets the objective: of each metric the worst result stands
    ///
    /// Without this, several seeds report a metric several times, and nothing is decided.
    #[arg(long)]
    pub(crate) every_seed: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn context(given: &Assemble, common: &Common) -> Result<Exit, Error> {
    let ledger = Ledger::open_read_only(common)?;
    let contexts = ledger.contexts(given, common)?;
    let mut output = Output::new(given.output.as_deref())?;
    for context in &contexts {
        output.document(&context.encode())?;
    }
    output.finish()?;
    Ok(Exit::Yes)
}

/// The end of a pipeline: an objective by its name, and evaluations as `xt-run` writes them, become the contexts of their
/// candidates. Whatever else is given is left as it is.
pub(crate) fn assembled(documents: Vec<Document>, arguments: &Arguments) -> Result<Vec<Document>, Error> {
    let (mut objectives, mut others): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|document| is_objective(&document.value));
    let Some(objective) = objectives.pop() else {
        if arguments.every_seed {
            let message = "--every-seed says how evaluations are decided on: they need an objective beside them, and a \
                           context says it already";
            return Err(CliError::Usage(message.into()).into());
        }
        return Ok(others);
    };
    if !objectives.is_empty() {
        let message = format!("evaluations are decided on by one objective, and {} were given", objectives.len() + 1);
        return Err(Faults::one("", "decision.objective", message).into());
    }
    if others.is_empty() {
        others = read(&[OsString::from("-")], &arguments.common)?;
    }
    let (branches, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|document| is_branch(&document.value));
    let (branches, evaluations) = (each(&branches, Branch::decode)?, each(&others, Evaluation::decode)?);
    if evaluations.is_empty() && branches.is_empty() {
        return Err(Faults::one("", "decision.nothing", "there are no evaluations to decide on").into());
    }
    let mut faults = Faults::new();
    let stated = Objective::read(&objective.value, "", &mut faults).filter(|_| faults.is_empty()).ok_or(faults)?;
    let common = &arguments.common;
    let mut contexts = branching::contexts(&branches, &stated, common)?;
    if !evaluations.is_empty() {
        let ledger = Ledger::open_read_only(common)?;
        contexts.extend(ledger.contexts_of(&evaluations, &stated, arguments.every_seed, common)?);
    }
    let document = |value: Value| Document { value, origin: "evaluations".into() };
    Ok(contexts.iter().map(|context| document(context.encode())).collect())
}

fn is_branch(value: &Value) -> bool {
    value.get("schema").and_then(Value::as_str) == Some(tag::BRANCH)
}

/// An objective has no schema of its own: it is a part of other documents.
fn is_objective(value: &Value) -> bool {
    value.get("schema").is_none() && value.get("primary").is_some()
}
