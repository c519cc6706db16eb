//! Saying what went wrong. Standard error may be full or closed: that changes neither exit code nor standard output.

use std::io::{self, Write};

use xt_core::canonical::Value;
use xt_core::fault::Exit;
use xt_core::field::object;

use crate::common::{Common, ErrorFormat};
use crate::error::Error;
use crate::output::Output;

/// Reports `error` for the tool `name` and gives its exit code.
pub(crate) fn report(name: &str, common: &Common, error: &Error) -> Exit {
    match common.errors {
        ErrorFormat::Text => drop(brief(name, error)),
        ErrorFormat::Json => say(&(as_json(name, error.0.as_ref()).canonical() + "\n")),
    }
    let refusal = error.0.faults().filter(|_| common.refusals == ErrorFormat::Json);
    let written = refusal
        .is_none_or(|faults| Output::new(None).and_then(|mut output| output.document(&faults.to_value())).is_ok());
    if written { error.0.exit() } else { Exit::System }
}

/// Reports `error` in lines for people, and gives its exit code.
pub(crate) fn brief(name: &str, error: &Error) -> Exit {
    let error = &error.0;
    let messages = match error.faults() {
        Some(faults) => faults.0.iter().map(ToString::to_string).collect(),
        None => vec![error.to_string()],
    };
    let messages = messages.iter().map(|text| format!("{name}: error[{}]: {}\n", error.word(), printable(text)));
    let hints = error.hints().into_iter().map(|hint| format!("hint: {hint}\n"));
    say(&messages.chain(hints).collect::<String>());
    error.exit()
}

/// Reports a command line that cannot be read, `text` in clap's words, for programs.
pub(crate) fn usage(name: &str, text: &str) {
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = parts.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let hints = parts.map(|part| part.as_str().into()).collect();
    let object = object([
        ("tool", name.into()),
        ("word", "usage".into()),
        ("exit", u64::from(Exit::Usage.code()).into()),
        ("message", message.into()),
        ("hints", Value::List(hints)),
        ("faults", Value::Null),
    ]);
    say(&(object.canonical() + "\n"));
}

fn say(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

/// Says something to people on standard error, unless they asked for quiet.
pub fn note(common: &Common, text: &str) {
    if !common.quiet {
        drop(io::stderr().write_all(format!("{}\n", printable(text)).as_bytes()));
    }
}

fn as_json(name: &str, error: &dyn xt_core::fault::Failure) -> Value {
    let faults =
        error.faults().map_or(Value::Null, |faults| faults.to_value().get("faults").cloned().unwrap_or(Value::Null));
    object([
        ("tool", name.into()),
        ("word", error.word().into()),
        ("exit", u64::from(error.exit().code()).into()),
        ("message", error.to_string().as_str().into()),
        ("hints", Value::List(error.hints().iter().map(|hint| hint.as_str().into()).collect())),
        ("faults", faults),
    ])
}

/// Control characters of names and values must not reach a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
