//! From a worker that has ended to what is known about its end.

use std::collections::BTreeSet;
use std::path::Path;

use xt_core::manifest::evaluation::Metrics;
use xt_core::manifest::intent::Profile;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{AtFault, Calls, Observed, ProcessExit, Status};
use xt_core::verb::chain::LINES;
use xt_core::verb::evaluate;
use xt_sandbox::{Ending, Limits, Running};

use crate::conclude::{Dropped, Findings};
use crate::error::RuntimeError;
use crate::folder::read_document;
use crate::ledger::End;
use crate::lost::{NO_EXIT, UNOBSERVED};
use crate::outcome::{Seen, Stop, Verdict, judge};
use crate::secrets::Secrets;
use crate::sight::Sight;
use crate::watch::Watch;

/// Waits for the end of everything that ran, collects its outputs, and enters how it ended.
pub(crate) fn enter(mut watch: Watch<'_>, running: Running, outputs: &Path, limits: &Limits, findings: &mut Findings) {
    let ending = running.finish().map_err(RuntimeError::from);
    let drained = watch.drain();
    // Snapshots that a worker wrote before something ended it are as good as any other.
    if let Ok(ending) = &ending
        && let Err(error) = watch.take_snapshots(Some(&ending.outputs))
    {
        watch.stop.get_or_insert(Stop::Supervisor(error.to_string()));
    }
    let (exit, mut observed, fault) = match &ending {
        Ok(ending) => (exit_of(ending), observed(ending), collect(&watch, ending, outputs, limits)),
        Err(error) => (NO_EXIT, UNOBSERVED, Some(error.to_string())),
    };
    if let Err(error) = drained {
        watch.stop.get_or_insert(Stop::Supervisor(error.to_string()));
    }
    if exit.code == Some(0) && watch.stop.is_none() && watch.disagreement.is_none() {
        watch.ledger.exited();
    }
    let progress = watch.ledger.progress();
    let verdict = judge(&Seen {
        measures: watch.plan.evaluation.is_some(),
        progress: &progress,
        command: watch.ledger.is_command(),
        end: watch.ledger.end(),
        disagreement: watch.disagreement.as_ref(),
        torn: watch.torn(),
        exit: &exit,
        stop: watch.stop.as_ref(),
        cancel: watch.cancel.as_deref(),
        snapshot: watch.snapshots.last(),
        out_of_memory: observed.out_of_memory_kills,
        refused_forks: observed.process_limit_hits,
        outputs: fault.as_deref(),
        full: ending.as_ref().is_ok_and(|ending| ending.outputs.are_full()),
    });
    let (stdout, stderr) = watch.dropped();
    observed.mapped = watch.seen.mapped();
    let verdict = admitted_only(watch.plan, &watch.seen, verdict);
    (findings.status, findings.at_fault, findings.cause) = (verdict.status, verdict.at_fault, verdict.cause);
    findings.cause = watch.secrets().taken_out_of(&findings.cause);
    findings.exit = exit;
    findings.observed = silent(observed, watch.secrets());
    findings.progress = progress;
    findings.chain = watch.ledger.chain();
    findings.dropped = Dropped { stdout, stderr };
    if let (Some(stack), Some(reported)) = (&mut findings.stack, watch.ledger.reported()) {
        stack.reported = Some(reported.clone());
    }
}

/// A run in custody that succeeded is no success if it had code in it that nobody admitted.
fn admitted_only(plan: &Plan, seen: &Sight, verdict: Verdict) -> Verdict {
    let confined = plan.intent.isolation.profile != Profile::None;
    match seen.stranger() {
        Some(path) if confined && verdict.status == Status::Succeeded => {
            let at_fault = if plan.evaluation.is_some() { AtFault::Grader } else { AtFault::Model };
            let cause = format!("it had mapped {path} to execute it, which nobody admitted; {}", verdict.cause);
            Verdict { status: Status::Failed, at_fault, cause }
        }
        _ => verdict,
    }
}

fn exit_of(ending: &Ending) -> ProcessExit {
    let number = |number: Option<i32>| number.and_then(|number| u64::try_from(number).ok());
    ProcessExit { code: number(ending.code), signal: number(ending.signal) }
}

fn observed(ending: &Ending) -> Observed {
    Observed {
        wall_nanoseconds: None,
        cpu_nanoseconds: ending.cpu_nanoseconds,
        peak_memory_bytes: ending.counters.peak_memory_bytes.or(ending.peak_resident_bytes),
        survivors_killed: ending.survivors_killed,
        out_of_memory_kills: ending.counters.out_of_memory_kills,
        process_limit_hits: ending.counters.process_limit_hits,
        throttled_periods: ending.counters.throttled_periods,
        throttled_nanoseconds: ending.counters.throttled_nanoseconds,
        denied_calls: ending.denied_total(),
        denied: ending.denied.as_ref().map(calls),
        opened: ending.opened.as_ref().map(calls),
        mapped: None,
        digests_cached: None,
    }
}

/// Whatever text of the program's own making is among what was observed, without its secrets.
fn silent(mut observed: Observed, secrets: &Secrets) -> Observed {
    let opened = observed.opened.iter_mut().flat_map(|calls| calls.first.iter_mut());
    let mapped = observed.mapped.iter_mut().flatten().map(|file| &mut file.path);
    opened.chain(mapped).for_each(|text| *text = secrets.taken_out_of(text));
    observed
}

fn calls(calls: &xt_sandbox::Calls) -> Calls {
    Calls { counts: calls.counts.clone(), first: calls.first.clone() }
}

/// Removes every output that holds a secret, or is named by one, so that it is nowhere, not even in quarantine; says which.
fn take_out(secrets: &Secrets, outputs: &Path) -> Option<String> {
    let mut leaks = Vec::new();
    let mut unread = vec![outputs.to_path_buf()];
    while let Some(folder) = unread.pop().filter(|_| !secrets.is_empty()) {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if let Some(name) = secrets.in_bytes(entry.file_name().as_encoded_bytes()) {
                let gone = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
                leaks.push(format!("a file or folder is named by the secret {name}: {}", removed(gone)));
            } else if kind.as_ref().is_ok_and(std::fs::FileType::is_dir) {
                unread.push(path);
            } else if kind.is_ok_and(|kind| kind.is_file()) {
                let shown = path.strip_prefix(outputs).unwrap_or(&path).display();
                match secrets.in_file(&path) {
                    Ok(None) => {}
                    Ok(Some(name)) => {
                        let gone = removed(std::fs::remove_file(&path));
                        leaks.push(format!("{shown} holds the bytes of the secret {name}: {gone}"));
                    }
                    Err(error) => leaks.push(error.to_string()),
                }
            }
        }
    }
    (!leaks.is_empty()).then(|| leaks.join("; "))
}

fn removed(outcome: std::io::Result<()>) -> String {
    outcome.map_or_else(|error| error.to_string(), |()| "removed".into())
}

/// Brings the outputs out of the sandbox and says what is wrong with them: something that is no plain file, or other
/// files than the worker reports.
fn collect(watch: &Watch<'_>, ending: &Ending, outputs: &Path, limits: &Limits) -> Option<String> {
    let collected = ending.outputs.collect(outputs, limits);
    // Before anything else is said: what is refused for another reason would be kept, and named.
    if let Some(leak) = take_out(watch.secrets(), outputs) {
        return Some(leak);
    }
    let collected = match collected {
        Ok(collected) => collected,
        Err(error) => return Some(error.to_string()),
    };
    if !collected.refused.is_empty() {
        let refused: Vec<String> = collected.refused.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        return Some(refused.join("; "));
    }
    // A command does not report what it wrote: whatever is there and in order is its output.
    if watch.ledger.is_command() {
        return metrics(watch.plan, outputs);
    }
    let folder = outputs;
    let Some(End::Completed { outputs } | End::Drained { outputs, .. }) = watch.ledger.end() else { return None };
    let trace = collected.files.iter().find(|file| file.path.as_str() == LINES);
    if trace.is_some_and(|file| file.digest != watch.ledger.lines()) {
        return Some(format!("{LINES} is not what the worker reported step by step"));
    }
    let reported: BTreeSet<&str> = outputs.iter().map(String::as_str).collect();
    let found: BTreeSet<&str> = collected.files.iter().map(|file| file.path.as_str()).collect();
    if reported == found {
        return metrics(watch.plan, folder);
    }
    let list = |names: BTreeSet<&&str>| names.into_iter().copied().collect::<Vec<_>>().join(", ");
    let unreported = list(found.difference(&reported).collect());
    let absent = list(reported.difference(&found).collect());
    Some(format!("reported, but not there: [{absent}]; there, but not reported: [{unreported}]"))
}

/// What is wrong with the metrics of an evaluation, if it is one.
fn metrics(plan: &Plan, outputs: &Path) -> Option<String> {
    plan.evaluation.as_ref()?;
    // Named by its path among the outputs: where those lie on this host is nobody's concern.
    let read = read_document::<Metrics>(&outputs.join(evaluate::METRICS)).map_err(|error| match error {
        RuntimeError::Damaged { faults, .. } => format!("{}: {faults}", evaluate::METRICS),
        RuntimeError::File { verb, source, .. } => format!("cannot {verb} {}: {source}", evaluate::METRICS),
        other => other.to_string(),
    });
    let checked = read.and_then(|metrics| {
        let metrics = metrics.ok_or_else(|| format!("there is no {}", evaluate::METRICS))?;
        evaluate::check_metrics(plan, &metrics).map_err(|faults| format!("{}: {faults}", evaluate::METRICS))
    });
    checked.err()
}
