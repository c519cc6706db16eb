//! What the counts of every stage cost: steps with and without them, in turns, on the same parameters and tokens.
//!
//! A step here is what the thread of the worker that computes does between two lines of a trace: forward, backward, norm,
//! clipping, update. Digests are taken, but their time is left out of it, since the worker takes them in another thread.
//! Two figures: the time that the counting adds, as a share of a step without it, which decides: what it takes between
//! modules, and how much longer norm and update take when they count on their way, each against the same pass without in the
//! step beside it. And how much longer a whole step with counts is than the one beside it, in time of this thread on a
//! processor, which holds everything and is as noisy as the machine.

use std::error::Error;
use std::fs;
use std::time::Instant;

use tch::{Reduction, Tensor};
use xt_core::manifest::candidate::{Decay, Model, Optimizer};
use xt_core::number::Finite;
use xt_trainer::gradients::Gradients;
use xt_trainer::layout;
use xt_trainer::model::gpt::{Gpt, Sizes, blind};
use xt_trainer::model::inner;
use xt_trainer::optim::{Optim, Update, clipping_factor, norm};
use xt_trainer::parameters::Parameters;
use xt_trainer::probe::{Counts, Glance};

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
    gradients: Option<Gradients>,
    model: Gpt,
    optimizer: Optim,
    seen: Tensor,
    due: Tensor,
    /// Where the time of the last steps went.
    spent: Spent,
}

/// Where the time of steps went, in seconds.
#[derive(Clone, Copy, Default)]
struct Spent {
    /// In counting beside the computation.
    counting: f64,
    /// In the norm of the gradients and in the update, which count on their way or not.
    passes: f64,
    /// In all of it but the digests.
    step: f64,
}

/// Adds how long `work` takes to `to`.
fn timed<R>(to: &mut f64, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *to += start.elapsed().as_secs_f64();
    result
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
        parameters.require_gradients(|_| true)?;
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
            gradients: None,
            seen: Tensor::f_from_slice(&tokens[..tokens.len() - 1])?.f_view(shape)?,
            due: Tensor::f_from_slice(&tokens[1..])?,
            parameters,
            spent: Spent::default(),
        })
    }

    /// One step; `stages` has five counts, or none.
    fn step(&mut self, stages: Option<&mut [Counts; 5]>) -> Result<(), Box<dyn Error>> {
        let mut whole = 0.0;
        timed(&mut whole, || self.compute(stages))?;
        self.spent.step += whole;
        let layout = &self.parameters.layout;
        std::hint::black_box(self.gradients.as_ref().map(|gradients| gradients.lend().digest()));
        std::hint::black_box(layout::digest(layout, &[("", &self.parameters.values)]));
        std::hint::black_box(self.optimizer.digest(None));
        Ok(())
    }

    fn compute(&mut self, mut stages: Option<&mut [Counts; 5]>) -> Result<(), Box<dyn Error>> {
        let Spent { counting, passes, .. } = &mut self.spent;
        let logits = match &mut stages {
            Some([input, forward, ..]) => {
                let tokens = Vec::<i64>::try_from(self.seen.f_view(-1)?)?;
                timed(counting, || input.look_at_tokens(&tokens));
                self.model.forward(&self.seen, None, &mut |name, tensor| {
                    if inner(name) { Ok(()) } else { timed(counting, || forward.look(name, tensor)) }
                })?
            }
            None => self.model.forward(&self.seen, None, &mut blind)?,
        };
        let loss = logits.f_cross_entropy_loss::<Tensor>(&self.due, None, Reduction::Mean, -100, 0.0)?;
        loss.f_backward()?;
        let taken = self.gradients.insert(self.parameters.take_gradients()?);
        let (layout, gradients) = (&self.parameters.layout, taken.tensors());
        let mut glances = [Glance::default(); 2];
        let [of_gradients, of_update] = &mut glances;
        let counts = stages.is_some();
        let norm = timed(passes, || {
            let rows = gradients.iter().copied().flatten();
            if counts { norm(rows, |block| of_gradients.see(block)) } else { norm(rows, |_| ()) }
        });
        let update = Update { gradients: &gradients, rate: 1e-4, factor: clipping_factor(norm, 1.0) };
        let (optimizer, values) = (&mut self.optimizer, self.parameters.values.values_mut());
        timed(passes, || {
            if counts {
                optimizer.update(layout, values, update, |block| of_update.see(block));
            } else {
                optimizer.update(layout, values, update, |_| ());
            }
        });
        if let Some([_, _, of_loss, backward, optimizer]) = stages {
            let finite = timed(counting, || {
                of_loss.look("loss", &loss)?;
                let parameters = layout.parameters();
                Ok::<_, Box<dyn Error>>([
                    backward.settle(parameters, glances[0]),
                    optimizer.settle(3 * parameters, glances[1]),
                ])
            })?;
            assert_eq!(finite, [true; 2], "this training explodes, and the counting is another one");
        }
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
    /// What the counting added by the time of the step without it.
    added: f64,
}

fn pair(bench: &mut Bench, steps: u32, counts_first: bool) -> Result<Pair, Box<dyn Error>> {
    let mut sides = [(0.0, Spent::default()); 2];
    for counts in [counts_first, !counts_first] {
        let start = processor_time()?;
        bench.spent = Spent::default();
        for _ in 0..steps {
            let mut stages = <[Counts; 5]>::default();
            bench.step(counts.then_some(&mut stages))?;
            std::hint::black_box(&stages);
        }
        sides[usize::from(counts)] = ((processor_time()? - start) / f64::from(steps), bench.spent);
    }
    let [(without, bare), (with, counting)] = sides;
    Ok(Pair { with, without, added: (counting.counting + counting.passes - bare.passes) / bare.step })
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
        let (share, longer) = (middle(|pair| pair.added), middle(|pair| pair.with / pair.without - 1.0));
        let step = middle(|pair| pair.without);
        let parameters = bench.parameters.layout.parameters();
        println!(
            "stage counts, {:10} ({parameters:8} parameters, width {:3}): {:5.2} % of a step, at most {:.0} %; a step with \
             digests takes {:8.3} ms and with counts {:5.2} % longer",
            case.name,
            bench.sizes.width,
            share * 100.0,
            case.limit * 100.0,
            step / 1e6,
            longer * 100.0
        );
        if share > case.limit {
            too_much.push(case.name);
        }
    }
    if too_much.is_empty() { Ok(()) } else { Err(format!("too much: {}", too_much.join(", ")).into()) }
}
