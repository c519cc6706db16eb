//! Measuring a trained model: against a computation that shares nothing with the worker, again and again, and with what
//! cannot be measured.
#![expect(clippy::cast_precision_loss, reason = "small counts")]

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use xt_core::canonical::parse;
use xt_core::digest::Digest;
use xt_core::field::Manifest;
use xt_core::fingerprint;
use xt_core::manifest::dataset::{Dataset, Format, GroupBy, Splitting};
use xt_core::manifest::evaluation::{
    Evaluator, HeldOut, Leakage, Measure, Metrics, Parameters as Which, Part, Shared, Slices, Spec, Subject,
};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::name::Name;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::admit::{Offered, admit};
use xt_core::verb::evaluate::{Comparison, Found, METRICS, SAMPLES, compile, lines};

use crate::desk::{Desk, Left, plan};

const HELD_OUT: [(&str, &str); 2] = [
    ("c.txt", "There is nothing surprising in this: if they but knew it, almost all men cherish this."),
    ("d.txt", "Loomings."),
];

/// Layers, heads, width and context of the desk's model.
const SHAPE: (usize, usize, usize, usize) = (2, 2, 32, 16);

fn dataset() -> Dataset {
    let offered = HELD_OUT.map(|(path, text)| Offered {
        path: RelativePath::new(path).unwrap(),
        digest: Digest::of(text.as_bytes()),
        bytes: text.len() as u64,
    });
    let splitting = Splitting { group_by: GroupBy::File, salt: String::new(), permille: BTreeMap::new() };
    admit(Format::Text, &offered, &BTreeMap::new(), splitting).unwrap()
}

fn spec(batch: u64, seed: u64) -> Spec {
    Spec {
        name: Name::new("held-out").unwrap(),
        evaluator: Evaluator::NextToken { batch, resamples: 500, confidence: Finite::new(0.9).unwrap() },
        parameters: Which::Trained,
        data: HeldOut { dataset: dataset().id(), split: Name::new("train").unwrap() },
        slices: Slices::Member,
        leakage: Leakage { minimum_bytes: 16, shared: Shared::Refuse },
        seed,
    }
}

/// The plan that measures a model of `trained` with these weights.
fn measuring(trained: &Plan, weights: &[u8], spec: Spec) -> Plan {
    let subject = Subject {
        bundle: Digest::of(b"bundle"),
        run: Digest::of(b"run"),
        candidate: fingerprint::candidate(trained.native().unwrap()),
        name: trained.native().unwrap().name.clone(),
        seed: trained.seed,
        weights: Digest::of(weights),
    };
    let mut comparison = Comparison::new(&spec);
    for (_, text) in HELD_OUT {
        comparison.held_out(text.as_bytes(), lines(text.as_bytes()));
    }
    let part = |(path, text): (&str, &str)| Part { path: RelativePath::new(path).unwrap(), tokens: text.len() as u64 };
    let found = Found {
        subject,
        weights_bytes: weights.len() as u64,
        tokenizer_bytes: 0,
        parts: HELD_OUT.map(part).into(),
        overlap: comparison.overlap(),
        fitted: Vec::new(),
        base: Vec::new(),
    };
    compile(spec, trained.native().unwrap().clone(), dataset(), trained.intent.clone(), found).unwrap()
}

fn weights(trained: &Plan) -> Vec<u8> {
    let left = Desk::new(trained).train(trained, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left.output("model/model.safetensors")
}

fn measured(plan: &Plan, weights: &[u8]) -> Left {
    let desk = Desk::new(plan);
    desk.give(weights);
    for (_, text) in HELD_OUT {
        desk.give(text.as_bytes());
    }
    desk.evaluate(plan)
}

fn metrics(left: &Left) -> Vec<Measure> {
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    Metrics::decode(&parse(&left.output(METRICS)).unwrap()).unwrap().metrics
}

fn value(metrics: &[Measure], name: &str, slice: Option<&str>) -> f64 {
    let found = metrics.iter().find(|measure| measure.name == name && measure.slice.as_deref() == slice);
    found.unwrap_or_else(|| panic!("no {name} of {slice:?}")).value.get()
}

/// The model in double precision and plain loops, from the file of its weights.
struct Plain(BTreeMap<String, Vec<f64>>);

impl Plain {
    fn of(file: &[u8]) -> Self {
        let stored = SafeTensors::deserialize(file).unwrap();
        let values = |data: &[u8]| {
            data.chunks(4).map(|bytes| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()))).collect::<Vec<f64>>()
        };
        Self(stored.tensors().into_iter().map(|(name, tensor)| (name, values(tensor.data()))).collect())
    }

    fn get(&self, name: &str) -> &[f64] {
        &self.0[&format!("transformer.{name}")]
    }

    fn linear(&self, name: &str, input: &[f64]) -> Vec<f64> {
        let (weight, mut out) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")).to_vec());
        let width = out.len();
        for (row, value) in input.iter().enumerate() {
            for (column, sum) in out.iter_mut().enumerate() {
                *sum += value * weight[row * width + column];
            }
        }
        out
    }

    fn normalised(&self, name: &str, input: &[f64]) -> Vec<f64> {
        let count = input.len() as f64;
        let mean = input.iter().sum::<f64>() / count;
        let variance = input.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let (weight, bias) = (self.get(&format!("{name}.weight")), self.get(&format!("{name}.bias")));
        let scaled = input.iter().map(|value| (value - mean) / (variance + 1e-5).sqrt());
        scaled.zip(weight).zip(bias).map(|((value, weight), bias)| value * weight + bias).collect()
    }

    /// Adds what the heads of a block read from all positions up to each.
    fn attend(&self, block: usize, stream: &mut [Vec<f64>]) {
        let (_, heads, width, _) = SHAPE;
        let size = width / heads;
        let at = |part: &str| format!("h.{block}.{part}");
        let mixed: Vec<Vec<f64>> =
            stream.iter().map(|x| self.linear(&at("attn.c_attn"), &self.normalised(&at("ln_1"), x))).collect();
        for place in 0..stream.len() {
            let mut seen = vec![0.0; width];
            for head in 0..heads {
                let span = |part: usize| part * width + head * size..part * width + (head + 1) * size;
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let scores: Vec<f64> = (0..=place)
                    .map(|other| dot(&mixed[place][span(0)], &mixed[other][span(1)]) / (size as f64).sqrt())
                    .collect();
                let all: f64 = scores.iter().map(|score| score.exp()).sum();
                for (other, score) in scores.iter().enumerate() {
                    for (sum, value) in seen[head * size..].iter_mut().zip(&mixed[other][span(2)]) {
                        *sum += score.exp() / all * value;
                    }
                }
            }
            let out = self.linear(&at("attn.c_proj"), &seen);
            stream[place].iter_mut().zip(out).for_each(|(x, y)| *x += y);
        }
    }

    fn feed_forward(&self, block: usize, x: &mut [f64]) {
        let at = |part: &str| format!("h.{block}.{part}");
        let mut inner = self.linear(&at("mlp.c_fc"), &self.normalised(&at("ln_2"), x));
        for value in &mut inner {
            let inside = (2.0 / std::f64::consts::PI).sqrt() * (*value + 0.044_715 * value.powi(3));
            *value *= 0.5 * (1.0 + inside.tanh());
        }
        let out = self.linear(&at("mlp.c_proj"), &inner);
        x.iter_mut().zip(out).for_each(|(x, y)| *x += y);
    }

    /// Loss and right answers of each predicted token of a text, in windows of the context.
    fn read(&self, text: &[u8]) -> Vec<(f64, bool)> {
        let (layers, _, width, context) = SHAPE;
        let mut found = Vec::new();
        for start in (0..text.len() - 1).step_by(context) {
            let window = &text[start..text.len().min(start + context + 1)];
            let row = |name: &str, index: usize| self.get(name)[index * width..(index + 1) * width].to_vec();
            let mut stream: Vec<Vec<f64>> = (0..window.len() - 1)
                .map(|i| {
                    let (token, place) = (row("wte.weight", window[i].into()), row("wpe.weight", i));
                    token.iter().zip(place).map(|(a, b)| a + b).collect()
                })
                .collect();
            for block in 0..layers {
                self.attend(block, &mut stream);
                for x in &mut stream {
                    self.feed_forward(block, x);
                }
            }
            for (x, due) in stream.iter().zip(&window[1..]) {
                let x = self.normalised("ln_f", x);
                let logit = |token: usize| row("wte.weight", token).iter().zip(&x).map(|(a, b)| a * b).sum::<f64>();
                let logits: Vec<f64> = (0..256).map(logit).collect();
                let all: f64 = logits.iter().map(|logit| logit.exp()).sum();
                let best = (0..256).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
                found.push((all.ln() - logits[usize::from(*due)], best == usize::from(*due)));
            }
        }
        found
    }
}

#[test]
fn metrics_are_those_of_a_plain_computation_in_double_precision() {
    let trained = plan(&[("\"steps\":8", "\"steps\":40")], 1);
    let weights = weights(&trained);
    let found = metrics(&measured(&measuring(&trained, &weights, spec(3, 1)), &weights));
    assert_eq!(found.len(), 9);
    let plain = Plain::of(&weights);
    let answers: Vec<Vec<(f64, bool)>> = HELD_OUT.iter().map(|(_, text)| plain.read(text.as_bytes())).collect();
    let sets = [(None, answers.concat()), (Some("c.txt"), answers[0].clone()), (Some("d.txt"), answers[1].clone())];
    for (slice, answers) in sets {
        let count = answers.len() as f64;
        let loss = answers.iter().map(|(loss, _)| loss).sum::<f64>() / count;
        let right = answers.iter().filter(|(_, right)| *right).count() as f64 / count;
        assert!((value(&found, "loss", slice) - loss).abs() < 2e-6, "{slice:?} {loss}");
        assert!((value(&found, "perplexity", slice) / loss.exp() - 1.0).abs() < 2e-6, "{slice:?}");
        assert!((value(&found, "accuracy", slice) - right).abs() < 1e-12, "{slice:?} {right}");
    }
    // A control: the same text through other weights is something else.
    let other = plan(&[("\"steps\":8", "\"steps\":40")], 2);
    let strange = Plain::of(&self::weights(&other)).read(HELD_OUT[0].1.as_bytes());
    let loss = strange.iter().map(|(loss, _)| loss).sum::<f64>() / strange.len() as f64;
    assert!((value(&found, "loss", Some("c.txt")) - loss).abs() > 1e-3);
}

#[test]
fn measuring_again_gives_the_same_bytes_and_another_seed_other_intervals_only() {
    let trained = plan(&[], 1);
    let weights = weights(&trained);
    let files = |left: &Left| [left.output(METRICS), left.output(SAMPLES)];
    let one = measuring(&trained, &weights, spec(4, 1));
    let (first, again) = (measured(&one, &weights), measured(&one, &weights));
    assert_eq!(files(&first), files(&again));
    let batches = first.messages.iter().filter(|message| matches!(message, Message::Measured { .. })).count() as u64;
    assert_eq!((batches, one.work.samples_per_epoch), (one.work.steps, 7));
    let other = measured(&measuring(&trained, &weights, spec(4, 2)), &weights);
    assert_eq!(other.output(SAMPLES), first.output(SAMPLES));
    let (a, b) = (metrics(&first), metrics(&other));
    assert!(
        a.iter().zip(&b).all(|(a, b)| (&a.name, a.value, a.standard_error) == (&b.name, b.value, b.standard_error))
    );
    assert!(a.iter().zip(&b).any(|(a, b)| a.interval != b.interval));
    let strange = self::weights(&plan(&[], 2));
    let control = measured(&measuring(&trained, &strange, spec(4, 1)), &strange);
    assert_ne!(control.output(SAMPLES), first.output(SAMPLES), "other weights give other losses");
}

/// A NaN in the parameters makes no metric: the run fails and says where.
#[test]
fn a_model_with_a_nan_in_it_is_no_number_but_an_error() {
    let trained = plan(&[], 1);
    let mut weights = weights(&trained);
    let last = weights.len() - 4;
    weights[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    let left = measured(&measuring(&trained, &weights, spec(4, 1)), &weights);
    assert_eq!(left.code, Some(1), "{}", left.stderr);
    assert!(left.failure().contains("not finite on held-out text"), "{}", left.failure());
    assert!(!left.wrote(METRICS) && !left.wrote(SAMPLES));
}

/// The worker derives the plan again, and looks for what the plan promises.
#[test]
fn a_plan_that_was_changed_or_does_not_fit_its_files_is_refused() {
    let trained = plan(&[], 1);
    let weights = weights(&trained);
    let good = measuring(&trained, &weights, spec(4, 1));
    let mut forged = good.clone();
    forged.evaluation.as_mut().unwrap().overlap.shared_examples = 1;
    assert!(measured(&forged, &weights).failure().contains("evaluation.leakage"));
    let mut other = good.clone();
    other.work.samples_per_epoch += 1;
    assert!(measured(&other, &weights).failure().contains("plan.derived"));
    let left = Desk::new(&good).evaluate(&good);
    assert!(left.failure().contains("cannot be read"), "{}", left.failure());
    let control = measured(&good, &weights);
    assert_eq!(control.code, Some(0), "{}", control.stderr);
}
