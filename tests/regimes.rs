//! Regimes that are not exact, with the true worker: locked, measured against exact branches, trusted for what was measured
//! until a day, and asked again exactly where the answer is too close.
#![allow(clippy::unwrap_used, clippy::float_cmp)]

#[path = "support/bench.rs"]
mod bench;
#[path = "support/training.rs"]
mod training;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use bench::Ended;
use training::{True, tool};
use xt_core::canonical::parse_all;
use xt_core::field::Manifest;
use xt_core::manifest::branch::Branch;
use xt_core::manifest::calibration::{Calibration, Measure};
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::decision::{Decision, Doubt, Outcome};
use xt_core::manifest::plan::{Ground, Plan};
use xt_core::manifest::run::Run;

const RATE: &str = "optimizer.learning_rate";
const FIELD: &str = "regime=field;execution.threads=2;precision=bfloat16";
const NEW_YEAR: &str = "2030-01-01T00:00:00Z";
const JANUARY: &str = "2030-01-10T00:00:00Z";
const MARCH: &str = "2030-03-10T00:00:00Z";

#[track_caller]
fn documents<M: Manifest>(ended: &Ended) -> Vec<M> {
    assert!(!ended.stdout.is_empty(), "{}", ended.stderr);
    let all = parse_all(ended.stdout.as_bytes()).unwrap();
    all.iter().map(|value| M::decode(value).unwrap_or_else(|faults| panic!("{faults}"))).collect()
}

#[track_caller]
fn document<M: Manifest>(ended: &Ended, code: i32) -> M {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    let mut all = documents(ended);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[track_caller]
fn refusal(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{} {}", ended.stdout, ended.stderr);
    assert!(words.iter().all(|word| ended.stderr.contains(word)), "{words:?}: {}", ended.stderr);
}

/// A run of 8 steps with a state after every second one.
struct Place(True);

impl Place {
    fn new() -> Option<Self> {
        True::new(&["--snapshot-every", "2"]).map(Self)
    }

    fn tool(&self, name: &str, arguments: &[&str]) -> Ended {
        self.0.tool(name, arguments)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.folder.path().join(name), text).unwrap();
        name.into()
    }

    fn file(&self, name: &str, manifests: &[impl Manifest]) -> String {
        let lines: String = manifests.iter().map(|one| one.encode().canonical() + "\n").collect();
        self.write(name, &lines)
    }

    /// Plans of branches of the state after step 2.
    fn branch(&self, more: &[&str]) -> Ended {
        let state = self.0.run().snapshots.iter().find(|taken| taken.step == 2).unwrap().snapshot.to_string();
        self.tool("compile", &[&["branch", "--from", &state], more].concat())
    }

    fn ran(&self, plans: &[Plan]) -> Vec<Run> {
        let ended = self.tool("run", &["--now", JANUARY, &self.file("some-plans.jsonl", plans)]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.runs()
    }

    /// What became of branches, in a file.
    fn told(&self, name: &str, plans: &[Plan]) -> Vec<Branch> {
        let runs = self.file("some-runs.jsonl", &self.ran(plans));
        let branches: Vec<Branch> = documents(&self.tool("replay", &["branches", &runs]));
        self.file(name, &branches);
        branches
    }

    fn calibrate(&self, exact: &str, other: &str, gates: &str) -> Ended {
        self.tool("decide", &["calibrate", exact, other, gates, "--now", NEW_YEAR])
    }

    /// Gates with this limit on the largest error.
    fn gates(&self, name: &str, worst: f64, stability: bool) {
        let limits = [
            ("rank-agreement", 0.5),
            ("top-agreement", 0.5),
            ("regret", 0.1),
            ("disagreement", 0.5),
            ("coverage", 0.5),
            ("error-95", 0.5),
            ("error-99", 0.5),
            ("error-worst", worst),
            ("failures", 0.0),
            ("rank-stability", 0.5),
        ];
        let limits: Vec<String> = limits[..if stability { 10 } else { 9 }]
            .iter()
            .map(|(measure, limit)| format!("{{\"limit\":{limit:?},\"measure\":\"{measure}\"}}"))
            .collect();
        let head =
            r#""days":30,"kappa":2.0,"resampling":{"count":200,"seed":1},"schema":"xt.gates/1","threshold":0.001"#;
        self.write(name, &format!("{{{head},\"limits\":[{}]}}", limits.join(",")));
    }

    fn decide(&self, target: f64, branches: &str, now: &str) -> Ended {
        let objective =
            format!(r#"{{"primary":{{"name":"effect","direction":"minimize"}},"target":{target:?},"constraints":[]}}"#);
        let objective = self.write("objective.json", &objective);
        self.tool("decide", &["--now", now, &objective, branches])
    }
}

/// A no-op, three learning rates and two seeds of noise, told after 1, 3 and 5 steps.
fn six_branches(place: &Place, more: &[&str]) -> Vec<Plan> {
    let common = [&["--horizon", "1,3,5"], more].concat();
    let rates = ["0.001", "0.02", "0.05"].map(|rate| format!("{RATE}={rate}"));
    let rates: Vec<&str> = rates.iter().flat_map(|rate| ["--set", rate]).collect();
    let mut plans: Vec<Plan> = documents(&place.branch(&[&common[..], &rates].concat()));
    let noise = ["--noise", "0.1", "--replicates", "2"];
    plans.extend(documents(&place.branch(&[&common[..], &noise].concat())).into_iter().skip(1));
    assert_eq!(plans.len(), 6);
    plans
}

/// Two threads and bfloat16 are refused, then measured against exact branches of the same state, then trusted for what was
/// measured, and refused again when the calibration has expired.
#[test]
fn a_regime_is_refused_until_a_calibration_covers_it_and_again_when_that_has_expired() {
    let Some(place) = Place::new() else { return };
    let branch =
        |more: &[&str]| place.branch(&[&["--under", FIELD, "--set", "optimizer.learning_rate=0.02"], more].concat());
    refusal(&branch(&["--horizon", "5"]), 10, &["regime.locked", "the regime field is locked"]);
    let exact = place.told("exact.jsonl", &six_branches(&place, &[]));
    let field = place.told("field.jsonl", &six_branches(&place, &["--under", FIELD, "--evidence"]));
    assert_eq!((exact.len(), field.len()), (5, 5));
    for (one, other) in exact.iter().zip(&field) {
        assert_eq!((one.snapshot, &one.arm, one.stack), (other.snapshot, &other.arm, other.stack));
    }
    assert!(exact.iter().zip(&field).any(|(one, other)| one.effects != other.effects), "another arithmetic");
    place.gates("gates.json", 0.5, false);
    place.gates("strict.json", 1e-12, false);
    let ended = place.calibrate("exact.jsonl", "field.jsonl", "gates.json");
    let calibration: Calibration = document(&ended, 0);
    let (counts, horizons) = ((calibration.states, calibration.cases, calibration.pairs), [1, 3, 5]);
    assert_eq!((calibration.passed, counts), (true, (1, 3, 15)), "{}", ended.stdout);
    assert_eq!(calibration.spreads.iter().map(|spread| spread.horizon).collect::<Vec<_>>(), horizons);
    assert!(calibration.spreads.iter().all(|spread| spread.sigma.get() > 0.0 && spread.pairs == 5));
    assert_eq!((calibration.measures.len(), calibration.outcomes.len()), (9, 15));
    assert!(calibration.measures.iter().all(|one| one.value.is_some() && one.low.is_some() && one.low <= one.high));
    assert_eq!(
        place.calibrate("exact.jsonl", "field.jsonl", "gates.json").stdout,
        ended.stdout,
        "anyone can make it again"
    );
    let failed = place.calibrate("exact.jsonl", "field.jsonl", "strict.json");
    refusal(&failed, 1, &["not passed: error-worst is "]);
    // Nor does a regime that computes something else pass what the honest one passes: here the optimiser hardly moves.
    let wrong = format!("{FIELD};optimizer.epsilon=1.0");
    place.told("wrong.jsonl", &six_branches(&place, &["--under", &wrong, "--evidence"]));
    refusal(&place.calibrate("exact.jsonl", "wrong.jsonl", "gates.json"), 1, &["not passed: "]);
    place.write("calibration.json", &ended.stdout);
    place.write("failed.json", &failed.stdout);
    refusal(&place.calibrate("field.jsonl", "field.jsonl", "gates.json"), 10, &["calibration.mixed"]);
    place.file("fewer.jsonl", &exact[..4]);
    refusal(&place.calibrate("fewer.jsonl", "field.jsonl", "gates.json"), 10, &["calibration.unpaired"]);

    // Accepted for what was measured, and for nothing else.
    let under = |calibration: &str, now: &str, more: &[&str]| {
        branch(&[&["--calibration", calibration, "--now", now], more].concat())
    };
    let plans: Vec<Plan> = documents(&under("calibration.json", JANUARY, &["--horizon", "5"]));
    let covered = place.told("covered.jsonl", &plans);
    assert!(covered.iter().all(|one| (one.regime, one.calibration) == (Regime::Field, Some(calibration.id()))));
    refusal(&under("calibration.json", JANUARY, &["--horizon", "6"]), 10, &["reaches 5 steps, the plan takes 6"]);
    refusal(&under("failed.json", JANUARY, &["--horizon", "5"]), 10, &["calibration.failed"]);
    let forged = failed.stdout.replace("\"passed\":false", "\"passed\":true");
    place.write(
        "forged.json",
        &forged.replace(&format!("\"id\":\"{}\",", document::<Calibration>(&failed, 1).id()), ""),
    );
    refusal(&under("forged.json", JANUARY, &["--horizon", "5"]), 10, &["calibration.forged"]);
    refusal(&under("calibration.json", MARCH, &["--horizon", "5"]), 10, &["calibration.expired"]);
    let name = place.file("expired.jsonl", &plans);
    refusal(&place.tool("run", &["--now", MARCH, &name]), 10, &["calibration.expired"]);
    let runs = fs::read(place.0.folder.path().join("some-runs.jsonl")).unwrap();
    let again = Run::decode(&parse_all(&runs).unwrap()[0]).unwrap().attempt;
    refusal(&place.tool("run", &["--now", MARCH, "--retry", again.as_str()]), 10, &["calibration.expired"]);
    let other = Plan { ground: Ground::Evidence {}, ..plans[0].clone() };
    refusal(&place.tool("run", &[&place.file("other.json", &[other])]), 10, &["/request"]);
    let four = ["--calibration", "calibration.json", "--now", JANUARY, "--horizon", "5", "--under"];
    let four = place.branch(&[&four[..], &["regime=field;execution.threads=1;precision=bfloat16"]].concat());
    refusal(&four, 10, &["calibration.scope", "did not measure the execution"]);
    decided_where_it_is_clear_and_asked_exactly_where_it_is_close(&place, &exact, &field, &covered);
    other_data_and_known_effects_are_asked_exactly_too(&place);
    a_model_of_another_regime_is_always_asked_exactly(&place);
    evidence_is_never_frozen(&place);
    moving_the_stack_keeps_both_identities(&place);
}

/// The effect of a branch after 5 steps, in two threads and bfloat16, against targets near and far.
fn decided_where_it_is_clear_and_asked_exactly_where_it_is_close(
    place: &Place,
    exact: &[Branch],
    field: &[Branch],
    covered: &[Branch],
) {
    let found = covered.iter().find(|branch| branch.arm != "no-op").unwrap();
    let effect = found.effects.last().unwrap().effect.unwrap().get();
    let clear: Decision = document(&place.decide(effect + 10.0, "covered.jsonl", JANUARY), 0);
    assert_eq!((clear.outcome, clear.escalation.0), (Some(Outcome::StopSucceeded), None));
    let close = place.decide(effect, "covered.jsonl", JANUARY);
    let decision: Decision = document(&close, 3);
    let escalation = decision.escalation.0.unwrap();
    assert_eq!(decision.outcome, Some(Outcome::Escalate));
    assert_eq!(escalation.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), [Doubt::Margin]);
    assert_eq!(escalation.plans.len(), 2, "the branch and its no-op");
    let late: Decision = document(&place.decide(effect + 10.0, "covered.jsonl", MARCH), 3);
    assert_eq!(late.escalation.0.unwrap().causes[0].code, Doubt::Expired);

    // The exact plan is there to be run, and gives what the exact branch gave.
    let ids: Vec<String> = escalation.plans.iter().map(ToString::to_string).collect();
    let ended = place.tool("run", &ids.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let runs = place.file("asked-runs.jsonl", &ended.runs());
    let asked: Vec<Branch> = documents(&place.tool("replay", &["branches", &runs]));
    place.file("asked.jsonl", &asked);
    let (asked, due) = (
        asked.iter().find(|branch| branch.arm == found.arm).unwrap(),
        exact.iter().find(|branch| branch.arm == found.arm).unwrap(),
    );
    assert_eq!((asked.regime, asked.effects.last()), (Regime::Exact, due.effects.last()));
    let exactly = place.decide(effect, "asked.jsonl", MARCH);
    assert!(matches!(exactly.code, Some(0 | 1)), "{}", exactly.stderr);

    // Nothing is decided on evidence, nor on what someone made of a record.
    refusal(&place.decide(effect, "field.jsonl", JANUARY), 10, &["decision.evidence"]);
    assert!(field.iter().all(|branch| branch.calibration.is_none()));
    let forged = Branch { regime: Regime::Exact, ..found.clone() };
    place.file("forged.jsonl", &[forged]);
    refusal(&place.decide(effect, "forged.jsonl", JANUARY), 10, &["decision.forged"]);
}

/// What a quality branch saw and what was known of it stand in the exact plan, too. Of a state that is not exact itself there is
/// no exact plan, and that is said.
fn other_data_and_known_effects_are_asked_exactly_too(place: &Place) {
    let text = fs::read_to_string(place.0.folder.path().join("text.txt")).unwrap();
    place.write("other.txt", &text.to_ascii_uppercase());
    place.write("other.json", &place.tool("compile", &["dataset", "other.txt"]).stdout);
    let covered = ["--calibration", "calibration.json", "--now", JANUARY, "--horizon", "5"];
    let quality = ["--under", FIELD, "--purpose", "quality", "--data", "other.json", "--known", "-50..50"];
    let plans: Vec<Plan> = documents(&place.branch(&[&covered[..], &quality].concat()));
    let told = place.told("quality.jsonl", &plans);
    let effect = told.iter().find(|branch| branch.arm != "no-op").unwrap().effects[0].effect.unwrap().get();
    let close = place.decide(effect, "quality.jsonl", JANUARY);
    let asked = document::<Decision>(&close, 3).escalation.0.unwrap().plans;
    let asked: Vec<Plan> = asked.iter().map(|id| place.0.store().manifest(*id).unwrap()).collect();
    assert_eq!(asked.len(), 2, "{}", close.stderr);
    assert!(!close.stderr.contains("no exact plan"), "{}", close.stderr);
    let exact = place.told("quality-exact.jsonl", &asked);
    for one in &told {
        let same = exact.iter().find(|other| other.arm == one.arm).unwrap();
        assert_eq!(
            (same.regime, same.purpose, same.known.is_some()),
            (Regime::Exact, one.purpose, one.known.is_some())
        );
        assert_ne!(same.effects[0].loss, one.effects[0].loss, "the arithmetic is another one");
    }

    let candidate = fs::read_to_string(place.0.folder.path().join("candidate.json")).unwrap();
    place.write("inexact.json", &inexact(&candidate, 8));
    let plan = place.tool("compile", &["--evidence", "inexact.json"]).stdout;
    let run = place.tool("run", &["--snapshot-every", "2", &place.write("inexact-plan.json", &plan)]).runs().remove(0);
    let state = run.snapshots.iter().find(|taken| taken.step == 2).unwrap().snapshot.to_string();
    let ended = place.tool("compile", &[&["branch", "--from", &state, "--noise", "0.1"], &covered[..]].concat());
    let told = place.told("within.jsonl", &documents(&ended));
    let effect = told.iter().find(|branch| branch.arm != "no-op").unwrap().effects[0].effect.unwrap().get();
    let close = place.decide(effect, "within.jsonl", JANUARY);
    assert_eq!(document::<Decision>(&close, 3).escalation.0.unwrap().plans, []);
    for arm in ["no-op", "noise"] {
        assert!(close.stderr.contains(&format!("no exact plan can be made of {arm}")), "{}", close.stderr);
    }
}

/// A candidate in two threads and bfloat16, of so many steps.
fn inexact(candidate: &str, steps: u64) -> String {
    let changes = [
        ("\"regime\": \"exact\"", "\"regime\": \"field\"".to_string()),
        ("\"threads\": 1", "\"threads\": 2".to_string()),
        ("\"precision\": \"float32\"", "\"precision\": \"bfloat16\"".to_string()),
        ("\"steps\": 8", format!("\"steps\": {steps}")),
    ];
    changes.iter().fold(candidate.to_string(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// A calibration measures effects of branches and says nothing of what is measured of a model: however clear the margin, the
/// exact regime is asked. The control: the same of an exact model is decided.
fn a_model_of_another_regime_is_always_asked_exactly(place: &Place) {
    let golden = |name: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/evaluate/in").join(name)).unwrap()
    };
    place.write("held.txt", &golden("held.txt"));
    place.tool("compile", &["dataset", "held.txt"]);
    place.write("heldout.json", &golden("heldout.json"));
    let target = r#"{"primary":{"name":"loss","direction":"minimize"},"target":1000.0,"constraints":[]}"#;
    place.write("far.json", target);
    let candidate = fs::read_to_string(place.0.folder.path().join("candidate.json")).unwrap();
    place.write("exact-model.json", &candidate.replace("\"steps\": 8", "\"steps\": 4"));
    place.write("field-model.json", &inexact(&candidate, 4));
    let decided = |candidate: &str, ground: &[&str], code: i32| -> Decision {
        let plans: Vec<Plan> = documents(&place.tool("compile", &[ground, &["--now", JANUARY, candidate]].concat()));
        let run = place.ran(&plans).remove(0).id().to_string();
        let frozen = place.tool("freeze", &["--now", JANUARY, &run]);
        assert_eq!(frozen.code, Some(0), "{}", frozen.stderr);
        place.write("bundle.json", &frozen.stdout);
        let plan = place.tool("compile", &["evaluate", "heldout.json", "bundle.json"]);
        let measured = place.tool("run", &[&place.write("measure.json", &plan.stdout)]);
        assert_eq!(measured.code, Some(0), "{} {}", plan.stderr, measured.stderr);
        let evaluation = place.write("evaluation.json", &measured.stdout);
        document(&place.tool("decide", &["--now", JANUARY, "far.json", &evaluation]), code)
    };
    let field = decided("field-model.json", &["--calibration", "calibration.json"], 3);
    assert_eq!(field.outcome, Some(Outcome::Escalate));
    let escalation = field.escalation.0.unwrap();
    assert_eq!(escalation.causes.iter().map(|cause| cause.code).collect::<Vec<_>>(), [Doubt::Unmeasured]);
    let [asked] = escalation.plans[..] else { panic!("one exact plan: {:?}", escalation.plans) };
    let asked: Plan = place.0.store().manifest(asked).unwrap();
    let exact: Vec<Plan> = documents(&place.tool("compile", &["exact-model.json"]));
    assert_eq!((asked.fingerprint, asked.seed), (exact[0].fingerprint, exact[0].seed), "the exact model itself");
    let exact = decided("exact-model.json", &[], 0);
    assert_eq!((exact.outcome, exact.escalation.0), (Some(Outcome::StopSucceeded), None));
}

fn evidence_is_never_frozen(place: &Place) {
    let candidate = fs::read_to_string(place.0.folder.path().join("candidate.json")).unwrap();
    place.write("field.json", &candidate.replace("\"regime\": \"exact\"", "\"regime\": \"field\""));
    refusal(&place.tool("compile", &["field.json"]), 10, &["regime.locked"]);
    let plan: Plan = document(&place.tool("compile", &["--evidence", "field.json"]), 0);
    let run = place.ran(&[plan]).remove(0);
    refusal(&place.tool("freeze", &[&run.id().to_string()]), 15, &["never frozen"]);
}

/// Two threads, and another summation: each is one declared world of the regime `calibrated`, and they are told apart from
/// the exact one and from each other.
#[test]
fn repeated_branches_under_declared_nondeterminism_tell_how_far_they_agree() {
    let Some(place) = Place::new() else { return };
    let plans = |more: &[&str]| -> Vec<Plan> {
        let rates = ["--set", "optimizer.learning_rate=0.02", "--set", "optimizer.learning_rate=0.05"];
        documents(&place.branch(&[&["--horizon", "1,5"], &rates[..], more].concat()))
    };
    let under = |execution: &str| format!("regime=calibrated;{execution}");
    let (threads, summation) = (under("execution.threads=2"), under("execution.math_mode=avx2-strict"));
    place.told("exact.jsonl", &plans(&[]));
    let mut worlds = place.told("threads.jsonl", &plans(&["--under", &threads, "--evidence"]));
    place.gates("gates.json", 0.5, true);
    place.gates("no-stability.json", 0.5, false);
    // One world has nothing to agree with.
    refusal(&place.calibrate("exact.jsonl", "threads.jsonl", "gates.json"), 10, &["calibration.repeats"]);
    worlds.extend(place.told("summation.jsonl", &plans(&["--under", &summation, "--evidence"])));
    place.file("worlds.jsonl", &worlds);
    refusal(
        &place.calibrate("exact.jsonl", "worlds.jsonl", "no-stability.json"),
        10,
        &["calibration.gates", "rank-stability"],
    );
    let ended = place.calibrate("exact.jsonl", "worlds.jsonl", "gates.json");
    let calibration: Calibration = document(&ended, 0);
    assert_eq!((calibration.scope.executions.len(), calibration.cases, calibration.pairs), (2, 4, 8));
    let stability = calibration.measures.iter().find(|one| one.measure == Measure::RankStability).unwrap();
    assert!(stability.value.is_some_and(|value| value.get() <= 1.0), "{}", ended.stdout);
    for scatter in &calibration.outcomes {
        assert_eq!(scatter.worlds, 2);
        let (least, mean, largest) = (scatter.least.unwrap(), scatter.mean.unwrap(), scatter.largest.unwrap());
        assert!(least <= mean && mean <= largest && scatter.deviation.is_some(), "{scatter:?}");
    }
    // A branch that one world leaves out could be the one that differs.
    place.file("gap.jsonl", &worlds[..worlds.len() - 1]);
    refusal(&place.calibrate("exact.jsonl", "gap.jsonl", "gates.json"), 10, &["calibration.unpaired"]);
    place.write("calibration.json", &ended.stdout);
    let covered = |execution: &str| {
        let under = under(execution);
        place.branch(&["--horizon", "5", "--under", &under, "--calibration", "calibration.json", "--now", JANUARY])
    };
    assert_eq!(documents::<Plan>(&covered("execution.threads=2")).len(), 1);
    refusal(&covered("execution.onednn=true"), 10, &["did not measure the execution"]);
    // Other numbers than those of the exact branches are the regime `field`.
    let numbers = under("execution.threads=2;precision=bfloat16");
    refusal(&place.branch(&["--horizon", "5", "--under", &numbers, "--evidence"]), 10, &["precision is part of"]);
}

/// Row T78: a branch of the purpose `maintenance` runs on another stack, and says on which, and on which its state was computed.
fn moving_the_stack_keeps_both_identities(place: &Place) {
    let path = place.0.folder.path().join("another-worker");
    fs::copy(xt_harness::programs().join("xt-train"), &path).unwrap();
    fs::File::options().append(true).open(&path).unwrap().write_all(&[0]).unwrap();
    let plans: Vec<Plan> = documents(&place.branch(&["--purpose", "maintenance", "--horizon", "5"]));
    let name = place.file("maintenance.jsonl", &plans);
    let on = |worker: &Path| -> Branch {
        let ended = tool(&place.0.store_path(), "run", worker, &[&name]);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let runs = place.file("maintenance-runs.jsonl", &ended.runs());
        documents(&place.tool("replay", &["branches", &runs])).remove(0)
    };
    let (before, after) = (on(&xt_harness::programs().join("xt-train")), on(&path));
    assert_eq!(before.stack, before.baseline);
    assert_eq!(after.baseline, before.stack);
    assert_ne!(after.stack, after.baseline);
    assert_eq!(
        before.replicates[0].replay, after.replicates[0].replay,
        "this move changed no bit, and that is on record"
    );
}
