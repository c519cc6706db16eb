//! One optimiser step: forward and backward of each micro-batch, counts before any clipping, clipping, update, digests.

use std::path::Path;

use tch::Tensor;
use xt_core::field::Manifest as _;
use xt_core::manifest::candidate::{Adapter, Candidate, Clipping, NonFinite};
use xt_core::manifest::incident::Located;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::StopReason;
use xt_core::manifest::snapshot::Snapshot;
use xt_core::manifest::trace::{Stage, StageName, Step};
use xt_core::number::{Bits32, Finite};
use xt_core::order::{MicroBatch, Shape, Walk, samples_digest};
use xt_core::verb::groups::handling;
use xt_torch::memory::floats;

use crate::augment::Moment;
use crate::average::Average;
use crate::data::Data;
use crate::dropout::Dropout;
use crate::early::{self, EarlyStop};
use crate::fault::TrainError;
use crate::gradients::Gradients;
use crate::layout::Declared;
use crate::locate;
use crate::model::{Network, family, inner};
use crate::noise;
use crate::objective;
use crate::optim::{self, Update};
use crate::parameters::narrowed;
use crate::precision;
use crate::probe::{Counts, Glance};
use crate::recorder::{Coming, Hasher, Hashing, Loan, Unfinished};
use crate::scaler::{self, Scaler};
use crate::schedule::learning_rate;
use crate::snapshot::{self, LentState};
use crate::state::{Memory, State};

/// A run in progress.
#[derive(Debug)]
pub struct Trainer {
    plan: Plan,
    candidate: Candidate,
    data: Box<dyn Data>,
    model: Box<dyn Network>,
    /// Probability of dropping an activation, and an input of an adapter.
    dropout: [f64; 2],
    /// Whether the model draws by itself.
    draws: bool,
    walk: Walk,
    /// Whether to look at every module at a step at which a value is not finite.
    pub locates: bool,
    /// What was found there.
    pub located: Option<Located>,
    /// What the run is between two steps.
    pub state: State,
}

impl Trainer {
    /// The run of `plan` before its first step; `base` holds the parameters that it begins from, if it does.
    pub fn new(plan: Plan, data: Box<dyn Data>, base: Option<&[u8]>) -> Result<Self, TrainError> {
        let candidate = plan.native().ok_or(TrainError::Command)?;
        let state = State::first(candidate, plan.seed, base)?;
        Self::with(plan, data, state)
    }

    /// The same run as `snapshot` left it, whose files lie in `inputs`.
    pub fn restored(
        plan: Plan,
        data: Box<dyn Data>,
        base: Option<&[u8]>,
        (snapshot, inputs): (&Snapshot, &Path),
    ) -> Result<Self, TrainError> {
        let candidate = plan.native().ok_or(TrainError::Command)?;
        let state = State::unfilled(candidate, plan.seed, base)?;
        let mut trainer = Self::with(plan, data, state)?;
        trainer.restore(snapshot, inputs)?;
        trainer.model.recall(&trainer.state.parameters)?;
        Ok(trainer)
    }

    fn with(plan: Plan, data: Box<dyn Data>, mut state: State) -> Result<Self, TrainError> {
        let candidate = plan.native().ok_or(TrainError::Command)?.clone();
        let shape = Shape::new(data.samples(), candidate.batching, candidate.data.order, &candidate.length);
        let shape = shape.map_err(|error| TrainError::Model(error.to_string()))?;
        if shape.steps != plan.work.steps {
            return Err(TrainError::Work { what: "steps", expected: plan.work.steps, found: shape.steps });
        }
        let trained = |parameter: &Declared| {
            let Declared { name, shape, .. } = parameter;
            handling(&candidate.optimizer, &candidate.groups, name, shape.len()).is_some()
        };
        state.parameters.require_gradients(trained)?;
        let family = family(&candidate.model)?;
        let model = family.network(&state.parameters)?;
        let walk = Walk::new(shape, plan.seed);
        let adapters = match candidate.base.adapter() {
            Some(Adapter::Lora { dropout, .. }) => dropout.get(),
            _ => 0.0,
        };
        let dropout = [family.dropout(), adapters];
        let (draws, locates) = (family.draws(), false);
        Ok(Self { plan, candidate, data, model, dropout, draws, walk, locates, located: None, state })
    }

    /// Fills everything that is remembered from a snapshot, whose files lie in `inputs`.
    fn restore(&mut self, snapshot: &Snapshot, inputs: &Path) -> Result<(), TrainError> {
        snapshot::restore(&mut self.state, snapshot, &self.plan, inputs)?;
        let left_from = self.plan.departure.as_ref().filter(|departure| departure.snapshot == snapshot.id());
        if let Some(noise) = left_from.and_then(|departure| departure.noise.as_ref()) {
            noise::add(&mut self.state, noise);
        }
        if let Some(early) = self.state.early.as_mut().filter(|_| left_from.is_some()) {
            early.go_on();
        }
        Ok(())
    }

    /// Lends everything that a later step depends on, to be copied beside the next step. Taken apart without `..`: a new field does not compile
    /// until someone decides whether it is remembered.
    pub fn lend(&mut self) -> LentState {
        // Plan and data are inputs; the model looks at the parameters; the walk keeps
        // an order that it can work out again; a look changes nothing.
        let Self {
            plan: _,
            candidate: _,
            data: _,
            model: _,
            dropout: _,
            draws: _,
            walk,
            locates: _,
            located: _,
            state,
        } = self;
        let position = (state.generator(walk), state.cursor(walk));
        // The seed is in the generator.
        let Memory { layout, values, rows, updates, steps, seed: _ } = state.memory();
        let rows = rows.into_iter().map(|row| Loan::of(row.prefix, &row.layout, &row.values)).collect();
        LentState { parameters: Loan::of("", layout, values), rows, updates, steps, position }
    }

    /// Takes the next step. The line it gives is not chained yet, and its digests come from `hasher`.
    pub fn step(&mut self, hasher: &Hasher) -> Result<Unfinished, TrainError> {
        let batches = self.walk.step(self.state.steps);
        let mut seen = Seen::default();
        let loss = self.backward(&batches, &mut seen)?;
        let mut gradients = self.state.parameters.take_gradients()?;
        let scale = self.scale();
        let overflowed = scale > 1.0 && unscale(&mut gradients, scale, &mut seen);
        let coming = hasher.begin(Hashing::Gradients(gradients.lend()))?;
        // Those of a scaled loss were counted before they were divided.
        let mut divided = Counts::default();
        let norm = gradients.norm(if scale > 1.0 { &mut divided } else { &mut seen.backward });
        self.model.remember(&mut self.state.parameters)?;
        if self.locates && seen.non_finite() && !overflowed {
            self.located = self.locate(&batches, &gradients)?;
            // The look computed forward once more.
            self.model.recall(&self.state.parameters)?;
        }
        self.state.steps += 1;
        let rate = self.rate();
        let skipped = overflowed || (self.candidate.stops.non_finite == NonFinite::Hold && seen.non_finite());
        if !skipped {
            let glance = self.update(&mut gradients, rate, norm);
            self.look_at_update(glance, &mut seen.optimizer);
            if self.locates && self.located.is_none() && seen.optimizer.non_finite() > 0 {
                self.located = locate::in_update(&self.state.memory());
            }
        }
        if let Some(scaler) = &mut self.state.scaler {
            scaler.after(overflowed);
        }
        if let Some(early) = &mut self.state.early {
            early.after(loss, !self.plan.is_branch());
        }
        let line = self.line(&Taken { batches, seen, loss, norm, rate, skipped, scale })?;
        self.unfinished(line, coming, hasher)
    }

    /// Runs all micro-batches forward and backward. The loss, and so each gradient, is the mean over all predictions of
    /// the step: each micro-batch counts by its share of them. One without any adds nothing; a step without any has the mean
    /// over nothing, which is NaN.
    fn backward(&mut self, batches: &[MicroBatch], seen: &mut Seen) -> Result<f32, TrainError> {
        let (mut mean, scale) = (0.0, f64::from(self.scale()));
        for (batch, share) in batches.iter().zip(self.shares(batches)?) {
            let (outputs, due) = self.outputs(batch, seen)?;
            let Some(share) = share else { continue };
            let loss = objective::loss(&self.candidate.objective, &outputs, &due)?;
            seen.loss.look("loss", &loss)?;
            mean += share * f64::from(floats(&loss)?.first().copied().unwrap_or(f32::NAN));
            let factor = if batches.len() == 1 { scale } else { share * scale };
            if factor.to_bits() == 1f64.to_bits() {
                loss.f_backward()?;
            } else {
                loss.f_mul_scalar(factor)?.f_backward()?;
            }
        }
        Ok(narrowed(mean))
    }

    /// The share of each micro-batch in the predictions of their step; `None` for one without any beside others.
    fn shares(&self, batches: &[MicroBatch]) -> Result<Vec<Option<f64>>, TrainError> {
        let counts = batches.iter().map(|batch| self.data.predictions(&batch.samples));
        let counts = counts.collect::<Result<Vec<u64>, TrainError>>()?;
        let all: u64 = counts.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let share = |count: u64| (count > 0 || all == 0).then_some(count as f64 / all as f64);
        Ok(counts.into_iter().map(share).collect())
    }

    /// What is dropped in one micro-batch.
    fn dropout_of(&self, batch: &MicroBatch) -> Option<Dropout> {
        let [activations, adapters] = self.dropout;
        let dropped = Dropout::with_adapters(self.state.seed, batch.number, activations, adapters);
        dropped.or_else(|| self.draws.then(|| Dropout::none(self.state.seed, batch.number)))
    }

    /// What the model gives for one micro-batch, and what was due.
    fn outputs(&self, batch: &MicroBatch, seen: &mut Seen) -> Result<(Tensor, Tensor), TrainError> {
        let moment = Moment { seed: self.state.seed, time: batch.number };
        let data = self.data.training_batch(&batch.samples, moment)?;
        data.look(&mut seen.input)?;
        let dropout = self.dropout_of(batch);
        let look = &mut |name: &str, tensor: &Tensor| {
            if inner(name) { Ok(()) } else { seen.forward.look(name, tensor) }
        };
        let outputs =
            precision::computing(self.candidate.precision, || self.model.forward(&data.seen, dropout.as_ref(), look))?;
        Ok((outputs, data.due))
    }

    /// Computes the step once more, tensor by tensor, from the same parameters: the first one that is not finite.
    fn locate(&self, batches: &[MicroBatch], gradients: &Gradients) -> Result<Option<Located>, TrainError> {
        let computed = locate::Computed {
            candidate: &self.candidate,
            model: &*self.model,
            data: &*self.data,
            parameters: &self.state.parameters,
            seed: self.state.seed,
        };
        let mut found = Vec::new();
        for (number, (batch, share)) in (0..).zip(batches.iter().zip(self.shares(batches)?)) {
            let dropout = self.dropout_of(batch);
            found.extend(computed.of_batch(number, batch, dropout.as_ref(), share)?);
        }
        // Every micro-batch sees the same parameters: the earliest stage counts, as in the report.
        let first = found.into_iter().min_by_key(|place| (place.stage as u64, place.micro_batch));
        Ok(first.or_else(|| locate::in_sum(gradients, batches.len() as u64)))
    }

    /// Why the run ends after the step that was taken last, although more are left; and in words.
    pub fn stops(&self) -> Option<(StopReason, String)> {
        self.state.early.as_ref().and_then(EarlyStop::stops)
    }

    /// What the loss is multiplied by before it is computed backward.
    fn scale(&self) -> f32 {
        self.state.scaler.as_ref().map_or(1.0, Scaler::scale)
    }

    fn rate(&self) -> f64 {
        let candidate = &self.candidate;
        let peak = candidate.optimizer.learning_rate().get();
        learning_rate(&candidate.schedule, peak, self.state.steps, self.plan.work.steps)
    }

    /// Updates the parameters, and gives a glance at what then is remembered.
    fn update(&mut self, gradients: &mut Gradients, rate: f64, norm: f64) -> Glance {
        let factor = match &self.candidate.clipping {
            Clipping::None {} => 1.0,
            Clipping::Norm { maximum } => optim::clipping_factor(norm, maximum.get()),
            Clipping::Value { maximum } => {
                gradients.clip(maximum.get());
                1.0
            }
        };
        let State { parameters, optimizer, average, steps, .. } = &mut self.state;
        let update = Update { gradients: &gradients.tensors(), rate, factor };
        let mut glance = Glance::default();
        optimizer.update(&parameters.layout, parameters.values.values_mut(), update, |block| glance.see(block));
        if let Some(average) = average {
            average.take_in(*steps, parameters.values.values(), |block| glance.see(block));
        }
        glance
    }

    /// Counts what an update left: by the glance, or tensor by tensor where that saw something that is not finite.
    fn look_at_update(&self, glance: Glance, counts: &mut Counts) {
        let memory = self.state.memory();
        // Scaler and early stop hold no result of an update.
        let rows = || memory.rows.iter().filter(|row| ![scaler::PREFIX, early::PREFIX].contains(&row.prefix));
        let checked = memory.layout.parameters() + rows().map(|row| row.layout.parameters()).sum::<u64>();
        if counts.settle(checked, glance) {
            return;
        }
        optim::look(memory.layout, "", memory.values, counts);
        for row in rows() {
            optim::look(&row.layout, row.prefix, &row.values, counts);
        }
    }

    fn line(&mut self, taken: &Taken) -> Result<Step, TrainError> {
        let finite = |value| Finite::new(value).ok_or_else(|| TrainError::Model("the learning rate overflows".into()));
        let (loss, norm) = (taken.loss, narrowed(taken.norm));
        Ok(Step {
            step: self.state.steps,
            epoch: taken.batches.last().map_or(0, |batch| batch.epoch),
            micro_batches: taken.batches.len() as u64,
            samples: samples_digest(&taken.batches),
            learning_rate: finite(taken.rate)?,
            loss: Finite::new(f64::from(loss)),
            loss_bits: Bits32::of(loss),
            loss_scale: finite(f64::from(taken.scale))?,
            gradient_norm: Finite::new(f64::from(norm)),
            gradient_norm_bits: Bits32::of(norm),
            stages: taken.seen.stages(),
            gradients: self.plan.request, // these four are replaced when the line is finished
            parameters: self.plan.request,
            optimizer: self.plan.request,
            averaged: None,
            generator: self.state.generator(&self.walk).digest(),
            cursor: self.state.cursor(&mut self.walk).digest(),
            skipped: taken.skipped,
            chain: self.plan.request, // replaced when the line is chained
        })
    }

    /// Has everything hashed that the step left.
    fn unfinished(&self, line: Step, gradients: Coming, hasher: &Hasher) -> Result<Unfinished, TrainError> {
        let memory = self.state.memory();
        let parameters = Hashing::Row(Loan::of("", memory.layout, memory.values));
        let rows = memory.rows.iter().map(|row| Loan::of(row.prefix, &row.layout, &row.values)).collect();
        let average = self.state.average.as_ref().map(Average::memory);
        let averaged = average.map(|row| Hashing::Row(Loan::of("", &row.layout, &row.values)));
        Ok(Unfinished {
            line,
            gradients,
            parameters: hasher.begin(parameters)?,
            optimizer: hasher.begin(Hashing::Optimizer(rows, memory.updates))?,
            averaged: averaged.map(|hashing| hasher.begin(hashing)).transpose()?,
        })
    }
}

/// Counts the gradients of a scaled loss and divides them by the scale, unless they overflowed; gives whether they did.
fn unscale(gradients: &mut Gradients, scale: f32, seen: &mut Seen) -> bool {
    gradients.look(&mut seen.backward);
    let overflowed = seen.overflowed();
    if !overflowed {
        // Scales are powers of two, so this is exact but for numbers that vanish.
        gradients.divide(scale);
    }
    overflowed
}

/// What a step was made of, for its line.
#[derive(Debug)]
struct Taken {
    batches: Vec<MicroBatch>,
    seen: Seen,
    loss: f32,
    norm: f64,
    rate: f64,
    skipped: bool,
    /// What the loss was multiplied by.
    scale: f32,
}

/// Counts per stage.
#[derive(Debug, Default)]
struct Seen {
    input: Counts,
    forward: Counts,
    loss: Counts,
    backward: Counts,
    optimizer: Counts,
}

impl Seen {
    /// Whether a stage before the update held a non-finite value.
    const fn non_finite(&self) -> bool {
        self.input.non_finite() + self.forward.non_finite() + self.loss.non_finite() + self.backward.non_finite() > 0
    }

    /// Whether only gradients were not finite: that is what a scale of the loss can come to.
    const fn overflowed(&self) -> bool {
        self.backward.non_finite() > 0
            && self.input.non_finite() + self.forward.non_finite() + self.loss.non_finite() == 0
    }

    fn stages(&self) -> Vec<Stage> {
        vec![
            self.input.stage(StageName::Input),
            self.forward.stage(StageName::Forward),
            self.loss.stage(StageName::Loss),
            self.backward.stage(StageName::Backward),
            self.optimizer.stage(StageName::Optimizer),
        ]
    }
}

/// Why a run is held after `step`, if a stage of it holds a non-finite value: the earliest stage, in the order of the
/// computation.
/// A gradient that overflowed under a scale of the loss above 1 is no such value: the scale goes down, and the run on.
pub fn hold(step: &Step) -> Option<String> {
    let stage = step.stages.iter().find(|stage| stage.non_finite() > 0)?;
    if stage.stage == StageName::Backward && step.loss_scale.get() > 1.0 {
        return None;
    }
    Some(format!(
        "the stage {} holds {} NaN, {} plus infinity, {} minus infinity among {} values, in {}",
        stage.stage,
        stage.nan,
        stage.positive_infinite,
        stage.negative_infinite,
        stage.checked,
        stage.tensors.join(", "),
    ))
}
