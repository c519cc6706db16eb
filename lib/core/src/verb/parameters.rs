//! Names and shapes of the parameters of a model: what patterns are held against before anything is trained. The trainer's
//! own declarations are checked against this list by its tests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::manifest::candidate::Model;

/// A trainable tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as the saved model spells it.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

/// Every parameter of `model`, sorted by name.
pub fn parameters(model: &Model) -> Vec<Parameter> {
    let mut all = match model {
        Model::Gpt { layers, width, inner, context, vocabulary, .. } => {
            gpt(*layers, *width, *inner, [("wte", *vocabulary), ("wpe", *context)])
        }
    };
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all
}

/// Those of transformers' `GPT2LMHeadModel`, whose output layer is tied to the embedding.
fn gpt(layers: u64, width: u64, inner: u64, embeddings: [(&str, u64); 2]) -> Vec<Parameter> {
    let one = |name: String, shape: &[u64]| Parameter { name: format!("transformer.{name}"), shape: shape.to_vec() };
    let norm = |name: String| ["weight", "bias"].map(|part| one(format!("{name}.{part}"), &[width]));
    let mut all: Vec<Parameter> =
        embeddings.iter().map(|(name, rows)| one(format!("{name}.weight"), &[*rows, width])).collect();
    all.extend(norm("ln_f".into()));
    for block in 0..layers {
        all.extend(["ln_1", "ln_2"].into_iter().flat_map(|name| norm(format!("h.{block}.{name}"))));
        for (layer, from, to) in [
            ("attn.c_attn", width, width.saturating_mul(3)),
            ("attn.c_proj", width, width),
            ("mlp.c_fc", width, inner),
            ("mlp.c_proj", inner, width),
        ] {
            all.push(one(format!("h.{block}.{layer}.weight"), &[from, to]));
            all.push(one(format!("h.{block}.{layer}.bias"), &[to]));
        }
    }
    all
}
