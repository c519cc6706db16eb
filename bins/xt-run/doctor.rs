//! What custody this host can give.

use xt_cli::{Error, Output};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::intent::{Intent, Profile};
use xt_core::verb::custody::missing;
use xt_core::verb::doctor::report;

#[derive(clap::Args, Debug)]
pub(crate) struct Doctor {
    /// Which set of controls: full, in-container or none
    #[arg(long, value_name = "PROFILE", default_value = "full", value_parser = profile)]
    profile: Profile,
    /// Print the custody record (xt.custody/1) that a run would get, instead of a table
    #[arg(long)]
    json: bool,
}

/// Sets the whole sandbox up around nothing, and says what held. The floors are those of a plan without an intent.
pub(crate) fn doctor(asked: &Doctor) -> Result<Exit, Error> {
    let custody = xt_sandbox::doctor(asked.profile, Intent::default_for(1).isolation.floor)?;
    let mut output = Output::new(None)?;
    if asked.json {
        output.document(&custody.encode())?;
    } else {
        report(&custody).iter().try_for_each(|line| output.line(line))?;
    }
    output.finish()?;
    Ok(if missing(&custody).is_empty() { Exit::Yes } else { Exit::Custody })
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::parse(text).ok_or_else(|| "expected full, in-container or none".into())
}
