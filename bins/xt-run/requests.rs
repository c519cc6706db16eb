//! From plans to requests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use xt_cli::{Error, Source, read_documents};
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::branch::Purpose;
use xt_core::manifest::calibration::Calibration;
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::manifest::run::Stack;
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::name::Name;
use xt_core::verb::{compare, regime};
use xt_runtime::digests::Digests;
use xt_runtime::worker::Worker;
use xt_runtime::{Request, RuntimeError, Secrets, worker};
use xt_store::Store;

use crate::XtRun;

impl XtRun {
    /// What is asked for: each plan as it is given, all of them checked.
    pub(crate) fn requests(&self) -> Result<Vec<Request>, Error> {
        let sources: Vec<Source> = self.plans.iter().map(|plan| Source::from(plan.as_os_str())).collect();
        let documents = read_documents(&sources, &|digest| self.lookup(digest))?;
        let several = documents.len() > 1;
        let secrets = Secrets::given(&self.secret)?;
        let mut faults = Faults::new();
        let mut requests = Vec::new();
        for (index, document) in documents.iter().enumerate() {
            let request = Plan::decode(&document.value).map(|plan| {
                let request = Request::new(plan, default_experiment());
                let last = request.cadence.last;
                Request {
                    operation: self.operation_id.clone(),
                    secrets: secrets.clone(),
                    cadence: Cadence { every: self.snapshot_every, keep: self.snapshot_keep, last },
                    ..request
                }
            });
            match request.and_then(|request| request.check().map(|()| request)) {
                Ok(request) => requests.push(Request { experiment: self.experiment_of(&request)?, ..request }),
                Err(found) if several => faults.0.extend(found.within(&format!("{}:{index}", document.origin)).0),
                Err(found) => faults.0.extend(found.0),
            }
        }
        Ok(faults.or(requests)?)
    }

    /// Refuses to go on from a state of another run on another stack than it was computed on, with every difference: what
    /// comes of that would be told of the branch and not of the stack. Maintenance is there to see just that.
    pub(crate) fn same_stack(&self, requests: &[Request]) -> Result<(), Error> {
        let mut stacks = self.stacks();
        for Request { plan, .. } in requests {
            let Some(from) = plan.departure.as_ref().filter(|from| from.purpose != Purpose::Maintenance) else {
                continue;
            };
            let state: Snapshot = Store::open(&self.common.store)?.manifest(from.snapshot)?;
            let differences = compare::stacks(&state.stack, &stacks.of(plan)?);
            if !differences.is_empty() {
                return Err(RuntimeError::Refused(compare::refusal(&differences)).into());
            }
        }
        Ok(())
    }

    /// Refuses a regime that is not exact when its calibration has expired, or is not one for this plan on this stack.
    pub(crate) fn grounded<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Result<(), Error> {
        let (mut stacks, mut faults) = (self.stacks(), Faults::new());
        for plan in plans {
            let Ground::Calibration { digest, .. } = &plan.ground else { continue };
            let calibration: Calibration = Store::open(&self.common.store)?.manifest(*digest)?;
            let stack = stacks.of(plan)?.identity();
            regime::check_cover(plan, &calibration, self.common.now()?, Some(stack), &mut faults);
        }
        faults.0.dedup();
        Ok(faults.or(())?)
    }

    fn stacks(&self) -> Stacks<'_> {
        let (finder, digests) = (Finder::new(self.worker.as_deref()), Digests::open(&self.common.store));
        Stacks { finder, digests, known: BTreeMap::new() }
    }

    /// What a run is counted under: as is said here, or as it was said before.
    pub(crate) fn experiment_of(&self, request: &Request) -> Result<Name, Error> {
        if let Some(named) = &self.experiment {
            return Ok(named.clone());
        }
        let known = self.runtime()?.experiment_of(&request.plan, request.operation.as_ref())?;
        Ok(known.unwrap_or_else(default_experiment))
    }
}

/// The stack that each plan would run on here. Plans of one worker and one library path have the same.
struct Stacks<'a> {
    finder: Finder<'a>,
    digests: Digests,
    known: BTreeMap<(PathBuf, Option<String>), Stack>,
}

impl Stacks<'_> {
    fn of(&mut self, plan: &Plan) -> Result<Stack, Error> {
        let library_path = plan.environment.get("LD_LIBRARY_PATH").cloned();
        let worker = self.finder.of(plan)?;
        if let Some(known) = self.known.get(&(worker.clone(), library_path.clone())) {
            return Ok(known.clone());
        }
        let stack = Worker::inspect(&worker, library_path.as_deref(), &mut self.digests)?.stack();
        self.digests.keep();
        self.known.insert((worker, library_path), stack.clone());
        Ok(stack)
    }
}

/// The worker of each plan: a command is its own, and needs no other to be there.
pub(crate) struct Finder<'a>(Option<&'a Path>);

impl<'a> Finder<'a> {
    pub(crate) const fn new(named: Option<&'a Path>) -> Self {
        Self(named)
    }

    pub(crate) fn of(&self, plan: &Plan) -> Result<PathBuf, Error> {
        match &plan.program {
            Some(program) => Ok(PathBuf::from(&program.executable.path)),
            None => Ok(worker::find(self.0)?),
        }
    }
}

/// What is counted under nothing in particular.
fn default_experiment() -> Name {
    Name::new("default").unwrap_or_else(|| unreachable!("a literal identifier"))
}
