//! The worker: reads one job, does it, says so.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use xt_core::canonical::{MAX_BYTES, ParseError, parse};
use xt_core::fault::Faults;
use xt_core::field::Field;
use xt_core::manifest::job::{Job, Message};
use xt_torch::descriptor::inherited;
use xt_trainer::control::Control;
use xt_trainer::perform::Folders;
use xt_trainer::telemetry::Telemetry;
use xt_trainer::{Ending, TrainError, perform};

/// The job failed.
const FAILED: u8 = 1;
/// The command line or the environment of the worker is wrong.
const USAGE: u8 = 2;
/// A stop condition holds the run.
const HELD: u8 = 3;
/// It stopped at a step boundary because it was asked to.
const DRAINED: u8 = 4;

/// What the launcher got wrong.
#[derive(Debug, thiserror::Error)]
enum Setup {
    #[error("{0} is not set; the runtime starts this program, people do not")]
    Unset(&'static str),
    #[error("{name} is no descriptor: {value:?}: {source}")]
    Descriptor { name: &'static str, value: String, source: io::Error },
}

/// Why a job was not done.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the job cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("the job is no JSON: {0}")]
    NoJson(ParseError),
    #[error("the job is refused:\n{0}")]
    Refused(Faults),
    #[error(transparent)]
    Train(#[from] TrainError),
}

struct Desk {
    job: File,
    control: Control,
    telemetry: Telemetry<File>,
    inputs: PathBuf,
    outputs: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    if arguments.len() == 1 && arguments[0] == "--version" {
        println!("xt-train {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    if !arguments.is_empty() {
        eprintln!("xt-train: error[usage]: the only argument is --version; jobs come on a descriptor");
        return USAGE.into();
    }
    match desk() {
        Ok(desk) => work(desk).into(),
        Err(setup) => {
            eprintln!("xt-train: error[usage]: {setup}");
            USAGE.into()
        }
    }
}

fn desk() -> Result<Desk, Setup> {
    let folder = |name| env::var_os(name).map(PathBuf::from).ok_or(Setup::Unset(name));
    let (inputs, outputs) = (folder("XT_INPUTS")?, folder("XT_OUTPUTS")?);
    Ok(Desk {
        job: descriptor("XT_JOB_FD", "3")?,
        telemetry: Telemetry::new(descriptor("XT_TELEMETRY_FD", "4")?),
        // Whoever only lets it work need not give one.
        control: descriptor("XT_CONTROL_FD", "5").map_or_else(|_| Control::none(), Control::listen),
        inputs,
        outputs,
    })
}

fn descriptor(name: &'static str, default: &str) -> Result<File, Setup> {
    let value = env::var_os(name).unwrap_or_else(|| default.into()).to_string_lossy().into_owned();
    let number = value.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error));
    number.and_then(inherited).map_err(|source| Setup::Descriptor { name, value, source })
}

/// Does the job and gives the exit code. A panic is a bug; it ends the job with `failed` like any other fault.
fn work(desk: Desk) -> u8 {
    let Desk { mut job, control, mut telemetry, inputs, outputs } = desk;
    let folders = Folders { inputs: &inputs, outputs: &outputs };
    let done = catch_unwind(AssertUnwindSafe(|| do_job(&mut job, control, &mut telemetry, folders)));
    let of_model = matches!(&done, Ok(Err(Problem::Train(error))) if error.is_of_model());
    let reason = match done {
        Ok(Ok(Ending::Completed)) => return 0,
        Ok(Ok(Ending::Held)) => return HELD,
        Ok(Ok(Ending::Drained)) => return DRAINED,
        Ok(Err(problem)) => problem.to_string(),
        Err(_) => "a bug in the worker: it panicked; standard error has the place".to_string(),
    };
    eprintln!("xt-train: error: {reason}");
    if let Err(error) = telemetry.say(&Message::Failed { reason, of_model }) {
        eprintln!("xt-train: error: {error}");
    }
    FAILED
}

fn do_job(
    job: &mut File,
    control: Control,
    telemetry: &mut Telemetry<File>,
    folders: Folders<'_>,
) -> Result<Ending, Problem> {
    let mut bytes = Vec::new();
    job.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(Problem::Unreadable)?;
    let value = parse(&bytes).map_err(Problem::NoJson)?;
    let mut faults = Faults::new();
    let job = Job::read(&value, "", &mut faults).filter(|_| faults.is_empty()).ok_or(Problem::Refused(faults))?;
    Ok(perform(job, folders, control, telemetry)?)
}
