//! Comparing what was recorded with what is found now: documents field by field, steps by component, stacks by pin,
//! outputs by digest. Nothing here has a tolerance: equal means the same bits.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, Manifest, child};
use crate::manifest::Artifact;
use crate::manifest::replay::{
    Component, ComponentDifference, Divergence, Outcome, OutputComparison, PinDifference, Replay,
};
use crate::manifest::run::{Reported, Run, Stack, Status};
use crate::manifest::trace::{Metric, Stage, StageName, Step};
use crate::relpath::RelativePath;

/// A place where two documents differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// JSON pointer to it.
    pub pointer: String,
    /// The value in the first document, as canonical text; `none` when there is none.
    pub first: String,
    /// The value in the second.
    pub second: String,
}

/// Every place where `first` and `second` differ, as deep as both go.
pub fn documents(first: &Value, second: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    descend(Some(first), Some(second), String::new(), &mut found);
    found
}

fn descend(first: Option<&Value>, second: Option<&Value>, at: String, found: &mut Vec<Difference>) {
    match (first, second) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                descend(a.get(key), b.get(key), child(&at, key), found);
            }
        }
        (Some(Value::List(a)), Some(Value::List(b))) => {
            for index in 0..a.len().max(b.len()) {
                descend(a.get(index), b.get(index), format!("{at}/{index}"), found);
            }
        }
        // By text, since the two zeros are equal as numbers and differ in bits.
        _ if first.map(Value::canonical) == second.map(Value::canonical) => {}
        _ => found.push(Difference { pointer: at, first: text(first), second: text(second) }),
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None => "none".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.canonical(),
    }
}

/// Fields of a step by the component they belong to, in the order in which a step computes them. `chain` follows from
/// all others.
const FIELDS: [(Component, &[&str]); 10] = [
    (Component::SampleOrder, &["step", "epoch", "micro_batches", "samples"]),
    (Component::Generator, &["generator"]),
    (Component::LearningRate, &["learning_rate"]),
    (Component::Loss, &["loss_scale", "loss", "loss_bits"]),
    (Component::Gradients, &["gradient_norm", "gradient_norm_bits", "gradients"]),
    (Component::Optimizer, &["optimizer", "averaged"]),
    (Component::Parameters, &["parameters"]),
    (Component::Cursor, &["cursor"]),
    (Component::Stages, &["stages"]),
    (Component::Update, &["skipped"]),
];

/// Where two lines of the same step part first; `None` when they are equal.
pub fn steps(recorded: &Step, replayed: &Step) -> Option<Divergence> {
    let (first, second) = (recorded.write(), replayed.write());
    let differing: Vec<(Component, Vec<&str>)> = FIELDS
        .iter()
        .map(|(component, fields)| {
            let bits = |line: &Value, field: &str| line.get(field).map(Value::canonical);
            let parted = fields.iter().copied().filter(|field| bits(&first, field) != bits(&second, field)).collect();
            (*component, parted)
        })
        .filter(|(_, fields): &(_, Vec<&str>)| !fields.is_empty())
        .collect();
    let (component, fields) = differing.first()?;
    let (recorded_text, replayed_text) = if *component == Component::Stages {
        stages(&recorded.stages, &replayed.stages)
    } else {
        (values(&first, fields), values(&second, fields))
    };
    Some(Divergence {
        step: recorded.step,
        component: *component,
        recorded: recorded_text,
        replayed: replayed_text,
        differing: differing.iter().map(|(component, _)| *component).collect(),
    })
}

/// The first stage of the computation in which two lines of the same step differ. Counts of a stage show it first; then
/// what the stage leaves behind.
pub fn first_stage(recorded: &Step, replayed: &Step) -> StageName {
    let counted =
        recorded.stages.iter().zip(&replayed.stages).find(|(a, b)| a.write() != b.write()).map(|(a, _)| a.stage);
    let component = steps(recorded, replayed).map(|divergence| match divergence.component {
        Component::SampleOrder | Component::Cursor => StageName::Input,
        Component::Generator => StageName::Forward,
        Component::Loss => StageName::Loss,
        Component::Gradients => StageName::Backward,
        _ => StageName::Optimizer,
    });
    let place = |stage: &StageName| StageName::ALL.iter().position(|known| known == stage);
    counted.into_iter().chain(component).min_by_key(place).unwrap_or(StageName::Optimizer)
}

/// Two traces, as far as both go: how many steps are equal from the first on, where they part first, and what differs
/// how often.
pub fn traces(first: &[Step], second: &[Step]) -> (u64, Option<Divergence>, Vec<ComponentDifference>) {
    let (mut parted, mut counts): (Option<Divergence>, BTreeMap<usize, ComponentDifference>) = (None, BTreeMap::new());
    let mut equal = 0;
    for (one, other) in first.iter().zip(second) {
        let Some(divergence) = steps(one, other) else {
            equal += u64::from(parted.is_none());
            continue;
        };
        for component in &divergence.differing {
            let place = Component::ALL.iter().position(|known| known == component).unwrap_or_default();
            let new = ComponentDifference { component: *component, first_step: one.step, steps: 0 };
            counts.entry(place).or_insert(new).steps += 1;
        }
        parted.get_or_insert(divergence);
    }
    (equal, parted, counts.into_values().collect())
}

/// How many lines of a command's telemetry are equal from the first on, and where the two part; the chains are left out,
/// since they follow from the lines.
pub fn metrics(recorded: &[Metric], replayed: &[Metric]) -> (u64, Option<Divergence>) {
    let same =
        |a: &Metric, b: &Metric| (a.step, a.values.write().canonical()) == (b.step, b.values.write().canonical());
    let equal = recorded.iter().zip(replayed).take_while(|(a, b)| same(a, b)).count();
    let (first, second) = (recorded.get(equal), replayed.get(equal));
    let shown = |line: Option<&Metric>| {
        line.map_or_else(|| "none".into(), |line| format!("step {} {}", line.step, line.values.write().canonical()))
    };
    let divergence = first.or(second).map(|line| Divergence {
        step: line.step,
        component: Component::Telemetry,
        recorded: shown(first),
        replayed: shown(second),
        differing: Vec::from([Component::Telemetry]),
    });
    (equal as u64, divergence)
}

/// The report on a command that was run again: its telemetry line by line, and its outputs by digest.
pub fn commands(
    (recorded, first): (&Run, &[Metric]),
    (replayed, second): (&Run, &[Metric]),
    allowed: Vec<PinDifference>,
) -> Replay {
    let (equal_steps, divergence) = metrics(first, second);
    let done = replayed.status == Status::Succeeded;
    let outputs = if done { outputs(&recorded.artifacts, &replayed.artifacts) } else { Vec::new() };
    // What a run that broke off did not say any more is no difference.
    let divergence = divergence.filter(|found| done || found.replayed != "none");
    let parted = divergence.is_some() || outputs.iter().any(|file| !file.equal());
    let outcome = match (parted, done) {
        (true, _) => Outcome::Diverged,
        (false, true) => Outcome::Equal,
        (false, false) => Outcome::Incomplete,
    };
    Replay {
        run: recorded.id(),
        plan: recorded.plan,
        replayed: replayed.id(),
        allowed,
        outcome,
        from: 0,
        snapshot: None,
        steps: first.len() as u64,
        equal_steps,
        divergence,
        outputs,
        audit: None,
        localization: None,
    }
}

/// The values of some fields of a line, in words.
fn values(line: &Value, fields: &[&str]) -> String {
    let parts: Vec<String> = fields.iter().map(|field| format!("{field} {}", text(line.get(field)))).collect();
    parts.join(", ")
}

/// The first stage that differs, on both sides.
fn stages(first: &[Stage], second: &[Stage]) -> (String, String) {
    let bits = |stages: &[Stage], index: usize| stages.get(index).map(|stage| stage.write().canonical());
    let index = (0..first.len().max(second.len())).find(|index| bits(first, *index) != bits(second, *index));
    let shown = |stages: &[Stage]| {
        let stage = index.and_then(|index| stages.get(index));
        stage.map_or_else(|| "none".into(), |stage| stage.write().canonical())
    };
    (shown(first), shown(second))
}

/// Every pin of the recorded stack that the present one does not meet, before the worker has said anything.
pub fn stacks(recorded: &Stack, now: &Stack) -> Vec<PinDifference> {
    let mut found = Vec::new();
    let mut pin = |what: &str, recorded: String, now: String| {
        if recorded != now {
            found.push(PinDifference { what: what.into(), recorded, now });
        }
    };
    pin("worker", format!("{}", recorded.worker), format!("{}", now.worker));
    pin("processor", recorded.processor.clone(), now.processor.clone());
    let features = |stack: &Stack| format!("{}", stack.processor_features);
    pin("processor features", features(recorded), features(now));
    pin("system", recorded.system.clone(), now.system.clone());
    let (then, present) = (libraries(recorded), libraries(now));
    let names: BTreeSet<&&str> = then.keys().chain(present.keys()).collect();
    for name in names {
        let shown = |libraries: &BTreeMap<&str, String>| libraries.get(*name).cloned().unwrap_or_else(|| "none".into());
        pin(&format!("library {name}"), shown(&then), shown(&present));
    }
    found
}

/// Digests of the libraries by file name; a name that occurs twice keeps both.
fn libraries(stack: &Stack) -> BTreeMap<&str, String> {
    let mut all: BTreeMap<&str, String> = BTreeMap::new();
    for library in &stack.libraries {
        let entry = all.entry(&library.name).or_default();
        let space = if entry.is_empty() { "" } else { " " };
        *entry = format!("{entry}{space}{}", library.digest);
    }
    all
}

/// Every pin that only the running worker can tell: what it says about itself before its first step.
pub fn reports(recorded: &Reported, now: &Reported) -> Vec<PinDifference> {
    let differences = documents(&recorded.write(), &now.write());
    let pin = |difference: Difference| PinDifference {
        what: difference.pointer.trim_start_matches('/').replace('_', " "),
        recorded: difference.first,
        now: difference.second,
    };
    differences.into_iter().map(pin).collect()
}

/// The differences as a refusal: `replay.pin`, one fault each.
pub fn refusal(differences: &[PinDifference]) -> Faults {
    let mut faults = Faults::new();
    for PinDifference { what, recorded, now } in differences {
        faults.add("run#/stack", "replay.pin", format!("{what} differs: recorded {recorded}, now {now}"));
    }
    faults
}

/// Outputs of two runs of one plan, by path.
pub fn outputs(recorded: &[Artifact], replayed: &[Artifact]) -> Vec<OutputComparison> {
    let by_path =
        |files: &[Artifact]| files.iter().map(|file| (file.path.clone(), file.digest)).collect::<BTreeMap<_, _>>();
    let (first, second) = (by_path(recorded), by_path(replayed));
    let paths: BTreeSet<&RelativePath> = first.keys().chain(second.keys()).collect();
    let compare = |path: &RelativePath| OutputComparison {
        path: path.as_str().into(),
        recorded: first.get(path).copied(),
        replayed: second.get(path).copied(),
    };
    paths.into_iter().map(compare).collect()
}

impl OutputComparison {
    /// Whether both have the file, with the same bytes.
    pub fn equal(&self) -> bool {
        self.recorded.is_some() && self.recorded == self.replayed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    use crate::canonical::parse;
    use crate::digest::Digest;
    use crate::manifest::run::Library;
    use crate::number::{Bits32, Finite};

    fn finite(number: f64) -> Finite {
        Finite::new(number).unwrap()
    }

    fn step() -> Step {
        let digest = |text: &str| Digest::of(text.as_bytes());
        let stage = Stage {
            stage: StageName::Input,
            checked: 8,
            nan: 0,
            positive_infinite: 0,
            negative_infinite: 0,
            maximum: finite(0.0),
            tensors: vec![],
        };
        Step {
            step: 3,
            epoch: 0,
            micro_batches: 1,
            samples: digest("samples"),
            learning_rate: finite(0.0),
            loss: Some(finite(1.5)),
            loss_bits: Bits32::parse("3fc00000").unwrap(),
            loss_scale: finite(1.0),
            gradient_norm: Some(finite(1.0)),
            gradient_norm_bits: Bits32::parse("3f800000").unwrap(),
            stages: vec![stage],
            gradients: digest("gradients"),
            parameters: digest("parameters"),
            optimizer: digest("optimizer"),
            averaged: None,
            generator: digest("generator"),
            cursor: digest("cursor"),
            skipped: false,
            chain: digest("chain"),
        }
    }

    #[test]
    fn equal_steps_have_no_divergence_whatever_their_chains_are() {
        let other = Step { chain: Digest::of(b"another"), ..step() };
        assert_eq!(steps(&step(), &other), None);
    }

    #[test]
    fn every_field_but_the_chain_belongs_to_one_component() {
        let Value::Object(members) = step().write() else { unreachable!() };
        let mut claimed: Vec<&str> = FIELDS.iter().flat_map(|(_, fields)| fields.iter().copied()).collect();
        claimed.push("chain");
        claimed.sort_unstable();
        assert_eq!(claimed, members.keys().map(String::as_str).collect::<Vec<_>>());
        let named = FIELDS.iter().map(|(component, _)| *component).chain([Component::Telemetry]);
        assert_eq!(named.collect::<Vec<_>>(), Component::ALL);
    }

    #[test]
    fn the_first_component_in_computing_order_is_named_with_all_that_follow() {
        let mut other = step();
        other.parameters = Digest::of(b"p");
        other.loss_bits = Bits32::parse("3fc00001").unwrap();
        other.gradients = Digest::of(b"g");
        let divergence = steps(&step(), &other).unwrap();
        assert_eq!((divergence.step, divergence.component), (3, Component::Loss));
        assert_eq!(divergence.differing, [Component::Loss, Component::Gradients, Component::Parameters]);
        assert_eq!(
            (divergence.recorded.as_str(), divergence.replayed.as_str()),
            ("loss_bits 3fc00000", "loss_bits 3fc00001")
        );
    }

    #[test]
    fn traces_are_compared_as_far_as_both_go() {
        let at = |number: u64, loss: &str| Step { step: number, loss_bits: Bits32::parse(loss).unwrap(), ..step() };
        let first = [at(1, "3fc00000"), at(2, "3fc00000"), at(3, "3fc00000"), at(4, "3fc00000")];
        let second = [at(1, "3fc00000"), at(2, "3fc00001"), at(3, "3fc00000")];
        let (equal, parted, components) = traces(&first, &second);
        assert_eq!((equal, parted.map(|parted| parted.step)), (1, Some(2)));
        assert_eq!(components, [ComponentDifference { component: Component::Loss, first_step: 2, steps: 1 }]);
        assert_eq!(traces(&first, &first[..2]), (2, None, vec![]));
    }

    #[test]
    fn the_first_stage_that_shows_a_divergence_is_named() {
        let mut other = step();
        other.parameters = Digest::of(b"p");
        assert_eq!(first_stage(&step(), &other), StageName::Optimizer);
        other.gradients = Digest::of(b"g");
        assert_eq!(first_stage(&step(), &other), StageName::Backward);
        other.stages[0].maximum = finite(2.0);
        assert_eq!(first_stage(&step(), &other), StageName::Input);
    }

    #[test]
    fn the_two_zeros_differ() {
        let other = Step { learning_rate: finite(-0.0), ..step() };
        assert_eq!(steps(&step(), &other).map(|d| d.component), Some(Component::LearningRate));
        let mut stage = step();
        stage.stages[0].maximum = finite(-0.0);
        let divergence = steps(&step(), &stage).unwrap();
        assert_eq!(divergence.component, Component::Stages);
        assert!(divergence.replayed.contains("\"maximum\":-0.0"), "{}", divergence.replayed);
    }

    #[test]
    fn documents_are_compared_to_their_leaves() {
        let read = |text: &str| parse(text.as_bytes()).unwrap();
        let (first, second) = (read(r#"{"a":[1,2],"b":{"c":"x"},"z":0.0}"#), read(r#"{"a":[1],"b":{"c":"y"},"z":0}"#));
        let found: Vec<(String, String, String)> =
            documents(&first, &second).into_iter().map(|d| (d.pointer, d.first, d.second)).collect();
        let expected = [("/a/1", "2", "none"), ("/b/c", "x", "y"), ("/z", "0.0", "0")];
        assert_eq!(found, expected.map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string())));
        assert_eq!(documents(&first, &first), []);
    }

    #[test]
    fn every_pin_of_the_stack_is_named_at_once() {
        let library = |name: &str, text: &str| Library { name: name.into(), digest: Digest::of(text.as_bytes()) };
        let stack = Stack {
            worker: Digest::of(b"worker"),
            reported: None,
            libraries: vec![library("a.so", "1"), library("b.so", "2"), library("b.so", "3")],
            processor: "P".into(),
            processor_features: Digest::of(b"f"),
            system: "linux x86_64".into(),
        };
        assert_eq!(stacks(&stack, &stack), []);
        let other = Stack {
            worker: Digest::of(b"other"),
            libraries: vec![library("b.so", "2"), library("c.so", "1")],
            processor: "Q".into(),
            processor_features: Digest::of(b"g"),
            system: "linux aarch64".into(),
            ..stack.clone()
        };
        let differences = stacks(&stack, &other);
        let named: Vec<&str> = differences.iter().map(|d| d.what.as_str()).collect();
        let expected =
            ["worker", "processor", "processor features", "system", "library a.so", "library b.so", "library c.so"];
        assert_eq!(named, expected);
        assert_eq!(refusal(&differences).0.len(), 7);
    }

    #[test]
    fn what_the_worker_says_about_itself_is_a_pin() {
        let reported = Reported {
            version: "0.1.0".into(),
            cpu_capability: "AVX2".into(),
            threads: 1,
            parameters: 10,
            samples_per_epoch: 4,
        };
        assert_eq!(reports(&reported, &reported), []);
        let other = Reported { threads: 2, cpu_capability: "AVX512".into(), ..reported.clone() };
        let named: Vec<String> = reports(&reported, &other).into_iter().map(|d| d.what).collect();
        assert_eq!(named, ["cpu capability", "threads"]);
    }

    #[test]
    fn a_missing_or_additional_output_is_no_equal_one() {
        let file = |path: &str, text: &str| Artifact {
            path: RelativePath::new(path).unwrap(),
            digest: Digest::of(text.as_bytes()),
            bytes: 1,
        };
        let recorded = [file("a", "1"), file("b", "2"), file("c", "3")];
        let replayed = [file("a", "1"), file("b", "x"), file("d", "3")];
        let equal: Vec<(String, bool)> =
            outputs(&recorded, &replayed).iter().map(|o| (o.path.clone(), o.equal())).collect();
        let expected = [("a", true), ("b", false), ("c", false), ("d", false)];
        assert_eq!(equal, expected.map(|(path, equal)| (path.to_string(), equal)));
    }
}
