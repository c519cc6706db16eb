//! How a model is described to other programs.

use alloc::format;

use crate::canonical::Value;
use crate::fault::Faults;
use crate::field::{Field, object, texts};
use crate::manifest::candidate::Model;
use crate::number::Finite;

/// `config.json` of a saved model: for `gpt`, `llama` and `encoder` that of transformers' `GPT2LMHeadModel`,
/// `LlamaForCausalLM` and `BertForSequenceClassification`, with every value that transformers would otherwise fill in by default; for the others what the candidate declares, with `model_type` in front of it.
pub fn configuration(model: &Model) -> Value {
    match model {
        Model::Gpt { .. } => gpt(model),
        Model::Llama { .. } => llama(model),
        Model::Encoder { .. } => encoder(model),
        Model::Mlp { .. } | Model::Cnn { .. } | Model::TorchScript { .. } => declared(model),
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

/// That of `BertConfig`. Classes are named by their number, as transformers does where nobody named them.
fn encoder(model: &Model) -> Value {
    let Model::Encoder {
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
    } = model
    else {
        return declared(model);
    };
    let dropout = Value::Float(*dropout);
    let named = |number: u64| format!("LABEL_{number}");
    let labels = (0..*outputs).map(|number| (format!("{number}"), Value::from(named(number).as_str()))).collect();
    let numbers = (0..*outputs).map(|number| (named(number), Value::from(number))).collect();
    object([
        ("add_cross_attention", false.into()),
        ("architectures", texts(&["BertForSequenceClassification"])),
        ("attention_probs_dropout_prob", dropout.clone()),
        ("classifier_dropout", Value::Null),
        ("hidden_act", "gelu".into()),
        ("hidden_dropout_prob", dropout),
        ("hidden_size", (*width).into()),
        ("id2label", Value::Object(labels)),
        ("initializer_range", Value::Float(*initializer_range)),
        ("intermediate_size", (*inner).into()),
        ("is_decoder", false.into()),
        ("label2id", Value::Object(numbers)),
        ("layer_norm_eps", Value::Float(*layer_norm_epsilon)),
        ("max_position_embeddings", (*context).into()),
        ("model_type", "bert".into()),
        ("num_attention_heads", (*heads).into()),
        ("num_hidden_layers", (*layers).into()),
        ("pad_token_id", 0u64.into()),
        ("position_embedding_type", "absolute".into()),
        ("tie_word_embeddings", true.into()),
        ("torch_dtype", "float32".into()),
        ("type_vocab_size", (*segments).into()),
        ("use_cache", true.into()),
        ("vocab_size", (*vocabulary).into()),
    ])
}

/// The model that a `config.json` describes, with its own dropout and initial deviation; notes every value with which it
/// describes none. Values that are not there have the defaults of transformers.
pub fn model(config: &Value, faults: &mut Faults) -> Option<Model> {
    let mut read = Read { config, faults };
    let kind = config.get("model_type").and_then(Value::as_str).unwrap_or("none");
    let model = match kind {
        "gpt2" => read.gpt(),
        "llama" => read.llama(),
        "bert" => read.encoder(),
        _ => {
            let message = format!("expected gpt2, llama or bert, found {kind}");
            read.faults.add("/model_type", "base.configuration", message);
            return None;
        }
    };
    read.faults.is_empty().then_some(model)
}

/// Reads a `config.json`.
struct Read<'a> {
    config: &'a Value,
    faults: &'a mut Faults,
}

impl Read<'_> {
    fn gpt(&mut self) -> Model {
        for (key, due) in [
            ("activation_function", Value::from("gelu_new")),
            ("add_cross_attention", false.into()),
            ("reorder_and_upcast_attn", false.into()),
            ("scale_attn_by_inverse_layer_idx", false.into()),
            ("scale_attn_weights", true.into()),
            ("tie_word_embeddings", true.into()),
        ] {
            self.only(key, &due);
        }
        let width = self.whole("n_embd", 768);
        Model::Gpt {
            layers: self.whole("n_layer", 12),
            heads: self.whole("n_head", 12),
            width,
            inner: self.whole("n_inner", width.saturating_mul(4)),
            context: self.whole("n_positions", 1024),
            vocabulary: self.whole("vocab_size", 50_257),
            dropout: self.number("resid_pdrop", 0.1),
            layer_norm_epsilon: self.number("layer_norm_epsilon", 1e-5),
            initializer_range: self.number("initializer_range", 0.02),
        }
    }

    fn llama(&mut self) -> Model {
        for (key, due) in
            [("attention_bias", Value::from(false)), ("mlp_bias", false.into()), ("hidden_act", "silu".into())]
        {
            self.only(key, &due);
        }
        let (heads, width) = (self.whole("num_attention_heads", 32), self.whole("hidden_size", 4096));
        let head = width.checked_div(heads).unwrap_or(0);
        if self.whole("head_dim", head) != head {
            let message = format!("only heads of the width over their number, {head}, are known");
            self.faults.add("/head_dim", "base.configuration", message);
        }
        let rotary_base = self.rotary_base();
        let tied = match self.config.get("tie_word_embeddings") {
            Some(Value::Bool(tied)) => *tied,
            _ => false,
        };
        Model::Llama {
            layers: self.whole("num_hidden_layers", 32),
            heads,
            key_value_heads: self.whole("num_key_value_heads", heads),
            width,
            inner: self.whole("intermediate_size", 11_008),
            context: self.whole("max_position_embeddings", 2048),
            vocabulary: self.whole("vocab_size", 32_000),
            tied,
            rotary_base,
            dropout: self.number("attention_dropout", 0.0),
            rms_norm_epsilon: self.number("rms_norm_eps", 1e-6),
            initializer_range: self.number("initializer_range", 0.02),
        }
    }

    fn encoder(&mut self) -> Model {
        for (key, due) in [
            ("add_cross_attention", Value::from(false)),
            ("hidden_act", "gelu".into()),
            ("is_decoder", false.into()),
            ("position_embedding_type", "absolute".into()),
        ] {
            self.only(key, &due);
        }
        let outputs = match self.config.get("id2label") {
            Some(Value::Object(names)) if !names.is_empty() => names.len() as u64,
            _ => 2,
        };
        Model::Encoder {
            layers: self.whole("num_hidden_layers", 12),
            heads: self.whole("num_attention_heads", 12),
            width: self.whole("hidden_size", 768),
            inner: self.whole("intermediate_size", 3072),
            context: self.whole("max_position_embeddings", 512),
            vocabulary: self.whole("vocab_size", 30_522),
            segments: self.whole("type_vocab_size", 2),
            outputs,
            dropout: self.number("hidden_dropout_prob", 0.1),
            layer_norm_epsilon: self.number("layer_norm_eps", 1e-12),
            initializer_range: self.number("initializer_range", 0.02),
        }
    }

    /// Where transformers 5 has it, or where version 4 had it. Scaled positions are unknown here.
    fn rotary_base(&mut self) -> Finite {
        let scaled = self.config.get("rope_scaling").filter(|value| **value != Value::Null);
        let rotary = self.config.get("rope_parameters").filter(|value| **value != Value::Null).or(scaled);
        let kind = rotary.and_then(|rotary| rotary.get("rope_type").or_else(|| rotary.get("type")));
        if let Some(kind) = kind.and_then(Value::as_str).filter(|kind| *kind != "default") {
            let message = format!("only positions that are not scaled are known, found {kind}");
            self.faults.add("/rope_parameters/rope_type", "base.configuration", message);
        }
        match rotary.and_then(|rotary| rotary.get("rope_theta")).and_then(float) {
            Some(base) => base,
            None => self.number("rope_theta", 10_000.0),
        }
    }

    /// Notes a value that is there and is not this one.
    fn only(&mut self, key: &str, due: &Value) {
        if let Some(found) = self.config.get(key).filter(|found| *found != due) {
            let message = format!("only {} is known, found {}", due.canonical(), found.canonical());
            self.faults.add(format!("/{key}"), "base.configuration", message);
        }
    }

    fn whole(&mut self, key: &str, default: u64) -> u64 {
        match self.config.get(key) {
            None | Some(Value::Null) => default,
            Some(Value::Integer(number)) if number.to_u64().is_some_and(|number| number > 0) => {
                number.to_u64().unwrap_or(default)
            }
            Some(other) => self.wrong(key, "a whole number above 0", other, default),
        }
    }

    fn number(&mut self, key: &str, default: f64) -> Finite {
        let default = Finite::new(default).unwrap_or(Finite::ZERO);
        match self.config.get(key) {
            None | Some(Value::Null) => default,
            Some(value) => match float(value) {
                Some(number) => number,
                None => self.wrong(key, "a number", value, default),
            },
        }
    }

    fn wrong<T>(&mut self, key: &str, due: &str, found: &Value, default: T) -> T {
        let message = format!("expected {due}, found {}", found.canonical());
        self.faults.add(format!("/{key}"), "base.configuration", message);
        default
    }
}

fn float(value: &Value) -> Option<Finite> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => number.text().parse().ok().and_then(Finite::new),
        _ => None,
    }
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
