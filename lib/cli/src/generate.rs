//! Manual pages and completion scripts, from the same declarations as `--help`.

use std::io;

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use xt_core::fault::Exit;

use crate::Tool;
use crate::output::Output;

/// What a manual page says beyond flags.
#[derive(Clone, Copy, Debug)]
pub struct Manual {
    /// What the tool reads.
    pub input: &'static str,
    /// What it writes.
    pub output: &'static str,
    /// Files it touches, each with what it is.
    pub files: &'static [(&'static str, &'static str)],
    /// Command lines, each with what it does.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit codes it can end with.
    pub exits: &'static [Exit],
    /// Other pages, such as `xt-run(1)`.
    pub see_also: &'static [&'static str],
}

/// What can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// Manual page
    Man,
    /// Completion script for bash
    Bash,
    /// Completion script for zsh
    Zsh,
    /// Completion script for fish
    Fish,
}

/// What `--generate PAGE`, as the only arguments, asks for. The flag is for packagers and stands in no help text.
pub(crate) fn asked() -> Option<Page> {
    let mut arguments = std::env::args_os().skip(1);
    let flag = arguments.next().filter(|flag| flag == "--generate");
    let page = flag.and_then(|_| Page::from_str(arguments.next()?.to_str()?, false).ok());
    page.filter(|_| arguments.next().is_none())
}

/// Prints `page`.
pub(crate) fn generate<T: Tool>(page: Page) -> Exit {
    let mut command = T::command();
    let mut bytes = Vec::new();
    let shell = match page {
        Page::Bash => Some(Shell::Bash),
        Page::Zsh => Some(Shell::Zsh),
        Page::Fish => Some(Shell::Fish),
        Page::Man => None,
    };
    let rendered = match shell {
        Some(shell) => {
            let name = command.get_name().to_string();
            clap_complete::generate(shell, &mut command, name, &mut bytes);
            Ok(())
        }
        None => manual_page(command, &T::MANUAL, &mut bytes),
    };
    let bytes = if shell.is_none() { ascii(&bytes) } else { bytes };
    let written = rendered.is_ok() && Output::new(None).and_then(|mut output| output.bytes(&bytes)).is_ok();
    if written { Exit::Yes } else { Exit::System }
}

/// A page whose other characters are written as groff and mandoc both read them, `\[u2026]`.
fn ascii(page: &[u8]) -> Vec<u8> {
    let escaped = |character: char| match character {
        '\0'..='\x7f' => character.to_string(),
        other => format!("\\[u{:04X}]", u32::from(other)),
    };
    String::from_utf8_lossy(page).chars().map(escaped).collect::<String>().into_bytes()
}

fn manual_page(command: Command, manual: &Manual, out: &mut Vec<u8>) -> io::Result<()> {
    // A fixed date keeps the page the same from one build to the next.
    let version = command.get_version().unwrap_or_default().to_string();
    let name = command.get_name().to_string();
    let mut subcommands: Vec<Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned().collect();
    // An argument can be named only after clap has settled how many values it takes.
    subcommands.iter_mut().for_each(Command::build);
    let man = Man::new(command)
        .title(name.to_uppercase())
        .section("1")
        .date("")
        .source(format!("xt {version}"))
        .manual("xt manual");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    for sub in subcommands {
        subcommand(&sub, out)?;
    }
    text("INPUT", manual.input, out)?;
    text("OUTPUT", manual.output, out)?;
    let mut exits = manual.exits.to_vec();
    exits.sort_unstable();
    let codes: Vec<(String, &str)> = exits.iter().map(|exit| (exit.code().to_string(), exit.meaning())).collect();
    list("EXIT STATUS", codes.iter().map(|(code, meaning)| (code.as_str(), *meaning)), out)?;
    list("FILES", manual.files.iter().copied(), out)?;
    list("EXAMPLES", manual.examples.iter().copied(), out)?;
    text("SEE ALSO", &manual.see_also.join(", "), out)
}

/// Text in which what stands in backticks is bold.
fn inline(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

/// A subcommand with its own flags, as a section of the one page.
fn subcommand(command: &Command, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [command.get_name().to_uppercase().as_str()]);
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    roff.text(inline(&about));
    for argument in command.get_arguments().filter(|a| !a.is_hide_set() && !a.is_global_set()) {
        if argument.get_id() == "help" || argument.get_id() == "version" {
            continue;
        }
        roff.control("TP", []);
        roff.text([bold(argument.to_string())]);
        let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
        let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        // A flag is off unless it is given; nobody needs to be told.
        let flag = !argument.get_action().takes_values();
        let default =
            if flag || defaults.is_empty() { String::new() } else { format!(" [default: {}]", defaults.join(" ")) };
        roff.text(inline(&format!("{help}{default}")));
    }
    roff.to_writer(out)
}

fn text(title: &str, body: &str, out: &mut Vec<u8>) -> io::Result<()> {
    if body.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    roff.text(inline(body));
    roff.to_writer(out)
}

fn list<'a>(title: &str, items: impl Iterator<Item = (&'a str, &'a str)>, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::new();
    roff.control("SH", [title]);
    let mut any = false;
    for (term, meaning) in items {
        any = true;
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text(inline(meaning));
    }
    if any { roff.to_writer(out) } else { Ok(()) }
}
