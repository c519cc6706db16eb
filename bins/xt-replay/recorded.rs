//! What was recorded, from whatever names it.

use std::ffi::OsString;
use std::fs::File;
use std::io;

use xt_bundle::{Given, Papers};
use xt_cli::{Error, Source, parse_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::run::{Run, Stack, Status};
use xt_core::verb::bind;
use xt_runtime::{Original, RuntimeError};
use xt_store::Store;

use crate::Arguments;
use crate::admission::ReplayError;

/// What was recorded, and how far it is to be repeated.
pub(crate) struct Recorded {
    pub(crate) store: Store,
    pub(crate) run: Run,
    pub(crate) id: Digest,
    pub(crate) stack: Stack,
    pub(crate) papers: Papers,
    /// The bundle that was given, if it was one.
    pub(crate) bundle: Option<Bundle>,
    /// What the record says of itself that its evidence contradicts.
    pub(crate) told: Faults,
    /// Steps to repeat.
    pub(crate) steps: u64,
}

impl Recorded {
    /// Finds the run; an archive is verified and taken into the store first.
    pub(crate) fn read(arguments: &Arguments, source: &OsString, to: Option<u64>) -> Result<Self, Error> {
        let source = Source::from(source.as_os_str());
        let failed = |error| Error::from(source.unreadable(error));
        let path = &arguments.common.store;
        let given = match &source {
            Source::Digest(digest) => Given::Text(Store::open(path)?.get(*digest)?),
            Source::Stdin => Given::look(io::stdin()).map_err(failed)?,
            Source::File(name) => Given::look(File::open(name).map_err(failed)?).map_err(failed)?,
        };
        let (store, named) = match given {
            Given::Archive(archive) => {
                let store = Store::open_or_create(path)?;
                let bundle = xt_bundle::import(&store, archive, &source.name())?;
                (store, Named::Bundle(Box::new(bundle)))
            }
            Given::Text(text) => (Store::open(path)?, Named::read(&text, &source.name())?),
        };
        Self::of(store, &named, to)
    }

    pub(crate) fn of(store: Store, named: &Named, to: Option<u64>) -> Result<Self, Error> {
        let id = named.run();
        let run: Run = store.manifest(id)?;
        let papers = xt_bundle::papers(&store, &run, true)?;
        let (mut faults, mut told) = (papers.faults.clone(), Faults::new());
        let evidence = papers.evidence(&run);
        bind::check_told(&evidence, &mut told);
        if let Some(bundle) = named.bundle() {
            bind::check_bundle(&evidence, bundle, &mut told);
        }
        let recorded = papers.steps.len() as u64;
        let recorded = papers.plan.command().map_or(recorded, |_| run.progress.steps);
        if recorded == 0 && papers.plan.command().is_none_or(|_| run.artifacts.is_empty()) {
            faults.add("run#/trace", "replay.trace", "the run has no step that could be compared");
        }
        if to.is_some_and(|to| to > recorded) {
            let to = to.unwrap_or_default();
            faults.add("run#/trace", "replay.step", format!("--to {to}: the run has recorded {recorded} steps"));
        }
        let Some(stack) = run.stack.clone().filter(|_| faults.is_empty()) else {
            if run.stack.is_none() {
                faults.add("run#/stack", "replay.stack", "what the run ran on is not known");
            }
            return Err(ReplayError::Refused(faults).into());
        };
        let mut missing = Vec::new();
        for input in &papers.plan.inputs {
            if !store.contains(input.digest)? {
                missing.push(input.digest);
            }
        }
        if !missing.is_empty() {
            return Err(RuntimeError::MissingInputs(missing).into());
        }
        let bundle = named.bundle().cloned();
        Ok(Self { steps: to.unwrap_or(recorded), store, run, id, stack, papers, bundle, told })
    }

    pub(crate) fn original(&self) -> Original<'_> {
        Original { run: &self.run, plan: &self.papers.plan, steps: &self.papers.steps }
    }

    /// Whether the replay repeats all of a run that came to its end, so that outputs can be compared.
    pub(crate) fn whole(&self) -> bool {
        let progress = &self.run.progress;
        let last = progress.stopped.as_ref().map_or(self.papers.plan.work.steps, |stopped| stopped.step);
        self.run.status == Status::Succeeded && self.steps == last
    }
}

/// What names the run.
pub(crate) enum Named {
    /// Its record.
    Run(Digest),
    /// A bundle, which must say what its evidence gives.
    Bundle(Box<Bundle>),
}

impl Named {
    pub(crate) fn read(text: &[u8], origin: &str) -> Result<Self, Error> {
        let value = parse_one(text, origin)?;
        if value.get("schema").and_then(Value::as_str) == Some(Bundle::TAG) {
            return Ok(Self::Bundle(Box::new(Bundle::decode(&value)?)));
        }
        Ok(Self::Run(Run::decode(&value)?.id()))
    }

    fn bundle(&self) -> Option<&Bundle> {
        match self {
            Self::Run(_) => None,
            Self::Bundle(bundle) => Some(bundle),
        }
    }

    pub(crate) fn run(&self) -> Digest {
        match self {
            Self::Run(id) => *id,
            Self::Bundle(bundle) => bundle.run,
        }
    }
}
