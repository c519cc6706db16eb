//! A true training run that is stopped for another one, and goes on as if nothing had been.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/training.rs"]
mod training;

use std::fs;

use bench::wait_for;
use training::True;
use xt_core::canonical::parse_all;
use xt_core::field::Manifest as _;
use xt_core::manifest::intent::Intent;
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::status::Status as Standing;
use xt_core::name::Name;
use xt_core::verb::settle::AttemptState;

/// Compiles the candidate for a run that needs the domain alone.
fn compiled(place: &True, seed: &str, output: &str) {
    let mut intent = Intent::default_for(1);
    intent.resources.conflict_domains = vec![Name::new("accelerator").unwrap()];
    fs::write(place.folder.path().join("intent.json"), intent.encode().canonical()).unwrap();
    let arguments = ["--seed", seed, "--intent", "intent.json", "candidate.json", "-o", output];
    let compiled = place.tool("compile", &arguments);
    assert_eq!(compiled.code, Some(0), "{}", compiled.stderr);
}

/// Where every attempt stands, the last one last.
fn standing(place: &True) -> Vec<Standing> {
    let said = place.tool("log", &["status"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    parse_all(said.stdout.as_bytes()).unwrap().iter().map(|value| Standing::decode(value).unwrap()).collect()
}

fn trace(place: &True, run: &Run) -> Vec<u8> {
    place.store().get(run.trace.as_ref().unwrap().digest).unwrap()
}

#[test]
fn a_true_training_run_that_made_room_for_another_goes_on_bit_for_bit() {
    const MANY: u64 = 300;
    let Some(place) = True::compiled(MANY) else { return };
    compiled(&place, "1", "plan.json");
    compiled(&place, "2", "other.json");
    let undisturbed = place.tool("run", &["plan.json"]).run(Status::Succeeded, 0);
    let started = place.tool("run", &["--detach", "plan.json"]);
    let attempt = started.stdout.trim().to_string();
    let telemetry = place.store_path().join("runs").join(&attempt).join("telemetry.jsonl");
    let lines = || fs::read_to_string(&telemetry).unwrap_or_default().lines().count();
    wait_for("some steps", || (lines() > 10).then_some(()));
    // Whoever followed the one that made room learns that it was drained.
    let made = place.tool("run", &["--preempt", "other.json"]);
    let other = made.run(Status::Succeeded, 0);
    assert!(made.stderr.contains(&format!("{attempt} goes on as ")), "{}", made.stderr);
    let drained = place.tool("run", &["--attach", &attempt]).run(Status::Drained, 76);
    assert!((1..MANY).contains(&drained.progress.steps), "{}", drained.progress.steps);
    let all = standing(&place);
    let states: Vec<AttemptState> = all[1..3].iter().map(|one| one.state).collect();
    assert_eq!(states, [AttemptState::Drained, AttemptState::Succeeded]);
    let going_on = all.last().unwrap().attempt.clone();
    let rest = place.tool("run", &["--attach", going_on.as_str()]).run(Status::Succeeded, 0);
    assert_eq!((&rest.trace, &rest.artifacts), (&undisturbed.trace, &undisturbed.artifacts));
    assert_eq!(rest.start.as_ref().map(|start| start.step), Some(drained.progress.steps));
    println!(
        "made room after step {} of {MANY}; one trace: {}",
        drained.progress.steps,
        rest.trace.as_ref().unwrap().digest
    );
    // The controls: the part before is a part, and another seed learns something else.
    assert!(trace(&place, &undisturbed).starts_with(&trace(&place, &drained)));
    assert_ne!(drained.trace, undisturbed.trace);
    assert_ne!(other.trace, undisturbed.trace);
    assert_eq!(other.progress.steps, MANY);
}
