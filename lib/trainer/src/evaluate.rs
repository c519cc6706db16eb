//! Measures a trained model on held-out data: a forward pass over every window of a text, row or image, without dropout,
//! gradients or anything that a training run would notice.

pub mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use tch::{Reduction, Tensor};
use xt_core::field::{Field, Manifest};
use xt_core::manifest::candidate::{Candidate, Model};
use xt_core::manifest::dataset::Member;
use xt_core::manifest::evaluation::{Evaluating, Measure, Metrics, Window};
use xt_core::manifest::job::Message;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::StageName;
use xt_core::number::Finite;
use xt_core::relpath::RelativePath;
use xt_core::verb::compile::check_plan;
use xt_core::verb::{evaluate, measure};
use xt_data::records::Sample;
use xt_data::{Corpus, Text};
use xt_torch::memory::floats;

use crate::evaluate::rows::HeldOut;
use crate::fault::TrainError;
use crate::model::{Network, family, inner};
use crate::objective::NO_TARGET;
use crate::perform::{Ending, Folders};
use crate::probe::Counts;
use crate::telemetry::Telemetry;
use crate::{adapter, data, inputs, regime};

/// Measures by `plan` and writes what came out.
pub fn evaluate<W: Write>(
    plan: &Plan,
    folders: Folders<'_>,
    telemetry: &mut Telemetry<W>,
) -> Result<Ending, TrainError> {
    let differences = regime::environment(&plan.environment, |name| std::env::var(name).ok());
    if !differences.is_empty() {
        return Err(TrainError::Pins(differences));
    }
    check_plan(plan).map_err(TrainError::Plan)?;
    let Some(evaluating) = &plan.evaluation else {
        return Err(TrainError::Model("the plan trains and measures nothing".into()));
    };
    let candidate = plan.native().ok_or(TrainError::Command)?;
    let pins = regime::pin(&candidate.execution)?;
    let family = family(&candidate.model)?;
    let weights = evaluating.subject.weights;
    let parameters = adapter::trained(&candidate.model, &candidate.base, weights, folders.inputs)?;
    let slices = Slices::of_plan(plan, evaluating);
    let ready = Ready { parameters: parameters.layout.parameters(), pins };
    let (metrics, lines) = if candidate.tokenizer.inputs().is_some() {
        let held_out = HeldOut::read(plan, evaluating, folders.inputs)?;
        let model = family.network(&parameters)?;
        ready.say(held_out.samples(), telemetry)?;
        tch::no_grad(|| held_out.measure((&*model, candidate), evaluating, &slices, telemetry))?
    } else {
        let pieces = if candidate.tokenizer.whole() {
            records(plan, evaluating, folders.inputs)?
        } else {
            pieces(plan, evaluating, folders.inputs)?
        };
        let model = family.network(&parameters)?;
        ready.say(pieces.len() as u64, telemetry)?;
        let windows = tch::no_grad(|| windows((&*model, &candidate.model), evaluating, &pieces, telemetry))?;
        let metrics = measure::measure(&evaluating.spec, &windows, |window| slices.of(&window.path))?;
        (metrics, windows.iter().map(|window| window.write().canonical() + "\n").collect())
    };
    let outputs = write(evaluating, metrics, lines, folders.outputs)?;
    telemetry.say(&Message::Completed { steps: plan.work.steps, outputs })?;
    Ok(Ending::Completed)
}

/// What a worker says before it measures.
struct Ready {
    parameters: u64,
    pins: regime::Report,
}

impl Ready {
    fn say<W: Write>(self, samples: u64, telemetry: &mut Telemetry<W>) -> Result<(), TrainError> {
        telemetry.say(&Message::Ready {
            version: env!("CARGO_PKG_VERSION").into(),
            samples_per_epoch: samples,
            parameters: self.parameters,
            cpu_capability: self.pins.cpu_capability,
            threads: self.pins.threads,
        })
    }
}

/// The slice of each held-out file.
#[derive(Clone, Debug)]
pub struct Slices<'a>(BTreeMap<&'a RelativePath, Option<String>>);

impl<'a> Slices<'a> {
    fn of_plan(plan: &'a Plan, evaluating: &Evaluating) -> Self {
        let members = plan.dataset.iter().flat_map(|dataset| evaluate::members(&evaluating.spec, dataset));
        Self(members.map(|member| (&member.path, evaluate::slice_of(&evaluating.spec, member))).collect())
    }

    /// The slice of the file at `path`, if there are slices.
    pub fn of(&self, path: &RelativePath) -> Option<String> {
        self.0.get(path).cloned().flatten()
    }
}

/// What the model gives for a batch; a value on the way that is not finite is an error that says where.
fn finite_outputs(model: &dyn Network, seen: &Tensor, of: &str) -> Result<Tensor, TrainError> {
    let mut counts = Counts::default();
    let look = &mut |name: &str, tensor: &Tensor| if inner(name) { Ok(()) } else { counts.look(name, tensor) };
    let outputs = model.forward(seen, None, look)?;
    if counts.non_finite() > 0 {
        let tensors = counts.stage(StageName::Forward).tensors.join(", ");
        return Err(TrainError::Model(format!("it gives values that are not finite on {of}, in {tensors}")));
    }
    Ok(outputs)
}

/// One window of a file: up to a context of tokens and the one behind each. Or a record.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece<'a> {
    member: &'a Member,
    window: Sample,
}

/// Every record of every file, in order.
fn records<'a>(plan: &'a Plan, evaluating: &Evaluating, folder: &Path) -> Result<Vec<Piece<'a>>, TrainError> {
    let (candidate, dataset) = plan.training().ok_or(TrainError::Command)?;
    let members = evaluate::members(&evaluating.spec, dataset);
    let (found, _) = data::records::read(candidate, &members, folder)?;
    if !evaluating.parts.iter().map(|part| part.tokens).eq(found.counts.iter().copied()) {
        let (expected, found) = (plan.work.tokens, found.samples.len() as u64);
        return Err(TrainError::Work { what: "records in the held-out files", expected, found });
    }
    let files = members.iter().zip(&found.counts);
    let members = files.flat_map(|(member, count)| (0..*count).map(|_| *member));
    Ok(members.zip(found.samples).map(|(member, window)| Piece { member, window }).collect())
}

/// Every window of every file, in order.
fn pieces<'a>(plan: &'a Plan, evaluating: &Evaluating, folder: &Path) -> Result<Vec<Piece<'a>>, TrainError> {
    let (Candidate { tokenizer, model, .. }, dataset) = plan.training().ok_or(TrainError::Command)?;
    let file = tokenizer.digest().map(|digest| inputs::read(folder, digest)).transpose()?;
    let text = Text::load(tokenizer, file.as_deref())?;
    let context = usize::try_from(model.context()).unwrap_or(usize::MAX);
    let mut pieces = Vec::new();
    for (member, part) in evaluate::members(&evaluating.spec, dataset).into_iter().zip(&evaluating.parts) {
        // Each file by itself, so that what one slice gives does not hang on the file before it.
        let mut corpus = Corpus::new(&text, dataset.format, None, model.vocabulary())?;
        let tokens = corpus.add(member.path.as_str(), &inputs::read(folder, member.digest)?)?;
        if tokens.len() as u64 != part.tokens {
            let (expected, found) = (part.tokens, tokens.len() as u64);
            return Err(TrainError::Work { what: "tokens in a held-out file", expected, found });
        }
        let window = |tokens: &[u32]| Sample { tokens: tokens.to_vec(), first: 1 };
        pieces.extend(cut(&tokens, context).map(|tokens| Piece { member, window: window(tokens) }));
    }
    let (expected, found) = (plan.work.samples_per_epoch, pieces.len() as u64);
    if found == expected { Ok(pieces) } else { Err(TrainError::Work { what: "windows", expected, found }) }
}

/// Windows that overlap by one token, so that each token but the first is predicted once.
fn cut(tokens: &[u32], context: usize) -> impl Iterator<Item = &[u32]> {
    (0..tokens.len().saturating_sub(1))
        .step_by(context.max(1))
        .map(move |start| &tokens[start..tokens.len().min(start.saturating_add(context).saturating_add(1))])
}

/// Runs all windows through the model, batch by batch.
fn windows<W: Write>(
    model: (&dyn Network, &Model),
    evaluating: &Evaluating,
    pieces: &[Piece<'_>],
    telemetry: &mut Telemetry<W>,
) -> Result<Vec<Window>, TrainError> {
    let size = usize::try_from(evaluating.spec.evaluator.batch()).unwrap_or(usize::MAX);
    let mut windows = Vec::with_capacity(pieces.len());
    for (number, pieces) in (1..).zip(pieces.chunks(size.max(1))) {
        let start = Instant::now();
        let samples: Vec<&Sample> = pieces.iter().map(|piece| &piece.window).collect();
        for (piece, (loss, correct)) in pieces.iter().zip(losses(model, &samples)?) {
            let window = windows.len() as u64;
            let tokens = piece.window.predicted();
            if tokens == 0 {
                return Err(TrainError::Masked { window });
            }
            let loss = Finite::new(loss).ok_or(TrainError::NoMetric { window, what: "loss" })?;
            windows.push(Window { window, path: piece.member.path.clone(), tokens, loss, correct });
        }
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        telemetry.say(&Message::Measured { batch: number, nanoseconds })?;
    }
    Ok(windows)
}

/// Sum of the losses and number of right answers of each window or record, all in one batch. One shorter than the context is
/// filled up behind its end, where no earlier position looks.
pub fn losses((network, model): (&dyn Network, &Model), windows: &[&Sample]) -> Result<Vec<(f64, u64)>, TrainError> {
    let width = usize::try_from(model.context()).unwrap_or(0);
    let (mut seen, mut due) = (Vec::new(), Vec::new());
    for window in windows {
        let (tokens, targets) = data::records::row(&window.tokens, window.first, width);
        seen.extend(tokens);
        due.extend(targets);
    }
    let shape = [i64::try_from(windows.len()).unwrap_or(0), -1];
    let logits = finite_outputs(network, &Tensor::f_from_slice(&seen)?.f_view(shape)?, "held-out text")?;
    let targets = Tensor::f_from_slice(&due)?;
    let losses = logits.f_cross_entropy_loss::<Tensor>(&targets, None, Reduction::None, NO_TARGET, 0.0)?;
    let vocabulary = usize::try_from(model.vocabulary()).unwrap_or(0);
    let (losses, logits) = (floats(&losses)?, floats(&logits)?);
    let rows = losses.chunks(width).zip(logits.chunks(width * vocabulary)).zip(due.chunks(width));
    Ok(rows.map(|((losses, logits), due)| of_window(losses, logits, due, vocabulary)).collect())
}

fn of_window(losses: &[f32], logits: &[f32], due: &[i64], vocabulary: usize) -> (f64, u64) {
    let predicted = due.iter().zip(losses).zip(logits.chunks(vocabulary)).filter(|((due, _), _)| **due != NO_TARGET);
    predicted.fold((0.0, 0), |(sum, correct), ((due, loss), logits)| {
        (sum + f64::from(*loss), correct + u64::from(usize::try_from(*due) == Ok(likeliest(logits))))
    })
}

/// The place of the largest logit; the first one of equals.
fn likeliest(logits: &[f32]) -> usize {
    let mut best = 0;
    for (place, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = place;
        }
    }
    best
}

/// Writes the metrics and a line for each sample; gives the paths written.
fn write(
    evaluating: &Evaluating,
    metrics: Vec<Measure>,
    lines: String,
    outputs: &Path,
) -> Result<Vec<String>, TrainError> {
    let metrics = Metrics { evaluator: evaluating.spec.evaluator.version(), metrics };
    let files = [(evaluate::METRICS, metrics.encode().canonical() + "\n"), (evaluate::SAMPLES, lines)];
    for (path, text) in &files {
        let at = outputs.join(path);
        let made = at.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&at, text));
        made.map_err(|source| TrainError::Output { path: (*path).into(), source })?;
    }
    Ok(files.iter().map(|(path, _)| (*path).to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_but_the_first_is_predicted_once_and_the_last_window_may_be_short() {
        let tokens: Vec<u32> = (0..8).collect();
        let windows: Vec<&[u32]> = cut(&tokens, 3).collect();
        assert_eq!(windows, [&[0, 1, 2, 3][..], &[3, 4, 5, 6], &[6, 7]]);
        for (length, context) in [(1, 3), (2, 3), (4, 3), (5, 3), (9, 4), (10, 4)] {
            let tokens: Vec<u32> = (0..length).collect();
            let windows: Vec<&[u32]> = cut(&tokens, context).collect();
            assert_eq!(windows.len() as u64, evaluate::windows(length.into(), context as u64), "{length} {context}");
            let predicted: Vec<u32> = windows.iter().flat_map(|window| window[1..].to_vec()).collect();
            assert_eq!(predicted, (1..length).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn the_first_of_equal_logits_is_the_answer_and_padding_does_not_count() {
        assert_eq!(likeliest(&[0.0, 2.0, -1.0, 2.0]), 1);
        let logits = [0.0, 1.0, 1.0, 0.0, 9.0, 0.0];
        assert_eq!(of_window(&[0.5, 0.25, 7.0], &logits, &[1, 1, NO_TARGET], 2), (0.75, 1));
    }
}
