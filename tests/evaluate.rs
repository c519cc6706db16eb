//! From frozen bundles to measurements: what is measured, what is refused before it runs, and what is never recorded. The
//! worker is a stand-in; what the real one measures is tested with it.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_core::canonical::Value;
use xt_core::field::Manifest as _;
use xt_core::manifest::evaluation::{Evaluation, Shared};
use xt_core::manifest::plan::{Mode, Plan};
use xt_core::manifest::run::{Run, Status};
use xt_harness::{Folder, Outcome, Xt, programs};
use xt_store::Store;

const TRAINED: &str = "Call me Ishmael.\nSome years ago, never mind how long precisely.\nThe third line of five.\n\
                       I thought I would sail about a little.\nAnd see the watery part of the world.\n";
const HELD_OUT: &str = "There is nothing surprising in this.\nIf they but knew it, almost all men.\n";

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"tiny",
    "model":{"kind":"gpt","layers":1,"heads":1,"width":8,"inner":16,"context":16,"vocabulary":256,
        "dropout":0.0,"layer_norm_epsilon":1e-5,"initializer_range":0.02},
    "base":{"kind":"random"},"tokenizer":{"kind":"bytes"},
    "data":{"dataset":"DATASET","split":"train","order":"shuffled","separator":null},
    "objective":{"kind":"next-token-cross-entropy","label_smoothing":0.0,"z_loss":0.0},
    "optimizer":{"kind":"sgd","learning_rate":0.01,"momentum":0.0,"nesterov":false,"weight_decay":0.0,"decay":"all"},
    "schedule":{"kind":"constant","warmup_steps":0},"groups":[],"averaging":{"kind":"none"},"clipping":{"kind":"none"},
    "batching":{"samples":2,"remainder":"drop","accumulation":1,"accumulation_remainder":"drop"},
    "length":{"kind":"steps","steps":3},"stops":{"non_finite":"hold","early":{"kind":"none"}},"precision":"float32",
    "execution":{"device":"cpu","threads":1,"cpu_capability":"default","math_mode":"compatible","onednn":false},
    "regime":"exact"}"#;

const SPEC: &str = r#"{"schema":"xt.evaluation-spec/1","name":"held-out",
    "evaluator":{"kind":"next-token","batch":2,"resamples":200,"confidence":0.95},
    "parameters":"trained","data":{"dataset":"DATASET","split":"train"},"slices":"member",
    "leakage":{"minimum_bytes":16,"shared":"refuse"},"seed":11}"#;

/// A folder with a candidate, a spec for `held_out`, and the tools, which find the stand-in.
struct World {
    folder: Folder,
}

impl World {
    fn new(held_out: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        folder.write("train/a.txt", TRAINED);
        for (path, text) in held_out {
            folder.write(format!("held/{path}"), text);
        }
        let world = Self { folder };
        let [trained, held] = ["train", "held"].map(|name| world.xt("compile").args(["dataset", name]).run().expect(0));
        world.folder.write("candidate.json", CANDIDATE.replace("DATASET", &trained.text("/id")));
        world.folder.write("spec.json", SPEC.replace("DATASET", &held.text("/id")));
        world
    }

    fn xt(&self, tool: &str) -> Xt {
        self.folder.xt(tool).env("XT_TRAIN", programs().join("xt-stand-in"))
    }

    fn sh(&self, script: &str) -> Outcome {
        self.folder.sh(script).env("XT_TRAIN", programs().join("xt-stand-in")).run()
    }

    fn store(&self) -> Store {
        Store::open(&self.folder.at(".xt")).unwrap()
    }

    /// Trains, freezes and gives the bundle as a document.
    fn bundle(&self) -> String {
        self.sh("xt-compile candidate.json | xt-run > run.json; xt-freeze run.json").expect(0).stdout
    }

    /// What compiling the spec for the bundle gives.
    fn plan(&self, bundle: &str) -> Outcome {
        self.xt("compile").args(["evaluate", "spec.json"]).input(bundle).run()
    }

    /// Changes the spec.
    fn change(&self, from: &str, to: &str) {
        let spec = fs::read_to_string(self.folder.at("spec.json")).unwrap();
        assert!(spec.contains(from), "{from} in {spec}");
        self.folder.write("spec.json", spec.replace(from, to));
    }

    /// Lets the stand-in do what `behaviour` says while it measures.
    fn intent(&self, behaviour: &str) {
        let mut intent = xt_core::manifest::intent::Intent::default_for(1);
        intent.purpose = behaviour.into();
        self.folder.write("intent.json", intent.encode().canonical());
    }

    /// References to evaluations in the store.
    fn evaluations(&self) -> usize {
        let names = self.store().references().unwrap();
        names.into_iter().filter(|reference| reference.name.as_str().starts_with("evaluations/")).count()
    }
}

fn codes(outcome: &Outcome) -> Vec<String> {
    let code = |line: &str| Some(line.rsplit_once('[')?.1.trim_end_matches(']').to_string());
    outcome.stderr.lines().filter(|line| line.contains("error[")).filter_map(code).collect()
}

fn count(value: &Value, pointer: &str) -> u64 {
    match value.pointer(pointer) {
        Some(Value::Integer(integer)) => integer.to_u64().unwrap(),
        other => panic!("{pointer}: {other:?}"),
    }
}

/// The line of the README: five seeds, trained, frozen and measured, one after the other.
#[test]
fn five_seeds_are_trained_frozen_and_measured_in_one_pipeline() {
    let world = World::new(&[("x.txt", HELD_OUT), ("y.txt", "A text of its own, by itself.\n")]);
    let script = "xt-compile --seed 1..5 candidate.json | xt-run | xt-freeze | xt-compile evaluate spec.json | xt-run";
    let measured = world.sh(script).expect(0).documents();
    let evaluations: Vec<Evaluation> = measured.iter().map(|value| Evaluation::decode(value).unwrap()).collect();
    let seeds: Vec<u64> = evaluations.iter().map(|evaluation| evaluation.subject.seed).collect();
    assert_eq!(seeds, [1, 2, 3, 4, 5]);
    let store = world.store();
    let stories = world.xt("log").args(["why", "default"]).run().expect(0).stdout;
    let told =
        stories.lines().filter(|story| story.contains("is an attempt at an evaluation of bundle sha256:")).count();
    assert_eq!((told, stories.lines().count()), (5, 10), "{stories}");
    assert!(stories.lines().last().unwrap().contains(" batches in "), "{stories}");
    for evaluation in &evaluations {
        assert_eq!((evaluation.seed, evaluation.split.as_str()), (11, "train"));
        assert_eq!(evaluation.fingerprint, evaluations[0].fingerprint, "all are measured alike");
        let run: Run = store.manifest(evaluation.run).unwrap();
        let plan: Plan = store.manifest(evaluation.plan).unwrap();
        assert_eq!((run.mode, run.status, run.trace), (Mode::Evaluation, Status::Succeeded, None));
        assert_eq!((run.progress.updates, run.progress.completed), (0, true));
        let bundle = store.manifest::<xt_core::manifest::bundle::Bundle>(evaluation.subject.bundle).unwrap();
        assert_eq!((bundle.run, bundle.plan == run.plan), (evaluation.subject.run, false));
        assert_eq!(plan.evaluation.unwrap().subject, evaluation.subject);
        assert_eq!(store.manifest::<Evaluation>(evaluation.id()).unwrap(), *evaluation);
        let slices: Vec<Option<&str>> = evaluation.metrics.iter().map(|m| m.slice.as_deref()).collect();
        assert_eq!(
            slices,
            [
                None,
                None,
                None,
                Some("x.txt"),
                Some("x.txt"),
                Some("x.txt"),
                Some("y.txt"),
                Some("y.txt"),
                Some("y.txt")
            ]
        );
        assert_eq!(
            store.get(evaluation.samples.unwrap()).unwrap().split(|byte| *byte == b'\n').count() as u64 - 1,
            run.stack.unwrap().reported.unwrap().samples_per_epoch
        );
    }
    assert_eq!(world.evaluations(), 5);
}

#[test]
fn measuring_again_is_another_run_with_the_same_measurements_and_changes_nothing_of_the_bundle() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let bundle = world.bundle();
    let id = xt_core::canonical::parse(bundle.as_bytes()).unwrap().identity();
    let before = world.xt("freeze").args(["verify", &id.to_string()]).run().expect(0).stdout;
    let plan = world.plan(&bundle).expect(0).stdout;
    let [first, again] = [(); 2].map(|()| world.xt("run").input(plan.clone()).run().expect(0).document());
    let [first, again] = [first, again].map(|value| Evaluation::decode(&value).unwrap());
    assert_eq!((&first.metrics, first.measured, first.samples), (&again.metrics, again.measured, again.samples));
    assert_ne!((first.run, first.id()), (again.run, again.id()), "each evaluation is a cycle of its own");
    assert_eq!(world.xt("freeze").args(["verify", &id.to_string()]).run().expect(0).stdout, before);
    let named = |id: &str| {
        let plan = plan.clone();
        world.xt("run").args(["--operation-id", id]).input(plan).run().expect(0).stdout
    };
    assert_eq!(named("weekly"), named("weekly"), "under one operation it is measured once");
}

#[test]
fn an_archive_is_measured_in_a_store_that_never_saw_its_run() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    world.sh("xt-compile candidate.json | xt-run | xt-freeze -o model.tar.zst").expect(0);
    let plan = world.sh("xt-compile evaluate spec.json model.tar.zst").expect(0).stdout;
    let elsewhere = "XT_STORE=other xt-compile dataset held > held.json; XT_STORE=other xt-compile evaluate spec.json model.tar.zst";
    assert_eq!(world.sh(elsewhere).expect(0).stdout, plan);
}

/// Row D-03: the third line of five.
#[test]
fn a_held_out_line_that_was_trained_on_is_refused_unless_the_spec_discloses_it() {
    let world = World::new(&[("x.txt", "The third line of five.\r\nThere is nothing surprising in this.\n")]);
    let bundle = world.bundle();
    let refused = world.plan(&bundle).expect(10);
    assert_eq!((codes(&refused), refused.stdout.as_str()), (vec!["evaluation.leakage".to_string()], ""));
    assert!(refused.stderr.contains("0 of 1 file and 1 of 2 examples are in the training data"), "{}", refused.stderr);
    world.change("refuse", "disclose");
    let plan = world.plan(&bundle).expect(0).stdout;
    let result = world.xt("run").input(plan).run().expect(0).document();
    let evaluation = Evaluation::decode(&result).unwrap();
    assert_eq!(evaluation.overlap.shared, Shared::Disclose);
    assert_eq!((count(&result, "/overlap/examples"), count(&result, "/overlap/shared_examples")), (2, 1));
    // A longer least length leaves nothing that could be shared.
    world.change("disclose", "refuse");
    world.change("\"minimum_bytes\":16", "\"minimum_bytes\":24");
    let clean = world.plan(&bundle).expect(0).document();
    assert_eq!(count(&clean, "/evaluation/overlap/shared_examples"), 0);
}

#[test]
fn a_held_out_file_that_was_trained_on_is_refused_however_short_its_lines() {
    let world = World::new(&[("copy.txt", TRAINED), ("x.txt", HELD_OUT)]);
    world.change("\"minimum_bytes\":16", "\"minimum_bytes\":1000");
    let refused = world.plan(&world.bundle()).expect(10);
    assert!(refused.stderr.contains("1 of 2 files and 0 of 0 examples"), "{}", refused.stderr);
}

/// Row D-09: nothing is measured on nothing.
#[test]
fn a_file_with_nothing_to_predict_and_an_empty_split_are_refused() {
    let world = World::new(&[("x.txt", HELD_OUT), ("y.txt", "1")]);
    let bundle = world.bundle();
    let refused = world.plan(&bundle).expect(10);
    assert_eq!(codes(&refused), ["evaluation.empty"]);
    assert!(refused.stderr.contains("/evaluation/parts/1: y.txt has 1 tokens"), "{}", refused.stderr);
    world.change("\"split\":\"train\"", "\"split\":\"dev\"");
    assert_eq!(codes(&world.plan(&bundle).expect(10)), ["data.split"]);
}

#[test]
fn every_reason_against_a_spec_comes_at_once() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let bundle = world.bundle();
    world.change("\"batch\":2", "\"batch\":0");
    world.change("\"confidence\":0.95", "\"confidence\":1");
    world.change("\"slices\":\"member\"", "\"slices\":\"line\"");
    world.change("\"seed\":11", "\"seed\":-1,\"hurry\":true");
    let refused = world.plan(&bundle).expect(10);
    assert_eq!(codes(&refused), ["field.unknown", "field.range", "field.range", "field.choice", "field.type"]);
    world.folder.write("spec.json", "{}");
    world.plan(&bundle).expect(10);
}

/// Row L66: what was not frozen is not measured.
#[test]
fn a_run_is_no_bundle_and_a_bundle_that_the_store_does_not_hold_is_none() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let bundle = world.bundle();
    let run = fs::read_to_string(world.folder.at("run.json")).unwrap();
    assert_eq!(codes(&world.plan(&run).expect(10)), ["schema.unknown"]);
    let forged = bundle.replace("\"size\":\"sealed\"", "\"size\":\"thin\"");
    let forged = xt_core::canonical::parse(forged.as_bytes()).unwrap();
    let Value::Object(mut members) = forged else { unreachable!() };
    members.remove("id");
    world.plan(&Value::Object(members).canonical()).expect(11);
    world.plan("").expect(10);
    world.plan(&bundle).expect(0);
}

#[test]
fn a_run_that_measured_is_not_frozen_replayed_or_sampled() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let plan = world.plan(&world.bundle()).expect(0).stdout;
    let evaluation = Evaluation::decode(&world.xt("run").input(plan).run().expect(0).document()).unwrap();
    let run = evaluation.run.to_string();
    let frozen = world.xt("freeze").arg(&run).run().expect(15);
    assert!(frozen.stderr.contains("measured a model and trained none"), "{}", frozen.stderr);
    world.xt("replay").arg(&run).run().expect(10);
    world.xt("run").args(["sample", &run]).run().expect(10);
    world.xt("triage").args(["--run", &run]).run().expect(10);
}

/// Row X55: a result exists only when completion was reported and the exit was clean, and it holds what was promised.
#[test]
fn what_did_not_end_well_or_is_no_metric_is_never_recorded() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let bundle = world.bundle();
    let behaviours = [
        ("exit-after-report 1", "exited with code 1"),
        ("exit-early 1", "without a report of completion"),
        ("crash 1", "ended by signal 6"),
        ("no-metrics", "there is no metric"),
        ("other-evaluator", "evaluation.evaluator"),
        ("other-slice", "the plan has no slice \"nowhere\""),
        ("twice-measured", "stands here a second time"),
        ("infinite-metric", "sample_count"),
        ("unreported-output", "there, but not reported: [extra]"),
    ];
    for (behaviour, why) in behaviours {
        world.intent(behaviour);
        let compile = world.xt("compile").args(["evaluate", "--intent", "intent.json", "spec.json"]);
        let plan = compile.input(bundle.clone()).run().expect(0).stdout;
        let failed = world.xt("run").input(plan).run().expect(14);
        let run = Run::decode(&failed.document()).unwrap();
        assert_eq!(run.status, Status::Failed, "{behaviour}");
        assert!(run.cause.contains(why), "{behaviour}: {}", run.cause);
        assert!(run.artifacts.is_empty(), "{behaviour}");
    }
    assert_eq!(world.evaluations(), 0);
    world.intent("properly");
    let plan = world.xt("compile").args(["evaluate", "--intent", "intent.json", "spec.json"]).input(bundle).run();
    world.xt("run").input(plan.expect(0).stdout).run().expect(0);
    assert_eq!(world.evaluations(), 1);
}

/// Every bundle of a stream is looked at before anything is written.
#[test]
fn one_bad_bundle_of_a_stream_refuses_all_and_says_which() {
    let world = World::new(&[("x.txt", HELD_OUT)]);
    let bundles = world.sh("xt-compile --seed 1..2 candidate.json | xt-run | xt-freeze").expect(0).stdout;
    let second = bundles.lines().nth(1).unwrap();
    let stream = format!("{bundles}{}", second.replace("xt.bundle/1", "xt.bundle/2"));
    let refused = world.plan(&stream).expect(10);
    assert!(refused.stdout.is_empty() && refused.stderr.contains("document 3"), "{}", refused.stderr);
    world.change("\"split\":\"train\"", "\"split\":\"dev\"");
    let refused = world.plan(&bundles).expect(10);
    assert!(refused.stderr.contains("bundle:0#/data/split") && refused.stderr.contains("bundle:1#/data/split"));
    world.change("\"split\":\"dev\"", "\"split\":\"train\"");
    assert_eq!(world.plan(&bundles).expect(0).documents().len(), 2);
}

/// A program of the host measures a model of the trainer: it finds weights and configuration, and what it was trained on
/// stays out of what it is measured on.
#[test]
fn a_program_measures_a_model_of_the_trainer_and_leakage_is_looked_for_as_ever() {
    let world = World::new(&[("b.txt", HELD_OUT)]);
    let script = r#"
        for file in config.json model.safetensors; do test -r "$XT_MODEL/model/$file"; done
        /usr/bin/mkdir evaluation
        printf '{"schema":"xt.metrics/1","evaluator":{"name":"there","version":"1","determinism":"deterministic"},
            "metrics":[{"name":"files","slice":null,"value":2.0,"sample_count":2,"standard_error":null,"interval":null}]}' \
            > evaluation/metrics.json"#;
    let script = world.store().put(script.as_bytes()).unwrap();
    let evaluator = format!(
        r#"{{"kind":"command","name":"there","version":"1","determinism":"deterministic","metrics":["files"],"samples":2,
        "confidence":null,"settings":{{}},"program":{{"kind":"command","executable":"/bin/sh",
        "arguments":["-eu","${{XT_FILES}}/measure.sh"],"environment":{{}},
        "roots":[{{"path":"/usr/bin/mkdir","execute":true}}],"files":{{"measure.sh":"{script}"}},"threads":1}}}}"#
    );
    world.change(r#"{"kind":"next-token","batch":2,"resamples":200,"confidence":0.95}"#, &evaluator);
    world.change(r#""slices":"member""#, r#""slices":"none""#);
    let bundle = world.bundle();
    let plan = world.plan(&bundle).expect(0).stdout;
    let evaluation = world.xt("run").input(plan).run().expect(0).document();
    let evaluation = Evaluation::decode(&evaluation).unwrap();
    assert_eq!((evaluation.metrics.len(), evaluation.subject.name.as_str()), (1, "tiny"));
    // The control: the text that was trained on, under another name.
    world.folder.write("leak/c.txt", format!("{TRAINED}And a line more.\n"));
    let leak = world.xt("compile").args(["dataset", "leak"]).run().expect(0).text("/id");
    let held = evaluation.dataset.to_string();
    world.change(&held, &leak);
    let refused = world.plan(&bundle).expect(10);
    assert!(refused.stderr.contains("evaluation.leakage"), "{}", refused.stderr);
}
