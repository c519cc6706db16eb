//! What training begins from: parameters of a file that the plan pins by digest. They are looked at again here, since the
//! worker takes nobody's word.

use std::path::Path;

use safetensors::SafeTensors;
use xt_core::fault::Faults;
use xt_core::manifest::candidate::{Base, Model};
use xt_core::verb::adapter::PREFIX;
use xt_core::verb::base::{Naming, START, check, header_length, tensors};

use crate::fault::TrainError;
use crate::inputs;
use crate::model::torchscript;
use crate::parameters::Parameters;

/// The bytes of the base's parameters, which lie in `folder`; `None` when training begins from random ones. What does not fit
/// the candidate is refused with every reason.
pub fn read(model: &Model, base: &Base, folder: &Path) -> Result<Option<Vec<u8>>, TrainError> {
    let Some([document, weights]) = base.files() else { return Ok(None) };
    if let Base::Module { digest } = base {
        // What is in it is looked at where it is loaded.
        return inputs::read(folder, *digest).map(Some);
    }
    let (document, file) = (inputs::read(folder, document)?, inputs::read(folder, weights)?);
    let mut faults = Faults::new();
    match header(&file) {
        Ok((header, body)) => match tensors(header, body) {
            Ok(tensors) => check(model, base, &document, &tensors, &mut faults),
            Err(found) => faults.0.extend(found.0),
        },
        Err(why) => faults.add("/base/digest", "base.file", why),
    }
    faults.or(()).map_err(TrainError::Base)?;
    Ok(Some(file))
}

/// The header, and how many bytes are behind it.
fn header(file: &[u8]) -> Result<(&[u8], u64), String> {
    let cut = || "it ends inside its header".to_string();
    let (start, rest) = file.split_first_chunk::<START>().ok_or_else(cut)?;
    let (header, body) = rest.split_at_checked(header_length(start)?).ok_or_else(cut)?;
    Ok((header, body.len() as u64))
}

/// What the base calls the parameter `name`; `None` for one that it does not have.
fn source<'a>(naming: &Naming<'_>, name: &'a str) -> Option<&'a str> {
    if name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight") {
        return None;
    }
    naming.in_file(name.strip_prefix(PREFIX).unwrap_or(name))
}

/// Whether [`fill`] gives the parameter `name` its value.
pub fn fills(base: &Base, name: &str) -> bool {
    source(&Naming::of(base), name).is_some()
}

/// Gives every parameter that the base has its value from there, under its own name or that of PEFT; the others keep what they
/// were drawn as.
pub fn fill(parameters: &mut Parameters, base: &Base, file: &[u8]) -> Result<(), TrainError> {
    if let Base::Module { .. } = base {
        return torchscript::fill(parameters);
    }
    let stored = SafeTensors::deserialize(file).map_err(|error| TrainError::Weights(error.to_string()))?;
    let naming = Naming::of(base);
    let Parameters { layout, values, .. } = parameters;
    let values = values.values_mut();
    for span in layout.spans() {
        let Some(name) = source(&naming, &span.declared.name) else { continue };
        let tensor = stored.tensor(name).map_err(|error| TrainError::Weights(format!("{name}: {error}")))?;
        let (chunks, rest) = tensor.data().as_chunks::<4>();
        if chunks.len() != span.count || !rest.is_empty() {
            return Err(TrainError::Weights(format!("{name} has {} values, the model {}", chunks.len(), span.count)));
        }
        for (value, chunk) in values[span.offset..span.offset + span.count].iter_mut().zip(chunks) {
            *value = f32::from_le_bytes(*chunk);
        }
    }
    Ok(())
}
