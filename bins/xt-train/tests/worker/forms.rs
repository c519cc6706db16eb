//! The same images from files of every form give the same training; and images that are changed at random when they are
//! trained on: repeatable, restored exactly, and as they are when they are measured.

use xt_core::digest::Digest;
use xt_core::fault::Faults;
use xt_core::field::Manifest;
use xt_core::manifest::candidate::Candidate;
use xt_core::manifest::dataset::Format;
use xt_core::manifest::encoding::Scaling;
use xt_core::manifest::intent::Intent;
use xt_core::manifest::plan::Plan;
use xt_core::manifest::trace::Step;
use xt_core::random::Stream;
use xt_core::verb::compile::{self, Tokens, compile_fitted};

use crate::desk::Desk;
use crate::matrix::{Case, Checked, check};
use crate::table::{admitted, images_of};

/// Images, of 6 rows and 5 columns: 11 for each of three classes, in this order.
const COUNT: u64 = 33;
const SIZE: u64 = 30;

/// Files with their paths.
type Files = Vec<(String, Vec<u8>)>;

fn pixels() -> Vec<u8> {
    let draw = Stream::new(5, "images", 0);
    (0..COUNT * SIZE).map(|at| u8::try_from(draw.word(at) % 256).unwrap()).collect()
}

fn label(image: u64) -> u8 {
    u8::try_from(image / 11).unwrap()
}

fn in_idx(pixels: &[u8]) -> Files {
    let size = u32::try_from(COUNT).unwrap().to_be_bytes();
    let images = [&[0, 0, 8, 3][..], &size, &6u32.to_be_bytes(), &5u32.to_be_bytes(), pixels].concat();
    let labels: Vec<u8> = (0..COUNT).map(label).collect();
    let labels = [&[0, 0, 8, 1][..], &size, &labels].concat();
    vec![("x-images-idx3".into(), images), ("x-labels-idx1".into(), labels)]
}

fn in_npy(pixels: &[u8], floats: bool) -> Files {
    let save = |descr: &str, shape: &str, values: &[u8]| {
        let header =
            format!("{:<117}\n", format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"));
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), values].concat()
    };
    let labels: Vec<u8> = (0..COUNT).flat_map(|image| i64::from(label(image)).to_le_bytes()).collect();
    let labels = save("<i8", "(33,)", &labels);
    let images = if floats {
        let values: Vec<u8> = pixels.iter().flat_map(|pixel| f32::from(*pixel).to_le_bytes()).collect();
        save("<f4", "(33, 1, 6, 5)", &values)
    } else {
        save("|u1", "(33, 6, 5)", pixels)
    };
    vec![("x-images.npy".into(), images), ("x-labels.npy".into(), labels)]
}

fn in_png(pixels: &[u8]) -> Files {
    let size = usize::try_from(SIZE).unwrap();
    let save = |pixels: &[u8]| {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 5, 6);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.write_header().unwrap().write_image_data(pixels).unwrap();
        bytes
    };
    let path = |image| format!("{}/{image:02}.png", ["ape", "bee", "cow"][usize::from(label(image))]);
    (0..).zip(pixels.chunks(size)).map(|(image, pixels)| (path(image), save(pixels))).collect()
}

fn in_tensors(pixels: &[u8]) -> Files {
    use safetensors::tensor::{Dtype, TensorView};
    let inputs: Vec<u8> = pixels.iter().flat_map(|pixel| f32::from(*pixel).to_le_bytes()).collect();
    let targets: Vec<u8> = (0..COUNT).flat_map(|image| i64::from(label(image)).to_le_bytes()).collect();
    let views = [
        ("seen", TensorView::new(Dtype::F32, vec![33, 1, 6, 5], &inputs).unwrap()),
        ("due", TensorView::new(Dtype::I64, vec![33], &targets).unwrap()),
    ];
    vec![("x.safetensors".into(), safetensors::serialize(views, None).unwrap())]
}

fn tokenizer(levels: &str, augmentation: &str) -> String {
    format!(
        r#"{{"kind":"image","channels":1,"height":6,"width":5,"classes":3,"levels":{levels},"scaling":"inputs",
            "augmentation":{augmentation}}}"#
    )
}

const NONE: &str = r#"{"shift":0,"mirror":false,"cut_out":0}"#;
const ALL: &str = r#"{"shift":2,"mirror":true,"cut_out":3}"#;
const LEVELS: &str = r#"["ape","bee","cow"]"#;
const TENSORS: &str =
    r#"{"kind":"tensors","inputs":"seen","shape":[1,6,5],"targets":"due","classes":3,"scaling":"inputs"}"#;

fn plan(format: Format, files: &Files, tokenizer: &str, seed: u64) -> Plan {
    let dataset = admitted(format, files);
    let candidate: Candidate = images_of(tokenizer, dataset.id());
    let (mut faults, intent) = (Faults::new(), Intent::default_for(1));
    compile::check(&candidate, &dataset, &intent, &mut faults);
    assert_eq!(faults, Faults::new());
    let borrowed: Vec<(&str, Vec<u8>)> = files.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())).collect();
    let fitted = xt_data::rows::read(&candidate.tokenizer, &borrowed).unwrap().fit(Scaling::Inputs).unwrap();
    let tokens = Tokens { vocabulary: 0, count: COUNT, tokenizer_bytes: 0 };
    compile_fitted(candidate, dataset, intent, seed, (tokens, fitted)).unwrap()
}

fn desk(plan: &Plan, files: &Files) -> Desk {
    let desk = Desk::new(plan);
    for (_, bytes) in files {
        desk.give(bytes);
    }
    desk
}

fn trained(plan: &Plan, files: &Files) -> Vec<Step> {
    let left = desk(plan, files).train(plan, None);
    assert_eq!(left.code, Some(0), "{}", left.stderr);
    left.steps(plan)
}

/// A step without its chain, which begins with the plan and so with the digests of the files.
fn unchained(steps: &[Step]) -> Vec<Step> {
    steps.iter().map(|step| Step { chain: Digest::of(b""), ..step.clone() }).collect()
}

#[test]
fn the_same_images_give_the_same_steps_from_files_of_every_form() {
    let pixels = pixels();
    let image = tokenizer("null", NONE);
    let of = |format, files: &Files, tokenizer: &str| unchained(&trained(&plan(format, files, tokenizer, 1), files));
    let due = of(Format::Idx, &in_idx(&pixels), &image);
    assert_eq!(of(Format::Npy, &in_npy(&pixels, false), &image), due);
    assert_eq!(of(Format::Npy, &in_npy(&pixels, true), &image), due);
    assert_eq!(of(Format::Png, &in_png(&pixels), &tokenizer(LEVELS, NONE)), due);
    assert_eq!(of(Format::Safetensors, &in_tensors(&pixels), TENSORS), due);
    // The control: one pixel of one image.
    let mut other = pixels;
    other[100] ^= 1;
    let found = of(Format::Png, &in_png(&other), &tokenizer(LEVELS, NONE));
    assert_ne!(found[2].parameters, due[2].parameters);
}

#[test]
fn images_that_are_changed_at_random_go_on_bit_for_bit_and_are_others_than_those_that_are_not() {
    let files = in_idx(&pixels());
    let mut checked = Checked::default();
    let each = [ALL, r#"{"shift":1,"mirror":false,"cut_out":0}"#, r#"{"shift":0,"mirror":true,"cut_out":0}"#];
    for (number, augmentation) in (0..).zip(each) {
        let plan = plan(Format::Idx, &files, &tokenizer("null", augmentation), number);
        let own = files.clone();
        let case = Case { plan, desk: Box::new(move |plan| desk(plan, &own)), what: augmentation.into() };
        let one = check(number, &case);
        checked = [checked, one].into_iter().sum();
    }
    assert!(checked.steps >= 3 && checked.controls > 0);
    let gradients = |augmentation, seed| {
        let plan = plan(Format::Idx, &files, &tokenizer("null", augmentation), seed);
        trained(&plan, &files)[0].gradients
    };
    assert_eq!(gradients(ALL, 1), gradients(ALL, 1));
    assert_ne!(gradients(ALL, 1), gradients(NONE, 1), "a control without changes");
    assert_ne!(gradients(ALL, 1), gradients(ALL, 2), "a control with another seed");
}
