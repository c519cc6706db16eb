//! The runtime of one store: asking for a run, following it, asking it to stop. The workload belongs to its supervisor;
//! whoever asks or follows may go away at any time (X29–X36).

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xt_core::fault::Faults;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::action::ActionKind;
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Run;
use xt_core::name::Name;
use xt_core::verb::settle::{AttemptState, Machine as _};
use xt_record::{Asked, Attempt, Compiled, RecordError, Submission};
use xt_store::Store;

use crate::clock::Clock;
use crate::conclude::Place;
use crate::error::{RuntimeError, file};
use crate::folder::{Folder, read_document, write_document};
use crate::lost::Closing;
use crate::request::Request;
use crate::resources;
use crate::resume::Before;
use crate::run_documents::{Finished, Order};
use crate::secrets::Secrets;
use crate::supervise::{CLAIMED, FLAG, TAKEN};
use crate::telemetry::Follower;

/// How often a follower looks for news: at first often, since many runs are short, then ever less.
const PERIOD: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// How often it asks whether the supervisor still lives.
const CHECK: Duration = Duration::from_millis(500);

/// How long an attempt may have nobody before it counts as given up by whoever asked for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The runtime of one store.
#[derive(Clone, Debug)]
pub struct Runtime {
    store: PathBuf,
    clock: Clock,
}

/// The only one in this store that decides whether a plan is run once more; see [`Runtime::turn`].
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct Turn {
    _lock: File,
}

/// What a follower sees.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// A message of the worker; each comes once, in order.
    Message(&'a Message),
    /// Nothing for now.
    Waiting,
}

/// What a follower wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Go on.
    Stay,
    /// Leave the run to its supervisor.
    Leave,
}

impl Runtime {
    /// The runtime of the store at `store`, which need not exist yet.
    pub fn new(store: &Path, clock: Clock) -> Result<Self, RuntimeError> {
        let store = std::path::absolute(store).map_err(file("find", store))?;
        Ok(Self { store, clock })
    }

    /// The attempt that `request` asks for: the one that its operation id already stands for, or a new one, whose
    /// supervisor is running when this returns. A refused request stores nothing.
    pub fn submit_or_get(&self, request: &Request, worker: &Path) -> Result<Attempt, RuntimeError> {
        request.check().map_err(RuntimeError::Refused)?;
        if !self.knows(request)? {
            request.readable().map_err(RuntimeError::Refused)?;
        }
        let store = Store::open_or_create(&self.store)?;
        // No collection takes what is there from here until the record names the plan, which leads to all of it.
        let hold = store.hold()?;
        let mut missing: Vec<_> = request.plan.inputs.iter().map(|input| input.digest).collect();
        if let Some(start) = &request.from {
            let before = Before::read(&store, &request.plan, start)?;
            missing.extend(before.inputs().iter().map(|input| input.digest));
        }
        hold.keep(&missing)?;
        let missing: Vec<_> = missing.into_iter().filter(|digest| !store.contains(*digest).unwrap_or(false)).collect();
        if !missing.is_empty() {
            return Err(RuntimeError::MissingInputs(missing));
        }
        let plan = store.put_manifest(&request.plan)?;
        let place = self.place()?;
        let submission = Submission {
            experiment: request.experiment.clone(),
            fingerprint: request.plan.fingerprint,
            seed: request.plan.seed,
            plan,
            request: request.digest(),
            operation: request.operation.clone(),
            subject: request.plan.evaluation.as_ref().map(|evaluating| evaluating.subject.bundle),
            scope: request.scope().map(|scope| scope.write()),
            now: self.clock.now(),
        };
        let submit =
            || place.record.submit_with(&submission, Some(&resources::claim(&place, request)?)).map_err(Into::into);
        let attempt = self.granted(&place, submit)?.attempt();
        if attempt.process.is_none() && !attempt.state.is_terminal() {
            self.start(&attempt.id, request, worker)?;
        }
        self.attempt(&attempt.id)
    }

    /// A turn at asking whether a plan has run and having it run if not. Who holds it decides alone; it is kept until the
    /// attempt has its supervisor, so that nobody else finds one that has none yet.
    pub fn turn(&self) -> Result<Turn, RuntimeError> {
        Store::open_or_create(&self.store)?;
        let path = self.store.join("once.lock");
        let lock = File::options().write(true).create(true).truncate(false).open(&path).map_err(file("open", &path))?;
        lock.lock().map_err(file("lock", &path))?;
        Ok(Turn { _lock: lock })
    }

    /// The attempt that makes it needless to run `request` again, with a supervisor if it has not ended; `None` when it must
    /// be run. An attempt whose asker died before it had one is handed over now.
    pub fn standing_started<E: From<RuntimeError>>(
        &self,
        request: &Request,
        worker: impl FnOnce() -> Result<PathBuf, E>,
        _: &Turn,
    ) -> Result<Option<Attempt>, E> {
        let Some(attempt) = self.standing(request)? else { return Ok(None) };
        if attempt.process.is_none() && !attempt.state.is_terminal() {
            self.start(&attempt.id, request, &worker()?)?;
        }
        Ok(Some(self.attempt(&attempt.id)?))
    }

    /// Whether something was asked for under the operation id of this request before.
    fn knows(&self, request: &Request) -> Result<bool, RuntimeError> {
        let Some(id) = request.operation.as_ref().filter(|_| self.store.join(xt_record::FILE_NAME).exists()) else {
            return Ok(false);
        };
        Ok(self.place()?.record.attempt_of_operation(id)?.is_some())
    }

    /// Notes that plans were compiled for an experiment, which is created when new, as is the store.
    pub fn compiled_for(&self, experiment: &Name, plans: &[Plan]) -> Result<(), RuntimeError> {
        Store::open_or_create(&self.store)?;
        let compiled = |plan: &Plan| Compiled { plan: plan.id(), fingerprint: plan.fingerprint };
        let plans: Vec<_> = plans.iter().map(compiled).collect();
        Ok(self.place()?.record.compiled_for(experiment, &plans, self.clock.now())?)
    }

    /// The experiment that a run of a plan is counted under when nobody says which: that of the operation, if the record
    /// knows it; the one that the plan was compiled for; else none in particular.
    pub fn experiment_of(&self, plan: &Plan, operation: Option<&Name>) -> Result<Option<Name>, RuntimeError> {
        if !self.store.join(xt_record::FILE_NAME).exists() {
            return Ok(None);
        }
        let record = self.place()?.record;
        let known = operation.map(|id| record.attempt_of_operation(id)).transpose()?.flatten();
        match known {
            Some(attempt) => Ok(Some(attempt.experiment)),
            None => Ok(record.experiment_of_plan(plan.id())?),
        }
    }

    /// What makes it needless to run `request` again: an attempt that succeeded, else one that is under way, else one
    /// that was held, which it would be again. `None` when it must be run.
    fn standing(&self, request: &Request) -> Result<Option<Attempt>, RuntimeError> {
        if !self.store.join(xt_record::FILE_NAME).exists() {
            return Ok(None);
        }
        let asked = request.digest();
        let mut all = self.place()?.record.attempts_named(&request.plan.id().to_string())?;
        all.retain(|attempt| attempt.request == asked);
        let rank = |attempt: &Attempt| match attempt.state {
            AttemptState::Succeeded => Some(2),
            AttemptState::Held => Some(0),
            state => (!state.is_terminal()).then_some(1),
        };
        Ok(all
            .into_iter()
            .filter_map(|attempt| Some((rank(&attempt)?, attempt)))
            .max_by_key(|(rank, _)| *rank)
            .map(|(_, attempt)| attempt))
    }

    /// The attempt that a person means by the id of an attempt, an operation, a run, a plan or a run record; of several
    /// the last.
    pub fn find(&self, id: &Name) -> Result<Attempt, RuntimeError> {
        let found = self.place()?.record.attempts_named(id.as_str())?.pop();
        let unknown = || RecordError::Unknown { level: xt_core::manifest::event::Level::Attempt, name: id.clone() };
        Ok(found.ok_or_else(unknown)?)
    }

    /// Writes what is to be done and starts a supervisor for an attempt that nobody has claimed.
    pub(crate) fn start(&self, attempt: &Name, request: &Request, worker: &Path) -> Result<(), RuntimeError> {
        let folder = Folder::of(&self.store, attempt);
        folder.create()?;
        let path = worker.to_str();
        let unsayable = || RuntimeError::Worker { path: worker.into(), why: "its path is not UTF-8".into() };
        let order = Order { attempt: attempt.clone(), worker: path.ok_or_else(unsayable)?.into() };
        write_document(&folder.order(), &order)?;
        self.spawn_with(attempt, &request.secrets)
    }

    /// The attempt as the record has it.
    pub fn attempt(&self, id: &Name) -> Result<Attempt, RuntimeError> {
        let place = self.place()?;
        known(&place, id)
    }

    /// Starts the supervisor of an attempt that nobody has claimed: this program again, in a session of its own. When
    /// two are started at once, one of them claims the attempt and the other ends.
    pub(crate) fn spawn(&self, attempt: &Name) -> Result<(), RuntimeError> {
        self.spawn_with(attempt, &Secrets::default())
    }

    fn spawn_with(&self, attempt: &Name, secrets: &Secrets) -> Result<(), RuntimeError> {
        let log = Folder::of(&self.store, attempt).supervisor_log();
        let errors = OpenOptions::new().append(true).create(true).open(&log).map_err(file("open", &log))?;
        let mut command = Command::new("/proc/self/exe");
        command.arg(FLAG).arg(&self.store).arg(attempt.as_str()).env_clear().current_dir("/");
        if let Some(now) = self.clock.variable() {
            command.env(Clock::VARIABLE, now);
        }
        let stdin = if secrets.is_empty() { Stdio::null() } else { Stdio::from(secrets.pack()?) };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(file("start", Path::new("/proc/self/exe")))?;
        let mut said = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut said).map_err(file("read from", Path::new("the supervisor")))?;
        }
        match said.trim() {
            CLAIMED | TAKEN => Ok(()),
            // Killed right after its claim: the record has it, and whoever follows will find it gone.
            _ if self.attempt(attempt)?.process.is_some() => Ok(()),
            other => Err(RuntimeError::Supervisor { attempt: attempt.clone(), why: other.to_string() }),
        }
    }

    /// Follows an attempt to its end and gives its run record; `None` when `watch` wants to leave. An attempt that no
    /// supervisor ever got is given to one; an attempt whose supervisor is gone is closed as lost.
    pub fn observe(
        &self,
        id: &Name,
        watch: &mut dyn FnMut(Sight<'_>) -> Result<Next, RuntimeError>,
    ) -> Result<Option<Run>, RuntimeError> {
        let place = self.place()?;
        let folder = Folder::of(&self.store, id);
        let mut attempt = known(&place, id)?;
        if attempt.process.is_none() && !attempt.state.is_terminal() {
            let begun = Instant::now();
            // Whoever asked for it may be about to hand it over.
            while !folder.order().exists() {
                if begun.elapsed() >= PATIENCE {
                    return Err(RuntimeError::Unreceived { attempt: attempt.id, operation: attempt.operation });
                }
                std::thread::sleep(PERIOD[1]);
            }
            self.spawn(id)?;
        }
        let mut follower = Follower::new(&folder.telemetry());
        let begun = Instant::now();
        let mut checked = begun;
        loop {
            // Looked at first: what comes after it in the telemetry cannot come before it here.
            let ended = place.ended(&attempt)?;
            let mut stays = true;
            follower.news(&mut |message| {
                stays = watch(Sight::Message(&message))? == Next::Stay;
                Ok(stays)
            })?;
            if !stays {
                return Ok(None);
            }
            if ended.is_some() {
                return Ok(ended);
            }
            if watch(Sight::Waiting)? == Next::Leave {
                return Ok(None);
            }
            std::thread::sleep((begun.elapsed() / 16).clamp(PERIOD[0], PERIOD[1]));
            let finished: Option<Finished> = read_document(&folder.finished())?;
            if finished.is_some() || checked.elapsed() >= CHECK {
                checked = Instant::now();
                attempt = self.close_if_lost(&place, known(&place, id)?)?;
            }
        }
    }

    /// Asks for an attempt to be stopped. `by` says who or what asks; it stands in the run record.
    pub fn cancel(&self, id: &Name, by: &str) -> Result<Asked, RuntimeError> {
        self.ask(ActionKind::Cancel, self.attempt(id)?.level, id, by)
    }

    /// Asks for another attempt at what `of` was an attempt at: the same request, with an identity and a folder of its
    /// own. Its supervisor is running when this returns.
    pub fn retry(&self, of: &Name, operation: Option<&Name>, worker: &Path) -> Result<Attempt, RuntimeError> {
        let place = self.place()?;
        let before = known(&place, of)?;
        let plan: Plan = place.store.manifest(before.plan)?;
        let request = Request::again(plan, &before)?;
        let claim = || resources::claim(&place, &request);
        let retry = || Ok(place.record.retry(of, operation.cloned(), Some(&claim()?), self.clock.now())?);
        let attempt = self.granted(&place, retry)?;
        self.start(&attempt.id, &request, worker)?;
        self.attempt(&attempt.id)
    }

    /// Asks for an attempt to be stopped at its next step boundary, after a snapshot from which another attempt can go on.
    /// `by` says who or what asks. A run that comes to its own end first is not held up.
    pub fn drain(&self, id: &Name, by: &str) -> Result<Asked, RuntimeError> {
        let attempt = self.attempt(id)?;
        if self.place()?.plan(&attempt)?.command().is_some() {
            let why =
                "a command knows nothing of step boundaries, so that it cannot be stopped at one; --cancel stops it";
            return Err(RuntimeError::Refused(Faults::one("", "request.step", why)));
        }
        self.ask(ActionKind::Drain, attempt.level, id, by)
    }

    /// Where the store is.
    pub(crate) fn store(&self) -> &Path {
        &self.store
    }

    /// Closes an attempt whose supervisor is gone, or gives it another one if none ever came to start a worker; gives the
    /// attempt as it is then.
    pub fn reconcile(&self, id: &Name) -> Result<Attempt, RuntimeError> {
        let place = self.place()?;
        let attempt = known(&place, id)?;
        self.close_if_lost(&place, attempt)
    }

    pub(crate) fn place(&self) -> Result<Place, RuntimeError> {
        Place::open(&self.store, self.clock)
    }

    /// Asks once more when what is asked for is held by attempts that have nobody any more.
    fn granted<T>(&self, place: &Place, ask: impl Fn() -> Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        match ask() {
            Err(RuntimeError::Record(RecordError::Postponed { .. })) => {
                self.settle_holders(place)?;
                ask()
            }
            answer => answer,
        }
    }

    /// The attempt as it is, closed if its supervisor is gone.
    fn close_if_lost(&self, place: &Place, attempt: Attempt) -> Result<Attempt, RuntimeError> {
        if attempt.state.is_terminal() {
            return Ok(attempt);
        }
        match place.close_if_lost(&attempt)? {
            Closing::Lives => Ok(attempt),
            Closing::Closed => known(place, &attempt.id),
            Closing::Unlaunched => {
                self.spawn(&attempt.id)?;
                known(place, &attempt.id)
            }
            Closing::Unseen(supervisor) => Err(RuntimeError::Unseen { attempt: attempt.id, supervisor }),
        }
    }
}

pub(crate) fn known(place: &Place, id: &Name) -> Result<Attempt, RuntimeError> {
    let unknown = || RecordError::Unknown { level: xt_core::manifest::event::Level::Attempt, name: id.clone() };
    Ok(place.record.attempt(id)?.ok_or_else(unknown)?)
}
