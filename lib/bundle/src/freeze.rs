//! From a run in a store to its bundle.

use std::io::{self, Write};

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::bundle::{Bundle, Declared};
use xt_core::manifest::custody::Custody;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::Run;
use xt_core::manifest::trace::{Metric, Step, read_metrics};
use xt_core::verb::ancestry::{Ancestor, handovers};
use xt_core::verb::bind::{self, Evidence};
use xt_core::verb::chain::Tally;
use xt_core::verb::weights::Weights;
use xt_store::Store;

use crate::error::BundleError;
use crate::lines::Lines;

/// A run with all its papers, read from a store and found sound.
#[derive(Clone, Debug)]
pub struct Papers {
    /// Its plan.
    pub plan: Plan,
    /// Its custody record, if it has one.
    pub custody: Option<Custody>,
    /// What its trace says, if it has one.
    pub trace: Option<Tally>,
    /// The steps of its trace, up to the first that cannot be trusted.
    pub steps: Vec<Step>,
    /// The digest of its trained parameters, if it has some.
    pub weights: Option<Result<Digest, String>>,
    /// The digest of its averaged parameters, if it has some.
    pub averaged: Option<Result<Digest, String>>,
    /// The runs that it went on from, the nearest first.
    pub ancestors: Vec<Ancestor>,
    /// What is wrong with its trace.
    pub faults: Faults,
}

impl Papers {
    /// Everything that is known of `run`.
    pub fn evidence<'a>(&'a self, run: &'a Run) -> Evidence<'a> {
        Evidence {
            run,
            plan: &self.plan,
            custody: self.custody.as_ref(),
            trace: self.trace.as_ref(),
            weights: self.weights.as_ref(),
            averaged: self.averaged.as_ref(),
            ancestors: &self.ancestors,
        }
    }
}

/// Reads the papers of `run`. What the store cannot give is an error; what the papers say wrong is a fault of the run.
pub fn papers(store: &Store, run: &Run, keep_steps: bool) -> Result<Papers, BundleError> {
    let plan: Plan = store.manifest(run.plan)?;
    let custody = run.custody.map(|digest| store.manifest(digest)).transpose()?;
    let ancestors = ancestors(store, run)?;
    let (mut trace, mut steps, mut faults) = (None, Vec::new(), Faults::new());
    if let Some(reference) = &run.trace {
        let new = if keep_steps { Lines::keeping } else { Lines::new };
        let mut lines = new(run.plan, Some(&plan)).marking(handovers(run, &ancestors));
        store.read(reference.digest, &mut Each(|bytes: &[u8]| lines.push(bytes)))?;
        let (tally, found, kept) = lines.finish();
        (trace, steps, faults) = (Some(tally), kept, found);
    }
    let read = |path: &str| {
        let file = run.artifacts.iter().find(|file| file.path.as_str() == path);
        file.map(|file| weights(store, file.digest)).transpose()
    };
    let path = plan.native().map_or(bind::WEIGHTS, |candidate| bind::trained(candidate)[0]);
    let (weights, averaged) = (read(path)?, read(bind::AVERAGED)?);
    Ok(Papers { plan, custody, trace, steps, weights, averaged, ancestors, faults })
}

/// A run is not handed over more often than this; a longer row is one that comes back to itself.
const MOST_ANCESTORS: usize = 10_000;

/// The runs that `run` went on from, the nearest first.
fn ancestors(store: &Store, run: &Run) -> Result<Vec<Ancestor>, BundleError> {
    let (mut all, mut next, mut plan): (Vec<Ancestor>, _, _) = (Vec::new(), run.start.clone(), run.plan);
    while let Some(start) = next.take().filter(|_| all.len() < MOST_ANCESTORS) {
        let run: Run = store.manifest(start.run)?;
        let custody = run.custody.map(|digest| store.manifest(digest)).transpose()?;
        next.clone_from(&run.start);
        let other = (run.plan != plan).then(|| store.manifest(run.plan)).transpose()?;
        plan = run.plan;
        all.push(Ancestor { run, plan: other, custody, snapshot: store.manifest(start.snapshot)? });
    }
    Ok(all)
}

fn weights(store: &Store, digest: Digest) -> Result<Result<Digest, String>, BundleError> {
    let mut weights = Weights::new();
    store.read(digest, &mut Each(|bytes: &[u8]| weights.push(bytes)))?;
    Ok(weights.finish())
}

/// A sink that hands on every piece.
struct Each<F>(F);

impl<F: FnMut(&[u8])> Write for Each<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The telemetry of a command's run, as its trace has it; nothing when it has none.
pub fn metrics(store: &Store, run: &Run) -> Result<Vec<Metric>, BundleError> {
    let Some(trace) = &run.trace else { return Ok(Vec::new()) };
    Ok(read_metrics(run.plan, &store.get(trace.digest)?).0)
}

/// Freezes `run`: derives its bundle, reads every object it names again, stores it and gives it the name
/// `bundles/<64 digits of its id>`. `progress` hears how many of how many bytes were read.
pub fn freeze(
    store: &Store,
    run: &Run,
    declared: &Declared,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Bundle, BundleError> {
    let papers = papers(store, run, false)?;
    let bundle = match bind::bind(&papers.evidence(run), declared) {
        Ok(bundle) if papers.faults.is_empty() => bundle,
        bound => {
            let mut faults = papers.faults;
            faults.0.extend(bound.err().unwrap_or_default().0);
            return Err(BundleError::Unbound { run: run.id(), faults });
        }
    };
    let Papers { plan, trace, .. } = papers;
    // What is stored here has no name before the last line.
    let _hold = store.hold()?;
    let mut writer = store.writer()?;
    writer.put_manifest(&plan.candidate)?;
    if let Some(dataset) = &plan.dataset {
        writer.put_manifest(dataset)?;
    }
    if let Some(trace) = &trace {
        writer.put_manifest(&trace.head)?;
    }
    writer.put_manifest(&bundle)?;
    writer.commit()?;
    read_again(store, &bundle, progress)?;
    name(store, &bundle)?;
    Ok(bundle)
}

/// Gives a stored bundle its name.
pub(crate) fn name(store: &Store, bundle: &Bundle) -> Result<(), BundleError> {
    let id = bundle.id();
    Ok(store.set_reference(&format!("bundles/{}", id.hex()), id, &format!("bundle of run {}", bundle.run))?)
}

/// Reads every object of the bundle; the store hashes each as it is read.
fn read_again(store: &Store, bundle: &Bundle, progress: &mut dyn FnMut(u64, u64)) -> Result<(), BundleError> {
    let total = bundle.members.iter().map(|member| member.file.bytes).sum();
    let mut done = 0;
    for member in &bundle.members {
        let digest: Digest = member.file.digest;
        let length = store.read(digest, &mut io::sink())?;
        if length != member.file.bytes {
            let path = member.file.path.as_str();
            let message = format!("the run says {} bytes, the object {digest} has {length}", member.file.bytes);
            return Err(BundleError::Unbound { run: bundle.run, faults: Faults::one(path, "bundle.size", message) });
        }
        done += length;
        progress(done, total);
    }
    Ok(())
}
