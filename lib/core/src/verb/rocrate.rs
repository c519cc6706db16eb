//! A bundle as a research object: the metadata file of an RO-Crate 1.1 (Soiland-Reyes et al., 2022), which archives read. It
//! says what the bundle says, in the words of schema.org, and is never what anything is judged by.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::{Field, Manifest, object};
use crate::left_out::LeftOut;
use crate::licence::Licence;
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::run::Run;
use crate::manifest::terms::Terms;

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
    let mut root = object([
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
    let licence = bundle.terms.0.as_ref().and_then(|terms| terms.licence.as_ref()).map(licence);
    if let Value::Object(members) = &mut root {
        if let Some((id, _)) = &licence {
            members.insert("license".into(), entity(id, &[]));
        }
        let classes = bundle.terms.0.iter().flat_map(|terms| terms.classes.iter());
        let classes: Vec<Value> = classes.map(Field::write).collect();
        if !classes.is_empty() {
            members.insert("keywords".into(), Value::List(classes));
        }
    }
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
    let described = files.iter().map(|one| {
        let is_data =
            bundle.members.iter().any(|member| member.role == MemberRole::Data && member.file.digest == one.1);
        file(one, if is_data { &bundle.data_terms } else { &LeftOut(None) })
    });
    let data_licence = bundle.data_terms.0.as_ref().and_then(|terms| terms.licence.as_ref()).map(self::licence);
    let mut licences: Vec<(String, Value)> = licence.into_iter().chain(data_licence).collect();
    licences.dedup_by(|one, other| one.0 == other.0);
    let licences = licences.into_iter().map(|(_, entity)| entity);
    object([
        ("@context", "https://w3id.org/ro/crate/1.1/context".into()),
        ("@graph", Value::List([about, root, action, tool].into_iter().chain(licences).chain(described).collect())),
    ])
}

/// A licence with its name here: the address of one that SPDX lists, or a place in this document for any other expression.
fn licence(licence: &Licence) -> (String, Value) {
    let text = licence.as_str();
    let listed = !text.contains([' ', '(', '+']) && !text.contains("LicenseRef-");
    let id =
        if listed { alloc::format!("https://spdx.org/licenses/{text}") } else { alloc::format!("#{}", encoded(text)) };
    let described = entity(&id, &[("@type", "CreativeWork"), ("name", text), ("identifier", text)]);
    (id, described)
}

fn file((path, digest, bytes): &(String, Digest, u64), terms: &LeftOut<Terms>) -> Value {
    let format = match path.rsplit('.').next() {
        Some("json") => "application/json",
        Some("jsonl") => "application/jsonl",
        Some("txt" | "log") => "text/plain",
        _ => "application/octet-stream",
    };
    let (bytes, hex) = (bytes.to_string(), digest.hex());
    let mut file = entity(
        &encoded(path),
        &[("@type", "File"), ("name", path), ("contentSize", &bytes), ("encodingFormat", format), ("sha256", &hex)],
    );
    if let (Value::Object(members), Some(terms)) = (&mut file, &terms.0) {
        if let Some(found) = &terms.licence {
            members.insert("license".into(), entity(&licence(found).0, &[]));
        }
        let classes: Vec<Value> = terms.classes.iter().map(Field::write).collect();
        if !classes.is_empty() {
            members.insert("keywords".into(), Value::List(classes));
        }
    }
    file
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
