//! The runs that a run went on from. Each took a part of the steps, so each part must have been as well kept as the last:
//! the same plan, the same stack, every control enforced, and a state handed over that the trace of the whole confirms.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest as _;
use crate::manifest::custody::Custody;
use crate::manifest::plan::Plan;
use crate::manifest::run::{Run, Start};
use crate::manifest::snapshot::Snapshot;
use crate::verb::bind::Evidence;
use crate::verb::snapshot::{check_line, check_plan};
use crate::verb::{command, compare, depart};

/// A run that another went on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// Its record.
    pub run: Run,
    /// Its plan, where that is another one than that of the run that went on from it.
    pub plan: Option<Plan>,
    /// Its custody record, if it has one.
    pub custody: Option<Custody>,
    /// The state that was handed over.
    pub snapshot: Snapshot,
}

/// Steps after which a run and its ancestors handed over: their lines must be kept when the trace is followed.
pub fn handovers(run: &Run, ancestors: &[Ancestor]) -> BTreeSet<u64> {
    let starts = ancestors.iter().map(|ancestor| &ancestor.run).chain([run]).filter_map(|run| run.start.as_ref());
    starts.map(|start| start.step).collect()
}

/// What the trainer found in its folder of inputs: those of the plan, and the files of the state that it went on from.
pub fn input_names(plan: &Plan, from: Option<&Snapshot>) -> Digest {
    let state = from.into_iter().flat_map(|snapshot| [snapshot.parameters.file, snapshot.optimizer.file]);
    let all: BTreeSet<Digest> = plan.inputs.iter().map(|input| input.digest).chain(state).collect();
    let mut names: Vec<String> = match plan.command() {
        Some(_) => command::input_names(plan).into_iter().map(|name| name + "\n").collect(),
        None => all.iter().map(|digest| digest.hex() + "\n").collect(),
    };
    names.sort();
    Digest::of(names.concat().as_bytes())
}

/// Notes everything that is wrong with the ancestors of a run.
pub fn check(evidence: &Evidence<'_>, faults: &mut Faults) {
    let (mut child, mut plan) = (evidence.run, evidence.plan);
    for (number, ancestor) in (1..).zip(evidence.ancestors) {
        let mut found = Faults::new();
        match &child.start {
            Some(start) => check_handover(start, ancestor, (evidence, plan), &mut found),
            None => found.add("", "bundle.before", "no run goes on from it"),
        }
        plan = check_departure(plan, ancestor, &mut found);
        check_one(child, ancestor, (evidence, plan), number, &mut found);
        faults.0.extend(found.within(&format!("before/{number}")).0);
        child = &ancestor.run;
    }
    if let (None, Some(from)) = (&child.start, &plan.departure) {
        let message = format!("the plan goes on from step {} of run {}, which is not there", from.step, from.run);
        faults.add("run#/start", "bundle.before", message);
    }
    if let Some(start) = &child.start {
        let message = format!("the run went on from step {} of run {}, which is not there", start.step, start.run);
        faults.add("run#/start", "bundle.before", message);
    }
}

/// Notes where a plan did not leave from the run that it names. Gives the plan of that run.
fn check_departure<'a>(plan: &'a Plan, ancestor: &'a Ancestor, faults: &mut Faults) -> &'a Plan {
    let Ancestor { run, snapshot, plan: before, .. } = ancestor;
    let Some(before) = before else { return plan };
    if plan.start().is_none_or(|start| start.run != run.id()) {
        faults.add("/plan", "bundle.before", "the plan does not go on from this run, so it needs no other plan");
    }
    depart::check_origin(&depart::Origin { run, plan: before, snapshot }, plan, faults);
    before
}

fn check_handover(start: &Start, ancestor: &Ancestor, (evidence, plan): (&Evidence<'_>, &Plan), faults: &mut Faults) {
    let Ancestor { run, snapshot, .. } = ancestor;
    let pairs = [
        ("run", start.run.to_string(), run.id().to_string()),
        ("snapshot", start.snapshot.to_string(), snapshot.id().to_string()),
        ("step", start.step.to_string(), snapshot.step.to_string()),
    ];
    for (field, named, found) in pairs.into_iter().filter(|(_, named, found)| named != found) {
        faults.add(format!("/{field}"), "bundle.before", format!("the run names {named}, found {found}"));
    }
    check_plan(snapshot, plan, faults);
    match evidence.trace.and_then(|trace| trace.marks.get(&start.step)) {
        Some(line) => check_line(snapshot, line, faults),
        None => faults.add("/step", "bundle.before", format!("the trace has no good line for step {}", start.step)),
    }
    if run.trace.as_ref().is_none_or(|trace| trace.steps < start.step) {
        faults.add("run#/trace", "bundle.before", format!("it never came to step {}", start.step));
    }
}

fn check_one(
    child: &Run,
    ancestor: &Ancestor,
    (evidence, plan): (&Evidence<'_>, &Plan),
    number: usize,
    faults: &mut Faults,
) {
    let Ancestor { run, custody, snapshot, plan: _ } = ancestor;
    crate::verb::bind::check_plan(run, plan, faults);
    crate::verb::bind::check_stack(run, plan, faults);
    match custody {
        Some(custody) => {
            // What it went on from itself is the next in the row.
            let from = evidence.ancestors.get(number).map(|next| &next.snapshot);
            crate::verb::bind::check_custody(run, plan, custody, from, faults);
        }
        None => faults.add("run#/custody", "bundle.custody", "there is no custody record"),
    }
    let stacks = [("run#/stack", run.stack.as_ref()), ("snapshot#/stack", Some(&snapshot.stack))];
    for (at, stack) in stacks {
        let (Some(stack), Some(of_child)) = (stack, &child.stack) else { continue };
        for pin in compare::stacks(stack, of_child) {
            let message =
                format!("{} differs: it had {}, the run that went on had {}", pin.what, pin.recorded, pin.now);
            faults.add(at, "bundle.stack", message);
        }
    }
}
