//! A run in a paragraph, from the record alone: what ran, on what, and how it ended.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::count::counted;
use crate::manifest::action::Action;
use crate::manifest::branch::Purpose;
use crate::manifest::event::Level;
use crate::manifest::intent::Network;
use crate::manifest::plan::Plan;
use crate::manifest::run::{AtFault, Run, Stack};
use crate::manifest::status::{Observed, Status};
use crate::verb::base;
use crate::verb::depart::{NO_OP, arm};
use crate::verb::settle::Machine as _;

/// Tells of an attempt in sentences. What is not known is not made up: without plan or run record there is less to tell.
/// `last_words` are the last line of its standard error, and where all of it is.
pub fn story(
    status: &Status,
    plan: Option<&Plan>,
    run: Option<&Run>,
    actions: &[Action],
    last_words: Option<(&str, &str)>,
) -> String {
    let mut sentences = Vec::from([asked(status, plan)]);
    sentences.extend(plan.and_then(departed));
    sentences.extend(run.map(ran_on));
    sentences.extend(run.map(isolated));
    sentences.extend(actions.iter().filter_map(|action| wished(action, status)));
    sentences.push(match run {
        Some(run) => ended(status, plan, run),
        None => stands(status),
    });
    sentences.extend(
        last_words
            .map(|(line, log)| format!("The last line of its standard error is \"{line}\"; all of it is in {log}.")),
    );
    sentences.join(" ")
}

fn asked(status: &Status, plan: Option<&Plan>) -> String {
    let candidate = plan.map_or_else(
        || format!("candidate {}", short(&status.fingerprint.to_string())),
        |plan| format!("candidate \"{}\" ({})", plan.candidate.name(), short(&status.fingerprint.to_string())),
    );
    let what = match plan.and_then(|plan| plan.evaluation.as_ref()) {
        Some(evaluating) => {
            format!("an evaluation of bundle {} of {candidate}", short(&evaluating.subject.bundle.to_string()))
        }
        None if status.level == Level::EvaluationAttempt => format!("an evaluation of {candidate}"),
        None => candidate,
    };
    let due = plan.filter(|plan| plan.work.steps > 0);
    let steps = due.map_or_else(String::new, |plan| format!(", {}", in_units(plan.due(), unit(Some(plan)))));
    let base = plan.and_then(|plan| base::describe(&plan.native()?.base));
    let base = base.map_or_else(String::new, |base| format!(" Its parameters began as those of {base}."));
    let again = status.retry_of.as_ref().map_or_else(String::new, |of| format!(" It is a retry of {of}."));
    format!(
        "{} is an attempt at {what} with seed {}{steps}, under experiment {}, asked for by operation {} with plan {}.{base}{again}",
        status.attempt,
        status.seed,
        status.experiment,
        status.operation,
        short(&status.plan.to_string()),
    )
}

/// What a run that did not begin at the beginning went on from, and what was changed there.
fn departed(plan: &Plan) -> Option<String> {
    let from = plan.departure.as_ref()?;
    let what = match from.purpose {
        Purpose::Rollback => "a rollback",
        Purpose::Adoption => "an adoption",
        Purpose::Branch => "a branch",
        Purpose::Quality => "a quality branch",
        Purpose::Maintenance => "a maintenance branch",
        Purpose::Acquisition => "a branch for acquisition",
    };
    let changed = match arm(from) {
        arm if arm == NO_OP => "with nothing changed".to_string(),
        arm => format!("with {arm}"),
    };
    Some(format!(
        "It is {what} from the state after step {} of run {}, {changed}.",
        from.step,
        short(&from.run.to_string())
    ))
}

fn ran_on(run: &Run) -> String {
    let Some(Stack { worker, processor, system, reported, libraries, .. }) = &run.stack else {
        return "No worker could be read.".into();
    };
    let threads = reported.as_ref().map_or_else(String::new, |reported| {
        format!(", {} and {} vector instructions", counted(reported.threads, "thread"), reported.cpu_capability)
    });
    let many = counted(libraries.len(), "library");
    format!("It ran worker {} with {many} on {processor}, {system}{threads}.", short(&worker.to_string()))
}

fn isolated(run: &Run) -> String {
    let network = match run.intent.network {
        Network::None => "no network",
        Network::Loopback => "a network of its own with nothing else in it",
        Network::Host => "the network of the host",
    };
    match run.custody {
        Some(custody) => {
            let evidence = short(&custody.to_string());
            format!("Its isolation was {}, {network} was admitted, with evidence in {evidence}.", run.isolation)
        }
        None => format!("It never came to a sandbox; isolation {} and {network} were asked for.", run.isolation),
    }
}

/// One of what a run is made of, and many.
fn unit(plan: Option<&Plan>) -> (&'static str, &'static str) {
    match plan {
        Some(plan) if plan.evaluation.is_some() => ("batch", "batches"),
        Some(plan) if plan.command().is_some() => ("line of telemetry", "lines of telemetry"),
        _ => ("step", "steps"),
    }
}

fn in_units(number: u64, (one, many): (&str, &str)) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn wished(action: &Action, status: &Status) -> Option<String> {
    let concerns =
        action.target == status.attempt || action.operations.iter().any(|step| step.attempt == status.attempt);
    let state = if action.state.is_terminal() { "closed as" } else { "which is" };
    concerns.then(|| format!("{} asked for a {} at {} ({state} {}).", action.by, action.kind, action.at, action.state))
}

fn ended(status: &Status, plan: Option<&Plan>, run: &Run) -> String {
    let seconds = run.finished.unix().saturating_sub(run.started.unix());
    let time = run.observed.wall_nanoseconds.map_or_else(
        || format!("{seconds} s by the clock"),
        |nanoseconds| format!("{}.{:03} s", nanoseconds / 1_000_000_000, nanoseconds / 1_000_000 % 1000),
    );
    let kept = match (run.artifacts.len(), run.quarantined.len()) {
        (0, 0) => "It left no files".to_string(),
        (kept, 0) => format!("It left {}", counted(kept, "file")),
        (_, apart) => format!("{} of it lie apart in quarantine", counted(apart, "file")),
    };
    let (steps, planned) = (run.progress.steps, run.progress.planned);
    let progress = match planned {
        0 => in_units(steps, unit(plan)),
        _ => format!("{steps} of {}", in_units(planned, unit(plan))),
    };
    let before = run.start.as_ref().map_or_else(String::new, |start| format!(" ({} of them taken before)", start.step));
    let record =
        status.run_record.map_or_else(String::new, |id| format!(", as run record {} says", short(&id.to_string())));
    format!(
        "It ended as {} at {} after {progress}{before} in {time}: {}. {}{kept}{record}.",
        run.status,
        run.finished,
        run.cause.trim_end_matches('.'),
        at_fault(run.at_fault)
    )
}

/// Whom to ask about an end that was not good.
fn at_fault(whose: AtFault) -> &'static str {
    match whose {
        AtFault::Nobody => "",
        AtFault::Blocked => "This host does not have what it needs. ",
        AtFault::Harness => "What runs it is at fault, not what was run. ",
        AtFault::Model => "What was run is at fault, not what runs it. ",
        AtFault::Grader => "What measures is at fault, not what was measured. ",
    }
}

fn stands(status: &Status) -> String {
    match status.observed {
        Observed::Ended => format!("It ended as {}, and no run record is in the store.", status.state),
        Observed::Working => format!("It is {}: {}.", status.state, status.why),
        Observed::Waiting => format!("It has not begun: {}.", status.why),
        Observed::Lost => format!("It is lost: {}. xt-log reconcile records that.", status.why),
        Observed::Uncertain => format!("The record has it as {}, and {}.", status.state, status.why),
    }
}

/// A digest as people read it: the first twelve digits.
fn short(digest: &str) -> String {
    digest.chars().take("sha256:".len() + 12).collect()
}
