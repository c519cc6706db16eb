//! What a plan will do, in sentences for people.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::count::counted;
use crate::field::Manifest;
use crate::manifest::candidate::{
    Averaging, Candidate, Clipping, Group, Length, Model, NonFinite, Objective, Optimizer, Schedule, Tokenizer,
    Treatment,
};
use crate::manifest::command::{Command, Hypothesis, Trainer};
use crate::manifest::intent::{Network, Profile};
use crate::manifest::plan::{Plan, Role, Work};
use crate::verb::depart::arm;
use crate::verb::parameters::{Parameter, parameters};
use crate::verb::{adapter, base, early};

/// The lines of the explanation, without line ends.
pub fn explain(plan: &Plan) -> Vec<String> {
    let title = format!("{} with seed {} (plan {})", plan.candidate.name(), plan.seed, plan.id());
    let mut lines = Vec::from([title]);
    lines.extend(match &plan.candidate {
        Hypothesis::Native(candidate) => native(plan, candidate),
        Hypothesis::Command(command) => commanded(plan, command),
    });
    lines.extend(departure(plan));
    lines.extend(bounds(plan));
    lines
}

/// What it goes on from.
fn departure(plan: &Plan) -> Option<String> {
    let from = plan.departure.as_ref()?;
    let (purpose, step, due) = (from.purpose, from.step, plan.due());
    Some(format!("  goes on    from step {step} of run {} up to step {due}: {purpose}, {}", from.run, arm(from)))
}

/// What a command will be.
fn commanded(plan: &Plan, command: &Command) -> Vec<String> {
    let Trainer::Command { executable, arguments, files, threads, .. } = &command.trainer;
    let measures = plan.evaluation.iter().map(|evaluating| {
        let (version, subject) = (evaluating.spec.evaluator.version(), &evaluating.subject);
        let said = version.determinism;
        format!("  measures   bundle {} by {} {}, {said}", subject.bundle, version.name, version.version)
    });
    let mut lines: Vec<String> = measures.collect();
    lines.extend([format!("  runs       {executable} {}", arguments.join(" ").trim_end())]);
    if let Some(program) = &plan.program {
        let libraries = counted(program.libraries.len(), "library");
        lines.push(format!("  loads      {libraries} beside {}", program.executable.digest));
        lines.extend(program.roots.iter().map(|root| {
            let (path, files, digest) = (&root.path, counted(root.files, "file"), root.digest);
            format!("  root       {path}: {files}, {} MiB, {digest}", root.bytes >> 20)
        }));
    }
    lines.extend(files.iter().map(|(path, digest)| format!("  file       {path} {digest}")));
    let data = plan.inputs.iter().filter(|input| input.role == Role::Data).count();
    lines.push(format!("  data       {}, {}", counted(data, "file"), counted(command.parameters.0.len(), "parameter")));
    lines.push(format!("  computes   with {}", counted(*threads, "thread")));
    if let Some(evaluating) = &plan.evaluation {
        lines.push(format!("  model      {} of the bundle", counted(evaluating.files.len(), "file")));
    }
    lines.push(match command.steps {
        Some(steps) => format!("  telemetry  {}", counted(steps, "line")),
        None => "  telemetry  as many lines as it likes".to_string(),
    });
    lines
}

/// What a run of the trainer of this toolkit will do.
fn native(plan: &Plan, candidate: &Candidate) -> Vec<String> {
    let work = &plan.work;
    let batching = &candidate.batching;
    let early = early::describe(&candidate.stops.early);
    let base = base::describe(&candidate.base);
    let start = base.as_ref().map_or("random initialisation", |_| "the base");
    let mut lines = Vec::from([format!("  model      {}", model(&candidate.model, start))]);
    lines.extend(base.map(|base| format!("  base       {base}")));
    let trained = || counted(values(&adapter::trainable(&candidate.model, &candidate.base)), "parameter");
    let adapter = adapter::describe(&candidate.base);
    lines.extend(adapter.map(|adapter| format!("  trains     {}: {adapter}", trained())));
    lines.extend([
        format!("  text       {}", candidate.tokenizer.describe()),
        format!(
            "  data       {}, {}, in {} order",
            counted(plan.inputs.iter().filter(|input| input.role != Role::Base).count(), "file"),
            data(candidate, work),
            candidate.data.order
        ),
        format!(
            "  steps      {}{} ({}), each of {} x {}; {} an epoch",
            if early.is_some() { "at most " } else { "" },
            work.steps,
            length(&candidate.length),
            batching.accumulation,
            counted(batching.samples, "sample"),
            counted(work.micro_batches_per_epoch, "micro-batch")
        ),
        format!("  minimises  {}", objective(&candidate.objective)),
        format!("  optimiser  {}", optimizer(&candidate.optimizer)),
        format!("  groups     {}", groups(&candidate.groups)),
        format!("  schedule   {}", schedule(&candidate.schedule)),
        format!("  clipping   {}", clipping(&candidate.clipping)),
        format!("  averaging  {}", averaging(&candidate.averaging)),
        format!(
            "  computes   {} on {}, {}, vectors {}, sums {}, oneDNN {}",
            candidate.precision,
            candidate.execution.device,
            counted(candidate.execution.threads, "thread"),
            candidate.execution.cpu_capability,
            candidate.execution.math_mode,
            if candidate.execution.onednn { "on" } else { "off" }
        ),
        format!(
            "  non-finite {}",
            match candidate.stops.non_finite {
                NonFinite::Hold => "holds the run at that step; it can never be frozen",
                NonFinite::Record => "is recorded, and the run goes on",
            }
        ),
    ]);
    lines.extend(early.map(|early| format!("  stops      {early}")));
    lines
}

fn data(candidate: &Candidate, work: &Work) -> String {
    let samples = |noun: &str| counted(work.samples_per_epoch, noun);
    if let Tokenizer::Labelled { length, levels, .. } = &candidate.tokenizer {
        let (tokens, classes) = (counted(*length, "token"), counted(levels.len(), "class"));
        return format!("{} of at most {tokens} in {classes}", samples("text"));
    }
    let context = candidate.model.context();
    match candidate.model.ends() {
        None if candidate.tokenizer.whole() => {
            format!("{} of at most {}", samples("record"), counted(context + 1, "token"))
        }
        None => {
            format!("{}, {} of {}", counted(work.tokens, "token"), samples("sample"), counted(context, "token"))
        }
        Some((inputs, outputs)) => {
            format!("{} of {} for {}", samples("sample"), counted(inputs, "input"), counted(outputs, "output"))
        }
    }
}

/// What it may use, and how it is confined.
fn bounds(plan: &Plan) -> [String; 3] {
    let resources = &plan.intent.resources;
    let use_of = format!(
        "  may use    {}, {} MiB of memory, {} MiB of output, {} s",
        counted(resources.cores, "core"),
        resources.memory_bytes >> 20,
        resources.storage_bytes >> 20,
        resources.duration_seconds
    );
    let isolation = format!(
        "  isolation  {}",
        match plan.intent.isolation.profile {
            Profile::Full => "full: namespaces, landlock, system-call filter and limits",
            Profile::InContainer => "in-container: landlock, system-call filter and limits, no namespaces",
            Profile::None => "none: the trainer can read and send whatever you can",
        }
    );
    let network = format!(
        "  network    {}",
        match plan.intent.network {
            Network::None => "none",
            Network::Loopback => "loopback: one of its own, with nothing in it but itself",
            Network::Host => "host: everything that this host can reach",
        }
    );
    [use_of, isolation, network]
}

fn model(model: &Model, start: &str) -> String {
    let parameters = || counted(values(&parameters(model)), "parameter");
    match model {
        Model::Gpt { layers, heads, width, context, vocabulary, dropout, .. } => {
            format!(
                "gpt: {}, {}, width {width}, context {context}, {}, dropout {dropout}; {} from {start}",
                counted(*layers, "layer"),
                counted(*heads, "head"),
                counted(*vocabulary, "token"),
                parameters()
            )
        }
        Model::Llama { layers, heads, key_value_heads, width, context, vocabulary, dropout, tied, .. } => {
            let output = if *tied { "tied to the embedding" } else { "of its own" };
            format!(
                "llama: {}, {} over {key_value_heads} of keys and values, width {width}, context {context}, {}, output layer \
                 {output}, dropout {dropout}; {} from {start}",
                counted(*layers, "layer"),
                counted(*heads, "head"),
                counted(*vocabulary, "token"),
                parameters()
            )
        }
        Model::Encoder { layers, heads, width, context, vocabulary, outputs, dropout, .. } => {
            format!(
                "encoder: {}, {}, width {width}, context {context}, {}, {}, dropout {dropout}; {} from {start}",
                counted(*layers, "layer"),
                counted(*heads, "head"),
                counted(*vocabulary, "token"),
                counted(*outputs, "output"),
                parameters()
            )
        }
        Model::Mlp { inputs, widths, outputs, activation, dropout, .. } => {
            let (inputs, outputs) = (counted(*inputs, "input"), counted(*outputs, "output"));
            format!("mlp: {inputs}, widths {widths:?}, {outputs}, {activation}, dropout {dropout}")
        }
        Model::Cnn { channels, height, width, convolutions, widths, outputs, activation, dropout, .. } => format!(
            "cnn: images of {channels} x {height} x {width}, {}, widths {widths:?}, {}, {activation}, dropout {dropout}",
            counted(convolutions.len(), "convolution"),
            counted(*outputs, "output")
        ),
        Model::TorchScript { shape, outputs, parameters, buffers } => format!(
            "torchscript: samples of {shape:?}, {}, {} of parameters and {} of buffers from {start}",
            counted(*outputs, "output"),
            counted(parameters.len(), "tensor"),
            counted(buffers.len(), "tensor")
        ),
    }
}

/// Values of these parameters.
fn values(all: &[Parameter]) -> u64 {
    let values = |shape: &[u64]| shape.iter().fold(1u64, |all, size| all.saturating_mul(*size));
    all.iter().fold(0u64, |all, one| all.saturating_add(values(&one.shape)))
}

fn length(length: &Length) -> String {
    match length {
        Length::Steps { steps } => format!("length of {}", counted(*steps, "step")),
        Length::Epochs { epochs } => format!("{epochs} epochs"),
    }
}

fn optimizer(optimizer: &Optimizer) -> String {
    match optimizer {
        Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, decay }
        | Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay, decay } => format!(
            "{}: rate {learning_rate}, betas {beta1} and {beta2}, epsilon {epsilon}, decay {weight_decay} of {decay}",
            optimizer.word()
        ),
        Optimizer::Lion { learning_rate, beta1, beta2, weight_decay, decay } => {
            format!("lion: rate {learning_rate}, betas {beta1} and {beta2}, decay {weight_decay} of {decay}")
        }
        Optimizer::Adafactor {
            learning_rate,
            decay_power,
            epsilon,
            minimum_scale,
            update_limit,
            weight_decay,
            decay,
        } => format!(
            "adafactor: relative rate {learning_rate}, decay power {decay_power}, epsilon {epsilon}, scale at least \
             {minimum_scale}, updates at most {update_limit}, decay {weight_decay} of {decay}"
        ),
        Optimizer::Sgd { learning_rate, momentum, nesterov, weight_decay, decay } => format!(
            "sgd: rate {learning_rate}, {}momentum {momentum}, decay {weight_decay} of {decay}",
            if *nesterov { "Nesterov " } else { "" }
        ),
    }
}

fn objective(objective: &Objective) -> String {
    match objective {
        Objective::NextToken { label_smoothing, z_loss } => {
            format!("next-token cross-entropy, label smoothing {label_smoothing}, z-loss {z_loss}")
        }
        Objective::CrossEntropy { label_smoothing, z_loss } => {
            format!("cross-entropy, label smoothing {label_smoothing}, z-loss {z_loss}")
        }
        Objective::BinaryCrossEntropy {} | Objective::MeanSquaredError {} => objective.word().into(),
        Objective::Huber { delta } => format!("huber, quadratic up to {delta}"),
    }
}

fn groups(groups: &[Group]) -> String {
    let group = |group: &Group| match &group.treatment {
        Treatment::Frozen {} => format!("{} frozen", group.pattern),
        Treatment::Trained { learning_rate_factor, weight_decay } => {
            let decay = weight_decay.map(|decay| format!(", decay {decay}")).unwrap_or_default();
            format!("{} at {learning_rate_factor} of the rate{decay}", group.pattern)
        }
    };
    if groups.is_empty() {
        return "none: all parameters are treated alike".into();
    }
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}

fn averaging(averaging: &Averaging) -> String {
    match averaging {
        Averaging::None {} => "none".into(),
        Averaging::Exponential { decay, first_step } => {
            format!("exponential with decay {decay}, from step {first_step} on; saved as model/averaged")
        }
    }
}

fn schedule(schedule: &Schedule) -> String {
    let end = match schedule {
        Schedule::Constant { .. } => String::new(),
        Schedule::Linear { final_fraction, .. } | Schedule::Cosine { final_fraction, .. } => {
            format!(" to {final_fraction} of the peak")
        }
        Schedule::Step { every, factor, .. } => format!(": times {factor} every {every} steps"),
        Schedule::InverseSquareRoot { timescale_steps, .. } => format!(" over {}", counted(*timescale_steps, "step")),
        Schedule::WarmupStableDecay { decay_steps, final_fraction, curve, .. } => {
            format!(": {curve} to {final_fraction} of the peak over the last {decay_steps} steps")
        }
    };
    format!("{} warm-up steps, then {}{end}", schedule.warmup_steps(), schedule.word())
}

fn clipping(clipping: &Clipping) -> String {
    match clipping {
        Clipping::None {} => "none".to_string(),
        Clipping::Norm { maximum } => format!("global norm {maximum}"),
        Clipping::Value { maximum } => format!("each value to {maximum}"),
    }
}
