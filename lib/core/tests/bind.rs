//! Only a whole run with all its evidence is bound, and every reason against it is given at once.
#![allow(clippy::unwrap_used)]

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest as _;
use xt_core::manifest::Artifact;
use xt_core::manifest::bundle::{Bundle, Size};
use xt_core::manifest::candidate::Early;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::intent::{Floor, Profile};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::bind::{Evidence, bind};
use xt_core::verb::chain::Tally;
use xt_core::verb::custody::{CONTROLS, residue};

#[path = "common/evidence.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod evidence;

struct Case {
    run: Run,
    plan: Plan,
    custody: Custody,
    tally: Tally,
    weights: Result<Digest, String>,
    averaged: Option<Result<Digest, String>>,
}

fn case() -> Case {
    let plan = evidence::plan();
    let tally = evidence::tally(&plan, &evidence::lines(&plan));
    let custody = evidence::custody(&plan);
    Case {
        run: evidence::run(&plan, &custody, &tally),
        plan,
        custody,
        tally,
        weights: evidence::parameters(),
        averaged: None,
    }
}

fn bound(case: &Case, size: Size) -> Result<Bundle, Faults> {
    let Case { run, plan, custody, tally, weights, averaged } = case;
    bind(
        &Evidence {
            run,
            plan,
            custody: Some(custody),
            trace: Some(tally),
            weights: Some(weights),
            averaged: averaged.as_ref(),
            ancestors: &[],
        },
        &size.into(),
    )
}

fn faults(change: impl FnOnce(&mut Case)) -> Vec<(String, &'static str)> {
    let mut case = case();
    change(&mut case);
    let faults = bound(&case, Size::Sealed).err().unwrap_or_default();
    faults.0.into_iter().map(|fault| (fault.pointer, fault.code)).collect()
}

/// The same, when the custody record is changed together with the digest that names it.
fn custody_faults(change: impl FnOnce(&mut Custody)) -> Vec<(String, &'static str)> {
    faults(|case| {
        change(&mut case.custody);
        case.run.custody = Some(case.custody.id());
    })
}

fn at(pointer: &str, code: &'static str) -> (String, &'static str) {
    (pointer.to_string(), code)
}

#[test]
fn a_whole_run_is_bound_with_every_file_by_path() {
    let case = case();
    let bundle = bound(&case, Size::Sealed).unwrap();
    assert_eq!((bundle.run, bundle.plan, bundle.custody), (case.run.id(), case.plan.id(), case.custody.id()));
    let paths: Vec<&str> = bundle.members.iter().map(|member| member.file.path.as_str()).collect();
    let mut data = evidence::DATA.map(|(_, bytes)| format!("data/{}", Digest::of(bytes).hex()));
    data.sort();
    let expected = [
        data[0].as_str(),
        data[1].as_str(),
        "log/stderr",
        "log/stdout",
        "manifests/candidate.json",
        "manifests/custody.json",
        "manifests/dataset.json",
        "manifests/plan.json",
        "manifests/run.json",
        "manifests/trace.json",
        "model/config.json",
        "model/model.safetensors",
        "trace/steps.jsonl",
    ];
    assert_eq!(paths, expected);
    let run = bundle.members.iter().find(|member| member.file.path.as_str() == "manifests/run.json").unwrap();
    assert_eq!(run.file.digest, case.run.id(), "a document lies under its id");
    let thin = bound(&case, Size::Thin).unwrap();
    assert_eq!(thin.members.len(), bundle.members.len() - 2);
    assert_eq!(Bundle::decode(&bundle.encode()), Ok(bundle));
}

#[test]
fn no_ending_but_success_is_bound_and_every_reason_is_given() {
    for status in Status::ALL.iter().filter(|status| **status != Status::Succeeded) {
        assert_eq!(faults(|case| case.run.status = *status), [at("run#/status", "bundle.status")]);
    }
    let all = faults(|case| {
        case.run.status = Status::Failed;
        case.run.exit.code = Some(1);
        case.run.progress.completed = false;
        case.run.progress.steps = 3;
        case.run.quarantined = std::mem::take(&mut case.run.artifacts);
    });
    let expected = [
        at("run#/status", "bundle.status"),
        at("run#/exit", "bundle.exit"),
        at("run#/progress/completed", "bundle.progress"),
        at("run#/quarantined", "bundle.quarantined"),
        at("run#/progress/steps", "bundle.plan"),
        at("run#/artifacts", "bundle.artifact"),
        at("run#/artifacts", "bundle.artifact"),
        at("run#/progress/steps", "bundle.trace"),
    ];
    assert_eq!(all, expected);
}

/// A run that its losses end after two of four steps: 5.875 and 5.75.
#[test]
fn a_run_that_stopped_early_is_bound_where_its_trace_says_so_and_nowhere_else() {
    let stopped = |target: Option<f64>, limit: Option<f64>, change: &dyn Fn(&mut Run)| {
        let number = |number: Option<f64>| number.and_then(Finite::new);
        let plan = evidence::plan_with(Early::TrainingLoss {
            window: 2,
            target: number(target),
            patience: None,
            minimum_improvement: Finite::ZERO,
            limit: number(limit),
        });
        let steps = evidence::steps(&plan).into_iter().take(2).collect();
        let tally = evidence::tally(&plan, &evidence::chained(plan.id(), steps));
        let custody = evidence::custody(&plan);
        let mut run = evidence::run(&plan, &custody, &tally);
        change(&mut run);
        let weights = Ok(tally.last.as_ref().unwrap().parameters);
        let case = Case { run, plan, custody, tally, weights, averaged: None };
        let faults = bound(&case, Size::Sealed).err().unwrap_or_default();
        faults.0.into_iter().map(|fault| (fault.pointer, fault.code)).collect::<Vec<_>>()
    };
    assert_eq!(stopped(Some(5.8125), None, &|_| ()), []);
    let steps = at("run#/progress/steps", "bundle.plan");
    assert_eq!(stopped(Some(5.8), None, &|_| ()), [steps], "its losses did not reach the target");
    let silent = stopped(Some(5.8125), None, &|run| run.progress.stopped = None);
    assert_eq!(silent, [at("run#/progress/stopped", "bundle.trace")]);
    assert_eq!(stopped(None, Some(5.0), &|_| ()), [at("run#/progress/stopped", "bundle.stopped")]);
}

#[test]
fn a_run_that_never_started_has_nothing_to_bind() {
    let case = case();
    let evidence = Evidence {
        run: &case.run,
        plan: &case.plan,
        custody: None,
        trace: None,
        weights: None,
        averaged: None,
        ancestors: &[],
    };
    let faults = bind(&evidence, &Size::Thin.into()).unwrap_err();
    let codes: Vec<&str> = faults.0.iter().map(|fault| fault.code).collect();
    assert_eq!(codes, ["bundle.custody", "bundle.trace"]);
}

#[test]
fn a_record_that_says_otherwise_than_its_plan_is_not_bound() {
    assert_eq!(faults(|case| case.run.seed = 8), [at("run#/seed", "bundle.plan")]);
    assert_eq!(faults(|case| case.run.dataset = None), [at("run#/dataset", "bundle.plan")]);
    assert_eq!(faults(|case| case.run.inputs[1].bytes += 1), [at("run#/inputs/1/bytes", "bundle.plan")]);
    let more = faults(|case| case.run.intent.resources.cores = 2);
    assert_eq!(more, [at("run#/intent/resources/cores", "bundle.plan")]);
    let variable = |case: &mut Case| {
        case.run.environment.insert("OMP_NUM_THREADS".into(), "2".into());
    };
    assert_eq!(faults(variable), [at("run#/environment/OMP_NUM_THREADS", "bundle.plan")]);
}

#[test]
fn a_plan_edited_afterwards_no_longer_follows_from_itself() {
    let found = faults(|case| {
        case.plan.seed = 8;
        case.run.seed = 8;
        case.run.plan = case.plan.id();
    });
    assert_eq!(found, [at("plan#/request", "plan.derived")]);
}

#[test]
fn what_it_ran_on_must_be_known() {
    assert_eq!(faults(|case| case.run.stack = None), [at("run#/stack", "bundle.stack")]);
    let silent = |case: &mut Case| case.run.stack.as_mut().unwrap().reported = None;
    assert_eq!(faults(silent), [at("run#/stack", "bundle.stack")]);
    let threads = |case: &mut Case| {
        case.run.stack.as_mut().unwrap().reported.as_mut().unwrap().threads = 2;
    };
    assert_eq!(faults(threads), [at("run#/stack/reported/threads", "bundle.stack")]);
}

#[test]
fn a_required_control_that_was_not_enforced_keeps_the_run_out() {
    let network = CONTROLS.iter().position(|id| *id == "network.none").unwrap();
    let state = format!("custody#/controls/{network}/state");
    for bad in [State::Partial, State::Unavailable, State::NotRequested] {
        let found = custody_faults(|custody| {
            custody.controls[network].state = bad;
            custody.overall = bad;
        });
        assert_eq!(found, [at(&state, "bundle.custody")]);
    }
    assert_eq!(custody_faults(|custody| custody.overall = State::Partial), [at("custody#/overall", "bundle.custody")]);
    let relaxed = custody_faults(|custody| {
        custody.controls[network].floor = Floor::Preferred;
        custody.controls[network].state = State::Unavailable;
    });
    assert_eq!(relaxed, [at(&format!("custody#/controls/{network}/floor"), "bundle.custody")]);
    let unmentioned = custody_faults(|custody| drop(custody.controls.remove(network)));
    assert_eq!(unmentioned, [at("custody#/controls", "bundle.custody")]);
    let variable = custody_faults(|custody| custody.environment.push("ZZ".into()));
    assert_eq!(variable, [at("custody#/environment", "bundle.custody")]);
    assert_eq!(faults(|case| case.custody.host.landlock = 9), [at("custody#", "bundle.custody")]);
}

#[test]
fn what_a_profile_leaves_open_by_its_nature_is_no_fault_when_the_plan_asks_for_that_profile() {
    let mut plan = evidence::plan();
    plan.intent.isolation.profile = Profile::InContainer;
    plan.request = xt_core::fingerprint::request(&plan);
    let found = |change: fn(&mut Custody)| {
        faults(|case| {
            let tally = evidence::tally(&plan, &evidence::lines(&plan));
            let mut custody = evidence::custody(&plan);
            custody.profile = Profile::InContainer;
            let read = custody.controls.iter_mut().find(|control| control.id == "filesystem.read").unwrap();
            read.state = State::Partial;
            read.missing = residue(Profile::InContainer, "filesystem.read").iter().map(|s| (*s).into()).collect();
            custody.overall = State::Partial;
            change(&mut custody);
            let weights = evidence::parameters();
            *case = Case {
                run: evidence::run(&plan, &custody, &tally),
                plan: plan.clone(),
                custody,
                tally,
                weights,
                averaged: None,
            };
        })
    };
    assert_eq!(found(|_| ()), []);
    assert_eq!(found(|custody| custody.controls[4].missing.push("more".into())).len(), 1);
    assert_eq!(found(|custody| custody.profile = Profile::Full)[0], at("custody#/profile", "bundle.custody"));
    assert_eq!(found(|custody| custody.profile = Profile::None)[0], at("custody#/profile", "bundle.custody"));
}

#[test]
fn what_was_mounted_must_be_what_it_ran_on_and_learned_from() {
    for index in 0..3 {
        let found = custody_faults(|custody| custody.mounts[index].digest = Some(Digest::of(b"another")));
        assert_eq!(found, [at("custody#/mounts", "bundle.custody")]);
    }
    let variable = custody_faults(|custody| drop(custody.environment.pop()));
    assert_eq!(variable, [at("custody#/environment", "bundle.custody")]);
    let preload = faults(|case| {
        case.run.environment.insert("LD_PRELOAD".into(), "x".into());
        case.custody.environment = case.run.environment.keys().cloned().collect();
        case.run.custody = Some(case.custody.id());
    });
    assert_eq!(preload, [at("run#/environment/LD_PRELOAD", "bundle.plan")]);
}

#[test]
fn a_trace_that_is_not_the_runs_is_not_bound() {
    let cut = |case: &mut Case| {
        let lines = evidence::chained(case.plan.id(), evidence::steps(&case.plan)[..3].to_vec());
        case.tally = evidence::tally(&case.plan, &lines);
        case.weights = Ok(case.tally.last.as_ref().unwrap().parameters);
    };
    let pointers: Vec<String> = faults(cut).into_iter().map(|(pointer, _)| pointer).collect();
    let expected =
        ["run#/trace/digest", "run#/trace/steps", "run#/trace/chain", "run#/progress/steps", "run#/progress/updates"];
    assert_eq!(pointers, expected);
}

#[test]
fn a_value_that_is_not_finite_keeps_a_run_out_whose_candidate_stops_at_it() {
    let mut steps = evidence::steps(&evidence::plan());
    steps[2].stages[1].nan = 1;
    let found = faults(|case| {
        case.tally = evidence::tally(&case.plan, &evidence::chained(case.plan.id(), steps));
        case.run = evidence::run(&case.plan, &case.custody, &case.tally);
    });
    assert_eq!(found, [at("trace/steps.jsonl#/3", "bundle.non-finite")]);
}

#[test]
fn parameters_that_the_trace_did_not_end_with_are_not_bound() {
    let weights = |weights| faults(|case| case.weights = weights);
    let expected = [at("model/model.safetensors", "bundle.weights")];
    assert_eq!(weights(Ok(Digest::of(b"another"))), expected);
    assert_eq!(weights(Err("it ends inside its header".into())), expected);
}

/// The candidate keeps no average, so neither the trace nor the outputs may hold one.
#[test]
fn an_average_that_the_candidate_does_not_keep_is_not_bound() {
    let digest = Digest::of(b"average");
    assert_eq!(
        faults(|case| case.averaged = Some(Ok(digest))),
        [at("model/averaged/model.safetensors", "bundle.averaged")]
    );
    let traced = faults(|case| case.tally.last.as_mut().unwrap().averaged = Some(digest));
    assert_eq!(traced, [at("trace/steps.jsonl#/4", "bundle.averaged")]);
}

#[test]
fn outputs_need_the_model_and_its_configuration_and_sound_paths() {
    for index in 0..2 {
        let found = faults(|case| drop(case.run.artifacts.remove(index)));
        assert_eq!(found, [at("run#/artifacts", "bundle.artifact")]);
        assert_eq!(
            faults(|case| case.run.artifacts[index].bytes = 0),
            [at("run#/artifacts", "bundle.artifact")],
            "an empty file is no model"
        );
    }
    assert_eq!(faults(|case| case.run.artifacts.reverse()), [at("run#/artifacts", "bundle.artifact")]);
    let outside = faults(|case| {
        let path = RelativePath::new("z").unwrap();
        case.run.artifacts.push(Artifact { path, digest: Digest::of(b""), bytes: 0 });
    });
    assert_eq!(outside, [at("run#/artifacts", "bundle.artifact")]);
}
