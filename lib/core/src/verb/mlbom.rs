//! A bundle as a bill of materials: CycloneDX 1.6, with the model as its component (ML-BOM). It says what the bundle says, in
//! the words of another standard, and is never what anything is judged by.

use alloc::string::String;
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::{Field, Manifest, object};
use crate::left_out::LeftOut;
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::run::Run;
use crate::manifest::terms::Terms;

/// The document.
pub fn bill(bundle: &Bundle, run: &Run, version: &str) -> Value {
    let id = bundle.id();
    let files = bundle.members.iter().map(|member| {
        let (path, digest) = (member.file.path.as_str(), member.file.digest);
        if member.role == MemberRole::Data {
            data(path, digest, &bundle.data_terms)
        } else {
            component("file", path, digest)
        }
    });
    let stack = run.stack.iter();
    let libraries = stack.flat_map(|stack| &stack.libraries);
    let parts: Vec<Value> =
        files.chain(libraries.map(|library| component("library", &library.name, library.digest))).collect();
    let references = parts.iter().filter_map(|part| part.get("bom-ref").cloned()).collect();
    let tool = object([("type", "application".into()), ("name", "xt-freeze".into()), ("version", version.into())]);
    object([
        ("bomFormat", "CycloneDX".into()),
        ("specVersion", "1.6".into()),
        ("serialNumber", serial(id).as_str().into()),
        ("version", 1_u64.into()),
        (
            "metadata",
            object([
                ("timestamp", run.finished.write()),
                ("tools", object([("components", Value::List([tool].into()))])),
                ("component", model(bundle)),
            ]),
        ),
        ("components", Value::List(parts)),
        (
            "dependencies",
            Value::List(
                [object([("ref", reference(id).as_str().into()), ("dependsOn", Value::List(references))])].into(),
            ),
        ),
    ])
}

/// The model, with the digest of the bundle that binds it.
fn model(bundle: &Bundle) -> Value {
    let datasets = bundle
        .members
        .iter()
        .filter(|member| member.role == MemberRole::Data)
        .map(|member| object([("ref", identifier("data", member.file.path.as_str()).as_str().into())]));
    // The model of a command has a form of its own, of which nothing is known here, so nothing is said.
    let form = bundle.compatibility.form.as_str();
    let known_form = bundle
        .compatibility
        .family()
        .map(|family| [("architectureFamily", family.into()), ("modelArchitecture", form.into())]);
    let parameters = known_form.into_iter().flatten().chain([("datasets", Value::List(datasets.collect()))]);
    let property = |name: &str, value: Digest| object([("name", name.into()), ("value", value.write())]);
    let known = [("xt:plan", bundle.plan), ("xt:run", bundle.run), ("xt:custody", bundle.custody)];
    let known = known.into_iter().chain(bundle.base.map(|base| ("xt:base", base)));
    let declared = bundle.terms.0.iter().flat_map(|terms| terms.classes.iter());
    let declared = declared.map(|class| object([("name", "xt:class".into()), ("value", class.write())]));
    let properties = known.map(|(name, value)| property(name, value)).chain(declared);
    let model = object([
        ("type", "machine-learning-model".into()),
        ("bom-ref", reference(bundle.id()).as_str().into()),
        ("name", bundle.fingerprint.hex().as_str().into()),
        ("version", bundle.id().hex().as_str().into()),
        ("hashes", hashes(bundle.id())),
        (
            "modelCard",
            object([(
                "modelParameters",
                Value::Object(parameters.map(|(name, value)| (name.into(), value)).collect()),
            )]),
        ),
        ("properties", Value::List(properties.collect())),
    ]);
    licensed(model, &bundle.terms)
}

/// A file of the data, with its classes and licence.
fn data(path: &str, digest: Digest, terms: &LeftOut<Terms>) -> Value {
    let classes: Vec<&str> = terms.0.iter().flat_map(|terms| terms.classes.iter()).map(|class| class.word()).collect();
    let mut part = component("data", path, digest);
    if let (Value::Object(members), false) = (&mut part, classes.is_empty()) {
        let described = object([
            ("type", "dataset".into()),
            ("name", path.into()),
            ("classification", classes.join(", ").as_str().into()),
        ]);
        members.insert("data".into(), Value::List([described].into()));
    }
    licensed(part, terms)
}

/// A component with the licence that was declared of it.
fn licensed(mut component: Value, terms: &LeftOut<Terms>) -> Value {
    let licence = terms.0.as_ref().and_then(|terms| terms.licence.as_ref());
    if let (Value::Object(members), Some(licence)) = (&mut component, licence) {
        members.insert("licenses".into(), Value::List([object([("expression", licence.write())])].into()));
    }
    component
}

fn component(kind: &str, name: &str, digest: Digest) -> Value {
    object([
        ("type", kind.into()),
        ("bom-ref", identifier(kind, name).as_str().into()),
        ("name", name.into()),
        ("hashes", hashes(digest)),
    ])
}

fn hashes(digest: Digest) -> Value {
    Value::List([object([("alg", "SHA-256".into()), ("content", digest.hex().as_str().into())])].into())
}

fn reference(bundle: Digest) -> String {
    alloc::format!("bundle:{}", bundle.hex())
}

fn identifier(kind: &str, name: &str) -> String {
    alloc::format!("{kind}:{name}")
}

/// A serial number that follows from the bundle: a UUID of version 8, whose bits are anybody's own (RFC 9562, 5.8).
fn serial(bundle: Digest) -> String {
    let hex = bundle.hex();
    alloc::format!("urn:uuid:{}-{}-8{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}
