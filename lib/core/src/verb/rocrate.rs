//! A bundle as a research object: the metadata file of an RO-Crate 1.1 (Soiland-Reyes et al., 2022), which archives read. It
//! says what the bundle says, in the words of schema.org, and is never what anything is judged by.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::{Field, Manifest, object};
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::run::Run;

/// The name that the file must have.
pub const FILE: &str = "ro-crate-metadata.json";

/// The document about the `files` of a folder, which are path, digest and size.
pub fn metadata(bundle: &Bundle, run: &Run, files: &[(String, Digest, u64)], version: &str) -> Value {
    let parts: Vec<Value> = files.iter().map(|(path, ..)| entity(&encoded(path), &[])).collect();
    let about = object([
        ("@id", FILE.into()),
        ("@type", "CreativeWork".into()),
        ("about", entity("./", &[])),
        ("conformsTo", entity("https://w3id.org/ro/crate/1.1", &[])),
    ]);
    let name = alloc::format!("Bundle {}", bundle.id());
    let root = object([
        ("@id", "./".into()),
        ("@type", "Dataset".into()),
        ("name", name.as_str().into()),
        (
            "description",
            "A trained model with everything that binds it: plan, data by digest, custody and trace.".into(),
        ),
        ("identifier", bundle.id().write()),
        ("datePublished", run.finished.write()),
        ("hasPart", Value::List(parts)),
        ("mentions", entity("#run", &[])),
    ]);
    // By digest: in a folder of the model alone, files have other paths than in the bundle.
    let of_role = |role: fn(MemberRole) -> bool| {
        let members = bundle.members.iter().filter(|member| role(member.role));
        let digests: BTreeSet<Digest> = members.map(|member| member.file.digest).collect();
        let there = files.iter().filter(|(_, digest, _)| digests.contains(digest));
        Value::List(there.map(|(path, ..)| entity(&encoded(path), &[])).collect())
    };
    let action = object([
        ("@id", "#run".into()),
        ("@type", "CreateAction".into()),
        ("name", run.attempt.write()),
        ("startTime", run.started.write()),
        ("endTime", run.finished.write()),
        ("instrument", entity("#xt", &[])),
        ("object", of_role(|role| matches!(role, MemberRole::Data | MemberRole::Base | MemberRole::File))),
        ("result", of_role(|role| matches!(role, MemberRole::Model | MemberRole::Output))),
    ]);
    let tool = entity("#xt", &[("@type", "SoftwareApplication"), ("name", "xt"), ("version", version)]);
    let described = files.iter().map(file);
    object([
        ("@context", "https://w3id.org/ro/crate/1.1/context".into()),
        ("@graph", Value::List([about, root, action, tool].into_iter().chain(described).collect())),
    ])
}

fn file((path, digest, bytes): &(String, Digest, u64)) -> Value {
    let format = match path.rsplit('.').next() {
        Some("json") => "application/json",
        Some("jsonl") => "application/jsonl",
        Some("txt" | "log") => "text/plain",
        _ => "application/octet-stream",
    };
    let (bytes, hex) = (bytes.to_string(), digest.hex());
    entity(
        &encoded(path),
        &[("@type", "File"), ("name", path), ("contentSize", &bytes), ("encodingFormat", format), ("sha256", &hex)],
    )
}

fn entity(id: &str, members: &[(&str, &str)]) -> Value {
    let all = core::iter::once(("@id", id)).chain(members.iter().copied());
    Value::Object(all.map(|(name, value)| (name.to_string(), Value::from(value))).collect())
}

/// A path as a relative reference (RFC 3986, 3.3).
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes().fold(String::new(), |text, byte| {
        if plain(byte) { text + &char::from(byte).to_string() } else { text + &alloc::format!("%{byte:02X}") }
    })
}
