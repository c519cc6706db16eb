//! A trained model goes on from a prompt.

use xt_core::digest::Digest;
use xt_core::field::Field;
use xt_core::manifest::job::{Job, Message};
use xt_core::manifest::plan::Plan;
use xt_core::number::Finite;

use crate::desk::{Desk, LLAMA, Left, plan};

fn sample(weights: &[u8], prompt: &str, temperature: f64, seed: u64) -> Left {
    sample_of(&plan(&[], 1), weights, prompt, temperature, seed)
}

fn sample_of(plan: &Plan, weights: &[u8], prompt: &str, temperature: f64, seed: u64) -> Left {
    let desk = Desk::new(plan);
    desk.give(weights);
    let candidate = plan.native().unwrap().clone();
    let job = Job::Sample {
        model: candidate.model.into(),
        base: candidate.base.into(),
        weights: Digest::of(weights),
        tokenizer: candidate.tokenizer,
        execution: candidate.execution,
        prompt: prompt.into(),
        tokens: 40,
        temperature: Finite::new(temperature).unwrap(),
        seed,
    };
    desk.work(job.write().canonical().as_bytes())
}

fn text(left: &Left) -> String {
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left.messages
        .iter()
        .filter_map(|message| if let Message::Text { text } = message { Some(text.as_str()) } else { None })
        .collect()
}

fn weights() -> Vec<u8> {
    let plan = plan(&[], 1);
    Desk::new(&plan).train(&plan, None).output("model/model.safetensors")
}

#[test]
fn the_same_seed_writes_the_same_text_and_another_does_not() {
    let weights = weights();
    let write = |temperature, seed| text(&sample(&weights, "Call me ", temperature, seed));
    assert_eq!(write(1.0, 1), write(1.0, 1));
    assert_ne!(write(1.0, 1), write(1.0, 2));
    assert_eq!(write(0.0, 1), write(0.0, 2), "the likeliest token needs no draw");
    assert!(write(1.0, 1).chars().count() > 20);
}

#[test]
fn a_llama_writes_too_and_the_weights_of_a_gpt_are_none_of_a_llama() {
    let llama = plan(&[LLAMA], 1);
    let own = Desk::new(&llama).train(&llama, None).output("model/model.safetensors");
    let write = |seed| text(&sample_of(&llama, &own, "Call me ", 1.0, seed));
    assert_eq!(write(1), write(1));
    assert_ne!(write(1), write(2));
    let left = sample_of(&llama, &weights(), "Call me ", 1.0, 1);
    assert!(left.failure().contains("it has no tensor lm_head.weight"), "{}", left.failure());
    assert!(left.failure().contains("it has a tensor transformer.wte.weight that the model has not"));
}

#[test]
fn a_damaged_model_and_an_empty_prompt_are_refused() {
    let mut weights = weights();
    assert!(sample(&weights, "", 1.0, 1).failure().contains("the prompt has no token"));
    weights.pop();
    assert!(sample(&weights, "x", 1.0, 1).failure().contains("the model file does not fit"));
}
