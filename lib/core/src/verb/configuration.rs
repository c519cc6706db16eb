//! How a model is described to other programs.

use crate::canonical::Value;
use crate::field::{Field, object, texts};
use crate::manifest::candidate::Model;

/// `config.json` of a saved model: for `gpt` that of transformers' `GPT2LMHeadModel`, with every value that transformers
/// would otherwise fill in by default; for the others what the candidate declares, with `model_type` in front of it.
pub fn configuration(model: &Model) -> Value {
    let Model::Gpt { layers, heads, width, inner, context, vocabulary, dropout, layer_norm_epsilon, initializer_range } =
        model
    else {
        return declared(model);
    };
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

/// What the candidate declares, with `model_type` in the place of `kind`.
fn declared(model: &Model) -> Value {
    match model.write() {
        Value::Object(mut members) => {
            members.remove("kind");
            members.insert("model_type".into(), alloc::format!("xt-{}", model.word()).as_str().into());
            Value::Object(members)
        }
        other => other,
    }
}
