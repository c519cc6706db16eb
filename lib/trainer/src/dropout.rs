//! Dropout masks that depend on seed, place and logical time alone.
//!
//! So neither an evaluation nor a snapshot nor another layer moves the stream (row R-17), and two branches of one state
//! drop the same activations (row T88).

use tch::Tensor;
use xt_core::random::Stream;

use crate::fault::TrainError;
use crate::parameters::narrowed;

/// The dropout of one micro-batch.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    seed: u64,
    /// Number of the micro-batch over all epochs.
    time: u64,
    activations: Rate,
    /// Of what enters an adapter.
    adapters: Rate,
}

/// How much is dropped.
#[derive(Clone, Copy, Debug)]
struct Rate {
    /// Words below this drop.
    threshold: u32,
    /// What kept activations are multiplied by.
    scale: f32,
}

impl Rate {
    fn of(probability: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 1, so below 2^32")]
        let threshold = (probability * 4_294_967_296.0) as u32;
        Self { threshold, scale: narrowed(1.0 / (1.0 - probability)) }
    }
}

impl Dropout {
    /// Dropout with this probability in the micro-batch number `time`; `None` when nothing is ever dropped.
    ///
    /// An activation is dropped when its 32-bit word is below `probability * 2^32`, and kept ones are divided by
    /// `1 - probability` (Srivastava et al., "Dropout", JMLR 2014, in the inverted form).
    pub fn new(seed: u64, time: u64, probability: f64) -> Option<Self> {
        Self::with_adapters(seed, time, probability, 0.0)
    }

    /// The same, with another probability for what enters an adapter.
    pub fn with_adapters(seed: u64, time: u64, probability: f64, adapters: f64) -> Option<Self> {
        let (activations, adapters) = (Rate::of(probability), Rate::of(adapters));
        (activations.threshold > 0 || adapters.threshold > 0).then_some(Self { seed, time, activations, adapters })
    }

    /// Nothing is dropped, and what draws by itself is told when.
    pub fn none(seed: u64, time: u64) -> Self {
        Self { seed, time, activations: Rate::of(0.0), adapters: Rate::of(0.0) }
    }

    /// Where the generator of a model that draws by itself begins.
    pub fn start(&self) -> i64 {
        Stream::new(self.seed, "module", self.time).word(0).cast_signed()
    }

    /// Whether activations are dropped, and not only what enters an adapter.
    pub const fn drops_activations(&self) -> bool {
        self.activations.threshold > 0
    }

    /// `activations` with some of them dropped; `place` names the layer.
    pub fn apply(&self, place: &str, activations: &Tensor) -> Result<Tensor, TrainError> {
        self.thin(self.activations, place, activations)
    }

    /// What enters the adapter of the layer `name`, with some of it dropped.
    pub fn before_adapter(&self, name: &str, input: &Tensor) -> Result<Tensor, TrainError> {
        self.thin(self.adapters, &format!("adapter/{name}"), input)
    }

    fn thin(&self, rate: Rate, place: &str, activations: &Tensor) -> Result<Tensor, TrainError> {
        if rate.threshold == 0 {
            return Ok(activations.shallow_clone());
        }
        let mask = Tensor::f_from_slice(&self.factors(rate, place, activations.numel()))?;
        Ok(activations.f_mul(&mask.f_view(activations.size().as_slice())?)?)
    }

    /// The first `count` factors at `place`.
    pub fn mask(&self, place: &str, count: usize) -> Vec<f32> {
        self.factors(self.activations, place, count)
    }

    fn factors(&self, rate: Rate, place: &str, count: usize) -> Vec<f32> {
        let mut words = vec![0; count];
        Stream::new(self.seed, &format!("dropout/{place}"), self.time).fill(&mut words);
        words.iter().map(|word| if *word < rate.threshold { 0.0 } else { rate.scale }).collect()
    }
}

/// `activations`, with dropout where there is one.
pub fn dropped(dropout: Option<&Dropout>, place: &str, activations: Tensor) -> Result<Tensor, TrainError> {
    match dropout {
        Some(dropout) => dropout.apply(place, &activations),
        None => Ok(activations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_depends_on_seed_time_and_place_and_not_on_what_was_drawn_before() {
        let mask = |seed, time, place| Dropout::new(seed, time, 0.5).unwrap().mask(place, 1000);
        let base = mask(1, 5, "block.0.attention");
        let dropout = Dropout::new(1, 5, 0.5).unwrap();
        dropout.mask("embedding", 77);
        dropout.mask("block.0.attention", 3);
        assert_eq!(dropout.mask("block.0.attention", 1000), base);
        assert_eq!(dropout.mask("block.0.attention", 10), base[..10]);
        for other in [mask(2, 5, "block.0.attention"), mask(1, 6, "block.0.attention"), mask(1, 5, "embedding")] {
            assert_ne!(other, base);
        }
    }

    #[test]
    fn the_share_of_dropped_activations_is_the_declared_one_and_the_mean_stays() {
        let count = 400_000;
        let mask = Dropout::new(3, 0, 0.1).unwrap().mask("x", count);
        let dropped = mask.iter().filter(|factor| **factor == 0.0).count() as f64 / count as f64;
        // Four standard errors of a share of 0.1.
        assert!((dropped - 0.1).abs() < 4.0 * (0.09 / count as f64).sqrt(), "{dropped}");
        assert!(mask.iter().all(|factor| *factor == 0.0 || *factor == 1.0 / 0.9));
        assert!(Dropout::new(3, 0, 0.0).is_none());
    }

    #[test]
    fn dropped_activations_have_no_gradient() {
        let input = Tensor::from_slice(&[1.0f32; 64]).set_requires_grad(true);
        let dropout = Dropout::new(1, 0, 0.5).unwrap();
        let output = dropout.apply("x", &input).unwrap();
        output.sum(tch::Kind::Float).backward();
        assert_eq!(Vec::<f32>::try_from(input.grad()).unwrap(), dropout.mask("x", 64));
    }
}
