//! The command line of a tool with subcommands, one set of rules for all tools.
//!
//! A flag that all tools share may stand anywhere. What belongs to the tool itself, and not to its subcommand, stands
//! beside no subcommand: clap alone would either take the name of the subcommand for a file, or drop what was said.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::Tool;
use crate::common::ErrorFormat;

/// Reads the command line of `T`.
pub(crate) fn read<T: Tool>() -> Result<T, clap::Error> {
    let mut command = T::command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    if let Some(message) = misplaced(&command, &matches) {
        return Err(command.error(ErrorKind::ArgumentConflict, message));
    }
    T::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// What is wrong when something of the tool itself stands beside a subcommand.
fn misplaced(command: &Command, matches: &ArgMatches) -> Option<String> {
    let (tool, verb) = (command.get_name(), matches.subcommand_name()?);
    let given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let known = |id: &str| matches.try_contains_id(id).is_ok();
    let own = command.get_arguments().filter(|arg| !arg.is_global_set());
    let found = own.filter(|arg| known(arg.get_id().as_str()) && given(arg.get_id().as_str()));
    let names: Vec<String> = found.map(ToString::to_string).collect();
    if names.is_empty() {
        return None;
    }
    let (names, belong) = (names.join(", "), if names.len() == 1 { "belongs" } else { "belong" });
    Some(format!(
        "{names} {belong} to {tool} itself and cannot stand before its subcommand {verb}; a file of that name is written \
         ./{verb}, and what {verb} takes stands behind it: see `{tool} {verb} --help`"
    ))
}

/// How errors are to be written, as far as a command line says so that cannot be read.
pub(crate) fn error_format() -> ErrorFormat {
    format_in(std::env::args_os().skip(1))
}

fn format_in(arguments: impl Iterator<Item = OsString>) -> ErrorFormat {
    let mut before = OsString::new();
    for argument in arguments {
        if argument == "--" {
            break;
        }
        if argument == "--errors=json" || (before == "--errors" && argument == "json") {
            return ErrorFormat::Json;
        }
        before = argument;
    }
    ErrorFormat::Text
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;

    #[derive(Parser, Debug)]
    #[command(name = "tool", subcommand_precedence_over_arg = true, subcommand_negates_reqs = true)]
    struct Example {
        files: Vec<String>,
        #[arg(long)]
        wait: bool,
        #[arg(long, global = true, default_value = ".xt")]
        store: String,
        #[command(subcommand)]
        verb: Option<Verb>,
    }

    #[derive(Subcommand, Debug)]
    enum Verb {
        Doctor {
            #[arg(long)]
            json: bool,
        },
    }

    fn told(arguments: &[&str]) -> Option<String> {
        use clap::CommandFactory as _;
        let mut command = Example::command();
        let all = ["tool"].iter().chain(arguments);
        let matches = command.try_get_matches_from_mut(all).unwrap();
        misplaced(&command, &matches)
    }

    #[test]
    fn a_shared_flag_may_stand_before_a_subcommand_and_anything_else_is_told_apart() {
        for fine in [&["--store", "s", "doctor"][..], &["doctor", "--json", "--store", "s"], &["a", "b", "--wait"]] {
            assert_eq!(told(fine), None, "{fine:?}");
        }
        let wait = told(&["--wait", "doctor"]).unwrap();
        assert!(wait.starts_with("--wait belongs to tool itself") && wait.contains("./doctor"), "{wait}");
        let file = told(&["plan.json", "--wait", "doctor"]).unwrap();
        assert!(file.contains("--wait") && file.contains("belong to"), "{file}");
        assert_eq!(told(&["./doctor", "--wait"]), None, "a file that is called like it");
    }

    #[test]
    fn a_command_line_that_cannot_be_read_still_says_how_errors_are_wanted() {
        let of = |arguments: &[&str]| format_in(arguments.iter().map(OsString::from));
        assert_eq!(of(&["--nonsense", "--errors", "json"]), ErrorFormat::Json);
        assert_eq!(of(&["--errors=json", "--nonsense"]), ErrorFormat::Json);
        for text in [&["--errors", "text"][..], &["json"], &["--", "--errors", "json"], &[]] {
            assert_eq!(of(text), ErrorFormat::Text, "{text:?}");
        }
    }
}
