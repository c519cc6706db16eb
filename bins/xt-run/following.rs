//! Following runs that were started, here or elsewhere, and asking them to stop.

use xt_cli::{Error, Output, Progress};
use xt_core::fault::Exit;
use xt_core::field::Manifest as _;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Status;
use xt_core::manifest::trace::Metric;
use xt_core::name::Name;
use xt_record::Attempt;
use xt_runtime::{Followed, Role, Runtime, Signals, Unfinished, follow};
use xt_store::Store;

use crate::requests::Finder;
use crate::results::Results;
use crate::{Left, XtRun};

impl XtRun {
    pub(crate) fn retry(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        let before = runtime.find(run)?;
        let plan: Plan = Store::open(&self.common.store)?.manifest(before.plan)?;
        self.grounded(std::iter::once(&plan))?;
        let worker = Finder::new(self.worker.as_deref()).of(&plan)?;
        let attempt = runtime.retry(&before.id, self.operation_id.as_ref(), &worker)?;
        if self.detach {
            let mut results = Results::new(self.output.clone());
            results.line(attempt.id.to_string())?;
            return results.finish();
        }
        self.to_its_end(&runtime, &attempt, Role::Owner("xt-run"), left)
    }

    pub(crate) fn attach(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        let attempt = runtime.find(run)?;
        self.to_its_end(&runtime, &attempt, Role::Onlooker, left)
    }

    /// Follows an attempt to its end and writes its record.
    pub(crate) fn to_its_end(
        &self,
        runtime: &Runtime,
        attempt: &Attempt,
        role: Role<'_>,
        left: &Left,
    ) -> Result<Exit, Error> {
        let signals = Signals::block()?;
        let plan = Store::open(&self.common.store)?.manifest(attempt.plan)?;
        let Some(followed) = self.follow(runtime, &attempt.id, &plan, role, &signals, left)? else {
            return Ok(Exit::Workload);
        };
        let mut results = Results::new(self.output.clone());
        self.tell(&followed.run);
        results.run(&followed.run, self.measured(&plan, &followed.run)?)?;
        results.finish()
    }

    pub(crate) fn cancel(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let (runtime, signals) = (self.runtime()?, Signals::block()?);
        let attempt = runtime.find(run)?;
        runtime.cancel(&attempt.id, "xt-run --cancel")?;
        let plan = Store::open(&self.common.store)?.manifest(attempt.plan)?;
        let Some(followed) = self.follow(&runtime, &attempt.id, &plan, Role::Onlooker, &signals, left)? else {
            return Ok(Exit::Workload);
        };
        let mut output = Output::new(self.output.as_deref())?;
        output.document(&followed.run.encode())?;
        output.finish()?;
        Ok(if followed.run.status == Status::Cancelled { Exit::Yes } else { Exit::No })
    }

    /// Stops a run where it can go on. A run that comes to its own end first is reported as what it is.
    pub(crate) fn drain(&self, run: &Name, left: &Left) -> Result<Exit, Error> {
        let runtime = self.runtime()?;
        runtime.drain(&runtime.find(run)?.id, "xt-run --drain")?;
        self.attach(run, left)
    }

    /// Follows a run with a progress bar; `None` when signals ended the waiting.
    pub(crate) fn follow(
        &self,
        runtime: &Runtime,
        attempt: &Name,
        plan: &Plan,
        role: Role<'_>,
        signals: &Signals,
        left: &Left,
    ) -> Result<Option<Followed>, Error> {
        let units = if plan.evaluation.is_some() { "batches" } else { "steps" };
        let mut progress = Progress::new(&self.common, plan.candidate.name().as_str(), plan.due(), units);
        let mut pace = Pace::of(plan);
        let followed = follow(runtime, attempt, role, signals, &mut |message| match message {
            Message::Step { line, nanoseconds } => {
                let loss = line.loss.map_or("not finite".into(), |loss| format!("{:.4}", loss.get()));
                let speed = pace.tokens_per_second(line.micro_batches, *nanoseconds);
                progress.update(line.step, &format!("loss {loss}, {speed:.0} tokens/s"));
            }
            Message::Measured { batch, .. } => progress.update(*batch, ""),
            Message::Metric { line } => progress.update(line.step, &measured(line)),
            _ => {}
        });
        progress.finish();
        match followed {
            Ok(followed) => Ok(Some(followed)),
            Err(Unfinished::Failed(error)) => Err(error.into()),
            Err(Unfinished::Left(signal)) => {
                left.set(Some(signal));
                Ok(None)
            }
        }
    }
}

/// The first measurements of a line, for people.
fn measured(line: &Metric) -> String {
    let shown = line.values.iter().filter_map(|(name, value)| Some((name, value.as_ref()?.approximate())));
    shown.take(3).map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join(", ")
}

/// How fast it goes, smoothed.
struct Pace {
    tokens: f64,
    seconds: f64,
    tokens_per_micro_batch: f64,
}

impl Pace {
    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    fn of(plan: &Plan) -> Self {
        let per = plan.native().map_or(0, |candidate| candidate.batching.samples * candidate.model.context());
        Self { tokens: 0.0, seconds: 0.0, tokens_per_micro_batch: per as f64 }
    }

    #[expect(clippy::cast_precision_loss, reason = "only shown")]
    fn tokens_per_second(&mut self, micro_batches: u64, nanoseconds: u64) -> f64 {
        // Old steps count for less and less, so that the figure follows a change within some twenty steps.
        self.tokens = self.tokens * 0.95 + micro_batches as f64 * self.tokens_per_micro_batch;
        self.seconds = self.seconds * 0.95 + nanoseconds as f64 / 1e9;
        if self.seconds > 0.0 { self.tokens / self.seconds } else { 0.0 }
    }
}
