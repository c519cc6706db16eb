//! What a run trains, and what it stands on: all parameters of a model, or adapters beside a base that stays as it is.
//!
//! The base of an adapter is no part of the state: it is an input of the plan, pinned by digest, and is read again wherever
//! the adapter is used.

use std::path::Path;

use xt_core::digest::Digest;
use xt_core::manifest::candidate::{Adapter, Base, Decay, Model};
use xt_core::verb::adapter::trainable;

use crate::fault::TrainError;
use crate::layout::{Declared, Start};
use crate::model::{family, torchscript};
use crate::parameters::{Foundation, Parameters};
use crate::{base, checkpoint, inputs};

/// What is trained by a candidate with this model and base, before any value is given to it; `file` holds the parameters of
/// the base.
pub fn parameters(model: &Model, base: &Base, decay: Decay, file: Option<&[u8]>) -> Result<Parameters, TrainError> {
    let all = family(model)?.parameters();
    if let Base::Module { .. } = base {
        let file = file.ok_or_else(|| TrainError::Model("a model without its module is none".into()))?;
        return Ok(Parameters::new(all, decay)?.of_module(torchscript::load(model, file)?));
    }
    let Some(Adapter::Lora { rank, alpha, .. }) = base.adapter() else { return Parameters::new(all, decay) };
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let rank = *rank as f64;
    let mut declared = Vec::new();
    for parameter in trainable(model, base) {
        let start = match parameter.name.rsplit('.').nth(1) {
            // As PEFT's `init_lora_weights="gaussian"`; the other factor is 0, so that training begins at the base.
            Some("lora_A") => Start::Normal(1.0 / rank),
            Some("lora_B") => Start::Zeros,
            _ => start_of(&all, &parameter.name),
        };
        let shape: Result<_, _> = parameter.shape.iter().map(|size| crate::model::size(*size)).collect();
        declared.push(Declared { name: parameter.name, shape: shape?, start });
    }
    let mut below = Parameters::new(all, Decay::All)?;
    let file = file.ok_or_else(|| TrainError::Model("an adapter without its base is none".into()))?;
    base::fill(&mut below, base, file)?;
    Ok(Parameters::new(declared, decay)?.on(Foundation { parameters: below, scale: alpha.get() / rank }))
}

/// What the family declares a parameter to start as that is saved whole beside adapters.
fn start_of(all: &[Declared], name: &str) -> Start {
    let plain = name.strip_prefix(xt_core::verb::adapter::PREFIX).unwrap_or(name);
    all.iter().find(|one| one.name == plain).map_or(Start::Zeros, |one| one.start)
}

/// The trained parameters in the file `weights` of `folder`, on their base where they are adapters. Files that do not fit
/// are refused.
pub fn trained(model: &Model, base: &Base, weights: Digest, folder: &Path) -> Result<Parameters, TrainError> {
    let file = if base.stays() { base::read(model, base, folder)? } else { None };
    let mut parameters = parameters(model, base, Decay::All, file.as_deref())?;
    checkpoint::load(&mut parameters, &inputs::read(folder, weights)?)?;
    Ok(parameters)
}
