//! An encoder of text with learned positions and post-normalisation, and a class for each text: Devlin et al., "BERT:
//! Pre-training of Deep Bidirectional Transformers for Language Understanding", NAACL 2019.
//!
//! Names and shapes are those of transformers' `BertForSequenceClassification`, whose linear layers keep weights as
//! (out, in): what is trained is saved as it lies.

use tch::{Kind, Tensor};
use xt_core::manifest::candidate::Model;

use crate::dropout::{Dropout, dropped};
use crate::fault::TrainError;
use crate::layout::{Declared, Start};
use crate::model::low_rank::{LowRank, adapted};
use crate::model::{Family, Look, Network, size};
use crate::parameters::Parameters;

/// The sizes and constants of a model, as numbers of the tensor library.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Encoder {
    layers: i64,
    heads: i64,
    width: i64,
    inner: i64,
    context: i64,
    vocabulary: i64,
    segments: i64,
    outputs: i64,
    dropout: f64,
    epsilon: f64,
    deviation: f64,
}

impl Encoder {
    /// The sizes that a candidate declares.
    pub fn of(model: &Model) -> Result<Self, TrainError> {
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
            return Err(TrainError::Model(format!("a {} is no encoder", model.word())));
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
            segments: size(*segments)?,
            outputs: size(*outputs)?,
            dropout: dropout.get(),
            epsilon: layer_norm_epsilon.get(),
            deviation: initializer_range.get(),
        })
    }

    /// A weight (out, in) that starts normal and a bias that starts at 0.
    fn linear(&self, name: &str, out: i64, of: i64) -> [Declared; 2] {
        [
            Declared { name: format!("{name}.weight"), shape: vec![out, of], start: Start::Normal(self.deviation) },
            Declared { name: format!("{name}.bias"), shape: vec![out], start: Start::Zeros },
        ]
    }

    /// The scales and shifts of a normalisation.
    fn norm(&self, name: &str) -> [Declared; 2] {
        [("weight", Start::Ones), ("bias", Start::Zeros)].map(|(part, start)| Declared {
            name: format!("{name}.{part}"),
            shape: vec![self.width],
            start,
        })
    }
}

/// What the names of the parameters of embeddings begin with.
const EMBEDDINGS: &str = "bert.embeddings";

impl Family for Encoder {
    /// Weights start normal with the declared deviation, scales of normalisation at 1, everything else at 0.
    fn parameters(&self) -> Vec<Declared> {
        let Self { width, inner, .. } = *self;
        let tables = [("word", self.vocabulary), ("position", self.context), ("token_type", self.segments)];
        let mut all: Vec<Declared> = tables
            .map(|(name, rows)| Declared {
                name: format!("{EMBEDDINGS}.{name}_embeddings.weight"),
                shape: vec![rows, width],
                start: Start::Normal(self.deviation),
            })
            .into();
        all.extend(self.norm(&format!("{EMBEDDINGS}.LayerNorm")));
        for block in 0..self.layers {
            let name = |part: &str| format!("bert.encoder.layer.{block}.{part}");
            for part in ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
            {
                all.extend(self.linear(&name(part), width, width));
            }
            all.extend(self.linear(&name("intermediate.dense"), inner, width));
            all.extend(self.linear(&name("output.dense"), width, inner));
            all.extend(self.norm(&name("attention.output.LayerNorm")));
            all.extend(self.norm(&name("output.LayerNorm")));
        }
        all.extend(self.linear("bert.pooler.dense", width, width));
        all.extend(self.linear("classifier", self.outputs, width));
        all
    }

    fn dropout(&self) -> f64 {
        self.dropout
    }

    fn network(&self, parameters: &Parameters) -> Result<Box<dyn Network>, TrainError> {
        Ok(Box::new(Classifier::new(*self, parameters)?))
    }
}

/// A layer with weight and bias: linear or normalisation.
#[derive(Debug)]
struct Affine {
    /// (out, in), or (width).
    weight: Tensor,
    bias: Tensor,
    adapter: Option<LowRank>,
}

impl Affine {
    fn of(parameters: &Parameters, name: &str) -> Result<Self, TrainError> {
        let tensor = |part| parameters.tensor(&format!("{name}.{part}"));
        Ok(Self { weight: tensor("weight")?, bias: tensor("bias")?, adapter: parameters.adapter(name) })
    }

    /// `input` (rows, in) times the weight, turned, plus the bias, and what an adapter adds.
    fn linear(&self, input: &Tensor, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        adapted(self.adapter.as_ref(), self.bias.f_addmm(input, &self.weight.f_tr()?)?, input, dropout)
    }

    /// Layer normalisation of each row: Ba, Kiros, Hinton, "Layer Normalization", 2016.
    fn normalise(&self, input: &Tensor, sizes: &Encoder) -> Result<Tensor, TrainError> {
        Ok(input.f_layer_norm([sizes.width], Some(&self.weight), Some(&self.bias), sizes.epsilon, false)?)
    }
}

#[derive(Debug)]
struct Block {
    name: String,
    query: Affine,
    key: Affine,
    value: Affine,
    attention_out: Affine,
    behind_attention: Affine,
    feed_forward: Affine,
    feed_forward_out: Affine,
    behind_feed_forward: Affine,
}

impl Block {
    fn of(parameters: &Parameters, block: i64) -> Result<Self, TrainError> {
        let part = |name: &str| Affine::of(parameters, &format!("bert.encoder.layer.{block}.{name}"));
        Ok(Self {
            name: format!("block.{block}"),
            query: part("attention.self.query")?,
            key: part("attention.self.key")?,
            value: part("attention.self.value")?,
            attention_out: part("attention.output.dense")?,
            behind_attention: part("attention.output.LayerNorm")?,
            feed_forward: part("intermediate.dense")?,
            feed_forward_out: part("output.dense")?,
            behind_feed_forward: part("output.LayerNorm")?,
        })
    }
}

/// The model over its parameters.
#[derive(Debug)]
struct Classifier {
    sizes: Encoder,
    tokens: Tensor,
    positions: Tensor,
    segments: Tensor,
    normal: Affine,
    blocks: Vec<Block>,
    pooler: Affine,
    /// Gives the logits of the classes.
    head: Affine,
}

/// What all blocks of one pass share.
struct Pass<'a> {
    samples: i64,
    time: i64,
    /// 0 where a token is, minus infinity where a text was filled up; (samples * heads, 1, time).
    filled: Tensor,
    dropout: Option<&'a Dropout>,
}

impl Classifier {
    fn new(sizes: Encoder, parameters: &Parameters) -> Result<Self, TrainError> {
        let blocks: Result<_, TrainError> = (0..sizes.layers).map(|block| Block::of(parameters, block)).collect();
        let table = |name: &str| parameters.tensor(&format!("{EMBEDDINGS}.{name}_embeddings.weight"));
        Ok(Self {
            tokens: table("word")?,
            positions: table("position")?,
            segments: table("token_type")?,
            normal: Affine::of(parameters, &format!("{EMBEDDINGS}.LayerNorm"))?,
            blocks: blocks?,
            pooler: Affine::of(parameters, "bert.pooler.dense")?,
            head: Affine::of(parameters, "classifier")?,
            sizes,
        })
    }

    /// Tokens, positions and the first segment, added and normalised: section 3 of the paper, figure 2.
    fn embed(&self, tokens: &Tensor, time: i64, dropout: Option<&Dropout>) -> Result<Tensor, TrainError> {
        let embedded = Tensor::f_embedding(&self.tokens, tokens, -1, false, false)?;
        let embedded =
            embedded.f_add(&self.segments.f_narrow(0, 0, 1)?)?.f_add(&self.positions.f_narrow(0, 0, time)?)?;
        let normal = self.normal.normalise(&embedded.f_reshape([-1, self.sizes.width])?, &self.sizes)?;
        dropped(dropout, "embedding", normal)
    }

    /// Attention of several heads over all tokens of a text: Vaswani et al., "Attention Is All You Need", NeurIPS 2017,
    /// section 3.2.
    fn attend(&self, block: &Block, stream: &Tensor, pass: &Pass<'_>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let Pass { samples, time, dropout, .. } = *pass;
        let Encoder { heads, width, .. } = self.sizes;
        let head = width / heads;
        let split = |layer: &Affine| -> Result<Tensor, TrainError> {
            let rows = layer.linear(stream, dropout)?.f_view([samples, time, heads, head])?;
            Ok(rows.f_transpose(1, 2)?.f_reshape([samples * heads, time, head])?)
        };
        let (query, key, value) = (split(&block.query)?, split(&block.key)?, split(&block.value)?);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let scale = 1.0 / (head as f64).sqrt();
        let scores = pass.filled.f_baddbmm(&query, &key.f_transpose(1, 2)?, 1.0, scale)?;
        let weights = scores.f_softmax(-1, None)?;
        look("attention.weights", &weights)?;
        let weights = dropped(dropout, &format!("{}.attention", block.name), weights)?;
        let seen = weights.f_bmm(&value)?.f_view([samples, heads, time, head])?.f_transpose(1, 2)?;
        let out = block.attention_out.linear(&seen.f_reshape([samples * time, width])?, dropout)?;
        look("attention.out", &out)?;
        dropped(dropout, &format!("{}.attention-out", block.name), out)
    }

    /// Two layers with the Gaussian error linear unit: Hendrycks and Gimpel, 2016, section 2.
    fn feed_forward(block: &Block, stream: &Tensor, pass: &Pass<'_>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let inner = block.feed_forward.linear(stream, pass.dropout)?;
        look("feed-forward.inner", &inner)?;
        let out = block.feed_forward_out.linear(&inner.f_gelu("none")?, pass.dropout)?;
        look("feed-forward.out", &out)?;
        dropped(pass.dropout, &format!("{}.feed-forward-out", block.name), out)
    }

    /// The first token of each text through one more layer: (samples, width).
    fn pool(&self, stream: &Tensor, pass: &Pass<'_>) -> Result<Tensor, TrainError> {
        let rows = stream.f_view([pass.samples, pass.time, self.sizes.width])?;
        Ok(self.pooler.linear(&rows.f_select(1, 0)?, pass.dropout)?.f_tanh()?)
    }
}

impl Network for Classifier {
    /// Logits (samples, outputs) for `seen` (samples, length): tokens, and -1 where a text was filled up. Only as many places
    /// are computed as the longest text of the batch has. `look` is shown the residual stream after the embedding and after
    /// each block, what is pooled, and the logits.
    fn forward(&self, seen: &Tensor, dropout: Option<&Dropout>, look: Look<'_>) -> Result<Tensor, TrainError> {
        let there = seen.f_ge(0.0)?;
        let longest = there.f_sum_dim_intlist([1i64].as_slice(), false, Kind::Int64)?.f_max()?;
        let (samples, time) = (seen.size2()?.0, i64::try_from(longest)?.max(1));
        let empty = there.f_narrow(1, 0, time)?.f_logical_not()?;
        let filled = Tensor::f_zeros([samples, time], (Kind::Float, seen.device()))?;
        let filled = filled.f_masked_fill(&empty, f64::NEG_INFINITY)?.f_view([samples, 1, 1, time])?;
        let heads = self.sizes.heads;
        let filled = filled.f_expand([samples, heads, 1, time], false)?.f_reshape([samples * heads, 1, time])?;
        let pass = Pass { samples, time, filled, dropout };
        let tokens = seen.f_narrow(1, 0, time)?.f_clamp_min(0.0)?.f_to_kind(Kind::Int64)?;
        let mut stream = self.embed(&tokens, time, dropout)?;
        look("embedding", &stream)?;
        for block in &self.blocks {
            let mut inside = |part: &str, tensor: &Tensor| look(&format!("{}/{part}", block.name), tensor);
            let attended = self.attend(block, &stream, &pass, &mut inside)?;
            let attended = block.behind_attention.normalise(&stream.f_add(&attended)?, &self.sizes)?;
            let changed = Self::feed_forward(block, &attended, &pass, &mut inside)?;
            stream = block.behind_feed_forward.normalise(&attended.f_add(&changed)?, &self.sizes)?;
            look(&block.name, &stream)?;
        }
        let pooled = self.pool(&stream, &pass)?;
        look("pooled", &pooled)?;
        let outputs = self.head.linear(&dropped(dropout, "pooled", pooled)?, dropout)?;
        look("outputs", &outputs)?;
        Ok(outputs)
    }
}
