//! What training begins from: do the files of a base fit the model of a candidate?
//!
//! A base is named by digests, so what is looked at here is what the run will read. Names and shapes come from the header of
//! the file, which says where each tensor lies; the values are not needed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::{Value, parse};
use crate::digest::Digest;
use crate::fault::Faults;
use crate::field::Manifest;
use crate::manifest::bundle::Bundle;
use crate::manifest::candidate::{Base, Model};
use crate::verb::bind::{AVERAGED, WEIGHTS, form};
use crate::verb::compare;
use crate::verb::configuration::{self, configuration};
use crate::verb::groups::fits;
use crate::verb::parameters::{Parameter, parameters};

/// A header may be this long: room for some hundred thousand tensors.
const LONGEST: u64 = 16 << 20;

/// Bytes that tell what a file is.
pub const START: usize = 8;

/// A tensor as the header of a file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Its name in the file.
    pub name: String,
    /// Its type, such as `F32`.
    pub kind: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
}

/// The length of the header of a safetensors file that begins with these bytes; or why it is no such file.
pub fn header_length(start: &[u8; START]) -> Result<usize, String> {
    if pickled(*start) {
        return Err(PICKLE.into());
    }
    let length = u64::from_le_bytes(*start);
    match usize::try_from(length) {
        Ok(length) if length as u64 <= LONGEST && length > 1 => Ok(length),
        _ => Err(format!("this is no safetensors file: its header would have {length} bytes, expected 2 to {LONGEST}")),
    }
}

/// Why a pickle is refused, and what to do.
pub const PICKLE: &str = "this is a pickle, as torch.save writes .pt, .pth and .bin files: whoever reads one runs the program in \
                      it, so none is read here; where you trust it, convert it: python3 -c 'import torch; from \
                      safetensors.torch import save_file; save_file({k: v.clone() for k, v in torch.load(\"FILE\", \
                      weights_only=True).items()}, \"model.safetensors\")'";

/// A zip archive, as `torch.save` makes since version 1.6, or the opcode PROTO of pickle with a protocol from 2 on. A header
/// of 640 bytes begins with the same two bytes: what could be the length of a header is one, unless the opcode FRAME, with
/// which protocols from 4 on go on, comes third.
fn pickled(start: [u8; START]) -> bool {
    let protocol = start[0] == 0x80 && (2..=5).contains(&start[1]);
    start.starts_with(b"PK\x03\x04") || (protocol && (start[2] == 0x95 || u64::from_le_bytes(start) > LONGEST))
}

/// Types of values that safetensors files hold, and the bits of one (safetensors 0.8, `Dtype`).
const KINDS: [(&str, u64); 22] = [
    ("BF16", 16),
    ("BOOL", 8),
    ("C64", 64),
    ("F16", 16),
    ("F32", 32),
    ("F4", 4),
    ("F64", 64),
    ("F6_E2M3", 6),
    ("F6_E3M2", 6),
    ("F8_E4M3", 8),
    ("F8_E4M3FNUZ", 8),
    ("F8_E5M2", 8),
    ("F8_E5M2FNUZ", 8),
    ("F8_E8M0", 8),
    ("I16", 16),
    ("I32", 32),
    ("I64", 64),
    ("I8", 8),
    ("U16", 16),
    ("U32", 32),
    ("U64", 64),
    ("U8", 8),
];

/// The tensors of a header with `body` bytes behind it, sorted by name; or everything that is wrong with it. The tensors must
/// lie one after the other and fill the body, as whoever reads the values demands.
pub fn tensors(header: &[u8], body: u64) -> Result<Vec<Tensor>, Faults> {
    let wrong = |why: String| Faults::one("/base/digest", "base.file", why);
    let value = parse(header).map_err(|error| wrong(format!("its header: {error}")))?;
    let (Value::Object(members), Some(b'{')) = (value, header.first()) else {
        return Err(wrong("its header is no object".into()));
    };
    let mut faults = Faults::new();
    let (mut tensors, mut places) = (Vec::new(), Vec::new());
    for (name, value) in members {
        if name == "__metadata__" {
            if !matches!(&value, Value::Object(texts) if texts.values().all(|text| text.as_str().is_some())) {
                faults.add("base#__metadata__", "base.file", "expected an object of texts");
            }
            continue;
        }
        match tensor(name.clone(), &value) {
            Ok((tensor, place)) => {
                tensors.push(tensor);
                places.push((place, name));
            }
            Err(why) => faults.add(format!("base#{name}"), "base.file", why),
        }
    }
    if faults.is_empty() {
        check_places(places, body, &mut faults);
    }
    faults.or(tensors)
}

/// Notes tensors that do not begin where the one before ends, and values that are missing or belong to none.
fn check_places(mut places: Vec<([u64; 2], String)>, body: u64, faults: &mut Faults) {
    places.sort();
    let mut due = 0;
    for ([begin, end], name) in places {
        let at = format!("base#{name}");
        if begin < due {
            faults.add(at, "base.file", format!("begins at byte {begin}, within another tensor, which ends at {due}"));
        } else if begin > due {
            faults.add(
                at,
                "base.file",
                format!("begins at byte {begin}, where {due} is due: what lies between is no tensor"),
            );
        } else if end > body {
            faults.add(
                at,
                "base.file",
                format!("ends at byte {end}, and the file has {body} bytes of values: it was cut off"),
            );
        }
        due = due.max(end);
    }
    if due < body && faults.is_empty() {
        let message = format!("its tensors end at byte {due}, and the file has {body} bytes of values");
        faults.add("/base/digest", "base.file", message);
    }
}

/// A tensor, and where its values begin and end.
fn tensor(name: String, value: &Value) -> Result<(Tensor, [u64; 2]), String> {
    let kind = value.get("dtype").and_then(Value::as_str).map(String::from);
    let numbers = |name: &str| match value.get(name) {
        Some(Value::List(items)) => items.iter().map(number).collect::<Option<Vec<u64>>>(),
        _ => None,
    };
    let (Some(kind), Some(shape)) = (kind, numbers("shape")) else { return Err("it has no type and shape".into()) };
    let Some([begin, end]) = numbers("data_offsets").and_then(|both| <[u64; 2]>::try_from(both).ok()) else {
        return Err("it has no data_offsets, which are two whole numbers".into());
    };
    let Some((_, bits)) = KINDS.iter().find(|(word, _)| *word == kind) else {
        return Err(format!("there is no type {kind} of values"));
    };
    let bits = shape.iter().try_fold(*bits, |bits, size| bits.checked_mul(*size));
    match bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8) {
        Some(bytes) if begin.checked_add(bytes) == Some(end) => Ok((Tensor { name, kind, shape }, [begin, end])),
        Some(bytes) => Err(format!("its shape takes {bytes} bytes, its data_offsets are {begin} and {end}")),
        None => Err("its shape takes no whole number of bytes, or more than there can be".into()),
    }
}

fn number(item: &Value) -> Option<u64> {
    if let Value::Integer(number) = item { number.to_u64() } else { None }
}

/// How the names of a file become those of a model.
#[derive(Clone, Copy, Debug)]
pub struct Naming<'a> {
    prefix: &'a str,
    fresh: &'a [String],
    unused: &'a [String],
}

impl<'a> Naming<'a> {
    /// That of a base; a frozen bundle has the names of the model, and all of them.
    pub fn of(base: &'a Base) -> Self {
        match base {
            Base::Random {} | Base::Bundle { .. } | Base::Module { .. } => Self { prefix: "", fresh: &[], unused: &[] },
            Base::Safetensors { prefix, fresh, unused, .. } => Self { prefix, fresh, unused },
        }
    }

    /// The name in the file of a parameter; `None` for one that is drawn.
    pub fn in_file<'b>(&self, parameter: &'b str) -> Option<&'b str> {
        let drawn = self.fresh.iter().any(|pattern| fits(pattern, parameter));
        parameter.strip_prefix(self.prefix).filter(|_| !drawn)
    }
}

/// Bytes that the file of a module may have beside its numbers: its program.
const PROGRAM: u64 = 64 << 20;

/// Notes a file of a module that is larger than its numbers account for.
pub fn check_module(model: &Model, bytes: u64, faults: &mut Faults) {
    let values = |shape: &[u64]| shape.iter().fold(1u64, |all, size| all.saturating_mul(*size));
    let numbers = parameters(model).iter().fold(0u64, |all, one| all.saturating_add(values(&one.shape)));
    let most = numbers.saturating_mul(8).saturating_add(PROGRAM);
    if bytes > most {
        let message =
            format!("the module has {bytes} bytes; its {numbers} declared numbers account for {most} at most");
        faults.add("/base/digest", "base.size", message);
    }
}

/// Notes everything that is wrong with a base: `document` holds the bytes of its bundle or configuration, `tensors` those of
/// its parameters. Pointers are into the candidate, and into the file of the base by the name of the tensor.
pub fn check(model: &Model, base: &Base, document: &[u8], tensors: &[Tensor], faults: &mut Faults) {
    match base {
        // A module is opened by the worker alone.
        Base::Random {} | Base::Module { .. } => return,
        Base::Bundle { digest, weights, .. } => check_bundle(model, (*digest, *weights), document, faults),
        Base::Safetensors { .. } => check_configuration(model, document, faults),
    }
    let naming = Naming::of(base);
    let all = parameters(model);
    check_patterns(naming, &all, tensors, faults);
    let by_name: BTreeMap<&str, &Tensor> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    for parameter in &all {
        check_one(naming, parameter, &by_name, faults);
    }
    let used: BTreeSet<&str> = all.iter().filter_map(|parameter| naming.in_file(&parameter.name)).collect();
    for Tensor { name, .. } in tensors.iter().filter(|tensor| !used.contains(tensor.name.as_str())) {
        if !naming.unused.iter().any(|pattern| fits(pattern, name)) {
            let message = "the model has no such parameter; declare it under /base/unused to leave it out";
            faults.add(format!("base#{name}"), "base.unknown", message);
        }
    }
}

fn check_patterns(naming: Naming<'_>, all: &[Parameter], tensors: &[Tensor], faults: &mut Faults) {
    for (place, pattern) in naming.fresh.iter().enumerate() {
        if !all.iter().any(|parameter| fits(pattern, &parameter.name)) {
            let message = format!("{pattern:?} fits none of the {} parameters of the model", all.len());
            faults.add(format!("/base/fresh/{place}"), "base.nothing", message);
        }
    }
    for (place, pattern) in naming.unused.iter().enumerate() {
        if !tensors.iter().any(|tensor| fits(pattern, &tensor.name)) {
            let message = format!("{pattern:?} fits none of the {} tensors of the base", tensors.len());
            faults.add(format!("/base/unused/{place}"), "base.nothing", message);
        }
    }
    if all.iter().all(|parameter| naming.in_file(&parameter.name).is_none()) {
        faults.add("/base", "base.nothing", "no parameter would come from the base, so it is none");
    }
}

fn check_one(naming: Naming<'_>, parameter: &Parameter, tensors: &BTreeMap<&str, &Tensor>, faults: &mut Faults) {
    let Parameter { name, shape } = parameter;
    let drawn = naming.fresh.iter().any(|pattern| fits(pattern, name));
    let Some(in_file) = naming.in_file(name) else {
        if !drawn {
            let message = format!("it does not begin with {:?}, and /base/fresh does not name it", naming.prefix);
            faults.add(format!("base#{name}"), "base.missing", message);
        }
        return;
    };
    match tensors.get(in_file) {
        None => {
            let message = "the base has no such tensor; declare it under /base/fresh to draw it from the seed";
            faults.add(format!("base#{in_file}"), "base.missing", message);
        }
        Some(tensor) if tensor.kind != "F32" => {
            faults.add(format!("base#{in_file}"), "base.type", format!("expected F32, found {}", tensor.kind));
        }
        Some(tensor) if tensor.shape != *shape => {
            let message = format!("the model has {shape:?}, the base {:?}", tensor.shape);
            faults.add(format!("base#{in_file}"), "base.shape", message);
        }
        Some(_) => {}
    }
}

/// The bundle must hold these parameters as its trained or averaged ones, and be one of this form.
fn check_bundle(model: &Model, (digest, weights): (Digest, Digest), document: &[u8], faults: &mut Faults) {
    let bundle = parse(document).map_err(|error| error.to_string());
    let bundle = bundle.and_then(|value| Bundle::decode(&value).map_err(|faults| faults.to_string()));
    let bundle = match bundle {
        Ok(bundle) if bundle.id() == digest => bundle,
        Ok(bundle) => return faults.add("/base/digest", "base.bundle", format!("its bundle is {}", bundle.id())),
        Err(why) => return faults.add("/base/digest", "base.bundle", format!("this is no frozen bundle: {why}")),
    };
    let held = |path| bundle.members.iter().find(|member| member.file.path.as_str() == path);
    let has = [WEIGHTS, AVERAGED].into_iter().filter_map(held).any(|member| member.file.digest == weights);
    if !has {
        let found = held(WEIGHTS).map_or_else(|| "none".into(), |member| member.file.digest.to_string());
        let message = format!("the bundle has no such parameters; its {WEIGHTS} is {found}");
        faults.add("/base/weights", "base.weights", message);
    }
    let due = form(model);
    if bundle.compatibility.form != due {
        let message = format!("the candidate trains {due}, the bundle holds {}", bundle.compatibility.form);
        faults.add("/base/digest", "base.form", message);
    }
}

/// Values of a configuration that say how a model is trained, and not what its parameters mean: the candidate declares its own.
const FREE: [&str; 7] = [
    "/attention_dropout",
    "/attention_probs_dropout_prob",
    "/attn_pdrop",
    "/embd_pdrop",
    "/hidden_dropout_prob",
    "/initializer_range",
    "/resid_pdrop",
];

/// The names of classes say what a classifier means, and a base need have none; where it has one, its shape is looked at.
const CLASSES: [&str; 2] = ["/id2label", "/label2id"];

/// Every value of the configuration that changes what the parameters mean must be that of the candidate.
fn check_configuration(ours: &Model, document: &[u8], faults: &mut Faults) {
    let value = match parse(document) {
        Ok(value) => value,
        Err(error) => return faults.add("base/config.json", "base.configuration", error.to_string()),
    };
    let mut found = Faults::new();
    let theirs = configuration::model(&value, &mut found);
    faults.0.extend(found.within("base/config.json").0);
    let Some(theirs) = theirs else { return };
    for difference in compare::documents(&configuration(ours), &configuration(&theirs)) {
        // Rotary positions are not learned, so a shorter context is a part of a longer one.
        let rotary = matches!(ours, Model::Llama { .. });
        let shorter = rotary && difference.pointer == "/max_position_embeddings" && ours.context() <= theirs.context();
        let classes = CLASSES.iter().any(|names| difference.pointer.starts_with(names));
        if FREE.contains(&difference.pointer.as_str()) || shorter || classes {
            continue;
        }
        let message = format!("the candidate's model has {}, the base {}", difference.first, difference.second);
        faults.add(format!("base/config.json#{}", difference.pointer), "base.configuration", message);
    }
}

/// In words.
pub fn describe(base: &Base) -> Option<String> {
    match base {
        Base::Random {} => None,
        Base::Module { digest } => Some(format!("module {digest}")),
        Base::Bundle { digest, weights, .. } => Some(format!("bundle {digest}, its parameters {weights}")),
        Base::Safetensors { digest, fresh, unused, .. } => {
            let list = |what: &str, names: &[String]| {
                if names.is_empty() { String::new() } else { format!("; {what} {}", names.join(", ")) }
            };
            Some(format!("safetensors {digest}{}{}", list("drawn from the seed:", fresh), list("left out:", unused)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pickle_is_refused_with_the_reason_and_the_way_to_convert() {
        for start in [b"PK\x03\x04\x00\x00\x08\x08", b"\x80\x02\x8a\x0al\xfc\x9cF", b"\x80\x04\x95\x00\x00\x00\x00\x00"]
        {
            let why = header_length(start).unwrap_err();
            assert!(why.contains("pickle") && why.contains("save_file"), "{why}");
        }
        for length in [640u16, 896, 1152, 1408, 0x280 + 1] {
            assert_eq!(header_length(&u64::from(length).to_le_bytes()), Ok(length.into()));
        }
        for length in [0, 1, u64::MAX] {
            assert!(header_length(&length.to_le_bytes()).unwrap_err().contains("no safetensors"));
        }
    }

    #[test]
    fn a_header_gives_names_types_and_shapes_and_nothing_else_is_one() {
        let header = br#"{"b":{"dtype":"I64","shape":[1,512],"data_offsets":[0,4096]},
            "a":{"dtype":"F32","shape":[],"data_offsets":[4096,4100]},"__metadata__":{"format":"pt"}}"#;
        let found = tensors(header, 4100).unwrap();
        let shown: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.kind.as_str(), one.shape.len())).collect();
        assert_eq!(shown, [("a", "F32", 0), ("b", "I64", 2)]);
        for bad in [&b"[]"[..], b"{\"a\":1}", b"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1]}}", b"{", b" {}"] {
            assert!(tensors(bad, 0).is_err());
        }
    }

    #[test]
    fn tensors_that_overlap_leave_holes_or_reach_beyond_the_file_are_named() {
        let header = |a: &str, b: &str| alloc::format!("{{\"a\":{a},\"b\":{b}}}");
        let one = |kind: &str, shape: &str, begin: u64, end: u64| {
            alloc::format!("{{\"dtype\":\"{kind}\",\"shape\":{shape},\"data_offsets\":[{begin},{end}]}}")
        };
        let first = one("F32", "[2]", 0, 8);
        let max = u64::MAX;
        for (second, body, says) in [
            (one("F32", "[2]", 4, 12), 12, "base#b: begins at byte 4, within another tensor"),
            (one("F32", "[2]", 12, 20), 20, "base#b: begins at byte 12, where 8 is due"),
            (one("F32", "[2]", 8, 16), 15, "base#b: ends at byte 16, and the file has 15"),
            (one("F32", "[2]", 8, 16), 17, "/base/digest: its tensors end at byte 16"),
            (one("F32", "[3]", 8, 16), 16, "base#b: its shape takes 12 bytes"),
            (one("F4", "[1]", 8, 8), 8, "base#b: its shape takes no whole number of bytes"),
            (one("F32", "[4294967296,4294967296]", 8, 16), 16, "more than there can be"),
            (one("F32", "[2]", max - 7, max), 16, "base#b: its shape takes 8 bytes"),
            (one("F33", "[2]", 8, 16), 16, "base#b: there is no type F33"),
            ("{\"dtype\":\"F32\",\"shape\":[2]}".into(), 16, "base#b: it has no data_offsets"),
        ] {
            let faults = tensors(header(&first, &second).as_bytes(), body).unwrap_err();
            assert!(faults.to_string().contains(says), "{says}: {faults}");
        }
        // The controls: in the other order in the file, and one without a value.
        let second = one("F16", "[4]", 8, 16);
        assert!(tensors(header(&second, &first).as_bytes(), 16).is_ok());
        assert!(tensors(header(&first, &one("F32", "[0,7]", 8, 8)).as_bytes(), 8).is_ok());
    }
}
