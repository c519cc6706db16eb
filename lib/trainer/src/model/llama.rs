//! A decoder-only transformer as Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023: root mean
//! square normalisation, rotary positions, a gated feed-forward part, and keys and values shared by groups of heads.
//!
//! Names and shapes are those of transformers' `LlamaForCausalLM`, whose linear layers keep weights as (out, in) and have no
//! biases: what is trained is saved as it lies.

use tch::{Kind, Tensor};
use xt_core::manifest::candidate::Model;

use crate::dropout::{Dropout, dropped};
use crate::fault::TrainError;
use crate::layout::{Declared, Start};
use crate::model::low_rank::{LowRank, adapted};
use crate::model::{Family, Look, Network, size};
use crate::parameters::{Parameters, narrowed};

/// The sizes and constants of a model, as numbers of the tensor library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama {
    layers: i64,
    heads: i64,
    /// Heads of keys and values; each serves `heads / shared` heads of queries.
    shared: i64,
    width: i64,
    inner: i64,
    context: i64,
    vocabulary: i64,
    /// Whether the output layer is the embedding.
    tied: bool,
    rotary_base: f64,
    dropout: f64,
    epsilon: f64,
    deviation: f64,
}

impl Llama {
    /// The sizes that a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
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
            return Err(TrainError::Model(format!("a {} is no llama", model.word())));
        };
        let fits = heads % key_value_heads == 0 && width % heads == 0 && (width / heads) % 2 == 0;
        if !fits {
            let message = format!("the width {width}, {heads} heads and {key_value_heads} shared ones do not fit");
            return Err(TrainError::Model(message));
        }
        Ok(Self {
            layers: size(*layers)?,
            heads: size(*heads)?,
            shared: size(*key_value_heads)?,
            width: size(*width)?,
            inner: size(*inner)?,
            context: size(*context)?,
            vocabulary: size(*vocabulary)?,
            tied: *tied,
            rotary_base: rotary_base.get(),
            dropout: dropout.get(),
            epsilon: rms_norm_epsilon.get(),
            deviation: initializer_range.get(),
        })
    }

    /// Values of a head.
    const fn head(&self) -> i64 {
        self.width / self.heads
    }
}

impl Family for Llama {
    /// Weights start normal with the declared deviation, scales of normalisation at 1.
    fn parameters(&self) -> Vec<Declared> {
        let Self { width, inner, vocabulary, .. } = *self;
        let few = self.shared * self.head();
        let declared = |name: String, shape: &[i64], start| Declared { name, shape: shape.into(), start };
        let weight = Start::Normal(self.deviation);
        let mut all = vec![
            declared("model.embed_tokens.weight".into(), &[vocabulary, width], weight),
            declared("model.norm.weight".into(), &[width], Start::Ones),
        ];
        if !self.tied {
            all.push(declared("lm_head.weight".into(), &[vocabulary, width], weight));
        }
        for block in 0..self.layers {
            let name = |part: &str| format!("model.layers.{block}.{part}.weight");
            all.extend(NORMS.map(|norm| declared(name(norm), &[width], Start::Ones)));
            for (layer, out, of) in [
                ("self_attn.q_proj", width, width),
                ("self_attn.k_proj", few, width),
                ("self_attn.v_proj", few, width),
                ("self_attn.o_proj", width, width),
                ("mlp.gate_proj", inner, width),
                ("mlp.up_proj", inner, width),
                ("mlp.down_proj", width, inner),
            ] {
                all.push(declared(name(layer), &[out, of], weight));
            }
        }
        all
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        Ok(Box::new(Decoder::new(*self, parameters)?))
    }
}

/// The normalisations of a block, before attention and before the feed-forward part.
const NORMS: [&str; 2] = ["input_layernorm", "post_attention_layernorm"];

/// A linear layer without a bias.
#[derive(Debug)]
struct Linear {
    /// (out, in).
    weight: Tensor,
    adapter: Option<LowRank>,
}

impl Linear {
    fn of(parameters: &Parameters, name: &str) -> Result<Self, TrainError> {
        let weight = parameters.tensor(&format!("{name}.weight"))?;
        Ok(Self { weight, adapter: parameters.adapter(name) })
    }

    /// `input` (rows, in) times the weight, turned, and what an adapter adds.
    fn of_rows(&self, input: &Tensor, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        adapted(self.adapter.as_ref(), input.f_mm(&self.weight.f_tr()?)?, input, dropout)
    }
}

#[derive(Debug)]
struct Block {
    name: String,
    before_attention: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    attention_out: Linear,
    before_feed_forward: Tensor,
    gate: Linear,
    up: Linear,
    down: Linear,
}

impl Block {
    fn of(parameters: &Parameters, block: i64) -> Result<Self, TrainError> {
        let part = |name: &str| parameters.tensor(&format!("model.layers.{block}.{name}.weight"));
        let linear = |name: &str| Linear::of(parameters, &format!("model.layers.{block}.{name}"));
        Ok(Self {
            name: format!("block.{block}"),
            before_attention: part(NORMS[0])?,
            query: linear("self_attn.q_proj")?,
            key: linear("self_attn.k_proj")?,
            value: linear("self_attn.v_proj")?,
            attention_out: linear("self_attn.o_proj")?,
            before_feed_forward: part(NORMS[1])?,
            gate: linear("mlp.gate_proj")?,
            up: linear("mlp.up_proj")?,
            down: linear("mlp.down_proj")?,
        })
    }
}

/// The model over its parameters.
#[derive(Debug)]
struct Decoder {
    sizes: Llama,
    tokens: Tensor,
    blocks: Vec<Block>,
    last: Tensor,
    output: Tensor,
    /// Cosine and sine of the angle of each position and pair of values; (context, 1, head / 2).
    turn: [Tensor; 2],
    /// 0 where a position may look, minus infinity at later ones; (context, context).
    future: Tensor,
}

/// What all blocks of one pass share.
struct Pass<'a> {
    samples: i64,
    time: i64,
    turn: [Tensor; 2],
    /// The mask of all heads of queries that share a head of keys, one under the other; (heads / shared * time, time).
    future: Tensor,
    dropout: Option<&'a Dropout>,
}

impl Decoder {
    fn new(sizes: Llama, parameters: &Parameters) -> Result<Self, TrainError> {
        let blocks: Result<_, TrainError> = (0..sizes.layers).map(|block| Block::of(parameters, block)).collect();
        let square = [sizes.context, sizes.context];
        let future = Tensor::f_full(square, f64::NEG_INFINITY, (Kind::Float, tch::Device::Cpu))?;
        let output = if sizes.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
        Ok(Self {
            tokens: parameters.tensor("model.embed_tokens.weight")?,
            blocks: blocks?,
            last: parameters.tensor("model.norm.weight")?,
            output: parameters.tensor(output)?,
            turn: turn(&sizes)?,
            future: future.f_triu(1)?,
            sizes,
        })
    }

    /// Causal attention of several heads, where each head of keys and values serves a group of heads of queries: Ainslie et
    /// al., "GQA: Training Generalized Multi-Query Transformer Models", EMNLP 2023, section 2.
    fn attend(&self, block: &Block, stream: &Tensor, pass: &Pass<'_>) -> Result<Tensor, TrainError> {
        let Pass { samples, time, .. } = *pass;
        let Llama { heads, shared, width, .. } = self.sizes;
        let (head, group) = (self.sizes.head(), heads / shared);
        let normal = self.normalise(stream, &block.before_attention)?;
        let split = |layer: &Linear, heads: i64| -> Result<Tensor, TrainError> {
            Ok(layer.of_rows(&normal, pass.dropout)?.f_view([samples, time, heads, head])?)
        };
        let ordered = |values: &Tensor, rows: i64| -> Result<Tensor, TrainError> {
            Ok(values.f_transpose(1, 2)?.f_reshape([samples * shared, rows, head])?)
        };
        let query = ordered(&rotated(&split(&block.query, heads)?, &pass.turn)?, group * time)?;
        let key = ordered(&rotated(&split(&block.key, shared)?, &pass.turn)?, time)?;
        let value = ordered(&split(&block.value, shared)?, time)?;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let scale = 1.0 / (head as f64).sqrt();
        let scores = pass.future.f_baddbmm(&query, &key.f_transpose(1, 2)?, 1.0, scale)?;
        let weights = dropped(pass.dropout, &format!("{}.attention", block.name), scores.f_softmax(-1, None)?)?;
        let seen = weights.f_bmm(&value)?.f_view([samples, heads, time, head])?.f_transpose(1, 2)?;
        block.attention_out.of_rows(&seen.f_reshape([samples * time, width])?, pass.dropout)
    }

    /// Two layers with a gate that is a sigmoid linear unit: `SwiGLU` of Shazeer, "GLU Variants Improve Transformer", 2020,
    /// equation 6.
    fn feed_forward(&self, block: &Block, stream: &Tensor, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        let normal = self.normalise(stream, &block.before_feed_forward)?;
        let gate = block.gate.of_rows(&normal, dropout)?.f_silu()?;
        block.down.of_rows(&gate.f_mul(&block.up.of_rows(&normal, dropout)?)?, dropout)
    }

    /// Each row divided by the root of the mean of its squares, times the scale: Zhang and Sennrich, "Root Mean Square Layer
    /// Normalization", NeurIPS 2019, equation 4.
    fn normalise(&self, input: &Tensor, scale: &Tensor) -> Result<Tensor, TrainError> {
        let mean = input.f_square()?.f_mean_dim([-1i64].as_slice(), true, Kind::Float)?;
        let root = mean.f_add_scalar(self.sizes.epsilon)?.f_rsqrt()?;
        Ok(input.f_mul(&root)?.f_mul(scale)?)
    }
}

impl Network for Decoder {
    /// Logits (samples * time, vocabulary) for `tokens` (samples, time). `look` is shown the residual stream after the
    /// embedding, after each block and after the last normalisation, and the logits.
    fn forward(&self, tokens: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let (samples, time) = tokens.size2()?;
        let future = self.future.f_narrow(0, 0, time)?.f_narrow(1, 0, time)?;
        let pass = Pass {
            samples,
            time,
            turn: [self.turn[0].f_narrow(0, 0, time)?, self.turn[1].f_narrow(0, 0, time)?],
            future: future.f_repeat([self.sizes.heads / self.sizes.shared, 1])?,
            dropout,
        };
        let embedded = Tensor::f_embedding(&self.tokens, tokens, -1, false, false)?;
        let mut stream = embedded.f_view([samples * time, self.sizes.width])?;
        look("embedding", &stream)?;
        for block in &self.blocks {
            stream = stream.f_add(&self.attend(block, &stream, &pass)?)?;
            stream = stream.f_add(&self.feed_forward(block, &stream, dropout)?)?;
            look(&block.name, &stream)?;
        }
        let stream = self.normalise(&stream, &self.last)?;
        look("normalised", &stream)?;
        let logits = stream.f_mm(&self.output.f_tr()?)?;
        look("logits", &logits)?;
        Ok(logits)
    }
}

/// Queries or keys (samples, time, heads, head), each pair of values i and i + head / 2 turned by the angle of its position:
/// Su et al., "`RoFormer`: Enhanced Transformer with Rotary Position Embedding", 2021, equation 34, in the order that
/// transformers uses.
fn rotated(values: &Tensor, [cosine, sine]: &[Tensor; 2]) -> Result<Tensor, TrainError> {
    let halves = values.f_chunk(2, -1)?;
    let [first, second] = halves.as_slice() else {
        return Err(TrainError::Model("a head has two halves".into()));
    };
    let low = first.f_mul(cosine)?.f_sub(&second.f_mul(sine)?)?;
    let high = second.f_mul(cosine)?.f_add(&first.f_mul(sine)?)?;
    Ok(Tensor::f_cat(&[low, high], -1)?)
}

/// Cosine and sine of position times base to the power of -2i / head, both factors in binary32 as transformers has them.
/// They are computed by the `libm` crate, so that they are the same on every processor.
fn turn(sizes: &Llama) -> Result<[Tensor; 2], TrainError> {
    let (mut cosine, mut sine) = (Vec::new(), Vec::new());
    for position in 0..sizes.context {
        for pair in 0..sizes.head() / 2 {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let (position, power) = (position as f32, 2.0 * pair as f64 / sizes.head() as f64);
            let frequency = narrowed(1.0 / libm::pow(sizes.rotary_base, power));
            let angle = f64::from(position * frequency);
            cosine.push(narrowed(libm::cos(angle)));
            sine.push(narrowed(libm::sin(angle)));
        }
    }
    let shape = [sizes.context, 1, sizes.head() / 2];
    Ok([Tensor::f_from_slice(&cosine)?.f_view(shape)?, Tensor::f_from_slice(&sine)?.f_view(shape)?])
}
