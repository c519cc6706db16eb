//! What the counts of every stage cost: steps with and without them, in turns, on the same parameters and tokens.
//!
//! A step here is what the worker does between two lines of a trace: forward, backward, norm, clipping, update, digests.
//! Two figures: the time inside the counting as a share of the step around it, which decides, since other work on the
//! machine slows both alike; and how much longer a step with counts is than the one without beside it, in time of this
//! thread on a processor, which holds everything and is as noisy as the machine.

use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

use tch::{Reduction, Tensor};
use xt_core::manifest::candidate::{Decay, Model, Optimizer};
use xt_core::number::Finite;
use xt_torch::memory::Flat;
use xt_trainer::layout;
use xt_trainer::model::gpt::{Gpt, Sizes, blind};
use xt_trainer::model::inner;
use xt_trainer::optim::{self, Optim, Update, clipping_factor, norm};
use xt_trainer::parameters::Parameters;
use xt_trainer::probe::Counts;

/// What may be spent on counting, as a share of a step without it.
struct Case {
    name: &'static str,
    layers: u64,
    heads: u64,
    width: u64,
    context: u64,
    samples: u64,
    /// Steps that are timed together: the clock of the thread moves in milliseconds.
    steps: u32,
    pairs: usize,
    limit: f64,
}

const CASES: [Case; 2] = [
    Case {
        name: "smallest",
        layers: 1,
        heads: 2,
        width: 16,
        context: 16,
        samples: 4,
        steps: 200,
        pairs: 15,
        limit: 0.10,
    },
    Case {
        name: "10 million",
        layers: 5,
        heads: 6,
        width: 408,
        context: 128,
        samples: 8,
        steps: 1,
        pairs: 15,
        limit: 0.03,
    },
];

struct Bench {
    sizes: Sizes,
    parameters: Parameters,
    gradients: Flat,
    model: Gpt,
    optimizer: Optim,
    seen: Tensor,
    due: Tensor,
    /// Time spent inside the counting.
    counting: Duration,
}

fn finite(value: f64) -> Result<Finite, Box<dyn Error>> {
    Finite::new(value).ok_or_else(|| "a literal is finite".into())
}

impl Bench {
    fn new(case: &Case) -> Result<Self, Box<dyn Error>> {
        let sizes = Sizes::of(&Model::Gpt {
            layers: case.layers,
            heads: case.heads,
            width: case.width,
            inner: 4 * case.width,
            context: case.context,
            vocabulary: 256,
            dropout: finite(0.0)?,
            layer_norm_epsilon: finite(1e-5)?,
            initializer_range: finite(0.02)?,
        })?;
        let mut parameters = Parameters::new(sizes.parameters(), Decay::Matrices)?;
        parameters.initialise(1);
        let gradients = parameters.with_gradients()?;
        let settings = Optimizer::AdamW {
            learning_rate: finite(1e-4)?,
            beta1: finite(0.9)?,
            beta2: finite(0.95)?,
            epsilon: finite(1e-8)?,
            weight_decay: finite(0.1)?,
            decay: Decay::Matrices,
        };
        let tokens: Vec<i64> = (0..=case.samples * case.context).map(|i| (i * 7919 % 256).cast_signed()).collect();
        let shape = [case.samples.cast_signed(), case.context.cast_signed()];
        Ok(Self {
            model: Gpt::new(sizes, &parameters)?,
            optimizer: Optim::new(&settings, &[], &parameters.layout)?,
            sizes,
            gradients,
            seen: Tensor::f_from_slice(&tokens[..tokens.len() - 1])?.f_view(shape)?,
            due: Tensor::f_from_slice(&tokens[1..])?,
            parameters,
            counting: Duration::ZERO,
        })
    }

    /// One step; `stages` has five counts, or none.
    fn step(&mut self, mut stages: Option<&mut [Counts; 5]>) -> Result<(), Box<dyn Error>> {
        self.gradients.values_mut().fill(0.0);
        let logits = match &mut stages {
            Some([input, forward, ..]) => {
                let tokens = Vec::<i64>::try_from(self.seen.f_view(-1)?)?;
                let start = Instant::now();
                input.look_at_tokens(&tokens);
                self.counting += start.elapsed();
                let counting = &mut self.counting;
                self.model.forward(&self.seen, None, &mut |name, tensor| {
                    if inner(name) {
                        return Ok(());
                    }
                    let start = Instant::now();
                    let looked = forward.look(name, tensor);
                    *counting += start.elapsed();
                    looked
                })?
            }
            None => self.model.forward(&self.seen, None, &mut blind)?,
        };
        let loss = logits.f_cross_entropy_loss::<Tensor>(&self.due, None, Reduction::Mean, -100, 0.0)?;
        loss.f_backward()?;
        let layout = &self.parameters.layout;
        if let Some([_, _, of_loss, backward, _]) = &mut stages {
            let start = Instant::now();
            of_loss.look("loss", &loss)?;
            optim::look(layout, "", &self.gradients, backward);
            self.counting += start.elapsed();
        }
        let mut digests = vec![layout::digest(layout, &[("", &self.gradients)])];
        let factor = clipping_factor(norm(self.gradients.values()), 1.0);
        let update = Update { gradients: self.gradients.values(), rate: 1e-4, factor };
        self.optimizer.update(layout, self.parameters.values.values_mut(), update);
        if let Some([.., optimizer]) = &mut stages {
            let start = Instant::now();
            optim::look(layout, "", &self.parameters.values, optimizer);
            self.optimizer.look(optimizer);
            self.counting += start.elapsed();
        }
        digests.push(layout::digest(layout, &[("", &self.parameters.values)]));
        digests.push(self.optimizer.digest(None));
        std::hint::black_box(digests);
        Ok(())
    }
}

/// Nanoseconds that this thread has run on a processor.
fn processor_time() -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no time in schedstat")?.parse()?)
}

/// What a pair of steps took, with counts and without.
struct Pair {
    with: f64,
    without: f64,
    /// Time inside the counting by the time of the step around it.
    inside: f64,
}

fn pair(bench: &mut Bench, steps: u32, counts_first: bool) -> Result<Pair, Box<dyn Error>> {
    let (mut with, mut without, mut inside) = (0.0, 0.0, 0.0);
    for counts in [counts_first, !counts_first] {
        let (start, begun) = (processor_time()?, Instant::now());
        bench.counting = Duration::ZERO;
        for _ in 0..steps {
            let mut stages = <[Counts; 5]>::default();
            bench.step(counts.then_some(&mut stages))?;
            std::hint::black_box(&stages);
        }
        *(if counts { &mut with } else { &mut without }) = (processor_time()? - start) / f64::from(steps);
        if counts {
            inside = bench.counting.as_secs_f64() / begun.elapsed().saturating_sub(bench.counting).as_secs_f64();
        }
    }
    Ok(Pair { with, without, inside })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    tch::set_num_threads(1);
    let mut too_much = Vec::new();
    for case in &CASES {
        let mut bench = Bench::new(case)?;
        for _ in 0..2 {
            pair(&mut bench, case.steps, true)?;
        }
        let pairs: Vec<Pair> =
            (0..case.pairs).map(|i| pair(&mut bench, case.steps, i % 2 == 0)).collect::<Result<_, _>>()?;
        let middle = |of: fn(&Pair) -> f64| median(pairs.iter().map(of).collect());
        let (share, longer) = (middle(|pair| pair.inside), middle(|pair| pair.with / pair.without - 1.0));
        let step = middle(|pair| pair.without);
        let parameters = bench.parameters.layout.parameters();
        println!(
            "stage counts, {:10} ({parameters:8} parameters, width {:3}): {:5.2} % of a step of {:8.3} ms, at most {:.0} %; \
             steps with counts are {:5.2} % longer",
            case.name,
            bench.sizes.width,
            share * 100.0,
            step / 1e6,
            case.limit * 100.0,
            longer * 100.0
        );
        if share > case.limit {
            too_much.push(case.name);
        }
    }
    if too_much.is_empty() { Ok(()) } else { Err(format!("too much: {}", too_much.join(", ")).into()) }
}
