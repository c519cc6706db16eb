//! Samples in safetensors files: a tensor of inputs and one of targets, whose first dimension counts the samples.

use std::collections::BTreeSet;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use xt_core::fault::Faults;

use crate::rows::{Raw, Span, Targets};

/// What a candidate declares of such files.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Name of the inputs.
    pub inputs: &'a str,
    /// Dimensions of a sample.
    pub shape: &'a [u64],
    /// Name of the targets.
    pub targets: &'a str,
    /// Classes; `None` where targets are numbers.
    pub classes: Option<u64>,
}

/// What is wrong with the form of a file, if anything: header, places of the tensors, length.
pub fn check(path: &str, bytes: &[u8]) -> Faults {
    let mut faults = Faults::new();
    match SafeTensors::deserialize(bytes) {
        Err(SafeTensorError::MetadataIncompleteBuffer) => {
            let message = "its tensors do not fill it: it is cut off, or something stands behind the last one";
            faults.add(path, "tensor.form", message);
        }
        Err(error) => faults.add(path, "tensor.form", format!("it is no file of safetensors: {error}")),
        Ok(file) if file.is_empty() => faults.add(path, "data.empty", "it holds no tensor"),
        Ok(_) => {}
    }
    faults
}

/// The samples of a file by their inputs; without a name, those of each tensor of binary32 with two dimensions or more.
pub(crate) fn examples<'a>(inputs: Option<&str>, bytes: &'a [u8]) -> Vec<&'a [u8]> {
    let Ok(file) = SafeTensors::deserialize(bytes) else { return Vec::new() };
    let wanted = |name: &str, tensor: &TensorView<'_>| match inputs {
        Some(inputs) => name == inputs,
        None => tensor.dtype() == Dtype::F32 && tensor.shape().len() > 1,
    };
    let mut tensors = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    tensors.retain(|(name, tensor)| wanted(name, tensor));
    let rows = |tensor: &TensorView<'a>| {
        let size = tensor.data().len().checked_div(tensor.shape().first().copied().unwrap_or(0)).unwrap_or(0);
        if size == 0 { Vec::new() } else { tensor.data().chunks(size).collect() }
    };
    tensors.iter().flat_map(|(_, tensor)| rows(tensor)).collect()
}

/// The largest whole number in a tensor of a file; `None` where it has none.
pub(crate) fn largest(bytes: &[u8], name: &str) -> Option<u64> {
    let file = SafeTensors::deserialize(bytes).ok()?;
    let tensor = file.tensor(name).ok().filter(|tensor| tensor.dtype() == Dtype::I64)?;
    wholes(&tensor).filter_map(|class| u64::try_from(class).ok()).max()
}

/// Reads files as declared.
pub fn read(declared: &Declared<'_>, files: &[(&str, Vec<u8>)], faults: &mut Faults) -> Raw {
    let width = declared.shape.iter().try_fold(1, |all: usize, size| all.checked_mul(usize::try_from(*size).ok()?));
    let width = width.unwrap_or(usize::MAX);
    let (mut values, mut numbers, mut classes, mut counts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (path, bytes) in files {
        let before = faults.0.len();
        faults.0.extend(check(path, bytes).0);
        let Ok(file) = SafeTensors::deserialize(bytes) else { continue };
        for (name, _) in
            file.tensors().iter().filter(|(name, _)| ![declared.inputs, declared.targets].contains(&&**name))
        {
            faults.add(*path, "tensor.name", format!("it holds a tensor {name:?} that is not declared"));
        }
        let inputs = tensor(path, &file, declared.inputs, Dtype::F32, faults);
        let due = if declared.classes.is_some() { Dtype::I64 } else { Dtype::F32 };
        let targets = tensor(path, &file, declared.targets, due, faults);
        let (Some(inputs), Some(targets)) = (inputs, targets) else { continue };
        check_shapes(path, declared, &inputs, &targets, faults);
        if let Some(below) = declared.classes {
            check_classes(path, &targets, below, faults);
        }
        if faults.0.len() > before {
            continue;
        }
        counts.push(inputs.shape().first().map_or(0, |count| *count as u64));
        values.extend(floats(&inputs));
        match declared.classes {
            Some(_) => classes.extend(wholes(&targets)),
            None => numbers.extend(floats(&targets)),
        }
    }
    let spans = vec![Span { column: declared.inputs.into(), start: 0, width, number: true }];
    let targets = if declared.classes.is_some() { Targets::Classes(classes) } else { Targets::Numbers(numbers) };
    Raw { spans, width, values, missing: BTreeSet::new(), targets, target: declared.targets.into(), counts }
}

/// The tensor of this name and type; notes why there is none.
fn tensor<'a>(
    path: &str,
    file: &SafeTensors<'a>,
    name: &str,
    due: Dtype,
    faults: &mut Faults,
) -> Option<TensorView<'a>> {
    let Ok(tensor) = file.tensor(name) else {
        faults.add(path, "tensor.name", format!("it holds no tensor {name:?}"));
        return None;
    };
    if tensor.dtype() != due {
        let message = format!("the tensor {name:?} is of type {:?}, expected {due:?}", tensor.dtype());
        faults.add(path, "tensor.type", message);
        return None;
    }
    Some(tensor)
}

fn check_shapes(
    path: &str,
    declared: &Declared<'_>,
    inputs: &TensorView<'_>,
    targets: &TensorView<'_>,
    faults: &mut Faults,
) {
    let sizes = |sizes: &[usize]| sizes.iter().map(|size| *size as u64).collect::<Vec<u64>>();
    match inputs.shape().split_first() {
        Some((count, of_one)) if *count > 0 && sizes(of_one) == declared.shape => {
            if targets.shape() != [*count] {
                let message = format!("the targets have the shape {:?} for {count} samples", targets.shape());
                faults.add(path, "tensor.shape", message);
            }
        }
        _ => {
            let (found, due) = (inputs.shape(), declared.shape);
            let message = format!("the inputs have the shape {found:?}, expected a number of samples, then {due:?}");
            faults.add(path, "tensor.shape", message);
        }
    }
}

fn check_classes(path: &str, targets: &TensorView<'_>, below: u64, faults: &mut Faults) {
    let known = |class: i64| u64::try_from(class).is_ok_and(|class| class < below);
    for (index, class) in wholes(targets).enumerate().filter(|(_, class)| !known(*class)) {
        faults.add(format!("{path}:{index}"), "tensor.class", format!("the target {class} is no class below {below}"));
    }
}

fn floats<'a>(tensor: &TensorView<'a>) -> impl Iterator<Item = f32> + use<'a> {
    tensor.data().as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk))
}

fn wholes<'a>(tensor: &TensorView<'a>) -> impl Iterator<Item = i64> + use<'a> {
    tensor.data().as_chunks::<8>().0.iter().map(|chunk| i64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: [f32; 6] = [1.0, 2.0, 3.0, 4.0, f32::NAN, 6.0];

    fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| (*name, TensorView::new(*dtype, shape.to_vec(), bytes).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    fn inputs(shape: &[usize]) -> (&'static str, Dtype, &[usize], Vec<u8>) {
        ("x", Dtype::F32, shape, X.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    fn classes(all: [i64; 3]) -> (&'static str, Dtype, &'static [usize], Vec<u8>) {
        ("y", Dtype::I64, &[3], all.map(i64::to_le_bytes).concat())
    }

    fn numbers() -> (&'static str, Dtype, &'static [usize], Vec<u8>) {
        ("y", Dtype::F32, &[3], [0.5f32, 1.5, 2.5].map(f32::to_le_bytes).concat())
    }

    fn rows(classes: Option<u64>, bytes: &[u8]) -> Result<Raw, Vec<&'static str>> {
        let mut faults = Faults::new();
        let declared = Declared { inputs: "x", shape: &[2], targets: "y", classes };
        let raw = read(&declared, &[("a.safetensors", bytes.to_vec())], &mut faults);
        if faults.is_empty() { Ok(raw) } else { Err(faults.0.iter().map(|fault| fault.code).collect()) }
    }

    #[test]
    fn inputs_and_targets_are_read_and_what_is_not_finite_stays() {
        let raw = rows(Some(3), &file(&[inputs(&[3, 2]), classes([2, 0, 1])])).unwrap();
        assert_eq!((raw.width, raw.counts.as_slice(), &raw.targets), (2, &[3][..], &Targets::Classes(vec![2, 0, 1])));
        assert!(raw.values[..4] == X[..4] && raw.values[4].is_nan());
        let raw = rows(None, &file(&[inputs(&[3, 2]), numbers()])).unwrap();
        assert_eq!(raw.targets, Targets::Numbers(vec![0.5, 1.5, 2.5]));
        let bytes = file(&[inputs(&[3, 2]), numbers()]);
        assert_eq!((examples(Some("x"), &bytes).len(), examples(None, &bytes).len()), (3, 3));
        assert_eq!(examples(Some("x"), &bytes)[1], [3.0f32, 4.0].map(f32::to_le_bytes).concat());
    }

    #[test]
    fn each_fault_of_a_file_is_named() {
        let good = file(&[inputs(&[3, 2]), classes([2, 0, 1])]);
        assert!(check("x", &good).is_empty());
        for bad in [&good[..4], &good[..20], &good[..good.len() - 1], &[&good[..], b"x"].concat(), b"no tensors at all"]
        {
            assert_eq!(check("x", bad).0[0].code, "tensor.form", "{bad:?}");
            assert_eq!(rows(Some(3), bad).unwrap_err(), ["tensor.form"]);
        }
        assert_eq!(rows(Some(2), &good).unwrap_err(), ["tensor.class"]);
        assert_eq!(rows(None, &good).unwrap_err(), ["tensor.type"]);
        assert_eq!(rows(Some(3), &file(&[inputs(&[3, 2])])).unwrap_err(), ["tensor.name"]);
        assert_eq!(rows(Some(3), &file(&[inputs(&[2, 3]), classes([0, 1, 2])])).unwrap_err(), ["tensor.shape"]);
        assert_eq!(rows(Some(3), &file(&[inputs(&[6]), classes([0, 1, 2])])).unwrap_err(), ["tensor.shape"]);
        let (_, dtype, shape, bytes) = numbers();
        let third = ("z", dtype, shape, bytes);
        assert_eq!(rows(Some(3), &file(&[inputs(&[3, 2]), classes([0, 1, 2]), third])).unwrap_err(), ["tensor.name"]);
        let few = ("y", Dtype::I64, &[2usize][..], [0i64, 1].map(i64::to_le_bytes).concat());
        assert_eq!(rows(Some(3), &file(&[inputs(&[3, 2]), few])).unwrap_err(), ["tensor.shape"]);
        let negative = file(&[inputs(&[3, 2]), classes([0, -1, 1])]);
        assert_eq!(rows(Some(3), &negative).unwrap_err(), ["tensor.class"]);
    }
}
