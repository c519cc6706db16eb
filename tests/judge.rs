//! `xt-decide` between scores, evaluations and the record: what is asked, what is recorded, and what is refused. The worker
//! is a stand-in that makes up its measurements.
#![allow(clippy::unwrap_used)]

use std::fs;

use xt_core::canonical::{Value, parse};
use xt_core::field::Manifest as _;
use xt_core::manifest::decision::{Context, Decision, Outcome};
use xt_core::manifest::event::Level;
use xt_core::verb::settle::{ExperimentState, NodeState};
use xt_harness::{Folder, Outcome as Ended, Xt, programs};
use xt_record::Record;
use xt_store::Store;

// ---- comparing ----

/// The scores of `examples/judgement`, with the values of the candidate moved by `shift`, and only so many seeds.
fn scores(shift: f64, seeds: usize) -> String {
    let mut document = parse(include_bytes!("../examples/judgement/scores.json")).unwrap();
    let Value::Object(members) = &mut document else { panic!() };
    let Some(Value::List(replicates)) = members.get_mut("replicates") else { panic!() };
    replicates.truncate(2 * seeds);
    for replicate in replicates {
        let Value::Object(fields) = replicate else { panic!() };
        if fields["candidate"].as_str() == Some("wider")
            && let Value::Float(value) = fields["value"]
        {
            fields.insert("value".into(), parse(format!("{:?}", value.get() + shift).as_bytes()).unwrap());
        }
    }
    document.canonical()
}

fn asked(question: &str, document: &str) -> (i32, Vec<Option<String>>) {
    let outcome = Folder::new().xt("decide").args(["compare", "--quiet", "--ask", question]).input(document).run();
    assert_eq!(outcome.stderr, "");
    let outcomes = outcome.stdout.lines().map(|line| {
        let document = parse(line.as_bytes()).unwrap();
        document.pointer("/pairs/0/outcome").and_then(Value::as_str).map(String::from)
    });
    (outcome.code.unwrap(), outcomes.collect())
}

#[test]
fn what_is_asked_decides_between_yes_and_no_and_nothing_turns_undecided_into_either() {
    // The example's difference is about -0.046 in a loss, its margin 0.02.
    let (better, alike, worse, few) = (scores(0.0, 8), scores(0.046, 8), scores(0.1, 8), scores(0.0, 2));
    let codes = |question: &str| [&better, &alike, &worse, &few].map(|document| asked(question, document).0);
    assert_eq!(codes("better"), [0, 1, 1, 3]);
    assert_eq!(codes("equivalent"), [1, 0, 1, 3]);
    assert_eq!(codes("not-worse"), [0, 0, 1, 3]);
    let word = |text: &str| Some(text.to_string());
    let stream = [better.as_str(), &alike, &worse].concat();
    assert_eq!(asked("not-worse", &stream), (1, vec![word("BETTER"), word("EQUIVALENT"), word("WORSE")]));
    assert_eq!(
        asked("better", &[better.as_str(), &few, &worse].concat()),
        (3, vec![word("BETTER"), None, word("WORSE")])
    );
}

#[test]
fn a_wrong_question_a_wrong_place_and_a_wrong_document_are_told_apart() {
    let run = |arguments: &[&str]| Folder::new().xt("decide").args(arguments).input(scores(0.0, 8)).run();
    assert_eq!(run(&["compare", "--ask", "good"]).code, Some(2));
    assert_eq!(run(&["-o", "x.json", "compare"]).code, Some(2));
    let refused = run(&["-"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(10), ""));
    assert!(refused.stderr.contains("xt.decision-context/1"), "{}", refused.stderr);
    assert_eq!(run(&["--quiet", "compare"]).code, Some(0));
}

// ---- the record ----

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
    "parameters":"trained","data":{"dataset":"DATASET","split":"train"},"slices":"none",
    "leakage":{"minimum_bytes":16,"shared":"refuse"},"seed":11}"#;

const TRAINED: &str = "Call me Ishmael.\nSome years ago, never mind how long precisely.\nThe third line of five.\n";
const HELD_OUT: &str = "There is nothing surprising in this.\nIf they but knew it, almost all men.\n";

/// A folder in which seeds of a candidate were trained, frozen and measured under the experiment `width`.
struct World {
    folder: Folder,
}

impl World {
    /// The objective asks for a loss of at most `target`, and an accuracy above 0.
    fn new(target: f64, seeds: &str) -> Self {
        let world = Self::laid_out(target);
        world.measure(seeds);
        world
    }

    /// The same before anything ran.
    fn laid_out(target: f64) -> Self {
        let folder = Folder::new();
        folder.write("train/a.txt", TRAINED);
        folder.write("held/x.txt", HELD_OUT);
        let world = Self { folder };
        let [trained, held] = ["train", "held"].map(|name| world.xt("compile").args(["dataset", name]).run().expect(0));
        world.folder.write("candidate.json", CANDIDATE.replace("DATASET", &trained.text("/id")));
        world.folder.write("spec.json", SPEC.replace("DATASET", &held.text("/id")));
        let objective = format!(
            r#"{{"primary":{{"name":"loss","direction":"minimize"}},"target":{target:?},
                "constraints":[{{"name":"accuracy","operator":">=","value":0.0}}]}}"#
        );
        world.folder.write("objective.json", objective);
        world.sh("xt-log experiment new objective.json --name width").expect(0);
        world
    }

    fn measure(&self, seeds: &str) {
        let run = "xt-run --quiet --experiment width";
        let line = format!(
            "xt-compile --seed {seeds} candidate.json | {run} | xt-freeze > bundles.jsonl; \
             xt-compile evaluate spec.json < bundles.jsonl | {run} > measured.jsonl"
        );
        self.sh(&line).expect(0);
    }

    fn xt(&self, tool: &str) -> Xt {
        self.folder.xt(tool).env("XT_TRAIN", programs().join("xt-stand-in"))
    }

    fn sh(&self, script: &str) -> Ended {
        self.folder.sh(script).env("XT_TRAIN", programs().join("xt-stand-in")).run()
    }

    fn context(&self, flags: &[&str]) -> Ended {
        self.xt("decide").args(["context", "width"]).args(flags).run()
    }

    fn record(&self) -> Record {
        Record::open(&Store::open(&self.folder.at(".xt")).unwrap().record_path()).unwrap()
    }

    fn decide(&self, flags: &[&str], input: &str) -> Ended {
        self.xt("decide").arg("--record").args(flags).input(input).run()
    }

    fn states(&self) -> (NodeState, ExperimentState) {
        let overview = self.record().status().unwrap();
        let experiment = overview.experiments.iter().find(|experiment| experiment.id.as_str() == "width").unwrap();
        let node = overview.nodes.iter().find(|node| node.experiment == experiment.id).unwrap();
        (node.state, experiment.state)
    }

    fn decided(&self) -> usize {
        let events = self.record().events(0).unwrap();
        events.iter().filter(|event| event.level == Level::Node && event.kind.as_str() == "node.decided").count()
    }
}

/// The line of the design, with the names that a record needs.
const WHOLE_LINE: &str = "xt-compile --experiment width --seed 1..5 candidate.json | xt-run --quiet | xt-freeze | \
                          xt-compile evaluate --experiment width spec.json | xt-run --quiet | \
                          xt-decide --record --every-seed objective.json";

#[test]
fn the_whole_line_run_twice_ends_in_one_decision() {
    for (target, code, state) in [(9.0, 0, ExperimentState::Succeeded), (0.001, 1, ExperimentState::Failed)] {
        let world = World::laid_out(target);
        let first = world.sh(WHOLE_LINE).expect(code);
        assert_eq!((world.decided(), world.states().1), (1, state));
        let decision = Decision::decode(&first.document()).unwrap();
        assert_eq!(decision.measurements.len(), 2, "{:?}", decision.measurements);
        let before = world.record().events(0).unwrap();
        // With nothing deleted: what succeeded is what it was, so that the same is decided on, and nothing new happens.
        let again = world.sh(WHOLE_LINE).expect(code);
        assert_eq!(again.stdout, first.stdout);
        assert!(again.stderr.contains("recorded before as event"), "{}", again.stderr);
        assert_eq!(world.record().events(0).unwrap(), before);
        // The control: a seed that was not trained before the end is new work, which is refused.
        let more = world.sh("xt-compile --experiment width --seed 6 candidate.json | xt-run --quiet");
        assert!(more.stderr.contains("record.closed"), "{}", more.stderr);
    }
}

#[test]
fn evaluations_are_decided_on_only_by_the_objective_of_their_experiment_and_in_their_last_cycle() {
    let world = World::new(9.0, "1");
    let decide = |flags: &[&str]| {
        let measured = fs::read_to_string(world.folder.at("measured.jsonl")).unwrap();
        world.xt("decide").args(flags).input(measured).run()
    };
    let stated = fs::read_to_string(world.folder.at("objective.json")).unwrap();
    world.folder.write("other.json", stated.replace("9.0", "8.0"));
    for (flags, code, word) in [
        (&["other.json"][..], 10, "decision.objective"),
        (&["objective.json", "other.json"], 10, "decision.objective"),
        (&["--every-seed"], 2, "--every-seed"),
        (&["--every-seed", "context", "width"], 2, "before its subcommand"),
        (&["objective.json", "candidate.json"], 10, "xt.evaluation/1"),
    ] {
        let refused = decide(flags);
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(code), ""), "{flags:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(word), "{flags:?}: {}", refused.stderr);
    }
    let empty = world.xt("decide").arg("objective.json").input("").run();
    assert!(empty.code == Some(10) && empty.stderr.contains("input.empty"), "{}", empty.stderr);
    // What the context of the record gives is what the evaluations give.
    let context = world.context(&[]).expect(0).stdout;
    let from_context = world.xt("decide").input(context).run().expect(0).stdout;
    assert_eq!(decide(&["objective.json"]).expect(0).stdout, from_context);
    // An altered one is refused, also without the id that would contradict it.
    let altered = moved(&fs::read_to_string(world.folder.at("measured.jsonl")).unwrap(), "tiny", 1.0);
    let forged = world.xt("decide").arg("objective.json").input(altered).run();
    assert!(forged.code == Some(10) && forged.stderr.contains("decision.forged"), "{}", forged.stderr);
    let elsewhere = Folder::new();
    elsewhere.write("objective.json", &stated);
    elsewhere.sh("xt-log experiment new objective.json").run().expect(0);
    let measured = fs::read_to_string(world.folder.at("measured.jsonl")).unwrap();
    let foreign = elsewhere.xt("decide").arg("objective.json").input(measured).run();
    assert!(foreign.code == Some(10) && foreign.stderr.contains("record.unknown"), "{}", foreign.stderr);
    world.sh("xt-compile evaluate --experiment width spec.json < bundles.jsonl | xt-run").expect(0);
    let late = decide(&["objective.json"]);
    assert!(late.code == Some(10) && late.stderr.contains("decision.other-cycle"), "{}", late.stderr);
}

/// The line of the design in two parts, as people with a context do it.
#[test]
fn five_seeds_end_in_a_recorded_decision_and_again_in_the_same_one() {
    let world = World::new(9.0, "1..5");
    let context = world.context(&["--every-seed"]).expect(0).stdout;
    let read = Context::decode(&parse(context.as_bytes()).unwrap()).unwrap();
    assert_eq!((read.results.len(), read.evaluation_cycle), (5, 1));
    // The loss that stands is the largest of the five, as the evaluations themselves say.
    let measured = fs::read_to_string(world.folder.at("measured.jsonl")).unwrap();
    let loss = |line: &str| {
        let evaluation = parse(line.as_bytes()).unwrap();
        let evaluation = xt_core::manifest::evaluation::Evaluation::decode(&evaluation).unwrap();
        evaluation.metrics.iter().find(|metric| metric.name == "loss").unwrap().value.get()
    };
    let losses: Vec<f64> = measured.lines().map(loss).collect();
    let worst = losses.iter().copied().fold(f64::MIN, f64::max);
    assert!(losses.iter().any(|loss| *loss < worst), "the control: seeds differ, {losses:?}");
    let stands: Vec<f64> = read
        .results
        .iter()
        .flat_map(|result| &result.metrics)
        .filter(|metric| metric.name == "loss")
        .map(|metric| metric.value.unwrap().get())
        .collect();
    assert_eq!(stands, [worst]);
    let first = world.decide(&[], &context).expect(0);
    assert_eq!(world.states(), (NodeState::Completed, ExperimentState::Succeeded));
    assert!(first.stderr.contains("recorded as event"), "{}", first.stderr);
    let again = world.decide(&[], &world.context(&["--every-seed"]).expect(0).stdout).expect(0);
    assert_eq!((&again.stdout, world.decided()), (&first.stdout, 1));
    assert!(again.stderr.contains("recorded before as event"), "{}", again.stderr);
    // The decision is in the store, and the log proves the tables.
    let decision = Decision::decode(&first.document()).unwrap();
    assert_eq!(decision.outcome, Some(Outcome::StopSucceeded));
    let store = Store::open(&world.folder.at(".xt")).unwrap();
    assert_eq!(store.manifest::<Decision>(decision.id()).unwrap(), decision);
    world.sh("xt-log rebuild --check").expect(0);
    // Whoever asks for it again is told that it is over; one that is new is nothing to remark on.
    let ended = world.sh("xt-log experiment new objective.json --name width").expect(0);
    assert!(ended.stderr.contains("width was there before and is succeeded"), "{}", ended.stderr);
    let new = world.sh("xt-log experiment new objective.json --name other").expect(0);
    assert!(new.stderr.is_empty(), "{}", new.stderr);
}

#[test]
fn several_seeds_are_undecided_unless_it_is_said_what_stands_for_them() {
    let world = World::new(9.0, "1..2");
    let context = world.context(&[]).expect(0).stdout;
    let open = world.decide(&[], &context).expect(3);
    assert!(open.stderr.contains("is reported 2 times"), "{}", open.stderr);
    assert!(open.stderr.contains("hint: ") && open.stderr.contains("--every-seed"), "{}", open.stderr);
    assert_eq!((world.states().0, world.decided()), (NodeState::Deciding, 0));
    let before = world.record().events(0).unwrap().len();
    world.decide(&[], &context).expect(3);
    assert_eq!(world.record().events(0).unwrap().len(), before, "put off once");
    world.decide(&[], &world.context(&["--every-seed"]).expect(0).stdout).expect(0);
    assert_eq!(world.decided(), 1);
}

#[test]
fn a_cycle_decided_by_one_engine_is_a_conflict_for_the_other() {
    let world = World::new(0.001, "1");
    let context = world.context(&[]).expect(0).stdout;
    world.decide(&["--engine", "adaptive-threshold"], &context).expect(1);
    assert_eq!(world.states(), (NodeState::Rejected, ExperimentState::Active));
    let conflict = world.decide(&[], &context).expect(12);
    assert!(conflict.stdout.is_empty() && conflict.stderr.contains("decision.decided"), "{}", conflict.stderr);
    assert_eq!((world.states(), world.decided()), ((NodeState::Rejected, ExperimentState::Active), 1));
}

#[test]
fn what_the_record_does_not_hold_is_never_recorded() {
    let world = World::new(9.0, "1");
    let context = world.context(&[]).expect(0).stdout;
    let read = Context::decode(&parse(context.as_bytes()).unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut Context), word: &str| {
        let mut other = read.clone();
        change(&mut other);
        let outcome = world.decide(&[], &other.encode().canonical());
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(10), ""), "{word}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    };
    let better = xt_core::number::Finite::new(0.01).unwrap();
    refused(&|c| c.results[0].metrics[0].value = Some(better), "decision.forged");
    refused(&|c| c.objective.target = Some(better), "decision.forged");
    refused(&|c| c.objective.constraints.clear(), "decision.forged");
    refused(&|c| c.evaluation_cycle = 2, "decision.forged");
    refused(&|c| c.experiment_id = xt_core::name::Name::new("other").unwrap(), "record.unknown");
    let double = |c: &mut Context| c.results.push(c.results[0].clone());
    refused(&double, "decision.duplicate");
    // A decision made elsewhere stands in its place, if it is one on these results.
    let made = world.xt("decide").input(context.clone()).run().expect(0).stdout;
    let mut decision = Decision::decode(&parse(made.as_bytes()).unwrap()).unwrap();
    decision.input_fingerprint = xt_core::digest::Digest::of(b"forged");
    decision.evidence[0].of.evaluation_result_id = xt_core::name::Name::new("elsewhere").unwrap();
    let forged = world.decide(&[], &decision.encode().canonical()).expect(10);
    for word in ["decision.forged", "decision.outside"] {
        assert!(forged.stderr.contains(word), "{}", forged.stderr);
    }
    assert_eq!(world.decided(), 0);
    world.decide(&[], &made).expect(0);
    assert_eq!(world.decided(), 1);
    // Without --record such a document is no context.
    world.xt("decide").input(made).run().expect(10);
}

#[test]
fn measuring_again_begins_a_cycle_that_earlier_results_never_satisfy() {
    let world = World::new(9.0, "1");
    let first = world.context(&[]).expect(0).stdout;
    world.sh("xt-compile evaluate --experiment width spec.json < bundles.jsonl | xt-run").expect(0);
    let second = world.context(&[]).expect(0).stdout;
    let cycle = |text: &str| Context::decode(&parse(text.as_bytes()).unwrap()).unwrap().evaluation_cycle;
    assert_eq!((cycle(&first), cycle(&second)), (1, 2));
    let refused = world.decide(&[], &first).expect(10);
    assert!(refused.stderr.contains("decision.other-cycle"), "{}", refused.stderr);
    world.decide(&[], &second).expect(0);
}

#[test]
fn eight_at_once_record_one_decision() {
    let world = World::new(9.0, "1");
    world.folder.write("context.json", world.context(&[]).expect(0).stdout);
    let script = "for i in 1 2 3 4 5 6 7 8; do xt-decide --record --quiet context.json > $i.out & done; wait; cat *.out | sort -u";
    let all = world.sh(script).expect(0);
    assert_eq!((all.stdout.lines().count(), world.decided()), (1, 1), "{}", all.stderr);
}

#[test]
fn nothing_is_assembled_from_an_experiment_without_objective_or_results() {
    let world = World::new(9.0, "1");
    for (experiment, word, code) in [("strange", "record.unknown", 10), ("not one", "usage", 2)] {
        let refused = world.xt("decide").args(["context", experiment]).run().expect(code);
        assert!(refused.stderr.contains(word), "{}", refused.stderr);
    }
    world.sh("xt-log experiment new objective.json --name empty").expect(0);
    let empty = world.xt("decide").args(["context", "empty"]).run().expect(10);
    assert!(empty.stderr.contains("decision.nothing"), "{}", empty.stderr);
    world.sh("xt-compile candidate.json | xt-run --experiment plain > /dev/null").expect(0);
    let plain = world.xt("decide").args(["context", "plain"]).run().expect(10);
    assert!(plain.stderr.contains("decision.no-objective"), "{}", plain.stderr);
}

// ---- comparing what was measured, and choosing ----

/// The lines with the losses of one candidate moved; an `id` would no longer fit, so it goes.
fn moved(lines: &str, candidate: &str, shift: f64) -> String {
    let line = |line: &str| {
        let mut evaluation =
            xt_core::manifest::evaluation::Evaluation::decode(&parse(line.as_bytes()).unwrap()).unwrap();
        if evaluation.subject.name.as_str() == candidate {
            for metric in evaluation.metrics.iter_mut().filter(|metric| metric.name == "loss") {
                metric.value = xt_core::number::Finite::new(metric.value.get() + shift).unwrap();
            }
        }
        evaluation.encode().canonical() + "\n"
    };
    lines.lines().map(line).collect()
}

impl World {
    /// Trains and measures another candidate, called `wide`, and gives the evaluations of both.
    fn second(&self, seeds: &str) -> String {
        let first = fs::read_to_string(self.folder.at("measured.jsonl")).unwrap();
        let candidate = fs::read_to_string(self.folder.at("candidate.json")).unwrap();
        self.folder.write("candidate.json", candidate.replace("\"tiny\"", "\"wide\"").replace("0.01", "0.02"));
        self.measure(seeds);
        first + &fs::read_to_string(self.folder.at("measured.jsonl")).unwrap()
    }

    fn compare(&self, flags: &[&str], input: &str) -> Ended {
        let asked = ["compare", "--metric", "loss", "--direction", "minimize", "--reference", "tiny"];
        self.xt("decide").args(asked).args(flags).input(input).run()
    }
}

#[test]
fn evaluations_are_compared_seed_by_seed_and_example_by_example() {
    let world = World::new(9.0, "1..6");
    let both = world.second("1..6");
    // The stand-in measures by the seed alone: the two do not differ at all.
    let same = world.compare(&[], &both).expect(3);
    assert!(same.stderr.contains("may be chance"), "{}", same.stderr);
    assert_eq!(same.document().pointer("/pairs/0/examples/examples"), Some(&5u64.into()), "{}", same.stdout);
    world.compare(&["--margin", "0.01", "--ask", "equivalent"], &both).expect(0);
    let better = world.compare(&[], &moved(&both, "wide", -0.25)).expect(0);
    assert_eq!(better.text("/pairs/0/outcome"), "BETTER");
    world.compare(&[], &moved(&both, "wide", 0.25)).expect(1);
    // Moved values are no averages of the samples any more, so nothing is said of other examples.
    let other = world.compare(&["--other-examples"], &moved(&both, "wide", -0.25)).expect(3);
    assert!(other.stderr.contains("the score of each example"), "{}", other.stderr);
    for (flags, word) in [(["--slice", "nowhere"], "comparison.no-metric"), (["--reference", "tall"], "usage")] {
        let refused = world.compare(&flags, &both);
        assert!(matches!(refused.code, Some(2 | 10)), "{word}: {}", refused.stderr);
    }
    let twice = world.compare(&[], &(both.clone() + &both)).expect(10);
    assert!(twice.stderr.contains("comparison.duplicate"), "{}", twice.stderr);
}

const POLICY: &str = r#"{"schema":"xt.promotion-policy/1","candidate":"best","bundle":"median","level":0.05,"power":0.8,
    "envelope":"drafts","rollout":"one team","stop":"a complaint","rollback":"the one before","retirement":"the next"}"#;

#[test]
fn the_middle_bundle_of_the_accepted_candidate_is_chosen_once() {
    let world = World::new(9.0, "1..3");
    world.folder.write("policy.json", POLICY);
    let promote = |policy: &str| world.xt("decide").args(["promote", "width", "--policy", policy, "--record"]).run();
    let early = promote("policy.json").expect(3);
    assert!(early.stderr.contains("no candidate was judged and accepted"), "{}", early.stderr);
    world.decide(&[], &world.context(&["--every-seed"]).expect(0).stdout).expect(0);
    world.folder.write("only.json", POLICY.replace("median", "only"));
    assert!(promote("only.json").expect(3).stderr.contains("several bundles"));
    assert_eq!(world.record().promotion(&xt_core::name::Name::new("width").unwrap()).unwrap(), None);
    let chosen = promote("policy.json").expect(0);
    // The bundle in the middle, by the evaluations themselves.
    let measured = fs::read_to_string(world.folder.at("measured.jsonl")).unwrap();
    let mut scored: Vec<(f64, String)> = measured
        .lines()
        .map(|line| {
            let evaluation = parse(line.as_bytes()).unwrap();
            let evaluation = xt_core::manifest::evaluation::Evaluation::decode(&evaluation).unwrap();
            let loss = evaluation.metrics.iter().find(|metric| metric.name == "loss").unwrap().value.get();
            (loss, evaluation.subject.bundle.to_string())
        })
        .collect();
    scored.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(scored[0].0 < scored[1].0 && scored[1].0 < scored[2].0, "{scored:?}");
    assert_eq!(chosen.text("/chosen/bundle"), scored[1].1);
    let again = promote("policy.json").expect(0);
    assert_eq!(again.stdout, chosen.stdout);
    assert!(again.stderr.contains("recorded before"), "{}", again.stderr);
    world.folder.write("other.json", POLICY.replace("drafts", "everything"));
    let conflict = promote("other.json").expect(12);
    assert!(conflict.stderr.contains("decision.promoted"), "{}", conflict.stderr);
    world.sh("xt-log rebuild --check").expect(0);
}

#[test]
fn of_two_accepted_candidates_that_do_not_differ_none_is_chosen() {
    let world = World::new(9.0, "1..2");
    world.second("1..2");
    world.folder.write("policy.json", POLICY);
    let contexts = world.context(&["--every-seed"]).expect(0).stdout;
    assert_eq!(contexts.lines().count(), 2);
    world.decide(&[], &contexts).expect(0);
    let undecided = world.xt("decide").args(["promote", "width", "--policy", "policy.json"]).run().expect(3);
    assert!(undecided.stderr.contains("better than each other by more than chance"), "{}", undecided.stderr);
    assert_ne!(undecided.document().pointer("/comparison"), Some(&Value::Null));
}
