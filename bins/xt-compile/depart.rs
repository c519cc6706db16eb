//! Plans that go on from a state of another run: branches, rollbacks, adoptions.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Args;
use xt_cli::{CliError, Common, Error, Output, Source, each, note, read_documents, read_one};
use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::fault::{Exit, Faults};
use xt_core::field::{Field as _, Manifest as _};
use xt_core::left_out::LeftOut;
use xt_core::manifest::branch::{Change, Future, Known, Noise, Purpose};
use xt_core::manifest::dataset::Dataset;
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::manifest::run::Run;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::compile;
use xt_core::verb::depart::{Asked, DATASET, NO_OP, Origin, Substitute, arm, called, change, depart, ends_early};
use xt_core::verb::snapshot::FOLDER;
use xt_runtime::{Clock, Original, Runtime, last_state};
use xt_store::Store;

use crate::ground::{self, Grounds};
use crate::look;

/// Branches of one state.
#[derive(Args, Clone, Debug)]
pub(crate) struct BranchArguments {
    /// The state to leave from: an xt.snapshot/1 as a file, a digest or -, as `xt-snapshot RUN --step K` prints it
    #[arg(long, value_name = "SNAPSHOT", required_unless_present = "grid")]
    from: Option<OsString>,
    /// The run that came to the state [default: the first attempt that stored it]
    #[arg(long, value_name = "RUN", requires = "from")]
    run: Option<OsString>,
    /// Values that are set otherwise in all branches, the no-op included, such as regime=field;execution.threads=2
    #[arg(long, value_name = "PATH=VALUE[;...]")]
    under: Vec<String>,
    /// A branch with a value set otherwise, such as optimizer.learning_rate=1e-3; several values of one branch are parted by ;
    #[arg(long, value_name = "PATH=VALUE[;...]")]
    set: Vec<String>,
    /// A branch with normal noise on all weights, of this size relative to that of each tensor
    #[arg(long, value_name = "SIZE")]
    noise: Vec<f64>,
    /// A branch that sees these data from the state on, an xt.dataset/1 as a file, digest or -: as many samples, each in the place of the one with its number, in the same order
    #[arg(long, value_name = "DATASET")]
    data: Vec<OsString>,
    /// What is known of the effect of each branch of a quality set, at each horizon: two numbers with both ends included, such as -0.5..-0.1
    #[arg(long, value_name = "LOW..HIGH", value_parser = known, allow_hyphen_values = true)]
    known: Option<Known>,
    /// Steps after the state at which effects are told; the last ends each run
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', required_unless_present = "grid")]
    horizon: Vec<u64>,
    /// How often each branch but the no-op is run; noise has another seed each time
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    replicates: u64,
    /// What the branches are for: quality is for interventions whose effect is known, maintenance for re-baselining
    #[arg(long, value_name = "PURPOSE", default_value = "branch", value_parser = ["branch", "quality", "maintenance", "acquisition"])]
    purpose: String,
    /// A grid of branches as JSON Lines, each an object with from, under, set, noise, horizons and replicates
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "under", "set", "noise", "data", "known", "horizon", "replicates", "purpose"])]
    grid: Option<OsString>,
    #[command(flatten)]
    grounds: Grounds,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// An earlier state of a run, to go on from.
#[derive(Args, Clone, Debug)]
pub(crate) struct RollbackArguments {
    /// The run: a file, a digest, or -
    #[arg(value_name = "RUN")]
    run: OsString,
    /// The step after which it goes on; its state must be stored
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    to: u64,
    /// A value that is set otherwise from there on, such as optimizer.learning_rate=1e-3
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// A branch, to go on from its last state.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdoptArguments {
    /// The run of the branch: a file, a digest, or -
    #[arg(value_name = "BRANCH")]
    run: OsString,
    /// Go on from the common state and do the branch again, instead of going on from its last state
    #[arg(long)]
    replay: bool,
    /// Write to FILE, which appears when all is done
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

xt_core::record! {
    /// One line of a grid.
    pub struct Cell {
        /// Id of the snapshot to leave from.
        from: Digest,
        /// Values that are set otherwise in all branches of the line; left out for none.
        under: LeftOut<Vec<String>>,
        /// Branches with values set otherwise, each as `path=value`, several parted by `;`.
        set: Vec<String>,
        /// Branches with noise on the weights, of these sizes.
        noise: Vec<Finite>,
        /// Steps after the state at which effects are told.
        horizons: Vec<u64>,
        /// How often each branch but the no-op is run.
        replicates: u64 [xt_core::field::Range::from(1.0).to(1000.0)],
    }
}

impl Cell {
    fn of(value: &Value) -> Result<Self, Faults> {
        let mut faults = Faults::new();
        let cell = Self::read(value, "", &mut faults);
        cell.filter(|_| faults.is_empty()).ok_or(faults)
    }
}

/// A state with the papers of the run that came to it.
struct Left {
    run: Run,
    plan: Plan,
    snapshot: Snapshot,
}

impl Left {
    fn of(store: &Store, run: Run, snapshot: Digest) -> Result<Self, Error> {
        Ok(Self { plan: store.manifest(run.plan)?, snapshot: store.manifest(snapshot)?, run })
    }

    fn depart(&self, asked: &Asked) -> Result<(Plan, Option<Future>), Faults> {
        depart(&Origin { run: &self.run, plan: &self.plan, snapshot: &self.snapshot }, asked)
    }
}

fn refused(at: &str, code: &'static str, message: impl Into<String>) -> Error {
    Faults::one(at, code, message.into()).into()
}

fn read(argument: &OsString, common: &Common) -> Result<Value, Error> {
    let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
    Ok(read_one(&Source::from(argument.as_os_str()), &lookup)?.value)
}

fn changes(texts: &[String]) -> Result<Vec<Change>, Error> {
    let one =
        |text: &str| change(text).ok_or_else(|| CliError::Usage(format!("--set {text:?}: expected PATH=VALUE")).into());
    texts.iter().flat_map(|text| text.split(';')).map(one).collect()
}

/// Writes plans for branches, each set with its no-op first.
pub(crate) fn branches(arguments: &BranchArguments, common: &Common) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let calibration = arguments.grounds.calibration(common)?;
    let ground = arguments.grounds.ground(calibration.as_ref());
    let mut plans = Vec::new();
    if let Some(grid) = &arguments.grid {
        let lookup = |digest| Ok(Store::open(&common.store)?.get(digest)?);
        for cell in each(&read_documents(&[Source::from(grid.as_os_str())], &lookup)?, Cell::of)? {
            let left = Left::of(&store, first_run(&store, cell.from, common)?, cell.from)?;
            let noise: Vec<f64> = cell.noise.iter().map(|size| size.get()).collect();
            let (purpose, under, ground) =
                (Purpose::Acquisition, changes(&cell.under.0.unwrap_or_default())?, ground.clone());
            let (horizons, replicates) = (cell.horizons, cell.replicates);
            let set = Set { purpose, under, ground, horizons, replicates, known: None };
            plans.extend(set.plans(&store, &left, &cell.set, &noise)?);
        }
    } else if let Some(from) = &arguments.from {
        let snapshot = Snapshot::decode(&read(from, common)?)?;
        let run = match &arguments.run {
            Some(run) => Run::decode(&read(run, common)?)?,
            None => first_run(&store, snapshot.id(), common)?,
        };
        let left = Left { plan: store.manifest(run.plan)?, run, snapshot };
        let purpose = Purpose::ALL.iter().find(|purpose| purpose.word() == arguments.purpose);
        let purpose = purpose.copied().filter(|purpose| ends_early(*purpose)).unwrap_or(Purpose::Branch);
        let mut horizons = arguments.horizon.clone();
        horizons.sort_unstable();
        horizons.dedup();
        let mut all = arguments.set.clone();
        for name in &arguments.data {
            all.push(format!("{DATASET}={}", Dataset::decode(&read(name, common)?)?.id()));
        }
        let (under, replicates, known) = (changes(&arguments.under)?, arguments.replicates, arguments.known.clone());
        let set = Set { purpose, under, ground, horizons, replicates, known };
        plans = set.plans(&store, &left, &all, &arguments.noise)?;
    }
    let all: Vec<Plan> = plans.iter().map(|(plan, _)| plan.clone()).collect();
    for idle in idle(&all) {
        note(common, &format!("xt-compile: {idle} is what the plan has already, so that branch is one more no-op"));
    }
    ground::check(&all, calibration.as_ref(), common)?;
    write(&plans, &store, arguments.output.as_deref())
}

/// The branches that change nothing, though values were given: each has the candidate of its no-op, which comes before it.
fn idle(plans: &[Plan]) -> BTreeSet<String> {
    let (mut no_op, mut idle) = (None, BTreeSet::new());
    for plan in plans {
        match plan.departure.as_ref().map(arm) {
            Some(arm) if arm == NO_OP => no_op = Some(&plan.candidate),
            Some(arm)
                if no_op == Some(&plan.candidate)
                    && plan.departure.as_ref().is_some_and(|from| from.noise.is_none()) =>
            {
                idle.insert(arm);
            }
            _ => {}
        }
    }
    idle
}

/// What all branches of a set have in common.
struct Set {
    purpose: Purpose,
    under: Vec<Change>,
    ground: Ground,
    horizons: Vec<u64>,
    replicates: u64,
    known: Option<Known>,
}

impl Set {
    fn plans(
        &self,
        store: &Store,
        left: &Left,
        set: &[String],
        noise: &[f64],
    ) -> Result<Vec<(Plan, Option<Future>)>, Error> {
        let (under, ground) = (self.under.clone(), self.ground.clone());
        let no_op = Asked { under, ground, horizons: self.horizons.clone(), ..Asked::on(self.purpose) };
        let mut asked = vec![no_op.clone()];
        let no_op = Asked { known: self.known.clone(), ..no_op };
        for texts in set {
            let set = changes(std::slice::from_ref(texts))?;
            let changed = Asked { data: substitute(store, left, &set)?, set, ..no_op.clone() };
            asked.extend((1..=self.replicates).map(|replicate| Asked { replicate, ..changed.clone() }));
        }
        for size in noise {
            let relative = Finite::new(*size).filter(|size| size.get() > 0.0 && size.get() <= 10.0);
            let Some(relative) = relative else {
                let message = format!("expected a number above 0 and up to 10, found {size}");
                return Err(refused("/departure/noise/relative", "field.range", message));
            };
            let noised =
                |replicate| Asked { noise: Some(Noise { relative, seed: replicate }), replicate, ..no_op.clone() };
            asked.extend((1..=self.replicates).map(noised));
        }
        // Every branch is looked at, so that all reasons come at once; what is wrong with the no-op is wrong with all.
        let (mut plans, mut faults, mut common) = (Vec::new(), Faults::new(), Vec::new());
        for (place, asked) in asked.iter().enumerate() {
            match left.depart(asked) {
                Ok(plan) => plans.push(plan),
                Err(found) if place == 0 => {
                    common.clone_from(&found.0);
                    faults = found;
                }
                Err(mut found) => {
                    found.0.retain(|fault| !common.contains(fault));
                    faults.0.extend(found.within(&called(&asked.set, asked.noise.as_ref())).0);
                }
            }
        }
        Ok(faults.or(plans)?)
    }
}

/// Two numbers, as what is known of an effect.
fn known(text: &str) -> Result<Known, String> {
    let number = |text: &str| text.parse().ok().and_then(Finite::new);
    let ends = text.split_once("..").and_then(|(low, high)| Some(Known { low: number(low)?, high: number(high)? }));
    ends.filter(|known| known.low <= known.high).ok_or_else(|| "expected two rising numbers, such as -0.5..-0.1".into())
}

/// The data that a value names which is set otherwise, looked at as the trainer will.
fn substitute(store: &Store, left: &Left, set: &[Change]) -> Result<Option<Substitute>, Error> {
    let named = set.iter().rev().find(|change| change.path == DATASET);
    let digest = named.and_then(|change| change.value.as_str()).and_then(|text| text.parse::<Digest>().ok());
    let (Some(digest), Some(candidate)) = (digest, left.plan.native()) else { return Ok(None) };
    let dataset: Dataset = store.manifest(digest)?;
    let mut candidate = candidate.clone();
    candidate.data.dataset = digest;
    let mut faults = Faults::new();
    compile::check(&candidate, &dataset, &left.plan.intent, &mut faults);
    faults.or(())?;
    let (tokens, fitted) = look(&candidate, &dataset, store)?;
    Ok(Some(Substitute { dataset, count: tokens.count, fitted }))
}

/// The run of the first attempt that stored this state and has ended.
fn first_run(store: &Store, snapshot: Digest, common: &Common) -> Result<Run, Error> {
    let prefix = format!("{FOLDER}/");
    let runtime = Runtime::new(&common.store, Clock::system())?;
    for reference in store.references()?.into_iter().filter(|reference| reference.digest == snapshot) {
        let attempt = reference.name.as_str().strip_prefix(&prefix).and_then(|rest| rest.split('/').next());
        let Some(attempt) = attempt.and_then(Name::new) else { continue };
        if let Some(record) = runtime.attempt(&attempt)?.run_record {
            return Ok(store.manifest(record)?);
        }
    }
    let message = format!("no run of this store that has ended stored {snapshot}; --run names the one to go on from");
    Err(refused("/from", "depart.run", message))
}

/// Writes the plan of a run that goes on from an earlier state of its own.
pub(crate) fn rollback(arguments: &RollbackArguments, common: &Common) -> Result<Exit, Error> {
    let (store, step) = (Store::open(&common.store)?, arguments.to);
    let run = Run::decode(&read(&arguments.run, common)?)?;
    let papers = xt_bundle::papers(&store, &run, true)?;
    let original = Original { run: &run, plan: &papers.plan, steps: &papers.steps };
    let (states, _) = original.states(&store)?;
    let Some(state) = states.iter().find(|taken| taken.step == step) else {
        let stored: BTreeSet<u64> = states.iter().map(|taken| taken.step).collect();
        let stored: Vec<String> = stored.iter().map(u64::to_string).collect();
        let message = format!(
            "no state after step {step} is stored (there are: {}); `xt-snapshot RUN --step {step}` computes it again and stores it",
            if stored.is_empty() { "none".into() } else { stored.join(", ") }
        );
        return Err(refused("/to", "depart.step", message));
    };
    let left = Left::of(&store, run.clone(), state.snapshot)?;
    let (set, ground) = (changes(&arguments.set)?, left.plan.ground.clone());
    let plan = left.depart(&Asked { set, ground, ..Asked::on(Purpose::Rollback) })?;
    write(&[plan], &store, arguments.output.as_deref())
}

/// Writes the plan of a mainline that goes on from a branch.
pub(crate) fn adopt(arguments: &AdoptArguments, common: &Common) -> Result<Exit, Error> {
    let store = Store::open(&common.store)?;
    let run = Run::decode(&read(&arguments.run, common)?)?;
    let plan: Plan = store.manifest(run.plan)?;
    let Some(departure) = plan.departure.clone().filter(|departure| ends_early(departure.purpose)) else {
        return Err(refused(
            "run#/plan",
            "adopt.branch",
            "the run is no branch; `xt-compile rollback` goes on from a run",
        ));
    };
    if !arguments.replay && plan.due() == plan.work.steps {
        let message = "the branch ends where its plan does, so there is nothing to go on with; --replay does it again";
        return Err(refused("run#/plan", "adopt.state", message));
    }
    if arguments.replay {
        let left = Left::of(&store, store.manifest(departure.run)?, departure.snapshot)?;
        let asked = Asked {
            under: departure.under,
            set: departure.set,
            noise: departure.noise,
            ground: plan.ground,
            ..Asked::on(Purpose::Adoption)
        };
        return write(&[left.depart(&asked)?], &store, arguments.output.as_deref());
    }
    let Some((_, last)) = last_state(&run).filter(|(step, _)| *step == plan.due()) else {
        let message =
            format!("the branch has no state after step {}, where it ends; --replay does it again", plan.due());
        return Err(refused("run#/snapshots", "adopt.state", message));
    };
    let ground = plan.ground.clone();
    let left = Left::of(&store, run, last)?;
    let plan = left.depart(&Asked { ground, ..Asked::on(Purpose::Adoption) })?;
    write(&[plan], &store, arguments.output.as_deref())
}

/// Stores the shared micro-batches, and then writes the plans.
fn write(plans: &[(Plan, Option<Future>)], store: &Store, output: Option<&Path>) -> Result<Exit, Error> {
    let futures: BTreeMap<Digest, (&Plan, &Future)> =
        plans.iter().filter_map(|(plan, future)| Some((future.as_ref()?.id(), (plan, future.as_ref()?)))).collect();
    for (id, (plan, future)) in futures {
        store.put_manifest(future)?;
        let reason = format!("micro-batches of branches after step {} of {}", future.after, plan.candidate.name());
        store.set_reference(&format!("futures/{}", id.hex()), id, &reason)?;
    }
    let mut output = Output::new(output)?;
    plans.iter().try_for_each(|(plan, _)| output.line(&plan.encode().canonical()))?;
    output.finish()?;
    Ok(Exit::Yes)
}
