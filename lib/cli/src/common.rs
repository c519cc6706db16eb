//! Flags that all tools share.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use xt_core::instant::Instant;

use crate::error::{CliError, Error};

/// Flags that all tools share.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Folder of the store
    #[arg(long, value_name = "DIR", env = "XT_STORE", default_value = ".xt", global = true)]
    pub store: PathBuf,
    /// The current time, for repeatable output: RFC 3339 in UTC, or seconds since 1970 [default: the clock]
    #[arg(long, value_name = "TIME", env = "XT_NOW", global = true)]
    now: Option<String>,
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
    pub fn given_time(&self) -> Result<Option<Instant>, Error> {
        self.now.as_ref().map(|_| self.now()).transpose()
    }

    /// The time given, or that of the clock.
    pub fn now(&self) -> Result<Instant, Error> {
        let Some(text) = &self.now else {
            let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
            return Instant::from_unix(seconds).ok_or_else(|| CliError::Time(seconds.to_string()).into());
        };
        Instant::parse(text).ok_or_else(|| CliError::Time(text.clone()).into())
    }
}
