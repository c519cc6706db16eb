//! Models on disk, in the form that transformers' `GPT2LMHeadModel` reads: `config.json` and `model.safetensors`.
//!
//! The bytes depend on the values alone: tensors are sorted by name, the header has one metadata entry, and nothing else
//! is written (row N-10).

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView, View, serialize_to_file};
use xt_core::manifest::candidate::{Base, Model};
use xt_core::verb::adapter;
use xt_core::verb::configuration::configuration;
use xt_torch::memory::{Flat, bytes};

use crate::fault::TrainError;
use crate::layout::{Layout, Span};
use crate::parameters::Parameters;

/// The folder of a model, relative to the output folder.
pub const FOLDER: &str = "model";
/// The folder of the model with averaged parameters.
pub const AVERAGED: &str = "model/averaged";

/// A tensor where it lies in the flat row.
struct Saved<'a> {
    shape: Vec<usize>,
    values: &'a [f32],
}

impl View for Saved<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        bytes(self.values).into()
    }

    fn data_len(&self) -> usize {
        bytes(self.values).len()
    }
}

/// What the files of a model are called, and the text of its configuration.
#[derive(Clone, Debug)]
pub struct Form {
    weights: &'static str,
    configuration: &'static str,
    text: String,
}

impl Form {
    /// A model as transformers reads it, or adapters on a base as PEFT does.
    pub fn of(model: &Model, base: &Base) -> Self {
        let (weights, configuration, value) = match adapter::configuration(model, base) {
            Some(value) => ("adapter_model.safetensors", "adapter_config.json", value),
            None => ("model.safetensors", "config.json", configuration(model)),
        };
        Self { weights, configuration, text: value.canonical() + "\n" }
    }
}

/// Writes the model with these values into `folder` of `outputs` and returns the paths written. The file appears whole, by a
/// rename.
pub fn save(
    outputs: &Path,
    folder: &str,
    form: &Form,
    values: (&Layout, &Flat),
    tokenizer: Option<&[u8]>,
) -> Result<Vec<String>, TrainError> {
    let path = |name: &str| format!("{folder}/{name}");
    let failed = |path: &str, source| TrainError::Output { path: path.into(), source };
    fs::create_dir_all(outputs.join(folder)).map_err(|source| failed(folder, source))?;
    let weights = path(form.weights);
    write(&[("", values.0, values.1.values())], outputs, &weights)?;
    let mut written = vec![weights];
    let others = [(form.configuration, Some(form.text.as_bytes())), ("tokenizer.json", tokenizer)];
    for (name, bytes) in others.into_iter().filter_map(|(name, bytes)| Some((path(name), bytes?))) {
        fs::write(outputs.join(&name), bytes).map_err(|source| failed(&name, source))?;
        written.push(name);
    }
    written.sort();
    Ok(written)
}

/// Writes rows, each with its prefix and layout, to `path` in `outputs`; each tensor is named by the prefix of its row and by
/// its parameter.
pub(crate) fn write(rows: &[(&str, &Layout, &[f32])], outputs: &Path, path: &str) -> Result<(), TrainError> {
    let saved = |span: &Span, row| Saved {
        shape: span.declared.shape.iter().filter_map(|size| usize::try_from(*size).ok()).collect(),
        values: span.of(row),
    };
    let tensors = rows.iter().flat_map(|(prefix, layout, row)| {
        layout.spans().iter().map(move |span| (format!("{prefix}{}", span.declared.name), saved(span, row)))
    });
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    serialize_to_file(tensors, Some(metadata), &outputs.join(path))
        .map_err(|error| TrainError::Output { path: path.into(), source: std::io::Error::other(error) })
}

/// Fills `parameters` from the bytes of a `model.safetensors`. Names, shapes and types must be exactly theirs: a tensor
/// too many is refused as well as one too few (row R-24).
pub fn load(parameters: &mut Parameters, file: &[u8]) -> Result<(), TrainError> {
    let Parameters { layout, values, .. } = parameters;
    read(&mut [("", layout, values)], file).map_err(|wrong| TrainError::Weights(wrong.join("; ")))
}

/// Fills rows from the bytes of a file, or says everything that is wrong with the file; then some rows may
/// be filled and others not.
pub(crate) fn read(rows: &mut [(&str, &Layout, &mut Flat)], file: &[u8]) -> Result<(), Vec<String>> {
    let stored = SafeTensors::deserialize(file).map_err(|error| vec![error.to_string()])?;
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    for (prefix, layout, row) in rows {
        let row = row.values_mut();
        for span in layout.spans() {
            let name = format!("{prefix}{}", span.declared.name);
            match stored.tensor(&name) {
                Ok(tensor) => match unfit(&tensor, span) {
                    None => fill(&mut row[span.offset..span.offset + span.count], tensor.data()),
                    Some(why) => wrong.push(format!("{name} is {why}")),
                },
                Err(_) => wrong.push(format!("it has no tensor {name}")),
            }
            known.insert(name);
        }
    }
    let mut extra: Vec<&str> = stored.names().into_iter().filter(|name| !known.contains(*name)).collect();
    extra.sort_unstable();
    wrong.extend(extra.iter().map(|name| format!("it has a tensor {name} that the model has not")));
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn unfit(tensor: &TensorView<'_>, span: &Span) -> Option<String> {
    let shape: Vec<i64> = tensor.shape().iter().filter_map(|size| i64::try_from(*size).ok()).collect();
    let due = &span.declared.shape;
    let fits = tensor.dtype() == Dtype::F32 && shape == *due;
    (!fits).then(|| format!("{:?} {shape:?}, the model has F32 {due:?}", tensor.dtype()))
}

fn fill(values: &mut [f32], bytes: &[u8]) {
    let (chunks, _) = bytes.as_chunks::<4>();
    for (value, chunk) in values.iter_mut().zip(chunks) {
        *value = f32::from_le_bytes(*chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Declared, Start};
    use xt_core::manifest::candidate::Decay;
    use xt_core::number::Finite;

    fn parameters(names: &[&str], seed: u64) -> Parameters {
        let declared = |name: &&str| Declared { name: (*name).into(), shape: vec![2, 3], start: Start::Normal(1.0) };
        let mut parameters = Parameters::new(names.iter().map(declared).collect(), Decay::All).unwrap();
        parameters.initialise(seed);
        parameters
    }

    fn model() -> Model {
        let finite = |value| Finite::new(value).unwrap();
        Model::Gpt {
            layers: 1,
            heads: 1,
            width: 3,
            inner: 4,
            context: 2,
            vocabulary: 2,
            dropout: finite(0.1),
            layer_norm_epsilon: finite(1e-5),
            initializer_range: finite(0.02),
        }
    }

    fn saved(parameters: &Parameters) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let written =
            save(folder.path(), FOLDER, &Form::of(&model(), &Base::Random {}), parameters.memory(), Some(b"{}"))
                .unwrap();
        assert_eq!(written, ["model/config.json", "model/model.safetensors", "model/tokenizer.json"]);
        fs::read(folder.path().join("model/model.safetensors")).unwrap()
    }

    /// Row N-10.
    #[test]
    fn the_same_weights_are_the_same_bytes_and_other_weights_are_not() {
        let names = ["b", "a", "c", "e", "d"];
        assert_eq!(saved(&parameters(&names, 1)), saved(&parameters(&["e", "d", "c", "b", "a"], 1)));
        assert_ne!(saved(&parameters(&names, 1)), saved(&parameters(&names, 2)));
    }

    #[test]
    fn loaded_weights_are_those_saved_and_wrong_files_are_refused_by_name() {
        let original = parameters(&["a", "b"], 1);
        let file = saved(&original);
        let mut other = parameters(&["a", "b"], 2);
        load(&mut other, &file).unwrap();
        assert_eq!(other.values.values(), original.values.values());
        let refused = |names: &[&str], file: &[u8]| load(&mut parameters(names, 1), file).unwrap_err().to_string();
        assert_eq!(refused(&["a"], &file), "the model file does not fit: it has a tensor b that the model has not");
        assert_eq!(refused(&["a", "b", "c"], &file), "the model file does not fit: it has no tensor c");
        assert!(refused(&["a", "b"], &file[..file.len() - 1]).starts_with("the model file does not fit"));
    }
}
