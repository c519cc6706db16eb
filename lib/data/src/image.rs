//! Images with the numbers of their classes: pairs of files in the form of the MNIST files or of NumPy, or PNG files in folders.

mod array;
mod folder;
mod idx;
mod npy;

use std::borrow::Cow;
use std::collections::BTreeSet;

use xt_core::fault::Faults;
use xt_core::manifest::dataset::Format;
use xt_core::verb::admit::images_of;

use crate::image::array::Array;
use crate::rows::{Raw, Span, Targets};

/// An array by what its file begins with.
fn parse(bytes: &[u8]) -> Result<Array<'_>, String> {
    if bytes.starts_with(npy::MAGIC) { npy::parse(bytes) } else { idx::parse(bytes) }
}

/// What is wrong with the form of a file, if anything.
pub fn check(format: Format, path: &str, bytes: &[u8]) -> Faults {
    let mut faults = Faults::new();
    let wrong = match format {
        Format::Npy => npy::parse(bytes).err(),
        Format::Png => folder::parse(bytes).err(),
        _ => idx::parse(bytes).err(),
    };
    if let Some(why) = wrong {
        faults.add(path, "image.form", why);
    }
    if format == Format::Png && folder::label(path).is_none() {
        faults.add(
            path,
            "image.labels",
            "it lies in no folder that could be its label: name the folder above that one",
        );
    }
    faults
}

/// The images of a file; a file of labels has none.
pub(crate) fn examples(bytes: &[u8]) -> Vec<Cow<'_, [u8]>> {
    if bytes.starts_with(folder::SIGNATURE) {
        return folder::parse(bytes).into_iter().map(|picture| Cow::Owned(picture.values)).collect();
    }
    let Ok(file) = parse(bytes) else { return Vec::new() };
    let size = file.values.len().checked_div(file.samples()).unwrap_or(0);
    let none = file.is_labels() || size == 0;
    if none { Vec::new() } else { file.values.chunks(size).map(Cow::Borrowed).collect() }
}

/// Reads images of this shape and their classes: numbers below `classes` from files of labels, or the folders named by `levels`.
pub fn read(
    shape: [u64; 3],
    (classes, levels): (u64, Option<&[String]>),
    files: &[(&str, Vec<u8>)],
    faults: &mut Faults,
) -> Raw {
    let (values, targets, counts) = match levels {
        Some(levels) => in_folders(shape, levels, files, faults),
        None => in_pairs(shape, classes, files, faults),
    };
    let width = usize::try_from(shape.iter().product::<u64>()).unwrap_or(usize::MAX);
    let spans = vec![Span { column: "pixels".into(), start: 0, width, number: true }];
    let (targets, target) = (Targets::Classes(targets), "class".into());
    Raw { spans, width, values, missing: BTreeSet::new(), targets, target, counts }
}

/// What images are, before anybody declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Channels, height and width of the first one.
    pub(crate) shape: [u64; 3],
    pub(crate) classes: u64,
    /// The folders that they lie in, where those are their labels.
    pub(crate) levels: Option<Vec<String>>,
}

/// Looks at files of images. What does not fit together is told when they are read as declared.
pub(crate) fn survey(format: Format, files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Option<Survey> {
    for (path, bytes) in files {
        faults.0.extend(check(format, path, bytes).0);
    }
    let survey = if format == Format::Png {
        let levels: BTreeSet<String> =
            files.iter().filter_map(|(path, _)| folder::label(path)).map(String::from).collect();
        let shape = files.iter().find_map(|(_, bytes)| folder::parse(bytes).ok()).map(|picture| picture.shape);
        shape.map(|shape| Survey { shape, classes: levels.len() as u64, levels: Some(levels.into_iter().collect()) })
    } else {
        let arrays: Vec<Array<'_>> = files.iter().filter_map(|(_, bytes)| parse(bytes).ok()).collect();
        let labels = arrays.iter().filter(|array| array.is_labels()).filter_map(Array::labels).flatten();
        let last = labels.filter_map(|label| u64::try_from(label).ok()).max().unwrap_or(0);
        let shape = arrays.iter().find_map(Array::shape);
        shape.map(|shape| Survey { shape, classes: (last + 1).max(2), levels: None })
    };
    if survey.is_none() && faults.is_empty() {
        faults.add("data", "data.empty", "the split holds no image");
    }
    survey
}

/// Values of the images, their classes, and images of each file.
type Read = (Vec<f32>, Vec<i64>, Vec<u64>);

/// Files of one image each.
fn in_folders(shape: [u64; 3], levels: &[String], files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Read {
    let (mut values, mut targets) = (Vec::new(), Vec::new());
    for (path, bytes) in files {
        let label = folder::label(path);
        let class = levels.iter().position(|level| Some(level.as_str()) == label);
        match (folder::parse(bytes), class) {
            (Err(why), _) => faults.add(*path, "image.form", why),
            (Ok(picture), _) if picture.shape != shape => {
                let message = format!("it is {:?}, declared is {shape:?} (channels, height, width)", picture.shape);
                faults.add(*path, "image.shape", message);
            }
            (Ok(_), None) => {
                let message = format!("its folder {} is none of {}", label.unwrap_or("(none)"), levels.join(", "));
                faults.add(*path, "image.class", message);
            }
            (Ok(picture), Some(class)) => {
                values.extend(picture.values.iter().map(|value| f32::from(*value)));
                targets.push(i64::try_from(class).unwrap_or(i64::MAX));
            }
        }
    }
    (values, targets, vec![1; files.len()])
}

/// Files of images, each with a file of labels.
fn in_pairs(shape: [u64; 3], classes: u64, files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Read {
    let (mut values, mut targets, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    let mut used = BTreeSet::new();
    let parsed: Vec<Option<Array<'_>>> = files
        .iter()
        .map(|(path, bytes)| parse(bytes).map_err(|why| faults.add(*path, "image.form", why)).ok())
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
            .find(|((other, _), file)| file.as_ref().is_some_and(Array::is_labels) && images_of(other) == *path);
        let Some(((other, _), Some(labels))) = labels else {
            faults.add(*path, "image.labels", "there is no file of labels with `labels` for `images` in its name");
            continue;
        };
        used.insert(*other);
        values.extend(file.floats());
        targets.extend(labels_of(other, labels, file.samples(), classes, faults));
    }
    for ((path, _), _) in files.iter().zip(&parsed).filter(|(_, file)| file.as_ref().is_some_and(Array::is_labels)) {
        if !used.contains(path) {
            faults.add(*path, "image.labels", "there is no file of images with `images` for `labels` in its name");
        }
    }
    (values, targets, counts)
}

/// The labels of a file; notes what is wrong with them.
fn labels_of(path: &str, file: &Array<'_>, images: usize, classes: u64, faults: &mut Faults) -> Vec<i64> {
    let Some(labels) = file.labels() else {
        faults.add(path, "image.labels", "its labels are no whole numbers");
        return Vec::new();
    };
    if labels.len() != images {
        faults.add(path, "image.labels", format!("it has {} labels for {images} images", labels.len()));
    }
    let known = |label: i64| u64::try_from(label).is_ok_and(|label| label < classes);
    for (index, label) in labels.iter().enumerate().filter(|(_, label)| !known(**label)) {
        faults.add(format!("{path}:{index}"), "image.class", format!("the label {label} is no class below {classes}"));
    }
    labels
}

#[cfg(test)]
mod tests {
    use png::{BitDepth, ColorType};

    use super::folder::tests::file;
    use super::npy::tests::npy;
    use super::*;

    const BYTES: u8 = 0x08;
    const FLOATS: u8 = 0x0d;

    fn idx(kind: u8, dimensions: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, kind, u8::try_from(dimensions.len()).unwrap()];
        bytes.extend(dimensions.iter().flat_map(|size| size.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    /// What is wrong, by place and kind.
    fn codes(
        shape: [u64; 3],
        classes: u64,
        levels: Option<&[String]>,
        files: &[(&str, Vec<u8>)],
    ) -> Vec<(String, &'static str)> {
        let mut faults = Faults::new();
        read(shape, (classes, levels), files, &mut faults);
        faults.0.iter().map(|fault| (fault.pointer.clone(), fault.code)).collect()
    }

    fn at(path: &str, code: &'static str) -> Vec<(String, &'static str)> {
        vec![(path.to_string(), code)]
    }

    #[test]
    fn a_pair_of_files_is_read_and_each_fault_of_it_is_named() {
        let images = idx(BYTES, &[2, 1, 2], &[0, 255, 3, 4]);
        let labels = idx(BYTES, &[2], &[1, 0]);
        let files = [("a/x-images-idx3-ubyte", images.clone()), ("a/x-labels-idx1-ubyte", labels.clone())];
        let mut faults = Faults::new();
        let raw = read([1, 1, 2], (2, None), &files, &mut faults);
        assert_eq!(faults, Faults::new());
        assert_eq!((raw.values, raw.targets), (vec![0.0, 255.0, 3.0, 4.0], Targets::Classes(vec![1, 0])));
        assert_eq!(raw.counts, [2, 0]);
        let codes = |shape, classes, files: &[(&str, Vec<u8>)]| codes(shape, classes, None, files);
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
        let check = |bytes: &[u8]| check(Format::Idx, "x", bytes);
        assert!(check(&good).is_empty());
        for bad in [&good[..3], &good[..7], &good[..9], &[good.as_slice(), b"x"].concat(), b"PNG and more"] {
            assert_eq!(check(bad).0.len(), 1, "{bad:?}");
        }
        let huge = idx(BYTES, &[u32::MAX, u32::MAX, u32::MAX, u32::MAX], &[]);
        assert_eq!(check(&huge).0[0].code, "image.form");
        let floats = idx(FLOATS, &[1, 1, 2], &[1.5f32.to_be_bytes(), f32::NAN.to_be_bytes()].concat());
        let values = parse(&floats).unwrap().floats();
        assert!(values[0] == 1.5 && values[1].is_nan());
    }

    /// Two images of one row, as each form holds them.
    #[test]
    fn the_same_images_are_the_same_rows_in_each_form_and_others_are_not() {
        let in_idx = |last| {
            let images = idx(BYTES, &[2, 1, 3], &[0, 128, 255, 4, 5, last]);
            [("x-images", images), ("x-labels", idx(BYTES, &[2], &[0, 1]))]
        };
        let labels = [0i64, 1].map(i64::to_le_bytes).concat();
        let in_npy = [
            ("x-images.npy", npy("|u1", "(2, 1, 3)", &[0, 128, 255, 4, 5, 6])),
            ("x-labels.npy", npy("<i8", "(2,)", &labels)),
        ];
        let grey = |pixels: &[u8]| file(ColorType::Grayscale, BitDepth::Eight, [3, 1], pixels);
        let in_png = [("t/cat/1.png", grey(&[0, 128, 255])), ("t/dog/1.png", grey(&[4, 5, 6]))];
        let levels = ["cat", "dog"].map(String::from);
        let rows = |levels: Option<&[String]>, files: &[(&str, Vec<u8>)]| {
            let mut faults = Faults::new();
            let raw = read([1, 1, 3], (2, levels), files, &mut faults);
            assert_eq!(faults, Faults::new());
            (raw.values, raw.targets, raw.spans)
        };
        let due = rows(None, &in_idx(6));
        assert_eq!((rows(None, &in_npy), rows(Some(&levels), &in_png)), (due.clone(), due.clone()));
        assert_ne!(rows(None, &in_idx(7)), due, "a control with another pixel");
        let turned = ["dog", "cat"].map(String::from);
        assert_ne!(rows(Some(&turned), &in_png).1, due.1, "a control with another order of the classes");
        let all = |files: &[(&str, Vec<u8>)]| -> Vec<Vec<u8>> {
            files.iter().flat_map(|(_, bytes)| examples(bytes)).map(Cow::into_owned).collect()
        };
        let images = [vec![0, 128, 255], vec![4, 5, 6]];
        assert_eq!((all(&in_idx(6)), all(&in_npy), all(&in_png)), (images.to_vec(), images.to_vec(), images.to_vec()));
    }

    #[test]
    fn a_folder_that_is_no_class_and_an_image_of_another_shape_are_named() {
        let grey = file(ColorType::Grayscale, BitDepth::Eight, [3, 1], &[0, 1, 2]);
        let levels = ["cat", "dog"].map(String::from);
        let codes = |shape, path: &str, bytes: &[u8]| codes(shape, 2, Some(&levels), &[(path, bytes.to_vec())]);
        assert_eq!(codes([1, 1, 3], "cat/1.png", &grey), []);
        assert_eq!(codes([1, 1, 3], "cow/1.png", &grey), at("cow/1.png", "image.class"));
        assert_eq!(codes([1, 1, 3], "1.png", &grey), at("1.png", "image.class"));
        assert_eq!(codes([1, 3, 1], "cat/1.png", &grey), at("cat/1.png", "image.shape"));
        assert_eq!(codes([3, 1, 3], "cat/1.png", &grey), at("cat/1.png", "image.shape"));
        assert_eq!(codes([1, 1, 3], "cat/1.png", &grey[..20]), at("cat/1.png", "image.form"));
        assert_eq!(check(Format::Png, "1.png", &grey).0[0].code, "image.labels");
        assert!(check(Format::Png, "cat/1.png", &grey).is_empty());
        assert_eq!(check(Format::Npy, "x.npy", &grey).0[0].code, "image.form");
    }

    #[test]
    fn labels_of_numpy_that_are_no_classes_are_named() {
        let images = npy("|u1", "(2, 1, 2)", &[0, 255, 3, 4]);
        let with = |labels: Vec<u8>| [("x-images.npy", images.clone()), ("x-labels.npy", labels)];
        let negative = with(npy("<i8", "(2,)", &[0i64, -1].map(i64::to_le_bytes).concat()));
        assert_eq!(codes([1, 1, 2], 2, None, &negative), at("x-labels.npy:1", "image.class"));
        let floats = with(npy("<f4", "(2,)", &[0.0f32, 1.0].map(f32::to_le_bytes).concat()));
        assert_eq!(codes([1, 1, 2], 2, None, &floats), at("x-labels.npy", "image.labels"));
    }

    #[test]
    fn an_example_is_an_image_and_a_label_is_none() {
        assert_eq!(examples(&idx(BYTES, &[2, 1, 2], &[0, 1, 2, 3])), [&[0u8, 1][..], &[2, 3]]);
        assert!(examples(&idx(BYTES, &[2], &[0, 1])).is_empty());
    }
}
