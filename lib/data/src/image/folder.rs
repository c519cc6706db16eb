//! Images in folders: one PNG file each, whose label is the folder that holds it. Pixels are taken as they are stored: no
//! gamma, no profile.

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, Limits};

/// What every file begins with (ISO/IEC 15948, section 5.2).
pub(super) const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// The most bytes of one image, so that no small file fills the memory.
const MOST: usize = 64 << 20;

/// An image, channel by channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// Channels, height and width.
    pub(super) shape: [u64; 3],
    /// Its values: all of the first channel, then all of the next one.
    pub(super) values: Vec<u8>,
}

/// The folder that holds the file; `None` when none does.
pub(super) fn label(path: &str) -> Option<&str> {
    let (folder, _) = path.rsplit_once('/')?;
    folder.rsplit('/').next()
}

/// Takes a file apart, or says what is wrong with it.
pub(super) fn parse(bytes: &[u8]) -> Result<Picture, String> {
    check_chunks(bytes)?;
    let unreadable = |error: png::DecodingError| format!("it cannot be read: {error}");
    let mut reader =
        Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MOST }).read_info().map_err(unreadable)?;
    let info = reader.info();
    let channels = match (info.color_type, info.bit_depth) {
        (ColorType::Grayscale, BitDepth::Eight) => 1,
        (ColorType::Rgb, BitDepth::Eight) => 3,
        (color, depth) => {
            let bits = depth as u8;
            return Err(format!("it is {color:?} of {bits} bits, expected grey or RGB of 8, without transparency"));
        }
    };
    if info.trns.is_some() || info.animation_control().is_some() {
        return Err("it is transparent or moves, expected one image of grey or RGB".into());
    }
    let [height, width] = [info.height, info.width].map(u64::from);
    let size = reader.output_buffer_size().filter(|size| *size <= MOST);
    let size = size.ok_or_else(|| format!("{height} x {width} pixels are more than {} MiB", MOST >> 20))?;
    let mut pixels = vec![0; size];
    reader.next_frame(&mut pixels).map_err(unreadable)?;
    reader.finish().map_err(unreadable)?;
    let values = (0..channels).flat_map(|channel| pixels.iter().skip(channel).step_by(channels).copied()).collect();
    Ok(Picture { shape: [channels as u64, height, width], values })
}

/// The file is the signature and whole chunks, the last of which is `IEND`, and nothing behind it.
fn check_chunks(bytes: &[u8]) -> Result<(), String> {
    let mut rest = bytes.strip_prefix(SIGNATURE).ok_or("it does not begin as a PNG file does")?;
    loop {
        let cut = || "it ends before its last chunk does".to_string();
        let (length, behind) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let (kind, behind) = behind.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        // Four bytes of a checksum stand behind the data.
        rest = length.checked_add(4).and_then(|length| behind.get(length..)).ok_or_else(cut)?;
        if kind == b"IEND" {
            break;
        }
    }
    if rest.is_empty() { Ok(()) } else { Err(format!("{} bytes stand behind its end", rest.len())) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file of these pixels.
    pub fn file(color: ColorType, depth: BitDepth, [width, height]: [u32; 2], pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(color);
        encoder.set_depth(depth);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(pixels).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn grey_and_rgb_are_read_channel_by_channel() {
        let grey = file(ColorType::Grayscale, BitDepth::Eight, [3, 2], &[0, 1, 2, 3, 4, 255]);
        assert_eq!(parse(&grey).unwrap(), Picture { shape: [1, 2, 3], values: vec![0, 1, 2, 3, 4, 255] });
        let colours = file(ColorType::Rgb, BitDepth::Eight, [2, 1], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(parse(&colours).unwrap(), Picture { shape: [3, 1, 2], values: vec![1, 4, 2, 5, 3, 6] });
        assert_eq!((label("a/cat/1.png"), label("cat/1.png"), label("1.png")), (Some("cat"), Some("cat"), None));
    }

    #[test]
    fn each_fault_of_a_file_is_refused_with_its_reason() {
        let good = file(ColorType::Grayscale, BitDepth::Eight, [3, 2], &[0, 1, 2, 3, 4, 255]);
        let mut torn = good.clone();
        let middle = torn.len() - 20;
        torn[middle] ^= 0x55;
        let cases = [
            (good[..5].to_vec(), "does not begin"),
            (good[..good.len() - 1].to_vec(), "ends before its last chunk"),
            (good[..good.len() - 12].to_vec(), "ends before its last chunk"),
            ([good.as_slice(), b"xy"].concat(), "2 bytes stand behind"),
            (torn, "cannot be read"),
            (file(ColorType::Rgba, BitDepth::Eight, [1, 1], &[1, 2, 3, 4]), "Rgba of 8 bits"),
            (file(ColorType::Grayscale, BitDepth::Sixteen, [1, 1], &[1, 2]), "Grayscale of 16 bits"),
        ];
        for (bytes, due) in cases {
            let found = parse(&bytes).unwrap_err();
            assert!(found.contains(due), "{found} does not say {due}");
        }
    }
}
