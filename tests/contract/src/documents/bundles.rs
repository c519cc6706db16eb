//! Bundles, and whether they verify.

use xt_core::manifest::bundle::{
    Bundle, BundleFault, Compatibility, Member as BundleMember, MemberRole, Signature, Size, Verification,
};

use super::{artifact, digest, stack};

pub fn bundles() -> Vec<Bundle> {
    let bundle = |base| Bundle {
        size: Size::Sealed,
        fingerprint: digest("fingerprint"),
        plan: digest("plan"),
        run: digest("run"),
        dataset: Some(digest("dataset")),
        custody: digest("custody"),
        trace: digest("trace"),
        base,
        members: vec![
            BundleMember { file: artifact("base/0"), role: MemberRole::Base },
            BundleMember { file: artifact("model/model.safetensors"), role: MemberRole::Model },
        ],
        compatibility: Compatibility {
            form: String::from("huggingface/gpt2"),
            precision: String::from("float32"),
            stack: stack(true),
        },
    };
    let mut silent = bundle(None);
    silent.dataset = None;
    silent.compatibility.stack = stack(false);
    vec![bundle(Some(digest("base"))), silent]
}

pub fn verifications() -> Vec<Verification> {
    let fault = BundleFault {
        pointer: String::from("model/model.safetensors"),
        code: String::from("member.digest"),
        message: String::from("the bundle lists another digest"),
    };
    let signature =
        Signature { key: "0".repeat(64), algorithm: "p256".into(), predicate: "https://slsa.dev/provenance/v1".into() };
    let verification = |verified, id: Option<&str>, signatures, faults| Verification {
        verified,
        bundle: id.map(digest),
        run: id.map(digest),
        members: 13,
        bytes: 4096,
        signatures,
        faults,
    };
    vec![verification(true, Some("bundle"), vec![signature], vec![]), verification(false, None, vec![], vec![fault])]
}
