//! Versioned projections: which values make two things the same. Written out field by field, never the hash of a
//! struct, so that a field added later does not move an identity recorded earlier (X25, X26, X75).

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::{Field, object};
use crate::manifest::candidate::{
    Adapter, Averaging, Base, Batching, Candidate, Clipping, Data, Early, Execution, Group, Length, Model, Objective,
    Optimizer, Schedule, Stops, Tokenizer, Treatment,
};
use crate::manifest::command::{Command, CommandData, Pin, PinnedRoot, Program, Trainer};
use crate::manifest::encoding::{Augmentation, Column, Holds};
use crate::manifest::evaluation::{Evaluator, HeldOut, Leakage, Spec};
use crate::manifest::network::{Convolution, ModuleTensor};
use crate::manifest::plan::Plan;
use crate::manifest::run::Stack;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// Fingerprint of a candidate, version 1: every declared value but the name. The seed belongs to the run (X27), the
/// intent to orchestration; neither enters.
///
/// Every struct is taken apart without `..`, so a new field does not compile until someone decides where it belongs.
pub fn candidate(candidate: &Candidate) -> Digest {
    let Candidate {
        name: _,
        model,
        base,
        tokenizer,
        data,
        objective,
        optimizer,
        groups,
        schedule,
        clipping,
        averaging,
        batching,
        length,
        stops,
        precision,
        execution,
        regime,
    } = candidate;
    object([
        ("projection", "xt.candidate-fingerprint/1".into()),
        ("model", model_1(model)),
        ("base", base_1(base)),
        ("tokenizer", tokenizer_1(tokenizer)),
        ("data", data_1(data)),
        (
            "objective",
            match objective {
                Objective::NextToken { label_smoothing, z_loss }
                | Objective::CrossEntropy { label_smoothing, z_loss } => object([
                    ("kind", objective.word().into()),
                    ("label_smoothing", label_smoothing.write()),
                    ("z_loss", z_loss.write()),
                ]),
                Objective::BinaryCrossEntropy {} | Objective::MeanSquaredError {} => objective.word().into(),
                Objective::Huber { delta } => object([("kind", "huber".into()), ("delta", delta.write())]),
            },
        ),
        ("optimizer", optimizer_1(optimizer)),
        ("groups", Value::List(groups.iter().map(group_1).collect())),
        ("schedule", schedule_1(schedule)),
        ("clipping", clipping_1(clipping)),
        ("averaging", averaging_1(averaging)),
        ("batching", batching_1(batching)),
        ("length", length_1(length)),
        ("stops", stops_1(stops)),
        ("precision", precision.write()),
        ("execution", execution_1(execution)),
        ("regime", regime.write()),
    ])
    .digest()
}

fn base_1(base: &Base) -> Value {
    match base {
        Base::Random {} => object([("kind", "random".into())]),
        Base::Module { digest } => object([("kind", "module".into()), ("digest", digest.write())]),
        Base::Bundle { digest, weights, adapter } => object([
            ("kind", "bundle".into()),
            ("digest", digest.write()),
            ("weights", weights.write()),
            ("adapter", adapter_1(adapter)),
        ]),
        Base::Safetensors { digest, configuration, prefix, fresh, unused, adapter } => object([
            ("kind", "safetensors".into()),
            ("digest", digest.write()),
            ("configuration", configuration.write()),
            ("prefix", prefix.write()),
            ("fresh", fresh.write()),
            ("unused", unused.write()),
            ("adapter", adapter_1(adapter)),
        ]),
    }
}

fn adapter_1(adapter: &Adapter) -> Value {
    match adapter {
        Adapter::None {} => object([("kind", "none".into())]),
        Adapter::Lora { rank, alpha, dropout, targets, saved } => object([
            ("kind", "lora".into()),
            ("rank", rank.write()),
            ("alpha", alpha.write()),
            ("dropout", dropout.write()),
            ("targets", targets.write()),
            ("saved", saved.write()),
        ]),
    }
}

fn model_1(model: &Model) -> Value {
    match model {
        Model::Gpt {
            layers,
            heads,
            width,
            inner,
            context,
            vocabulary,
            dropout,
            layer_norm_epsilon,
            initializer_range,
        } => object([
            ("kind", "gpt".into()),
            ("layers", layers.write()),
            ("heads", heads.write()),
            ("width", width.write()),
            ("inner", inner.write()),
            ("context", context.write()),
            ("vocabulary", vocabulary.write()),
            ("dropout", dropout.write()),
            ("layer_norm_epsilon", layer_norm_epsilon.write()),
            ("initializer_range", initializer_range.write()),
        ]),
        Model::Llama {
            layers,
            heads,
            key_value_heads,
            width,
            inner,
            context,
            vocabulary,
            tied,
            rotary_base,
            dropout,
            rms_norm_epsilon,
            initializer_range,
        } => object([
            ("kind", "llama".into()),
            ("layers", layers.write()),
            ("heads", heads.write()),
            ("key_value_heads", key_value_heads.write()),
            ("width", width.write()),
            ("inner", inner.write()),
            ("context", context.write()),
            ("vocabulary", vocabulary.write()),
            ("tied", tied.write()),
            ("rotary_base", rotary_base.write()),
            ("dropout", dropout.write()),
            ("rms_norm_epsilon", rms_norm_epsilon.write()),
            ("initializer_range", initializer_range.write()),
        ]),
        Model::Encoder {
            layers,
            heads,
            width,
            inner,
            context,
            vocabulary,
            segments,
            outputs,
            dropout,
            layer_norm_epsilon,
            initializer_range,
        } => object([
            ("kind", "encoder".into()),
            ("layers", layers.write()),
            ("heads", heads.write()),
            ("width", width.write()),
            ("inner", inner.write()),
            ("context", context.write()),
            ("vocabulary", vocabulary.write()),
            ("segments", segments.write()),
            ("outputs", outputs.write()),
            ("dropout", dropout.write()),
            ("layer_norm_epsilon", layer_norm_epsilon.write()),
            ("initializer_range", initializer_range.write()),
        ]),
        Model::Mlp { inputs, widths, outputs, activation, dropout, initializer_gain } => object([
            ("kind", "mlp".into()),
            ("inputs", inputs.write()),
            ("widths", widths.write()),
            ("outputs", outputs.write()),
            ("activation", activation.write()),
            ("dropout", dropout.write()),
            ("initializer_gain", initializer_gain.write()),
        ]),
        Model::TorchScript { shape, outputs, parameters, buffers } => object([
            ("kind", "torchscript".into()),
            ("shape", shape.write()),
            ("outputs", outputs.write()),
            ("parameters", Value::List(parameters.iter().map(module_tensor_1).collect())),
            ("buffers", Value::List(buffers.iter().map(module_tensor_1).collect())),
        ]),
        Model::Cnn {
            channels,
            height,
            width,
            convolutions,
            widths,
            outputs,
            activation,
            dropout,
            initializer_gain,
        } => object([
            ("kind", "cnn".into()),
            ("channels", channels.write()),
            ("height", height.write()),
            ("width", width.write()),
            ("convolutions", Value::List(convolutions.iter().map(convolution_1).collect())),
            ("widths", widths.write()),
            ("outputs", outputs.write()),
            ("activation", activation.write()),
            ("dropout", dropout.write()),
            ("initializer_gain", initializer_gain.write()),
        ]),
    }
}

fn module_tensor_1(tensor: &ModuleTensor) -> Value {
    let ModuleTensor { name, shape } = tensor;
    object([("name", name.write()), ("shape", shape.write())])
}

fn convolution_1(convolution: &Convolution) -> Value {
    let Convolution { channels, kernel, stride, padding, pool } = convolution;
    object([
        ("channels", channels.write()),
        ("kernel", kernel.write()),
        ("stride", stride.write()),
        ("padding", padding.write()),
        ("pool", pool.write()),
    ])
}

fn column_1(column: &Column) -> Value {
    let Column { name, holds } = column;
    let (missing, non_finite, levels) = match holds {
        Holds::Number { missing, non_finite } => (missing.write(), non_finite.write(), Value::Null),
        Holds::Category { levels, missing } => (missing.write(), Value::Null, levels.write()),
        Holds::TargetNumber { non_finite } => (Value::Null, non_finite.write(), Value::Null),
        Holds::TargetCategory { levels } => (Value::Null, Value::Null, levels.write()),
        Holds::Id {} | Holds::Ignored {} => (Value::Null, Value::Null, Value::Null),
    };
    object([
        ("name", name.write()),
        ("kind", holds.word().into()),
        ("missing", missing),
        ("non_finite", non_finite),
        ("levels", levels),
    ])
}

fn tokenizer_1(tokenizer: &Tokenizer) -> Value {
    match tokenizer {
        Tokenizer::Bytes {} => object([("kind", "bytes".into())]),
        Tokenizer::HuggingFace { digest } => object([("kind", "huggingface".into()), ("digest", digest.write())]),
        Tokenizer::Records { file, predicted, end, long } => object([
            ("kind", "records".into()),
            ("file", file.write()),
            ("predicted", predicted.write()),
            ("end", end.write()),
            ("long", long.write()),
        ]),
        Tokenizer::Labelled { file, levels, start, end, length, long } => object([
            ("kind", "labelled".into()),
            ("file", file.write()),
            ("levels", levels.write()),
            ("start", start.write()),
            ("end", end.write()),
            ("length", length.write()),
            ("long", long.write()),
        ]),
        Tokenizer::Table { columns, scaling } => object([
            ("kind", "table".into()),
            ("columns", Value::List(columns.iter().map(column_1).collect())),
            ("scaling", scaling.write()),
        ]),
        Tokenizer::Image { channels, height, width, classes, levels, scaling, augmentation } => {
            let mut all = object([
                ("kind", "image".into()),
                ("channels", channels.write()),
                ("height", height.write()),
                ("width", width.write()),
                ("classes", classes.write()),
                ("scaling", scaling.write()),
            ]);
            // What was recorded before there were these keeps its identity.
            if let Value::Object(members) = &mut all {
                members.extend(levels.as_ref().map(|levels| ("levels".into(), levels.write())));
                let changed = *augmentation != Augmentation::NONE;
                members.extend(changed.then(|| ("augmentation".into(), augmentation_1(*augmentation))));
            }
            all
        }
        Tokenizer::Tensors { inputs, shape, targets, classes, scaling } => object([
            ("kind", "tensors".into()),
            ("inputs", inputs.write()),
            ("shape", shape.write()),
            ("targets", targets.write()),
            ("classes", classes.write()),
            ("scaling", scaling.write()),
        ]),
    }
}

fn augmentation_1(augmentation: Augmentation) -> Value {
    let Augmentation { shift, mirror, cut_out } = augmentation;
    object([("shift", shift.write()), ("mirror", mirror.write()), ("cut_out", cut_out.write())])
}

fn data_1(data: &Data) -> Value {
    let Data { dataset, split, order, separator } = data;
    object([
        ("dataset", dataset.write()),
        ("split", split.write()),
        ("order", order.write()),
        ("separator", separator.write()),
    ])
}

fn optimizer_1(optimizer: &Optimizer) -> Value {
    match optimizer {
        Optimizer::AdamW { learning_rate, beta1, beta2, epsilon, weight_decay, decay }
        | Optimizer::Adam { learning_rate, beta1, beta2, epsilon, weight_decay, decay } => object([
            ("kind", optimizer.word().into()),
            ("learning_rate", learning_rate.write()),
            ("beta1", beta1.write()),
            ("beta2", beta2.write()),
            ("epsilon", epsilon.write()),
            ("weight_decay", weight_decay.write()),
            ("decay", decay.write()),
        ]),
        Optimizer::Lion { learning_rate, beta1, beta2, weight_decay, decay } => object([
            ("kind", "lion".into()),
            ("learning_rate", learning_rate.write()),
            ("beta1", beta1.write()),
            ("beta2", beta2.write()),
            ("weight_decay", weight_decay.write()),
            ("decay", decay.write()),
        ]),
        Optimizer::Adafactor {
            learning_rate,
            decay_power,
            epsilon,
            minimum_scale,
            update_limit,
            weight_decay,
            decay,
        } => object([
            ("kind", "adafactor".into()),
            ("learning_rate", learning_rate.write()),
            ("decay_power", decay_power.write()),
            ("epsilon", epsilon.write()),
            ("minimum_scale", minimum_scale.write()),
            ("update_limit", update_limit.write()),
            ("weight_decay", weight_decay.write()),
            ("decay", decay.write()),
        ]),
        Optimizer::Sgd { learning_rate, momentum, nesterov, weight_decay, decay } => object([
            ("kind", "sgd".into()),
            ("learning_rate", learning_rate.write()),
            ("momentum", momentum.write()),
            ("nesterov", nesterov.write()),
            ("weight_decay", weight_decay.write()),
            ("decay", decay.write()),
        ]),
    }
}

fn schedule_1(schedule: &Schedule) -> Value {
    match schedule {
        Schedule::Constant { warmup_steps } => {
            object([("kind", "constant".into()), ("warmup_steps", warmup_steps.write())])
        }
        Schedule::Linear { warmup_steps, final_fraction } | Schedule::Cosine { warmup_steps, final_fraction } => {
            object([
                ("kind", schedule.word().into()),
                ("warmup_steps", warmup_steps.write()),
                ("final_fraction", final_fraction.write()),
            ])
        }
        Schedule::Step { warmup_steps, every, factor } => object([
            ("kind", "step".into()),
            ("warmup_steps", warmup_steps.write()),
            ("every", every.write()),
            ("factor", factor.write()),
        ]),
        Schedule::InverseSquareRoot { warmup_steps, timescale_steps } => object([
            ("kind", "inverse-square-root".into()),
            ("warmup_steps", warmup_steps.write()),
            ("timescale_steps", timescale_steps.write()),
        ]),
        Schedule::WarmupStableDecay { warmup_steps, decay_steps, final_fraction, curve } => object([
            ("kind", "warmup-stable-decay".into()),
            ("warmup_steps", warmup_steps.write()),
            ("decay_steps", decay_steps.write()),
            ("final_fraction", final_fraction.write()),
            ("curve", curve.write()),
        ]),
    }
}

fn clipping_1(clipping: &Clipping) -> Value {
    match clipping {
        Clipping::None {} => object([("kind", "none".into())]),
        Clipping::Norm { maximum } | Clipping::Value { maximum } => {
            object([("kind", clipping.word().into()), ("maximum", maximum.write())])
        }
    }
}

fn group_1(group: &Group) -> Value {
    let Group { pattern, treatment } = group;
    let treatment = match treatment {
        Treatment::Frozen {} => object([("kind", "frozen".into())]),
        Treatment::Trained { learning_rate_factor, weight_decay } => object([
            ("kind", "trained".into()),
            ("learning_rate_factor", learning_rate_factor.write()),
            ("weight_decay", weight_decay.write()),
        ]),
    };
    object([("pattern", pattern.write()), ("treatment", treatment)])
}

fn averaging_1(averaging: &Averaging) -> Value {
    match averaging {
        Averaging::None {} => object([("kind", "none".into())]),
        Averaging::Exponential { decay, first_step } => {
            object([("kind", "exponential".into()), ("decay", decay.write()), ("first_step", first_step.write())])
        }
    }
}

fn batching_1(batching: &Batching) -> Value {
    let Batching { samples, remainder, accumulation, accumulation_remainder } = batching;
    object([
        ("samples", samples.write()),
        ("remainder", remainder.write()),
        ("accumulation", accumulation.write()),
        ("accumulation_remainder", accumulation_remainder.write()),
    ])
}

fn length_1(length: &Length) -> Value {
    match length {
        Length::Steps { steps } => object([("kind", "steps".into()), ("steps", steps.write())]),
        Length::Epochs { epochs } => object([("kind", "epochs".into()), ("epochs", epochs.write())]),
    }
}

fn stops_1(stops: &Stops) -> Value {
    let Stops { non_finite, early } = stops;
    let non_finite = ("non_finite", non_finite.write());
    match early {
        // What was recorded before there was a choice keeps its identity.
        Early::None {} => object([non_finite]),
        Early::TrainingLoss { window, target, patience, minimum_improvement, limit } => object([
            non_finite,
            (
                "early",
                object([
                    ("kind", "training-loss".into()),
                    ("window", window.write()),
                    ("target", target.write()),
                    ("patience", patience.write()),
                    ("minimum_improvement", minimum_improvement.write()),
                    ("limit", limit.write()),
                ]),
            ),
        ]),
    }
}

fn execution_1(execution: &Execution) -> Value {
    let Execution { device, threads, cpu_capability, math_mode, onednn } = execution;
    object([
        ("device", device.write()),
        ("threads", threads.write()),
        ("cpu_capability", cpu_capability.write()),
        ("math_mode", math_mode.write()),
        ("onednn", onednn.write()),
    ])
}

/// Fingerprint of how something is measured, version 1: every value of the spec but the name, and the version of the
/// evaluator; for a command the bytes of all that it can load, too. Results with the same one can be held against each other.
pub fn evaluation(spec: &Spec, program: Option<&Program>) -> Digest {
    let Spec { name: _, evaluator, parameters, data: HeldOut { dataset, split }, slices, leakage, seed } = spec;
    let Leakage { minimum_bytes, shared } = leakage;
    let evaluator_1 = match evaluator {
        Evaluator::NextToken { batch, resamples, confidence } => object([
            ("kind", "next-token".into()),
            ("batch", batch.write()),
            ("resamples", resamples.write()),
            ("confidence", confidence.write()),
        ]),
        Evaluator::Classification { batch, resamples, confidence, bins } => object([
            ("kind", "classification".into()),
            ("batch", batch.write()),
            ("resamples", resamples.write()),
            ("confidence", confidence.write()),
            ("bins", bins.write()),
        ]),
        Evaluator::Regression { batch, resamples, confidence } => object([
            ("kind", "regression".into()),
            ("batch", batch.write()),
            ("resamples", resamples.write()),
            ("confidence", confidence.write()),
        ]),
        Evaluator::Command { name, version: _, determinism, metrics, samples, confidence, program: told, settings } => {
            object([
                ("kind", "command".into()),
                ("name", name.write()),
                ("determinism", determinism.write()),
                ("metrics", metrics.write()),
                ("samples", samples.write()),
                ("confidence", confidence.write()),
                ("program", program.map_or(Value::Null, |program| Value::Object(program_1(told, program)))),
                ("settings", settings.write()),
            ])
        }
    };
    object([
        ("projection", "xt.evaluation-fingerprint/1".into()),
        ("evaluator", evaluator_1),
        ("version", evaluator.version().version.write()),
        ("parameters", parameters.write()),
        ("dataset", dataset.write()),
        ("split", split.write()),
        ("slices", slices.write()),
        ("leakage", object([("minimum_bytes", minimum_bytes.write()), ("shared", shared.write())])),
        ("seed", seed.write()),
    ])
    .digest()
}

/// Fingerprint of a command, version 1: every declared value but the name, and the bytes of all that it can load. Where a
/// root lies is part of it, since the program sees that.
pub fn command(command: &Command, program: &Program) -> Digest {
    let Command { name: _, trainer, parameters, data, steps, regime } = command;
    let mut members = program_1(trainer, program);
    members.extend([
        ("projection".into(), "xt.command-fingerprint/1".into()),
        ("parameters".into(), parameters.write()),
        (
            "data".into(),
            data.as_ref().map_or(Value::Null, |CommandData { dataset, split }| {
                object([("dataset", dataset.write()), ("split", split.write())])
            }),
        ),
        ("steps".into(), steps.write()),
        ("regime".into(), regime.write()),
    ]);
    Value::Object(members).digest()
}

/// What a program is: what it is told, and the bytes of all that it can load.
fn program_1(trainer: &Trainer, program: &Program) -> BTreeMap<String, Value> {
    let Trainer::Command { executable: _, arguments, environment, roots: _, files, threads } = trainer;
    let Program { executable, libraries, roots } = program;
    let pin = |pin: &Pin| object([("path", pin.path.write()), ("digest", pin.digest.write())]);
    let root = |root: &PinnedRoot| {
        let PinnedRoot { path, digest, execute, files: _, bytes: _ } = root;
        object([("path", path.write()), ("digest", digest.write()), ("execute", execute.write())])
    };
    BTreeMap::from([
        ("executable".into(), pin(executable)),
        ("libraries".into(), Value::List(libraries.iter().map(pin).collect())),
        ("roots".into(), Value::List(roots.iter().map(root).collect())),
        ("arguments".into(), arguments.write()),
        ("environment".into(), environment.write()),
        ("files".into(), files.write()),
        ("threads".into(), threads.write()),
    ])
}

/// Identity of an execution stack, version 1 (T77): hardware, kernel, worker and libraries with their digests, and the
/// environment, which pins threads, instructions and math mode. What the worker says about itself follows from these.
pub fn stack(stack: &Stack, environment: &BTreeMap<String, String>) -> Digest {
    let Stack { worker, reported: _, libraries, processor, processor_features, system } = stack;
    object([
        ("projection", "xt.stack/1".into()),
        ("worker", worker.write()),
        ("libraries", libraries.write()),
        ("processor", processor.write()),
        ("processor_features", processor_features.write()),
        ("system", system.write()),
        ("environment", environment.write()),
    ])
    .digest()
}

/// Digest of the whole request, version 1: everything in the plan but this digest. Two plans with the same one ask for
/// the same side effect, which is another question than whether they are the same science (X33, X87).
pub fn request(plan: &Plan) -> Digest {
    let Value::Object(mut members) = plan.write() else { unreachable!("a plan is written as an object") };
    members.remove("request");
    object([("projection", "xt.request/1".into()), ("plan", Value::Object(members))]).digest()
}
