//! The digest of trained parameters, from the bytes of their file as it streams by: the same digest that the last line
//! of a trace states, so that the file and the trace hold each other.
//!
//! A `model.safetensors` is the length of its header (8 bytes, little-endian), the header (JSON: name to type, shape and
//! place), and the values. Here all values are binary32, the tensors lie one after the other in the order of their names,
//! and nothing else is in the file.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::{Value, parse};
use crate::digest::Digest;
use crate::tensors::TensorsHasher;

/// A header may be this long: room for some hundred thousand tensors.
const LONGEST: u64 = 16 << 20;

/// Parameters whose file streams by.
#[derive(Clone, Debug)]
pub struct Weights {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Length(Vec<u8>),
    Header { length: usize, begun: Vec<u8> },
    Values { hasher: Box<TensorsHasher>, tensors: Vec<Tensor>, left: u64 },
    Bad(String),
}

/// A tensor as the header has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tensor {
    name: String,
    shape: Vec<u64>,
    bytes: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self::new()
    }
}

impl Weights {
    /// A file of which nothing was seen yet.
    pub fn new() -> Self {
        Self { state: State::Length(Vec::new()) }
    }

    /// The digest of a whole file.
    pub fn of(file: &[u8]) -> Result<Digest, String> {
        let mut weights = Self::new();
        weights.push(file);
        weights.finish()
    }

    /// Takes the next bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.state.take(bytes);
            bytes = &bytes[taken..];
        }
    }

    /// The digest, or why the file is not in this form.
    pub fn finish(self) -> Result<Digest, String> {
        match self.state {
            State::Length(_) | State::Header { .. } => Err("it ends inside its header".into()),
            State::Values { hasher, tensors, left: 0 } if tensors.is_empty() => Ok(hasher.finish()),
            State::Values { .. } => Err("it ends before its last tensor does".into()),
            State::Bad(why) => Err(why),
        }
    }
}

impl State {
    /// Takes as many of `bytes` as one state wants, at least one, and says how many.
    fn take(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Bad(_) => bytes.len(),
            Self::Length(begun) => {
                let count = bytes.len().min(8 - begun.len());
                begun.extend_from_slice(&bytes[..count]);
                if let Ok(length) = <[u8; 8]>::try_from(begun.as_slice()) {
                    *self = header_of(u64::from_le_bytes(length));
                }
                count
            }
            Self::Header { length, begun } => {
                let count = bytes.len().min(*length - begun.len());
                begun.extend_from_slice(&bytes[..count]);
                if begun.len() == *length {
                    *self = tensors(begun).map_or_else(Self::Bad, values_of);
                }
                count
            }
            Self::Values { hasher, tensors, left } => {
                if *left == 0 {
                    *self = Self::Bad("there are bytes behind its last tensor".into());
                    return bytes.len();
                }
                let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                hasher.values(&bytes[..count]);
                *left -= count as u64;
                *left = next(hasher, tensors, *left);
                count
            }
        }
    }
}

fn header_of(length: u64) -> State {
    match usize::try_from(length) {
        Ok(length) if length as u64 <= LONGEST && length > 0 => State::Header { length, begun: Vec::new() },
        _ => State::Bad(format!("its header has {length} bytes, expected 1 to {LONGEST}")),
    }
}

fn values_of(mut tensors: Vec<Tensor>) -> State {
    let mut hasher = Box::new(TensorsHasher::new());
    tensors.reverse();
    let left = next(&mut hasher, &mut tensors, 0);
    State::Values { hasher, tensors, left }
}

/// Begins the next tensor when none is `left`; tensors without values are passed on the way.
fn next(hasher: &mut TensorsHasher, tensors: &mut Vec<Tensor>, mut left: u64) -> u64 {
    while left == 0 {
        let Some(tensor) = tensors.pop() else { return 0 };
        hasher.begin(["", &tensor.name], tensor.shape.iter().copied());
        left = tensor.bytes;
    }
    left
}

/// The tensors of a header, sorted by name, which is also their order in the file.
fn tensors(header: &[u8]) -> Result<Vec<Tensor>, String> {
    let value = parse(header).map_err(|error| format!("its header: {error}"))?;
    let Value::Object(members) = value else { return Err("its header is no object".into()) };
    let (mut all, mut at) = (Vec::new(), 0);
    for (name, value) in members.into_iter().filter(|(name, _)| name != "__metadata__") {
        let tensor = tensor(name, &value, at)?;
        at += tensor.bytes;
        all.push(tensor);
    }
    Ok(all)
}

fn tensor(name: String, value: &Value, at: u64) -> Result<Tensor, String> {
    let wrong = |what: &str| Err(format!("its tensor {name}: {what}"));
    let Value::Object(members) = value else { return wrong("expected an object") };
    if members.keys().map(String::as_str).ne(["data_offsets", "dtype", "shape"]) {
        return wrong("expected the fields data_offsets, dtype and shape");
    }
    if members["dtype"].as_str() != Some("F32") {
        return wrong("expected the type F32");
    }
    let (Some(shape), Some(place)) = (numbers(&members["shape"]), numbers(&members["data_offsets"])) else {
        return wrong("expected lists of whole numbers");
    };
    let bytes = shape.iter().try_fold(4u64, |all, size| all.checked_mul(*size));
    let end = bytes.and_then(|bytes| at.checked_add(bytes));
    match (bytes, end) {
        (Some(bytes), Some(end)) if place == [at, end] => Ok(Tensor { name, shape, bytes }),
        _ => wrong(&format!("expected it to lie from byte {at} on, by its shape and behind the one before")),
    }
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    let Value::List(items) = value else { return None };
    items.iter().map(|item| if let Value::Integer(number) = item { number.to_u64() } else { None }).collect()
}

/// A tensor where it lies in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its values, 4 little-endian bytes each.
    pub values: &'a [u8],
}

/// The tensors of a whole file, sorted by name; or why it is in another form.
pub fn views(file: &[u8]) -> Result<Vec<View<'_>>, String> {
    // Reads it once in the one way there is, so that nothing below can be out of place.
    Weights::of(file)?;
    let (length, rest) = file.split_first_chunk::<8>().ok_or("it ends inside its header")?;
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    let (header, mut rest) = rest.split_at_checked(length).ok_or("it ends inside its header")?;
    let mut views = Vec::new();
    for Tensor { name, shape, bytes } in tensors(header)? {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (values, behind) = rest.split_at_checked(bytes).ok_or("it ends before its last tensor does")?;
        views.push(View { name, shape, values });
        rest = behind;
    }
    Ok(views)
}

/// The bytes of a file that holds these tensors, for whoever has no library for it. Values that a shape does not cover
/// are left out.
pub fn file(tensors: &BTreeMap<String, (Vec<u64>, Vec<f32>)>) -> Vec<u8> {
    let (mut parts, mut at) = (Vec::new(), 0);
    for (name, (shape, values)) in tensors {
        let end = at + 4 * values.len();
        let name = Value::String(name.clone()).canonical();
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        parts.push(format!(
            "{name}:{{\"data_offsets\":[{at},{end}],\"dtype\":\"F32\",\"shape\":[{}]}}",
            shape.join(",")
        ));
        at = end;
    }
    let header = format!("{{{}}}", parts.join(","));
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend(tensors.values().flat_map(|(_, values)| values).flat_map(|value| value.to_le_bytes()));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn sample() -> Vec<u8> {
        let tensors = [
            ("b.weight", vec![2, 2], vec![1.0f32, 2.0, 3.0, 4.0]),
            ("a", vec![3], vec![0.5, -0.0, 7.0]),
            ("none", vec![0, 4], vec![]),
        ];
        file(&tensors.into_iter().map(|(name, shape, values)| (name.to_string(), (shape, values))).collect())
    }

    #[test]
    fn the_digest_is_that_of_the_tensors_by_name() {
        let mut hasher = TensorsHasher::new();
        let tensors: [(&str, &[u64], &[f32]); 3] =
            [("a", &[3], &[0.5, -0.0, 7.0]), ("b.weight", &[2, 2], &[1.0, 2.0, 3.0, 4.0]), ("none", &[0, 4], &[])];
        for (name, shape, values) in tensors {
            hasher.begin(["", name], shape.iter().copied());
            for value in values {
                hasher.values(&value.to_le_bytes());
            }
        }
        assert_eq!(Weights::of(&sample()), Ok(hasher.finish()));
    }

    #[test]
    fn pieces_of_any_size_give_the_same() {
        let bytes = sample();
        for size in [1, 3, 7, 8, 9, 100] {
            let mut weights = Weights::new();
            bytes.chunks(size).for_each(|piece| weights.push(piece));
            assert_eq!(weights.finish(), Weights::of(&bytes), "{size}");
        }
    }

    #[test]
    fn every_bit_counts_or_makes_it_another_form() {
        let (bytes, right) = (sample(), Weights::of(&sample()));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert_ne!(Weights::of(&changed), right, "byte {at}, bit {bit}");
            }
        }
        for length in 0..bytes.len() {
            assert!(Weights::of(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Weights::of(&[bytes.as_slice(), b"x"].concat()).is_err());
    }

    #[test]
    fn other_forms_are_refused_with_a_reason() {
        let with = |header: &str, values: usize| {
            let mut file = (header.len() as u64).to_le_bytes().to_vec();
            file.extend(header.as_bytes());
            file.resize(file.len() + values, 0);
            Weights::of(&file)
        };
        let good = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   "#;
        assert!(with(good, 4).is_ok());
        for (from, to) in [
            ("F32", "F16"),
            ("[1]", "[2]"),
            ("[1]", "[18446744073709551615]"),
            ("[0,4]", "[4,8]"),
            ("[0,4]", "[0]"),
            ("[0,4]", "[0,4.0]"),
            ("\"a\"", "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"a\""),
            ("\"shape\"", "\"more\":1,\"shape\""),
        ] {
            assert!(good.contains(from));
            assert!(with(&good.replace(from, to), 4).is_err(), "{to}");
        }
        assert!(Weights::of(&[0xff; 16]).unwrap_err().contains("header has 18446744073709551615 bytes"));
    }
}
