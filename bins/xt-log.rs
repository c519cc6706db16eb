//! `xt-log`: reads the record.

use std::io::stdout;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use xt_cli::{CliError, Common, Error, Manual, Output, Tool};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::event::Level;
use xt_core::manifest::status::Status;
use xt_core::name::Name;
use xt_record::{Record, RecordError};
use xt_store::Store;

/// Read the record: events, and where each attempt stands
#[derive(Parser, Debug)]
#[command(name = "xt-log", version)]
struct Log {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand, Debug)]
enum Question {
    /// Print events in order, one xt.event/1 a line
    Events {
        /// Begin after the event with this sequence number
        #[arg(long, value_name = "SEQUENCE", default_value_t = 0)]
        after: u64,
        /// Go on with what is written from now on, until stopped
        #[arg(long, short)]
        follow: bool,
    },
    /// Print where every attempt stands, one xt.status/1 a line, in the order of creation
    Status,
    /// Print where one attempt stands, or the attempts of an operation, run, node, experiment, plan or run record
    Show {
        /// An id that the record knows
        id: String,
    },
}

impl Tool for Log {
    const MANUAL: Manual = Manual {
        input: "The record of the store. It is only read; a store on a read-only disk will do.",
        output: "One JSON document a line. Events are in the order of their sequence numbers, which have no gaps; the time \
                 in them is that of the writer's clock and orders nothing. In a status, `state` is what the record holds \
                 and `observed` what can be seen now: an attempt whose supervisor is gone without having recorded an end \
                 is lost, one whose supervisor cannot be seen from here is uncertain.",
        files: &[("record.db", "the record, in the folder of the store")],
        examples: &[
            ("xt-log events --follow", "print what happened and go on with what happens"),
            ("xt-log events --after 40", "print what happened since event 40"),
            ("xt-log status", "print where every attempt stands"),
            ("xt-log show op-1", "print where the attempt of operation op-1 stands"),
        ],
        exits: &[Exit::Yes, Exit::Usage, Exit::Refused, Exit::Store, Exit::System, Exit::Bug, Exit::NotNow],
        see_also: &["xt-run(1)", "xt-store(1)", "xt(7)"],
    };

    fn common(&self) -> &Common {
        &self.common
    }
}

fn main() -> ExitCode {
    xt_cli::main(|log: Log| match &log.question {
        Question::Events { after, follow } => events(&log.common, *after, *follow),
        Question::Status => print(&open(&log.common)?.standing()?),
        Question::Show { id } => show(&open(&log.common)?, id),
    })
}

/// Opens the store first: it refuses layouts of other versions before anything in them is read.
fn open(common: &Common) -> Result<Record, Error> {
    let store = Store::open(&common.store)?;
    Ok(Record::open_read_only(&store.record_path())?)
}

/// So many events are read at once.
const BATCH: u32 = 1000;
/// How long a follower waits before it looks again.
const PAUSE: Duration = Duration::from_millis(100);

fn events(common: &Common, mut after: u64, follow: bool) -> Result<Exit, Error> {
    let mut output = Output::new(None)?;
    loop {
        // Opened anew each time: on a disk that is read-only for this user, an open record shows one moment for ever.
        let record = open(common)?;
        loop {
            let events = record.events_at_most(after, BATCH)?;
            let Some(last) = events.last() else { break };
            after = last.sequence;
            for event in &events {
                output.document(&event.encode())?;
            }
        }
        drop(record);
        if !follow {
            return Ok(Exit::Yes);
        }
        if reader_left() {
            let source = std::io::ErrorKind::BrokenPipe.into();
            return Err(CliError::Write { name: "standard output".into(), source }.into());
        }
        std::thread::sleep(PAUSE);
    }
}

/// Whether nobody reads standard output any more: poll(2) gives an error for the write end of such a pipe.
fn reader_left() -> bool {
    let stdout = stdout();
    let mut watched = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

fn show(record: &Record, text: &str) -> Result<Exit, Error> {
    let id = Name::new(text).ok_or_else(|| CliError::Usage(format!("{text:?} cannot be an id")))?;
    let names = |status: &Status| {
        let digests = [Some(status.plan), status.run_record];
        [&status.attempt, &status.operation, &status.run, &status.node, &status.experiment].contains(&&id)
            || digests.iter().flatten().any(|digest| digest.to_string() == id.as_str())
    };
    let found: Vec<Status> = record.standing()?.into_iter().filter(names).collect();
    if found.is_empty() {
        return Err(RecordError::Unknown { level: Level::Attempt, name: id }.into());
    }
    print(&found)
}

fn print(statuses: &[Status]) -> Result<Exit, Error> {
    let mut output = Output::new(None)?;
    for status in statuses {
        output.document(&status.encode())?;
    }
    Ok(Exit::Yes)
}
