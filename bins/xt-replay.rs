//! `xt-replay`: does it come out bit for bit? If not, at which step and in what first?

use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use nix::sys::signal::Signal;
use xt_cli::{Common, Error, Manual, Tool, note};
use xt_core::fault::{Exit, Faults};
use xt_runtime::{Clock, Runtime, SecretFile, Signals, worker};

#[path = "xt-replay/admission.rs"]
mod admission;
#[path = "xt-replay/again.rs"]
mod again;
#[path = "xt-replay/audit.rs"]
mod audit;
#[path = "xt-replay/branches.rs"]
mod branches;
#[path = "xt-replay/comparison.rs"]
mod comparison;
#[path = "xt-replay/localize.rs"]
mod localize;
#[path = "xt-replay/recorded.rs"]
mod recorded;
#[path = "xt-replay/report.rs"]
mod report;

use admission::ReplayError;
use again::{Again, Part};
use recorded::Recorded;

/// Repeat a run and compare it step by step, bit for bit
///
/// The stack that recorded the run is compared with the present one first: a replay on another stack is refused with
/// every difference before anything computes. Then each step is compared as it comes, and the replay stops at the first
/// that differs. After the last step the outputs are compared.
#[derive(Parser, Debug)]
#[command(name = "xt-replay", version, subcommand_negates_reqs = true, subcommand_precedence_over_arg = true)]
struct Arguments {
    /// Run record, bundle or archive: a file, a digest in the store, or - for standard input
    #[arg(value_name = "RUN|BUNDLE", default_value = "-")]
    source: OsString,
    /// Stop after this step [default: the last recorded one]
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    to: Option<u64>,
    /// Begin after this step, at the nearest stored state at or before it [default: the start]
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    from: Option<u64>,
    /// Replay only K parts between stored states, drawn by lot from the digest of the trace
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["to", "from"])]
    audit: Option<u64>,
    /// Where it diverges, restore the last equal state and say which tensors differ there
    #[arg(long)]
    localize: bool,
    /// Draw both traces into FILE
    #[arg(long, value_name = "FILE", conflicts_with = "audit")]
    svg: Option<PathBuf>,
    /// Replay on another stack than the recorded one; the report lists what differs
    #[arg(long)]
    ignore_stack: bool,
    /// The worker that trains [default: xt-train beside this program or in ../libexec/xt; of a full bundle, the one in it where there is no such or another]
    #[arg(long, value_name = "PATH", env = worker::VARIABLE)]
    worker: Option<PathBuf>,
    /// Give a secret that the plan's intent declares; /dev/fd/N names an open descriptor
    #[arg(long, value_name = "NAME=FILE")]
    secret: Vec<SecretFile>,
    /// Write the report to FILE, which appears only when the replay was equal
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Compare two recorded traces without running anything; exit status 1 when they part, 3 when one is only longer
    Diff {
        /// Run record, bundle or archive
        #[arg(value_name = "A")]
        first: OsString,
        /// The other
        #[arg(value_name = "B")]
        second: OsString,
        /// Draw both into FILE
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// Compare recorded branches with the no-op of their set, horizon by horizon, without running anything; exit status 1 when an effect that is known is another one
    Branches(branches::BranchesArguments),
}

impl Tool for Arguments {
    const MANUAL: Manual = Manual {
        input: "One run record (xt.run/1), bundle (xt.bundle/1) or archive of xt-freeze. An archive is verified and taken \
                into the store first; the store may be absent or empty then. A full bundle brings its worker with all that it \
                loads, down to the C library: it is used, in the same custody, where this machine has no such worker. The \
                processor must still be the recorded one.",
        output: "One xt.replay/1: steps compared, the first divergence by step and component, outputs by digest. The run \
                 record of the replay is in the store. diff gives one xt.trace-diff/1, branches one xt.branch/1 for each branch, or \
                 with --cells one labelled object for each replicate and horizon.",
        files: &[
            (".xt", "the store; --store or XT_STORE names another"),
            (".xt/cache/workers/", "workers of full bundles; they may be removed"),
        ],
        examples: &[
            ("xt-replay model.tar.zst", "Repeat the run of an archive and compare every step."),
            (
                "xt-replay --store /tmp/empty full.tar.zst",
                "The same where no worker is installed: a full bundle brings it.",
            ),
            (
                "xt-replay --store /tmp/empty - < model.tar.zst",
                "The same as a stranger, who has nothing but the archive.",
            ),
            ("xt-compile candidate.json | xt-run | xt-replay", "Train twice and compare."),
            ("xt-replay --to 10 run.json", "Compare the first ten steps only."),
            ("xt-replay --from 900 run.json", "Begin at the nearest stored state at or before step 900."),
            ("xt-replay --audit 3 run.json", "Check three parts between stored states, drawn by lot."),
            (
                "xt-replay --localize --svg parted.svg run.json",
                "Name step, stage and tensor of a divergence, and draw it.",
            ),
            ("xt-replay diff a.json b.json", "Where do two recorded runs part?"),
            ("xt-replay branches branches.jsonl", "What did each branch do, against the no-op?"),
        ],
        exits: &[
            Exit::Yes,
            Exit::No,
            Exit::Usage,
            Exit::Undecided,
            Exit::Refused,
            Exit::Store,
            Exit::Custody,
            Exit::Workload,
            Exit::System,
            Exit::NotNow,
            Exit::Bug,
        ],
        see_also: &[
            "xt-run(1)",
            "xt-snapshot(1)",
            "xt-freeze(1)",
            "xt-log(1)",
            "xt-store(5)",
            "xt-manifest(5)",
            "xt(7)",
        ],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

/// The signal that ended the waiting.
type Left = Cell<Option<Signal>>;

fn main() -> ExitCode {
    if let Some(code) = xt_runtime::supervise_if_asked() {
        return code;
    }
    let left = Left::new(None);
    let code = xt_cli::main(|arguments: Arguments| match &arguments.verb {
        None => arguments.replay(&left),
        Some(Verb::Branches(branches)) => branches::branches(branches, &arguments.common, arguments.output.as_deref()),
        Some(Verb::Diff { first, second, svg }) => arguments.diff(first, second, svg.as_deref()),
    });
    // 128+n says that a signal ended the waiting and that nothing was settled.
    left.get().and_then(|signal| u8::try_from(signal as i32).ok()).map_or(code, |n| ExitCode::from(128 + n))
}

impl Arguments {
    fn replay(&self, left: &Left) -> Result<Exit, Error> {
        let recorded = Recorded::read(self, &self.source, self.to)?;
        if let Some(program) = &recorded.papers.plan.program {
            let (worker, runtime) = (PathBuf::from(&program.executable.path), self.runtime()?);
            let allowed = self.admit_command(&recorded, program)?;
            let again = Again { arguments: self, recorded: &recorded, worker, allowed, runtime, left };
            return again.command(&Signals::block()?);
        }
        let worker = self.find_worker(&recorded)?;
        let allowed = self.admit(&recorded, &worker)?;
        let again = Again { arguments: self, recorded: &recorded, worker, allowed, runtime: self.runtime()?, left };
        let signals = Signals::block()?;
        if let Some(count) = self.audit {
            return again.audit(count, &signals);
        }
        let from = match self.from {
            Some(step) if step >= recorded.steps => {
                let message = format!("--from {step}: there is no step after it up to {}", recorded.steps);
                return Err(ReplayError::Refused(Faults::one("run#/trace", "replay.step", message)).into());
            }
            Some(step) => recorded.original().nearest(&recorded.store, step)?,
            None => recorded.original().begin(),
        };
        if let Some(step) = self.from.filter(|step| from.as_ref().is_none_or(|start| start.step != *step)) {
            let begin = from.as_ref().map_or(0, |start| start.step);
            note(&self.common, &format!("replay: no state after step {step} is stored; it begins after step {begin}"));
        }
        let part = Part { from, to: recorded.steps };
        let Some(done) = again.run(&part, &signals)? else { return Ok(Exit::Workload) };
        self.draw(&recorded, &done.comparison.seen)?;
        let localization = if self.localize { again.localize(&done, &part, &signals)? } else { None };
        let mut replay = done.comparison.conclude(&recorded, &done.followed, &part);
        replay.localization = localization;
        self.report(&recorded, &replay, &done.followed)
    }

    fn runtime(&self) -> Result<Runtime, Error> {
        let fixed = std::env::var_os(Clock::VARIABLE).is_some() || std::env::args().any(|a| a.starts_with("--now"));
        let clock = if fixed { Clock::fixed(self.common.now()?) } else { Clock::system() };
        Ok(Runtime::new(&self.common.store, clock)?)
    }
}
