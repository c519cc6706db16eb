//! Parts of a run that are done again.

use std::path::PathBuf;

use xt_cli::{Error, Progress};
use xt_core::fault::Exit;
use xt_core::manifest::job::Message;
use xt_core::manifest::replay::PinDifference;
use xt_core::manifest::run::{Run, Start};
use xt_core::verb::compare;
use xt_runtime::{Followed, Request, Role, Runtime, RuntimeError, Secrets, Signals, Unfinished, follow};

use crate::admission::ReplayError;
use crate::comparison::Comparison;
use crate::recorded::Recorded;
use crate::{Arguments, Left};

/// A part of a run that is to be done again.
pub(crate) struct Part {
    pub(crate) from: Option<Start>,
    pub(crate) to: u64,
}

impl Part {
    pub(crate) fn begin(&self) -> u64 {
        self.from.as_ref().map_or(0, |start| start.step)
    }
}

/// A part that was done again and compared.
pub(crate) struct Done<'a> {
    pub(crate) followed: Followed,
    pub(crate) comparison: Comparison<'a>,
}

/// What it takes to do parts of a run again.
pub(crate) struct Again<'a> {
    pub(crate) arguments: &'a Arguments,
    pub(crate) recorded: &'a Recorded,
    pub(crate) worker: PathBuf,
    pub(crate) allowed: Vec<PinDifference>,
    pub(crate) runtime: Runtime,
    pub(crate) left: &'a Left,
}

impl<'a> Again<'a> {
    /// Does a part again and compares it; `None` when signals ended the waiting.
    pub(crate) fn run(&self, part: &Part, signals: &Signals) -> Result<Option<Done<'a>>, Error> {
        let mut comparison = Comparison::new(self.recorded, self.allowed.clone(), self.arguments, part);
        let request = self.recorded.original().request(part.from.clone(), part.to, false);
        let Some(followed) = self.follow(&request, part, signals, &mut |message, progress| {
            let stop = comparison.hear(message);
            progress.update(comparison.equal, comparison.state());
            stop
        })?
        else {
            return Ok(None);
        };
        comparison.check_stack(&self.recorded.stack, &followed.run);
        if !comparison.refused.is_empty() {
            return Err(ReplayError::Refused(compare::refusal(&comparison.refused)).into());
        }
        Ok(Some(Done { followed, comparison }))
    }

    /// Runs the program of a command again, and compares what it measured and what it wrote.
    pub(crate) fn command(&self, signals: &Signals) -> Result<Exit, Error> {
        let part = Part { from: None, to: self.recorded.steps };
        let secrets = Secrets::given(&self.arguments.secret)?;
        let request = Request { secrets, ..self.recorded.original().request(None, part.to, false) };
        let Some(followed) = self.follow(&request, &part, signals, &mut |_, _| false)? else {
            return Ok(Exit::Workload);
        };
        let metrics = |run: &Run| xt_bundle::metrics(&self.recorded.store, run);
        let (recorded, replayed) = (&self.recorded.run, &followed.run);
        let (first, second) = (metrics(recorded)?, metrics(replayed)?);
        let report = compare::commands((recorded, &first), (replayed, &second), self.allowed.clone());
        self.arguments.report(self.recorded, &report, &followed)
    }

    /// Submits `request` and follows it; `hear` says when there is nothing more to be seen.
    pub(crate) fn follow(
        &self,
        request: &Request,
        part: &Part,
        signals: &Signals,
        hear: &mut dyn FnMut(&Message, &mut Progress) -> bool,
    ) -> Result<Option<Followed>, Error> {
        let attempt = self.runtime.submit_or_get(request, &self.worker)?.id;
        let mut progress = Progress::new(&self.arguments.common, "replay", part.to - part.begin(), "steps");
        let mut failed = None;
        let followed = follow(&self.runtime, &attempt, Role::Owner("xt-replay"), signals, &mut |message| {
            if hear(message, &mut progress)
                && let Err(error) = self.runtime.cancel(&attempt, "xt-replay: what was to be seen is seen")
            {
                failed.get_or_insert(error);
            }
        });
        progress.finish();
        match followed {
            Ok(followed) => failed.map_or(Ok(Some(followed)), |error: RuntimeError| Err(Error::from(error))),
            Err(Unfinished::Failed(error)) => Err(error.into()),
            Err(Unfinished::Left(signal)) => {
                self.left.set(Some(signal));
                Ok(None)
            }
        }
    }
}
