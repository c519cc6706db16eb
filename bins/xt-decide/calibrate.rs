//! A regime that is not exact, held against exact branches.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use xt_cli::{Common, Error, Output, Source, each, note, read_documents, read_one};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::branch::Branch;
use xt_core::manifest::calibration::Gates;
use xt_core::verb::calibrate::{calibrate, sentence};
use xt_store::Store;

/// What is held against each other, and what must be reached.
#[derive(Args, Clone, Debug)]
pub(crate) struct Calibrate {
    /// Branches in the exact regime (xt.branch/1): a file, a digest or -
    #[arg(value_name = "EXACT")]
    exact: OsString,
    /// The same branches in the other regime
    #[arg(value_name = "OTHER")]
    other: OsString,
    /// What must be reached (xt.gates/1)
    #[arg(value_name = "GATES")]
    gates: OsString,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the calibration, also when it does not pass.
pub(crate) fn calibration(given: &Calibrate, common: &Common) -> Result<Exit, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    let branches = |name: &OsString| -> Result<Vec<Branch>, Error> {
        Ok(each(&read_documents(&[Source::from(name.as_os_str())], &lookup)?, Branch::decode)?)
    };
    let gates = Gates::decode(&read_one(&Source::from(given.gates.as_os_str()), &lookup)?.value)?;
    let found = calibrate(&branches(&given.exact)?, &branches(&given.other)?, &gates, common.now()?)?;
    let mut output = Output::new(given.output.as_deref())?;
    output.document(&found.encode())?;
    output.finish()?;
    note(common, &format!("xt-decide: {}", sentence(&found)));
    Ok(if found.passed { Exit::Yes } else { Exit::No })
}
