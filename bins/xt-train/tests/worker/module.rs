//! Modules of TorchScript in the real worker. That they go on bit for bit is in the matrix; here is what is refused, what
//! they draw and remember, and that the fixture is no empty case.

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Base, Candidate};
use xt_core::manifest::plan::{Input, Plan, Role};

use crate::desk::{Desk, Left};
use crate::table::{Job, in_classes};

/// Written by `lib/trainer/tests/reference/module.py`: its buffers change in place and by assignment, and it draws.
const FILE: &[u8] = include_bytes!("../../../../lib/trainer/tests/reference/module.pt");
const TENSORS: &str = include_str!("../../../../lib/trainer/tests/reference/module.json");
const RUNNING: &str = r#"{"name": "norm.running_var", "shape": [8]}"#;

/// The job with the module of these bytes, and these replacements in the text of the candidate.
fn candidate(job: Job, file: &[u8], changes: &[(&str, &str)]) -> Candidate {
    let tensors = TENSORS.trim().trim_start_matches('{').trim_end_matches('}');
    let model = format!(r#""model":{{"kind":"torchscript","shape":[5],"outputs":3,{tensors}}}"#);
    let buffers = parse(TENSORS.as_bytes()).unwrap();
    let xt_core::canonical::Value::List(buffers) = buffers.get("buffers").unwrap() else { panic!() };
    let frozen = |buffer: &xt_core::canonical::Value| {
        let name = buffer.get("name").and_then(xt_core::canonical::Value::as_str).unwrap();
        format!(r#"{{"pattern":"{name}","treatment":{{"kind":"frozen"}}}}"#)
    };
    let groups: Vec<String> = buffers.iter().map(frozen).collect();
    let base = format!(r#"{{"kind":"module","digest":"{}"}}"#, Digest::of(file));
    let (groups, scheduled) = (format!("\"groups\":[{}]", groups.join(",")), changes);
    let own = [("\"model\":MODEL", model.as_str()), ("{\"kind\":\"random\"}", &base), ("\"groups\":[]", &groups)];
    job.changed(&[&own[..], scheduled].concat())
}

/// A plan of the fixture.
pub fn plan(changes: &[(&str, &str)], seed: u64) -> Plan {
    plan_with(FILE, changes, seed)
}

fn plan_with(file: &[u8], changes: &[(&str, &str)], seed: u64) -> Plan {
    in_classes().plan_of(candidate(in_classes(), file, changes), seed)
}

/// The files of the base of such a candidate.
pub fn inputs(candidate: &Candidate) -> Vec<Input> {
    let Base::Module { digest } = candidate.base else { return Vec::new() };
    vec![Input { digest, bytes: FILE.len() as u64, role: Role::Base }]
}

/// A place for it.
pub fn desk(plan: &Plan) -> Desk {
    let desk = in_classes().desk(plan);
    desk.give(FILE);
    desk
}

fn train(plan: &Plan) -> Left {
    let left = desk(plan).train(plan, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left
}

/// The same run is the same trace, what it draws follows from the seed, and its buffers move.
#[test]
fn what_a_module_draws_follows_from_the_seed_and_its_buffers_are_saved() {
    let plan = plan(&[], 1);
    let (first, again) = (train(&plan), train(&plan));
    assert_eq!(first.steps(&plan), again.steps(&plan));
    // The order of the samples is sequential, so that only the draws differ.
    let sequential = |seed| train(&self::plan(&[("shuffled", "sequential")], seed));
    assert_ne!(sequential(1).told()[0].loss_bits, sequential(2).told()[0].loss_bits, "another seed draws otherwise");
    let saved = first.output("model/model.safetensors");
    let saved = safetensors::SafeTensors::deserialize(&saved).unwrap();
    let number = |name: &str| f32::from_le_bytes(saved.tensor(name).unwrap().data()[..4].try_into().unwrap());
    // Two micro-batches a step, but for the end of an epoch.
    let count = f32::from(u16::try_from(first.told().iter().map(|step| step.micro_batches).sum::<u64>()).unwrap());
    assert_eq!((number("count"), number("norm.num_batches_tracked")), (count, count));
    assert!(number("mean") != 0.0 && number("norm.running_var") != 1.0);
}

/// Where the file is not what is declared it is told with every difference, and a step is never taken.
#[test]
fn a_module_that_is_not_as_declared_is_refused_by_the_worker_with_every_reason() {
    let refused = |file: &[u8], changes: &[(&str, &str)], due: &[&str]| {
        let plan = plan_with(file, changes, 1);
        let desk = desk(&plan);
        desk.give(file);
        let left = desk.train(&plan, None);
        assert_eq!((left.code, left.told().len()), (Some(1), 0), "{}", left.stderr);
        for why in due {
            assert!(left.failure().contains(why), "{why}: {}", left.failure());
        }
    };
    refused(b"import os", &[], &["base.file", "it is no module of TorchScript"]);
    refused(&FILE[..FILE.len() / 2], &[], &["base.file", "it is no module of TorchScript"]);
    refused(
        FILE,
        &[(RUNNING, r#"{"name": "norm.running_var", "shape": [4, 2]}"#), ("last.bias", "last.bios")],
        &[
            "module#norm.running_var: declared is [4, 2], found [8]",
            "module#last.bias: the candidate declares no such parameter",
            "module#last.bios: it is declared, and the module has none",
        ],
    );
    refused(FILE, &[("\"shape\":[5]", "\"shape\":[5,1]")], &["its module cannot compute"]);
}
