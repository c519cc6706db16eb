//! Recorded branches against the no-op of their set, without running anything.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use xt_cli::{Common, Error, Output, Source, note, read_documents};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::branch::Branch;
use xt_core::manifest::run::Run;
use xt_core::verb::branches::{COLUMNS, cells, csv, effects, no_op, sentence};
use xt_store::Store;

/// What is asked of recorded branches.
#[derive(clap::Args, Debug)]
pub(crate) struct BranchesArguments {
    /// Run records of branches and of their no-op: files, digests or - [default: standard input]
    #[arg(value_name = "RUN")]
    runs: Vec<OsString>,
    /// Write one labelled line for each replicate and horizon instead
    #[arg(long)]
    cells: bool,
    /// Write the cells as a table of comma-separated values into FILE, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Writes what came of the branches.
pub(crate) fn branches(arguments: &BranchesArguments, common: &Common, output: Option<&Path>) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let sources: Vec<Source> = arguments.runs.iter().map(|name| Source::from(name.as_os_str())).collect();
    let mut all = Vec::new();
    for (place, document) in read_documents(&sources, &lookup)?.iter().enumerate() {
        let run = Run::decode(&document.value)?;
        let ran = xt_bundle::ran(&store, run)?;
        all.push(ran.map_err(|faults| faults.within(&format!("run {}", place + 1)))?);
    }
    let found = effects(&all)?;
    let labelled = || found.iter().flat_map(|branch| cells(branch, no_op(branch, &found)));
    if let Some(path) = &arguments.csv {
        let mut table = Output::new(Some(path))?;
        table.line(&COLUMNS.join(","))?;
        labelled().try_for_each(|cell| table.line(&csv(&cell)))?;
        table.finish()?;
    }
    found.iter().try_for_each(|branch| record(&store, branch))?;
    let mut output = Output::new(output)?;
    if arguments.cells {
        labelled().try_for_each(|cell| output.line(&cell.canonical()))?;
    } else {
        found.iter().try_for_each(|branch| output.line(&branch.encode().canonical()))?;
    }
    output.finish()?;
    for branch in &found {
        note(common, &format!("branch {}", sentence(branch)));
    }
    let wrong = found.iter().any(|branch| branch.known.as_ref().is_some_and(|known| !known.holds));
    Ok(if wrong { Exit::No } else { Exit::Yes })
}

/// Keeps what another stack made of the steps of a run: the record of a re-baselining, beside both.
fn record(store: &Store, branch: &Branch) -> Result<(), Error> {
    let Some(moved) = branch.rebaseline.as_ref().filter(|moved| moved.before != moved.after) else { return Ok(()) };
    let id = store.put_manifest(branch)?;
    let reason = format!(
        "{} of {} steps after step {} as before, from stack {} to {}",
        moved.equal_steps, moved.steps, branch.step, moved.before, moved.after
    );
    Ok(store.set_reference(&format!("rebaselines/{}", id.hex()), id, &reason)?)
}
