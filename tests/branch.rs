//! Branches of one state, rollbacks and adoptions, with the true worker: what they share, what they differ in, and what
//! becomes of them.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/training.rs"]
mod training;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;

use bench::Ended;
use training::{True, tool};
use xt_core::canonical::{Value, parse_all};
use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::manifest::branch::{Branch, Future, Purpose, Uncertainty};
use xt_core::manifest::bundle::Bundle;
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::replay::{Outcome, Replay};
use xt_core::manifest::run::{Run, Status};
use xt_core::manifest::snapshot::Snapshot;
use xt_core::name::Name;
use xt_store::Store;

const RATE: &str = "optimizer.learning_rate";

/// A run of 8 steps with a state after every second one.
fn place() -> Option<True> {
    True::new(&["--snapshot-every", "2"])
}

#[track_caller]
fn documents<M: Manifest>(ended: &Ended) -> Vec<M> {
    assert_eq!(ended.code, Some(0), "{} {}", ended.stdout, ended.stderr);
    let all = parse_all(ended.stdout.as_bytes()).unwrap();
    all.iter().map(|value| M::decode(value).unwrap_or_else(|faults| panic!("{faults}"))).collect()
}

#[track_caller]
fn document<M: Manifest>(ended: &Ended) -> M {
    let mut all = documents(ended);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The state of the run after `step`.
fn state(place: &True, step: u64) -> String {
    place.run().snapshots.iter().find(|taken| taken.step == step).unwrap().snapshot.to_string()
}

fn file(place: &True, name: &str, manifests: &[impl Manifest]) -> String {
    let lines: String = manifests.iter().map(|one| one.encode().canonical() + "\n").collect();
    fs::write(place.folder.path().join(name), lines).unwrap();
    name.into()
}

fn ran(place: &True, plans: &[Plan]) -> Vec<Run> {
    let name = file(place, "some-plans.jsonl", plans);
    let ended = place.tool("run", &[&name]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.runs()
}

fn trace(place: &True, run: &Run) -> Vec<u8> {
    place.store().get(run.trace.as_ref().unwrap().digest).unwrap()
}

fn lines(bytes: &[u8], count: usize) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').take(count).collect()
}

fn weights(run: &Run) -> Digest {
    run.artifacts.iter().find(|file| file.path.as_str() == "model/model.safetensors").unwrap().digest
}

/// A worker that is another program only by one byte behind its end.
fn another_worker(folder: &Path) -> PathBuf {
    let path = folder.join("another-worker");
    fs::copy(xt_harness::programs().join("xt-train"), &path).unwrap();
    fs::File::options().append(true).open(&path).unwrap().write_all(&[0]).unwrap();
    path
}

#[track_caller]
fn refusal(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{words:?}: {}", ended.stderr);
}

/// A no-op, three learning rates and two seeds of noise from the state after step 4, told after 1 and 3 steps.
#[test]
fn a_no_op_is_the_mainline_bit_for_bit_and_every_other_branch_is_told_against_it() {
    let Some(place) = place() else { return };
    let from = state(&place, 4);
    let rates = ["0.001", "0.02", "0.05"].map(|rate| format!("{RATE}={rate}"));
    let mut arguments = vec!["branch", "--from", &from, "--horizon", "3,1"];
    for rate in &rates {
        arguments.extend(["--set", rate]);
    }
    let mut plans: Vec<Plan> = documents(&place.tool("compile", &arguments));
    let noise = ["branch", "--from", &from, "--horizon", "1,3", "--noise", "0.05", "--replicates", "2"];
    let noised: Vec<Plan> = documents(&place.tool("compile", &noise));
    assert_eq!((plans.len(), noised.len()), (4, 3));
    assert_eq!(plans[0], noised[0], "the same no-op");
    plans.extend_from_slice(&noised[1..]);
    assert!(plans.iter().all(|plan| plan.mode == Mode::Branch && plan.due() == 7));
    let future = plans[0].departure.as_ref().unwrap().future.unwrap();
    assert!(plans.iter().all(|plan| plan.departure.as_ref().unwrap().future == Some(future)), "one future for all");
    let future: Future = place.store().manifest(future).unwrap();
    assert_eq!((future.after, future.steps.len()), (4, 3));

    let runs = ran(&place, &plans);
    let mainline = trace(&place, place.run());
    let traces: Vec<Vec<u8>> = runs.iter().map(|run| trace(&place, run)).collect();
    assert_eq!(lines(&traces[0], 9), lines(&mainline, 7), "the no-op");
    for other in &traces[1..] {
        assert_eq!((lines(other, 4), lines(other, 9).len()), (lines(&mainline, 4), 7));
        assert_ne!(lines(other, 5)[4], lines(&mainline, 5)[4]);
    }
    let name = file(&place, "branches.jsonl", &runs);
    let branches: Vec<Branch> = documents(&place.tool("replay", &["branches", &name]));
    assert_eq!(branches.len(), 5);
    for branch in &branches {
        let horizons: Vec<u64> = branch.effects.iter().map(|effect| effect.horizon).collect();
        assert_eq!((horizons, branch.step), (vec![1, 3], 4));
        let last = branch.effects[1].effect.unwrap().get();
        if branch.arm == "no-op" {
            assert!(branch.effects.iter().all(|effect| effect.effect.unwrap().get() == 0.0));
            assert!(branch.replicates[0].shock.unwrap().get() == 0.0);
        } else {
            assert!(last != 0.0, "{}", branch.arm);
        }
        let spread = branch.effects[1].deviation.map(|sigma| sigma.get() > 0.0);
        let shaken = branch.arm == "noise=0.05";
        let expected = if shaken { (2, Uncertainty::Noise, Some(true)) } else { (1, Uncertainty::None, None) };
        assert_eq!((branch.replicates.len(), branch.uncertainty, spread), expected, "{}", branch.arm);
        for one in &branch.replicates {
            assert_eq!((one.status, one.steps, one.loss.len()), (Status::Succeeded, 3, 3));
            assert!(one.final_state.is_some() && one.wall_nanoseconds > Some(0) && one.unstable.is_empty());
        }
    }
    // The rate of a step counts for its update: the first loss after the state is that of the no-op.
    let rate = branches.iter().find(|branch| branch.arm == format!("{RATE}=0.02")).unwrap();
    assert_eq!(rate.effects[0].effect.unwrap().get(), 0.0);

    // Labels: one line for each replicate and horizon, and the same as a table.
    let cells = place.tool("replay", &["branches", "--cells", "--csv", "cells.csv", &name]);
    assert_eq!(parse_all(cells.stdout.as_bytes()).unwrap().len(), 6 * 2);
    let table = fs::read_to_string(place.folder.path().join("cells.csv")).unwrap();
    assert!(table.starts_with("snapshot,step,purpose,arm,regime,replicate,horizon,loss,effect,"));
    assert_eq!(table.lines().count(), 1 + 6 * 2);
    // Without its no-op a branch has no effect, and a mainline is no branch.
    let alone = file(&place, "alone.jsonl", &runs[1..2]);
    refusal(&place.tool("replay", &["branches", &alone]), 10, &["branch.no-op"]);
    refusal(&place.tool("replay", &["branches", &place.run().id().to_string()]), 10, &["branch.none"]);

    // A branch comes out again, with its noise, and is never frozen.
    for run in [&runs[1], &runs[4]] {
        let again: Replay = document(&place.tool("replay", &[&run.id().to_string()]));
        assert_eq!((again.outcome, again.from, again.equal_steps), (Outcome::Equal, 4, 3));
    }
    // Its states: where it left, its own, and none before.
    let id = runs[4].id().to_string();
    let at = |step| place.tool("snapshot", &[&id, "--step", step]);
    assert_eq!(document::<Snapshot>(&at("4")).id().to_string(), from);
    assert_eq!(document::<Snapshot>(&at("6")).step, 6);
    refusal(&at("3"), 10, &["goes on from step 4 of run"]);
    refusal(&place.tool("freeze", &[&runs[1].id().to_string()]), 15, &["a branch ends at its horizon", "adopt"]);
}

/// A branch reaches a bundle by adoption, from its last state or by doing it again from the common one; and the two ways
/// come to the same weights, which a stranger can repeat with the archive alone.
#[test]
fn a_branch_reaches_a_bundle_by_adoption_or_by_replay_and_by_nothing_else() {
    let Some(place) = place() else { return };
    let set = format!("{RATE}=0.03");
    let plans: Vec<Plan> =
        documents(&place.tool("compile", &["branch", "--from", &state(&place, 4), "--set", &set, "--horizon", "2"]));
    let branch = ran(&place, &plans[1..]).remove(0);
    let id = branch.id().to_string();
    let adopted: Plan = document(&place.tool("compile", &["adopt", &id]));
    let replayed: Plan = document(&place.tool("compile", &["adopt", "--replay", &id]));
    let from = |plan: &Plan| plan.departure.as_ref().map(|from| (from.purpose, from.step)).unwrap();
    assert_eq!((from(&adopted), from(&replayed)), ((Purpose::Adoption, 6), (Purpose::Adoption, 4)));
    assert_eq!((adopted.mode, adopted.due()), (Mode::Mainline, 8));
    let runs = ran(&place, &[adopted, replayed]);
    assert_eq!((weights(&runs[0]), &runs[0].trace), (weights(&runs[1]), &runs[1].trace));
    assert_ne!(weights(&runs[0]), weights(place.run()));
    let archive = place.folder.path().join("adopted.tar.zst");
    let name = archive.to_str().unwrap();
    let frozen = place.tool("freeze", &["-o", name, &runs[0].id().to_string()]);
    assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = |name: &str, arguments: &[&str]| {
        tool(&elsewhere.path().join("store"), name, &xt_harness::programs().join("xt-train"), arguments)
    };
    assert_eq!(stranger("freeze", &["verify", name]).code, Some(0));
    let report: Replay = document(&stranger("replay", &[name]));
    assert_eq!((report.outcome, report.from, report.equal_steps), (Outcome::Equal, 6, 2));
    refusal(&place.tool("compile", &["adopt", &place.run().id().to_string()]), 10, &["adopt.branch"]);
    refusal(&place.tool("compile", &["rollback", &id, "--to", "6"]), 10, &["becomes the mainline by adoption"]);

    // A branch whose horizon is the end of its plan has a model, and is no mainline for that.
    let plans: Vec<Plan> =
        documents(&place.tool("compile", &["branch", "--from", &state(&place, 4), "--set", &set, "--horizon", "4"]));
    let whole = ran(&place, &plans[1..]).remove(0);
    let id = whole.id().to_string();
    assert_eq!(weights(&whole), weights(&runs[0]));
    refusal(&place.tool("freeze", &[&id]), 15, &["bundle.branch"]);
    let replayed = place.tool("replay", &[&id]);
    assert!(replayed.stderr.contains("which was not replayed"), "{}", replayed.stderr);
    let again: Replay = document(&replayed);
    assert_eq!((again.outcome, again.outputs.len()), (Outcome::Equal, whole.artifacts.len()));
    refusal(&place.tool("compile", &["adopt", &id]), 10, &["--replay does it again"]);
    let adopted: Plan = document(&place.tool("compile", &["adopt", "--replay", &id]));
    assert_eq!((adopted.mode, from(&adopted)), (Mode::Mainline, (Purpose::Adoption, 4)));
}

/// A rollback of a run to a state of its own gives the same weights and another history; with a value set otherwise it
/// gives others.
#[test]
fn a_rollback_goes_on_from_the_earlier_state_and_its_history_is_another_one() {
    let Some(place) = place() else { return };
    let id = place.run().id().to_string();
    let same: Plan = document(&place.tool("compile", &["rollback", &id, "--to", "4"]));
    let set = format!("{RATE}=0.001");
    let other: Plan = document(&place.tool("compile", &["rollback", &id, "--to", "4", "--set", &set]));
    let departure = same.departure.as_ref().unwrap();
    assert_eq!((departure.purpose, departure.run, departure.step), (Purpose::Rollback, place.run().id(), 4));
    let runs = ran(&place, &[same, other]);
    assert_eq!((weights(&runs[0]), &runs[0].trace), (weights(place.run()), &place.run().trace));
    assert_ne!(weights(&runs[1]), weights(place.run()));
    // The same artifacts, another lineage: request, plan, record and bundle all differ.
    let bundles: Vec<Bundle> =
        [&id, &runs[0].id().to_string()].map(|id| document(&place.tool("freeze", &[id]))).into_iter().collect();
    assert_ne!((runs[0].request, runs[0].plan), (place.run().request, place.run().plan));
    assert_ne!(bundles[0].id(), bundles[1].id());
    assert_eq!(bundles[0].fingerprint, bundles[1].fingerprint);
    assert_eq!(runs[0].start.as_ref().unwrap().run, place.run().id());
    let why = place.tool("log", &["why", runs[0].attempt.as_str()]).stdout;
    assert!(
        why.contains("It is a rollback from the state after step 4 of run") && why.contains("(4 of them taken before)")
    );
    assert!(
        !place.tool("log", &["why", place.run().attempt.as_str()]).stdout.contains("It is a"),
        "the run itself is none"
    );
    let named = |name: &str| place.tool("log", &["lineage", name]).stdout;
    assert_eq!(named(runs[0].attempt.as_str()), named(&runs[0].id().to_string()));
    assert_ne!(named(runs[0].attempt.as_str()), named(place.run().attempt.as_str()));
    let lineage = place.tool("log", &["lineage", &bundles[1].id().to_string()]);
    assert!(lineage.code == Some(0) && lineage.stdout.contains(&id), "{} {}", lineage.stdout, lineage.stderr);
    refusal(&place.tool("compile", &["rollback", &id, "--to", "3"]), 10, &["there are: 2, 4, 6", "--step 3"]);
}

/// A record that somebody wrote and put into the store, which the attempt did not end in.
#[test]
fn a_run_record_that_the_attempt_did_not_end_in_is_not_frozen() {
    let Some(place) = place() else { return };
    let true_one = place.run().clone();
    assert_eq!(place.tool("freeze", &[&true_one.id().to_string()]).code, Some(0));
    let mut forged = [true_one.clone(), true_one.clone(), true_one];
    forged[0].finished = forged[0].started;
    forged[1].cause.push('!');
    forged[2].attempt = Name::new("hand-made.1").unwrap();
    for (run, why) in
        forged.into_iter().zip(["says the event record", "says the event record", "hand-made.1 is unknown here"])
    {
        let forged = Store::open(&place.store_path()).unwrap().put_manifest(&run).unwrap();
        refusal(&place.tool("freeze", &[&forged.to_string()]), 15, &["freeze.recorded", why]);
    }
}

/// The plans of the branch of the state after step 4 with this learning rate.
fn cells_at(place: &True, rate: &str) -> Vec<Plan> {
    let set = format!("{RATE}={rate}");
    documents(&place.tool("compile", &["branch", "--from", &state(place, 4), "--set", &set, "--horizon", "1"]))
}

/// A grid whose runs were interrupted goes on where it was: what has run is not run again, and every cell has its label.
#[test]
fn a_grid_that_was_interrupted_runs_only_what_is_missing_and_labels_every_cell() {
    let Some(place) = place() else { return };
    let line = |from: &str| {
        format!(
            "{{\"from\":\"{from}\",\"horizons\":[1,2],\"noise\":[0.5],\"replicates\":1,\"set\":[\"{RATE}=0.5\"]}}\n"
        )
    };
    fs::write(place.folder.path().join("grid.jsonl"), line(&state(&place, 2)) + &line(&state(&place, 4))).unwrap();
    let cells: Vec<Plan> = documents(&place.tool("compile", &["branch", "--grid", "grid.jsonl"]));
    assert_eq!(cells.len(), 2 * 3);
    let once = |plans: &[Plan]| -> Vec<Run> {
        let name = file(&place, "cells.jsonl", plans);
        documents(&place.tool("run", &["--once", &name]))
    };
    let attempts = || fs::read_dir(place.store_path().join("runs")).unwrap().count();
    let before = attempts();
    let some = once(&cells[..2]);
    let all = once(&cells);
    assert_eq!((&all[..2], all.len(), attempts() - before), (&some[..], 6, 6), "each ran once");
    assert_eq!((once(&cells), attempts() - before), (all.clone(), 6), "and nothing is left to do");
    // Several that ask for several at the same time get one run of each; without the flag each gets its own.
    let other = file(&place, "other.jsonl", &cells_at(&place, "0.7"));
    let asked = |flags: &[&str]| -> BTreeSet<String> {
        let run = || documents::<Run>(&place.tool("run", &[flags, &[&other]].concat()));
        thread::scope(|scope| {
            let all: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
            all.into_iter().flat_map(|one| one.join().unwrap()).map(|run| run.attempt.to_string()).collect()
        })
    };
    assert_eq!((asked(&["--once"]).len(), asked(&[]).len()), (2, 6));
    let before = attempts() - 6;
    // The control: without --once it runs again, and comes to the same.
    let again = ran(&place, &cells[..1]).remove(0);
    assert_eq!((attempts() - before, &again.trace), (7, &all[0].trace));
    let name = file(&place, "runs.jsonl", &all);
    let labels = place.tool("replay", &["branches", "--cells", "--csv", "cells.csv", &name]);
    let labels = parse_all(labels.stdout.as_bytes()).unwrap();
    assert_eq!(labels.len(), 6 * 2);
    assert!(labels.iter().all(|cell| cell.get("wall_nanoseconds").is_some_and(|cost| *cost != Value::Null)));
}

/// What a state cannot mean is refused with every reason; and where a candidate came from changes nothing but lineage.
#[test]
fn the_protocol_refuses_what_the_state_cannot_mean_and_does_not_look_at_where_it_came_from() {
    let Some(place) = place() else { return };
    let from = state(&place, 4);
    let branch = |more: &[&str]| place.tool("compile", &[&["branch", "--from", &from], more].concat());
    let sets = ["--set", "model.width=32;batching.samples=2", "--set", "optimizer.rate=1", "--horizon", "2"];
    let refused = branch(&sets);
    refusal(&refused, 10, &["model is part of what a state means", "batching is part", "has no rate there"]);
    // What the plan has already is told; what it has not is not.
    let idle =
        |rate: &str| branch(&["--set", &format!("{RATE}={rate}"), "--horizon", "2"]).stderr.contains("one more no-op");
    assert_eq!(["0.010", "0.02"].map(idle), [true, false]);
    let more = ["--set", "precision=float16-scaled;execution.math_mode=avx2-strict", "--horizon", "2"];
    refusal(&branch(&more), 10, &["precision is part of", "execution is part of"]);
    // One branch alone in another regime would be told against a no-op of the exact one.
    let alone = ["--evidence", "--set", "regime=field;execution.math_mode=avx2-strict", "--horizon", "2"];
    refusal(&branch(&alone), 10, &["regime is part of", "execution is part of"]);
    let maintained: Vec<Plan> = documents(&branch(&[
        "--purpose",
        "maintenance",
        "--under",
        "execution.math_mode=avx2-strict",
        "--horizon",
        "2",
    ]));
    assert_eq!(maintained.len(), 1, "maintenance is there to see what another stack does");
    refusal(&branch(&["--horizon", "5"]), 10, &["does not fit into the 8 steps"]);
    refusal(&branch(&["--horizon", "0,2"]), 10, &["depart.horizon"]);
    assert_eq!(branch(&["--set", "x", "--horizon", "2"]).code, Some(2));
    assert_eq!(branch(&["--noise", "-1", "--horizon", "2"]).code, Some(2));

    let twin = place.tool("run", &["--snapshot-every", "2", "plan.json"]).run(Status::Succeeded, 0);
    let of = |run: &Run| -> Vec<Plan> {
        documents(&branch(&["--run", &run.id().to_string(), "--set", "clipping.maximum=0.5", "--horizon", "2"]))
    };
    let (one, other) = (of(place.run()), of(&twin));
    for (one, other) in one.iter().zip(&other) {
        let mut same = other.clone();
        same.departure.as_mut().unwrap().run = place.run().id();
        same.request = one.request;
        assert_ne!(one, other);
        assert_eq!(*one, same, "they differ in lineage alone");
    }
    // A grid, with states that are stored: the same plans but for their purpose.
    let (two, four) = (state(&place, 2), from.clone());
    let line = |from: &str| {
        format!(
            "{{\"from\":\"{from}\",\"horizons\":[1,2],\"noise\":[0.5],\"replicates\":2,\"set\":[\"{RATE}=0.5\"]}}\n"
        )
    };
    fs::write(place.folder.path().join("grid.jsonl"), line(&two) + &line(&four)).unwrap();
    let cells: Vec<Plan> = documents(&place.tool("compile", &["branch", "--grid", "grid.jsonl"]));
    assert_eq!(cells.len(), 2 * (1 + 2 + 2));
    assert!(cells.iter().all(|plan| plan.mode == Mode::Acquisition));
    let edited = Plan { mode: Mode::Mainline, ..cells[0].clone() };
    let name = file(&place, "edited.json", &[edited]);
    refusal(&place.tool("run", &[&name]), 10, &["/mode"]);
    // Another future than the one that seed and dataset make, and another stack than that of the state, are refused.
    let mut edited = cells[1].clone();
    edited.departure.as_mut().unwrap().future = Some(place.run().id());
    edited.request = xt_core::fingerprint::request(&edited);
    let name = file(&place, "edited.json", &[edited]);
    refusal(&place.tool("run", &[&name]), 10, &["/departure/future"]);
    let name = file(&place, "cell.json", &cells[1..2]);
    let worker = another_worker(place.folder.path());
    refusal(&tool(&place.store_path(), "run", &worker, &[&name]), 10, &["replay.pin", "worker differs"]);
}
