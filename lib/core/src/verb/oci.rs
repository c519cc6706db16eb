//! A bundle as an image layout of the Open Container Initiative (image-spec 1.1), with the media types of ModelPack
//! (model-spec 0.0.7): each file is a raw layer, so the digest of a blob is the digest of the file.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::canonical::Value;
use crate::digest::Digest;
use crate::field::{Field, Manifest, object};
use crate::manifest::bundle::{Bundle, MemberRole};
use crate::manifest::run::Run;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const ARTIFACT: &str = "application/vnd.cncf.model.manifest.v1+json";
const CONFIG: &str = "application/vnd.cncf.model.config.v1+json";
/// The path of the file that a layer is.
const PATH: &str = "org.cncf.model.filepath";

/// The files of a layout beside the blobs that are files of the bundle: path and text. `sums` is `SHA256SUMS`.
pub fn layout(bundle: &Bundle, run: Option<&Run>, sums: &str) -> Vec<(String, String)> {
    let document = bundle.write().canonical();
    let own = [("bundle.json", document.as_str()), ("SHA256SUMS", sums)];
    let own = own.map(|(path, text)| (path, Digest::of(text.as_bytes()), text.len() as u64, MemberRole::Manifest));
    let listed = bundle.members.iter().map(|member| {
        let file = &member.file;
        (file.path.as_str(), file.digest, file.bytes, member.role)
    });
    let files: Vec<_> = own.into_iter().chain(listed).collect();
    let layer = |(path, digest, bytes, role): &(&str, Digest, u64, MemberRole)| {
        let mut layer = descriptor(media_type(*role), *digest, *bytes);
        layer.push(("annotations", object([(PATH, Value::from(*path))])));
        members(layer)
    };
    let config = config(bundle, run, files.iter().map(|(_, digest, ..)| digest.write()).collect()).canonical();
    let manifest = object([
        ("schemaVersion", 2_u64.into()),
        ("mediaType", MANIFEST.into()),
        ("artifactType", ARTIFACT.into()),
        ("config", members(descriptor(CONFIG, Digest::of(config.as_bytes()), config.len() as u64))),
        ("layers", Value::List(files.iter().map(layer).collect())),
    ])
    .canonical();
    let mut named = descriptor(MANIFEST, Digest::of(manifest.as_bytes()), manifest.len() as u64);
    named.push(("artifactType", ARTIFACT.into()));
    named.push(("annotations", object([("org.opencontainers.image.ref.name", bundle.id().hex().as_str().into())])));
    let index = object([
        ("schemaVersion", 2_u64.into()),
        ("mediaType", INDEX.into()),
        ("manifests", Value::List([members(named)].into())),
    ]);
    let version = object([("imageLayoutVersion", "1.0.0".into())]);
    [
        (String::from("oci-layout"), version.canonical()),
        (String::from("index.json"), index.canonical()),
        (blob(Digest::of(config.as_bytes())), config),
        (blob(Digest::of(manifest.as_bytes())), manifest),
    ]
    .into()
}

/// Where the bytes with a digest lie in a layout.
pub fn blob(digest: Digest) -> String {
    alloc::format!("blobs/sha256/{}", digest.hex())
}

const fn media_type(role: MemberRole) -> &'static str {
    match role {
        MemberRole::Model | MemberRole::Base => "application/vnd.cncf.model.weight.v1.raw",
        MemberRole::Configuration | MemberRole::Tokenizer => "application/vnd.cncf.model.weight.config.v1.raw",
        MemberRole::Data => "application/vnd.cncf.model.dataset.v1.raw",
        MemberRole::File | MemberRole::Worker => "application/vnd.cncf.model.code.v1.raw",
        MemberRole::Manifest | MemberRole::Trace | MemberRole::Log | MemberRole::Output => {
            "application/vnd.cncf.model.doc.v1.raw"
        }
    }
}

fn descriptor(media: &str, digest: Digest, bytes: u64) -> Vec<(&'static str, Value)> {
    [("mediaType", media.into()), ("digest", digest.write()), ("size", bytes.into())].into()
}

fn members(members: Vec<(&str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
}

/// What ModelPack says of a model.
fn config(bundle: &Bundle, run: Option<&Run>, digests: Vec<Value>) -> Value {
    let mut told = Vec::from([
        ("name", Value::from(bundle.fingerprint.hex().as_str())),
        ("version", bundle.id().hex().as_str().into()),
    ]);
    told.extend(run.map(|run| ("createdAt", run.finished.write())));
    // The model of a command has a form of its own, of which nothing is known here, so nothing is said.
    let family = bundle.compatibility.family();
    told.extend(family.map(|family| ("family", family.into())));
    let config = family.map_or_else(Vec::new, |family| {
        let precision = bundle.compatibility.precision.as_str().into();
        Vec::from([("architecture", family.into()), ("format", "safetensors".into()), ("precision", precision)])
    });
    object([
        ("descriptor", members(told)),
        ("modelfs", object([("type", "layers".into()), ("diffIds", Value::List(digests))])),
        ("config", members(config)),
    ])
}
