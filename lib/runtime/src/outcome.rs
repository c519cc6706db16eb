//! How a run ended: one pure rule over what was seen. Success needs the worker's report of completion, a clean exit, and
//! agreement of both with the plan (E-06, E-07); everything else keeps its own truth (E-08, L67).

use xt_core::manifest::run::{AtFault, ProcessExit, Progress, Status, StopReason, Stopped};

use crate::ledger::{Disagreement, End};

/// Why the supervisor stopped the worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Someone asked for it.
    Cancel,
    /// The wall clock ran out, after so many seconds.
    Time(u64),
    /// The worker's telemetry cannot be true.
    Telemetry,
    /// The supervisor itself could not go on.
    Supervisor(String),
}

/// What was seen of a run that was started.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Whether the run measures, and updates nothing.
    pub measures: bool,
    /// What the worker did.
    pub progress: &'a Progress,
    /// Whether it is a command, whose clean exit is its report of completion.
    pub command: bool,
    /// How the worker said it ended.
    pub end: Option<&'a End>,
    /// What in its telemetry cannot be true.
    pub disagreement: Option<&'a Disagreement>,
    /// Bytes of an unfinished last line.
    pub torn: usize,
    /// How its process ended.
    pub exit: &'a ProcessExit,
    /// Whether the supervisor stopped it, and why.
    pub stop: Option<&'a Stop>,
    /// Who asked for cancellation, when someone did.
    pub cancel: Option<&'a str>,
    /// The last step whose state was taken into the store.
    pub snapshot: Option<u64>,
    /// Kernel kills for lack of memory.
    pub out_of_memory: Option<u64>,
    /// Processes and threads that the kernel refused at the limit.
    pub refused_forks: Option<u64>,
    /// What is wrong with its outputs.
    pub outputs: Option<&'a str>,
    /// Whether no room was left for its outputs.
    pub full: bool,
}

/// The code that a worker exits with when a stop condition holds it.
const HELD: u64 = 3;
/// The code that a worker exits with when it was drained.
const DRAINED: u64 = 4;
const SIGKILL: u64 = 9;
const SIGTERM: u64 = 15;
const SIGXCPU: u64 = 24;
const SIGXFSZ: u64 = 25;

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its status.
    pub status: Status,
    /// Who or what is at fault.
    pub at_fault: AtFault,
    /// Why, in words.
    pub cause: String,
}

/// The verdict on what was seen.
pub fn judge(seen: &Seen<'_>) -> Verdict {
    let (status, cause) = verdict(seen);
    let late = seen.cancel.is_some() && status != Status::Cancelled;
    let note = if late { "; a request to cancel came, and changed nothing" } else { "" };
    Verdict { status, at_fault: at_fault(seen, status), cause: cause + note + &refusals(seen, status) }
}

/// A worker that measures is what measures, unless it says that what it measures cannot be measured.
fn at_fault(seen: &Seen<'_>, status: Status) -> AtFault {
    let unseen = seen.exit.code.is_none() && seen.exit.signal.is_none();
    match status {
        Status::Succeeded | Status::Cancelled | Status::Drained => AtFault::Nobody,
        _ if unseen || matches!(seen.stop, Some(Stop::Supervisor(_))) || killed_by_others(seen) => AtFault::Harness,
        _ if !seen.measures || matches!(seen.end, Some(End::Failed { of_model: true, .. })) => AtFault::Model,
        _ => AtFault::Grader,
    }
}

/// Nobody here sent the signal, and a process that dies of its own fault dies of another.
fn killed_by_others(seen: &Seen<'_>) -> bool {
    let explained = seen.stop.is_some() || seen.out_of_memory.is_some_and(|kills| kills > 0) || seen.end.is_some();
    seen.exit.signal == Some(SIGKILL) && !explained
}

/// Programs say little or nothing sensible when they cannot start a thread; the counter does.
fn refusals(seen: &Seen<'_>, status: Status) -> String {
    match seen.refused_forks {
        Some(count) if count > 0 && status != Status::Succeeded => {
            format!("; the kernel refused {count} new processes or threads at the limit")
        }
        _ => String::new(),
    }
}

fn verdict(seen: &Seen<'_>) -> (Status, String) {
    if let Some(disagreement) = seen.disagreement {
        return (Status::Failed, format!("the telemetry cannot be true: {disagreement}"));
    }
    match (seen.end, seen.exit.code) {
        (Some(End::Completed { .. }), Some(0)) if seen.command => exited(seen),
        (Some(End::Completed { .. }), Some(0)) => completed(seen),
        (Some(End::Held { step, reason }), Some(HELD)) => (Status::Held, format!("at step {step}: {reason}")),
        (Some(End::Drained { step, .. }), Some(DRAINED)) => drained(seen, *step),
        _ => broken(seen),
    }
}

/// It stopped at a step boundary: the state there must be in the store, or nobody could go on.
fn drained(seen: &Seen<'_>, step: u64) -> (Status, String) {
    if seen.snapshot != Some(step) {
        return (Status::Failed, format!("it was drained at step {step}, and the state there is not in the store"));
    }
    if let Some(fault) = seen.outputs {
        return (Status::Failed, format!("the outputs are refused: {fault}"));
    }
    (Status::Drained, format!("drained after step {step} of {}", seen.progress.planned))
}

/// Completion was reported and the exit was clean: now both must agree with the plan.
fn completed(seen: &Seen<'_>) -> (Status, String) {
    let progress = seen.progress;
    let stopped = progress.stopped.as_ref();
    if stopped.is_some_and(|stopped| stopped.reason == StopReason::Limit) {
        let cause = format!("completion was reported after step {}, whose training loss holds the run", progress.steps);
        return (Status::Failed, cause);
    }
    if progress.steps != progress.planned && stopped.is_none() {
        let cause = format!("completion was reported after {} of {} steps", progress.steps, progress.planned);
        return (Status::Failed, cause);
    }
    if progress.updates == 0 && !seen.measures {
        return (Status::Failed, format!("none of the {} steps made an update", progress.steps));
    }
    if seen.torn > 0 {
        return (Status::Failed, format!("the telemetry ends in {} bytes that are no whole line", seen.torn));
    }
    if let Some(fault) = seen.outputs {
        return (Status::Failed, format!("the outputs are refused: {fault}"));
    }
    if let Some(Stopped { step, reason, mean }) = stopped {
        let mean = mean.map_or_else(|| "not finite".into(), |mean| format!("{mean}"));
        let why = match reason {
            StopReason::Target => format!("its mean training loss of {mean} reached the target"),
            StopReason::Patience | StopReason::Limit => {
                format!("its mean training loss, {mean} at last, was no better for too long")
            }
        };
        let cause = format!(
            "stopped early after step {step} of at most {}: {why}; completion reported, exit 0",
            progress.planned
        );
        return (Status::Succeeded, cause);
    }
    let units = if seen.measures { "batches" } else { "steps" };
    (Status::Succeeded, format!("all {} {units} done, completion reported, exit 0", progress.steps))
}

/// A command has exited cleanly: its telemetry must be whole, and have as many lines as were promised.
fn exited(seen: &Seen<'_>) -> (Status, String) {
    let Progress { planned, steps, .. } = *seen.progress;
    if planned > 0 && steps != planned {
        return (Status::Failed, format!("it exited with code 0 after {steps} of {planned} lines of telemetry"));
    }
    if seen.torn > 0 {
        return (Status::Failed, format!("the telemetry ends in {} bytes that are no whole line", seen.torn));
    }
    match seen.outputs {
        Some(fault) => (Status::Failed, format!("the outputs are refused: {fault}")),
        None => (Status::Succeeded, format!("exit 0, {steps} lines of telemetry")),
    }
}

/// Something is missing: a report, a clean exit, or both.
fn broken(seen: &Seen<'_>) -> (Status, String) {
    if seen.out_of_memory.is_some_and(|kills| kills > 0) {
        return (Status::Exhausted, "the memory budget ran out: the kernel killed a process of the run".into());
    }
    match (seen.exit.signal, seen.stop) {
        (Some(SIGXCPU), _) => return (Status::Exhausted, "the budget of processor time ran out".into()),
        (Some(SIGXFSZ), _) => return (Status::Exhausted, "an output grew past the storage budget".into()),
        (_, Some(stop)) if obeyed(seen) => return stopped(stop, seen.cancel),
        _ if seen.full => return (Status::Exhausted, format!("no room was left for its outputs; {}", failure(seen))),
        _ => {}
    }
    (Status::Failed, failure(seen))
}

/// Whether the process ended as one does that is told to stop: by the signal it was sent, or by itself and cleanly. A
/// crash while being stopped stays a crash (E-08).
fn obeyed(seen: &Seen<'_>) -> bool {
    let by_signal = matches!(seen.exit.signal, Some(SIGKILL | SIGTERM));
    let by_itself = matches!(seen.exit.code, Some(0 | 143)) && seen.end.is_none();
    by_signal || by_itself
}

fn stopped(stop: &Stop, cancel: Option<&str>) -> (Status, String) {
    match stop {
        Stop::Cancel => (Status::Cancelled, cancel.unwrap_or("nobody knows who asked").to_string()),
        Stop::Time(seconds) => (Status::Exhausted, format!("the wall-clock budget of {seconds} s ran out")),
        Stop::Telemetry => (Status::Failed, "the telemetry cannot be true".into()),
        Stop::Supervisor(why) => (Status::Failed, format!("the supervisor could not go on: {why}")),
    }
}

fn failure(seen: &Seen<'_>) -> String {
    let mut parts = vec![ending(seen.exit)];
    let taken = if seen.command {
        format!("after {} lines of telemetry", seen.progress.steps)
    } else {
        format!("after {} of {} steps", seen.progress.steps, seen.progress.planned)
    };
    parts.push(match seen.end {
        Some(End::Failed { reason, .. }) => format!("it said: {reason}"),
        Some(End::Drained { step, .. }) => format!("it said that it was drained at step {step}"),
        Some(End::Held { reason, .. }) => format!("it said that it was held: {reason}"),
        Some(End::Completed { .. }) => format!("although completion was reported {taken}"),
        None if seen.command => taken,
        None => format!("{taken}, without a report of completion"),
    });
    if seen.torn > 0 {
        parts.push(format!("its telemetry ends in {} bytes that are no whole line", seen.torn));
    }
    parts.join("; ")
}

fn ending(exit: &ProcessExit) -> String {
    match (exit.code, exit.signal) {
        (_, Some(signal)) => format!("the worker was ended by signal {signal}"),
        (Some(code), None) => format!("the worker exited with code {code}"),
        (None, None) => "nobody saw how the worker ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xt_core::number::Finite;

    const CLEAN: ProcessExit = ProcessExit { code: Some(0), signal: None };

    struct Case {
        steps: u64,
        updates: u64,
        end: Option<End>,
        exit: ProcessExit,
        stop: Option<Stop>,
        cancel: Option<&'static str>,
        torn: usize,
        out_of_memory: Option<u64>,
        refused_forks: Option<u64>,
        outputs: Option<&'static str>,
        full: bool,
        snapshot: Option<u64>,
        disagreement: Option<Disagreement>,
        stopped: Option<Stopped>,
    }

    fn good() -> Case {
        Case {
            steps: 12,
            updates: 12,
            end: Some(End::Completed { outputs: vec![] }),
            exit: CLEAN,
            stop: None,
            cancel: None,
            torn: 0,
            out_of_memory: Some(0),
            refused_forks: Some(0),
            outputs: None,
            full: false,
            snapshot: None,
            disagreement: None,
            stopped: None,
        }
    }

    fn judged(case: &Case) -> (Status, String) {
        let verdict = verdict_on(case, false);
        (verdict.status, verdict.cause)
    }

    fn verdict_on(case: &Case, measures: bool) -> Verdict {
        let completed = matches!(case.end, Some(End::Completed { .. }));
        let skipped = case.steps - case.updates;
        let stopped = case.stopped.clone();
        let progress = Progress { planned: 12, steps: case.steps, updates: case.updates, skipped, completed, stopped };
        judge(&Seen {
            measures,
            progress: &progress,
            command: false,
            end: case.end.as_ref(),
            disagreement: case.disagreement.as_ref(),
            torn: case.torn,
            exit: &case.exit,
            stop: case.stop.as_ref(),
            cancel: case.cancel,
            out_of_memory: case.out_of_memory,
            refused_forks: case.refused_forks,
            outputs: case.outputs,
            full: case.full,
            snapshot: case.snapshot,
        })
    }

    fn signalled(signal: u64) -> ProcessExit {
        ProcessExit { code: None, signal: Some(signal) }
    }

    fn exited(code: u64) -> ProcessExit {
        ProcessExit { code: Some(code), signal: None }
    }

    #[test]
    fn a_report_and_a_clean_exit_that_agree_with_the_plan_succeed_and_nothing_less_does() {
        assert_eq!(judged(&good()).0, Status::Succeeded);
        let lesser = [
            Case { exit: exited(1), ..good() },
            Case { exit: signalled(6), ..good() },
            Case { exit: signalled(9), ..good() },
            Case { end: None, ..good() },
            Case { end: None, steps: 3, updates: 3, torn: 17, ..good() },
            Case { steps: 3, updates: 3, ..good() },
            Case { torn: 1, ..good() },
            Case { updates: 0, ..good() },
            Case { outputs: Some("a symbolic link"), ..good() },
            Case { disagreement: Some(Disagreement::Order { found: 3, expected: 2 }), ..good() },
            Case { end: Some(End::Failed { reason: "no".into(), of_model: false }), ..good() },
        ];
        for case in lesser {
            assert_eq!(judged(&case).0, Status::Failed, "{}", judged(&case).1);
        }
    }

    #[test]
    fn a_cancel_that_stopped_it_is_cancelled_and_one_that_came_too_late_changes_nothing() {
        let cancelled = Case { stop: Some(Stop::Cancel), cancel: Some("SIGINT"), end: None, ..good() };
        for exit in [signalled(15), signalled(9), exited(143), CLEAN] {
            let (status, cause) = judged(&Case { exit, end: None, steps: 3, updates: 3, ..cancelled_like(&cancelled) });
            assert_eq!((status, cause.as_str()), (Status::Cancelled, "SIGINT"));
        }
        let (status, cause) = judged(&Case { stop: Some(Stop::Cancel), cancel: Some("SIGINT"), ..good() });
        assert_eq!(status, Status::Succeeded);
        assert!(cause.ends_with("changed nothing"), "{cause}");
        for exit in [signalled(11), exited(1)] {
            let (status, cause) = judged(&Case { exit, ..cancelled_like(&cancelled) });
            assert_eq!(status, Status::Failed, "a crash while being cancelled stays a crash: {cause}");
        }
    }

    /// Row L95: who failed is not read out of words.
    #[test]
    fn a_bad_end_says_whether_the_harness_the_model_or_the_grader_is_at_fault() {
        let end = |of_model| Some(End::Failed { reason: "no".into(), of_model });
        let cases = [
            (good(), AtFault::Nobody, AtFault::Nobody),
            (Case { exit: exited(1), ..good() }, AtFault::Model, AtFault::Grader),
            (Case { end: end(false), exit: exited(1), ..good() }, AtFault::Model, AtFault::Grader),
            (Case { end: end(true), exit: exited(1), ..good() }, AtFault::Model, AtFault::Model),
            (Case { outputs: Some("a socket"), ..good() }, AtFault::Model, AtFault::Grader),
            (Case { stop: Some(Stop::Supervisor("full".into())), exit: signalled(9), ..good() }, HARNESS, HARNESS),
            (Case { exit: crate::lost::NO_EXIT, end: None, ..good() }, HARNESS, HARNESS),
            (Case { out_of_memory: Some(1), exit: signalled(9), ..good() }, AtFault::Model, AtFault::Grader),
            (Case { exit: signalled(9), end: None, ..good() }, HARNESS, HARNESS),
            (Case { exit: signalled(11), end: None, ..good() }, AtFault::Model, AtFault::Grader),
            (Case { out_of_memory: Some(1), exit: signalled(9), end: None, ..good() }, AtFault::Model, AtFault::Grader),
        ];
        for (case, trains, measures) in cases {
            let found = [false, true].map(|way| verdict_on(&case, way).at_fault);
            assert_eq!(found, [trains, measures], "{}", judged(&case).1);
        }
    }

    const HARNESS: AtFault = AtFault::Harness;

    fn cancelled_like(case: &Case) -> Case {
        Case { stop: case.stop.clone(), cancel: case.cancel, end: None, ..good() }
    }

    #[test]
    fn drained_is_a_run_whose_state_at_that_step_is_in_the_store() {
        let drained = || Case {
            end: Some(End::Drained { step: 5, outputs: vec![] }),
            exit: exited(4),
            steps: 5,
            updates: 5,
            snapshot: Some(5),
            ..good()
        };
        assert_eq!(judged(&drained()), (Status::Drained, "drained after step 5 of 12".into()));
        let lesser = [
            Case { snapshot: Some(4), ..drained() },
            Case { snapshot: None, ..drained() },
            Case { exit: CLEAN, ..drained() },
            Case { exit: signalled(9), ..drained() },
            Case { outputs: Some("a socket"), ..drained() },
        ];
        for case in lesser {
            assert_eq!(judged(&case).0, Status::Failed, "{}", judged(&case).1);
        }
    }

    #[test]
    fn a_run_that_its_losses_stop_succeeds_with_fewer_steps_and_one_above_its_limit_never() {
        let stopped = |step, reason| Some(Stopped { step, reason, mean: Finite::new(0.5) });
        let early = |reason| Case { steps: 7, updates: 7, stopped: stopped(7, reason), ..good() };
        let (status, cause) = judged(&early(StopReason::Patience));
        assert_eq!(status, Status::Succeeded);
        assert!(
            cause.starts_with("stopped early after step 7 of at most 12: its mean training loss, 0.5 at"),
            "{cause}"
        );
        assert!(judged(&early(StopReason::Target)).1.contains("0.5 reached the target"));
        let lesser = [
            early(StopReason::Limit),
            Case { stopped: None, ..early(StopReason::Target) },
            Case { outputs: Some("a socket"), ..early(StopReason::Target) },
            Case { updates: 0, ..early(StopReason::Target) },
        ];
        for case in lesser {
            assert_eq!(judged(&case).0, Status::Failed, "{}", judged(&case).1);
        }
    }

    #[test]
    fn budgets_and_holds_have_a_status_of_their_own() {
        let late = Case { end: None, exit: signalled(9), stop: Some(Stop::Time(60)), ..good() };
        assert_eq!(judged(&late), (Status::Exhausted, "the wall-clock budget of 60 s ran out".into()));
        let full = Case { end: None, exit: signalled(9), out_of_memory: Some(1), ..good() };
        assert_eq!(judged(&full).0, Status::Exhausted);
        let no_room = Case { end: None, exit: exited(1), full: true, ..good() };
        assert_eq!(judged(&no_room).0, Status::Exhausted);
        assert_eq!(judged(&Case { full: true, ..good() }).0, Status::Succeeded, "full to the brim is not too full");
        let unknown = Case { end: None, exit: signalled(9), out_of_memory: None, ..good() };
        assert_eq!(judged(&unknown).0, Status::Failed, "a kill without a counter is no lack of memory");
        let crowded = Case { end: None, exit: exited(1), refused_forks: Some(7), ..good() };
        assert!(judged(&crowded).1.ends_with("refused 7 new processes or threads at the limit"));
        assert!(!judged(&Case { refused_forks: Some(7), ..good() }).1.contains("refused"));
        let held = Case {
            end: Some(End::Held { step: 3, reason: "loss".into() }),
            exit: exited(3),
            steps: 3,
            updates: 3,
            ..good()
        };
        assert_eq!(judged(&held), (Status::Held, "at step 3: loss".into()));
        assert_eq!(judged(&Case { exit: CLEAN, ..held }).0, Status::Failed, "report and exit must agree");
        let crashed =
            Case { end: Some(End::Held { step: 3, reason: "loss".into() }), exit: signalled(11), updates: 3, ..good() };
        assert_eq!(judged(&crashed).0, Status::Failed);
    }
}
