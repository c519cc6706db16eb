//! Bundles, and whether they verify.

use xt_core::manifest::bundle::{
    Bundle, BundleFault, Compatibility, Member as BundleMember, MemberRole, Signature, Size, Verification,
};

use xt_core::left_out::LeftOut;
use xt_core::licence::Licence;
use xt_core::manifest::terms::{DataClass, Terms};

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
        terms: LeftOut(None),
        data_terms: LeftOut(None),
    };
    let mut silent = bundle(None);
    silent.dataset = None;
    silent.compatibility.stack = stack(false);
    let mut declared = bundle(None);
    declared.terms = terms(Some("MIT OR Apache-2.0"), &[DataClass::Confidential, DataClass::Personal]);
    declared.data_terms = terms(Some("CC-BY-4.0"), &[DataClass::Personal]);
    let mut unlicensed = bundle(None);
    (unlicensed.terms, unlicensed.data_terms) = (terms(None, &[DataClass::Internal]), terms(None, &[]));
    vec![bundle(Some(digest("base"))), silent, declared, unlicensed]
}

/// What was declared of something.
pub fn terms(licence: Option<&str>, classes: &[DataClass]) -> LeftOut<Terms> {
    let licence = licence.map(|text| Licence::declare(text).unwrap_or_else(|why| panic!("{why}")));
    LeftOut(Some(Terms::declare(licence, classes.to_vec()).unwrap_or_else(|why| panic!("{why}"))))
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
        terms: if verified { terms(Some("CC0-1.0"), &[DataClass::Public]) } else { terms(None, &[]) },
        data_terms: if verified { terms(Some("MIT"), &[DataClass::Public]) } else { terms(None, &[]) },
        faults,
    };
    vec![verification(true, Some("bundle"), vec![signature], vec![]), verification(false, None, vec![], vec![fault])]
}
