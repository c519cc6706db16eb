//! Images changed at random when they are trained on. What is drawn depends on seed, micro-batch and place in it alone, as
//! dropout does, so an evaluation or a snapshot moves nothing, and a run that is restored sees the same images.

use xt_core::manifest::candidate::Tokenizer;
use xt_core::manifest::encoding::{Augmentation, Fitted, Scaling};
use xt_core::random::Stream;
use xt_data::rows::scaled_zero;

/// Words that are drawn for each image: two whole blocks of the generator.
const WORDS: usize = 8;

/// When something is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the micro-batch over all epochs.
    pub time: u64,
}

/// How the images of a candidate are changed.
#[derive(Clone, Copy, Debug)]
pub struct Augment {
    augmentation: Augmentation,
    /// Channels, height and width.
    shape: [usize; 3],
    /// What a 0 of the files is, once it is scaled.
    background: f32,
}

impl Augment {
    /// For images scaled by what was fitted; `None` where they stay as they are.
    pub fn new(tokenizer: &Tokenizer, fitted: &[Fitted]) -> Option<Self> {
        let Tokenizer::Image { channels, height, width, scaling, augmentation, .. } = tokenizer else { return None };
        if *augmentation == Augmentation::NONE {
            return None;
        }
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let shape = [size(*channels), size(*height), size(*width)];
        let fitted = fitted.first().filter(|_| *scaling != Scaling::None);
        Some(Self { augmentation: *augmentation, shape, background: scaled_zero(fitted) })
    }

    /// Changes the images of one micro-batch, which lie in `values` one after the other.
    pub fn apply(&self, moment: Moment, values: &mut [f32]) {
        let size: usize = self.shape.iter().product();
        let mut words = vec![0; WORDS * values.len().checked_div(size).unwrap_or(0)];
        Stream::new(moment.seed, "augmentation", moment.time).fill(&mut words);
        for (image, words) in values.chunks_exact_mut(size.max(1)).zip(words.chunks_exact(WORDS)) {
            self.change(image, words);
        }
    }

    /// Mirrors, shifts and cuts one image.
    fn change(&self, image: &mut [f32], words: &[u32]) {
        let Augmentation { shift, mirror, cut_out } = self.augmentation;
        let [_, height, width] = self.shape;
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (shift, edge) = (size(shift), size(cut_out));
        // A half of all words have their first bit.
        let mirrored = mirror && words[0] >> 31 == 1;
        // From -shift to shift, both included.
        let [down, right] = [words[1], words[2]].map(|word| below(word, 2 * shift + 1));
        // A square around the pixel in the middle; of an even edge, one more lies above and to the left.
        let square = |word, size| {
            let middle = below(word, size);
            (middle.saturating_sub(edge / 2), (middle + edge.div_ceil(2)).min(size))
        };
        let (rows, columns) = (square(words[3], height), square(words[4], width));
        for plane in image.chunks_exact_mut((height * width).max(1)) {
            let before = plane.to_vec();
            for (y, row) in plane.chunks_exact_mut(width.max(1)).enumerate() {
                for (x, value) in row.iter_mut().enumerate() {
                    let from_y = (y + shift).checked_sub(down).filter(|from| *from < height);
                    let from_x = (x + shift).checked_sub(right).filter(|from| *from < width);
                    let from_x = from_x.map(|from| if mirrored { width - 1 - from } else { from });
                    let cut = edge > 0 && (rows.0..rows.1).contains(&y) && (columns.0..columns.1).contains(&x);
                    *value = match (from_y, from_x) {
                        (Some(from_y), Some(from_x)) if !cut => before[from_y * width + from_x],
                        _ => self.background,
                    };
                }
            }
        }
    }
}

/// A whole number below `count`, each about as often as any other: the high half of a product (Lemire, "Fast Random Integer
/// Generation in an Interval", 2019, without its rejection: the error is at most `count` in 2^32).
fn below(word: u32, count: usize) -> usize {
    usize::try_from((u64::from(word) * count as u64) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn augment(shift: u64, mirror: bool, cut_out: u64) -> Augment {
        Augment { augmentation: Augmentation { shift, mirror, cut_out }, shape: [1, 3, 4], background: -1.0 }
    }

    fn pictures(count: u8) -> Vec<f32> {
        (0..12 * count).map(f32::from).collect()
    }

    fn changed(augment: Augment, seed: u64, time: u64, count: u8) -> Vec<f32> {
        let mut values = pictures(count);
        augment.apply(Moment { seed, time }, &mut values);
        values
    }

    #[test]
    fn what_is_drawn_depends_on_seed_time_and_place_alone() {
        let all = augment(1, true, 2);
        let base = changed(all, 1, 5, 20);
        assert_eq!(changed(all, 1, 5, 20), base);
        assert_eq!(changed(all, 1, 5, 7), base[..12 * 7], "the images before it do not hang on those behind");
        assert_ne!(changed(all, 2, 5, 20), base);
        assert_ne!(changed(all, 1, 6, 20), base);
        assert_ne!(base, pictures(20));
    }

    /// Every image that can come out does, and about as often as any other.
    #[test]
    fn shifts_and_mirror_images_are_those_declared_and_no_others() {
        let count = 21;
        let (mut mirrored, mut moved) = (0, std::collections::BTreeMap::new());
        for time in 0..40 {
            for (number, image) in changed(augment(0, true, 0), 3, time, count).chunks(12).enumerate() {
                let first = 12.0 * number as f32;
                assert!(image[0] == first || image[0] == first + 3.0);
                mirrored += u32::from(image[0] != first);
            }
            for (number, image) in changed(augment(1, false, 0), 3, time, count).chunks(12).enumerate() {
                // Where the pixel in the second row and column has gone.
                let at = image.iter().position(|value| *value == 12.0 * number as f32 + 5.0).unwrap();
                *moved.entry(at).or_insert(0) += 1;
            }
        }
        let all = 40.0 * f64::from(count);
        assert!((f64::from(mirrored) / all - 0.5).abs() < 4.0 * (0.25 / all).sqrt(), "{mirrored} of {all}");
        assert_eq!(moved.keys().copied().collect::<Vec<usize>>(), [0, 1, 2, 4, 5, 6, 8, 9, 10]);
        let error = 4.0 * (1.0 / 9.0 * 8.0 / 9.0 / all).sqrt();
        assert!(moved.values().all(|times| (f64::from(*times) / all - 1.0 / 9.0).abs() < error), "{moved:?}");
    }

    #[test]
    fn what_comes_in_is_background_and_a_square_is_cut_out() {
        let mut seen = std::collections::BTreeSet::new();
        for time in 0..60 {
            let image = changed(augment(0, false, 2), 1, time, 1);
            let cut: Vec<usize> = (0..12).filter(|at| image[*at] == -1.0).collect();
            assert!((0..12).all(|at| image[at] == -1.0 || image[at] == at as f32));
            seen.insert(cut.len());
            assert!([1, 2, 4].contains(&cut.len()), "{cut:?}");
        }
        assert_eq!(seen.into_iter().collect::<Vec<usize>>(), [1, 2, 4], "corner, edge and middle");
        let shifted = augment(2, false, 0);
        let lost = (0..60).map(|time| changed(shifted, 1, time, 1).iter().filter(|value| **value == -1.0).count());
        assert_eq!(lost.max(), Some(12 - 2), "two rows and two columns come in");
    }

    #[test]
    fn nothing_is_drawn_where_images_stay_as_they_are() {
        let tokenizer = |augmentation| Tokenizer::Image {
            channels: 1,
            height: 3,
            width: 4,
            classes: 2,
            levels: None,
            scaling: Scaling::Inputs,
            augmentation,
        };
        assert!(Augment::new(&tokenizer(Augmentation::NONE), &[]).is_none());
        assert!(Augment::new(&tokenizer(Augmentation { shift: 1, ..Augmentation::NONE }), &[]).is_some());
    }
}
