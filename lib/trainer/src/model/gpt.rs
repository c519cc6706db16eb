//! A decoder-only transformer with learned positions and pre-normalisation: Radford et al., "Language Models are
//! Unsupervised Multitask Learners", 2019, with the tied output layer of Press and Wolf, EACL 2017.
//!
//! Names and shapes are those of transformers' `GPT2LMHeadModel`, whose linear layers keep weights as (in, out): what is
//! trained is saved as it lies.

use tch::{Kind, Tensor};
use xt_core::manifest::candidate::Model;

use crate::dropout::{Dropout, dropped};
use crate::fault::TrainError;
use crate::layout::{Declared, Start};
pub use crate::model::blind;
use crate::model::low_rank::{LowRank, adapted};
use crate::model::{Family, Look, Network, attention, size};
use crate::parameters::Parameters;

/// The sizes and constants of a model, as numbers of the tensor library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes {
    /// Transformer blocks.
    pub layers: i64,
    /// Attention heads.
    pub heads: i64,
    /// Width of the residual stream.
    pub width: i64,
    /// Width of the inner layer of the feed-forward part.
    pub inner: i64,
    /// Tokens of context.
    pub context: i64,
    /// Distinct tokens.
    pub vocabulary: i64,
    /// Probability of dropping an activation.
    pub dropout: f64,
    epsilon: f64,
    deviation: f64,
}

impl Sizes {
    /// The sizes that a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
        let Model::Gpt {
            layers,
            heads,
            width,
            inner,
            context,
            vocabulary,
            dropout,
            layer_norm_epsilon,
            initializer_range,
        } = model
        else {
            return Err(TrainError::Model(format!("a {} is no gpt and reads no text", model.word())));
        };
        if width % heads != 0 {
            return Err(TrainError::Model(format!("the width {width} is no multiple of {heads} heads")));
        }
        Ok(Self {
            layers: size(*layers)?,
            heads: size(*heads)?,
            width: size(*width)?,
            inner: size(*inner)?,
            context: size(*context)?,
            vocabulary: size(*vocabulary)?,
            dropout: dropout.get(),
            epsilon: layer_norm_epsilon.get(),
            deviation: initializer_range.get(),
        })
    }

    /// Every parameter. Weights start normal with the declared deviation, those of the two layers that write to the
    /// residual stream divided by the square root of twice the number of layers (section 2.3 of the paper); biases start at
    /// 0, scales of normalisation at 1.
    pub fn parameters(&self) -> Vec<Declared> {
        let Self { width, inner, .. } = *self;
        let weight = Start::Normal(self.deviation);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let residual = Start::Normal(self.deviation / (2.0 * self.layers as f64).sqrt());
        let declared = |name: String, shape: &[i64], start| Declared { name, shape: shape.into(), start };
        let mut all = vec![
            declared("transformer.wte.weight".into(), &[self.vocabulary, width], weight),
            declared("transformer.wpe.weight".into(), &[self.context, width], weight),
            declared("transformer.ln_f.weight".into(), &[width], Start::Ones),
            declared("transformer.ln_f.bias".into(), &[width], Start::Zeros),
        ];
        for block in 0..self.layers {
            for norm in ["ln_1", "ln_2"] {
                all.push(declared(format!("transformer.h.{block}.{norm}.weight"), &[width], Start::Ones));
                all.push(declared(format!("transformer.h.{block}.{norm}.bias"), &[width], Start::Zeros));
            }
            for (layer, from, to, start) in [
                ("attn.c_attn", width, 3 * width, weight),
                ("attn.c_proj", width, width, residual),
                ("mlp.c_fc", width, inner, weight),
                ("mlp.c_proj", inner, width, residual),
            ] {
                all.push(declared(format!("transformer.h.{block}.{layer}.weight"), &[from, to], start));
                all.push(declared(format!("transformer.h.{block}.{layer}.bias"), &[to], Start::Zeros));
            }
        }
        all
    }
}

impl Family for Sizes {
    fn parameters(&self) -> Vec<Declared> {
        Self::parameters(self)
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        Ok(Box::new(Gpt::new(*self, parameters)?))
    }
}

impl Network for Gpt {
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        Self::forward(self, seen, dropout, look)
    }
}

/// A layer with weight and bias: linear or normalisation.
#[derive(Debug)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
    adapter: Option<LowRank>,
}

impl Affine {
    fn of(parameters: &Parameters, name: &str) -> Result<Self, TrainError> {
        let tensor = |part| parameters.tensor(&format!("transformer.{name}.{part}"));
        let adapter = parameters.adapter(&format!("transformer.{name}"));
        Ok(Self { weight: tensor("weight")?, bias: tensor("bias")?, adapter })
    }

    /// `input` (rows, in) times the weight (in, out), plus the bias, and what an adapter adds.
    fn linear(&self, input: &Tensor, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        adapted(self.adapter.as_ref(), self.bias.f_addmm(input, &self.weight)?, input, dropout)
    }

    /// Layer normalisation of each row: Ba, Kiros, Hinton, "Layer Normalization", 2016.
    fn normalise(&self, input: &Tensor, sizes: &Sizes) -> Result<Tensor, TrainError> {
        Ok(input.f_layer_norm([sizes.width], Some(&self.weight), Some(&self.bias), sizes.epsilon, false)?)
    }
}

#[derive(Debug)]
struct Block {
    name: String,
    before_attention: Affine,
    attention: Affine,
    attention_out: Affine,
    before_feed_forward: Affine,
    feed_forward: Affine,
    feed_forward_out: Affine,
}

/// The model over its parameters.
#[derive(Debug)]
pub struct Gpt {
    sizes: Sizes,
    tokens: Tensor,
    positions: Tensor,
    blocks: Vec<Block>,
    last: Affine,
    /// 0 where a position may look, minus infinity at later ones; (context, context).
    future: Tensor,
    /// Whether attention may be one kernel.
    fused: bool,
}

/// Queries, keys and values.
fn parts(all: &[Tensor]) -> Result<[&Tensor; 3], TrainError> {
    let [query, key, value] = all else { return Err(TrainError::Model("attention has three parts".into())) };
    Ok([query, key, value])
}

impl Gpt {
    /// The model over `parameters`, which were declared by the same sizes.
    pub fn new(sizes: Sizes, parameters: &Parameters) -> Result<Self, TrainError> {
        let blocks: Result<_, TrainError> = (0..sizes.layers).map(|block| Block::of(parameters, block)).collect();
        let future =
            Tensor::f_full([sizes.context, sizes.context], f64::NEG_INFINITY, (Kind::Float, tch::Device::Cpu))?;
        Ok(Self {
            sizes,
            tokens: parameters.tensor("transformer.wte.weight")?,
            positions: parameters.tensor("transformer.wpe.weight")?,
            blocks: blocks?,
            last: Affine::of(parameters, "ln_f")?,
            future: future.f_triu(1)?,
            fused: attention::allowed()?,
        })
    }

    /// Logits (samples * time, vocabulary) for `tokens` (samples, time). `look` is shown the residual stream after the
    /// embedding, after each block and after the last normalisation, and the logits; the mask, whose minus infinities are
    /// meant, is not among them (row F-13).
    pub fn forward(&self, tokens: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let (samples, time) = tokens.size2()?;
        let Sizes { width, .. } = self.sizes;
        let embedded = Tensor::f_embedding(&self.tokens, tokens, -1, false, false)?;
        let embedded = embedded.f_add(&self.positions.f_narrow(0, 0, time)?)?.f_view([samples * time, width])?;
        let mut stream = dropped(dropout, "embedding", embedded)?;
        look("embedding", &stream)?;
        for block in &self.blocks {
            let mut inside = |part: &str, tensor: &Tensor| look(&format!("{}/{part}", block.name), tensor);
            let attended = self.attend(block, &stream, [samples, time], dropout, &mut inside)?;
            stream = stream.f_add(&attended)?;
            let changed = self.feed_forward(block, &stream, dropout, &mut inside)?;
            stream = stream.f_add(&changed)?;
            look(&block.name, &stream)?;
        }
        let stream = self.last.normalise(&stream, &self.sizes)?;
        look("normalised", &stream)?;
        let logits = stream.f_mm(&self.tokens.f_tr()?)?;
        look("logits", &logits)?;
        Ok(logits)
    }

    /// Causal attention of several heads: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, section 3.2.
    fn attend(
        &self,
        block: &Block,
        stream: &Tensor,
        [samples, time]: [i64; 2],
        dropout: Option<&Dropout>,
        look: Look<'_>,
    ) -> Result<Tensor, TrainError> {
        let Sizes { heads, width, .. } = self.sizes;
        let size = width / heads;
        let mixed = block.attention.linear(&block.before_attention.normalise(stream, &self.sizes)?, dropout)?;
        look("attention.mixed", &mixed)?;
        let mixed = mixed.f_view([samples, time, 3, heads, size])?.f_permute([2, 0, 3, 1, 4])?;
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let scale = 1.0 / (size as f64).sqrt();
        let seen = if self.fused && attention::possible(dropout, &mixed) {
            attention::causal(parts(&mixed.f_unbind(0)?)?, scale)?
        } else {
            let mixed = mixed.f_contiguous()?.f_view([3, samples * heads, time, size])?.f_unbind(0)?;
            let [query, key, value] = parts(&mixed)?;
            let future = self.future.f_narrow(0, 0, time)?.f_narrow(1, 0, time)?;
            let scores = future.f_baddbmm(query, &key.f_transpose(1, 2)?, 1.0, scale)?;
            let weights = scores.f_softmax(-1, None)?;
            look("attention.weights", &weights)?;
            let weights = dropped(dropout, &format!("{}.attention", block.name), weights)?;
            weights.f_bmm(value)?.f_view([samples, heads, time, size])?
        };
        let seen = seen.f_transpose(1, 2)?;
        let out = block.attention_out.linear(&seen.f_reshape([samples * time, width])?, dropout)?;
        look("attention.out", &out)?;
        dropped(dropout, &format!("{}.attention-out", block.name), out)
    }

    /// Two layers with the Gaussian error linear unit in its tanh form: Hendrycks and Gimpel, 2016, equation 2.
    fn feed_forward(
        &self,
        block: &Block,
        stream: &Tensor,
        dropout: Option<&Dropout>,
        look: Look<'_>,
    ) -> Result<Tensor, TrainError> {
        let inner = block.feed_forward.linear(&block.before_feed_forward.normalise(stream, &self.sizes)?, dropout)?;
        look("feed-forward.inner", &inner)?;
        let out = block.feed_forward_out.linear(&inner.f_gelu("tanh")?, dropout)?;
        look("feed-forward.out", &out)?;
        dropped(dropout, &format!("{}.feed-forward-out", block.name), out)
    }
}

impl Block {
    fn of(parameters: &Parameters, block: i64) -> Result<Self, TrainError> {
        let part = |name: &str| Affine::of(parameters, &format!("h.{block}.{name}"));
        Ok(Self {
            name: format!("block.{block}"),
            before_attention: part("ln_1")?,
            attention: part("attn.c_attn")?,
            attention_out: part("attn.c_proj")?,
            before_feed_forward: part("ln_2")?,
            feed_forward: part("mlp.c_fc")?,
            feed_forward_out: part("mlp.c_proj")?,
        })
    }
}
