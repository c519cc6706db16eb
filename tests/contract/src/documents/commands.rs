//! Documents of programs that are brought as they are.

use std::collections::BTreeMap;

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::Artifact;
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::command::{Command, CommandData, Parameters, Pin, PinnedRoot, Program, Root, Trainer};
use xt_core::manifest::dataset::Dataset;
use xt_core::manifest::evaluation::{
    Determinism, Evaluator, HeldOut, Leakage, Overlap, Parameters as Which, Part, Shared, Slices, Spec, Subject,
};
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::command::compile;
use xt_core::verb::{evaluate, evaluate_command};

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("{text}"))
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| panic!("{value}"))
}

/// The plans of [`commands`], and of [`specs`].
pub fn plans(dataset: &Dataset) -> Vec<Plan> {
    let sizes = [(digest("fit.py"), 9)].into();
    let plan = |command: Command| {
        let data = command.data.is_some().then(|| dataset.clone());
        let plan = compile(command, data, Intent::default_for(2), 7, program(), &sizes);
        plan.unwrap_or_else(|faults| panic!("{faults}"))
    };
    let measuring = specs(dataset).into_iter().map(|spec| measuring(spec, dataset));
    measuring.chain(commands(dataset).into_iter().map(plan)).collect()
}

/// Commands with and without data and promises.
pub fn commands(dataset: &Dataset) -> Vec<Command> {
    let command = || command(dataset);
    let (mut all, mut silent) = (command(), command());
    (silent.data, silent.steps) = (None, None);
    all.data = all.data.map(|data| CommandData { split: None, ..data });
    vec![command(), all, silent]
}

fn command(dataset: &Dataset) -> Command {
    let trainer = Trainer::Command {
        executable: String::from("/usr/bin/python3"),
        arguments: vec![String::from("${XT_FILES}/fit.py")],
        environment: BTreeMap::from([(String::from("PYTHONHASHSEED"), String::from("0"))]),
        roots: vec![Root { path: String::from("/usr/lib/python3"), execute: false }],
        files: BTreeMap::from([(String::from("fit.py"), digest("fit.py"))]),
        threads: 2,
    };
    Command {
        name: name("fit"),
        trainer,
        parameters: Parameters(BTreeMap::from([(String::from("rate"), Value::Float(number(0.5)))])),
        data: Some(CommandData { dataset: dataset.id(), split: Some(name("train")) }),
        steps: Some(4),
        regime: Regime::Exact,
    }
}

fn program() -> Program {
    let pin = |path: &str| Pin { path: String::from(path), digest: digest(path) };
    let path = String::from("/usr/lib/python3");
    let root = PinnedRoot { path, digest: digest("root"), execute: false, files: 3, bytes: 40 };
    Program { executable: pin("/usr/bin/python3"), libraries: vec![pin("/lib/libc.so.6")], roots: vec![root] }
}

/// Specs of programs that measure: one that promises all it can, and one as little.
pub fn specs(dataset: &Dataset) -> Vec<Spec> {
    let spec = |determinism, samples, confidence| Spec {
        name: name("held-out"),
        evaluator: Evaluator::Command {
            name: name("harness"),
            version: String::from("2"),
            determinism,
            metrics: vec![String::from("accuracy")],
            samples,
            confidence,
            program: Box::new(command(dataset).trainer),
            settings: Parameters(BTreeMap::from([(String::from("shots"), 5u64.into())])),
        },
        parameters: Which::Trained,
        data: HeldOut { dataset: dataset.id(), split: name("train") },
        slices: Slices::None,
        leakage: Leakage { minimum_bytes: 32, shared: Shared::Disclose },
        seed: 7,
    };
    vec![
        spec(Determinism::Deterministic, Some(40), Some(number(0.95))),
        spec(Determinism::Seeded, None, None),
        spec(Determinism::Stochastic, None, None),
    ]
}

/// The plan in which one of them measures.
fn measuring(spec: Spec, dataset: &Dataset) -> Plan {
    let path = |text: &str| RelativePath::new(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let files = vec![Artifact { path: path("outputs/model"), digest: digest("model"), bytes: 3 }];
    let weights = evaluate_command::digest(&files);
    let members = evaluate::members(&spec, dataset);
    let parts: Vec<Part> =
        members.iter().map(|member| Part { path: member.path.clone(), tokens: member.bytes }).collect();
    let (files_of_split, shared) = (parts.len() as u64, Shared::Disclose);
    let overlap = Overlap { shared, files: files_of_split, shared_files: 1, examples: 40, shared_examples: 2 };
    let subject = Subject { weights, ..super::trained() };
    let sizes = [(digest("fit.py"), 9)].into();
    let found = evaluate_command::Found { subject, files, parts, overlap, program: program(), sizes };
    let plan = evaluate_command::compile(spec, dataset.clone(), Intent::default_for(2), found);
    plan.unwrap_or_else(|faults| panic!("{faults}"))
}
