//! From plans to requests.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use xt_cli::{Error, Source, read_documents};
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::branch::Purpose;
use xt_core::manifest::calibration::Calibration;
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::manifest::snapshot::{Cadence, Snapshot};
use xt_core::name::Name;
use xt_core::verb::{compare, regime};
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
        let (finder, mut stacks) = (Finder::new(self.worker.as_deref()), BTreeMap::new());
        for Request { plan, .. } in requests {
            let Some(from) = plan.departure.as_ref().filter(|from| from.purpose != Purpose::Maintenance) else {
                continue;
            };
            let state: Snapshot = Store::open(&self.common.store)?.manifest(from.snapshot)?;
            let path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
            let now = match stacks.entry(path) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(place) => place.insert(Worker::inspect(&finder.of(plan)?, path)?.stack()),
            };
            let differences = compare::stacks(&state.stack, now);
            if !differences.is_empty() {
                return Err(RuntimeError::Refused(compare::refusal(&differences)).into());
            }
        }
        Ok(())
    }

    /// Refuses a regime that is not exact when its calibration has expired, or is not one for this plan on this stack.
    pub(crate) fn grounded<'a>(&self, plans: impl Iterator<Item = &'a Plan>) -> Result<(), Error> {
        let (finder, mut faults) = (Finder::new(self.worker.as_deref()), Faults::new());
        for plan in plans {
            let Ground::Calibration { digest, .. } = &plan.ground else { continue };
            let calibration: Calibration = Store::open(&self.common.store)?.manifest(*digest)?;
            let path = plan.environment.get("LD_LIBRARY_PATH").map(String::as_str);
            let stack = Worker::inspect(&finder.of(plan)?, path)?.stack().identity();
            regime::check_cover(plan, &calibration, self.common.now()?, Some(stack), &mut faults);
        }
        faults.0.dedup();
        Ok(faults.or(())?)
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
