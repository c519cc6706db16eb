//! What can be done to a branch beside setting a value: other data in the place of its own, an effect that is known
//! beforehand, and another stack. With the true worker.
#![allow(clippy::unwrap_used)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/training.rs"]
mod training;

use std::fs;
use std::io::Write as _;

use bench::Ended;
use training::{True, tool};
use xt_core::canonical::parse_all;
use xt_core::field::Manifest;
use xt_core::manifest::branch::Branch;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::replay::{Outcome, Replay};
use xt_core::manifest::run::Run;
use xt_core::manifest::snapshot::SnapshotDiff;
use xt_core::manifest::trace::{Step, read_steps};

const RATE: &str = "optimizer.learning_rate=0.05";
const FROZEN: &str = r#"groups=[{"pattern":"transformer.wte.*","treatment":{"kind":"frozen"}}]"#;

/// A run of 8 steps with a state after every second one, and the id of the one after the fourth.
fn place() -> Option<(True, String)> {
    let place = True::new(&["--snapshot-every", "2"])?;
    let state = place.run().snapshots.iter().find(|taken| taken.step == 4).unwrap().snapshot.to_string();
    Some((place, state))
}

#[track_caller]
fn documents<M: Manifest>(ended: &Ended, code: i32) -> Vec<M> {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    let all = parse_all(ended.stdout.as_bytes()).unwrap();
    all.iter().map(|value| M::decode(value).unwrap_or_else(|faults| panic!("{faults}"))).collect()
}

#[track_caller]
fn refusal(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{words:?}: {}", ended.stderr);
}

fn file(place: &True, name: &str, manifests: &[impl Manifest]) -> String {
    let lines: String = manifests.iter().map(|one| one.encode().canonical() + "\n").collect();
    fs::write(place.folder.path().join(name), lines).unwrap();
    name.into()
}

fn branch(place: &True, from: &str, more: &[&str]) -> Ended {
    place.tool("compile", &[&["branch", "--from", from], more].concat())
}

/// The runs of branches, and what `xt-replay branches` says of them with this exit status.
fn told(place: &True, plans: &[Plan], code: i32) -> (Vec<Run>, Vec<Branch>, String) {
    let ended = place.tool("run", &[&file(place, "plans.jsonl", plans)]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let runs = ended.runs();
    let ended = place.tool("replay", &["branches", &file(place, "runs.jsonl", &runs)]);
    (runs, documents(&ended, code), ended.stderr)
}

fn steps(place: &True, run: &Run) -> Vec<Step> {
    let plan: Plan = place.store().manifest(run.plan).unwrap();
    read_steps(plan.root(), &place.store().get(run.trace.as_ref().unwrap().digest).unwrap()).0
}

/// Other data stand in the place of a run's own, sample for sample, and what has seen both never becomes a model.
#[test]
fn a_branch_on_other_data_sees_the_same_places_of_them_and_never_becomes_a_model() {
    let Some((place, from)) = place() else { return };
    let text = fs::read_to_string(place.folder.path().join("text.txt")).unwrap();
    for (name, text) in [("other", text.to_ascii_uppercase()), ("short", text[..text.len() / 2].into())] {
        fs::write(place.folder.path().join(format!("{name}.txt")), text).unwrap();
        place.command(
            env!("CARGO_BIN_EXE_xt-compile"),
            &["dataset", &format!("{name}.txt"), "-o", &format!("{name}.json")],
        );
    }
    // The control: the same data, named again, are no other data.
    let both = ["--data", "other.json", "--data", "dataset.json", "--horizon", "1,2"];
    let plans: Vec<Plan> = documents(&branch(&place, &from, &both), 0);
    assert!(plans.len() == 3 && plans.iter().all(|plan| plan.departure.as_ref().unwrap().future.is_some()));
    let futures = plans.iter().map(|plan| plan.departure.as_ref().unwrap().future);
    assert_eq!(futures.collect::<std::collections::BTreeSet<_>>().len(), 1, "one future for all");
    let (runs, branches, _) = told(&place, &plans, 0);
    let [no_op, other, same] = [0, 1, 2].map(|one| steps(&place, &runs[one]));
    assert_eq!(same, no_op);
    for (step, matched) in other[4..].iter().zip(&no_op[4..]) {
        assert_eq!(
            (step.samples, &step.generator, &step.cursor),
            (matched.samples, &matched.generator, &matched.cursor)
        );
        assert_ne!((step.loss, step.gradients), (matched.loss, matched.gradients));
    }
    let dataset = plans[1].dataset_id().unwrap();
    assert_ne!(Some(dataset), plans[0].dataset_id());
    let told = branches.iter().find(|branch| branch.arm.contains(&dataset.to_string())).unwrap();
    assert!(told.effects.iter().all(|effect| effect.effect.is_some_and(|effect| effect.get() != 0.0)));
    let id = runs[1].id().to_string();
    let again: Vec<Replay> = documents(&place.tool("replay", &[&id]), 0);
    assert_eq!((again[0].outcome, again[0].equal_steps), (Outcome::Equal, 2));

    refusal(&branch(&place, &from, &["--data", "short.json", "--horizon", "1"]), 10, &["samples cannot stand"]);
    for adopt in [&["adopt", &id][..], &["adopt", "--replay", &id]] {
        refusal(&place.tool("compile", adopt), 10, &["depart.data"]);
    }
    let set = format!("data.dataset={dataset}");
    let run = place.run().id().to_string();
    refusal(&place.tool("compile", &["rollback", &run, "--to", "4", "--set", &set]), 10, &["depart.data"]);
}

/// The rate of a step counts for its update, so the first loss after the state is that of the no-op to the bit; and noise
/// as large as the weights can only harm. A known effect that does not come says that the instrument is wrong.
#[test]
fn a_known_effect_is_held_against_the_one_that_came() {
    let Some((place, from)) = place() else { return };
    let quality = |more: &[&str]| -> Vec<Plan> {
        documents(&branch(&place, &from, &[&["--purpose", "quality"], more].concat()), 0)
    };
    let mut plans = quality(&["--set", RATE, "--horizon", "1", "--known", "0..0"]);
    plans.extend(quality(&["--noise", "5", "--horizon", "1,2", "--known", "0.001..1000"]));
    let (_, branches, told_of) = told(&place, &plans, 0);
    assert_eq!(branches.len(), 4);
    for branch in &branches {
        assert_eq!(branch.known.as_ref().map(|known| known.holds), (branch.arm != "no-op").then_some(true));
    }
    assert_eq!(told_of.matches("as it was known").count(), 2, "{told_of}");
    // The control: the same rate has an effect after more than one step, and what was known is not what came.
    let plans = quality(&["--set", RATE, "--horizon", "1,3", "--known", "0..0"]);
    let (_, branches, told_of) = told(&place, &plans, 1);
    assert!(branches.iter().any(|branch| branch.known.as_ref().is_some_and(|known| !known.holds)));
    assert!(told_of.contains("which it cannot be"), "{told_of}");

    let asked = |more: &[&str]| branch(&place, &from, &[&["--set", RATE, "--horizon", "1"], more].concat());
    refusal(&asked(&["--purpose", "quality"]), 10, &["depart.known"]);
    refusal(&asked(&["--known", "0..0"]), 10, &["depart.known"]);
    refusal(&asked(&["--purpose", "quality", "--known", "1..0"]), 2, &["two rising numbers"]);
}

/// Steps of a run on another stack: what differs is named, both identities are kept, and nothing is written anew.
#[test]
fn steps_on_another_stack_are_recorded_as_a_re_baselining_beside_those_before() {
    let Some((place, from)) = place() else { return };
    let worker = place.folder.path().join("another-worker");
    fs::copy(xt_harness::programs().join("xt-train"), &worker).unwrap();
    fs::File::options().append(true).open(&worker).unwrap().write_all(&[0]).unwrap();
    let more = ["--purpose", "maintenance", "--set", RATE, "--horizon", "2"];
    let plans: Vec<Plan> = documents(&branch(&place, &from, &more), 0);
    let recorded = || {
        let names = place.store().references().unwrap();
        names.into_iter().filter(|one| one.name.as_str().starts_with("rebaselines/")).collect::<Vec<_>>()
    };
    // The control: on the same stack nothing moves, and nothing is recorded.
    let (_, branches, _) = told(&place, &plans, 0);
    let moved = branches[0].rebaseline.as_ref().unwrap();
    assert!(moved.before == moved.after && moved.differences.is_empty() && recorded().is_empty());

    let ended = tool(&place.store_path(), "run", &worker, &["plans.jsonl"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let ended = place.tool("replay", &["branches", &file(&place, "moved.jsonl", &ended.runs())]);
    let branches: Vec<Branch> = documents(&ended, 0);
    for branch in &branches {
        let moved = branch.rebaseline.as_ref().unwrap();
        assert_ne!(moved.before, moved.after);
        assert_eq!(moved.differences.iter().map(|pin| pin.what.as_str()).collect::<Vec<_>>(), ["worker"]);
        // The other worker computes the same; another rate does not.
        assert_eq!((moved.equal_steps, moved.steps), (if branch.arm == "no-op" { 2 } else { 0 }, 2));
    }
    let kept = recorded();
    assert_eq!(kept.len(), 2);
    assert!(kept.iter().all(|one| branches.iter().any(|branch| branch.id() == one.digest)));
    assert!(ended.stderr.contains("2 of 2 steps as before on another worker"), "{}", ended.stderr);
    // What was recorded before stays what it was.
    let again: Vec<Replay> = documents(&place.tool("replay", &[&place.run().id().to_string()]), 0);
    assert_eq!(again[0].outcome, Outcome::Equal);
}

/// Freezing is a value that is set: what is frozen stays to the bit, and nothing else does.
#[test]
fn what_a_branch_freezes_stays_as_it_was_to_the_bit_and_the_rest_learns_on() {
    let Some((place, from)) = place() else { return };
    let plans: Vec<Plan> = documents(&branch(&place, &from, &["--set", FROZEN, "--horizon", "2"]), 0);
    let (_, branches, _) = told(&place, &plans, 0);
    for branch in &branches {
        let last = branch.replicates[0].final_state.unwrap().to_string();
        let diff: Vec<SnapshotDiff> = documents(&place.tool("snapshot", &["diff", &from, &last]), 1);
        let parameters = diff[0].tensors.iter().filter(|tensor| tensor.part == "parameters");
        let kept: Vec<&str> = parameters.filter(|tensor| tensor.equal).map(|tensor| tensor.name.as_str()).collect();
        let due: &[&str] = if branch.arm == "no-op" { &[] } else { &["transformer.wte.weight"] };
        assert_eq!(kept, due, "{}", branch.arm);
    }
}
