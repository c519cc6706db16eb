//! Documents of programs that are brought as they are.

use std::collections::BTreeMap;

use xt_core::canonical::Value;
use xt_core::digest::Digest;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::Regime;
use xt_core::manifest::command::{Command, CommandData, Parameters, Pin, PinnedRoot, Program, Root, Trainer};
use xt_core::manifest::dataset::Dataset;
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::verb::command::compile;

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap_or_else(|| panic!("{text}"))
}

fn number(value: f64) -> Finite {
    Finite::new(value).unwrap_or_else(|| panic!("{value}"))
}

/// The plans of [`commands`].
pub fn plans(dataset: &Dataset) -> Vec<Plan> {
    let sizes = [(digest("fit.py"), 9)].into();
    let plan = |command: Command| {
        let data = command.data.is_some().then(|| dataset.clone());
        let plan = compile(command, data, Intent::default_for(2), 7, program(), &sizes);
        plan.unwrap_or_else(|faults| panic!("{faults}"))
    };
    commands(dataset).into_iter().map(plan).collect()
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
