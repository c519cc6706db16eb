//! Images and labels in the form of the MNIST files (LeCun, Cortes, Burges, "The MNIST database", the IDX format): four
//! bytes `00 00`, type and number of dimensions, each dimension in four big-endian bytes, the values.

use std::collections::BTreeSet;

use xt_core::fault::Faults;
use xt_core::verb::admit::images_of;

use crate::rows::{Raw, Span, Targets};

/// Type of a file whose values are bytes.
const BYTES: u8 = 0x08;
/// Type of a file whose values are binary32 in big-endian order.
const FLOATS: u8 = 0x0d;

/// A file taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Idx<'a> {
    kind: u8,
    dimensions: Vec<usize>,
    values: &'a [u8],
}

impl<'a> Idx<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, String> {
        let (head, mut rest) = bytes.split_first_chunk::<4>().ok_or("it is shorter than its first four bytes")?;
        let [0, 0, kind @ (BYTES | FLOATS), count @ 1..=4] = *head else {
            return Err(format!("it begins with {head:02x?}, expected 00 00, 08 or 0d, and 1 to 4 dimensions"));
        };
        let mut dimensions = Vec::new();
        for _ in 0..count {
            let (size, behind) = rest.split_first_chunk::<4>().ok_or("it ends among its dimensions")?;
            dimensions.push(usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX));
            rest = behind;
        }
        let size = if kind == BYTES { 1 } else { 4 };
        let due = dimensions.iter().try_fold(size, |all: usize, dimension| all.checked_mul(*dimension));
        if due != Some(rest.len()) {
            return Err(format!("its dimensions {dimensions:?} do not make the {} bytes behind them", rest.len()));
        }
        Ok(Self { kind, dimensions, values: rest })
    }

    fn is_labels(&self) -> bool {
        self.dimensions.len() == 1
    }

    fn samples(&self) -> usize {
        self.dimensions.first().copied().unwrap_or(0)
    }

    /// Channels, height and width.
    fn shape(&self) -> Option<[u64; 3]> {
        match *self.dimensions.as_slice() {
            [_, height, width] => Some([1, height as u64, width as u64]),
            [_, channels, height, width] => Some([channels as u64, height as u64, width as u64]),
            _ => None,
        }
    }

    fn floats(&self) -> Vec<f32> {
        if self.kind == BYTES {
            return self.values.iter().map(|byte| f32::from(*byte)).collect();
        }
        let (chunks, _) = self.values.as_chunks::<4>();
        chunks.iter().map(|chunk| f32::from_be_bytes(*chunk)).collect()
    }
}

/// What is wrong with the form of a file, if anything.
pub fn check(path: &str, bytes: &[u8]) -> Faults {
    let mut faults = Faults::new();
    if let Err(why) = Idx::of(bytes) {
        faults.add(path, "image.form", why);
    }
    faults
}

/// The images of a file; a file of labels has none.
pub(crate) fn examples(bytes: &[u8]) -> Vec<&[u8]> {
    let Ok(file) = Idx::of(bytes) else { return Vec::new() };
    let size = file.values.len().checked_div(file.samples()).unwrap_or(0);
    if file.is_labels() || size == 0 { Vec::new() } else { file.values.chunks(size).collect() }
}

/// Reads pairs of files as images of this shape and labels below `classes`.
pub fn read(shape: [u64; 3], classes: u64, files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Raw {
    let width = usize::try_from(shape.iter().product::<u64>()).unwrap_or(usize::MAX);
    let (mut values, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    let mut used = BTreeSet::new();
    let parsed: Vec<Option<Idx<'_>>> = files
        .iter()
        .map(|(path, bytes)| Idx::of(bytes).map_err(|why| faults.add(*path, "image.form", why)).ok())
        .collect();
    for ((path, _), file) in files.iter().zip(&parsed) {
        let Some(file) = file else { continue };
        counts.push(if file.is_labels() { 0 } else { file.samples() as u64 });
        if file.is_labels() {
            continue;
        }
        if file.shape() != Some(shape) {
            let message =
                format!("its images are {:?}, declared are {shape:?} (channels, height, width)", file.dimensions);
            faults.add(*path, "image.shape", message);
            continue;
        }
        let labels = files
            .iter()
            .zip(&parsed)
            .find(|((other, _), file)| file.as_ref().is_some_and(Idx::is_labels) && images_of(other) == *path);
        let Some(((other, _), Some(labels))) = labels else {
            faults.add(*path, "image.labels", "there is no file of labels with `labels` for `images` in its name");
            continue;
        };
        used.insert(*other);
        check_labels(other, labels, file.samples(), classes, faults);
        values.extend(file.floats());
        targets.extend(labels.floats().iter().map(|label| whole(*label)));
    }
    for ((path, _), _) in files.iter().zip(&parsed).filter(|(_, file)| file.as_ref().is_some_and(Idx::is_labels)) {
        if !used.contains(path) {
            faults.add(*path, "image.labels", "there is no file of images with `images` for `labels` in its name");
        }
    }
    let spans = vec![Span { column: "pixels".into(), start: 0, width, number: true }];
    let (targets, target) = (Targets::Classes(targets), "class".into());
    Raw { spans, width, values, missing: BTreeSet::new(), targets, target, counts }
}

fn check_labels(path: &str, labels: &Idx<'_>, images: usize, classes: u64, faults: &mut Faults) {
    if labels.kind != BYTES {
        faults.add(path, "image.labels", "its labels are no bytes");
    }
    if labels.samples() != images {
        faults.add(path, "image.labels", format!("it has {} labels for {images} images", labels.samples()));
    }
    for (index, label) in labels.values.iter().enumerate().filter(|(_, label)| u64::from(**label) >= classes) {
        faults.add(format!("{path}:{index}"), "image.class", format!("the label {label} is no class below {classes}"));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "labels are bytes")]
const fn whole(value: f32) -> i64 {
    value as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idx(kind: u8, dimensions: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, kind, u8::try_from(dimensions.len()).unwrap()];
        bytes.extend(dimensions.iter().flat_map(|size| size.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    #[test]
    fn a_pair_of_files_is_read_and_each_fault_of_it_is_named() {
        let images = idx(BYTES, &[2, 1, 2], &[0, 255, 3, 4]);
        let labels = idx(BYTES, &[2], &[1, 0]);
        let files = [("a/x-images-idx3-ubyte", images.clone()), ("a/x-labels-idx1-ubyte", labels.clone())];
        let mut faults = Faults::new();
        let raw = read([1, 1, 2], 2, &files, &mut faults);
        assert_eq!(faults, Faults::new());
        assert_eq!((raw.values, raw.targets), (vec![0.0, 255.0, 3.0, 4.0], Targets::Classes(vec![1, 0])));
        assert_eq!(raw.counts, [2, 0]);
        let codes = |shape, classes, files: &[(&str, Vec<u8>)]| {
            let mut faults = Faults::new();
            read(shape, classes, files, &mut faults);
            faults.0.iter().map(|fault| (fault.pointer.clone(), fault.code)).collect::<Vec<_>>()
        };
        let at = |path: &str, code| vec![(path.to_string(), code)];
        assert_eq!(codes([1, 1, 2], 1, &files), at("a/x-labels-idx1-ubyte:0", "image.class"));
        assert_eq!(codes([1, 1, 2], 2, &files[..1]), at("a/x-images-idx3-ubyte", "image.labels"));
        assert_eq!(codes([1, 1, 2], 2, &files[1..]), at("a/x-labels-idx1-ubyte", "image.labels"));
        let short = [files[0].clone(), (files[1].0, idx(BYTES, &[1], &[1]))];
        assert_eq!(codes([1, 1, 2], 2, &short), at("a/x-labels-idx1-ubyte", "image.labels"));
        assert_eq!(codes([1, 2, 1], 2, &files)[0], ("a/x-images-idx3-ubyte".to_string(), "image.shape"));
    }

    #[test]
    fn other_bytes_are_refused_with_a_reason_and_floats_keep_what_is_not_finite() {
        let good = idx(BYTES, &[2], &[1, 0]);
        assert!(check("x", &good).is_empty());
        for bad in [&good[..3], &good[..7], &good[..9], &[good.as_slice(), b"x"].concat(), b"PNG and more"] {
            assert_eq!(check("x", bad).0.len(), 1, "{bad:?}");
        }
        let huge = idx(BYTES, &[u32::MAX, u32::MAX, u32::MAX, u32::MAX], &[]);
        assert_eq!(check("x", &huge).0[0].code, "image.form");
        let floats = idx(FLOATS, &[1, 1, 2], &[1.5f32.to_be_bytes(), f32::NAN.to_be_bytes()].concat());
        let values = Idx::of(&floats).unwrap().floats();
        assert!(values[0] == 1.5 && values[1].is_nan());
    }

    #[test]
    fn an_example_is_an_image_and_a_label_is_none() {
        assert_eq!(examples(&idx(BYTES, &[2, 1, 2], &[0, 1, 2, 3])), [&[0, 1], &[2, 3]]);
        assert!(examples(&idx(BYTES, &[2], &[0, 1])).is_empty());
    }
}
