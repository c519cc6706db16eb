//! What is trained beside a base that stays as it is: names, shapes and description of adapters, in the form of PEFT.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::object;
use crate::manifest::candidate::{Adapter, Averaging, Base, Candidate, Model};
use crate::verb::compile::single;
use crate::verb::groups::fits;
use crate::verb::parameters::{Parameter, parameters};

/// What the names of PEFT begin with, before those of the model.
pub const PREFIX: &str = "base_model.model.";

/// A linear layer that can be adapted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name; that of its weight without the end `.weight`.
    pub name: String,
    /// What it reads.
    pub inputs: u64,
    /// What it gives.
    pub outputs: u64,
}

/// The linear layers inside the blocks of a model; none for a model without blocks.
pub fn layers(model: &Model) -> Vec<Layer> {
    // transformers keeps the weights of a GPT-2 as (in, out), those of all others as (out, in).
    let (list, turned) = match model {
        Model::Gpt { .. } => (".h.", true),
        Model::Llama { .. } => (".layers.", false),
        Model::Encoder { .. } => (".layer.", false),
        Model::Mlp { .. } | Model::Cnn { .. } | Model::TorchScript { .. } => return Vec::new(),
    };
    let layer = |parameter: Parameter| {
        let name = parameter.name.strip_suffix(".weight").filter(|name| name.contains(list))?.to_string();
        let [first, second] = <[u64; 2]>::try_from(parameter.shape).ok()?;
        let (inputs, outputs) = if turned { (first, second) } else { (second, first) };
        Some(Layer { name, inputs, outputs })
    };
    parameters(model).into_iter().filter_map(layer).collect()
}

/// Names and shapes of what is trained, sorted by name: all parameters of the model, or the adapters beside them.
pub fn trainable(model: &Model, base: &Base) -> Vec<Parameter> {
    let Some(Adapter::Lora { rank, targets, saved, .. }) = base.adapter() else { return parameters(model) };
    let named = |patterns: &[String], name: &str| patterns.iter().any(|pattern| fits(pattern, name));
    let mut all: Vec<Parameter> = layers(model)
        .into_iter()
        .filter(|layer| named(targets, &layer.name))
        .flat_map(|Layer { name, inputs, outputs }| {
            [("lora_A", [*rank, inputs]), ("lora_B", [outputs, *rank])]
                .map(|(part, shape)| Parameter { name: format!("{PREFIX}{name}.{part}.weight"), shape: shape.to_vec() })
        })
        .collect();
    let kept = parameters(model).into_iter().filter(|parameter| named(saved, &parameter.name));
    all.extend(kept.map(|Parameter { name, shape }| Parameter { name: format!("{PREFIX}{name}"), shape }));
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all
}

/// Notes what makes an adapter impossible.
pub(crate) fn check(candidate: &Candidate, faults: &mut Faults) {
    let Some(Adapter::Lora { rank, alpha, targets, saved, .. }) = candidate.base.adapter() else { return };
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    single("/base/adapter/alpha", alpha.get() / *rank as f64, faults);
    if candidate.averaging != (Averaging::None {}) {
        faults.add("/averaging", "adapter.averaging", "no average of adapters is kept; declare none");
    }
    let (layers, all) = (layers(&candidate.model), parameters(&candidate.model));
    if targets.is_empty() {
        faults.add("/base/adapter/targets", "adapter.nothing", "without a target there is no adapter");
    }
    for (place, pattern) in targets.iter().enumerate() {
        if !layers.iter().any(|layer| fits(pattern, &layer.name)) {
            let known = layers.first().map_or("none", |layer| layer.name.as_str());
            let message =
                format!("{pattern:?} fits none of the {} layers that can be adapted, such as {known}", layers.len());
            faults.add(format!("/base/adapter/targets/{place}"), "adapter.nothing", message);
        }
    }
    for (place, pattern) in saved.iter().enumerate() {
        if !all.iter().any(|parameter| fits(pattern, &parameter.name)) {
            let message = format!("{pattern:?} fits none of the {} parameters of the model", all.len());
            faults.add(format!("/base/adapter/saved/{place}"), "adapter.nothing", message);
        }
    }
    check_saved(&candidate.base, (targets, saved), &all, faults);
}

/// What is saved must be whole modules, apart from adapted ones, and everything that is not in the base.
fn check_saved(base: &Base, (targets, saved): (&[String], &[String]), all: &[Parameter], faults: &mut Faults) {
    let kept = |name: &str| saved.iter().any(|pattern| fits(pattern, name));
    for Parameter { name, .. } in all {
        if kept(name) && targets.iter().any(|pattern| fits(pattern, module(name))) {
            let message = format!("{} is adapted and saved whole at once", module(name));
            faults.add("/base/adapter/saved", "adapter.twice", message);
        }
        if !kept(name) && all.iter().any(|other| module(&other.name) == module(name) && kept(&other.name)) {
            let message = format!("modules are saved whole, and {name} is missing");
            faults.add("/base/adapter/saved", "adapter.module", message);
        }
        let Base::Safetensors { fresh, .. } = base else { continue };
        if !kept(name) && fresh.iter().any(|pattern| fits(pattern, name)) {
            let message = format!("{name} is drawn from the seed, so it must be saved with the adapter");
            faults.add("/base/adapter/saved", "adapter.fresh", message);
        }
    }
}

/// The module of a parameter.
fn module(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(module, _)| module)
}

/// `adapter_config.json` as PEFT has it, with every value that PEFT would otherwise fill in and that changes what is computed.
/// The base is named by its digest. `None` where there is no adapter.
pub fn configuration(model: &Model, base: &Base) -> Option<Value> {
    let Some(Adapter::Lora { rank, alpha, dropout, targets, saved }) = base.adapter() else { return None };
    let list = |names: BTreeSet<String>| Value::List(names.iter().map(|name| name.as_str().into()).collect());
    let adapted = layers(model).into_iter().map(|layer| layer.name);
    let adapted = adapted.filter(|name| targets.iter().any(|pattern| fits(pattern, name))).collect();
    let all = parameters(model).into_iter().map(|parameter| parameter.name);
    let kept: BTreeSet<String> = all
        .filter(|name| saved.iter().any(|pattern| fits(pattern, name)))
        .map(|name| module(&name).to_string())
        .collect();
    let name = base.digest().map_or(Value::Null, |digest| digest.to_string().as_str().into());
    Some(object([
        ("base_model_name_or_path", name),
        ("bias", "none".into()),
        ("fan_in_fan_out", matches!(model, Model::Gpt { .. }).into()),
        ("inference_mode", true.into()),
        ("init_lora_weights", "gaussian".into()),
        ("lora_alpha", Value::Float(*alpha)),
        ("lora_dropout", Value::Float(*dropout)),
        ("modules_to_save", if kept.is_empty() { Value::Null } else { list(kept) }),
        ("peft_type", "LORA".into()),
        ("r", (*rank).into()),
        ("target_modules", list(adapted)),
        ("task_type", if matches!(model, Model::Encoder { .. }) { "SEQ_CLS" } else { "CAUSAL_LM" }.into()),
        ("use_dora", false.into()),
        ("use_rslora", false.into()),
    ]))
}

/// In words.
pub fn describe(base: &Base) -> Option<String> {
    let Some(Adapter::Lora { rank, alpha, dropout, targets, saved }) = base.adapter() else { return None };
    let saved = if saved.is_empty() { String::new() } else { format!("; trained whole: {}", saved.join(", ")) };
    Some(format!("LoRA of rank {rank}, alpha {alpha}, dropout {dropout} on {}{saved}", targets.join(", ")))
}
