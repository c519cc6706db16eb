//! Flags that all tools share.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use xt_core::instant::Instant;

use crate::error::{CliError, Error};

/// Flags that all tools share.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Folder of the store
    #[arg(long, value_name = "DIR", env = "XT_STORE", default_value = ".xt", global = true, value_parser = OsStringValueParser::new().try_map(folder))]
    pub store: PathBuf,
    /// The current time, for repeatable output: RFC 3339 in UTC, or seconds since 1970 [default: the clock]
    #[arg(long, value_name = "TIME", env = "XT_NOW", global = true, value_parser = instant)]
    now: Option<Instant>,
    /// How errors are written to standard error
    #[arg(long, value_name = "FORM", default_value = "text", global = true)]
    pub errors: ErrorFormat,
    /// Also write a refusal to standard output, as an xt.refusal/1 document
    #[arg(long, value_name = "FORM", default_value = "text", global = true)]
    pub refusals: ErrorFormat,
    /// How progress is shown on standard error; auto shows a bar on a terminal
    #[arg(long, value_name = "MODE", default_value = "auto", global = true)]
    pub progress: ProgressMode,
    /// Say nothing on standard error but errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ErrorFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar on a terminal, nothing elsewhere
    Auto,
    /// One plain line from time to time
    Plain,
    /// Nothing
    None,
}

impl Common {
    /// The time given, if one was.
    pub const fn given_time(&self) -> Option<Instant> {
        self.now
    }

    /// The time given, or that of the clock.
    pub fn now(&self) -> Result<Instant, Error> {
        if let Some(now) = self.now {
            return Ok(now);
        }
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
        Instant::from_unix(seconds).ok_or_else(|| CliError::Time(seconds.to_string()).into())
    }
}

/// A folder. An empty name, as of a variable that was never set, is a mistake and not the default.
fn folder(name: OsString) -> Result<PathBuf, &'static str> {
    if name.is_empty() {
        return Err("--store or XT_STORE is set and empty: name a folder, or leave both away for .xt");
    }
    Ok(name.into())
}

/// A time, in either form.
fn instant(text: &str) -> Result<Instant, &'static str> {
    Instant::parse(text).ok_or("--now or XT_NOW expects a time such as 2026-01-31T12:00:00Z, or seconds since 1970")
}
