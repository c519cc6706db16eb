//! What the worker refuses, each time with a message and without a model.

use std::fs;
use std::path::Path;

use xt_core::digest::Digest;
use xt_core::field::Field;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::snapshot::Cadence;
use xt_core::number::Finite;

use crate::desk::{Desk, Left, MEMBERS, plan};

fn assert_refused(left: &Left, part: &str) {
    assert_eq!(left.code, Some(1), "{}", left.stderr);
    assert!(left.failure().contains(part), "{:?} has no {part:?}", left.failure());
    assert!(!left.messages.iter().any(|message| matches!(message, Message::Step { .. })));
    assert!(!left.wrote("model/model.safetensors"));
}

#[test]
fn an_input_with_a_flipped_bit_is_refused_with_both_digests() {
    let plan = plan(&[], 1);
    let desk = Desk::new(&plan);
    let mut text = MEMBERS[1].1.as_bytes().to_vec();
    let digest = Digest::of(&text);
    text[100] ^= 1;
    fs::write(desk.input(digest), &text).unwrap();
    let left = desk.train(&plan, None);
    assert_refused(&left, &digest.to_string());
    assert!(left.failure().contains(&Digest::of(&text).to_string()));
}

#[test]
fn a_missing_input_is_refused_by_name() {
    let plan = plan(&[], 1);
    let desk = Desk::new(&plan);
    let digest = Digest::of(MEMBERS[0].1.as_bytes());
    fs::remove_file(desk.input(digest)).unwrap();
    assert_refused(&desk.train(&plan, None), &format!("the input {digest} cannot be read"));
}

/// Row N-01.
#[test]
fn n_01_other_threads_than_the_plan_demands_are_refused_before_any_step() {
    let plan = plan(&[], 1);
    let left = Desk::new(&plan).set("OMP_NUM_THREADS", "2").train(&plan, None);
    assert_refused(&left, "OMP_NUM_THREADS: found \"2\", the plan demands \"1\"");
}

/// Here no plan lists the variables, so the libraries themselves tell the difference.
#[test]
fn pins_that_the_libraries_report_otherwise_are_refused_with_every_difference() {
    let plan = plan(&[], 1);
    let wrong = plan.native().unwrap().clone();
    let job = Job::Sample {
        model: wrong.model.into(),
        base: wrong.base.into(),
        weights: Digest::of(b"none"),
        tokenizer: wrong.tokenizer,
        execution: wrong.execution,
        prompt: "x".into(),
        tokens: 1,
        temperature: Finite::new(0.0).unwrap(),
        seed: 1,
    };
    let desk = Desk::new(&plan);
    let desk = [
        ("OMP_NUM_THREADS", "2"),
        ("MKL_NUM_THREADS", "2"),
        ("ATEN_CPU_CAPABILITY", "avx2"),
        ("MKL_CBWR", "AVX2,STRICT"),
    ]
    .iter()
    .fold(desk, |desk, (name, value)| desk.set(name, value));
    let left = desk.work(job.write().canonical().as_bytes());
    for part in [
        "threads: the process started with 2, the plan demands 1",
        "cpu capability: found AVX2, the plan demands DEFAULT",
        "math mode: found 0x1000a, the plan demands 0x3",
    ] {
        assert_refused(&left, part);
    }
}

#[test]
fn a_plan_that_promises_other_work_than_its_text_gives_is_refused() {
    let mut plan = plan(&[], 1);
    plan.work.tokens += 16;
    assert_refused(&Desk::new(&plan).train(&plan, None), "the plan contradicts itself");
}

#[test]
fn outputs_of_an_earlier_run_are_not_overwritten() {
    let plan = plan(&[], 1);
    let left = Desk::new(&plan).train(&plan, Some(1));
    let trace = left.trace.clone();
    let again = left.desk().train(&plan, Some(1));
    assert_refused(&again, "the output trace/steps.jsonl cannot be written");
    assert_eq!(again.trace, trace);
}

#[test]
fn what_is_no_job_is_refused_with_every_reason() {
    let plan = plan(&[], 1);
    for (job, part) in [
        ("", "the job is no JSON"),
        ("{\"kind\":\"train\"}", "/plan: this field must be declared"),
        ("{\"kind\":\"sing\"}", "expected one of train, evaluate, sample"),
        ("{\"kind\":\"train\",\"plan\":{\"schema\":\"xt.plan/2\"},\"to_step\":null}", "xt.plan/1"),
    ] {
        assert_refused(&Desk::new(&plan).work(job.as_bytes()), part);
    }
}

/// A launcher that went away: the worker ends with an error, not by a signal, and says why on standard error.
#[test]
fn a_full_telemetry_device_ends_the_worker_without_a_panic() {
    let plan = plan(&[], 1);
    let job =
        Job::Train { plan: Box::new(plan.clone()), to_step: None, cadence: Cadence::NONE, from: None, locate: false };
    let output = Desk::new(&plan).start(job.write().canonical().as_bytes(), Path::new("/dev/full"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the telemetry descriptor cannot be written") && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn a_person_who_types_it_is_told_what_it_is_for() {
    let run = |arguments: &[&str]| {
        let worker = env!("CARGO_BIN_EXE_xt-train");
        let output = std::process::Command::new(worker).args(arguments).env_clear().output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, text) = run(&[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("XT_INPUTS is not set; the runtime starts this program"), "{text}");
    assert_eq!(run(&["--help"]).0, Some(2));
    assert_eq!(run(&["--version"]), (Some(0), format!("xt-train {}\n", env!("CARGO_PKG_VERSION"))));
}
