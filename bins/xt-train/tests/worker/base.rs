//! Training that begins from parameters, and adapters beside parameters that stay as they are, in the real worker.

use std::collections::BTreeMap;

use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::{Field, Manifest};
use xt_core::left_out::LeftOut;
use xt_core::manifest::Artifact;
use xt_core::manifest::bundle::{Bundle, Compatibility, Member, MemberRole, Size};
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::snapshot::Cadence;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::weights::{file, views};

use crate::desk::{Desk, LLAMA, Left, plan, stack};

const RANDOM: &str = "\"base\":{\"kind\":\"random\"}";
const WEIGHTS: &str = "model/model.safetensors";
const ADAPTER: &str = "model/adapter_model.safetensors";
const EACH: Cadence = Cadence { every: Some(1), keep: None, last: false };
/// Adapters of a model that has hardly learned need large steps.
const RATE: (&str, &str) = ("\"learning_rate\":0.003", "\"learning_rate\":0.1");
const NONE: &str = r#"{"kind":"none"}"#;
const LORA: &str = r#"{"kind":"lora","rank":3,"alpha":6.0,"dropout":0.2,"targets":["*.q_proj","*.down_proj","*.c_attn","*.mlp.c_proj"],"saved":[]}"#;

/// Values by the name of the tensor.
type Values = BTreeMap<String, Vec<u8>>;

fn values(file: &[u8]) -> Values {
    views(file).unwrap().into_iter().map(|view| (view.name, view.values.to_vec())).collect()
}

/// What a base is made of: its parameters, and what says what they are.
struct Made {
    weights: Vec<u8>,
    document: Vec<u8>,
}

impl Made {
    /// A small model that was trained for eight steps; a llama or a gpt.
    fn trained(llama: bool) -> Self {
        let plan = plan(if llama { &[LLAMA] } else { &[] }, 5);
        let left = Desk::new(&plan).train(&plan, None);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        Self { weights: left.output(WEIGHTS), document: left.output("model/config.json") }
    }

    /// How a candidate names it.
    fn named(&self, rest: &str, adapter: &str) -> String {
        let (weights, document) = (Digest::of(&self.weights), Digest::of(&self.document));
        format!(
            r#""base":{{"kind":"safetensors","digest":"{weights}","configuration":"{document}",{rest},"adapter":{adapter}}}"#
        )
    }

    fn desk(&self, plan: &Plan) -> Desk {
        let desk = Desk::new(plan);
        desk.give(&self.weights);
        desk.give(&self.document);
        desk
    }

    fn train(&self, plan: &Plan) -> Left {
        self.desk(plan).train_part(plan, None, &EACH, None)
    }
}

const ALL: &str = r#""prefix":"","fresh":[],"unused":[]"#;

fn plan_on(made: &Made, llama: bool, rest: &str, adapter: &str, more: &[(&str, &str)]) -> Plan {
    plan_of(made, llama, (rest, adapter), more, 1)
}

fn plan_of(made: &Made, llama: bool, (rest, adapter): (&str, &str), more: &[(&str, &str)], seed: u64) -> Plan {
    let base = made.named(rest, adapter);
    // Patterns that fit no layer are refused, so each family keeps its own.
    let own = if llama {
        base.replace(r#","*.c_attn","*.mlp.c_proj""#, "")
    } else {
        base.replace(r#""*.q_proj","*.down_proj","#, "")
    };
    let mut changes = vec![(RANDOM, own.as_str())];
    changes.extend(llama.then_some(LLAMA));
    changes.extend(more);
    plan(&changes, seed)
}

#[test]
fn training_begins_where_the_base_ended_and_frozen_parameters_stay_to_the_bit() {
    for llama in [false, true] {
        let made = Made::trained(llama);
        let rate = [("\"learning_rate\":0.003", "\"learning_rate\":1e-30")];
        let still = plan_on(&made, llama, ALL, NONE, &[rate[0], ("\"weight_decay\":0.1", "\"weight_decay\":0.0")]);
        let left = made.train(&still);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        assert_eq!(values(&left.output(WEIGHTS)), values(&made.weights), "a rate of nearly nothing leaves the base");
        let frozen = if llama { "*.mlp.*" } else { "*.attn.*" };
        let groups = format!(r#""groups":[{{"pattern":"{frozen}","treatment":{{"kind":"frozen"}}}}]"#);
        let plan = plan_on(&made, llama, ALL, NONE, &[("\"groups\":[]", &groups)]);
        let left = made.train(&plan);
        let (before, after) = (values(&made.weights), values(&left.output(WEIGHTS)));
        for (name, values) in &after {
            let part = if llama { ".mlp." } else { ".attn." };
            assert_eq!(name.contains(part), *values == before[name], "{name}");
        }
        let drawn = Desk::new(&self::plan(if llama { &[LLAMA] } else { &[] }, 1));
        let drawn = drawn.train(&self::plan(if llama { &[LLAMA] } else { &[] }, 1), None);
        let first = |left: &Left| left.told()[0].loss.unwrap().get();
        assert!(first(&left) < first(&drawn) - 0.2, "{} {}", first(&left), first(&drawn));
    }
}

#[test]
fn a_parameter_that_is_declared_fresh_is_drawn_and_everything_else_must_fit() {
    let made = Made::trained(true);
    let fresh = r#""prefix":"","fresh":["lm_head.*"],"unused":["lm_head.*"]"#;
    let plan = plan_on(
        &made,
        true,
        fresh,
        NONE,
        &[("\"learning_rate\":0.003", "\"learning_rate\":1e-30"), ("\"weight_decay\":0.1", "\"weight_decay\":0.0")],
    );
    let after = values(&made.train(&plan).output(WEIGHTS));
    let before = values(&made.weights);
    let changed: Vec<&String> = after.keys().filter(|name| after[*name] != before[*name]).collect();
    assert_eq!(changed, ["lm_head.weight"]);

    let mut tensors: BTreeMap<String, (Vec<u64>, Vec<f32>)> = views(&made.weights)
        .unwrap()
        .into_iter()
        .map(|view| {
            let values = view.values.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            (view.name, (view.shape, values))
        })
        .collect();
    tensors.remove("model.norm.weight");
    tensors.insert("more.weight".into(), (vec![1], vec![0.5]));
    tensors.insert("lm_head.weight".into(), (vec![2], vec![0.5, 0.25]));
    let document = String::from_utf8(made.document.clone()).unwrap();
    let other = document.replace("\"rope_theta\":10000.0", "\"rope_theta\":500.0").replace("\"silu\"", "\"gelu\"");
    let wrong = Made { weights: file(&tensors), document: other.into_bytes() };
    let left = wrong.train(&plan_on(&wrong, true, ALL, NONE, &[]));
    for part in ["hidden_act", "base#model.norm.weight", "base#more.weight", "base#lm_head.weight", "[2]"] {
        assert!(left.failure().contains(part), "{part}: {}", left.failure());
    }
    let pickle = Made { weights: b"PK\x03\x04 and so on".to_vec(), document: made.document };
    let left = pickle.train(&plan_on(&pickle, true, ALL, NONE, &[]));
    assert!(left.failure().contains("this is a pickle") && left.failure().contains("save_file"), "{}", left.failure());
}

#[test]
fn the_parameters_of_a_bundle_are_a_base_and_those_of_another_are_not() {
    let made = Made::trained(false);
    let member = |path: &str, bytes: &[u8], role| Member {
        file: Artifact { path: RelativePath::new(path).unwrap(), digest: Digest::of(bytes), bytes: bytes.len() as u64 },
        role,
    };
    let bundle = Bundle {
        size: Size::Thin,
        fingerprint: Digest::of(b"fingerprint"),
        plan: Digest::of(b"plan"),
        run: Digest::of(b"run"),
        dataset: None,
        custody: Digest::of(b"custody"),
        trace: Digest::of(b"trace"),
        base: None,
        members: vec![member(WEIGHTS, &made.weights, MemberRole::Model)],
        compatibility: Compatibility { form: "huggingface/gpt2".into(), precision: "float32".into(), stack: stack() },
        terms: LeftOut(None),
        data_terms: LeftOut(None),
    };
    let named = |weights: &[u8]| {
        let (id, weights) = (bundle.id(), Digest::of(weights));
        format!(r#""base":{{"kind":"bundle","digest":"{id}","weights":"{weights}","adapter":{NONE}}}"#)
    };
    let document = bundle.write().canonical().into_bytes();
    let right = Made { weights: made.weights.clone(), document };
    let left = right.train(&plan(&[(RANDOM, &named(&right.weights))], 1));
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    // The same parameters named as a file give the same steps but for the chain, which begins with the plan.
    let other = made.train(&plan_on(&made, false, ALL, NONE, &[]));
    let digests = |left: &Left| left.told().iter().map(|step| step.parameters).collect::<Vec<_>>();
    assert_eq!(digests(&left), digests(&other));
    let foreign = Made { weights: Made::trained(true).weights, document: right.document };
    let left = foreign.train(&plan(&[(RANDOM, &named(&foreign.weights))], 1));
    assert!(left.failure().contains("the bundle has no such parameters"), "{}", left.failure());
}

#[test]
fn a_run_on_a_base_goes_on_bit_for_bit_in_a_new_process_with_and_without_adapters() {
    for llama in [false, true] {
        let made = Made::trained(llama);
        for (adapter, name) in [(NONE, WEIGHTS), (LORA, ADAPTER)] {
            let plan = plan_on(&made, llama, ALL, adapter, &[]);
            let straight = made.train(&plan);
            assert_eq!(straight.code, Some(0), "{}", straight.stderr);
            let resumed = made.desk(&plan).train_part(&plan, None, &EACH, Some(&straight.shot(&plan, 3)));
            assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
            assert_eq!(resumed.told(), straight.told()[3..]);
            assert_eq!(resumed.output(name), straight.output(name));
            let other = made.train(&plan_of(&made, llama, (ALL, adapter), &[], 2));
            assert_ne!(other.told()[0].parameters, straight.told()[0].parameters);
        }
    }
}

/// What is saved are the adapters alone, as PEFT names them; the base is named by its digest.
#[test]
fn an_adapter_starts_at_its_base_learns_and_is_saved_without_it() {
    for llama in [false, true] {
        let made = Made::trained(llama);
        let plan = plan_on(
            &made,
            llama,
            ALL,
            LORA,
            &[("\"dropout\":0.1", "\"dropout\":0.0"), ("\"steps\":8", "\"steps\":40"), RATE],
        );
        let left = made.train(&plan);
        assert_eq!(left.code, Some(0), "{}", left.stderr);
        assert!(!left.wrote(WEIGHTS));
        let saved = values(&left.output(ADAPTER));
        assert_eq!(saved.len(), 8, "two layers of each of two blocks, two factors each");
        assert!(saved.keys().all(|name| name.starts_with("base_model.model.") && name.contains(".lora_")));
        assert!(saved.values().all(|values| values.iter().any(|byte| *byte != 0)));
        let config = parse(&left.output("model/adapter_config.json")).unwrap();
        let text = |key: &str| config.get(key).unwrap().canonical();
        assert_eq!(text("base_model_name_or_path"), format!("\"{}\"", Digest::of(&made.weights)));
        assert_eq!(
            (text("r"), text("peft_type"), text("fan_in_fan_out")),
            ("3".into(), "\"LORA\"".into(), (!llama).to_string())
        );
        // The second factor is 0 at first, so the first loss is that of the base itself, whatever adapters drop.
        let whole = plan_on(
            &made,
            llama,
            ALL,
            NONE,
            &[("\"dropout\":0.1", "\"dropout\":0.0"), ("\"steps\":8", "\"steps\":40"), RATE],
        );
        let losses = |left: &Left| left.told().iter().map(|step| step.loss.unwrap().get()).collect::<Vec<_>>();
        let (adapted, whole) = (losses(&left), losses(&made.train(&whole)));
        assert_eq!(adapted[0], whole[0]);
        assert_ne!(adapted[5], whole[5]);
        let sum = |losses: &[f64]| losses.iter().sum::<f64>();
        assert!(sum(&adapted[35..]) < sum(&adapted[..5]), "{adapted:?}");
    }
}

#[test]
fn an_adapter_without_its_base_is_refused() {
    let made = Made::trained(true);
    let plan = plan_on(&made, true, ALL, LORA, &[]);
    let desk = Desk::new(&plan);
    desk.give(&made.document);
    let left = desk.train(&plan, None);
    assert!(
        left.failure().contains(&format!("the input {} cannot be read", Digest::of(&made.weights))),
        "{}",
        left.failure()
    );
}

/// An adapter writes over its base and over no other, even one of the same shapes.
#[test]
fn an_adapter_writes_over_its_exact_base_alone() {
    let made = Made::trained(true);
    let plan = plan_on(&made, true, ALL, LORA, &[RATE]);
    let adapter = made.train(&plan).output(ADAPTER);
    let sample = |weights: &[u8]| {
        let candidate = plan.native().unwrap().clone();
        let desk = Desk::new(&plan);
        for bytes in [weights, &made.document, &adapter] {
            desk.give(bytes);
        }
        let job = Job::Sample {
            model: candidate.model.into(),
            base: candidate.base.into(),
            weights: Digest::of(&adapter),
            tokenizer: candidate.tokenizer,
            execution: candidate.execution,
            prompt: "Call me ".into(),
            tokens: 20,
            temperature: Finite::new(1.0).unwrap(),
            seed: 1,
        };
        desk.work(job.write().canonical().as_bytes())
    };
    let left = sample(&made.weights);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    assert!(left.messages.iter().any(|message| matches!(message, Message::Text { .. })));
    let plan_of_other = self::plan(&[LLAMA], 6);
    let other = Desk::new(&plan_of_other).train(&plan_of_other, None).output(WEIGHTS);
    assert_eq!(other.len(), made.weights.len());
    assert!(sample(&other).failure().contains("cannot be read"), "{}", sample(&other).failure());
}
