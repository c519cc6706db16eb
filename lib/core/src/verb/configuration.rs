//! How a model is described to other programs.

use crate::canonical::Value;
use crate::field::{Field, object, texts};
use crate::manifest::candidate::Model;

/// `config.json` of a saved model: for `gpt` and `llama` that of transformers' `GPT2LMHeadModel` and `LlamaForCausalLM`,
/// with every value that transformers would otherwise fill in by default; for the others what the candidate declares, with `model_type` in front of it.
pub fn configuration(model: &Model) -> Value {
    match model {
        Model::Gpt { .. } => gpt(model),
        Model::Llama { .. } => llama(model),
        Model::Mlp { .. } | Model::Cnn { .. } => declared(model),
    }
}

/// That of `GPT2Config`.
fn gpt(model: &Model) -> Value {
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

/// That of `LlamaConfig`. The rotary base stands in two places: under `rope_parameters`, where transformers 5 looks for it,
/// and by itself, where version 4 did.
fn llama(model: &Model) -> Value {
    let Model::Llama {
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
    } = model
    else {
        return declared(model);
    };
    let rotary = object([("rope_theta", Value::Float(*rotary_base)), ("rope_type", "default".into())]);
    object([
        ("architectures", texts(&["LlamaForCausalLM"])),
        ("attention_bias", false.into()),
        ("attention_dropout", Value::Float(*dropout)),
        ("bos_token_id", Value::Null),
        ("eos_token_id", Value::Null),
        ("head_dim", (width / heads).into()),
        ("hidden_act", "silu".into()),
        ("hidden_size", (*width).into()),
        ("initializer_range", Value::Float(*initializer_range)),
        ("intermediate_size", (*inner).into()),
        ("max_position_embeddings", (*context).into()),
        ("mlp_bias", false.into()),
        ("model_type", "llama".into()),
        ("num_attention_heads", (*heads).into()),
        ("num_hidden_layers", (*layers).into()),
        ("num_key_value_heads", (*key_value_heads).into()),
        ("pad_token_id", Value::Null),
        ("pretraining_tp", 1u64.into()),
        ("rms_norm_eps", Value::Float(*rms_norm_epsilon)),
        ("rope_parameters", rotary),
        ("rope_theta", Value::Float(*rotary_base)),
        ("tie_word_embeddings", (*tied).into()),
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
