//! Names and shapes of the parameters of a model: what patterns are held against before anything is trained. The trainer's
//! own declarations are checked against this list by its tests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::fault::Faults;
use crate::manifest::candidate::Model;
use crate::verb::fit::behind;

/// A trainable tensor of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, as the saved model spells it.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

/// Every parameter of `model`, sorted by name; of a module its buffers, too.
pub fn parameters(model: &Model) -> Vec<Parameter> {
    let mut all: Vec<Parameter> = match model {
        Model::Gpt { layers, width, inner, context, vocabulary, .. } => {
            gpt(*layers, *width, *inner, [("wte", *vocabulary), ("wpe", *context)])
        }
        Model::Llama { .. } => llama(model),
        Model::Encoder { .. } => encoder(model),
        Model::Mlp { inputs, widths, outputs, .. } => dense(*inputs, widths, *outputs),
        Model::Cnn { channels, height, width, convolutions, widths, outputs, .. } => {
            let mut all = Vec::new();
            let mut before = *channels;
            for (index, convolution) in convolutions.iter().enumerate() {
                let weight = [convolution.channels, before, convolution.kernel, convolution.kernel];
                all.extend(layer(&format!("convolutions.{index}"), &weight));
                before = convolution.channels;
            }
            let [high, wide] = behind(convolutions, [*height, *width], &mut Faults::new());
            all.extend(dense(before.saturating_mul(high).saturating_mul(wide), widths, *outputs));
            all
        }
        Model::TorchScript { parameters, buffers, .. } => {
            let tensors = parameters.iter().chain(buffers);
            tensors.map(|one| Parameter { name: one.name.clone(), shape: one.shape.clone() }).collect()
        }
    };
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all
}

/// A weight, (outputs, inputs...), and a bias.
fn layer(name: &str, weight: &[u64]) -> [Parameter; 2] {
    let bias = weight.iter().take(1).copied().collect();
    [
        Parameter { name: format!("{name}.weight"), shape: weight.to_vec() },
        Parameter { name: format!("{name}.bias"), shape: bias },
    ]
}

/// Those of layers that are fully connected.
fn dense(inputs: u64, widths: &[u64], outputs: u64) -> Vec<Parameter> {
    let before = [inputs].into_iter().chain(widths.iter().copied());
    let behind = widths.iter().copied().chain([outputs]);
    let pairs = before.zip(behind).enumerate();
    pairs.flat_map(|(index, (from, to))| layer(&format!("layers.{index}"), &[to, from])).collect()
}

/// Those of transformers' `LlamaForCausalLM`, without an output layer of its own where it is tied to the embedding.
fn llama(model: &Model) -> Vec<Parameter> {
    let Model::Llama { layers, heads, key_value_heads, width, inner, vocabulary, tied, .. } = model else {
        return Vec::new();
    };
    let (width, inner) = (*width, *inner);
    let few = (width / heads).saturating_mul(*key_value_heads);
    let one = |name: String, shape: &[u64]| Parameter { name: format!("{name}.weight"), shape: shape.to_vec() };
    let embeddings = ["model.embed_tokens", "lm_head"].into_iter().take(if *tied { 1 } else { 2 });
    let mut all: Vec<Parameter> = embeddings.map(|name| one(name.into(), &[*vocabulary, width])).collect();
    all.push(one("model.norm".into(), &[width]));
    for block in 0..*layers {
        let name = |part: &str| format!("model.layers.{block}.{part}");
        all.extend(["input_layernorm", "post_attention_layernorm"].map(|norm| one(name(norm), &[width])));
        for (layer, out, of) in [
            ("self_attn.q_proj", width, width),
            ("self_attn.k_proj", few, width),
            ("self_attn.v_proj", few, width),
            ("self_attn.o_proj", width, width),
            ("mlp.gate_proj", inner, width),
            ("mlp.up_proj", inner, width),
            ("mlp.down_proj", width, inner),
        ] {
            all.push(one(name(layer), &[out, of]));
        }
    }
    all
}

/// Those of transformers' `BertForSequenceClassification`.
fn encoder(model: &Model) -> Vec<Parameter> {
    let Model::Encoder { layers, width, inner, context, vocabulary, segments, outputs, .. } = model else {
        return Vec::new();
    };
    let (width, inner) = (*width, *inner);
    let norm = |name: String| layer(&name, &[width]);
    let embeddings = [("word", *vocabulary), ("position", *context), ("token_type", *segments)];
    let mut all: Vec<Parameter> = embeddings
        .map(|(name, rows)| Parameter {
            name: format!("bert.embeddings.{name}_embeddings.weight"),
            shape: Vec::from([rows, width]),
        })
        .into();
    all.extend(norm("bert.embeddings.LayerNorm".into()));
    for block in 0..*layers {
        let name = |part: &str| format!("bert.encoder.layer.{block}.{part}");
        all.extend(["attention.output.LayerNorm", "output.LayerNorm"].into_iter().flat_map(|part| norm(name(part))));
        for (part, out, of) in [
            ("attention.self.query", width, width),
            ("attention.self.key", width, width),
            ("attention.self.value", width, width),
            ("attention.output.dense", width, width),
            ("intermediate.dense", inner, width),
            ("output.dense", width, inner),
        ] {
            all.extend(layer(&name(part), &[out, of]));
        }
    }
    all.extend(layer("bert.pooler.dense", &[width, width]));
    all.extend(layer("classifier", &[*outputs, width]));
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
