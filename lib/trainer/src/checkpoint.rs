//! Models on disk, in the form that transformers' `GPT2LMHeadModel` reads: `config.json` and `model.safetensors`.
//!
//! The bytes depend on the values alone: tensors are sorted by name, the header has one metadata entry, and nothing else
//! is written (row N-10).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, View, serialize_to_file};
use xt_core::canonical::Value;
use xt_core::field::{object, texts};
use xt_core::manifest::candidate::Model;
use xt_torch::memory::bytes;

use crate::fault::TrainError;
use crate::parameters::Parameters;

/// The folder of a model, relative to the output folder.
const FOLDER: &str = "model";

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

/// Writes the model into `outputs` and returns the paths written. The file appears whole, by a rename.
pub fn save(
    outputs: &Path,
    model: &Model,
    parameters: &Parameters,
    tokenizer: Option<&[u8]>,
) -> Result<Vec<String>, TrainError> {
    let path = |name: &str| format!("{FOLDER}/{name}");
    let failed = |path: &str, source| TrainError::Output { path: path.into(), source };
    fs::create_dir_all(outputs.join(FOLDER)).map_err(|source| failed(FOLDER, source))?;
    let weights = path("model.safetensors");
    let metadata = HashMap::from([("format".to_string(), "pt".to_string())]);
    serialize_to_file(tensors(parameters), Some(metadata), &outputs.join(&weights))
        .map_err(|error| failed(&weights, std::io::Error::other(error)))?;
    let mut written = vec![weights];
    let config = config(model).canonical() + "\n";
    let others = [("config.json", Some(config.as_bytes())), ("tokenizer.json", tokenizer)];
    for (name, bytes) in others.into_iter().filter_map(|(name, bytes)| Some((path(name), bytes?))) {
        fs::write(outputs.join(&name), bytes).map_err(|source| failed(&name, source))?;
        written.push(name);
    }
    written.sort();
    Ok(written)
}

fn tensors(parameters: &Parameters) -> Vec<(&str, Saved<'_>)> {
    let row = parameters.values.values();
    let saved = |span: &crate::layout::Span| Saved {
        shape: span.declared.shape.iter().filter_map(|size| usize::try_from(*size).ok()).collect(),
        values: &row[span.offset..span.offset + span.count],
    };
    parameters.layout.spans().iter().map(|span| (span.declared.name.as_str(), saved(span))).collect()
}

/// Fills `parameters` from the bytes of a `model.safetensors`. Names, shapes and types must be exactly theirs: a tensor
/// too many is refused as well as one too few (row R-24).
pub fn load(parameters: &mut Parameters, file: &[u8]) -> Result<(), TrainError> {
    let wrong = |text: String| TrainError::Weights(text);
    let stored = SafeTensors::deserialize(file).map_err(|error| wrong(error.to_string()))?;
    let Parameters { layout, values, .. } = parameters;
    let row = values.values_mut();
    for span in layout.spans() {
        let name = &span.declared.name;
        let tensor = stored.tensor(name).map_err(|_| wrong(format!("it has no tensor {name}")))?;
        let shape: Vec<i64> = tensor.shape().iter().filter_map(|size| i64::try_from(*size).ok()).collect();
        if tensor.dtype() != Dtype::F32 || shape != span.declared.shape {
            let (found, due) = (tensor.dtype(), &span.declared.shape);
            return Err(wrong(format!("{name} is {found:?} {shape:?}, the model has F32 {due:?}")));
        }
        let (chunks, _) = tensor.data().as_chunks::<4>();
        for (value, chunk) in row[span.offset..span.offset + span.count].iter_mut().zip(chunks) {
            *value = f32::from_le_bytes(*chunk);
        }
    }
    let known = |name: &&str| layout.spans().iter().any(|span| span.declared.name == **name);
    match stored.names().into_iter().filter(|name| !known(name)).min() {
        Some(extra) => Err(wrong(format!("it has a tensor {extra} that the model has not"))),
        None => Ok(()),
    }
}

/// `config.json` with every value that transformers would otherwise fill in by default.
pub fn config(model: &Model) -> Value {
    let Model::Gpt { layers, heads, width, inner, context, vocabulary, dropout, layer_norm_epsilon, initializer_range } =
        model;
    let dropout = Value::Float(*dropout);
    object([
        ("activation_function", "gelu_new".into()),
        ("add_cross_attention", false.into()),
        ("architectures", texts(&["GPT2LMHeadModel"])),
        ("attn_pdrop", dropout.clone()),
        ("bos_token_id", Value::Null),
        ("embd_pdrop", dropout.clone()),
        ("eos_token_id", Value::Null),
        ("initializer_range", Value::Float(*initializer_range)),
        ("layer_norm_epsilon", Value::Float(*layer_norm_epsilon)),
        ("model_type", "gpt2".into()),
        ("n_embd", (*width).into()),
        ("n_head", (*heads).into()),
        ("n_inner", (*inner).into()),
        ("n_layer", (*layers).into()),
        ("n_positions", (*context).into()),
        ("pad_token_id", Value::Null),
        ("reorder_and_upcast_attn", false.into()),
        ("resid_pdrop", dropout),
        ("scale_attn_by_inverse_layer_idx", false.into()),
        ("scale_attn_weights", true.into()),
        ("tie_word_embeddings", true.into()),
        ("torch_dtype", "float32".into()),
        ("use_cache", true.into()),
        ("vocab_size", (*vocabulary).into()),
    ])
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
        let written = save(folder.path(), &model(), parameters, Some(b"{}")).unwrap();
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
