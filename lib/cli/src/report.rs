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
    let error = &error.0;
    let lines = match (common.errors, error.faults()) {
        (ErrorFormat::Text, Some(faults)) => {
            faults.0.iter().map(|fault| format!("{name}: error[{}]: {fault}", error.word())).collect()
        }
        (ErrorFormat::Text, None) => {
            vec![format!("{name}: error[{}]: {}", error.word(), printable(&error.to_string()))]
        }
        (ErrorFormat::Json, _) => vec![as_json(name, error.as_ref()).canonical()],
    };
    let hints = match common.errors {
        ErrorFormat::Text => error.hints().into_iter().map(|hint| format!("hint: {hint}")).collect(),
        ErrorFormat::Json => Vec::new(),
    };
    let text: String = lines.into_iter().chain(hints).map(|line: String| line + "\n").collect();
    drop(io::stderr().write_all(text.as_bytes()));
    let refusal = error.faults().filter(|_| common.refusals == ErrorFormat::Json);
    let written = refusal
        .is_none_or(|faults| Output::new(None).and_then(|mut output| output.document(&faults.to_value())).is_ok());
    if written { error.exit() } else { Exit::System }
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
