//! Text from a trained model: one token at a time, each from the probabilities that the model gives after all before it.

use std::io::Write;
use std::path::Path;

use tch::Tensor;
use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Base, Execution, Model, Tokenizer};
use xt_core::manifest::job::Message;
use xt_core::random::Stream;
use xt_data::Text;
use xt_torch::memory::floats;

use crate::fault::TrainError;
use crate::model::{Network, blind, family};
use crate::telemetry::Telemetry;
use crate::{adapter, inputs, regime};

/// What is asked for, as the job says it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The model.
    pub model: &'a Model,
    /// What it began from.
    pub base: &'a Base,
    /// Digest of its weights.
    pub weights: Digest,
    /// Its tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// On what to compute.
    pub execution: &'a Execution,
    /// What to go on from.
    pub prompt: &'a str,
    /// Tokens to write.
    pub tokens: u64,
    /// Divides the logits.
    pub temperature: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// Writes the text, stretch by stretch.
pub fn sample<W: Write>(request: &Request<'_>, folder: &Path, telemetry: &mut Telemetry<W>) -> Result<(), TrainError> {
    let pins = regime::pin(request.execution)?;
    if request.model.ends().is_some() {
        return Err(TrainError::Model(format!("a {} writes no text", request.model.word())));
    }
    let family = family(request.model)?;
    let parameters = adapter::trained(request.model, request.base, request.weights, folder)?;
    let tokenizer = request.tokenizer.digest().map(|digest| inputs::read(folder, digest)).transpose()?;
    let text = Text::load(request.tokenizer, tokenizer.as_deref())?;
    let model = family.network(&parameters)?;
    telemetry.say(&Message::Ready {
        version: env!("CARGO_PKG_VERSION").into(),
        samples_per_epoch: 0,
        parameters: parameters.layout.parameters(),
        cpu_capability: pins.cpu_capability,
        threads: pins.threads,
    })?;
    tch::no_grad(|| write_text(request, &*model, &text, telemetry))?;
    telemetry.say(&Message::Completed { steps: 0, outputs: Vec::new() })
}

fn write_text<W: Write>(
    request: &Request<'_>,
    model: &dyn Network,
    text: &Text,
    telemetry: &mut Telemetry<W>,
) -> Result<(), TrainError> {
    let context = usize::try_from(request.model.context()).unwrap_or(usize::MAX);
    let mut tokens = text.encode(request.prompt.as_bytes())?;
    if tokens.is_empty() {
        return Err(TrainError::EmptyPrompt);
    }
    if let Some(token) = tokens.iter().find(|token| u64::from(**token) >= request.model.vocabulary()) {
        return Err(TrainError::Model(format!("token {token} of the prompt is outside its vocabulary")));
    }
    let stream = Stream::new(request.seed, "sample", 0);
    let mut said = Said { tokens: tokens.len(), before: tokens.len() - 1 };
    for index in 0..request.tokens {
        let window = &tokens[tokens.len().saturating_sub(context)..];
        let logits = last_logits(model, window, request.model.vocabulary())?;
        let chosen = choose(&logits, request.temperature, &stream, index).ok_or(TrainError::NoLogits(index))?;
        tokens.push(chosen);
        said.go_on(text, &tokens, index + 1 == request.tokens, telemetry)?;
    }
    Ok(())
}

/// Logits for the token after `window`.
fn last_logits(model: &dyn Network, window: &[u32], vocabulary: u64) -> Result<Vec<f32>, TrainError> {
    let seen: Vec<i64> = window.iter().copied().map(i64::from).collect();
    let logits = model.forward(&Tensor::f_from_slice(&seen)?.f_view([1, -1])?, None, &mut blind)?;
    let width = usize::try_from(vocabulary).unwrap_or(0);
    let all = floats(&logits)?;
    Ok(all[all.len().saturating_sub(width)..].to_vec())
}

/// The token with the largest logit at temperature 0, the first one of equals; otherwise a draw from the softmax of the
/// logits divided by the temperature, by the inverse of the running sum. Exponentials are those of the `libm` crate.
/// `None` when the logits are no distribution.
pub fn choose(logits: &[f32], temperature: f64, stream: &Stream, index: u64) -> Option<u32> {
    if logits.iter().any(|logit| logit.is_nan()) {
        return None;
    }
    let (likeliest, largest) =
        logits.iter().copied().enumerate().rev().max_by(|(_, left), (_, right)| left.total_cmp(right))?;
    if !largest.is_finite() {
        return None;
    }
    let place = if temperature == 0.0 {
        likeliest
    } else {
        let weight = |logit: f32| libm::exp((f64::from(logit) - f64::from(largest)) / temperature);
        let all: f64 = logits.iter().copied().map(weight).sum();
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let aim = (stream.word(index) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0) * all;
        let mut sum = 0.0;
        let drawn = logits.iter().position(|logit| {
            sum += weight(*logit);
            sum > aim
        });
        // The product above can round up to the last sum; the likeliest stands in then.
        drawn.unwrap_or(likeliest)
    };
    u32::try_from(place).ok()
}

/// How far the text was said: characters whose bytes are spread over several tokens wait for the last of them.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// Tokens that are fully said.
    tokens: usize,
    /// Tokens before the last stretch of those: what a token says can depend on the one before it.
    before: usize,
}

/// Bytes of a character at most, so tokens it can be spread over.
const LONGEST: usize = 4;

impl Said {
    fn go_on<W: Write>(
        &mut self,
        text: &Text,
        tokens: &[u32],
        last: bool,
        telemetry: &mut Telemetry<W>,
    ) -> Result<(), TrainError> {
        let old = text.decode(&tokens[self.before..self.tokens])?;
        let new = text.decode(&tokens[self.before..])?;
        if new.ends_with(char::REPLACEMENT_CHARACTER) && !last && tokens.len() - self.tokens < LONGEST {
            return Ok(());
        }
        let added = new.strip_prefix(&old).unwrap_or(&new).to_string();
        *self = Self { before: self.tokens, tokens: tokens.len() };
        telemetry.say(&Message::Text { text: added })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperature_zero_takes_the_first_of_the_likeliest() {
        let stream = Stream::new(1, "sample", 0);
        assert_eq!(choose(&[0.0, 2.0, -1.0, 2.0], 0.0, &stream, 0), Some(1));
        assert_eq!(choose(&[f32::NAN, 1.0], 0.0, &stream, 0), None);
        assert_eq!(choose(&[f32::NEG_INFINITY; 2], 1.0, &stream, 0), None);
        assert_eq!(choose(&[f32::INFINITY, 1.0], 1.0, &stream, 0), None);
    }

    #[test]
    fn draws_follow_the_softmax_and_the_seed() {
        let draws = |seed, temperature| -> Vec<u32> {
            let stream = Stream::new(seed, "sample", 0);
            (0..20_000)
                .map(|index| choose(&[0.0, 1.0, f32::NEG_INFINITY], temperature, &stream, index).unwrap())
                .collect()
        };
        let share = |draws: &[u32]| draws.iter().filter(|token| **token == 1).count() as f64 / draws.len() as f64;
        assert_eq!(draws(1, 1.0), draws(1, 1.0));
        assert_ne!(draws(1, 1.0), draws(2, 1.0));
        assert!(draws(1, 1.0).iter().all(|token| *token < 2));
        // e / (1 + e) and e^2 / (1 + e^2), to four standard errors.
        assert!((share(&draws(1, 1.0)) - 0.731).abs() < 0.0126);
        assert!((share(&draws(1, 0.5)) - 0.881).abs() < 0.0092);
    }
}
