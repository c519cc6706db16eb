//! What is signed about a bundle: in-toto statements (in-toto Attestation Framework, Statement v1). A statement names its
//! subjects by digest and says one thing about them, the predicate.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::{Digest, Hasher};
use crate::field::{Field, Manifest, object};
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::custody::Custody;
use crate::manifest::run::Run;

/// The type of every statement.
pub const STATEMENT: &str = "https://in-toto.io/Statement/v1";
/// Predicate of [`provenance`]: SLSA provenance v1. No level is claimed.
pub const PROVENANCE: &str = "https://slsa.dev/provenance/v1";
/// Predicate of [`custody`]: the custody record as it stands in the bundle.
pub const CUSTODY: &str = "urn:xt:custody:1";
/// Predicate of [`model`]: OpenSSF model signing v1.0.
pub const MODEL: &str = "https://model_signing/signature/v1.0";

/// The file of a bundle that says what the others are.
const BUNDLE: &str = "bundle.json";
/// What the builder calls itself, and what it calls the way it builds.
const BUILDER: &str = "urn:xt:xt-run";
const BUILD: &str = "urn:xt:plan:1";

/// Every file of a bundle as subjects; the first is the bundle's own document.
pub fn subjects(bundle: &Bundle) -> Value {
    let members = bundle.members.iter().map(|member| resource(member.file.path.as_str(), member.file.digest));
    Value::List(core::iter::once(resource(BUNDLE, bundle.id())).chain(members).collect())
}

/// How the model came to be, in the words of SLSA provenance v1.
pub fn provenance(bundle: &Bundle, run: &Run) -> Value {
    let named = |role| {
        let members = bundle.members.iter().filter(move |member| member.role == role);
        members.map(|member| resource(member.file.path.as_str(), member.file.digest))
    };
    let inputs = run.inputs.iter().map(|input| resource(&input.digest.hex(), input.digest));
    let stack = run.stack.iter();
    let worker = stack.clone().map(|stack| resource("worker", stack.worker));
    let libraries = stack.flat_map(|stack| &stack.libraries).map(|library| resource(&library.name, library.digest));
    let parameters = object([
        ("plan", Value::from(bundle.plan.hex().as_str())),
        ("fingerprint", bundle.fingerprint.hex().as_str().into()),
        ("seed", run.seed.to_string().as_str().into()),
    ]);
    let definition = object([
        ("buildType", BUILD.into()),
        ("externalParameters", parameters),
        ("internalParameters", object([("isolation", run.isolation.write()), ("intent", run.intent.write())])),
        ("resolvedDependencies", Value::List(inputs.chain(worker).chain(libraries).collect())),
    ]);
    let version = run.stack.as_ref().and_then(|stack| stack.reported.as_ref()).map_or("", |told| told.version.as_str());
    let details = object([
        ("builder", object([("id", BUILDER.into()), ("version", object([("xt-train", version.into())]))])),
        (
            "metadata",
            object([
                ("invocationId", run.attempt.write()),
                ("startedOn", run.started.write()),
                ("finishedOn", run.finished.write()),
            ]),
        ),
        ("byproducts", Value::List(named(MemberRole::Manifest).chain(named(MemberRole::Trace)).collect())),
    ]);
    statement(subjects(bundle), PROVENANCE, object([("buildDefinition", definition), ("runDetails", details)]))
}

/// What kept the trainer in, and the proof of it.
pub fn custody(bundle: &Bundle, custody: &Custody) -> Value {
    statement(subjects(bundle), CUSTODY, custody.write())
}

/// The files of a folder, in the form of OpenSSF model signing v1.0: sorted by path, and as the one subject the digest of
/// all their digests, one behind the other. `name` is that of the folder; `ignored` are paths that do not count.
pub fn model(name: &str, files: &[(String, Digest)], ignored: &[&str]) -> Value {
    let mut files: Vec<&(String, Digest)> = files.iter().collect();
    files.sort();
    let mut all = Hasher::new();
    for (_, digest) in &files {
        all.update(digest.bytes());
    }
    let resource = |(path, digest): &(String, Digest)| {
        object([
            ("name", path.as_str().into()),
            ("algorithm", "sha256".into()),
            ("digest", digest.hex().as_str().into()),
        ])
    };
    let serialization = object([
        ("method", "files".into()),
        ("hash_type", "sha256".into()),
        ("allow_symlinks", false.into()),
        ("ignore_paths", crate::field::texts(ignored)),
    ]);
    let resources = Value::List(files.into_iter().map(resource).collect());
    let subject = self::resource(name, all.finish());
    statement(
        Value::List([subject].into()),
        MODEL,
        object([("serialization", serialization), ("resources", resources)]),
    )
}

/// Why a statement does not vouch for `bundle`, whose own evidence says `said`; nothing when it does.
pub fn refusal(statement: &Value, bundle: &Bundle, said: &[Value]) -> Option<String> {
    let kind = statement.get("_type").and_then(Value::as_str).unwrap_or("none");
    if kind != STATEMENT {
        return Some(alloc::format!("it is a statement of the type {kind}, and not {STATEMENT}"));
    }
    if statement.get("subject") != Some(&subjects(bundle)) {
        return Some(alloc::format!("it is about other files than those of bundle {}", bundle.id()));
    }
    let same = said.contains(statement);
    (!same).then(|| alloc::format!("it says something else of them than their evidence ({})", predicate(statement)))
}

/// What the statement says, by the type of its predicate.
pub fn predicate(statement: &Value) -> &str {
    statement.get("predicateType").and_then(Value::as_str).unwrap_or("none")
}

fn statement(subject: Value, predicate_type: &str, predicate: Value) -> Value {
    object([
        ("_type", STATEMENT.into()),
        ("subject", subject),
        ("predicateType", predicate_type.into()),
        ("predicate", predicate),
    ])
}

/// A name with a digest, as in-toto writes it.
fn resource(name: &str, digest: Digest) -> Value {
    object([("name", name.into()), ("digest", object([("sha256", digest.hex().as_str().into())]))])
}
