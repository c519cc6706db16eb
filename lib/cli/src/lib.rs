//! What every tool shares: one shape of `main`, reading documents, writing results, errors, exit codes, progress and
//! manual pages.
//!
//! A tool declares its flags as a clap struct with [`Common`] flattened into it, implements [`Tool`], and hands its
//! body to [`main`]. The body returns an [`Exit`] or an [`Error`]; everything that can be said about either is said here.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod command_line;
mod common;
mod error;
mod generate;
mod input;
mod output;
mod progress;
mod report;
mod terms;

pub use common::{Common, ErrorFormat, ProgressMode};
pub use error::{CliError, Error};
pub use generate::Manual;
pub use input::{Document, Lookup, Source, each, parse_documents, parse_one, read_bytes, read_documents, read_one};
pub use output::Output;
pub use progress::Progress;
pub use report::note;
pub use terms::Declaration;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use xt_core::fault::Exit;

/// A command-line tool of this project.
pub trait Tool: Parser {
    /// What its manual page says beyond its flags.
    const MANUAL: Manual;

    /// The flags that all tools share.
    fn common(&self) -> &Common;
}

/// Runs a tool: parses the command line, runs `body`, reports, and exits by the table.
pub fn main<T: Tool>(body: impl FnOnce(T) -> Result<Exit, Error>) -> ExitCode {
    let name = T::command().get_name().to_string();
    panics_are_bugs(&name);
    // Looked for before the command line is judged: a page needs no subcommand and no operands.
    if let Some(page) = generate::asked() {
        return ExitCode::from(generate::generate::<T>(page).code());
    }
    let exit = match command_line::read::<T>() {
        Ok(tool) => {
            let common = tool.common().clone();
            body(tool).unwrap_or_else(|error| report::report(&name, &common, &error))
        }
        Err(error) => usage(&name, &error),
    };
    ExitCode::from(exit.code())
}

/// A panic is a bug of the tool and ends it with the code that says so.
fn panics_are_bugs(name: &str) {
    let name = name.to_string();
    std::panic::set_hook(Box::new(move |panic| {
        let text = format!("{name}: error[bug]: {panic}\nhint: please report this with the command line\n");
        drop(io::stderr().write_all(text.as_bytes()));
        std::process::exit(i32::from(Exit::Bug.code()));
    }));
}

/// Help and version are answers; everything else is a wrong command line. Help that cannot be written is a failure.
fn usage(name: &str, error: &clap::Error) -> Exit {
    if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        match command_line::error_format() {
            ErrorFormat::Text => drop(error.print()),
            ErrorFormat::Json => report::usage(name, &error.render().to_string()),
        }
        return Exit::Usage;
    }
    // A terminal gets colours, from clap; anything else gets what every result gets: no failure is overlooked.
    let printed = if io::stdout().is_terminal() {
        error.print().map_err(|source| CliError::Write { name: "standard output".into(), source }.into())
    } else {
        Output::new(None).and_then(|mut output| output.bytes(error.render().to_string().as_bytes()))
    };
    printed.map_or_else(|failure| report::brief(name, &failure), |()| Exit::Yes)
}
