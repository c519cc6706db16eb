//! Snapshots: put together from what a worker wrote, held against plan and trace, compared.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::digest::{Digest, Hasher};
use crate::fault::Faults;
use crate::field::{Field, Manifest};
use crate::manifest::plan::Plan;
use crate::manifest::run::Stack;
use crate::manifest::snapshot::{FieldDifference, Part, Snapshot, SnapshotDiff, TensorDifference, TensorState};
use crate::manifest::trace::{Cursor, Generator, Step};
use crate::number::Finite;
use crate::order::Walk;
use crate::random::GENERATOR;
use crate::verb::chain::shape;
use crate::verb::compare;
use crate::verb::weights::{self, View, Weights};

/// The folder of all snapshots, relative to the output folder.
pub const FOLDER: &str = "snapshots";
/// The parameters, in the folder of a snapshot.
pub const PARAMETERS: &str = "model.safetensors";
/// The optimiser's rows of state, in the folder of a snapshot.
pub const OPTIMIZER: &str = "optimizer.safetensors";

/// The folder of the snapshot after `step`, relative to the output folder: names sort as steps do.
pub fn folder(step: u64) -> String {
    format!("{FOLDER}/{step:012}")
}

/// What a worker says about the state it wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Steps taken.
    pub step: u64,
    /// Updates made.
    pub updates: u64,
    /// The random generator.
    pub generator: Generator,
    /// The data cursor.
    pub cursor: Cursor,
}

/// Describes the bytes of a file of tensors.
pub fn part(file: &[u8]) -> Result<Part, String> {
    let state =
        |tensor: View<'_>| TensorState { name: tensor.name, shape: tensor.shape, digest: Digest::of(tensor.values) };
    let tensors = weights::views(file)?.into_iter().map(state).collect();
    Ok(Part { file: Digest::of(file), bytes: file.len() as u64, digest: Weights::of(file)?, tensors })
}

/// The snapshot of the state after `line`.
pub fn snapshot(
    position: Position,
    parameters: Part,
    optimizer: Part,
    line: &Step,
    plan: Digest,
    stack: Stack,
) -> Snapshot {
    let Position { step, updates, generator, cursor } = position;
    Snapshot { plan, step, updates, generator, cursor, chain: line.chain, parameters, optimizer, stack }
}

/// Digest of an optimiser's state, as lines of a trace state it: SHA-256 of the digest of its rows and of the number of
/// updates, 8 little-endian bytes.
pub fn optimizer_digest(rows: Digest, updates: u64) -> Digest {
    let mut hasher = Hasher::new();
    hasher.update(rows.bytes());
    hasher.update(&updates.to_le_bytes());
    hasher.finish()
}

/// Notes where a snapshot says something else than the line of the trace for its step.
pub fn check_line(snapshot: &Snapshot, line: &Step, faults: &mut Faults) {
    let mut same = |field: &str, found: &dyn ToString, recorded: &dyn ToString| {
        let (found, recorded) = (found.to_string(), recorded.to_string());
        if found != recorded {
            let message = format!("step {}: the snapshot gives {found}, the trace says {recorded}", line.step);
            faults.add(format!("snapshot#/{field}"), "snapshot.trace", message);
        }
    };
    same("step", &snapshot.step, &line.step);
    same("chain", &snapshot.chain, &line.chain);
    same("generator", &snapshot.generator.digest(), &line.generator);
    same("cursor", &snapshot.cursor.digest(), &line.cursor);
    same("parameters", &snapshot.parameters.digest, &line.parameters);
    same("optimizer", &optimizer_digest(snapshot.optimizer.digest, snapshot.updates), &line.optimizer);
}

/// Notes where a snapshot says something else than its plan makes a state say. Generator and cursor follow from the
/// plan and the step, so each state has one spelling (row R-13).
pub fn check_plan(snapshot: &Snapshot, plan: &Plan, faults: &mut Faults) {
    let id = plan.id();
    let left_from = plan.departure.as_ref().is_some_and(|departure| departure.snapshot == snapshot.id());
    if snapshot.plan != id && !left_from {
        let message = format!("it belongs to the plan {}, not to {id}", snapshot.plan);
        return faults.add("snapshot#/plan", "snapshot.plan", message);
    }
    let Some(shape) = shape(plan).filter(|shape| snapshot.step <= shape.steps) else {
        let message = format!("the run has steps 1 to {}, found {}", plan.work.steps, snapshot.step);
        return faults.add("snapshot#/step", "snapshot.plan", message);
    };
    if snapshot.updates > snapshot.step {
        let message = format!("{} steps cannot make {} updates", snapshot.step, snapshot.updates);
        faults.add("snapshot#/updates", "snapshot.plan", message);
    }
    let mut walk = Walk::new(shape, plan.seed);
    let micro_batch = walk.next_micro_batch(snapshot.step);
    let generator = Generator { algorithm: GENERATOR.into(), seed: plan.seed, micro_batch };
    let pairs = [
        ("generator", snapshot.generator.write(), generator.write()),
        ("cursor", snapshot.cursor.write(), walk.cursor(snapshot.step).write()),
    ];
    for (field, found, planned) in pairs {
        for difference in compare::documents(&found, &planned) {
            let message = format!(
                "after step {} the plan makes it {}, found {}",
                snapshot.step, difference.second, difference.first
            );
            faults.add(format!("snapshot#/{field}{}", difference.pointer), "snapshot.plan", message);
        }
    }
}

/// Notes where the bytes of a file are not those of `part`.
pub fn check_part(name: &str, declared: &Part, file: &[u8], faults: &mut Faults) {
    match part(file) {
        Ok(found) => {
            for difference in compare::documents(&declared.write(), &found.write()) {
                let message = format!("declared {}, the file gives {}", difference.first, difference.second);
                faults.add(format!("snapshot#/{name}{}", difference.pointer), "snapshot.file", message);
            }
        }
        Err(why) => faults.add(format!("snapshot#/{name}"), "snapshot.file", format!("the file cannot be read: {why}")),
    }
}

/// The files of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// `model.safetensors`.
    pub parameters: &'a [u8],
    /// `optimizer.safetensors`.
    pub optimizer: &'a [u8],
}

/// Compares two snapshots, tensor by tensor.
pub fn diff(first: (&Snapshot, Files<'_>), second: (&Snapshot, Files<'_>)) -> Result<SnapshotDiff, String> {
    let mut tensors = parts("optimizer", first.1.optimizer, second.1.optimizer)?;
    tensors.extend(parts("parameters", first.1.parameters, second.1.parameters)?);
    let fields: Vec<FieldDifference> = compare::documents(&scalars(first.0), &scalars(second.0))
        .into_iter()
        .map(|found| FieldDifference { field: found.pointer, first: found.first, second: found.second })
        .collect();
    let equal = fields.is_empty() && tensors.iter().all(|tensor| tensor.equal);
    Ok(SnapshotDiff { first: first.0.id(), second: second.0.id(), equal, fields, tensors })
}

/// A snapshot without its tensors and without what it was computed on.
fn scalars(snapshot: &Snapshot) -> crate::canonical::Value {
    let mut value = snapshot.write();
    if let crate::canonical::Value::Object(members) = &mut value {
        members.retain(|key, _| !["parameters", "optimizer", "stack", "schema"].contains(&key.as_str()));
    }
    value
}

fn parts(part: &str, first: &[u8], second: &[u8]) -> Result<Vec<TensorDifference>, String> {
    let by_name = |file| -> Result<BTreeMap<String, View<'_>>, String> {
        Ok(weights::views(file)?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect())
    };
    let (first, second) = (by_name(first)?, by_name(second)?);
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    let compared = |name: &String| compare_tensors(part, name, first.get(name), second.get(name));
    Ok(names.into_iter().map(compared).collect())
}

fn compare_tensors(part: &str, name: &str, first: Option<&View<'_>>, second: Option<&View<'_>>) -> TensorDifference {
    let mut found = TensorDifference {
        part: part.into(),
        name: name.into(),
        equal: false,
        elements: 0,
        differing: 0,
        first_at: None,
        not_finite: 0,
        largest_difference: None,
        largest_ulp: None,
        problem: String::new(),
    };
    match (first, second) {
        (Some(first), Some(second)) if first.shape == second.shape => {
            compare_values(first.values, second.values, &mut found);
            found.equal = found.differing == 0;
        }
        (Some(first), Some(second)) => {
            found.problem = format!("the first has shape {:?}, the second {:?}", first.shape, second.shape);
        }
        (None, _) => found.problem = "the first has no such tensor".into(),
        (_, None) => found.problem = "the second has no such tensor".into(),
    }
    found
}

fn compare_values(first: &[u8], second: &[u8], found: &mut TensorDifference) {
    let (first, second) = (first.as_chunks::<4>().0, second.as_chunks::<4>().0);
    found.elements = first.len() as u64;
    let (mut largest, mut ulp) = (None, None);
    for (at, (a, b)) in (0..).zip(first.iter().zip(second)) {
        if a == b {
            continue;
        }
        found.differing += 1;
        found.first_at.get_or_insert(at);
        let (a, b) = (f32::from_le_bytes(*a), f32::from_le_bytes(*b));
        if a.is_finite() && b.is_finite() {
            largest = Some(f64::max(largest.unwrap_or(0.0), (f64::from(a) - f64::from(b)).abs()));
            ulp = ulp.max(Some(distance(a, b)));
        } else {
            found.not_finite += 1;
        }
    }
    found.largest_difference = largest.and_then(Finite::new);
    found.largest_ulp = ulp;
}

/// Distance of two finite binary32 numbers in units in the last place.
fn distance(first: f32, second: f32) -> u64 {
    // Bits of negative numbers count downwards from zero, so that neighbours differ by one on the whole line.
    let place = |value: f32| {
        let magnitude = i64::from(value.to_bits() & 0x7fff_ffff);
        if value.is_sign_negative() { -magnitude } else { magnitude }
    };
    place(first).abs_diff(place(second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    type Tensors = BTreeMap<String, (Vec<u64>, Vec<f32>)>;

    fn file(tensors: &[(&str, &[f32])]) -> Vec<u8> {
        let all: Tensors = tensors
            .iter()
            .map(|(name, values)| ((*name).to_string(), (vec![values.len() as u64], values.to_vec())))
            .collect();
        weights::file(&all)
    }

    #[test]
    fn distances_count_the_numbers_between_on_the_whole_line() {
        let next = |value: f32| f32::from_bits(value.to_bits() + 1);
        assert_eq!(distance(1.0, next(1.0)), 1);
        assert_eq!(distance(0.0, -0.0), 0);
        assert_eq!(distance(f32::from_bits(1), -f32::from_bits(1)), 2);
        assert_eq!(distance(2.0, 1.0), 1 << 23);
        assert_eq!(distance(f32::MAX, f32::MIN), 2 * u64::from(f32::MAX.to_bits()));
    }

    #[test]
    fn each_tensor_is_compared_bit_by_bit() {
        let (a, b) = (1.0f32, f32::from_bits(1.0f32.to_bits() + 3));
        let first = file(&[("x", &[a, a, 0.0, f32::NAN]), ("y", &[2.0]), ("z", &[1.0, 2.0])]);
        let second = file(&[("w", &[0.0]), ("x", &[a, b, -0.0, 1.0]), ("y", &[2.0]), ("z", &[1.0])]);
        let found = parts("parameters", &first, &second).unwrap();
        let names: Vec<(&str, bool, u64)> = found.iter().map(|t| (t.name.as_str(), t.equal, t.differing)).collect();
        assert_eq!(names, [("w", false, 0), ("x", false, 3), ("y", true, 0), ("z", false, 0)]);
        let x = &found[1];
        assert_eq!((x.elements, x.first_at, x.not_finite, x.largest_ulp), (4, Some(1), 1, Some(3)));
        assert!((x.largest_difference.unwrap().get() - 3.0 * f64::from(f32::EPSILON)).abs() < 1e-12);
        assert_eq!(found[0].problem, "the first has no such tensor");
        assert_eq!(found[3].problem, "the first has shape [2], the second [1]");
    }

    #[test]
    fn a_part_is_described_by_its_bytes_and_every_bit_of_them_counts() {
        let bytes = file(&[("a", &[0.5, -0.0]), ("b", &[7.0])]);
        let declared = part(&bytes).unwrap();
        let mut faults = Faults::new();
        check_part("parameters", &declared, &bytes, &mut faults);
        assert!(faults.is_empty());
        let mut other = bytes;
        let last = other.len() - 1;
        other[last] ^= 1;
        check_part("parameters", &declared, &other, &mut faults);
        let pointers: Vec<&str> = faults.0.iter().map(|fault| fault.pointer.as_str()).collect();
        let expected =
            ["snapshot#/parameters/digest", "snapshot#/parameters/file", "snapshot#/parameters/tensors/1/digest"];
        assert_eq!(pointers, expected);
        assert_eq!(part(&file(&[])).unwrap().tensors, []);
    }
}
