//! The event file of TensorBoard: records of a length, its check sum, a protocol buffer and its check sum
//! (`tensorflow/core/lib/io/record_writer.h`, `tensorflow/core/util/event.proto`).

use alloc::vec::Vec;

use crc::{CRC_32_ISCSI, Crc};

use super::Curves;

const CASTAGNOLI: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
/// What is added to a rotated check sum, so that one of bytes that hold check sums is no trivial number.
const MASK: u32 = 0xa282_ead8;

/// An event file: the version, and one event a step with its values as scalars, which TensorBoard keeps as binary32.
pub fn tensorboard(curves: &Curves) -> Vec<u8> {
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
    let started = curves.started.unix() as f64;
    let mut file = Vec::new();
    record(&mut file, &event(started, None, &[field(3, b"brain.Event:2")]));
    for point in curves.points.iter().filter(|point| !point.values.is_empty()) {
        #[expect(clippy::cast_precision_loss, reason = "a time for people")]
        let at = started + point.elapsed as f64 / 1e9;
        let summary: Vec<u8> = point.values.iter().flat_map(|(name, value)| scalar(name, *value)).collect();
        record(&mut file, &event(at, Some(point.step), &[field(5, &summary)]));
    }
    file
}

fn record(file: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    for part in [&length, data] {
        file.extend(part);
        let sum = CASTAGNOLI.checksum(part);
        file.extend(sum.rotate_right(15).wrapping_add(MASK).to_le_bytes());
    }
}

/// An `Event`: wall time in seconds is field 1, step field 2.
fn event(at: f64, step: Option<u64>, rest: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::from([1 << 3 | 1]);
    bytes.extend(at.to_le_bytes());
    if let Some(step) = step {
        bytes.push(2 << 3);
        bytes.extend(varint(step));
    }
    bytes.extend(rest.iter().flatten());
    bytes
}

/// A `Summary.Value` as field 1 of a `Summary`: tag is field 1, simple value field 2.
fn scalar(name: &str, value: f64) -> Vec<u8> {
    let mut bytes = field(1, name.as_bytes());
    bytes.push(2 << 3 | 5);
    #[expect(clippy::cast_possible_truncation, reason = "the form has binary32")]
    bytes.extend((value as f32).to_le_bytes());
    field(1, &bytes)
}

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::from([number << 3 | 2]);
    all.extend(varint(bytes.len() as u64));
    all.extend(bytes);
    all
}

/// Seven bits a byte, the lowest first.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Point, example};
    use super::*;

    /// The bytes that the package tensorboard 2.21 wrote for this event.
    #[test]
    fn an_event_has_the_bytes_that_tensorboard_writes() {
        let mut file = Vec::new();
        record(&mut file, &event(12.5, Some(3), &[field(5, &scalar("loss", 0.5))]));
        let expected = "1a00000000000000129bd82d09000000000000294010032a0d0a0b0a046c6f7373150000003fa4c8f53c";
        assert_eq!(crate::digest::hex(&file), expected);
    }

    #[test]
    fn a_file_begins_with_its_version_and_has_a_record_a_step_that_measured_something() {
        let mut curves = example();
        let two = tensorboard(&curves);
        assert!(two[..60].windows(13).any(|bytes| bytes == b"brain.Event:2"));
        curves.points.push(Point { step: 4, elapsed: 0, values: Vec::new() });
        assert_eq!(tensorboard(&curves), two);
        assert_eq!((varint(300), varint(0)), (Vec::from([0xac, 2]), Vec::from([0])));
    }
}
