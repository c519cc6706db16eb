//! A trace that was cut, reordered or edited does not pass.
#![allow(clippy::unwrap_used)]

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::{Field as _, Manifest as _};
use xt_core::manifest::candidate::{Early, Length};
use xt_core::manifest::run::StopReason;
use xt_core::manifest::trace::Step;
use xt_core::number::Finite;
use xt_core::verb::chain::{Chain, Tally};

#[path = "common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;

fn follow(lines: &[u8]) -> (Tally, Faults) {
    let plan = evidence::plan();
    let mut chain = Chain::new(plan.id(), Some(&plan));
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        chain.line(line);
    }
    chain.finish()
}

fn codes(lines: &[u8]) -> Vec<(String, &'static str)> {
    follow(lines).1.0.into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

#[test]
fn a_whole_trace_gives_its_head() {
    let lines = evidence::lines(&evidence::plan());
    let (tally, faults) = follow(&lines);
    assert_eq!(faults, Faults::new());
    assert_eq!((tally.head.steps, tally.head.lines), (evidence::plan().work.steps, Digest::of(&lines)));
    assert_eq!(tally.last.map(|step| step.chain), Some(tally.head.chain));
    let (other, _) = follow(&lines[..lines.len() / 2]);
    assert_ne!(other.head, tally.head);
}

#[test]
fn an_edited_line_breaks_the_chain_at_its_step_only() {
    let text = String::from_utf8(evidence::lines(&evidence::plan())).unwrap();
    let edited = text.replacen("\"learning_rate\":0.002", "\"learning_rate\":0.003", 1);
    assert_ne!(edited, text);
    assert_eq!(codes(edited.as_bytes()), [("trace/steps.jsonl#/2".to_string(), "trace.chain")]);
}

#[test]
fn a_step_left_out_or_told_twice_or_torn_is_named() {
    let lines = evidence::lines(&evidence::plan());
    let each: Vec<&[u8]> = lines.split_inclusive(|byte| *byte == b'\n').collect();
    let left_out = [each[0], each[2]].concat();
    let at = |line: u64, code| (format!("trace/steps.jsonl#/{line}"), code);
    assert_eq!(codes(&left_out), [at(2, "trace.order")]);
    let twice = [each[0], each[0]].concat();
    assert_eq!(codes(&twice), [at(2, "trace.order")]);
    let torn = &lines[..lines.len() - 1];
    assert_eq!(codes(torn).last(), Some(&at(each.len() as u64, "trace.torn")));
    let spaced = String::from_utf8(each[0].to_vec()).unwrap().replacen(':', ": ", 1);
    assert_eq!(codes(spaced.as_bytes()), [at(1, "trace.form")]);
    assert_eq!(codes(b"{}x\n"), [at(1, "trace.syntax")]);
}

#[test]
fn what_does_not_follow_from_the_plan_is_named_though_the_chain_is_right() {
    let plan = evidence::plan();
    let rechained = |change: fn(&mut Step)| {
        let mut before = plan.id();
        let mut all = Vec::new();
        for mut step in evidence::steps(&plan) {
            if step.step == 2 {
                change(&mut step);
            }
            let step = step.chain_to(before);
            before = step.chain;
            all.extend(format!("{}\n", step.write().canonical()).into_bytes());
        }
        codes(&all)
    };
    let expected = |field: &str, code| [(format!("trace/steps.jsonl#/2/{field}"), code)].to_vec();
    assert_eq!(rechained(|step| step.epoch += 1), expected("epoch", "trace.plan"));
    assert_eq!(rechained(|step| step.micro_batches += 1), expected("micro_batches", "trace.plan"));
    assert_eq!(rechained(|step| step.samples = step.cursor), expected("samples", "trace.plan"));
    assert_eq!(rechained(|step| step.cursor = step.samples), expected("cursor", "trace.plan"));
    assert_eq!(rechained(|step| step.generator = step.samples), expected("generator", "trace.plan"));
    assert_eq!(rechained(|step| step.loss = None), expected("loss", "trace.bits"));
    assert_eq!(rechained(|_| ()), []);
}

/// The losses are 5.875, 5.75, 5.625 and 5.5.
#[test]
fn a_step_behind_the_one_that_ends_the_run_is_named() {
    let rule = |target| Early::TrainingLoss {
        window: 1,
        target: Finite::new(target),
        patience: None,
        minimum_improvement: Finite::ZERO,
        limit: None,
    };
    let follow = |target, count: usize| {
        let plan = evidence::plan_with(rule(target));
        let steps = evidence::steps(&plan).into_iter().take(count).collect();
        let mut chain = Chain::new(plan.id(), Some(&plan));
        let lines = evidence::chained(plan.id(), steps);
        lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| drop(chain.line(line).cloned()));
        let (tally, faults) = chain.finish();
        let codes: Vec<&str> = faults.0.iter().map(|fault| fault.code).collect();
        (tally.stopped.map(|stopped| (stopped.step, stopped.reason)), codes)
    };
    assert_eq!(follow(5.75, 2), (Some((2, StopReason::Target)), vec![]));
    assert_eq!(follow(5.75, 3), (Some((2, StopReason::Target)), vec!["trace.stopped"]));
    assert_eq!(follow(5.0, 4), (None, vec![]), "a control that its losses do not reach");
}

#[test]
fn many_faults_are_cut_short() {
    let mut plan = evidence::plan();
    plan.work.steps = 40;
    let xt_core::manifest::command::Hypothesis::Native(candidate) = &mut plan.candidate else { unreachable!() };
    candidate.length = Length::Steps { steps: 40 };
    let mut steps = evidence::steps(&plan);
    for step in &mut steps {
        step.loss = None;
    }
    let lines = evidence::chained(plan.id(), steps);
    let mut chain = Chain::new(plan.id(), Some(&plan));
    lines.split_inclusive(|byte| *byte == b'\n').for_each(|line| drop(chain.line(line).cloned()));
    assert_eq!(chain.finish().1.0.len(), 21);
}
